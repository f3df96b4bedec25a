"""Contracts: frozen dataclasses built from contract files, and the library that finds them by kind and id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from draftproof.dims import ELEMENT_NAMES, Dim, Expr, find_cycle
from draftproof.findings import Finding, finding, nearest, visible
from draftproof.language import FACTS, FOLDERS, KINDS, MAX_BYTES, SCHEMA, Problems, Where, read_toml, read_value
from draftproof.rules import RULES

DTYPE_SETS = {"float": ("BF16", "F16", "F32"), "index": ("I64", "I32")}  # names that stand for several dtypes


# --- what a contract is -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorRule:
    """Say of one canonical tensor, or of a row of them, what it must be."""

    name: str  # may hold {i}
    shape: tuple[Expr, ...]
    dtype: tuple[str, ...]
    presence: str = "required"
    when: Expr | None = None
    otherwise: str = "forbidden"
    over: tuple[Expr, Expr] | None = None  # {i} from first up to, not including, second
    group: str = ""
    init: str = "normal"
    missing: str = "TEN401"
    misfit: str = "TEN403"
    line: str = ""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """Say of one config key what it must be."""

    key: str
    type: str = ""
    required: bool = False
    check: Expr | None = None
    one_of: tuple[str, ...] = ()
    when: Expr | None = None
    severity: str = "error"
    code: str = "CFG307"
    because: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Translate names on disk to canonical names, and back; a bijection."""

    name: str
    rename: Mapping[str, str]  # disk prefix -> canonical prefix
    bare: tuple[str, ...] = ()
    flag: str = ""

    def decode(self, disk: str) -> str | None:
        """Return the canonical name of a name on disk, or None where this dialect never writes such a name."""
        for old, new in self.rename.items():
            if disk.startswith(old):
                name = new + disk[len(old) :]
                return name if self.encode(name) == disk else None
        return disk if self.encode(disk) == disk else None

    def encode(self, name: str) -> str:
        """Return the name on disk of a canonical name."""
        for old, new in self.rename.items():
            if name.startswith(new) and not name.startswith(self.bare or ("\0",)):
                return old + name[len(new) :]
        return name


@dataclass(frozen=True, slots=True)
class Convention:
    """Give one meaning of aux layer ids: its default layers, its range, its distance to boundaries."""

    name: str
    default: tuple[Expr, ...]
    low: Expr
    high: Expr
    offset: int


@dataclass(frozen=True)
class Contract:
    """Hold a family or a target: how it is recognised, its dims, tensors, dialects and config rules."""

    kind: str
    id: str
    title: str
    source: str
    label: str  # file
    extends: str = ""
    detect: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dims: Mapping[str, Dim] = field(default_factory=dict)
    tensors: Mapping[str, TensorRule] = field(default_factory=dict)
    dialects: tuple[Dialect, ...] = ()
    config: Mapping[str, KeyRule] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    aux_keys: tuple[str, ...] = ()
    conventions: Mapping[str, Convention] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    values: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    summary: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Tell whether other tensors than those named may stand in the file, as in a target."""
        return self.kind == "target"

    @cached_property
    def patterns(self) -> tuple[tuple[re.Pattern[str], TensorRule], ...]:
        """Return a pattern for each tensor rule; group 1 is the index of a row."""
        return tuple(
            (re.compile(re.escape(rule.name).replace(r"\{i\}", r"(0|[1-9]\d{0,5})")), rule)
            for rule in self.tensors.values()
        )

    def rules_for(self, name: str) -> Iterator[tuple[TensorRule, int | None]]:
        """Yield the rules that speak of a canonical name, with its index."""
        for pattern, rule in self.patterns:
            if found := pattern.fullmatch(name):
                yield rule, int(found[1]) if pattern.groups else None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Accept findings of a code, or of a band, for a reason."""

    code: str
    because: str
    line: str

    def covers(self, code: str) -> bool:
        """Tell whether a code falls under it."""
        return code.startswith(self.code[:-1]) if self.code.endswith("*") else code == self.code


