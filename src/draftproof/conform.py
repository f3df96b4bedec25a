"""Rung 1: is a checkpoint well formed for its contract? Pure functions from contract and checkpoint to findings.

Read top to bottom, in the order in which the facts are met: the types of config values, names,
rope and dtype, dims, keys, and then each tensor.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from draftproof.checkpoint import QUANTISATION_FILE, Checkpoint, Config, Table, listed
from draftproof.container import Tensor
from draftproof.contracts import Contract, Dialect, KeyRule, TensorRule
from draftproof.dims import (
    Absent,
    Bindings,
    Disagreement,
    Expr,
    ExprError,
    Known,
    Lookup,
    Seen,
    Unknown,
    evaluate,
    parse,
    read_source,
    substituted,
    value_of,
)
from draftproof.findings import Finding, finding, holds, nearest, unknown, visible
from draftproof.hub import Source, hosted
from draftproof.language import DTYPES as STORED
from draftproof.library import Library

if TYPE_CHECKING:
    from draftproof.quantised import Declared, Logical

MAX_SIZE = 2**31 - 1  # of any one dim: no model has more
DTYPES = ("bfloat16", "float16", "half", "float32", "float", "float64", "auto")  # torch_dtype as engines read it
ROPE_TYPES = (
    "default", "linear", "dynamic", "yarn", "llama3", "longrope", "su", "mrope", "ntk", "proportional", "deepseek_yarn",
)  # fmt: skip
DEFAULT_THETA = 10000.0  # the rope theta of an engine that finds none
FEW_BITS = 4  # of a packed weight
MAX_ROWS = 4096  # of a tensor rule with `for`


@dataclass
class View:
    """Hold one side as its contract sees it: dims, dialect, canonical tensors, and what rung 1 found."""

    checkpoint: Checkpoint
    contract: Contract | None = None
    dims: Bindings = field(default_factory=lambda: Bindings({}, {}))
    lookup: Lookup = field(default=lambda key: Unknown("no config"))
    dialect: Dialect | None = None
    names: Mapping[str, str] = field(default_factory=dict)  # canonical -> on disk
    unexplained: tuple[str, ...] = ()  # names on disk that no rule speaks of
    config: Config = field(default_factory=lambda: Config({}, "", broken="there is no config"))
    table: Table = field(default_factory=lambda: Table(basis="not read"))
    findings: list[Finding] = field(default_factory=list)
    layers_present: set[int] = field(default_factory=set)
    unpublished: dict[str, str] = field(default_factory=dict)  # config keys of which nothing is known -> why
    declared: Declared | None = None  # its quantisation
    logical: Logical | None = None  # what that makes of its tensors
    said: set[str] = field(default_factory=set)  # tensors of which a finding about their module has said all

    def tensor(self, canonical: str) -> Tensor | None:
        """Return a tensor by its canonical name."""
        return self.table.tensors[self.names[canonical]] if canonical in self.names else None

    def role(self, part: str) -> Tensor | None:
        """Return the tensor that plays a part: fusion, embedding, head, map, mask, norm."""
        return self.tensor(self.contract.roles.get(part, "")) if self.contract else None

    def size(self, part: str) -> Seen:
        """Return the dim that plays a part: hidden, draft_vocab, target_layers, ..."""
        name = self.contract.sizes.get(part, "") if self.contract else ""
        return self.dims(name) if name else Unknown(f"the contract has no {part}", told=True)

    @property
    def vocabulary(self) -> Known | None:
        """Return how many ids the config speaks of: its own vocabulary, or of a drafter that of its target."""
        seen = self.size("vocab" if self.checkpoint.role == "target" else "target_vocab")
        return seen if isinstance(seen, Known) else None

    def keys(self, part: str) -> tuple[str, ...]:
        """Return the config keys of a part that shapes nothing: special, eps, dtype, quantisation, verifier."""
        return tuple(self.contract.keys.get(part, ())) if self.contract else ()

    def stated(self, part: str) -> Seen:
        """Return the first of a part's keys that the config states, or is unknown; else that it is absent."""
        found: Seen = Absent(f"{self.checkpoint.role} config.json: {', '.join(self.keys(part))}")
        for key in self.keys(part):
            found = self.lookup(key)
            if not isinstance(found, Absent):
                break
        return found


class Sides(Protocol):
    """Have a drafter and a target."""

    @property
    def drafter(self) -> View: ...
    @property
    def target(self) -> View: ...


def both(c: Sides, code: str, subject: str, own: Seen, theirs: Seen) -> Iterator[Finding]:
    """Yield an unknown finding for each side of which it is not known what it says; the question ends there."""
    for view, seen in ((c.drafter, own), (c.target, theirs)):
        if isinstance(seen, Unknown) and not seen.told:
            expected, where = f"what the {view.checkpoint.role} says", view.checkpoint.source.label
            yield unknown(code, subject, expected=expected, observed=seen.why, where=where)


# --- rung 1 -------------------------------------------------------------------------------------------------------


def conform(
    contract: Contract, checkpoint: Checkpoint, *, tensors: bool = True, library: Library | None = None
) -> View:
    """Check one checkpoint against its contract; with tensors false only its config is spoken of.

    The library knows the schemes of quantised weights; without it all of them are unknown.
    """
    config = checkpoint.config.under(contract.nested)
    view = View(checkpoint, contract, config=config)
    bad = check_types(contract, view)
    view.lookup = _typed(config, bad)
    view.dims = Bindings(contract.dims, {checkpoint.role: view.lookup})
    if library is not None:
        _declaration(view, library)
    if tensors:
        view.table = _table(view)
        view.dialect, view.names, view.unexplained, found = translate(contract, view.table)
        view.findings += found
        _hear_witnesses(view)
    view.findings += [*(f for f in rope_of(view)[1] if f.level == "error"), *dtype_of(view)[1]]
    check_dims(view)
    check_architecture(view)
    check_keys(view)
    for key in view.keys("special"):
        view.findings += outside(view, f"config.json: {key}", ids_of(view.lookup(key)))
    view.findings += other_readers(view)
    if library is not None:
        view.findings += shadowed(view, library)
    if tensors:
        check_tensors(view)
        if view.logical is None and view.unexplained and library is not None:
            _undeclared(view, library)
    view.findings[:0] = checkpoint.findings
    view.lookup = _corrected(view.lookup, view.dims.believed.values())
    view.dims.sides[checkpoint.role] = view.lookup
    return view


def _wanted(contract: Contract, dims: Lookup) -> frozenset[str] | None:
    """Return the only names worth reading in an open table: those of the contract, in every dialect."""
    if not contract.open:
        return None
    names = [want.name for want in expectations(contract, dims)]
    return frozenset(d.encode(name) for d in contract.dialects for name in names)


def _enough(contract: Contract, dims: Lookup) -> Callable[[Collection[str]], bool]:
    """Return a function that tells whether some names are all that an open contract requires, in one dialect."""
    required = [want.name for want in expectations(contract, dims) if want.presence != "optional"]
    spelled = [{d.encode(name) for name in required} for d in contract.dialects]
    return lambda names: any(one <= set(names) for one in spelled)


# --- quantised weights --------------------------------------------------------------------------------------------


def _declaration(view: View, library: Library) -> None:
    """Note the quantisation that the config, or the file beside it, declares; where there may be tensors to judge."""
    if view.checkpoint.source.kind == "recording" and view.checkpoint.source.provenance != "recorded":
        return
    seen = view.stated("quantisation")
    if isinstance(seen, Known) or QUANTISATION_FILE in view.checkpoint.source.files:
        from draftproof.quantised import declared  # noqa: PLC0415 (rare)

        view.declared = declared(library, view.checkpoint, seen)
        view.findings += view.declared.findings if view.declared else []


def _table(view: View) -> Table:
    """Return the tensor table; where weights are quantised in a known scheme, with their logical names and shapes."""
    contract, checkpoint = _contract(view), view.checkpoint
    dims = Bindings(contract.dims, view.dims.sides)
    wanted, enough = _wanted(contract, dims), _enough(contract, dims) if contract.open else None
    named = [d.encode(name) for name in last_layers(view).values() for d in contract.dialects]
    if view.declared is None or view.declared.scheme is None:
        return checkpoint.table(wanted, named, enough)
    from draftproof.quantised import companions, logical  # noqa: PLC0415 (rare)

    if wanted is not None:
        wanted |= companions(view.declared.scheme, wanted)
    table = checkpoint.table(wanted, named, enough)
    if not table.read:
        return table

    def group(disk: str) -> str:
        named = (rule.group for d in contract.dialects for rule, _ in contract.rules_for(d.decode(disk) or ""))
        return next(named, "")

    all_names = table.complete or looked_for_all(view)
    view.logical = logical(view.declared, table, group, checkpoint.source.label, looked_for_all=all_names)
    view.findings += view.logical.findings
    count = table.count if table.count is not None or not table.complete else len(table.tensors)
    return replace(table, tensors=view.logical.tensors, files=view.logical.files, count=count)


