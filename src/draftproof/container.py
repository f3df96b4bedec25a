"""The law of the safetensors container and of its sharded index.

Read it downwards: the parts stand in the order in which the bytes of a file are met. All is pure: bytes come from a
``read(start, stop)`` that the caller gives (fewer bytes at the end of the file; its OSError is the caller's), and what
is wrong comes back as findings, all at once and bounded, never as an exception.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from json.decoder import JSONDecodeError
from typing import Any, NamedTuple

from draftproof.findings import Finding, nearest, visible
from draftproof.strict import (
    CHUNK,
    CONFIG_DEPTH,
    CONFIG_LIMIT,
    LONE,
    Collector,
    Fault,
    Stop,
    quote,
    reason,
    show,
    strict_json,
    survey,
)

Read = Callable[[int, int], bytes]

HEADER_LIMIT = 100_000_000  # bytes; the reference reader's own limit (safetensors 0.8.0, tensor.rs MAX_HEADER_SIZE)
HEADER_DEPTH = 127  # levels; serde_json stops at the 128th
MAX_TENSORS = 1_000_000  # JSON objects in one header: 2 s and 0.5 GB as the library writes it, else 15 s and 0.9 GB
MAX_VALUES = 16_000_000  # JSON values in one header
INDEX_LIMIT = 256 << 20  # bytes
FOREIGN = 4  # tensors that are not where an index says, and half of all: it is that of another checkpoint
MAX_SHARDS = 4096
MAX_NAMES = 2_000_000  # tensors in one index
U64 = 2**64 - 1

# bits of an element, in the format's alignment order (safetensors 0.8.0, tensor.rs Dtype)
BITS: Mapping[str, int] = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip

# what safetensors 0.8.0 accepts and this module refuses, by the code that refuses it
STRICTER: Mapping[str, str] = {
    "STF202": f"more than {MAX_TENSORS} objects or {MAX_VALUES} values in one header",
    "STF207": "the same tensor twice with the same range; a key twice in __metadata__ or in a field that is not read",
    "STF209": "a tensor written as the array [dtype, shape, data_offsets]",
    "STF210": 'a dtype written as an object: {"F32": null}',
}


class Tensor(NamedTuple):
    """Hold one row of the tensor table; the offsets are bytes from the start of the data (torch: of the storage)."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Rows(Mapping[str, Tensor]):
    """Hold names and tensors side by side; the map of them is made when one is looked for."""

    def __init__(self, names: Sequence[str], tensors: Sequence[Tensor], text: Callable[[], bytes] = bytes) -> None:
        self._names, self._tensors = names, tensors
        self.text = text  # gives the header that says this
        self._map: dict[str, Tensor] | None = None

    def _made(self) -> dict[str, Tensor]:
        if self._map is None:
            self._map = dict(self.pairs())
        return self._map

    def pairs(self) -> Iterable[tuple[str, Tensor]]:
        """Return names with tensors."""
        return zip(self._names, self._tensors, strict=True)

    def __getitem__(self, name: str) -> Tensor:
        return self._made()[name]

    def __contains__(self, name: object) -> bool:
        return name in self._made()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Header(NamedTuple):
    """Hold the tensor table of one file; it is there only if every tensor's name, dtype text and shape are certain."""

    name: str
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]
    size: int  # bytes before the data: 8 + header length (torch: bytes of data.pkl)
    data: int  # bytes of the tensors


# --- the safetensors header --------------------------------------------------------------------------------------

