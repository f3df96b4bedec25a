"""Rung 2: does a drafter fit a target? Functions from two conformed views to findings.

Each function is one question, and they stand in the order in which ``fits`` asks them. What rung 1 said of the
drafter alone is not said again. Only questions about tokens read anything: the tokenizer files (``tokenizer``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from draftproof.checkpoint import listed
from draftproof.conform import (
    Expected,
    View,
    both,
    check_tensor,
    disagreement,
    dtype_of,
    expectations,
    rope_of,
    rope_unknown,
)
from draftproof.contracts import Contract, Convention, EngineRow, Fact, Meaning, Model, TensorRule
from draftproof.dims import Absent, Bindings, Known, Seen, Unknown, is_true, value_of
from draftproof.findings import Finding, Level, finding, holds, unknown, visible, whole
from draftproof.library import Library
from draftproof.tokens import Tokens, at_hand, special_ids

if TYPE_CHECKING:
    from draftproof.tokenizer import Tokenizers


@dataclass
class Couple:
    """Hold a drafter and a target that both conform, the dims of the pair, and what is declared beyond the files."""

    drafter: View
    target: View
    library: Library
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sides = {"drafter": self.drafter.lookup, "target": self.target.lookup}
        self.dims = Bindings(self.family.dims, sides, self.drafter.dims.extra, self.drafter.dims.believed)
        self.tokens = Tokens(self.drafter, self.target)

    @property
    def family(self) -> Contract:
        """Return the drafter's contract."""
        assert self.drafter.contract is not None
        return self.drafter.contract

    @cached_property
    def tokenizers(self) -> Tokenizers | None:
        """Return both tokenizers, or None where there is nothing to read and compare."""
        if not self.tokens.wanted:
            return None
        from draftproof.tokenizer import Tokenizers  # noqa: PLC0415 (most pairs have no such files)

        return Tokenizers(self.tokens)

    @cached_property
    def padded(self) -> str:
        """Return why the two vocabularies differ by padding only, or "" where they do not, or it is not known."""
        own, theirs = self._vocabularies
        known = isinstance(own, Known) and isinstance(theirs, Known) and own.value != theirs.value
        if not known or self.tokenizers is None:
            return ""
        return self.tokenizers.padding(own.value, theirs.value)  # type: ignore[union-attr]

    @cached_property
    def own_dims(self) -> Bindings:
        """Return the dims of the pair, the vocabulary by the drafter's word where the target only pads it otherwise."""
        if not self.padded:
            return self.dims
        sides = {"drafter": self.drafter.lookup, "target": self.target.lookup}
        dims = Bindings(self.family.dims, sides, self.drafter.dims.extra, self.drafter.dims.believed)
        own = self._vocabularies[0]
        assert isinstance(own, Known)
        dims.believe(self.family.sizes["target_vocab"], own)
        return dims

    @property
    def _vocabularies(self) -> tuple[Seen, Seen]:
        name = self.family.sizes.get("target_vocab", "")
        if name not in self.dims.dims:
            return Absent(""), Absent("")
        return self.dims.stated(name, "drafter"), self.dims.stated(name, "target")

    @property
    def one(self) -> bool:
        """Tell whether the drafter stands in the target's own checkpoint."""
        own, theirs = self.drafter.checkpoint.source, self.target.checkpoint.source
        return self.family.in_target and (own.kind, own.name, own.revision) == (
            theirs.kind,
            theirs.name,
            theirs.revision,
        )

    def size(self, part: str) -> Any:
        """Return what is known of the dim that plays a part, by the target's own word where it has one."""
        name = self.family.sizes.get(part, "")
        return self.dims(name) if name else Unknown(f"the family has no {part}", told=True)


def declared_facts(library: Library, repo: str, over: Mapping[str, Fact] | None = None) -> dict[str, Fact]:
    """Return what contracts/models says of a repo, overridden by the pair's own facts."""
    model, _ = library.model(repo)
    return (dict(model.facts) if model else {}) | dict(over or {})


def fits(couple: Couple) -> list[Finding]:
    """Ask every question of rung 2, in the order in which they stand below."""
    of_tokens: Sequence[Question] = (stated_sizes, context, special_tokens, tokenizer, meanings)
    of_states: Sequence[Question] = (
        stated_sizes,
        sizes_left_out,
        fused_input,
        embedding,
        head,
        borrowed_head,
        borrowed_copies,
        full_map,
        context,
        aux_layers,
        special_tokens,
        tokenizer,
        rope,
        partial_rotary,
        norm_eps,
        dtype,
        quantisation,
        verifier,
        meanings,
        lineage,
    )
    return [f for ask in (of_tokens if couple.family.standalone else of_states) for f in ask(couple)]


Question = Callable[[Couple], Iterator[Finding]]


# --- geometry -----------------------------------------------------------------------------------------------------


