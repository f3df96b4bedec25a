"""What is known of an engine: how it reads a drafter, as data. Frozen records, imported only where one is asked for.

An engine is a profile and the classes of its drafters. The profile says which method and class a config and a launch
lead to, which layers of the target are captured, and what else happens under which condition. A class says which
parameters it has, of which shape by the engine's own reading of the config, and how a tensor of the file finds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self, dataclass_transform

from draftproof.compiled import Group
from draftproof.contracts import EngineRow, Loop
from draftproof.dims import Expr, like
from draftproof.findings import nearest

STAGES = ("flags", "config", "convert", "load", "run")  # in the order in which an engine reaches them


@dataclass_transform(frozen_default=True)
class Record:
    """Hold named values, as a NamedTuple does; but its class is made at once, and a check waits for that of all."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _known: ClassVar[frozenset[str]] = frozenset()
    _needed: ClassVar[frozenset[str]] = frozenset()  # without a default

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)
        cls._known = frozenset(cls._fields)
        cls._needed = frozenset(f for f in cls._fields if not hasattr(cls, f))

    def __init__(self, *args: Any, **values: Any) -> None:
        if args:
            values |= dict(zip(self._fields, args, strict=False))
        if not self._needed <= values.keys() <= self._known:
            wrong = (values.keys() - self._known) | (self._needed - values.keys())
            raise TypeError(f"{type(self).__name__}: {', '.join(sorted(wrong))}")
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = object.__hash__

    def but(self, **values: Any) -> Self:
        """Return a copy with other values."""
        return type(self)(**(self.__dict__ | values))


class Chosen(Record):
    """Give a text where a condition holds: a method, a runner."""

    is_: str
    when: Expr | None = None
    source: str = ""
    idle: bool = False  # of a method: nothing of the drafter is read
    config: Expr | None = None  # but where this holds, its config


class Renaming(Record):
    """Say how the architectures of a drafter's config become others: replaced, or with a prefix."""

    when: Expr | None
    becomes: tuple[str, ...] = ()
    prefix: str = ""
    unless: tuple[str, ...] = ()  # globs over names that stay
    source: str = ""
    last: bool = False  # what comes later does not count


class AuxKey(Record):
    """Name a config key of aux layer ids, and what is added to an id to get the boundary that is captured."""

    key: str
    offset: int = 0
    when: Expr | None = None
    odd: str = ""  # what is no list of numbers, where that is another thing than the row says
    odd_stage: str = "run"


class Capture(Record):
    """Say which boundaries of the target are captured; boundary b is the input of layer b."""

    keys: tuple[AuxKey, ...]
    default: tuple[Expr, ...]
    when: Expr | None = None
    low: Expr | None = None  # boundaries that the target can capture
    high: Expr | None = None
    checked_low: Expr | None = None  # others are refused, where those beyond low and high are lost
    checked_high: Expr | None = None
    outside: str = "lost"  # a boundary out of range: lost, or the class of the error
    outside_stage: str = "run"
    outside_late: bool = False  # after all else of that stage
    spaced: Expr | None = None  # as many as this says, evenly from the first of default to the last; one: the middle
    empty: str = "default"  # a list of none: default, or the class of the error
    empty_stage: str = "run"
    odd: str = "default"  # what is no list of numbers: default, or the class of the error
    odd_stage: str = "run"
    texts: str = ""  # a list of texts: lost, as none of them is a layer, or the class of the error; "" is odd
    mixed: str = ""  # a list of numbers and others; "" is odd
    mixed_stage: str = "load"
    whole: bool = False  # a number with a fraction part, be it zero, is odd
    cast: bool = False  # each id is made an integer: a fraction is cut off, a text of digits is read
    none: str = ""  # no state at all, where that is another error than fewer
    falsy: bool = False  # whatever counts as false counts as an empty list: 0, false, "", {}
    motley: str = ""  # a table, or a list of several kinds of value: the class of the error, if not that of odd
    motley_stage: str = "convert"
    ordered: bool = False  # they are captured in the order of the list, one twice where it stands twice
    fewer: str = "RuntimeError"  # fewer states than the fusion takes
    more: str = ""  # more of them, if that is another error
    width: Expr | None = None  # how wide the fusion takes a state to be; the target's says how wide it is
    source: str = ""
    basis: str = "read"


