"""Rung 1: is a checkpoint well formed for its contract? Pure functions from contract and checkpoint to findings.

Read top to bottom, in the order in which the facts are met: which contract, which config values, which dims,
which names, and then each tensor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from draftproof.checkpoint import Checkpoint, Table, listed
from draftproof.container import Tensor
from draftproof.contracts import Contract, Dialect, KeyRule, Library, TensorRule
from draftproof.dims import Absent, Bindings, Expr, ExprError, Known, Lookup, Seen, Unknown, evaluate, substituted
from draftproof.findings import Finding, finding, holds, nearest, unknown, visible

MAX_SIZE = 2**31 - 1  # of any one dim: no model has more
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
    table: Table = field(default_factory=lambda: Table(basis="not read"))
    findings: list[Finding] = field(default_factory=list)
    layers_present: set[int] = field(default_factory=set)
    unpublished: dict[str, str] = field(default_factory=dict)  # config keys of which nothing is known -> why

    def tensor(self, canonical: str) -> Tensor | None:
        """Return a tensor by its canonical name."""
        return self.table.tensors.get(self.names.get(canonical, ""))

    def role(self, part: str) -> Tensor | None:
        """Return the tensor that plays a part: fusion, embedding, head, map, mask, norm."""
        return self.tensor(self.contract.roles.get(part, "")) if self.contract else None

    def size(self, part: str) -> Seen:
        """Return the dim that plays a part: hidden, draft_vocab, target_layers, ..."""
        name = self.contract.sizes.get(part, "") if self.contract else ""
        return self.dims(name) if name else Unknown(f"the contract names no {part}", told=True)


# --- which contract -----------------------------------------------------------------------------------------------


def recognise(
    library: Library, checkpoint: Checkpoint, kind: str, id: str = ""
) -> tuple[Contract | None, list[Finding]]:
    """Return the contract that recognises a checkpoint best, and why not where none or two do."""
    if id:
        contract, found = library.get(kind, id)
        return contract, list(found)
    config = checkpoint.config
    architectures, model_type = config.texts("architectures"), config.text("model_type")
    likely = library.mentioning(kind, [w for w in (*architectures, model_type) if w])
    ranked: list[tuple[int, str]] = []
    problems: list[Finding] = []
    contracts: dict[str, Contract] = {}
    for ids in (likely, [i for i in library.files(kind) if i not in likely]):
        for one in ids:
            contract, found = library.get(kind, one)
            problems += found
            if contract is not None and (score := _score(contract, checkpoint, architectures, model_type)):
                contracts[one] = contract
                ranked.append((score, one))
        if ranked:
            break
    ranked.sort(reverse=True)
    if problems and not ranked:
        return None, problems
    if not ranked:
        code = "TEN408" if kind == "family" else "TEN410"
        known = f"one of {', '.join(library.files(kind))}"
        seen = f"architectures {visible(architectures)}, model_type {visible(model_type)!r}"
        help = f"name it with --{kind if kind == 'family' else 'target-contract'}, or write a contract for it"
        subject = f"{checkpoint.role} {checkpoint.source.name}"
        return None, [unknown(code, subject, expected=known, observed=seen, help=help, where=checkpoint.source.label)]
    best = [one for score, one in ranked if score == ranked[0][0]]
    if len(best) > 1:
        seen = " and ".join(sorted(best))
        return None, [unknown("TEN409", checkpoint.source.name, expected="one contract", observed=seen)]
    return contracts[best[0]], []


def _score(contract: Contract, checkpoint: Checkpoint, architectures: Sequence[str], model_type: str) -> int:
    """Weigh the evidence: 8 an architecture, 4 tensors, 2 a model type, 1 a config key; 0 if ruled out."""
    detect, config = contract.detect, checkpoint.config

    def has(key: str) -> bool:
        return isinstance(config(key), Known)

    if any(has(key) for key in detect.get("no_config", ())):
        return 0
    score = 8 * any(a in detect.get("any_architecture", ()) for a in architectures)
    score += 2 * (model_type in detect.get("any_model_type", ()))
    score += any(has(key) for key in detect.get("any_config", ()))
    patterns, against = detect.get("any_tensor", ()), detect.get("no_tensor", ())
    if (patterns and not score & 8) or against:
        table = checkpoint.table() if not contract.open else checkpoint.table([p for p in patterns if "*" not in p])
        if table.read:
            if any(_any_name(table.tensors, p) for p in against):
                return 0
            score += 4 * any(_any_name(table.tensors, p) for p in patterns)
    return score


def _any_name(names: Mapping[str, Any], pattern: str) -> bool:
    return any(fnmatchcase(n, pattern) for n in names) if "*" in pattern else pattern in names


# --- rung 1 -------------------------------------------------------------------------------------------------------


def conform(contract: Contract, checkpoint: Checkpoint, *, tensors: bool = True) -> View:
    """Check one checkpoint against its contract; with tensors false only its config is spoken of."""
    config = checkpoint.config
    config.nested = contract.nested
    view = View(checkpoint, contract)
    if not checkpoint.configured and checkpoint.source.provenance == "read":
        view.findings += checkpoint.findings  # it could not be read: nothing below would say more
    bad = check_types(contract, checkpoint, view.findings) if checkpoint.configured else set()
    view.lookup = _typed(config, bad)
    view.dims = Bindings(contract.dims, {checkpoint.role: view.lookup})
    if tensors:
        view.table = checkpoint.table(_wanted(contract))
        view.dialect, view.names, found = translate(contract, view.table)
        view.findings += found
        view.dims.extra = _witnesses(contract, view)
    if checkpoint.configured:
        check_dims(view)
        check_keys(view)
    if tensors:
        check_tensors(view)
    view.findings[:0] = [f for f in checkpoint.findings if f not in view.findings]
    return view


def _wanted(contract: Contract) -> frozenset[str] | None:
    """Return the only names worth reading in an open table: those of the contract, in every dialect."""
    if not contract.open:
        return None
    return frozenset(d.encode(name) for d in contract.dialects for name in contract.tensors)


# --- config values ------------------------------------------------------------------------------------------------

_JSON_NAMES = {str: "text", int: "an integer", float: "a float", bool: "a boolean", list: "a list", dict: "an object"}
_ACCEPTS: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "list": (list,),
    "object": (dict,),
}
_WANTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "object": "an object",
}


def check_types(contract: Contract, checkpoint: Checkpoint, out: list[Finding]) -> set[str]:
    """Check the JSON type and range of every config key that the contract reads; returns the keys that are bad."""
    wanted: dict[str, tuple[str, str, bool]] = {}  # key -> type, line, is a size
    for dim in contract.dims.values():
        for source in dim.sources.get(checkpoint.role, ()):
            for key in source.names:
                kind = "list" if not source.name else "bool" if dim.bool_ else "int"
                wanted[key] = (kind, dim.line, kind == "int")
    for rule in contract.config.values():
        if rule.type:
            size = wanted.get(rule.key, ("", "", False))[2]
            wanted[rule.key] = (rule.type, rule.line, size)
    bad: set[str] = set()
    for key, (kind, line, size) in wanted.items():
        for seen in checkpoint.config.spellings(key):
            problems = list(_type_problems(seen, kind, size))
            for code, path, expected, note in problems:
                value = _pick(seen.value, path)
                out.append(
                    finding(
                        code,
                        f"config.json: {seen.witness.rpartition(': ')[2]}{path}",
                        expected=expected,
                        observed=f"{visible(json.dumps(value, default=str), 60)} ({_json_name(value)})",
                        note=note,
                        contract=line,
                        where=checkpoint.source.label,
                    )
                )
                bad.add(key)
        spellings = checkpoint.config.spellings(key)
        if len({json.dumps(s.value, sort_keys=True, default=str) for s in spellings}) > 1:
            seen_ = " against ".join(f"{s.witness.rpartition(': ')[2]} = {visible(s.value, 60)}" for s in spellings)
            out.append(
                finding(
                    "CFG309", f"config.json: {key}", expected="one value", observed=seen_, where=checkpoint.source.label
                )
            )
    return bad


def _pick(value: Any, path: str) -> Any:
    return value[int(path[1:-1])] if path else value


def _json_name(value: Any) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _type_problems(seen: Known, kind: str, size: bool) -> Iterator[tuple[str, str, str, str]]:
    """Yield code, index, expectation and note of what is wrong with one value."""
    value = seen.value
    if type(value) not in _ACCEPTS[kind]:
        note = (
            f"write {value}" if kind in ("int", "float") and isinstance(value, str) and value.strip().isdigit() else ""
        )
        if kind == "int" and isinstance(value, float) and math.isfinite(value) and value.is_integer():
            note = f"write {int(value)}"
        if isinstance(value, float) and not math.isfinite(value):
            yield "CFG306", "", _WANTED[kind], ""
        else:
            yield "CFG304", "", _WANTED[kind], note
    elif kind == "float" and not math.isfinite(value):
        yield "CFG306", "", "a finite number", ""
    elif size and not 1 <= value <= MAX_SIZE:
        yield "CFG305", "", f"1 to {MAX_SIZE}", ""
    elif kind == "list":
        for n, item in enumerate(value):
            if type(item) in (float, bool) or (isinstance(item, int) and abs(item) > MAX_SIZE):
                code = "CFG304" if type(item) is not int else "CFG305"
                yield code, f"[{n}]", "an integer" if code == "CFG304" else f"-{MAX_SIZE} to {MAX_SIZE}", ""


def _typed(config: Callable[[str], Seen], bad: set[str]) -> Lookup:
    """Return the config's lookup in which an ill-typed value is unknown, because a finding says so already."""

    def lookup(key: str) -> Seen:
        return Unknown(f"{key} has the wrong type", told=True) if key in bad else config(key)

    return lookup


