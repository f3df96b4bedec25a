"""What is predicted agrees with what each engine did, on every recorded case."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof.testing import cases, truth

TABLES = {table.name: table for table in truth.tables()}
HEALTHY = next(case.id for case in cases.cases() if case.kind == "healthy")
BROKEN = next(case for case in cases.cases() if case.twin == HEALTHY and not case.feature)


@pytest.mark.parametrize("name", TABLES)
def test_prediction_agrees_with_every_recorded_outcome(name: str) -> None:
    found = list(truth.compared(TABLES[name]))
    shown = truth.confusion(TABLES[name], found)
    print(shown)  # noqa: T201 (pytest -rP shows it)
    assert all(one.agrees for one in found), shown


@pytest.mark.parametrize("name", TABLES)
def test_table_is_of_the_cases_as_they_are(name: str) -> None:
    stale = [id for id, row in TABLES[name].rows.items() if row.digest != truth.digest(cases.case(id))]
    assert not stale, "run these again, benchmarks/truth says how"


def lines(**of_broken: Any) -> list[dict[str, Any]]:
    ran = {"engine": "sglang", "version": "0.5.23", "outcome": "ran", "logits": [[1.0, 2.0]], "tokens": [1]}
    return [{"id": HEALTHY, **ran}, {"id": BROKEN.id, **ran, **of_broken}]


@pytest.mark.parametrize(
    ("of_broken", "outcome", "by"),
    [
        ({}, "meant", ""),
        ({"logits": [[1.0, 2.0009]]}, "meant", ""),
        ({"logits": [[1.0, 2.0011]]}, "degraded", "logits 0.0011"),
        ({"logits": [[1.0, "nan"]]}, "degraded", "not finite"),
        ({"logits": [[1.0, "-inf"]]}, "degraded", "not finite"),
        ({"logits": [[1.0]]}, "degraded", "logits of [1] where they are [2]"),
        ({"tokens": [2]}, "degraded", "tokens"),
    ],
)
def test_outcome_is_how_far_a_run_is_from_its_twins(of_broken: dict[str, Any], outcome: str, by: str) -> None:
    row = truth.table(lines(**of_broken), "2026-11-30").rows[BROKEN.id]
    assert (row.outcome, row.by) == (outcome, by)


def test_token_that_no_head_gives_is_as_its_twins() -> None:
    made = lines()
    for line in made:
        line["logits"] = [[1.0, "-inf"]]
    assert truth.table(made, "2026-11-30").rows[BROKEN.id].outcome == "meant"


FIRST = [[[7, 0.5], [8, 0.3]], [[9, 0.6], [4, 0.2]]]


@pytest.mark.parametrize(
    ("accepted", "proposed", "outcome", "by"),
    [
        (75, FIRST, "meant", ""),
        (60, FIRST, "degraded", "accepted 60 of 75"),
        (75, [FIRST[0], [[9, 0.601], [4, 0.2]]], "meant", ""),
        (75, [FIRST[0], [[9, 0.61], [4, 0.2]]], "degraded", "odds 0.01"),
        (75, [FIRST[0], [[9, 0.6], [3, 0.201]]], "meant", ""),
        (75, [[[6, 0.9], [7, 0.1]], FIRST[1]], "degraded", "odds 0.6"),
        (75, FIRST[:1], "degraded", "1 drafts where there are 2"),
        (75, [FIRST[0], [[9, "nan"], [4, "nan"]]], "degraded", "not finite"),
    ],
)
def test_accepted_tokens_are_compared_where_they_are_counted_and_the_odds_of_the_first_proposals(
    accepted: int, proposed: Any, outcome: str, by: str
) -> None:
    made = lines(accepted=accepted, proposed=proposed)
    made[0] |= {"accepted": 75, "proposed": FIRST}
    row = truth.table(made, "2026-11-30").rows[BROKEN.id]
    assert (row.outcome, row.by) == (outcome, by)


def test_refusal_keeps_stage_error_and_first_line() -> None:
    said = {"outcome": "refused", "stage": "load", "error": "ValueError", "message": "one\ntwo", "logits": None}
    row = truth.table(lines(**said), "2026-11-30").rows[BROKEN.id]
    assert (row.outcome, row.stage, row.error, row.message) == ("refuses", "load", "ValueError", "one")


def test_case_whose_twin_was_not_run_has_no_row() -> None:
    assert not truth.table(lines()[1:], "2026-11-30").rows


def test_table_is_read_back_as_it_was_written(tmp_path: Any) -> None:
    made = truth.table(lines(tokens=[2]), "2026-11-30")
    path = tmp_path / f"{made.name}.json"
    path.write_text(truth.written(made), encoding="utf-8")
    assert truth.read(path) == made
    assert len(path.read_text().splitlines()) == 2 + len(made.rows)


@pytest.mark.parametrize("id", [HEALTHY, BROKEN.id])
def test_folder_without_values_has_the_bytes_of_the_folder_on_disk(id: str, tmp_path: Any) -> None:
    case = cases.case(id)
    drafter = cases.models(case)[1]
    made = truth.source(drafter, "drafter")
    folder = cases.build(case, tmp_path).parent / case.folder
    there = {p.relative_to(folder).as_posix(): p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    assert set(there) == set(made.files)
    name = drafter.weights
    assert made.files[name] == there[name]
    head = (folder / name).read_bytes()[:4096]
    assert made.read(name, 0, 4096)[: len(head)] == head[: len(made.read(name, 0, 4096))]


# what the engine does not read: a mask of the vocabulary, and what it takes from the target whatever the drafter has
UNREAD = {
    "vllm": {"t2d"},
    "sglang": {"t2d", "model.embed_tokens.weight", "embed_tokens.weight", "lm_head.weight"},
    "llama.cpp": {"t2d"},
}


@pytest.mark.parametrize("name", TABLES)
def test_fixtures_are_sensitive_to_every_tensor_that_the_engine_reads(name: str) -> None:
    rows = {id: row for id, row in TABLES[name].rows.items() if cases.case(id).kind == "perturbed"}
    unmoved = {id.split("/")[1] for id, row in rows.items() if row.outcome == "meant"}
    assert rows
    assert unmoved <= UNREAD[TABLES[name].engine]