class Loader(Record):
    """Say what becomes of a tensor whose shape is another than the parameter's: cut, padded, or a class of error."""

    axis: int | None = None  # the one that is split over ranks; on others all sizes must be equal
    larger: str = ""
    smaller: str = ""
    other: str = "AssertionError"
    flat: bool = False  # the number of elements counts alone
    narrows: str = ""  # the axis is cut before sizes are compared: the class of the error where there is none
    source: str = ""
    stage: str = "load"  # when it is refused
    uneven: str = ""  # the class of the error where the first axis is no multiple of what a parameter says
    ones: bool = False  # axes of one in front count for nothing
    partly: bool = False  # what is smaller on any axis fills a part


class Param(Record):
    """Say of one parameter of a class, or of a row of them, what the engine makes of it."""

    name: str
    shape: tuple[Expr, ...]
    loader: str
    when: Expr | None = None
    over: tuple[Loop, ...] = ()
    missing: str = "noise"  # what it holds where the file has none: noise, ones, zeros, target, or a class of error
    spared: str = ""  # what it holds then where the class spares what is missing, if that is another thing
    shared: Expr | None = None  # where this holds the target's stands in for a missing one
    harmless: Expr | None = None  # where this holds a missing one changes nothing
    replaced: Expr | None = None  # where this holds the target's takes its place, whatever the file has
    unused: Expr | None = None  # where this holds it is loaded, and nothing reads it
    plain: Expr | None = None  # where this holds it is made as it is: one that is stored quantised finds no place
    gives: tuple[str, ...] = ()  # parameters that it holds in one
    early: bool = False  # whether it is there, and its size, are looked at before anything is loaded
    multiple: Expr | None = None  # the first axis must be one of this: it is regrouped when names are found
    pads: str = ""  # tensors of one such name that are all padded alike change nothing
    joined: str = ""  # tensors of one such name are put together first, so that only their sum counts
    source: str = ""


def filled(name: str, index: Mapping[str, object]) -> str:
    """Return a name with numbers in its braces."""
    for i, value in index.items():
        name = name.replace(f"{{{i}}}", str(value))
    return name


class Name(Record):
    """Say how a name in the file becomes that of a parameter; each rule acts on what the one before it gave."""

    to: str
    starts: tuple[str, ...] = ()  # one of them; none: it is put in front
    part: str = ""
    match: str = ""  # a glob: all of the name is replaced
    unless: tuple[str, ...] = ()  # globs


class Skip(Record):
    """Say which tensors are passed over: before they find a parameter, or where they find none."""

    match: tuple[str, ...]  # globs over the name in the file
    as_: str = "harmless"  # or dropped: it was trained with it; target: the target's serves; or a class of error
    when: Expr | None = None
    lost: bool = False  # only one that finds no parameter
    placed: bool = False  # only one whose module is there
    early: bool = False  # before anything is loaded
    stage: str = ""  # when that is refused; "" is when the class looks for parameters
    source: str = ""
    over: tuple[Loop, ...] = ()  # its globs stand for these layers

    def covers(self, name: str, rows: Sequence[Mapping[str, int]] = ({},)) -> bool:
        """Tell whether the rule speaks of a tensor; rows are the numbers that its globs stand for."""
        return any(like(name, filled(glob, row)) for glob in self.match for row in rows)


class DrafterClass(Record):
    """Hold how one class of an engine reads a drafter."""

    id: str
    title: str
    source: str
    dims: Mapping[str, Expr]
    names: tuple[Name, ...]
    skips: tuple[Skip, ...]
    unknown: str  # a tensor that finds no parameter: dropped, or the class of the error
    params: Mapping[str, Param]
    says: str = ""  # the message of that error; {name} is the tensor
    spares: Expr | None = None  # where this holds it is not asked whether all was loaded
    basis: str = "read"
    stage: str = "load"  # when tensors find their parameters
    left: str = ""  # of a file that is converted already: the class of the error for a tensor that finds none
    twice: str = ""  # the class of the error for two tensors that find one parameter; none: the last counts
    twice_says: str = ""


class KeyOf(Record):
    """Say what kinds of value a key of a config class may have, and what it holds where the file has none."""

    kinds: tuple[str, ...]  # int, float, bool, text, list, table, null, any
    default: Any = None  # None: nothing that counts


