"""Rung 3: what an engine will do with a drafter. One interpreter of profiles; every fact of an engine is data.

``predict`` walks the way that an engine goes, and stops nowhere: which runner and method, which architecture and so
which class, which layers it captures, what becomes of each tensor, what each parameter holds in the end, and the rows
that apply. Each step yields effects. What they come to is decided last: the first refusal, else the worst effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

from draftproof.conform import View
from draftproof.contracts import EngineRow
from draftproof.dims import Absent, Expr, Known, Seen, Unknown, braced, parse, value_of
from draftproof.findings import Finding, Level, finding, holds, unknown, visible
from draftproof.library import Library
from draftproof.pair import Couple
from draftproof.profiles import STAGES, Capture, Chosen, DrafterClass, Name, Param, Profile, Skip
from draftproof.versions import resolve

MAX_PARAMS = 20_000  # of a class; a config that says more is not believed
OUTCOMES = ("refuses", "degrades", "unknown", "changes")  # an effect's, the worst first
MEANT = "as meant"
KNOWN_CLASSES = ("noise", "ones", "zeros", "target")  # what a parameter can hold; any other text is a class of error


class Effect(NamedTuple):
    """State one thing that the engine does: its outcome, when, with which error, and what will be seen of it."""

    outcome: str
    stage: str
    kind: str  # refuses, ignored, cut, unset, layers, replaced, reads, stops, launch, copes
    subject: str
    see: str
    error: str = ""
    source: str = ""
    basis: str = "read"
    line: str = ""
    note: str = ""


@dataclass
class Prediction:
    """Hold what an engine is predicted to do with one drafter, and everything that it rests on."""

    profile: Profile
    version: str
    exact: bool = True  # the version was read
    asked: str = ""  # the version that was asked for
    near: bool = True  # the version that was read stands in for it
    runner: str = ""
    method: str = ""
    class_: str = ""
    effects: list[Effect] = field(default_factory=list)
    captured: list[int] | None = None  # boundaries of the target: b is the input of layer b
    lost: list[int] = field(default_factory=list)  # boundaries that are asked for and not there

    @cached_property
    def refusal(self) -> Effect | None:
        """Return the refusal that comes first."""
        refusals = [e for e in self.effects if e.outcome == "refuses"]
        return min(refusals, key=lambda e: STAGES.index(e.stage), default=None)

    @property
    def outcome(self) -> str:
        """Return refuses, degrades, unknown, or as meant."""
        if self.refusal:
            return "refuses"
        found = {e.outcome for e in self.effects}
        return next((one for one in ("degrades", "unknown") if one in found), MEANT)


def judge(
    specs: Sequence[str],
    library: Library,
    drafter: View,
    target: View | None,
    couple: Couple | None,
    launches: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Finding]:
    """Say what each of the engines will do with a drafter: NAME, NAME@VERSION, or all.

    launches has the flags of those engines whose launch is known.
    """
    named, out = resolve(specs, library)
    for one in named:
        profile, _ = library.get("profile", one.engine)
        flags = (launches or {}).get(one.engine)
        made = predict(profile, library, drafter, target, couple, version=one.version, asked=one.asked, flags=flags)
        made.near = one.near
        out += findings_of(made)
        for runner in dict.fromkeys(row.is_ for row in profile.runners):
            if runner != made.runner and flags is None:
                other = predict(profile, library, drafter, target, couple, version=one.version, asked=one.asked,
                                runner=runner)  # fmt: skip
                other.near = one.near
                if (other.outcome, other.effects) != (made.outcome, made.effects):
                    out += findings_of(other)
    return out


# --- what expressions see -----------------------------------------------------------------------------------------


class World:
    """Look up what an engine sees: its own facts and dims, flags of the launch, both configs, and the pair's dims."""

    def __init__(self, profile: Profile, drafter: View, target: View | None, couple: Couple | None,
                 flags: Mapping[str, Any], said: Mapping[str, str]) -> None:  # fmt: skip
        self.profile, self.drafter, self.target, self.couple = profile, drafter, target, couple
        self.flags = flags
        self.said = dict(said)  # version, family, line, runner, method, architecture, code
        self.exprs: dict[str, Expr] = dict(profile.facts)
        self.index: dict[str, int] = {}
        self._memo: dict[str, Seen] = {}
        self._open: set[str] = set()

    def say(self, name: str, value: str) -> None:
        """Fix what the interpreter has found; what rests on it is asked anew."""
        self.said[name] = value
        self._memo.clear()

    def add(self, exprs: Mapping[str, Expr]) -> None:
        """Add the dims of a class."""
        self.exprs |= exprs
        self._memo.clear()

    def __call__(self, name: str) -> Seen:
        """Return what is known of a name."""
        if name in self.index:
            return Known(self.index[name], "index")
        if name not in self._memo:
            if name in self._open:
                return Unknown(f"{name} rests on itself", told=True)
            self._open.add(name)
            self._memo[name] = self._find(name)
            self._open.discard(name)
        return self._memo[name]

    def _find(self, name: str) -> Seen:
        if name in self.said:
            return Known(self.said[name], name)
        if name in self.exprs:
            value = value_of(self.exprs[name], self)
            return value if isinstance(value, Unknown) else Known(value, str(self.exprs[name]))
        if self.couple is not None and name in self.couple.dims.dims:
            return self.couple.dims(name)
        side, _, key = name.partition(".")
        if side == "launch":
            return self._flag(key)
        if side == "declared" and self.couple is not None:
            fact = self.couple.facts.get(key)
            return Known(fact.value, fact.source) if fact else Unknown(f"{key} is not declared")
        if side == "has":  # a tensor by the role that the drafter's family gives it, or by its name
            role = self.drafter.contract.roles.get(key, "") if self.drafter.contract else ""
            if not self.drafter.table.read:
                return Unknown(self.drafter.table.basis, told=True)
            return Known(bool({role, key} & {*self.drafter.names, *self.drafter.table.tensors}), role or key)
        view = {"drafter": self.drafter, "target": self.target}.get(side)
        if view is None:
            return Unknown(f"{name} is not known" if side != "target" else "no target is given", told=side == "target")
        return self._key(view, key)

    def _flag(self, key: str) -> Seen:
        """Return a flag of the launch; of one that holds a table, a key of it."""
        value: Any = self.flags
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                if key not in ("refused", "unread") and self.flags.get("unread"):
                    return Unknown(f"{key} may stand in a file that the launch names", told=True)
                return Absent(f"launch: {key}")
            value = value[part]
        return value if isinstance(value, Unknown) else Known(value, f"launch: {key}")

    def _key(self, view: View, key: str) -> Seen:
        """Return what a config says of a key; null is a value here, for engines tell it from what is not there."""
        tables = self.profile.lifts if view is self.drafter else ()
        for place in (*(f"{table}.{key}" for table in tables), key):
            if view.config.is_null(place):
                return Known(None, f"{view.checkpoint.role} config.json: {place}")
            seen = view.config(place)
            if not isinstance(seen, Absent):
                return seen
        return view.config(key)

    def holds(self, when: Expr | None) -> bool | Unknown:
        """Return whether a condition holds; one that is not given does."""
        if when is None:
            return True
        value = value_of(when, self)
        return value if isinstance(value, (bool, Unknown)) else Unknown(f"{when} is {value!r}")

    def first(self, rows: Sequence[Any]) -> tuple[Any, Unknown | None]:
        """Return the first row whose condition holds; and what is not known, if that may have been an earlier one."""
        unsure: Unknown | None = None
        for row in rows:
            holds = self.holds(row.when)
            if holds is True:
                return row, unsure
            unsure = unsure or (holds if isinstance(holds, Unknown) else None)
        return None, unsure


