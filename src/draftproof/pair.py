"""Rung 2: does a drafter fit a target? Pure functions from two conformed views to findings.

Each function is one question, in the order in which ``fits`` asks them. What rung 1 said of the drafter alone is
not said again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from draftproof.conform import View, check_tensor, expectations
from draftproof.contracts import Convention, EngineRow, Fact, Library, Model
from draftproof.dims import Absent, Bindings, ExprError, Known, Unknown, evaluate
from draftproof.findings import Finding, finding, holds, unknown, visible
from draftproof.hub import Source
from draftproof.strict import strict_json

TOKENIZER_LIMIT = 64 << 20  # bytes


@dataclass
class Couple:
    """Hold a drafter and a target that both conform, the dims of the pair, and what is declared beyond the files."""

    drafter: View
    target: View
    library: Library
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.drafter.contract is not None
        sides = {"drafter": self.drafter.lookup, "target": self.target.lookup}
        self.dims = Bindings(self.drafter.contract.dims, sides, self.drafter.dims.extra)

    def size(self, part: str) -> Any:
        """Return what is known of the dim that plays a part, by the target's own word where it has one."""
        assert self.drafter.contract is not None
        name = self.drafter.contract.sizes.get(part, "")
        return self.dims(name) if name else Unknown(f"the family names no {part}", told=True)


def declared_facts(library: Library, *repos: str, over: Mapping[str, Fact] | None = None) -> dict[str, Fact]:
    """Return what contracts/models says of the repos, overridden by the pair's own facts."""
    facts: dict[str, Fact] = {}
    for repo in repos:
        model, _ = library.model(repo)
        facts |= model.facts if model else {}
    return facts | dict(over or {})


def fits(couple: Couple) -> list[Finding]:
    """Answer every question of rung 2, worst answers first by the section that holds them."""
    out: list[Finding] = []
    for question in (
        stated_sizes,
        fused_input,
        embedding,
        head,
        context,
        aux_layers,
        special_tokens,
        rope,
        partial_rotary,
        norm_eps,
        dtype,
        quantisation,
        tokenizer,
        verifier,
        lineage,
    ):
        out += question(couple)
    return out


# --- geometry -----------------------------------------------------------------------------------------------------


def stated_sizes(c: Couple) -> Iterator[Finding]:
    """Compare what the drafter's config says of its target with what the target's config says of itself."""
    for name, dim in c.dims.dims.items():
        if not {"drafter", "target"} <= set(dim.sources):
            continue
        said, is_ = c.dims.stated(name, "drafter"), c.dims.stated(name, "target")
        parts: dict[str, Any] = {"contract": dim.line, "where": c.target.checkpoint.source.label}
        if isinstance(said, Known) and isinstance(is_, Known):
            if said.value == is_.value:
                yield holds(dim.differs, name, f"{name} = {is_.value} on both sides")
            else:
                yield finding(
                    dim.differs,
                    name,
                    expected=f"{is_.value} ({is_.witness})",
                    observed=f"{said.value} ({said.witness})",
                    note=_padding(said.value, is_.value),
                    **parts,
                )
        for side, seen in (("drafter", said), ("target", is_)):
            if isinstance(seen, Unknown) and not seen.told:
                yield unknown(dim.differs, name, expected=f"{name}, stated by the {side}", observed=seen.why, **parts)


def _padding(said: int, is_: int) -> str:
    gap = abs(said - is_)
    if 0 < gap <= 1024 and said % 64 == is_ % 64 == 0:
        return f"they differ by {gap}: padding rows, if both tokenizers are the same"
    return ""


