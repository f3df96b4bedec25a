"""What `init` writes gives the same verdicts, accepts nothing by itself, and describes a family that was not known."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import builder as b
from draftproof import api, cli
from draftproof.findings import Report
from draftproof.library import Library, load
from draftproof.scaffold import Draft, express, init, sizes_of, toml
from known_good import CASES, Good

PAIR = "contracts/pairs/mine.toml"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder that has folders for contracts."""
    monkeypatch.chdir(tmp_path)
    for kind in ("pairs", "families"):
        Path("contracts", kind).mkdir(parents=True)
    return tmp_path


def run(*words: str) -> int:
    return cli.main([*words])


def put(config: Any = None, table: b.Table | None = None, name: str = "drafter") -> str:
    b.write(Path(name), b.dense_config() if config is None else config, b.dense() if table is None else table)
    return name


def put_target(config: Any = None, name: str = "target") -> str:
    b.write(Path(name), b.target_config() if config is None else config, b.target())
    return name


def verdicts(report: Report) -> dict[str, Any]:
    """Return what is said of the two sides, by rung; not where they were read."""
    return {s.rung: (s.verdict, [(f.code, f.level, f.subject, f.expected) for f in s.findings])
            for s in report.sections if s.rung != "contract"}  # fmt: skip


# --- a pair -------------------------------------------------------------------------------------------------------