# --- the way of an engine -----------------------------------------------------------------------------------------


def predict(
    profile: Profile,
    library: Library,
    drafter: View,
    target: View | None = None,
    couple: Couple | None = None,
    *,
    version: str = "",
    asked: str = "",
    flags: Mapping[str, Any] | None = None,
    runner: str = "",
) -> Prediction:
    """Return what an engine will do with a drafter, launched with these flags, or without any as its family needs.

    version is one that was read; asked is the one that it stands in for, if that was not.
    """
    version = version or profile.versions[0].is_
    out = Prediction(profile, version, not asked, asked)
    family = drafter.contract.id if drafter.contract else ""
    said = {"version": asked or version, "family": family, "line": "no" if flags is None else "yes"}
    said |= dict.fromkeys(("runner", "method", "architecture", "code"), "")
    world = World(profile, drafter, target, couple, flags or {}, said)
    out.runner = runner or _choose(world, profile.runners, out, "runner")
    world.say("runner", out.runner)
    out.method = _choose(world, profile.methods, out, "method")
    world.say("method", out.method)
    architecture = _architecture(world, profile)
    if isinstance(architecture, Unknown):
        out.effects.append(_unsure("config", "architectures", architecture))
    else:
        world.say("architecture", architecture)
        out.class_ = _class_of(profile, architecture, world)
        world.say("code", out.class_)
        out.effects += _registered(profile, world, architecture, out.class_)
    class_: DrafterClass | None = None
    if out.class_:
        class_, _ = library.get("class", out.class_)
        if class_ is not None:
            world.add(class_.dims)
            out.effects += _tensors(profile, class_, world)
    out.effects += _hooked(profile, world, out.method)
    out.effects += _captures(profile, world, out)
    out.effects += _rows([*_shared_rows(library, profile), *profile.rows], world)
    return out


