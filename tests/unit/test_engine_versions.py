"""What an engine's versions do differently: rows that speak of some versions, and classes that only some have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from draftproof import api, engines
from draftproof.library import Library
from draftproof.testing import cases, corpus, truth
from draftproof.versions import resolve

PROFILE = """
schema = 1
kind = "profile"
id = "toy"
title = "Toy"
versions = [{ is = "3.0", basis = "run" }, { is = "1.0" }]
codes = { CODES }

[[methods]]
is = "new"
since = "2.0"

[[methods]]
is = "old"

[[renamings]]
when = 'method == "new"'
until = "2.5"
becomes = ["Between"]

[registry]
toy-old = ["LlamaForCausalLMEagle3", "Between"]
toy-new = ["LlamaForCausalLMEagle3"]

[ranges]
toy-old = { until = "2.0" }
toy-new = { since = "2.5" }

[unregistered]
id = "none"
outcome = "refuses"
error = "ValueError"
effect = "refuses"
see = "no {name}"
basis = "read"
source = "toy.py"

[[captures]]
when = "true"
keys = [{ key = "eagle_config.eagle_aux_hidden_state_layer_ids", since = "3.0" }]
default = ["2", "3"]
fewer = "IndexError"
source = "toy.py"

[loaders.any]
other = "taken"

[[rows]]
id = "wide"
when = "drafter.hidden_size > 10"
since = "1.5"
until = "2.5"
outcome = "degrades"
stage = "run"
effect = "reads"
see = "{drafter.hidden_size} is too wide; the norm is there: {has.norm.weight}; {drafter.absent_key}"
basis = "read"
source = "toy.py"
"""
CLASS = """
schema = 1
kind = "class"
id = "{id}"
title = "toy"
source = "toy.py"
unknown = "dropped"
dims = {{ width = "drafter.hidden_size" }}

[params]
"norm.weight" = {{ shape = ["width"], loader = "any" }}
"extra" = {{ shape = ["width"], loader = "any", missing = "{missing}", since = "3.0" }}
"""


def _library(tmp_path: Path, profile: str = PROFILE) -> Library:
    kinds = ["refuses", "ignored", "cut", "unset", "layers", "replaced", "reads", "stops", "launch", "copes"]
    codes = ", ".join(f'{kind} = "VLLM6{n:02}"' for n, kind in enumerate(kinds, 1))
    for folder in ("profiles", "classes"):
        (tmp_path / "engines" / folder).mkdir(parents=True)
    codes += ', meant = "VLLM620", unknown = "VLLM630"'
    (tmp_path / "engines/profiles/toy.toml").write_text(profile.replace("CODES", codes), encoding="utf-8")
    for id, missing in (("toy-old", "KeyError"), ("toy-new", "zeros")):
        (tmp_path / f"engines/classes/{id}.toml").write_text(CLASS.format(id=id, missing=missing), encoding="utf-8")
    return Library(tmp_path)


def _sides(library: Library, edits: Any = None) -> tuple[Any, Any, Any]:
    """Return drafter, target and couple of a pair that holds, but for edits of the drafter's config."""
    case = next(case for case in corpus.CASES if case.id == "B05")
    config, table = corpus.checkpoint(case, "drafter", "right")
    target, rows = corpus.checkpoint(case, "target", "right")
    seen, _ = api.examine_models(
        {"config": config | (edits or {}), "state_dict": table}, {"config": target, "state_dict": rows}, library
    )
    return seen.drafter, seen.target, seen.couple


@pytest.fixture
def ask(tmp_path: Path) -> Any:
    library = _library(tmp_path)
    profile, found = library.get("profile", "toy")
    assert found == ()
    sides = _sides(library)

    def one(version: str, asked: str = "") -> engines.Prediction:
        return engines.predict(profile, library, *sides, version=version, asked=asked)

    return one


def test_a_row_speaks_of_the_versions_since_one_and_until_another(ask: Any) -> None:
    wide = {v: any(e.subject == "wide" for e in ask(v).effects) for v in ("1.0", "1.5", "2.4.9", "2.5", "3.0")}
    assert wide == {"1.0": False, "1.5": True, "2.4.9": True, "2.5": False, "3.0": False}