def stated_sizes(c: Couple) -> Iterator[Finding]:
    """Compare what the drafter's config says of its target with what the target's config says of itself."""
    for name, dim in c.dims.dims.items():
        if not {"drafter", "target"} <= set(dim.sources):
            continue
        said, is_ = c.dims.stated(name, "drafter"), c.dims.stated(name, "target")
        yield from both(c, dim.differs, name, said, is_)
        if isinstance(said, Known) and isinstance(is_, Known):
            if said.value == is_.value:
                yield holds(dim.differs, name, f"{name} = {is_.value} on both sides")
                continue
            vocab = name == c.family.sizes.get("target_vocab")
            parts: dict[str, Any] = {
                "expected": f"{is_.value} ({is_.witness})",
                "observed": f"{said.value} ({said.witness})",
            }
            if vocab and c.padded:
                yield finding("PAIR421", name, note=c.padded, contract=dim.line, **parts)
            else:
                note = _size_note(c, said.value, is_.value) if vocab else ""
                yield finding(dim.differs, name, note=note, contract=dim.line, **parts)
    for clash in c.dims.disagreements:
        ours = clash in c.drafter.dims.disagreements
        across = {"drafter", "target"} <= set(clash.dim.sources) and clash.first.witness[:6] != clash.second.witness[:6]
        if not ours and not across:
            yield disagreement(clash)


def _size_note(c: Couple, said: int, is_: int) -> str:
    """Return what is known of two sizes of a vocabulary that are no mere padding."""
    if c.tokenizers is not None and (note := c.tokenizers.size_note(said, is_)):
        return note
    gap = abs(said - is_)
    if gap <= 1024 and said % 64 == is_ % 64 == 0:
        return f"they differ by {gap}: padding rows, if both tokenizers are the same"
    return ""


def sizes_left_out(c: Couple) -> Iterator[Finding]:
    """Say where a size is left to its default though the target, of the same other sizes, states another.

    A converter that copies a target's sizes and drops one leaves such a config. A drafter of other sizes than its
    target has its own reason for each.
    """
    if any(f.code == "TEN403" and f.level == "error" for f in c.drafter.findings):
        return  # the tensors tell which size is right, and rung 1 did
    used = {name for rule in c.family.tensors.values() for axis in rule.shape for name in axis.names}
    for name, dim in c.family.dims.items():
        key = next(iter(dim.sources.get("drafter", ())), None)
        if name not in used or "target" in dim.sources or dim.bool_ or dim.default is None or not (key and key.name):
            continue
        if name in c.drafter.dims.believed:
            continue  # the tensors tell, and rung 1 said so
        own, theirs = c.drafter.dims(name), c.target.lookup(key.name)
        if not isinstance(c.drafter.lookup(key.name), Absent) or not isinstance(own, Known):
            continue
        if not (isinstance(theirs, Known) and dim.default.names and all(_copied(c, n) for n in dim.default.names)):
            continue
        if own.value == theirs.value:
            yield holds("PAIR430", name, f"{own.value} on both sides")
        else:
            seen, where = f"not there: {name} is {own.value} ({own.witness})", c.drafter.checkpoint.source.label
            expected = f"{theirs.value} ({theirs.witness}), or a value"
            yield finding("PAIR430", f"config.json: {key.name}", expected=expected, observed=seen, contract=dim.line,
                          where=where)  # fmt: skip


def _copied(c: Couple, name: str) -> bool:
    """Tell whether the target states the same value as the drafter under the same config key."""
    own = c.drafter.dims.stated(name, "drafter")
    theirs = c.target.lookup(own.key) if isinstance(own, Known) and own.key else None
    return isinstance(own, Known) and isinstance(theirs, Known) and theirs.value == own.value


def fused_input(c: Couple) -> Iterator[Finding]:
    """Check the tensors that take their size from the target, under the target's own sizes."""
    facing = {name for name, dim in c.dims.dims.items() if "target" in dim.sources}
    rules = {rule.name for rule in c.family.tensors.values() if _uses(rule, facing)}
    differ = {name: dim.differs for name, dim in c.dims.dims.items() if _differs(c, name)}
    rules -= {rule.name for rule in c.family.tensors.values() if _said(rule, differ)}
    wants = [want for want in expectations(c.family, c.own_dims) if want.rule.name in rules]
    yield from (_fused_tensors if c.drafter.table.read else _fused_configs)(c, wants)


def _said(rule: TensorRule, differ: Mapping[str, str]) -> bool:
    """Tell whether stated_sizes reported, under this rule's own code, a dim that the rule uses."""
    return any(code == rule.misfit and _uses(rule, [name]) for name, code in differ.items())


def _fused_tensors(c: Couple, wants: Sequence[Expected]) -> Iterator[Finding]:
    """Compare the drafter's own tensors with what the target asks of them."""
    failed = {f.subject for f in c.drafter.findings if f.level in ("error", "unknown") and f.code[:3] in ("TEN", "PAI")}
    failed |= c.drafter.said
    misfits = list[tuple[Expected, Finding]]()
    for want in wants:
        for f in check_tensor(c.drafter, want, c.own_dims, misfit=True):
            if f.subject not in failed and f.level == "error":
                misfits.append((want, f))
            elif f.subject not in failed:
                yield f
    yield from _by_size(c, misfits)