def _shared_rows(library: Library, profile: Profile) -> tuple[EngineRow, ...]:
    """Return the rows of the engine that need nothing but the dims of a pair."""
    engine, _ = library.get("engine", profile.engine) if profile.engine in library.files("engine") else (None, ())
    return engine.rows if engine else ()


def _choose(world: World, rows: Sequence[Chosen], out: Prediction, what: str) -> str:
    row, unsure = world.first(rows)
    if unsure is not None and not unsure.told:
        out.effects.append(_unsure("flags", what, unsure))
    return row.is_ if row else ""


def _architecture(world: World, profile: Profile) -> str | Unknown:
    """Return the architecture by which the engine chooses a class, after all renamings."""
    seen = world("drafter.architectures")
    if isinstance(seen, Unknown):
        return seen
    stated = seen.value if isinstance(seen, Known) else []
    names = [n for n in stated if isinstance(n, str)] if isinstance(stated, list) else []
    for row in profile.renamings:
        world.say("architecture", names[0] if names else "")
        holds = world.holds(row.when)
        if isinstance(holds, Unknown):
            return holds
        if not holds:
            continue
        if row.becomes:
            names = list(row.becomes)
        names = [n if any(fnmatchcase(n, glob) for glob in row.unless) else row.prefix + n for n in names]
        if row.last:
            break
    known = [n for n in names if _class_of(profile, n, world)]
    return (known or names or [""])[0]


def _class_of(profile: Profile, architecture: str, world: World) -> str:
    """Return the class that an architecture leads to, of those that the version has."""
    classes = (id for id, names in profile.registry.items() if architecture in names)
    return next((id for id in classes if world.holds(profile.ranges.get(id)) is True), "")


def _registered(profile: Profile, world: World, architecture: str, class_: str) -> Iterator[Effect]:
    if class_:
        return
    shown = visible(architecture) or "no architecture"
    if any(fnmatchcase(architecture, glob) for glob in profile.others):
        yield _unsure("load", shown, Unknown("the engine has code for it, which was not read"))
    elif profile.unregistered is not None:
        yield _of(profile.unregistered, shown, name=shown)


def _hooked(profile: Profile, world: World, method: str) -> Iterator[Effect]:
    """Say whether the target serves the method: whether it gives what a drafter reads."""
    globs = profile.hooks.get(method)
    if globs is None or profile.hookless is None:
        return
    seen = world("target.architectures")
    if isinstance(seen, Unknown):
        if not seen.told:
            yield _unsure(profile.hookless.stage, "target", seen)
        return
    names = [n for n in seen.value if isinstance(n, str)] if isinstance(seen, Known) else []
    if not any(fnmatchcase(name, glob) for name in names for glob in globs):
        yield _of(profile.hookless, "target", name=visible(", ".join(names)) or "no architecture")