# --- dims ---------------------------------------------------------------------------------------------------------


def check_dims(view: View) -> None:
    """Report dims whose sources disagree, that nothing states, or that are not known."""
    contract, role = _contract(view), view.checkpoint.role
    missing: dict[str, str] = {}
    for name, dim in contract.dims.items():
        if role not in dim.sources:
            continue
        seen = view.dims(name)
        keys = ", ".join(map(str, dim.sources[role]))
        if isinstance(seen, Absent) or (name in view.dims.extra and isinstance(view.dims.stated(name, role), Absent)):
            note = f"the tensors say {seen.value} ({seen.witness})" if isinstance(seen, Known) else ""
            view.findings.append(
                finding(
                    "CFG312",
                    f"config.json: {keys}",
                    expected=f"{name}, stated by {keys}",
                    observed="nothing",
                    note=note,
                    contract=dim.line,
                    where=view.checkpoint.source.label,
                )
            )
        elif isinstance(seen, Unknown) and not seen.told:
            missing[keys] = seen.why
        elif isinstance(seen, Known):
            view.findings.append(holds("DIM402", name, f"{name} = {seen.value}", observed=seen.witness))
    for clash in view.dims.disagreements:
        view.findings.append(
            finding(
                clash.dim.differs if clash.dim.differs.startswith("DIM") else "DIM401",
                clash.dim.name,
                expected=f"{clash.first.value} ({clash.first.witness})",
                observed=f"{clash.second.value} ({clash.second.witness})",
                contract=clash.dim.line,
            )
        )
    view.unpublished |= missing