def _undeclared(view: View, library: Library) -> None:
    """Say once that packed weights stand in the file and no config declares them, instead of a finding for each."""
    from draftproof.quantised import undeclared  # noqa: PLC0415 (rare)

    if view.declared is not None or isinstance(view.stated("quantisation"), Unknown):
        return
    modules = undeclared(library, view.unexplained)
    if modules:
        names = [name for rows in modules.values() for name in rows]
        first = view.table.tensors[names[0]]
        more = "" if len(names) == 1 else f" and others: {listed(names)}"
        view.said |= {f.subject for f in view.findings if f.code in _QUANTISED and _among(f.subject, modules)}
        view.findings = [f for f in view.findings if f.code not in _QUANTISED or f.subject not in view.said]
        view.findings.append(
            finding("TEN418", names[0] if len(names) == 1 else f"{len(names)} tensors",
                    expected="plain weights, or a quantization_config that declares how they are stored",
                    observed=f"{first.dtype} {list(first.shape)}{more}", where=_where(view, names[0]))
        )  # fmt: skip


# --- config values ------------------------------------------------------------------------------------------------

_JSON_NAMES = {str: "text", int: "an integer", float: "a float", bool: "a boolean", list: "a list", dict: "an object"}
_ACCEPTS: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "dtype": (str,),
    "list": (list,),
    "ints": (list,),
    "texts": (list,),
    "ids": (int, list),
    "object": (dict,),
}
_WANTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "dtype": "a dtype: bfloat16, float16, float32",
    "list": "a list",
    "ints": "a list of integers",
    "texts": "a list of texts",
    "ids": "an integer or a list of integers",
    "object": "an object",
}
_PARTS = {
    "special": "ids",
    "mask": "int",
    "eps": "float",
    "dtype": "dtype",
    "quantisation": "object",
    "verifier": "str",
}
_ROPE_NUMBERS = (  # of a rope table, as transformers 4 and 5 write it: numbers above 0
    "theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "beta_fast",
    "beta_slow", "attention_factor", "partial_rotary_factor",
)  # fmt: skip
_ROPE_PARTS = {"theta": "float", "tables": "object", "partial": "float", "interleaved": "bool"}


def _wanted_types(contract: Contract, role: str) -> dict[str, tuple[str, str, int | None]]:
    """Return config key -> JSON type, line of the rule, and the least value of a size; a rule's own type wins."""
    wanted: dict[str, tuple[str, str, int | None]] = {}
    for part, kind in _PARTS.items():
        wanted.update((key, (kind, "", None)) for key in contract.keys.get(part, ()))
    for part, kind in _ROPE_PARTS.items():
        wanted.update((key, (kind, "", None)) for key in contract.keys.get("rope", {}).get(part, ()))
    for dim in contract.dims.values():
        for source in dim.sources.get(role, ()):
            for key in source.names:
                kind = "ints" if not source.name else "bool" if dim.bool_ else "int"
                wanted[key] = (kind, dim.line, dim.least if kind == "int" else None)
    for rule in contract.config.values():
        if rule.type:
            wanted[rule.key] = (rule.type, rule.line, wanted.get(rule.key, ("", "", None))[2])
    for key in list(wanted):  # a table on the way to a key must be a table
        for n in range(1, key.count(".") + 1):
            wanted.setdefault(".".join(key.split(".")[:n]), ("object", "", None))
    return wanted


def check_types(contract: Contract, view: View) -> set[str]:
    """Check the JSON type and range of every config key that the contract reads; returns the keys that are bad."""
    if not view.config.data:  # as of many recordings
        return set()
    checkpoint, out = view.checkpoint, view.findings
    said = {(f.code, f.subject) for f in checkpoint.findings}
    bad: set[str] = set()
    wanted = _wanted_types(contract, checkpoint.role)
    for key, (kind, line, least) in wanted.items():
        spellings = view.config.spellings(key)
        for seen in spellings:
            for code, path, expected, note in _type_problems(seen.value, kind, least):
                bad.add(key)
                subject = f"config.json: {seen.key}{path}"
                if (code, subject) in said:
                    continue
                value = seen.value[int(path[1:-1])] if path else seen.value
                shown = f"{visible(json.dumps(value, default=str), 60)} ({_json_name(value)})"
                out.append(
                    finding(
                        code, subject, expected=expected, observed=shown, note=note, contract=line,
                        where=checkpoint.source.label,
                    )
                )  # fmt: skip
        if len(spellings) < 2 or kind == "object":
            continue
        if len({json.dumps(s.value, sort_keys=True, default=str) for s in spellings}) > 1:
            shown = " against ".join(f"{s.key} = {visible(s.value, 60)}" for s in spellings)
            label = checkpoint.source.label
            out.append(finding("CFG309", f"config.json: {key}", expected="one value", observed=shown, where=label))
    return bad | {key for key in wanted if any(key.startswith(f"{b}.") for b in bad)}


def _json_name(value: Any) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _type_problems(value: Any, kind: str, least: int | None) -> Iterator[tuple[str, str, str, str]]:
    """Yield code, index, expectation and note of what is wrong with one value."""
    if isinstance(value, float) and not math.isfinite(value):
        yield "CFG306", "", _WANTED[kind], ""
    elif type(value) not in _ACCEPTS[kind]:
        note = ""
        if kind == "int" and isinstance(value, str) and value.strip().isdigit():
            note = f"write {value.strip()}"
        elif kind == "int" and isinstance(value, float) and value.is_integer():
            note = f"write {int(value)}"
        yield "CFG304", "", _WANTED[kind], note
    elif kind == "str" and not value.strip():
        yield "CFG305", "", "text that is not empty", ""
    elif kind == "dtype" and value.removeprefix("torch.") not in DTYPES:
        yield "CFG304", "", _WANTED[kind], ""
    elif least is not None and not least <= value <= MAX_SIZE:
        yield "CFG305", "", f"{least} to {MAX_SIZE}", ""
    elif kind == "float" and not -1e100 < value < 1e100:
        yield "CFG305", "", "a number that is not astronomic", ""
    elif kind in ("ints", "ids", "texts") and isinstance(value, list):
        item_type, item_name = (str, "text") if kind == "texts" else (int, "an integer")
        if not value:
            yield "CFG305", "", "at least one item", ""
        for n, item in enumerate(value[:1000]):
            if type(item) is not item_type:
                yield "CFG304", f"[{n}]", item_name, ""
            elif isinstance(item, int) and abs(item) > MAX_SIZE:
                yield "CFG305", f"[{n}]", f"-{MAX_SIZE} to {MAX_SIZE}", ""


def _typed(config: Callable[[str], Seen], bad: set[str]) -> Lookup:
    """Return the config's lookup in which an ill-typed value is unknown, because a finding says so already."""

    def lookup(key: str) -> Seen:
        return Unknown(f"{key} has the wrong type", told=True) if key in bad else config(key)

    return lookup


def ids_of(seen: Seen) -> set[int]:
    """Return the token ids that a config value names: one, or a list."""
    value = seen.value if isinstance(seen, Known) else None
    return {i for i in (value if isinstance(value, list) else [value]) if type(i) is int}


def outside(view: View, subject: str, ids: set[int]) -> Iterator[Finding]:
    """Hold special ids to the vocabulary of their own side; -1 is the old way to say none."""
    size = view.vocabulary
    out = sorted(i for i in ids - {-1} if size is not None and not 0 <= i < size.value)
    if out and size is not None:
        yield finding("CFG331", subject, expected=f"0 to {size.value - 1} ({size.witness})",
                      observed=", ".join(map(str, out)), where=view.checkpoint.source.label)  # fmt: skip


# --- rope and dtype ------------------------------------------------------------------------------------------------


def rope_of(view: View) -> tuple[dict[str, Known], list[Finding]]:
    """Return a side's rope in one spelling (theta, type, factor, …, partial_rotary_factor), and contradictions.

    theta stands at the top level or in rope_parameters; scaling in rope_scaling or rope_parameters, its type under
    rope_type or type; the partial factor in any of them (transformers 4 and 5 spellings). Type default is no scaling.
    """
    out: dict[str, Known] = {}
    found: list[Finding] = []
    keys: Mapping[str, Sequence[str]] = view.contract.keys.get("rope", {}) if view.contract else {}
    names = {"theta": "theta", "partial": "partial_rotary_factor", "interleaved": "interleaved"}
    rename = {key: name for part, name in names.items() for key in keys.get(part, ())} | {"rope_type": "type"}
    where = view.checkpoint.source.label

    def put(name: str, value: Any, witness: str, *, inner: bool = False) -> None:
        value = tuple(value) if isinstance(value, list) else value
        if value is None or (name == "type" and value == "default"):
            return
        wrong = _rope_problem(name, value) if inner else None
        shown = f"{visible(value)} ({witness})"
        if isinstance(value, dict):
            seen = f"{witness} is a table: rope differs by layer"
            found.append(unknown("PAIR411", f"rope {name}", expected="one rope", observed=seen, where=where))
        elif wrong:
            shown = f"{visible(json.dumps(value, default=str), 60)} ({_json_name(value)}, {witness})"
            found.append(finding(wrong[0], f"rope {name}", expected=wrong[1], observed=shown, where=where))
            return
        elif name in out and out[name].value != value:
            expected = f"{visible(out[name].value)} ({out[name].witness})"
            found.append(finding("CFG309", f"rope {name}", expected=expected, observed=shown, where=where))
        out.setdefault(name, Known(value, witness))

    for part, name in names.items():
        for key in keys.get(part, ()):
            if isinstance(seen := view.lookup(key), Known):
                put(name, seen.value, seen.witness)
    for key in keys.get("tables", ()):
        if isinstance(table := view.lookup(key), Known):
            for inner, value in table.value.items():
                put(rename.get(str(inner), str(inner)), value, f"{table.witness}.{inner}", inner=True)
    found += _scaling(view, out.get("type"), "factor" in out or any(f.level == "error" for f in found))
    if view.contract is not None and "interleaved" in view.contract.rope:
        out.setdefault("interleaved", Known(view.contract.rope["interleaved"], f"contract {view.contract.id}"))
    return out, list(dict.fromkeys(found))


