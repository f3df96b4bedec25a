"""What a contract is: a frozen record of a family, target, scheme, pair, model or engine. Nothing here reads a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from draftproof.dims import ELEMENT_NAMES, PREDICATES, Dim, Expr, like
from draftproof.findings import Finding, Level

MAX_DIMS = 400
MAX_TENSORS = 2000
MAX_CHAIN = 100  # nested operations along a chain of defaults, each dim one more
RESERVED = ELEMENT_NAMES | {"j", "true", "false", "len", "min", "max", *PREDICATES}  # no names of dims


# --- what a contract is -------------------------------------------------------------------------------------------


class Loop(NamedTuple):
    """Run an index from first up to, not including, stop."""

    name: str  # i or j
    first: Expr
    stop: Expr
    step: int = 1


class TensorRule(NamedTuple):
    """Say of one canonical tensor, or of a row of them, what it must be."""

    name: str  # may hold {i} and {j}
    shape: tuple[Expr, ...]
    dtype: tuple[str, ...]
    presence: str = "required"
    when: Expr | None = None
    otherwise: str = "forbidden"
    over: tuple[Loop, ...] = ()  # one for each index in the name
    group: str = ""
    init: str = "normal"
    missing: str = "TEN401"
    misfit: str = "TEN403"
    line: str = ""


class KeyRule(NamedTuple):
    """Say of one config key what it must be."""

    key: str
    type: str = ""
    required: bool = False
    check: Expr | None = None
    one_of: tuple[str, ...] = ()
    when: Expr | None = None
    severity: Level = "error"
    code: str = "CFG307"
    because: str = ""
    line: str = ""


@dataclass(frozen=True)
class Dialect:
    """Translate names on disk to canonical names, and back; the longest prefix counts, so order never matters."""

    name: str
    rename: Mapping[str, str]  # disk prefix -> canonical prefix
    bare: tuple[str, ...] = ()
    flag: str = ""
    format: str = ""  # of the files that it is for; "" is safetensors and torch

    @cached_property
    def _there(self) -> list[tuple[str, str]]:
        return sorted(self.rename.items(), key=lambda row: -len(row[0]))

    @cached_property
    def _back(self) -> list[tuple[str, str]]:
        return sorted(self.rename.items(), key=lambda row: -len(row[1]))

    def decode(self, disk: str) -> str | None:
        """Return the canonical name of a name on disk, or None where this dialect never writes such a name."""
        for old, new in self._there:
            if (rest := _behind(disk, old)) is not None:
                name = new.replace("{i}", rest[0]) + rest[1]
                return name if self.encode(name) == disk else None
        return disk if self.encode(disk) == disk else None

    def encode(self, name: str) -> str:
        """Return the name on disk of a canonical name."""
        if not (self.bare and name.startswith(self.bare)):
            for old, new in self._back:
                if (rest := _behind(name, new)) is not None:
                    return old.replace("{i}", rest[0]) + rest[1]
        return name


def _behind(name: str, prefix: str) -> tuple[str, str] | None:
    """Return the layer's number, for a prefix that has {i}, and what stands behind the prefix; None without it."""
    before, index, after = prefix.partition("{i}")
    if not name.startswith(before):
        return None
    rest = name[len(before) :]
    if not index:
        return "", rest
    number = re.match(r"0|[1-9]\d{0,5}", rest)
    if number is None or not rest.startswith(after, number.end()):
        return None
    return number[0], rest[number.end() + len(after) :]


class Convention(NamedTuple):
    """Give one meaning of aux layer ids: its range, its distance to boundaries, its default layers if it has any."""

    name: str
    low: Expr
    high: Expr
    offset: int
    default: tuple[Expr, ...] = ()


class Meaning(NamedTuple):
    """Say what a name or a key means in a family's checkpoints, where the same one means other things elsewhere."""

    name: str
    because: str
    is_: str = ""
    or_: tuple[str, ...] = ()
    tells: Mapping[str, str] = MappingProxyType({})  # canonical tensor -> meaning
    when: Expr | None = None
    line: str = ""