def _not_published(view: View) -> None:
    source, keys = view.checkpoint.source, dict.fromkeys(k for row in view.unpublished for k in row.split(", "))
    view.findings.append(
        unknown(
            "CFG313",
            "config.json",
            expected=f"a value or its absence for {listed(keys, 20)}",
            observed=f"not published; {source.origin}".rstrip("; "),
            where=source.label,
            help="record the real config: draftproof record PATH",
        )
    )


def check_keys(view: View) -> None:
    """Apply the contract's rules about single config keys."""
    contract = _contract(view)
    for rule in contract.config.values():
        applies = _holds(rule.when, view.dims)
        if applies is False:
            continue
        seen = view.lookup(rule.key)
        if isinstance(seen, Absent):
            if rule.required:
                view.findings.append(
                    finding(
                        "CFG312",
                        f"config.json: {rule.key}",
                        expected=f"a value: {rule.because}".rstrip(": "),
                        observed="nothing",
                        contract=rule.line,
                        where=view.checkpoint.source.label,
                    )
                )
        elif isinstance(seen, Unknown):
            if not seen.told:
                view.unpublished.setdefault(rule.key, seen.why)
        else:
            view.findings += _check_key(view, rule, seen)
    if view.unpublished:
        _not_published(view)


def _check_key(view: View, rule: KeyRule, seen: Known) -> Iterator[Finding]:
    subject = f"config.json: {rule.key}"
    shown = visible(json.dumps(seen.value, default=str), 80)
    parts: dict[str, Any] = {"contract": rule.line, "where": view.checkpoint.source.label}
    if rule.one_of and seen.value not in rule.one_of:
        yield finding(
            rule.code,
            subject,
            level=_level(rule),
            expected=f"one of {', '.join(rule.one_of)}",
            observed=shown + nearest(str(seen.value), rule.one_of),
            note=rule.because,
            **parts,
        )
    if rule.check is None:
        return
    values = seen.value if isinstance(seen.value, list) else [seen.value]
    try:
        result = evaluate(rule.check, view.dims, values)
    except ExprError as error:
        yield finding("DIM404", subject, expected=str(rule.check), observed=str(error), **parts)
        return
    bindings = view.dims.table(view.dims.needed([rule.check]))
    if isinstance(result, Unknown):
        if not result.told:
            yield unknown(rule.code, subject, expected=str(rule.check), observed=result.why, **parts)
    elif result:
        yield holds(rule.code, subject, f"{rule.key} = {shown}", expected=str(rule.check))
    else:
        yield finding(
            rule.code,
            subject,
            level=_level(rule),
            expected=str(rule.check).replace("it", rule.key, 1),
            observed=shown,
            bindings=bindings,
            note=rule.because,
            **parts,
        )


