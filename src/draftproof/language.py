"""The contract language: what may stand in a contract file, declared once as data, and how a file is read.

``KINDS`` declares every kind of contract. The reader walks it and collects every error with its line; the JSON
Schema for editors is generated from it. Nothing in a contract is code.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from draftproof.dims import Expr, ExprError, parse
from draftproof.findings import Finding, finding, nearest, visible

SCHEMA = 1
MAX_BYTES = 1_000_000
MAX_NESTING = 32  # brackets

Where = tuple[str | int, ...]  # the path of a value inside a file


# --- the language, as data ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spec:
    """Declare one value of the language: what may stand there, and what it means."""

    kind: str  # str, int, bool, any, expr, range, list, map, table
    doc: str = ""
    required: bool = False
    of: Spec | None = None  # items of a list, values of a map
    fields: Mapping[str, Spec] = field(default_factory=dict)  # of a table
    pattern: str = ""
    choices: tuple[str, ...] = ()
    one_or_many: bool = False  # a list of one may be written without brackets


def _s(doc: str = "", **more: Any) -> Spec:
    return Spec("str", doc, **more)


def _table(doc: str = "", must: bool = False, /, **fields: Spec) -> Spec:
    return Spec("table", doc, must, fields={k.rstrip("_"): v for k, v in fields.items()})


def _map(of: Spec, doc: str = "", pattern: str = "", required: bool = False) -> Spec:
    return Spec("map", doc, required, of=of, pattern=pattern)


def _list(of: Spec, doc: str = "", one: bool = False, required: bool = False) -> Spec:
    return Spec("list", doc, required, of=of, one_or_many=one)


ID = r"[a-z0-9][a-z0-9._\-]*"
REPO = r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*"
NAME = r"[a-z_]\w*(\.[a-z_]\w*)*"  # of a dim
EXPR = Spec("expr", "an expression over dims")
BOOL = Spec("bool")
INT = Spec("int")
LEVEL = _s("how bad a breach is", choices=("error", "warning", "info"))
CODE = _s("a rule's code; a trailing * stands for all that begin so", pattern=r"[A-Z]+\d*\*?")
SOURCED = "where the fact was read"

_DIM = _table(
    drafter=_list(EXPR, "the drafter's config keys that state it", one=True),
    target=_list(EXPR, "the target's config keys that state it", one=True),
    texts=_map(_list(_s()), "config key -> texts: true where the key holds, or lists, one of them"),
    pick=_s("first: the first key that is present counts; else all must agree", choices=("first", "all")),
    default=Spec("expr", "over other dims, where no source states it"),
    type_=_s(choices=("int", "bool")),
    differs=_s("the code where drafter and target state different values", pattern=r"[A-Z]+\d+"),
)
_TENSOR = _table(
    shape=_list(EXPR, "one expression an axis", required=True),
    dtype=_list(_s(), "allowed dtypes, or the name of a set: float, index", one=True),
    presence=_s(choices=("required", "optional", "forbidden")),
    when=Spec("expr", "the rule applies where this holds"),
    otherwise=_s("what the tensor is where `when` does not hold", choices=("forbidden", "optional")),
    for_=Spec("range", "i in a..b: one tensor for each i from a up to, not including, b"),
    group=_s("what it belongs to: attention, mlp, norm, fusion, head, embedding, map"),
    init=_s("how an untrained one is made", choices=("normal", "ones", "zeros")),
    missing=_s("the code to report for a missing one, instead of TEN401", pattern=r"[A-Z]+\d+"),
    misfit=_s("the code to report where it fits its own config but not the target", pattern=r"[A-Z]+\d+"),
)
_KEY = _table(
    type_=_s("the JSON type", choices=("int", "float", "bool", "str", "list", "object")),
    required=BOOL,
    check=Spec("expr", "must hold; `it` is the value, or each element of a list"),
    one_of=_list(_s()),
    when=Spec("expr", "the rule applies where this holds"),
    severity=LEVEL,
    code=_s("the code of a breach, instead of CFG307", pattern=r"[A-Z]+\d+"),
    because=_s("why the rule exists"),
)
_DIALECT = _table(
    rename=_map(_s(), "prefix on disk -> canonical prefix"),
    strip=_s("prefix to remove"),
    bare=_list(_s(), "names, or prefixes of names, that carry no such prefix"),
    flag=_s("a code to report where this dialect is found", pattern=r"[A-Z]+\d+"),
)
_DETECT = _table(
    "how the contract recognises a checkpoint",
    any_architecture=_list(_s()),
    any_model_type=_list(_s()),
    any_tensor=_list(_s("a name on disk; * stands for anything")),
    any_config=_list(_s("a config key")),
    no_config=_list(_s("a config key that rules it out")),
    no_tensor=_list(_s("a name on disk that rules it out")),
)
_CONVENTION = _table(
    default=_list(EXPR, "the layers captured when none are named", required=True),
    low=Spec("expr", "smallest id", required=True),
    high=Spec("expr", "largest id", required=True),
    offset=Spec("int", "add it to an id to get the boundary: b is the input of layer b", required=True),
)
_MODEL = r"(" + REPO + r")|(\.{0,2}/.*)"
_FACT = _table(value=Spec("any", required=True), source=_s(SOURCED, required=True))
FACTS = {
    "trained_on": _FACT,  # ORG/NAME of the target whose hidden states it was trained on
    "aux_convention": _FACT,  # a convention of the family
    "aux_layers": _FACT,  # ids, in that convention
    "trained_context": _FACT,  # tokens
    "partial_rotary_factor": _FACT,
}
_ACCEPT = _list(_table(code=Spec("str", CODE.doc, True, pattern=CODE.pattern), because=_s("why", required=True)))
_SHARED: Mapping[str, Any] = dict(  # noqa: C408
    title=_s(required=True),
    source=_s(SOURCED, required=True),
    extends=_s("id of a contract of the same kind, whose tables this one adds to", pattern=ID),
    without=_list(_s("a tensor of the parent that this one does not have")),
    detect=_DETECT,
    dims=_map(_DIM, pattern=NAME),
    tensors=_map(_TENSOR, "canonical name -> rule"),
    dialects=_map(_DIALECT, "names on disk -> canonical names; exactly one must explain every tensor"),
    config=_map(_KEY, "config key -> rule"),
)
KINDS: Mapping[str, Spec] = {
    "family": _table(
        "a drafter family",
        **_SHARED,
        roles=_table(
            "which canonical tensor plays which part",
            fusion=_s(),
            embedding=_s(),
            head=_s(),
            map_=_s("draft id -> target id, as offsets"),
            mask=_s("target id -> is it in the draft vocabulary"),
        ),
        sizes=_table(
            "which dim plays which part",
            hidden=_s(),
            target_hidden=_s(),
            draft_vocab=_s(),
            target_vocab=_s(),
            layers=_s(),
            target_layers=_s(),
            aux=_s(),
            context=_s(),
            target_context=_s(),
        ),
        aux=_table(
            "the captured target layers",
            keys=_list(_s(), "config keys that name them, in the order they are looked up", required=True),
            conventions=_map(_CONVENTION, required=True),
        ),
        rope=_table(rotary=Spec("expr", "rotated dims of a head"), interleaved=BOOL),
        summary=_list(_s("text; {expression} stands for its value"), "the geometry in a line"),
        values=_map(_list(EXPR), "rules over a tensor's values"),
    ),
    "target": _table(
        "a target architecture",
        **_SHARED,
        nested=_list(_s(), "config tables to look into first, before the top level", one=True),
        sizes=_table(hidden=_s(), vocab=_s(), layers=_s(), context=_s()),
        roles=_table(embedding=_s(), head=_s(), norm=_s()),
        rope=_table(rotary=EXPR, interleaved=BOOL),
    ),
    "pair": _table(
        "a drafter with its target",
        title=_s(required=True),
        drafter=_table("", True, model=_s("ORG/NAME or a path", required=True, pattern=_MODEL), revision=_s()),
        target=_table("", True, model=_s("ORG/NAME or a path", required=True, pattern=_MODEL), revision=_s()),
        family=_s("id of the family, where it cannot be told", pattern=ID),
        allow=_ACCEPT,
        expect_unknown=_ACCEPT,
        facts=_table("what is known of the drafter beyond its files", **FACTS),
    ),
    "model": _table(
        "what is known of a published model beyond its files",
        repo=_s(required=True, pattern=REPO),
        **FACTS,
        lineage=_table(
            parent=_s(required=True, pattern=REPO),
            relation=_s(required=True, choices=("fine-tune", "quantised")),
            source=_s(SOURCED, required=True),
        ),
    ),
    "engine": _table(
        "what an engine does",
        title=_s(required=True),
        version=_s("the version that was read", required=True),
        rows=_list(
            _table(
                id_=_s(required=True, pattern=ID),
                key=_s("the drafter's config key it is about", required=True),
                when=Spec("expr", "over the dims of the pair", required=True),
                outcome=_s(required=True, choices=("refuses", "degrades", "changes")),
                see=_s("what the user will see", required=True),
                basis=_s(required=True, choices=("run", "read")),
                source=_s(SOURCED, required=True),
            ),
            required=True,
        ),
    ),
}
FOLDERS = {"family": "families", "target": "targets", "pair": "pairs", "model": "models", "engine": "engines"}


# --- reading ------------------------------------------------------------------------------------------------------


class Problems:
    """Collect the errors of one file, each with its line."""

    def __init__(self, label: str, text: str) -> None:
        self.label = label
        self.text = text
        self.found: list[Finding] = []

    @cached_property
    def lines(self) -> dict[Where, int]:
        """Map the path of every key to its line."""
        return _line_numbers(self.text)

    def line(self, path: Where) -> str:
        """Return file:line of the nearest enclosing key."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.label}:{self.lines.get(path, 1)}"

    def add(self, code: str, path: Where, **parts: Any) -> None:
        """Add a finding about the value at a path."""
        self.found.append(finding(code, _show(path), contract=self.line(path), **parts))