_LOOKS = (
    (b"version https://git-lfs", "a git-lfs pointer, not the file: run `git lfs pull`"),
    (b"<!doc", "an HTML page: a server answered with a web page instead of the file"),
    (b"<html", "an HTML page: a server answered with a web page instead of the file"),
    (b"<?xml", "an XML message: a server answered with an error instead of the file"),
    (b"pk\x03\x04", "a zip archive, such as torch.save writes"),
    (b"gguf", "a GGUF file"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x80\x02", "a Python pickle, such as old torch.save wrote"),
    (b"{", "JSON text without the 8-byte length"),
    (bytes(8), "zeros: space was reserved and never written"),
)


def looks_like(head: bytes, otherwise: str = "the file starts with") -> str:
    """Say what the first bytes of a file look like; where they look like nothing known, show them."""
    start = head.lstrip(b" \t\r\n\xef\xbb\xbf").lower()
    what = next((words for magic, words in _LOOKS if start.startswith(magic)), "")
    return f"looks like {what}" if what else otherwise and f"{otherwise} {head[:16].hex(' ')}"


def read_header(
    read: Read, size: int | None, name: str, *, limit: int = HEADER_LIMIT, alike: Alike | None = None
) -> tuple[Header | None, list[Finding]]:
    """Read and judge the header of a safetensors file of size bytes (None: unknown) by the law of safetensors 0.8.0.

    The header is None where a name, dtype or shape is not certain; errors of offsets and sizes leave it readable.
    ``alike`` holds the headers of other shards: one that differs in the number of its layer alone is read from those.
    """
    found = Collector(name)
    head = read(0, 8)
    if len(head) < 8:
        found.add("STF201", name, "", "at least 8 bytes", f"{len(head)} bytes")
        return None, found.done()
    length = int.from_bytes(head, "little")
    if length > limit:
        note = looks_like(read(0, 64))
        seen = f"{length} bytes" + ("" if size is None else f", in a file of {size}")
        found.add("STF202", name, "", f"a header of at most {limit} bytes", seen, note=note)
        return None, found.done()
    data = read(8, 8 + length) if size is None or 8 + length <= size else b""
    if len(data) < length:
        there = 8 + len(data) if data or size is None else size
        expected = f"at least {8 + length} bytes (8 + header of {length})"
        found.add("STF203", name, "", expected, f"{there} bytes", note=looks_like(read(0, 64), ""))
        return None, found.done()

    metadata: Mapping[str, str]
    if (quick := _canonical(data) if alike is None else alike.read(data)) is not None:
        tensors, metadata, end = quick
        _coverage(found, name, size, 8 + length, end)
        return Header(name, tensors, metadata, 8 + length, end), found.done()
    deep, objects, values = survey(data, HEADER_DEPTH)
    if not deep and (objects > MAX_TENSORS + 2 or values > MAX_VALUES):
        expected = f"at most {MAX_TENSORS} objects and {MAX_VALUES} values"
        found.add("STF202", name, "header holds more than is read here", expected, f"{objects} and {values}")
        return None, found.done()
    root, faults = strict_json(data, depth=HEADER_DEPTH)
    for fault in faults:
        _json_fault(found, fault, root, name, head + data[:56])
    if any(fault.kind not in ("number", "duplicate") for fault in faults):
        return None, found.done()
    if not isinstance(root, dict):
        found.add("STF206", name, "", "an object {…}", show(root))
        return None, found.done()
    before, after = (data[: len(data) - len(data.lstrip(_BLANKS))], data[len(data.rstrip(_BLANKS)) :])
    if before or after.strip(b" "):
        observed = f"{len(before)} before: {show(before.decode())}, {len(after)} after: {show(after.decode())}"
        found.add("STF218", name, "", "blanks only at the end, and only spaces", observed)
    metadata = read_metadata(found, root.pop("__metadata__")) if "__metadata__" in root else {}
    rows: dict[str, Tensor] = {}
    odd = not data.isascii() or b"\\" in data or b"\x7f" in data or "" in root
    for tensor, entry in root.items():
        if odd and (not tensor or visible(tensor, len(tensor)) != tensor):
            observed = f"{quote(tensor)} ({len(tensor)} characters)"
            found.add("STF217", tensor, "", "a name of one or more printable characters", observed)
        if row := _entry(found, tensor, entry):
            rows[tensor] = row
    if len(rows) < len(root) or faults:  # a table with gaps would make good tensors look absent, and leave holes
        return None, found.done()
    end = _tiling(found, rows)
    _coverage(found, name, size, 8 + length, end)
    return Header(name, rows, metadata, 8 + length, end), found.done()


_BLANKS = b" \t\r\n"


def _canonical(data: bytes) -> tuple[dict[str, Tensor], Mapping[str, str], int] | None:
    """Read a header that is written exactly as the safetensors library writes, in a tenth of the time; else None.

    Everything is compared as text, so what is taken here is valid: nothing that the long way would report passes.
    """
    text = data.decode("latin-1").rstrip(" ")
    if b"\\" in data or not (text.isascii() and text.endswith("]}}")):
        return None
    at, quotes = 2, data.count(b'"')
    metadata: Mapping[str, str] = {}
    if text.startswith('{"__metadata__":{'):
        at = text.find("}", 16) + 1
        metadata, faults = strict_json(text[16:at].encode())
        if faults or not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
            return None
        if text[at : at + 2] != ',"':
            return None
        quotes -= text.count('"', 0, at)
        at += 2
    elif not text.startswith('{"'):
        return None
    entries = text[at:-3].split(']},"')
    if quotes != 10 * len(entries) or len(entries) > MAX_TENSORS:  # so that no name holds a quote
        return None
    rows: dict[str, Tensor] = {}
    kinds: dict[str, tuple[str, tuple[int, ...], int]] = {}
    new, end = tuple.__new__, 0
    try:
        for entry in entries:
            name, _, rest = entry.partition('":{"dtype":"')
            kind, _, span = rest.partition('],"data_offsets":[')
            if (known := kinds.get(kind)) is None:
                known = kinds[kind] = _kind(kind)
            dtype, shape, size = known
            start = end
            end += size
            if span != f"{start},{end}":
                return None
            rows[name] = new(Tensor, (dtype, shape, start, end))
    except (ValueError, KeyError):
        return None
    plain = len(rows) == len(entries) and "" not in rows and "__metadata__" not in rows and "".join(rows).isprintable()
    return (rows, metadata, end) if plain and end <= U64 else None


_NUMBER = re.compile(rb"\.[A-Za-z_]+\.([0-9]+)\.")
_KEPT = 4  # headers that others may be like


class Alike:
    """Read headers that are written as the library writes; one that differs from another in one number is not parsed.

    The shards of most large models hold a layer each: ``.layers.7.`` and ``.layers.8.`` are then all the difference
    in half a megabyte. With the number taken out both are the same bytes, so what the first says the second says,
    under names that hold the other number.
    """

    def __init__(self) -> None:
        self._known: deque[_Known] = deque(maxlen=_KEPT)

    def read(self, data: bytes) -> tuple[Mapping[str, Tensor], Mapping[str, str], int] | None:
        """Return what _canonical returns for a header."""
        match = _NUMBER.search(data)
        if match is None:
            return _canonical(data)
        here = match[0]
        for known in self._known:
            if len(data) == known.size + (len(known.text) - 1) * len(here) and here.join(known.text) == data:
                names = here.decode().join(known.names).split("\n")
                return Rows(names, known.tensors, partial(here.join, known.text)), known.metadata, known.end
        quick = _canonical(data)
        about = data[: data.find(b"}")] if data.startswith(b'{"__metadata__"') else b""
        if quick is not None and here not in about:
            rows, metadata, end = quick
            text, lines = data.split(here), "\n".join(rows).split(here.decode())
            size = sum(map(len, text))
            self._known.append(_Known(size, text, lines, tuple(rows.values()), metadata, end))
        return quick


class _Known(NamedTuple):
    """Hold one header, cut where its number stands: how many bytes it has without it, the parts, what it says."""

    size: int
    text: list[bytes]
    names: list[str]  # the names of its tensors, one a line
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, str]
    end: int


