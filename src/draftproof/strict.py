"""Strict JSON, and how the faults of a file are collected: all of them, bounded, as findings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from json.decoder import JSONDecodeError
from typing import Any, NamedTuple

from draftproof.findings import Finding, Level, finding, visible

CONFIG_LIMIT = 16 << 20  # bytes of a config.json, or of anything in an index beside its weight_map
CONFIG_DEPTH = 64
MAX_FAULTS = 1000  # faults of one JSON text that are looked for
LISTED = 20  # findings of one code that are written out


class Collector:
    """Collect findings about one file: all of them are counted, LISTED of each code are written out."""

    def __init__(self, where: str) -> None:
        self.where, self.all, self.count = where, list[Finding](), dict[tuple[str, Level | None], int]()

    def add(
        self, code: str, subject: str, message: str, expected: str, observed: str, *,
        note: str = "", level: Level | None = None,
    ) -> None:  # fmt: skip
        """Count a finding, and write it out where fewer than LISTED of its code and level are."""
        seen = self.count[code, level] = self.count.get((code, level), 0) + 1
        if seen <= LISTED:
            texts = {"expected": expected, "observed": observed, "note": note, "where": self.where}
            escaped = {key: visible(text, 1000) for key, text in texts.items()}
            self.all.append(finding(code, visible(subject), visible(message, 1000), level=level, **escaped))

    def room(self, code: str) -> bool:
        """Tell whether one more of this code would be written out."""
        return self.count.get((code, None), 0) < LISTED

    def done(self) -> list[Finding]:
        """Return what was found, with a last finding for each code of which not all are written out."""
        for (code, level), seen in self.count.items():
            if seen > LISTED:
                texts = {"expected": "none", "observed": f"{seen} in all, {LISTED} of them listed"}
                where, more = visible(self.where), f"and {seen - LISTED} more like these"
                self.all.append(finding(code, where, more, level=level, where=where, **texts))
        return self.all


def show(value: Any) -> str:
    """Write a JSON value as JSON, cut to what fits a line."""
    if isinstance(value, list):
        inner = ", ".join(show(item) if not isinstance(item, (list, dict)) else "…" for item in value[:8])
        return f"[{inner}, … {len(value)} items]" if len(value) > 8 else f"[{inner}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show(key)}: …" for key in list(value)[:8]) + "}"
    if isinstance(value, str) and len(value) > 80:
        return f"{show(value[:80])}… ({len(value)} characters)"
    return visible(json.dumps(value, ensure_ascii=False))


def quote(name: object) -> str:
    """Return a name in quotes, escaped and cut."""
    return f"'{visible(name, 120)}'"


class Stop(Exception):  # never leaves this module
    """Why reading ends here: what was expected, what is there."""

    def __init__(self, expected: str, observed: str) -> None:
        super().__init__(expected, observed)
        self.expected, self.observed = expected, observed


# --- strict JSON -------------------------------------------------------------------------------------------------


_Path = tuple[str | int, ...]


class Fault(NamedTuple):
    """Hold one thing that strict JSON forbids, with the byte offset or the path where it stands."""

    kind: str  # utf8, syntax, depth: no value; duplicate, constant, number, surrogate: the value is there all the same
    text: str
    offset: int | None = None
    path: _Path = ()

    @property
    def fatal(self) -> bool:
        """Tell whether there is no value at all."""
        return self.kind in ("utf8", "syntax", "depth")

    @property
    def where(self) -> str:
        """Return "byte 17", or the path as in "rope_scaling.factor" and "layers[2]"."""
        if self.offset is not None:
            return f"byte {self.offset}"
        parts = (f"[{p}]" if isinstance(p, int) else f".{visible(p, 120)}" for p in self.path)
        return "".join(parts).removeprefix(".") or "top level"


class _Twice(dict[str, Any]):
    """An object in which a key stands twice."""

    pairs: list[tuple[str, Any]]


_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}  # told apart by identity
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NOT_BRACKETS = bytes(b for b in range(256) if b not in _STEP)
LONE = "[\ud800-\udfff]"  # half a surrogate pair; a pattern, compiled when one is looked for
_LONE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
CHUNK = 1 << 20


def strict_json(data: bytes, *, depth: int = CONFIG_DEPTH) -> tuple[Any, list[Fault]]:
    """Return the JSON value and its faults (RFC 8259, no duplicates, numbers that fit a double); raise nothing.

    NaN and numbers out of range are floats that are not finite in the value; of duplicates the last one is there.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        return None, [Fault("utf8", f"byte 0x{data[bad.start]:02x} is not UTF-8 ({bad.reason})", bad.start)]
    if text.startswith("\ufeff"):
        return None, [
            Fault("syntax", "a byte order mark (\\ufeff), which JSON may not start with; save it without one", 0)
        ]
    if survey(data, depth)[0]:
        return None, [Fault("depth", f"nested more than {depth} levels deep")]
    odd: list[object] = []  # what the walk below has to find

    def pairs_hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) == len(pairs):
            return plain
        odd.append(both := _Twice(plain))
        both.pairs = pairs
        return both

    def real(digits: str) -> float:
        value = float(digits)
        if value - value != 0:
            odd.append(digits)
        return value

    def constant(word: str) -> float:
        odd.append(word)
        return _CONSTANTS[word]

    def whole(digits: str) -> int | float:  # as serde_json does: -0 is a float, more than a double holds is an error
        return real(digits[:400]) if digits == "-0" or len(digits) > 308 else int(digits)

    # the slow integer hook is needed only for -0 and for runs of 309 digits, which show in every hundredth byte
    exact = whole if b"-0" in data or re.search(rb"\d{3}", data[::100]) else None
    decoder = json.JSONDecoder(object_pairs_hook=pairs_hook, parse_float=real, parse_constant=constant, parse_int=exact)
    try:
        value = decoder.decode(text)
    except JSONDecodeError as bad:
        around = show(text[bad.pos : bad.pos + 16]) if bad.pos < len(text) else "the end"
        return None, [Fault("syntax", f"{reason(bad)}: {around}", len(text[: bad.pos].encode()))]
    lone = _LONE_ESCAPE.search(data) is not None
    return value, list(islice(_faults(value, lone), MAX_FAULTS)) if odd or lone else []


