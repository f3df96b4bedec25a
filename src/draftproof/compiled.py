"""Contract files in the form in which they are fast to read: what was read of each and checked, as JSON beside it.

The form is written when the wheel is built, so an installed package alone has it. A digest over the bytes of the
contract file and of what is kept of it stands in front: it holds for the same bytes wherever they stand. Where it does
not, because a file was edited or broken, the file itself is read and checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from draftproof.dims import Expr, conjuncts, joined
from draftproof.language import KINDS, Spec, Where

_SAME = frozenset(("str", "int", "number", "bool", "value"))  # values that JSON keeps as they are
_WHOLE = 2  # lines are kept of paths so long; of a longer one its beginning tells the line


def pack(kind: str, body: Mapping[str, Any], lines: Mapping[Where, int], raw: bytes) -> bytes:
    """Return the form of a contract file: its digest, its body as it was read without an error, its lines."""
    parts = (_plain(KINDS[kind], body), [[*p, n] for p, n in lines.items() if len(p) <= _WHOLE])
    text = b"\n".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode("utf-8") for one in parts)
    return f"{_digest(raw, text)}\n".encode() + text


def held(form: Path, raw: bytes) -> bytes | None:
    """Return the form of a contract file, as its text, or None where there is none for these bytes of the file."""
    try:
        digest, _, text = form.read_bytes().partition(b"\n")
    except OSError:
        return None
    return text if digest.decode("ascii", "replace") == _digest(raw, text) else None


def unpack(kind: str, text: bytes, known: dict[str, Expr]) -> tuple[dict[str, Any], Callable[[], dict[Where, int]]]:
    """Return the body of a contract file from the text of its form, and its lines, read when they are asked for.

    Expressions are parsed when they are first used; known are those of other files, by their text.
    """
    body, _, lines = text.partition(b"\n")
    revived: dict[str, Any] = _revived(KINDS[kind], json.loads(body), known)
    return revived, lambda: {tuple(row[:-1]): row[-1] for row in json.loads(lines)}


def _digest(raw: bytes, text: bytes) -> str:
    return hashlib.sha256(b"%d\n%s%s" % (len(raw), raw, text)).hexdigest()


def _plain(spec: Spec, value: Any) -> Any:
    """Return a value that was read as its spec says, as JSON has it."""
    match spec:
        case Spec(kind="cond"):
            parts = conjuncts(value.text)
            plain = " and ".join(parts) == value.text  # else some stand in parentheses
            whole = len(parts) == 1 or any("\n" in part for part in parts)  # which a parenthesis held together
            return value.text if whole else ["" if plain else value.text, *parts]
        case Spec(kind="expr"):
            return value.text
        case Spec(kind="range"):
            return [value[0], value[1].text, value[2].text, value[3]]
        case Spec(kind="list", of=Spec() as of):
            return [_plain(of, one) for one in value]
        case Spec(kind="map", of=Spec() as of):
            return {key: _plain(of, one) for key, one in value.items()}
        case Spec(kind="table", fields=fields):
            return {key: _plain(fields[key], one) for key, one in value.items()}
    return value


def _revived(spec: Spec, value: Any, known: dict[str, Expr]) -> Any:
    """Return a value as it was read, from what JSON has of it."""
    kind, of = spec.kind, spec.of
    if kind == "table":
        fields = spec.fields
        return {k: v if fields[k].kind in _SAME else _revived(fields[k], v, known) for k, v in value.items()}
    if kind in ("expr", "cond"):
        many = isinstance(value, list)
        return joined(value[0], [_kept(one, known) for one in value[1:]]) if many else _kept(value, known)
    if kind == "list" and of:
        return tuple(value if of.kind in _SAME else [_revived(of, one, known) for one in value])
    if kind == "map" and of:
        return {k: v if of.kind in _SAME else _revived(of, v, known) for k, v in value.items()}
    if kind == "range":
        return (value[0], _kept(value[1], known), _kept(value[2], known), value[3])
    return value


def _kept(text: str, known: dict[str, Expr]) -> Expr:
    """Return an expression that was parsed when it was kept; it is parsed again when it is first used."""
    if text not in known:
        known[text] = Expr(text)
    return known[text]
