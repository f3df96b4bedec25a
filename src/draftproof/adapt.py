"""Can a drafter initialise one for another target? The changes, a plan per tensor, and the rewritten checkpoint.

``adapt`` decides from metadata alone. ``write`` makes the new checkpoint from a local one, tensor by tensor.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from draftproof.api import Case, examine, open_side, recordings, report
from draftproof.checkpoint import Checkpoint, listed
from draftproof.conform import View, conform, layout, recognise
from draftproof.contracts import Contract, Library
from draftproof.dims import Expr, ExprError, Known, Lookup, Unknown, evaluate, parse
from draftproof.findings import Change, Finding, Plan, Report, Step, finding, visible
from draftproof.hub import Source, open_model, recorded_repos, unreadable
from draftproof.pair import aux_usable, declared_facts, engine_rows, rope_of, rope_text, same_repo

CHUNK = 16 << 20  # bytes moved at a time
NEAR = 5  # config keys by which a drafter may differ and still be called near
_NOT_MEANT = ("transformers_version", "_name_or_path")  # keys that change nothing


@dataclass(frozen=True)
class Goal:
    """Hold what the new drafter is to be: its contract, its config, and the layout they ask for."""

    contract: Contract
    config: dict[str, Any]
    view: View


# --- the answer ---------------------------------------------------------------------------------------------------


def adapt(drafter: Any, to: Any, library: Library, *, like: Any = None, family: str = "", rerun: str = "") -> Report:
    """Return whether and how a drafter can initialise one for another target; with like, in its geometry."""
    case, plan, _ = plan_for(drafter, to, library, like=like, family=family)
    subject = f"{visible(drafter)} for {visible(to)}" + (f", like {visible(like)}" if like else "")
    return replace(report(case, subject, rerun), plan=plan)


def plan_for(
    drafter: Any, to: Any, library: Library, *, like: Any = None, family: str = ""
) -> tuple[Case, Plan, Goal | None]:
    """Return the case, the plan, and what the new checkpoint is to be, if that is known."""
    case = examine(drafter, to, library, family=family)
    couple = case.couple
    if couple is None:
        return case, Plan("unknown", "unknown: drafter and target could not both be read"), None
    changes = list(_changes(case))
    goal: Goal | None
    if like is None:
        config = _edited(couple.drafter.checkpoint.config.data, changes)
        goal = _goal(_contract(couple.drafter), config, case)
    else:
        goal = _goal_like(like, case)
        if goal is None:
            return case, Plan("unknown", f"unknown: {visible(like)} could not be read"), None
        changes = list(_config_diff(couple.drafter.checkpoint.config.data, goal.config))
    steps = tuple(_steps(couple.drafter, goal))
    verdict = _verdict(case, goal, steps, changes)
    says = tuple(_says(case, goal, steps, like))
    return case, Plan(verdict, _headline(verdict, case, goal, steps, changes), tuple(changes), steps, says), goal


def _contract(view: View) -> Contract:
    assert view.contract is not None
    return view.contract


def _goal(contract: Contract, config: dict[str, Any], case: Case) -> Goal:
    assert case.couple is not None
    source = case.couple.drafter.checkpoint.source
    made = Source("new drafter", config=config, provenance=source.provenance, unknown=source.unknown)
    return Goal(contract, config, conform(contract, Checkpoint(made, "drafter"), tensors=False))


def _goal_like(like: Any, case: Case) -> Goal | None:
    opened = open_side(like, "drafter", case.library)
    if isinstance(opened, Finding):
        case.source = [*(case.source or []), replace(opened, subject=f"like {opened.subject}")]
        return None
    contract, found = recognise(case.library, opened, "family")
    if contract is None:
        case.source = [*(case.source or []), *found]
        return None
    config = deepcopy(dict(opened.config.data))
    return Goal(contract, config, conform(contract, opened, tensors=opened.source.provenance == "read"))


# --- what must change in the config -------------------------------------------------------------------------------


def _changes(case: Case) -> Iterator[Change]:
    """Yield the config changes that the target asks for, each with its reason."""
    couple = case.couple
    assert couple is not None
    contract = _contract(couple.drafter)
    own = couple.drafter
    for name, dim in couple.dims.dims.items():
        if "drafter" not in dim.sources or "target" not in dim.sources:
            continue
        said, is_ = couple.drafter.dims(name), couple.dims.stated(name, "target")
        key = next((str(s) for s in dim.sources["drafter"] if s.name), "")
        if key and isinstance(said, Known) and isinstance(is_, Known) and said.value != is_.value:
            yield Change(key, _old(own, key), is_.value, f"the target's {is_.witness.rpartition(': ')[2]}")
    context, theirs = couple.size("context"), couple.size("target_context")
    if isinstance(context, Known) and isinstance(theirs, Known) and context.value < theirs.value:
        key = context.witness.rpartition(": ")[2]
        rows = engine_rows(couple, key)
        refuses = [f"{r.engine} {r.version} refuses it otherwise ({r.source})" for r in rows if r.outcome == "refuses"]
        yield Change(key, context.value, theirs.value, "; ".join(["the target's context", *refuses]))
    layers = next((f for f in own.findings if f.code == "CFG308"), None)
    present = own.layers_present
    if layers is not None and present and present == set(range(len(present))):
        key = str(contract.dims[contract.sizes["layers"]].sources["drafter"][0])
        yield Change(key, _old(own, key), len(present), "the layers in the file")
    yield from _aux_changes(case)
    for key in ("bos_token_id", "eos_token_id"):
        mine, other = own.lookup(key), couple.target.lookup(key)
        if isinstance(mine, Known) and isinstance(other, Known) and mine.value != other.value:
            both = [set(v) if isinstance(v, list) else {v} for v in (mine.value, other.value)]
            if not both[0] <= both[1]:
                yield Change(key, mine.value, other.value, "the target's")
    if any(f.code == "CFG310" and f.level == "error" for f in own.findings):
        yield Change("tie_word_embeddings", True, False, "a reduced head has other rows than the embedding")


def _aux_changes(case: Case) -> Iterator[Change]:
    """Yield new aux layer ids where the old ones are no layers of the target, in the convention they were written in."""
    couple = case.couple
    assert couple is not None
    contract = _contract(couple.drafter)
    for key in contract.aux_keys:
        seen = couple.drafter.lookup(key)
        if not isinstance(seen, Known) or not isinstance(seen.value, list):
            continue
        usable = aux_usable(couple, seen.value)
        if not usable:
            convention = next(iter(contract.conventions.values()))
            ids = [evaluate(e, couple.dims) for e in convention.default]
            if not any(isinstance(i, Unknown) for i in ids) and len(ids) == len(seen.value):
                yield Change(key, seen.value, ids, f"layers of this target, the {convention.name}-style default")


def _old(view: View, key: str) -> Any:
    seen = view.lookup(key)
    return seen.value if isinstance(seen, Known) else None


def _edited(config: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """Return a config with the changes made, keys in their old order."""
    new: dict[str, Any] = deepcopy(dict(config))
    for change in changes:
        table = new
        *path, last = change.key.split(".")
        for part in path:
            table = table.setdefault(part, {})
        table[last] = change.new
    return new


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            out |= _flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def _config_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the keys in which two configs differ, in the order of the new one; null and absent are the same."""
    before, after = _flat(old), _flat(new)
    for key in dict.fromkeys((*after, *before)):
        a, b = before.get(key), after.get(key)
        if a != b and key not in _NOT_MEANT:
            yield Change(key, a, b, "as in the geometry asked for")


