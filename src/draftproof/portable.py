"""Under which edits several engines do the same with a drafter: how it is loaded may change, what it computes never.

An edit is a key of the config that spells what is so anyhow, other names of the tensors, or an optional tensor that is
left out. Each is tried on metadata, and kept if some engine does better with it and none does worse. The interpreter of
engines is the only judge; what it knows of an engine is data, and so an engine or a family needs no line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from draftproof.conform import View, expectations
from draftproof.contracts import Contract
from draftproof.dims import Known, value_of
from draftproof.engines import MEANT, OUTCOMES, Effect, Prediction, World, predict
from draftproof.findings import Finding, visible
from draftproof.library import Library
from draftproof.pair import Couple
from draftproof.profiles import STAGES, Profile
from draftproof.trainers import at, first_ids, put, trained_layers
from draftproof.versions import resolve

ROUNDS = 8  # an edit may bring to light what the one before it hid
_SPELT = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


class Edit(NamedTuple):
    """Name one edit: keys of the config, another dialect, or a tensor that is left out."""

    keys: Mapping[str, Any] = {}
    dialect: str = ""
    drop: str = ""

    def __str__(self) -> str:
        keys = ", ".join(f"{key} = {visible(value)}" for key, value in self.keys.items())
        return keys or (f"the names of {self.dialect}" if self.dialect else f"without {self.drop}")


@dataclass(frozen=True)
class Form:
    """Hold in what form a drafter is stored: its config, the dialect of its names, what is left out of it."""

    config: dict[str, Any]
    dialect: str = ""
    dropped: frozenset[str] = frozenset()

    def with_(self, edit: Edit) -> Form:
        """Return the form after an edit."""
        config = deepcopy(self.config)
        for key, value in edit.keys.items():
            put(config, key, value)
        return Form(config, edit.dialect or self.dialect, self.dropped | ({edit.drop} if edit.drop else set()))


@dataclass
class Agreement:
    """Hold what was found: the form, why each edit was made, what each engine did before and does now."""

    form: Form
    reasons: dict[str, str] = field(default_factory=dict)  # config key, "dialect" or tensor -> why
    before: list[Prediction] = field(default_factory=list)
    now: list[Prediction] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)  # what mends it for one engine and breaks it for another

    @property
    def outcome(self) -> str:
        """Return the worst of what the engines do now: refuses, degrades, unknown, as meant."""
        found = {one.outcome for one in self.now}
        return next((one for one in ("refuses", "degrades", "unknown") if one in found), MEANT)


class Asked(NamedTuple):
    """Name one engine, at a version, with one of its runners."""

    profile: Profile
    version: str
    asked: str
    runner: str


def asked_engines(specs: Sequence[str], library: Library) -> tuple[list[Asked], list[Finding]]:
    """Return the engines that are named, each with every runner that it has; and what is wrong with the names."""
    named, found = resolve(specs, library)
    out = []
    for one in named:
        profile, _ = library.get("profile", one.engine)
        runners = dict.fromkeys(row.is_ for row in profile.runners) or {"": None}
        out += [Asked(profile, one.version, one.asked, runner) for runner in runners]
    return out, found


def agree(
    couple: Couple, contract: Contract, form: Form, engines: Sequence[Asked], view: Callable[[Form], View]
) -> Agreement:
    """Return the form in which a drafter must be stored so that all engines run it as meant, or the nearest to that."""

    def judged(own: View) -> list[Prediction]:
        again = Couple(own, couple.target, couple.library, couple.facts)
        return [
            predict(e.profile, couple.library, own, couple.target, again, version=e.version, asked=e.asked,
                    runner=e.runner)
            for e in engines
        ]  # fmt: skip

    out = Agreement(form, before=judged(couple.drafter), now=judged(view(form)))
    for _ in range(ROUNDS):
        kept = False
        torn: dict[str, str] = {}
        for edit in _edits(couple, contract, out, engines, view(out.form)):
            tried = out.form.with_(edit)
            if tried == out.form:
                continue
            then = judged(view(tried))
            ranks = [(_rank(a), _rank(b)) for a, b in zip(out.now, then, strict=True)]
            better = [n for n, (old, new) in enumerate(ranks) if new < old]
            worse = [n for n, (old, new) in enumerate(ranks) if new > old]
            if better and not worse:
                why = "; ".join(dict.fromkeys(_gain(out.now[n], then[n]) for n in better))
                for name in edit.keys or ([edit.drop] if edit.drop else ["dialect"]):
                    out.reasons[name] = why
                out.form, out.now, kept = tried, then, True
                torn.pop(str(edit), None)
            elif any(then[n].refusal is None and then[n].class_ for n in better):  # it would mend something
                gain, loss = _gain(out.now[better[0]], then[better[0]]), _gain(then[worse[0]], out.now[worse[0]])
                torn[str(edit)] = f"{edit}: without it {gain}; with it {loss}"
        out.torn = list(torn.values())
        if not kept:
            break
    return out


def engine_name(made: Prediction) -> str:
    """Return an engine with its version, and the runner where it has several."""
    return f"{made.profile.title} {made.version}{f' ({made.runner})' if made.runner else ''}"


def _rank(made: Prediction) -> tuple[int, int, int, int]:
    """Return how bad a prediction is: refused or by no class, how early, how much is not known, or silently wrong."""
    stage = STAGES.index(made.refusal.stage) if made.refusal else len(STAGES) if made.class_ else 0
    count = {outcome: sum(e.outcome == outcome for e in made.effects) for outcome in OUTCOMES}
    lost = made.refusal is not None or not made.class_  # what no class was read for is no better than refused
    return (int(lost), len(STAGES) - stage, count["unknown"], count["refuses"] + count["degrades"])


def _gain(old: Prediction, new: Prediction) -> str:
    """Say what one engine did, and no longer does."""
    there = {(e.subject, e.see) for e in new.effects}
    gone: list[Effect] = [e for e in old.effects if (e.subject, e.see) not in there and e.outcome != "changes"]
    first = min(gone, key=lambda e: STAGES.index(e.stage), default=None)
    name = engine_name(old)
    return f"{name}: {first.subject}: {first.see}" if first else f"{name} does worse"


# --- edits --------------------------------------------------------------------------------------------------------


def _edits(
    couple: Couple, contract: Contract, so_far: Agreement, engines: Sequence[Asked], own: View
) -> Iterator[Edit]:
    """Yield every edit that is worth a try: none of them changes what the drafter computes."""
    profiles = list({e.profile.id: e.profile for e in engines}.values())
    config = so_far.form.config
    for name in _architectures(profiles):
        yield Edit({"architectures": [name]})
    for dialect in contract.dialects:
        if not dialect.flag and not dialect.format:
            yield Edit(dialect=dialect.name)
    again = Couple(own, couple.target, couple.library, couple.facts)
    for profile in profiles:
        world = World(profile, own, couple.target, again, {}, {"version": profile.versions[0].is_})
        for key, exprs in profile.portable.items():
            for expr in exprs:
                value = value_of(expr, world)
                if isinstance(value, (str, int, float, bool)) and value != at(config, key):
                    yield Edit({key: value})
    yield from _layers(couple, contract, config, profiles)
    yield from _spelt(contract, own, config)
    canonical = {visible(disk): name for name, disk in own.names.items()}
    optional = {wanted.name for wanted in expectations(contract, own.dims) if wanted.presence == "optional"}
    for effect in [effect for made in so_far.now for effect in made.effects]:
        if effect.outcome == "refuses" and canonical.get(effect.subject, "") in optional:
            yield Edit(drop=canonical[effect.subject])


def _architectures(profiles: Sequence[Profile]) -> list[str]:
    """Return the architectures that the engines have a class for, those that most of them know first."""
    known = [{name for names in profile.registry.values() for name in names} for profile in profiles]
    return sorted(set().union(*known), key=lambda name: (-sum(name in names for names in known), name))


def _layers(
    couple: Couple, contract: Contract, config: Mapping[str, Any], profiles: Sequence[Profile]
) -> Iterator[Edit]:
    """Yield, for each key that an engine reads layers from, the ids by which it captures those that were trained on."""
    _, ids = first_ids(config, map(couple.drafter.config.place, contract.aux_keys))
    trained, _ = trained_layers(couple, contract, ids)
    if trained is None:
        return
    keys = dict.fromkeys((key.key, key.offset) for p in profiles for capture in p.captures for key in capture.keys)
    for key, offset in keys:
        if at(config, key) != (new := [b - offset for b in sorted(trained)]):
            yield Edit({key: new})


def _spelt(contract: Contract, own: View, config: Mapping[str, Any]) -> Iterator[Edit]:
    """Yield what the config leaves to defaults, stated: sizes that the tensors prove, and the dtype that they have."""
    for name, dim in contract.dims.items():
        keys = [source.name for source in dim.sources.get("drafter", ()) if source.name]
        seen = own.dims(name)
        if keys and isinstance(seen, Known) and type(seen.value) in (int, bool):
            for key in keys:
                if at(config, own.config.place(key)) is None:
                    yield Edit({own.config.place(key): seen.value})
    dtypes = [t.dtype for t in own.table.tensors.values() if t.dtype in _SPELT]
    for key in contract.keys.get("dtype", ()):
        if dtypes and at(config, key) is None:
            yield Edit({key: _SPELT[max(dict.fromkeys(dtypes), key=dtypes.count)]})
