"""No false alarms: what trainers themselves write is told for what it is, and passes with nothing above info.

The cases (tests/known_good.py) and the contracts are written from the facts separately, so that they can disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import builder as b
from draftproof.adapt import adapt
from draftproof.checkpoint import Checkpoint
from draftproof.contracts import Fact
from draftproof.findings import Report
from draftproof.recognise import recognise
from known_good import CASES, Good

GROUP = "mtp"  # these stand in their target, which is no drafter by itself: the command line must ask for the group
SILENT = ("pass", "info")
SIZELESS = ("medusa", "hydra", "hydra-prefix")  # their configs state no sizes, and adapt decides from configs
FIRST = {case.family: case for case in reversed(CASES)}


def asked(case: Good) -> str:
    """Return what --family must say: nothing, but for what stands in its target."""
    return "" if not case.inside else GROUP if case.family.startswith(f"{GROUP}-") else case.family


def declared(case: Good) -> Mapping[str, Fact]:
    return {key: Fact(value, "its card") for key, value in case.facts.items()}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, so that org/drafter and org/target are folders and names at once."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(path: Path, table: b.Table) -> None:
    """Save a table as torch does; tensors of one shape share their storage, as the blocks of a Medusa head do."""
    torch = pytest.importorskip("torch")
    kinds = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "I64": torch.int64, "BOOL": torch.bool}
    made = {row: torch.zeros(row[1], dtype=kinds[row[0]]) for row in table.values()}
    torch.save({name: made[row] for name, row in table.items()}, path)


def written(case: Good, here: Path) -> tuple[str, str]:
    """Write both sides, the drafter's weights in its own kind of file and under its name; return their names."""
    torchs = not case.weights.endswith(".safetensors")
    folder = b.write(here / b.DRAFTER, case.drafter_config, None if torchs else case.drafter_tensors)
    if torchs:
        save(folder / case.weights, case.drafter_tensors)
    else:
        (folder / "model.safetensors").rename(folder / case.weights)
    if not case.inside:
        b.write(here / b.TARGET, case.target_config, case.target_tensors)
    for name, text in case.files.items():
        (here / "org" / name).write_text(text)
    return b.DRAFTER, b.DRAFTER if case.inside else b.TARGET


def judged(case: Good, here: Path) -> Report:
    drafter, target = written(case, here)
    return b.check(drafter, target, facts=declared(case), family=asked(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_known_good_checkpoint_passes_with_nothing_above_info(case: Good, here: Path) -> None:
    report = judged(case, here)
    assert [f for f in b.against(report) if f.level not in SILENT] == [], b.text(report)
    side = report.sides[0]
    assert (report.verdict, side.contract) == ("pass", case.family), b.text(report)
    assert "TEN403" in {f.code for f in report.findings if f.level == "pass"}  # shapes were judged
    assert not case.dialect or side.dialect == case.dialect


@pytest.mark.parametrize("case", [c for c in CASES if not c.inside], ids=lambda case: case.id)
def test_known_good_checkpoint_is_recognised_without_being_told(case: Good, here: Path) -> None:
    source = b.recorded(case.drafter_config, case.drafter_tensors)
    contract, found = recognise(b.LIBRARY, Checkpoint(source, "drafter"), "family")
    assert (contract.id if contract else [f.code for f in found]) == case.family


@pytest.mark.parametrize("case", [c for c in CASES if c.inside], ids=lambda case: case.id)
def test_layer_in_a_target_needs_no_second_folder(case: Good, here: Path) -> None:
    drafter, _ = written(case, here)
    report = b.check(drafter, family=asked(case))
    assert [f for f in b.against(report) if f.level not in SILENT] == [], b.text(report)
    assert (report.verdict, report.sides[0].contract) == ("pass", case.family)


@pytest.mark.parametrize("case", FIRST.values(), ids=lambda case: case.id)
def test_known_good_checkpoint_passes_in_shards(case: Good, here: Path) -> None:
    b.write(here / b.DRAFTER, case.drafter_config, case.drafter_tensors, shards=3)
    if not case.inside:
        b.write(here / b.TARGET, case.target_config, case.target_tensors, shards=2)
    for name, text in case.files.items():
        (here / "org" / name).write_text(text)
    target = b.DRAFTER if case.inside else b.TARGET
    report = b.check(b.DRAFTER, target, facts=declared(case), family=asked(case))
    assert [f for f in b.against(report) if f.level not in SILENT] == [], b.text(report)
    assert (report.verdict, report.sides[0].contract) == ("pass", case.family)


@pytest.mark.parametrize("case", [c for c in CASES if not c.inside], ids=lambda case: case.id)
def test_known_good_drafter_is_adapted_to_its_own_target_as_it_is(case: Good, here: Path) -> None:
    plan = adapt(*written(case, here), b.LIBRARY).plan
    assert plan is not None
    assert (plan.verdict, plan.changes) == ("unknown" if case.family in SIZELESS else "as is", ()), plan.headline


def test_every_case_has_a_name_and_a_family_of_its_own_prefix() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert all(case.id.startswith(f"{case.family}: ") for case in CASES)


@pytest.mark.parametrize("architecture", ["GPTNeoXForCausalLM", "StableLmForCausalLM"])
def test_whole_model_of_an_architecture_without_a_contract_is_unknown_and_no_fault(architecture: str) -> None:
    case = next(c for c in CASES if c.id == "draft-model: llama")
    config = case.drafter_config | {"architectures": [architecture]}
    report = b.pair(config, case.drafter_tensors, case.target_config, case.target_tensors, facts=declared(case))
    assert report.verdict == "unknown", b.text(report)
    assert "TEN408 unknown" in b.codes(report)
