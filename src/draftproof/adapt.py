"""Can a drafter initialise one for another target? What must change in its config, and what becomes of each tensor.

Decided from metadata alone, in this order: what the target demands of the config, the layout that the new config asks
for, how the two vocabularies stand to each other, one step per tensor, and the verdict.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.answers import Change, Plan, Step
from draftproof.api import Case, examine, examine_models, open_side, recordings, report
from draftproof.checkpoint import Checkpoint, listed, parse_config
from draftproof.conform import View, conform, expectations, ids_of, layout, rope_of, summary_text
from draftproof.contracts import Contract, Dialect
from draftproof.courses import Trainer, TrainerLayout
from draftproof.dims import Absent, Known, value_of
from draftproof.findings import Finding, Report, visible
from draftproof.hub import Source, open_model, read_plain, recorded_repos
from draftproof.library import Library
from draftproof.pair import Couple, aux_usable, declared_facts, engine_rows, fits, rope_text, same_model
from draftproof.recognise import recognise
from draftproof.strict import CONFIG_LIMIT
from draftproof.trainers import (
    Layers,
    applies,
    at,
    capture_of,
    converted,
    first_ids,
    layers_of,
    moved,
    not_trained,
    put,
    said,
    trained_layers,
)

MOST = 4  # of what an engine still does, in the answer
if TYPE_CHECKING:
    from draftproof.portable import Agreement, Asked, Form

NEAR = 5  # config keys by which a drafter may differ and still be called near
FLOATS = ("BF16", "F16", "F32")  # dtypes in which a tensor can be made
_NOT_MEANT = ("transformers_version", "_name_or_path")  # keys that change nothing
# keys that speak of stored bytes: those are the drafter's
_OF_BYTES = ("dtype", "torch_dtype", "quantization_config", "compression_config")
_TRAINED = ("norm_before_residual", "hidden_act", "rms_norm_eps")  # keys that give the same weights another function
_WHOLE = ("attention", "mlp")  # groups that compute one function: taken whole in a layer, or not at all
_WORDS = ("head", "map", "mask", "embedding")  # roles whose rows are tokens


@dataclass(frozen=True)
class Vocabulary:
    """Say how the token ids of the new drafter stand to those of the old one."""

    same: bool = True  # a target id means the same token
    rows: bool = True  # it is known which target id each row of the old head stands for
    why: str = ""  # why not
    redrawn: bool = False  # the draft vocabulary is another one
    whole: bool = False  # the new draft vocabulary is the whole target vocabulary
    given: View | None = None  # a local checkpoint whose d2t becomes the new one


@dataclass(frozen=True)
class Goal:
    """Hold what the new drafter is to be: its contract, its config, and the layout and vocabulary they ask for."""

    contract: Contract
    config: dict[str, Any]
    view: View
    demands: Mapping[str, str]  # config key -> why the target asks for its value
    vocabulary: Vocabulary = Vocabulary()
    like: View | None = None  # the drafter whose geometry is asked for
    kept: tuple[Change, ...] = ()  # keys that stay as the drafter was trained: the value asked for, the value kept
    trainer: Trainer | None = None  # that is to start from it
    layout: TrainerLayout | None = None  # the trainer's, if it trains this family
    before: Mapping[str, Any] | None = None  # the drafter's config in the format of another family
    plain: View | None = None  # what it is to be, not yet in the trainer's form
    layers: Layers | None = None  # which the trainer captures, and which it was trained on
    lender: View | None = None  # the target, whose embedding may be lent
    dialect: str = ""  # of the names that engines ask for
    dropped: Mapping[str, str] = field(default_factory=dict)  # tensor that engines do not take -> why
    respelled: bool = False  # the ids of layers are written anew, for the trainer or for engines


@dataclass(frozen=True)
class Draft:
    """Hold a plan in the making: the pair, the goal, what changes, what becomes of each tensor, what stays wrong."""

    couple: Couple
    goal: Goal
    changes: tuple[Change, ...]
    steps: tuple[Step, ...]
    wrong: tuple[Finding, ...]
    trainer: tuple[Finding, ...] = ()  # what the trainer will do with it
    agreement: Agreement | None = None  # of the engines that are to run it


# --- the answer ---------------------------------------------------------------------------------------------------


def adapt(
    drafter: Any,
    to: Any,
    library: Library,
    *,
    like: Any = None,
    family: str = "",
    trainer: str = "",
    engines: Sequence[str] = (),
    rerun: str = "",
) -> Report:
    """Return how a drafter can initialise one for a target: in like's geometry, for a trainer, for engines."""
    case, plan, _ = plan_for(drafter, to, library, like=like, family=family, trainer=trainer, engines=engines)
    return replace(report(case, subject_of(drafter, to, like, trainer, engines), rerun), plan=plan)


def subject_of(drafter: Any, to: Any, like: Any = None, trainer: str = "", engines: Sequence[str] = ()) -> str:
    """Return the question in one line."""
    to = "the target it declares" if to is None else to
    names = [visible(m.get("name", "in memory") if isinstance(m, Mapping) else m) for m in (drafter, to, like)]
    more = f", like {names[2]}" if like is not None else ""
    more += f", to start {visible(trainer)}" if trainer else ""
    return f"{names[0]} for {names[1]}{more}" + (f", to run in {visible(' and '.join(engines))}" if engines else "")


def plan_for(
    drafter: Any,
    to: Any,
    library: Library,
    *,
    like: Any = None,
    family: str = "",
    trainer: str = "",
    engines: Sequence[str] = (),
) -> tuple[Case, Plan, Goal | None]:
    """Return the case, the plan, and what the new checkpoint is to be, if that is known."""
    ask = examine_models if to is None else lambda *sides, family: (examine(*sides, family=family), to)
    case, _ = ask(drafter, to, library, family=family)
    couple = case.couple
    one: Trainer | None = None
    if trainer:
        one, found = library.get("trainer", trainer)
        case.contract += found
        if one is None:
            return case, Plan("unknown", f"unknown: {found[0].subject}: {found[0].observed}"), None
    other = None if like is None else _open_like(like, case)
    if couple is None or (like is not None and other is None):
        failed = couple is None and report(case, "").exit_code == 1  # as check says of the same two
        verdict = "no" if failed else "unknown"
        return case, Plan(verdict, f"{verdict}: {_first_problem(case)}"), None
    if broken := broken_by(couple.drafter):
        return case, Plan("no", f"no: the source is broken: {broken}"), None
    goal = _goal(case, couple, other)
    if one is not None:
        goal = _for_trainer(couple, goal, one)
        if goal.layout is None:
            no = not_trained(one, goal.contract.id)
            headline = f"no: {no.subject}: {no.message}: {no.observed}; {no.expected}"
            return case, Plan("no", headline, trainer=one.id, trains=(no,)), None
    agreement: Agreement | None = None
    if engines:
        from draftproof.portable import asked_engines  # noqa: PLC0415 (only where engines are asked about)

        asked, odd = asked_engines(engines, library)
        case.contract += odd
        if not asked:
            return case, Plan("unknown", f"unknown: {odd[0].subject}: {odd[0].observed}"), None
        goal, agreement = _for_engines(couple, goal, asked)
    steps = tuple(_steps(couple, goal))
    wrong = tuple(_still_wrong(couple, goal, steps))
    says = tuple(_trainer_says(couple, goal, steps))
    draft = Draft(couple, goal, tuple(_changes(couple.drafter, goal)), steps, wrong, says, agreement)
    verdict = _verdict(draft)
    words = tuple(_says(case, draft))
    headline = _headline(verdict, draft)
    return case, Plan(verdict, headline, draft.changes, steps, words, trainer=trainer, trains=says), goal


