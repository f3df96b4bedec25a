"""Quantised weights: what a config declares of them, how they are stored, and the logical tensors they stand for.

Pure functions from a scheme contract, the quantisation table of a config and a tensor table to a table in which each
quantised weight has its logical name and shape, and findings. A module is a tensor's name up to what its scheme
writes behind it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from draftproof.checkpoint import QUANTISATION_FILE as SIDE_FILE
from draftproof.checkpoint import Checkpoint, Table, listed, parse_config
from draftproof.container import BITS, Tensor
from draftproof.contracts import Layout, Scheme, Stored
from draftproof.dims import (
    Absent,
    Bindings,
    Dim,
    Expr,
    Known,
    Lookup,
    Seen,
    Unknown,
    is_true,
    substituted,
    value_of,
)
from draftproof.findings import Finding, finding, nearest, unknown, visible
from draftproof.library import Library
from draftproof.strict import CONFIG_LIMIT

LOGICAL = "quantised"  # the dtype of a logical weight: no safetensors dtype
FLOATS = ("BF16", "F16", "F32", "F64")
MAX_NAME = 160  # characters of a module's name that a pattern is tried on
MAX_PATTERN = 300  # characters of a pattern
MAX_LENGTH = 1000  # characters of a name or an entry that are compared
MAX_PARTS = 16  # of a dotted name, whose runs are looked up
MAX_REPEATS = 4  # unbounded repetitions in a pattern: more can take very long


# --- what is declared ---------------------------------------------------------------------------------------------


@dataclass
class Declared:
    """Hold a declared quantisation: its table, where it stands, and the scheme that it is of, if that is known."""

    table: dict[str, Any]
    witness: str
    name: str = ""
    scheme: Scheme | None = None
    findings: list[Finding] = field(default_factory=list)


def declared(library: Library, checkpoint: Checkpoint, seen: Seen) -> Declared | None:
    """Return the quantisation that a config declares, or the file beside it; None where nothing does."""
    file = side_file(checkpoint)
    if not isinstance(seen, Known) or not isinstance(seen.value, Mapping):
        return _name(library, file, checkpoint) if file and isinstance(seen, Absent) else None
    out = _name(library, Declared(dict(seen.value), seen.witness), checkpoint)
    out.findings += file.findings if file else []
    for key in file.table if file else ():
        if key in out.table and out.table[key] != file.table[key]:  # type: ignore[union-attr]
            theirs = visible(json.dumps(file.table[key], default=str), 60)  # type: ignore[union-attr]
            ours = visible(json.dumps(out.table[key], default=str), 60)
            out.findings.append(
                finding("CFG343", f"{SIDE_FILE}: {visible(key)}", expected=f"{ours} ({out.witness})", observed=theirs,
                        where=checkpoint.source.label)
            )  # fmt: skip
    return out


def side_file(checkpoint: Checkpoint) -> Declared | None:
    """Return what the file beside the config declares, in the form of a config's table; None where there is none."""
    if SIDE_FILE not in checkpoint.source.files:
        return None
    raw = checkpoint.source.take(SIDE_FILE, CONFIG_LIMIT)
    data, found = parse_config(raw, checkpoint.source.label) if isinstance(raw, bytes) else (None, [raw])
    renamed = [replace(f, subject=f.subject.replace("config.json", SIDE_FILE)) for f in found]
    out = Declared({}, SIDE_FILE, findings=renamed)
    inner = data.get("quantization") if data else None
    if isinstance(inner, Mapping):
        out.table = {k: v for k, v in inner.items() if v is not None}
    return out