# --- the plan per tensor ------------------------------------------------------------------------------------------


def _old_shapes(view: View) -> dict[str, tuple[int, ...]]:
    """Return canonical name -> shape: of the file, else of the recording, else what the config asks for."""
    if view.table.tensors:
        return {n: view.table.tensors[d].shape for n, d in view.names.items() if not n.startswith("\0")}
    return {n: shape for n, (_, shape) in layout(_contract(view), view.dims).items()}


_WHOLE = ("attention", "mlp")  # groups that compute one function: taken whole in a layer, or not at all


def _steps(drafter: View, goal: Goal) -> list[Step]:
    """Return what becomes of each tensor: new ones in the contract's order, then those that are dropped."""
    old = _old_shapes(drafter)
    wanted = layout(goal.contract, goal.view.dims, optional=True)
    own = _contract(drafter)
    groups = {n: w.rule.group for n, (w, _) in layout(own, drafter.dims, optional=True).items()}
    rows = _row_map(drafter, goal)
    steps = []
    for name, (want, shape) in wanted.items():
        was, group, optional = old.get(name), want.rule.group, want.presence == "optional"
        differs = f"{list(was or ())} does not fit {list(shape)}"
        if was is None:
            if not optional:
                steps.append(Step(name, "init", None, shape, f"the drafter has none; {want.rule.init}", group))
        elif rows and name == own.roles.get("mask"):
            steps.append(Step(name, "drop", was, None, "the draft vocabulary changes", group))
        elif was == shape:
            steps.append(Step(name, "copy", was, shape, "same shape", group))
        elif rows and name == goal.contract.roles.get("head") and was[1:] == shape[1:]:
            steps.append(Step(name, "rows", was, shape, rows, group))
        elif optional:
            steps.append(Step(name, "drop", was, None, f"{differs}, and it is optional", group))
        else:
            steps.append(Step(name, "init", was, shape, f"{differs}; {want.rule.init}", group))
    lost = {
        _block(s): s.tensor for s in steps if s.group in _WHOLE and s.action == "init" and len(s.new_shape or ()) > 1
    }
    for n, step in enumerate(steps):
        if step.action == "copy" and step.group in _WHOLE and _block(step) in lost:
            why = f"it fits, but {lost[_block(step)]} beside it is new"
            steps[n] = replace(step, action="init", why=why)
    steps += [
        Step(n, "drop", was, None, "not part of the new drafter", groups.get(n, ""))
        for n, was in old.items()
        if n not in wanted
    ]
    return steps