def _by_size(c: Couple, misfits: Sequence[tuple[Expected, Finding]]) -> Iterator[Finding]:
    """Say once of all tensors that do not fit for one size of the target; the code is that of the size alone."""
    groups = dict[Any, list[tuple[Expected, Finding]]]()
    for want, f in misfits:
        names = {name for axis in want.rule.shape for name in axis.names}
        other = {name for name in names if _unlike(c.drafter.dims(name), c.own_dims(name))}
        groups.setdefault(other.pop() if len(other) == 1 else f.subject, []).append((want, f))
    for name, rows in groups.items():
        alone = [f for want, f in rows if any(axis.name == name for axis in want.rule.shape[:1])]
        first = (alone or [f for _, f in rows])[0]
        others = [f"{f.subject} {f.observed} for {f.expected.rpartition(' = ')[2]}" for _, f in rows if f is not first]
        note = "; ".join(part for part in (first.note, f"with it {listed(others, 12)}" if others else "") if part)
        yield replace(first, note=note)


def _unlike(own: Seen, theirs: Seen) -> bool:
    return isinstance(own, Known) and isinstance(theirs, Known) and own.value != theirs.value


def _fused_configs(c: Couple, wants: Sequence[Expected]) -> Iterator[Finding]:
    """Compare what the drafter's config and the pair make of a shape, where the table was not read."""
    for want in wants:
        rule, code = want.rule, want.rule.misfit
        if want.presence != "required" or code == "TEN403":
            continue
        own, pair = _shape(rule.shape, c.drafter.dims), _shape(rule.shape, c.own_dims)
        asked = f"[{', '.join(map(str, rule.shape))}]"
        if own is None or pair is None:
            asked_of = c.own_dims if pair is None else c.drafter.dims
            lacking = ", ".join(n for n in c.dims.needed(rule.shape) if not isinstance(asked_of(n), Known))
            yield unknown(code, want.name, expected=asked, observed=f"not known: {lacking}", contract=rule.line)
        elif own == pair:
            yield holds(code, want.name, f"{list(pair)} by both configs", expected=asked)
        else:
            seen, bindings = f"{list(own)} by the drafter's own config", c.dims.table(c.dims.needed(rule.shape))
            yield finding(code, want.name, expected=f"{asked} = {list(pair)}", observed=seen, contract=rule.line,
                          bindings=bindings)  # fmt: skip


def _differs(c: Couple, name: str) -> bool:
    said, is_ = c.dims.stated(name, "drafter"), c.dims.stated(name, "target")
    return isinstance(said, Known) and isinstance(is_, Known) and said.value != is_.value


def _uses(rule: TensorRule, names: Collection[str]) -> bool:
    exprs = [*rule.shape, *([rule.when] if rule.when else []), *(end for loop in rule.over for end in loop[1:3])]
    return any(name in names for expr in exprs for name in expr.names)


def _shape(axes: Sequence[Any], dims: Bindings) -> tuple[int, ...] | None:
    values = [value_of(axis, dims) for axis in axes]
    return None if any(isinstance(v, Unknown) for v in values) else tuple(values)


def embedding(c: Couple) -> Iterator[Finding]:
    """Check that the drafter can share the target's embedding, or ships its own."""
    own, theirs = c.drafter.size("hidden"), c.target.size("hidden")
    yield from both(c, "PAIR402", "embedding", own, theirs)
    if not (isinstance(own, Known) and isinstance(theirs, Known)) or "embedding" not in c.family.roles:
        return
    if own.value == theirs.value:
        yield holds("PAIR402", "embedding", f"hidden {own.value} on both sides")
    elif not c.drafter.table.read:
        yield unknown("PAIR402", "embedding", expected=f"width {theirs.value}, or an embedding of its own",
                      observed=f"width {own.value}; whether it ships one is not known")  # fmt: skip
    elif (tensor := c.drafter.role("embedding")) is not None:
        yield holds(
            "PAIR402", "embedding", f"the drafter's own {list(tensor.shape)}; the target's is {theirs.value} wide"
        )
        name = c.drafter.names[c.family.roles["embedding"]]
        expected = f"width {theirs.value} ({theirs.witness}), or one that is not shared"
        seen = f"width {own.value} ({own.witness}), and {visible(name)} {list(tensor.shape)} of its own"
        where = c.drafter.checkpoint.source.label
        yield finding("PAIR432", "embedding", expected=expected, observed=seen, where=where)
    else:
        expected = f"width {theirs.value} ({theirs.witness}), or embed_tokens of its own"
        yield finding(
            "PAIR402", "embedding", expected=expected, observed=f"width {own.value} ({own.witness}), and none"
        )


def head(c: Couple) -> Iterator[Finding]:
    """Check that a drafter without lm_head will borrow one, rather than draft with an untrained one."""
    contract = c.family
    vocab, full, tied = c.drafter.size("draft_vocab"), _own_vocab(c), c.drafter.size("tied")
    name, dim = contract.roles.get("head", ""), contract.dims.get(contract.sizes.get("draft_vocab", ""))
    if not (name and dim and c.drafter.table.read and isinstance(vocab, Known) and isinstance(full, Known)):
        return
    if c.drafter.role("head") is not None or vocab.value < full.value:
        return  # present, or rung 1 said that it is missing
    if contract.head_lent or (isinstance(tied, Known) and tied.value):
        return  # the head is the target's, or the embedding
    key = str(next(iter(dim.sources.get("drafter", ())), ""))
    seen = c.drafter.lookup(key)
    yield from both(c, "PAIR418", name, seen, seen if not isinstance(seen, Unknown) else Absent(key))
    if isinstance(seen, Known):
        yield finding("PAIR418", name, expected=f"the tensor, or no {key} in config.json",
                      observed=f"no tensor, {key} = {vocab.value}",
                      where=c.drafter.checkpoint.source.label)  # fmt: skip