def _scaling(view: View, kind: Known | None, factor: bool) -> Iterator[Finding]:
    """Report a type of rope scaling that is spelt wrongly, and one whose factor is not there."""
    if kind is None or not isinstance(kind.value, str):
        return
    where = view.checkpoint.source.label
    if kind.value in _SCALED and not factor:
        key = kind.witness.removeprefix(f"{view.checkpoint.role} config.json: ").rpartition(".")[0]
        expected = f"a number, for {kind.value} ({kind.witness})"
        yield finding("CFG312", f"config.json: {key}.factor", expected=expected, observed="nothing", where=where)
    if kind.value not in ROPE_TYPES and (near := nearest(kind.value, ROPE_TYPES, 0.75)):  # else newer than the list
        seen = f"{visible(kind.value)!r} ({kind.witness}){near}"
        yield finding("CFG307", "rope type", expected="a type that engines know", observed=seen, where=where)


def rope_unknown(view: View, *parts: str) -> Unknown | None:
    """Return why a part of a side's rope is not known, or None: a key that was not published may hold anything."""
    keys: Mapping[str, Sequence[str]] = view.contract.keys.get("rope", {}) if view.contract else {}
    seen = [view.lookup(key) for part in parts for key in keys.get(part, ())]
    return next((s for s in seen if isinstance(s, Unknown)), None)


_SCALED = ("linear", "yarn")  # rope types that no engine reads without their factor


def _rope_problem(name: str, value: Any) -> tuple[str, str] | None:
    """Return code and expectation of a bad value inside a rope table; keys of the top level have rules of their own."""
    if name == "type":
        return None if isinstance(value, str) else ("CFG304", "text")
    if name == "interleaved":
        return None if isinstance(value, bool) else ("CFG304", "true or false")
    if name in _ROPE_NUMBERS and type(value) not in (int, float):
        return "CFG304", "a number"
    if name in _ROPE_NUMBERS and not 0 < value < 1e100:
        return "CFG305", "a number above 0"
    return None


_STORED = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def dtype_of(view: View) -> tuple[Seen, list[Finding]]:
    """Return a side's dtype, as declared, else as stored; and contradictions between the two, or among keys."""
    stated = [(key, view.lookup(key)) for key in view.keys("dtype")]
    declared = {key: seen.value.removeprefix("torch.") for key, seen in stated if isinstance(seen, Known)}
    stored: dict[str, int] = {}
    if view.table.read and view.declared is None and not isinstance(view.stated("quantisation"), Known):
        odd = set(view.unexplained)  # of what is no tensor of its own the config says nothing
        for name, tensor in view.table.tensors.items():
            if name not in odd and tensor.dtype in _STORED and len(tensor.shape) > 1:  # norms and buffers may be wider
                stored[_STORED[tensor.dtype]] = stored.get(_STORED[tensor.dtype], 0) + 1
    where, found = view.checkpoint.source.label, []
    if len(set(declared.values())) > 1:
        seen = " and ".join(f"{k} = {visible(v)}" for k, v in declared.items())
        found.append(finding("CFG309", "config.json: dtype", expected="one dtype", observed=seen, where=where))
    first = next(iter(declared.values()), "")
    if first and stored and set(stored) != {first}:
        held = ", ".join(f"{n} tensors {name}" for name, n in sorted(stored.items()))
        found.append(
            finding("CFG309", "config.json: dtype", "declared dtype is not the stored one", level="warning",
                    expected=visible(first), observed=held, where=where)
        )  # fmt: skip
    unread = next((seen for _, seen in stated if isinstance(seen, Unknown)), None)
    if unread is not None:  # another key may say another thing
        return unread, found
    if first:
        return Known(first, f"{view.checkpoint.role} config.json: {next(iter(declared))}"), found
    if stored:
        return Known(max(stored, key=lambda d: stored[d]), "as stored"), found
    return Absent("no dtype is declared"), found


# --- names --------------------------------------------------------------------------------------------------------


def translate(
    contract: Contract, table: Table
) -> tuple[Dialect | None, dict[str, str], tuple[str, ...], list[Finding]]:
    """Find the one dialect that explains every tensor; returns it, canonical -> on disk, the unexplained, findings."""
    names = list(table.tensors)
    if not names:
        return None, {}, (), []
    explains: dict[str, dict[str, str]] = {}  # dialect -> disk -> canonical
    dialects = [d for d in contract.dialects if d.format == table.format] or list(contract.dialects)
    last = dialects[-1]
    for dialect in dialects:
        decoded = ((disk, dialect.decode(disk)) for disk in names)
        explains[dialect.name] = {d: c for d, c in decoded if c is not None and next(contract.rules_for(c), None)}
        if dialect is last and not contract.open and 2 * max(map(len, explains.values())) < len(names):
            dialects += _wrapped(contract, names)  # the loop goes on over them
    best = max(dialects, key=lambda d: len(explains[d.name]))
    out: list[Finding] = []
    canonical: dict[str, str] = {}
    chosen = dict(explains[best.name])
    others: dict[str, list[str]] = {}
    for disk in names:
        if disk not in chosen:
            for dialect in dialects:
                if disk in explains[dialect.name]:
                    chosen[disk] = explains[dialect.name][disk]
                    others.setdefault(dialect.name, []).append(disk)
                    break
    if others:
        own = [d for d in names if d in explains[best.name] and not all(d in explains[o] for o in others)]
        parts = [f"{best.name}: {listed(own)}", *(f"{name}: {listed(rows)}" for name, rows in others.items())]
        out.append(
            finding(
                "TEN407",
                "names",
                expected="one dialect for all tensors",
                observed="; ".join(parts),
                contract=contract.label,
                where=_file(table, names[0]),
            )
        )
    for disk, name in chosen.items():
        if name in canonical:
            seen = f"{visible(canonical[name])} and {visible(disk)}"
            out.append(finding("TEN411", name, expected="one tensor", observed=seen, where=_file(table, disk)))
        canonical.setdefault(name, disk)
    if best.flag and explains[best.name]:
        seen = listed(explains[best.name])
        out.append(
            finding(
                best.flag,
                "names",
                expected="names of a serving checkpoint",
                observed=seen,
                where=_file(table, names[0]),
            )
        )
    return best, canonical, () if contract.open else tuple(d for d in names if d not in chosen), out


def _wrapped(contract: Contract, names: Sequence[str]) -> Iterator[Dialect]:
    """Yield the contract's dialects below a prefix that most names share, as a wrapper module leaves it."""
    parts = names[0].split(".")[:-1]
    for n in range(1, len(parts) + 1):
        prefix = ".".join(parts[:n]) + "."
        if 5 * sum(name.startswith(prefix) for name in names) >= 4 * len(names):
            for own in (d for d in contract.dialects if not d.format):
                rename = {prefix + old: new for old, new in own.rename.items()} | {prefix: ""}
                yield Dialect(f"{prefix}* {own.name}", rename, flag="TEN406")


def _file(table: Table, disk: str) -> str:
    return table.files.get(disk, "")


class _Heard(NamedTuple):
    """Hold a tensor that a rule speaks of: what its axes say of the dims."""

    rule: TensorRule
    at: Mapping[str, int]
    disk: str
    shape: tuple[int, ...]

    @property
    def witness(self) -> str:
        return f"tensor {visible(self.disk)} {list(self.shape)}"

    def wrong(self, dims: Lookup) -> list[tuple[Expr, int]]:
        """Return the axes, with their sizes, that are not what the dims make of them."""
        at, axes = _with(dims, self.at), zip(self.rule.shape, self.shape, strict=True)
        return [
            (axis, size)
            for axis, size in axes
            if not isinstance(value := value_of(axis, at), Unknown) and value != size
        ]