_KIND = re.compile(r'([A-Z0-9_]+)","shape":\[((?:0|[1-9][0-9]{0,18})(?:,(?:0|[1-9][0-9]{0,18})){0,15})?').fullmatch


def _kind(text: str) -> tuple[str, tuple[int, ...], int]:
    """Return dtype, shape and bytes of 'F32","shape":[2,3'; raises ValueError or KeyError for what is not plain."""
    if not (match := _KIND(text)):
        raise ValueError(text)
    dtype, sizes = match[1], match[2]
    shape = tuple(map(int, sizes.split(","))) if sizes else ()
    bits = BITS[dtype]
    for size in shape:
        bits *= size
    if bits > U64 or bits % 8 or 0 in shape:  # a zero hides overflow before it: the long way knows
        raise ValueError(text)
    return dtype, shape, bits // 8


def _json_fault(found: Collector, fault: Fault, root: Any, name: str, head: bytes) -> None:
    """Turn a fault of the JSON text into a finding."""
    place = f"byte {fault.offset} of the header" if fault.offset is not None else fault.where
    if fault.kind == "utf8":
        found.add("STF205", name, "", "UTF-8", f"{fault.text}, {place}")
    elif fault.kind == "duplicate":
        observed = f"{fault.text} ({place})"
        if len(fault.path) == 1 and found.room("STF207"):
            both = [value for key, value in root.pairs if key == fault.path[0]]
            spans = (show(v.get("data_offsets") if isinstance(v, dict) else v) for v in both[:4])
            observed = f"{len(both)} times, data_offsets {' and '.join(spans)}"
        found.add("STF207", str(fault.path[0]), "", "each key once", observed)
    elif fault.kind != "number" or not (len(fault.path) == 3 and fault.path[1] in ("shape", "data_offsets")):
        looks = looks_like(head) if fault.kind == "syntax" else ""
        expected = f"one strict JSON object, at most {HEADER_DEPTH} levels deep"
        found.add("STF204", name, "", expected, f"{fault.text}, {place}", note=looks if "looks" in looks else "")