def _show(path: Where) -> str:
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += ("." if out else "") + (part if re.fullmatch(r"[\w-]+", part) else f'"{visible(part)}"')
    return out or "(file)"


_JSON_TYPES = {str: "text", int: "an integer", float: "a float", bool: "true or false", list: "a list", dict: "a table"}
_WANTED = {"str": str, "int": int, "bool": bool, "expr": str, "range": str, "list": list, "map": dict, "table": dict}
_RANGE = re.compile(r"\s*i\s+in\s+(.+?)\s*\.\.\s*(.+?)\s*")


def read_value(spec: Spec, value: Any, path: Where, out: Problems) -> Any:
    """Return a value parsed as its spec says, or None after adding what is wrong with it."""
    if spec.one_or_many and not isinstance(value, list):
        value = [value]
    wanted = _WANTED.get(spec.kind)
    literal = spec.kind == "expr" and type(value) in (int, bool)  # 3 may be written for "3"
    if wanted and type(value) is not wanted and not literal:
        seen = _JSON_TYPES.get(type(value), type(value).__name__)
        out.add("CON104", path, expected=_JSON_TYPES[wanted], observed=f"{visible(value, 80)} ({seen})")
        return None
    match spec.kind:
        case "str":
            if spec.choices and value not in spec.choices:
                hint = f"{visible(value)}{nearest(value, spec.choices)}"
                out.add("CON104", path, expected=f"one of {', '.join(spec.choices)}", observed=hint)
            elif spec.pattern and not re.fullmatch(spec.pattern, value):
                out.add("CON104", path, expected=spec.doc or f"text like {spec.pattern}", observed=visible(value))
        case "expr":
            return _expr(str(value).lower() if type(value) is bool else str(value), path, out)
        case "range":
            found = _RANGE.fullmatch(value)
            if not found:
                out.add("CON106", path, expected="i in a..b", observed=visible(value))
                return None
            ends = [_expr(end, path, out) for end in found.groups()]
            return tuple(ends) if all(ends) else None
        case "list":
            assert spec.of
            items = [read_value(spec.of, item, (*path, n), out) for n, item in enumerate(value)]
            return tuple(i for i in items if i is not None)
        case "map":
            assert spec.of
            for key in value:
                if spec.pattern and not re.fullmatch(spec.pattern, key):
                    out.add("CON103", (*path, key), expected=f"a name like {spec.pattern}", observed=visible(key))
            return {k: r for k, v in value.items() if (r := read_value(spec.of, v, (*path, k), out)) is not None}
        case "table":
            for key in value:
                if key not in spec.fields:
                    expected = f"one of {', '.join(spec.fields)}"
                    out.add(
                        "CON103", (*path, key), expected=expected, observed=visible(key) + nearest(key, spec.fields)
                    )
            for key, sub in spec.fields.items():
                if sub.required and key not in value:
                    out.add("CON105", (*path, key), expected=f"{key}: {sub.doc or sub.kind}", observed="nothing")
            known = {k: v for k, v in value.items() if k in spec.fields}
            return {k: r for k, v in known.items() if (r := read_value(spec.fields[k], v, (*path, k), out)) is not None}
    return value


