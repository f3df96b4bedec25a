"""Every output is a plain function of a report: what is shown, in which order, how it is wrapped and escaped."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftproof import render
from draftproof.answers import Change, Plan
from draftproof.findings import Finding, Level, Report, Section, Side, finding, holds, unknown
from draftproof.rules import RULES

ROOT = Path(__file__).parents[2]
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
EVIL = "x\x1b[31m\u202e\x9b2J\r\nTEN401 forged: a line of its own"
FULL = finding(
    "TEN403",
    "fc.weight",
    expected="[hidden, aux * target.hidden] = [64, 192]",
    observed="[64, 256]",
    bindings=("hidden=64 (drafter config.json: hidden_size)", "aux=3 (default)"),
    note="256 = 4 * 64: matches if aux were 4",
    help="declare the layers",
    contract="contracts/families/eagle3.toml:58",
    where="model.safetensors, org/name@1a2b3c4",
)


def report(*findings: Finding, **more: Any) -> Report:
    return Report("a with b", (Section.of("conforms", findings),), **more)


# --- one finding --------------------------------------------------------------------------------------------------


def test_finding_shows_all_its_parts_in_order() -> None:
    contract = "contracts/families/eagle3.toml:58"
    head = "TEN403 fc.weight: shape differs"
    assert render.finding_text(FULL).splitlines() == [
        head + " " * (render.WIDTH - len(head) - len(contract)) + contract,
        "  expected  [hidden, aux * target.hidden] = [64, 192]",
        "  observed  [64, 256]   (model.safetensors, org/name@1a2b3c4)",
        "  bindings  hidden=64 (drafter config.json: hidden_size)",
        "            aux=3 (default)",
        "  note      256 = 4 * 64: matches if aux were 4",
        "  help      declare the layers",
    ]


def test_finding_without_help_takes_that_of_its_rule_and_empty_parts_are_left_out() -> None:
    lines = render.finding_text(finding("TEN401", "norm.weight")).splitlines()
    assert lines[0] == f"TEN401 norm.weight: {RULES['TEN401'].summary}"
    assert [line.split()[0] for line in lines[1:]] == ["help"]


@pytest.mark.parametrize("level", ["error", "warning", "unknown", "info", "pass"])
def test_level_is_shown_unless_it_is_error(level: Level) -> None:
    text = render.finding_text(finding("TEN401", "norm.weight", level=level))
    assert (f"[{level}]" in text) == (level != "error")
    assert ("  help " in text) == (level in ("error", "warning", "unknown"))


def test_accepted_finding_shows_the_reason_in_place_of_help() -> None:
    text = render.finding_text(replace(FULL, accepted="agreed with the team"))
    assert text.startswith("TEN403 [accepted] fc.weight: ")
    assert "  accepted  agreed with the team" in text
    assert "  help " not in text


def test_contract_that_does_not_fit_beside_the_head_gets_its_own_line() -> None:
    text = render.finding_text(replace(FULL, subject="a" * 100))
    assert "  contract  contracts/families/eagle3.toml:58" in text.splitlines()
    assert not text.splitlines()[0].endswith(":58")


def test_long_text_is_wrapped_under_itself_and_no_word_is_cut() -> None:
    text = " ".join(f"word-{n}" for n in range(60))
    lines = render.field("note", text).splitlines()
    assert len(lines) > 1
    assert all(len(line) <= render.WIDTH for line in lines)
    assert all(line.startswith(" " * 12) for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == f"note {text}"
    long = "x" * 300
    assert long in render.field("observed", long)


@pytest.mark.parametrize("part", ["subject", "message", "expected", "observed", "note", "help", "where", "contract"])
def test_no_part_of_a_finding_reaches_the_terminal_raw_or_forges_a_line(part: str) -> None:
    parts = {part: EVIL} if part not in ("subject", "message") else {}
    subject = EVIL if part == "subject" else "x"
    made = finding("TEN403", subject, EVIL if part == "message" else "", **parts)
    text = render.finding_text(made)
    assert not RAW.search(text)
    assert not re.search(r"^TEN401", text, re.M)


def test_long_foreign_text_is_cut_and_its_length_said() -> None:
    text = render.finding_text(finding("TEN401", "a" * 100_000, observed="b" * 100_000))
    assert len(text) < 3_000
    assert "(100000 characters)" in text


# --- a report -----------------------------------------------------------------------------------------------------


def test_report_shows_worst_first_and_hides_what_holds() -> None:
    found = [holds("TEN402", "p"), finding("TEN402", "i", level="info"), unknown("TEN400", "u"),
             finding("TEN401", "w", level="warning"), finding("TEN403", "e")]  # fmt: skip
    text = render.report_text(report(*found))
    heads = re.findall(r"^(TEN\d+)(?: \[(\w+)\])?", text, re.M)
    assert heads == [("TEN403", ""), ("TEN401", "warning"), ("TEN400", "unknown"), ("TEN402", "info")]
    assert "[pass]" in render.report_text(report(*found), level="pass")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "could not be judged"),
        ([holds("TEN401", "x")], "holds"),
        ([finding("TEN401", "x")], "does not hold"),
        ([unknown("TEN400", "x")], "could not be judged"),
    ],
    ids=["nothing", "holds", "fails", "unknown"],
)
def test_first_line_is_the_subject_and_the_verdict(found: list[Finding], said: str) -> None:
    text = render.report_text(report(*found))
    assert text.startswith(f"a with b: {said} (")
    assert f"\nconforms: {said}\n" in text


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "nothing against it; 0 checks hold"),
        ([holds("TEN401", "x"), holds("TEN401", "y")], "nothing against it; 2 checks hold"),
        ([holds("TEN401", "x")], "nothing against it; 1 check holds"),
        ([finding("TEN401", "x")], "1 error; 0 checks hold"),
        (
            [finding("TEN401", "x"), finding("TEN401", "y"), unknown("TEN400", "z")],
            "2 errors, 1 unknown; 0 checks hold",
        ),
        ([finding("TEN401", "x", level="warning")], "1 warning; 0 checks hold"),
        ([replace(FULL, accepted="a"), replace(FULL, subject="y", accepted="b")], "2 accepted; 0 checks hold"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_counts_are_said_in_words(found: list[Finding], said: str) -> None:
    assert render.counts_text(report(*found)) == said


def test_report_ends_with_rerun_and_bytes_read() -> None:
    lines = render.report_text(report(rerun="draftproof check x", bytes_read=1234567)).splitlines()
    assert lines[-2:] == ["rerun     draftproof check x", "read      1,234,567 bytes"]


def test_rerun_is_one_line_that_can_be_typed() -> None:
    words = ["draftproof", "check", "--drafter", "/a/" + "long/" * 30, "--target", "/b/" + "long name/" * 10]
    text = render.report_text(report(rerun=shlex.join(words)))
    assert shlex.split(re.findall(r"^rerun +(.*)$", text, re.M)[0]) == words


def test_subject_and_rerun_never_reach_the_terminal_raw() -> None:
    text = render.report_text(Report(EVIL, rerun=EVIL))
    assert not RAW.search(text)
    assert not re.search(r"^TEN401", text, re.M)


@pytest.mark.parametrize(
    ("side", "said"),
    [
        (Side("drafter", "./x", provenance="read", contract="eagle3", dialect="midlayer", tensors=15, parameters=9000),
         "drafter   ./x; eagle3 (midlayer names); read; 15 tensors, 9,000 parameters"),
        (Side("target", "a/b", "0123456789" * 4, "recorded", contract="llama"),
         "target    a/b@0123456; llama; recorded"),
        (Side("target", "a/b", None, "derived", normalised=True),
         "target a/b; recording: config published, tensor table not read; revision unknown; as printed by a library"),
        (Side("target", "a/b", None, "partial"),
         "target    a/b; recording: only some config keys published; revision unknown"),
        (Side("drafter", "step 1", provenance="in memory", tensors=2), "drafter   step 1; in memory; 2 tensors"),
        (Side("drafter", "c.json", provenance="config only"), "drafter   c.json; a config, no weights"),
    ],
    ids=["read", "recorded", "derived", "partial", "in memory", "config only"],
)  # fmt: skip
def test_side_says_what_it_is_and_how_well_it_is_known(side: Side, said: str) -> None:
    assert " ".join(render.side_text(side).split()) == " ".join(said.split())


def test_side_name_never_reaches_the_terminal_raw() -> None:
    assert not RAW.search(render.side_text(Side("drafter", EVIL)))


# --- a plan -------------------------------------------------------------------------------------------------------


def test_plan_leads_with_its_headline_and_shows_changes_and_what_blocks() -> None:
    plan = Plan("no", "no: the hidden sizes differ", (Change("x", 1, None, "why"), Change("y", None, "z", "why")))
    text = render.report_text(Report("a for b", (Section.of("source", [finding("SRC111", "a")]),), plan=plan))
    assert text.startswith("a for b\n\nno: the hidden sizes differ\n")
    assert "  x: 1 -> not there   (why)" in text
    assert '  y: not there -> "z"   (why)' in text
    assert "SRC111 a: " in text


def test_plan_values_never_reach_the_terminal_raw() -> None:
    plan = Plan("no", "no", (Change("x", EVIL, {EVIL: EVIL}, "why"),), says=("fact",))
    assert not RAW.search(render.plan_text(plan, "a for b"))


# --- plain data ---------------------------------------------------------------------------------------------------


def test_json_is_stable_ascii_and_ends_with_a_newline() -> None:
    text = render.as_json({"b": "é\x1b", "a": [1, (2,)]})
    assert text == '{\n  "b": "\\u00e9\\u001b",\n  "a": [\n    1,\n    [\n      2\n    ]\n  ]\n}\n'
    assert json.loads(text) == {"b": "é\x1b", "a": [1, [2]]}


def test_tree_shows_nested_data_by_indent() -> None:
    data = {"a": "text", "b": {"c": 1, "d": {}}, "e": [1, "x"], "f": [{"g": None}], "h": True}
    assert list(render.tree_text(data)) == [
        "a: text", "b", "  c: 1", "  d: {}", 'e: [1, "x"]', "f", "  g: null", "h: true",
    ]  # fmt: skip


TREES: dict[str, Any] = {
    "key": {EVIL: 1},
    "value": {"a": EVIL},
    "item": {"a": [EVIL]},
    "key of an empty table": {"a": {EVIL: {}}},
    "row": {"a": [{EVIL: EVIL}]},
    "bare": EVIL,
}


@pytest.mark.parametrize("case", TREES)
def test_tree_never_reaches_the_terminal_raw(case: str) -> None:
    text = "\n".join(render.tree_text(TREES[case]))
    assert not RAW.search(text)
    assert not re.search(r"^ *TEN401", text, re.M)


@pytest.mark.parametrize("code", RULES)
def test_page_of_every_rule_is_that_of_the_docs(code: str) -> None:
    assert render.rule_text(RULES[code]) == (ROOT / "docs" / "rules" / f"{code}.md").read_text(encoding="utf-8")