def fused_input(c: Couple) -> Iterator[Finding]:
    """Check the tensors that take their size from the target, under the target's own sizes."""
    contract = c.drafter.contract
    assert contract is not None
    failed = {f.subject for f in c.drafter.findings if f.level in ("error", "unknown") and f.code[:3] in ("TEN", "PAI")}
    named = {name: rule for name, rule in contract.tensors.items() if _faces_target(rule)}
    if c.drafter.table.read:
        for want in expectations(contract, c.dims):
            if want.rule.name in named:
                found = check_tensor(c.drafter, want, c.dims, misfit=True)
                yield from (f for f in found if f.subject not in failed)
        return
    for want in expectations(contract, c.dims):  # the table is not at hand: compare what the configs make of the shape
        rule = want.rule
        if rule.name not in named or want.presence != "required" or rule.misfit == "TEN403":
            continue
        own, pair = _shape(rule.shape, c.drafter.dims), _shape(rule.shape, c.dims)
        axes = ", ".join(map(str, rule.shape))
        if own is None or pair is None:
            lacking = [n for n in c.dims.needed(rule.shape) if not isinstance(c.dims(n), Known)]
            yield unknown(
                rule.misfit,
                want.name,
                expected=f"[{axes}]",
                observed=f"not known: {', '.join(lacking)}",
                contract=rule.line,
            )
        elif own == pair:
            yield holds(rule.misfit, want.name, f"{list(pair)} by both configs", expected=f"[{axes}]")
        else:
            yield finding(
                rule.misfit,
                want.name,
                expected=f"[{axes}] = {list(pair)}",
                observed=f"{list(own)} by the drafter's own config",
                contract=rule.line,
                bindings=c.dims.table(c.dims.needed(rule.shape)),
            )


def _faces_target(rule: Any) -> bool:
    exprs = [*rule.shape, *([rule.when] if rule.when else [])]
    return any(name.startswith("target.") for expr in exprs for name in expr.names)


def _shape(axes: Sequence[Any], dims: Bindings) -> tuple[int, ...] | None:
    try:
        values = [evaluate(axis, dims) for axis in axes]
    except ExprError:
        return None
    return None if any(isinstance(v, Unknown) for v in values) else tuple(values)


def embedding(c: Couple) -> Iterator[Finding]:
    """Check that the drafter can share the target's embedding, or ships its own."""
    own, theirs = c.drafter.size("hidden"), c.size("target_hidden")
    target_own = c.target.size("hidden")
    theirs = target_own if isinstance(target_own, Known) else theirs
    if not (isinstance(own, Known) and isinstance(theirs, Known)):
        return
    if own.value == theirs.value:
        yield holds("PAIR402", "embedding", f"hidden {own.value} on both sides")
    elif not c.drafter.table.read:
        yield unknown(
            "PAIR402",
            "embedding",
            expected=f"width {theirs.value}, or an embedding of its own",
            observed=f"width {own.value}; whether it ships one is not known",
        )
    elif (tensor := c.drafter.role("embedding")) is not None:
        yield holds(
            "PAIR402", "embedding", f"the drafter's own: {list(tensor.shape)}, not shared (target width {theirs.value})"
        )
    else:
        yield finding(
            "PAIR402",
            "embedding",
            expected=f"width {theirs.value} ({theirs.witness}), or embed_tokens of its own",
            observed=f"width {own.value} ({own.witness}), and none",
        )


def head(c: Couple) -> Iterator[Finding]:
    """Check that a drafter without lm_head will borrow one, rather than draft with an untrained one."""
    contract = c.drafter.contract
    assert contract is not None
    vocab, full = c.drafter.size("draft_vocab"), c.size("target_vocab")
    if not (isinstance(vocab, Known) and isinstance(full, Known) and c.drafter.table.read and "head" in contract.roles):
        return
    if c.drafter.role("head") is not None or vocab.value < full.value:
        return  # present, or rung 1 said that it is missing
    key = str(contract.dims[contract.sizes["draft_vocab"]].sources["drafter"][0])
    if isinstance(c.drafter.lookup(key), Known):
        yield finding(
            "PAIR418",
            contract.roles["head"],
            expected=f"the tensor, or no {key} in config.json",
            observed=f"no tensor, {key} = {vocab.value}",
            where=c.drafter.checkpoint.source.label,
        )


# --- context, layers ----------------------------------------------------------------------------------------------


def context(c: Couple) -> Iterator[Finding]:
    """Compare the drafter's context with the target's."""
    own, theirs = c.size("context"), c.size("target_context")
    if not (isinstance(own, Known) and isinstance(theirs, Known)):
        if isinstance(theirs, Unknown) and not theirs.told:
            yield unknown("PAIR403", "context", expected="the target's context", observed=theirs.why)
        return
    if own.value >= theirs.value:
        yield holds("PAIR403", "context", f"{own.value} tokens, target {theirs.value}")
        return
    rows = engine_rows(c, own.witness.rpartition(" ")[2])
    trained = c.facts.get("trained_context")
    known = (
        f"trained at {trained.value} tokens ({trained.source})"
        if trained
        else "the length it was trained at is not declared"
    )
    yield finding(
        "PAIR403",
        "context",
        expected=f"at least {theirs.value} tokens ({theirs.witness})",
        observed=f"{own.value} ({own.witness})",
        note="; ".join([*(f"{r.engine} {r.version} {r.outcome}: {r.see}" for r in rows), known]),
        where=c.drafter.checkpoint.source.label,
    )


