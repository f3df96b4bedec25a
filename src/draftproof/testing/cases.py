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
from functools import cache
from pathlib import Path
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

    @property
    def tokens(self) -> int:
        """Return how many tokens to generate."""
        return COUNTED if self.pair[0] in fixtures.known_models() else TOKENS

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
    target, drafter = (Side(made.config, made.table, tuple(made.files)) for made in models(case))
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
        "id": case.id, "family": case.family, "target": name, "drafter": case.folder, "prompt": list(_prompt(case)),
        "tokens": case.tokens, "order": list(_all()).index(case.id), "launch": case.launch, "env": case.env,
        "twin": case.twin, "feature": case.feature,
    }  # fmt: skip
    path = place / "case.json"
    path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return path


def _same(one: Model, other: Model) -> bool:
    same = one.tensors.keys() == other.tensors.keys() and all(t is other.tensors[n] for n, t in one.tensors.items())
    return same and one.config == other.config and one.files.keys() == other.files.keys()


def _prompt(case: Case) -> Sequence[int]:
    known = case.pair[0] in fixtures.known_models()
    return fixtures.known().prompt if known else PROMPT


# --- faults -------------------------------------------------------------------------------------------------------


def config(changes: Mapping[str, Any], without: Sequence[str] = ()) -> Fault:
    """Return a fault that sets and removes dotted config keys; `target.` in front means the target's."""

    def fault(target: Model, drafter: Model) -> None:
        for key in (*changes, *without):
            side, name = (target, key[7:]) if key.startswith("target.") else (drafter, key)
            *path, last = name.split(".")
            table = side.config
            for part in path:
                if not isinstance(table.get(part), dict):
                    table[part] = {}
                table = table[part]
            if key in changes:
                table[last] = json.loads(json.dumps(changes[key]))
            else:
                table.pop(last, None)

    return fault


def tensor(name: str, change: Callable[[str, Tensor], tuple[str, Tensor] | None]) -> Fault:
    """Return a fault that renames, replaces or removes one tensor of the drafter, in its place."""

    def fault(target: Model, drafter: Model) -> None:
        made: dict[str, Tensor] = {}
        for at, held in drafter.tensors.items():
            found = change(at, held) if at == name else (at, held)
            made |= {found[0]: found[1]} if found else {}
        drafter.tensors = made

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
    "shorter": (lambda t: True, _resized(0, -STEP)),
    "wider": (lambda t: len(t.shape) == 2, _resized(1, STEP)),
    "narrower": (lambda t: len(t.shape) == 2, _resized(1, -STEP)),
    "cast": (lambda t: True, _cast),
    "nan": (lambda t: t.dtype == "F32", _values(_nan)),
    "zero": (lambda t: True, _values(lambda x: x * 0)),
    "perturbed": (lambda t: True, _values(_perturbed)),
}


def _absolute(values: Any) -> Any:
    return values + range(len(values))


VALUES: dict[str, Callable[[Any], Any]] = {  # what a case may do to a tensor's values
    "absolute": _absolute,
    "nan": _nan,
    "perturbed": _perturbed,
    "zero": lambda x: x * 0,
    "constant": lambda x: x * 0 + 5 - range(len(x)),
    "beyond": lambda x: x + 10000,
    "reversed": lambda x: x[::-1],
    "doubled": lambda x: x * 2,
}


def _shaped(name: str, to: Any) -> Fault:
    if to == "missing":
        return tensor(name, lambda at, held: None)
    if isinstance(to, str):
        return tensor(name, lambda at, held: (to.removeprefix("= "), held))

    def fault(target: Model, drafter: Model) -> None:
        dtype, shape = (to[0], to[1:]) if isinstance(to[0], str) else ("F32", to)
        kind = "norm" if len(shape) == 1 and not name.endswith("bias") else "weight" if len(shape) > 1 else "bias"
        made = fixtures.tensor(drafter.name, name, kind, tuple(shape), drafter.config)
        drafter.tensors[name] = replace(made, dtype=dtype)

    return fault


