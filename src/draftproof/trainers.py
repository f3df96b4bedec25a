"""What a trainer will do with a drafter that it is to start from. Pure functions from contracts to values and findings.

In this order: the format it reads, the layers of the target that it captures from a list of ids, and what it says of a
drafter: start, tensors, vocabulary, layers, flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from draftproof.contracts import Contract
from draftproof.courses import Capture, CaptureRule, Conversion, Start, Trainer, TrainerLayout
from draftproof.dims import Known, Lookup, Seen, is_true, value_of
from draftproof.findings import Finding, finding, holds, unknown, visible
from draftproof.pair import Couple

# --- the format ---------------------------------------------------------------------------------------------------


def at(config: Mapping[str, Any], key: str) -> Any:
    """Return the value at a dotted key; None where there is none."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def put(config: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, or remove it for None; what is no table gives way to one."""
    part, _, rest = key.partition(".")
    if not rest and value is not None:
        config[part] = deepcopy(value)
    elif not rest:
        config.pop(part, None)
    elif isinstance(config.get(part), dict) or value is not None:
        table = config[part] if isinstance(config.get(part), dict) else {}
        put(table, rest, value)
        config[part] = table
        if not table:
            del config[part]


def converted(config: Mapping[str, Any], conversion: Conversion | None, *, fill: bool = True) -> dict[str, Any]:
    """Return a config in the format of another family; with fill, what that asks for and is not stated is added."""
    new = deepcopy(dict(config))
    if conversion is None:
        return new
    if conversion.lift and isinstance(inner := new.pop(conversion.lift, None), dict):
        outer = {k: v for k, v in new.items() if k in ("architectures", "model_type") or k not in inner}
        new = {**inner, **outer}
    for old, key in conversion.copy.items() if fill else ():
        if at(new, key) is None and (value := at(new, old)) is not None:
            put(new, key, value)
    for old, key in conversion.move.items():
        if (value := at(new, old)) is not None:
            put(new, old, None)
            if at(new, key) is None:
                put(new, key, value)
    for key in conversion.remove:
        put(new, key, None)
    if conversion.nest:
        inner = {k: v for k, v in new.items() if k not in conversion.top}
        new = {k: v for k, v in new.items() if k in conversion.top} | {conversion.nest: inner}
    for key, value in conversion.lacking.items() if fill else ():
        if at(new, key) is None:
            put(new, key, value)
    return new


def moved(key: str, conversion: Conversion | None) -> str:
    """Return where a config key stands after a conversion."""
    if conversion is None:
        return key
    key = key.removeprefix(f"{conversion.lift}.") if conversion.lift else key
    key = conversion.move.get(key, key)
    return f"{conversion.nest}.{key}" if conversion.nest and key.partition(".")[0] not in conversion.top else key


def applies(conditions: Mapping[str, Any], dims: Lookup) -> set[str]:
    """Return the keys whose condition holds over some dims."""
    return {key for key, expr in conditions.items() if is_true(expr, dims)}


# --- the layers of the target -------------------------------------------------------------------------------------


class Layers(NamedTuple):
    """Hold which layers of the target a trainer will capture, as boundaries: b is the input of layer b."""

    ids: list[int] | None  # those that it reads, or its default
    stated: bool  # whether the drafter's config gives them to it
    captured: list[int] | None  # None: not known
    rule: CaptureRule | None
    trained: list[int] | None  # the boundaries that the drafter was trained on; None: not known
    how: str  # whence that is known, or why not
    wanted: list[int] | None  # the ids that make it capture those
    options: tuple[tuple[str, list[int]], ...] = ()  # by convention, the ids to write, where it is not declared
    taken: str = ""  # the only convention of the new family, where the old one has several


def capture_of(trainer: Trainer, family: str) -> Capture | None:
    """Return the rules by which a trainer captures layers for a family."""
    return next((c for c in trainer.captures if not c.families or family in c.families), None)


