"""Token ids on both sides: which files speak of them, and whether special ids lie inside the vocabulary.

What the ids stand for is the matter of ``tokenizer``, which is imported only where there are files to read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from draftproof.conform import View, both, ids_of, outside
from draftproof.dims import Known
from draftproof.findings import Finding, Level, finding, holds, unknown, visible
from draftproof.hub import Source
from draftproof.strict import CONFIG_LIMIT, strict_json

MAX_ID = 2**31 - 1
MAX_VALUES = 6_000_000  # commas and brackets of one JSON file: what bounds the memory that it takes

CONFIG, ADDED, MAP = "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"
TEMPLATES = ("chat_template.jinja", "chat_template.json")
GENERATION = "generation_config.json"
# of files that hold a whole vocabulary, the first that is there counts, as in transformers
_TABLES = (
    r"(tokenizer\.json)|(vocab\.json)|(vocab\.txt)|(.*\.tiktoken|tiktoken\.model)|(tokenizer\.model|.*tekken.*\.json)"
    r"|(.*(?:spiece|sentencepiece).*\.model)"
)


# --- files ----------------------------------------------------------------------------------------------------------


class Bad(Exception):  # never leaves this module and tokenizer
    """Say why a file cannot be used: what was expected, what is there."""

    def __init__(self, expected: str, observed: str) -> None:
        super().__init__(expected, observed)
        self.expected, self.observed = expected, observed


def table_files(source: Source) -> list[str]:
    """Return the names of the files that may hold a vocabulary, that which counts first."""
    found = [(m.lastindex or 0, n) for n in source.files if (m := re.fullmatch(_TABLES, n))]
    return [n for _, n in sorted(found)]


def tokenizer_files(source: Source) -> list[str]:
    """Return the names of all tokenizer files of one side."""
    return [*table_files(source), *(n for n in (CONFIG, ADDED, MAP, *TEMPLATES) if n in source.files)]


def unusable(source: Source, role: str, name: str, bad: Bad) -> Finding:
    """Make the finding for a file about tokens that cannot be used."""
    return unknown("CFG333", f"{role} {name}", expected=bad.expected, observed=bad.observed, where=source.label)


def take(source: Source, role: str, name: str, limit: int) -> bytes | Finding:
    """Read a tokenizer file whole; whatever keeps it from being read is the one finding that says so."""
    size = source.files[name]
    if size > limit:
        return unusable(source, role, name, Bad(f"at most {limit} bytes", f"{size} bytes"))
    raw = source.take(name, limit)
    if isinstance(raw, Finding):
        return unusable(source, role, name, Bad(raw.expected, raw.observed))
    if raw.startswith(b"version https://git-lfs"):
        return unusable(source, role, name, Bad("the file", "a Git LFS pointer: the file itself was not fetched"))
    return raw


def parse_json(raw: bytes) -> dict[str, Any]:
    """Return the object of a JSON file; raises Bad for what is no strict JSON, no object, or too large."""
    if sum(map(raw.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise Bad(f"at most {MAX_VALUES} values", "more")
    data, faults = strict_json(raw)
    if faults:
        raise Bad("strict JSON", f"{faults[0].text} ({faults[0].where})")
    if not isinstance(data, dict):
        raise Bad("an object", named(data))
    return data


def read_object(source: Source, role: str, name: str, out: list[Finding]) -> dict[str, Any] | None:
    """Read a small JSON file that must be an object; what is wrong is added to the findings."""
    raw = take(source, role, name, CONFIG_LIMIT)
    if isinstance(raw, Finding):
        out.append(raw)
        return None
    try:
        return parse_json(raw)
    except Bad as bad:
        out.append(unusable(source, role, name, bad))
        return None


def named(value: Any) -> str:
    """Return what kind of JSON value it is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


# --- both sides -----------------------------------------------------------------------------------------------------


@dataclass
class Tokens:
    """Hold both views of a pair, and what is read of their tokens beside the tokenizers."""

    drafter: View
    target: View
    _generation: dict[str, tuple[dict[str, Any], list[Finding]]] = field(default_factory=dict)

    @property
    def views(self) -> tuple[View, View]:
        """Return drafter and target."""
        return self.drafter, self.target

    def generation(self, view: View) -> tuple[dict[str, Any], list[Finding]]:
        """Return what the generation_config.json of one side says, {} where it has none, and what is wrong with it."""
        role, source = view.checkpoint.role, view.checkpoint.source
        if role not in self._generation:
            found: list[Finding] = []
            data = read_object(source, role, GENERATION, found) if GENERATION in source.files else None
            self._generation[role] = data or {}, found
        return self._generation[role]

    @cached_property
    def one(self) -> bool:
        """Tell whether both sides are one folder, which needs no comparison."""
        own, theirs = (v.checkpoint.source.folder for v in self.views)
        return own is not None and theirs is not None and own.resolve() == theirs.resolve()

    @cached_property
    def wanted(self) -> bool:
        """Tell whether tokenizers must be read: the drafter ships one, or the target's alone decides something."""
        own, theirs = (v.checkpoint.source for v in self.views)
        if self.one or not (own.files or theirs.files):
            return False
        sizes = {seen.value for view in self.views if (seen := view.vocabulary)}
        alone = bool(table_files(theirs)) and bool(mask_ids(self.drafter) or len(sizes) > 1)
        return bool(tokenizer_files(own)) or alone