def _own_vocab(c: Couple) -> Seen:
    """Return the whole vocabulary as the drafter counts it, where the target only pads it otherwise."""
    return c.own_dims(c.family.sizes["target_vocab"]) if c.padded else c.size("target_vocab")


def borrowed_head(c: Couple) -> Iterator[Finding]:
    """Say where the drafter borrows a head that its target does not have: the head is the target's embedding."""
    target = c.target.contract
    name = target.roles.get("head", "") if target else ""
    if c.drafter.role("head") is not None or not (name and c.drafter.table.read and c.target.table.read):
        return
    tied, embedding, where = c.target.dims("tied"), c.target.role("embedding"), c.target.checkpoint.source.label
    if c.target.role("head") is None and target and embedding and isinstance(tied, Known) and tied.value is True:
        held = c.target.names[target.roles["embedding"]]
        lacking = c.target.dialect.encode(name) if c.target.dialect else name
        expected, seen = f"{lacking}, or a reader that takes {held}", f"{held} {list(embedding.shape)}, {tied.witness}"
        yield finding("PAIR431", name, expected=expected, observed=f"no {lacking}; {seen}", where=where)


def borrowed_copies(c: Couple) -> Iterator[Finding]:
    """Say which copies of the target's tensors a drafter in the target's checkpoint does without."""
    target, where = c.target.contract, c.drafter.checkpoint.source.label
    if not (c.family.in_target and target and c.drafter.names):
        return
    for want in expectations(c.family, c.dims):
        role = target.roles.get(want.rule.group, "") if want.presence == "optional" else ""
        if role and c.drafter.tensor(want.name) is None:
            lacking = c.drafter.dialect.encode(want.name) if c.drafter.dialect else want.name
            own = c.target.names.get(role) or "no such tensor of its own either"
            yield finding("TEN431", lacking, expected=f"a reader that takes the target's {want.rule.group}",
                          observed=f"not there; the target has {visible(own)}", where=where)  # fmt: skip


def full_map(c: Couple) -> Iterator[Finding]:
    """Say that a map at a full vocabulary must change nothing: its values are not read here."""
    vocab, full = c.drafter.size("draft_vocab"), _own_vocab(c)
    if isinstance(vocab, Known) and isinstance(full, Known) and vocab.value == full.value and c.drafter.role("map"):
        yield finding("PAIR405", c.family.roles["map"], "d2t at a full vocabulary must be all zero", level="info",
                      expected="zeros, or no d2t", observed="d2t is there; its values were not read")  # fmt: skip


# --- context, layers ----------------------------------------------------------------------------------------------


def context(c: Couple) -> Iterator[Finding]:
    """Compare the drafter's context with the target's."""
    own, theirs = c.size("context"), c.size("target_context")
    yield from both(c, "PAIR403", "context", own, theirs)
    if not (isinstance(own, Known) and isinstance(theirs, Known)):
        return
    trained = c.facts.get("trained_context")
    said = f"trained at {trained.value} tokens ({trained.source})" if trained else ""
    if own.value < theirs.value:
        rows = engine_rows(c, own.key)
        known = said or "the length it was trained at is not declared"
        yield finding("PAIR403", "context", expected=f"at least {theirs.value} tokens ({theirs.witness})",
                      observed=f"{own.value} ({own.witness})",
                      note="; ".join([*(f"{r.engine} {r.version} {r.does}: {r.see}" for r in rows), known]),
                      where=c.drafter.checkpoint.source.label)  # fmt: skip
    elif trained and own.value < trained.value:
        yield finding("PAIR433", "context", expected=said, observed=f"{own.value} ({own.witness})",
                      where=c.drafter.checkpoint.source.label)  # fmt: skip
    elif trained and trained.value < theirs.value:
        yield finding("PAIR403", "context", "drafter was trained at less than the target's context", level="warning",
                      expected=f"{theirs.value} tokens ({theirs.witness})", observed=said,
                      help="expect the accept length to fall beyond it, or train the drafter further")  # fmt: skip
    else:
        yield holds("PAIR403", "context", f"{own.value} tokens, target {theirs.value}")


def engine_rows(c: Couple, key: str = "") -> list[EngineRow]:
    """Return the engine rows that apply to this pair, of one config key or of all."""
    rows = []
    for _, engine, _ in c.library.all("engine"):
        for row in engine.rows if engine else ():
            if key and row.key != key:
                continue
            if is_true(row.when, c.dims):
                rows.append(row)
    return rows