def rule_for(capture: Capture, couple: Couple, ids: Sequence[int]) -> CaptureRule | None:
    """Return the rule by which a trainer reads a list of ids with this target; None where that is not known."""
    stated = couple.target.checkpoint.config.at("architectures")
    architectures = [a for a in stated if isinstance(a, str)] if isinstance(stated, list) else []

    def dims(name: str) -> Seen:
        if name in ("first", "last"):
            return Known(ids[0 if name == "first" else -1], "the ids")
        return couple.dims(name)

    for rule in capture.rules:
        if rule.architectures and not architectures:
            return None
        if rule.architectures and not set(rule.architectures) & set(architectures):
            continue
        if rule.when is None or (ids and is_true(rule.when, dims)):
            return rule
    return None


def captured_by(capture: Capture, couple: Couple, ids: Sequence[int]) -> list[int] | None:
    """Return the boundaries that a trainer captures from a list of ids, ascending; None where that is not known."""
    rule = rule_for(capture, couple, ids)
    return None if rule is None else sorted(i + rule.offset for i in ids)


def ids_for(capture: Capture, couple: Couple, boundaries: Sequence[int], first: Sequence[int] = ()) -> list[int] | None:
    """Return the ids from which a trainer captures these boundaries, first if they do; None where no list does."""
    if first and captured_by(capture, couple, first) == list(boundaries):
        return list(first)
    for offset in dict.fromkeys(rule.offset for rule in capture.rules):
        ids = [b - offset for b in boundaries]
        if all(i >= 0 for i in ids) and captured_by(capture, couple, ids) == list(boundaries):
            return ids
    return None


def trained_layers(couple: Couple, contract: Contract, ids: Sequence[int] | None) -> tuple[list[int] | None, str]:
    """Return the boundaries that a drafter was trained on, and whence that is known, or why it is not.

    Ids mean boundaries by a declared convention, or where the family has but one. Without ids the drafter was trained
    on its family's default, if that is the same layers in every convention.
    """
    conventions = contract.conventions
    if not conventions:
        return None, "the family captures no layers"
    if ids is None:
        defaults = []
        for c in conventions.values():
            row = [value_of(e, couple.dims) for e in c.default]
            if not row or any(type(i) is not int for i in row):
                return None, "the config names no layers, and the family's default is not known"
            defaults.append([i + c.offset for i in row])
        same = all(row == defaults[0] for row in defaults)
        return (defaults[0], "the family's default") if same else (None, "the family's defaults differ")
    fact, trained = couple.facts.get("aux_convention"), couple.facts.get("aux_layers")
    declared = conventions.get(str(fact.value)) if fact else None
    source = fact.source if fact else ""
    if fact is None and len(conventions) == 1:
        (declared,) = conventions.values()
        source = "the family has no other"
    if declared is None:
        return None, "the convention of the ids is not declared"
    layers = list(trained.value) if trained else list(ids)
    return [i + declared.offset for i in layers], f"{declared.name} ids ({source})"


# --- what it says of a drafter ------------------------------------------------------------------------------------


def first_ids(config: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, list[int] | None]:
    """Return the first of some keys that holds a list of integers, and the list."""
    for key in keys:
        value = at(config, key)
        if isinstance(value, list) and value and all(type(i) is int for i in value):
            return key, list(value)
    return "", None


def said(
    trainer: Trainer, layout: TrainerLayout, couple: Couple, before: Couple, layers: Layers, kept: bool, mapped: bool
) -> Iterator[Finding]:
    """Yield what a trainer will do with a drafter; kept: rows of the head are taken; mapped: its d2t is at hand.

    Of the two couples one holds the config in the trainer's form, and before as it was.
    """
    yield from _start(trainer, layout, couple)
    yield from _map(trainer, couple, kept, mapped)
    yield from _layers(trainer, couple, layers)
    yield from _names(trainer, couple)
    yield from _rows(trainer, couple.family.id, before)


def not_trained(trainer: Trainer, family: str) -> Finding:
    """Return the finding of a family that a trainer does not train."""
    takes = dict.fromkeys(f for row in trainer.layouts for f in (row.family, *(c.family for c in row.converts)))
    return finding("PAIR450", trainer.title, expected=f"one of {', '.join(takes)}", observed=family)


def _where(row: Any) -> str:
    return f"{row.basis}: {row.source}"


