"""What token ids stand for, on both sides: tokenizer files, read once, whole and bounded, and compared.

The order of the file is the order of the work: what the files of one side say (``read_tokenizer``), what is known of
both (``Tokenizers``), and then the questions (``compare``). A file that cannot be used is a finding of its own, never
an empty table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from draftproof.conform import View, ids_of
from draftproof.dims import Known
from draftproof.findings import Finding, Level, finding, holds, unknown, visible
from draftproof.hub import Source
from draftproof.strict import CONFIG_LIMIT
from draftproof.tokens import (
    ADDED,
    CONFIG,
    GENERATION,
    MAP,
    MAX_ID,
    TEMPLATES,
    Bad,
    Tokens,
    is_ids,
    mask_ids,
    named,
    parse_json,
    read_object,
    rows_of,
    table_files,
    take,
    tokenizer_files,
    unusable,
)

TABLE_LIMIT = 64 << 20  # bytes of a file that holds a vocabulary
SHOWN = 5  # ids written out
SHOWN_SPECIAL = 8

_TIKTOKEN = re.compile(rb"\s*[A-Za-z0-9+/]+={0,2} \d{1,10}\s")  # how such a file begins: base64 and rank
# placeholders that a tokenizer keeps for later: nobody trained them, so they are padding
_RESERVED = re.compile(r"[<\[]\W{0,3}(?:reserved|unused|placeholder|dummy|pad|padding|special)\D*\d+\W{0,3}[>\]]", re.I)
_KINDS = {  # how a vocabulary is used -> the sorts it may be; two of which none is the same are of different kinds
    "BPE": "b",
    "byte-level BPE": "b",
    "byte-level BPE (tiktoken)": "b",
    "BPE with byte fallback (SentencePiece)": "s",
    "SentencePiece": "su",
    "Unigram": "u",
}
_PLAIN_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend", "PythonBackend")  # say nothing of the kind


class Added(NamedTuple):
    """Hold a token that was added beside the vocabulary; special is None where no file says."""

    content: str
    special: bool | None = None


@dataclass
class Tokenizer:
    """Hold what the tokenizer files of one side say; ``ids`` is None where no file tells what ids stand for."""

    role: str
    label: str
    files: tuple[str, ...] = ()
    file: str = ""  # that of the vocabulary
    kind: str = ""
    class_: str = ""
    ids: dict[int, str] | None = None  # id -> text, added tokens included
    added: dict[int, Added] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # eos_token -> its text
    template: str = ""
    findings: list[Finding] = field(default_factory=list)

    @cached_property
    def by_text(self) -> dict[str, int]:
        """Return text -> id; an added token counts before the vocabulary."""
        return {t: i for i, t in (self.ids or {}).items()} | {a.content: i for i, a in self.added.items()}

    @property
    def whole(self) -> bool:
        """Tell whether all files could be used: else an id that is not in the table may have a token all the same."""
        return not any(f.level == "unknown" for f in self.findings)

    @cached_property
    def real(self) -> set[int]:
        """Return the ids that stand for text: all but reserved placeholders."""
        ids = self.ids or {}
        return ids.keys() - {i for i, text in ids.items() if _reserved(text)}

    @property
    def largest(self) -> int:
        """Return the largest id that stands for text."""
        return max(self.real, default=-1)


def _reserved(text: str) -> bool:
    return text[:1] in "<[" and len(text) <= 64 and _RESERVED.fullmatch(text) is not None


def quoted(text: str) -> str:
    """Write a token for a person."""
    return f"'{visible(text, 40)}'"


# --- the files of one side ------------------------------------------------------------------------------------------


class Parsed(NamedTuple):
    """Hold what one vocabulary file says; ids is None where it can only be compared by its bytes."""

    kind: str
    ids: dict[int, str] | None
    added: dict[int, Added]
    problems: tuple[tuple[str, str], ...] = ()  # contradictions: expected, observed


def read_tokenizer(source: Source, role: str, parsed: Parsed | Finding | None, file: str) -> Tokenizer:
    """Put together what all tokenizer files of one side say, given what its vocabulary file says."""
    out = Tokenizer(role, source.label, tuple(tokenizer_files(source)), file)
    said: dict[str, dict[int, Added]] = {}
    if isinstance(parsed, Finding):
        out.findings.append(parsed)
    elif parsed is not None:
        out.kind = parsed.kind
        said[file] = parsed.added
        out.findings += (
            finding("CFG334", f"{role} {file}", expected=e, observed=o, where=source.label) for e, o in parsed.problems
        )
    for name, read in ((CONFIG, _read_config), (ADDED, _read_added), (MAP, _read_map)):
        if name in source.files and (data := read_object(source, role, name, out.findings)) is not None:
            try:
                said[name] = read(data, out)
            except Bad as bad:
                out.findings.append(unusable(source, role, name, bad))
    for name in TEMPLATES:
        if name in source.files and not (out.template and name == TEMPLATES[1]):
            out.template = _template(source, role, name, out.findings) or out.template
    for name, rows in said.items():
        for i, token in rows.items():
            old = out.added.get(i)
            if old is not None and old.content != token.content:
                first = next(n for n, other in said.items() if i in other)
                out.findings.append(
                    finding("CFG334", f"{role} {name}", expected=f"{i} as in {first}: {quoted(old.content)}",
                            observed=quoted(token.content), where=source.label)
                )  # fmt: skip
            elif old is None or old.special is None:
                out.added[i] = token
    if isinstance(parsed, Parsed) and parsed.ids is not None:
        out.ids = parsed.ids | {i: token.content for i, token in out.added.items()} if out.added else parsed.ids
    return out


def _text(value: Any, place: str) -> str:
    """Return the text of a token that is written as text or as an object with its content."""
    content = value.get("content") if isinstance(value, dict) else value
    if not isinstance(content, str):
        raise Bad(f"{place}: text, or an object with content", named(content))
    return content


def _id(value: Any, place: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_ID:
        raise Bad(f"{place}: an id, 0 to {MAX_ID}", visible(json.dumps(value, default=str), 60))
    return value


def _special(row: Any) -> bool | None:
    flag = row.get("special") if isinstance(row, dict) else None
    return flag if isinstance(flag, bool) else None


def _names(data: Mapping[str, Any], out: Tokenizer) -> None:
    """Note the special tokens that a file names: bos_token, eos_token, ..."""
    for key, value in data.items():
        if key.endswith("_token") and isinstance(value, (str, dict)):
            out.names.setdefault(key, _text(value, key))


def _read_config(data: Mapping[str, Any], out: Tokenizer) -> dict[int, Added]:
    """Read a tokenizer_config.json: the class, the template, named tokens, and added ones with their ids."""
    if isinstance(data.get("tokenizer_class"), str):
        out.class_ = data["tokenizer_class"]
    template = data.get("chat_template")
    if template:
        out.template = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    _names(data, out)
    rows = data.get("added_tokens_decoder")
    if rows is not None and not isinstance(rows, dict):
        raise Bad("added_tokens_decoder: an object", named(rows))
    added: dict[int, Added] = {}
    for key, row in (rows or {}).items():
        place = f"added_tokens_decoder.{visible(key, 40)}"
        id = _id(int(key) if re.fullmatch(r"[0-9]{1,10}", key) else key, place)
        added[id] = Added(_text(row, place), _special(row))
    return added


def _read_added(data: Mapping[str, Any], out: Tokenizer) -> dict[int, Added]:
    """Read an added_tokens.json: text -> id."""
    return {_id(id, visible(text, 40)): Added(text) for text, id in data.items()}


def _read_map(data: Mapping[str, Any], out: Tokenizer) -> dict[int, Added]:
    """Read a special_tokens_map.json: it names tokens, and gives no ids."""
    _names(data, out)
    return {}


def _template(source: Source, role: str, name: str, out: list[Finding]) -> str:
    if name.endswith(".json"):
        data = read_object(source, role, name, out)
        value = data.get("chat_template") if data else None
        return value if isinstance(value, str) else json.dumps(value, sort_keys=True) if value else ""
    raw = take(source, role, name, CONFIG_LIMIT)
    if isinstance(raw, Finding):
        out.append(raw)
        return ""
    return raw.decode("utf-8", "replace")


# --- vocabularies ---------------------------------------------------------------------------------------------------


def parse_vocabulary(name: str, raw: bytes) -> Parsed:
    """Return what a vocabulary file says; raises Bad where it is not what its name says."""
    if name in ("tokenizer.json", "vocab.json"):
        data = parse_json(raw)
        return _tokenizer_json(data) if name == "tokenizer.json" else _vocab_json(data, "BPE", ())
    if name == "vocab.txt":
        try:
            lines = raw.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
        except UnicodeDecodeError as bad:
            raise Bad("one token a line, in UTF-8", f"byte {bad.start} is not UTF-8") from None
        return _filled(Parsed("WordPiece", dict(enumerate(lines)) if raw.strip() else {}, {}))
    if _TIKTOKEN.match(raw[:4096]) or name.endswith(".tiktoken"):
        return _filled(Parsed("byte-level BPE (tiktoken)", _ranks(raw), {}))
    if not raw.strip():
        raise Bad("a vocabulary", "an empty file")
    return Parsed("SentencePiece" if name.endswith(".model") else "", None, {})


def _filled(parsed: Parsed) -> Parsed:
    if not parsed.ids:
        raise Bad("a vocabulary", "no token at all")
    return parsed


def _tokenizer_json(data: Mapping[str, Any]) -> Parsed:
    model = data.get("model")
    if not isinstance(model, dict):
        raise Bad("model: an object", named(model))
    vocab, type_ = model.get("vocab"), model.get("type")
    added: dict[int, Added] = {}
    problems: list[tuple[str, str]] = []
    rows = data.get("added_tokens") or []
    if not isinstance(rows, list):
        raise Bad("added_tokens: a list", named(rows))
    for n, row in enumerate(rows):
        place = f"added_tokens[{n}]"
        if not isinstance(row, dict):
            raise Bad(f"{place}: an object", named(row))
        id, text = _id(row.get("id"), f"{place}.id"), _text(row, place)
        if id in added and added[id].content != text:
            problems.append((f"one token for id {id}", f"{quoted(added[id].content)} and {quoted(text)}"))
        added[id] = Added(text, _special(row))
    if isinstance(vocab, list):
        ids: dict[int, str] = {}
        for n, row in enumerate(vocab):
            if not (isinstance(row, list) and row and isinstance(row[0], str)):
                raise Bad(f"model.vocab[{n}]: text and score", named(row))
            ids[n] = row[0]
        parsed = Parsed(type_ if isinstance(type_, str) else "Unigram", ids, added)
    elif isinstance(vocab, dict):
        parsed = _vocab_json(vocab, _kind(data, model), added)
    else:
        raise Bad("model.vocab: an object or a list", named(vocab))
    assert parsed.ids is not None
    for id, token in added.items():
        if (text := parsed.ids.get(id, token.content)) != token.content:
            problems.append((f"one token for id {id}", f"{quoted(text)} and, added, {quoted(token.content)}"))
    problems = problems if len(problems) <= SHOWN else [*problems[:SHOWN], ("none", f"{len(problems)} in all")]
    return _filled(parsed._replace(added=added, problems=(*parsed.problems, *problems)))


def _vocab_json(vocab: Mapping[str, Any], kind: str, added: Iterable[int]) -> Parsed:
    """Turn text -> id around."""
    ids = {i: text for text, i in vocab.items() if type(i) is int}
    if len(ids) < len(vocab) or any(not 0 <= i <= MAX_ID for i in ids):
        seen: dict[int, str] = {}
        for text, i in vocab.items():
            if (id := _id(i, f"vocab: {quoted(text)}")) in seen:
                both_ = f"{quoted(seen[id])} and {quoted(text)}"
                return Parsed(kind, ids, {}, ((f"one token for id {id}", f"{both_}; {len(vocab) - len(ids)} in all"),))
            seen[id] = text
    if not ids and not added:
        raise Bad("a vocabulary", "no token at all")
    return Parsed(kind, ids, {})


def _kind(data: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    """Name how a vocabulary is used, by the model's type and what stands around it."""
    type_ = model.get("type")
    if not isinstance(type_, str):
        type_ = "BPE" if "merges" in model else ""
    if type_ != "BPE":
        return type_
    around = json.dumps([data.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")])
    if model.get("byte_fallback") is True or "\\u2581" in around or '"Metaspace"' in around:
        return "BPE with byte fallback (SentencePiece)"
    return "byte-level BPE" if '"ByteLevel"' in around else "BPE"


def _ranks(raw: bytes) -> dict[int, str]:
    """Read a tiktoken file: a token in base64 and its rank on each line."""
    from binascii import Error, a2b_base64  # noqa: PLC0415 (only these files need it)

    alphabet, ids = _alphabet(), dict[int, str]()
    for n, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        token, _, rank = line.strip().partition(b" ")
        shown = f"line {n}: {visible(line[:40].decode('latin-1'))}"
        try:
            text = a2b_base64(token, strict_mode=True).decode("latin-1").translate(alphabet)
        except Error:
            raise Bad("base64 and a rank on each line", shown) from None
        if not re.fullmatch(rb"[0-9]{1,10}", rank) or int(rank) > MAX_ID or int(rank) in ids:
            raise Bad("base64 and a rank of its own on each line", shown)
        ids[int(rank)] = text
    return ids


@lru_cache(maxsize=1)
def _alphabet() -> dict[int, int]:
    """Return byte -> character as byte-level BPE writes it, so that both kinds of file can be compared."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: b for b in plain} | {b: 256 + n for n, b in enumerate(others)}


# --- both sides -----------------------------------------------------------------------------------------------------


@dataclass
class Tokenizers:
    """Hold the tokenizers of a pair, each read once."""

    tokens: Tokens

    @cached_property
    def sides(self) -> tuple[Tokenizer | None, Tokenizer | None]:
        """Return both tokenizers; None for one that has no files, or that nothing asks for."""
        return self._read[0], self._read[1]

    @property
    def same_file(self) -> str:
        """Return the name of a vocabulary file that has the same bytes on both sides, or ""."""
        return self._read[2]

    @cached_property
    def _read(self) -> tuple[Tokenizer | None, Tokenizer | None, str]:
        sources = [v.checkpoint.source for v in self.tokens.views]
        names = [table_files(s) for s in sources]
        raws: dict[tuple[int, str], bytes | Finding] = {}

        def raw(side: int, name: str) -> bytes | Finding:
            if (side, name) not in raws:
                raws[side, name] = take(sources[side], ("drafter", "target")[side], name, TABLE_LIMIT)
            return raws[side, name]

        same = ""
        for name in [rows[0] for rows in names if rows]:  # a file that counts on one side, and is there on both
            there = all(name in rows for rows in names) and sources[0].files[name] == sources[1].files[name]
            if there and isinstance(raw(0, name), bytes) and raw(0, name) == raw(1, name):
                same = name
                break
        parsed = [_parsed(sources[0], "drafter", names[0], raw(0, names[0][0])) if names[0] else None]
        if same and same == names[0][0] == names[1][0] and isinstance(parsed[0], Parsed):
            parsed.append(parsed[0])
        else:
            parsed.append(_parsed(sources[1], "target", names[1], raw(1, names[1][0])) if names[1] else None)
        made: list[Tokenizer | None] = []
        for view, source, rows, table in zip(self.tokens.views, sources, names, parsed, strict=True):
            there = bool(tokenizer_files(source))
            role, file = view.checkpoint.role, rows[0] if rows else ""
            made.append(read_tokenizer(source, role, table, file) if there else None)
        return made[0], made[1], same

    @cached_property
    def tables(self) -> tuple[Tokenizer, Tokenizer] | None:
        """Return both tokenizers where both tell what every id stands for."""
        own, theirs = self.sides
        if own is None or theirs is None or own.ids is None or theirs.ids is None:
            return None
        return own, theirs

    @cached_property
    def differences(self) -> Differences | None:
        """Return where the two tables differ; None where they cannot be compared."""
        return Differences.of(*self.tables) if self.tables else None

    def padding(self, own: int, theirs: int) -> str:
        """Return why vocabularies of two sizes differ by padding only, or "" where that is not known to hold."""
        d = self.differences
        if d is None or d.plain or d.moved or self.tables is None or not all(t.whole for t in self.tables):
            return ""
        largest = max(t.largest for t in self.tables)
        if largest >= min(own, theirs):
            return ""
        same = d.common - len(d.all)
        seen = f"both tokenizers give {same} ids the same text, and the largest of all is {largest}"
        return f"{seen}: of the rows, {own - largest - 1} and {theirs - largest - 1} are padding"

    def size_note(self, own: int, theirs: int) -> str:
        """Return what the tokenizers tell of two sizes that are no mere padding."""
        if self.differences is not None and (self.differences.plain or self.differences.moved):
            return "the tokenizers differ too"
        if self.tables is not None:
            largest = max(t.largest for t in self.tables)
            return f"the tokenizers' largest id is {largest}: it needs {largest + 1} rows"
        target = self.sides[1]
        if target is not None and target.ids is not None and target.largest >= own:
            return f"the target's tokenizer has ids up to {target.largest}: the drafter has no rows for them"
        if target is not None and target.ids is not None and target.largest < theirs:
            seen = f"both have a row for every id of the target's tokenizer, the largest of which is {target.largest}"
            return f"{seen}: padding rows, if the drafter's tokenizer is the same"
        return ""


def _parsed(source: Source, role: str, names: Sequence[str], raw: bytes | Finding) -> Parsed | Finding:
    if isinstance(raw, Finding):
        return raw
    try:
        return parse_vocabulary(names[0], raw)
    except Bad as bad:
        return unusable(source, role, names[0], bad)


class Differences(NamedTuple):
    """Hold the ids that stand for other text on the two sides, by what they are, and those that one side lacks."""

    common: int
    ordinary: list[int]
    special: list[int]  # an added token on both sides
    reserved: list[int]  # a placeholder on one side
    own: list[int]  # in the drafter's only
    theirs: list[int]
    moved: list[tuple[int, int]]  # the drafter's id and the target's of one text, where one of them is in one only

    @property
    def plain(self) -> bool:
        """Tell whether ordinary text differs, or no id is in both."""
        return bool(self.ordinary or not self.common)

    @property
    def all(self) -> list[int]:
        """Return all ids of other text."""
        return sorted([*self.ordinary, *self.special, *self.reserved])

    @classmethod
    def of(cls, a: Tokenizer, b: Tokenizer) -> Differences:
        """Compare two tables."""
        own, theirs = a.ids or {}, b.ids or {}
        if own is theirs:
            return cls(len(own), [], [], [], [], [], [])
        out = cls(len(own.keys() & theirs.keys()), [], [], [], [], [], [])
        for i in sorted(i for i, text in own.items() if theirs.get(i, text) != text):
            if _reserved(own[i]) or _reserved(theirs[i]):
                out.reserved.append(i)
            else:
                (out.special if i in a.added and i in b.added else out.ordinary).append(i)
        out.own[:], out.theirs[:] = sorted(own.keys() - theirs.keys()), sorted(theirs.keys() - own.keys())
        if not out.ordinary:
            pairs = [(i, b.by_text.get(own[i], -1)) for i in out.own]
            pairs += [(a.by_text.get(theirs[j], -1), j) for j in out.theirs]
            out.moved[:] = sorted({p for p in pairs if -1 not in p and not _reserved(own[p[0]])})
        return out


# --- what is asked --------------------------------------------------------------------------------------------------


def compare(both: Tokenizers) -> Iterator[Finding]:
    """Compare the tokenizers where there is something to compare: the text that ids stand for, not the files."""
    own, theirs = both.sides
    for view, side in zip(both.tokens.views, (own, theirs), strict=True):
        if side is not None:
            yield from side.findings
            yield from _rows(both, view, side)
            yield from _named_ids(view, side, both.tokens.generation(view)[0])
    yield from _mask(both.tokens, theirs)
    if own is None or theirs is None:
        return
    yield from _kinds(own, theirs, both.same_file)
    if both.differences is not None:
        yield from _tables(both.differences, *both.tables or ())
    elif own.file and theirs.file:
        yield from _files(both, own, theirs)
    if both.differences is None:
        yield from _added(own, theirs)
    yield from _flags(own, theirs)
    yield from _same_names(own, theirs)
    yield from _same_template(own, theirs)


def _rows(both: Tokenizers, view: View, side: Tokenizer) -> Iterator[Finding]:
    """Hold the ids of one tokenizer to the rows of both sides, and say how many rows are padding."""
    if side.ids is None:
        return
    rows, label, subject = rows_of(view), side.label, f"{side.role} {side.file}"
    if rows is None:
        return
    beyond = sorted(i for i in side.real if i >= rows.value)
    if beyond:
        # what only an added token asks for fails once that token is used; the target may live with it, and then so
        # may a drafter with the same tokenizer
        plain = any(i not in side.added for i in beyond)
        theirs = (both.sides[1].ids if both.sides[1] else None) or {}
        shared = all(theirs.get(i) == side.ids[i] for i in beyond)
        yield finding("CFG330", subject, level="error" if plain or not shared else "warning",
                      expected=f"ids below {rows.value} ({rows.witness})",
                      observed=f"{len(beyond)} of {len(side.ids)} ids have no row, the largest is {beyond[-1]}",
                      note=_listed(side.ids, beyond), where=label)  # fmt: skip
    else:
        yield holds("CFG330", subject, f"largest id {side.largest}, {rows.value} rows")
    padded = rows.value - (len(side.real) - len(beyond))
    if padded > 0 and side.whole:
        seen = f"{rows.value - padded} real ids, the largest {side.largest}: {padded} rows are padding"
        yield finding("PAIR447", subject, expected=f"{rows.value} rows ({rows.witness})", observed=seen)
    other = both.tokens.target if view is both.tokens.drafter else both.tokens.drafter
    their_rows = rows_of(other)
    if their_rows is None or (both.differences is not None and both.differences.plain):
        return
    lost = sorted(i for i in side.real if their_rows.value <= i < rows.value)
    if lost:
        role = other.checkpoint.role
        yield finding("PAIR441", subject, f"tokenizer has an id that has no row in the {role}",
                      expected=f"ids below {their_rows.value} ({their_rows.witness})",
                      observed=f"{len(lost)} of {len(side.ids)} ids beyond, the largest is {lost[-1]}",
                      note=_listed(side.ids, lost), where=label)  # fmt: skip


def _listed(ids: Mapping[int, str], chosen: Sequence[int]) -> str:
    return "; ".join(f"{i}: {quoted(ids[i])}" for i in chosen[:SHOWN])


def _named_ids(view: View, side: Tokenizer, more: Mapping[str, Any]) -> Iterator[Finding]:
    """Hold the special ids of one side's configs to its tokenizer, and the tokens it names to its table."""
    if side.ids is None or not side.whole:
        return
    rows = rows_of(view)
    for key in view.keys("special"):
        name = key.removesuffix("_id")
        mild: Level = "info" if key.startswith("pad") else "warning"
        places = {f"{side.role} config.json: {key}": ids_of(view.lookup(key)) - {-1}}
        if is_ids(more.get(key)):
            places[f"{side.role} {GENERATION}: {key}"] = ids_of(Known(more.get(key), "")) - {-1}
        for place, ids in places.items():
            lost = sorted(i for i in ids if i not in side.ids and 0 <= i < (rows.value if rows else MAX_ID))
            if lost:
                yield finding("CFG332", place, level=mild, expected=f"an id of {side.file}",
                              observed=f"{', '.join(map(str, lost))}, a row without a token",
                              where=side.label)  # fmt: skip
        if name not in side.names:
            continue
        text, every = side.names[name], set[int]().union(*places.values())
        id = side.by_text.get(text)
        if id is None:
            yield finding("CFG332", f"{side.role} {name}", level=mild, expected=f"a token of {side.file}",
                          observed=f"{quoted(text)}, which it does not have", where=side.label)  # fmt: skip
        elif every and id not in every:
            stated = ", ".join(f"{i} {quoted(side.ids[i])}" if i in side.ids else str(i) for i in sorted(every))
            yield finding("CFG332", f"{side.role} {name}", "config and tokenizer name different special tokens",
                          level="info", expected=f"{stated} (config)", observed=f"{id} {quoted(text)} (tokenizer)",
                          where=side.label)  # fmt: skip


def _mask(t: Tokens, theirs: Tokenizer | None) -> Iterator[Finding]:
    """Say where the mask id of a drafter stands for text that the target also writes."""
    for key, id in mask_ids(t.drafter).items():
        subject = f"config.json: {t.drafter.config.place(key)}"
        if theirs is None or theirs.ids is None:
            continue
        text = theirs.ids.get(id)
        named = sorted(name for name, token in theirs.names.items() if token == text and name != "mask_token")
        if text is None or (id in theirs.added and not named) or _reserved(text):
            shown = f"{quoted(text)}, an added token" if text is not None else "a row without a token"
            yield holds("PAIR446", subject, f"{id}: {shown}")
        else:
            seen = f"{id}: {quoted(text)}" + (f", the target's {', '.join(named)}" if named else ", ordinary text")
            yield finding("PAIR446", subject, expected="an id that stands for no text of the target", observed=seen,
                          where=t.drafter.checkpoint.source.label)  # fmt: skip


def _kinds(own: Tokenizer, theirs: Tokenizer, same: str) -> Iterator[Finding]:
    """Compare the kinds of the two tokenizers, which some engines do before anything else."""
    if own.kind and theirs.kind and not same:
        sorts = [set(_KINDS.get(side.kind, (side.kind,))) for side in (own, theirs)]
        if not sorts[0] & sorts[1]:
            yield finding("PAIR442", "tokenizer", expected=f"{visible(theirs.kind, 60)} (target {theirs.file})",
                          observed=f"{visible(own.kind, 60)} (drafter {own.file})",
                          note=_sizes(own, theirs), where=own.label)  # fmt: skip
            return
        yield holds("PAIR442", "tokenizer", f"{visible(own.kind, 60)} and {visible(theirs.kind, 60)}")
    classes = [side.class_.removesuffix("Fast") for side in (own, theirs)]
    if all(classes) and classes[0] != classes[1] and not set(classes) & set(_PLAIN_CLASSES):
        yield finding("PAIR442", "tokenizer_class", "tokenizer classes differ", level="info",
                      expected=f"{visible(theirs.class_, 60)} (target)",
                      observed=f"{visible(own.class_, 60)} (drafter)", where=own.label)  # fmt: skip


def _sizes(own: Tokenizer, theirs: Tokenizer) -> str:
    if own.ids is None or theirs.ids is None:
        return ""
    return f"{len(own.ids)} ids in the drafter's, {len(theirs.ids)} in the target's"


def _pairs(chosen: Sequence[int], own: Mapping[int, str], theirs: Mapping[int, str], limit: int = SHOWN) -> str:
    return "; ".join(f"{i}: {quoted(own[i])} against {quoted(theirs[i])}" for i in chosen[:limit])


def _tables(d: Differences, a: Tokenizer, b: Tokenizer) -> Iterator[Finding]:
    """Say how many ids stand for other text, which, and which are in one table only."""
    own, theirs = a.ids or {}, b.ids or {}
    only = len(d.own) + len(d.theirs)
    if d.plain:
        seen = f"{len(d.all)} of {d.common} common ids differ, {only} ids are in one only"
        yield finding("PAIR419", "tokenizer", expected="the same text for every id", observed=seen,
                      note=_pairs(d.ordinary, own, theirs), where=a.label)  # fmt: skip
    if d.special:
        seen = f"{len(d.special)} of {d.common} common ids: {_pairs(d.special, own, theirs, SHOWN_SPECIAL)}"
        yield finding("PAIR440", "tokenizer", expected="the same text for every added token", observed=seen,
                      note="drafter against target", where=a.label)  # fmt: skip
    if d.moved:
        plain = any(i not in a.added or j not in b.added for i, j in d.moved)
        shown = [f"{quoted(own[i])} is {i} in the drafter's and {j} in the target's" for i, j in d.moved]
        yield finding("PAIR419" if plain else "PAIR440", "tokenizer", "tokenizers give one text two ids",
                      expected="the same id for every text", observed=f"{len(d.moved)} have another",
                      note="; ".join(shown[:SHOWN]), where=a.label)  # fmt: skip
    if d.plain or d.moved:
        return
    if not (a.whole and b.whole):
        seen = f"{d.common - len(d.all)} of {d.common} common ids are the same; not all files can be used"
        yield unknown("PAIR419", "tokenizer", expected="all files of both tokenizers", observed=seen, where=a.label)
    elif only or d.reserved:
        placeholders = f", {len(d.reserved)} are placeholders on one side" if d.reserved else ""
        rest = "" if d.special else f"all {d.common - len(d.reserved)} common ids are the same, "
        shown = [f"{i}: {quoted(own[i])} (drafter only)" for i in d.own[:SHOWN]]
        shown += [f"{i}: {quoted(theirs[i])} (target only)" for i in d.theirs[: SHOWN - len(shown)]]
        yield finding("PAIR421", "tokenizer", "tokenizers differ by ids that one lacks", expected="the same ids",
                      observed=f"{rest}{only} ids are in one only{placeholders}", note="; ".join(shown),
                      where=a.label)  # fmt: skip
    elif not d.special:
        yield holds("PAIR419", "tokenizer", f"all {d.common} ids stand for the same text")


def _files(both: Tokenizers, own: Tokenizer, theirs: Tokenizer) -> Iterator[Finding]:
    """Compare two tokenizers of which one at least cannot be read as a table: by their bytes."""
    unread = [f for side in (own, theirs) for f in side.findings if f.subject == f"{side.role} {side.file}"]
    if both.same_file:
        yield holds("PAIR419", "tokenizer", f"{both.same_file} is the same file on both sides")
        return
    seen = f"drafter {own.file}, target {theirs.file}: they cannot be compared by id"
    if own.file == theirs.file:
        seen = f"two files {own.file} that differ, and cannot be compared by id"
    why = f"{unread[0].subject} cannot be used: {unread[0].observed}" if unread else ""
    yield unknown("PAIR419", "tokenizer", expected="the same file, or two tables of ids", observed=seen, note=why,
                  where=own.label)  # fmt: skip


def _added(own: Tokenizer, theirs: Tokenizer) -> Iterator[Finding]:
    """Compare the added tokens alone, where the tables cannot be compared."""
    a, b = ({i: token.content for i, token in side.added.items()} for side in (own, theirs))
    a, b = (a | (own.ids or {}) if b else a), (b | (theirs.ids or {}) if a else b)
    differ = sorted(i for i in a.keys() & b.keys() if a[i] != b[i] and not (_reserved(a[i]) or _reserved(b[i])))
    if differ:
        seen = f"{len(differ)} of {len(a.keys() & b.keys())} common ids: {_pairs(differ, a, b, SHOWN_SPECIAL)}"
        yield finding("PAIR440", "tokenizer", expected="the same text for every added token", observed=seen,
                      note="drafter against target", where=own.label)  # fmt: skip


def _flags(own: Tokenizer, theirs: Tokenizer) -> Iterator[Finding]:
    """Say where a token is special on one side only."""
    rows = [(i, a.content, a.special) for i, a in sorted(own.added.items()) if (b := theirs.added.get(i))
            and a.content == b.content and None not in (a.special, b.special) and a.special != b.special]  # fmt: skip
    if rows:
        sides = {True: "drafter", False: "target"}
        shown = "; ".join(f"{i}: {quoted(text)} (special in the {sides[flag is True]} only)"
                          for i, text, flag in rows[:SHOWN])  # fmt: skip
        yield finding("PAIR444", "tokenizer", expected="the same flag on both sides", observed=f"{len(rows)} tokens",
                      note=shown, where=own.label)  # fmt: skip


def _same_names(own: Tokenizer, theirs: Tokenizer) -> Iterator[Finding]:
    """Compare the tokens that the two sides name as begin, end and padding of a text."""
    for name in ("bos_token", "eos_token", "pad_token"):
        a, b = own.names.get(name), theirs.names.get(name)
        if a is not None and b is not None and a != b:
            level: Level = "info" if name == "pad_token" else "warning"
            yield finding("PAIR443", name, level=level, expected=f"{_with_id(theirs, b)} (target)",
                          observed=f"{_with_id(own, a)} (drafter)", where=own.label)  # fmt: skip


def _with_id(side: Tokenizer, text: str) -> str:
    id = side.by_text.get(text)
    return quoted(text) if id is None else f"{id} {quoted(text)}"


def _same_template(own: Tokenizer, theirs: Tokenizer) -> Iterator[Finding]:
    """Say where both sides have a chat template, and not the same."""
    if own.template and theirs.template and own.template != theirs.template:
        a, b = (_digest(side.template) for side in (own, theirs))
        yield finding("PAIR445", "chat_template", expected=f"sha256 {b} (target)", observed=f"sha256 {a} (drafter)",
                      where=own.label)  # fmt: skip


def _digest(text: str) -> str:
    import hashlib  # noqa: PLC0415 (slow to import)

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
