"""Recordings: what ships is what is known, a derived table is the contract's own, and a recorded one decides."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import builder as b
import known_good as known
from draftproof import api, cli
from draftproof.checkpoint import Checkpoint
from draftproof.conform import conform, layout
from draftproof.dims import Known, Unknown
from draftproof.hub import Source, open_model, read_recording, recorded_repos, recording_name
from draftproof.library import Library
from draftproof.recognise import recognise

FOLDER = Library().shipped / "recordings"
FILES = sorted(FOLDER.glob("*.json"))
K2, K25 = "AQ-MedAI/Kimi-K2-Instruct-eagle3", "AQ-MedAI/Kimi-K25-eagle3"
MLA = "k-l-lambda/Kimi-K2.5-Eagle3"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
H, FC, Q, INTER, VD, V = 7168, 3 * 7168, 64 * 128, 18432, 32000, 163840
# by hand, from the published configs and the layout of the trainer's export (facts/models.json, facts/families.md 1.1)
PUBLISHED: b.Table = {
    "fc.weight": ("BF16", (H, FC)),
    "midlayer.self_attn.q_proj.weight": ("BF16", (Q, 2 * H)),
    "midlayer.self_attn.k_proj.weight": ("BF16", (Q, 2 * H)),
    "midlayer.self_attn.v_proj.weight": ("BF16", (Q, 2 * H)),
    "midlayer.self_attn.o_proj.weight": ("BF16", (H, Q)),
    "midlayer.mlp.gate_proj.weight": ("BF16", (INTER, H)),
    "midlayer.mlp.up_proj.weight": ("BF16", (INTER, H)),
    "midlayer.mlp.down_proj.weight": ("BF16", (H, INTER)),
    "midlayer.hidden_norm.weight": ("BF16", (H,)),
    "midlayer.input_layernorm.weight": ("BF16", (H,)),
    "midlayer.post_attention_layernorm.weight": ("BF16", (H,)),
    "norm.weight": ("BF16", (H,)),
    "lm_head.weight": ("BF16", (VD, H)),
    "d2t": ("I64", (VD,)),
}
PARAMETERS = 1_190_948_864
MLA_PARAMETERS, MLA_TENSORS, MLA_BYTES = 1_841_199_104, 16, 3_682_398_208  # its published size: 3.68 GB


def opened(repo: str) -> Source:
    source = open_model(repo, (FOLDER,))
    assert isinstance(source, Source), source
    return source


def table_of(source: Source) -> b.Table:
    assert source.tensors is not None
    return {name: (row[0], tuple(row[1])) for name, row in source.tensors["named"].items()}


# --- what ships ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_recording_is_well_formed_and_says_where_it_comes_from(path: Path) -> None:
    source = read_recording(path)
    assert isinstance(source, Source), source
    assert source.origin
    assert path.name == recording_name(source.name, source.revision)
    assert source.revision is None  # none of these repos could be read
    assert source.provenance in ("derived", "partial")
    assert f"({source.provenance}" in source.label


def test_shipped_recordings_are_those_of_the_founding_case() -> None:
    assert {K2, K25, MLA, "moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2.5"} <= set(recorded_repos((FOLDER,)))


@pytest.mark.parametrize("repo", [K2, K25])
def test_derived_table_is_the_published_geometry(repo: str) -> None:
    source = opened(repo)
    assert table_of(source) == PUBLISHED
    floats = sum(math.prod(shape) for dtype, shape in PUBLISHED.values() if dtype == "BF16")
    assert floats == PARAMETERS
    assert source.tensors is not None
    assert (source.tensors["parameters"], source.tensors["count"]) == (PARAMETERS, 14)


COMPUTED = [
    p for p in FILES if "computed" in ((json.loads(p.read_text(encoding="utf-8"))["tensors"] or {}).get("basis") or "")
]


@pytest.mark.parametrize("path", COMPUTED, ids=lambda path: path.stem)
def test_derived_table_is_what_the_contract_computes(path: Path) -> None:
    source = read_recording(path)
    assert isinstance(source, Source)
    assert source.tensors is not None
    checkpoint = Checkpoint(source, "drafter")
    contract, _ = recognise(b.LIBRARY, checkpoint, "family")
    assert contract is not None
    view = conform(contract, checkpoint)
    write = next(d for d in contract.dialects if d.name == "midlayer").encode
    asked = {write(name): (want.rule.dtype[0], shape) for name, (want, shape) in layout(contract, view.dims).items()}
    assert table_of(source) == asked
    floats = sum(math.prod(shape) for dtype, shape in asked.values() if dtype == "BF16")
    assert source.tensors["parameters"] == floats
    assert source.tensors["count"] == len(asked)


def test_every_known_model_has_one_recording() -> None:
    """Count them: 80 drafters, 22 targets, 81 training configs and a template of one."""
    repos = recorded_repos((FOLDER,))
    assert len(repos) == len(FILES) == 184
    files = [repo for repo in repos if repo.count("/") > 1]
    assert len(files) == 82
    by = {p: [r for r in repos if opened(r).provenance == p] for p in ("derived", "partial")}
    assert {repo for repo in files if repo in by["partial"]} == {
        "NVIDIA/Model-Optimizer/modelopt/torch/speculative/default_kimik2_eagle_config"
    }
    whole = [repo for repo in by["derived"] if repo not in files]
    assert len(whole) == 5  # configs of the five others that are published whole; one was read of its trainer
    assert len(by["derived"]) + len(by["partial"]) == 184


def test_name_that_is_no_address_stands_under_unknown_and_is_explained() -> None:
    odd = [repo for repo in recorded_repos((FOLDER,)) if repo.startswith("unknown/")]
    assert len(odd) == 5
    assert all("the repo" in opened(repo).origin for repo in odd)


def test_value_whose_key_is_not_known_says_so() -> None:
    source = opened("cm00cm/Kimi-K2.7-Code-EAGLE3")
    key = "eagle_config.eagle_aux_hidden_state_layer_ids"
    assert source.respelled == {key}
    seen = Checkpoint(source, "drafter").config(key)
    assert isinstance(seen, Known)
    assert seen.witness == f"drafter config.json: {key}, its name on disk not known"


def test_value_that_is_published_in_part_is_unknown() -> None:
    seen = Checkpoint(opened("openai/gpt-oss-20b"), "target").config("rope_scaling")
    assert seen == Unknown("rope_scaling was not published as it stands on disk")


def test_latent_table_with_its_head_is_the_published_size() -> None:
    table = table_of(opened(MLA)) | {"lm_head.weight": ("BF16", (V, H))}  # full vocabulary: the head is copied in
    sizes = [math.prod(shape) for _, shape in table.values()]
    assert (len(sizes), sum(sizes), 2 * sum(sizes)) == (MLA_TENSORS, MLA_PARAMETERS, MLA_BYTES)


def test_k25_was_printed_by_a_library_and_says_so() -> None:
    source = opened("moonshotai/Kimi-K2.5")
    assert source.normalised
    assert "normalised" in source.label
    config = source.config or {}
    assert not [key for key in (*config, *config["text_config"]) if key.startswith("_")]
    assert "model_type" not in config["text_config"]
    assert "text_config.model_type" in source.unknown
    assert {"text_config.rope_parameters", "text_config.rope_theta"} <= source.respelled
    seen = Checkpoint(source, "target").config.under(("text_config",))("rope_theta")
    assert isinstance(seen, Known)
    assert seen.witness == "target config.json: text_config.rope_theta, renamed by the library that printed it"


def test_target_recording_holds_only_what_a_contract_names() -> None:
    source = opened("moonshotai/Kimi-K2.5")
    assert source.tensors is not None
    assert len(source.tensors["named"]) == 3
    assert source.tensors["count"] == 208_550
    assert source.tensors["complete"] is False


def test_two_drafters_of_one_trainer_differ_in_two_keys() -> None:
    one, two = opened(K2).config or {}, opened(K25).config or {}
    differ = {key for key in one.keys() | two.keys() if one.get(key) != two.get(key)}
    assert differ == {"max_position_embeddings", "transformers_version"}
    assert (one["max_position_embeddings"], two["max_position_embeddings"]) == (131072, 262144)


# --- provenance ---------------------------------------------------------------------------------------------------


def test_founding_case() -> None:
    report = b.check(K2, "moonshotai/Kimi-K2.5", facts={})
    assert b.codes(report) == {
        "TEN400 unknown", "PAIR403", "PAIR408 unknown", "PAIR411 info", "PAIR413 info", "PAIR415 info",
        "PAIR417 unknown",
    }, b.text(report)  # fmt: skip
    assert "at least 262144 tokens" in b.text(report)
    assert "observed 131072" in b.text(report)
    assert "draftproof record AQ-MedAI/Kimi-K2-Instruct-eagle3" in b.text(report)
    assert report.exit_code == 1


def test_recorded_table_decides_where_a_derived_one_does_not() -> None:
    config, base = opened(K25).config, opened("moonshotai/Kimi-K2.5")
    facts = b.FACTS | {"trained_on": b.Fact("moonshotai/Kimi-K2.5", "its card")}
    names = {n: ("BF16", s) for n, (_, s) in table_of(base).items()}
    target = b.recorded(base.config, names, "moonshotai/Kimi-K2.5")
    derived = b.check(K25, target, facts=facts)
    assert derived.verdict == "unknown"
    assert {c for c in b.codes(derived) if c.startswith("TEN")} == {"TEN400 unknown"}
    good = b.check(b.recorded(config, PUBLISHED), target, facts=facts)
    assert good.verdict == "pass", b.text(good)
    wrong = b.check(b.recorded(config, PUBLISHED | {"fc.weight": ("BF16", (H, 4 * H))}), target, facts=facts)
    assert {c for c in b.codes(wrong) if c.startswith("TEN")} == {"TEN403"}
    assert "28672 = 4 * 7168: matches if aux were 4" in b.text(wrong)


@pytest.mark.parametrize("provenance", ["derived", "partial"])
def test_wrong_table_that_was_not_read_fails_nothing_either(provenance: str) -> None:
    source = b.recorded(b.dense_config(), b.changed(b.dense(), {"fc.weight": ("BF16", (1, 1))}))
    source.provenance = provenance
    codes = b.codes(b.check(source, b.given(b.target_config(), b.target(), b.TARGET)))
    assert "TEN400 unknown" in codes
    assert "TEN403" not in codes


def test_partial_recording_binds_no_default() -> None:
    report = b.check("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "meta-llama/Llama-3.1-8B", facts={})
    sides = {side.role: side for side in report.sides}
    rows = dict(row.split("=", 1) for row in sides["drafter"].bindings)
    assert "head_dim" not in rows
    assert "aux" not in rows
    assert rows["hidden"].startswith("4096 ")
    assert "CFG313 unknown" in b.codes(report)
    assert report.exit_code == 1  # its 2048 tokens are published


# --- recording ----------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "contracts/recordings").mkdir(parents=True)
    return tmp_path


def record(folder: str, name: str) -> Path:
    data, report = api.record(folder, f"{name}@{COMMIT}", Library(Path("contracts")))
    assert data is not None, b.text(report)
    path = Path("contracts/recordings") / data["file"]
    path.write_text(json.dumps(data["recording"]))
    return path


FLAWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "tensor missing": ({}, {"norm.weight": None}),
    "shape": ({}, {"fc.weight": ("BF16", (64, 256))}),
    "unexpected": ({}, {"x\ny": ("BF16", (1,))}),
    "config": ({"hidden_size": "64"}, {}),
    "context": ({"max_position_embeddings": 1024}, {}),
}


@pytest.mark.parametrize("flaw", FLAWS)
@pytest.mark.parametrize("shards", [1, 3])
def test_recording_of_a_folder_says_what_the_folder_says(flaw: str, shards: int, here: Path) -> None:
    config, tensors = FLAWS[flaw]
    b.write(here / "own", b.edit(b.dense_config(), config), b.changed(b.dense(), tensors), shards=shards)
    b.write(here / "base", b.target_config(), b.target(), shards=shards)
    path = record("./own", b.DRAFTER)
    assert path.name == "org--drafter@01234567.json"
    record("./base", b.TARGET)
    library = Library(Path("contracts"))
    base = f"{b.TARGET}@{COMMIT}"
    by_name = b.check(f"{b.DRAFTER}@{COMMIT}", base, library=library)
    by_folder = b.check("./own", base, library=library)
    container = {"STF217 warning"}  # names are judged where the bytes are
    assert b.codes(by_name) == b.codes(by_folder) - container
    said = [{(f.code, f.level, f.subject, f.expected, f.observed) for f in b.against(r)} for r in (by_name, by_folder)]
    assert said[0] == {row for row in said[1] if row[0] != "STF217"}
    assert (flaw == "none") is (by_name.verdict == "pass")


def test_recording_keeps_hashes_and_of_a_target_only_what_is_named(here: Path) -> None:
    b.write(here / "base", b.target_config(), b.target())
    data = json.loads(record("./base", b.TARGET).read_text())
    assert set(data["tensors"]["named"]) == {
        "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "model.layers.0.input_layernorm.weight",
    }  # fmt: skip
    layers = {f"model.layers.{n}.input_layernorm.weight" for n in (1, b.LAYERS - 1, b.LAYERS)}
    assert set(data["tensors"]["absent"]) == layers  # they tell how many layers there are
    assert (data["tensors"]["count"], data["tensors"]["complete"]) == (5, False)
    assert len(data["tensors"]["names_sha256"]) == 64
    assert len(data["files"]["config.json"]["sha256"]) == 64
    assert len(data["files"]["model.safetensors"]["header_sha256"]) == 64
    assert data["files"]["model.safetensors"]["size"] == (here / "base/model.safetensors").stat().st_size
    assert (data["provenance"], data["revision"]) == ("recorded", COMMIT)


@pytest.mark.parametrize(
    "name", ["", "org/name", "org/name@main", "org/name@" + "A" * 40, "name@" + COMMIT, "../x/y@" + COMMIT]
)
def test_recording_needs_a_commit(name: str, here: Path) -> None:
    b.write(here / "own", b.dense_config(), b.dense())
    data, report = api.record("./own", name, Library())
    assert data is None
    assert b.codes(report) == {"SRC117"}
    assert report.exit_code == 2


def test_snapshot_in_a_hub_cache_knows_its_name(here: Path) -> None:
    b.write(here / f"models--org--drafter/snapshots/{COMMIT}", b.dense_config(), b.dense())
    data, _ = api.record(f"models--org--drafter/snapshots/{COMMIT}", "", Library())
    assert data is not None
    assert data["file"] == "org--drafter@01234567.json"


@pytest.mark.parametrize("files", [{}, {"config.json": "[]"}, {"config.json": "{}"}])
def test_what_cannot_be_read_is_not_recorded(files: dict[str, str], here: Path) -> None:
    (here / "own").mkdir()
    for file, text in files.items():
        (here / "own" / file).write_text(text)
    data, report = api.record("./own", f"{b.DRAFTER}@{COMMIT}", Library())
    assert data is None
    assert report.exit_code != 0


FILE = "contracts/recordings/org--drafter@01234567.json"


def test_record_replaces_a_recording_that_differs_only_when_told_to(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b.write(here / "own", b.dense_config(), b.dense())
    words = ["record", "own", "--as", f"{b.DRAFTER}@{COMMIT}"]
    assert cli.main(words) == 0
    assert Path(FILE).exists()
    assert capsys.readouterr().out == f"recorded in {FILE}\n"
    assert cli.main(words) == 0
    assert capsys.readouterr().out == f"{b.DRAFTER}@0123456 stands in {FILE}: nothing differs\n"
    b.write(here / "own", b.dense_config(max_position_embeddings=8192), b.dense())
    before = Path(FILE).read_bytes()
    assert cli.main(words) == 2
    told = capsys.readouterr()
    assert "exists, and differs from it; give --force" in told.err
    assert "\n  context 4096 → 8192\n" in told.out
    assert "config.json bytes changed" in told.out
    assert Path(FILE).read_bytes() == before
    assert cli.main([*words, "--force"]) == 0
    assert json.loads(Path(FILE).read_text())["config"]["max_position_embeddings"] == 8192


def test_revision_that_is_not_the_recorded_one_is_usage(here: Path) -> None:
    b.write(here / "own", b.dense_config(), b.dense())
    record("./own", b.DRAFTER)
    report = b.check(f"{b.DRAFTER}@{'f' * 40}", library=Library(Path("contracts")))
    assert b.codes(report) == {"SRC119"}
    assert report.exit_code == 2


# --- a drafter inside its target ----------------------------------------------------------------------------------

INSIDE = [one for one in known.CASES if one.inside]


@pytest.mark.parametrize("one", INSIDE, ids=lambda one: one.id)
def test_recording_of_a_target_keeps_the_drafter_that_stands_inside_it(one: known.Good, here: Path) -> None:
    own = {name for name in one.drafter_tensors if name not in b.target()}
    lost = sorted(own, key=lambda n: (not n.endswith("norm.weight"), n))[:1]
    bent = sorted(own)[:1]
    changes: dict[str, dict[str, Any]] = {"whole": {}, "lost": dict.fromkeys(lost)}
    changes["bent"] = {n: (one.drafter_tensors[n][0], (3, *one.drafter_tensors[n][1])) for n in bent}
    for case, change in changes.items():
        table = b.changed(one.drafter_tensors, change)
        b.write(here / case, one.drafter_config, table, shards=2)
        record(f"./{case}", f"org/{case}")
        data = json.loads((here / f"contracts/recordings/org--{case}@01234567.json").read_text())
        assert own & set(table) <= set(data["tensors"]["named"])
        assert "model.layers.0.mlp.gate_proj.weight" not in data["tensors"]["named"]
        library = Library(Path("contracts"))
        said = [
            b.codes(api.check_models(model, None, library, one.family))
            for model in (f"org/{case}@{COMMIT}", f"./{case}")
        ]
        assert said[0] == said[1]
        assert any(code.startswith("TEN") for code in said[0]) is (case != "whole")


# --- counts -------------------------------------------------------------------------------------------------------


def test_parameters_are_those_of_the_weights_and_not_of_maps(here: Path) -> None:
    b.write(here / "own", b.dense_config(), b.dense())
    data = json.loads(record("./own", b.DRAFTER).read_text())
    floats = [math.prod(shape) for dtype, shape in b.dense().values() if dtype == "BF16"]
    assert data["tensors"]["parameters"] == sum(floats)


def test_parameters_of_packed_weights_are_what_they_stand_for(here: Path) -> None:
    quant = {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": [],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False,
        }}},
    }  # fmt: skip
    table = b.changed(b.target(), {"lm_head.weight": None}) | {
        "lm_head.weight_packed": ("I32", (b.VOCAB, b.HIDDEN // 8)),
        "lm_head.weight_scale": ("BF16", (b.VOCAB, b.HIDDEN // 32)),
        "lm_head.weight_shape": ("I64", (2,)),
    }
    b.write(here / "packed", b.target_config(quantization_config=quant), table)
    data = json.loads(record("./packed", b.TARGET).read_text())
    assert data["tensors"]["parameters"] == sum(math.prod(shape) for _, shape in b.target().values())
    b.write(here / "unsaid", b.target_config(), table)
    data = json.loads(record("./unsaid", "org/unsaid").read_text())
    assert data["tensors"]["parameters"] is None


# --- what was looked for and is not there -------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"])
def test_recording_of_a_target_tells_what_it_lacks(lost: str, here: Path) -> None:
    b.write(here / "base", b.target_config(), b.changed(b.target(), {lost: None}))
    record("./base", b.TARGET)
    library = Library(Path("contracts"))
    plain = b.given(b.dense_config(), b.dense(), b.DRAFTER)
    models = (f"{b.TARGET}@{COMMIT}", "./base")
    said = [b.codes(b.check(plain, base, library=library)) - {"PAIR417 unknown"} for base in models]
    assert said[0] == said[1]
    assert "TEN401" in said[0]


@pytest.mark.parametrize("layers", [b.LAYERS - 2, b.LAYERS, b.LAYERS + 1])
def test_recording_of_a_target_tells_how_many_layers_it_has(layers: int, here: Path) -> None:
    norms = {f"model.layers.{n}.input_layernorm.weight": ("BF16", (b.HIDDEN,)) for n in range(layers)}
    b.write(here / "base", b.target_config(), b.target() | norms, shards=3)
    record("./base", b.TARGET)
    library = Library(Path("contracts"))
    plain = b.given(b.dense_config(), b.dense(), b.DRAFTER)
    models = (f"{b.TARGET}@{COMMIT}", "./base")
    said = [b.codes(b.check(plain, base, library=library)) - {"PAIR417 unknown"} for base in models]
    assert said[0] == said[1]
    assert ("CFG308" in {code[:6] for code in said[0]}) is (layers != b.LAYERS)


def test_recording_made_before_a_contract_named_more_leaves_that_unknown(here: Path) -> None:
    b.write(here / "base", b.target_config(), b.changed(b.target(), {"lm_head.weight": None}))
    path = record("./base", b.TARGET)
    data = json.loads(path.read_text())
    data["tensors"]["absent"].remove("lm_head.weight")
    path.write_text(json.dumps(data))
    plain = b.given(b.dense_config(), b.dense(), b.DRAFTER)
    report = b.check(plain, f"{b.TARGET}@{COMMIT}", library=Library(Path("contracts")))
    assert "TEN401 unknown" in b.codes(report)


@pytest.mark.parametrize("absent", [{}, [1], "lm_head.weight"])
def test_absent_names_that_are_none_are_refused(absent: Any, here: Path) -> None:
    b.write(here / "base", b.target_config(), b.target())
    path = record("./base", b.TARGET)
    data = json.loads(path.read_text())
    data["tensors"]["absent"] = absent
    path.write_text(json.dumps(data))
    found = read_recording(path)
    assert not isinstance(found, Source)
    assert "tensors.absent" in found.expected
