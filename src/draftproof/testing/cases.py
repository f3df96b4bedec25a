"""Broken drafters, targets and launches, built on the healthy pairs of fixtures.py, for the truth tables of engines.

    from draftproof.testing import cases

    for case in cases.cases("vllm"):
        cases.build(case, tmp_path)          # targets/<name>/, and a folder with case.json and the drafter
    seen = cases.metadata(case)              # configs, tensor tables, file names and launch; writes nothing

cases.toml says what is done to which family; a case is never made for what an engine answers to it.
"""

from __future__ import annotations

import json
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from draftproof.testing import fixtures
from draftproof.testing.fixtures import Config, Model, Table, Tensor

Fault = Callable[[Model, Model], None]  # changes the target and the drafter it is given
PROMPT = (60, 275, 34, 157, 306, 236, 412, 20, 99, 341, 7, 480)
TOKENS = 5  # to generate, where only the first drafts are looked at
COUNTED = 25  # where accepted tokens are counted
HEALTHY = "healthy"
STEP = 16  # by how much an axis is made longer or shorter


@dataclass(frozen=True)
class Case:
    """Hold one case: what is done to the pair of its family, how it is launched, and the case it must agree with."""

    id: str
    family: str
    pair: tuple[str, str]
    faults: tuple[Fault, ...] = field(repr=False)
    launch: Mapping[str, tuple[str, ...]] = field(repr=False)
    env: Mapping[str, Mapping[str, str]] = field(repr=False)
    twin: str  # the id of the case it is compared with; "" for one that nothing is done to
    facts: Mapping[str, Any]  # what the drafter was trained with
    feature: bool = False  # it has what its twin lacks: numbers equal to the twin's mean that this was dropped
    hidden: bool = False  # metadata cannot tell what is wrong
    kind: str = "broken"  # broken, healthy, or perturbed: shows that the fixture depends on what was changed
    folder: str = "drafter"  # where the drafter lies in the case's folder
    subject: str = ""  # what is wrong, the same for families that are one family in other engines
    later: bool = False  # it tells little that others do not: run last
    request: Mapping[str, Any] = field(default_factory=dict, repr=False)  # what a request asks for beside greedy tokens

    @property
    def tokens(self) -> int:
        """Return how many tokens to generate."""
        return COUNTED if self.pair[0] in _known_pair()[0] else TOKENS

    @property
    def place(self) -> str:
        """Return the name of the case's folder; engines guess from words in a path, so it has none."""
        return f"c{zlib.crc32(self.id.encode()):08x}"


@dataclass(frozen=True)
class Side:
    """Hold what metadata tells of one folder: its config, its tensors, and the names of its other files."""

    config: Config
    table: Table
    files: tuple[str, ...]
    weights: str
    gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metadata:
    """Hold what metadata tells of a case; {target} and {drafter} in the launch stand for the folders."""

    target: Side
    drafter: Side
    launch: Mapping[str, tuple[str, ...]]
    env: Mapping[str, Mapping[str, str]]
    facts: Mapping[str, Any]


def models(case: Case) -> tuple[Model, Model]:
    """Return target and drafter of a case, faults done; values are made when they are written."""
    target, drafter = (_model(name).copy() for name in case.pair)
    for fault in case.faults:
        fault(target, drafter)
    return target, drafter


@cache
def _model(name: str) -> Model:
    known = fixtures.known_models()
    return known[name] if name in known else fixtures.model(name)


def metadata(case: Case) -> Metadata:
    """Return what metadata tells of a case, without writing or making any value."""
    target, drafter = (Side(m.config, m.table, tuple(m.files), m.weights, m.gone) for m in models(case))
    return Metadata(target, drafter, case.launch, case.env, case.facts)


def build(case: Case, folder: Path) -> Path:
    """Write a case into folder, as the runners of engines read it, and return where its case.json lies."""
    target, drafter = models(case)
    name = target.name if _same(target, _model(case.pair[0])) else f"{target.name}-{case.place}"
    if not (folder / "targets" / name / "config.json").exists():
        fixtures.write(target, folder / "targets" / name)
    place = folder / case.place
    fixtures.write(drafter, place / case.folder)
    row = {
        "id": case.id, "family": case.family, "target": name, "drafter": case.folder, "prompt": list(prompt(case)),
        "tokens": case.tokens, "order": _order().index(case.id), "launch": case.launch, "env": case.env,
        "twin": case.twin, "feature": case.feature, **({"request": case.request} if case.request else {}),
    }  # fmt: skip
    path = place / "case.json"
    path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return path