def engine_rows(c: Couple, key: str = "") -> list[EngineRow]:
    """Return the engine rows that apply to this pair, of one config key or of all."""
    rows = []
    for _, engine, _ in c.library.all("engine"):
        for row in engine.rows if engine else ():
            if key and row.key != key:
                continue
            try:
                if evaluate(row.when, c.dims) is True:
                    rows.append(row)
            except ExprError:
                continue
    return rows


def aux_layers(c: Couple) -> Iterator[Finding]:
    """Check the captured target layers: usable, in a declared convention, and against the family's default."""
    contract = c.drafter.contract
    assert contract is not None
    layers = c.size("target_layers")
    if not contract.conventions or not isinstance(layers, Known):
        if isinstance(layers, Unknown) and not layers.told:
            yield unknown("PAIR407", "aux layers", expected="the target's layer count", observed=layers.why)
        return
    stated = [(key, seen) for key in contract.aux_keys if not isinstance(seen := c.drafter.lookup(key), Absent)]
    known = [(key, seen) for key, seen in stated if isinstance(seen, Known)]
    defaults = {n: [evaluate(e, c.dims) for e in conv.default] for n, conv in contract.conventions.items()}
    where = c.drafter.checkpoint.source.label
    if not known:
        yield from _aux_default(c, stated, defaults, where)
        return
    key, first = known[0]
    ids = list(first.value)
    yield from _aux_agree(known, where)
    fact = c.facts.get("aux_convention")
    declared = contract.conventions.get(str(fact.value)) if fact else None
    usable = aux_usable(c, ids)
    problem = (
        _aux_problem(c, declared, ids)
        if declared
        else ("" if usable else _aux_problem(c, next(iter(contract.conventions.values())), ids))
    )
    if problem:
        yield finding(
            "PAIR407",
            f"config.json: {key}",
            expected=f"distinct ascending layers of the target's {layers.value}",
            observed=f"{ids}: {problem}",
            where=where,
        )
        return
    yield holds("PAIR407", f"config.json: {key}", f"{ids} of {layers.value} layers")
    alike = [n for n, default in defaults.items() if default == ids and (declared is None or declared.name == n)]
    looks = f"{ids} is the {alike[0]}-style default for {layers.value} layers" if alike else ""
    if declared and fact:
        yield holds("PAIR408", f"config.json: {key}", f"{declared.name} ({fact.source})")
    else:
        boundaries = "; ".join(
            f"as {v.name} they are the inputs of layers {[i + v.offset for i in ids]}" for v in usable
        )
        yield unknown(
            "PAIR408",
            f"config.json: {key}",
            expected=f"one of {', '.join(contract.conventions)}, declared with a source",
            observed="not declared",
            note="; ".join(filter(None, [looks, boundaries])),
            where=where,
        )
    trained = c.facts.get("aux_layers")
    if trained and list(trained.value) != ids:
        yield finding(
            "PAIR409",
            f"config.json: {key}",
            level="error",
            expected=f"{list(trained.value)} ({trained.source})",
            observed=f"{ids}",
            where=where,
        )
    elif alike:
        yield holds("PAIR409", f"config.json: {key}", looks)
    elif trained:
        yield holds("PAIR409", f"config.json: {key}", f"{ids}, as trained ({trained.source})")
    else:
        shown = "; ".join(f"{n}: {d}" for n, d in defaults.items())
        yield finding(
            "PAIR409",
            f"config.json: {key}",
            expected=f"the default for {layers.value} layers ({shown})",
            observed=f"{ids}",
            where=where,
        )


