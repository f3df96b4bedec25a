"""Write the checkpoint that ``adapt`` planned, tensor by tensor: whole or not at all, the source only read.

What must not happen comes first: each refusal is one finding. Then the folder is built beside its place and moved
there in one step.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import IO, Any

from draftproof.adapt import (
    FLOATS,
    Goal,
    contract_of,
    dtype_of,
    lacks_map,
    lent,
    plan_for,
    serving,
    subject_of,
)  # fmt: skip
from draftproof.answers import Plan, Step
from draftproof.api import Case, report
from draftproof.checkpoint import listed
from draftproof.conform import View
from draftproof.dims import Known
from draftproof.findings import Finding, Report, finding, unknown, visible
from draftproof.hub import is_training_state, unreadable
from draftproof.library import Library
from draftproof.torchzip import write_torch_zip

CHUNK = 16 << 20  # bytes moved at a time
MARK = "draftproof.files"  # key of the metadata in which adapt names the files that it wrote
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".ckpt", ".h5", ".msgpack", ".npz", ".npy")
_INDEX = (".safetensors.index.json", ".bin.index.json")
_TOKENIZER = re.compile(r"(tokenizer|tiktoken|special_tokens|added_tokens|vocab|merges|spiece).*")
_CACHES = (".git", ".cache", "__pycache__")
_MODEL = re.compile(r".+\.(safetensors|bin|json|jsonl|model|txt|md|jinja|tiktoken)|LICENSE|NOTICE|\.gitattributes")


class _Unread(Exception):
    """Carry the finding of a source file that could not be read, or changed while it was."""

    def __init__(self, found: Finding) -> None:
        super().__init__(found.observed)
        self.found = found


# --- the answer ---------------------------------------------------------------------------------------------------


def write(
    drafter: Any,
    to: Any,
    library: Library,
    out: Path,
    *,
    like: Any = None,
    family: str = "",
    trainer: str = "",
    engines: Sequence[str] = (),
    force: bool = False,
    anyway: bool = False,
) -> Report:
    """Write the adapted checkpoint to a new folder, whole or not at all; what was refused leads the answer.

    With force a checkpoint in its place is replaced; with anyway it is written although the plan says no.
    """
    case, plan, goal = plan_for(drafter, to, library, like=like, family=family, trainer=trainer, engines=engines)
    says: list[str] = []
    problem = _refused_place(out, _folders(drafter, to, like), force) or _refused_plan(case, plan, goal, anyway)
    if problem is None:
        assert goal is not None
        assert case.couple is not None
        says += _left_over(out)
        try:
            says += _write(case.couple.drafter, goal, plan.steps, Path(os.path.abspath(out)))
        except _Unread as error:
            problem = error.found
        except (OSError, ValueError) as error:  # a config that JSON cannot hold is a ValueError
            problem = _failed(out, "it could not be written", "room and permission", _why(error))
    if problem is None:
        if any(s.action == "init" for s in plan.steps):
            says.append(f"written untrained: {_untrained(plan.steps)}")
        told = [re.sub(r"\bDIR\b", lambda _: visible(out, 4096), line) for line in plan.says] if trainer else plan.says
        plan = replace(plan, says=(*told, *says), written=str(out))
    else:
        assert case.source is not None
        case.source.append(problem)
        why = "" if problem.code == "SRC123" else f" ({problem.observed})"  # which is the plan
        lead = f"nothing was written: {problem.subject}: {problem.message}{why}; the plan is: {plan.headline}"
        verdict = "no" if problem.code == "SRC123" else "unknown"
        plan = replace(plan, verdict=verdict, headline=lead, says=(*says, *plan.says))
    return replace(report(case, subject_of(drafter, to, like, trainer, engines)), plan=plan)


def _why(error: Exception) -> str:
    return visible(getattr(error, "strerror", None) or error)


def _refused(out: Path, message: str, expected: str, seen: str, help: str = "") -> Finding:
    """Make the finding of a wrong use: another DIR, or another word, would do."""
    return finding("SRC122", visible(out), message, expected=expected, observed=seen, help=help)


def _failed(out: Path | str, message: str, expected: str, seen: str, help: str = "") -> Finding:
    """Make the finding of what could not be done."""
    return unknown("SRC122", visible(out), message, expected=expected, observed=seen, help=help)


# --- what is refused ----------------------------------------------------------------------------------------------


def _folders(drafter: Any, to: Any, like: Any) -> dict[str, Path]:
    """Return the local folders that are read, by the part they play."""
    found: dict[str, Path] = {}
    for role, model in (("source", drafter), ("target", to), ("--like folder", like)):
        path = os.path.expanduser(model) if isinstance(model, (str, Path)) else ""
        if os.path.isdir(path):
            found[role] = Path(os.path.realpath(path))
        elif os.path.isfile(path):
            found["folder of the --like file"] = Path(os.path.realpath(path)).parent
    return found


def _refused_place(out: Path, folders: Mapping[str, Path], force: bool) -> Finding | None:
    """Refuse a DIR that overlaps what is read, that exists, or that --force must not replace."""
    try:
        place = Path(os.path.realpath(out))
        there = os.path.lexists(out)
    except (OSError, ValueError) as error:
        return _refused(out, "this is no path", "a folder that does not exist", _why(error))
    for role, folder in folders.items():
        how = "is" if place == folder else "holds" if place in folder.parents else "lies inside"
        inside = folder in place.parents and not role.endswith("file")  # a folder may stand beside a config file
        if place == folder or place in folder.parents or inside:
            help = "write to a folder apart from what is read"
            return _refused(out, f"DIR {how} the {role}", "a folder apart from it", visible(folder), help)
    if not there:
        return None
    if os.path.islink(out) or not os.path.isdir(out):
        seen = "a link" if os.path.islink(out) else "a file"
        return _refused(out, "DIR is not a folder", "a folder that does not exist", seen, "name another DIR")
    if not force:
        help = "name another DIR, or replace this one with --force"
        return _refused(out, "DIR exists", "a folder that does not exist, or --force", "no --force", help)
    if foreign := _foreign(place):
        help = "name another DIR; --force replaces only a folder of config.json, weights and what belongs to them"
        return _refused(out, "DIR holds more than a checkpoint", "only files of a checkpoint", foreign, help)
    return None


def _foreign(folder: Path) -> str:
    """Return what stands in a folder beside a checkpoint, or "": files that adapt did not write and nobody expects."""
    try:
        files = sorted(p.relative_to(folder).as_posix() for p in _walk(folder, lambda p: None))
    except OSError as error:
        return _why(error)
    if files and ("config.json" not in files or not any(f.endswith(_WEIGHTS) for f in files)):
        return f"no config.json or no weights beside {listed(files, 3)}"
    ours = _marked(folder / "model.safetensors")
    return listed([f for f in files if f not in ours and ("/" in f or not _MODEL.fullmatch(f))], 3)


def _marked(path: Path) -> set[str]:
    """Return the files that adapt says it wrote into a folder, by the mark in its weights."""
    try:
        if not path.is_file():
            return set()
        with open(path, "rb") as stream:
            header = json.loads(stream.read(min(int.from_bytes(stream.read(8), "little"), 100_000_000)))
        return set(map(str, json.loads(header["__metadata__"][MARK])))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


def _refused_plan(case: Case, plan: Plan, goal: Goal | None, anyway: bool) -> Finding | None:
    """Refuse where there is no plan, no bytes to write it from, or no map for the new draft vocabulary."""
    if plan.verdict == "no" and (goal is None or not anyway):
        made = "" if goal is None else f"; it would hold untrained tensors: {_untrained(plan.steps)}"
        help = "mend the source first" if goal is None else "with --anyway it is written, untrained tensors and all"
        return finding(
            "SRC123", "checkpoint", expected="another plan than no", observed=plan.headline + made, help=help
        )
    if case.couple is None or goal is None or plan.verdict == "unknown":
        return _failed("checkpoint", "there is no plan to write", "a plan", plan.headline)
    drafter = case.couple.drafter
    source, files = drafter.checkpoint.source, set(drafter.table.files.values())
    if source.folder is None or not drafter.table.read or not all(f.endswith(".safetensors") for f in files):
        help = "give the folder of a safetensors checkpoint in place of its name"
        seen = source.label if source.folder is None else listed(files) or drafter.table.basis
        return _failed(source.name, "the source is no local safetensors checkpoint", "a local folder", seen, help)
    if lacks_map(goal, plan.steps):
        seen = "neither the drafter nor --like has it"
        help = "give --like a local checkpoint that has the d2t of the new draft vocabulary"
        name = goal.contract.roles["map"]
        return _failed(name, f"{name} must come from the trainer", "one that is at hand", seen, help)
    if (found := _no_lender(goal, plan.steps)) is not None:
        return found
    try:
        return _bad_map(drafter, goal, plan.steps)
    except _Unread as error:
        return error.found


def _untrained(steps: Sequence[Step]) -> str:
    return listed([s.tensor for s in steps if s.action == "init"], 8) or "none"


def _no_lender(goal: Goal, steps: Sequence[Step]) -> Finding | None:
    """Refuse where the target is to lend a tensor, and its bytes are not at hand in the shape that is needed."""
    for step in (s for s in steps if s.action == "lend"):
        target = goal.lender
        assert target is not None
        tensor, source = target.tensor(lent(goal, step.tensor)), target.checkpoint.source
        file = target.table.files.get(target.names.get(lent(goal, step.tensor), ""), "")
        if tensor is None or source.folder is None or not file.endswith(".safetensors"):
            help = "give the target's own folder, with its weights, as --to"
            return _failed(step.tensor, "it comes from the target, which is not at hand", "a local safetensors "
                           "checkpoint of the target", source.label, help)  # fmt: skip
        if tensor.shape != step.new_shape or tensor.dtype not in FLOATS:
            seen = f"{tensor.dtype} {list(tensor.shape)}"
            return _failed(step.tensor, "the target's does not fit", f"{list(step.new_shape or ())} of floats", seen)
    return None


def _bad_map(drafter: View, goal: Goal, steps: Sequence[Step]) -> Finding | None:
    """Refuse a d2t, to be copied or to be followed, that does not send each draft id to a target id of its own."""
    actions = {s.tensor: s.action for s in steps}
    name = goal.contract.roles.get("map", "")
    asked = [(drafter, drafter.size("target_vocab"))] if "rows" in actions.values() else []
    if actions.get(name) == "copy":
        asked.append((drafter, goal.view.size("target_vocab")))
    if actions.get(name) == "take" and goal.vocabulary.given is not None:
        asked.append((goal.vocabulary.given, goal.view.size("target_vocab")))
    for view, full in asked:
        ids = _target_ids(view)
        limit = getattr(full, "value", 0)
        if ids is None or not len(ids):
            continue
        distinct = len(set(ids.tolist()))
        identity = len(ids) < limit and int(ids[-1]) == len(ids) - 1 and distinct == len(ids) and ids.min() == 0
        if distinct < len(ids) or ids.min() < 0 or ids.max() >= limit or identity:
            seen = f"{len(ids)} ids, {distinct} distinct, from {ids.min()} to {ids.max()}"
            seen += ": all zero, as where it was never filled" if identity else ""
            expected = f"{len(ids)} distinct target ids below {limit}, as i + d2t[i]"
            what = f"{name} of {view.checkpoint.source.name}"
            return _failed(visible(what), "d2t does not map the draft vocabulary", expected, seen, "mend d2t first")
    return None


def _left_over(out: Path) -> Iterator[str]:
    """Name what an earlier run that did not end left beside DIR."""
    place = Path(os.path.abspath(out))
    try:
        found = sorted(p for p in place.parent.iterdir() if p.name.startswith(_temporary(place)))
    except OSError:
        return
    if found:
        yield f"left by a run that did not end, unless one is writing now; remove it: {listed(map(str, found), 5)}"


def _temporary(out: Path) -> str:
    return f".{out.name[:40]}.draftproof-"


# --- the new folder -----------------------------------------------------------------------------------------------


def _write(drafter: View, goal: Goal, steps: Sequence[Step], out: Path) -> list[str]:
    """Build the folder beside its place and move it there in one step; returns what a person must know of it."""
    source = drafter.checkpoint.source
    assert source.folder is not None
    config = (json.dumps(goal.config, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    rows = _rows(drafter, goal, steps)
    stamps = _stamps(drafter)
    made_parents = _make_parents(out.parent)
    made: Path | None = None
    done = False
    try:
        need, free = sum(size for *_, size in rows), shutil.disk_usage(out.parent).free
        if need > free:
            raise OSError(28, f"the disk has {free} bytes, and {need} are needed")
        made = Path(tempfile.mkdtemp(prefix=_temporary(out), dir=out.parent))
        files, left = _copy_files(drafter, goal, made)
        files += _map_files(drafter, goal, steps, made)
        (made / "config.json").write_bytes(config)
        with open(made / "model.safetensors", "xb") as stream:
            _write_tensors(drafter, goal, steps, rows, stream, [*files, "config.json", "model.safetensors"])
            stream.flush()
            os.fsync(stream.fileno())
        if _stamps(drafter) != stamps:
            raise _Unread(unreadable(source.name, OSError(5, "a weight file changed while it was read"), source.label))
        os.chmod(made, 0o777 & ~_umask())
        _move(made, out)
        done = True
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        if not done:
            _remove_empty(made_parents)
    return [f"left out of {visible(out.name)}: {listed(left, 20)}"] if left else []


def _make_parents(parent: Path) -> list[Path]:
    """Make the folders above DIR; returns those that were not there, deepest first."""
    new = [p for p in (parent, *parent.parents) if not p.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        _remove_empty(new)
        raise
    return new


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            continue


def _move(made: Path, out: Path) -> None:
    """Put the finished folder in its place; what stood there is put back if that fails, and removed after."""
    if not os.path.lexists(out):
        os.rename(made, out)
        return
    aside = Path(tempfile.mkdtemp(prefix=_temporary(out), dir=out.parent))
    old = aside / "old"
    os.rename(out, old)
    try:
        os.rename(made, out)
    except BaseException:
        os.rename(old, out)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _stamps(drafter: View) -> dict[str, tuple[int, int]]:
    """Return size and time of the weight files, and see that they are as they were when their headers were read."""
    source = drafter.checkpoint.source
    assert source.folder is not None
    out = {}
    for name in sorted(set(drafter.table.files.values())):
        try:
            stat = os.stat(source.folder / name)
            if stat.st_size != source.files[name]:
                raise OSError(5, f"{stat.st_size} bytes, and {source.files[name]} when its header was read")
        except OSError as error:
            raise _Unread(unreadable(name, error, source.label)) from None
        out[name] = (stat.st_size, stat.st_mtime_ns)
    return out


# --- files beside the weights -------------------------------------------------------------------------------------


def _walk(folder: Path, skip: Any) -> Iterator[Path]:
    """Yield the entries below a folder that are no folders, sorted; a link to a folder is an entry."""
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.is_dir(follow_symlinks=False):
            if skip(Path(entry.path)) is None:
                yield from _walk(Path(entry.path), skip)
        else:
            yield Path(entry.path)


def _copy_files(drafter: View, goal: Goal, made: Path) -> tuple[list[str], list[str]]:
    """Copy what is no weight, index, training state or config; returns what was copied, and what was left out."""
    source = drafter.checkpoint.source
    assert source.folder is not None
    root = Path(os.path.realpath(source.folder))
    inside = root.parents[1] if root.parent.name == "snapshots" else root  # the files of a Hub cache are links to it
    weights = set(drafter.table.files.values())
    copied: list[str] = []
    left: list[str] = []

    def skip(path: Path) -> str | None:
        if path.name in _CACHES:
            left.append(f"{path.relative_to(root).as_posix()}/")
            return "cache"
        return None

    try:
        for path in _walk(root, skip):
            name = path.relative_to(root).as_posix()
            if name in weights or name == "config.json" or (name.endswith(_INDEX) and "/" not in name):
                continue
            real = Path(os.path.realpath(path))
            why = (
                "not a file inside the folder" if not (path.is_file() and inside in real.parents)
                else "training state" if is_training_state(path.name)
                else "other weights" if name.endswith((*_WEIGHTS, *_INDEX))
                else "of the other vocabulary" if not goal.vocabulary.same and _TOKENIZER.match(name)
                else ""
            )  # fmt: skip
            if why:
                left.append(f"{name} ({why})")
            else:
                _copy_file(path, made / name, source.label)
                copied.append(name)
    except OSError as error:
        if error.filename and str(error.filename).startswith(str(made)):
            raise
        raise _Unread(unreadable(str(error.filename or root), error, source.label)) from None
    return copied, left


def _copy_file(path: Path, to: Path, where: str) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        stream = open(path, "rb")  # noqa: SIM115 (closed below; what fails here is the source)
    except OSError as error:
        raise _Unread(unreadable(path.name, error, where)) from None
    with stream, open(to, "xb") as copy:
        shutil.copyfileobj(stream, copy, CHUNK)


# --- the draft vocabulary, in the form of a trainer ---------------------------------------------------------------


def _map_files(drafter: View, goal: Goal, steps: Sequence[Step], made: Path) -> list[str]:
    """Write the files by which a trainer takes a reduced vocabulary; returns their names."""
    import numpy as np  # noqa: PLC0415

    full, ids = goal.view.size("target_vocab"), _new_ids(drafter, goal, steps)
    if goal.trainer is None or ids is None or not isinstance(full, Known) or len(ids) >= full.value:
        return []
    mask = np.zeros(full.value, dtype=np.bool_)
    mask[ids] = True
    ids = ids.astype("<i8")
    parts = {"offsets": ids - np.arange(len(ids)), "mask": mask, "ids": ids, "vocabulary": full.value}
    for file in goal.trainer.map.files:
        values = {key: parts[what] for key, what in file.holds.items()}
        if file.form == "npy":
            np.save(made / file.name, values[""], allow_pickle=False)
        else:
            stored = {key: _torch_value(value) for key, value in values.items()}
            write_torch_zip(made / file.name, stored.get("", stored))
    return [file.name for file in goal.trainer.map.files]


def _torch_value(value: Any) -> Any:
    """Return an integer as it is, and an array as dtype, shape and bytes."""
    if isinstance(value, int):
        return value
    return ("BOOL" if value.dtype == bool else "I64", value.shape, value.tobytes())


def _new_ids(drafter: View, goal: Goal, steps: Sequence[Step]) -> Any:
    """Return the target id of each id of the new draft vocabulary; None where there is no map."""
    import numpy as np  # noqa: PLC0415

    action = next((s.action for s in steps if s.tensor == goal.contract.roles.get("map", "")), "")
    if action == "take" and goal.vocabulary.given is not None:
        return _target_ids(goal.vocabulary.given)
    size = goal.view.size("draft_vocab")
    if action == "make" and isinstance(size, Known):
        return np.arange(size.value)
    return _target_ids(drafter) if action == "copy" else None


# --- tensors ------------------------------------------------------------------------------------------------------

_ITEM = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "BOOL": 1, "U8": 1}
_Row = tuple[Step, str, str, int]  # step, name on disk, dtype, bytes


def _rows(drafter: View, goal: Goal, steps: Sequence[Step]) -> list[_Row]:
    """Return what is written, in the order of the file: wide elements first, so that each is aligned."""
    encode = serving(drafter, goal).encode
    rows = []
    for step in steps:
        if step.new_shape is not None:
            dtype = dtype_of(drafter, goal, step)
            rows.append((step, encode(step.tensor), dtype, _ITEM[dtype] * prod(step.new_shape)))
    return sorted(rows, key=lambda r: (-_ITEM[r[2]], r[1]))


def _write_tensors(
    drafter: View, goal: Goal, steps: Sequence[Step], rows: Sequence[_Row], stream: IO[bytes], files: list[str]
) -> None:
    """Write header and data of every tensor that the plan keeps or makes, one at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", MARK: json.dumps(sorted(files))}}
    at = 0
    for step, name, dtype, size in rows:
        header[name] = {"dtype": dtype, "shape": list(step.new_shape or ()), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    stream.write(len(raw).to_bytes(8, "little") + raw)
    for step, _, dtype, _ in rows:
        for chunk in _data(drafter, goal, step, dtype, steps):
            stream.write(chunk)


def _data(drafter: View, goal: Goal, step: Step, dtype: str, steps: Sequence[Step]) -> Iterator[bytes]:
    """Yield the bytes of one new tensor."""
    if step.action == "copy":
        yield from _old_bytes(drafter, step.tensor)
    elif step.action == "take":
        assert goal.vocabulary.given is not None
        yield from _old_bytes(goal.vocabulary.given, step.tensor)
    elif step.action == "rows":
        yield from _moved_rows(drafter, goal, step, dtype)
    elif step.action == "lend":
        assert goal.lender is not None
        yield from _old_bytes(goal.lender, lent(goal, step.tensor))
    elif step.action == "make":
        yield _mapped(drafter, goal, step, steps)
    else:
        yield from _made(step, dtype, goal)


def _mapped(drafter: View, goal: Goal, step: Step, steps: Sequence[Step]) -> bytes:
    """Return d2t of the whole vocabulary, or t2d by the new d2t, or of the whole vocabulary."""
    import numpy as np  # noqa: PLC0415

    if step.tensor == goal.contract.roles.get("map"):
        return bytes(8 * prod(step.new_shape or ()))
    mask = np.zeros(prod(step.new_shape or ()), dtype=np.bool_)
    ids = _new_ids(drafter, goal, steps)
    mask[slice(None) if ids is None else ids] = True
    return mask.tobytes()


def _old_bytes(view: View, name: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """Yield the bytes [start, stop) of a tensor's data."""
    disk = view.names[name]
    file, tensor = view.table.files[disk], view.table.tensors[disk]
    source = view.checkpoint.source
    end = tensor.end - tensor.start if stop is None else stop
    try:
        base = 8 + int.from_bytes(source.read(file, 0, 8), "little") + tensor.start
        for at in range(start, end, CHUNK):
            chunk = source.read(file, base + at, base + min(at + CHUNK, end))
            if len(chunk) != min(CHUNK, end - at):
                raise OSError(5, "it ended early: it changed while it was read")
            yield chunk
    except OSError as error:
        raise _Unread(unreadable(file, error, source.label)) from None


def _made(step: Step, dtype: str, goal: Goal, seed: int = 0) -> Iterator[bytes]:
    """Yield an untrained tensor: normal with the config's initializer_range, ones, or zeros; seeded by its name."""
    import numpy as np  # noqa: PLC0415 (only to write)

    rule = next(rule for rule, _ in goal.contract.rules_for(step.tensor))
    left = prod(step.new_shape or ())
    scale = goal.config.get("initializer_range")
    scale = scale if isinstance(scale, float) and 0 < scale < 1 else 0.02
    random = np.random.default_rng([seed, *step.tensor.encode()])
    while left:
        n = min(left, CHUNK // 4)
        if rule.init == "normal" and dtype in FLOATS:
            values = random.standard_normal(n, dtype=np.float32) * np.float32(scale)
        else:
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
    """Yield a head whose rows are those of the old one for the same target ids, and initialised where it has none."""
    import numpy as np  # noqa: PLC0415

    assert step.old_shape is not None
    assert step.new_shape is not None
    (have, *_), (want, *rest) = step.old_shape, step.new_shape
    item = _ITEM[dtype] * prod(rest)
    given = goal.vocabulary.given
    old_ids, new_ids = _target_ids(drafter), _target_ids(given) if given is not None else None
    if step.tensor == goal.contract.roles.get("embedding"):  # its rows are target ids
        old_ids = new_ids = None
    old_ids = np.arange(have) if old_ids is None else old_ids
    new_ids = np.arange(want) if new_ids is None else new_ids
    place = np.full(int(max(old_ids.max(), new_ids.max())) + 1, -1, dtype=np.int64)
    place[old_ids] = np.arange(have)
    block = max(1, CHUNK // item)
    for start in range(0, want, block):
        at = place[new_ids[start : start + block]]
        fresh = b"".join(_made(replace(step, new_shape=(len(at), *rest)), dtype, goal, seed=start))
        rows = np.frombuffer(bytearray(fresh), dtype=np.uint8).reshape(len(at), item)
        hit = np.flatnonzero(at >= 0)
        for run in np.split(hit, np.flatnonzero((np.diff(hit) != 1) | (np.diff(at[hit]) != 1)) + 1):
            if len(run):  # neighbours in both heads are read together
                first = int(at[run[0]])
                raw = b"".join(_old_bytes(drafter, step.tensor, first * item, (first + len(run)) * item))
                rows[run] = np.frombuffer(raw, dtype=np.uint8).reshape(len(run), item)
        yield rows.tobytes()


def _target_ids(view: View) -> Any:
    """Return the target id of each draft id, i + d2t[i]; None where there is no map."""
    import numpy as np  # noqa: PLC0415

    name = contract_of(view).roles.get("map", "")
    tensor = view.tensor(name)
    if tensor is None or tensor.dtype not in ("I64", "I32"):
        return None
    raw = b"".join(_old_bytes(view, name))
    offsets = np.frombuffer(raw, dtype="<i8" if tensor.dtype == "I64" else "<i4").astype(np.int64)
    return np.arange(len(offsets)) + offsets
