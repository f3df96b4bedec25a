"""Cases are written the same each time, and hold on disk what their metadata says without writing anything."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from draftproof.testing import cases, fixtures
from draftproof.torchzip import read_entries

SOME = sorted({case.family for case in cases.cases() if case.kind == "healthy"})
TRIED = [case.id for case in cases.cases()][::40]  # of every family and kind of fault
ENGINES = ("vllm", "sglang", "llama.cpp")
ALIKE = {  # they differ in values alone, and an engine that takes both answers both alike
    *("eagle3/embed/own", "eagle3/embed/target's"),
    *("eagle3/bias/qkv-flag", "eagle3/bias/o-flag"),
}
ENOUGH = {"vllm": 400, "sglang": 400, "llama.cpp": 300}  # different faults that an engine is tried with


def header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    data = path.read_bytes()
    rows = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    return {name: (row["dtype"], tuple(row["shape"])) for name, row in rows.items() if name != "__metadata__"}


@pytest.mark.parametrize("name", [name for name in fixtures.names() if name not in fixtures.known_models()])
def test_model_on_disk_is_what_its_table_says_and_the_same_twice(name: str, tmp_path: Path) -> None:
    model = fixtures.model(name)
    one, two = fixtures.write(model, tmp_path / "a"), fixtures.write(fixtures.model(name), tmp_path / "b")
    assert header(one / "model.safetensors") == model.table
    assert json.loads((one / "config.json").read_text()) == model.config
    assert {p.name: p.read_bytes() for p in one.iterdir()} == {p.name: p.read_bytes() for p in two.iterdir()}


@pytest.mark.parametrize("id", TRIED)
def test_case_on_disk_is_what_its_metadata_says(id: str, tmp_path: Path) -> None:
    case = cases.case(id)
    seen = cases.metadata(case)
    row = json.loads(cases.build(case, tmp_path).read_text())
    folder = tmp_path / case.place / row["drafter"]
    side = seen.drafter
    main = {side.weights} if side.table else set()
    assert {path.name for path in folder.iterdir()} == {"config.json", *main, *side.files} - set(side.gone)
    if main and side.weights not in side.files:
        assert header(folder / side.weights) == side.table
    if "config.json" not in seen.drafter.files:
        assert json.loads((folder / "config.json").read_text()) == seen.drafter.config
    target = tmp_path / "targets" / row["target"] / "config.json"
    assert target.exists() != ("config.json" in seen.target.gone)
    if target.exists() and "config.json" not in seen.target.files:
        assert json.loads(target.read_text()) == seen.target.config
    assert row["launch"] == {engine: list(words) for engine, words in seen.launch.items()}


def test_shards_hold_the_tensors_that_metadata_names(tmp_path: Path) -> None:
    case = cases.case("eagle3/files/shards")
    cases.build(case, tmp_path)
    folder = tmp_path / case.place / case.folder
    tables = [header(path) for path in sorted(folder.glob("*.safetensors"))]
    assert tables[0] | tables[1] == cases.metadata(case).drafter.table
    listed = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert listed.keys() == cases.metadata(case).drafter.table.keys()


def test_torch_file_holds_the_drafter_s_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    case = cases.case("eagle3/files/only-bin")
    cases.build(case, tmp_path)
    loaded = torch.load(tmp_path / case.place / case.folder / "pytorch_model.bin", weights_only=True)
    assert {name: tuple(t.shape) for name, t in loaded.items()} == {
        name: shape for name, (_, shape) in cases.metadata(case).drafter.table.items()
    }


def test_safetensors_reads_our_files() -> None:
    loaded = pytest.importorskip("safetensors.numpy").load(fixtures.safetensors(fixtures.model("target").tensors))
    assert {name: values.shape for name, values in loaded.items()} == {
        name: shape for name, (_, shape) in fixtures.model("target").table.items()
    }


def test_bfloat16_is_rounded_to_the_nearest_and_to_even() -> None:
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, float("nan")], np.float32)
    data = fixtures.safetensors({"x": fixtures.Tensor("BF16", (4,), lambda: values)})
    assert np.frombuffer(data[-8:], "<u2").tolist() == [0x3F80, 0x3F80, 0x3F82, 0x7FC0]


def test_every_case_has_a_twin_that_is_launched_by_the_same_engines() -> None:
    for case in cases.cases():
        assert not case.twin or case.kind != "healthy"
        if case.twin:
            assert not cases.case(case.twin).feature, case.id
            assert case.launch.keys() <= cases.case(case.twin).launch.keys(), case.id
        assert not any(word in case.place for word in ("eagle", "spark", "flash"))


def test_a_case_that_metadata_cannot_tell_is_hidden() -> None:
    assert cases.case("eagle3/fc.weight/nan").hidden
    assert not cases.case("eagle3/fc.weight/longer").hidden
    assert not cases.case("eagle3/files/copy").hidden


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_is_tried_with_enough_different_faults(
    engine: str, record_property: Callable[[str, object], None]
) -> None:
    wrong = {case.subject for case in cases.cases(engine) if case.kind == "broken" and not case.hidden}
    record_property("different", len(wrong))
    assert len(wrong) >= ENOUGH[engine]


def held(name: str, data: bytes) -> str:
    """Return what metadata tells of a file of weights: entries of a small torch file, else its length and header."""
    if not name.endswith(".pt"):
        header = data[: 8 + int.from_bytes(data[:8], "little")] if name.endswith(".safetensors") else data[:512]
        return f"{len(data)}, {zlib.crc32(header)}"
    try:
        return str(read_entries(lambda start, stop: data[start:stop], len(data)))
    except ValueError as error:
        return f"{len(data)}, {error}"


@cache
def digest(content: Callable[[], bytes]) -> int:
    return zlib.crc32(content())


def test_cases_that_an_engine_answers_otherwise_differ_in_what_metadata_or_facts_tell() -> None:
    seen: dict[str, str] = {}
    for case in cases.cases():
        if case.kind != "broken" or case.hidden:
            continue
        target, drafter = cases.models(case)
        files = {n: f() for n, f in drafter.files.items() if not n.startswith("tokenizer")}
        beside = [[n, data.decode() if n.endswith("json") else held(n, data)] for n, data in sorted(files.items())]
        tokens = ("tokenizer", "special", "added")  # whole vocabularies: their digests are enough
        read = [(f"target/{n}", f) for n, f in sorted(target.files.items())]
        read += [(n, f) for n, f in sorted(drafter.files.items()) if n.startswith(tokens)]
        beside += [[n, digest(f)] for n, f in read]
        sides = [
            target.config,
            target.table,
            drafter.config,
            drafter.table,
            drafter.weights,
            drafter.gone,
            target.gone,
            beside,
        ]
        for engine, words in case.launch.items():
            asked = [case.env, dict(case.facts), case.folder, dict(case.request)]
            told = json.dumps([sides, engine, words, *asked], sort_keys=True)
            first = seen.setdefault(told, case.id)
            assert first == case.id or {first, case.id} <= ALIKE, f"{first} and {case.id} for {engine}"


def test_what_is_known_to_go_wrong_is_shown_by_cases() -> None:
    for what, ids in cases.shows().items():
        assert all(cases.case(id).kind == "broken" for id in ids), what


def test_a_tensor_or_key_that_is_changed_is_there() -> None:
    with pytest.raises(KeyError, match="no tensor"):
        cases.tensor("no.such", lambda name, held: None)(fixtures.model("target"), fixtures.model("eagle3"))


def test_known_pair_is_accepted_as_far_as_its_ring_says() -> None:
    assert fixtures.known().accepted == fixtures.known().drafted == 75
    broken = fixtures.known(break_every=5)
    assert 0 < broken.accepted < broken.drafted
    assert len(fixtures.known().tokens) == 101


def test_key_that_is_set_and_then_unset_is_gone() -> None:
    target, drafter = cases.models(cases.case(f"{SOME[0]}/healthy"))
    cases.config({"a.b": 1, "a.c": 2}, ["a.b"])(target, drafter)
    assert drafter.config["a"] == {"c": 2}