def reason(bad: JSONDecodeError) -> str:
    """Return what is wrong, without the place."""
    message: str = bad.msg
    return message.removesuffix(" at").removesuffix(" starting")


def survey(data: bytes, limit: int) -> tuple[bool, int, int]:
    """Scan outside strings, in linear time: is it deeper than limit, how many objects, how many values."""
    if b"\\" in data:  # pairs of backslashes first: what is left before a quote escapes it
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = objects = values = 0
    inside = False
    for at in range(0, len(data), CHUNK):
        parts = data[at : at + CHUNK].split(b'"')
        outside = b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0
        brackets = outside.translate(None, _NOT_BRACKETS)
        flat = brackets.replace(b"[]", b"").replace(b"{}", b"")  # leaves out at most two levels
        if depth + len(flat) + 2 > limit:
            deepest = max(accumulate(map(_STEP.__getitem__, brackets), initial=depth))
            if deepest > limit:
                return True, objects, values
        braces = brackets.count(b"{")
        opened = braces + brackets.count(b"[")
        depth += 2 * opened - len(brackets)
        objects += braces
        values += opened + outside.count(b",")
    return False, objects, values


def _under(path: _Path, items: Iterable[tuple[str | int, Any]]) -> Iterator[tuple[_Path, Any]]:
    return (((*path, key), value) for key, value in items)


def _faults(root: Any, lone: bool) -> Iterator[Fault]:
    """Walk a value in document order, for the faults that the parser lets through."""
    stack: list[Iterator[tuple[_Path, Any]]] = [iter([((), root)])]
    while stack:
        if (following := next(stack[-1], None)) is None:
            stack.pop()
            continue
        path, value = following
        if isinstance(value, dict):
            pairs = value.pairs if isinstance(value, _Twice) else value.items()
            stack.append(_under(path, pairs))
            seen: set[str] = set()
            for key, _ in pairs if lone or isinstance(value, _Twice) else ():
                if key in seen:
                    yield Fault("duplicate", f"key {quote(key)} stands twice", path=(*path, key))
                if lone and re.search(LONE, key):
                    yield Fault("surrogate", f"key {quote(key)} holds half a surrogate pair", path=(*path, key))
                seen.add(key)
        elif type(value) is list:
            stack.append(_under(path, enumerate(value)))
        elif isinstance(value, float) and value - value != 0:
            if any(value is constant for constant in _CONSTANTS.values()):
                yield Fault("constant", f"{json.dumps(value)} is not JSON", path=path)
            else:
                yield Fault("number", "number does not fit in 64-bit floating point", path=path)
        elif lone and isinstance(value, str) and re.search(LONE, value):
            yield Fault("surrogate", f"{show(value)} holds half a surrogate pair", path=path)