class Configs(Record):
    """Hold what the classes of a library make of a config: model_type -> key -> what it may hold."""

    id: str
    title: str
    version: str
    source: str
    types: Mapping[str, Mapping[str, Sequence[Any]]]  # as it is written: kinds, and a default
    known: frozenset[str] = frozenset()
    basis: str = "read"

    def keys(self, model_type: str) -> dict[str, KeyOf]:
        """Return the keys of one class; they are made when they are asked for, for one of hundreds is."""
        return {
            key: KeyOf(tuple(str(kinds).split()), *more[:1]) for key, (kinds, *more) in self.types[model_type].items()
        }


class Through(Record):
    """Say through which classes an engine reads configs, and what it raises."""

    is_: tuple[str, ...]  # ids of such classes, the engine's own first
    stage: str = "config"
    unknown: str = ""
    wrong: str = ""
    also: Mapping[str, str] = MappingProxyType({})
    source: str = ""
    when: Expr | None = None  # where this does not hold nothing is known of what they refuse
    target: bool = False  # the target's config goes through them too, before anything else happens
    alone: bool = False  # a config that has no class, or that its class refuses, is read as it stands


class Beside(Record):
    """Show one thing side by side: as the files declare it, as it was trained, as the engine reads it."""

    what: str
    read: Expr
    declared: Expr | None = None
    trained: Expr | None = None
    when: Expr | None = None
    source: str = ""


class Request(Record):
    """Say what becomes of what a request asks for while tokens are drafted; a launch does not show it."""

    id: str
    asks: tuple[str, ...]  # its parameters, as they are written
    does: str  # refused, ignored, undrafted, unseen, otherwise
    source: str
    basis: str = "read"
    when: Expr | None = None
    asked: Expr | None = None  # which values ask for it; without it, any
    error: str = ""
    see: str = ""
    line: Callable[[], str] = str


class Rows(Sequence[EngineRow]):
    """Hold what an engine does, a row each, made when it is first asked for; groups tell which need be."""

    def __init__(self, groups: Sequence[Group], ids: Sequence[str], make: Callable[[int], EngineRow]) -> None:
        self.groups, self.ids, self.make = groups, ids, make
        self._made: dict[int, EngineRow] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, n: Any) -> Any:
        if isinstance(n, slice):
            return [self[k] for k in range(*n.indices(len(self)))]
        n = range(len(self))[n]
        if n not in self._made:
            self._made[n] = self.make(n)
        return self._made[n]


class Version(Record):
    """Name a version that was read, and whether it was run too; in part: only what rows say of it."""

    is_: str
    basis: str = "read"
    also: tuple[str, ...] = ()  # other spellings of it, as the number of a build


