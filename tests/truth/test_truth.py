"""What is predicted agrees with what each engine did, on every recorded case."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from draftproof import engines
from draftproof.cli import main
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
    stale = [
        id for id, row in TABLES[name].rows.items() if row.digest != truth.digest(cases.case(id), TABLES[name].engine)
    ]
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
        ({"logits": [[1.0]]}, "degraded", "not finite"),
        ({"logits": [[1.0, 2.0, "-inf"]]}, "meant", ""),
        ({"logits": []}, "degraded", "0 rows of logits where there are 1"),
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


ENGINES = {"vllm", "sglang", "llama.cpp"}
RECORDED = {table.engine for table in TABLES.values()}


@pytest.mark.skipif(RECORDED != ENGINES, reason=f"no table of {', '.join(sorted(ENGINES - RECORDED))} was recorded yet")
def test_enough_is_recorded_and_no_layer_counts_twice() -> None:
    seen = [
        (table.engine, re.sub(r"layers\.\d+", "layer", cases.case(id).subject), row.outcome)
        for table in TABLES.values()
        for id, row in table.rows.items()
        if cases.case(id).kind == "broken"
    ]
    different = {subject for _, subject, _ in seen}
    assert len(seen) >= 600
    assert len(different) >= 200
    assert len({subject.split("/")[0] for subject in different}) >= 4
    assert len({(engine, subject) for engine, subject, outcome in seen if outcome == "degraded"}) >= 150
    for engine in ENGINES:
        assert len({subject for one, subject, _ in seen if one == engine}) >= 120, engine


# what the engine does not read: a mask of the vocabulary, what it takes from the target whatever the drafter has, and
# what a class of it loads and does not apply
UNREAD = {
    "vllm": {"t2d", "mtp/model.embed_tokens.weight", "mtp/lm_head.weight"},
    "sglang": {
        *("t2d", "d2t", "model.embed_tokens.weight", "embed_tokens.weight", "lm_head.weight"),
        "eagle1-mistral/norm.weight",
    },
    "llama.cpp": {"t2d"},
}
WHOLE = {  # the table of each engine and runner that has the most cases: of another version only some are run
    (table.engine, table.runner): name for name, table in sorted(TABLES.items(), key=lambda pair: len(pair[1].rows))
}


@pytest.mark.parametrize("name", WHOLE.values())
def test_fixtures_are_sensitive_to_every_tensor_that_the_engine_reads(name: str) -> None:
    rows = {id: row for id, row in TABLES[name].rows.items() if cases.case(id).kind == "perturbed"}
    unmoved = {id.rpartition("/")[0] for id, row in rows.items() if row.outcome == "meant"}
    unread = UNREAD[TABLES[name].engine]
    assert rows
    assert not {one for one in unmoved if not {one, one.partition("/")[2]} & unread}


# --- run again ----------------------------------------------------------------------------------------------------

BUILD = """#!{python}
# Stands for the interpreter of an engine's build: answers each case as ANSWERS says, and reads no model.
import json, sys
from pathlib import Path
if sys.argv[1] == "-c":
    sys.exit(print("9.9"))
script, cases = Path(sys.argv[1]), Path(sys.argv[2])
out = Path(sys.argv[sys.argv.index("--out") + 1])
answers = json.loads(Path(__file__).with_name("answers.json").read_text())
lines = []
for path in sorted(cases.glob("*/case.json")):
    case = json.loads(path.read_text())
    ran = {{"outcome": "ran", "logits": [[1.0, 2.0]], "tokens": [1], "stage": "run", "error": "", "message": ""}}
    lines.append({{"id": case["id"], "engine": answers["engine"], "version": "9.9", "runner": ""}} | ran
                 | answers.get(case["id"], {{}}))
out.write_text("".join(json.dumps(line) + "\\n" for line in lines))
"""
KNOWN = BROKEN.id


@pytest.fixture
def build(tmp_path: Path) -> Any:
    """Return a function that makes an interpreter whose engine answers cases so."""

    def make(engine: str, **answers: Any) -> str:
        program = tmp_path / "python"
        program.write_text(BUILD.format(python=sys.executable))
        program.chmod(0o755)
        (tmp_path / "answers.json").write_text(json.dumps({"engine": engine, **answers}))
        return str(program)

    return make


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that records a table in the place of those that are."""

    def write(**of_broken: Any) -> None:
        made = truth.table(lines(**of_broken), "2026-11-30")
        (tmp_path / "tables").mkdir()
        (tmp_path / "tables" / f"{made.name}.json").write_text(truth.written(made))
        monkeypatch.setattr(truth, "FOLDERS", (tmp_path / "tables",))

    return write