def _hear_witnesses(view: View) -> None:
    """Let tensors that were read witness dims: what stands on their axes, and how many there are of a row.

    They bind a dim that no config states. Where two or more agree with each other and not with the config, the config
    is what is wrong: that is one finding, and the tensors are believed from then on.
    """
    contract, heard = _contract(view), list[_Heard]()
    if not view.table.read:
        return
    for name, disk in view.names.items():
        for rule, index in contract.rules_for(name):
            starts = ((loop.name, value_of(loop.first, lambda _: Unknown("not bound yet"))) for loop in rule.over)
            if any(isinstance(start, int) and index[i] < start for i, start in starts):
                continue  # the row begins later: this name is another rule's
            shape = view.table.tensors[disk].shape
            if len(shape) == len(rule.shape):
                heard.append(_Heard(rule, index, disk, shape))
    alone = dict[str, list[Known]]()
    for row in heard:
        for axis, size in zip(row.rule.shape, row.shape, strict=True):
            if axis.name:
                alone.setdefault(axis.name, []).append(Known(size, row.witness))
    counts = _counted(view, heard) if view.table.complete else {}
    view.dims = Bindings(view.dims.dims, view.dims.sides, counts | {name: _most(rows) for name, rows in alone.items()})
    for name, rows in alone.items():
        if len(rows) > 1 and len({row.value for row in rows}) == 1:
            _hold_to_config(view, name, rows[0], len(rows) - 1)
    _solve(view, heard)
    _blame(view, heard, counts)


def _most(rows: Sequence[Known]) -> Known:
    """Return the first of those that most agree with."""
    values = [row.value for row in rows]
    return max(rows, key=lambda row: values.count(row.value))


def _counted(view: View, heard: Sequence[_Heard]) -> dict[str, Known]:
    """Return how many of a row the file has, by the dim that its loop stops at, where they stand without a gap."""
    present = dict[str, dict[int, str]]()
    for row in heard:
        for loop in row.rule.over:
            if loop.stop.name and loop.step == 1 and value_of(loop.first, view.dims) == 0:
                present.setdefault(loop.stop.name, {}).setdefault(row.at[loop.name], row.disk)
    return {
        name: Known(len(at), f"tensor {visible(at[len(at) - 1])}, the last of its row")
        for name, at in present.items()
        if max(at) == len(at) - 1
    }


def _solve(view: View, heard: Sequence[_Heard]) -> None:
    """Bind from the tensors a dim that is never alone on an axis, where all else on the axis is known."""
    found = dict[str, list[Known]]()
    for row in heard:
        at = _with(view.dims, row.at)
        for axis, size in zip(row.rule.shape, row.shape, strict=True):
            open_ = [name for name in axis.names if not isinstance(at(name), Known)]
            if len(open_) == 1 and not axis.name and (value := _solution(axis, open_[0], size, at)) is not None:
                found.setdefault(open_[0], []).append(Known(value, row.witness))
    if found:
        more = {name: _most(rows) for name, rows in found.items()} | dict(view.dims.extra)
        view.dims = Bindings(view.dims.dims, view.dims.sides, more, view.dims.believed)


def _solution(axis: Expr, name: str, size: int, dims: Lookup) -> int | None:
    """Return the only positive value of a dim that gives an axis its size, or None."""
    at = [value_of(axis, _with(dims, {name: v})) for v in (0, 1)]
    if not all(isinstance(v, int) for v in at) or at[0] == at[1] or (size - at[0]) % (at[1] - at[0]):
        return None
    value: int = (size - at[0]) // (at[1] - at[0])
    return value if value > 0 and value_of(axis, _with(dims, {name: value})) == size else None


def _blame(view: View, heard: Sequence[_Heard], counts: Mapping[str, Known]) -> None:
    """Say once what two or more tensors of a wrong shape, or whole rows too few, agree on: the dim that is wrong."""

    layers = _contract(view).sizes.get("layers", "")
    for name, count in counts.items():
        stated = view.dims(name)
        if name != layers and isinstance(stated, Known) and stated.value != count.value:
            rows = [row for row in heard if any(loop.stop.name == name for loop in row.rule.over)]
            if _fits(view, heard, name, count.value) and not any(row.wrong(view.dims) for row in rows):
                _hold_to_config(view, name, count)
    tried = set[str]()
    while wrong := [
        (row, axes)
        for row in heard
        if view.table.tensors[row.disk].dtype in row.rule.dtype and (axes := row.wrong(view.dims))
    ]:
        best: tuple[int, str, int] = (1, "", 0)
        rivals = 0
        for name in sorted({n for _, axes in wrong for axis, _ in axes for n in axis.names} - tried):
            own = [(row, axis, size) for row, axes in wrong for axis, size in axes if name in axis.names]
            values = {_solution(axis, name, size, _with(view.dims, row.at)) for row, axis, size in own}
            value = values.pop()
            if values or value is None or not _fits(view, heard, name, value):
                continue
            rivals = rivals + 1 if len(own) == best[0] else 0
            best = max(best, (len(own), name, value))
        _, name, value = best
        if not name or rivals:
            return
        rows = [row for row, axes in wrong if any(name in axis.names for axis, _ in axes)]
        rows.sort(key=lambda row: (-math.prod(row.shape), row.disk))
        _hold_to_config(view, name, Known(value, rows[0].witness), len(rows) - 1, rows)
        tried.add(name)


def _fits(view: View, heard: Sequence[_Heard], name: str, value: int) -> bool:
    """Tell whether every tensor whose shape takes up a dim has its own shape where the dim is another."""
    believed = {**view.dims.believed, name: Known(value, "tried")}
    dims = Bindings(view.dims.dims, view.dims.sides, view.dims.extra, believed)
    return not any(row.wrong(dims) for row in heard if any(name in axis.names for axis in row.rule.shape))


def _hold_to_config(view: View, name: str, seen: Known, others: int = 0, rows: Sequence[_Heard] = ()) -> None:
    """Report a dim of which the config says another thing than the tensors, and believe these.

    Tensors of which none says it alone are wrong by their shape: that is said of the first, for all of them.
    """
    contract, side = _contract(view), view.checkpoint.role
    dim = contract.dims.get(name)
    if dim is None or (side not in dim.sources and dim.default is None) or name in view.dims.believed:
        return
    stated = view.dims.stated(name, side)
    if isinstance(stated, Absent) and dim.default is not None:
        stated = view.dims(name)
    if not isinstance(stated, Known) or stated.value == seen.value:
        return
    own = [str(source) for source in dim.sources.get(side, ())]
    first = bool(own) and f".{stated.key}".endswith(f".{own[0]}")  # the key is this dim's before it is another's
    shared = not first and any(
        str(s) in own for d in contract.dims.values() if d is not dim for s in d.sources.get(side, ())
    )
    key = next((source.name for source in dim.sources.get(side, ()) if source.name), "")
    key = stated.key if stated.key and not shared else key
    remedy = f"State {key} as {seen.value}, or export the tensors again from a model of {stated.value}."
    more: dict[str, Any] = {"help": remedy} if key else {}
    if rows:
        lead = rows[0]
        at, axes = _with(view.dims, lead.at), lead.rule.shape
        hint = next(_matches_if(axis, size, at, name) for axis, size in lead.wrong(view.dims) if name in axis.names)
        note = f"{hint}; so would {others} more: {listed(row.disk for row in rows[1:])}"
        more |= {
            "expected": f"[{', '.join(map(str, axes))}]{_value_list(axes, at)}",
            "bindings": _bound(view.dims, axes),
        }
        where = _where(view, lead.disk)
        view.findings.append(
            finding("TEN403", visible(lead.disk), observed=str(list(lead.shape)), note=note, where=where,
                    contract=lead.rule.line, **more)
        )  # fmt: skip
    else:
        tail = f" and {others} more" if others else ""
        clash = disagreement(Disagreement(dim, stated, Known(seen.value, seen.witness + tail)))
        view.findings.append(replace(clash, **more))
    truth = Known(seen.value, seen.witness, "" if shared else stated.key)
    view.dims = Bindings(view.dims.dims, view.dims.sides, view.dims.extra, {**view.dims.believed, name: truth})


def _corrected(lookup: Lookup, believed: Iterable[Known]) -> Lookup:
    """Return a lookup of config keys that says of some what was believed instead, for what is asked of a pair."""
    truths = {truth.key: truth for truth in believed if truth.key}

    def look(name: str) -> Seen:
        seen = lookup(name)
        return truths.get(seen.key, seen) if isinstance(seen, Known) else seen

    return look if truths else lookup


# --- dims ---------------------------------------------------------------------------------------------------------


def check_dims(view: View) -> None:
    """Report dims whose sources disagree, that nothing states, or that are not known."""
    contract, role = _contract(view), view.checkpoint.role
    for name, dim in contract.dims.items():
        if role not in dim.sources:
            continue
        seen = view.dims(name)
        if dim.optional and isinstance(view.dims.stated(name, role), Absent):
            continue
        keys = ", ".join(map(str, dim.sources[role]))
        from_tensors = isinstance(seen, Known) and seen is view.dims.extra.get(name)
        if isinstance(seen, Absent) or (from_tensors and isinstance(view.dims.stated(name, role), Absent)):
            note = f"the tensors say {seen.value} ({seen.witness})" if isinstance(seen, Known) else ""
            view.findings.append(
                finding("CFG312", f"config.json: {keys}", expected=f"{name}, stated by {keys}", observed="nothing",
                        note=note, contract=dim.line, where=view.checkpoint.source.label)
            )  # fmt: skip
        elif isinstance(seen, Known):
            view.findings.append(holds("DIM402", name, f"{name} = {seen.value}", observed=seen.witness))
        for source in dim.sources[role]:  # a key that was not published may say another thing
            one = read_source(source, view.lookup)
            if isinstance(one, Unknown) and not one.told:
                view.unpublished.setdefault(str(source), one.why)
            if dim.first and not isinstance(one, Absent):
                break
    for clash in view.dims.disagreements:
        view.findings.append(disagreement(clash))