def _block(step: Step) -> tuple[str, str]:
    """Return the group and the layer of a tensor."""
    return step.group, re.sub(r"\D+", ".", step.tensor)


def _row_map(drafter: View, goal: Goal) -> str:
    """Return how head rows pass between two draft vocabularies of one target vocabulary, or ""."""
    sizes = [v.size(part) for v in (drafter, goal.view) for part in ("draft_vocab", "target_vocab")]
    if not all(isinstance(s, Known) for s in sizes):
        return ""
    have, full, want, full_too = (s.value for s in sizes if isinstance(s, Known))
    if full != full_too or have == want:
        return ""
    if want == full:
        return f"{have} of {want} rows: row i of the old head becomes row i + d2t[i]; the other {want - have} are initialised"
    whose = "the first" if have == full else "those of the first"
    return f"{whose} {want} target ids, with d2t zero: put the trainer's d2t, and the rows it names, in their place"


# --- verdict and words --------------------------------------------------------------------------------------------


def _verdict(case: Case, goal: Goal, steps: Sequence[Step], changes: Sequence[Change]) -> str:
    """Judge the plan: no where no attention tensor can be taken, in part where a required one cannot."""
    assert case.couple is not None
    broken = ("SRC", "STF", "IDX")
    if any(f.level == "error" and f.code.startswith(broken) for f in case.couple.drafter.findings) or not steps:
        return "unknown"
    if case.couple.drafter.checkpoint.source.provenance == "partial" or _unsized(goal):
        return "unknown"
    if not any(s.action == "copy" and s.group == "attention" and len(s.new_shape or ()) > 1 for s in steps):
        return "no"
    if any(s.action in ("init", "rows") for s in steps) or any(s.action == "drop" and s.group != "map" for s in steps):
        return "only in part"
    return "after these changes" if changes else "as is"


def _unsized(goal: Goal) -> list[str]:
    """Return the dims of the new layout that are not known."""
    exprs: list[Expr] = [
        axis for rule in goal.contract.tensors.values() if rule.presence == "required" for axis in rule.shape
    ]
    return [
        n
        for n in goal.view.dims.needed(exprs)
        if n not in goal.contract.sizes.values() and not isinstance(goal.view.dims(n), Known)
    ]