def _aux_default(c: Couple, stated: Sequence[Any], defaults: Mapping[str, list[int]], where: str) -> Iterator[Finding]:
    """Speak of a drafter that names no layers: the engine captures its default."""
    contract = c.drafter.contract
    assert contract is not None
    unread = [seen for _, seen in stated if isinstance(seen, Unknown)]
    if unread:
        if not unread[0].told:
            yield unknown(
                "PAIR409",
                "aux layers",
                expected=f"{contract.aux_keys[0]}, or its absence",
                observed=unread[0].why,
                where=where,
            )
        return
    name, ids = next(iter(defaults.items()))
    explicit = any(_is_null(c, key) for key in contract.aux_keys)
    trained = c.facts.get("aux_layers")
    if trained and list(trained.value) in defaults.values():
        yield holds(
            "PAIR409", "aux layers", f"none named; trained on the default {list(trained.value)} ({trained.source})"
        )
    elif trained:
        yield finding(
            "PAIR409",
            "aux layers",
            level="error",
            expected=f"{list(trained.value)}, as trained ({trained.source})",
            observed=f"none named: engines capture {ids} ({name})",
            where=where,
        )
    else:
        yield finding(
            "PAIR409",
            "aux layers",
            "aux layer ids are left to the engine's default",
            level="info" if explicit else "warning",
            expected=f"{contract.aux_keys[0]} in config.json",
            observed=f"{'null' if explicit else 'not there'}: engines capture {ids} ({name})",
            where=where,
            help="write the layers that the drafter was trained on",
        )


def _is_null(c: Couple, key: str) -> bool:
    value: Any = c.drafter.checkpoint.config.data
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return value is None


def _aux_agree(known: Sequence[tuple[str, Known]], where: str) -> Iterator[Finding]:
    """Two keys may differ by one, each in the convention of the engine that reads it; else they contradict."""
    (key, first), *others = known
    for other_key, other in others:
        gaps = {abs(a - b) for a, b in zip(first.value, other.value, strict=False)}
        if len(first.value) != len(other.value) or gaps not in ({0}, {1}):
            yield finding(
                "CFG309",
                "aux layers",
                expected=f"{key} and {other_key} that name the same layers",
                observed=f"{list(first.value)} and {list(other.value)}",
                where=where,
            )


def aux_usable(c: Couple, ids: Sequence[Any]) -> list[Convention]:
    """Return the conventions under which a list of ids names layers of the target."""
    contract = c.drafter.contract
    return [v for v in contract.conventions.values() if not _aux_problem(c, v, ids)] if contract else []


def _aux_problem(c: Couple, convention: Convention, ids: Sequence[Any]) -> str:
    if not ids:
        return "the list is empty"
    if len(set(ids)) < len(ids):
        return "a layer is named twice"
    if list(ids) != sorted(ids):
        return "the order is not ascending, and engines sort them"
    low, high = evaluate(convention.low, c.dims), evaluate(convention.high, c.dims)
    out = [i for i in ids if not low <= i <= high]
    return f"{', '.join(map(str, out))} is outside {low}..{high} ({convention.name})" if out else ""


# --- tokens -------------------------------------------------------------------------------------------------------


def special_tokens(c: Couple) -> Iterator[Finding]:
    """Compare bos, eos and pad ids, and hold them to the vocabulary."""
    vocab = c.size("target_vocab")
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        own, theirs = _ids(c.drafter.lookup(key)), _ids(c.target.lookup(key))
        where = c.drafter.checkpoint.source.label
        if isinstance(vocab, Known) and (out := [i for i in own if not 0 <= i < vocab.value]):
            yield finding(
                "PAIR410",
                f"config.json: {key}",
                level="error",
                expected=f"0 to {vocab.value - 1}",
                observed=", ".join(map(str, out)),
                where=where,
            )
        elif own and theirs:
            if own <= theirs:
                yield holds("PAIR410", f"config.json: {key}", f"{sorted(own)}")
            else:
                level: Any = "info" if key == "pad_token_id" else "warning"
                yield finding(
                    "PAIR410",
                    f"config.json: {key}",
                    level=level,
                    expected=f"{sorted(theirs)} (target)",
                    observed=f"{sorted(own)}",
                    where=where,
                )


def _ids(seen: Any) -> set[int]:
    value = seen.value if isinstance(seen, Known) else None
    return {i for i in (value if isinstance(value, list) else [value]) if type(i) is int}