def _unsure(stage: str, subject: str, why: Unknown) -> Effect:
    return Effect("unknown", stage, "reads", subject, why.why)


def _of(row: EngineRow, subject: str = "", **words: str) -> Effect:
    see = row.see
    for word, value in words.items():
        see = see.replace(f"{{{word}}}", value)
    return Effect(row.outcome, row.stage, row.effect, subject or row.key or row.id, see, row.error, row.source,
                  row.basis, row.line)  # fmt: skip


def _rows(rows: Sequence[EngineRow], world: World) -> Iterator[Effect]:
    for row in rows:
        holds = world.holds(row.when)
        if holds is True:
            yield _of(row)._replace(see=_shown(row.see, world))
        elif isinstance(holds, Unknown) and not holds.told:
            yield Effect("unknown", row.stage, row.effect, row.key or row.id, f"{row.see}: not known whether, "
                         f"{holds.why}", row.error, row.source, row.basis, row.line)  # fmt: skip


def _shown(see: str, world: World) -> str:
    """Return what will be seen, with the values of the expressions that stand in it."""
    for inner in braced(see):
        value = value_of(parse(inner, True), world)
        see = see.replace(f"{{{inner}}}", "?" if isinstance(value, Unknown) else visible(value))
    return see


# --- what is told -------------------------------------------------------------------------------------------------

_LEVELS: Mapping[str, Level] = {"refuses": "error", "degrades": "error", "changes": "info", "unknown": "unknown"}


def findings_of(made: Prediction) -> list[Finding]:
    """Return what is predicted as findings: that it runs as meant, or all that speaks against it, worst first."""
    codes, name = made.profile.codes, engine_name(made)
    out: list[Finding] = []
    if not made.exact:
        read = ", ".join(v.is_ for v in made.profile.versions)
        how = "the nearest" if made.near else "the nearest, and too far to stand in for it"
        out.append(unknown(codes["unknown"], f"{name}, for {visible(made.asked)}",
                           expected=f"a version that was read: {read}",
                           observed=f"{made.asked}; what follows is of {made.version}, {how}"))  # fmt: skip
    if made.outcome == MEANT:
        layers = f"; it reads the inputs of layers {made.captured}" if made.captured is not None else ""
        out.append(holds(codes["meant"], name, f"{name} runs it as meant{layers}"))
    for one in sorted(made.effects, key=lambda e: (OUTCOMES.index(e.outcome), STAGES.index(e.stage))):
        source = f"{_BASIS[one.basis]}: {made.profile.title} {made.version}, {one.source}"
        then = " after that" if one.outcome == "refuses" and one is not made.refusal else ""
        when = f"{_STAGE[one.stage]}{then}: {one.see}"
        out.append(
            finding(
                codes["unknown" if one.outcome == "unknown" else one.kind],
                f"{name}: {one.subject}",
                level=_LEVELS[one.outcome],
                observed=when,
                note="; ".join(filter(None, [one.note, source])),
                contract=one.line,
            )
        )
    return out if made.near else [f if f.level == "info" else replace(f, level="unknown") for f in out]


_BASIS = {"run": "seen", "read": "read", "told": "told"}
_STAGE = {
    "flags": "when flags are read",
    "config": "when its config is read",
    "convert": "when it is converted",
    "load": "at load",
    "run": "at the first draft",
}


def engine_name(made: Prediction) -> str:
    """Return the engine with version and runner, as reports name it."""
    return f"{made.profile.title} {made.version}{f' ({made.runner})' if made.runner else ''}"


# --- tensors ------------------------------------------------------------------------------------------------------