def _level(rule: KeyRule) -> Any:
    return rule.severity


def _holds(expr: Expr | None, lookup: Lookup) -> Any:
    """Return True, False or Unknown for a condition; no condition holds."""
    if expr is None:
        return True
    try:
        return evaluate(expr, lookup)
    except ExprError as error:
        return Unknown(str(error))


def _contract(view: View) -> Contract:
    assert view.contract is not None
    return view.contract


# --- names --------------------------------------------------------------------------------------------------------


def translate(contract: Contract, table: Table) -> tuple[Dialect | None, dict[str, str], list[Finding]]:
    """Find the one dialect that explains every tensor; returns it, canonical name -> name on disk, and findings."""
    names = list(table.tensors)
    if not names:
        return None, {}, []
    explains: dict[str, dict[str, str]] = {}  # dialect -> disk -> canonical
    for dialect in contract.dialects:
        decoded = ((disk, dialect.decode(disk)) for disk in names)
        explains[dialect.name] = {d: c for d, c in decoded if c is not None and next(contract.rules_for(c), None)}
    best = max(contract.dialects, key=lambda d: len(explains[d.name]))
    out: list[Finding] = []
    canonical: dict[str, str] = {}
    chosen = dict(explains[best.name])
    others: dict[str, list[str]] = {}
    for disk in names:
        if disk not in chosen:
            for dialect in contract.dialects:
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
        canonical[name] = disk
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
    if not contract.open:
        for disk in names:
            if disk not in chosen:
                canonical[f"\0{disk}"] = disk  # no rule speaks of it
    return best, canonical, out


def _file(table: Table, disk: str) -> str:
    return table.files.get(disk, "")


def _witnesses(contract: Contract, view: View) -> dict[str, Known]:
    """Return what tensors say of dims that stand alone on an axis; only a table that was read is a witness."""
    found: dict[str, Known] = {}
    if view.table.read:
        for name, disk in view.names.items():
            for rule, _ in contract.rules_for(name):
                shape = view.table.tensors[disk].shape
                if len(shape) == len(rule.shape):
                    for axis, size in zip(rule.shape, shape, strict=True):
                        if axis.name:
                            found.setdefault(axis.name, Known(size, f"tensor {visible(disk)} {list(shape)}"))
    return found


# --- tensors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expected:
    """Hold one tensor that a contract speaks of: its rule, its index, and whether it must, may or must not be there."""

    name: str
    rule: TensorRule
    index: int | None
    presence: str  # required, optional, forbidden, undecided
    why: str = ""