def disagreement(clash: Disagreement) -> Finding:
    """Make the finding for two sources that state different values for one dim."""
    return finding(
        clash.dim.differs if clash.dim.differs.startswith("DIM") else "DIM401",
        clash.dim.name,
        expected=f"{clash.first.value} ({clash.first.witness})",
        observed=f"{clash.second.value} ({clash.second.witness})",
        contract=clash.dim.line,
    )


# --- keys ---------------------------------------------------------------------------------------------------------


def check_architecture(view: View) -> None:
    """Hold the drafter's architecture to those of its family: engines choose its class by it."""
    contract = _contract(view)
    known = (*contract.detect.get("any_architecture", ()), *contract.detect.get("plain_architecture", ()))
    seen = view.lookup("architectures")
    if contract.open or not known or not isinstance(seen, Known):
        return
    odd = [a for a in seen.value if a not in known]
    if odd:
        view.findings.append(
            finding("CFG315", "config.json: architectures", expected=f"one of {listed(known, 20)}",
                    observed=listed(a or '""' for a in odd) + nearest(odd[0], known),
                    where=view.checkpoint.source.label)
        )  # fmt: skip
    else:
        view.findings.append(holds("CFG315", "config.json: architectures", listed(seen.value)))


def _not_published(view: View) -> None:
    source, keys = view.checkpoint.source, dict.fromkeys(k for row in view.unpublished for k in row.split(", "))
    view.findings.append(
        unknown(
            "CFG313",
            "config.json",
            expected=f"a value or its absence for {listed(keys, 20)}",
            observed=f"not published; {source.origin}".rstrip("; "),
            where=source.label,
            help=_how_to_record(view.checkpoint.source, "config"),
        )
    )


def check_keys(view: View) -> None:
    """Apply the contract's rules about single config keys."""
    contract = _contract(view)
    of_dims = {str(source) for dim in contract.dims.values() for source in dim.sources.get(view.checkpoint.role, ())}
    for rule in contract.config.values():
        applies = _holds(rule.when, view.dims)
        if applies is False:
            continue
        seen = view.lookup(rule.key)
        if isinstance(applies, Unknown):
            if not applies.told:
                parts = {"contract": rule.line, "where": view.checkpoint.source.label}
                shown = f"the rule where {rule.when}"
                view.findings.append(
                    unknown(rule.code, f"config.json: {rule.key}", expected=shown, observed=applies.why, **parts)
                )
        elif isinstance(seen, Absent):
            if rule.required and rule.key not in of_dims:
                view.findings.append(
                    finding("CFG312", f"config.json: {rule.key}", expected=f"a value: {rule.because}".rstrip(": "),
                            observed="nothing", contract=rule.line, where=view.checkpoint.source.label)
                )  # fmt: skip
        elif isinstance(seen, Unknown):
            if not seen.told:
                view.unpublished.setdefault(rule.key, seen.why)
        else:
            view.findings += _check_key(view, rule, seen)
    if view.unpublished:
        _not_published(view)
    _whole_table(view)


def _whole_table(view: View) -> None:
    """Say once, of keys that are missing because the table that holds them is, that the table is missing."""
    contract = _contract(view)
    bare = [f for f in view.findings if f.code == "CFG312"]
    if (
        not contract.nested
        or len(bare) < 2
        or any(isinstance(view.checkpoint.config.data.get(name), Mapping) for name in contract.nested)
    ):
        return
    table = next((name for name in contract.nested if any(f.subject.endswith(f" {name}") for f in bare)), "")
    table = table or contract.nested[0]
    keys = sorted(f.subject.removeprefix("config.json: ").partition(", ")[0] for f in bare)
    first = next(n for n, f in enumerate(view.findings) if f.code == "CFG312")
    one = finding("CFG312", f"config.json: {table}", "config table is missing, and its keys stand nowhere else",
                  expected=f"a table with {listed((k for k in keys if k != table), 12)}", observed="nothing",
                  contract=contract.label, where=view.checkpoint.source.label)  # fmt: skip
    view.findings[:] = [*view.findings[:first], one, *(f for f in view.findings[first:] if f.code != "CFG312")]


def _check_key(view: View, rule: KeyRule, seen: Known) -> Iterator[Finding]:
    subject = f"config.json: {rule.key}"
    shown = visible(json.dumps(seen.value, default=str), 80)
    parts: dict[str, Any] = {"contract": rule.line, "where": view.checkpoint.source.label}
    items = seen.value if isinstance(seen.value, list) else [seen.value]
    if rule.one_of and not all(item in rule.one_of for item in items):
        yield finding(
            rule.code,
            subject,
            level=rule.severity,
            expected=f"one of {', '.join(rule.one_of)}",
            observed=shown + nearest(str(seen.value), rule.one_of),
            note=rule.because,
            **parts,
        )
    if rule.check is None:
        return
    try:
        result = evaluate(rule.check, view.dims, items)
    except ExprError as error:
        yield finding("DIM404", subject, expected=str(rule.check), observed=str(error), **parts)
        return
    bindings = view.dims.table(view.dims.needed([rule.check]))
    if isinstance(result, Unknown):
        if not result.told and rule.severity != "info":  # what cannot fail need not be known
            yield unknown(rule.code, subject, expected=str(rule.check), observed=result.why, **parts)
    elif result:
        yield holds(rule.code, subject, f"{rule.key} = {shown}", expected=str(rule.check))
    else:
        yield finding(
            rule.code,
            subject,
            level=rule.severity,
            expected=re.sub(r"\bit\b", rule.key, str(rule.check)) + _asked(rule.check, view.dims),
            observed=shown,
            bindings=bindings,
            note=rule.because,
            **parts,
        )


def _asked(check: Expr, dims: Lookup) -> str:
    """Return " = 32 * 128 = 4096" for a check that compares the value with what has to be computed."""
    tree = check.tree
    if not (isinstance(tree, ast.Compare) and isinstance(tree.left, ast.Name) and len(tree.comparators) == 1):
        return ""
    other = parse(ast.unparse(tree.comparators[0]))
    return (
        ""
        if tree.left.id != "it" or "it" in other.names
        else _value_list([other], dims).replace("[", "").replace("]", "")
    )


# --- what readers of other habits make of a config ----------------------------------------------------------------


def other_readers(view: View) -> Iterator[Finding]:
    """Say where a drafter's config is right, and a reader that looks elsewhere, or not at all, takes a default."""
    if _contract(view).open or view.config.broken:
        return
    for question in (nested_theta, flags_against_default, nested_sizes, null_settings):
        yield from question(view)


def nested_theta(view: View) -> Iterator[Finding]:
    """Say where theta stands in a rope table alone, and is not the value that engines take where they find none."""
    keys: Sequence[str] = _contract(view).keys.get("rope", {}).get("theta", ())
    theta = rope_of(view)[0].get("theta")
    if theta is None or type(theta.value) not in (int, float) or theta.value == DEFAULT_THETA:
        return
    if keys and all(isinstance(view.lookup(key), Absent) for key in keys):
        subject = theta.witness.partition(": ")[2]
        seen = f"{theta.value} there alone: readers of {keys[0]} take {DEFAULT_THETA:.0f}"
        yield finding("CFG321", f"config.json: {subject}", expected=f"{keys[0]} beside it", observed=seen,
                      where=view.checkpoint.source.label)  # fmt: skip


def flags_against_default(view: View) -> Iterator[Finding]:
    """Say which neutral tensors (biases, norms) are not there because a flag departs from its default."""
    contract, role = _contract(view), view.checkpoint.role
    for name, dim in contract.dims.items():
        stated, default = view.dims.stated(name, role), dim.default and value_of(dim.default, view.dims)
        if not (dim.bool_ and isinstance(stated, Known) and type(default) is bool and stated.value is not default):
            continue
        as_default = _with(view.dims, {name: default})
        gone = [
            rule.name for rule in contract.tensors.values()
            if rule.init in ("zeros", "ones") and rule.when is not None and rule.presence == "required"
            and _holds(rule.when, view.dims) is False and _holds(rule.when, as_default) is True
            and not any(rule is one for held in view.names for one, _ in contract.rules_for(held))
        ]  # fmt: skip
        if gone:
            key, names, value = stated.key, listed(gone), str(stated.value).lower()
            seen = f"{key} = {value}" + (f", and no {names}" if view.table.read else "")
            yield finding("CFG322", f"config.json: {key}", observed=seen,
                          expected=f"a reader that looks at {key}: by default there is {names}",
                          where=view.checkpoint.source.label, contract=dim.line)  # fmt: skip