def test_what_is_seen_holds_the_values_of_the_expressions_in_it(ask: Any) -> None:
    see = next(e.see for e in ask("2.0").effects if e.subject == "wide")
    assert see == "4096 is too wide; the norm is there: True; ?"


def test_methods_renamings_and_classes_are_those_of_the_version(ask: Any) -> None:
    old, between, new = ask("1.0"), ask("2.0"), ask("3.0")
    assert [(p.method, p.class_) for p in (old, between, new)] == [("old", "toy-old"), ("new", ""), ("new", "toy-new")]
    assert between.refusal is not None
    assert between.refusal.see == "no Between"
    assert ask("2.5").class_ == "toy-new"


def test_parameters_and_aux_keys_are_those_of_the_version(ask: Any) -> None:
    assert [e.subject for e in ask("2.5").effects if e.kind == "unset"] == []
    assert [e.subject for e in ask("3.0").effects if e.kind == "unset"] == ["extra"]
    assert ask("2.5").captured == [2, 3]
    assert ask("3.0").captured == [2, 18, 33]


def test_a_version_that_was_not_read_is_held_to_the_rows_that_speak_of_it(ask: Any) -> None:
    made = ask("3.0", asked="2.4")
    assert any(e.subject == "wide" for e in made.effects)
    assert not made.exact
    assert "VLLM630" in {f.code for f in engines.findings_of(made)}


def test_a_version_that_was_read_in_part_stands_beside_the_nearest_whole_one() -> None:
    library = Library()
    named, found = resolve(["vllm@0.24.0", "vllm@0.28", "sglang@0.5.11", "llama.cpp@b9611"], library)
    assert found == []
    assert [tuple(one) for one in named] == [
        ("vllm", "0.28.0", "0.24.0", True),
        ("vllm", "0.28.0", "", True),
        ("sglang", "0.5.20", "0.5.11", True),
        ("llama.cpp", "2026.10.11549", "b9611", True),
    ]


def test_what_is_told_of_a_version_that_was_read_in_part_names_it() -> None:
    library = Library()
    profile, _ = library.get("profile", "vllm")
    sides = _sides(library, {"max_position_embeddings": 2048})
    made = engines.predict(profile, library, *sides, version="0.28.0", asked="0.24.0")
    found = engines.findings_of(made)
    refused = next(f for f in found if f.code == "VLLM601")
    assert refused.subject == "vLLM 0.24.0: max_position_embeddings"
    assert "read: vLLM 0.24.0: vllm/config/speculative.py" in refused.note
    unsure = next(f for f in found if "for 0.24.0" in f.subject)
    assert unsure.observed == (
        "0.24.0; it was read in part, and what was is told; else what follows is of 0.28.0, the nearest"
    )
    assert "0.24.0" not in unsure.expected
    other = engines.findings_of(engines.predict(profile, library, *sides, version="0.28.0", asked="0.22.0"))
    assert next(f for f in other if "for 0.22.0" in f.subject).observed.startswith("0.22.0; what follows is of 0.28.0")


def test_what_needs_the_dims_of_a_pair_alone_speaks_of_versions_too(ask: Any) -> None:
    library = Library()
    profile, _ = library.get("profile", "vllm")
    drafter, target, couple = _sides(library, {"max_position_embeddings": 2048})

    def copes(version: str) -> list[str]:
        made = engines.predict(profile, library, drafter, target, couple, version=version)
        return [e.outcome for e in made.effects if e.subject == "max_position_embeddings"]

    assert copes("0.33.0") == ["changes"]
    assert copes("0.10.2") == ["refuses"]