def expectations(contract: Contract, dims: Lookup, only_layers: set[int] | None = None) -> Iterator[Expected]:
    """Yield every tensor that the contract speaks of under given dims, rows expanded."""
    layers = contract.sizes.get("layers", "layers")
    for rule in contract.tensors.values():
        if rule.over is None:
            yield _expected(rule.name, rule, None, dims)
            continue
        ends = [_value(end, dims) for end in rule.over]
        if not all(isinstance(end, int) for end in ends):
            continue  # what is not known here has been said of the dim
        start, stop = ends
        rows: Sequence[int] = range(start, min(stop, start + MAX_ROWS))
        if only_layers is not None and layers in rule.over[1].names:
            rows = sorted(i for i in only_layers if i >= start)
        for i in rows:
            yield _expected(rule.name.replace("{i}", str(i)), rule, i, _with(dims, {"i": i}))


def _expected(name: str, rule: TensorRule, index: int | None, dims: Lookup) -> Expected:
    applies = _holds(rule.when, dims)
    if isinstance(applies, Unknown):
        return Expected(name, rule, index, "undecided", "" if applies.told else applies.why)
    return Expected(name, rule, index, rule.presence if applies else rule.otherwise)


def _with(dims: Lookup, more: Mapping[str, int]) -> Lookup:
    return lambda name: Known(more[name], "index") if name in more else dims(name)


def _value(expr: Expr, dims: Lookup) -> Any:
    try:
        return evaluate(expr, dims)
    except ExprError as error:
        return Unknown(str(error))


def check_tensors(view: View) -> None:
    """Check presence, shape and dtype of every tensor, and the number of layers."""
    contract, table, source = _contract(view), view.table, view.checkpoint.source
    if not table.read:
        view.findings.append(
            unknown(
                "TEN400",
                f"{len(contract.tensors)} tensor rules",
                expected="a table read from a checkpoint",
                observed=table.basis,
                where=source.label,
                help=f"record the real one: draftproof record PATH --as {source.name}@COMMIT",
            )
        )
        return
    layers = check_layers(view)
    found: list[Finding] = []
    spoken: set[str] = set()
    for want in expectations(contract, view.dims, layers):
        spoken.add(want.name)
        found += check_tensor(view, want, view.dims)
    for name, disk in view.names.items():
        if name not in spoken and not contract.open:
            found += _unexpected(view, name, disk, layers)
    view.findings += _quantised(view, found)