def _tensors(profile: Profile, class_: DrafterClass, world: World) -> Iterator[Effect]:
    """Walk the tensors in the order of the file, then ask what the parameters hold that none was loaded into."""
    view = world.drafter
    if not view.table.read or not view.table.complete:
        if view.table.basis != "":
            yield _unsure("load", "tensors", Unknown(view.table.basis or "not all tensors were read"))
        return
    params, failed = _expanded(class_, world)
    yield from failed
    explained = set(view.names.values())
    loaded: dict[str, str] = {}  # parameter -> tensor
    padded: dict[tuple[str, Any], dict[str, int]] = {}
    late: list[Effect] = []
    for name, tensor in view.table.tensors.items():
        param = _renamed(class_.names, name)
        skip = next((s for s in class_.skips if s.covers(name) and (param not in params or not s.lost)
                     and world.holds(s.when) is True), None)  # fmt: skip
        if skip is not None:
            yield from _skipped(class_, skip, name, name in explained)
        elif param not in params:
            yield from _unclaimed(class_, name, name in explained)
        else:
            loaded[param] = name
            rule, index = params[param]
            for one in rule.gives:
                loaded.setdefault(_filled(one, index), name)
            world.index = index
            if rule.unused is None or world.holds(rule.unused) is not True:
                late += _fitted(profile, class_, rule, name, tuple(tensor.shape), world, padded)
            elif not name:
                continue
            replaced = world.holds(rule.replaced) if rule.replaced is not None else False
            if replaced is not False:
                late += _replaced(class_, name, world, replaced)
            world.index = {}
    neutral = {group for group, rows in padded.items() if len(rows) == _group(params, group[0]) > 1}
    yield from (e for e in late if not (e.note and any(e.note == g[0] for g in neutral)))
    for param, (rule, index) in params.items():
        if param not in loaded:
            world.index = index
            yield from _unset(class_, rule, param, world)
            world.index = {}


def _group(params: Mapping[str, tuple[Param, dict[str, int]]], name: str) -> int:
    return sum(rule.pads == name for rule, _ in params.values())


def _expanded(
    class_: DrafterClass, world: World
) -> tuple[dict[str, tuple[Param, dict[str, int]]], list[Effect]]:  # fmt: skip
    """Return the parameters that the class makes, by name; and what cannot be known of them."""
    out: dict[str, tuple[Param, dict[str, int]]] = {}
    failed: list[Effect] = []
    for rule in class_.params.values():
        rows: list[dict[str, int]] = [{}]
        for loop in rule.over:
            ends = [value_of(end, world) for end in (loop.first, loop.stop)]
            if bad := next((e for e in ends if isinstance(e, Unknown)), None):
                failed.append(_unsure("load", rule.name, bad))
                rows = []
                break
            values = range(ends[0], ends[1], loop.step)
            if len(values) * len(rows) > MAX_PARAMS:
                failed.append(_unsure("load", rule.name, Unknown(f"more than {MAX_PARAMS} of one name")))
                rows = []
                break
            rows = [row | {loop.name: i} for row in rows for i in values]
        for row in rows:
            world.index = row
            holds = world.holds(rule.when)
            world.index = {}
            if isinstance(holds, Unknown):
                failed.append(_unsure("load", rule.name, holds))
            elif holds:
                out[_filled(rule.name, row)] = (rule, row)
    return out, failed


def _filled(name: str, index: Mapping[str, int]) -> str:
    for i, value in index.items():
        name = name.replace(f"{{{i}}}", str(value))
    return name


def _renamed(rules: Sequence[Name], name: str) -> str:
    for rule in rules:
        if any(fnmatchcase(name, glob) for glob in rule.unless):
            continue
        if rule.part:
            name = name.replace(rule.part, rule.to)
        elif name.startswith(rule.starts):
            name = rule.to + name[len(rule.starts) :]
    return name


def _skipped(class_: DrafterClass, skip: Skip, name: str, explained: bool) -> Iterator[Effect]:
    source = skip.source or class_.source
    if skip.as_ == "dropped":
        if explained:
            yield Effect("degrades", "load", "ignored", visible(name), "dropped without a word", "", source,
                         class_.basis)  # fmt: skip
    elif skip.as_ != "harmless":
        yield Effect("refuses", "load", "refuses", visible(name), f"{skip.as_} at load", skip.as_, source, class_.basis)