def read_metadata(found: Collector, value: Any) -> Mapping[str, str]:
    """Return the texts of __metadata__; what is none is added to the findings (STF208, STF219)."""
    if value is None:
        found.add("STF219", "__metadata__", "", "an object of strings", "null")
    elif not isinstance(value, dict):
        found.add("STF208", "__metadata__", "", "an object of strings", show(value))
    else:
        for key, text in value.items():
            if not isinstance(text, str):
                found.add("STF208", "__metadata__", "", "a string for each key", f"{quote(key)}: {show(text)}")
        return {key: text for key, text in value.items() if isinstance(text, str)}
    return {}


_FIELDS = ("dtype", "shape", "data_offsets")


def is_size(value: Any) -> bool:
    """Tell whether a JSON value is an integer of 64 bits, not negative."""
    return type(value) is int and 0 <= value <= U64


def _entry(found: Collector, name: str, entry: Any) -> Tensor | None:
    """Judge one entry; None if its dtype, shape or offsets cannot be told."""
    if not isinstance(entry, dict) or not all(field in entry for field in _FIELDS):
        fields = ", ".join(map(quote, list(entry)[:8])) if isinstance(entry, dict) else ""
        observed = f"fields {fields or 'none'}" if isinstance(entry, dict) else show(entry)
        found.add("STF209", name, "", "an object with dtype, shape and data_offsets", observed)
        return None
    if len(entry) > 3:
        extra = [quote(key) for key in entry if key not in _FIELDS]
        found.add("STF220", name, "", "dtype, shape and data_offsets", f"also {', '.join(extra[:8])}")
    dtype, shape, span = (entry[field] for field in _FIELDS)
    if not isinstance(dtype, str) or dtype not in BITS:
        hint = nearest(dtype[:20].upper(), BITS) if isinstance(dtype, str) and found.room("STF210") else ""
        found.add("STF210", name, "", f"one of {' '.join(BITS)}", f"{show(dtype)}{hint}")
    good = isinstance(shape, list) and all(map(is_size, shape))
    if not good:
        items = enumerate(shape) if isinstance(shape, list) else ()
        bad = next((f"; item {i} is {show(item)}" for i, item in items if not is_size(item)), "")
        found.add("STF211", name, "", "a list of integers from 0 to 2**64-1", f"{show(shape)}{bad}")
    placed = isinstance(span, list) and len(span) == 2 and all(map(is_size, span)) and span[0] <= span[1]
    if not placed:
        expected = "two integers from 0 to 2**64-1, the first not greater"
        found.add("STF212", name, "data_offsets is not a range", expected, show(span))
    if not (isinstance(dtype, str) and good and placed):
        return None
    row = Tensor(dtype, tuple(shape), span[0], span[1])
    if dtype in BITS:
        _bytes_of(found, name, row)
    return row


def _bytes_of(found: Collector, name: str, row: Tensor) -> None:
    """Judge whether the range is as long as shape and dtype need; overflow is met in the reference's order."""
    bits, count = BITS[row.dtype], 1
    for factor in (*row.shape, bits):
        count *= factor
        if count > U64:
            break
    if count <= U64 and count == (row.end - row.start) * 8:
        return
    sum_ = f"{show(list(row.shape))} of {row.dtype}, {bits} bits each"
    if count > U64:
        found.add("STF214", name, "", f"at most {U64} bits", f"{sum_}: more than 2**64-1")
    elif count % 8:
        found.add("STF215", name, "", "a multiple of 8 bits", f"{sum_}: {count} bits")
    else:
        observed = f"{row.end - row.start} bytes in [{row.start}, {row.end}]"
        found.add("STF213", name, "", f"{count // 8} bytes: {sum_}", observed)


def _tiling(found: Collector, rows: Mapping[str, Tensor]) -> int:
    """Name the holes and overlaps of tensors that do not follow each other from 0; return where the data ends."""
    end, last = 0, ""
    for name, (_, _, start, stop) in sorted(rows.items(), key=lambda item: item[1][2:]):
        if start == end <= stop:
            end, last = stop, name
            continue
        here = f"{quote(name)} [{start}, {stop}]"
        if start > end:
            before = f"{quote(last)} ends at {end}" if last else "the data starts at 0"
            observed = f"{before}, {here} starts at {start}: {start - end} bytes in no tensor"
            found.add("STF212", name, f"hole of {start - end} bytes before this tensor", f"start {end}", observed)
        elif start < end:
            observed = f"{here} starts {end - start} bytes before the end of {quote(last)} [{rows[last].start}, {end}]"
            found.add("STF212", name, f"overlaps {quote(last)}", f"start {end}", observed)
        if stop >= end:
            end, last = stop, name
    return end


