"""Outputs. Each is a function from a Report (or plain data) to text; none of them decides anything."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from draftproof.findings import VERDICTS, Finding, Report, Section, Side, visible
from draftproof.rules import BANDS, RULES, Rule

if TYPE_CHECKING:
    from draftproof.answers import Plan, Review

WIDTH = 118
_HOW = {
    "recorded": "recorded",
    "derived": "recording: config published, tensor table not read",
    "partial": "recording: only some config keys published",
    "in memory": "in memory",
    "config only": "a config, no weights",
    "read": "read",
}


def as_json(data: Mapping[str, Any]) -> str:
    """Return JSON text in a stable order of keys, with a final newline."""
    return json.dumps(data, indent=2, default=str) + "\n"


def field(name: str, text: str, indent: int = 2) -> str:
    """Return "  name      text", wrapped under itself."""
    lead = " " * indent + f"{name:<10}"
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )


def finding_text(f: Finding) -> str:
    """Return one finding: code, subject, what was expected, what was seen, and what to do."""
    mark = "" if f.level == "error" else f" [{f.level}]"
    mark += " [accepted]" if f.accepted else ""
    head = f"{f.code}{mark} {f.subject}: {f.message}"
    fits = len(head) + len(f.contract) + 1 < WIDTH
    lines = [f"{head:<{WIDTH - len(f.contract)}}{f.contract}".rstrip() if fits else head]
    if f.contract and not fits:
        lines.append(field("contract", f.contract))
    for name, text in (("expected", f.expected), ("observed", f.observed)):
        if text:
            where = f"   ({f.where})" if name == "observed" and f.where else ""
            lines.append(field(name, text + where))
    lines += [field("bindings" if n == 0 else "", row) for n, row in enumerate(f.bindings)]
    if f.note:
        lines.append(field("note", f.note))
    if f.accepted:
        lines.append(field("accepted", f.accepted))
    elif f.level in ("error", "warning", "unknown"):
        lines.append(field("help", f.help or RULES[f.code].fix))
    return "\n".join(lines)


def section_text(section: Section, *, level: str = "info") -> str:
    """Return the findings of a rung, worst first; passes only where level is pass."""
    shown = [f for f in section.findings if f.level != "pass" or level == "pass"]
    return "\n".join(finding_text(f) for f in shown)


def launch_text(made: Mapping[str, Any]) -> str:
    """Return the command of a launch, and under it each flag with its value, its reason and where that was seen."""
    if not made:
        return ""
    lines = [made["command"], ""]
    if family := made.get("family"):
        lines += [f"--family {family['value']}", field("because", family["because"])]
    for row in made["flags"]:
        value = f"not known: {row['unknown']}" if "unknown" in row else json.dumps(row["value"])
        lines.append(visible(f"{row['flag']} {value}", 4000))
        lines.append(field("because", visible(row["because"], 4000)))
        if row.get("find"):
            lines.append(field("find", visible(row["find"], 4000)))
        if row["source"]:
            lines.append(field("run" if row["basis"] == "run" else "read", row["source"]))
    return "\n".join(lines) + "\n\n"


def side_text(side: Side) -> str:
    """Return one line about a side: name, contract, and how well it is known."""
    parts = [visible(side.name) + (f"@{side.revision[:7]}" if side.revision else "")]
    if side.contract:
        parts.append(side.contract + (f" ({side.dialect} names)" if side.dialect else ""))
    how = _HOW.get(side.provenance, side.provenance)
    if side.provenance in ("derived", "partial"):
        how += "; revision unknown" if side.revision is None else ""
        how += "; as printed by a library" if side.normalised else ""
    parts.append(how)
    if side.tensors:
        parts.append(f"{side.tensors:,} tensors" + (f", {side.parameters:,} parameters" if side.parameters else ""))
    return field(side.role, "; ".join(parts), 0)


def counts_text(report: Report) -> str:
    """Return "1 error, 4 unknown; 42 checks hold"."""
    counts = report.counts
    words = {"error": ("error", "errors"), "warning": ("warning", "warnings"), "unknown": ("unknown", "unknown")}
    parts = [f"{counts[k]} {w[counts[k] != 1]}" for k, w in words.items() if counts[k]]
    if counts["accepted"]:
        parts.append(f"{counts['accepted']} accepted")
    passed = f"{counts['pass']} check{'s hold' if counts['pass'] != 1 else ' holds'}"
    return f"{', '.join(parts) or 'nothing against it'}; {passed}"


def verdict_word(verdict: str) -> str:
    """Return "does not hold"."""
    return VERDICTS[verdict]


def verdict_text(report: Report) -> str:
    """Return "does not hold (1 error; 42 checks hold)"."""
    return f"{VERDICTS[report.verdict]} ({counts_text(report)})"


def report_text(report: Report, *, level: str = "info", part: bool = False) -> str:
    """Return the whole report for a terminal; of a part of an answer, not what was read for it."""
    out: list[str] = []
    subject = visible(report.subject, 1000)
    if report.plan is not None:
        out += [plan_text(report.plan, subject), ""]
        out += [side_text(s) for s in report.sides]
        blocking = [
            f
            for s in report.sections
            if s.rung != "fits"
            for f in s.findings
            if f.level == "error" or f.code.startswith("SRC")
        ]
        out += ["", *(finding_text(f) for f in blocking)] if blocking else []
        out += ["", f"what rungs 1 and 2 say of the pair as it is: {VERDICTS[report.verdict]} ({counts_text(report)})"]
    elif report.review is not None:
        out += [textwrap.fill(f"{subject}: {report.review.headline}", WIDTH, break_long_words=False), ""]
        out += [side_text(s) for s in report.sides]
        out += [review_text(report.review)] if report.review.differences else []
        out += [f"\n{section.rung}\n{text}" for section in report.sections if (text := section_text(section))]
    else:
        out += [f"{subject}: {verdict_text(report)}", ""]
        out += [side_text(s) for s in report.sides]
        if [s.role for s in report.sides] == ["drafter"]:
            out.append(field("target", "none: only the drafter was judged", 0))
        for section in report.sections:
            out += ["", f"{section.rung}: {VERDICTS[section.verdict]}"]
            if text := section_text(section, level=level):
                out.append(text)
    if part:
        return "\n".join(out) + "\n"
    out.append("")
    if report.rerun:
        out.append(f"{'rerun':<10}{visible(report.rerun, 8000)}")  # one line, to be copied
    out.append(read_text(report.bytes_read, report.requests, report.cached))
    return "\n".join(out) + "\n"


def read_text(size: int, requests: int, cached: int) -> str:
    """Return the line that says what was moved, in bytes."""
    over = f" in {requests} requests" if requests else ""
    kept = f"; {cached} answers from the cache" if cached else ""
    return field("read", f"{size:,} bytes{over}{kept}", 0)


def review_text(review: Review) -> str:
    """Return the lines of a diff below their topics, in order."""
    out: list[str] = []
    topic = ""
    for d in review.differences:
        if d.topic != topic:
            topic = d.topic
            out += ["", topic]
        out.append(
            textwrap.fill(
                d.text,
                WIDTH,
                initial_indent=f"{_MARKS[d.kind]} ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    return "\n".join(out)


_MARKS = {"changed": " ", "worse": "!", "unknown": "?", "same": "="}


def plan_text(plan: Plan, subject: str) -> str:
    """Return the answer of adapt: the headline, what to know, the changes and the plan per tensor."""
    out = [f"{subject}", "", textwrap.fill(plan.headline, WIDTH), ""]
    out += [
        textwrap.fill(
            s, WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for s in plan.says
    ]
    if plan.changes:
        out += ["", "config.json"]
        out += [
            textwrap.fill(
                f"{c.key}: {_plain(c.old)} -> {_plain(c.new)}   ({c.why})",
                WIDTH,
                initial_indent="  ",
                subsequent_indent="      ",
                break_long_words=False,
            )
            for c in plan.changes
        ]
    if plan.steps:
        out += ["", "tensors"]
        width = max(len(s.tensor) for s in plan.steps)
        out += [
            f"  {s.action:<5}{s.tensor:<{width}}  {_shapes(s.old_shape, s.new_shape)}"
            + ("" if s.action == "copy" else f"  {s.why}")
            for s in plan.steps
        ]
    if plan.written:
        out += ["", f"written to {plan.written}"]
    return "\n".join(out)


def _plain(value: Any) -> str:
    return "not there" if value is None else visible(json.dumps(value, ensure_ascii=False), 80)


def _shapes(old: tuple[int, ...] | None, new: tuple[int, ...] | None) -> str:
    if old is None or new is None or old == new:
        return f"{list(new or old or ())}"
    return f"{list(old)} -> {list(new)}"


def rule_text(rule: Rule) -> str:
    """Return the page of a code, in Markdown: the same text that explain prints and docs/rules holds."""
    band = next(name for prefix, name in BANDS.items() if rule.code.startswith(prefix))
    return (
        f"# {rule.code} {rule.name}\n\n{rule.summary}\n\n"
        f"- band: {band}\n- rung: {rule.rung}\n- level: {rule.severity}\n\n"
        f"## Why it matters\n\n{rule.why}\n\n## What to do\n\n{rule.fix}\n"
    )


def tree_text(data: Any, indent: int = 0) -> Iterator[str]:
    """Yield plain data as indented lines, for show."""
    pad = "  " * indent
    if isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(value, Mapping) and value:
                yield f"{pad}{visible(key)}"
                yield from tree_text(value, indent + 1)
            elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
                yield f"{pad}{key}"
                for item in value:
                    yield from tree_text(item, indent + 1)
            else:
                shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                yield f"{pad}{visible(key)}: {visible(shown, 2000)}"
    else:
        yield f"{pad}{visible(data, 2000)}"


def recorded_text(fresh: Any) -> str:
    """Return what came of one recording: where it stands, and what differs from the one that was read so far."""
    file = visible(os.path.relpath(fresh.path), 1000)
    name = f"{visible(fresh.repo)}@{fresh.revision[:7]}"
    if fresh.state == "failed":
        return report_text(fresh.report, part=True)
    if fresh.state == "same":
        return f"{name} stands in {file}: nothing differs\n"
    if fresh.state == "stands":
        out = f"{name} is recorded in {file}, which is not replaced\n"
    elif fresh.local:
        out = f"recorded in {file}\n"
    else:
        out = f"{name} recorded in {file}: {fresh.counts}\n"
    out += f"removed {visible(os.path.relpath(fresh.removed), 1000)}, which it replaces\n" if fresh.removed else ""
    if fresh.review is not None:
        out += "\n" + report_text(fresh.review, part=True)
    if fresh.also:
        out += "\nas recorded\n" + "".join(f"  {line}\n" for line in fresh.also)
    return out