def _unclaimed(class_: DrafterClass, name: str, explained: bool) -> Iterator[Effect]:
    """Say what becomes of a tensor that finds no parameter; one that the family knows was trained for."""
    if class_.unknown == "dropped":
        outcome, kind = ("degrades", "ignored") if explained else ("changes", "copes")
        yield Effect(outcome, "load", kind, visible(name), "ignored without a word", "", class_.source,
                     class_.basis)  # fmt: skip
    else:
        see = (class_.says or "{error}").replace("{name}", visible(name)).replace("{error}", class_.unknown)
        yield Effect("refuses", "load", "refuses", visible(name), f"{class_.unknown}: {see}", class_.unknown,
                     class_.source, class_.basis)  # fmt: skip


def _fitted(
    profile: Profile,
    class_: DrafterClass,
    rule: Param,
    name: str,
    shape: tuple[int, ...],
    world: World,
    padded: dict[tuple[str, Any], dict[str, int]],
) -> Iterator[Effect]:
    """Compare a tensor's shape with its parameter's, by the way in which the engine takes such a parameter."""
    loader, source = profile.loaders[rule.loader], rule.source or class_.source
    wanted = [value_of(axis, world) for axis in rule.shape]
    if bad := next((axis for axis in wanted if isinstance(axis, Unknown)), None):
        yield _unsure("load", visible(name), bad)
        return
    source = loader.source or source
    sizes = f"{list(shape)} where it makes {wanted}"
    parts = {"source": source, "basis": class_.basis}
    odd = len(shape) != len(wanted) or any(
        a != b for n, (a, b) in enumerate(zip(shape, wanted, strict=True)) if n != loader.axis
    )
    if odd:
        if loader.other == "taken":
            return
        yield Effect("refuses", "load", "refuses", visible(name), f"{loader.other}: {sizes}", loader.other, **parts)
        return
    if loader.axis is None or shape[loader.axis] == wanted[loader.axis]:
        return
    more = shape[loader.axis] > wanted[loader.axis]
    fate = loader.larger if more else loader.smaller
    if fate in ("cut", "padded"):
        if fate == "padded" and rule.pads:
            padded.setdefault((rule.pads, wanted[loader.axis] - shape[loader.axis]), {})[name] = 1
        word = "cut to what the config says" if more else "filled up with zeros"
        note = rule.pads if fate == "padded" else ""
        yield Effect("degrades", "load", "cut", visible(name), f"{word}, without a word: {sizes}", note=note, **parts)
    elif fate != "taken":
        yield Effect("refuses", "load", "refuses", visible(name), f"{fate}: {sizes}", fate, **parts)


def _replaced(class_: DrafterClass, name: str, world: World, holds: bool | Unknown) -> Iterator[Effect]:
    """Say that the target's takes the place of the drafter's own, which matters where the two differ."""
    same = world("declared.own_embedding")
    differs = same.value if isinstance(same, Known) else None
    see = "loaded, then the target's takes its place without a word"
    if isinstance(holds, Unknown) or differs is None:
        why = "it matters where the drafter's own is not a copy of the target's"
        yield Effect("unknown", "load", "replaced", visible(name), f"{see}: {why}", "", class_.source, class_.basis)
    elif differs:
        yield Effect("degrades", "load", "replaced", visible(name), see, "", class_.source, class_.basis)


_HOLDS = {"noise": "whatever the memory held", "ones": "ones", "zeros": "zeros"}


def _unset(class_: DrafterClass, rule: Param, param: str, world: World) -> Iterator[Effect]:
    """Say what a parameter holds into which no tensor was loaded."""
    source = rule.source or class_.source
    unknown: Unknown | None = None
    for fine in (rule.shared, rule.replaced, rule.harmless, rule.unused):
        holds = world.holds(fine) if fine is not None else False
        if holds is True:
            return
        unknown = unknown or (holds if isinstance(holds, Unknown) else None)
    if rule.missing == "target":
        return
    if rule.missing not in KNOWN_CLASSES:
        yield Effect("refuses", "load", "refuses", visible(param), f"{rule.missing}: it is not in the file",
                     rule.missing, source, class_.basis)  # fmt: skip
        return
    see = f"not in the file: it holds {_HOLDS[rule.missing]}, and nothing says so"
    if unknown is not None:
        yield Effect("unknown", "load", "unset", visible(param), f"{see}, unless {unknown.why}", "", source)
        return
    yield Effect("degrades", "load", "unset", visible(param), see, "", source, class_.basis)