def _same(one: Model, other: Model) -> bool:
    same = one.tensors.keys() == other.tensors.keys() and all(t is other.tensors[n] for n, t in one.tensors.items())
    same = same and json.dumps(one.config) == json.dumps(other.config)  # which tells 1 from 1.0, and from true
    return same and one.files == other.files and one.gone == other.gone


def prompt(case: Case) -> Sequence[int]:
    """Return the token ids of the prompt of a case."""
    names, known = _known_pair()
    return known if case.pair[0] in names else PROMPT


@cache
def _known_pair() -> tuple[frozenset[str], Sequence[int]]:
    """Return the names of the pair whose answer is known, and the prompt that it is known of."""
    return frozenset(fixtures.known_models()), fixtures.known().prompt


# --- faults -------------------------------------------------------------------------------------------------------


def _side(target: Model, drafter: Model, name: str) -> tuple[Model, str]:
    """Return the side that a name of cases.toml speaks of, and the name there."""
    return (target, name.removeprefix("target.")) if name.startswith("target.") else (drafter, name)


def config(changes: Mapping[str, Any], without: Sequence[str] = ()) -> Fault:
    """Return a fault that sets and removes dotted config keys; `target.` in front means the target's."""

    def fault(target: Model, drafter: Model) -> None:
        for key, stays in (*((key, True) for key in changes), *((key, False) for key in without)):
            side, name = _side(target, drafter, key)
            *path, last = name.split(".")
            table = side.config
            for part in path:
                if not isinstance(table.get(part), dict):
                    table[part] = {}
                table = table[part]
            if stays:
                table[last] = None if changes[key] == "null" else json.loads(json.dumps(changes[key]))
            else:
                table.pop(last, None)

    return fault


def tensor(name: str, change: Callable[[str, Tensor], tuple[str, Tensor] | None]) -> Fault:
    """Return a fault that renames, replaces or removes one tensor, in its place."""

    def fault(target: Model, drafter: Model) -> None:
        side, own = _side(target, drafter, name)
        if own not in side.tensors:
            raise KeyError(f"{side.name} has no tensor {own}")
        made: dict[str, Tensor] = {}
        for at, held in side.tensors.items():
            found = change(at, held) if at == own else (at, held)
            made |= {found[0]: found[1]} if found else {}
        side.tensors = made

    return fault


def _values(change: Callable[[Any], Any]) -> Callable[[str, Tensor], tuple[str, Tensor]]:
    return lambda name, held: (name, replace(held, values=lambda: change(held.values())))


def _resized(axis: int, by: int) -> Callable[[str, Tensor], tuple[str, Tensor]]:
    def change(name: str, held: Tensor) -> tuple[str, Tensor]:
        shape = tuple(n + by * (i == axis) for i, n in enumerate(held.shape))

        def values() -> Any:
            import numpy as np  # noqa: PLC0415

            whole = np.asarray(held.values())
            rest = fixtures.noise(f"more/{name}", shape).astype(whole.dtype)
            rest = np.zeros(shape, whole.dtype) if whole.dtype.kind in "ib" else rest
            # floats that are added come first, so that what is left of them when they are cut is not what there was
            first = max(by, 0) if whole.dtype.kind == "f" else 0
            at = [slice(first * (n == axis), first * (n == axis) + size) for n, size in enumerate(whole.shape)]
            rest[tuple(at)] = whole[tuple(slice(0, n) for n in shape)]
            return rest

        return name, Tensor(held.dtype, shape, values)

    return change


def _transposed(name: str, held: Tensor) -> tuple[str, Tensor]:
    return name, Tensor(held.dtype, held.shape[::-1], lambda: held.values().T)


def _cast(name: str, held: Tensor) -> tuple[str, Tensor]:
    return name, replace(held, dtype={"F32": "BF16", "I64": "I32", "BOOL": "U8"}[held.dtype])


def _nan(values: Any) -> Any:
    import numpy as np  # noqa: PLC0415

    values = np.array(values, copy=True)
    values[(0,) * values.ndim] = np.nan
    return values


def _perturbed(values: Any) -> Any:
    import numpy as np  # noqa: PLC0415

    values = np.asarray(values)
    if values.dtype.kind in "ib":
        return np.roll(values, 1)
    return values + 3 * np.sqrt((values * values).mean()) * fixtures.noise("perturbed", values.shape)