def _name(library: Library, out: Declared, checkpoint: Checkpoint) -> Declared:
    """Find the scheme of a table by its quant_method, or by a key that only one producer writes."""
    table, where = out.table, checkpoint.source.label
    method, subject = table.get("quant_method"), f"{out.witness}: quant_method"
    if out.findings:
        return out
    if isinstance(method, str) and method.strip():
        ids, out.name = library.mentioning("scheme", [method]), visible(method, 60)
    elif method is not None:
        seen = visible(json.dumps(method, default=str), 60)
        out.findings.append(finding("CFG341", subject, expected="text", observed=seen, where=where))
        return out
    else:
        ids = list(library.files("scheme"))
    for id in ids:
        scheme, _ = library.get("scheme", id)
        if scheme is not None and (method in scheme.methods if method else any(key in table for key in scheme.marks)):
            out.scheme, out.name = scheme, out.name or scheme.id
            return out
    known = [m for _, scheme, _ in library.all("scheme") if scheme for m in scheme.methods]
    if method is None:
        out.findings.append(
            finding("CFG341", subject, expected=f"a method: {', '.join(known)}",
                    observed=f"none; {listed(table, 4) or 'an empty table'}", where=where)
        )  # fmt: skip
    else:
        seen = out.name + nearest(str(method), known)
        out.findings.append(
            unknown("CFG340", subject, expected=f"one of {', '.join(known)}", observed=seen, where=where)
        )
    return out


def companions(scheme: Scheme, names: Iterable[str]) -> set[str]:
    """Return the names that may stand for weights of these names, or beside them."""
    modules = {(layout.name, n[: -len(layout.name)]) for n in names for layout in scheme.layouts if layout.name
               and n.endswith(layout.name)}  # fmt: skip
    return {module + suffix for _, module in modules for suffix in scheme.suffixes()}


# --- which modules ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str] | None:
    """Compile a pattern that a config gives, if it can be tried in little time."""
    repeats = len(re.findall(r"(?<!\\)[*+]|(?<!\\)\{\d*,\d*\}", text))
    if len(text) > MAX_PATTERN or repeats > MAX_REPEATS or re.search(r"\)[*+{]", text):
        return None
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return None


def _tails(name: str) -> Iterator[str]:
    """Yield a dotted name, and what is left of it without its first parts."""
    yield name
    for at in re.finditer(r"\.", name):
        yield name[at.end() :]


def names_module(entry: str, module: str, match: str) -> bool:
    """Tell whether an entry of a list names a module; a prefix that only one of the two has does not matter."""
    if entry.startswith("re:") or match == "regex":
        pattern = _pattern(entry.removeprefix("re:").removeprefix("+:"))
        return pattern is not None and len(module) <= MAX_NAME and any(map(pattern.match, _tails(module)))
    if not entry:
        return False
    if module == entry or entry.endswith(f".{module}") or module.endswith(f".{entry}"):
        return True
    if match == "path":
        inner = f".{entry.strip('.')}."
        tails = (f".{tail}." for tail in _tails(entry.strip(".")) if "." in tail)
        return inner in f".{module}." or any(f".{module}.".startswith(tail) for tail in tails)
    if match == "part":
        return entry in module
    if match == "glob":
        shapes = [entry, *(tail for tail in _tails(entry) if "." in tail)]
        whole = any(fnmatchcase(tail, shape) for tail in _tails(module) for shape in shapes)
        return whole or ("." not in entry and any(fnmatchcase(part, entry) for part in module.split(".")))
    return False