def _coverage(found: Collector, name: str, size: int | None, before: int, end: int) -> None:
    """Judge whether the file ends where its last tensor ends."""
    whole = before + end
    expected = f"{whole} bytes (8 + header of {before - 8} + data of {end})"
    if size is None:
        found.add("STF216", name, "size of the file is not known", expected, "unknown", level="unknown")
    elif size < whole:
        observed = f"{size} bytes: {whole - size} are missing"
        found.add("STF216", name, "file is shorter than its tensors", expected, observed)
    elif size > whole:
        observed = f"{size} bytes: {size - whole} at the end belong to no tensor"
        found.add("STF216", name, "file is longer than its tensors", expected, observed)


# --- the index of a sharded checkpoint ---------------------------------------------------------------------------


class Index(NamedTuple):
    """Hold what an index says; unjudged names what was not looked at, and is empty only if all names were kept."""

    name: str
    weight_map: Mapping[str, str]  # tensor -> shard: all of them, or those that were wanted
    shards: Mapping[str, int]  # shard -> how many tensors the index gives it
    total_size: Any  # metadata.total_size, None if absent
    unjudged: str = ""


_scan: Callable[[str, int, bool], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]
_AHEAD = 1 << 17  # characters that are always in the buffer: a name and a shard name must fit
_blanks: Callable[[str, int], re.Match[str]] = re.compile(r"[ \t\r\n]*").match  # type: ignore[assignment]
_COLON = re.compile(r'[ \t\r\n]*:[ \t\r\n]*"').match
_COMMA = re.compile(r'[ \t\r\n]*,[ \t\r\n]*"').match


class _Stream:
    """Pull JSON tokens out of a file that is read in chunks; C code does the strings."""

    def __init__(self, read: Read, size: int | None, limit: int) -> None:
        self.read, self.stop, self.limit = read, size, limit
        self.text, self.at, self.taken, self.eof, self.escapes = "", 0, 0, False, False
        self.decode = codecs.getincrementaldecoder("utf-8")().decode

    def fill(self, ahead: int = _AHEAD) -> None:
        """Have at least ahead characters in text, from at on, unless the file ends."""
        while not self.eof and len(self.text) - self.at < ahead:
            want = CHUNK if self.stop is None else min(CHUNK, self.stop - self.taken)
            data = self.read(self.taken, self.taken + want) if want > 0 else b""
            self.eof = len(data) < CHUNK
            try:
                fresh = self.decode(data, self.eof)
            except UnicodeDecodeError as bad:
                raise Stop("UTF-8", f"{bad.reason} near byte {self.taken + bad.start}") from None
            self.taken += len(data)
            if self.taken > self.limit:
                raise Stop(f"at most {self.limit} bytes", f"more than {self.limit} bytes")
            self.text, self.at = self.text[self.at :] + fresh, 0
            self.escapes = self.escapes or "\\" in fresh

    def place(self) -> str:
        """Say where the next token stands."""
        byte = self.taken - len(self.text[self.at :].encode("utf-8", "surrogatepass"))
        rest = self.text[self.at : self.at + 16]
        return f"{show(rest)} near byte {byte}" if rest else f"the end, at byte {self.taken}"

    def token(self, allowed: str) -> str:
        """Take one of the allowed characters, after blanks."""
        self.fill()
        self.at = _blanks(self.text, self.at).end()
        if (char := self.text[self.at : self.at + 1]) not in allowed or not char:
            raise Stop("an object" if allowed == "{" else f"one of {' '.join(allowed)}", self.place())
        self.at += 1
        return char

    def string(self) -> str:
        """Take one string."""
        self.token('"')
        try:
            value, self.at = _scan(self.text, self.at, True)
        except JSONDecodeError as bad:
            raise Stop("a string", f"{reason(bad)}: {self.place()}") from None
        if self.escapes and re.search(LONE, value):
            raise Stop("whole surrogate pairs", f"{show(value)}, before {self.place()}")
        return value

    def value(self) -> Any:
        """Take any value of at most CONFIG_LIMIT characters, strictly."""
        ahead = _AHEAD
        while True:
            self.fill(ahead)
            at = _blanks(self.text, self.at).end()
            try:
                _, end = json.JSONDecoder(parse_int=float).raw_decode(self.text, at)
                if end < len(self.text) or self.eof:
                    break
                bad = "value is too long"
            except RecursionError:
                raise Stop(f"at most {CONFIG_DEPTH} levels", f"more, at {self.place()}") from None
            except JSONDecodeError as error:
                bad = reason(error)
            if self.eof or ahead > CONFIG_LIMIT:
                raise Stop("a JSON value", f"{bad}: {self.place()}")
            ahead *= 2
        value, faults = strict_json(self.text[at:end].encode())
        if faults:
            raise Stop("strict JSON", f"{faults[0].text} ({faults[0].where}), before {self.place()}")
        self.at = end
        return value