# --- layers -------------------------------------------------------------------------------------------------------


def _captures(profile: Profile, world: World, out: Prediction) -> Iterator[Effect]:
    """Find the boundaries of the target that are captured, and compare them with those it was trained on."""
    family = world.drafter.contract
    if family is None or not family.conventions:
        return
    row, unsure = world.first(profile.captures)
    if unsure is not None and not unsure.told:
        yield _unsure("run", "aux layers", unsure)
    if row is None:
        return
    ids, effects = _asked(row, world)
    yield from effects
    if ids is None:
        return
    parts = {"source": row.source, "basis": row.basis}
    asked = sorted(set(ids))
    ends = [value_of(end, world) if end is not None else None for end in (row.low, row.high)]
    if any(isinstance(end, Unknown) for end in ends):
        yield _unsure("run", "aux layers", next(end for end in ends if isinstance(end, Unknown)))
        return
    low, high = ends
    out.lost = [b for b in asked if (low is not None and b < low) or (high is not None and b > high)]
    out.captured = [b for b in asked if b not in out.lost]
    if out.lost and row.outside != "lost":
        yield Effect("refuses", row.outside_stage, "refuses", "aux layers", f"{row.outside}: {out.lost} are not there",
                     row.outside, **parts)  # fmt: skip
        return
    count = world("aux_count")
    if isinstance(count, Known) and count.value != len(out.captured):
        see = f"{row.fewer}: {len(out.captured)} states are captured, {out.captured}; the fusion takes {count.value}"
        yield Effect("refuses", "run", "refuses", "aux layers", see, row.fewer, **parts)
        return
    yield from _trained(world, out.captured, parts)


def _asked(row: Capture, world: World) -> tuple[list[int] | None, list[Effect]]:
    """Return the boundaries that the config asks for as the engine reads it, or the engine's default."""
    for key in row.keys:
        holds = world.holds(key.when)
        if isinstance(holds, Unknown):
            return None, [_unsure("run", key.key, holds)]
        if not holds:
            continue
        seen = world(f"drafter.{key.key}")
        if isinstance(seen, Unknown):
            return None, [_unsure("run", key.key, seen)]
        if isinstance(seen, Absent) or seen.value is None:
            continue
        ids = seen.value
        fate = row.empty if ids == [] else row.odd
        if isinstance(ids, list) and ids and all(type(i) is int for i in ids):
            return [i + key.offset for i in ids], []
        if fate == "next":
            continue
        if fate != "default":
            see = f"{fate}: {visible(ids)}"
            return None, [Effect("refuses", "run", "refuses", key.key, see, fate, row.source, row.basis)]
        break
    default = [value_of(e, world) for e in row.default]
    if bad := next((v for v in default if isinstance(v, Unknown)), None):
        return None, [_unsure("run", "aux layers", bad)]
    return default, []


def _trained(world: World, captured: list[int], parts: Mapping[str, str]) -> Iterator[Effect]:
    """Compare the captured boundaries with those that the drafter was trained on, where that is declared."""
    couple = world.couple
    assert world.drafter.contract is not None
    fact = couple.facts.get("aux_layers") if couple else None
    named = couple.facts.get("aux_convention") if couple else None
    conventions = world.drafter.contract.conventions
    convention = conventions.get(str(named.value)) if named else None
    if convention is None and len(conventions) == 1:
        convention = next(iter(conventions.values()))
    if fact is None or convention is None:
        why = "the layers it was trained on, and their convention, are not declared"
        yield Effect("unknown", "run", "layers", "aux layers", f"it reads the inputs of layers {captured}: {why}",
                     **parts)  # fmt: skip
        return
    trained = sorted(i + convention.offset for i in fact.value)
    if trained != captured:
        see = f"it reads the inputs of layers {captured} without a word; trained on those of {trained}"
        yield Effect("degrades", "run", "layers", "aux layers", see, note=fact.source, **parts)