def _start(trainer: Trainer, layout: TrainerLayout, couple: Couple) -> Iterator[Finding]:
    title, start = trainer.title, trainer.start
    told: Start | TrainerLayout = layout if layout.takes else start
    if told.takes != "folder":
        yield finding("PAIR451", title, expected="a start from the folder of a drafter", observed=told.see,
                      note=_where(told))  # fmt: skip
    else:
        yield holds("PAIR451", title, f"{start.setting} = DIR; {start.see}", note=_where(start))
    stated = couple.target.checkpoint.config.at("architectures")
    theirs = [a for a in stated if isinstance(a, str)] if isinstance(stated, list) else []
    if layout.targets and not theirs:
        yield unknown("PAIR451", title, "whether it takes this target is not known",
                      expected=", ".join(layout.targets), observed="no architecture is stated")  # fmt: skip
    elif layout.targets and not set(theirs) & set(layout.targets):
        yield finding("PAIR451", title, "this trainer does not take this target", expected=", ".join(layout.targets),
                      observed=", ".join(map(visible, theirs)), note=_where(layout))  # fmt: skip
    for key in layout.same:
        own, other = couple.drafter.config.at(key), couple.target.config.at(key)
        if own is not None and other is not None and own != other:
            yield finding("CFG337", f"config.json: {key}", expected=f"{visible(other)} (the target's)",
                          observed=visible(own), note=_where(layout))  # fmt: skip
    for key in layout.over:
        own, other = couple.drafter.config.at(key), couple.target.config.at(key)
        if own is not None and own != other:
            theirs_ = "nothing" if other is None else visible(other, 60)
            yield finding("PAIR454", f"config.json: {key}", f"it takes {key} from the target: {theirs_}, where the "
                          f"drafter was trained with {visible(own, 60)}", expected=visible(own), observed=theirs_,
                          note=_where(layout))  # fmt: skip


def _map(trainer: Trainer, couple: Couple, kept: bool, mapped: bool) -> Iterator[Finding]:
    draft, full = couple.drafter.size("draft_vocab"), couple.size("target_vocab")
    name, rule = couple.family.roles.get("map", ""), trainer.map
    if not (name and isinstance(draft, Known) and isinstance(full, Known) and draft.value < full.value):
        return
    setting = rule.setting.replace("{", "DIR/").replace("}", "")
    fate = {"kept": "the drafter's own is kept", "rebuilt": "it is made anew from the data", "refused": "it is needed"}
    message = rule.see
    if mapped:
        message += f": give {setting}" if rule.files else ": there is no way to keep the old one"
    if kept and mapped and rule.otherwise == "rebuilt":
        lead = ", else the copied head rows" if rule.files else ": the copied head rows then"
        message += f"{lead} mean other tokens"
    level: Any = "warning" if not rule.files and rule.otherwise != "kept" else "info"
    yield finding("PAIR453", name, message, level=level, expected="the drafter's own d2t",
                  observed=f"without a file, {fate[rule.otherwise]}", note=_where(rule))  # fmt: skip