def check_layers(view: View) -> set[int] | None:
    """Compare the layers that the config counts with those in the file; returns those in the file if they differ."""
    contract = _contract(view)
    dim = contract.sizes.get("layers", "")
    declared = view.dims(dim) if dim and not contract.open else None
    if not isinstance(declared, Known):
        return None
    present = {
        index
        for name in view.names
        for rule, index in contract.rules_for(name)
        if index is not None and rule.over and dim in rule.over[1].names
    }
    view.layers_present = present
    if not present or present == set(range(declared.value)):
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
        if want.presence == "required":
            axes = ", ".join(map(str, rule.shape))
            yield finding(
                rule.missing,
                shown,
                "" if rule.missing != "TEN401" else "required tensor is missing",
                expected=f"[{axes}]{_value_list(rule.shape, dims)}",
                observed="not in the checkpoint",
                note=_because(rule.when, dims),
                **parts,
            )
        elif want.presence == "undecided" and want.why:
            yield unknown(
                rule.missing, shown, expected=f"present where {rule.when}", observed=f"absent; {want.why}", **parts
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
    if tensor.dtype not in rule.dtype and not misfit:
        yield finding("TEN404", shown, expected=" or ".join(rule.dtype), observed=tensor.dtype, **parts)


def _check_shape(
    view: View, want: Expected, tensor: Tensor, dims: Lookup, shown: str, code: str, parts: Mapping[str, Any]
) -> Iterator[Finding]:
    axes = want.rule.shape
    values = [_value(axis, dims) for axis in axes]
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
    note = _transposed(values, seen) or "; ".join(
        hint for n in wrong if (hint := _matches_if(axes[n], values[n], seen[n], dims))
    )
    yield finding(
        code,
        shown,
        expected=f"[{', '.join(map(str, axes))}]{_value_list(axes, dims)}",
        observed=f"{seen}",
        bindings=_bound(dims, axes),
        note=note,
        **parts,
    )


def _transposed(values: Sequence[int], seen: Sequence[int]) -> str:
    return "the tensor is transposed" if len(seen) == 2 and list(reversed(seen)) == list(values) else ""


def _matches_if(axis: Expr, expected: int, seen: int, dims: Lookup) -> str:
    """Say which single dim, at which value, would make an axis match: "16384 = 4 * 4096: matches if aux were 4"."""
    hints = []
    for name in sorted(axis.names, key=axis.text.find):
        bound = dims(name)
        if not isinstance(bound, Known):
            continue
        at = [_value(axis, _with(dims, {name: v})) for v in (0, 1)]
        if not all(isinstance(v, int) for v in at) or at[0] == at[1] or (seen - at[0]) % (at[1] - at[0]):
            continue
        value = (seen - at[0]) // (at[1] - at[0])
        tried = _with(dims, {name: value})
        if value > 0 and _value(axis, tried) == seen:
            shown = "" if axis.name else f"{seen} = {substituted(axis, tried)}: "
            hints.append((not bound.witness.startswith("default"), f"{shown}matches if {name} were {value}"))
    return "; or ".join(hint for _, hint in sorted(hints, key=lambda h: h[0]))


def _value_list(axes: Sequence[Expr], dims: Lookup) -> str:
    """Return " = [3 * 4096] = [12288]", as far as it is known and says more."""
    values = [_value(axis, dims) for axis in axes]
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


def _unexpected(view: View, name: str, disk: str, layers: set[int] | None) -> Iterator[Finding]:
    """Report a tensor that no expectation covers; one of a layer that CFG308 named already is not said twice."""
    contract = _contract(view)
    tensor = view.table.tensors[disk]
    seen = f"{tensor.dtype} {list(tensor.shape)}"
    rows = [(rule, i) for rule, i in contract.rules_for(name) if i is not None and rule.over is not None]
    if name.startswith("\0"):
        known = [view.dialect.encode(n) if view.dialect else n for n in contract.tensors if "{i}" not in n]
        expected, note = f"a tensor of {contract.id}", nearest(disk, known).strip(" ()")
    elif rows:
        rule, i = rows[0]
        assert rule.over is not None
        ends = [_value(end, view.dims) for end in rule.over]
        if any(isinstance(end, Unknown) for end in ends) or (layers is not None and i in layers):
            return
        expected, note = f"{rule.name} for i from {ends[0]} up to, not including, {ends[1]}", f"i is {i}"
    else:
        return
    yield finding(
        "TEN402",
        visible(disk),
        expected=expected,
        observed=seen,
        note=note,
        contract=contract.label,
        where=_where(view, disk),
    )


def _quantised(view: View, found: Sequence[Finding]) -> Iterator[Finding]:
    """Turn what a quantisation may explain into unknown: its layouts are not known to the contract."""
    scheme = view.lookup("quantization_config")
    if not isinstance(scheme, Known):
        yield from found
        return
    method = scheme.value.get("quant_method", "unnamed") if isinstance(scheme.value, Mapping) else "unnamed"
    for f in found:
        if f.code in ("TEN402", "TEN403", "TEN404") and f.level == "error":
            yield replace(
                f, level="unknown", note=f"quantised ({visible(method)}): the layout of this scheme is not known here"
            )
        else:
            yield f


# --- what a contract asks for -------------------------------------------------------------------------------------


def layout(contract: Contract, dims: Lookup, *, optional: bool = False) -> dict[str, tuple[Expected, tuple[int, ...]]]:
    """Return canonical name -> expectation and shape of every tensor that a config asks for; empty where unknown."""
    out: dict[str, tuple[Expected, tuple[int, ...]]] = {}
    for want in expectations(contract, dims):
        if want.presence == "required" or (optional and want.presence == "optional"):
            values = [_value(axis, dims) for axis in want.rule.shape]
            if all(isinstance(v, int) for v in values):
                out[want.name] = (want, tuple(values))
    return out