class Profile(Record):
    """Hold how one engine, at the versions that were read, comes to a drafter's class and what it does with it."""

    id: str
    title: str
    engine: str
    versions: tuple[Version, ...]
    codes: Mapping[str, str]  # kind of finding -> code
    facts: Mapping[str, Expr]
    runners: tuple[Chosen, ...]
    methods: tuple[Chosen, ...]
    lifts: tuple[str, ...]  # tables of a drafter's config whose keys come to the top
    renamings: tuple[Renaming, ...]
    registry: Mapping[str, tuple[str, ...]]  # class -> architectures
    others: tuple[str, ...]  # globs over architectures that it has code for, which was not read
    unregistered: EngineRow | None
    hooks: Mapping[str, tuple[str, ...]]  # method -> globs over the architectures of targets that serve it
    hookless: tuple[EngineRow, ...]  # the first that applies counts
    targets: tuple[str, ...]  # globs over the architectures of targets whose class was read; none: all
    captures: tuple[Capture, ...]
    loaders: Mapping[str, Loader]
    rows: Rows
    formats: tuple[str, ...] = ()  # formats of files, beside safetensors, that it reads a drafter from
    portable: Mapping[str, tuple[Expr, ...]] = MappingProxyType({})  # key -> values that only say how it is loaded
    beside: tuple[Beside, ...] = ()
    ranges: Mapping[str, Expr] = MappingProxyType({})  # class -> when a version has it; any other is in all
    configs: Through | None = None
    unnamed: EngineRow | None = None  # what happens where a config names no architecture, if that is another thing
    unserved: EngineRow | None = None  # what happens with a target that is in none of its lists, where they are whole
    first: bool = False  # only the first architecture counts
    alike: Mapping[str, str] = MappingProxyType({})  # method -> another, whose targets serve it too
    lift_with: str = ""  # a key: only beside it the tables are read in place of the whole
    lift_keeps: tuple[str, ...] = ()  # keys that are read from the whole first
    overrides: str = ""  # a flag whose JSON object takes the place of keys of both configs
    overrides_of: str = ""  # or of the target's, or the drafter's, alone
    overrides_late: tuple[str, ...] = ()  # keys of that object that come too late: the file's were read before
    overrides_stage: str = ""  # when a value of the wrong kind is refused that stands there
    index: str = ""  # the only index that counts: without it every safetensors file is read, by name
    index_before: str = ""  # without it: a glob over files that are read alone where there are some
    serves: tuple[str, ...] = ()  # classes by which it makes a target, too
    makes: tuple[str, ...] = ()  # classes by which it makes the whole of a target, as it makes a drafter
    instead: tuple[str, ...] = ()  # where no more than these two files are there, the first is passed over
    lift_by: str = ""  # a key of the whole whose text says which others are
    lift_alone: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # that text -> keys that the whole alone says
    lift_copies: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # that text -> such keys
    lift_over: bool = False  # what the tables do not state is read from the whole
    unstated: Mapping[str, str] = MappingProxyType({})  # model_type of a target -> what it is taken for without a name
    unhooked: tuple[str, ...] = ()  # globs over targets that serve none; of any other that is not known
    requests: tuple[Request, ...] = ()
    misread: Mapping[str, str] = MappingProxyType({})  # code of what is wrong with a tensor's bytes -> what that does


