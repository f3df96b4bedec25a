"""What a check says. One flat record per check, one report for every output.

A finding has exactly one level. ``error`` and ``warning`` are failures, ``unknown`` is a check that could
not be judged, ``info`` is worth saying and breaks nothing, ``pass`` is a check that was decided and holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from draftproof.rules import RULES

if TYPE_CHECKING:
    from draftproof.answers import Plan, Review

Level = Literal["error", "warning", "unknown", "info", "pass"]
Verdict = Literal["pass", "fail", "unknown"]
VERDICTS: Mapping[str, str] = {"pass": "holds", "fail": "does not hold", "unknown": "could not be judged"}
LEVELS: tuple[Level, ...] = ("error", "warning", "unknown", "info", "pass")
SCHEMA = 1  # version of Report.to_dict
LONGEST = 1500  # characters of one part of a finding

# what --draftproof-fail-on NAME turns into a failure
FAIL_ON: Mapping[str, frozenset[Level]] = {
    "error": frozenset({"error"}),
    "warning": frozenset({"error", "warning"}),
    "unknown": frozenset({"error", "warning", "unknown"}),
}
# the one table of exit codes
EXIT: Mapping[Verdict, int] = {"pass": 0, "fail": 1, "unknown": 4}
EXIT_USAGE = 2  # wrong usage or a broken contract


@dataclass(frozen=True)
class Finding:
    """Hold the result of one check: what was expected, what was seen, where, and what to do."""

    code: str
    subject: str  # the tensor, config key or file it is about
    level: Level
    message: str
    expected: str = ""
    observed: str = ""
    bindings: tuple[str, ...] = ()  # "hidden=4096 (drafter config.json: hidden_size)"
    note: str = ""
    help: str = ""
    contract: str = ""  # file:line of the rule that asked for it
    where: str = ""  # the bytes it was seen in: "model.safetensors, org/name@1a2b3c4"
    accepted: str = ""  # the reason by which a pair accepts it (allow / expect_unknown)

    @property
    def order(self) -> tuple[int, str, str, str]:
        """Return the sort key: worst first, then code, subject and message."""
        return (LEVELS.index(self.level), self.code, self.subject, self.message)

    def but(self, **values: Any) -> Finding:
        """Return a copy with other values, as dataclasses.replace does, in a fifth of its time: there are many."""
        if not values.keys() <= vars(self).keys():
            raise TypeError(f"no such field: {', '.join(values.keys() - vars(self).keys())}")
        made = object.__new__(Finding)
        vars(made).update(vars(self), **values)
        return made

    def fails(self, fail_on: str = "error") -> bool:
        """Tell whether this finding fails a run at the given threshold: error, warning or unknown."""
        return not self.accepted and self.level in FAIL_ON[fail_on]


def finding(code: str, subject: str, message: str = "", *, level: Level | None = None, **parts: Any) -> Finding:
    """Make a finding of a known code, escaped and cut for print; level and message default to the rule's own."""
    rule = RULES[code]
    shown: dict[str, Any] = {k: visible(v, LONGEST) if isinstance(v, str) else v for k, v in parts.items()}
    return Finding(code, visible(subject), level or rule.severity, visible(message or rule.summary, LONGEST), **shown)


def holds(code: str, subject: str, message: str = "", **parts: Any) -> Finding:
    """Make the record of a check that was decided and holds."""
    return finding(code, subject, message, level="pass", **parts)


def unknown(code: str, subject: str, message: str = "", **parts: Any) -> Finding:
    """Make the record of a check that could not be judged."""
    own = RULES[code].severity == "unknown"
    return finding(
        code, subject, message or ("" if own else f"not known whether {RULES[code].summary}"), level="unknown", **parts
    )


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return fail, else unknown, else pass; nothing decided is unknown."""
    levels = {f.level for f in findings if not (f.accepted and f.level in ("error", "warning"))}
    if "error" in levels:
        return "fail"
    return "unknown" if "unknown" in levels or "pass" not in levels else "pass"


@dataclass(frozen=True)
class Section:
    """Hold all that one rung found, worst first."""

    rung: str  # "contract", "conforms", "fits"
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, rung: str, findings: Iterable[Finding]) -> Section:
        """Sort the findings into their stable order; the same finding twice is one."""
        return cls(rung, tuple(sorted(dict.fromkeys(findings), key=lambda f: f.order)))

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of the rung."""
        return verdict_of(self.findings)