@dataclass(frozen=True, slots=True)
class Fact:
    """Hold one declared fact and where it was read."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Name a drafter and its target, and what is accepted of them."""

    id: str
    title: str
    label: str
    drafter: str
    target: str
    drafter_revision: str | None = None
    target_revision: str | None = None
    family: str = ""
    allow: tuple[Acceptance, ...] = ()
    expect_unknown: tuple[Acceptance, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model:
    """Hold what is known of a published model beyond its files."""

    id: str
    repo: str
    facts: Mapping[str, Fact]
    parent: str = ""
    relation: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class EngineRow:
    """State one thing that an engine does with a drafter, and when."""

    id: str
    engine: str
    version: str
    key: str
    when: Expr
    outcome: str
    see: str
    basis: str
    source: str
    line: str


@dataclass(frozen=True, slots=True)
class Engine:
    """Hold the rows read of one engine at one version."""

    id: str
    title: str
    version: str
    rows: tuple[EngineRow, ...]


Any_ = Contract | Pair | Model | Engine


# --- a library of contracts ---------------------------------------------------------------------------------------


def shipped_root() -> Path:
    """Return the folder of the contracts that ship with draftproof."""
    inside = Path(__file__).with_name("shipped")
    return inside if inside.is_dir() else Path(__file__).parents[2] / "contracts"


class Library:
    """Find contracts by kind and id in one or more folders; the first folder wins. Reads a file when asked for."""

    def __init__(self, *roots: Path) -> None:
        self.roots = tuple(dict.fromkeys((*roots, shipped_root())))
        self._files: dict[str, dict[str, Path]] = {}
        self._read: dict[Path, tuple[Any_ | None, tuple[Finding, ...]]] = {}

    def files(self, kind: str) -> dict[str, Path]:
        """Return id -> file of a kind, sorted; the id is the file's stem."""
        if kind not in self._files:
            found: dict[str, Path] = {}
            for root in self.roots:
                for path in sorted((root / FOLDERS[kind]).glob("*.toml")):
                    found.setdefault(path.stem, path)
            self._files[kind] = dict(sorted(found.items()))
        return self._files[kind]

    def get(self, kind: str, id: str) -> tuple[Any, tuple[Finding, ...]]:
        """Return a contract, or None, and the errors of its file."""
        path = self.files(kind).get(id)
        if path is None:
            known = self.files(kind)
            expected = f"one of {', '.join(known) or 'none: there are no contracts of this kind'}"
            return None, (
                finding(
                    "CON113", f"{kind} {visible(id)}", expected=expected, observed=visible(id) + nearest(id, known)
                ),
            )
        if path not in self._read:
            self._read[path] = load(path, kind, self)
        return self._read[path]

    def all(self, kind: str) -> list[tuple[str, Any, tuple[Finding, ...]]]:
        """Return id, contract and errors of every file of a kind."""
        return [(id, *self.get(kind, id)) for id in self.files(kind)]

    def mentioning(self, kind: str, words: list[str]) -> list[str]:
        """Return the ids of files that hold one of the quoted words: a cheap first look, never a decision."""
        texts = {id: _text(path) for id, path in self.files(kind).items()}
        return [id for id, text in texts.items() if any(f'"{word}"' in text for word in words)]

    def model(self, repo: str) -> tuple[Model | None, tuple[Finding, ...]]:
        """Return what is known of a published model, if anything."""
        id = repo.replace("/", "--").lower()
        found: tuple[Model | None, tuple[Finding, ...]] = (
            self.get("model", id) if id in self.files("model") else (None, ())
        )
        return found

    def label(self, path: Path) -> str:
        """Return the name under which a contract file is shown: contracts/<folder>/<file>."""
        return "/".join(("contracts", *path.parts[-2:]))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.stat().st_size <= MAX_BYTES else ""
    except OSError:
        return ""


def load(path: Path, kind: str, library: Library) -> tuple[Any_ | None, tuple[Finding, ...]]:
    """Read one contract file; returns it, or None, and every error in it."""
    label = library.label(path)
    data, out = read_toml(path, label)
    if data is None:
        return None, tuple(out.found)
    if type(data.get("schema")) is not int or data["schema"] != SCHEMA:
        seen = visible(data.get("schema", "nothing"))
        out.add("CON109", ("schema",), expected=f"schema = {SCHEMA}", observed=seen)
        return None, tuple(out.found)
    for key, expected in (("kind", kind), ("id", path.stem)):
        if data.get(key) != expected:
            out.add("CON104", (key,), expected=f"{key} = {expected!r}", observed=visible(data.get(key, "nothing")))
    body = {k: v for k, v in data.items() if k not in ("schema", "kind", "id")}
    parsed = read_value(KINDS[kind], body, (), out)
    lines = {p: out.line((*p,)) for p in _leaves(body)}
    if parsed.get("extends"):
        parsed = _inherit(parsed, lines, kind, path, library, out)
    contract: Any_ | None = None
    if not out.found:
        builders: Mapping[str, Callable[..., Any_]] = {"pair": _pair, "model": _model, "engine": _engine}
        build: Callable[..., Any_] = builders.get(kind, _contract)
        contract = build(kind, path.stem, label, parsed, lines, out)
    return (None if out.found else contract), tuple(out.found)


def _leaves(body: Mapping[str, Any]) -> Iterator[Where]:
    """Yield the paths of the first two levels: enough to give every rule its line."""
    for key, value in body.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, sub) for sub in value)
        elif isinstance(value, list):
            yield from ((key, n) for n in range(len(value)))