def _headline(verdict: str, case: Case, goal: Goal, steps: Sequence[Step], changes: Sequence[Change]) -> str:
    couple = case.couple
    assert couple is not None
    parts = [verdict]
    if verdict == "after these changes":
        parts[0] += f" ({', '.join(c.key for c in changes)})"
    elif verdict == "only in part":
        differ = _resized(couple.drafter, goal)
        parts[0] += f" ({', '.join(differ)})" if differ else ""
        parts.append(f"taken: {_group_line(steps)}")
    elif verdict == "no":
        parts[0] += f" for attention: {_group_line(steps, only='attention')} can be taken"
        parts.append(f"what remains: {_group_line(steps, but='attention')}")
    elif verdict == "unknown":
        parts[0] += ": not enough of the drafter is known"
    if not couple.drafter.table.read:
        parts.append("on published configs, tensor table unverified")
    return ", ".join(parts)


def _resized(drafter: View, goal: Goal) -> list[str]:
    """Return the sizes in which the new geometry differs: "inter 18432 -> 12288"."""
    out = []
    full = goal.view.size("target_vocab")
    for name in _contract(drafter).dims:
        own, new = drafter.dims(name), goal.view.dims(name)
        if isinstance(own, Known) and isinstance(new, Known) and own.value != new.value and type(own.value) is int:
            if not any(name in axis.names for rule in goal.contract.tensors.values() for axis in rule.shape):
                continue
            whole = (
                name == goal.contract.sizes.get("draft_vocab") and isinstance(full, Known) and full.value == new.value
            )
            out.append(f"{name} {own.value} -> {new.value}{' full vocabulary' if whole else ''}")
    return out


_GROUPS = ("fusion", "attention", "mlp", "norm", "head", "embedding", "map", "")


def _group_line(steps: Sequence[Step], *, only: str = "", but: str = "") -> str:
    """Say by group how much can be taken: "attention 0 of 7, mlp 3 of 3"."""
    out = []
    for group in _GROUPS:
        if group == but or (only and group != only):
            continue
        new = [s for s in steps if s.group == group and s.new_shape is not None]
        if new:
            taken = sum(s.action == "copy" for s in new)
            rows = " in part" if any(s.action == "rows" for s in new) else ""
            out.append(f"{group or 'other'}{rows or f' {taken} of {len(new)}'}")
    return ", ".join(out)


def _says(case: Case, goal: Goal, steps: Sequence[Step], like: Any) -> Iterator[str]:
    """Yield what a person must know beside the verdict, most important first."""
    couple = case.couple
    assert couple is not None
    drafter, target = couple.drafter, couple.target
    contract = _contract(drafter)
    bad_fit = [f for f in case.fits or () if f.code in ("PAIR401", "PAIR402", "PAIR404") and f.level == "error"]
    line = _summary(contract, couple.dims)
    if line:
        yield f"geometry {'does not fit' if bad_fit else 'fits'}: {line}"
    rows = engine_rows(couple)
    for row in rows:
        yield f"without the change of {row.key}, {row.engine} {row.version} {row.outcome} ({row.basis}, {row.source}): {row.see}"
    if rows:
        trained = couple.facts.get("trained_context")
        known = f"is {trained.value} tokens ({trained.source})" if trained else "is not declared"
        yield f"raising the context satisfies the engine, not the drafter: the length it was trained at {known}"
    for code in ("PAIR407", "PAIR409", "PAIR408"):
        for f in case.fits or ():
            if f.code == code and (f.level != "pass" or code == "PAIR409"):
                yield f"aux layers: {f.message if f.level == 'pass' else f'{f.message} ({f.observed})'}" + (
                    f"; {f.note}" if f.note and f.level != "pass" else ""
                )
    for f in case.fits or ():
        if f.code == "PAIR417" and f.level != "pass":
            yield f"lineage: trained on {f.expected}; {f.observed}: measure the accept length before relying on it"
    if like is not None:
        yield from _rope_words(drafter, goal, steps)
        yield from _head_words(steps)
    yield from _near(case, like)
    unread = [v for v in (drafter, target) if not v.table.read]
    if unread:
        names = " and ".join(f"{v.checkpoint.role} ({v.table.basis})" for v in unread)
        yield f"tensor tables not read: {names}; TEN rules are unknown until draftproof record PATH --as ORG/NAME@COMMIT"


