"""Rung 2 and the pair contract: order and names in contracts never matter, engines, what a pair accepts."""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import api
from draftproof.contracts import Fact, Pair
from draftproof.findings import Report
from draftproof.library import Library

IDS = "eagle_config.eagle_aux_hidden_state_layer_ids"
LLAMA = (b.target_config(), b.target())
SAMPLES: Mapping[str, tuple[b.Config, b.Table, tuple[b.Config, b.Table]]] = {
    "good": (b.dense_config(), b.dense(), LLAMA),
    "3.1": (b.dense_config(fc_norm=True), b.dense(fc_norm=True), LLAMA),
    "latent": (b.mla_config(), b.mla(), (b.deepseek_config(), b.target())),
    "latent, rank": (b.mla_config(q_lora_rank=40), b.mla(), (b.deepseek_config(), b.target())),
    "nested": (b.dense_config(), b.dense(), (b.kimi_k25_config(), b.target(prefix="language_model."))),
    "wide target": (b.dense_config(), b.dense(), (b.target_config(hidden_size=128), b.target(hidden=128))),
    "no keys": ({"architectures": ["LlamaForCausalLMEagle3"]}, b.dense(), LLAMA),
    "many": (
        b.dense_config(head_dim=40, intermediate_size=80, max_position_embeddings=128, rms_norm_eps=3, **{IDS: [2, 9]}),
        b.changed(b.dense(style="nested"), {"model.norm.weight": None, "lm_head.weight": None}),
        (b.target_config(vocab_size=576), b.target(vocab=576)),
    ),
    "trainer": (b.dense_config(num_hidden_layers=2), b.dense(style="trainer"), LLAMA),
}


def outcome(report: Report) -> list[tuple[str, ...]]:
    """Return all that is said, without the lines of contract files."""
    return [(f.code, f.level, f.subject, f.message, f.expected, f.observed, f.note) for f in report.findings]


def judge(sample: str, library: Library) -> Report:
    config, table, (base, base_table) = SAMPLES[sample]
    return b.check(b.given(config, table, b.DRAFTER), b.given(base, base_table, b.TARGET), library=library)


# --- contracts in another order, under other names ----------------------------------------------------------------


def toml(value: Any) -> str:
    """Write a value as TOML, tables inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


def rewritten(root: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Library:
    """Write every shipped family, target and engine anew, changed, and return a library of them."""
    for kind, folder in (("family", "families"), ("target", "targets"), ("engine", "engines")):
        (root / folder).mkdir()
        for id, path in b.LIBRARY.files(kind).items():
            data = change(tomllib.loads(path.read_text()))
            (root / folder / f"{id}.toml").write_text(
                "".join(f"{json.dumps(k)} = {toml(v)}\n" for k, v in data.items())
            )
    return Library(root)


def shuffled(value: Any, pick: random.Random) -> Any:
    """Return a value with every table in another order; lists keep theirs, since there it means something."""
    if isinstance(value, dict):
        rows = [(k, shuffled(v, pick)) for k, v in value.items()]
        pick.shuffle(rows)
        return dict(rows)
    return [shuffled(v, pick) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(4))
def test_order_of_a_contract_never_changes_the_findings(seed: int, tmp_path: Path) -> None:
    library = rewritten(tmp_path, lambda data: shuffled(data, random.Random(seed)))
    for sample in SAMPLES:
        said, again = outcome(judge(sample, b.LIBRARY)), outcome(judge(sample, library))
        assert not [row for row in again if row[0].startswith("CON") and row[0] != "CON114"]
        assert [row for row in again if row[0] != "CON114"] == said, sample


def renamed(data: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a contract whose dims have other names, wherever an expression speaks of them."""

    def expr(value: Any) -> Any:
        if isinstance(value, list):
            return [expr(v) for v in value]
        return re.sub(r"[A-Za-z_][\w.]*\w|[A-Za-z_]", lambda m: names.get(m[0], m[0]), value)

    def rows(table: str, *keys: str) -> dict[str, Any]:
        return {n: {k: expr(v) if k in keys else v for k, v in row.items()} for n, row in data.get(table, {}).items()}

    out = dict(data)
    out["dims"] = {names.get(n, n): row for n, row in rows("dims", "default").items()}
    out["tensors"] = {}
    for name, row in rows("tensors", "shape", "when").items():
        loops = row.get("for", [])
        over = [re.sub(r"(?<= in ).+?(?= step |$)", lambda m: "..".join(map(expr, m[0].split(".."))), loop)
                for loop in ([loops] if isinstance(loops, str) else loops)]  # fmt: skip
        out["tensors"][name] = row | ({"for": over} if over else {})
    out["config"] = rows("config", "check", "when")
    out["sizes"] = {part: n if part == "none" else names.get(n, n) for part, n in data.get("sizes", {}).items()}
    out["summary"] = [re.sub(r"\{.*?\}", lambda m: expr(m[0]), text) for text in data.get("summary", [])]
    out["values"] = {n: expr(row) for n, row in data.get("values", {}).items()}
    if "aux" in data:
        conventions = {n: {k: v if k == "offset" else expr(v) for k, v in row.items()}
                       for n, row in data["aux"]["conventions"].items()}  # fmt: skip
        out["aux"] = {**data["aux"], "conventions": conventions}
    if data["kind"] == "family" and "meanings" in data:
        out["meanings"] = rows("meanings", "when")
    if "rotary" in data.get("rope", {}):
        out["rope"] = {**data["rope"], "rotary": expr(data["rope"]["rotary"])}
    if "rows" in data:
        out["rows"] = [{k: expr(v) if k == "when" else v for k, v in row.items()} for row in data["rows"]]
    kept = {"title", "source", "sizes", "summary", "values", "dims", "tensors", "config"} & set(data)
    return {k: v for k, v in out.items() if k in data or k in kept}