def _first_problem(case: Case) -> str:
    found = [f for f in (*(case.contract or ()), *(case.source or ())) if f.level in ("error", "unknown")]
    if not found:
        return "drafter and target could not both be read"
    return f"{found[0].subject}: {found[0].message}"


def _open_like(like: Any, case: Case) -> View | None:
    """Open the drafter whose geometry is asked for: a folder, an id, a mapping, or a config file alone."""
    assert case.source is not None
    checkpoint: Checkpoint | Finding
    path = Path(os.path.expanduser(like) if isinstance(like, (str, Path)) else "")
    if path.suffix == ".json" and os.path.isfile(path):
        raw = read_plain(path, CONFIG_LIMIT)
        data, found = (None, [raw]) if isinstance(raw, Finding) else parse_config(raw, str(path))
        case.source += [replace(f, subject=f"like {f.subject}") for f in found]
        if data is None:
            return None
        checkpoint = Checkpoint(Source(str(like), kind="config", config=data, provenance="config only"), "drafter")
    else:
        checkpoint = open_side(like, "drafter", case.library)
    if isinstance(checkpoint, Finding):
        case.source.append(replace(checkpoint, subject=f"like {checkpoint.subject}"))
        return None
    contract, found = recognise(case.library, checkpoint, "family")
    if contract is None:
        case.source += [replace(f, subject=f"like {f.subject}") for f in (*checkpoint.findings, *found)]
        return None
    return conform(contract, checkpoint)


def contract_of(view: View) -> Contract:
    """Return the contract of a side that was recognised."""
    assert view.contract is not None
    return view.contract


def _goal(case: Case, couple: Couple, like: View | None) -> Goal:
    """Return what the new drafter is to be: the config at hand, or the one asked for, as the target demands it."""
    drafter = couple.drafter
    base = couple if like is None else Couple(like, couple.target, couple.library, {})
    contract, source = contract_of(base.drafter), base.drafter.checkpoint.source
    demands, aux = list(_demands(base)), list(_aux_demands(couple))
    config = edited(base.drafter.checkpoint.config.data, demands)
    own = edited(drafter.checkpoint.config.data, aux)
    reasons = {c.key: c.why for c in demands}
    kept: list[Change] = []

    def make() -> Goal:
        made = Source("new drafter", kind="config", config=config, provenance=source.provenance, unknown=source.unknown)
        view = conform(contract, Checkpoint(made, "drafter"), tensors=False)
        vocabulary = _vocabulary(case, drafter, view, like)
        return Goal(contract, config, view, reasons, vocabulary, like, tuple(kept))

    theirs, ours = base.drafter.config.place, drafter.config.place  # a key may stand in a nested table
    for key in _OF_BYTES if like is not None else ():
        put(config, theirs(key), at(own, ours(key)))
    goal = make()
    if like is not None and _taken(_steps(couple, goal), contract.roles.get("fusion", "")):
        for key in dict.fromkeys((*contract.aux_keys, *contract_of(drafter).aux_keys)):
            was, asked, path = at(own, ours(key)), at(config, theirs(key)), theirs(key)
            if was != asked:  # the rows of fc mean the layers that they were trained on
                kept.append(Change(path, asked, was, "fc was trained on its own layers"))
                put(config, path, was)
                reasons |= {theirs(key): c.why for c in aux if c.key == ours(key)}
        goal = make()
    return goal


# --- what a trainer asks for --------------------------------------------------------------------------------------


def _for_trainer(couple: Couple, goal: Goal, trainer: Trainer) -> Goal:
    """Return the goal in the format of a trainer: its family, names, architecture, and ids from which it captures."""
    layout, conversion = trainer.layout(goal.contract.id)
    if layout is None:
        return replace(goal, trainer=trainer)
    library, old, contract = couple.library, couple.drafter.checkpoint.config.data, goal.contract
    if conversion is not None:
        contract, _ = library.get("family", layout.family)
    config = converted(goal.config, conversion)
    reasons = {moved(key, conversion): why for key, why in goal.demands.items()}
    before = None if conversion is None or goal.like is not None else converted(old, conversion, fill=False)

    def view() -> View:
        made = replace(goal.view.checkpoint.source, config=config)
        return conform(contract, Checkpoint(made, "drafter"), tensors=False)

    if conversion is not None:
        reasons |= {key: f"the format of {trainer.title}" for key in _flat(config) if at(goal.config, key) is None}
        for change in _verifier_demands(Couple(view(), couple.target, library, {})):
            put(config, change.key, change.new)
            reasons[change.key] = change.why
    if config.get("architectures") not in [[a] for a in layout.architectures]:
        config["architectures"] = [layout.architectures[0]]
        reasons["architectures"] = f"{trainer.title} takes no other"
    again = Couple(view(), couple.target, library, couple.facts)
    place = again.drafter.config.place
    _, ids = first_ids(config, map(place, contract.aux_keys))
    trained = _trained(couple, goal, ids)
    capture = capture_of(trainer, contract.id)
    own = contract_of(couple.drafter).conventions
    meant = {n: [i + c.offset for i in ids] for n, c in own.items() if ids} if trained[0] is None and ids else {}
    layers = layers_of(trainer, again, config, trained, meant)
    if conversion is not None and len(contract.conventions) == 1 < len(own):
        layers = layers._replace(taken=next(iter(contract.conventions)))
    respelled = False
    key = next((k for k in (capture.keys if capture else ()) if k in contract.aux_keys), "")
    wanted = layers.wanted if trained[0] is not None else ids if not layers.stated else None
    if key and wanted and (layers.ids != wanted or (ids is not None and not layers.stated)):
        respelled = ids != wanted
        for other in contract.aux_keys:
            put(config, place(other), None)
        put(config, key, wanted)
        why = f"{trainer.title} captures from them the inputs of layers {layers.trained}"
        reasons[key] = why if trained[0] is not None else f"{trainer.title} reads no other key"
        again = Couple(view(), couple.target, library, couple.facts)
    made = again.drafter
    return replace(
        goal, contract=contract, config=config, view=made, demands=reasons, trainer=trainer, layout=layout,
        before=before, respelled=respelled, layers=layers, lender=couple.target,
        plain=goal.view,
    )  # fmt: skip


# --- what engines ask for -----------------------------------------------------------------------------------------