Kind = tuple[Callable[[Tensor], bool], Callable[[str, Tensor], tuple[str, Tensor] | None]]
KINDS: dict[str, Kind] = {  # kind of tensor fault -> the tensors that can have it, what it does to one
    "missing": (lambda t: True, lambda name, held: None),
    "renamed": (lambda t: True, lambda name, held: (f"drafter.{name}", held)),
    "transposed": (lambda t: len(t.shape) == 2, _transposed),
    "longer": (lambda t: True, _resized(0, STEP)),
    "shorter": (lambda t: t.shape[0] > STEP, _resized(0, -STEP)),
    "wider": (lambda t: len(t.shape) == 2, _resized(1, STEP)),
    "narrower": (lambda t: len(t.shape) == 2, _resized(1, -STEP)),
    "cast": (lambda t: True, _cast),
    "nan": (lambda t: t.dtype == "F32", _values(_nan)),
    "zero": (lambda t: True, _values(lambda x: x * 0)),
    "perturbed": (lambda t: True, _values(_perturbed)),
}


def _absolute(values: Any) -> Any:
    return values + range(len(values))


def _blocks(values: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    """Change the three blocks of columns of a fusion's values, one for each layer that it reads."""
    import numpy as np  # noqa: PLC0415

    return np.concatenate(change(np.split(np.asarray(values), 3, 1)), 1)


VALUES: dict[str, Callable[[Any], Any]] = {  # what a case may do to a tensor's values
    "absolute": _absolute,
    "nan": _nan,
    "perturbed": _perturbed,
    "zero": lambda x: x * 0,
    "constant": lambda x: x * 0 + 5 - range(len(x)),
    "beyond": lambda x: x + 10000,
    "reversed": lambda x: x[::-1],
    "doubled": lambda x: x * 2,
    "first": lambda x: _blocks(x, lambda parts: [parts[0], *(part * 0 for part in parts[1:])]),
    "turned": lambda x: _blocks(x, lambda parts: [parts[-1], *parts[:-1]]),
}


def _shaped(name: str, to: str) -> Fault:
    """Return a fault that removes or renames a tensor, copies another, or makes one of a row of fixtures.toml."""
    if to == "missing":
        return tensor(name, lambda at, held: None)
    word, _, rest = to.partition(" ")
    if word == "=":
        return tensor(name, lambda at, held: (rest, held))

    def fault(target: Model, drafter: Model) -> None:
        side, own = _side(target, drafter, name)
        if word in ("copy", "part"):  # the whole of another tensor, or its corner
            other, _, sizes = rest.partition(" ")
            held, at = _side(target, drafter, other)
            whole = held.tensors[at]
            shape = fixtures.dims_of(sizes, side.config) if sizes else whole.shape
            side.tensors[own] = Tensor(whole.dtype, shape, lambda: whole.values()[tuple(slice(n) for n in shape)])
        else:
            side.tensors[own] = fixtures.made_of(side.name, own, to, side.config)

    return fault


def _dropped(globs: Sequence[str]) -> Fault:
    """Return a fault that takes tensors away: the drafter's, and by globs with `target.` in front the target's."""

    def fault(target: Model, drafter: Model) -> None:
        for glob in globs:
            side, own = _side(target, drafter, glob)
            side.tensors = {name: held for name, held in side.tensors.items() if not fnmatchcase(name, own)}

    return fault


def _fused(parts: Sequence[str], to: str) -> Fault:
    """Return a fault that puts tensors of the drafter one below the other into one."""

    def fault(target: Model, drafter: Model) -> None:
        held = [drafter.tensors.pop(name) for name in parts]
        shape = (sum(t.shape[0] for t in held), *held[0].shape[1:])
        drafter.tensors[to] = Tensor(held[0].dtype, shape, lambda: _rows([t.values() for t in held]))

    return fault


def _rows(values: Sequence[Any]) -> Any:
    import numpy as np  # noqa: PLC0415

    return np.concatenate(values)


def _renamed(start: str, to: str, keep: Sequence[str]) -> Fault:
    def fault(target: Model, drafter: Model) -> None:
        drafter.tensors = {
            to + name.removeprefix(start) if name.startswith(start) and name not in keep else name: held
            for name, held in drafter.tensors.items()
        }

    return fault


# --- files --------------------------------------------------------------------------------------------------------


def _named(weights: str) -> Fault:
    def fault(target: Model, drafter: Model) -> None:
        drafter.weights = weights
        if not weights.endswith(".safetensors"):
            drafter.files[weights] = partial(packed, weights, dict(drafter.tensors))

    return fault


def _sharded(shards: Sequence[Sequence[str]], index: Mapping[str, str] | str, lost: Sequence[str]) -> Fault:
    """Return a fault that spreads tensors over files by globs, with an index that may say something else."""

    def fault(target: Model, drafter: Model) -> None:
        names = [f"model-{n + 1:05}-of-{len(shards):05}.safetensors" for n in range(len(shards))]
        place = {
            tensor: next(name for name, globs in zip(names, shards, strict=True) if _any(tensor, globs))
            for tensor in drafter.tensors
        }
        if isinstance(index, Mapping):
            listed = {tensor: file for tensor, file in {**place, **index}.items() if file != "absent"}
            text = json.dumps({"metadata": {}, "weight_map": listed}, indent=1)
            drafter.files["model.safetensors.index.json"] = text.encode
        for name in names:
            held = {tensor: drafter.tensors[tensor] for tensor, file in place.items() if file == name}
            if name not in lost:
                drafter.files[name] = partial(packed, name, held)
        drafter.tensors = {n: t for n, t in drafter.tensors.items() if place[n] not in lost}
        drafter.weights = next(name for name in names if name not in lost)

    return fault


def _beside(files: Mapping[str, Any]) -> Fault:
    """Return a fault that puts files beside the drafter's, or with `target.` in front the target's.

    A file is a text, some of the tensors, or new tensors and numbers. What is made so may be damaged; a file that is
    ``gone`` is not written.
    """

    def fault(target: Model, drafter: Model) -> None:
        for at, what in files.items():
            side, name = _side(target, drafter, at)
            if isinstance(what, str):
                side.files[name] = what.encode
                continue
            if what.get("gone"):
                side.gone = (*side.gone, name)
                continue
            change = _values(VALUES[what["values"]]) if "values" in what else None
            held = {n: t for n, t in side.tensors.items() if _any(n, what.get("tensors", ()))}
            held = {n: change(n, t)[1] if change and t.dtype == "F32" else t for n, t in held.items()}
            made = {
                n: row if isinstance(row, int) else fixtures.made_of(side.name, n, row, side.config)
                for n, row in what.get("made", {}).items()
            }
            whole = partial(packed, name, {**held, **made})
            side.files[name] = partial(_damaged, what["damaged"], whole) if "damaged" in what else whole

    return fault


def _damaged(how: str, whole: Callable[[], bytes]) -> bytes:
    return DAMAGES[how](whole())


def _header(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """Return what writes a safetensors file anew with another header, its data as they are."""

    def damage(raw: bytes) -> bytes:
        stop = 8 + int.from_bytes(raw[:8], "little")
        text = json.dumps(change(json.loads(raw[8:stop]))).encode()
        return len(text).to_bytes(8, "little") + text + raw[stop:]

    return damage


def _moved(first: int, last: int, **more: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a change of a header that moves the ends of its last tensor, and changes what else it says of it."""

    def change(rows: dict[str, Any]) -> dict[str, Any]:
        row = rows[list(rows)[-1]]
        start, stop = row["data_offsets"]
        row |= {"data_offsets": [start + first, stop + last], **more}
        return rows

    return change


DAMAGES: dict[str, Callable[[bytes], bytes]] = {  # what a case may do to the bytes of a file
    "data-cut": lambda raw: raw[:-64],
    "half": lambda raw: raw[: len(raw) // 2],
    "header-cut": lambda raw: raw[:100],
    "length-cut": lambda raw: raw[:4],
    "longer": lambda raw: raw + bytes(64),
    "zeros": lambda raw: bytes(len(raw)),
    "header-beyond": lambda raw: (2 * len(raw)).to_bytes(8, "little") + raw[8:],
    "header-huge": lambda raw: (1 << 62).to_bytes(8, "little") + raw[8:],
    "header-no-json": lambda raw: raw[:8] + b"{" * (len(raw) - 8),
    "header-list": _header(lambda rows: []),
    "no-tensors": lambda raw: (2).to_bytes(8, "little") + b"{}",
    "offsets-beyond": _header(_moved(0, 4096)),
    "offsets-hole": _header(_moved(64, 64)),
    "offsets-overlap": _header(_moved(-64, -64)),
    "shape-of-another-size": _header(_moved(0, 0, shape=[3])),
    "dtype-unknown": _header(_moved(0, 0, dtype="F33")),
    "dtype-absent": _header(lambda rows: rows | {"norm.weight": {"shape": [1], "data_offsets": [0, 4]}}),
}


def _any(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def packed(name: str, tensors: Mapping[str, Any]) -> bytes:
    """Return the bytes of a weights file: safetensors, or by another suffix what torch.save writes, numbers too."""
    if name.endswith(".safetensors"):
        return fixtures.safetensors(tensors)
    from draftproof.torchzip import write_torch_zip  # noqa: PLC0415

    with TemporaryDirectory() as folder:
        path = Path(folder) / Path(name).name
        held = {n: t if isinstance(t, int) else (t.dtype, t.shape, fixtures.stored(t)) for n, t in tensors.items()}
        write_torch_zip(path, held)
        return path.read_bytes()


# --- what the file says -------------------------------------------------------------------------------------------

NOT_TAKEN = ("id", "twin", "feature", "kind", "hidden")  # keys of a case that `like` does not take over


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))


@cache
def _all() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for family, row in _data()["family"].items():
        for case in _family(family):
            if case.id in found:
                raise ValueError(f"two cases are called {case.id}")
            found[case.id] = replace(
                case, later=_any(case.id.partition("/")[2], _data()["later"].get(row.get("later"), ()))
            )
    for case in found.values():
        if case.twin and case.twin not in found:
            raise ValueError(f"{case.id}: its twin {case.twin} is no case")
    return found


@cache
def _order() -> list[str]:
    """Return ids as they are run: twins, then some of every part of every family, so that a run cut short is spread."""
    parts: dict[str, list[str]] = {}
    for id in _all():
        parts.setdefault(id.rpartition("/")[0], []).append(id)
    at = {id: n / len(part) for part in parts.values() for n, id in enumerate(part)}
    return sorted(_all(), key=lambda id: (_all()[id].kind != "healthy", _all()[id].later, at[id]))


def cases(engine: str = "") -> list[Case]:
    """Return all cases, or those that an engine takes."""
    return [case for case in _all().values() if not engine or engine in case.launch]


def contract(family: str) -> str:
    """Return the contract of a family that no name in a config tells, as a user would give it; "" for others."""
    return str(_data()["family"][family].get("contract", ""))


def case(id: str) -> Case:
    """Return the case of an id."""
    return _all()[id]


def shows() -> dict[str, list[str]]:
    """Return what is known to go wrong, in words, and the ids of cases that show it."""
    return {what: list(ids) for what, ids in _data()["shows"].items()}


def _family(family: str) -> Iterator[Case]:
    row = _data()["family"][family]
    base = Case(
        f"{family}/{HEALTHY}", family, tuple(row["pair"]), (), _launch(row, {}, row["engines"]), row.get("env", {}), "",
        row.get("facts", {}), kind="healthy", subject=f"{row.get('as', family)}/{HEALTHY}",
    )  # fmt: skip
    yield base
    broken = replace(base, kind="broken", twin=base.id)
    whole = _model(base.pair[1])
    for kind, globs in row.get("faults", {}).items():
        fits, change = KINDS[kind]
        for name, held in whole.tensors.items():
            if fits(held) and _any(name, globs):
                made = _called(broken, f"{name}/{kind}")
                made = replace(made, faults=(tensor(name, change),))
                made = replace(made, kind="perturbed" if kind == "perturbed" else "broken")
                yield replace(made, hidden=_silent(made, base))
    for edits in (*_keys(_data()["keys"].get(row.get("keys"), {}), whole.config), *_written(family)):
        yield _case(broken, base, row, edits)


def _keys(keys: Mapping[str, Sequence[Any]], config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the edits that spoil config keys: each absent, null, and as the file says."""
    for key, values in keys.items():
        held: Any = config
        for part in key.split("."):
            held = held.get(part) if isinstance(held, dict) else None
        if held is not None:
            yield {"id": f"key/{key}/absent", "unset": [key]}
        yield {"id": f"key/{key}/null", "set": {key: "null"}}
        for value in values:
            what = value if isinstance(value, dict) else {"is": value}
            by = held + what["by"] if "by" in what else what["is"]
            name = what.get("id") or (f"{what['by']:+}" if "by" in what else json.dumps(by, separators=(",", ":")))
            edits = {part: what[part] for part in what if part not in ("is", "by", "id")}
            yield {"id": f"key/{key}/{name.strip(chr(34))}", "set": {key: by}, **edits}


def _written(family: str) -> Iterator[dict[str, Any]]:
    """Yield the edits of the cases that are written out for a family, after those that each is like."""
    found: dict[str, dict[str, Any]] = {}
    for group in _data()["group"]:
        if family in group["families"]:
            common = {key: value for key, value in group.items() if key not in ("families", "cases")}
            for own in group["cases"]:
                edits = {**common, **own}
                if "like" in edits:
                    first = {key: value for key, value in found[edits["like"]].items() if key not in NOT_TAKEN}
                    edits = {"twin": edits["like"], **_merged(first, edits)}
                found[edits["id"]] = edits
                yield edits


def _merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: {**first[key], **then[key]} for key in first if isinstance(first[key], dict) and key in then}
    return {**first, **then, **both}


def _called(case: Case, name: str) -> Case:
    of = case.subject.partition("/")[0]
    return replace(case, id=f"{case.family}/{name}", subject=f"{of}/{name}")


def _silent(made: Case, twin: Case) -> bool:
    seen, whole = metadata(made), metadata(twin)
    same = (seen.target, seen.drafter, seen.launch, seen.env) == (whole.target, whole.drafter, whole.launch, whole.env)
    return same and made.request == twin.request


def _case(broken: Case, base: Case, row: Mapping[str, Any], edits: Mapping[str, Any]) -> Case:
    kind = edits.get("kind", "broken")
    twin = edits.get("twin", HEALTHY if kind != "healthy" else "")
    facts = {**broken.facts, **edits.get("facts", {})}
    if edits.get("hidden"):  # nothing that is declared tells of it either
        facts = {key: value for key, value in facts.items() if key not in edits.get("set", {})}
    made = replace(
        _called(broken, edits["id"]), pair=(edits.get("target", base.pair[0]), edits.get("drafter", base.pair[1])),
        faults=tuple(_faults(edits)), kind=kind, facts=facts, twin=f"{broken.family}/{twin}" if twin else "",
        launch=_launch(row, edits, [e for e in row["engines"] if e in edits.get("engines", row["engines"])]),
        env={**base.env, **edits.get("env", {})}, feature=edits.get("feature", False),
        folder=edits.get("folder", base.folder), request=edits.get("request", {}),
    )  # fmt: skip
    return replace(made, hidden=edits.get("hidden", kind == "broken" and made.twin == base.id and _silent(made, base)))


def _faults(edits: Mapping[str, Any]) -> Iterator[Fault]:
    if "set" in edits or "unset" in edits:
        yield config(edits.get("set", {}), edits.get("unset", ()))
    for name, to in edits.get("tensors", {}).items():
        yield _shaped(name, to)
    if "drop" in edits:
        yield _dropped(edits["drop"])
    for start, to in edits.get("rename", {}).items():
        yield _renamed(start, to, edits.get("keep", ()))
    for to, parts in edits.get("fuse", {}).items():
        yield _fused(parts, to)
    for name, dtype in edits.get("dtypes", {}).items():
        yield tensor(name, partial(_typed, dtype))
    for name, how in edits.get("values", {}).items():
        yield tensor(name, _values(VALUES[how]))
    if "weights" in edits:
        yield _named(edits["weights"])
    if "shards" in edits:
        yield _sharded(edits["shards"], edits.get("index", {}), edits.get("lost", ()))
    if "files" in edits:
        yield _beside(edits["files"])


def _typed(dtype: str, name: str, held: Tensor) -> tuple[str, Tensor]:
    return name, replace(held, dtype=dtype)


def _launch(row: Mapping[str, Any], edits: Mapping[str, Any], engines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    plan = _data()["launch"][row["launch"]]
    spec = {**plan.get("spec", {}), **row.get("spec", {}), **edits.get("spec", {})}
    spec = {key: None if value == "null" else value for key, value in spec.items() if value != "absent"}
    lines = {}
    for engine in engines:
        words = list(plan[engine])
        for flag, value in {**row.get("flags", {}).get(engine, {}), **edits.get("flags", {})}.items():
            at = words.index(flag) if flag in words else len(words)
            gone = at + 2 if at + 1 < len(words) and not words[at + 1].startswith("--") else at + 1
            words[at:gone] = [] if value == "absent" else [flag] if value is True else [flag, str(value)]
        lines[engine] = tuple(json.dumps(spec) if word == "{spec}" else word for word in words)
    return lines