def tokenizer(c: Couple) -> Iterator[Finding]:
    """Compare the tokenizers where both are at hand: the strings that ids stand for, not the files' bytes."""
    own, theirs = (_token_table(v.checkpoint.source) for v in (c.drafter, c.target))
    if own is None or theirs is None:
        return
    (digest, table), (their_digest, their_table) = own, theirs
    if digest == their_digest:
        yield holds("PAIR419", "tokenizer", "the files are the same")
    elif not table or not their_table:
        yield unknown(
            "PAIR419", "tokenizer", expected="the same file", observed="files that differ, and cannot be compared by id"
        )
    else:
        ids = sorted(table.keys() & their_table.keys())
        differ = [i for i in ids if table[i] != their_table[i]]
        only = len(table.keys() ^ their_table.keys())
        if differ or only:
            shown = "; ".join(
                f"{i}: {visible(table[i], 40)!r} against {visible(their_table[i], 40)!r}" for i in differ[:5]
            )
            yield finding(
                "PAIR419",
                "tokenizer",
                expected="the same text for every id",
                observed=f"{len(differ)} of {len(ids)} common ids differ, {only} ids are in one only",
                note=shown,
            )
        else:
            yield holds("PAIR419", "tokenizer", f"all {len(ids)} ids stand for the same text")


def _token_table(source: Source) -> tuple[str, dict[int, str]] | None:
    """Return a digest and the id -> text table of a folder's tokenizer, or None where there is none."""
    name = next(
        (n for n in ("tokenizer.json", "tiktoken.model", "tokenizer.model") if source.files.get(n, -1) >= 0), None
    )
    if name is None:
        return None
    raw = source.take(name, TOKENIZER_LIMIT)
    if isinstance(raw, Finding):
        return None
    table: dict[int, str] = {}
    if name == "tokenizer.json":
        data, faults = strict_json(raw)
        if isinstance(data, dict) and not faults:
            model = data.get("model")
            vocab = model.get("vocab") if isinstance(model, dict) else None
            if isinstance(vocab, dict):
                table = {i: t for t, i in vocab.items() if type(i) is int}
            elif isinstance(vocab, list):
                table = {i: str(row[0]) for i, row in enumerate(vocab) if isinstance(row, list) and row}
            for row in data.get("added_tokens") or ():
                if isinstance(row, dict) and type(row.get("id")) is int:
                    table[row["id"]] = str(row.get("content"))
    return hashlib.sha256(raw).hexdigest(), table


# --- rope, norms, dtypes ------------------------------------------------------------------------------------------


def rope_of(view: View) -> tuple[dict[str, Known], list[Finding]]:
    """Return a side's rope in one spelling (theta, type, factor, …, partial_rotary_factor), and contradictions.

    theta stands at the top level or in rope_parameters; scaling in rope_scaling or rope_parameters, its type under
    rope_type or type; the partial factor in any of them (transformers 4 and 5 spellings).
    """
    out: dict[str, Known] = {}
    found: list[Finding] = []
    keys = {"rope_theta": "theta", "partial_rotary_factor": "partial_rotary_factor", "rope_interleave": "interleaved"}
    rename = {"rope_theta": "theta", "rope_type": "type"}

    def put(name: str, value: Any, witness: str) -> None:
        if value is None or isinstance(value, dict):
            return
        value = tuple(value) if isinstance(value, list) else value
        if name in out and out[name].value != value:
            found.append(
                finding(
                    "CFG309",
                    f"rope {name}",
                    expected=f"{out[name].value} ({out[name].witness})",
                    observed=f"{value} ({witness})",
                    where=view.checkpoint.source.label,
                )
            )
        out.setdefault(name, Known(value, witness))

    for key, name in keys.items():
        seen = view.lookup(key)
        if isinstance(seen, Known):
            put(name, seen.value, seen.witness)
    for key in ("rope_parameters", "rope_scaling"):
        seen = view.lookup(key)
        if isinstance(seen, Known) and isinstance(seen.value, Mapping):
            for inner, value in seen.value.items():
                put(rename.get(str(inner), str(inner)), value, f"{seen.witness}.{inner}")
    if view.contract is not None and "interleaved" in view.contract.rope:
        out.setdefault("interleaved", Known(view.contract.rope["interleaved"], f"contract {view.contract.id}"))
    return out, found