def test_medusa_is_served_as_long_as_an_engine_has_it() -> None:
    library = Library()
    profile, _ = library.get("profile", "vllm")
    config = {"model_type": "medusa", "architectures": ["MedusaModel"], "hidden_size": 64, "vocab_size": 128,
              "num_heads": 2, "num_hidden_layers": 1, "truncated_vocab_size": 128}  # fmt: skip
    table = {f"blocks.{i}.layers.0.weight": ("BF16", (64, 64)) for i in range(2)}
    table |= {"lm_heads.0.weight": ("BF16", (128, 64)), "odd": ("BF16", (1,))}
    seen, _ = api.examine_models({"config": config, "state_dict": table}, None, library)
    assert seen.drafter is not None
    old, new = (engines.predict(profile, library, seen.drafter, version=v) for v in ("0.28.0", "0.33.0"))
    assert (old.method, old.class_, old.refusal) == ("medusa", "vllm-medusa", None)
    loaded = [(e.kind, e.subject) for e in old.effects if e.stage == "load"]
    assert loaded == [("copes", "odd"), ("unset", "lm_heads.1.weight")]
    assert new.refusal is not None
    assert "medusa" in new.refusal.see.lower()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('some(drafter.tensors, "norm.*")', True),
        ('some(drafter.tensors, "*.bias")', False),
        ('some(drafter.architectures, "*Eagle3")', True),
        ('some(drafter.hidden_size, "4096")', False),
        ('some(drafter.absent, "*")', False),
        ("has.norm.weight and not has.norm.bias", True),
        ("has.map", True),
    ],
)
def test_a_row_asks_for_tensors_and_texts_by_glob(tmp_path: Path, text: str, says: bool) -> None:
    library = _library(tmp_path, PROFILE.replace("drafter.hidden_size > 10", text.replace('"', "'")))
    profile, found = library.get("profile", "toy")
    assert found == ()
    made = engines.predict(profile, library, *_sides(library), version="2.0")
    assert any(e.subject == "wide" for e in made.effects) is says


def test_what_is_stored_quantised_finds_no_place_where_it_is_made_plain(tmp_path: Path) -> None:
    library = Library()
    profile, _ = library.get("profile", "vllm")
    case = next(case for case in corpus.CASES if case.id == "B05")
    config, table = corpus.checkpoint(case, "drafter", "right")
    rows, width = table["lm_head.weight"][1]
    packed = {k: v for k, v in table.items() if k != "lm_head.weight"} | {
        "lm_head.weight_packed": ("I32", (rows, width // 8)),
        "lm_head.weight_scale": ("BF16", (rows, width // 128)),
        "lm_head.weight_shape": ("I64", (2,)),
    }
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["re:.*lm_head"], "weights": {
            "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}}},
        "ignore": [],
    }  # fmt: skip
    target, theirs = corpus.checkpoint(case, "target", "right")
    seen, _ = api.examine_models(
        {"config": config, "state_dict": packed}, {"config": target, "state_dict": theirs}, library
    )
    assert seen.drafter is not None

    def refused(version: str) -> list[tuple[str, str]]:
        made = engines.predict(profile, library, seen.drafter, seen.target, seen.couple, version=version)
        return [(e.subject, e.error) for e in made.effects if e.outcome == "refuses"]

    assert refused("0.18.0") == [("lm_head.weight", "KeyError")]
    assert refused("0.22.1") == refused("0.33.0") == []


@pytest.mark.parametrize(
    ("was", "is_", "code"),
    [
        ('toy-old = { until = "2.0" }', 'toy-odd = { until = "2.0" }', "CON113"),
        ('since = "1.5"', 'since = "one"', "CON104"),
        ('since = "1.5"', "since = 1.5", "CON104"),
        ('see = "{drafter', 'see = "{drafter.hidden_size +} {drafter', "CON106"),
        ('see = "{drafter', 'see = "{widht} {drafter', "CON107"),
    ],
)
def test_a_range_that_cannot_be_is_a_finding_with_its_line(tmp_path: Path, was: str, is_: str, code: str) -> None:
    text = PROFILE.replace(was, is_)
    _, found = _library(tmp_path, text).get("profile", "toy")
    line = next(n for n, row in enumerate(text.splitlines(), 1) if is_ in row)
    assert [(f.code, f.contract.rpartition(":")[2]) for f in found] == [(code, str(line))]


@pytest.mark.parametrize(
    ("version", "strict"), [("0.5.23", True), ("0.5.20", True), ("0.5.11", True), ("0.5.3", False)]
)
def test_config_classes_of_sglang_are_strict_since_they_are_those_of_transformers_5_6(
    version: str, strict: bool
) -> None:
    made = truth.predict(cases.case("eagle1-biased/key/rms_norm_eps/null"), "sglang", version=version)
    assert any(effect.error.startswith("StrictDataclass") for effect in made.effects) is strict