def nested_sizes(view: View) -> Iterator[Finding]:
    """Say where the sizes stand in a nested table, and the top level has none, or not even a model type."""
    contract, config = _contract(view), view.config
    hidden = contract.dims.get(contract.sizes.get("hidden", ""))
    for source in hidden.sources.get(view.checkpoint.role, ()) if hidden else ():
        seen = view.lookup(source.name)
        if config.partial or not source.name or not isinstance(seen, Known):
            continue  # of a config in part, what was not published may stand there
        if seen.key != source.name and source.name not in config.data:
            lacking = " and no ".join(key for key in ("model_type", source.name) if key not in config.data)
            yield finding("CFG323", f"config.json: {seen.key}", expected="a reader of this format",
                          observed=f"{seen.value} there alone: the top level has no {lacking}",
                          where=view.checkpoint.source.label)  # fmt: skip


def null_settings(view: View) -> Iterator[Finding]:
    """Say where a table that holds sizes or settings of the family is null."""
    contract, role = _contract(view), view.checkpoint.role
    keys = [name for dim in contract.dims.values() for source in dim.sources.get(role, ()) for name in source.names]
    keys += [*contract.config, *contract.aux_keys]
    tables = {key.rpartition(".")[0]: None for key in keys if "." in key}
    for table in tables:
        if view.config.is_null(table):
            lacking = listed(sorted({key for key in keys if key.startswith(f"{table}.")}))
            subject, label = f"config.json: {view.config.place(table)}", view.checkpoint.source.label
            yield finding("CFG325", subject, expected=f"{lacking}, or no such key", observed="null", where=label)


def shadowed(view: View, library: Library) -> Iterator[Finding]:
    """Say where a drafter's architecture is its own, and its model type that of a plain model whose class is loaded."""
    contract, config = view.contract, view.config
    if contract is None or contract.open or config.broken or not isinstance(config("auto_map"), Absent):
        return
    own = [a for a in config.texts("architectures") if a in contract.detect.get("any_architecture", ())]
    kind = config.text("model_type")
    plain = [id for id in library.mentioning("target", [kind] if kind else [])
             if kind in library.detect("target", id).get("any_model_type", ())]  # fmt: skip
    if own and plain:
        parts = ("model.", "layers.", "norm.", "embed_tokens.", "lm_head.")  # what a plain model has too
        lost = sorted(disk for name, disk in view.names.items() if not name.startswith(parts))
        seen = f"architectures {listed(own)}, model_type {kind}" + (f": it drops {listed(lost)}" if lost else "")
        expected = "a class of its own, in auto_map for generic loaders"
        label = view.checkpoint.source.label
        yield finding("CFG324", "config.json: model_type", expected=expected, observed=seen, where=label)


def _holds(expr: Expr | None, lookup: Lookup) -> Any:
    """Return True, False or Unknown for a condition; no condition holds."""
    if expr is None:
        return True
    value = value_of(expr, lookup)
    return value if type(value) in (bool, Unknown) else Unknown(f"{expr} is {value}, not yes or no")


def _contract(view: View) -> Contract:
    assert view.contract is not None
    return view.contract


# --- tensors ------------------------------------------------------------------------------------------------------


class Expected(NamedTuple):
    """Hold one tensor that a contract speaks of: its rule, its indices, and whether it must, may or must not exist."""

    name: str
    rule: TensorRule
    at: Mapping[str, int]
    presence: str  # required, optional, forbidden, undecided
    why: str = ""

    def seen_from(self, dims: Lookup) -> Lookup:
        """Return the dims with the indices of this tensor among them."""
        return _with(dims, self.at) if self.at else dims


def expectations(contract: Contract, dims: Lookup, only_layers: set[int] | None = None) -> Iterator[Expected]:
    """Yield every tensor that the contract speaks of under given dims, rows expanded."""
    layers = contract.sizes.get("layers", "layers")
    for rule in contract.tensors.values():
        rows, failed = _rows(rule, dims, layers, only_layers)
        if failed is not None:
            yield Expected(rule.name, rule, {}, "undecided", "" if failed.told else failed.why)
        for row in rows:
            name = rule.name
            for i, value in row.items():
                name = name.replace(f"{{{i}}}", str(value))
            yield _expected(name, rule, row, dims)


def _rows(
    rule: TensorRule, dims: Lookup, layers: str, only_layers: set[int] | None
) -> tuple[list[dict[str, int]], Unknown | None]:
    """Return the indices of every tensor of a rule, or why they are not known."""
    out: list[dict[str, int]] = [{}]
    for loop in rule.over:
        start, stop = value_of(loop.first, dims), value_of(loop.stop, dims)
        if failed := next((end for end in (start, stop) if isinstance(end, Unknown)), None):
            return [], failed
        values: Sequence[int] = range(start, stop, loop.step)
        if only_layers is not None and layers in loop.stop.names:
            values = sorted(i for i in only_layers if i >= start)
        if len(values) * len(out) > MAX_ROWS:
            return [], Unknown(f"{loop.stop} is {stop}: more than {MAX_ROWS} tensors of one name")
        out = [row | {loop.name: i} for row in out for i in values]
    return out, None


def _expected(name: str, rule: TensorRule, index: Mapping[str, int], dims: Lookup) -> Expected:
    applies = _holds(rule.when, _with(dims, index) if index else dims)
    if isinstance(applies, Unknown):
        return Expected(name, rule, index, "undecided", "" if applies.told else applies.why)
    return Expected(name, rule, index, rule.presence if applies else rule.otherwise)


def _with(dims: Lookup, more: Mapping[str, int]) -> Lookup:
    return lambda name: Known(more[name], "index") if name in more else dims(name)


def check_tensors(view: View) -> None:
    """Check presence, shape and dtype of every tensor, and the number of layers."""
    contract, table, source = _contract(view), view.table, view.checkpoint.source
    if not table.read:
        if not any(
            f.level in ("error", "unknown") and f.code[:3] in ("SRC", "STF", "IDX") for f in view.checkpoint.findings
        ):
            view.findings.append(
                unknown("TEN400", f"{len(contract.tensors)} tensor rules", expected="a table read from a checkpoint",
                        observed=table.basis, where=source.label, help=_how_to_record(source))
            )  # fmt: skip
        return
    layers = check_layers(view)
    inside = expectations(contract, view.dims) if contract.in_target else ()
    own = {w.name for w in inside if w.presence == "required"}
    if contract.in_target and (not view.names or (own and view.names.keys().isdisjoint(own))):
        encode = view.dialect.encode if view.dialect else str
        wanted = [encode(w.name) for w in expectations(contract, view.dims) if w.presence == "required"]
        if _looked_for(view, wanted):
            view.findings += not_inside(view)
            return
    view.findings += check_last_layer(view)
    found: list[Finding] = []
    spoken: set[str] = set()
    absent: list[tuple[Expected, Finding]] = []
    for want in expectations(contract, view.dims, layers):
        spoken.add(want.name)
        told = list(check_tensor(view, want, view.dims))
        if want.name not in view.names and told:
            absent += ((want, f) for f in told)
        else:
            found += told
    found = [*_forbidden(view, found), *_absent(view, absent)]
    if not contract.open:
        for name, disk in view.names.items():
            if name not in spoken:
                found += _out_of_range(view, name, disk, layers)
        for disk in view.unexplained:
            found.append(_unexpected(view, disk, spoken))
    view.findings += _quantised(view, _not_judged(found), spoken)
    view.findings += quantised_with_target(view)


def _absent(view: View, absent: Sequence[tuple[Expected, Finding]]) -> Iterator[Finding]:
    """Say once what is missing for one reason: all that a flag asks for, all of one place in a row, all that is open.

    Where a scheme of quantised weights may have more to say, each stands alone.
    """
    groups = dict[Any, list[tuple[Expected, Finding]]]()
    all_ = [w for w in expectations(_contract(view), view.dims) if w.presence == "required"] if absent else []
    there = [w for w in all_ if w.name in view.names]
    kept = {place for w in there for place in _places(w)}  # places of which something is there
    for want, f in absent:
        places = [place for place in _places(want) if place not in kept]
        key: Any = f.subject
        if view.declared is not None or f.code != "TEN401":
            pass
        elif f.level == "unknown":
            key = (f.observed, f.note)
        elif f.level == "error" and places:
            key = frozenset(w.rule.name for w in all_ if places[0] in _places(w))
        elif f.level == "error" and want.rule.when:
            key = str(want.rule.when)
        groups.setdefault(key, []).append((want, f))
    for rows in groups.values():
        rows.sort(key=lambda row: (-len(row[0].rule.shape), row[1].subject))
        f, names = rows[0][1], [f.subject for _, f in rows]
        if len(rows) == 1:
            yield f
            continue
        view.said.update(names)
        if f.level == "unknown":
            yield replace(f, subject=f"{len(rows)} tensors", expected="known whether each must be there",
                          observed=f.observed.removeprefix("absent; "), note=listed(names, 12))  # fmt: skip
        else:
            others = listed((f"{f.subject} {_value(w, view)}".rstrip() for w, f in rows[1:]), 12)
            note = "; ".join(part for part in (f.note, f"with it {others}") if part)
            yield replace(f, message=f"{len(rows)} required tensors are missing", note=note)


def _places(want: Expected) -> list[str]:
    """Return the parts of a tensor's name up to each of its indices: layers.0, layers.0.mlp.experts.3."""
    out, name = [], want.rule.name
    for i, value in want.at.items():
        before, _, after = name.partition(f"{{{i}}}")
        out.append(f"{before}{value}")
        name = f"{before}{value}{after}"
    return out