def aux_layers(c: Couple) -> Iterator[Finding]:
    """Check the captured target layers: usable, in a declared convention, as trained, or the family's default."""
    contract, layers, where = c.family, c.size("target_layers"), c.drafter.checkpoint.source.label
    use = c.drafter.size("use_aux")
    if not contract.conventions or (isinstance(use, Known) and use.value is False):
        return
    yield from both(c, "PAIR407", "aux layers", Absent(""), layers)
    given = {name: convention.default for name, convention in contract.conventions.items() if convention.default}
    defaults = {name: [value_of(e, c.dims) for e in row] for name, row in given.items()}
    if not isinstance(layers, Known) or any(isinstance(i, Unknown) for row in defaults.values() for i in row):
        return
    stated = {key: c.drafter.lookup(key) for key in contract.aux_keys}
    known = [seen for seen in stated.values() if isinstance(seen, Known)]
    if not known:
        yield from _aux_default(c, stated, defaults, where)
        return
    subject, ids = f"config.json: {known[0].key}", list(known[0].value)
    yield from _aux_agree(known, where, len(c.family.conventions))
    fact, trained = c.facts.get("aux_convention"), c.facts.get("aux_layers")
    declared = contract.conventions.get(str(fact.value)) if fact else None
    source = fact.source if fact else f"contract {contract.id}: it has no other"
    if fact is None and len(contract.conventions) == 1:
        (declared,) = contract.conventions.values()
    usable = [declared] if declared and not _aux_problem(c, declared, ids) else [] if declared else aux_usable(c, ids)
    if not usable:
        problem = _aux_problem(c, declared or next(iter(contract.conventions.values())), ids)
        yield finding("PAIR407", subject, expected=f"distinct ascending layers of the target's {layers.value}",
                      observed=f"{ids}: {problem}", note=_captured(c, declared, ids), where=where)  # fmt: skip
        return
    yield holds("PAIR407", subject, f"{ids} of {layers.value} layers")
    styles = [n for n, default in defaults.items() if default == ids]
    looks = f"{ids} is the {styles[0]}-style default for {layers.value} layers" if styles else ""
    if declared:
        yield holds("PAIR408", subject, f"{declared.name} ({source})")
    else:
        names = ", ".join(contract.conventions)
        read = "; ".join(f"as {v.name} they are the inputs of layers {[i + v.offset for i in ids]}" for v in usable)
        odd = f"{visible(fact.value)} ({fact.source}), which the family does not know" if fact else "not declared"
        yield unknown("PAIR408", subject, expected=f"one of {names}, declared with a source", observed=odd,
                      note="; ".join(filter(None, [looks, read])), where=where)  # fmt: skip
    if trained and list(trained.value) == ids:
        yield holds("PAIR409", subject, f"{ids}, as trained ({trained.source})")
    elif trained:
        yield finding("PAIR409", subject, "aux layer ids are not those it was trained on", level="error",
                      expected=f"{list(trained.value)} ({trained.source})", observed=f"{ids}", where=where)  # fmt: skip
    elif styles and (declared is None or declared.name in styles):
        yield holds("PAIR409", subject, looks)
    elif defaults and not _counted_wrong(c):
        shown = "; ".join(f"{n}: {d}" for n, d in defaults.items())
        yield finding("PAIR409", subject, expected=f"the default for {layers.value} layers ({shown})",
                      observed=f"{ids}", note=looks, where=where)  # fmt: skip


def _counted_wrong(c: Couple) -> bool:
    """Tell whether rung 1 said that the fusion layer takes another number of states than ids are named."""
    name = c.drafter.names.get(c.family.roles.get("fusion", ""), "")
    return any(f.code == "TEN403" and f.level == "error" and f.subject == visible(name) for f in c.drafter.findings)


def _aux_default(
    c: Couple, stated: Mapping[str, Seen], defaults: Mapping[str, list[int]], where: str
) -> Iterator[Finding]:
    """Speak of a drafter that names no layers: the engine captures its default."""
    unread = [seen for seen in stated.values() if isinstance(seen, Unknown)]
    if unread:
        yield from both(c, "PAIR409", "aux layers", unread[0], Absent(""))
        return
    key, trained = next(iter(stated)), c.facts.get("aux_layers")
    null = any(c.drafter.config.is_null(k) for k in stated)
    if not defaults:
        known = f"{list(trained.value)} ({trained.source})" if trained else "the layers it was trained on"
        yield finding("PAIR409", "aux layers", "aux layers are not named, and the family has no default", level="error",
                      expected=f"{key} in config.json: {known}", observed="null" if null else "not there",
                      note=_fused(c), where=where,
                      help="write the layers that the drafter was trained on")  # fmt: skip
        return
    name, ids = next(iter(defaults.items()))
    observed = f"{'null' if null else 'not there'}: engines capture {ids} ({name})"
    declared = c.facts.get("aux_convention")
    its_own = {n: row for n, row in defaults.items() if declared and n == declared.value} or defaults
    if trained and list(trained.value) in its_own.values():
        yield holds(
            "PAIR409", "aux layers", f"none named; trained on the default {list(trained.value)} ({trained.source})"
        )
    elif trained:
        yield finding("PAIR409", "aux layers", "aux layers are not those it was trained on", level="error",
                      expected=f"{list(trained.value)} ({trained.source})", observed=observed, where=where)  # fmt: skip
    else:
        yield finding("PAIR409", "aux layers", "aux layer ids are left to the engine's default",
                      level="info" if null else "warning", expected=f"{key} in config.json", observed=observed,
                      where=where, help="write the layers that the drafter was trained on")  # fmt: skip
        yield unknown("PAIR408", "aux layers", "the layers it was trained on are not declared", expected=f"{ids}",
                      observed="not declared", where=where,
                      help="declare aux_layers with a source: contracts/models/, or the pair's [facts]")  # fmt: skip


