"""Rung 3: what an engine will do with a drafter. One interpreter of profiles; every fact of an engine is data.

``predict`` walks the way that an engine goes, and stops nowhere: which runner and method, which architecture and so
which class, which layers it captures, what becomes of each tensor, what each parameter holds in the end, and the rows
that apply. Each step yields effects. What they come to is decided last: the first refusal, else the worst effect.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from draftproof.checkpoint import Checkpoint, Table, damaged
from draftproof.compiled import Head, grouped
from draftproof.conform import View, conform, looked_for_all
from draftproof.contracts import EngineRow, Fact, Loop
from draftproof.dims import (
    Absent,
    Expr,
    ExprError,
    Known,
    Seen,
    Unknown,
    Within,
    braced,
    kind_of,
    like,
    ordered,
    parse,
    spans,
    value_of,
    words,
)
from draftproof.findings import Finding, Level, finding, holds, unknown, visible, whole
from draftproof.hub import Source
from draftproof.library import Library
from draftproof.pair import Couple
from draftproof.profiles import (
    STAGES,
    AuxKey,
    Capture,
    Chosen,
    Configs,
    DrafterClass,
    KeyOf,
    Launches,
    Name,
    Param,
    Profile,
    Record,
    Request,
    Rows,
    Skip,
    Through,
    filled,
)
from draftproof.strict import CONFIG_LIMIT
from draftproof.versions import resolve

WHOLE_LIMIT = 1 << 20  # bytes of a JSON file that is read whole for a rule
MAX_PARAMS = 20_000  # of a class; a config that says more is not believed
OUTCOMES = ("refuses", "degrades", "unknown", "changes")  # an effect's, the worst first
MEANT = "as meant"
HELD = ("noise", "ones", "zeros", "target")  # what a parameter can hold; any other text is a class of error


class Effect(Record):
    """State one thing that the engine does: its outcome, when, with which error, and what will be seen of it."""

    outcome: str
    stage: str
    kind: str  # refuses, ignored, cut, unset, layers, replaced, reads, stops, launch, copes
    subject: str
    see: str
    error: str = ""
    source: str = ""
    basis: str = "read"
    line: Callable[[], str] = str
    note: str = ""
    log: str = ""  # what the log says; without it, nothing
    do: str = ""  # where it is more than the code's own
    worst: str = "refuses"  # of one that is unknown: what it may turn out to be
    late: bool = False  # after all else of its stage
    early: bool = False  # before all else of it
    order: str = ""  # the stage among whose it comes, if that is another


class Prediction:
    """Hold what an engine is predicted to do with one drafter, and everything that it rests on."""

    def __init__(self, profile: Profile, version: str, exact: bool = True, asked: str = "") -> None:
        self.profile, self.version, self.exact = profile, version, exact  # exact: the version was read
        self.asked = asked  # the version that was asked for
        self.near = True  # the version that was read stands in for it
        self.runner = self.method = self.class_ = ""
        self.effects: list[Effect] = []
        self.captured: list[int] | None = None  # boundaries of the target: b is the input of layer b
        self.lost: list[int] = []  # boundaries that are asked for and not there
        self.beside: list[str] = []  # declared, trained and read, a thing a line
        self.requests: list[Request] = []  # what becomes of what requests ask for
        self.world: World | None = None  # what was asked on the way

    @cached_property
    def run(self) -> bool:
        """Tell whether its version was run, and not only read."""
        return all(v.basis == "run" for v in self.profile.versions if v.is_ == self.version)

    @cached_property
    def in_part(self) -> bool:
        """Tell whether the version that was asked for was read in part: what its rows say is told of it."""
        return any(v.basis == "part" and v.is_ == self.asked for v in self.profile.versions)

    @cached_property
    def refusal(self) -> Effect | None:
        """Return the refusal that comes first."""
        refusals = [e for e in self.effects if e.outcome == "refuses"]
        return min(refusals, key=lambda e: (STAGES.index(e.order or e.stage), not e.early, e.late), default=None)

    @property
    def outcome(self) -> str:
        """Return refuses, degrades, unknown, or as meant; what may yet be refused is not known to run."""
        found = {e.outcome for e in self.effects}
        if "refuses" not in found and any(e.outcome == "unknown" and e.worst == "refuses" for e in self.effects):
            return "unknown"
        return next((one for one in ("refuses", "degrades", "unknown") if one in found), MEANT)


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
        if flags is not None:
            from draftproof.launch import at_version  # noqa: PLC0415 (only where a launch is given)

            flags = at_version(flags, one.engine, one.version, library)
        torn = target is not None and target.checkpoint.source.stated.get("part")
        theirs = (
            None if target is None or (torn and target.checkpoint.table().format not in profile.formats) else target
        )
        sides = (profile, library, drafter, theirs, couple)
        made = [predict(*sides, version=one.version, asked=one.asked, flags=flags)]
        if flags is None:  # any of its runners may serve
            others = (
                predict(*sides, version=one.version, asked=one.asked, runner=runner, like=made[0])
                for runner in dict.fromkeys(row.is_ for row in profile.runners)
                if runner != made[0].runner
            )
            made += [other for other in others if other.refusal is None or other.refusal.kind != "launch"]
        for each in made:
            each.near = one.near
        out += findings_of(*made)
    return out


# --- what expressions see -----------------------------------------------------------------------------------------


_OF_LINE = ("refused", "unread", "misplaced", "cut", "spoilt", "pulled")  # no flags: what was found out of a line


class World(dict[str, Seen]):
    """Look up what an engine sees: its own facts and dims, flags of the launch, both configs, and the pair's dims.

    It holds what is known of each name since it was first asked for.
    """

    def __init__(self, profile: Profile, drafter: View, target: View | None, couple: Couple | None,
                 flags: Mapping[str, Any], said: Mapping[str, str | Unknown],
                 configs: Sequence[Configs] = (), facts: Mapping[str, Fact] | None = None,
                 request: Mapping[str, Any] | None = None, like: World | None = None) -> None:  # fmt: skip
        super().__init__()
        self.facts = facts if facts is not None else couple.facts if couple is not None else {}
        self.profile, self.drafter, self.target, self.couple = profile, drafter, target, couple
        self._dims = drafter.dims if couple is None else couple.dims
        self.configs = configs
        self.own = drafter.table  # as the checkpoint itself says what belongs to it
        self.flags = flags
        self.request = request or {}
        self.said: dict[str, Any] = dict(said)  # version, family, line, runner, method, architecture, code, captured
        self.exprs: dict[str, Expr] = dict(profile.facts)
        self.index: dict[str, int] = {}
        self._sides: dict[str, Seen] = {} if like is None else like._sides  # what does not rest on what is said
        self._like = like
        self._conditions: dict[str, bool | Unknown] = {}
        self._open: set[str] = set()

    def say(self, name: str, value: Any) -> None:
        """Fix what the interpreter has found, or that it cannot be told; what rests on it is asked anew."""
        if name in self.said and self.said[name] == value:
            return
        self.said[name] = value
        self.clear()
        self._conditions.clear()

    def add(self, dims: Mapping[str, Expr]) -> None:
        """Add the dims of a class."""
        self.exprs |= dims
        self.clear()
        self._conditions.clear()

    def settle(self) -> None:
        """Take over from a world like this what is known there, where it rests on nothing that is otherwise here."""
        if (there := self._like) is None:
            return
        unlike = {name for name in {*self.said, *there.said} if self.said.get(name) != there.said.get(name)}
        unlike |= {name for name in {*self.exprs, *there.exprs} if self.exprs.get(name) is not there.exprs.get(name)}
        count = -1
        while count != len(unlike):
            count = len(unlike)
            unlike |= {name for name, expr in self.exprs.items() if not unlike.isdisjoint(expr.words)}
        self.update({name: seen for name, seen in there.items() if name not in unlike})
        alike = ((text, held) for text, held in there._conditions.items() if unlike.isdisjoint(words(text)))
        self._conditions.update(alike)

    def at(self, index: dict[str, int]) -> None:
        """Fix the indices of a row of tensors, or none."""
        for name in self.index:
            self.pop(name, None)
        self.index = index
        self.update({name: Known(n, "index") for name, n in index.items()})

    def __call__(self, name: str) -> Seen:
        """Return what is known of a name."""
        return self[name]

    def __missing__(self, name: str) -> Seen:
        """Return what is found of a name that was not asked for since something was said."""
        find, key = _side_of(name)
        if find is None or name in self.said or name in self.exprs or name in self._dims.dims:
            seen = self._find(name)
        else:
            found = self._sides.get(name)
            seen = found if found is not None else self._sides.setdefault(name, find(self, key))
        if not name.startswith("cast."):  # what it is cast from is kept, and may be an index
            self[name] = seen
        return seen

    def _find(self, name: str) -> Seen:
        if name in self.said:
            said = self.said[name]
            return said if isinstance(said, Unknown) else Known(said, name)
        if name in self.exprs:
            if name in self._open:
                return Unknown(f"{name} rests on itself", told=True)
            self._open.add(name)
            value = value_of(self.exprs[name], self.__getitem__)
            self._open.discard(name)
            return value if isinstance(value, Unknown) else Known(value, str(self.exprs[name]))
        if name in self._dims.dims:
            return self._dims(name)
        if name == "lifted":
            return Known(bool(self.lifted), "the drafter's config")
        if name == "overrides":  # what the flag says that changes keys of both configs
            return self._overriding
        if name == "read_as":
            return Known(self.read_as, "the drafter's config")
        if name.startswith(("file ", "damaged ")):
            return self._files(*name.split(" ", 1))
        if name.startswith("cast."):  # what is made of a value that is cast to an integer; one that cannot be stays
            seen = self(name.removeprefix("cast."))
            return seen._replace(value=_casts(seen.value)) if isinstance(seen, Known) else seen
        return Unknown(f"{name} is not known")

    def _of_drafter(self, key: str) -> Seen:
        if key != "tensors":
            return self._key(self.drafter, key)
        table = self.drafter.table
        if not _all_read(self.drafter):
            return Unknown(table.basis or "not all tensors were read", told=True)
        return Known(list(table.tensors), "the tensor table")

    def _of_target(self, key: str) -> Seen:
        if self.target is None:
            return Unknown("no target is given", told=True)
        seen = self._key(self.target, key)
        if key != "architectures" or not self.profile.unstated or (isinstance(seen, Known) and seen.value):
            return seen
        type_ = self._key(self.target, "model_type")
        name = self.profile.unstated.get(str(type_.value), "") if isinstance(type_, Known) else ""
        return Known([name], f"the target's model_type, {type_.value}") if name and isinstance(type_, Known) else seen

    def _of_theirs(self, key: str) -> Seen:
        """Return what the class of the target's config holds where the file says nothing."""
        type_ = self._of_target("model_type")
        name = type_.value if isinstance(type_, Known) and isinstance(type_.value, str) else ""
        held = next((one.types[name] for one in self.configs if name in one.types), {})
        default = held.get(key, ())[1:2]
        return Known(default[0], f"the config class of {name}") if default else Absent(f"the config class: {key}")

    def _of_request(self, key: str) -> Seen:
        return Known(self.request[key], "the request") if key in self.request else Absent(f"the request: {key}")

    def _of_gguf(self, key: str) -> Seen:
        """Return what a GGUF says beside its config, see ggufs; after target. of a target that is one."""
        side, key = (self.target, key[7:]) if key.startswith("target.") else (self.drafter, key)
        stated = side.checkpoint.source.stated if side is not None else {}
        return Known(stated[key], f"GGUF: {key}") if key in stated else Absent(f"GGUF: {key}")

    def _declared(self, key: str) -> Seen:
        fact = self.facts.get(key)
        return Known(fact.value, fact.source) if fact else Absent("what is declared of the drafter")

    def _at_top(self, key: str) -> Seen:
        """Return what stands at the top of the drafter's config, or after target. of the target's."""
        view = self.target if key.startswith("target.") else self.drafter
        if view is None:
            return Unknown("no target is given", told=True)
        return view.checkpoint.config.as_written(key.removeprefix("target."))

    def _of_overrides(self, key: str) -> Seen:
        """Return a key of what the flag says that changes keys of both configs."""
        said = self._overriding.value if isinstance(self._overriding, Known) else {}
        there = isinstance(said, Mapping) and key in said
        return Known(said[key], f"launch: {self.profile.overrides}") if there else Absent(f"launch: {key}")

    def _size(self, key: str, axis: int) -> Seen:
        """Return how many rows or columns the tensor has that plays a part."""
        part = self.drafter.contract.roles.get(key, "") if self.drafter.contract else ""
        tensor = self.drafter.tensor(part)
        if tensor is None and not _all_read(self.drafter):
            return Unknown(self.drafter.table.basis or "not all tensors were read", told=True)
        whole = tensor is not None and len(tensor.shape) > axis
        return Known(tensor.shape[axis], part) if tensor is not None and whole else Absent(f"{key}: {part}")

    def _has(self, key: str) -> Seen:
        """Return whether there is a tensor, by the role that the drafter's family gives it, or by its name."""
        role = self.drafter.contract.roles.get(key, "") if self.drafter.contract else ""
        table = self.drafter.table
        there = table.read and bool({role, key} & {*self.drafter.names, *table.tensors})
        if not there and not (table.read and table.complete):
            return Unknown(table.basis or "not all tensors were read", told=True)
        return Known(there, role or key)

    def _files(self, what: str, glob: str) -> Seen:
        """Return whether the drafter has a file that a glob matches, or one of those that its library refuses."""
        source, table = self.drafter.checkpoint.source, self.drafter.table
        found = [one for one in source.files if like(one, glob)]
        if what == "damaged" and not source.has_files:
            return Known(False, "what was given or recorded")  # in which nothing is damaged
        if not found and not self._listed:
            return Unknown("the names of its files are not known", told=True)
        if what == "file":
            return Known(bool(found), "the drafter's files")
        read = set(table.files.values())
        fine = [table.state != "unreadable" and one in read for one in found]
        said = [damaged(source, one) for one, known in zip(found, fine, strict=True) if not known]
        odd = next((one for one in said if isinstance(one, Unknown)), None)
        return odd if odd is not None and True not in said else Known(True in said, "the drafter's files")

    def _named(self, flag: str) -> Seen:
        """Return what a file of the drafter is that a flag names: absent, folder, nothing, zip, other, elsewhere.

        Of a drafter in a folder of this machine, a path that is no name of a repo is one of it too.
        """
        seen = self._flag(flag)
        if not isinstance(seen, Known) or not isinstance(seen.value, str):
            return seen
        source, path = self.drafter.checkpoint.source, seen.value
        places = [place.rstrip("/") for place in (source.name, source.repo, str(source.folder or "")) if place]
        inside = next((path[len(place) :].strip("/") for place in places if f"{path}/".startswith(f"{place}/")), None)
        # of the machine that this runs on, and no name of a repo
        near = source.kind == "folder" and (path.startswith(("/", "./", "../")) or path.count("/") > 1)
        if not path or (near and not os.path.exists(path)):
            return Known("absent", f"launch: {flag}")
        if inside is None or not source.has_files:
            here = source.folder is not None and os.path.isabs(path)  # the drafter lies on this machine, and so may it
            return Known("absent" if here and not os.path.exists(path) else "elsewhere", f"launch: {flag}")
        if not inside or inside in source.folders:
            return Known("folder", f"launch: {flag}")
        if inside not in source.files:
            return Known("absent" if self._listed and "/" not in inside else "elsewhere", f"launch: {flag}")
        try:
            head = source.read(inside, 0, 4)
        except OSError:
            return Known("elsewhere", f"launch: {flag}")
        return Known("zip" if head == b"PK\3\4" else "other" if head else "nothing", f"launch: {flag}")

    def _text_of(self, side: str, stem: str, key: str = "") -> Seen:
        """Return the kind of what STEM.json of a side holds, or a key of it: no JSON, absent, or as kind() says.

        A large file is not read whole: one that begins and ends as an object does is taken for one.
        """
        view, name = {"drafter": self.drafter, "target": self.target}.get(side), f"{stem}.json"
        source = view.checkpoint.source if view is not None else None
        if source is None or source.kind != "folder":
            return Known("unread", name)
        if name not in source.files:
            return Known("absent", name)
        size = source.files[name]
        try:
            if size > WHOLE_LIMIT:
                ends = source.read(name, 0, 64).lstrip()[:1] + source.read(name, size - 64, size).rstrip()[-1:]
                return Known("table" if ends == b"{}" else "no JSON", name)
            value: Any = json.loads(source.read(name, 0, size).decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            return Known("no JSON", name)
        for part in filter(None, key.split(".")):
            if not isinstance(value, Mapping) or part not in value:
                return Known("absent", name)
            value = value[part]
        return Known(kind_of(Known(value, name)), name)

    @property
    def _listed(self) -> bool:
        source = self.drafter.checkpoint.source
        return source.kind == "gguf" or (source.has_files and source.listed)

    def _tokens(self, view: View | None, whose: str) -> Seen:
        """Return how many tokens a side's tokenizer.json has; Absent where there is none that can be read."""
        source, name = view.checkpoint.source if view is not None else None, "tokenizer.json"
        if source is None or name not in source.files:
            return Unknown(f"the {whose}'s {name} is not at hand")
        from draftproof.tokenizer import TABLE_LIMIT, parse_vocabulary  # noqa: PLC0415 (few have one)
        from draftproof.tokens import Bad  # noqa: PLC0415

        raw = source.take(name, TABLE_LIMIT)
        if not isinstance(raw, bytes):
            return Unknown(f"the {whose}'s {name} is not at hand")
        try:
            parsed = parse_vocabulary(name, raw)
        except (Bad, ValueError) as error:
            return Absent(f"the {whose}'s {name}: {error}")
        return Known(len({*(parsed.ids or {}), *parsed.added}), f"the {whose}'s {name}")

    def _words(self, key: str) -> Seen:
        """Return what the libraries make of the drafter's tokenizer files, of those that are not large."""
        from draftproof.wordfiles import beside, refused  # noqa: PLC0415 (few rules ask for it)

        source = self.drafter.checkpoint.source
        own = ["tokenizer.json"]
        names = {"tokenizer": own, "merges": own, "fallback": own, "pieces": ["tokenizer.model"]}.get(
            key, ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
        )
        there = source.files if source.kind == "folder" else {}
        if key == "pieces":
            size = there.get(names[0])
            begins = source.read(names[0], 0, 1) if size else b""
            return Known("absent" if size is None else "model" if begins == b"\n" else "odd", names[0])
        held = [_json_in(source, name, WHOLE_LIMIT) for name in names]
        if key == "words":
            return Known(beside(*held), names[0])
        if key in ("merges", "fallback"):
            model = held[0].get("model") if isinstance(held[0], dict) else None
            if not isinstance(model, dict):
                return Absent(names[0])
            merges, decoder = model.get("merges"), held[0].get("decoder")
            if key == "merges":
                return Known(len(merges) if isinstance(merges, list) else 0, names[0])
            paired = model.get("type") == "BPE" and model.get("byte_fallback") is True
            return Known(paired and isinstance(decoder, dict) and decoder.get("type") == "Sequence", names[0])
        return Known(refused(held[0]) if isinstance(held[0], dict) else "", names[0])

    def _apart(self) -> Seen:
        """Tell by what the tokenizers of both sides are apart; "" where one of them lies in no folder."""
        from draftproof.tokenizer import TABLE_LIMIT  # noqa: PLC0415 (few rules ask for it)
        from draftproof.wordfiles import apart  # noqa: PLC0415 (few rules ask for it)

        held: list[tuple[Any, Any, Any]] = []
        for side, view in (("drafter", self.drafter), ("target", self.target)):
            source = view.checkpoint.source if view is not None else None
            files = (_json_in(source, name, TABLE_LIMIT) for name in ("tokenizer.json", "tokenizer_config.json"))
            held.append((*files, _value(self(f"{side}.bos_token_id"))))
        sizes = [one.value for one in (self("drafter.vocab_size"), self("target.vocab_size")) if isinstance(one, Known)]
        most = min((size for size in sizes if type(size) is int), default=0)
        return Known(apart(held[0], held[1], most), "the tokenizers")

    def _last_token(self) -> Seen:
        """Return the highest id of the drafter's tokenizer; what files beside it add comes after its own tokens."""
        name = "tokenizer.json"
        source = self.drafter.checkpoint.source
        if source.kind != "folder" or not 0 < source.files.get(name, 0) <= WHOLE_LIMIT:
            return Absent(f"{name}, or it is large")
        from draftproof.tokenizer import parse_vocabulary  # noqa: PLC0415 (few have one)
        from draftproof.tokens import Bad  # noqa: PLC0415

        files = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
        beside = [_json_in(source, file, WHOLE_LIMIT) for file in files]
        try:
            parsed = parse_vocabulary(name, source.read(name, 0, source.files[name]))
        except (Bad, OSError, ValueError, RecursionError) as error:
            return Absent(f"{name}: {error}")
        special, listed, added = (one if isinstance(one, dict) else {} for one in beside)
        named = [value for table in (special, listed) for key, value in table.items()
                 if key.endswith("_token") and not key.startswith("add_")]  # fmt: skip
        texts = [one.get("content") if isinstance(one, dict) else one for one in named]
        more = {text for text in texts if isinstance(text, str)}
        more |= {text for text, id in added.items() if type(id) is not int or id not in parsed.added}
        own = {*(parsed.ids or {}).values(), *(one.content for one in parsed.added.values())}
        ids = {*(parsed.ids or {}), *parsed.added}
        new = more - own
        return Known(max(ids) + len(new), name) if ids else Absent(f"{name}: no token")

    def _held(self, key: str) -> Seen:
        """Return what a torch file beside the weights holds, by STEM.KEY: the shape of a tensor, or a plain value."""
        stem, _, entry = key.partition(".")
        source, name = self.drafter.checkpoint.source, f"{stem}.pt"
        size = source.files.get(name, 0)
        if not size:
            return Absent(f"the drafter's files: {name}")
        from draftproof.torchzip import PICKLE_LIMIT, read_entries  # noqa: PLC0415 (few have one)

        raw = source.take(name, PICKLE_LIMIT)
        if not isinstance(raw, bytes):
            return Unknown(f"the drafter's {name} is not at hand")
        try:
            rows = read_entries(lambda start, stop: raw[start:stop], len(raw))
        except ValueError as error:
            return Unknown(f"the drafter's {name}: {error}")
        return Known(rows[entry], f"the drafter's {name}") if entry in rows else Absent(f"{name}: {entry}")

    def _stored(self, key: str) -> Seen:
        """Return what the drafter's files hold.

        dtype is that of most floats, count that of tensors, their_layers that of the target's layers; borrowed tells
        whether the target's files hold none of those; their_config and their_kind are of its config.json what config
        and kind are; weights, their_weights and config tell whether they were read, else why not; listed whether the
        names of all files are known; kind is what a config.json holds that is no object; index is what one is, faults
        are the codes of what is wrong with the weight files; torn is what a torch file that cannot be read begins
        with; later is whether a file that does not belong comes after those that do, and is no copy of one; tokens is
        how many the target's tokenizer has, last the highest id that the drafter's own gives, of one that is not
        large; target_files are the names of all that lies in its folder, target_index what its index holds for
        weight_map; format is that of the files. tokenizer is why its library does not read the tokenizer.json, words
        the error for what lies beside that, pieces whether a tokenizer.model begins as one does: model, odd or absent;
        apart is by what the tokenizers of both sides are apart, merges how many pairs the drafter's joins, fallback
        whether it falls back on bytes.
        """
        if key == "tokens":
            return self._tokens(self.target, "target")
        if key == "last":
            return self._last_token()
        if key == "apart":
            return self._apart()
        if key in ("tokenizer", "words", "pieces", "merges", "fallback"):
            return self._words(key)
        if key == "target_index":
            return self._text_of("target", "model.safetensors.index", "weight_map")
        if key == "target_files":
            beside = self.target.checkpoint.source if self.target is not None else None
            listed = beside is not None and beside.kind == "folder" and beside.has_files
            return (
                Known(list(beside.files), "the target's files") if beside and listed else Absent("the target's files")
            )
        table, config = self.drafter.table, self.drafter.config
        if key == "config":
            return Known(config.code or ("unread" if config.broken else "read"), "config.json")
        if key == "format":
            return Known(table.format or "safetensors", "the drafter's files")
        if key == "listed":
            return Known(self._listed, "the drafter's files")
        if key == "kind":
            return self._json("config.json")
        if key in ("their_config", "their_kind"):  # the same of the target
            code = self.target.checkpoint.config.code if self.target is not None else ""
            if key == "their_config" or not code:
                return Known(code or "read", "the target's config.json")
            return self._text_of("target", "config")
        if key == "their_weights":  # of a target in a folder
            theirs = self.target.checkpoint if self.target is not None else None
            state = theirs.table().state if theirs is not None and theirs.source.kind == "folder" else ""
            return Known(state or "read", "the target's files")
        if key == "their_layers":
            return self._their_layers()
        if key == "borrowed":
            return self._borrowed()
        if key == "faults":
            codes = {f.code for f in self.drafter.checkpoint.findings if f.level == "error" and f.code[:3] == "STF"}
            return Known(sorted(codes), "the drafter's files")
        if key == "torn":
            return self._torn()
        if key == "weights":
            return Known(table.state or ("unread" if table.basis else "read"), "the drafter's files")
        if key == "index" and (table.state == "index" or not table.tensors):  # why it cannot be used, or names none
            name = "model.safetensors.index.json"
            held = self._json(name, "weight_map") if name in self.drafter.checkpoint.source.files else None
            if held is not None and (table.state == "index" or (isinstance(held, Known) and held.value == "empty")):
                return held
        if key == "index":  # whether it names the very tensors that are there, in whatever file
            found = self.drafter.findings
            odd = any(f.code == "IDX302" or (f.code == "IDX301" and f.subject not in table.tensors) for f in found)
            return Known("otherwise" if odd else "same", "the drafter's index")
        if not _all_read(self.drafter):
            return Unknown(table.basis or "not all tensors were read", told=True)
        if key == "count":
            return Known(len(table.tensors), "the drafter's files")
        if key == "later":
            files, own = self.drafter.checkpoint.source.files, set(self.own.files.values())
            copies = {size for name, size in files.items() if name in own}
            more = {n for n, size in files.items() if n.endswith(".safetensors") and n not in own
                    and size not in copies and n > max(own, default=n)}  # fmt: skip
            if self.own is not table:  # of all that is read, only what has a tensor of it
                more &= {table.files.get(name, "") for name in self.own.tensors}
            indexed = any(n.endswith(".safetensors.index.json") for n in files)
            if more and not indexed and not table.complete:
                return Unknown("not all tensors were read", told=True)
            return Known(bool(more) and not indexed, "the drafter's files")
        sizes: dict[str, int] = {}
        for tensor in table.tensors.values():
            if tensor.dtype.startswith(("F", "BF")):
                sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + prod(tensor.shape)
        return (
            Known(max(sizes, key=lambda d: sizes[d]), "the drafter's files") if sizes else Absent("the drafter's files")
        )

    def _their_layers(self) -> Seen:
        """Return how many layers of the target's own stack its files name; Absent where not all is read."""
        if self.target is None or self.target.checkpoint.source.kind != "folder":
            return Absent("the target's files, which are not at hand")
        table = self.target.checkpoint.table()
        if not table.read or not table.complete:
            return Absent("the target's tensors, which were not all read")
        return Known(1 + max(_layers_of(table), default=-1), "the target's tensor table")

    def _borrowed(self) -> Seen:
        """Tell whether the target's files are seen to be a stand-in: what a drafter borrows, and no layer counted."""
        layers = self._their_layers()
        if self.target is None or not isinstance(layers, Known):
            return Known(False, "the target's files")
        counts = (self(f"target.{key}") for key in ("num_hidden_layers", "text_config.num_hidden_layers"))
        counted = next((c.value for c in counts if isinstance(c, Known) and type(c.value) is int), layers.value)
        held = any(layer < counted for layer in _layers_of(self.target.checkpoint.table()))
        return Known(not held, "the target's tensor table")

    def _json(self, name: str, table: str = "") -> Seen:
        """Return what a file of JSON holds: no JSON, or its kind; with a table, where it is one, what that holds."""
        source = self.drafter.checkpoint.source
        raw = source.take(name, CONFIG_LIMIT) if name in source.files else None
        if not isinstance(raw, bytes):
            return Unknown(f"{name} cannot be read")
        try:
            value = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            return Known("no JSON", name)
        if table and isinstance(value, dict) and table in value:
            value = value[table]
            if not isinstance(value, dict):
                return Known(f"{table} {kind_of(Known(value, name))}", name)
            whole = all(isinstance(one, str) for one in value.values())
            return Known("empty" if not value else "names" if whole else "odd", name)
        return Known(f"no {table}" if table and isinstance(value, dict) else kind_of(Known(value, name)), name)

    def _torn(self) -> Seen:
        """Return what the first of the torch files begins with that cannot be read: zip, nothing, zeros or other."""
        source = self.drafter.checkpoint.source
        if self.drafter.table.state != "unreadable" or source.reader is not None:
            return Known("", "the drafter's files")
        torch = [n for n in sorted(source.files) if n.endswith((".bin", ".pt", ".pth"))]
        name = next((n for n in torch if damaged(source, n) is True), "")
        if not name:
            return Known("", "the drafter's files")
        try:
            head = source.read(name, 0, 512)
        except OSError:
            return Unknown(f"{visible(name)} cannot be read")
        kinds = {"zip": head[:4] == b"PK\3\4", "nothing": not head, "zeros": not head.strip(b"\0")}
        return Known(next((kind for kind, is_ in kinds.items() if is_), "other"), visible(name))

    def _flag(self, key: str) -> Seen:
        """Return a flag of the launch; of one that holds a table, a key of it."""
        value: Any = self.flags
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                if key not in _OF_LINE and self.flags.get("unread"):
                    return Unknown(f"{key} may stand in a file that the launch names", told=True)
                return Absent(f"launch: {key}")
            value = value[part]
        return value if isinstance(value, Unknown) else Known(value, f"launch: {key}")

    def _key(self, view: View, key: str) -> Seen:
        """Return what an engine sees of a key: what the config says, else what its class holds."""
        seen = self._written(view, key)
        default = self.class_keys.get(key) if isinstance(seen, Absent) and view is self.drafter else None
        if default is not None and default.default is not None:
            return Known(default.default, f"the config class of {self.model_type}, {key}")
        return seen

    @cached_property
    def model_type(self) -> str:
        """Return the model_type, or the one whose class the engine takes for it; "" where there is no class."""
        through, seen = self.profile.configs, self.drafter.config("model_type")
        own = not self.lifted or self.profile.lift_over
        name = seen.value if own and isinstance(seen, Known) and isinstance(seen.value, str) else ""
        return through.also.get(name, name) if through else name

    @cached_property
    def class_keys(self) -> Mapping[str, KeyOf]:
        """Return the keys of the drafter's config class; none where it was not read, or does not serve."""
        alone = self.profile.configs is not None and self.profile.configs.alone
        if self.drafter.table.format:  # it was converted: nothing is filled in
            return {}
        return {} if alone and self.read_as != "class" else self._class_keys

    @cached_property
    def _class_keys(self) -> Mapping[str, KeyOf]:
        return next((one.keys(self.model_type) for one in self.configs if self.model_type in one.types), {})

    @cached_property
    def read_as(self) -> str:
        """Return through what the drafter's config is read: its class, none, or its class refuses it as wrong."""
        name = self.model_type
        if not any(name in one.types or name in one.known for one in self.configs):
            return "none"
        return "wrong" if any(self.wrong(self.drafter, self._class_keys)) else "class"

    def wrong(self, view: View, keys: Mapping[str, KeyOf]) -> Iterator[tuple[str, str, KeyOf]]:
        """Yield each key of a side that holds another kind of value than its class takes, with that kind."""
        for key, rule in keys.items():
            value = self._written(view, key)
            kind = kind_of(value) if not isinstance(value, Unknown) else "absent"
            if kind != "absent" and kind not in rule.kinds and "any" not in rule.kinds:
                yield key, kind, rule

    def _written(self, view: View, key: str) -> Seen:
        """Return what a config says of a key; null is a value here, for engines tell it from what is not there."""
        first = key.partition(".")[0]
        if self.overrides and first in self.overrides and self._overridden(view):
            value: Any = self.overrides
            for part in key.split("."):
                if not isinstance(value, Mapping) or part not in value:
                    return Absent(f"launch: {self.profile.overrides}: {key}")
                value = value[part]
            return Known(value, f"launch: {self.profile.overrides}: {first}")
        tables = self.lifted if view is self.drafter else ()
        if not tables:
            return view.config.as_written(key)
        config = view.checkpoint.config
        if first in self.alone:
            tables = ()
        top = (key,) if not tables or first in self.kept else ()
        whole = (key,) if tables and self.profile.lift_over and not top else ()
        for place in (*top, *(f"{table}.{key}" for table in tables), *whole):
            seen = config.as_written(place)
            if isinstance(seen, Absent):
                continue
            null = isinstance(seen, Known) and seen.value is None
            if not (null and place in top and tables and self.profile.lift_copies):  # a null is not copied
                return seen
        return Absent(f"{view.checkpoint.role} config.json: {tables[0]}.{key}") if tables and not whole else config(key)

    def _overridden(self, view: View) -> bool:
        """Tell whether what the launch gives takes the place of keys of a side's config."""
        own = self.target if self.target is not None else self.drafter  # a target that is looked at by itself
        return not (of := self.profile.overrides_of) or view is (own if of == "target" else self.drafter)

    @cached_property
    def overrides(self) -> Mapping[str, Any]:
        """Return the keys of configs that the launch gives; none where it says no JSON object."""
        said = self._overriding
        keys = said.value if isinstance(said, Known) and isinstance(said.value, Mapping) else {}
        return {key: value for key, value in keys.items() if key not in self.profile.overrides_late}

    @cached_property
    def _overriding(self) -> Seen:
        """Return what the flag holds that changes keys of both configs; Absent where that is no JSON."""
        seen = self._flag(self.profile.overrides) if self.profile.overrides else Absent("the launch")
        if not isinstance(seen, Known) or not isinstance(seen.value, str):
            return seen
        try:
            return Known(json.loads(seen.value), seen.witness)
        except (ValueError, RecursionError):
            return Absent(f"{seen.witness}, which is no JSON")

    @cached_property
    def lifted(self) -> tuple[str, ...]:
        """Return the tables of the drafter's config that are read in place of the whole."""
        beside = self.profile.lift_with
        return self.profile.lifts if not beside or isinstance(self.drafter.config(beside), Known) else ()

    @cached_property
    def kept(self) -> Sequence[str]:
        """Return the keys that are read from the whole first, where a table is read in its place."""
        return (*self.profile.lift_keeps, *self.profile.lift_copies.get(self._kind_of_whole, ()))

    @cached_property
    def alone(self) -> Sequence[str]:
        """Return the keys that the whole alone says, where a table is read in its place."""
        return self.profile.lift_alone.get(self._kind_of_whole, ())

    @cached_property
    def _kind_of_whole(self) -> str:
        by = self.drafter.checkpoint.config(self.profile.lift_by) if self.profile.lift_by else None
        return str(by.value) if isinstance(by, Known) else ""

    def holds(self, when: Expr | None, told: str = "", sure: bool = False) -> bool | Unknown:
        """Return whether a condition holds; one that is not given does.

        Once it cannot be told for the reason told, or for any if only a sure one counts, it is not asked whether it may
        yet be false.
        """
        if isinstance(when, Within):
            version = self.said["version"]
            if isinstance(version, str) and not when.has(version):
                return False
            when = when.when if isinstance(version, str) else when
        if when is None:
            return True
        known, index, why = self._conditions, self.index, None
        for part in when.parts:  # many rows begin with the same
            keep = not index or part.words.isdisjoint(index)
            held = known.get(part.text) if keep else None
            if held is None:
                try:
                    held = part.run(self.__getitem__, None, 0)
                except ExprError as error:
                    held = Unknown(str(error))
                if not isinstance(held, (bool, Unknown)):
                    held = Unknown(f"{part} is {held!r}")
                if keep:
                    known[part.text] = held
            if held is True:
                continue
            if held is False or sure or (told and held.why == told):
                return held
            why = why or held
        return why or True

    def first(self, rows: Sequence[Any]) -> Any:
        """Return the first row whose condition holds, None if that is none, or Unknown where it cannot be told."""
        for row in rows:
            holds = self.holds(row.when)
            if holds is not False:
                return row if holds is True else holds
        return None


def _json_in(source: Source | None, name: str, limit: int) -> Any:
    """Return what a JSON file in a folder holds; None where there is none, or one that is large or no JSON."""
    size = source.files.get(name, 0) if source is not None and source.kind == "folder" else 0
    if source is None or not 0 < size <= limit:
        return None
    try:
        return json.loads(source.read(name, 0, size).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


Find = Callable[[World, str], Seen]
_SIDES: Mapping[str, Find] = {  # what stands before the dot of a name
    "drafter": World._of_drafter,
    "target": World._of_target,
    "launch": World._flag,
    "theirs": World._of_theirs,
    "request": World._of_request,
    "declared": World._declared,
    "written": lambda world, key: world._written(world.drafter, key),  # what the file itself says of a key
    "whole": World._at_top,
    "stored": World._stored,
    "held": World._held,
    "overrides": World._of_overrides,
    "gguf": World._of_gguf,
    "json": lambda world, key: world._text_of(*key.split(".", 2)),
    "named": World._named,
    "rows": lambda world, key: world._size(key, 0),
    "columns": lambda world, key: world._size(key, 1),
    "has": World._has,
}


@lru_cache(maxsize=4096)
def _side_of(name: str) -> tuple[Find | None, str]:
    """Return what finds a name that has a side, by what comes after that."""
    side, dot, key = name.partition(".")
    return (_SIDES.get(side) if dot else None), key


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
    facts: Mapping[str, Fact] | None = None,
    request: Mapping[str, Any] | None = None,
    like: Prediction | None = None,
) -> Prediction:
    """Return what an engine will do with a drafter, launched with these flags, or without any as its family needs.

    version is one that was read; asked is the one that it stands in for, if that was not. facts are what is declared
    of the drafter, those of the couple if not given. request is what a request asks for, beside greedy tokens. like is
    what was predicted of the same but for the runner: what cannot have changed is not asked again.
    """
    version = version or profile.versions[0].is_
    if drafter.contract is None:  # of no family that is known: what it says is read all the same
        drafter = replace(drafter, config=drafter.checkpoint.config, table=drafter.checkpoint.table())
    elif drafter.contract.in_target and drafter.checkpoint.source.kind in ("folder", "memory"):
        drafter = replace(drafter, table=drafter.checkpoint.table())  # an engine goes over all that stands beside it
    if target is not None and target.contract is None:
        target = replace(target, config=target.checkpoint.config)
    own, drafter = drafter, _as_loaded(profile, library, drafter)
    out = Prediction(profile, version, not asked, asked)
    family = drafter.contract.id if drafter.contract else ""
    said: dict[str, str | Unknown] = {
        "version": asked if ordered(asked) else version,
        "family": family,
        "line": "no" if flags is None else "yes",
        "carried": _carried(profile, library, drafter, flags),
    }
    said |= dict.fromkeys(("runner", "method", "architecture", "code", "captured"), "")
    through = profile.configs
    configs = [c for id in through.is_ if (c := library.get("configs", id)[0])] if through is not None else []
    before = like.world if like is not None else None
    world = out.world = World(profile, drafter, target, couple, flags or {}, said, configs, facts, request, before)
    world.own = own.table if own is not drafter else world.own
    if drafter.table.format and drafter.table.format not in profile.formats:
        unread = Unknown(f"how it reads a drafter from {drafter.table.format} was not read")
        out.effects.append(_unsure("load", "drafter", unread))
        return out
    out.runner = _choose(world, profile.runners, out, "runner", runner)
    world.settle()
    out.method = _choose(world, profile.methods, out, "method")
    out.requests = [row for row in profile.requests if world.holds(row.when) is True]
    out.effects += _requested(out.requests, world)
    rows = _rows_at(library, profile)
    idle = [row for row in profile.methods if row.idle and row.is_ == out.method]  # it reads nothing of the drafter
    if idle:
        out.effects += _configured(world) if idle[0].config and world.holds(idle[0].config) is True else ()
        out.effects += _rows(rows, world)
        return out
    architecture = _architecture(world, profile)
    world.say("architecture", architecture)
    registered: list[Effect] = []
    if isinstance(architecture, Unknown):
        world.say("code", architecture)
        out.effects.append(_unsure("config", "architectures", architecture))
    else:
        out.class_ = _class_of(profile, architecture, world)
        world.say("code", out.class_)
        registered += _registered(profile, architecture, out.class_)
    class_: DrafterClass | None = library.get("class", out.class_)[0] if out.class_ else None
    if class_ is not None:
        world.add(class_.dims)
    out.effects += _configured(world)
    # of what happens at one stage, the target comes first, then what a class is made of, then its tensors
    out.effects += _hooked(profile, world)
    out.effects += _captures(profile, world, out)
    world.say("captured", [] if out.captured is None else out.captured)
    world.settle()
    told = architecture.why if isinstance(architecture, Unknown) else ""
    rowed = list(_rows(rows, world, told))
    named = [
        e for e in rowed if e.stage == "config" and e.subject == "architectures"
    ]  # that it can be read comes first
    out.effects += [*named, *registered, *(e for e in rowed if e not in named)]
    out.effects += _target_loaded(profile, library, world)
    out.effects += _target_made(profile, library, world, rows)
    if class_ is not None:
        out.effects += _tensors(profile, class_, world)
    elif out.class_:
        out.effects.append(_unsure("load", "tensors", Unknown(f"class {out.class_} cannot be read")))
    if drafter.table.format:  # it is converted already
        out.effects = [e for e in out.effects if e.stage != "convert"]
    if drafter.contract is None:
        why = "of which family it is is not known, and so neither is what it was trained with"
        out.effects.append(_unsure("run", "family", Unknown(why, told=True), "degrades"))
    out.beside += _beside(profile, world)
    return out


def _as_loaded(profile: Profile, library: Library, drafter: View) -> View:
    """Return a drafter as the engine's loader comes to its files, where that is another way than an index, or one file.

    An index of another name counts for nothing: every safetensors file is read, and the last that has a tensor counts.
    """
    checkpoint = drafter.checkpoint
    source = checkpoint.source
    if not profile.index or source.kind != "folder":
        return drafter
    files = sorted(name for name in source.files if name.endswith(".safetensors"))
    alone = [name for name in files if like(name, profile.index_before)] if profile.index_before else []
    if profile.index in source.files and not alone:
        return drafter
    files = alone or files
    if len(files) == 2 and tuple(files) == tuple(profile.instead):
        files = files[1:]
    indexed = any(name.endswith(".safetensors.index.json") for name in source.files)
    if not files or (not indexed and set(files) == set(drafter.table.files.values())):
        return drafter
    named = {n: size for n, size in source.files.items() if not n.endswith(".safetensors.index.json")}
    other = Checkpoint(replace(source, files=named, notes=[]), checkpoint.role)
    other.whole = other.every(files)
    if drafter.contract is not None:
        return conform(drafter.contract, other, library=library)
    return replace(drafter, checkpoint=other, table=other.whole)


class Advised(Record):
    """Say what one flag, or a key of one, should be, and why; or why that is not known."""

    flag: str
    value: Any
    because: str
    source: str = ""
    basis: str = "read"
    find: str = ""
    sure: bool = True  # that it applies


def advise(
    profile: Profile,
    launches: Launches,
    drafter: View,
    target: View | None,
    couple: Couple | None,
    version: str,
    given: Mapping[str, str],
) -> list[Advised]:
    """Return the flags that an engine should be launched with for a pair; given holds the names of both sides."""
    if target is not None and target.contract is None:
        target = replace(target, config=target.checkpoint.config)
    family = drafter.contract.id if drafter.contract else ""
    said: dict[str, str | Unknown] = {"version": version, "family": family, "line": "no", "carried": ""}
    said |= dict.fromkeys(("runner", "method", "architecture", "code"), "") | {
        f"given.{k}": v for k, v in given.items()
    }
    world = World(profile, drafter, target, couple, {}, said)
    for what, rows in (("runner", profile.runners), ("method", profile.methods)):
        _choose(world, rows, Prediction(profile, version), what)
    out: dict[str, Advised] = {}
    for row in launches.advice:
        holds = world.holds(row.when)
        if row.flag in out or holds is False:
            continue
        value = value_of(row.value, world) if holds is True else holds
        out[row.flag] = Advised(row.flag, value, row.because, row.source, row.basis, row.find, holds is True)
    return list(out.values())


def _beside(profile: Profile, world: World) -> Iterator[str]:
    """Yield what the profile shows side by side."""
    for row in profile.beside:
        if world.holds(row.when) is True:
            said = {"declared": row.declared, "trained": row.trained, "read": row.read}
            told = {how: _told(expr, world) for how, expr in said.items() if expr is not None}
            if not all(one.startswith(("not declared", "not known (")) for one in told.values()):
                yield f"{row.what}: {', '.join(f'{how} {one}' for how, one in told.items())}"


def _told(expr: Expr, world: World) -> str:
    value = value_of(expr, world)
    if isinstance(value, Unknown):
        undeclared = value.why.startswith("declared.") or value.why.endswith("is not declared")
        return "not declared" if undeclared else f"not known ({value.why})"
    return "nothing" if value is None else visible(whole(value))


def _rows_at(library: Library, profile: Profile) -> Sequence[Rows]:
    """Return the rows that need nothing but the dims of a pair, and the profile's."""
    key = ("rows", profile.id)
    kept: tuple[Profile, Sequence[Rows]] | None = library.kept.get(key)
    if kept is None or kept[0] is not profile:
        engine = library.get("engine", profile.engine)[0] if profile.engine else None
        own = set(profile.rows.ids)  # a row of the profile says the same better
        shared = tuple(row for row in (engine.rows if engine else ()) if row.id not in own)
        made = Rows(grouped([row._asdict() for row in shared]), [row.id for row in shared], shared.__getitem__)
        kept = library.kept[key] = (profile, (made, profile.rows))
    return kept[1]


def _choose(world: World, rows: Sequence[Chosen], out: Prediction, what: str, given: str = "") -> str:
    """Return the text of the first row that applies, and let the world know it, or that it cannot be told."""
    row = None if given else world.first(rows)
    if isinstance(row, Unknown):
        out.effects.append(_unsure("flags", what, row))
        world.say(what, row)
        return ""
    if rows and row is None and not given:
        out.effects.append(_unsure("flags", what, Unknown(f"no {what} that was read is one for it")))
    chosen = given or (row.is_ if row else "")
    world.say(what, chosen)
    return chosen


def _architecture(world: World, profile: Profile) -> str | Unknown:
    """Return the architecture by which the engine chooses a class, after all renamings."""
    seen = world("drafter.architectures")
    if isinstance(seen, Unknown):
        return seen
    stated = seen.value if isinstance(seen, Known) else []
    if profile.first and isinstance(stated, (list, str)):
        stated = list(stated[:1])
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
        names = [n if any(like(n, glob) for glob in row.unless) else row.prefix + n for n in names]
        if row.last:
            break
    known = [n for n in names if _class_of(profile, n, world)]
    return (known or names or [""])[0]


def _carried(profile: Profile, library: Library, drafter: View, flags: Mapping[str, Any] | None) -> str:
    """Return the name by which a launch serves the drafter itself, which may bring its target; "" where it does not."""
    if not flags or not profile.lift_with:
        return ""
    from draftproof.launch import carried  # noqa: PLC0415 (only where a launch is given)

    source = drafter.checkpoint.source
    return carried(flags, profile.engine, (source.name, source.repo), library)


def _class_of(profile: Profile, architecture: str, world: World) -> str:
    """Return the class that an architecture leads to, of those that the version has."""
    classes = (id for id, names in profile.registry.items() if architecture in names)
    return next((id for id in classes if world.holds(profile.ranges.get(id)) is True), "")


def _registered(profile: Profile, architecture: str, class_: str) -> Iterator[Effect]:
    """Say what happens with an architecture that leads to no class."""
    if class_:
        return
    shown = visible(architecture) or "no architecture"
    targets = [glob for globs in profile.hooks.values() for glob in globs] if profile.unhooked else []
    if any(like(architecture, glob) for glob in (*profile.others, *profile.unhooked, *targets)):
        yield _unsure("load", shown, Unknown("the engine has code for it, which was not read"))
    elif not architecture and profile.unnamed is not None:
        yield _of(profile.unnamed)
    elif profile.unregistered is not None:
        yield _of(profile.unregistered, shown, name=shown)
    else:
        yield _unsure("load", shown, Unknown(f"what {profile.title} does with an architecture without a class"))


def _configured(world: World) -> Iterator[Effect]:
    """Say what the class does not take through which the drafter's config is read."""
    through, configs = world.profile.configs, world.configs
    if through is None or through.alone or not configs or world.holds(through.when) is not True:
        return
    parts: dict[str, Any] = {"source": through.source or configs[0].source, "basis": configs[0].basis}
    if through.target and world.target is not None and not isinstance(world("target.model_type"), Unknown):
        yield from _configured_target(world, through, parts)
    name = world.model_type
    if name and not any(name in one.types or name in one.known for one in configs):
        own, trusted = world("drafter.auto_map.AutoConfig"), world("launch.trust_remote_code")
        if isinstance(own, Absent):
            see = f"{through.unknown}: it has no config class for {visible(name)}"
            yield Effect("refuses", through.stage, "refuses", "model_type", see, through.unknown, **parts)
        elif not (isinstance(trusted, Known) and trusted.value is True):
            see = (
                f"{through.unknown}: the class for {visible(name)} is the repo's own code: --trust-remote-code runs it"
            )
            yield Effect("refuses", through.stage, "refuses", "auto_map", see, through.unknown, **parts)
    for key, kind, rule in world.wrong(world.drafter, world.class_keys):
        see = f"{through.wrong}: {key} is {kind} where it takes {' or '.join(rule.kinds)}"
        stage = (world.profile.overrides_stage if key in world.overrides else "") or through.stage
        yield Effect("refuses", stage, "refuses", key, see, through.wrong, **parts)


def _configured_target(world: World, through: Through, parts: Mapping[str, Any]) -> Iterator[Effect]:
    """Say what the class does not take through which the target's config is read, unless the repo brings its own."""
    assert world.target is not None
    seen = world("target.model_type")
    said = seen.value if isinstance(seen, Known) and isinstance(seen.value, str) else ""
    name = through.also.get(said, said)
    own = not isinstance(world("target.auto_map"), Absent)
    held = next((one for one in world.configs if name in one.types), None)
    if said and not own and held is None and not any(name in one.known for one in world.configs):
        see = f"{through.unknown}: it has no config class for {visible(said)}"
        yield Effect(
            "refuses", through.stage, "refuses", "target.model_type", see, through.unknown, early=True, **parts
        )
    for key, kind, rule in world.wrong(world.target, held.keys(name)) if held is not None and not own else ():
        if key not in world.overrides or world.profile.overrides_of:
            see = f"{through.wrong}: {key} is {kind} where it takes {' or '.join(rule.kinds)}"
            yield Effect("refuses", through.stage, "refuses", f"target.{key}", see, through.wrong, early=True, **parts)


def _hooked(profile: Profile, world: World) -> Iterator[Effect]:
    """Say whether the engine takes the target, and whether that gives what a drafter reads."""
    yield from _served(profile, world)
    if not profile.hookless:
        return
    method = world("method")
    if isinstance(method, Unknown):
        return  # which is told
    name = str(method.value) if isinstance(method, Known) else ""
    globs = profile.hooks.get(profile.alike.get(name, name))
    row = world.first(profile.hookless)
    if globs is None or row is None:
        return
    stage = profile.hookless[0].stage
    seen = world("target.architectures")
    if isinstance(seen, Unknown):
        yield _unsure(stage, "target", seen)
        return
    named = seen.value if isinstance(seen, Known) and isinstance(seen.value, list) else []
    names = [n for n in named if isinstance(n, str)]
    if any(like(name, glob) for name in names for glob in globs):
        return
    shown = visible(", ".join(names)) or "no architecture"
    known = (*profile.targets, *profile.unhooked)
    if known and not any(like(name, glob) for name in names for glob in known):
        why = Unknown(f"no class of {profile.title} for {shown} was read")
        yield _unsure(stage, "target", why)
    elif isinstance(row, Unknown):
        yield _unsure(stage, "target", row)
    else:
        yield _of(row, "target", name=shown)


def _unsure(stage: str, subject: str, why: Unknown, worst: str = "refuses") -> Effect:
    return Effect("unknown", stage, "reads", subject, why.why, worst=worst)


def _of(row: EngineRow, subject: str = "", **words: str) -> Effect:
    see = row.see
    for word, value in words.items():
        see = see.replace(f"{{{word}}}", value)
    kind = row.effect or {"refuses": "refuses", "degrades": "reads", "changes": "copes"}[row.outcome]
    return Effect(row.outcome, row.stage, kind, subject or row.key or row.id, see, row.error, row.source,
                  row.basis, row.line, log=row.log, do=row.do, late=row.late, early=row.early,
                  order=row.order)  # fmt: skip


def _served(profile: Profile, world: World) -> Iterator[Effect]:
    """Say what happens with a target that the engine takes none of."""
    seen = world("target.architectures") if profile.unserved is not None else None
    names = [n for n in seen.value if isinstance(n, str)] if isinstance(seen, Known) and seen.value else []
    lists = (profile.targets, profile.unhooked, profile.others, *profile.hooks.values(), *profile.registry.values())
    if profile.unserved is not None and names and not any(like(names[0], g) for globs in lists for g in globs):
        yield _of(profile.unserved, "target", name=visible(names[0]))


def _rows(rows: Sequence[Rows], world: World, told: str = "", both: bool = False) -> Iterator[Effect]:
    """Yield the effects of the rows that apply, or may; told is why the class is not known, which is said already.

    both asks for those alone that hold of a target too.
    """
    version, known = world.said["version"], world._conditions
    for held in rows:
        heads = list[Head]()
        for group in held.groups:
            first = known.get(group.first.text) if group.first is not None else True
            first = world.holds(group.first) if first is None else first
            if first is not False:
                heads += group.heads() if first is True else [head for head in group.heads() if not head.sure]
        for head in sorted(heads):  # by n, of which each has its own
            if both > head.both or ((head.since or head.until) and not spans(head.since, head.until, version)):
                continue
            holds = world.holds(head.when, told, head.sure)
            if holds is True or not (holds is False or head.sure):
                yield from _row(held[head.n], holds, world, told)


def _row(row: EngineRow, holds: Unknown | bool, world: World, told: str) -> Iterator[Effect]:
    """Yield the effect of a row that applies, or may."""
    if holds is True:
        see = _shown(row.see, world)
        yield _unsure(row.stage, row.key or row.id, Unknown(see)) if row.outcome == "unknown" else _of(row).but(see=see)
    elif isinstance(holds, Unknown) and holds.why != (told or None):
        yield _unsure(row.stage, row.key or row.id, holds, row.outcome)


def _requested(rows: Sequence[Request], world: World) -> Iterator[Effect]:
    """Say what becomes of what one request asks for."""
    kinds = {"refused": ("refuses", "refuses"), "undrafted": ("degrades", "stops"), "ignored": ("degrades", "reads")}
    for row in rows:
        named = [name for name in row.asks if name in world.request]
        if named and world.holds(row.asked) is True:
            outcome, kind = kinds.get(row.does, ("changes", "copes"))
            yield Effect(outcome, "run", kind, named[0], row.see or DOES[row.does].format(named[0]), row.error,
                         row.source, row.basis, row.line)  # fmt: skip


def _shown(see: str, world: World) -> str:
    """Return what will be seen, with the values of the expressions that stand in it."""
    for inner in braced(see):
        value = value_of(parse(inner, True), world)
        see = see.replace(f"{{{inner}}}", "?" if isinstance(value, Unknown) else visible(whole(value)))
    return see


# --- what is told -------------------------------------------------------------------------------------------------

_LEVELS: Mapping[str, Level] = {"refuses": "error", "degrades": "error", "changes": "info", "unknown": "unknown"}
_BASIS = {"run": "seen", "read": "read", "told": "told"}
_STAGE = {
    "flags": "when flags are read",
    "config": "when its config is read",
    "convert": "when it is converted",
    "load": "at load",
    "run": "at the first draft",
}
DOES = {  # what becomes of what a request asks for, the worst first
    "refused": "refuses {}",
    "undrafted": "drafts nothing for {}",
    "ignored": "ignores {} without a word",
    "unseen": "drafts without {}, and checks with all of it: fewer are accepted",
    "otherwise": "takes {} otherwise",
}
FOLDED = 8  # names that are told of what is not known behind a refusal
_EXPECT = {"stops": "expect no drafts from there on"}  # by kind; of any other a low accept length


def findings_of(*made: Prediction) -> list[Finding]:
    """Return what is predicted, of one launch by each runner: what runs as meant, and all that speaks against it.

    What is the same by all runners is said once, and so is what is the same of several tensors. The worst comes first;
    with the first refusal stands what would be refused after it.
    """
    profile, out = made[0].profile, list[Finding]()
    codes, near = profile.codes, made[0].near
    if not made[0].exact:
        read = ", ".join(v.is_ for v in profile.versions if v.basis != "part")
        how = "the nearest" if near else "the nearest, and too far to stand in for it"
        asked, of = visible(made[0].asked), f"what follows is of {made[0].version}, {how}"
        if made[0].in_part:
            of = f"it was read in part, and what was is told; else {of}"
        out.append(unknown(codes["unknown"], f"{profile.title} {made[0].version}, for {asked}",
                           expected=f"a version that was read: {read}", observed=f"{asked}; {of}"))  # fmt: skip
    shown = dict[str, list[Prediction]]()
    for one in made:
        shown.setdefault("; ".join(one.beside), []).append(one)
    out += [
        finding(codes["beside"], _called(made, by), level="info", observed=text)
        for text, by in shown.items()
        if text and "beside" in codes
    ]
    out += _of_requests(made)
    meant = [one for one in made if one.outcome == MEANT]
    for one in meant:
        name = _called(made, [one] if len(meant) < len(made) or one.captured != made[0].captured else made)
        layers = f"; it reads the inputs of layers {one.captured}" if one.captured is not None else ""
        show = holds if near else unknown
        out.append(show(codes["meant"], name, f"{name} runs it as meant{layers}"))
    rows: dict[tuple[Any, ...], tuple[dict[str, Effect], list[Prediction]]] = {}
    behind: dict[frozenset[str], tuple[list[Effect], list[Prediction]]] = {}  # not known, and after a refusal: by why
    for one in made:
        moot = _behind(one)
        if moot:
            both = behind.setdefault(frozenset(effect.see for effect in moot), ([], []))
            both[0].extend(moot)
            both[1].append(one)
        for effect in one.effects:
            if effect in moot or (effect.outcome == "refuses" and effect is not one.refusal):
                continue
            alike, by = rows.setdefault(_alike(effect), ({}, []))
            alike.setdefault(effect.subject, effect)
            by += [one] if one not in by else []
    for _, (alike, by) in sorted(rows.items(), key=lambda row: row[0][:2]):
        effect, subjects = next(iter(alike.values())), list(alike)
        kind = "unknown" if effect.outcome == "unknown" else effect.kind
        also = f"also {', '.join(subjects[1:])}" if len(subjects) > 1 else ""
        after = _after(by[0]) if effect.outcome == "refuses" else ""
        at = profile.title if effect.source[:1].isdigit() else f"{profile.title} {one.version},"  # it may name its own
        basis = f"{_BASIS[_basis(one, effect.basis)]}: {at} {effect.source}"
        notes = (effect.note, also, basis if effect.source else "", after)
        out.append(
            finding(
                codes[kind],
                f"{_called(made, by)}: {_listed(subjects)}",
                level=_LEVELS[effect.outcome] if near or effect.outcome == "changes" else "unknown",
                observed=_seen(effect, all(one.refusal for one in by)),
                note="; ".join(filter(None, notes)),
                help=effect.do,
                contract=effect.line(),
            )
        )
    for effects, by in behind.values():
        out.append(
            unknown(
                codes["unknown"],
                f"{_called(made, by)}: what comes after the refusal",
                observed=_folded(effects),
                help="Mend what is refused first, then ask again.",
            )
        )
    return list(dict.fromkeys(out))


def _behind(made: Prediction) -> list[Effect]:
    """Return what is not known because of the very thing that is refused; of one thing alone nothing."""
    what = made.refusal.subject if made.refusal is not None else ""
    found = [e for e in made.effects if e.outcome == "unknown" and what and e.see.startswith(f"{what} ")]
    return found if len({effect.subject for effect in found}) > 1 else []


def _folded(effects: Sequence[Effect]) -> str:
    """Say for each reason what is not known for it: keys by the first of their names, of many the first."""
    whys: dict[str, dict[str, None]] = {}
    for one in effects:
        whys.setdefault(one.see, {})[one.subject.partition(".")[0] if "*" not in one.subject else one.subject] = None
    return "; ".join(
        f"{why}: {', '.join([*names][:FOLDED])}{f' and {len(names) - FOLDED} more' * (len(names) > FOLDED)}"
        for why, names in whys.items()
    )


def _of_requests(made: Sequence[Prediction]) -> Iterator[Finding]:
    """Say in one finding what becomes of what requests ask for; of what never comes to a request, nothing."""
    told = dict[tuple[str, str, str], list[Prediction]]()
    for one in made:
        if one.requests and not one.refusal:
            rows = sorted(one.requests, key=lambda row: list(DOES).index(row.does))
            parts = dict[tuple[str, str, str], list[str]]()
            for row in rows:
                parts.setdefault((row.does, row.error, row.see), []).extend(row.asks)
            text = "; ".join(
                DOES[does].format(", ".join(asks))
                + (f" ({', '.join(filter(None, (error, see)))})" * bool(error or see))
                for (does, error, see), asks in parts.items()
            )
            sources = {basis: [row.source for row in rows if _basis(one, row.basis) == basis] for basis in _BASIS}
            note = "; ".join(f"{_BASIS[basis]}: {_places(where)}" for basis, where in sources.items() if where)
            told.setdefault((text, note, rows[0].line()), []).append(one)
    for (text, note, line), by in told.items():
        code = made[0].profile.codes["requests"]
        yield finding(code, _called(made, by), level="info", observed=text, note=note, contract=line)


def _basis(made: Prediction, basis: str) -> str:
    """Return how something is known of a version: what was run at another is only read."""
    return "read" if basis == "run" and not made.run else basis


def _places(sources: Sequence[str]) -> str:
    """Return where several sources stand, each file once with all its lines."""
    files = dict[str, dict[str, None]]()
    for place in ", ".join(sources).split(", "):
        file, colon, lines = place.rpartition(":")
        if not colon or lines.strip("0123456789-"):
            file, lines = place, ""
        files.setdefault(file, {})[lines] = None
    return ", ".join(":".join(filter(None, (file, " and ".join(filter(None, lines))))) for file, lines in files.items())


def _listed(subjects: Sequence[str]) -> str:
    return subjects[0] + (f" and {len(subjects) - 1} more" if len(subjects) > 1 else "")


def _after(made: Prediction) -> str:
    """Say what would be refused once the first refusal is mended; what is the same of several tensors once."""
    rows: dict[tuple[Any, ...], list[Effect]] = {}
    for effect in made.effects:
        if effect.outcome == "refuses" and effect is not made.refusal:
            rows.setdefault(_alike(effect), []).append(effect)
    alike = sorted(rows.items(), key=lambda row: row[0][:2])
    return "; ".join(f"after that {_listed([e.subject for e in row])}: {row[0].see}" for _, row in alike)


def _alike(effect: Effect) -> tuple[Any, ...]:
    """Return what two effects have in common that are told as one; the worst sorts first."""
    stage = "" if effect.outcome == "unknown" else effect.stage
    order = (OUTCOMES.index(effect.outcome), STAGES.index(stage) if stage else 0)
    told = (effect.source, effect.basis, effect.line, effect.note) if effect.outcome != "unknown" else ()
    return (*order, effect.kind, effect.see.replace(effect.subject, ""), effect.error, *told)


def _seen(effect: Effect, refused: bool) -> str:
    """Say what a user will see of an effect; where it is refused, what would be seen once that is mended."""
    match effect.outcome:
        case "refuses":
            return f"refuses {_STAGE[effect.stage]}: {effect.see}"
        case "degrades":
            says = f"the log says: {effect.log}" if effect.log else "look for nothing in the log"
            loads = "once it loads: " if refused else "loads; "
            return f"{loads}{effect.see}; {_EXPECT.get(effect.kind, 'expect a low accept length')}; {says}"
        case "changes":
            return f"{_STAGE[effect.stage]}: {effect.see}"
    return effect.see


def _called(made: Sequence[Prediction], by: Sequence[Prediction]) -> str:
    """Return the engine with its version, and of those of its runners that a finding is about, where not of all."""
    runners = [one.runner for one in by if one.runner]
    only = f" ({', '.join(runners)})" if runners and len(by) < len(made) else ""
    version = visible(made[0].asked) if made[0].in_part else made[0].version
    return f"{made[0].profile.title} {version}{only}"


# --- tensors ------------------------------------------------------------------------------------------------------


def _all_read(view: View) -> bool:
    """Tell whether every tensor of a drafter was read; of one in its target's checkpoint, all that may be its own."""
    return view.table.read and (view.table.complete or looked_for_all(view))


def _tensors(
    profile: Profile, class_: DrafterClass, world: World, without: frozenset[int] = frozenset()
) -> Iterator[Effect]:
    """Walk the tensors as a loader does, file by file and by name, then ask what no tensor was loaded into.

    Layers that it goes without are as one that is among them.
    """
    view = world.drafter
    if not _all_read(view):
        yield _unsure("load", "tensors", Unknown(view.table.basis or "not all tensors were read"))
        return
    params, failed = _expanded(class_, world, without)
    yield from (_unsure("load", glob, why) for glob, why in failed)
    wrong = _misread(profile, view)
    plain = not (wrong or (view.logical and view.logical.stored) or any(skip.over for skip in class_.skips))
    explained = _explained(view, params)
    loaded: set[str] = set()
    padded: dict[tuple[Any, ...], list[tuple[int, Effect]]] = {}  # alike: by how much, and what that does
    early: list[Effect] = []  # what is looked at before anything is loaded
    found: list[Effect] = []
    joined: dict[str, dict[str, tuple[list[int], list[int]]]] = {}  # name -> tensor -> its shape, and what is made
    fits: set[tuple[str, tuple[int, ...]]] = set()  # parameters that differ by their layer alone, one of which fits
    for name in sorted(view.table.tensors, key=lambda name: (view.table.files.get(name, ""), name)):
        param = name if view.table.format else _renamed(class_.names, name)  # converted, it has the names of the class
        made = params.get(param)
        shape = tuple(view.table.tensors[name].shape)
        if made is not None and (made[0].name, shape) in fits and param not in loaded:
            loaded.add(param)
            continue
        skip = None if view.table.format else _skip(class_, name, made is None, world, param, params)
        if isinstance(skip, Unknown):
            found.append(_unsure("load", visible(name), skip))
            loaded.add(param)  # or not: that is told
        elif skip is not None:
            (early if skip.early else found).extend(_skipped(class_, skip, name, name in explained, world))
        elif made is not None:
            rule, index = made
            world.at(index)
            holds = {param, *(filled(one, world.index) for one in rule.gives)}
            if holds & loaded and (class_.twice or name not in explained):
                found.append(_again(class_, rule, name))
            loaded |= holds
            found += _read_wrongly(profile, class_, name, wrong.get(visible(name), ""))
            found += _packed(class_, rule, name, world)
            told = [*_filling(profile, class_, rule, name, shape, world, padded)]
            (early if rule.early else found).extend(told)
            odd = told or padded or rule.joined or rule.replaced or rule.unused or holds != {param}
            if plain and not odd and not any(set(index) & axis.words for axis in rule.shape):
                fits.add((rule.name, shape))
            sizes = [value_of(axis, world) for axis in rule.shape] if rule.joined else []
            if sizes and shape and all(type(size) is int for size in sizes):
                joined.setdefault(rule.joined, {})[name] = (list(shape), sizes)
                if len(joined[rule.joined]) == sum(one.joined == rule.joined for one, _ in params.values()):
                    found += _joined(profile, class_, params, {rule.joined: joined.pop(rule.joined)})
            world.at({})
        elif not any(like(param, glob) for glob, _ in failed):
            found += _unclaimed(class_, name, name in explained, bool(view.table.format))
    for group, fills in padded.items():
        alike = len({by for by, _ in fills}) == 1 and len(fills) == sum(
            _group(*made) == group for made in params.values()
        )
        found += () if alike else (effect for _, effect in fills)
    found += _joined(profile, class_, params, joined)
    for param, (rule, index) in params.items():
        if param not in loaded:
            world.at(index)
            (early if rule.early else found).extend(_unset(class_, rule, param, world))
            world.at({})
    yield from (*early, *found)


def _target_loaded(profile: Profile, library: Library, world: World) -> Iterator[Effect]:
    """Hold a target of a folder to its class, tensor by tensor.

    One that is stored quantised is not looked at, nor one of whose layers there is none: a stand-in that holds what a
    drafter borrows.
    """
    target, seen = world.target, world("target.architectures")
    if target is None or target.checkpoint.source.kind != "folder" or not profile.serves:
        return
    named = seen.value if isinstance(seen, Known) and isinstance(seen.value, list) else []
    id = _class_of(profile, str(named[0]), world) if named else ""
    class_: DrafterClass | None = library.get("class", id)[0] if id in profile.serves else None
    if class_ is None:
        return
    table = target.checkpoint.table()
    if not (table.read and table.complete) or not isinstance(world("target.quantization_config"), Absent):
        return
    if _value(world("stored.borrowed")) is True:
        return
    said = {**world.said, "method": "", "code": id, "architecture": named[0]}
    inner = World(
        profile,
        replace(target, contract=None, table=table),
        None,
        None,
        world.flags,
        said,
        world.configs,
        {},
        world.request,
    )
    inner.add(class_.dims)
    for effect in _tensors(profile, class_, inner):
        if effect.outcome in ("refuses", "degrades") and effect.kind != "ignored":
            yield effect.but(subject=f"target.{effect.subject}", order="convert")


def _value(seen: Seen) -> Any:
    return seen.value if isinstance(seen, Known) else None


def _layers_of(table: Table) -> set[int]:
    """Return the numbers of the layers of a decoder that a table names."""
    found = (re.match(r"(?:.*language_model\.)?(?:model\.)?layers\.(\d+)\.", name) for name in table.tensors)
    return {int(one[1]) for one in found if one}


def _target_made(profile: Profile, library: Library, world: World, rows: Sequence[Rows]) -> Iterator[Effect]:
    """Say what is refused of a target that is made as a drafter of its class is, before the drafter's own turn."""
    target = world.target
    if target is None or not profile.makes:
        return
    source, format = target.checkpoint.source, ""
    if source.stated:  # its keys stand for a config, and its tensors are not the target's own table
        format = target.checkpoint.table().format
    table = Table(source.stated.get("table", {}), format=format) if format else target.table
    view = replace(target, contract=None, config=target.checkpoint.config, table=table)
    inner = World(
        profile, view, view, None, world.flags, {**world.said, "family": ""}, world.configs, {}, world.request
    )
    architecture = _architecture(inner, profile)
    id = "" if isinstance(architecture, Unknown) else _class_of(profile, architecture, inner)
    if architecture and id not in profile.makes and not isinstance(architecture, Unknown):
        return
    inner.say("architecture", architecture)
    inner.say("code", architecture if isinstance(architecture, Unknown) else id)
    class_: DrafterClass | None = library.get("class", id)[0] if id else None
    inner.add(class_.dims if class_ is not None else {})
    made: list[Effect] = []
    alike: frozenset[int] | None = frozenset() if "table" in source.stated else None
    if class_ is not None and view.checkpoint.source.kind == "folder":
        table, alike = _unlike_the_first(view.checkpoint.table())
        if table.state == "none" and not any(like(one, "tokenizer*") for one in view.checkpoint.source.files):
            return  # a config alone is no target yet
        inner.drafter = replace(view, table=table)
    made += _rows(rows, inner, both=True)
    if alike is not None and class_ is not None and _value(world("stored.borrowed")) is not True:
        made += _tensors(profile, class_, inner, alike)
    if architecture == "" and profile.unnamed is not None and not inner.drafter.table.format:
        made.append(_of(profile.unnamed))
    for effect in sorted(made, key=lambda e: not e.early):
        if effect.outcome == "refuses":
            yield effect.but(subject=f"target.{effect.subject}", early=True)


_OF_LAYER = re.compile(r"(.*?layers\.)(\d+)(\..*)")


def _unlike_the_first(table: Table) -> tuple[Table, frozenset[int]]:
    """Return a table without the layers whose tensors are as those of the first, and the numbers of those.

    The last layer stays: its number may be one too many.
    """
    found: dict[int, dict[str, tuple[str, tuple[int, ...]]]] = {}
    for name, tensor in table.tensors.items():
        if match := _OF_LAYER.fullmatch(name):
            found.setdefault(int(match[2]), {})[match[1] + match[3]] = (tensor.dtype, tuple(tensor.shape))
    first = found.get(0)
    alike = frozenset(number for number, parts in found.items() if 0 < number < max(found) and parts == first)
    left = {n: t for n, t in table.tensors.items() if not ((m := _OF_LAYER.fullmatch(n)) and int(m[2]) in alike)}
    return replace(table, tensors=left), alike


def _again(class_: DrafterClass, rule: Param, name: str) -> Effect:
    """Say that a tensor is read after another one of the same parameter."""
    if class_.twice:
        see = class_.twice_says.replace("{name}", visible(name))
        return Effect("refuses", class_.stage, "refuses", visible(name), see, class_.twice, class_.source, class_.basis)
    see = "another name of what was read before it: the last of the two counts, without a word"
    return Effect("degrades", "load", "replaced", visible(name), see, "", rule.source or class_.source, class_.basis)


def _misread(profile: Profile, view: View) -> dict[str, str]:
    """Return the tensors, as they are shown, whose bytes are not as their header says -> the code that tells."""
    out: dict[str, str] = {}
    found = [f for f in view.checkpoint.findings if f.level == "error" and f.code in profile.misread]
    for code in profile.misread:
        of = {f.subject for f in found if f.code == code}
        for file in of & {visible(file) for file in set(view.table.files.values())}:  # it ends too early
            of |= {visible(name) for name in _beyond(view, file)}
        out = dict.fromkeys(of, code) | out
    return out


def _beyond(view: View, file: str) -> Iterator[str]:
    """Yield the tensors that a file is too short for."""
    source = view.checkpoint.source
    for name, tensor in view.table.tensors.items():
        place = view.table.files.get(name, "")
        if visible(place) == file and tensor.end > tensor.start:
            before = 8 + int.from_bytes(source.read(place, 0, 8), "little")
            if before + tensor.end > source.files[place]:
                yield name


def _read_wrongly(profile: Profile, class_: DrafterClass, name: str, code: str) -> Iterator[Effect]:
    """Say what becomes of a tensor whose bytes are not as its header says."""
    fate = profile.misread.get(code, "")
    if fate == "unknown":
        why = "its bytes are not where its header says: what they hold is not known"
        yield _unsure(class_.stage, visible(name), Unknown(why), "degrades")
    elif fate:
        see = f"{fate}: its bytes are not as the header of its file says"
        yield Effect("refuses", class_.stage, "refuses", visible(name), see, fate, class_.source, class_.basis)


def _explained(view: View, params: Mapping[str, tuple[Param, dict[str, int]]]) -> set[str]:
    """Return the tensors that the drafter was trained with: those of its family, with biases of the same modules.

    Of a layer that the config does not count only a whole one is more than a leftover.
    """
    found = {name: re.match(r".*layers\.(\d+)\.(.+)", name) for name in view.names}
    layers: dict[str, set[str]] = {}
    for one in filter(None, found.values()):
        layers.setdefault(one[1], set()).add(one[2])
    whole = layers.get("0", set())
    left = {number for number, parts in layers.items() if parts < whole}
    own = {disk for name, disk in view.names.items()
           if not ((match := found[name]) and match[1] in left and disk not in params)}  # fmt: skip
    biases = {n for n in view.table.tensors if n.endswith(".bias") and f"{n.removesuffix('.bias')}.weight" in own}
    return own | biases


def _joined(
    profile: Profile,
    class_: DrafterClass,
    params: Mapping[str, tuple[Param, dict[str, int]]],
    joined: Mapping[str, Mapping[str, tuple[list[int], list[int]]]],
) -> Iterator[Effect]:
    """Say what becomes of tensors that are put together: one is lost without the others, and their sum is checked."""
    for group, rows in joined.items():
        rules = [rule for rule, _ in params.values() if rule.joined == group]
        loader = profile.loaders[rules[0].loader]
        parts: dict[str, Any] = {"source": loader.source or class_.source, "basis": class_.basis}
        shapes, wanted = zip(*rows.values(), strict=True)
        have, want = sum(shape[0] for shape in shapes), sum(shape[0] for shape in wanted)
        names = ", ".join(map(visible, rows))
        if len(rows) < len(rules):
            yield Effect(
                "degrades", "load", "ignored", names, "it is dropped: its other part is not there", "", **parts
            )
        elif any(shape[1:] != shapes[0][1:] for shape in shapes):
            see = f"{loader.other}: {' and '.join(map(str, shapes))} cannot be put together"
            yield Effect("refuses", loader.stage, "refuses", names, see, loader.other, **parts)
        elif have != want or shapes[0][1:] != wanted[0][1:]:
            see = f"{loader.larger}: together {[have, *shapes[0][1:]]} where it makes {[want, *wanted[0][1:]]}"
            yield Effect("refuses", loader.stage, "refuses", names, see, loader.larger, **parts)
        elif shapes != wanted:
            yield Effect("degrades", "load", "cut", names, "divided elsewhere than they were trained", "", **parts)


def _group(rule: Param, index: Mapping[str, int]) -> tuple[Any, ...]:
    """Return what tells which parameters change nothing if all are padded alike: those of one name in one layer."""
    return (rule.pads, *index.items()) if rule.pads else ()


def _expanded(
    class_: DrafterClass, world: World, without: frozenset[int] = frozenset()
) -> tuple[dict[str, tuple[Param, dict[str, int]]], list[tuple[str, Unknown]]]:  # fmt: skip
    """Return the parameters that the class makes, by name, and globs over names of which it cannot be told."""
    out: dict[str, tuple[Param, dict[str, int]]] = {}
    failed: list[tuple[str, Unknown]] = []
    for rule in class_.params.values():
        rows = _numbers(rule.over, world, MAX_PARAMS - len(out))
        if isinstance(rows, Unknown):
            failed.append((filled(rule.name, dict.fromkeys((one.name for one in rule.over), "*")), rows))
            continue
        holds: bool | Unknown = True
        alike = rule.when is not None and bool(rows) and rule.when.words.isdisjoint(rows[0])  # for all of the row
        for n, row in enumerate([row for row in rows if without.isdisjoint(row.values())] if without else rows):
            if rule.when is not None and not (alike and n):
                world.at(row)
                holds = world.holds(rule.when)
                world.at({})
            name = filled(rule.name, row)
            if isinstance(holds, Unknown):
                failed.append((name, holds))
            elif holds:
                out[name] = (rule, row)
    return out, failed


def _numbers(over: Sequence[Loop], world: World, most: int = MAX_PARAMS) -> list[dict[str, int]] | Unknown:
    """Return what loops run over, a row for each parameter; or why it cannot be told."""
    rows: list[dict[str, int]] = [{}]
    for loop in over:
        ends = [value_of(end, world) for end in (loop.first, loop.stop)]
        bad = next((e for e in ends if isinstance(e, Unknown)), None)
        if bad is None and any(type(e) is not int for e in ends):
            bad = Unknown(f"{loop.first}..{loop.stop} is {ends[0]!r}..{ends[1]!r}")
        if bad is None and (ends[1] - ends[0]) * len(rows) // loop.step > most:
            bad = Unknown(f"it would have more than {MAX_PARAMS} parameters")
        if bad is not None:
            return bad
        rows = [row | {loop.name: i} for row in rows for i in range(ends[0], ends[1], loop.step)]
    return rows


def _renamed(rules: Sequence[Name], name: str) -> str:
    for rule in rules:
        if any(like(name, glob) for glob in rule.unless):
            continue
        if rule.match:
            name = rule.to if like(name, rule.match) else name
        elif rule.part:
            name = name.replace(rule.part, rule.to)
        elif (start := next((one for one in rule.starts or ("",) if name.startswith(one)), None)) is not None:
            name = rule.to + name[len(start) :]
    return name


def _skip(
    class_: DrafterClass, name: str, lost: bool, world: World, param: str, params: Iterable[str]
) -> Skip | Unknown | None:
    """Return the first rule that passes over a tensor, which may have found no parameter; or why it cannot be told."""
    for skip in class_.skips:
        rows = _numbers(skip.over, world) if skip.over and (lost or not skip.lost) else [{}]
        if isinstance(rows, Unknown):
            return rows
        if (lost or not skip.lost) and skip.covers(name, rows):
            if skip.placed and not any(one.startswith(f"{param.rpartition('.')[0]}.") for one in params):
                continue
            holds = world.holds(skip.when)
            if holds is not False:
                return skip if holds is True else holds
    return None


def _skipped(class_: DrafterClass, skip: Skip, name: str, explained: bool, world: World) -> Iterator[Effect]:
    """Say what becomes of a tensor that is passed over; one that the family knows was trained for."""
    source = skip.source or class_.source
    if skip.as_ == "target":
        yield from _lent(class_, source, name, world)
        return
    if skip.as_ == "dropped":
        if explained:
            yield Effect("degrades", "load", "ignored", visible(name), "it is dropped", "", source,
                         class_.basis)  # fmt: skip
    elif skip.as_ != "harmless":
        stage = skip.stage or class_.stage
        yield Effect("refuses", stage, "refuses", visible(name), f"{skip.as_}: it takes no such tensor", skip.as_,
                     source, class_.basis)  # fmt: skip


def _unclaimed(class_: DrafterClass, name: str, explained: bool, converted: bool) -> Iterator[Effect]:
    """Say what becomes of a tensor that finds no parameter; one that the family knows was trained for."""
    if converted and class_.left:
        see = f"{class_.left}: the file has a tensor that it has no place for"
        yield Effect("refuses", "load", "refuses", visible(name), see, class_.left, class_.source, class_.basis)
        return
    if class_.unknown == "dropped":
        outcome, kind = ("degrades", "ignored") if explained else ("changes", "copes")
        yield Effect(outcome, "load", kind, visible(name), "it is ignored", "", class_.source,
                     class_.basis)  # fmt: skip
    else:
        see = (class_.says or "{error}").replace("{name}", visible(name)).replace("{error}", class_.unknown)
        yield Effect("refuses", class_.stage, "refuses", visible(name), f"{class_.unknown}: {see}", class_.unknown,
                     class_.source, class_.basis)  # fmt: skip


def _filling(
    profile: Profile,
    class_: DrafterClass,
    rule: Param,
    name: str,
    shape: tuple[int, ...],
    world: World,
    padded: dict[tuple[Any, ...], list[tuple[int, Effect]]],
) -> Iterator[Effect]:
    """Say what becomes of a tensor that finds its parameter; what is padded together is kept for later."""
    unused = world.holds(rule.unused) if rule.unused is not None else False
    made, by = _fitted(profile, class_, rule, name, shape, world)
    if made is not None and made.outcome == "degrades" and unused is not False:  # nothing reads it, or it may be so
        made = _unsure("load", made.subject, unused, "degrades") if isinstance(unused, Unknown) else None
    if made is not None and by and rule.pads:
        padded.setdefault(_group(rule, world.index), []).append((by, made))
    elif made is not None:
        yield made
    if rule.replaced is not None and unused is not True:
        yield from _replaced(class_, rule, name, world)


def _fitted(
    profile: Profile, class_: DrafterClass, rule: Param, name: str, shape: tuple[int, ...], world: World
) -> tuple[Effect | None, int]:
    """Compare a tensor's shape with its parameter's, as the engine takes it; returns also how much it is padded by."""
    loader = profile.loaders[rule.loader]
    wanted = [value_of(axis, world) for axis in rule.shape]
    if any(type(axis) is not int for axis in wanted):
        why = next((axis for axis in wanted if isinstance(axis, Unknown)), None)
        why = why or Unknown(f"{', '.join(map(str, rule.shape))} is {wanted!r}")
        return _unsure("load", visible(name), why), 0
    if rule.joined:  # what they are together counts
        return None, 0
    axis, sizes = loader.axis, f"{list(shape)} where it makes {wanted}"
    regrouped = value_of(rule.multiple, world) if rule.multiple is not None and loader.uneven else 1
    if type(regrouped) is int and regrouped > 0 and shape and shape[0] % regrouped:
        see, where = f"{loader.uneven}: {shape[0]} rows are no multiple of {regrouped}", loader.source or class_.source
        return Effect("refuses", class_.stage, "refuses", visible(name), see, loader.uneven, where, class_.basis), 0
    while loader.ones and len(shape) > len(wanted) and shape[0] == 1:
        shape = shape[1:]
    if loader.flat:
        shape, wanted = (prod(shape),), [prod(wanted)]
    if loader.partly and shape != tuple(wanted) and len(shape) == len(wanted):
        where = loader.source or class_.source
        if all(size <= most for size, most in zip(shape, wanted, strict=True)):
            return Effect("degrades", "load", "cut", visible(name), f"it fills only a part: {sizes}", "", where,
                          class_.basis), 0  # fmt: skip
        see = f"{loader.other}: {sizes}"
        return Effect("refuses", loader.stage, "refuses", visible(name), see, loader.other, where, class_.basis), 0
    odd = len(shape) != len(wanted) or any(n != axis and shape[n] != size for n, size in enumerate(wanted))
    by, fate = 0, loader.other if odd else "taken"
    if axis and not loader.narrows and odd and (*shape, *wanted[len(shape) :]) == (*wanted, *shape[len(wanted) :]):
        fate = loader.smaller or loader.other  # all axes that both have agree
    elif axis is not None and axis >= len(shape):
        fate = loader.narrows or loader.other
    elif (
        axis is not None and shape[axis] < wanted[axis] and (not odd or (loader.narrows and loader.smaller != "padded"))
    ):
        by, fate = wanted[axis] - shape[axis], loader.smaller
    elif axis is not None and shape[axis] > wanted[axis] and not odd:
        fate = loader.larger
    if fate == "taken":
        return None, 0
    parts: dict[str, Any] = {"source": loader.source or rule.source or class_.source, "basis": class_.basis}
    if fate in ("cut", "padded"):
        word = "cut to what the config says" if fate == "cut" else "filled up with zeros"
        made = Effect("degrades", "load", "cut", visible(name), f"it is {word}: {sizes}", **parts)
        return made, by if fate == "padded" else 0
    return Effect("refuses", loader.stage, "refuses", visible(name), f"{fate}: {sizes}", fate, **parts), 0


def _packed(class_: DrafterClass, rule: Param, name: str, world: World) -> Iterator[Effect]:
    """Say that what is stored quantised finds no place where the class makes it plain."""
    stored = world.drafter.logical.stored.get(name) if world.drafter.logical else None
    if rule.plain is None or stored is None:
        return
    if world.holds(rule.plain) is True:
        see = f"{class_.unknown}: it is stored quantised, {stored.dtype} {list(stored.shape)}, and is made plain here"
        yield Effect("refuses", "load", "refuses", visible(name), see, class_.unknown, rule.source or class_.source,
                     class_.basis)  # fmt: skip


def _replaced(class_: DrafterClass, rule: Param, name: str, world: World) -> Iterator[Effect]:
    """Say that the target's takes the place of the drafter's own, which matters where the two differ."""
    holds = world.holds(rule.replaced)
    if holds is not False:
        yield from _lent(
            class_, rule.source or class_.source, name, world, holds if isinstance(holds, Unknown) else None
        )


def _lent(
    class_: DrafterClass, source: str, name: str, world: World, unsure: Unknown | None = None
) -> Iterator[Effect]:  # fmt: skip
    """Say that the target's stands in for a tensor, which matters unless it is a copy of it."""
    copies = world("declared.copies")
    canonical = {disk: one for one, disk in world.drafter.names.items()}.get(name, name)
    contract, own = world.drafter.contract, world("declared.own_embedding")
    embeds = contract is not None and canonical == contract.roles.get("embedding")
    differs = own.value if embeds and isinstance(own, Known) else None
    if (isinstance(copies, Known) and canonical in copies.value) or differs is False:
        return
    outcome = "degrades" if (isinstance(copies, Known) or differs) and unsure is None else "unknown"
    see = (
        "the target's takes its place"
        if outcome == "degrades"
        else ("the target's takes its place: that matters unless it is a copy of it, which is not declared")
    )
    if unsure is not None:
        see = f"whether the target's takes its place is not known: {unsure.why}"
    yield Effect(outcome, "load", "replaced", visible(name), see, "", source, class_.basis, worst="degrades")


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
    missing = rule.missing
    if rule.spared and class_.spares is not None:
        spares = world.holds(class_.spares)
        missing = rule.spared if spares is True else missing
        unknown = unknown or (spares if isinstance(spares, Unknown) else None)
    if missing == "target":
        return
    fatal = missing not in HELD
    see = (
        f"{missing}: the file has none of that name"
        if fatal
        else f"the file has none of that name: it holds {_HOLDS[missing]}"
    )
    if unknown is not None:
        yield _unsure("load", visible(param), unknown, "refuses" if fatal else "degrades")
    elif fatal:
        yield Effect("refuses", "load", "refuses", visible(param), see, missing, source, class_.basis)
    else:
        yield Effect("degrades", "load", "unset", visible(param), see, "", source, class_.basis)


# --- layers -------------------------------------------------------------------------------------------------------


def _captures(profile: Profile, world: World, out: Prediction) -> Iterator[Effect]:
    """Find the boundaries of the target that are captured, and compare them with those it was trained on."""
    family = world.drafter.contract
    if family is None or not family.conventions:
        return
    row = world.first(profile.captures)
    if isinstance(row, Unknown):
        yield _unsure("run", "aux layers", row)
    if not isinstance(row, Capture):
        use = world("use_aux") if "use_aux" in world.exprs else None
        if row is None and out.class_ and not (isinstance(use, Known) and use.value is False):
            yield _unsure("run", "aux layers", Unknown(f"which layers {out.class_} captures was not read"))
        return
    ids, key, effects = _asked(row, world)
    yield from effects
    if ids is None:
        return
    parts: dict[str, Any] = {"source": row.source, "basis": row.basis}
    asked = list(ids) if row.ordered else sorted(set(ids))
    ends = (row.low, row.high, row.checked_low, row.checked_high)
    low, high, least, most = (value_of(end, world) if end is not None else None for end in ends)
    odd = [end for end in (low, high, least, most) if end is not None and type(end) is not int]
    if odd:
        why = odd[0] if isinstance(odd[0], Unknown) else Unknown(f"{visible(odd[0])} is no number of layers")
        yield _unsure("run", "aux layers", why)
        return
    out.lost = [b for b in asked if (low is not None and b < low) or (high is not None and b > high)]
    out.captured = [b for b in asked if b not in out.lost]
    out.beside.append(_layers(world, out.captured, key))
    refused = [b for b in asked if (least is not None and b < least) or (most is not None and b > most)]
    if least is most is None and row.outside != "lost":
        refused = out.lost
    if refused:
        yield Effect("refuses", row.outside_stage, "refuses", "aux layers", f"{row.outside}: {refused} are not there",
                     row.outside, late=row.outside_late, **parts)  # fmt: skip
        return
    count = world("aux_count")
    if isinstance(count, Known) and not isinstance(count.value, (int, float)):
        count = Unknown(f"the count of aux layers is {visible(count.value)}")
    if "aux_count" in world.exprs and not isinstance(count, Known):
        yield _unsure("run", "aux layers", count if isinstance(count, Unknown) else Unknown(f"{count.where}: nothing"))
    if isinstance(count, Known) and count.value != len(out.captured):
        bare, wide = world("unfused_width") if "unfused_width" in world.exprs else None, world("target.hidden")
        if isinstance(bare, Known) and isinstance(wide, Known) and len(out.captured) * wide.value == bare.value:
            see = f"{len(out.captured)} states are captured, {out.captured}, as wide as the drafter: it fuses nothing"
            yield Effect("degrades", "run", "layers", "aux layers", see, "", **parts)
            return
        error = (row.more if count.value < len(out.captured) else row.fewer if out.captured else row.none) or row.fewer
        see = f"{error}: {len(out.captured)} states are captured, {out.captured}; the fusion takes {count.value}"
        yield Effect("refuses", "run", "refuses", "aux layers", see, error, **parts)
        return
    width = value_of(row.width, world) if row.width is not None else None
    hidden = world("target.hidden")
    if width is not None and type(width) is not int:
        why = width if isinstance(width, Unknown) else Unknown(f"{row.width} is {visible(whole(width))}")
        yield _unsure("run", "aux layers", why)
    elif isinstance(hidden, Known) and isinstance(count, Known) and width is not None and width != hidden.value:
        error = (row.more if width < hidden.value else row.fewer) or row.fewer
        see = f"{error}: a state of the target is {hidden.value} wide; the fusion takes {width}"
        yield Effect("refuses", "run", "refuses", "aux layers", see, error, **parts)
        return
    yield from _trained(world, out.captured, parts)


def _layers(world: World, captured: list[int], key: str) -> str:
    """Say which layers are declared, trained and read; and which keys that name some are not read."""
    family = world.drafter.contract
    assert family is not None
    stated = {name: world(f"drafter.{name}") for name in family.aux_keys}
    ids = {name: seen.value for name, seen in stated.items() if isinstance(seen, Known) and seen.value is not None}
    declared = " and ".join(f"{name} {visible(value)}" for name, value in ids.items()) or "nothing"
    trained = _trained_on(world)
    unread = [name for name in ids if name != key]
    how = f"from {key}" if key else "its default"
    how += f"; it does not read {' and '.join(unread)}" if unread else ""
    known = f"the inputs of layers {trained}" if trained is not None else "not declared"
    return f"layers of the target: declared {declared}, trained {known}, read the inputs of layers {captured}, {how}"


def _asked(row: Capture, world: World) -> tuple[list[int] | None, str, list[Effect]]:
    """Return the boundaries that the config asks for as the engine reads it, and by which key; or its default."""
    for key in row.keys:
        holds = world.holds(key.when)
        if isinstance(holds, Unknown):
            return None, "", [_unsure("run", key.key, holds)]
        if not holds:
            continue
        seen = world(f"drafter.{key.key}")
        if isinstance(seen, Unknown):
            return None, "", [_unsure("run", key.key, seen)]
        if isinstance(seen, Absent) or seen.value is None:
            continue
        ids = seen.value
        if row.falsy and not ids:
            ids = []
        if row.cast and isinstance(ids, list):
            ids = [_cast(i) for i in ids]
        if isinstance(ids, list) and ids and all(_whole(i, row.whole) for i in ids):
            return [int(i) + key.offset for i in ids], key.key, []
        fate, stage = _oddly(row, key, ids)
        if fate == "next":
            continue
        if fate == "lost":
            return [], key.key, []
        if fate != "default":
            see = f"{fate}: {visible(ids)}"
            return None, "", [Effect("refuses", stage, "refuses", key.key, see, fate, row.source, row.basis)]
        break
    default = [value_of(e, world) for e in (*row.default, *([row.spaced] if row.spaced else []))]
    if any(type(v) is not int for v in default):
        bad = next((v for v in default if isinstance(v, Unknown)), Unknown(f"the default layers are {default}"))
        return None, "", [_unsure("run", "aux layers", bad)]
    if row.spaced:
        first, last, count = default[0], default[-2], default[-1]
        steps = range(min(count, MAX_PARAMS))
        spread = [round(first + k * (last - first) / (count - 1)) for k in steps] if count > 1 else []
        return spread or [(first + last + 1) // 2], "", []
    return default, "", []


def _cast(value: Any) -> Any:
    """Return the integer that a value is cast to; what has none stays as it is."""
    try:
        return int(value) if isinstance(value, (int, float, str)) else value
    except (ValueError, OverflowError):
        return value


def _casts(value: Any) -> Any:
    """Return the integer that a value is cast to, or those of a list of such values."""
    return [_cast(one) for one in value] if isinstance(value, list) else _cast(value)


def _oddly(row: Capture, key: AuxKey, ids: Any) -> tuple[str, str]:
    """Return what becomes of layer ids that are no list of numbers, and when."""
    if ids == []:
        return row.empty, row.empty_stage
    if key.odd:
        return key.odd, key.odd_stage
    if row.motley and (isinstance(ids, Mapping) or (isinstance(ids, list) and len(set(map(type, ids))) > 1)):
        return row.motley, row.motley_stage
    if isinstance(ids, list) and row.texts and all(isinstance(i, str) for i in ids):
        return row.texts, "run"
    if isinstance(ids, list) and row.mixed and not all(type(i) in (int, float) for i in ids):
        return row.mixed, row.mixed_stage
    return row.odd, row.odd_stage


def _whole(value: Any, alone: bool) -> bool:
    """Tell whether a value is an integer; unless those count alone, a truth value or a float without a fraction."""
    if alone:
        return type(value) is int
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _trained_on(world: World) -> list[int] | None:
    """Return the boundaries that the drafter was trained on, in their order, where they are declared."""
    assert world.drafter.contract is not None
    fact, named = world.facts.get("aux_layers"), world.facts.get("aux_convention")
    conventions = world.drafter.contract.conventions
    convention = conventions.get(str(named.value)) if named else None
    if convention is None and named is None and len(conventions) == 1:
        convention = next(iter(conventions.values()))
    offset = convention.offset if convention else 0 if named and named.value == "boundary" else None
    return None if fact is None or offset is None else [i + offset for i in fact.value]


def _trained(world: World, captured: list[int], parts: Mapping[str, Any]) -> Iterator[Effect]:
    """Compare the captured boundaries with those that the drafter was trained on, where that is declared."""
    trained = _trained_on(world)
    if trained is None:
        why = "the layers it was trained on, and their convention, are not declared"
        yield Effect("unknown", "run", "layers", "aux layers", f"it reads the inputs of layers {captured}: {why}",
                     **parts, worst="degrades")  # fmt: skip
    elif trained != captured:
        order = ", in that order" if sorted(trained) == captured else ""
        see = f"it reads the inputs of layers {captured}; trained on those of {trained}{order}"
        yield Effect("degrades", "run", "layers", "aux layers", see, note=world.facts["aux_layers"].source, **parts)