PAIRS: dict[str, tuple[dict[str, Any], b.Table]] = {
    "fits": ({}, b.dense()),
    "context too short": ({"max_position_embeddings": 1024}, b.dense()),
    "tensor missing": ({}, b.changed(b.dense(), {"norm.weight": None})),
    "odd subjects": ({}, b.changed(b.dense(), {"a[0]*.weight": ("BF16", (2,)), 'quote".weight': ("BF16", (2,))})),
    "partial rotary": ({"partial_rotary_factor": 0.5}, b.dense()),
    "no aux layers": ({"eagle_config": b.ABSENT}, b.dense()),
    "ids of one convention": (
        {"eagle_config.eagle_aux_hidden_state_layer_ids": [2, 6, 12]}, b.dense(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_pair_that_is_written_gives_the_same_verdicts(name: str) -> None:
    changes, table = PAIRS[name]
    drafter, target = put(b.dense_config(**changes), table), put_target()
    assert run("init", "--drafter", drafter, "--target", target, "--output", PAIR) == 0
    pair, found = load(Path(PAIR), "pair", Library())
    assert list(found) == []
    assert (pair.id, pair.drafter, pair.target) == ("mine", "../../drafter", "../../target")
    assert (pair.allow, pair.expect_unknown) == ((), ())
    before = api.check_models(drafter, target, b.LIBRARY)
    after = api.check_pair_id(PAIR, Library())
    assert verdicts(after) == verdicts(before)
    assert after.exit_code == before.exit_code


def uncommented(text: str, because: str) -> str:
    """Return a contract whose proposals were taken out of their comments, each with a reason."""
    out, inside = [], False
    for line in text.splitlines():
        inside = inside or bool(re.match(r"# (allow|expect_unknown) = \[", line))
        out.append(line.removeprefix("# ") if inside else line)
        inside = inside and line != "# ]"
    return "\n".join(out).replace('because = ""', f"because = {json.dumps(because)}") + "\n"


@pytest.mark.parametrize("name", PAIRS)
def test_proposals_name_every_finding_and_accept_it_once_a_reason_is_given(name: str) -> None:
    changes, table = PAIRS[name]
    put(b.dense_config(**changes), table), put_target()
    run("init", "--drafter", "drafter", "--target", "target", "--output", PAIR)
    text = Path(PAIR).read_text()
    Path(PAIR).write_text(uncommented(text, ""))
    if "{ code" in uncommented(text, ""):
        assert {f.code for f in api.check_pair_id(PAIR, Library()).findings} == {"CON111"}
    Path(PAIR).write_text(uncommented(text, "seen"))
    report = api.check_pair_id(PAIR, Library())
    open_ = [f for f in report.findings if f.level in ("error", "warning", "unknown")]
    assert [f.code for f in open_ if not f.accepted] == []
    assert all(f"{f.code} {f.subject}" in " ".join(text.replace("\n#   #", "").split()) for f in open_)


def test_founding_pair_is_written_with_what_is_known_and_where_it_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    drafter, target = "AQ-MedAI/Kimi-K2-Instruct-eagle3", "moonshotai/Kimi-K2.5"
    assert run("init", "--drafter", drafter, "--target", target) == 0
    text = capsys.readouterr().out
    data = tomllib.loads(text)
    assert data["drafter"] == {"model": drafter}
    assert data["target"] == {"model": target}
    assert data["facts"]["trained_on"]["value"] == "moonshotai/Kimi-K2-Instruct"
    assert data["facts"]["trained_on"]["source"]
    assert "# its revision is not known" in text
    assert "# allow = [" in text
    assert "PAIR403 context" in text
    assert '# aux_convention = { value = "boundary", source = "" }' in text
    Path("contracts/pairs", f"{data['id']}.toml").write_text(text)
    after = api.check_pair_id(data["id"], Library(Path("contracts")))
    assert verdicts(after) == verdicts(api.check_models(drafter, target, b.LIBRARY))


@pytest.mark.parametrize("id", b.LIBRARY.files("pair"))
def test_every_shipped_pair_could_have_been_started_by_init(id: str) -> None:
    pair, _ = b.LIBRARY.get("pair", id)
    made = init(pair.drafter, pair.target, b.LIBRARY, family=pair.family, path=Path(PAIR))
    assert isinstance(made, Draft)
    Path(PAIR).write_text(made.text)
    after = api.check_pair_id(PAIR, Library())
    assert verdicts(after) == verdicts(api.check_models(pair.drafter, pair.target, b.LIBRARY, pair.family))


@pytest.mark.parametrize("case", [c for c in CASES if c.inside], ids=lambda case: case.id)
def test_family_inside_its_target_is_paired_with_it(case: Good) -> None:
    put(case.drafter_config, case.drafter_tensors)
    asked = "mtp" if case.family.startswith("mtp-") else case.family
    assert run("init", "--drafter", "drafter", "--family", asked, "--output", PAIR) == 0
    data = tomllib.loads(Path(PAIR).read_text())
    assert (data["drafter"], data["family"]) == (data["target"], case.family)
    assert verdicts(api.check_pair_id(PAIR, Library())) == verdicts(api.check_models("drafter", None, Library(), asked))


def test_what_a_name_means_is_asked_for_where_it_is_not_declared() -> None:
    case = next(c for c in CASES if any(key.startswith("meanings.") for key in c.facts) and not c.inside)
    put(case.drafter_config, case.drafter_tensors)
    b.write(Path("target"), case.target_config, case.target_tensors)
    made = init("drafter", "target", b.LIBRARY, path=Path(PAIR))
    assert isinstance(made, Draft)
    name = next(key for key in case.facts if key.startswith("meanings."))
    assert f'# {name} = {{ value = "", source = "" }}' in made.text
    declared = made.text.replace(f'# {name} = {{ value = "", source = "" }}',
                                 f"{name} = {toml({'value': case.facts[name], 'source': 'its card'})}")  # fmt: skip
    Path(PAIR).write_text(declared)
    assert "PAIR423" not in {f.code for f in api.check_pair_id(PAIR, Library()).findings if f.level == "unknown"}


def test_revision_that_is_known_is_pinned() -> None:
    named = {n: [d, list(s)] for n, (d, s) in b.dense().items()}
    data = {"schema": 1, "repo": "org/d", "revision": "a" * 40, "provenance": "recorded", "normalised": False,
            "read": {}, "unknown": [], "respelled": [], "config": b.dense_config(),
            "tensors": {"complete": True, "count": 15, "parameters": None, "named": named}}  # fmt: skip
    Path("contracts/recordings").mkdir()
    Path("contracts/recordings/org--d@aaaaaaaa.json").write_text(json.dumps(data))
    made = init("org/d", put_target(), Library(Path("contracts")))
    assert isinstance(made, Draft)
    assert tomllib.loads(made.text)["drafter"] == {"model": "org/d", "revision": "a" * 40}


def test_snapshot_of_a_cache_is_said_to_hold_its_repo() -> None:
    folder = f"hub/models--org--drafter/snapshots/{'a' * 40}"
    put(name=folder)
    made = init(folder, put_target(), b.LIBRARY, path=Path(PAIR))
    assert isinstance(made, Draft)
    data = tomllib.loads(made.text)
    assert data["drafter"] == {"model": f"../../{folder}", "repo": "org/drafter"}
    assert f"# at commit {'a' * 40}" in made.text
    assert data["title"] == "org/drafter with target"


def test_pair_without_an_output_names_folders_so_that_it_can_stand_anywhere(tmp_path: Path) -> None:
    made = init(put(), put_target(), b.LIBRARY)
    assert isinstance(made, Draft)
    assert tomllib.loads(made.text)["drafter"]["model"] == (tmp_path / "drafter").as_posix()
    assert made.id == "drafter-with-target"


def test_declared_verifier_is_the_target_and_is_not_asked_for() -> None:
    target = "moonshotai/Kimi-K2-Instruct"
    put(b.dense_config(speculators_config={"verifier": {"name_or_path": target}}))
    made = init("drafter", None, b.LIBRARY, path=Path(PAIR))
    assert isinstance(made, Draft)
    assert tomllib.loads(made.text)["target"]["model"] == target
    assert f"# trained_on: drafter config.json: speculators_config.verifier.name_or_path says {target}" in made.text
    assert "# trained_on = " not in made.text


@pytest.mark.parametrize("declared", [True, False])
def test_target_that_is_not_at_hand_is_named_all_the_same(declared: bool) -> None:
    verifier = {"verifier": {"name_or_path": "org/away"}} if declared else b.ABSENT
    put(b.dense_config(speculators_config=verifier))
    words = [] if declared else ["--target", "org/away"]
    assert run("init", "--drafter", "drafter", *words, "--output", PAIR, "--hub", "recordings") == 0
    text = Path(PAIR).read_text()
    assert tomllib.loads(text)["target"] == {"model": "org/away"}
    assert "# target: not at hand" in text
    assert '{ code = "SRC112"' in text
    after = api.check_pair_id(PAIR, Library())
    assert verdicts(after) == verdicts(api.check_models("drafter", "org/away", Library()))
    assert after.exit_code == 4


def test_family_that_was_given_is_written_out() -> None:
    made = init(put(), put_target(), b.LIBRARY, family="eagle3")
    assert isinstance(made, Draft)
    assert tomllib.loads(made.text)["family"] == "eagle3"


@pytest.mark.parametrize(
    ("drafter", "target", "code"),
    [("./nope", "target", "SRC111"), ("drafter", "./nope", "SRC111"), ("drafter", None, "SRC117"),
     ("org/nope", "target", "SRC112"), ("drafter", "drafter", "SRC118"), ("empty", "target", "SRC114")],
)  # fmt: skip
def test_what_cannot_be_read_is_said_and_nothing_is_written(drafter: str, target: str | None, code: str) -> None:
    put(), put_target()
    Path("empty").mkdir()
    made = init(drafter, target, b.LIBRARY)
    assert isinstance(made, Report)
    assert code in {f.code for f in made.findings}
    words = [
        "init",
        "--drafter",
        drafter,
        *(["--target", target] if target else []),
        "--output",
        PAIR,
        "--hub",
        "recordings",
    ]
    assert run(*words) != 0
    assert not Path(PAIR).exists()


def test_file_that_exists_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    put(), put_target()
    Path(PAIR).write_text("edited")
    with pytest.raises(SystemExit) as ended:
        run("init", "--drafter", "drafter", "--target", "target", "--output", PAIR)
    assert ended.value.code == 2
    assert "exists, and may have been edited" in capsys.readouterr().err
    assert Path(PAIR).read_text() == "edited"


@pytest.mark.parametrize("name", ["mine", "mine.json", "Mine.toml", ".toml", "a b.toml"])
def test_file_whose_name_is_no_id_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(), put_target()
    with pytest.raises(SystemExit) as ended:
        run("init", "--drafter", "drafter", "--target", "target", "--output", name)
    assert ended.value.code == 2
    assert "expected ID.toml" in capsys.readouterr().err
    assert not Path(name).exists()


def test_json_holds_the_text_and_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    put(), put_target()
    assert run("init", "--drafter", "drafter", "--target", "target", "--output", PAIR, "--format", "json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["id"], data["file"]) == ("pair", "mine", PAIR)
    assert data["text"] == Path(PAIR).read_text()


# --- a family -----------------------------------------------------------------------------------------------------


def new_config(**changes: Any) -> b.Config:
    own = {"architectures": ["NewDrafter"], "model_type": "new", "eagle_config": b.ABSENT, "draft_vocab_size": b.ABSENT,
           "small_vocab_size": b.DRAFT, "num_hidden_layers": 3, "num_experts": 5}  # fmt: skip
    return b.dense_config(**(own | changes))


def new_table(**more: Any) -> b.Table:
    """Return the tensors of a drafter of no known family: rows, rows of rows, and a row with a shape of its own."""
    base = b.dense(style="bare", layers=3, later=("input_layernorm",), **more)
    out = {n.replace("hidden_norm", "odd_norm"): row for n, row in base.items()}
    out |= {f"norms.{i}.weight": ("BF16", (64,)) for i in range(4)}
    out |= {f"layers.{i}.experts.{j}.up.weight": ("F8_E4M3", (96, 64)) for i in range(3) for j in range(5)}
    return out


def written(config: Any, table: b.Table, file: str = "contracts/families/mine.toml") -> tuple[dict[str, Any], str]:
    """Return the contract that init writes of a checkpoint, as data and as text; the reader accepts it."""
    put(config, table)
    assert run("init", "--drafter", "drafter", "--output", file) == 0
    contract, found = load(Path(file), "family", Library(Path("contracts")))
    assert list(found) == [], found
    assert contract is not None
    text = Path(file).read_text()
    return tomllib.loads(text), text


def test_checkpoint_of_no_known_family_gets_a_family_that_describes_it() -> None:
    data, _ = written(new_config(), new_table())
    assert data["kind"] == "family"
    assert data["detect"] == {"any_architecture": ["NewDrafter"]}
    assert data["dialects"] == {"bare": {}}
    report = api.check_models("drafter", None, Library(Path("contracts")))
    assert b.codes(report) == set(), b.text(report)
    assert (report.verdict, report.sides[0].contract, report.sides[0].tensors) == ("pass", "mine", len(new_table()))


def test_shapes_are_written_over_the_dims_of_the_config() -> None:
    data, _ = written(new_config(), new_table())
    shape = {name: row["shape"] for name, row in data["tensors"].items()}
    assert shape["fc.weight"] == ["hidden", "3 * hidden"]
    assert shape["layers.0.self_attn.q_proj.weight"] == ["heads * head_dim", "2 * hidden"]
    assert shape["layers.{i}.self_attn.k_proj.weight"] == ["kv_heads * head_dim", "hidden"]
    assert shape["layers.{i}.mlp.down_proj.weight"] == ["hidden", "intermediate"]
    assert shape["lm_head.weight"] == ["small_vocab", "hidden"]
    assert data["dims"]["hidden"] == {"drafter": "hidden_size"}
    assert data["dims"]["small_vocab"] == {"drafter": "small_vocab_size"}


def test_rows_with_an_index_are_collapsed_up_to_the_dim_that_counts_them() -> None:
    data, _ = written(new_config(), new_table())
    loops = {name: row.get("for") for name, row in data["tensors"].items()}
    assert loops["layers.{i}.input_layernorm.weight"] == "i in 0..layers"
    assert loops["layers.{i}.self_attn.q_proj.weight"] == "i in 1..layers"
    assert loops["layers.0.self_attn.q_proj.weight"] is None
    assert loops["norms.{i}.weight"] == "i in 0..4"
    assert loops["layers.{i}.experts.{j}.up.weight"] == ["i in 0..layers", "j in 0..experts"]
    assert len(data["tensors"]) < len(new_table()) / 2


def test_dtypes_that_are_no_floats_are_written_out() -> None:
    data, _ = written(new_config(), new_table())
    assert data["tensors"]["layers.{i}.experts.{j}.up.weight"]["dtype"] == "F8_E4M3"
    assert data["tensors"]["d2t"]["dtype"] == "index"
    assert data["tensors"]["t2d"]["dtype"] == "BOOL"
    assert "dtype" not in data["tensors"]["fc.weight"]


def test_size_that_no_dim_explains_is_its_number() -> None:
    data, _ = written(new_config(), new_table() | {"odd.weight": ("BF16", (37, 1009))})
    assert data["tensors"]["odd.weight"]["shape"] == ["37", "1009"]


def test_size_that_two_dims_explain_says_so() -> None:
    _, text = written(new_config(other_size=b.INTER), new_table())
    line = next(row for row in text.splitlines() if row.startswith('"layers.{i}.mlp.up_proj.weight"'))
    assert "# 96 is also other" in line


def test_experts_of_uneven_layers_and_gaps_in_rows_are_kept_apart() -> None:
    table = new_table()
    del table["layers.1.experts.4.up.weight"], table["norms.1.weight"]
    data, _ = written(new_config(), table)
    assert data["tensors"]["layers.1.experts.{i}.up.weight"]["for"] == "i in 0..4"
    assert data["tensors"]["layers.2.experts.{i}.up.weight"]["for"] == "i in 0..experts"
    assert data["tensors"]["norms.0.weight"]["shape"] == ["hidden"]
    assert data["tensors"]["norms.{i}.weight"]["for"] == "i in 2..4"
    assert b.codes(api.check_models("drafter", None, Library(Path("contracts")))) == set()


def test_head_size_that_no_key_states_is_computed() -> None:
    table = new_table(dim=16)
    data, _ = written(new_config(head_dim=b.ABSENT), table)
    assert data["dims"]["head_dim"] == {"default": "hidden // heads"}
    assert b.codes(api.check_models("drafter", None, Library(Path("contracts")))) == set()


def test_config_that_is_nested_is_bound_where_its_sizes_stand() -> None:
    flat = new_config()
    nested = {"architectures": flat.pop("architectures"), "model_type": "new", "inner_config": flat}
    data, _ = written(nested, new_table())
    assert data["nested"] == "inner_config"
    assert data["dims"]["hidden"] == {"drafter": "hidden_size"}
    assert b.codes(api.check_models("drafter", None, Library(Path("contracts")))) == set()


def test_plain_architecture_is_told_by_tensors_that_others_have_not() -> None:
    data, _ = written(new_config(architectures=["Qwen3ForCausalLM"], model_type="qwen3"), new_table())
    assert data["detect"]["plain_architecture"] == ["Qwen3ForCausalLM"]
    assert not {"norm.weight", "lm_head.weight"} & set(data["detect"]["any_tensor"])
    assert b.codes(api.check_models("drafter", None, Library(Path("contracts")))) == set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_family_that_is_written_of_any_checkpoint_describes_it(case: Good) -> None:
    written(case.drafter_config, case.drafter_tensors)
    report = api.check_models("drafter", None, Library(Path("contracts")), "mine")
    assert b.codes(report) <= {"SRC112 unknown"}, b.text(report)
    assert report.sides[0].tensors == len(case.drafter_tensors)


def test_folder_of_families_asks_for_a_family_though_one_is_known() -> None:
    data, _ = written(b.dense_config(), b.dense())
    assert data["kind"] == "family"
    report = api.check_models("drafter", None, Library(Path("contracts")), "mine")
    assert b.codes(report) == set(), b.text(report)


def test_names_and_keys_of_any_letters_are_written_as_valid_toml() -> None:
    table = new_table() | {'a"b\\c.weight': ("BF16", (64,)), "ünï.0.x": ("BF16", (64,)), "a{i}.weight": ("BF16", (2,)),
                           "0": ("BF16", (64,)), "007.w": ("BF16", (64,))}  # fmt: skip
    config = new_config(**{"in": 7, "min_size": 9, "it": 11, "weird-key": 13, "n.x": 3})
    put(config, table)
    made = init("drafter", None, b.LIBRARY)
    assert isinstance(made, Draft)
    names = set(tomllib.loads(made.text)["tensors"])
    assert {'a"b\\c.weight', "0", "007.w"} <= names
    assert '# "a{i}.weight" cannot stand in a contract' in made.text
    Path("contracts/families", f"{made.id}.toml").write_text(made.text, encoding="utf-8")
    assert not load(Path("contracts/families", f"{made.id}.toml"), "family", Library(Path("contracts")))[1]


ODD_VALUES = st.sampled_from([0, -1, 10**30, 1.5, True, None, "", "x", "64", [], [1, [2]], {}, {"a": {"b": 7}}])
ODD_NAMES = st.sampled_from(["layers.0.a", "layers.1.a", "layers.01.a", "x.0.1.2.w", "x.1.1.2.w", "{i}.w", "a{j}.0",
                             "", "0.0", "1.0", "0.1", "1.1", "..", "layers.999999.w", "layers.9999999.w"])  # fmt: skip
ODD_ROWS = st.tuples(st.sampled_from(["BF16", "I64", "BOOL", "F8_E4M3"]),
                     st.lists(st.sampled_from([0, 1, 2, 37, 64, 96, 192]), max_size=3).map(tuple))  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=st.dictionaries(st.sampled_from(sorted(b.dense_config())), ODD_VALUES, max_size=4),
       table=st.dictionaries(ODD_NAMES, ODD_ROWS, min_size=1, max_size=8))  # fmt: skip
def test_family_of_anything_is_accepted_by_the_reader(config: dict[str, Any], table: b.Table) -> None:
    model = b.given(new_config(**config), table, "d")
    path = Path("contracts/families/any.toml")
    made = init(model, None, b.LIBRARY, path=path)
    assert isinstance(made, Draft)
    path.write_text(made.text, encoding="utf-8")
    assert list(load(path, "family", Library(Path("contracts")))[1]) == []


def test_config_without_tensors_cannot_be_the_start_of_a_family() -> None:
    b.write(Path("drafter"), new_config(), None)
    made = init("drafter", None, b.LIBRARY)
    assert isinstance(made, Report)
    assert {f.code for f in made.findings} >= {"TEN408"}


# --- words --------------------------------------------------------------------------------------------------------

KIMI = {"hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64, "num_key_value_heads": 64,
        "head_dim": 128, "vocab_size": 163840, "draft_vocab_size": 32000, "num_hidden_layers": 1,
        "max_position_embeddings": 131072, "bos_token_id": 7168, "rope_theta": 50000}  # fmt: skip


@pytest.mark.parametrize(
    ("size", "name", "first"),
    [
        (7168, "norm.weight", "hidden"),
        (21504, "fc.weight", "3 * hidden"),
        (14336, "layers.0.self_attn.q_proj.weight", "2 * hidden"),
        (8192, "layers.0.self_attn.q_proj.weight", "heads * head_dim"),
        (8192, "layers.0.self_attn.k_proj.weight", "kv_heads * head_dim"),
        (32000, "d2t", "draft_vocab"),
        (163840, "t2d", "vocab"),
        (18432, "layers.0.mlp.up_proj.weight", "intermediate"),
        (12345, "x", "12345"),
        (131072, "x", "131072"),
        (1, "x", "1"),
    ],
)
def test_size_is_expressed_as_the_field_would_write_it(size: int, name: str, first: str) -> None:
    assert express(size, sizes_of(KIMI)[0], name)[0] == first


@settings(max_examples=200, deadline=None)
@given(st.recursive(st.text() | st.integers(-(2**63), 2**63 - 1) | st.booleans(),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_what_is_written_as_toml_reads_back(value: Any) -> None:
    assert tomllib.loads(f"x = {toml(value)}")["x"] == value