def _renamed(start: str, to: str, keep: Sequence[str]) -> Fault:
    def fault(target: Model, drafter: Model) -> None:
        drafter.tensors = {
            to + name.removeprefix(start) if name.startswith(start) and name not in keep else name: held
            for name, held in drafter.tensors.items()
        }

    return fault


# --- what the file says -------------------------------------------------------------------------------------------


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))


@cache
def _all() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for family in _data()["family"]:
        for case in _family(family):
            if case.id in found:
                raise ValueError(f"two cases are called {case.id}")
            found[case.id] = case
    for case in found.values():
        if case.twin and case.twin not in found:
            raise ValueError(f"{case.id}: its twin {case.twin} is no case")
    return found


def cases(engine: str = "") -> list[Case]:
    """Return all cases, or those that an engine takes."""
    return [case for case in _all().values() if not engine or engine in case.launch]


def case(id: str) -> Case:
    """Return the case of an id."""
    return _all()[id]


def _family(family: str) -> Iterator[Case]:
    row = _data()["family"][family]
    base = Case(
        f"{family}/{HEALTHY}", family, tuple(row["pair"]), (), _launch(row, {}, row["engines"]), {}, "",
        row.get("facts", {}), kind="healthy",
    )  # fmt: skip
    yield base
    broken = replace(base, kind="broken", twin=base.id)
    for kind in row.get("kinds", ()):
        fits, change = KINDS[kind]
        for name, held in _model(base.pair[1]).tensors.items():
            if fits(held):
                made = replace(broken, id=f"{family}/{name}/{kind}", faults=(tensor(name, change),))
                made = replace(made, kind="perturbed" if kind == "perturbed" else "broken")
                yield replace(made, hidden=_silent(made, base))
    for edits in _data()["case"]:
        for_families = edits.get("families", [name for name, other in _data()["family"].items() if "kinds" in other])
        if family in for_families:
            yield _case(broken, base, row, edits)


def _silent(made: Case, twin: Case) -> bool:
    seen, whole = metadata(made), metadata(twin)
    return (seen.target, seen.drafter, seen.launch, seen.env) == (whole.target, whole.drafter, whole.launch, whole.env)


def _case(broken: Case, base: Case, row: Mapping[str, Any], edits: Mapping[str, Any]) -> Case:
    faults: list[Fault] = []
    if "set" in edits or "unset" in edits:
        faults.append(config(edits.get("set", {}), edits.get("unset", ())))
    if "rename" in edits:
        start, to = edits["rename"]
        faults.append(_renamed(start, to, edits.get("keep", ())))
    faults += [_shaped(name, to) for name, to in edits.get("tensors", {}).items()]
    faults += [tensor(name, _values(VALUES[how])) for name, how in edits.get("values", {}).items()]
    made = replace(
        broken, id=f"{broken.family}/{edits['id']}", faults=tuple(faults),
        launch=_launch(row, edits, [e for e in row["engines"] if e in edits.get("engines", row["engines"])]),
        env=edits.get("env", {}), twin=f"{broken.family}/{edits.get('twin', HEALTHY)}",
        facts={**broken.facts, **edits.get("facts", {})}, feature=edits.get("feature", False),
        folder=edits.get("folder", broken.folder),
    )  # fmt: skip
    return replace(made, hidden=edits.get("hidden", _silent(made, base)))


def _launch(row: Mapping[str, Any], edits: Mapping[str, Any], engines: Sequence[str]) -> dict[str, tuple[str, ...]]:
    plan = _data()["launch"][row["launch"]]
    spec = {key: value for key, value in {**plan["spec"], **edits.get("spec", {})}.items() if value != "absent"}
    lines = {}
    for engine in engines:
        words = list(plan[engine])
        for flag, value in edits.get("flags", {}).items():
            at = words.index(flag) if flag in words else len(words)
            gone = at + 2 if at + 1 < len(words) and not words[at + 1].startswith("--") else at + 1
            words[at:gone] = [] if value == "absent" else [flag] if value is True else [flag, str(value)]
        lines[engine] = tuple(json.dumps(spec) if word == "{spec}" else word for word in words)
    return lines
