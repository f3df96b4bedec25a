"""Contract files in the form in which they are fast to read: what was read of each and checked, as JSON beside it.

The form is written when the wheel is built, so an installed package alone has it. A digest over the bytes of the
contract file and of what is kept of it stands in front: it holds for the same bytes wherever they stand. Where it does
not, because a file was edited or broken, the file itself is read and checked.

After the digest come the body, the lines of its values, and what is read only when it is asked for, a line each: the
expressions, by whose number the body names them, and the parts of long tables, of which a question needs a few.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from draftproof.dims import Expr, joined, kept
from draftproof.language import KINDS, Spec, Where

_SAME = frozenset(("str", "int", "number", "bool", "value"))  # values that JSON keeps as they are
_decode = json.JSONDecoder().raw_decode  # of which there are many
_WHOLE = 2  # lines are kept of paths so long; of a longer one its beginning tells the line
_APART = (("profile", "rows"), ("configs", "types"))  # long tables


class Head(NamedTuple):
    """Tell of a row what decides whether it is read: where it stands, the versions that have it, when it applies."""

    n: int
    since: str
    until: str
    both: bool  # it holds of a target too
    sure: bool  # where it cannot be told whether it applies nothing is said
    when: Expr | None


class Group(NamedTuple):
    """Hold the heads of the rows that have their first condition in common."""

    first: Expr | None
    heads: Callable[[], list[Head]]


class Parts(Sequence[dict[str, Any]]):
    """Hold the rows of a long table, each read when it is asked for."""

    def __init__(self, groups: Sequence[Group], ids: Sequence[str], read: Callable[[int], dict[str, Any]]) -> None:
        self.groups, self.ids, self.read = groups, ids, read

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, n: Any) -> Any:
        if isinstance(n, slice):
            return [self[k] for k in range(*n.indices(len(self)))]
        return self.read(range(len(self))[n])


class Named(Mapping[str, Any]):
    """Hold the entries of a long table, each read when it is asked for."""

    def __init__(self, places: Mapping[str, int], read: Callable[[int], Any]) -> None:
        self.places, self.read = places, read

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __contains__(self, key: object) -> bool:
        return key in self.places

    def __getitem__(self, key: str) -> Any:
        return self.read(self.places[key])


def grouped(rows: Sequence[Mapping[str, Any]]) -> Sequence[Group]:
    """Return the rows by their first conditions."""
    if isinstance(rows, Parts):
        return rows.groups
    groups: dict[Expr | None, list[Head]] = {}
    for n, row in enumerate(rows):
        when = row.get("when")
        head = Head(n, *_deciding(row), when)
        groups.setdefault(when and when.parts[0], []).append(head)
    return [Group(first, lambda heads=heads: heads) for first, heads in groups.items()]  # type: ignore[misc]


def _deciding(row: Mapping[str, Any]) -> tuple[str, str, bool, bool]:
    sure = row.get("sure", False) or row.get("outcome") == "changes"
    return row.get("since", ""), row.get("until", ""), row.get("both", False), sure


def pack(kind: str, body: Mapping[str, Any], lines: Mapping[Where, int], raw: bytes) -> bytes:
    """Return the form of a contract file: its digest, its body as it was read without an error, its lines."""
    made = _Pack()
    plain = {key: made.apart(KINDS[kind].fields[key], one) if (kind, key) in _APART
             else made.plain(KINDS[kind].fields[key], one) for key, one in body.items()}  # fmt: skip
    parts = (_json(plain), _json([[*p, n] for p, n in lines.items() if len(p) <= _WHOLE]), *made.kept)
    text = "\n".join(parts).encode("utf-8")
    return f"{_digest(raw, text)}\n".encode() + text


def held(form: str | Path, raw: bytes) -> bytes | None:
    """Return the form of a contract file, as its text, or None where there is none for these bytes of the file."""
    try:
        with open(form, "rb") as file:
            digest, _, text = file.read().partition(b"\n")
    except OSError:
        return None
    return text if digest.decode("ascii", "replace") == _digest(raw, text) else None


def unpack(kind: str, text: bytes) -> tuple[dict[str, Any], Callable[[], dict[Where, int]]]:
    """Return the body of a contract file from the text of its form, and its lines, read when they are asked for."""
    body, lines, *parts = text.split(b"\n")
    made = _Unpack(parts)
    revived = {key: made.apart(KINDS[kind].fields[key], one) if (kind, key) in _APART
               else made.revived(KINDS[kind].fields[key], one) for key, one in _read(body).items()}  # fmt: skip
    return revived, lambda: {tuple(row[:-1]): row[-1] for row in _read(lines)}


def _digest(raw: bytes, text: bytes) -> str:
    made = hashlib.sha256(b"%d\n" % len(raw))
    made.update(raw)
    made.update(text)
    return made.hexdigest()


def _read(line: bytes) -> Any:
    return _decode(line.decode("utf-8"))[0]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Pack:
    """Make JSON of what was read, and keep each expression once."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self._places: dict[str, int] = {}

    def _keep(self, line: str) -> int:
        if line not in self._places:
            self._places[line] = len(self.kept)
            self.kept.append(line)
        return self._places[line]

    def _expr(self, expr: Expr) -> int:
        return self._keep(_json([expr.text, expr.code]))

    def apart(self, spec: Spec, value: Any) -> Any:
        """Return a long table as the numbers of its lines; rows stand together, and by their first conditions."""
        of = spec.of
        assert of is not None
        if spec.kind == "map":
            return {key: self._keep(_json(self.plain(of, one))) for key, one in value.items()}
        rows = [self.plain(of, row) for row in value]
        groups: dict[Any, list[Any]] = {}
        for n, row in enumerate(rows):
            when = row.get("when")
            head = [n, *_deciding(row), when]
            groups.setdefault(when[1] if isinstance(when, list) else when, []).append(head)
        kept = [[first, self._keep(_json(heads))] for first, heads in groups.items()]
        ids, start = self._keep(_json([row["id"] for row in rows])), len(self.kept)
        self.kept += map(_json, rows)
        return [kept, ids, start]

    def plain(self, spec: Spec, value: Any) -> Any:
        """Return a value that was read as its spec says, as JSON has it."""
        match spec:
            case Spec(kind="cond"):
                if len(value.parts) == 1:
                    return self._expr(value)
                same = " and ".join(part.text for part in value.parts) == value.text  # else some stand in parentheses
                return ["" if same else value.text, *map(self._expr, value.parts)]
            case Spec(kind="expr"):
                return self._expr(value)
            case Spec(kind="range"):
                return [value[0], self._expr(value[1]), self._expr(value[2]), value[3]]
            case Spec(kind="list", of=Spec() as of):
                return [self.plain(of, one) for one in value]
            case Spec(kind="map", of=Spec() as of):
                return {key: self.plain(of, one) for key, one in value.items()}
            case Spec(kind="table", fields=fields):
                return {key: self.plain(fields[key], one) for key, one in value.items()}
        return value