def _value(want: Expected, view: View) -> str:
    values = [value_of(axis, want.seen_from(view.dims)) for axis in want.rule.shape]
    return "" if any(isinstance(v, Unknown) for v in values) else str(values)


def _forbidden(view: View, found: Sequence[Finding]) -> Iterator[Finding]:
    """Say once of all tensors that one flag forbids that they are there."""
    groups = dict[Any, list[Finding]]()
    for f in found:
        groups.setdefault((f.expected, f.bindings) if f.code == "TEN405" and f.bindings else id(f), []).append(f)
    for rows in groups.values():
        first, *others = sorted(rows, key=lambda f: f.subject)
        with_it = f"with it {listed((f'{f.subject} {f.observed}' for f in others), 12)}"
        message = f"{len(rows)} tensors must not be there"
        view.said.update(f.subject for f in others)
        yield replace(first, message=message, note=with_it) if others else first


def _not_judged(found: Sequence[Finding]) -> list[Finding]:
    """Say once of which tensors the shape could not be judged, where their sizes are not known."""
    open_ = sorted((f for f in found if f.code == "TEN403" and f.level == "unknown"), key=lambda f: f.subject)
    if len(open_) < 2:
        return list(found)
    why = "; ".join(dict.fromkeys(f.observed for f in open_))
    note = listed((f"{f.subject} {f.expected}" for f in open_), 12)
    one = replace(open_[0], subject=f"{len(open_)} tensors", expected="sizes that are known", observed=why, note=note)
    return [*(f for f in found if f not in open_), one]


def quantised_with_target(view: View) -> Iterator[Finding]:
    """Say of a drafter in a quantised target where it was packed to few bits, or its entry left plain and unnamed."""
    logical = view.logical
    if logical is None or not _contract(view).in_target:
        return
    for name in logical.entry:
        seen = f"{logical.tensors[name].dtype} {list(logical.tensors[name].shape)}, and no scale"
        expected = f"named as ignored, in a checkpoint of {view.declared.name if view.declared else 'a scheme'}"
        yield finding("TEN432", name, expected=expected, observed=seen, where=_where(view, name))
    packed = sorted(d for d in view.names.values() if 0 < logical.bits(d) <= FEW_BITS)
    if packed:
        first, more = packed[0], f" and others: {listed(packed)}" if packed[1:] else ""
        stored, whole = logical.stored[first], list(logical.tensors[first].shape)
        seen = f"{logical.bits(first):g} bits a weight: {stored.dtype} {list(stored.shape)} for {whole}{more}"
        yield finding("TEN433", first if not packed[1:] else f"{len(packed)} weights", expected="16 bits, or 8",
                      observed=seen, where=_where(view, first))  # fmt: skip


def not_inside(view: View) -> Iterator[Finding]:
    """Say once that nothing is there of a drafter that the config of its target's checkpoint promises.

    Where its names stand behind a prefix that the contract does not know, it is not known what they are.
    """
    contract, encode = _contract(view), view.dialect.encode if view.dialect else str
    wanted = [encode(w.name) for w in expectations(contract, view.dims) if w.presence == "required"]
    if not wanted:
        return
    counts = [end for rule in contract.tensors.values() for loop in rule.over for end in (loop.first, loop.stop)]
    tails = {f".{tail}" for name in wanted for tail in (name, name.removeprefix("model.")) if tail.count(".") > 1}
    like = sorted(n for n in view.checkpoint.table().tensors if any(f".{n}".endswith(tail) for tail in tails))
    parts: dict[str, Any] = {
        "expected": f"{len(wanted)} tensors, as {listed(wanted, 3)}",
        "bindings": view.dims.table(view.dims.needed(counts)),
        "contract": contract.label,
        "where": view.checkpoint.source.label,
    }
    if like:
        yield unknown("TEN430", wanted[0], observed=f"none of them, but {listed(like, 3)}", **parts)
    else:
        yield finding("TEN430", wanted[0], observed="none of them", **parts)


def _how_to_record(source: Source, what: str = "one") -> str:
    if source.kind != "recording":
        return "give the folder of a checkpoint"
    folder = f"draftproof record PATH --as {source.name}@COMMIT"
    if not hosted(source.name):
        return f"record the real {what}: {folder}"
    at = f"@{source.revision}" if source.revision else ""
    return f"record the real {what}: draftproof record {source.name}{at}; or, of a folder: {folder}"


def last_layers(view: View) -> dict[int, str]:
    """Return the names that tell how many layers an open table has: of its first two, its last, and of one more."""
    contract = _contract(view)
    layers = Bindings(contract.dims, view.dims.sides)(contract.sizes.get("layers", ""))
    if not (contract.layer and isinstance(layers, Known) and isinstance(layers.value, int)):
        return {}
    after = [view.lookup(key) for key in contract.layer.get("beyond", ())]
    if any(isinstance(seen, Unknown) for seen in after):
        return {}
    more = sum(seen.value for seen in after if isinstance(seen, Known) and type(seen.value) is int and seen.value > 0)
    return {n: contract.layer["name"].replace("{i}", str(n)) for n in (0, 1, layers.value - 1, layers.value + more)}


def check_last_layer(view: View) -> Iterator[Finding]:
    """Hold the layers that a target's config counts to the names in its index or header; no shard is read for it."""
    contract, table = _contract(view), view.table
    names = {n: view.dialect.encode(name) for n, name in last_layers(view).items()} if view.dialect else {}
    if not names or not _looked_for(view, names.values()) or not view.names:
        return
    there, last = table.listed | table.tensors.keys(), sorted(names)[-2]
    own, other = names[last], names[max(names)]
    if names[0] not in there or (last > 0 and names[1] not in there):
        return  # an excerpt, or layers of other names
    dim = view.dims(contract.sizes["layers"])
    parts: dict[str, Any] = {"contract": contract.label, "where": view.checkpoint.source.label}
    expected = f"{last + 1} layers ({dim.witness if isinstance(dim, Known) else 'config.json'})"
    if own not in there:
        yield finding("CFG308", "layers", expected=expected, observed=f"no {visible(own)}", **parts)
    elif other in there:
        beyond = "".join(f" and {key}" for key in contract.layer.get("beyond", ()))
        seen = f"{visible(other)}, beyond what num_hidden_layers{beyond} count"
        yield finding("CFG308", "layers", level="warning", expected=expected, observed=seen, **parts)
    else:
        yield holds("CFG308", "layers", f"{last + 1} in config and file")


def check_layers(view: View) -> set[int] | None:
    """Compare the layers that the config counts with those in the file; returns those in the file if they differ."""
    contract = _contract(view)
    dim = contract.sizes.get("layers", "")
    declared = view.dims(dim) if dim and not contract.open else None
    if not isinstance(declared, Known):
        return None
    present = {
        index[loop.name]
        for name in view.names
        for rule, index in contract.rules_for(name)
        for loop in rule.over
        if dim in loop.stop.names
    }
    view.layers_present = present
    if not present or (len(present) == declared.value and max(present) == declared.value - 1):
        if present:
            view.findings.append(holds("CFG308", "layers", f"{declared.value} in config and file"))
        return None
    view.findings.append(
        finding(
            "CFG308",
            "layers",
            expected=f"{declared.value} layers ({declared.witness})",
            observed=f"{len(present)} in the file: {', '.join(map(str, sorted(present)[:20]))}",
            contract=contract.dims[dim].line,
            where=view.checkpoint.source.label,
        )
    )
    return present


def check_tensor(view: View, want: Expected, dims: Lookup, *, misfit: bool = False) -> Iterator[Finding]:
    """Check one expected tensor under given dims; with misfit, a wrong shape has the rule's code for a misfit."""
    rule, tensor = want.rule, view.tensor(want.name)
    disk = view.names.get(want.name, view.dialect.encode(want.name) if view.dialect else want.name)
    parts: dict[str, Any] = {"contract": rule.line, "where": _where(view, disk)}
    shown = visible(disk)
    if tensor is None:
        if want.presence == "required" and not _looked_for(view, [disk]):
            yield unknown(
                rule.missing, shown, expected="the tensor", observed="not listed, and the list is not complete", **parts
            )
        elif want.presence == "required":
            axes = ", ".join(map(str, rule.shape))
            yield finding(
                rule.missing,
                shown,
                "" if rule.missing != "TEN401" else "required tensor is missing",
                expected=f"[{axes}]{_value_list(rule.shape, want.seen_from(dims))}",
                observed="not in the checkpoint",
                note=_because(rule.when, dims),
                **parts,
            )
        elif want.presence == "undecided" and want.why:
            yield unknown(
                rule.missing,
                shown,
                expected=f"present where {rule.when}" if rule.when else "whether it must be there",
                observed=f"absent; {want.why}",
                **parts,
            )
        return
    if want.presence == "forbidden":
        yield finding(
            "TEN405",
            shown,
            expected=f"absent unless {rule.when}" if rule.when else "absent",
            observed=f"{tensor.dtype} {list(tensor.shape)}",
            bindings=_bound(dims, [rule.when] if rule.when else []),
            **parts,
        )
        return
    yield from _check_shape(view, want, tensor, dims, shown, rule.misfit if misfit else "TEN403", parts)
    packed = tensor.dtype == "quantised" or (view.table.format and len(tensor.shape) > 1 and tensor.dtype not in STORED)
    if tensor.dtype not in rule.dtype and not misfit and not (packed and "BF16" in rule.dtype):
        yield finding("TEN404", shown, expected=" or ".join(rule.dtype), observed=tensor.dtype, **parts)


