"""Cases are written the same each time, and hold on disk what their metadata says without writing anything."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from draftproof.testing import cases, fixtures

SOME = sorted({case.family for case in cases.cases() if case.kind == "healthy"})
KINDS = {case.id.rpartition("/")[2]: case for case in cases.cases() if case.family == SOME[0]}


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


@pytest.mark.parametrize("id", [case.id for case in KINDS.values()])
def test_case_on_disk_is_what_its_metadata_says(id: str, tmp_path: Path) -> None:
    case = cases.case(id)
    seen = cases.metadata(case)
    row = json.loads(cases.build(case, tmp_path).read_text())
    drafter = tmp_path / case.place / row["drafter"]
    weights = drafter / "model.safetensors"
    assert header(weights) == seen.drafter.table
    assert json.loads((drafter / "config.json").read_text()) == seen.drafter.config
    assert json.loads((tmp_path / "targets" / row["target"] / "config.json").read_text()) == seen.target.config
    assert row["launch"] == {engine: list(words) for engine, words in seen.launch.items()}


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
        assert bool(case.twin) == (case.kind != "healthy")
        if case.twin:
            assert case.launch.keys() <= cases.case(case.twin).launch.keys(), case.id
        assert not any(word in case.place for word in ("eagle", "spark", "flash"))


def test_a_case_that_metadata_cannot_tell_is_hidden() -> None:
    family = SOME[0]
    assert cases.case(f"{family}/fc.weight/nan").hidden
    assert not cases.case(f"{family}/fc.weight/longer").hidden


def test_known_pair_is_accepted_as_far_as_its_ring_says() -> None:
    assert fixtures.known().accepted == fixtures.known().drafted == 75
    broken = fixtures.known(break_every=5)
    assert 0 < broken.accepted < broken.drafted
    assert len(fixtures.known().tokens) == 101