def _for_engines(couple: Couple, goal: Goal, engines: Sequence[Asked]) -> tuple[Goal, Agreement]:
    """Return the goal in the form in which the engines do the same with it, and what they do then."""
    from draftproof.portable import Form, agree  # noqa: PLC0415

    goal = _as_proven(couple, goal)
    source, dialect = goal.view.checkpoint.source, serving(couple.drafter, goal).name
    steps = [s for s in _steps(couple, goal) if s.new_shape is not None]

    def view(form: Form) -> View:
        encode = serving(couple.drafter, replace(goal, dialect=form.dialect)).encode
        known = couple.drafter.table.read and source.provenance != "partial"
        tensors = {
            encode(s.tensor): (dtype_of(couple.drafter, goal, s), s.new_shape)
            for s in steps if s.tensor not in form.dropped
        }  # fmt: skip
        made = replace(
            source, kind="memory" if known else "config", config=form.config, tensors=tensors if known else None
        )
        return conform(goal.contract, Checkpoint(made, "drafter"), tensors=known)

    agreed = agree(couple, goal.contract, Form(goal.config, dialect), engines, view)
    form = agreed.form
    made = replace(source, config=form.config)
    own = conform(goal.contract, Checkpoint(made, "drafter"), tensors=False)
    reasons = {**goal.demands, **{key: why for key, why in agreed.reasons.items() if at(form.config, key) is not None}}
    dropped = {name: agreed.reasons[name] for name in form.dropped}
    spelt = any(goal.view.config.place(key) in agreed.reasons for key in goal.contract.aux_keys)
    new = replace(goal, config=form.config, view=own, demands=reasons, dialect=form.dialect, dropped=dropped,
                  respelled=goal.respelled or spelt)  # fmt: skip
    return new, agreed


def _as_proven(couple: Couple, goal: Goal) -> Goal:
    """Return the goal with the sizes stated that the drafter's tensors prove and its config leaves to a default."""
    if goal.like is not None or contract_of(couple.drafter).id != goal.contract.id:
        return goal
    config, reasons = deepcopy(goal.config), dict(goal.demands)
    for name in goal.contract.dims:
        own, new, key = couple.drafter.dims(name), goal.view.dims(name), _key(goal.view, name)
        first = next((source.name for source in goal.contract.dims[name].sources.get("drafter", ())), "")
        if goal.contract.dims[name].first and first and at(config, goal.view.config.place(first)) is None:
            key = first  # another key stands in for it, which says something else, too
        place = goal.view.config.place(key)
        if _whole(own) and _whole(new) and own != new and key and at(config, place) is None:
            put(config, place, own.value)  # type: ignore[union-attr]
            reasons[place] = "as its tensors are; where it is left out, engines take another"
    if config == goal.config:
        return goal
    made = replace(goal.view.checkpoint.source, config=config)
    return replace(
        goal, config=config, demands=reasons, view=conform(goal.contract, Checkpoint(made, "drafter"), tensors=False)
    )


def _engine_words(d: Draft) -> Iterator[str]:
    """Yield what each engine does with the drafter as it is and as it would be, and what cannot be had at once."""
    if d.agreement is None:
        return
    from draftproof.portable import engine_name  # noqa: PLC0415

    for before, now in zip(d.agreement.before, d.agreement.now, strict=True):
        turned = now.outcome if now.outcome == before.outcome else f"{before.outcome} → {now.outcome}"
        layers = f"; it reads the inputs of layers {now.captured}" if now.captured is not None else ""
        yield f"{engine_name(now)}: {turned}{layers}"
        bad = [e for e in now.effects if e.outcome in ("refuses", "degrades", "unknown")]
        for e in bad[:MOST]:
            yield f"{engine_name(now)}, still: {e.subject}: {e.see}"
        if len(bad) > MOST:
            yield f"{engine_name(now)}, still: {len(bad) - MOST} more; draftproof check --engine lists them"
    for text in d.agreement.torn:
        yield f"cannot be had at once: {text}"


def _trained(couple: Couple, goal: Goal, ids: list[int] | None) -> tuple[list[int] | None, str]:
    """Return the boundaries that fc was trained on, or is to be trained on where it cannot be kept."""
    own = contract_of(couple.drafter)
    here = goal.view.config.place
    if any(here(key) in goal.demands for key in goal.contract.aux_keys) and ids is not None:
        convention = next(iter(goal.contract.conventions.values()))  # the ids are the default in it
        return [i + convention.offset for i in ids], f"{convention.name} ids, as set for this target"
    if goal.like is not None and not goal.kept and ids is not None:
        return trained_layers(replace(couple, facts={}), goal.contract, ids)
    return trained_layers(couple, own, ids)


def _trainer_says(couple: Couple, goal: Goal, steps: Sequence[Step]) -> Iterator[Finding]:
    """Yield what the trainer will do with the new drafter."""
    if goal.trainer is None or goal.layout is None or goal.layers is None:
        return
    again = Couple(goal.view, couple.target, couple.library, couple.facts)
    head = goal.contract.roles.get("head", "")
    kept = any(s.tensor == head and s.action in ("copy", "rows") for s in steps)
    table = goal.contract.roles.get("map", "")
    mapped = any(s.tensor == table and s.action in ("copy", "take") for s in steps)
    plain = Couple(goal.plain or goal.view, couple.target, couple.library, couple.facts)
    yield from said(goal.trainer, goal.layout, again, plain, goal.layers, kept, mapped)