@dataclass(frozen=True)
class Contract:
    """Hold a family or a target: how it is recognised, its dims, tensors, dialects and config rules."""

    kind: str
    id: str
    title: str
    source: str
    label: str  # file
    extends: str = ""
    detect: Mapping[str, Any] = field(default_factory=dict)  # lists of texts; texts -> a map of them
    dims: Mapping[str, Dim] = field(default_factory=dict)
    tensors: Mapping[str, TensorRule] = field(default_factory=dict)
    dialects: tuple[Dialect, ...] = ()
    config: Mapping[str, KeyRule] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)  # special, eps, ... -> config keys; rope -> a map of them
    aux_keys: tuple[str, ...] = ()
    conventions: Mapping[str, Convention] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    values: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    summary: tuple[str, ...] = ()
    layer: Mapping[str, Any] = field(default_factory=dict)  # name, with {i}; beyond: config keys
    head_lent: bool = False  # without a head of its own it gets the target's
    standalone: bool = False  # a whole model with a tokenizer of its own: it reads tokens alone
    serving: tuple[str, ...] = ()  # files that serving needs beside config and weights
    meanings: Mapping[str, Meaning] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Tell whether other tensors than those named may stand in the file, as in a target."""
        return self.kind == "target" or self.in_target

    @property
    def in_target(self) -> bool:
        """Tell whether its tensors stand among those of its target's own checkpoint."""
        return bool(self.detect.get("in_target"))

    @cached_property
    def _rows(self) -> tuple[tuple[list[str], TensorRule], ...]:
        """Return the name of each rule that has an index, split at it: text, index, text, index, text."""
        return tuple((_PLACE.split(rule.name), rule) for rule in self.tensors.values() if rule.over)

    def rules_for(self, name: str) -> Iterator[tuple[TensorRule, dict[str, int]]]:
        """Yield the rules that speak of a canonical name, with its indices."""
        if (rule := self.tensors.get(name)) and not rule.over:
            yield rule, {}
        for (before, index, *more), row in self._rows:
            if name.startswith(before) and name.endswith(more[-1]):
                inner = name[len(before) : len(name) - len(more[-1])]
                first, _, second = inner.partition(more[0]) if len(more) > 1 else (inner, "", "0")
                if _INDEX.fullmatch(first) and _INDEX.fullmatch(second):
                    yield row, {index: int(first)} | ({more[1]: int(second)} if len(more) > 1 else {})


_INDEX = re.compile(r"0|[1-9]\d{0,5}")
_PLACE = re.compile(r"\{([ij])\}")


class Stored(NamedTuple):
    """Say of one tensor that stands for a quantised weight, or beside it, what it must be."""

    suffix: str  # behind the module's name
    shapes: tuple[tuple[Expr, ...], ...]  # any of them
    dtype: tuple[str, ...] = ()  # () for any
    when: Expr | None = None
    presence: str = "required"


class Layout(NamedTuple):
    """Say how the weight of one module is stored: its parts, and the logical shape that they give."""

    id: str
    main: str  # suffix of the stored weight
    axes: tuple[str, ...]
    logical: Mapping[str, Expr]  # axis name -> size, in order; empty: not told by the header
    tensors: tuple[Stored, ...]
    when: Mapping[str, tuple[str, ...]]
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    applies: Expr | None = None  # over the values
    name: str = ".weight"  # suffix of the logical weight
    checks: tuple[Expr, ...] = ()


class Scheme(NamedTuple):
    """Hold how one producer declares quantised weights, which modules it quantises, and how it stores them."""

    id: str
    title: str
    label: str  # file
    methods: tuple[str, ...]
    marks: tuple[str, ...]
    modules: Mapping[str, Any]
    values: Mapping[str, Dim]
    checks: Mapping[str, Expr]  # of a value, over `it`
    layouts: tuple[Layout, ...]
    beside: tuple[str, ...] = ()

    def suffixes(self) -> dict[str, None]:
        """Return every suffix that the scheme writes behind a module's name, the longest first."""
        all_of = {*self.beside, *(part.suffix for layout in self.layouts for part in layout.tensors)}
        return dict.fromkeys(sorted(all_of, key=lambda s: (-len(s), s)))