class _Unpack:
    """Make of JSON what was read; what is kept apart is read when it is asked for."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self.parts = parts
        self._exprs: dict[int, Expr] = {}
        self._known: dict[int, list[Head]] = {}

    def _expr(self, place: int) -> Expr:
        if place not in self._exprs:
            self._exprs[place] = kept(*_read(self.parts[place]))
        return self._exprs[place]

    def apart(self, spec: Spec, value: Any) -> Any:
        """Return a long table, each part of which is read when it is asked for."""
        of, parts = spec.of, self.parts
        assert of is not None
        if spec.kind == "map":
            return Named(value, lambda place: self.revived(of, _read(parts[place])))
        groups, ids, start = value
        made = [Group(None if first is None else self._expr(first), partial(self._heads, heads))
                for first, heads in groups]  # fmt: skip
        return Parts(made, _read(parts[ids]), lambda n: self.revived(of, _read(parts[start + n])))

    def _heads(self, place: int) -> list[Head]:
        if place not in self._known:
            self._known[place] = [Head(n, since, until, both, sure, self._cond(when))
                                  for n, since, until, both, sure, when in _read(self.parts[place])]  # fmt: skip
        return self._known[place]

    def _cond(self, value: Any) -> Expr | None:
        if isinstance(value, list):
            return joined(value[0], [self._expr(one) for one in value[1:]])
        return None if value is None else self._expr(value)

    def revived(self, spec: Spec, value: Any) -> Any:
        """Return a value as it was read, from what JSON has of it."""
        kind, of = spec.kind, spec.of
        if kind == "table":
            fields = spec.fields
            return {k: v if fields[k].kind in _SAME else self.revived(fields[k], v) for k, v in value.items()}
        if kind in ("expr", "cond"):
            return self._cond(value)
        if kind == "list" and of:
            return tuple(value if of.kind in _SAME else [self.revived(of, one) for one in value])
        if kind == "map" and of:
            return {k: v if of.kind in _SAME else self.revived(of, v) for k, v in value.items()}
        if kind == "range":
            return (value[0], self._expr(value[1]), self._expr(value[2]), value[3])
        return value