def _for_layout(couple: Couple, goal: Goal, steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps as a trainer's layout asks for them: what it needs is made, what it does not have is dropped."""
    layout, trainer = goal.layout, goal.trainer
    if layout is None or trainer is None:
        yield from steps
        return
    needs, refuses = applies(layout.needs, goal.view.dims), applies(layout.refuses, goal.view.dims)
    lacks = {rule.name for s in steps for rule, _ in goal.contract.rules_for(s.tensor) if rule.name in layout.lacks}
    shapes = {n: shape for n, (_, shape) in layout_of(goal).items()}
    done = {s.tensor: s for s in steps}
    rows = {n: r.name for n in shapes for r, _ in goal.contract.rules_for(n)}
    for name in [n for n, row in rows.items() if {n, row} & needs]:
        if (step := _needed(couple, goal, name, done, shapes.get(name))) is not None:
            done[name] = step
    for name, step in done.items():
        rule = next((r for r, _ in goal.contract.rules_for(name)), None)
        if step.new_shape is not None and (name in refuses or (rule is not None and rule.name in lacks)):
            why = "refuses to start with it" if name in refuses else "has no such tensor"
            if step.old_shape is not None:
                yield replace(step, action="drop", new_shape=None, why=f"{trainer.title} {why}")
        else:
            yield step


def _for_served(goal: Goal, steps: Sequence[Step]) -> Iterator[Step]:
    """Yield the steps without the tensors that engines do not take."""
    for step in steps:
        why = goal.dropped.get(step.tensor)
        yield step if why is None else replace(step, action="drop", new_shape=None, why=why)


def layout_of(goal: Goal) -> Mapping[str, Any]:
    """Return every tensor that the new config gives a shape to, optional ones too."""
    return layout(goal.contract, goal.view.dims, optional=True)


def _needed(
    couple: Couple, goal: Goal, name: str, done: Mapping[str, Step], shape: tuple[int, ...] | None
) -> Step | None:
    """Return the step of a tensor that a trainer needs and that would not be there: made from another, or untrained."""
    assert goal.trainer is not None
    step = done.get(name)
    if shape is None or (step is not None and step.new_shape is not None):
        return None
    was = step.old_shape if step is not None else None
    roles = {tensor: part for part, tensor in goal.contract.roles.items()}
    part, group = roles.get(name, ""), next(r.group for r, _ in goal.contract.rules_for(name))
    asked = f"{goal.trainer.title} needs it"
    source = done.get(goal.contract.roles.get("map", ""))
    full = goal.view.size("target_vocab") == goal.view.size("draft_vocab") or goal.vocabulary.whole
    if part == "map" and full:
        return Step(name, "make", was, shape, f"all zero: the whole vocabulary; {asked}", group)
    if part == "mask" and (full or (source is not None and source.action in ("copy", "take"))):
        return Step(name, "make", was, shape, f"{'all true' if full else 'from d2t'}; {asked}", group)
    rows = part == "embedding" or (part == "head" and full)  # are those of the target
    if rows and shape[1:] == _target_width(couple):
        return Step(name, "lend", was, shape, f"the target's; {asked}", group)
    if part in ("map", "mask"):
        return None  # it must come from the trainer, and a step says so already
    return Step(name, "init", was, shape, f"the drafter has none, and {asked}", group)


def _target_width(couple: Couple) -> tuple[int, ...]:
    size = couple.target.size("hidden")
    return (size.value,) if isinstance(size, Known) else ()


# --- what must change in the config -------------------------------------------------------------------------------


def _demands(couple: Couple) -> Iterator[Change]:
    """Yield the config changes that the target asks of a drafter, each where its key stands; no change is not one."""
    for wanted in _wanted(couple):
        change = replace(wanted, key=couple.drafter.config.place(wanted.key))
        if change.old != change.new or type(change.old) is not type(change.new):
            yield change


def _wanted(couple: Couple) -> Iterator[Change]:
    own, contract = couple.drafter, contract_of(couple.drafter)
    config = own.config
    for name, dim in couple.dims.dims.items():
        if not {"drafter", "target"} <= set(dim.sources):
            continue
        said, is_, key = own.dims(name), couple.dims.stated(name, "target"), _key(own, name)
        lacks = isinstance(said, Absent) and not dim.optional
        differs = lacks or (isinstance(said, Known) and said.value != getattr(is_, "value", None))
        if key and isinstance(is_, Known) and differs:
            yield Change(key, config.at(key), is_.value, f"the target's {is_.key or name}")
    key, sizes = _key(own, contract.sizes.get("draft_vocab", "")), (own.size("draft_vocab"), own.size("target_vocab"))
    draft, whole, full = (s.value if isinstance(s, Known) else None for s in (*sizes, couple.size("target_vocab")))
    if key and key != _key(own, contract.sizes.get("target_vocab", "")) and full and draft == whole != full:
        yield Change(key, draft, full, "the whole vocabulary, as before")
    context, theirs = couple.size("context"), couple.size("target_context")
    key = _key(own, contract.sizes.get("context", ""))
    if key and _whole(context) and _whole(theirs) and context.value < theirs.value:
        rows = engine_rows(couple, key)
        refuses = [f"{r.engine} {r.version} refuses it otherwise ({r.source})" for r in rows if r.outcome == "refuses"]
        yield Change(key, context.value, theirs.value, "; ".join(["the target's context", *refuses]))
    yield from _aux_demands(couple)
    yield from _verifier_demands(couple)
    for key in ("bos_token_id", "eos_token_id"):
        mine, other = own.lookup(key), couple.target.lookup(key)
        if ids_of(mine) and ids_of(other) and not ids_of(mine) <= ids_of(other):
            yield Change(key, config.at(key), other.value, "the target's")  # type: ignore[union-attr]
    if any(f.code == "CFG310" and f.level == "error" for f in own.findings):
        yield Change("tie_word_embeddings", True, False, "a reduced head has other rows than the embedding")


def _aux_demands(couple: Couple) -> Iterator[Change]:
    """Yield new aux layer ids where the old ones are no layers of the target: the family's default for it."""
    contract = contract_of(couple.drafter)
    if not contract.conventions or not _whole(couple.size("target_layers")):
        return
    for key in contract.aux_keys:
        seen = couple.drafter.lookup(key)
        ids = seen.value if isinstance(seen, Known) else None
        if isinstance(ids, list) and all(type(i) is int for i in ids) and not aux_usable(couple, ids):
            convention = next(iter(contract.conventions.values()))
            new = [value_of(e, couple.dims) for e in convention.default]
            if all(type(i) is int for i in new) and len(new) == len(ids):
                place = couple.drafter.config.place(key)
                yield Change(place, ids, new, f"layers of this target, the {convention.name}-style default")


def _verifier_demands(couple: Couple) -> Iterator[Change]:
    """Yield the new target's name and architectures, where the config declares the target or must."""
    own, target = couple.drafter, couple.target.checkpoint
    name = target.source.repo or target.source.name
    for key in own.keys("verifier"):
        seen, rule = own.lookup(key), contract_of(own).config.get(key)
        if isinstance(seen, Known) or (isinstance(seen, Absent) and rule is not None and rule.required):
            yield Change(key, own.config.at(key), name, "the target it is for now, though not trained on it")
            beside = f"{key.rpartition('.')[0]}.architectures".lstrip(".")
            theirs = target.config.at("architectures")
            if "." in key and theirs and (own.config.at(beside) or not isinstance(seen, Known)):
                yield Change(beside, own.config.at(beside), theirs, "the target's")


def _key(view: View, name: str) -> str:
    """Return the config key that states a dim, else the first that could; "" where none can."""
    dim = contract_of(view).dims.get(name)
    keys = [s.name for s in (dim.sources.get("drafter", ()) if dim else ()) if s.name]
    return next((k for k in keys if isinstance(view.lookup(k), Known)), keys[0] if keys else "")


def _whole(seen: Any) -> bool:
    return isinstance(seen, Known) and type(seen.value) is int


def edited(config: Mapping[str, Any], changes: Iterable[Change]) -> dict[str, Any]:
    """Return a config with the changes made, keys in their old order."""
    new: dict[str, Any] = deepcopy(dict(config))
    for change in changes:
        put(new, change.key, change.new)
    return new


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            out |= _flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def _changes(drafter: View, goal: Goal) -> Iterator[Change]:
    """Yield the keys in which two configs differ, those of the target first; null and absent are the same."""
    before, after = _flat(goal.before or drafter.checkpoint.config.data), _flat(goal.config)
    for key in dict.fromkeys((*(k for k in goal.demands if k in after), *after, *before)):
        a, b = before.get(key), after.get(key)
        if a != b and key not in _NOT_MEANT and not (b in ({}, None) and a in ({}, None)):
            yield Change(key, a, b, goal.demands.get(key, "as in the geometry asked for"))


# --- the vocabulary -----------------------------------------------------------------------------------------------


def _vocabulary(case: Case, drafter: View, new: View, like: View | None) -> Vocabulary:
    """Say how the token ids, and the draft vocabularies, of two drafters stand to each other."""
    sizes = [view.size(part) for view in (drafter, new) for part in ("draft_vocab", "target_vocab")]
    if not all(_whole(s) for s in sizes):
        return Vocabulary()
    have, old_full, want, full = (s.value for s in sizes if isinstance(s, Known))
    levels = {f.code: f.level for f in case.fits or ()}
    agree = levels.get("PAIR419") == "pass"
    same = agree or (levels.get("PAIR419") != "error" and old_full == full)
    rows, why = True, ""
    if not same:
        rows = False
        why = f"{full} token ids against {old_full}, and no tokenizers at hand that agree"
        if levels.get("PAIR419") == "error":
            why = "the tokenizers give the same ids other tokens"
    elif have < old_full and drafter.table.read:
        table = drafter.role("map")
        rows = table is not None and table.dtype in _dtypes(drafter, "map") and table.shape == (have,)
        seen = f"{table.dtype} {list(table.shape)}" if table else "not there"
        why = "" if rows else f"the drafter's d2t is {seen}, so it is not known which tokens its head's rows stand for"
    given = None
    if like is not None and like.checkpoint.source.folder is not None and like.table.read and want < full:
        table = like.role("map")
        file = like.table.files.get(like.names.get(contract_of(like).roles.get("map", ""), ""), "")
        if table and table.dtype in _dtypes(like, "map") and table.shape == (want,) and file.endswith(".safetensors"):
            given = like
    return Vocabulary(same, rows, why, have != want, want == full, given)


def _dtypes(view: View, role: str) -> tuple[str, ...]:
    contract = contract_of(view)
    rule = contract.tensors.get(contract.roles.get(role, ""))
    return rule.dtype if rule else ()


# --- the plan per tensor ------------------------------------------------------------------------------------------


def _old_shapes(view: View) -> dict[str, tuple[int, ...]]:
    """Return canonical name -> shape: of the file, else of the recording, else what the config asks for."""
    if view.table.tensors or view.table.read:
        return {n: view.table.tensors[d].shape for n, d in view.names.items() if not n.startswith("\0")}
    return {n: shape for n, (_, shape) in layout(contract_of(view), view.dims).items()}


def _steps(couple: Couple, goal: Goal) -> list[Step]:
    """Return what becomes of each tensor: new ones in the contract's order, then those that are dropped."""
    drafter = couple.drafter
    old = _old_shapes(drafter)
    wanted = layout(goal.contract, goal.view.dims, optional=True)
    own = contract_of(drafter)
    groups = {n: w.rule.group for n, (w, _) in layout(own, drafter.dims, optional=True).items()}
    parts = {name: part for part, name in goal.contract.roles.items()}
    alone = _needs_embedding(couple, goal)
    steps = []
    for name, (want, shape) in wanted.items():
        part = parts.get(name, "")
        needed = want.presence != "optional" or (part == "embedding" and alone)
        bad = _bad_dtype(drafter, name, want.rule.dtype)
        step = None if bad and part != "map" else _word_step(goal, part, name, old.get(name), shape, needed)
        step = step or _step(name, old.get(name), shape, needed, bad, want.rule.init)
        if step is not None:
            steps.append(replace(step, group=want.rule.group))
    lost = {
        _block(s): s.tensor for s in steps if s.group in _WHOLE and s.action == "init" and len(s.new_shape or ()) > 1
    }
    for n, step in enumerate(steps):
        if step.action == "copy" and step.group in _WHOLE and _block(step) in lost:
            why = f"it fits, but {lost[_block(step)]} beside it is new"
            steps[n] = replace(step, action="init", why=why)
    # of these the new size is not known, which the headline says
    open_ = {w.name for w in expectations(goal.contract, goal.view.dims) if w.presence in ("required", "undecided")}
    for name, was in old.items():
        if name not in wanted and name not in open_:
            steps.append(Step(name, "drop", was, None, "not part of the new drafter", groups.get(name, "")))
    steps = list(_for_served(goal, list(_for_layout(couple, goal, steps))))
    spoken = {disk for name, disk in drafter.names.items() if not name.startswith("\0")}
    for disk, tensor in drafter.table.tensors.items():
        if disk not in spoken:
            steps.append(Step(visible(disk), "drop", tensor.shape, None, f"no tensor that {own.id} knows"))
    return steps


def _step(
    name: str, was: tuple[int, ...] | None, shape: tuple[int, ...], needed: bool, bad: str, init: str
) -> Step | None:
    """Return the step of a tensor whose rows are no tokens: copied where it fits, else made or dropped."""
    if was == shape and not bad:
        return Step(name, "copy", was, shape, "same shape")
    if was is None:
        return Step(name, "init", None, shape, f"the drafter has none; {init}") if needed else None
    differs = bad or f"{list(was)} does not fit {list(shape)}"
    if needed:
        return Step(name, "init", was, shape, f"{differs}; {init}")
    return Step(name, "drop", was, None, f"{differs}, and it is optional")


def _word_step(
    goal: Goal, part: str, name: str, was: tuple[int, ...] | None, shape: tuple[int, ...], needed: bool
) -> Step | None:
    """Return the step of a tensor whose rows are tokens, where they move; None where they stay, or are not there."""
    v = goal.vocabulary
    if part == "embedding" and v.same and was is not None and was[0] != shape[0] and was[1:] == shape[1:]:
        return Step(name, "rows", was, shape, _padding_text(was[0], shape[0]))
    if part not in _WORDS or (v.same and v.rows and not v.redrawn):
        return None
    if part == "map":
        if v.whole:
            return Step(name, "drop", was, None, "the new draft vocabulary is the whole one") if was else None
        if v.given is not None:
            return Step(name, "take", was, shape, f"from {v.given.checkpoint.source.label}")
        return Step(name, "init", was, shape, "must come from the trainer: zeros would mean target ids 0, 1, 2, …")
    if part == "mask":
        mask = v.given.role("mask") if v.given is not None else None
        if mask is not None and v.given is not None and mask.dtype == "BOOL" and mask.shape == shape:
            return Step(name, "take", was, shape, f"from {v.given.checkpoint.source.label}")
        return Step(name, "drop", was, None, "it belongs to the old draft vocabulary") if was else None
    if was is None:
        return None
    if part == "head" and v.same and v.rows:
        return Step(name, "rows", was, shape, _rows_text(v, was[0], shape[0])) if was[1:] == shape[1:] else None
    if not v.same or part == "head":
        if needed or part == "head":
            return Step(name, "init", was, shape, f"its rows cannot be taken: {v.why}; normal")
        return Step(name, "drop", was, None, f"its rows cannot be taken: {v.why}")
    return None


def _padding_text(have: int, want: int) -> str:
    """Say what becomes of the rows of an embedding where two vocabularies differ by padding only."""
    rest = f"the {want - have} after them are" if want > have else f"the {have - want} after them were"
    return f"row i stays row i, for the first {min(have, want)}; {rest} padding"


def _rows_text(v: Vocabulary, have: int, want: int) -> str:
    if v.whole:
        rest = f"the other {want - have} are initialised"
        return f"{have} of {want} rows: row i of the old head becomes row i + d2t[i]; {rest}"
    whose = "new" if v.given is not None else "trainer's"
    return (
        f"the rows of the {want} target ids that the {whose} d2t names; those that the old head lacks are initialised"
    )


def _bad_dtype(drafter: View, name: str, allowed: Sequence[str]) -> str:
    tensor = drafter.tensor(name)
    if tensor is None or not drafter.table.read or tensor.dtype in allowed:
        return ""
    return f"{tensor.dtype} is not {' or '.join(allowed)}"


def _needs_embedding(couple: Couple, goal: Goal) -> bool:
    """Tell whether the new drafter cannot share the target's embedding, because its width is another."""
    own, theirs = goal.view.size("hidden"), couple.target.size("hidden")
    theirs = theirs if isinstance(theirs, Known) else couple.size("target_hidden")
    return _whole(own) and _whole(theirs) and own.value != theirs.value  # type: ignore[union-attr]


def _block(step: Step) -> tuple[str, str]:
    """Return the group and the layer of a tensor."""
    return step.group, re.sub(r"\D+", ".", step.tensor)


def _taken(steps: Iterable[Step], name: str) -> bool:
    return any(s.tensor == name and s.action == "copy" for s in steps)


def serving(drafter: View, goal: Goal) -> Dialect:
    """Return the dialect of the new names: the trainer's, else the drafter's own, if it can be served."""
    own = goal.layout.dialect if goal.layout else drafter.dialect.name if drafter.dialect else ""
    own = goal.dialect or own
    plain = [d for d in goal.contract.dialects if not d.flag and not d.format]
    return next((d for d in plain if d.name == own), plain[0] if plain else Dialect("", {}))


def _renamed(drafter: View, goal: Goal) -> str:
    """Return a name on disk that no serving checkpoint has, or ""."""
    dialect = serving(drafter, goal)
    names = drafter.names.items() if drafter.table.read else ()
    return next((disk for name, disk in names if not name.startswith("\0") and dialect.encode(name) != disk), "")


def lent(goal: Goal, name: str) -> str:
    """Return the canonical name of the target's tensor that it lends: its head, if it has one, or its embedding."""
    assert goal.lender is not None
    roles = contract_of(goal.lender).roles
    head = roles.get("head", "")
    if name == goal.contract.roles.get("head") and head in goal.lender.names:
        return head
    return roles.get("embedding", "")


def dtype_of(drafter: View, goal: Goal, step: Step) -> str:
    """Return the dtype of a new tensor: its own where it has an allowed one, else the commonest of the drafter's."""
    allowed = next(rule for rule, _ in goal.contract.rules_for(step.tensor)).dtype
    giver = goal.vocabulary.given if step.action == "take" else drafter
    old = giver.tensor(step.tensor) if giver is not None else None
    if step.action == "lend" and goal.lender is not None:
        old = goal.lender.tensor(lent(goal, step.tensor))
    if old is not None and old.dtype in allowed:
        return old.dtype
    floats = [t.dtype for t in drafter.table.tensors.values() if t.dtype in FLOATS]
    common = max(dict.fromkeys(floats), key=floats.count) if floats else FLOATS[0]
    return common if common in allowed else allowed[0]


def _still_wrong(couple: Couple, goal: Goal, steps: Sequence[Step]) -> list[Finding]:
    """Return the errors that rungs 1 and 2 would find in the new checkpoint, were it written as planned."""
    encode = serving(couple.drafter, goal).encode
    tensors = {
        encode(s.tensor): (dtype_of(couple.drafter, goal, s), s.new_shape) for s in steps if s.new_shape is not None
    }
    made = Source("new drafter", kind="memory", provenance="in memory", config=goal.config, tensors=tensors)
    if not tensors or goal.view.checkpoint.source.provenance == "partial":
        return []
    view = conform(goal.contract, Checkpoint(made, "drafter"))
    facts = {k: v for k, v in couple.facts.items() if not (goal.respelled and k.startswith("aux_"))}
    again = Couple(view, couple.target, couple.library, facts)
    return [f for f in dict.fromkeys((*view.findings, *fits(again))) if f.level == "error"]


# --- verdict and words --------------------------------------------------------------------------------------------


def _verdict(d: Draft) -> str:
    """Judge the plan: no where nothing of the core can be taken, in part where a required tensor cannot."""
    if _not_known(d):
        return "unknown"
    if _unfit(d):
        return "no"
    core = _core(d.steps)
    if not any(s.action == "copy" and s.group == core and len(s.new_shape or ()) > 1 for s in d.steps):
        return "no"
    lost = (
        s
        for s in d.steps
        if s.action in ("init", "take")
        or (s.action == "rows" and s.group != "embedding")  # all rows of the embedding but padding are kept
        or (s.action == "drop" and s.group != "map" and s.tensor not in d.goal.dropped)
    )
    served = d.agreement.outcome if d.agreement is not None else ""
    if any(lost) or d.wrong or served in ("refuses", "degrades"):
        return "only in part"
    if served == "unknown":
        return "unknown"
    return "after these changes" if d.changes or _renamed(d.couple.drafter, d.goal) or _added(d) else "as is"


def _core(steps: Sequence[Step]) -> str:
    """Return the group without which there is nothing to start from: attention, else the first that reads no tokens."""
    groups = [s.group for s in steps if len(s.new_shape or s.old_shape or ()) > 1]
    return min((g for g in groups if g not in _WORDS), key=lambda g: g != "attention", default="")


def _added(d: Draft) -> list[str]:
    """Return the tensors that are added without being trained, made from others or the target's; and those left out."""
    return [s.tensor for s in d.steps if s.action in ("make", "lend")] + [f"without {name}" for name in d.goal.dropped]


def _unfit(d: Draft) -> Finding | None:
    """Return by what the trainer cannot start from the new drafter, if it cannot."""
    return next((f for f in d.trainer if f.level == "error"), None)


def broken_by(drafter: View) -> str:
    """Return by what the source is no whole checkpoint, or "": what is lost in it must not be planned for."""
    unread = drafter.checkpoint.findings if drafter.checkpoint.config.broken else ()
    for f in drafter.findings:
        if f.level == "error" and (f.code[:3] in ("SRC", "STF", "IDX") or f.code == "CFG308" or f in unread):
            seen = f" ({f.expected}; {f.observed})" if f.code == "CFG308" else ""
            return f"{f.subject}: {f.message}{seen}"
    return ""


def _not_known(d: Draft) -> str:
    """Return what keeps the plan from being judged, or ""."""
    couple, goal = d.couple, d.goal
    drafter, target = couple.drafter, couple.target
    bad = next((f for f in target.findings if f.level == "error" and f.code.startswith(("CFG", "DIM"))), None)
    if bad is not None:  # what it would have asked of the drafter is not known
        return f"the target's {bad.subject}: {bad.message}"
    for view in (drafter, target, *([goal.like] if goal.like else [])):
        if view.checkpoint.source.provenance == "partial":
            return f"only some config keys of {view.checkpoint.source.name} were published"
    if drafter.checkpoint.source.has_files and not drafter.table.read:
        return f"the drafter's tensor table was not read: {drafter.table.basis}"
    if isinstance(scheme := drafter.stated("quantisation"), Known):
        method = scheme.value.get("quant_method", "unnamed") if isinstance(scheme.value, Mapping) else "unnamed"
        return f"the drafter is quantised ({visible(method)}), and packed weights with their scales are not adapted"
    lacking = _lacking(goal)
    for part in ("target_vocab", "target_hidden"):
        name = contract_of(drafter).sizes.get(part, "")
        if name and not isinstance(couple.dims.stated(name, "target"), Known):
            lacking.append(name)
    if lacking or not d.steps:
        return f"{listed(dict.fromkeys(lacking)) or 'the layout'} cannot be known from the configs"
    return ""


def _lacking(goal: Goal) -> list[str]:
    """Return the dims without which the new layout is not whole."""
    wants = {w.rule.name: w for w in expectations(goal.contract, goal.view.dims)}.values()
    open_ = [w.rule for w in wants if w.presence in ("required", "undecided")]
    exprs = [axis for rule in open_ for axis in (*rule.shape, *([rule.when] if rule.when else []))]
    exprs += [end for rule in goal.contract.tensors.values() for loop in rule.over for end in loop[1:3]]
    return [n for n in goal.view.dims.needed(exprs) if not isinstance(goal.view.dims(n), Known)]


def _headline(verdict: str, d: Draft) -> str:
    parts, drafter = [verdict], d.couple.drafter
    if verdict == "after these changes":
        names = ["tensor names"] if _renamed(drafter, d.goal) else []
        parts[0] += f" ({', '.join([*(c.key for c in d.changes), *names, *_added(d)])})"
    elif verdict == "only in part":
        differ = _resized(drafter, d.goal)
        parts[0] += f" ({', '.join(differ)})" if differ else ""
        parts.append(f"taken: {_group_line(d.steps)}")
    elif verdict == "no" and (unfit := _unfit(d)) is not None:
        parts[0] += f": {unfit.subject}: {_with_seen(unfit)}"
    elif verdict == "no":
        core = _core(d.steps)
        parts[0] += f" for {core}: {_group_line(d.steps, only=core)} can be taken"
        parts.append(f"what remains: {_group_line(d.steps, but=core)}")
    elif verdict == "unknown":
        parts[0] += f": {_not_known(d) or 'what the engines would do with it'}"
    if d.wrong:
        parts.append(f"and {listed(dict.fromkeys(f.code for f in d.wrong))} would still not hold")
    if not drafter.table.read and verdict != "unknown":
        parts.append("on published configs, tensor table unverified")
    return ", ".join(parts)


def _resized(drafter: View, goal: Goal) -> list[str]:
    """Return the sizes in which the new geometry differs: "inter 18432 -> 12288"."""
    out = []
    full = goal.view.size("target_vocab")
    used = {n for rule in goal.contract.tensors.values() for axis in rule.shape for n in axis.names}
    for name in contract_of(drafter).dims:
        own, new = drafter.dims(name), goal.view.dims(name)
        if name in used and _whole(own) and _whole(new) and own != new:
            assert isinstance(own, Known)
            assert isinstance(new, Known)
            if own.value != new.value:
                whole = isinstance(full, Known) and full.value == new.value
                words = " full vocabulary" if whole and name == goal.contract.sizes.get("draft_vocab") else ""
                out.append(f"{name} {own.value} -> {new.value}{words}")
    return out + ([] if goal.vocabulary.same else ["other tokens"])


_GROUPS = ("fusion", "attention", "mlp", "norm", "head", "embedding", "map")  # first of all, in this order


def _group_line(steps: Sequence[Step], *, only: str = "", but: str = "") -> str:
    """Say by group how much can be taken: "attention 0 of 7, mlp 3 of 3"."""
    out = []
    for group in dict.fromkeys((*_GROUPS, *(s.group for s in steps))):
        new = [s for s in steps if s.group == group and s.new_shape is not None]
        if new and group != but and (not only or group == only):
            taken = sum(s.action == "copy" for s in new)
            rows = " in part" if any(s.action == "rows" for s in new) else ""
            out.append(f"{group or 'other'}{rows or f' {taken} of {len(new)}'}")
    return ", ".join(out)


def _says(case: Case, d: Draft) -> Iterator[str]:
    """Yield what a person must know beside the verdict, most important first."""
    couple, goal, steps = d.couple, d.goal, d.steps
    drafter, target = couple.drafter, couple.target
    contract = contract_of(drafter)
    bad_fit = [f for f in case.fits or () if f.code in ("PAIR401", "PAIR402", "PAIR404") and f.level == "error"]
    if line := summary_text(contract, couple.dims):
        yield f"geometry {'does not fit' if bad_fit else 'fits'}: {line}"
    for f in d.wrong[:8]:
        yield f"would still not hold: {f.code} {f.subject}: {f.message} (expected {f.expected}, observed {f.observed})"
    if name := _renamed(drafter, goal):
        dialect = serving(drafter, goal)
        yield f"tensor names: {visible(name)} and others become the {dialect.name} names of a serving checkpoint"
    yield from _vocabulary_words(goal, steps)
    yield from _engine_words(d)
    yield from _trainer_words(d)
    place, changed = goal.view.config.place, {c.key: c for c in d.changes}
    for row in engine_rows(couple):
        lead = f"without the change of {row.key}" if place(row.key) in changed else f"because of {row.key}"
        yield f"{lead}, {row.engine} {row.version} {row.does}: {row.see} ({row.basis}: {row.source})"
    context = changed.get(place(_key(goal.view, goal.contract.sizes.get("context", ""))))
    if context and type(context.old) is int and type(context.new) is int and context.old < context.new:
        trained = couple.facts.get("trained_context")
        known = f"is {trained.value} tokens ({trained.source})" if trained else "is not declared"
        yield f"raising the context satisfies the engine, not the drafter: the length it was trained at {known}"
    yield from _aux_words(case, drafter, goal, steps, changed)
    for f in case.fits or ():
        if f.code == "PAIR417" and f.level != "pass":
            declared = f"trained on {f.expected}; {f.observed}"
            if f.observed == "not declared":
                declared = "the target that it was trained on is not declared"
            yield f"lineage: {declared}: measure the accept length before relying on it"
    if goal.like is not None:
        yield from _flag_words(drafter, goal, steps)
        yield from _rope_words(drafter, goal, steps)
        yield from (f"{s.tensor}: {s.why}" for s in steps if s.action == "rows")
        if taken := [s.tensor for s in steps if s.action == "copy"]:
            yield f"can be taken: {listed(taken, 20)}"
    yield from _near(case)
    if unread := [v for v in (drafter, target) if not v.table.read]:
        names = " and ".join(f"{v.checkpoint.role} ({v.table.basis})" for v in unread)
        until = "draftproof record ORG/NAME"
        yield f"tensor tables not read: {names}; TEN rules are unknown until {until}"


def _with_seen(f: Finding) -> str:
    """Return the message of a finding, with what was seen if it does not say so itself."""
    return f.message if f.observed in f.message else f"{f.message}: {f.observed}"


def _trainer_words(d: Draft) -> Iterator[str]:
    """Say what the trainer will do with the new drafter: how it starts, which tensors it takes, and what it reads."""
    trainer, layout = d.goal.trainer, d.goal.layout
    if trainer is None or layout is None:
        return
    if d.goal.before is not None:
        yield f"{trainer.title} reads another format: the config becomes one of {d.goal.contract.id}"
    if _unfit(d) is None:
        encode = serving(d.couple.drafter, d.goal).encode
        new = [s for s in d.steps if s.new_shape is not None]
        over = [s.tensor for s in new if s.tensor in layout.replaces]
        taken = [encode(s.tensor) for s in new if s.action in ("copy", "rows", "take") and s.tensor not in over]
        words = [f"takes {len(taken)} tensors: {listed(taken, 20)}"]
        made = [encode(s.tensor) for s in new if s.action in ("make", "lend")]
        words += [f"needs {listed(made)}, made for it"] if made else []
        words += [f"loads the target's over {listed(over)}"] if over else []
        yield f"{trainer.title} {'; '.join(words)}"
    for f in d.trainer:
        place = f"{f.subject}: " if f.code in ("PAIR453", "CFG337") else ""
        text = _with_seen(f) if f.level == "error" else f.message
        text += f" against {f.expected}" if f.code == "CFG337" else ""
        yield f"{trainer.title} {trainer.version.split(' ')[0]}: {place}{text} ({f.note})"


def _vocabulary_words(goal: Goal, steps: Sequence[Step]) -> Iterator[str]:
    """Say where tokens move, and where a map is not at hand."""
    v = goal.vocabulary
    if not v.same:
        yield f"another vocabulary: {v.why}: head, d2t and embedding cannot be taken, for their ids mean other tokens"
    elif not v.rows:
        yield f"{v.why}: the head cannot be taken"
    if lacks_map(goal, steps):
        yield (
            f"{goal.contract.roles['map']} of the new draft vocabulary must come from its trainer: at zero, draft id i "
            "would stand for target id i; give --like a local checkpoint that has it"
        )
    for step in steps:
        if step.action == "take":
            yield f"{step.tensor}: {step.why}, with the head rows of the target ids that it names"


def lacks_map(goal: Goal, steps: Sequence[Step]) -> bool:
    """Tell whether the new drafter needs a d2t that is not at hand."""
    return any(s.action == "init" and s.tensor == goal.contract.roles.get("map") for s in steps)


def _aux_words(
    case: Case, drafter: View, goal: Goal, steps: Sequence[Step], changed: Mapping[str, Change]
) -> Iterator[str]:
    contract, place = contract_of(drafter), drafter.config.place
    for code in ("PAIR407", "PAIR409", "PAIR408"):
        for f in case.fits or ():
            if f.code == code and (f.level != "pass" or code == "PAIR409"):
                seen = "" if f.level == "pass" or f.observed in f.message else f" ({f.observed})"
                note = f"; {f.note}" if f.note and f.level != "pass" else ""
                yield f"aux layers: {f.message}{seen}{note}"
    for change in goal.kept:
        asked, kept = _shown(change.old), _shown(change.new)
        yield f"aux layers: {change.key} stays {kept}, not {asked} as in the geometry asked for: {change.why}"
    if _taken(steps, goal.contract.roles.get("fusion", "")) and not goal.respelled:
        for key in map(place, contract.aux_keys):
            if key in changed:
                yield (
                    f"aux layers: fc is copied, and was trained on {changed[key].old}: at {changed[key].new} it reads "
                    "other layers, and must be trained again"
                )


def _flag_words(drafter: View, goal: Goal, steps: Sequence[Step]) -> Iterator[str]:
    """Warn where tensors that are copied would compute another function than they were trained for."""
    differ = []
    for name, dim in contract_of(drafter).dims.items():
        own, new = drafter.dims(name), goal.view.dims(name)
        if dim.bool_ and isinstance(own, Known) and isinstance(new, Known) and own.value != new.value:
            differ.append(f"{_key(drafter, name) or name} {_shown(own.value)} -> {_shown(new.value)}")
    for key in _TRAINED:
        a, b = drafter.config.at(key), goal.view.config.at(key)
        if (a or None) != (b or None):
            differ.append(f"{key} {_shown(a)} -> {_shown(b)}")
    if differ and any(s.action == "copy" for s in steps):
        yield f"flags differ: {', '.join(differ)}: what is copied was trained with the old: keep them, or train again"


def _shown(value: Any) -> str:
    return "absent" if value is None else visible(json.dumps(value, default=str), 80)


def _rope_words(drafter: View, goal: Goal, steps: Sequence[Step]) -> Iterator[str]:
    """Warn where rows that are copied would be rotated otherwise than they were trained."""
    own, new = rope_of(drafter)[0], rope_of(goal.view)[0]
    taken = [s.tensor for s in steps if s.action == "copy" and re.search(r"\.(q|k|kv)_", s.tensor)]
    if taken and {k: v.value for k, v in own.items()} != {k: v.value for k, v in new.items()}:
        yield (
            f"rope differs: trained with {rope_text(own)}; the new geometry has {rope_text(new)}: copied q and k rows "
            f"mean other positions ({listed(taken, 3)})"
        )


def _near(case: Case) -> Iterator[str]:
    """Name the known drafters of the target whose config is nearly this one."""
    couple = case.couple
    assert couple is not None
    me, target = couple.drafter.checkpoint, couple.target.checkpoint.source.repo
    roots = recordings(case.library)
    for repo in recorded_repos(roots):
        fact = declared_facts(case.library, repo).get("trained_on")
        if repo == me.source.repo or fact is None or not same_model(case.library, str(fact.value), target):
            continue
        other = open_model(repo, roots)
        if isinstance(other, Finding) or other.provenance == "partial" or other.config is None:
            continue
        a, b = _flat(me.config.data), _flat(other.config)
        differ = [k for k in dict.fromkeys((*a, *b)) if a.get(k) != b.get(k)]
        if len(differ) <= NEAR:
            but = " and ".join(differ) or "nothing"
            yield f"identical to {other.name} but for {but}; that one was trained on this target ({other.provenance})"