def rope_known(view: View) -> bool:
    """Tell whether a side's rope was published at all: neither known nor absent is unknown."""
    return not any(isinstance(view.lookup(k), Unknown) for k in ("rope_theta", "rope_scaling", "rope_parameters"))


def rope(c: Couple) -> Iterator[Finding]:
    """Set the two ropes side by side; a trained drafter may have its own."""
    (own, found), (theirs, _) = rope_of(c.drafter), rope_of(c.target)
    yield from found
    where = c.drafter.checkpoint.source.label
    for view in (c.drafter, c.target):
        if not rope_known(view):
            yield unknown(
                "PAIR411",
                f"{view.checkpoint.role} rope",
                expected="theta and scaling",
                observed="not published",
                where=view.checkpoint.source.label,
            )
            return
    differ = {
        k for k in own.keys() | theirs.keys() if k != "partial_rotary_factor" and _value(own, k) != _value(theirs, k)
    }
    if not differ:
        yield holds("PAIR411", "rope", rope_text(own))
        return
    scaled = [_value(side, "type") not in (None, "default") for side in (own, theirs)]
    level: Any = "warning" if all(scaled) and differ - {"interleaved", "theta"} else "info"
    yield finding(
        "PAIR411",
        "rope",
        level=level,
        expected=f"{rope_text(theirs)} (target)",
        observed=f"{rope_text(own)} (drafter)",
        note=f"differs in {', '.join(sorted(differ))}",
        where=where,
    )


def rope_text(rope: Mapping[str, Known]) -> str:
    """Return a rope in one line: "theta 50000.0, yarn, factor 64.0"."""
    rest = [f"{k} {_value(rope, k)}" for k in sorted(rope) if k not in ("theta", "type")]
    return ", ".join([f"theta {_value(rope, 'theta')}", str(_value(rope, "type") or "no scaling"), *rest])


def _value(rope: Mapping[str, Known], key: str) -> Any:
    return rope[key].value if key in rope else None


def partial_rotary(c: Couple) -> Iterator[Finding]:
    """Hold a partial rotary factor to the one that the drafter was trained with."""
    own, theirs = rope_of(c.drafter)[0].get("partial_rotary_factor"), rope_of(c.target)[0].get("partial_rotary_factor")
    trained = c.facts.get("partial_rotary_factor")
    is_ = own.value if own else 1
    where = c.drafter.checkpoint.source.label
    if trained and trained.value == is_:
        yield holds("PAIR412", "rope", f"partial_rotary_factor {is_}, as trained ({trained.source})")
    elif trained:
        yield finding("PAIR412", "rope", expected=f"{trained.value} ({trained.source})", observed=f"{is_}", where=where)
    elif own and is_ != 1:
        copied = "it is the target's own: copied?" if theirs and theirs.value == is_ else ""
        yield unknown(
            "PAIR412",
            "rope",
            expected="the factor the drafter was trained with, declared with a source",
            observed=f"{is_} ({own.witness})",
            note=copied,
            where=where,
        )
    elif rope_known(c.drafter):
        yield holds("PAIR412", "rope", "full rotary")


def norm_eps(c: Couple) -> Iterator[Finding]:
    """Set rms_norm_eps side by side."""
    own, theirs = c.drafter.lookup("rms_norm_eps"), c.target.lookup("rms_norm_eps")
    if isinstance(own, Known) and isinstance(theirs, Known):
        if own.value == theirs.value:
            yield holds("PAIR413", "rms_norm_eps", f"{own.value}")
        else:
            yield finding(
                "PAIR413", "rms_norm_eps", expected=f"{theirs.value} (target)", observed=f"{own.value} (drafter)"
            )


_STORED = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def dtype_of(view: View) -> tuple[str, list[Finding]]:
    """Return a side's dtype, as declared under dtype or torch_dtype, else as stored; and contradictions."""
    declared = {k: s.value for k in ("dtype", "torch_dtype") if isinstance(s := view.lookup(k), Known)}
    found = []
    if len(set(map(str, declared.values()))) > 1:
        seen = " and ".join(f"{k} = {visible(v)}" for k, v in declared.items())
        found.append(
            finding(
                "CFG309", "config.json: dtype", expected="one dtype", observed=seen, where=view.checkpoint.source.label
            )
        )
    stored: dict[str, int] = {}
    if view.table.read:
        for tensor in view.table.tensors.values():
            if tensor.dtype in _STORED:
                stored[tensor.dtype] = stored.get(tensor.dtype, 0) + 1
    most = _STORED[max(stored, key=lambda d: stored[d])] if stored else ""
    return next((str(v) for v in declared.values()), most), found