@dataclass(frozen=True)
class Side:
    """Say what one checkpoint is and how well it is known."""

    role: str  # "drafter" or "target"
    name: str
    revision: str | None = None
    provenance: str = ""  # "read", "recorded", "derived", "partial", "in memory"
    normalised: bool = False
    contract: str = ""  # id of the family or target contract
    dialect: str = ""
    source: str = ""  # where a recording was read
    tensors: int | None = None
    parameters: int | None = None
    bindings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """Hold one answer, whole: every output renders this and nothing else."""

    subject: str
    sections: tuple[Section, ...] = ()
    sides: tuple[Side, ...] = ()
    plan: Plan | None = None
    review: Review | None = None
    bytes_read: int = 0
    requests: int = 0  # over the network
    cached: int = 0  # answers that the own cache gave instead
    rerun: str = ""
    schema: int = field(default=SCHEMA)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of all rungs, in rung order."""
        return tuple(f for s in self.sections for f in s.findings)

    @property
    def verdict(self) -> Verdict:
        """Return fail if a check fails, else unknown if one could not be judged or none was made, else pass."""
        return self.review.outcome if self.review else verdict_of(self.findings)

    @property
    def counts(self) -> dict[str, int]:
        """Count findings by level; accepted ones apart."""
        counts = dict.fromkeys((*LEVELS, "accepted"), 0)
        for f in self.findings:
            counts["accepted" if f.accepted else f.level] += 1
        return counts

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 holds, 1 does not, 2 wrong usage or broken contract, 4 not judged."""
        if any(
            f.level == "error" and not f.accepted and RULES[f.code].rung in ("contract", "usage") for f in self.findings
        ):
            return EXIT_USAGE
        return self.plan.exit_code if self.plan else EXIT[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON data, with its verdicts."""
        data = asdict(self)
        data["verdict"] = self.verdict
        data["counts"] = self.counts
        data["exit_code"] = self.exit_code
        for section, plain in zip(self.sections, data["sections"], strict=True):
            plain["verdict"] = section.verdict
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Read back what to_dict wrote; raises ValueError for another schema version."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"report schema {data.get('schema')!r}; this draftproof reads {SCHEMA}")
        from draftproof.answers import Change, Difference, Plan, Review, Step  # noqa: PLC0415 (a check has neither)

        plan, review = data.get("plan"), data.get("review")
        return cls(
            subject=data["subject"],
            sections=tuple(
                Section(s["rung"], tuple(_make(Finding, f) for f in s["findings"])) for s in data["sections"]
            ),
            sides=tuple(_make(Side, s) for s in data["sides"]),
            plan=plan
            and replace(
                _make(Plan, plan),
                changes=tuple(_make(Change, c) for c in plan["changes"]),
                steps=tuple(_make(Step, s) for s in plan["steps"]),
                trains=tuple(_make(Finding, f) for f in plan.get("trains", ())),
            ),
            review=review
            and replace(_make(Review, review), differences=tuple(_make(Difference, d) for d in review["differences"])),
            bytes_read=data["bytes_read"],
            requests=data.get("requests", 0),
            cached=data.get("cached", 0),
            rerun=data["rerun"],
        )


def finding_of(data: Mapping[str, Any]) -> Finding:
    """Read back one finding from plain data."""
    made: Finding = _make(Finding, data)
    return made


def _make(cls: type[Any], data: Mapping[str, Any]) -> Any:
    return cls(**{k: tuple(v) if isinstance(v, list) and k not in ("old", "new") else v for k, v in data.items()})


# patterns, compiled when a text needs them: each is a part of what is not printable
_UNSAFE = r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
_BYTES = "[\udc80-\udcff]"


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def visible(text: object, limit: int = 200) -> str:
    """Escape control, direction and surrogate characters of foreign text, and cut it at limit characters."""
    try:
        raw = str(text)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list that holds itself
        return f"a value of type {type(text).__name__} that cannot be written out"
    if not raw.isprintable():
        if re.search(_BYTES, raw):  # bytes that the command line could not decode: read them as UTF-8 where they are
            raw = raw.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") if _encodes(raw) else raw
        raw = re.sub(_UNSAFE, lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", raw)
    return raw if len(raw) <= limit else f"{raw[:limit]}… ({len(raw)} characters)"


def whole(value: object) -> object:
    """Return a float that is a whole number as an integer, as a length times a factor of 32.0 may be."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value


def nearest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """Return " (did you mean X?)" for the nearest known word, else nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

    match = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f" (did you mean {match[0]!r}?)" if match else ""