def _captured(c: Couple, convention: Convention | None, ids: Sequence[int]) -> str:
    """Say how much of what the fusion reads is captured, where some of the layers are not there."""
    width, tensor = c.size("target_hidden"), c.drafter.role("fusion")
    ends = [value_of(e, c.dims) for e in (convention.low, convention.high)] if convention else []
    if not isinstance(width, Known) or len(ends) != 2 or any(isinstance(e, Unknown) for e in ends):
        return ""
    there = len({i for i in ids if ends[0] <= i <= ends[1]})
    wanted = tensor.shape[1] if tensor and len(tensor.shape) == 2 else len(ids) * width.value
    if there == len(ids):
        return ""
    name = c.family.roles.get("fusion", "the fusion")
    return f"{there} of {len(ids)} states are captured: {name} gets {there * width.value} of {wanted}"


def _fused(c: Couple) -> str:
    """Say of how many layers the fusion reads the states, where its width tells."""
    tensor, width = c.drafter.role("fusion"), c.size("target_hidden")
    if tensor is None or len(tensor.shape) != 2 or not isinstance(width, Known) or tensor.shape[1] % width.value:
        return ""
    count = tensor.shape[1] // width.value
    return f"{c.family.roles['fusion']} {list(tensor.shape)} tells how many, {count}, and not which"


def _aux_agree(known: Sequence[Known], where: str, conventions: int) -> Iterator[Finding]:
    """Two keys may differ by one where a family has two conventions, each that of an engine; else they contradict."""
    first, *others = known
    near = ({0}, {1}, {-1}) if conventions > 1 else ({0},)
    for other in others:
        gaps = {b - a for a, b in zip(first.value, other.value, strict=False)}
        if len(first.value) == len(other.value) and gaps not in near:  # other lengths: DIM401 said it
            yield finding("CFG309", "aux layers", expected=f"{first.key} and {other.key} that name the same layers",
                          observed=f"{list(first.value)} and {list(other.value)}", where=where)  # fmt: skip


def aux_usable(c: Couple, ids: Sequence[Any]) -> list[Convention]:
    """Return the conventions under which a list of ids names layers of the target."""
    return [v for v in c.family.conventions.values() if not _aux_problem(c, v, ids)]


def _aux_problem(c: Couple, convention: Convention, ids: Sequence[int]) -> str:
    if len(set(ids)) < len(ids):
        return "a layer is named twice"
    if list(ids) != sorted(ids):
        return "the order is not ascending, and engines sort them"
    low, high = value_of(convention.low, c.dims), value_of(convention.high, c.dims)
    if isinstance(low, Unknown) or isinstance(high, Unknown):
        return "their range is not known"
    out = [i for i in ids if not low <= i <= high]
    return (
        f"{', '.join(map(str, out))} {'is' if len(out) == 1 else 'are'} outside {low}..{high} ({convention.name})"
        if out
        else ""
    )


# --- tokens -------------------------------------------------------------------------------------------------------


def special_tokens(c: Couple) -> Iterator[Finding]:
    """Compare special ids, and hold them to the vocabulary."""
    return special_ids(c.tokens)


def tokenizer(c: Couple) -> Iterator[Finding]:
    """Compare the tokenizers where both are at hand: the text that ids stand for, not the files' bytes."""
    if c.tokens.one:
        yield holds("PAIR419", "tokenizer", "both sides are one folder")
    yield from at_hand(c.tokens)
    if c.tokenizers is not None:
        from draftproof.tokenizer import compare  # noqa: PLC0415 (most pairs have no such files)

        yield from compare(c.tokenizers)


# --- rope, norms, dtypes ------------------------------------------------------------------------------------------


def rope(c: Couple) -> Iterator[Finding]:
    """Set the two ropes side by side; a trained drafter may have its own."""
    if not c.family.keys["rope"]["theta"]:
        return
    (own, found), (theirs, their_found) = rope_of(c.drafter), rope_of(c.target)
    yield from (f for f in found if f.level == "unknown")  # contradictions are told by rung 1
    yield from (replace(f, subject=f"target {f.subject}") for f in their_found if f.level == "unknown")
    where = c.drafter.checkpoint.source.label
    unread = [rope_unknown(v, "theta", "tables", "partial", "interleaved") or Absent("") for v in (c.drafter, c.target)]
    yield from both(c, "PAIR411", "rope", unread[0], unread[1])
    if any(isinstance(seen, Unknown) for seen in unread) or any(f.level != "pass" for f in (*found, *their_found)):
        return
    if "theta" not in own:
        yield finding("CFG314", "rope theta", expected="rope_theta in config.json",
                      observed="not there: engines take 10000", where=where)  # fmt: skip
        own["theta"] = Known(10000.0, "the engines' default")
    differ = {
        k for k in own.keys() | theirs.keys() if k != "partial_rotary_factor" and _value(own, k) != _value(theirs, k)
    }
    if not differ:
        yield holds("PAIR411", "rope", rope_text(own))
        return
    scaled = [_value(side, "type") is not None for side in (own, theirs)]
    level: Level = "warning" if all(scaled) and differ - {"interleaved", "theta"} else "info"
    yield finding("PAIR411", "rope", level=level, expected=f"{rope_text(theirs)} (target)",
                  observed=f"{rope_text(own)} (drafter)", note=f"differs in {', '.join(sorted(differ))}",
                  where=where)  # fmt: skip