class Flag(Record):
    """Say of one flag how it is written, what it takes, and where its value goes."""

    dest: str
    names: tuple[str, ...]
    off: tuple[str, ...] = ()  # names that store false
    type: str = "str"
    takes: str = "one"  # none, one, optional, some, any, or a count
    value: Any = True  # what it holds where no value is given
    off_value: Any = False
    choices: tuple[Any, ...] = ()
    low: float | None = None  # the least number that is taken
    high: float | None = None
    never: tuple[float, ...] = ()  # numbers that are not taken, though others beside them are
    form: str = ""  # what the whole text must match
    says: str = ""  # what that is, in words
    words: Mapping[str, Any] = MappingProxyType({})  # texts that are taken beside those of the type -> value
    default: Any = None
    unset: tuple[Any, ...] = ()  # values that are as if it were not given
    many: bool = False  # given again, it adds
    joins: str = ""  # given again it adds, with a comma; this word counts where there is no other
    dashes: bool = False  # keys of its table may be written with dashes
    null: bool = False  # an empty text, and None, stand for nothing
    held: str = ""  # what its value must be once it is typed; refused later than by the reading of flags
    keys: tuple[str, ...] = ()  # of its table
    kinds: Mapping[str, str] = MappingProxyType({})  # key of its table -> what it takes: int, bool; null with a ?
    gone: str = ""  # the engine had it once, and refuses it: what to use instead
    env: str = ""  # the variable that sets it where it is not given
    apart: tuple[str, ...] = ()  # all that its short name takes as a word of its own

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many words it takes, at least and at most."""
        known = {"none": (0, 0), "one": (1, 1), "optional": (0, 1), "some": (1, 1 << 30), "any": (0, 1 << 30)}
        return known[self.takes] if self.takes in known else (int(self.takes), int(self.takes))


class Command(Record):
    """Give the words of a command that launches an engine; the first is a glob over the name of the program."""

    words: tuple[str, ...]
    positional: str = ""  # where a word goes that belongs to no flag
    front: bool = False  # and that is the first
    once: bool = False  # that flag, given by its name, takes the place of the word
    leads: tuple[str, ...] = ()  # dests of flags beside which that word must come first


class Advice(Record):
    """Say of one flag, or a key of it, what it should be, when and why."""

    flag: str
    value: Expr
    when: Expr | None
    because: str
    source: str = ""
    basis: str = "read"
    find: str = ""  # where a user finds the value, if it is not known here


class Launches(Record):
    """Hold how one engine is launched: its commands, its flags as its own parser has them, and what is right."""

    id: str
    title: str
    engine: str
    version: str
    source: str
    commands: tuple[Command, ...]
    flags: tuple[Flag, ...]
    packages: tuple[str, ...] = ()  # whose version is the engine's
    images: tuple[str, ...] = ()
    entry: bool = False  # an image runs the first command where none is named
    target: tuple[str, ...] = ()  # dests that name the model
    drafter: tuple[str, ...] = ()
    target_revision: tuple[str, ...] = ()  # dests that name its commit, or a branch
    drafter_revision: tuple[str, ...] = ()
    abbreviations: bool = False
    equals: bool = True
    underscores: bool = False
    dotted: bool = False
    unread: tuple[str, ...] = ()  # dests of files with more flags
    unread_whole: bool = False  # those count alone that are named by two words
    truthy: tuple[str, ...] = ()  # values of a variable that set a flag which takes none, and that turn it off
    falsy: tuple[str, ...] = ()
    negated: tuple[str, ...] = ()  # two starts: of a variable, and of that which turns the same flag off
    own: Expr | None = None  # where this holds, and no drafter is named, the target's own checkpoint is read for one
    advice: tuple[Advice, ...] = ()

    @cached_property
    def names(self) -> Mapping[str, Flag]:
        """Return every way to write a flag."""
        return {name: flag for flag in self.flags for name in (*flag.names, *flag.off)}

    @cached_property
    def variables(self) -> Mapping[str, Flag]:
        """Return the variables that set a flag, or turn it off."""
        found = {flag.env: flag for flag in self.flags if flag.env}
        for start, off in [self.negated] if self.negated else ():
            found |= {flag.env.replace(start, off, 1): flag for flag in self.flags if flag.off and start in flag.env}
        return found

    def flag(self, dest: str) -> Flag:
        """Return the flag of a dest."""
        return next(flag for flag in self.flags if flag.dest == dest)

    def spelt(self, name: str) -> str:
        """Return the name of a flag as the table has it."""
        return name.replace("_", "-") if self.underscores and name.startswith("--") else name

    def find(self, name: str, exact: bool = False) -> list[Flag]:
        """Return the flags that a name can mean: one, none, or all those that begin so."""
        name = self.spelt(name)
        if name in self.names:
            return [self.names[name]]
        if exact or not self.abbreviations or not name.startswith("--") or len(name) < 3:
            return []
        return list({f.dest: f for n, f in self.names.items() if n.startswith(name) and not f.gone}.values())

    def is_off(self, flag: Flag, name: str) -> bool:
        """Tell whether a name of a flag is one that turns it off."""
        name = self.spelt(name)
        return name in flag.off or (name not in flag.names and any(n.startswith(name) for n in flag.off))

    def close(self, name: str) -> str:
        """Return " (did you mean X?)" for the flag whose name is nearest."""
        return nearest(self.spelt(name)[:100], self.names)


# --- other formats ---------------------------------------------------------------------------------------------


class KeyIn(Record):
    """Say where a config key's value stands: in metadata keys, or in how long a list or a tensor is."""

    from_: tuple[str, ...] = ()
    length: str = ""  # a list: how many elements it has
    rows: str = ""  # a tensor: how many rows it has
    lacks: str = ""  # a tensor: whether there is none of that name
    add: int = 0  # to each id of a list


class TypeIn(Record):
    """Say of which types an engine takes a key of such a file, and whether it needs it."""

    is_: tuple[str, ...]
    needed: bool = False
    where: Mapping[str, Any] = MappingProxyType({})  # another key -> what that says where it is needed


class Drafters(Record):
    """Say of one architecture what a config of it states, and which keys it has beside those of all."""

    set: Mapping[str, Any]
    keys: Mapping[str, KeyIn]
    target: bool = False  # only as a target: how tensors of such a drafter are named is not known
    types: Mapping[str, TypeIn] = MappingProxyType({})


class Format(Record):
    """Say which keys of another format are which of a config; ``from`` lists those that say it, the first counts."""

    id: str
    title: str
    source: str
    suffix: str
    keys: Mapping[str, KeyIn]
    architectures: Mapping[str, Drafters]
    types: Mapping[str, TypeIn] = MappingProxyType({})  # key of the file, {a} for the architecture -> how it is read