def _summary(contract: Contract, dims: Lookup) -> str:
    """Fill the contract's summary line; a part of which something is not known is left out."""
    out = []
    for part in contract.summary:
        known = True

        def put(found: re.Match[str]) -> str:
            nonlocal known
            try:
                value = evaluate(parse(found[1]), dims)
            except ExprError as error:
                value = Unknown(str(error))
            known = known and not isinstance(value, Unknown)
            return str(value)

        text = re.sub(r"\{([^{}]+)\}", put, part)
        if known:
            out.append(text)
    return ", ".join(out)


def _rope_words(drafter: View, goal: Goal, steps: Sequence[Step]) -> Iterator[str]:
    """Warn where rows that are copied would be rotated otherwise than they were trained."""
    own, new = rope_of(drafter)[0], rope_of(goal.view)[0]
    taken = [s.tensor for s in steps if s.action == "copy" and s.group == "attention"]
    if taken and {k: v.value for k, v in own.items()} != {k: v.value for k, v in new.items()}:
        yield (
            f"rope differs: trained with {rope_text(own)}; the new geometry has {rope_text(new)}: copied q and k rows "
            f"mean other positions ({listed(taken, 3)})"
        )


def _head_words(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        if step.action == "rows":
            yield f"{step.tensor}: {step.why}"
    taken = [s.tensor for s in steps if s.action == "copy"]
    if taken:
        yield f"can be taken: {listed(taken, 20)}"


def _near(case: Case, like: Any) -> Iterator[str]:
    """Name the known drafters of the target whose config is nearly this one."""
    couple = case.couple
    assert couple is not None
    me, target = couple.drafter.checkpoint, couple.target.checkpoint.source.name
    roots = recordings(case.library)
    for repo in recorded_repos(roots):
        fact = declared_facts(case.library, repo).get("trained_on")
        if repo == me.source.name or fact is None or not same_repo(str(fact.value), target):
            continue
        other = open_model(repo, roots)
        if isinstance(other, Finding) or other.provenance == "partial" or other.config is None:
            continue
        a, b = _flat(me.config.data), _flat(other.config)
        differ = [k for k in dict.fromkeys((*a, *b)) if a.get(k) != b.get(k)]
        if len(differ) <= NEAR:
            yield f"identical to {other.label}, which was trained on this target, but for {' and '.join(differ) or 'nothing'}"


# --- the rewritten checkpoint -------------------------------------------------------------------------------------


def write(
    drafter: Any, to: Any, library: Library, out: Path, *, like: Any = None, family: str = "", force: bool = False
) -> Report:
    """Write the adapted checkpoint to a new folder, whole or not at all; the source is only read."""
    case, plan, goal = plan_for(drafter, to, library, like=like, family=family)
    subject = f"{visible(drafter)} for {visible(to)}"
    problem = _cannot_write(case, plan, goal, out, force)
    if problem is None:
        assert goal is not None
        assert case.couple is not None
        try:
            _write(case.couple.drafter, goal, plan, out, force)
            plan = replace(plan, written=str(out))
        except OSError as error:
            problem = unreadable(str(error.filename or out), error, str(out))
    if problem is not None:
        case.source = [*(case.source or []), problem]
        plan = replace(plan, verdict="unknown", headline=f"nothing was written; the plan is: {plan.headline}")
    return replace(report(case, subject), plan=plan)


def _cannot_write(case: Case, plan: Plan, goal: Goal | None, out: Path, force: bool) -> Finding | None:
    if case.couple is None or goal is None or plan.verdict == "unknown":
        return finding("SRC117", str(out), "nothing can be written", expected="a plan", observed=plan.headline)
    source = case.couple.drafter.checkpoint.source
    files = set(case.couple.drafter.table.files.values())
    if (
        source.folder is None
        or not case.couple.drafter.table.read
        or not all(f.endswith(".safetensors") for f in files)
    ):
        help = "give the folder of a safetensors checkpoint in place of its name"
        return finding(
            "SRC117",
            source.name,
            "nothing can be written",
            expected="a local safetensors checkpoint",
            observed=source.label if source.folder is None else listed(files),
            help=help,
        )
    if any(s.action == "rows" for s in plan.steps) and (bad := _bad_map(case.couple.drafter)):
        return bad
    if out.resolve() == source.folder.resolve() or source.folder.resolve() in out.resolve().parents:
        return finding("SRC117", str(out), expected="a folder outside the source", observed=str(source.folder))
    if out.exists() and not (force and out.is_dir()):
        return finding("SRC117", str(out), expected="a folder that does not exist, or --force", observed="it exists")
    return None


def _bad_map(drafter: View) -> Finding | None:
    """Return a finding if d2t does not send each draft id to a target id of its own."""
    head, full = drafter.role("head"), drafter.size("target_vocab")
    if head is None or not isinstance(full, Known):
        return None
    ids = _target_ids(drafter, head.shape[0])
    inside = len(ids) == head.shape[0] and bool(((ids >= 0) & (ids < full.value)).all())
    if inside and len(set(ids.tolist())) == len(ids):
        return None
    seen = (
        f"{len(ids)} ids, {len(set(ids.tolist()))} distinct, from {ids.min()} to {ids.max()}" if len(ids) else "no ids"
    )
    expected = f"{head.shape[0]} distinct target ids below {full.value}, as i + d2t[i]"
    subject = _contract(drafter).roles.get("map", "d2t")
    return finding("PAIR405", subject, "d2t does not map the draft vocabulary", expected=expected, observed=seen)


def _write(drafter: View, goal: Goal, plan: Plan, out: Path, force: bool) -> None:
    """Build the folder beside its place and move it there in one step."""
    source = drafter.checkpoint.source
    assert source.folder is not None
    out.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        weights = set(drafter.table.files.values())
        for name, size in source.files.items():
            if 0 <= size <= CHUNK and name != "config.json" and name not in weights and not _is_weight(name):
                shutil.copyfile(source.folder / name, made / name)
        (made / "config.json").write_text(
            json.dumps(goal.config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        with open(made / "model.safetensors", "xb") as stream:
            _write_tensors(drafter, goal, plan.steps, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(made, 0o777 & ~_umask())
        if force and out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
            os.replace(out, old / out.name)
            os.replace(made, out)
            shutil.rmtree(old)
        else:
            os.rename(made, out)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _is_weight(name: str) -> bool:
    return name.endswith((".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_ITEM = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "BOOL": 1, "U8": 1}


def _write_tensors(drafter: View, goal: Goal, steps: Sequence[Step], stream: IO[bytes]) -> None:
    """Write header and data of every tensor that the plan keeps or makes, one at a time."""
    floats = [t.dtype for t in drafter.table.tensors.values() if t.dtype in ("BF16", "F16", "F32")]
    default = max(set(floats), key=floats.count) if floats else "BF16"
    encode = drafter.dialect.encode if drafter.dialect else str
    rows: list[tuple[Step, str, str]] = []
    for step in steps:
        if step.new_shape is not None:
            old = drafter.tensor(step.tensor)
            rule = next(rule for rule, _ in goal.contract.rules_for(step.tensor))
            dtype = old.dtype if old is not None else default if default in rule.dtype else rule.dtype[0]
            rows.append((step, encode(step.tensor), dtype))
    rows.sort(key=lambda r: (-_ITEM[r[2]], r[1]))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for step, name, dtype in rows:
        size = _ITEM[dtype] * _count(step.new_shape or ())
        header[name] = {"dtype": dtype, "shape": list(step.new_shape or ()), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    stream.write(len(raw).to_bytes(8, "little") + raw)
    for step, _, dtype in rows:
        for chunk in _data(drafter, goal, step, dtype):
            stream.write(chunk)


def _count(shape: Sequence[int]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


def _data(drafter: View, goal: Goal, step: Step, dtype: str) -> Iterator[bytes]:
    """Yield the bytes of one new tensor."""
    if step.action == "copy":
        yield from _old_bytes(drafter, step.tensor)
    elif step.action == "rows":
        yield from _moved_rows(drafter, goal, step, dtype)
    else:
        yield from _made(step, dtype, goal)


def _old_bytes(drafter: View, name: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield the bytes [start, stop) of a tensor's data."""
    disk = drafter.names[name]
    file, tensor = drafter.table.files[disk], drafter.table.tensors[disk]
    source = drafter.checkpoint.source
    base = 8 + int.from_bytes(source.read(file, 0, 8), "little") + tensor.start
    end = tensor.end - tensor.start if stop is None else stop
    for at in range(start, end, CHUNK):
        chunk = source.read(file, base + at, base + min(at + CHUNK, end))
        if len(chunk) != min(CHUNK, end - at):
            raise OSError(5, "file ended early: it changed while it was read", file)
        yield chunk


def _made(step: Step, dtype: str, goal: Goal, seed: int = 0) -> Iterator[bytes]:
    """Yield an untrained tensor: normal with the config's initializer_range, ones, or zeros; seeded by its name."""
    import numpy as np  # noqa: PLC0415 (only to write)

    rule = next(rule for rule, _ in goal.contract.rules_for(step.tensor))
    shape = step.new_shape or ()
    left = _count(shape)
    scale = goal.config.get("initializer_range")
    scale = scale if isinstance(scale, float) and 0 < scale < 1 else 0.02
    random = np.random.default_rng([seed, *step.tensor.encode()])
    while left:
        n = min(left, CHUNK // 4)
        values = random.standard_normal(n, dtype=np.float32) * np.float32(scale)
        if rule.init != "normal":
            values = np.full(n, 1.0 if rule.init == "ones" else 0.0, dtype=np.float32)
        yield _as_dtype(values, dtype)
        left -= n


def _as_dtype(values: Any, dtype: str) -> bytes:
    """Return float32 values in another dtype, little-endian; bfloat16 rounds to nearest even."""
    import numpy as np  # noqa: PLC0415

    if dtype == "BF16":
        bits = values.view(np.uint32)
        return bytes(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes())
    kinds = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "?", "U8": "u1"}
    return bytes(values.astype(kinds[dtype]).tobytes())


def _moved_rows(drafter: View, goal: Goal, step: Step, dtype: str) -> Iterator[bytes]:
    """Yield a head whose rows are those of the old one under the new ids, and initialised where it has none."""
    import numpy as np  # noqa: PLC0415

    assert step.old_shape is not None
    assert step.new_shape is not None
    (have, *_), (want, *rest) = step.old_shape, step.new_shape
    item = _ITEM[dtype] * _count(rest)
    disk = drafter.names[step.tensor]
    file, folder = drafter.table.files[disk], drafter.checkpoint.source.folder
    assert folder is not None
    base = 8 + int.from_bytes(drafter.checkpoint.source.read(file, 0, 8), "little") + drafter.table.tensors[disk].start
    old = np.memmap(folder / file, dtype=np.uint8, mode="r", offset=base, shape=(have, item))
    place = np.full(want, -1, dtype=np.int64)
    ids = _target_ids(drafter, have)
    inside = ids < want
    place[ids[inside]] = np.arange(have)[inside]
    block = max(1, CHUNK // item)
    for start in range(0, want, block):
        at = place[start : start + block]
        fresh = b"".join(_made(replace(step, new_shape=(len(at), *rest)), dtype, goal, seed=start))
        rows = np.frombuffer(bytearray(fresh), dtype=np.uint8).reshape(len(at), item)
        rows[at >= 0] = old[at[at >= 0]]
        yield rows.tobytes()


def _target_ids(drafter: View, count: int) -> Any:
    """Return the target id of each draft id: i + d2t[i], or i without a map."""
    import numpy as np  # noqa: PLC0415

    name = _contract(drafter).roles.get("map", "")
    tensor = drafter.tensor(name)
    ids = np.arange(count, dtype=np.int64)
    if tensor is None:
        return ids
    raw = b"".join(_old_bytes(drafter, name))
    offsets = np.frombuffer(raw, dtype="<i8" if tensor.dtype == "I64" else "<i4").astype(np.int64)
    return np.arange(len(offsets)) + offsets