def rope_text(rope: Mapping[str, Known]) -> str:
    """Return a rope in one line: "theta 50000, yarn, factor 64"."""
    rest = [f"{k} {_value(rope, k)}" for k in sorted(rope) if k not in ("theta", "type")]
    return ", ".join([f"theta {_value(rope, 'theta')}", str(_value(rope, "type") or "no scaling"), *rest])


def _value(rope: Mapping[str, Known], key: str) -> Any:
    return whole(rope[key].value) if key in rope else None


def partial_rotary(c: Couple) -> Iterator[Finding]:
    """Hold a partial rotary factor to the one that the drafter was trained with."""
    if c.one or not c.family.keys["rope"]["theta"]:
        return  # the target's own, or none
    own, theirs = (rope_of(v)[0].get("partial_rotary_factor") for v in (c.drafter, c.target))
    trained = c.facts.get("partial_rotary_factor")
    where = c.drafter.checkpoint.source.label
    unread = rope_unknown(c.drafter, "partial", "tables")
    if own is None and unread is not None:
        yield from both(c, "PAIR412", "rope", unread, Absent(""))
        return
    is_ = own.value if own else 1
    if type(is_) not in (int, float):
        return  # CFG304 said it
    if trained and trained.value == is_:
        yield holds("PAIR412", "rope", f"partial_rotary_factor {is_}, as trained ({trained.source})")
    elif trained:
        yield finding("PAIR412", "rope", expected=f"{trained.value} ({trained.source})", observed=f"{is_}", where=where)
    elif own and is_ != 1:
        copied = "it is the target's own: was it copied?" if theirs and theirs.value == is_ else ""
        yield unknown("PAIR412", "rope", "whether the drafter was trained with a partial rotary factor is not declared",
                      expected="the factor it was trained with, declared with a source",
                      observed=f"{is_} ({own.witness})", note=copied, where=where)  # fmt: skip
    else:
        yield holds("PAIR412", "rope", "full rotary")


def norm_eps(c: Couple) -> Iterator[Finding]:
    """Set the norms' epsilon side by side."""
    own, theirs = c.drafter.stated("eps"), c.target.stated("eps")
    yield from both(c, "PAIR413", "rms_norm_eps", own, theirs)
    if isinstance(own, Absent) and c.drafter.keys("eps"):
        yield finding("CFG314", f"config.json: {c.drafter.keys('eps')[0]}", expected="a value", where=own.where,
                      observed="not there: engines take the default of the model_type")  # fmt: skip
    if isinstance(own, Known) and isinstance(theirs, Known):
        if own.value == theirs.value:
            yield holds("PAIR413", own.key, f"{own.value}")
        else:
            yield finding("PAIR413", own.key, expected=f"{theirs.value} (target)", observed=f"{own.value} (drafter)")


def dtype(c: Couple) -> Iterator[Finding]:
    """Compare the dtypes that the two sides declare, or store."""
    (own, _), (theirs, _) = dtype_of(c.drafter), dtype_of(c.target)
    yield from both(c, "PAIR414", "dtype", own, theirs)
    if isinstance(own, Known) and isinstance(theirs, Known):
        if own.value == theirs.value:
            yield holds("PAIR414", "dtype", own.value)
        else:
            seen = f"{visible(own.value)} ({own.witness})"
            yield finding("PAIR414", "dtype", expected=f"{visible(theirs.value)} ({theirs.witness})", observed=seen)


def _declares(view: View) -> Seen:
    """Return the quantisation that a side's config declares, or the file beside it."""
    seen = view.stated("quantisation")
    declared = view.declared
    if isinstance(seen, Absent) and declared is not None and declared.table:
        return Known(declared.table | {"quant_method": declared.name}, declared.witness, declared.witness)
    return seen


def quantisation(c: Couple) -> Iterator[Finding]:
    """Say where a quantised target meets a drafter that declares no quantisation."""
    own, theirs = (_declares(view) for view in (c.drafter, c.target))
    yield from both(c, "PAIR415", "quantization_config", own, theirs)
    if isinstance(theirs, Known) and isinstance(own, Absent):
        seen = f"target {visible(theirs.value.get('quant_method', 'unnamed'))}, drafter none"
        yield finding(
            "PAIR415", theirs.key, level="info", expected="the drafter's own, or none at launch", observed=seen
        )


# --- where it comes from ------------------------------------------------------------------------------------------


def verifier(c: Couple) -> Iterator[Finding]:
    """Compare the target that the drafter's config declares with the one it is paired with."""
    seen, source = c.drafter.stated("verifier"), c.target.checkpoint.source
    name = source.repo or source.name
    yield from both(c, "PAIR416", "verifier", seen, Absent(""))
    if isinstance(seen, Known) and seen.value:
        if same_model(c.library, seen.value, name):
            yield holds("PAIR416", "verifier", visible(name))
        elif not source.repo:
            yield unknown("PAIR416", "verifier", "whether the folder holds the declared target is not known",
                          expected=visible(seen.value), observed=visible(name), help=_WHAT_IT_HOLDS)  # fmt: skip
        else:
            yield finding("PAIR416", "verifier", expected=visible(seen.value), observed=visible(name))