def dtype(c: Couple) -> Iterator[Finding]:
    """Compare the dtypes that the two sides declare, or store."""
    (own, found), (theirs, _) = dtype_of(c.drafter), dtype_of(c.target)
    yield from found
    if own and theirs:
        if own == theirs:
            yield holds("PAIR414", "dtype", own)
        else:
            yield finding(
                "PAIR414", "dtype", expected=f"{visible(theirs)} (target)", observed=f"{visible(own)} (drafter)"
            )


def quantisation(c: Couple) -> Iterator[Finding]:
    """Say where a quantised target meets a drafter that declares no quantisation."""
    own, theirs = c.drafter.lookup("quantization_config"), c.target.lookup("quantization_config")
    if isinstance(theirs, Known) and isinstance(own, Absent):
        method = theirs.value.get("quant_method", "unnamed") if isinstance(theirs.value, Mapping) else "unnamed"
        yield finding(
            "PAIR415",
            "quantization_config",
            level="info",
            expected="the drafter's own, or none at launch",
            observed=f"target {visible(method)}, drafter none",
        )


# --- where it comes from ------------------------------------------------------------------------------------------


def verifier(c: Couple) -> Iterator[Finding]:
    """Compare the target that the drafter's config declares with the one it is paired with."""
    seen = c.drafter.lookup("speculators_config.verifier.name_or_path")
    name = c.target.checkpoint.source.name
    if isinstance(seen, Known) and isinstance(seen.value, str) and seen.value:
        if same_repo(seen.value, name):
            yield holds("PAIR416", "verifier", name)
        else:
            yield finding("PAIR416", "verifier", expected=visible(seen.value), observed=visible(name))


def same_repo(a: str, b: str) -> bool:
    """Tell whether two names end in the same ORG/NAME."""
    return a.lower().rstrip("/").split("/")[-2:] == b.lower().rstrip("/").split("/")[-2:]


def lineage(c: Couple) -> Iterator[Finding]:
    """Say how the target relates to the one the drafter was trained on: all but the same lowers the verdict."""
    name = c.target.checkpoint.source.name
    fact = c.facts.get("trained_on")
    seen = c.drafter.lookup("speculators_config.verifier.name_or_path")
    if fact is None and isinstance(seen, Known) and isinstance(seen.value, str):
        fact = Fact(seen.value, seen.witness)
    if fact is None:
        yield unknown(
            "PAIR417",
            "lineage",
            expected="the target it was trained on, declared with a source",
            observed="not declared",
            help="declare trained_on in contracts/models/ or in the pair's [facts]",
        )
        return
    trained = str(fact.value)
    if same_repo(trained, name):
        yield holds("PAIR417", "lineage", f"trained on {trained} ({fact.source})")
        return
    relation = related(c.library, trained, name)
    yield unknown("PAIR417", "lineage", expected=f"{trained} ({fact.source})", observed=f"{visible(name)}: {relation}")


def related(library: Library, trained: str, target: str) -> str:
    """Return how a target relates to another: quantised of, fine-tune of, of a common ancestor, or unknown."""
    up, down = _ancestors(library, target), _ancestors(library, trained)
    if trained.lower() in up:
        return f"{up[trained.lower()]} of it"
    if target.lower() in down:
        return f"it is a {down[target.lower()]} of this target"
    common = [repo for repo in up if repo in down]
    return f"both come from {common[0]}" if common else "relation unknown"


def _ancestors(library: Library, repo: str) -> dict[str, str]:
    """Return ancestor -> relation, nearest first; a chain is as weak as its weakest link."""
    out: dict[str, str] = {}
    relation = ""
    for _ in range(8):
        model: Model | None = library.model(repo)[0]
        if model is None or not model.parent or model.parent.lower() in out:
            break
        relation = "fine-tune" if "fine-tune" in (relation, model.relation) else model.relation
        repo = model.parent
        out[repo.lower()] = relation
    return out