class Acceptance(NamedTuple):
    """Accept findings of a code, or of a band, for a reason."""

    code: str
    because: str
    line: str
    subject: str = ""  # a glob over the finding's subject
    observed: str = ""  # a glob over what was seen

    def covers(self, finding: Finding) -> bool:
        """Tell whether a finding falls under it."""
        return (
            like(finding.code, self.code)
            and (not self.subject or like(finding.subject, self.subject))
            and (not self.observed or like(finding.observed, self.observed))
        )


class Shared(NamedTuple):
    """Hold what pairs accept for a reason that they share, where a side is a recording of a provenance, if any."""

    id: str
    title: str
    label: str
    provenance: tuple[str, ...] = ()
    allow: tuple[Acceptance, ...] = ()
    expect_unknown: tuple[Acceptance, ...] = ()


class Fact(NamedTuple):
    """Hold one declared fact and where it was read."""

    value: Any
    source: str


class Pair(NamedTuple):
    """Name a drafter and its target, and what is accepted of them."""

    id: str
    title: str
    label: str
    drafter: str
    target: str
    drafter_revision: str | None = None
    target_revision: str | None = None
    drafter_repo: str = ""  # what a path is said to hold
    target_repo: str = ""
    family: str = ""
    allow: tuple[Acceptance, ...] = ()
    expect_unknown: tuple[Acceptance, ...] = ()
    accepts: tuple[str, ...] = ()  # ids of what is shared
    lines: tuple[str, ...] = ()  # of each
    facts: Mapping[str, Fact] = MappingProxyType({})
    engines: tuple[str, ...] = ()  # that are to serve it
    launch: Mapping[str, str] = MappingProxyType({})  # engine -> how it is launched, as typed

    @property
    def asks(self) -> tuple[str, ...]:
        """Return the engines that it names, those whose launch it gives included."""
        named = {spec.partition("@")[0] for spec in self.engines}
        return (*self.engines, *(id for id in self.launch if id not in named))


class Model(NamedTuple):
    """Hold what is known of a published model beyond its files."""

    id: str
    repo: str
    facts: Mapping[str, Fact]
    aliases: tuple[str, ...] = ()
    contract: Fact | None = None
    parent: str = ""
    relation: str = ""
    source: str = ""


class EngineRow(NamedTuple):
    """State one thing that an engine does with a drafter, and when."""

    id: str
    engine: str
    version: str
    key: str
    when: Expr
    outcome: str
    see: str
    basis: str
    source: str
    stage: str = "load"
    error: str = ""  # the class of what is raised
    effect: str = ""  # which kind of finding it is, if another than its outcome's
    log: str = ""  # what the log says of it
    do: str = ""  # what to do, where that is more than the code's own
    late: bool = False  # after all else of its stage
    since: str = ""  # the first version to which it applies; "" is all
    until: str = ""  # the first to which it no longer applies
    order: str = ""  # the stage among whose it comes, if that is another than the one it is told of
    early: bool = False  # before all else of that stage
    sure: bool = False  # where it cannot be told whether it applies nothing is said
    both: bool = False  # it holds of a target too, as of a drafter of its class
    line: Callable[[], str] = str  # where it stands, when that is asked

    @property
    def does(self) -> str:
        """Return the outcome as a verb."""
        return {"degrades": "runs degraded", "changes": "copes by itself"}.get(self.outcome, self.outcome)


class Engine(NamedTuple):
    """Hold the rows read of one engine at one version."""

    id: str
    title: str
    version: str
    rows: tuple[EngineRow, ...]


class Leftover(NamedTuple):
    """Name what a training run leaves behind: a glob over files, or with / at its end over folders."""

    name: str
    what: str
    severity: Level = "error"


class Secret(NamedTuple):
    """Say how a secret begins, and how long it is at least."""

    prefix: str
    least: int
    what: str
    also: str = ""


class Release(NamedTuple):
    """Hold what a published drafter must and must not hold."""

    id: str
    title: str
    source: str
    leftovers: tuple[Leftover, ...] = ()
    wrappers: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    secret_keys: tuple[str, ...] = ()
    other_formats: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    wrong_relations: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()


AnyContract = Contract | Scheme | Pair | Shared | Model | Engine | Release