_WHAT_IT_HOLDS = 'say what it holds in a pair: target = { model = …, repo = "ORG/NAME" }'


def meanings(c: Couple) -> Iterator[Finding]:
    """Hold what the drafter's names and keys mean, as declared or told by its tensors, to what each reader takes."""
    for name, meaning in c.family.meanings.items():
        ours, theirs = _meant(c, meaning), c.target.contract.meanings.get(name) if c.target.contract else None
        fixed = bool(meaning.is_) and not meaning.or_
        if fixed and f"meanings.{name}" not in c.facts and theirs is None:
            continue  # nothing to compare it with
        applies = True if meaning.when is None else value_of(meaning.when, c.dims)
        parts: dict[str, Any] = {"contract": meaning.line, "note": meaning.because}
        if isinstance(applies, Unknown):
            if meaning.is_ and not applies.told:
                yield unknown("PAIR423", name, expected=f"whether {meaning.when}", observed=applies.why, **parts)
        elif not applies:
            continue
        elif ours is None and meaning.is_:
            listed = f"one of {', '.join((meaning.is_, *meaning.or_))}, declared with a source"
            yield unknown("PAIR423", name, "what it means in this checkpoint is not declared", expected=listed,
                          observed="not declared", **parts)  # fmt: skip
        elif ours is None:
            continue  # whether it matters depends on the engine
        elif told := next((t for t in (_told(c, meaning),) if t is not None and t.value != ours.value), None):
            yield finding("PAIR423", name, "what is declared is not what the tensors tell",
                          expected=f"{told.value} ({visible(told.source)})",
                          observed=f"{visible(ours.value)} ({visible(ours.source)})", **parts)  # fmt: skip
        elif meaning.is_ and ours.value != meaning.is_:
            yield finding("PAIR423", name, expected=f"{meaning.is_} (contract {c.family.id})",
                          observed=f"{visible(ours.value)} ({visible(ours.source)})", **parts)  # fmt: skip
        elif theirs is not None and theirs.is_ != ours.value:
            yield finding("PAIR423", name, expected=f"{theirs.is_} (the target's own drafters)",
                          observed=f"{visible(ours.value)} ({visible(ours.source)})", **parts)  # fmt: skip
        else:
            yield holds("PAIR423", name, f"{visible(ours.value)} ({visible(ours.source)})")


def _meant(c: Couple, meaning: Meaning) -> Fact | None:
    """Return what a name or key means in this checkpoint: as declared, as its tensors tell, or as in all of them."""
    if fact := c.facts.get(f"meanings.{meaning.name}"):
        return fact
    if told := _told(c, meaning):
        return told
    return Fact(meaning.is_, f"contract {c.family.id}") if meaning.is_ and not meaning.or_ else None


def _told(c: Couple, meaning: Meaning) -> Fact | None:
    """Return what the tensors tell of a meaning: of those that tell, one alone is there."""
    there = [tensor for tensor in meaning.tells if c.drafter.table.read and c.drafter.tensor(tensor) is not None]
    return Fact(meaning.tells[there[0]], f"tensor {there[0]}") if len(there) == 1 else None


def same_model(library: Library, a: str, b: str) -> bool:
    """Tell whether two names are of one model: the same ORG/NAME, or aliases of it; a path is no name."""
    a, b = a.rstrip("/"), b.rstrip("/")
    return a.lower() == b.lower() or _repo(library, a).lower() == _repo(library, b).lower()


def _repo(library: Library, name: str) -> str:
    model, _ = library.model(name)
    return model.repo if model else name


def trained_on(c: Couple) -> Fact | None:
    """Return the target that the drafter was trained on, as declared beyond its files or by its config."""
    seen = c.drafter.stated("verifier")
    by_config = Fact(seen.value, seen.witness) if isinstance(seen, Known) and seen.value else None
    return c.facts.get("trained_on") or by_config


def lineage(c: Couple) -> Iterator[Finding]:
    """Say how the target relates to the one the drafter was trained on: all but the same lowers the verdict."""
    source, fact = c.target.checkpoint.source, trained_on(c)
    if c.one:
        yield holds("PAIR417", "lineage", "it stands in the target's own checkpoint")
    elif fact is None:
        yield unknown("PAIR417", "lineage", "the target it was trained on is not declared",
                      expected="trained_on, with a source", observed="not declared",
                      help="declare trained_on in contracts/models/ or in the pair's [facts]")  # fmt: skip
    elif same_model(c.library, str(fact.value), source.repo):
        yield holds("PAIR417", "lineage", f"trained on {fact.value} ({fact.source})")
    elif not source.repo:
        yield unknown("PAIR417", "lineage", "whether the folder holds the target it was trained on is not known",
                      expected=f"{visible(fact.value)} ({fact.source})", observed=f"{visible(source.name)}",
                      help=_WHAT_IT_HOLDS)  # fmt: skip
    else:
        relation = related(c.library, str(fact.value), source.repo)
        yield unknown("PAIR417", "lineage", expected=f"{visible(fact.value)} ({fact.source})",
                      observed=f"{source.repo}: {relation}")  # fmt: skip


def related(library: Library, trained: str, target: str) -> str:
    """Return how a target relates to another: quantised of, fine-tune of, of a common ancestor, or unknown."""
    trained, target = _repo(library, trained), _repo(library, target)
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