def _expr(text: str, path: Where, out: Problems) -> Expr | None:
    try:
        return parse(text)
    except ExprError as error:
        out.add(
            "CON106", path, expected="an expression of the contract language", observed=visible(text), note=str(error)
        )
        return None


def json_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a contract kind, for editors; generated from what the reader reads."""
    spec = KINDS[kind]
    base = {"schema": {"const": SCHEMA}, "kind": {"const": kind}, "id": {"type": "string", "pattern": f"^({ID})$"}}
    body = _schema(spec)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"draftproof {kind} contract",
        **body,
        "properties": {**base, **body["properties"]},
        "required": [*base, *body.get("required", [])],
    }


def _schema(spec: Spec) -> dict[str, Any]:
    out: dict[str, Any] = {"description": spec.doc} if spec.doc else {}
    match spec.kind:
        case "str" | "range":
            out["type"] = "string"
        case "int":
            out["type"] = "integer"
        case "bool":
            out["type"] = "boolean"
        case "expr":
            out["type"] = ["string", "integer", "boolean"]
        case "list":
            assert spec.of
            items = _schema(spec.of)
            out |= (
                {"anyOf": [items, {"type": "array", "items": items}]}
                if spec.one_or_many
                else {"type": "array", "items": items}
            )
        case "map":
            assert spec.of
            values = _schema(spec.of)
            out |= {"type": "object", "additionalProperties": values}
            if spec.pattern:
                out |= {"propertyNames": {"pattern": f"^({spec.pattern})$"}}
        case "table":
            out |= {
                "type": "object",
                "properties": {k: _schema(v) for k, v in spec.fields.items()},
                "additionalProperties": False,
            }
            if required := [k for k, v in spec.fields.items() if v.required]:
                out["required"] = required
    if spec.choices:
        out["enum"] = list(spec.choices)
    if spec.pattern and spec.kind == "str":
        out["pattern"] = f"^({spec.pattern})$"
    return out


_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY_LINE = re.compile(
    r"""\s*((?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+))*)\s*="""
)
_KEY_PART = re.compile(r"""\s*(?:"([^"\n]*)"|'([^'\n]*)'|([A-Za-z0-9_-]+))\s*\.?""")