def asked(build: Any, *more: str, **answers: Any) -> list[str]:
    python = build("sglang", **answers)
    return ["truth", "--python", python, "--engine", "sglang", "--only", f"^{re.escape(KNOWN)}$", *more]


def test_build_that_answers_as_recorded_changes_nothing(build: Any, recorded: Any, capsys: Any) -> None:
    recorded(tokens=[2])
    assert main(asked(build, **{KNOWN: {"tokens": [2]}})) == 0
    assert "0 of 2 cases end in another way" in capsys.readouterr().out


def test_silent_fault_that_a_build_now_refuses_is_told(build: Any, recorded: Any, capsys: Any) -> None:
    recorded(tokens=[2])
    now = {"outcome": "refused", "stage": "load", "error": "ValueError", "message": "no norm"}
    assert main(asked(build, **{KNOWN: now})) == 1
    told = capsys.readouterr().out
    assert f"{KNOWN}: degraded, without a word (tokens) → refuses at load (ValueError: no norm)" in told


def test_what_ran_as_meant_and_no_longer_does_is_told_in_json(build: Any, recorded: Any, capsys: Any) -> None:
    recorded()
    assert main(asked(build, "--format", "json", **{KNOWN: {"logits": [[1.0, 3.0]]}})) == 1
    (one,) = json.loads(capsys.readouterr().out)["tables"][0]["changes"]
    assert (one["before"]["outcome"], one["now"]["outcome"], one["now"]["by"]) == ("meant", "degraded", "logits 1")


def test_new_tables_are_written_where_asked(build: Any, recorded: Any, tmp_path: Path) -> None:
    recorded()
    assert main(asked(build, "--record", str(tmp_path / "new"))) == 0
    assert truth.read(tmp_path / "new" / "sglang-9.9.json").rows.keys() == {HEALTHY, KNOWN}


def test_interpreter_that_is_not_there_is_no_verdict(recorded: Any, capsys: Any) -> None:
    recorded()
    words = ["truth", "--python", "./no/python", "--engine", "sglang", "--only", f"^{re.escape(KNOWN)}$"]
    assert main(words) == 4
    assert "not run: ./no/python: No such file" in capsys.readouterr().out


def test_build_without_the_engine_is_no_verdict_and_says_what_it_said(
    recorded: Any, tmp_path: Path, capsys: Any
) -> None:
    recorded()
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho No module named sglang >&2\nexit 3\n")
    program.chmod(0o755)
    assert main(["truth", "--python", str(program), "--engine", "sglang", "--only", f"^{re.escape(KNOWN)}$"]) == 4
    assert "ended with exit code 3: No module named sglang" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "said"),
    [("./no/python", "No such file"), ("true", "is no Python interpreter"), (sys.executable, "none of nosuchengine")],
)
def test_interpreter_is_asked_for_the_engine_before_any_case_is_built(
    program: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    built: list[Any] = []
    monkeypatch.setattr(truth.cases, "build", lambda *made: built.append(made))
    launches = truth._library().get("launch", "sglang")[0]
    assert launches is not None
    monkeypatch.setattr(launches, "packages", ("nosuchengine",))
    assert main(["truth", "--python", program, "--engine", "sglang", "--only", f"^{re.escape(KNOWN)}$"]) == 4
    told = capsys.readouterr().out
    assert (told.count(said), told.count("\n"), built) == (1, 1, [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "x"], "go with --python"),
        (["--python", "p"], "goes with --engine"),
        (["--python", "p", "--engine", "sglang", "--only", "("], "--only '('"),
    ],
)
def test_words_that_do_not_go_together_are_wrong_usage(words: list[str], said: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["truth", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_engine_without_a_table_is_no_verdict(recorded: Any, capsys: Any) -> None:
    recorded()
    assert main(["truth", "--engine", "nobody"]) == 4
    assert "there are: sglang" in capsys.readouterr().out


def test_second_runner_after_the_first_is_predicted_as_it_is_alone() -> None:
    library = truth._library()
    profile, _ = library.get("profile", "vllm")
    first, second = dict.fromkeys(row.is_ for row in profile.runners)
    asked = [case for case in cases.cases() if "vllm" in case.launch][::90]
    assert len(asked) > 30
    for case in asked:
        made = truth._examined(case.id)
        of = (profile, library, made.drafter, made.target, made.couple)
        for one, other in ((first, second), (second, first)):
            alone = engines.predict(*of, runner=other, facts=truth.facts(case))
            after = engines.predict(
                *of,
                runner=other,
                facts=truth.facts(case),
                like=engines.predict(*of, runner=one, facts=truth.facts(case)),
            )
            assert (after.effects, after.captured, after.beside) == (alone.effects, alone.captured, alone.beside)