# --- ids in configs -------------------------------------------------------------------------------------------------


def mask_ids(drafter: View) -> dict[str, int]:
    """Return config key -> id of what stands for tokens that are not yet drafted."""
    seen = {key: drafter.lookup(key) for key in drafter.keys("mask")}
    return {key: s.value for key, s in seen.items() if isinstance(s, Known) and type(s.value) is int}


def rows_of(view: View) -> Known | None:
    """Return how many ids have a row: what the config says, or the embedding, whichever is less."""
    known = [seen] if (seen := view.vocabulary) else []
    tensor = view.role("embedding") if view.table.read else None
    if tensor is not None and len(tensor.shape) == 2:
        assert view.contract is not None
        known.append(Known(tensor.shape[0], f"{view.checkpoint.role} {view.contract.roles['embedding']}"))
    return min(known, key=lambda row: row.value, default=None)


def special_ids(t: Tokens) -> Iterator[Finding]:
    """Compare bos, eos and pad ids, and hold them, and the drafter's mask id, to the vocabulary."""
    sizes = [seen for view in t.views if (seen := view.vocabulary)]
    vocab, where = min((s.value for s in sizes), default=None), t.drafter.checkpoint.source.label
    for key in t.drafter.keys("special"):
        own, theirs = t.drafter.lookup(key), t.target.lookup(key)
        subject = f"config.json: {key}"
        yield from both(t, "PAIR410", subject, own, theirs)
        mine = ids_of(own)
        if mine and mine == ids_of(theirs) == {-1}:
            continue  # the old way to say none
        out = {i for i in mine if vocab is not None and not 0 <= i < vocab}
        size = t.drafter.vocabulary
        told = {i for i in out if i != -1 and size is not None and not 0 <= i < size.value}  # by rung 1
        if vocab is not None and out - told:
            yield finding("PAIR410", subject, "special token id is outside the vocabulary", level="error",
                          expected=f"0 to {vocab - 1}", observed=", ".join(map(str, sorted(out - told))),
                          where=where)  # fmt: skip
        elif not out and mine and (others := ids_of(theirs)):
            if mine <= others | ids_of(Known(t.generation(t.target)[0].get(key), "")):
                yield holds("PAIR410", subject, f"{sorted(mine)}")
            else:
                level: Level = "info" if key.startswith("pad") else "warning"
                yield finding("PAIR410", subject, level=level, expected=f"{sorted(others)} (target)",
                              observed=f"{sorted(mine)}", where=where)  # fmt: skip
    for key, id in mask_ids(t.drafter).items():
        subject = f"config.json: {t.drafter.config.place(key)}"
        said = any(f.subject in (subject, f"config.json: {key}") and f.level == "error" for f in t.drafter.findings)
        if vocab is not None and not 0 <= id < vocab and not said:
            yield finding("PAIR410", subject, "mask token id is outside the vocabulary", level="error",
                          expected=f"0 to {vocab - 1}", observed=f"{id}", where=where)  # fmt: skip
    for view in t.views[t.one :]:
        yield from _generation(view, *t.generation(view))


def _generation(view: View, data: Mapping[str, Any], found: Sequence[Finding]) -> Iterator[Finding]:
    """Hold the ids of one side's generation_config.json to its vocabulary."""
    role, source = view.checkpoint.role, view.checkpoint.source
    yield from found
    for key in view.keys("special"):
        if key in data:
            yield from outside(view, f"{role} {GENERATION}: {key}", ids_of(Known(data[key], "")))
            if not is_ids(data[key]):
                shown = visible(json.dumps(data[key]), 60)
                yield unknown("CFG333", f"{role} {GENERATION}: {key}", expected="an id, or a list of ids",
                              observed=shown, where=source.label)  # fmt: skip


def is_ids(value: Any) -> bool:
    """Tell whether a value is null, an id or a list of ids."""
    return value is None or type(value) is int or (isinstance(value, list) and all(type(i) is int for i in value))


def at_hand(t: Tokens) -> Iterator[Finding]:
    """Say where a tokenizer that matters is not there to be compared."""
    whole = t.drafter.contract is not None and t.drafter.contract.standalone
    lacking = [] if t.one else [v for v in t.views if not table_files(v.checkpoint.source)]
    names = " and ".join(v.checkpoint.role for v in lacking)
    where = ", ".join(v.checkpoint.source.label for v in lacking)
    if whole and lacking:
        yield unknown("PAIR448", "tokenizer", expected="a tokenizer of each side", observed=f"none of the {names}",
                      where=where)  # fmt: skip
    elif lacking == [t.target]:
        yield finding("PAIR448", "tokenizer", level="info", expected="a tokenizer of each side",
                      observed="none of the target", where=where)  # fmt: skip
