"""``draftproof fixture``: what it writes is what it says, by a drafter of our own that reads the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from draftproof import check
from draftproof.cli import main
from draftproof.testing import fixtures, known_answer, truth


def test_pair_that_is_written_conforms_and_fits(tmp_path: Path) -> None:
    made = known_answer.write(tmp_path / "made")
    report = check(made.drafter, made.target)
    assert report.verdict != "fail", report.findings
    assert made.expected["accepted"] == made.expected["drafted"] == 75
    assert json.loads((tmp_path / "made" / "expected.json").read_text()) == made.expected
    assert set(made.expected["launch"]) == {"vllm", "sglang", "llama.cpp"}


def test_what_is_expected_says_what_the_drafter_was_trained_with(tmp_path: Path) -> None:
    made = known_answer.write(tmp_path / "made", family="eagle3", fault="fc.weight/missing")
    assert made.expected["facts"]["aux_layers"] == [2, 4, 5]
    assert made.expected["facts"]["aux_convention"] == "boundary"


def test_breaking_tokens_lowers_what_is_accepted_as_the_closed_form_says(tmp_path: Path) -> None:
    made = known_answer.write(tmp_path / "made", break_every=5)
    pair = fixtures.known(5)
    assert made.expected["accepted"] == pair.accepted == sum(made.expected["accepted_by_position"]) < pair.drafted


def test_dialect_renames_and_keeps_every_value(tmp_path: Path) -> None:
    one, two = known_answer.write(tmp_path / "a"), known_answer.write(tmp_path / "b", dialect="bare")
    assert check(two.drafter).sides[0].dialect == "bare" != check(one.drafter).sides[0].dialect
    sizes = [(p / "model.safetensors").stat().st_size for p in (one.drafter, two.drafter)]
    assert abs(sizes[0] - sizes[1]) < 1000


def test_fault_is_written_with_what_the_recorded_engines_did(tmp_path: Path) -> None:
    made = known_answer.write(tmp_path / "made", family="eagle3", fault="norm.weight/missing")
    names = {table.name for table in truth.tables() if "eagle3/norm.weight/missing" in table.rows}
    assert set(made.expected["engines"]) == names
    assert check(made.drafter).verdict == "fail"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--family", "dflsh"], "did you mean 'dflash'"),
        (["--family", "eagle3", "--fault", "d2t/absolut"], "did you mean 'd2t/absolute'"),
        (["--dialect", "bear"], "did you mean 'bare'"),
        (["--break-every", "1"], "expected 0, or 2 and more"),
        (["--break-every", "-3"], "expected 0, or 2 and more"),
        (["--family", "eagle3", "--break-every", "5", "--fault", "d2t/absolute"], "with no fault"),
    ],
)
def test_what_cannot_be_made_is_said_and_nothing_is_written(
    words: list[str], said: str, tmp_path: Path, capsys: Any
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fixture", *words, "--out", str(tmp_path / "made")])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_folder_that_holds_something_is_left_alone(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(SystemExit):
        main(["fixture", "--out", str(tmp_path)])
    assert "not an empty folder" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_pytest_fixture_gives_folders_and_what_is_expected(draftproof_fixture: Any) -> None:
    one, two = draftproof_fixture(), draftproof_fixture(break_every=5)
    assert one.drafter != two.drafter
    assert two.expected["accepted"] < one.expected["accepted"]