def _inherit(
    child: dict[str, Any], lines: dict[Where, str], kind: str, path: Path, library: Library, out: Problems
) -> dict[str, Any]:
    """Merge a parent's tables under the child's; at most one level."""
    parent_id = child["extends"]
    parent_path = library.files(kind).get(parent_id)
    if parent_path is None or parent_path == path:
        known = [k for k in library.files(kind) if k != path.stem]
        seen = visible(parent_id) + nearest(parent_id, known)
        out.add("CON108", ("extends",), expected=f"another {kind}: {', '.join(known)}", observed=seen)
        return child
    data, theirs = read_toml(parent_path, library.label(parent_path))
    body = {k: v for k, v in (data or {}).items() if k not in ("schema", "kind", "id")}
    if "extends" in body:
        seen = f"{parent_id} itself extends {visible(body['extends'])}"
        out.add("CON108", ("extends",), expected="a parent that extends nothing", observed=seen)
        return child
    parent = read_value(KINDS[kind], body, (), theirs)
    if theirs.found:
        out.found += theirs.found
        return child
    lines.update({p: theirs.line(p) for p in _leaves(body) if p not in lines})
    gone = child.get("without", ())
    for n, name in enumerate(gone):
        if name not in parent.get("tensors", {}):
            seen = visible(name) + nearest(name, parent.get("tensors", {}))
            out.add("CON108", ("without", n), expected=f"a tensor of {parent_id}", observed=seen)
    inherited = {n: t for n, t in parent.get("tensors", {}).items() if n not in gone}
    merged = {**parent, "tensors": inherited}
    for key, value in child.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict) and key != "detect"
        merged[key] = {**merged[key], **value} if both else value
    return merged


def _contract(
    kind: str, id: str, label: str, data: dict[str, Any], lines: Mapping[Where, str], out: Problems
) -> Contract:
    """Build a family or a target, checking that every expression speaks of dims that exist."""
    dims = {
        name: Dim(
            name,
            {side: d[side] for side in ("drafter", "target") if side in d},
            d.get("pick") == "first",
            d.get("default"),
            d.get("type") == "bool",
            d.get("differs", "DIM401"),
            d.get("texts", {}),
            lines.get(("dims", name), ""),
        )
        for name, d in data.get("dims", {}).items()
    }
    scope = set(dims)

    def known(expr: Expr | None, path: Where, more: frozenset[str] = frozenset()) -> None:
        for name in sorted((expr.names if expr else frozenset()) - scope - more):
            seen = f"{name}{nearest(name, [*scope, *more])} in {expr}"
            out.add("CON107", path, expected=f"one of {', '.join(sorted(scope))}", observed=seen)

    for name, dim in dims.items():
        known(dim.default, ("dims", name, "default"))
    if circle := find_cycle({n: d.default for n, d in dims.items()}):
        out.add("CON115", ("dims", circle[0]), expected="defaults that end", observed=" -> ".join(circle))
    tensors = {}
    for name, t in data.get("tensors", {}).items():
        path: Where = ("tensors", name)
        more = frozenset({"i"}) if "for" in t else frozenset()
        if ("for" in t) != ("{i}" in name):
            out.add("CON104", path, expected="{i} in the name where, and only where, there is a for", observed=name)
        for axis in t["shape"]:
            known(axis, (*path, "shape"), more)
        known(t.get("when"), (*path, "when"), more)
        for end in t.get("for", ()):
            known(end, (*path, "for"))
        dtypes = tuple(d for word in t.get("dtype", ("float",)) for d in DTYPE_SETS.get(word, (word,)))
        tensors[name] = TensorRule(
            name,
            t["shape"],
            dtypes,
            t.get("presence", "required"),
            t.get("when"),
            t.get("otherwise", "forbidden"),
            t.get("for"),
            t.get("group", ""),
            t.get("init", "normal"),
            t.get("missing", "TEN401"),
            t.get("misfit", "TEN403"),
            lines.get(path, ""),
        )
    config = {}
    for key, k in data.get("config", {}).items():
        known(k.get("check"), ("config", key, "check"), ELEMENT_NAMES)
        known(k.get("when"), ("config", key, "when"))
        config[key] = KeyRule(
            key,
            k.get("type", ""),
            k.get("required", False),
            k.get("check"),
            k.get("one_of", ()),
            k.get("when"),
            k.get("severity", "error"),
            k.get("code", "CFG307"),
            k.get("because", ""),
            lines.get(("config", key), ""),
        )
    aux = data.get("aux", {})
    conventions = {
        n: Convention(n, c["default"], c["low"], c["high"], c["offset"]) for n, c in aux.get("conventions", {}).items()
    }
    for name, c in conventions.items():
        for expr in (*c.default, c.low, c.high):
            known(expr, ("aux", "conventions", name))
    for name, exprs in data.get("values", {}).items():
        for expr in exprs:
            known(expr, ("values", name), ELEMENT_NAMES | frozenset(tensors))
    for part, name in data.get("sizes", {}).items():
        if name not in scope:
            out.add(
                "CON107",
                ("sizes", part),
                expected=f"one of {', '.join(sorted(scope))}",
                observed=name + nearest(name, scope),
            )
    for part, name in data.get("roles", {}).items():
        if name not in tensors:
            out.add("CON107", ("roles", part), expected="a tensor of [tensors]", observed=name + nearest(name, tensors))
    for path_, code in _codes(data):
        if code not in RULES:
            out.add("CON116", path_, expected="a code of the rule table", observed=code + nearest(code, RULES))
    dialects = tuple(
        Dialect(
            name, d.get("rename", {}) | ({d["strip"]: ""} if "strip" in d else {}), d.get("bare", ()), d.get("flag", "")
        )
        for name, d in data.get("dialects", {"bare": {}}).items()
    )
    rope = data.get("rope", {})
    known(rope.get("rotary"), ("rope", "rotary"))
    return Contract(
        kind,
        id,
        data["title"],
        data["source"],
        label,
        data.get("extends", ""),
        data.get("detect", {}),
        dims,
        tensors,
        dialects,
        config,
        data.get("roles", {}),
        data.get("sizes", {}),
        rope,
        aux.get("keys", ()),
        conventions,
        data.get("nested", ()),
        data.get("values", {}),
        data.get("summary", ()),
    )