def read_index(
    read: Read, size: int | None, name: str, *, wanted: Collection[str] | None = None
) -> tuple[Index | None, list[Finding]]:
    """Read model.safetensors.index.json in chunks; of the tensor names only the wanted ones are kept (None: all).

    The JSON and the shard names are judged either way. The index is None only if it cannot be used.
    """
    found = Collector(name)
    try:
        if size is not None and size > INDEX_LIMIT:
            raise Stop(f"at most {INDEX_LIMIT} bytes", f"{size} bytes")
        index = _index(_Stream(read, size, INDEX_LIMIT), found, name, wanted)
    except Stop as why:
        found.add("IDX306", name, "", why.expected, why.observed)
        return None, found.done()
    for shard in index.shards:
        if why_not := unsafe_name(shard):
            found.add("IDX307", shard, "", "a plain relative file name", f"{quote(shard)}: {why_not}")
    return index if not found.all else None, found.done()


_START = re.compile(
    r'\{\s*(?:"metadata"\s*:\s*(\{[^{}]*\})\s*,\s*)?"weight_map"\s*:\s*\{(\n? *)"[^"\\]+"(: ?)"[^"\\]+"(,\n? *)"'
).match


def proved_index(
    name: str, shards: Mapping[str, Iterable[str]], homes: Mapping[str, str], head: bytes, size: int, digest: str
) -> Index | None:
    """Return the index that names exactly these tensors and their shards, if no other file can have that digest.

    ``shards`` is what the faultless headers of all shards say, shard -> names of tensors, none of them twice, and
    ``homes`` the same by name; ``head`` is the first bytes of the index, of ``size`` bytes in all; ``digest`` is what
    git or git-lfs calls it. Most are written in one way: sorted by name, each pair as the first. So the text that names
    these tensors is made, and its digest compared: the file need not be read. None proves nothing.
    """
    text = head.decode("utf-8", "replace")
    if (start := _START(text)) is None or any(map(unsafe_name, shards)):
        return None
    metadata, faults = strict_json((start[1] or "{}").encode())
    before, blank, colon, comma = text[: start.end(2)], start[2], start[3], start[4]
    if faults or not isinstance(metadata, dict) or not before.isascii():
        return None
    tail = f"\n{' ' * (blank.count(' ') // 2)}}}\n}}" if blank else "}}"
    hashed = hashlib.sha256() if len(digest) == 64 else hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    hashed.update(before.encode())
    left, last, lines = size - len(before) - len(tail), "", comma.count("\n")
    counts: Counter[str] = Counter()
    for shard, names in _sorted_runs(shards):
        rest = f'"{colon}"{shard}"'
        pairs = last + '"' + f'{rest}{comma}"'.join(names) + rest
        plain = pairs.isascii() and "\\" not in pairs and pairs.count('"') == 4 * len(names)
        if not plain or pairs.count("\n") != lines * (len(names) - (not last)):
            return None
        counts[shard] += len(names)
        left, last = left - len(pairs), comma
        hashed.update(pairs.encode())
    if left not in (0, 1):
        return None
    hashed.update(tail.encode() + b"\n" * left)
    return Index(name, homes, counts, metadata.get("total_size")) if hashed.hexdigest() == digest else None