class Entries:
    """Hold entries that name modules, and find the one that names a module without trying each of them."""

    def __init__(self, entries: Iterable[str], match: str) -> None:
        self.match, self.patterns = match, list[str]()
        self.whole: dict[str, str] = {}
        self.tails: dict[str, str] = {}
        for entry in entries:
            wild = match == "glob" and any(mark in entry for mark in "*?[")
            if len(entry) > MAX_LENGTH:
                continue  # it names no module
            if entry.startswith("re:") or match in ("regex", "part") or wild:
                self.patterns.append(entry)
            if entry and not wild and not entry.startswith("re:"):
                self.whole.setdefault(entry.strip("."), entry)
                self.tails |= {tail: entry for tail in _tails(entry.strip(".")) if tail not in self.tails}

    def find(self, module: str) -> str | None:
        """Return the entry that names a module, if there is one."""
        if len(module) > MAX_LENGTH:
            return None
        if self.match != "regex":
            parts = module.split(".")
            own = [module, *_tails(module)]
            if self.match == "path":
                spans = [".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)]
                heads = [".".join(parts[:j]) for j in range(2, len(parts))]
                own = spans if len(parts) <= MAX_PARTS else own
                if entry := next((self.tails[head] for head in heads if head in self.tails), None):
                    return entry
            own += parts if self.match == "glob" else []
            if entry := self.tails.get(module) or next((self.whole[one] for one in own if one in self.whole), None):
                return entry
        return next((entry for entry in self.patterns if names_module(entry, module, self.match)), None)


class Modules:
    """Answer for each module what its quantisation table says of it: its own arguments, or that it is left alone."""

    def __init__(self, out: Declared, label: str) -> None:
        assert out.scheme is not None
        self.table, self.how, self.label, self.witness = out.table, out.scheme.modules, label, out.witness
        self.match = self.how.get("match", "exact")
        self.findings: list[Finding] = []
        self.ignored = [entry for key in self.how.get("ignored", ()) for entry in self._texts(key, self.table.get(key))]
        groups = self._table(self.how.get("groups", ""))
        self.groups = [
            (self._texts(f"{self.how['groups']}.{name}.targets", group.get("targets")), group)
            for name, group in groups.items()
            if self._is_table(f"{self.how['groups']}.{name}", group)
        ]
        overrides = self._table(self.how.get("overrides", ""))
        self.overrides = {
            entry: own for entry, own in overrides.items()
            if self._is_table(f"{self.how['overrides']}.{entry}", own)
        }  # fmt: skip
        self.rest = self._table(self.how.get("otherwise", ""))
        self.left = Entries(self.ignored, self.match)
        kind = "regex" if self.how.get("unlisted") == "quantised" else self.match
        off = [entry[2:] for entry in self.overrides if entry.startswith("-:")]
        self.off = Entries(off, kind)
        self.own = Entries([entry for entry in self.overrides if not entry.startswith("-:")], kind)
        self.named = [(Entries(targets, self.match), targets, group) for targets, group in self.groups]
        self.broken = "groups" in self.how and not self.groups
        if self.broken and not self.findings:
            self._say(self.how["groups"], "an object of groups", self.table.get(self.how["groups"]))
        for entry in (*self.ignored, *(e for entries, _ in self.groups for e in entries)):
            if entry.startswith("re:") and _pattern(entry[3:]) is None:
                self._say(entry, "a pattern that can be tried", entry)

    def _say(self, key: str, expected: str, seen: Any) -> None:
        shown = visible(json.dumps(seen, default=str), 60)
        subject = f"{self.witness}: {visible(key)}"
        self.findings.append(finding("CFG341", subject, expected=expected, observed=shown, where=self.label))

    def _texts(self, key: str, value: Any) -> list[str]:
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            self._say(key, "a list of texts", value)
            return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []
        return value

    def _is_table(self, key: str, value: Any) -> bool:
        if not isinstance(value, Mapping):
            self._say(key, "an object", value)
        return isinstance(value, Mapping)

    def _table(self, key: str) -> Mapping[str, Any]:
        value = self.table.get(key) if key else None
        return value if value is not None and self._is_table(key, value) else {}

    def arguments(self, module: str) -> tuple[Mapping[str, Any] | None, str]:
        """Return what is said of a module, or None and why it is not quantised."""
        entry = self.left.find(module) or self.off.find(module)
        if entry is not None:
            return None, f"ignored by {visible(entry)!r}"
        if entry := self.own.find(module):
            return self.overrides[entry], ""
        if self.groups:
            for entries, _, group in self.named:
                if entries.find(module):
                    return group, ""
            for _, targets, group in self.named:
                if any(re.fullmatch(r"[A-Z]\w*", t) for t in targets):  # a class, as Linear
                    return group, ""
            return None, "no group names it"
        if self.overrides and self.how.get("unlisted") == "plain":
            return None, f"not listed in {self.how['overrides']}"
        return self.rest, ""

    def may_be_plain(self, module: str) -> bool:
        """Tell whether a module is left as it is by the producer's tools, listed or not."""
        return any(fnmatchcase(f".{module}", glob) for glob in self.how.get("plain", ()))

    def fallback(self) -> Mapping[str, Any]:
        """Return what is said of modules in general."""
        some = [*(group for _, group in self.groups), *self.overrides.values()]
        return self.rest or (some[0] if some else self.rest)


def _lookup(own: Mapping[str, Any], table: Mapping[str, Any], witness: str) -> Lookup:
    """Return a lookup of dotted keys, in a module's own arguments first; .first and .second are of a list."""

    def at(value: Any, key: str) -> Any:
        for part in key.split("."):
            if isinstance(value, list) and part in ("first", "second"):
                value = value[("first", "second").index(part)] if len(value) == 2 else None
            else:
                value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def lookup(key: str) -> Seen:
        for one in (own, table):
            if (value := at(one, key)) is not None:
                return Known(value, f"{witness}: {key}", key)
        return Absent(f"{witness}: {key}")

    return lookup


# --- one module's arguments -----------------------------------------------------------------------------------------


class _Arguments:
    """Bind the values of one set of arguments, and choose its layout."""

    def __init__(self, scheme: Scheme, own: Mapping[str, Any], out: Declared, label: str) -> None:
        self.lookup = _lookup(own, out.table, out.witness)
        self.findings: list[Finding] = []
        self.dims = scheme.values
        self.values = Bindings(scheme.values, {"drafter": self._texts_lookup})
        self.scheme, self.label, self.witness = scheme, label, out.witness
        for name, dim in scheme.values.items():
            self._judge(name, dim)
        self.layout = None if self.findings else next((lay for lay in scheme.layouts if self._applies(lay)), None)
        for name in _names(self.layout) if self.layout else ():
            if name in self.dims and not isinstance(self.values(name), Known):
                self._lacks(self.dims[name])
        self.bad = bool(self.findings)
        self.layout = None if self.bad else self.layout

    def _texts_lookup(self, key: str) -> Seen:
        """Return what a key holds, as text where texts are asked for."""
        seen = self.lookup(key)
        told = isinstance(seen, Known) and any(key in d.texts for d in self.dims.values())
        return Known(_text(seen.value), seen.witness, key) if told and isinstance(seen, Known) else seen

    def _judge(self, name: str, dim: Dim) -> None:
        """Check type and range of a value that the table states."""
        sources = dim.sources.get("drafter", ())
        for source in sources:
            seen = self.lookup(source.name)
            if isinstance(seen, Absent):
                continue
            assert isinstance(seen, Known)
            wanted = "true or false" if dim.bool_ else "an integer"
            shown = visible(json.dumps(seen.value, default=str), 60)
            check = self.scheme.checks.get(name)
            if type(seen.value) is not (bool if dim.bool_ else int):
                self._say(source, wanted, shown)
            elif check is not None and not is_true(check, self.values, [seen.value]):
                self._say(source, re.sub(r"\bit\b", source.name, str(check)), shown)
            return

    def _lacks(self, dim: Dim) -> None:
        """Report a value that the layout needs and the table does not state."""
        source = dim.sources["drafter"][0]
        table = re.sub(r"\.(first|second)$", "", source.name)
        seen, wanted = self.lookup(table), "a list of two integers" if table != source.name else "an integer"
        shown = visible(json.dumps(seen.value, default=str), 60) if isinstance(seen, Known) else "nothing"
        subject = f"{self.witness}: {table}"
        one = finding("CFG342", subject, expected=wanted, observed=shown, where=self.label)
        self.findings += [one] if one not in self.findings else []

    def _say(self, source: Expr, expected: str, shown: str) -> None:
        subject = f"{self.witness}: {source.name}"
        self.findings.append(finding("CFG342", subject, expected=expected, observed=shown, where=self.label))

    def _applies(self, layout: Layout) -> bool:
        for key, texts in layout.when.items():
            seen = self.lookup(key)
            if not isinstance(seen, Known) or _text(seen.value) not in texts:
                return False
        if any(isinstance(self.lookup(key), Absent) for key in layout.has):
            return False
        if any(isinstance(self.lookup(key), Known) for key in layout.lacks):
            return False
        return layout.applies is None or is_true(layout.applies, self.values)

    def shown(self) -> str:
        """Return what would have chosen a layout: "format = marlin-24"."""
        keys = dict.fromkeys(key for layout in self.scheme.layouts for key in (*layout.when, *layout.has))
        seen = [f"{key} = {visible(_text(s.value), 40)}" for key in keys if isinstance(s := self.lookup(key), Known)]
        return ", ".join(seen) or f"none of {', '.join(keys)}"


def _names(layout: Layout) -> dict[str, None]:
    """Return every name that a layout's expressions use."""
    shapes = [axis for part in layout.tensors for shape in part.shapes for axis in shape]
    exprs = [*layout.logical.values(), *shapes, *layout.checks, *(p.when for p in layout.tensors if p.when)]
    return dict.fromkeys(name for expr in exprs for name in sorted(expr.names))


def _text(value: Any) -> str:
    return str(value).lower() if type(value) is bool else str(value)


# --- the logical table ----------------------------------------------------------------------------------------------


@dataclass
class Logical:
    """Hold the table in which quantised weights have their logical shapes, and what was found on the way."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    said: set[str] = field(default_factory=set)  # modules of which what is wrong has been said
    unknown: dict[str, str] = field(default_factory=dict)  # modules whose layout is not known -> why
    entry: list[str] = field(default_factory=list)  # plain weights of the fusion that nothing names as ignored
    stored: dict[str, Tensor] = field(default_factory=dict)  # logical weight -> what stands for it

    def bits(self, name: str) -> float:
        """Return how many bits of its main tensor a logical weight has for each element; 0 where it has none."""
        tensor, stored = self.tensors.get(name), self.stored.get(name)
        if tensor is None or stored is None or not math.prod(tensor.shape):
            return 0
        return BITS[stored.dtype] * math.prod(stored.shape) / math.prod(tensor.shape)


def logical(
    out: Declared, table: Table, kind: Callable[[str], str], label: str, *, looked_for_all: bool = True
) -> Logical:
    """Judge every quantised module against its scheme and put its logical weight in place of what is stored.

    ``kind`` returns the group that the family gives a weight's name, or "": it tells which plain weights should have
    been quantised. Where not all names were looked for, what is not listed is unknown, not missing.
    """
    assert out.scheme is not None
    return _Translation(out, out.scheme, table, kind, label, looked_for_all).result


class _Translation:
    def __init__(
        self, out: Declared, scheme: Scheme, table: Table, kind: Callable[[str], str], label: str, all_names: bool
    ) -> None:
        self.out, self.scheme, self.table, self.label, self.all_names = out, scheme, table, label, all_names
        self.modules = Modules(out, label)
        self.result = Logical(findings=list(self.modules.findings))
        self.arguments: dict[int, _Arguments] = {}
        plain: list[str] = []
        loud: list[tuple[str, str]] = []
        for module, parts in self._parts().items():
            own, why = self.modules.arguments(module)
            if _is_plain(parts, table):
                self._keep(parts.values())
                ((_, name),) = parts.items()
                due = own is not None and kind(name) in scheme.modules["linear"] and len(table.tensors[name].shape) > 1
                if due and not self.modules.broken and not self.modules.may_be_plain(module) and not self._bad(own):
                    plain.append(name)
                elif (
                    own is not None and kind(name) == "fusion" and scheme.modules["linear"] and not self.modules.broken
                ):
                    self.result.entry.append(name)
            elif all(suffix in scheme.beside for suffix in parts):
                continue
            elif any(fnmatchcase(f".{module}", glob) for glob in scheme.modules.get("undescribed", ())):
                self._keep(parts.values())
                self.result.unknown[module] = "its layout is not described here"
            elif self.modules.broken:
                self._keep(parts.values())
                self.result.said.add(module)
            else:
                if own is None:
                    loud.append((self._main(parts), why))
                self._quantised(module, parts, self.modules.fallback() if own is None else own)
        self._say_plain(plain)
        self._say_loud(loud)

    def _parts(self) -> dict[str, dict[str, str]]:
        """Return module -> suffix -> name on disk, and keep the tensors that belong to no module."""
        suffixes = dict.fromkeys([*self.scheme.suffixes(), ".weight"])
        ordered = sorted(suffixes, key=lambda s: -len(s))
        out: dict[str, dict[str, str]] = {}
        for name in self.table.tensors:
            suffix = next((s for s in ordered if name.endswith(s) and len(name) > len(s)), None)
            if suffix is None:
                self._keep([name])
            else:
                out.setdefault(name[: -len(suffix)], {})[suffix] = name
        return out

    def _keep(self, names: Iterable[str]) -> None:
        for name in names:
            self.result.tensors[name] = self.table.tensors[name]
            self.result.files[name] = self.table.files.get(name, "")

    def _main(self, parts: Mapping[str, str]) -> str:
        mains = [layout.main for layout in self.scheme.layouts]
        return next((parts[m] for m in mains if m in parts), next(iter(parts.values())))

    def _of(self, own: Mapping[str, Any]) -> _Arguments:
        if id(own) not in self.arguments:
            self.arguments[id(own)] = made = _Arguments(self.scheme, own, self.out, self.label)
            self.result.findings += [f for f in made.findings if f not in self.result.findings]
            if not made.bad and made.layout is None:
                subject = f"{self.out.witness}: {self.out.name}"
                expected = f"a layout of {self.scheme.title}: {', '.join(lay.id for lay in self.scheme.layouts)}"
                seen = made.shown()
                one = unknown("CFG340", subject, expected=expected, observed=seen, where=self.label)
                self.result.findings += [one] if one not in self.result.findings else []
        return self.arguments[id(own)]

    def _bad(self, own: Mapping[str, Any] | None) -> bool:
        """Tell whether a module's arguments are broken or of no known layout, which has been said."""
        return own is not None and self._of(own).layout is None

    def _say(self, code: str, name: str, expected: str, observed: str, note: str = "", **more: Any) -> None:
        where = self.table.files.get(name, "")
        where = f"{where}, {self.label}" if where and where != self.label else self.label
        make = more.pop("make", finding)
        self.result.findings.append(
            make(code, visible(name), expected=expected, observed=observed, note=note, where=where,
                 contract=self.scheme.label, **more)
        )  # fmt: skip

    def _quantised(self, module: str, parts: Mapping[str, str], own: Mapping[str, Any]) -> None:
        """Judge the parts of one module, and give it its logical weight."""
        args, beside = self._of(own), self.scheme.beside
        layout = args.layout
        if layout is None:
            self._keep(parts.values())
            self.result.said.add(module)
            return
        rules = {part.suffix: part for part in layout.tensors}
        strange = [name for suffix, name in parts.items() if suffix not in rules and suffix not in beside]
        main = parts.get(layout.main)
        name = module + layout.name
        if main is None:
            self.result.said.add(module)
            note = f"there is {listed(parts.values())}"
            self._missing(module + layout.main, rules[layout.main], f"[{', '.join(layout.axes)}]", note)
            return
        stored = self.table.tensors[main]
        if len(stored.shape) != len(layout.axes):
            self.result.said.add(module)
            self._say("TEN415", main, f"[{', '.join(layout.axes)}]", f"{list(stored.shape)}")
            return
        if rules[layout.main].dtype and stored.dtype not in rules[layout.main].dtype:
            self.result.said.add(module)
            self._say("TEN416", main, " or ".join(rules[layout.main].dtype), f"{stored.dtype} {list(stored.shape)}")
            return
        scope: dict[str, Known] = {a: Known(n, main) for a, n in zip(layout.axes, stored.shape, strict=True)}
        sizes = {axis: value_of(size, self._with(args, scope)) for axis, size in layout.logical.items()}
        if failed := next((v for v in sizes.values() if isinstance(v, Unknown)), None):
            self.result.said.add(module)
            text = ", ".join(map(str, layout.logical.values()))
            self._say("TEN419", main, f"[{text}]", failed.why, bindings=self._shown(args, layout.logical.values()))
            return
        scope |= {axis: Known(size, main) for axis, size in sizes.items()}
        lookup = self._with(args, scope)
        if layout.logical:
            self.result.tensors[name] = Tensor(LOGICAL, tuple(sizes.values()), 0, 0)
            self.result.stored[name] = stored
            self.result.files[name] = self.table.files.get(main, "")
        else:
            self.result.said.add(module)
            self._say("TEN415", main, "its logical shape", f"{stored.dtype} {list(stored.shape)}: the header does not "
                      "tell it", make=unknown)  # fmt: skip
        for check in layout.checks:
            if not is_true(check, lookup):
                self._say("TEN419", main, f"{check}: {substituted(check, lookup)}", f"{list(stored.shape)}",
                          bindings=self._shown(args, [check]))  # fmt: skip
                return
        self._others(module, parts, layout, lookup, strange)

    def _others(
        self, module: str, parts: Mapping[str, str], layout: Layout, lookup: Lookup, strange: Sequence[str]
    ) -> None:
        """Judge what must stand beside a stored weight: scales, zero points, its own shape."""
        lacking = 0
        for rule in layout.tensors:
            shown = " or ".join(f"[{', '.join(map(str, shape))}]{_numbers(shape, lookup)}" for shape in rule.shapes)
            if rule.suffix not in parts:
                due = rule.presence == "required" and (rule.when is None or is_true(rule.when, lookup))
                if due and rule.suffix != layout.main:
                    lacking += 1
                    note = f"there is {listed(strange)}" if strange else ""
                    self._missing(module + rule.suffix, rule, shown, note, rule.when)
                continue
            name = parts[rule.suffix]
            tensor = self.table.tensors[name]
            if rule.dtype and tensor.dtype not in rule.dtype:
                self._say("TEN416", name, " or ".join(rule.dtype), tensor.dtype)
            shapes = [tuple(value_of(axis, lookup) for axis in shape) for shape in rule.shapes]
            if shapes and tensor.shape not in shapes:
                failed = next((v.why for s in shapes for v in s if isinstance(v, Unknown)), "")
                self._say("TEN415", name, shown, f"{list(tensor.shape)}", failed)
        for name in strange if not lacking else ():
            self._say("TEN418", name, f"a part of the layout {layout.id}", "a part of another layout")

    def _missing(self, name: str, rule: Stored, shape: str, note: str, when: Expr | None = None) -> None:
        because = f"required because {when}" if when else ""
        note = "; ".join(part for part in (because, note) if part)
        expected = f"{' or '.join(rule.dtype)} {shape}".strip()
        if self.all_names or name in (self.table.absent or ()):
            self._say("TEN414", name, expected, "not in the checkpoint", note)
        else:
            self._say("TEN414", name, expected, "not listed, and the list is not complete", note, make=unknown)

    def _with(self, args: _Arguments, scope: Mapping[str, Known]) -> Lookup:
        return lambda name: scope[name] if name in scope else args.values(name)

    def _shown(self, args: _Arguments, exprs: Iterable[Expr]) -> tuple[str, ...]:
        names = [name for expr in exprs for name in sorted(expr.names) if name in args.values.dims]
        return args.values.table(names)

    def _say_plain(self, names: Sequence[str]) -> None:
        if not names:
            return
        own, _ = self.modules.arguments(names[0].removesuffix(".weight"))
        layout = self._of(own or {}).layout
        assert layout is not None
        first = self.table.tensors[names[0]]
        subject = names[0] if len(names) == 1 else f"{len(names)} weights"
        seen = f"{first.dtype} {list(first.shape)}" + ("" if len(names) == 1 else f" and others: {listed(names)}")
        expected = f"quantised ({self.out.name}: {listed([layout.main, *self._due(layout)])}), or named as ignored"
        self._say("TEN417", subject, expected, seen, self._packed(names, layout))

    def _packed(self, names: Sequence[str], layout: Layout) -> str:
        """Say of which shapes a loader makes room for the plain weights, where they are not the shapes stored."""
        rule = next(part for part in layout.tensors if part.suffix == layout.main)
        shapes: dict[tuple[int, ...], int] = {}
        for name in names:
            shape = self.table.tensors[name].shape
            shapes[shape] = shapes.get(shape, 0) + 1
        rows = []
        for shape in sorted(shapes, key=lambda s: -shapes[s]):
            own, _ = self.modules.arguments(names[0].removesuffix(".weight"))
            scope = {axis: Known(n, "stored") for axis, n in zip(layout.logical, shape, strict=False)}
            room = [value_of(axis, self._with(self._of(own or {}), scope)) for axis in next(iter(rule.shapes), ())]
            if room and not any(isinstance(n, Unknown) for n in room) and tuple(room) != shape:
                rows.append(f"{list(shape)} is stored, {room} expected")
        return "; ".join(rows[:4])

    def _due(self, layout: Layout) -> list[str]:
        return [p.suffix for p in layout.tensors if p.suffix != layout.main and p.presence == "required" and not p.when]

    def _say_loud(self, rows: Sequence[tuple[str, str]]) -> None:
        if not rows:
            return
        names = [name for name, _ in rows]
        first = self.table.tensors[names[0]]
        subject = names[0] if len(names) == 1 else f"{len(names)} weights"
        seen = f"{first.dtype} {list(first.shape)}" + ("" if len(names) == 1 else f" and others: {listed(names)}")
        self._say("TEN418", subject, f"a plain weight: {rows[0][1]}", seen)


def _is_plain(parts: Mapping[str, str], table: Table) -> bool:
    return len(parts) == 1 and all(table.tensors[n].dtype in FLOATS and n.endswith(".weight") for n in parts.values())


def _numbers(shape: Sequence[Expr], lookup: Lookup) -> str:
    values = [value_of(axis, lookup) for axis in shape]
    if not shape or any(isinstance(v, Unknown) for v in values) or [str(v) for v in values] == list(map(str, shape)):
        return ""
    return f" = [{', '.join(map(str, values))}]"


# --- packed, and nothing said ---------------------------------------------------------------------------------------


def undeclared(library: Library, names: Collection[str]) -> dict[str, list[str]]:
    """Return module -> names of tensors that only a quantised module has, of any known scheme."""
    suffixes = {s for _, scheme, _ in library.all("scheme") if scheme for s in scheme.suffixes()} - {".weight"}
    ordered = sorted(suffixes, key=lambda s: (-len(s), s))
    out: dict[str, list[str]] = {}
    for name in names:
        if suffix := next((s for s in ordered if name.endswith(s) and len(name) > len(s)), None):
            out.setdefault(name[: -len(suffix)], []).append(name)
    return out
