"""What a trainer's contract is: frozen records, apart from the others because few commands need them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from draftproof.dims import Expr


class Conversion(NamedTuple):
    """Say how the config of another family becomes one of a trainer's."""

    family: str
    lift: str = ""
    nest: str = ""
    top: tuple[str, ...] = ()
    move: Mapping[str, str] = MappingProxyType({})
    copy: Mapping[str, str] = MappingProxyType({})
    remove: tuple[str, ...] = ()
    lacking: Mapping[str, Any] = MappingProxyType({})


class TrainerLayout(NamedTuple):
    """Say of one family how a trainer writes it, and what it asks of a drafter to start from."""

    family: str
    dialect: str
    architectures: tuple[str, ...]
    see: str
    basis: str
    source: str
    takes: str = ""
    writes: tuple[str, ...] = ()
    needs: Mapping[str, Expr] = MappingProxyType({})
    refuses: Mapping[str, Expr] = MappingProxyType({})
    replaces: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    converts: tuple[Conversion, ...] = ()
    targets: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    over: tuple[str, ...] = ()


class Start(NamedTuple):
    """Say how a trainer starts from a drafter: from a folder, from its own checkpoints only, or not at all."""

    takes: str
    see: str
    basis: str
    source: str
    setting: str = ""


class MapFile(NamedTuple):
    """Name a file that gives a trainer the draft vocabulary, and what its entries are; "" is the whole file."""

    name: str
    form: str
    holds: Mapping[str, str]


class MapRule(NamedTuple):
    """Say what a trainer does with the drafter's d2t, and the files by which it takes one."""

    otherwise: str
    see: str
    basis: str
    source: str
    setting: str = ""
    files: tuple[MapFile, ...] = ()


class CaptureRule(NamedTuple):
    """Say how far the ids of layers are from boundaries, for some targets and ids."""

    offset: int
    see: str
    basis: str
    source: str
    architectures: tuple[str, ...] = ()
    when: Expr | None = None


class Capture(NamedTuple):
    """Say which layers of the target a trainer captures: where it reads the ids, and what they mean to it."""

    rules: tuple[CaptureRule, ...]
    families: tuple[str, ...] = ()
    setting: str = ""
    keys: tuple[str, ...] = ()
    also: bool = False
    default: tuple[Expr, ...] = ()


class TargetName(NamedTuple):
    """Name the setting by which a trainer finds a tensor of the target, and its default."""

    part: str
    setting: str
    default: str
    basis: str
    source: str


class TrainerRow(NamedTuple):
    """State one thing that a trainer does with a drafter's config key, and when."""

    id: str
    key: str
    outcome: str
    see: str
    basis: str
    source: str
    line: str
    when: Expr | None = None
    value: Any = None
    unless: str = ""
    families: tuple[str, ...] = ()


class Trainer(NamedTuple):
    """Hold what was read of one trainer at one version."""

    id: str
    title: str
    version: str
    source: str
    start: Start
    layouts: tuple[TrainerLayout, ...]
    map: MapRule
    captures: tuple[Capture, ...]
    names: tuple[TargetName, ...] = ()
    rows: tuple[TrainerRow, ...] = ()

    def layout(self, family: str) -> tuple[TrainerLayout | None, Conversion | None]:
        """Return the layout that takes drafters of a family, and how their config is converted, if it must be."""
        own = next((row for row in self.layouts if row.family == family), None)
        if own is not None:
            return own, None
        return next(((row, c) for row in self.layouts for c in row.converts if c.family == family), (None, None))