def _line_numbers(text: str) -> dict[Where, int]:
    """Map key paths to 1-based lines by a scan of headers, keys and list items; inline tables share their line."""
    lines: dict[Where, int] = {}
    table: Where = ()
    open_list: Where | None = None
    items = 0
    for number, line in enumerate(text.splitlines(), 1):
        if open_list is not None:
            if line.lstrip()[:1] in "{\"'":
                lines[(*open_list, items)] = number
                items += 1
            if line.strip().startswith("]"):
                open_list = None
        elif found := _HEADER.match(line):
            table = _parts(found[2])
            if found[1] == "[[":
                table = (*table, sum(1 for p in lines if p[:-1] == table and isinstance(p[-1], int)))
            lines[table] = number
            lines.setdefault(table[:1], number)
        elif found := _KEY_LINE.match(line):
            path = (*table, *_parts(found[1]))
            lines[path] = number
            for inner in re.finditer(r"[{,]\s*([A-Za-z0-9_-]+)\s*=", line[found.end() :]):
                lines.setdefault((*path, inner[1]), number)
            if line[found.end() :].split("#")[0].strip() == "[":
                open_list, items = path, 0
    return lines


def _parts(key: str) -> Where:
    return tuple(a or b or c for a, b, c in _KEY_PART.findall(key))


def read_toml(path: Path, label: str) -> tuple[dict[str, Any] | None, Problems]:
    """Read a TOML file within the bounds; what is wrong with it is in the problems."""
    try:
        size = path.stat().st_size
        raw = path.read_bytes() if size <= MAX_BYTES else b""
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        out = Problems(label, "")
        out.add("CON101", (), expected="a readable UTF-8 file", observed=visible(error))
        return None, out
    out = Problems(label, text)
    if size > MAX_BYTES:
        out.add("CON101", (), expected=f"at most {MAX_BYTES} bytes", observed=f"{size} bytes")
    elif (depth := _nesting(text)) > MAX_NESTING:
        out.add("CON101", (), expected=f"at most {MAX_NESTING} nested brackets", observed=f"{depth}")
    else:
        try:
            return tomllib.loads(text), out
        except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
            found = re.search(r"at line (\d+)", str(error))
            out.found.append(
                finding("CON102", "(file)", observed=visible(error), contract=f"{label}:{found[1] if found else 1}")
            )
    return None, out


def _nesting(text: str) -> int:
    deepest = depth = 0
    for mark in re.findall(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}]', text):
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]}":
            depth = max(0, depth - 1)
    return deepest