def test_renaming_dims_never_changes_what_is_said_but_the_names(tmp_path: Path) -> None:
    dims = [n for kind in ("family", "target") for _, c, _ in b.LIBRARY.all(kind) for n in c.dims]
    names = {name: f"z_{name.replace('.', '_of_')}" for name in dims}
    library = rewritten(tmp_path, lambda data: renamed(data, names))
    for sample in SAMPLES:
        said, again = judge(sample, b.LIBRARY), judge(sample, library)
        mine = [f for f in again.findings if f.code != "CON114"]
        assert not [f for f in mine if f.code.startswith("CON")], b.text(again)
        assert sorted((f.code, f.level) for f in mine) == sorted((f.code, f.level) for f in said.findings), sample
        assert again.verdict == said.verdict


# --- what a pair accepts ------------------------------------------------------------------------------------------

PAIR = """schema = 1
kind = "pair"
id = "mine"
title = "t"
drafter = { model = "./own" }
target = { model = "./base" }
"""


def pair_report(tmp_path: Path, text: str, config: Mapping[str, Any] | None = None) -> Report:
    b.write(tmp_path / "pairs/own", b.dense_config(**config or {}), b.dense())
    b.write(tmp_path / "pairs/base", *LLAMA)
    (tmp_path / "pairs/mine.toml").write_text(PAIR + text)
    return api.check_pair_id("mine", Library(tmp_path))


FACTS = """[facts]
aux_convention = { value = "boundary", source = "card" }
trained_on = { value = "org/base", source = "card" }
"""
LINEAGE = '{ code = "PAIR417", because = "the folder is a copy of org/base" }'


def test_pair_says_which_repo_its_folder_holds(tmp_path: Path) -> None:
    b.write(tmp_path / "pairs/own", b.dense_config(), b.dense())
    b.write(tmp_path / "pairs/base", *LLAMA)
    for repo, codes in (("org/base", set[str]()), ("org/other", {"PAIR417 unknown"})):
        text = PAIR.replace('"./base"', f'"./base", repo = "{repo}"') + FACTS
        (tmp_path / "pairs/mine.toml").write_text(text)
        report = api.check_pair_id("mine", Library(tmp_path))
        assert b.codes(report) == codes, b.text(report)
        assert report.verdict == ("unknown" if codes else "pass")


def test_pair_of_folders_below_its_own_file(tmp_path: Path) -> None:
    report = pair_report(tmp_path, FACTS)
    assert b.codes(report) == {"PAIR417 unknown"}, b.text(report)
    assert "org/base (card)" in b.text(report)


def test_expected_unknown_is_accepted_and_still_not_a_pass(tmp_path: Path) -> None:
    report = pair_report(tmp_path, f"expect_unknown = [{LINEAGE}]\n{FACTS}")
    assert [f.accepted for f in b.against(report)] == ["the folder is a copy of org/base"]
    assert (report.verdict, report.exit_code) == ("unknown", 4)
    assert not any(f.fails("unknown") for f in report.findings)