def _sorted_runs(shards: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield all names of all shards in their order, those that follow each other in one shard together."""
    heap = [(names[0], shard, 0, names) for shard, of in shards.items() if (names := sorted(of))]
    heapify(heap)
    while heap:
        _, shard, at, names = heappop(heap)
        cut = bisect_left(names, heap[0][0], at) if heap else len(names)
        yield shard, names[at:cut]
        if cut < len(names):
            heappush(heap, (names[cut], shard, cut, names))


def _index(stream: _Stream, found: Collector, name: str, wanted: Collection[str] | None) -> Index:
    names = None if wanted is None else frozenset(wanted)
    seen: dict[str, Any] = {}
    shards: dict[str, int] = {}
    kept: dict[str, str] = {}
    stream.token("{")
    more = stream.token('}"')
    while more != "}":
        stream.at -= 1
        if (key := stream.string()) in seen:
            raise Stop("each key once", f"{quote(key)} stands twice, before {stream.place()}")
        stream.token(":")
        if key == "weight_map":
            stream.token("{")
            seen[key] = True
            _weight_map(stream, found, kept, shards, names)
        else:
            seen[key] = stream.value()
        if (more := stream.token(",}")) == ",":
            more = stream.token('"')
    stream.fill()
    if stream.text[stream.at :].strip(" \t\r\n") or not stream.eof:
        raise Stop("nothing after the closing brace", stream.place())
    if "weight_map" not in seen:
        keys = ", ".join(map(quote, list(seen)[:8]))
        raise Stop("a weight_map of tensor names to file names", f"keys {keys or 'none'}")
    unjudged = ""
    if names is not None:
        others = sum(shards.values()) - len(kept)
        unjudged = f"of {others} names that were not wanted: whether one stands twice, and whether its shard holds it"
    metadata = seen.get("metadata")
    return Index(name, kept, shards, metadata.get("total_size") if isinstance(metadata, dict) else None, unjudged)


def _weight_map(
    stream: _Stream, found: Collector, kept: dict[str, str], shards: dict[str, int], names: frozenset[str] | None
) -> None:
    """Take the pairs of the weight_map; its opening brace is taken."""
    if stream.token('}"') == "}":
        return
    colon, comma = ': "', ',\n    "'  # as last met: most files are written in one way throughout
    stream.fill()
    text, at = stream.text, _many(stream, colon, comma, kept, shards, names)
    while True:
        if len(text) - at < _AHEAD and not stream.eof:
            stream.at = at
            stream.fill()
            text, at = stream.text, _many(stream, colon, comma, kept, shards, names)
            continue
        try:
            stream.at = at
            tensor, at = _scan(text, at, True)
            if text.startswith(colon, at) or ((match := _COLON(text, at)) and (colon := match[0])):
                stream.at = at = at + len(colon)
                shard, at = _scan(text, at, True)
            else:
                shard = None
        except JSONDecodeError as bad:
            raise Stop("pairs of strings", f"{reason(bad)}: {stream.place()}") from None
        if shard is None:
            stream.at = at
            stream.token(":")
            found.add("IDX306", tensor, "shard name is not a string", "a file name", show(stream.value()))
            text, at = stream.text, stream.at
        else:
            if stream.escapes and re.search(LONE, tensor + shard):
                raise Stop("whole surrogate pairs", f"{quote(tensor)}: {quote(shard)}")
            if shard in shards:
                shards[shard] += 1
            elif len(shards) < MAX_SHARDS:
                shards[shard] = 1
            else:
                raise Stop(f"at most {MAX_SHARDS} shards", f"more, {quote(shard)} among them")
            if names is None or tensor in names:
                if tensor in kept:
                    observed = f"in {quote(kept[tensor])} and in {quote(shard)}"
                    found.add("IDX306", tensor, "tensor stands twice", "each name once", observed)
                elif len(kept) == MAX_NAMES:
                    raise Stop(f"at most {MAX_NAMES} tensors", f"more, {quote(tensor)} among them")
                kept[tensor] = shard
        if text.startswith(comma, at) or ((match := _COMMA(text, at)) and (comma := match[0])):
            at += len(comma)
        else:
            stream.at = at
            stream.token("}")
            return


def _many(
    stream: _Stream, colon: str, comma: str, kept: dict[str, str], shards: dict[str, int], names: frozenset[str] | None
) -> int:
    """Take at once all pairs of the buffer that are written in one way, without escapes; return where it stopped."""
    text, at = stream.text, stream.at
    stop = text.rfind('"' + comma, at)
    parts = text[at:stop].split('"') if stop > at else []
    plain = len(parts) % 4 == 3 and set(parts[1::4]) == {colon[:-1]} and set(parts[3::4]) == {comma[:-1]}
    if not plain or "\\" in text[at:stop]:
        return at
    tensors, counts = parts[0::4], Counter(parts[2::4])
    known = set(counts) | set(shards)
    if len(known) > MAX_SHARDS or not "".join(known).isprintable() or not "".join(tensors).isprintable():
        return at
    same = {shard: shard for shard in known}  # one string object per shard
    pairs: Collection[tuple[str, str]] = ()
    if names is None or not names.isdisjoint(tensors):
        pairs = list(zip(tensors, map(same.__getitem__, parts[2::4]), strict=True))
        pairs = pairs if names is None else [pair for pair in pairs if pair[0] in names]
    new = dict(pairs)
    if len(new) < len(pairs) or not kept.keys().isdisjoint(new) or len(kept) + len(new) > MAX_NAMES:
        return at
    kept.update(new)
    for shard, count in counts.items():
        shards[shard] = shards.get(shard, 0) + count
    return stop + 1 + len(comma)


_DEVICES = r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])(?:\..*)?"


def unsafe_name(name: object) -> str:
    """Say why a name could leave its folder or mean another file, under POSIX or Windows rules; "" if it cannot."""
    if not isinstance(name, str):
        return "not a string"
    if not name:
        return "empty"
    if visible(name, len(name)) != name:
        return "control characters"
    if "\\" in name:
        return "a backslash: a folder separator on Windows"
    if name.startswith("/"):
        return "an absolute path"
    if ":" in name:
        return "a colon: a drive or a stream on Windows"
    if char := next((c for c in '<>"|?*' if c in name), ""):
        return f"{char}, which Windows does not allow"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return "the folder above" if part == ".." else "another spelling of a path (empty part or '.')"
        if part[-1] in ". " or part[0] == " ":
            return "a blank or a dot at the end, which Windows drops" if part[-1] in ". " else "a leading blank"
        if re.fullmatch(_DEVICES, part):
            return f"{part}: a device on Windows"
        if len(part.encode()) > 255:
            return f"a part of {len(part.encode())} bytes; at most 255 fit"
    return ""


def check_shards(index: Index, headers: Iterable[tuple[str, Header | None]], present: Collection[str]) -> list[Finding]:
    """Compare an index with the headers of its shards, one at a time, and with the files present (IDX301 to IDX305).

    A shard whose header is None, or is not given, is not judged. An index read in part is judged in that part.
    """
    found = Collector(index.name)
    missing = [shard for shard in index.shards if shard not in present]
    stray = sorted(n for n in present if n.endswith(".safetensors") and n not in index.shards)
    renamed = bool(missing) and 0 < len(stray) <= len(missing)
    for shard in missing:
        note = f"{', '.join(map(quote, stray))} is there, which the index does not name: renamed?" if renamed else ""
        found.add("IDX304", shard, "", f"a file with {index.shards[shard]} tensors", "no such file", note=note)
    where, complete = index.weight_map, not index.unjudged
    lists: dict[str, list[str]] = {}
    absent: dict[str, str] = {}
    strays: dict[str, list[str]] = {}
    judged: set[str] = set()
    data = 0
    for shard, header in headers:
        if header is None or shard in judged:
            continue
        judged.add(shard)
        data += header.data
        tensors = header.tensors
        hits = list(map(where.get, tensors)).count(shard)
        for name in tensors if hits < len(tensors) else ():
            if (complete or name in where) and where.get(name) != shard:
                strays.setdefault(name, []).append(shard)
        if not complete or hits != index.shards.get(shard, 0):
            if not lists:
                for name, home in where.items():
                    lists.setdefault(home, []).append(name)
            absent.update((name, shard) for name in lists.get(shard, ()) if name not in tensors)
    asked = sum(index.shards.get(shard, 0) for shard in judged)
    if len(absent) >= FOREIGN and 2 * len(absent) >= asked:  # not single tensors: the index is of other shards
        moved, unnamed = [n for n in absent if n in strays], [n for n in strays if n not in where]
        parts = [f"{len(absent)} not there"] + [f"{len(moved)} of them in another shard"] * bool(moved)
        parts += [f"{len(unnamed)} in the shards that it does not name"] * bool(unnamed)
        shown = "; ".join(
            f"{what}: {', '.join(map(quote, names[:3]))}"
            for what, names in (("named", list(absent)), ("held", unnamed))
            if names
        )
        expected = f"its {asked} tensors in the shards that it names"
        found.add("IDX301", index.name, "index is not that of these shards", expected, ", ".join(parts), note=shown)
        return found.done()
    for name, shard in absent.items():
        elsewhere = ", ".join(map(quote, strays.get(name, [])[:4]))
        note = f"{elsewhere} holds it" if elsewhere else ""
        found.add("IDX301", name, "", f"in {quote(shard)}", "not there", note=note)
    for name, at in strays.items():
        home = where.get(name, "")
        here = at if not home or name in absent else [home, *at]
        if len(here) > 1:
            observed = f"in {' and '.join(map(quote, here[:4]))}"
            note = f"the index names {quote(home) if home else 'none of them'}"
            note += "" if not home or home in judged else ", which was not read"
            found.add("IDX303", name, "", "in one file", observed, note=note)
        elif not home:
            found.add("IDX302", name, "", "named in the index", f"only in {quote(at[0])}")
    if complete and judged == index.shards.keys() and not absent and not strays:
        _total(found, index, data)
    return found.done()


def check_total(index: Index, headers: Iterable[Header]) -> list[Finding]:
    """Compare the total size that an index states with the headers of all its shards (IDX305)."""
    found = Collector(index.name)
    _total(found, index, sum(header.data for header in headers))
    return found.done()


def _total(found: Collector, index: Index, data: int) -> None:
    total = index.total_size
    if total is not None and (type(total) not in (int, float) or total != data):
        found.add("IDX305", "metadata.total_size", "", f"{data} bytes in {len(index.shards)} shards", show(total))