def _layers(trainer: Trainer, couple: Couple, layers: Layers) -> Iterator[Finding]:
    capture = capture_of(trainer, couple.family.id)
    if capture is None or not couple.family.conventions:
        return
    whence = "as written" if layers.stated else "by default"
    if layers.captured is None:
        yield unknown("PAIR452", "layers", expected="the layers that it captures", observed=f"not known: {layers.ids}")
        return
    assert layers.rule is not None
    seen = f"from {layers.ids} {whence} it captures the inputs of layers {layers.captured}: {layers.rule.see}"
    note, setting = _where(layers.rule), capture.setting if capture.also or not capture.keys else ""
    fix = f"; run with {setting} = {layers.wanted}" if setting and layers.wanted else ""
    if layers.trained is None:
        names = [k for k in capture.keys if k in couple.family.aux_keys][:1] + ([setting] if setting else [])
        name = " and ".join(names)
        parts = [seen, f"which it was trained on is not known: {layers.how}"]
        parts += [f"if they are {n} ids, write {name} = {ids}" for n, ids in layers.options]
        parts += [f"the new format takes those in the config for {layers.taken} ids"] if layers.taken else []
        yield unknown("PAIR452", "layers", "; ".join(parts), expected="the layers it was trained on", observed=seen,
                      note=note)  # fmt: skip
    elif layers.captured == layers.trained:
        fix = fix if capture.also else ""
        yield holds("PAIR452", "layers", f"{seen}, as the drafter was trained ({layers.how}){fix}", note=note)
    elif layers.wanted is None:
        yield finding("PAIR452", "layers", f"{seen}; no ids give the layers it was trained on",
                      expected=f"{layers.trained} ({layers.how})", observed=seen, note=note)  # fmt: skip
    else:  # the plan writes the ids where the trainer reads them from the config
        fix = (f"; the config gets {layers.wanted}" if capture.keys else "") + fix
        yield finding("PAIR452", "layers", f"{seen}; it was trained on those of {layers.trained} ({layers.how}){fix}",
                      level="info" if capture.keys else "warning", expected=f"{layers.trained} ({layers.how})",
                      observed=seen, note=note)  # fmt: skip


def _names(trainer: Trainer, couple: Couple) -> Iterator[Finding]:
    """Say which names of the target's tensors a run must be given."""
    target = couple.target
    for row in trainer.names:
        canonical = target.contract.roles.get(row.part, "") if target.contract else ""
        disk = target.names.get(canonical, "")
        if not canonical or not target.names or disk == row.default:
            continue
        if not disk:
            continue  # the table, or this tensor of it, is not at hand
        yield finding("PAIR454", row.setting, f"run with {row.setting}={visible(disk)}: its default names no tensor of "
                      "this target", level="info", expected=visible(disk), observed=row.default,
                      note=_where(row))  # fmt: skip


def _rows(trainer: Trainer, family: str, couple: Couple) -> Iterator[Finding]:
    """Say which of the drafter's config keys mean another thing to the trainer, or nothing."""
    for row in trainer.rows:
        if row.families and family not in row.families:
            continue
        meant = couple.facts.get(f"meanings.{row.key}")
        if row.unless and meant is not None and meant.value == row.unless:
            continue
        seen = couple.drafter.config.at(row.key)
        if row.value is not None and (seen != row.value or type(seen) is not type(row.value)):
            continue
        if row.when is not None and not is_true(row.when, couple.dims):
            continue
        stated = "" if seen is None else f" {visible(seen, 60)}"
        yield finding(
            "PAIR451" if row.outcome == "refuses" else "PAIR454", f"config.json: {row.key}",
            f"because of {row.key}{stated}, it {row.outcome if row.outcome == 'refuses' else 'trains otherwise'}: "
            f"{row.see}", expected="the drafter trained as it was", observed=row.see, note=_where(row),
            contract=row.line,
        )  # fmt: skip


def layers_of(
    trainer: Trainer,
    couple: Couple,
    config: Mapping[str, Any],
    trained: tuple[list[int] | None, str],
    meant: Mapping[str, list[int]],
) -> Layers:
    """Return which layers a trainer captures, given a config, and which ids make it capture those trained on.

    Where the drafter's convention is not declared, meant says by convention which boundaries its own ids mean.
    """
    capture = capture_of(trainer, couple.family.id)
    if capture is None:
        return Layers(None, False, None, None, trained[0], trained[1], None)
    nested = couple.drafter.config.place
    _, ids = first_ids(config, map(nested, capture.keys))
    stated = ids is not None
    if ids is None:
        default = [value_of(e, couple.dims) for e in capture.default]
        ids = default if default and all(type(i) is int for i in default) else None
    rule = None if ids is None else rule_for(capture, couple, ids)
    captured = None if ids is None or rule is None else captured_by(capture, couple, ids)
    wanted = None if trained[0] is None else ids_for(capture, couple, trained[0], ids or ())
    every = {name: ids_for(capture, couple, row, ids or ()) for name, row in meant.items()}
    options = tuple((name, ids) for name, ids in every.items() if ids is not None)
    return Layers(ids, stated, captured, rule, trained[0], trained[1], wanted, options)