def _looked_for(view: View, names: Iterable[str]) -> bool:
    """Tell whether names on disk that a table does not hold are known to be missing."""
    return view.table.decides(names) or looked_for_all(view)


def looked_for_all(view: View) -> bool:
    """Tell whether an incomplete table still shows what is missing: all names of an open contract were looked for."""
    return (
        view.contract is not None and view.contract.open and view.checkpoint.source.has_files and not view.table.sampled
    )


def _check_shape(
    view: View, want: Expected, tensor: Tensor, dims: Lookup, shown: str, code: str, parts: Mapping[str, Any]
) -> Iterator[Finding]:
    axes, whole = want.rule.shape, dims
    dims = want.seen_from(dims)
    values = [value_of(axis, dims) for axis in axes]
    failed = next((v for v in values if isinstance(v, Unknown)), None)
    if failed is not None:
        if not failed.told:
            yield unknown(code, shown, expected=f"[{', '.join(map(str, axes))}]", observed=failed.why, **parts)
        return
    if tuple(values) == tensor.shape:
        yield holds(code, shown, f"{tensor.dtype} {list(tensor.shape)}", expected=f"[{', '.join(map(str, axes))}]")
        return
    seen = list(tensor.shape)
    wrong = [] if len(seen) != len(values) else [n for n in range(len(seen)) if seen[n] != values[n]]
    note = _transposed(values, seen) or "; ".join(hint for n in wrong if (hint := _matches_if(axes[n], seen[n], dims)))
    yield finding(
        code,
        shown,
        expected=f"[{', '.join(map(str, axes))}]{_value_list(axes, dims)}",
        observed=f"{seen}",
        bindings=_bound(whole, axes),
        note=note,
        **parts,
    )


def _transposed(values: Sequence[int], seen: Sequence[int]) -> str:
    return "the tensor is transposed" if len(seen) == 2 and list(reversed(seen)) == list(values) else ""


def _matches_if(axis: Expr, seen: int, dims: Lookup, only: str = "") -> str:
    """Say which single dim, at which value, would make an axis match: "16384 = 4 * 4096: matches if aux were 4"."""
    hints = []
    for name in [only] if only else sorted(axis.names, key=axis.text.find):
        bound = dims(name)
        if not isinstance(bound, Known):
            continue
        value = _solution(axis, name, seen, dims)
        if value is not None:
            tried = _with(dims, {name: value})
            shown = "" if axis.name else f"{seen} = {substituted(axis, tried)}: "
            hints.append((not bound.witness.startswith("default"), f"{shown}matches if {name} were {value}"))
    return "; or ".join(hint for _, hint in sorted(hints, key=lambda h: h[0]))


def _value_list(axes: Sequence[Expr], dims: Lookup) -> str:
    """Return " = [3 * 4096] = [12288]", as far as it is known and says more."""
    values = [value_of(axis, dims) for axis in axes]
    if any(isinstance(v, Unknown) for v in values):
        return ""
    put = f"[{', '.join(substituted(axis, dims) for axis in axes)}]"
    out = f"[{', '.join(map(str, values))}]"
    return f" = {out}" if put == out else f" = {put} = {out}"


def _bound(dims: Lookup, exprs: Sequence[Expr]) -> tuple[str, ...]:
    return dims.table(dims.needed(list(exprs))) if isinstance(dims, Bindings) else ()


def _because(when: Expr | None, dims: Lookup) -> str:
    return f"required because {when}: {substituted(when, dims)}" if when else ""


def _where(view: View, disk: str) -> str:
    file = _file(view.table, disk)
    label = view.checkpoint.source.label
    return f"{file}, {label}" if file and file != label else label


def _unexpected(view: View, disk: str, spoken: set[str]) -> Finding:
    """Make the finding for a name that no rule speaks of."""
    contract, tensor = _contract(view), view.table.tensors[disk]
    known = sorted(view.dialect.encode(n) if view.dialect else n for n in spoken)
    parts = disk.split(".")
    inner = next((".".join(parts[n:]) for n in range(1, len(parts)) if ".".join(parts[n:]) in known), "")
    prefix = disk.removesuffix(inner)
    note = f"without {visible(prefix)!r} it would be {inner}" if inner else nearest(disk, known, 0.85).strip(" ()")
    return finding(
        "TEN402",
        visible(disk),
        expected=f"a tensor of {contract.id}",
        observed=f"{tensor.dtype} {list(tensor.shape)}",
        note=note,
        contract=contract.label,
        where=_where(view, disk),
    )


def _out_of_range(view: View, name: str, disk: str, layers: set[int] | None) -> Iterator[Finding]:
    """Report a tensor of a row beyond the row's end; one of a layer that CFG308 named already is not said twice."""
    contract, tensor = _contract(view), view.table.tensors[disk]
    for rule, index in contract.rules_for(name):
        ends = {loop.name: (value_of(loop.first, view.dims), value_of(loop.stop, view.dims)) for loop in rule.over}
        if not ends or any(isinstance(end, Unknown) for both in ends.values() for end in both):
            return
        if layers is not None and not layers.isdisjoint(index.values()):
            return
        yield finding(
            "TEN402",
            visible(disk),
            expected=rule.name + "".join(f", {i} from {a} up to, not including, {b}" for i, (a, b) in ends.items()),
            observed=f"{tensor.dtype} {list(tensor.shape)}",
            note=" and ".join(f"{i} is {n}" for i, n in index.items()),
            contract=rule.line,
            where=_where(view, disk),
        )
        return


def _quantised(view: View, found: Sequence[Finding], spoken: set[str]) -> Iterator[Finding]:
    """Leave out what a scheme has said already, and turn into unknown what a quantisation explains that is not known.

    Only a module (the name up to its last dot) that holds scales, packed or non-float weights is excused; norms, maps
    and whole modules that are missing are not.
    """
    if view.logical is not None:
        for f in found:
            if f.code in _QUANTISED and _among(f.subject, view.logical.said):
                view.said.add(f.subject)
            else:
                module = _among(f.subject, view.logical.unknown) if f.code in _QUANTISED else ""
                yield replace(f, level="unknown", note=view.logical.unknown[module]) if module else f
        return
    if view.declared is None and not isinstance(view.stated("quantisation"), Known):
        yield from found
        return
    seen = view.stated("quantisation")
    method = view.declared.name if view.declared else visible(seen.value.get("quant_method", "unnamed"))  # type: ignore[union-attr]
    note = f"quantised ({method or 'unnamed'}): the layout of this scheme is not known here"
    asked = {_module(view.dialect.encode(name) if view.dialect else name) for name in spoken}
    packed = {_module(disk) for disk in view.unexplained} & asked
    packed |= {_module(d) for d, t in view.table.tensors.items() if len(t.shape) > 1 and t.dtype not in _FLOATS}
    for f in found:
        excused = f.code in _QUANTISED and _module(f.subject) in packed
        borrowed = (
            _contract(view).open and f.code == "TEN401"
        )  # a packed head has other names, that were not looked for
        yield replace(f, level="unknown", note=note) if f.level == "error" and (excused or borrowed) else f


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _among(name: str, modules: Collection[str]) -> str:
    """Return the module of a set that a tensor's name belongs to, or ""."""
    while (name := _module(name)) and name not in modules:
        pass
    return name


_QUANTISED = ("TEN401", "TEN402", "TEN403", "TEN404", "PAIR406")
_FLOATS = ("BF16", "F16", "F32", "F64")


# --- what a contract asks for -------------------------------------------------------------------------------------


def layout(contract: Contract, dims: Lookup, *, optional: bool = False) -> dict[str, tuple[Expected, tuple[int, ...]]]:
    """Return canonical name -> expectation and shape of every tensor that a config asks for; empty where unknown."""
    out: dict[str, tuple[Expected, tuple[int, ...]]] = {}
    for want in expectations(contract, dims):
        if want.presence == "required" or (optional and want.presence == "optional"):
            values = [value_of(axis, want.seen_from(dims)) for axis in want.rule.shape]
            if all(isinstance(v, int) for v in values):
                out[want.name] = (want, tuple(values))
    return out


def summary_text(contract: Contract, dims: Lookup, gap: str = "") -> str:
    """Fill the contract's summary line; a part of which something is not known is left out, or has gap in its place."""
    out = []
    for part in contract.summary:
        known = True

        def put(found: re.Match[str]) -> str:
            nonlocal known
            value = value_of(parse(found[1]), dims)
            known = known and not isinstance(value, Unknown)
            return gap if isinstance(value, Unknown) else str(value)

        text = re.sub(r"\{([^{}]+)\}", put, part)
        if known or gap:
            out.append(text)
    return ", ".join(out)