@pytest.mark.parametrize(
    ("accepts", "config", "codes", "accepted"),
    [
        ('allow = [{ code = "PAIR403", because = "short" }]', {"max_position_embeddings": 8}, {"PAIR403"}, {"PAIR403"}),
        ('allow = [{ code = "PAIR4*", because = "short" }]', {"max_position_embeddings": 8}, {"PAIR403"}, {"PAIR403"}),
        ('allow = [{ code = "PAIR403", because = "x" }]', {}, {"CON112"}, set()),
        ('allow = [{ code = "PAIR403", because = "x", subject = "other*" }]', {"max_position_embeddings": 8},
         {"PAIR403", "CON112"}, set()),
        ('allow = [{ code = "PAIR417", because = "x" }]', {}, {"CON112"}, set()),
    ],
)  # fmt: skip
def test_allow(accepts: str, config: dict[str, Any], codes: set[str], accepted: set[str], tmp_path: Path) -> None:
    report = pair_report(tmp_path, f"{accepts}\nexpect_unknown = [{LINEAGE}]\n{FACTS}", config)
    assert b.codes(report) - {"PAIR417 unknown"} == codes, b.text(report)
    assert {f.code for f in report.findings if f.accepted} - {"PAIR417"} == accepted
    assert report.exit_code == (2 if "CON112" in codes else 4)


def test_expected_unknown_that_is_known_now_fails(tmp_path: Path) -> None:
    both = f'{LINEAGE}, {{ code = "PAIR408", because = "not declared" }}'
    report = pair_report(tmp_path, f"expect_unknown = [{both}]\n{FACTS}")
    assert b.codes(report) == {"CON112", "PAIR417 unknown"}
    assert "mine: expect_unknown PAIR408" in b.text(report)
    assert report.exit_code == 2


# --- the rest -----------------------------------------------------------------------------------------------------


def test_facts_of_a_model_file_count_and_the_pairs_own_count_more(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/org--drafter.toml").write_text(
        'schema = 1\nkind = "model"\nid = "org--drafter"\nrepo = "org/drafter"\n'
        'trained_on = { value = "org/target", source = "card" }\naux_layers = { value = [1, 5, 8], source = "card" }\n'
    )
    library = Library(tmp_path)
    sides = (b.given(*SAMPLES["good"][:2], b.DRAFTER), b.given(*LLAMA, b.TARGET))
    assert b.codes(b.check(*sides, facts={}, library=library)) == {"PAIR408 unknown", "PAIR409"}
    own = {"aux_layers": Fact([2, 6, 9], "own"), "aux_convention": Fact("boundary", "own")}
    assert b.codes(b.check(*sides, facts=own, library=library)) == set()


def test_typing_slip_in_a_tensor_name_is_named() -> None:
    slip = {"midlayer.mlp.up_proj.weight": None, "midlayer.mlp.up_porj.weight": ("BF16", (96, 64))}
    report = b.pair(b.dense_config(), b.changed(b.dense(), slip))
    assert b.codes(report) == {"TEN401", "TEN402"}
    assert "did you mean 'midlayer.mlp.up_proj.weight'?" in b.text(report)


def test_declared_target_is_taken_where_none_is_given() -> None:
    config = b.dense_config(speculators_config={"verifier": {"name_or_path": "moonshotai/Kimi-K2-Instruct"}})
    report = api.check({"config": config, "tensors": b.dense(), "name": b.DRAFTER})
    assert {s.role: s.name for s in report.sides}["target"] == "moonshotai/Kimi-K2-Instruct"
    assert "PAIR401" in b.codes(report)


def test_declared_target_that_is_not_at_hand_is_unknown_and_never_a_pass() -> None:
    config = b.dense_config(speculators_config={"verifier": {"name_or_path": "org/nowhere"}})
    report = api.check({"config": config, "tensors": b.dense(), "name": b.DRAFTER})
    assert b.codes(report) == {"SRC112 unknown"}
    assert report.verdict == "unknown"


def test_drafter_alone_is_judged_alone() -> None:
    report = api.check({"config": b.dense_config(), "tensors": b.dense(), "name": b.DRAFTER})
    assert b.codes(report) == set()
    assert (report.verdict, [s.rung for s in report.sections]) == ("pass", ["conforms"])


@pytest.mark.parametrize("sample", SAMPLES)
def test_report_survives_json(sample: str) -> None:
    report = judge(sample, b.LIBRARY)
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again == report
    assert again.to_dict() == report.to_dict()


def test_shipped_pairs_are_pairs() -> None:
    assert all(isinstance(pair, Pair) for _, pair, _ in b.LIBRARY.all("pair"))