def _codes(data: Mapping[str, Any]) -> Iterator[tuple[Where, str]]:
    for table, keys in (
        ("dims", ("differs",)),
        ("tensors", ("missing", "misfit")),
        ("config", ("code",)),
        ("dialects", ("flag",)),
    ):
        for name, entry in data.get(table, {}).items():
            yield from (((table, name, key), entry[key]) for key in keys if key in entry)


def _pair(kind: str, id: str, label: str, data: dict[str, Any], lines: Mapping[Where, str], out: Problems) -> Pair:
    for side in ("drafter", "target"):
        revision = data[side].get("revision")
        if revision is not None and not re.fullmatch(r"[0-9a-f]{40}", revision):
            out.add("CON110", (side, "revision"), expected="40 hex digits of a commit", observed=visible(revision))
    accepted = {}
    for key in ("allow", "expect_unknown"):
        rows = []
        for n, row in enumerate(data.get(key, ())):
            entry = Acceptance(row["code"], row["because"], out.line((key, n)))
            if not row["because"].strip():
                out.add("CON111", (key, n, "because"), expected="a reason", observed="nothing")
            if not any(entry.covers(code) for code in RULES):
                out.add(
                    "CON116",
                    (key, n, "code"),
                    expected="a code of the rule table",
                    observed=entry.code + nearest(entry.code, RULES),
                )
            rows.append(entry)
        accepted[key] = tuple(rows)
    return Pair(
        id,
        data["title"],
        label,
        data["drafter"]["model"],
        data["target"]["model"],
        data["drafter"].get("revision"),
        data["target"].get("revision"),
        data.get("family", ""),
        accepted["allow"],
        accepted["expect_unknown"],
        _facts(data.get("facts", {})),
    )


def _facts(data: Mapping[str, Any]) -> dict[str, Fact]:
    return {k: Fact(v["value"], v["source"]) for k, v in data.items() if k in FACTS}


def _model(kind: str, id: str, label: str, data: dict[str, Any], lines: Mapping[Where, str], out: Problems) -> Model:
    if data["repo"].replace("/", "--").lower() != id:
        out.add("CON104", ("repo",), expected=f"the repo that the file {id}.toml is named after", observed=data["repo"])
    up = data.get("lineage", {})
    return Model(id, data["repo"], _facts(data), up.get("parent", ""), up.get("relation", ""), up.get("source", ""))


def _engine(kind: str, id: str, label: str, data: dict[str, Any], lines: Mapping[Where, str], out: Problems) -> Engine:
    rows = tuple(
        EngineRow(
            r["id"],
            data["title"],
            data["version"],
            r["key"],
            r["when"],
            r["outcome"],
            r["see"],
            r["basis"],
            r["source"],
            out.line(("rows", n)),
        )
        for n, r in enumerate(data["rows"])
    )
    return Engine(id, data["title"], data["version"], rows)
