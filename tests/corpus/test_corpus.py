"""Each report that metadata can judge is caught with its numbers, and the twin without the fault passes."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import draftproof
from draftproof.container import read_header
from draftproof.findings import finding
from draftproof.library import Library
from draftproof.rules import RULES
from draftproof.testing import corpus

LIBRARY = Library()
DATA = tomllib.loads(Path(corpus.__file__).with_name("corpus.toml").read_text(encoding="utf-8"))
CASES = {case.id: case for case in corpus.CASES}
ENGINE = "C02 F07 F14 G02 G08 G10 H05 I11 J01 J05 K05 K07 K11 K14 K19 O01"
LAUNCH, HUB = "D04 H04 I02 K01 K02 K08 K13 L01 L02 L04 M08", "M01 M02 M07"
UNPROFILED = "B07 C04 D05"  # engines that have no profile


@pytest.mark.parametrize("case", corpus.CASES, ids=list(CASES))
def test_report_is_caught_with_its_numbers_and_its_right_twin_passes(case: corpus.Case, tmp_path: Path) -> None:
    result = corpus.judge(case, corpus.build(case, tmp_path), LIBRARY)
    assert result.missed == ()
    assert result.alarms == ()


def test_every_report_has_a_case_or_says_what_it_needs() -> None:
    built = {case.report for case in corpus.CASES}
    assert len(DATA["report"]) == 111
    assert built | set(corpus.ELSEWHERE) == set(DATA["report"])
    assert not built & set(corpus.ELSEWHERE)
    assert len(built) == 54 + 27
    needs = {id: row["needs"] for id, row in DATA["report"].items() if "needs" in row}
    assert {id for id, what in needs.items() if what == "profile"} == set(UNPROFILED.split())
    assert {id for id, what in needs.items() if what == "hub"} == set(HUB.split())
    assert "no profile" in corpus.ELSEWHERE["C04"]


def test_reports_that_need_an_engine_or_a_launch_ask_one_and_find_what_it_does() -> None:
    asked = {case.report for case in corpus.CASES if case.said("engine", "broken")}
    assert asked == {*ENGINE.split(), *LAUNCH.split()}
    launched = {case.report for case in corpus.CASES if case.said("launch", "broken")}
    assert set(LAUNCH.split()) <= launched
    for case in corpus.CASES:
        if case.report in asked:
            assert all(re.match(r"(VLLM|SGL|LCPP)60", expected.code) for expected in case.expect)
            assert all(case.said(key, side) != "" for key in ("engine",) for side in case.sides)


def test_a_pair_names_the_engine_and_the_launch_of_its_case(tmp_path: Path) -> None:
    case = CASES["D04"]
    folder = corpus.build(case, tmp_path)
    for side, engine in (("broken", "sglang@0.5.11"), ("right", "sglang")):
        pair = tomllib.loads((folder / side / "pair.toml").read_text(encoding="utf-8"))
        assert pair["engines"] == [engine]
        assert pair["launch"] == {"sglang": case.said("launch", side)}
    plain = corpus.build(CASES["B05"], tmp_path) / "broken" / "pair.toml"
    assert {"engines", "launch"}.isdisjoint(tomllib.loads(plain.read_text(encoding="utf-8")))


def test_every_case_but_the_guard_expects_something_that_shows_something() -> None:
    assert [id for id, case in CASES.items() if not case.expect] == ["K17"]
    for case in corpus.CASES:
        for expected in case.expect:
            assert expected.shows
            assert fnmatch.filter(RULES, expected.code)
            assert expected.level in ("", "error", "warning", "unknown", "info")
        assert all(fnmatch.filter(RULES, code) for code in case.also)


def test_padding_alone_is_info_and_no_failure() -> None:
    for id in ("A01", "A04"):
        assert {e.level for e in CASES[id].expect} == {"info"}
        assert CASES[id].also == ()


def test_a_case_is_missed_if_a_number_is_not_shown_and_is_a_false_alarm_if_the_right_twin_shows_it(
    tmp_path: Path,
) -> None:
    case = CASES["B05"]
    folder = corpus.build(case, tmp_path)
    other = replace(case, expect=(replace(case.expect[0], shows=("d2t", "6055")),))
    assert corpus.judge(case, folder, LIBRARY) == corpus.Result(case, (), ())
    missed = corpus.judge(other, folder, LIBRARY)
    assert missed.missed == ("TEN403 that shows d2t, 6055",)
    assert "TEN403 error drafter d2t" in missed.alarms[0]
    anything = replace(case, expect=(corpus.Expected("*", ("36",), "pass"),))
    assert any(text.startswith("right too: ") for text in corpus.judge(anything, folder, LIBRARY).alarms)


def test_a_number_is_shown_only_as_a_whole() -> None:
    found = finding("TEN403", "d2t", expected="[32000]", observed="[160540]", note="2.5 and 1e6")
    assert corpus.Expected("TEN403", ("32000",), "error").matches(found)
    for part in ("3200", "2000", "6054", "60540", "5", "2"):
        assert not corpus.Expected("TEN403", (part,), "error").matches(found)
    assert not corpus.Expected("TEN403", ("32000",), "warning").matches(found)
    assert not corpus.Expected("TEN40?", ("32000",), "info").matches(found)


@pytest.mark.parametrize(
    "id",
    [
        case.id
        for case in corpus.CASES
        if "target" not in case.parts and not case.said("engine", "right") and case.id != "F05"
    ],
)
def test_drafter_inside_its_target_is_judged_in_memory_as_on_disk(id: str) -> None:
    case = CASES[id]
    said = {}
    for side in case.sides:
        config, table = corpus.checkpoint(case, "drafter", side)
        said[side] = draftproof.check({"config": config, "state_dict": table}, family=case.family).findings
    assert all(any(map(expected.matches, said["broken"])) for expected in case.expect)
    assert not [f for f in said["right"] if f.level in ("error", "warning", "unknown")]


def test_a_case_can_be_built_again_in_the_same_folder(tmp_path: Path) -> None:
    case = CASES["F05"]
    first = {p: p.read_bytes() for p in corpus.build(case, tmp_path).rglob("*.json")}
    assert {p: p.read_bytes() for p in corpus.build(case, tmp_path).rglob("*.json")} == first
    assert len(first) == 4


def test_built_files_are_true_headers_and_sparse(tmp_path: Path) -> None:
    folder = corpus.build(CASES["M05"], tmp_path) / "right" / "target"
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    for name in sorted(set(index["weight_map"].values())):
        raw = folder / name
        with raw.open("rb") as file:
            header, found = read_header(lambda a, b, f=file: (f.seek(a), f.read(b - a))[1], raw.stat().st_size, name)
        assert not found
        assert header is not None
        assert set(header.tensors) == {n for n, shard in index["weight_map"].items() if shard == name}
        assert raw.stat().st_size > 3_700_000_000
        if hasattr(raw.stat(), "st_blocks"):
            assert raw.stat().st_blocks * 512 < 1_000_000


def test_table_counts_each_class_and_tells_each_miss() -> None:
    good, bad = CASES["B05"], CASES["C01"]
    text = corpus.table([corpus.Result(good, (), ()), corpus.Result(bad, ("PAIR409 that shows 2",), ("x",))])
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line and line[0].isalpha()}
    assert rows["B_DRAFT_VOCAB_MAP"] == ["6", "1", "1", "0", "0"]
    assert rows["C_AUX_LAYERS"] == ["8", "1", "0", "1", "1"]
    assert rows["all"] == ["111", "2", "1", "1", "1"]
    assert "C01: missed: PAIR409 that shows 2" in text
    assert "C01: false alarm: x" in text
    assert re.search(r"^  3 need an engine that has no profile.*: B07 C04 D05$", text, re.MULTILINE)


def test_command_prints_the_table_and_fails_if_anything_is_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for missed, code in (((), 0), (("PAIR409 that shows 2",), 1)):
        monkeypatch.setattr(corpus, "run", lambda missed=missed: [corpus.Result(CASES["C01"], missed, ())])
        assert corpus.main() == code
        assert "class of fault" in capsys.readouterr().out
