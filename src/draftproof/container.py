"""The law of the safetensors container, of its sharded index, and of torch zip files. No pickle code is run.

Read it downwards: the parts stand in the order in which the bytes of a file are met. All is pure: bytes come from a
``read(start, stop)`` that the caller gives (fewer bytes at the end of the file; its OSError is the caller's), and what
is wrong comes back as findings, all at once and bounded, never as an exception.
"""

from __future__ import annotations

import codecs
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from json.decoder import JSONDecodeError
from typing import Any, NamedTuple

from draftproof.findings import Finding, Level, finding, nearest, visible

Read = Callable[[int, int], bytes]

HEADER_LIMIT = 100_000_000  # bytes; the reference reader's own limit (safetensors 0.8.0, tensor.rs MAX_HEADER_SIZE)
HEADER_DEPTH = 127  # levels; serde_json stops at the 128th
MAX_TENSORS = 1_000_000  # JSON objects in one header: 2 s and 0.5 GB as the library writes it, else 15 s and 0.9 GB
MAX_VALUES = 16_000_000  # JSON values in one header
INDEX_LIMIT = 256 << 20  # bytes
MAX_SHARDS = 4096
MAX_NAMES = 2_000_000  # tensors in one index
CONFIG_LIMIT = 16 << 20  # bytes of a config.json, or of anything in an index beside its weight_map
CONFIG_DEPTH = 64
PICKLE_LIMIT = 16 << 20  # bytes of data.pkl, and of a zip directory
PICKLE_STEPS = 4_000_000  # opcodes; 16 MB of real state dict need fewer
MAX_FAULTS = 1000  # faults of one JSON text that are looked for
LISTED = 20  # findings of one code that are written out
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


@dataclass(frozen=True, slots=True)
class Header:
    """Hold the tensor table of one file; it is there only if every tensor's name, dtype text and shape are certain."""

    name: str
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]
    size: int  # bytes before the data: 8 + header length (torch: bytes of data.pkl)
    data: int  # bytes of the tensors


class _Found:
    """Collect findings about one file: all of them are counted, LISTED of each code are written out."""

    def __init__(self, where: str) -> None:
        self.where, self.all, self.count = where, list[Finding](), dict[tuple[str, Level | None], int]()

    def add(
        self, code: str, subject: str, message: str, expected: str, observed: str, *,
        note: str = "", level: Level | None = None,
    ) -> None:  # fmt: skip
        seen = self.count[code, level] = self.count.get((code, level), 0) + 1
        if seen <= LISTED:
            texts = {"expected": expected, "observed": observed, "note": note, "where": self.where}
            escaped = {key: visible(text, 1000) for key, text in texts.items()}
            self.all.append(finding(code, visible(subject), visible(message, 1000), level=level, **escaped))

    def room(self, code: str) -> bool:
        """Tell whether one more of this code would be written out."""
        return self.count.get((code, None), 0) < LISTED

    def done(self) -> list[Finding]:
        for (code, level), seen in self.count.items():
            if seen > LISTED:
                texts = {"expected": "none", "observed": f"{seen} in all, {LISTED} of them listed"}
                where, more = visible(self.where), f"and {seen - LISTED} more like these"
                self.all.append(finding(code, where, more, level=level, where=where, **texts))
        return self.all


def _show(value: Any) -> str:
    """Write a JSON value as JSON, cut to what fits a line."""
    if isinstance(value, list):
        inner = ", ".join(_show(item) if not isinstance(item, (list, dict)) else "…" for item in value[:8])
        return f"[{inner}, … {len(value)} items]" if len(value) > 8 else f"[{inner}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_show(key)}: …" for key in list(value)[:8]) + "}"
    if isinstance(value, str) and len(value) > 80:
        return f"{_show(value[:80])}… ({len(value)} characters)"
    return visible(json.dumps(value, ensure_ascii=False))


def _quote(name: object) -> str:
    return f"'{visible(name, 120)}'"


# --- strict JSON -------------------------------------------------------------------------------------------------


_Path = tuple[str | int, ...]


class Fault(NamedTuple):
    """Hold one thing that strict JSON forbids, with the byte offset or the path where it stands."""

    kind: str  # utf8, syntax, depth: no value; duplicate, constant, number, surrogate: the value is there all the same
    text: str
    offset: int | None = None
    path: _Path = ()

    @property
    def fatal(self) -> bool:
        """Tell whether there is no value at all."""
        return self.kind in ("utf8", "syntax", "depth")

    @property
    def where(self) -> str:
        """Return "byte 17", or the path as in "rope_scaling.factor" and "layers[2]"."""
        if self.offset is not None:
            return f"byte {self.offset}"
        parts = (f"[{p}]" if isinstance(p, int) else f".{visible(p, 120)}" for p in self.path)
        return "".join(parts).removeprefix(".") or "top level"


class _Twice(dict[str, Any]):
    """An object in which a key stands twice."""

    pairs: list[tuple[str, Any]]


_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}  # told apart by identity
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NOT_BRACKETS = bytes(b for b in range(256) if b not in _STEP)
_LONE = re.compile("[\ud800-\udfff]")
_LONE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_CHUNK = 1 << 20


def strict_json(data: bytes, *, depth: int = CONFIG_DEPTH) -> tuple[Any, list[Fault]]:
    """Return the JSON value and its faults (RFC 8259, no duplicates, numbers that fit a double); raise nothing.

    NaN and numbers out of range are floats that are not finite in the value; of duplicates the last one is there.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        return None, [Fault("utf8", f"byte 0x{data[bad.start]:02x} is not UTF-8 ({bad.reason})", bad.start)]
    if _survey(data, depth)[0]:
        return None, [Fault("depth", f"nested more than {depth} levels deep")]
    odd: list[object] = []  # what the walk below has to find

    def pairs_hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        plain = dict(pairs)
        if len(plain) == len(pairs):
            return plain
        odd.append(both := _Twice(plain))
        both.pairs = pairs
        return both

    def real(digits: str) -> float:
        value = float(digits)
        if value - value != 0:
            odd.append(digits)
        return value

    def constant(word: str) -> float:
        odd.append(word)
        return _CONSTANTS[word]

    def whole(digits: str) -> int | float:  # as serde_json does: -0 is a float, more than a double holds is an error
        return real(digits[:400]) if digits == "-0" or len(digits) > 308 else int(digits)

    # the slow integer hook is needed only for -0 and for runs of 309 digits, which show in every hundredth byte
    exact = whole if b"-0" in data or re.search(rb"\d{3}", data[::100]) else None
    decoder = json.JSONDecoder(object_pairs_hook=pairs_hook, parse_float=real, parse_constant=constant, parse_int=exact)
    try:
        value = decoder.decode(text)
    except JSONDecodeError as bad:
        around = _show(text[bad.pos : bad.pos + 16]) if bad.pos < len(text) else "the end"
        return None, [Fault("syntax", f"{_plain(bad)}: {around}", len(text[: bad.pos].encode()))]
    lone = _LONE_ESCAPE.search(data) is not None
    return value, list(islice(_faults(value, lone), MAX_FAULTS)) if odd or lone else []


def _plain(bad: JSONDecodeError) -> str:
    return bad.msg.removesuffix(" at").removesuffix(" starting")


def _survey(data: bytes, limit: int) -> tuple[bool, int, int]:
    """Scan outside strings, in linear time: is it deeper than limit, how many objects, how many values."""
    if b"\\" in data:  # pairs of backslashes first: what is left before a quote escapes it
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = objects = values = 0
    inside = False
    for at in range(0, len(data), _CHUNK):
        parts = data[at : at + _CHUNK].split(b'"')
        outside = b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0
        brackets = outside.translate(None, _NOT_BRACKETS)
        flat = brackets.replace(b"[]", b"").replace(b"{}", b"")  # leaves out at most two levels
        if depth + len(flat) + 2 > limit:
            deepest = max(accumulate(map(_STEP.__getitem__, brackets), initial=depth))
            if deepest > limit:
                return True, objects, values
        braces = brackets.count(b"{")
        opened = braces + brackets.count(b"[")
        depth += 2 * opened - len(brackets)
        objects += braces
        values += opened + outside.count(b",")
    return False, objects, values


def _under(path: _Path, items: Iterable[tuple[str | int, Any]]) -> Iterator[tuple[_Path, Any]]:
    return (((*path, key), value) for key, value in items)


def _faults(root: Any, lone: bool) -> Iterator[Fault]:
    """Walk a value in document order, for the faults that the parser lets through."""
    stack: list[Iterator[tuple[_Path, Any]]] = [iter([((), root)])]
    while stack:
        if (following := next(stack[-1], None)) is None:
            stack.pop()
            continue
        path, value = following
        if isinstance(value, dict):
            pairs = value.pairs if isinstance(value, _Twice) else value.items()
            stack.append(_under(path, pairs))
            seen: set[str] = set()
            for key, _ in pairs if lone or isinstance(value, _Twice) else ():
                if key in seen:
                    yield Fault("duplicate", f"key {_quote(key)} stands twice", path=(*path, key))
                if lone and _LONE.search(key):
                    yield Fault("surrogate", f"key {_quote(key)} holds half a surrogate pair", path=(*path, key))
                seen.add(key)
        elif type(value) is list:
            stack.append(_under(path, enumerate(value)))
        elif isinstance(value, float) and value - value != 0:
            if any(value is constant for constant in _CONSTANTS.values()):
                yield Fault("constant", f"{json.dumps(value)} is not JSON", path=path)
            else:
                yield Fault("number", "number does not fit in 64-bit floating point", path=path)
        elif lone and isinstance(value, str) and _LONE.search(value):
            yield Fault("surrogate", f"{_show(value)} holds half a surrogate pair", path=path)


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


def _looks(head: bytes) -> str:
    """Say what the first bytes of a file look like."""
    start = head.lstrip(b" \t\r\n\xef\xbb\xbf").lower()
    what = next((words for magic, words in _LOOKS if start.startswith(magic)), "")
    return f"looks like {what}" if what else f"the file starts with {head[:16].hex(' ')}"


def read_header(
    read: Read, size: int | None, name: str, *, limit: int = HEADER_LIMIT
) -> tuple[Header | None, list[Finding]]:
    """Read and judge the header of a safetensors file of size bytes (None: unknown) by the law of safetensors 0.8.0.

    The header is None where a name, dtype or shape is not certain; errors of offsets and sizes leave it readable.
    """
    found = _Found(name)
    head = read(0, 8)
    if len(head) < 8:
        found.add("STF201", name, "", "at least 8 bytes", f"{len(head)} bytes")
        return None, found.done()
    length = int.from_bytes(head, "little")
    if length > limit:
        note = _looks(read(0, 64))
        found.add("STF202", name, "", f"a header of at most {limit} bytes", f"{length} bytes", note=note)
        return None, found.done()
    data = read(8, 8 + length) if size is None or 8 + length <= size else b""
    if len(data) < length:
        there = 8 + len(data) if data or size is None else size
        expected = f"at least {8 + length} bytes (8 + header of {length})"
        found.add("STF203", name, "", expected, f"{there} bytes", note=_looks(read(0, 64)))
        return None, found.done()

    metadata: Mapping[str, str]
    if (quick := _canonical(data)) is not None:
        tensors, metadata, end = quick
        _coverage(found, name, size, 8 + length, end)
        return Header(name, tensors, metadata, 8 + length, end), found.done()
    deep, objects, values = _survey(data, HEADER_DEPTH)
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
        found.add("STF206", name, "", "an object {…}", _show(root))
        return None, found.done()
    before, after = (data[: len(data) - len(data.lstrip(_BLANKS))], data[len(data.rstrip(_BLANKS)) :])
    if before or after.strip(b" "):
        observed = f"{len(before)} before: {_show(before.decode())}, {len(after)} after: {_show(after.decode())}"
        found.add("STF218", name, "", "blanks only at the end, and only spaces", observed)
    metadata = _metadata(found, root.pop("__metadata__")) if "__metadata__" in root else {}
    rows: dict[str, Tensor] = {}
    odd = not data.isascii() or b"\\" in data or b"\x7f" in data or "" in root
    for tensor, entry in root.items():
        if odd and (not tensor or visible(tensor, len(tensor)) != tensor):
            observed = f"{_quote(tensor)} ({len(tensor)} characters)"
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
    new, end, last = tuple.__new__, 0, "0"
    try:
        for entry in entries:
            name, _, rest = entry.partition('":{"dtype":"')
            kind, _, span = rest.partition('],"data_offsets":[')
            if kind not in kinds:
                kinds[kind] = _kind(kind)
            dtype, shape, size = kinds[kind]
            start, end = end, end + size
            first, last = last, str(end)
            if span != f"{first},{last}":
                return None
            rows[name] = new(Tensor, (dtype, shape, start, end))
    except (ValueError, KeyError):
        return None
    plain = len(rows) == len(entries) and "" not in rows and "__metadata__" not in rows and "".join(rows).isprintable()
    return (rows, metadata, end) if plain and end <= U64 else None


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


def _json_fault(found: _Found, fault: Fault, root: Any, name: str, head: bytes) -> None:
    """Turn a fault of the JSON text into a finding."""
    place = f"byte {fault.offset} of the header" if fault.offset is not None else fault.where
    if fault.kind == "utf8":
        found.add("STF205", name, "", "UTF-8", f"{fault.text}, {place}")
    elif fault.kind == "duplicate":
        observed = f"{fault.text} ({place})"
        if len(fault.path) == 1 and found.room("STF207"):
            both = [value for key, value in root.pairs if key == fault.path[0]]
            spans = (_show(v.get("data_offsets") if isinstance(v, dict) else v) for v in both[:4])
            observed = f"{len(both)} times, data_offsets {' and '.join(spans)}"
        found.add("STF207", str(fault.path[0]), "", "each key once", observed)
    elif fault.kind != "number" or not (len(fault.path) == 3 and fault.path[1] in ("shape", "data_offsets")):
        looks = _looks(head) if fault.kind == "syntax" else ""
        expected = f"one strict JSON object, at most {HEADER_DEPTH} levels deep"
        found.add("STF204", name, "", expected, f"{fault.text}, {place}", note=looks if "looks" in looks else "")


def _metadata(found: _Found, value: Any) -> Mapping[str, str]:
    if value is None:
        found.add("STF219", "__metadata__", "", "an object of strings", "null")
    elif not isinstance(value, dict):
        found.add("STF208", "__metadata__", "", "an object of strings", _show(value))
    else:
        for key, text in value.items():
            if not isinstance(text, str):
                found.add("STF208", "__metadata__", "", "a string for each key", f"{_quote(key)}: {_show(text)}")
        return {key: text for key, text in value.items() if isinstance(text, str)}
    return {}


_FIELDS = ("dtype", "shape", "data_offsets")


def _size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= U64


def _entry(found: _Found, name: str, entry: Any) -> Tensor | None:
    """Judge one entry; None if its dtype, shape or offsets cannot be told."""
    if not isinstance(entry, dict) or not all(field in entry for field in _FIELDS):
        fields = ", ".join(map(_quote, list(entry)[:8])) if isinstance(entry, dict) else ""
        observed = f"fields {fields or 'none'}" if isinstance(entry, dict) else _show(entry)
        found.add("STF209", name, "", "an object with dtype, shape and data_offsets", observed)
        return None
    if len(entry) > 3:
        extra = [_quote(key) for key in entry if key not in _FIELDS]
        found.add("STF220", name, "", "dtype, shape and data_offsets", f"also {', '.join(extra[:8])}")
    dtype, shape, span = (entry[field] for field in _FIELDS)
    if not isinstance(dtype, str) or dtype not in BITS:
        hint = nearest(dtype[:20].upper(), BITS) if isinstance(dtype, str) and found.room("STF210") else ""
        found.add("STF210", name, "", f"one of {' '.join(BITS)}", f"{_show(dtype)}{hint}")
    good = isinstance(shape, list) and all(map(_size, shape))
    if not good:
        items = enumerate(shape) if isinstance(shape, list) else ()
        bad = next((f"; item {i} is {_show(item)}" for i, item in items if not _size(item)), "")
        found.add("STF211", name, "", "a list of integers from 0 to 2**64-1", f"{_show(shape)}{bad}")
    placed = isinstance(span, list) and len(span) == 2 and all(map(_size, span)) and span[0] <= span[1]
    if not placed:
        expected = "two integers from 0 to 2**64-1, the first not greater"
        found.add("STF212", name, "data_offsets is not a range", expected, _show(span))
    if not (isinstance(dtype, str) and good and placed):
        return None
    row = Tensor(dtype, tuple(shape), span[0], span[1])
    if dtype in BITS:
        _bytes_of(found, name, row)
    return row


def _bytes_of(found: _Found, name: str, row: Tensor) -> None:
    """Judge whether the range is as long as shape and dtype need; overflow is met in the reference's order."""
    bits, count = BITS[row.dtype], 1
    for factor in (*row.shape, bits):
        count *= factor
        if count > U64:
            break
    if count <= U64 and count == (row.end - row.start) * 8:
        return
    sum_ = f"{_show(list(row.shape))} of {row.dtype}, {bits} bits each"
    if count > U64:
        found.add("STF214", name, "", f"at most {U64} bits", f"{sum_}: more than 2**64-1")
    elif count % 8:
        found.add("STF215", name, "", "a multiple of 8 bits", f"{sum_}: {count} bits")
    else:
        observed = f"{row.end - row.start} bytes in [{row.start}, {row.end}]"
        found.add("STF213", name, "", f"{count // 8} bytes: {sum_}", observed)


def _tiling(found: _Found, rows: Mapping[str, Tensor]) -> int:
    """Name the holes and overlaps of tensors that do not follow each other from 0; return where the data ends."""
    end, last = 0, ""
    for name, (_, _, start, stop) in sorted(rows.items(), key=lambda item: item[1][2:]):
        if start == end <= stop:
            end, last = stop, name
            continue
        here = f"{_quote(name)} [{start}, {stop}]"
        if start > end:
            before = f"{_quote(last)} ends at {end}" if last else "the data starts at 0"
            observed = f"{before}, {here} starts at {start}: {start - end} bytes in no tensor"
            found.add("STF212", name, f"hole of {start - end} bytes before this tensor", f"start {end}", observed)
        elif start < end:
            observed = f"{here} starts {end - start} bytes before the end of {_quote(last)} [{rows[last].start}, {end}]"
            found.add("STF212", name, f"overlaps {_quote(last)}", f"start {end}", observed)
        if stop >= end:
            end, last = stop, name
    return end


def _coverage(found: _Found, name: str, size: int | None, before: int, end: int) -> None:
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


@dataclass(frozen=True, slots=True)
class Index:
    """Hold what an index says; unjudged names what was not looked at, and is empty only if all names were kept."""

    name: str
    weight_map: Mapping[str, str]  # tensor -> shard: all of them, or those that were wanted
    shards: Mapping[str, int]  # shard -> how many tensors the index gives it
    total_size: Any  # metadata.total_size, None if absent
    unjudged: str = ""


class _Stop(Exception):  # never leaves this module
    """Why reading ends here: what was expected, what is there."""

    def __init__(self, expected: str, observed: str) -> None:
        super().__init__(expected, observed)
        self.expected, self.observed = expected, observed


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
            want = _CHUNK if self.stop is None else min(_CHUNK, self.stop - self.taken)
            data = self.read(self.taken, self.taken + want) if want > 0 else b""
            self.eof = len(data) < _CHUNK
            try:
                fresh = self.decode(data, self.eof)
            except UnicodeDecodeError as bad:
                raise _Stop("UTF-8", f"{bad.reason} near byte {self.taken + bad.start}") from None
            self.taken += len(data)
            if self.taken > self.limit:
                raise _Stop(f"at most {self.limit} bytes", f"more than {self.limit} bytes")
            self.text, self.at = self.text[self.at :] + fresh, 0
            self.escapes = self.escapes or "\\" in fresh

    def place(self) -> str:
        """Say where the next token stands."""
        byte = self.taken - len(self.text[self.at :].encode("utf-8", "surrogatepass"))
        rest = self.text[self.at : self.at + 16]
        return f"{_show(rest)} near byte {byte}" if rest else f"the end, at byte {self.taken}"

    def token(self, allowed: str) -> str:
        """Take one of the allowed characters, after blanks."""
        self.fill()
        self.at = _blanks(self.text, self.at).end()
        if (char := self.text[self.at : self.at + 1]) not in allowed or not char:
            raise _Stop(f"one of {' '.join(allowed)}", self.place())
        self.at += 1
        return char

    def string(self) -> str:
        """Take one string."""
        self.token('"')
        try:
            value, self.at = _scan(self.text, self.at, True)
        except JSONDecodeError as bad:
            raise _Stop("a string", f"{_plain(bad)}: {self.place()}") from None
        if self.escapes and _LONE.search(value):
            raise _Stop("whole surrogate pairs", f"{_show(value)}, before {self.place()}")
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
                raise _Stop(f"at most {CONFIG_DEPTH} levels", f"more, at {self.place()}") from None
            except JSONDecodeError as error:
                bad = _plain(error)
            if self.eof or ahead > CONFIG_LIMIT:
                raise _Stop("a JSON value", f"{bad}: {self.place()}")
            ahead *= 2
        value, faults = strict_json(self.text[at:end].encode())
        if faults:
            raise _Stop("strict JSON", f"{faults[0].text} ({faults[0].where}), before {self.place()}")
        self.at = end
        return value


def read_index(
    read: Read, size: int | None, name: str, *, wanted: Collection[str] | None = None
) -> tuple[Index | None, list[Finding]]:
    """Read model.safetensors.index.json in chunks; of the tensor names only the wanted ones are kept (None: all).

    The JSON and the shard names are judged either way. The index is None only if it cannot be used.
    """
    found = _Found(name)
    try:
        if size is not None and size > INDEX_LIMIT:
            raise _Stop(f"at most {INDEX_LIMIT} bytes", f"{size} bytes")
        index = _index(_Stream(read, size, INDEX_LIMIT), found, name, wanted)
    except _Stop as why:
        found.add("IDX306", name, "", why.expected, why.observed)
        return None, found.done()
    for shard in index.shards:
        if why_not := unsafe_name(shard):
            found.add("IDX307", shard, "", "a plain relative file name", f"{_quote(shard)}: {why_not}")
    return index if not found.all else None, found.done()


def _index(stream: _Stream, found: _Found, name: str, wanted: Collection[str] | None) -> Index:
    names = None if wanted is None else frozenset(wanted)
    seen: dict[str, Any] = {}
    shards: dict[str, int] = {}
    kept: dict[str, str] = {}
    stream.token("{")
    more = stream.token('}"')
    while more != "}":
        stream.at -= 1
        if (key := stream.string()) in seen:
            raise _Stop("each key once", f"{_quote(key)} stands twice, before {stream.place()}")
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
        raise _Stop("nothing after the closing brace", stream.place())
    if "weight_map" not in seen:
        keys = ", ".join(map(_quote, list(seen)[:8]))
        raise _Stop("a weight_map of tensor names to file names", f"keys {keys or 'none'}")
    unjudged = ""
    if names is not None:
        others = sum(shards.values()) - len(kept)
        unjudged = f"of {others} names that were not wanted: whether one stands twice, and whether its shard holds it"
    metadata = seen.get("metadata")
    return Index(name, kept, shards, metadata.get("total_size") if isinstance(metadata, dict) else None, unjudged)


def _weight_map(
    stream: _Stream, found: _Found, kept: dict[str, str], shards: dict[str, int], names: frozenset[str] | None
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
            raise _Stop("pairs of strings", f"{_plain(bad)}: {stream.place()}") from None
        if shard is None:
            stream.at = at
            stream.token(":")
            found.add("IDX306", tensor, "shard name is not a string", "a file name", _show(stream.value()))
            text, at = stream.text, stream.at
        else:
            if stream.escapes and _LONE.search(tensor + shard):
                raise _Stop("whole surrogate pairs", f"{_quote(tensor)}: {_quote(shard)}")
            if shard in shards:
                shards[shard] += 1
            elif len(shards) < MAX_SHARDS:
                shards[shard] = 1
            else:
                raise _Stop(f"at most {MAX_SHARDS} shards", f"more, {_quote(shard)} among them")
            if names is None or tensor in names:
                if tensor in kept:
                    observed = f"in {_quote(kept[tensor])} and in {_quote(shard)}"
                    found.add("IDX306", tensor, "tensor stands twice", "each name once", observed)
                elif len(kept) == MAX_NAMES:
                    raise _Stop(f"at most {MAX_NAMES} tensors", f"more, {_quote(tensor)} among them")
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


_DEVICES = re.compile(r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])(?:\..*)?")


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
        if _DEVICES.fullmatch(part):
            return f"{part}: a device on Windows"
        if len(part.encode()) > 255:
            return f"a part of {len(part.encode())} bytes; at most 255 fit"
    return ""


def check_shards(index: Index, headers: Iterable[tuple[str, Header | None]], present: Collection[str]) -> list[Finding]:
    """Compare an index with the headers of its shards, one at a time, and with the files present (IDX301 to IDX305).

    A shard whose header is None, or is not given, is not judged. An index read in part is judged in that part.
    """
    found = _Found(index.name)
    for shard, names in index.shards.items():
        if shard not in present:
            found.add("IDX304", shard, "", f"a file with {names} tensors", "no such file")
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
    for name, shard in absent.items():
        elsewhere = ", ".join(map(_quote, strays.get(name, [])[:4]))
        note = f"{elsewhere} holds it" if elsewhere else ""
        found.add("IDX301", name, "", f"in {_quote(shard)}", "not there", note=note)
    for name, at in strays.items():
        home = where.get(name, "")
        here = at if not home or name in absent else [home, *at]
        if len(here) > 1:
            observed = f"in {' and '.join(map(_quote, here[:4]))}"
            note = f"the index names {_quote(home) if home else 'none of them'}"
            note += "" if not home or home in judged else ", which was not read"
            found.add("IDX303", name, "", "in one file", observed, note=note)
        elif not home:
            found.add("IDX302", name, "", "named in the index", f"only in {_quote(at[0])}")
    if complete and index.total_size is not None and judged == index.shards.keys() and not absent and not strays:
        total = index.total_size
        if type(total) not in (int, float) or total != data:
            found.add("IDX305", "metadata.total_size", "", f"{data} bytes in {len(judged)} shards", _show(total))
    return found.done()


# --- torch zip files ---------------------------------------------------------------------------------------------

_STORAGES = {
    "torch.BFloat16Storage": "BF16", "torch.HalfStorage": "F16", "torch.FloatStorage": "F32",
    "torch.DoubleStorage": "F64", "torch.LongStorage": "I64", "torch.IntStorage": "I32",
    "torch.ShortStorage": "I16", "torch.CharStorage": "I8", "torch.ByteStorage": "U8", "torch.BoolStorage": "BOOL",
    "torch.ComplexFloatStorage": "C64", "torch.storage.UntypedStorage": "U8",
}  # fmt: skip
_DTYPES = {  # written since torch 2.1 for what has no storage class of its own
    "torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2", "torch.float8_e4m3fnuz": "F8_E4M3FNUZ",
    "torch.float8_e5m2fnuz": "F8_E5M2FNUZ", "torch.float8_e8m0fnu": "F8_E8M0",
    "torch.uint16": "U16", "torch.uint32": "U32", "torch.uint64": "U64",
}  # fmt: skip
_REBUILD = {  # -> arguments at least
    "torch._utils._rebuild_tensor": 4, "torch._utils._rebuild_tensor_v2": 6, "torch._utils._rebuild_tensor_v3": 7,
}  # fmt: skip
_PARAMETER, _ORDERED = "torch._utils._rebuild_parameter", "collections.OrderedDict"
_KNOWN = {*_STORAGES, *_DTYPES, *_REBUILD, _PARAMETER, _ORDERED}


class _Global(NamedTuple):
    name: str


class _Storage(NamedTuple):
    dtype: str
    key: str
    elements: int


class _Built(NamedTuple):
    tensor: Tensor
    storage: _Storage


def read_torch_zip(read: Read, size: int, name: str) -> tuple[Header | None, list[Finding]]:
    """Read names, dtypes and shapes of a torch.save zip file (torch 1.6 and later) without running pickle code.

    A state dict inside a dict gets joined names ("model.fc.weight"). All that is refused is SRC121.
    """
    found = _Found(name)
    try:
        records = _records(read, size)
        pickles = [path for path in records if path.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise _Stop("one */data.pkl", f"{len(pickles)} of them" if pickles else f"none in {len(records)} records")
        prefix = pickles[0].removesuffix("data.pkl")
        data = _stored(read, pickles[0], *records[pickles[0]])
        root = _unpickle(data)
        tables = _flatten(found, root)
        tensors = {}
        for tensor, (row, storage) in tables.items():
            _, _, length, _ = records.get(f"{prefix}data/{storage.key}", (0, 0, -1, 0))
            need = storage.elements * BITS[storage.dtype] // 8
            if length != need:
                observed = f"{length} bytes" if length >= 0 else "no such record"
                raise _Stop(f"{need} bytes in data/{storage.key}, the storage of {_quote(tensor)}", observed)
            tensors[tensor] = row
    except _Stop as why:
        found.add("SRC121", name, "", why.expected, why.observed)
        return None, found.done()
    return Header(name, tensors, {}, len(data), sum(row.end - row.start for row in tensors.values())), found.done()


def _records(read: Read, size: int) -> dict[str, tuple[int, int, int, int]]:
    """Read the directory of a zip file: name -> flags, method, length, offset of the local header."""
    head = read(0, min(size, 512))
    if not head.startswith(b"PK\x03\x04"):
        observed = "a tar archive, the oldest torch format" if head[257:262] == b"ustar" else _looks(head)
        observed = "a bare pickle, the torch format before 1.6" if head[:1] == b"\x80" else observed
        raise _Stop("a zip file, as torch.save has written since 1.6", observed)
    base = max(0, size - 65536 - 22 - 20 - 56)  # comment, end record, zip64 locator and end record
    tail = read(base, size)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22 or end + 22 + int.from_bytes(tail[end + 20 : end + 22], "little") != len(tail):
        raise _Stop("a zip directory that ends the file", "none: the file was cut")
    count, length, start = struct.unpack_from("<HII", tail, end + 10)
    if tail[end - 20 : end - 16] == b"PK\x06\x07" and end >= 20:
        (zip64,) = struct.unpack_from("<Q", tail, end - 12)
        record = read(zip64, zip64 + 56) if zip64 <= size else b""
        if len(record) != 56 or record[:4] != b"PK\x06\x06":
            raise _Stop("a zip64 end record", f"none at byte {zip64}")
        count, length, start = struct.unpack_from("<QQQ", record, 32)
    if length > PICKLE_LIMIT or start + length > size:
        raise _Stop(f"a zip directory of at most {PICKLE_LIMIT} bytes inside the file", f"{length} bytes at {start}")
    directory = read(start, start + length)
    records: dict[str, tuple[int, int, int, int]] = {}
    at = 0
    while directory[at : at + 4] == b"PK\x01\x02" and at + 46 <= len(directory):
        flags, method, packed, full, *lengths, offset = struct.unpack_from("<8xHH8xIIHHH8xI", directory, at)
        name_end = at + 46 + lengths[0]
        path = directory[at + 46 : name_end].decode("utf-8", "replace")
        sizes = _zip64(directory[name_end : name_end + lengths[1]], full, packed, offset)
        if path in records:
            raise _Stop("each record once", f"{_quote(path)} stands twice in the zip directory")
        records[path] = (flags, method, sizes[0], sizes[2])
        at += 46 + sum(lengths)
    if at != length or len(records) != count:
        raise _Stop(f"{count} records in {length} bytes of zip directory", f"{len(records)} in {at} bytes")
    return records


def _zip64(extra: bytes, *values: int) -> list[int]:
    """Replace the values that stand in the zip64 field (id 1) of a record."""
    at, out = 0, list(values)
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        field = extra[at + 4 : at + 4 + length]
        if kind == 1:
            for i, value in enumerate(out):
                if value == 0xFFFFFFFF and len(field) >= 8:
                    out[i], field = int.from_bytes(field[:8], "little"), field[8:]
        at += 4 + length
    return out


def _stored(read: Read, path: str, flags: int, method: int, length: int, offset: int) -> bytes:
    """Return the bytes of one record that is stored as it is."""
    if flags & 1 or method != 0:
        raise _Stop(f"{path} stored as it is", "encrypted" if flags & 1 else f"compressed (method {method})")
    if length > PICKLE_LIMIT:
        raise _Stop(f"{path} of at most {PICKLE_LIMIT} bytes", f"{length} bytes")
    local = read(offset, offset + 30)
    if len(local) != 30 or local[:4] != b"PK\x03\x04":
        raise _Stop(f"the record of {path} at byte {offset}", "something else")
    name_len, extra_len = struct.unpack_from("<HH", local, 26)
    start = offset + 30 + name_len + extra_len
    data = read(start, start + length)
    if len(data) != length:
        raise _Stop(f"{length} bytes of {path}", f"{len(data)} bytes")
    return data


def _unpickle(data: bytes) -> Any:
    """Run the few opcodes that torch.save writes, on stand-ins: nothing is imported, nothing is called."""
    try:
        return _machine(data)
    except (IndexError, KeyError, UnicodeDecodeError, struct.error) as bad:
        raise _Stop("the pickle of a state dict", f"a damaged one ({type(bad).__name__})") from None


_FIXED = {b"K": "<B", b"M": "<H", b"J": "<i", b"G": ">d"}
_LENGTHS = {b"X": 4, b"\x8c": 1, b"\x8d": 8}  # opcode of a text -> bytes of its length
_LONG_KEY = 4096
_ALONE = {b"N": None, b"\x88": True, b"\x89": False}


def _machine(data: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    at = 0

    def take(count: int) -> bytes:
        nonlocal at
        if count < 0 or at + count > len(data):
            raise _Stop(f"{count} more bytes of data.pkl", f"{len(data) - at}: it was cut")
        at += count
        return data[at - count : at]

    def number(count: int) -> int:
        return int.from_bytes(take(count), "little")

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for _ in range(PICKLE_STEPS):
        op = take(1)
        if op in _LENGTHS:
            stack.append(take(number(_LENGTHS[op])).decode("utf-8", "surrogatepass"))
        elif op in _FIXED:
            stack.append(struct.unpack(_FIXED[op], take(struct.calcsize(_FIXED[op])))[0])
        elif op in b"qr":  # BINPUT, LONG_BINPUT
            memo[number(1 if op == b"q" else 4)] = stack[-1]
        elif op in b"hj":  # BINGET, LONG_BINGET
            stack.append(memo[number(1 if op == b"h" else 4)])
        elif op == b"\x94":  # MEMOIZE
            memo[len(memo)] = stack[-1]
        elif op == b"(":
            marks.append(len(stack))
        elif op == b"t":
            stack.append(tuple(since_mark()))
        elif op in b")\x85\x86\x87":  # tuples of 0 to 3
            count = b")\x85\x86\x87".index(op)
            if count > len(stack):
                raise IndexError
            items = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            stack.append(tuple(items))
        elif op in b"}]":
            stack.append({} if op == b"}" else [])
        elif op in _ALONE:
            stack.append(_ALONE[op])
        elif op == b"\x8a":  # LONG1
            stack.append(int.from_bytes(take(number(1)), "little", signed=True))
        elif op == b"c" or op == b"\x93":  # GLOBAL, STACK_GLOBAL
            if op == b"c":
                line = data.find(b"\n", at), data.find(b"\n", data.find(b"\n", at) + 1)
                if -1 in line or line[1] - at > 1000:
                    raise IndexError
                module, attribute = take(line[1] + 1 - at).decode().split("\n")[:2]
            else:
                attribute, module = stack.pop(), stack.pop()
                if not isinstance(module, str) or not isinstance(attribute, str) or len(module + attribute) > 1000:
                    raise _Stop("the name of a global", "something else")
            if (path := f"{module}.{attribute}") not in _KNOWN:
                raise _Stop("only the globals that rebuild tensors", f"global {visible(path)}")
            stack.append(_Global(path))
        elif op == b"Q":  # BINPERSID
            stack.append(_storage(stack.pop()))
        elif op == b"R":  # REDUCE
            arguments = stack.pop()
            stack.append(_reduce(stack.pop(), arguments))
        elif op in b"su":  # SETITEM, SETITEMS
            items = since_mark() if op == b"u" else [stack.pop(-2), stack.pop()]
            if not isinstance(stack[-1], dict) or len(items) % 2:
                raise _Stop("items of a dict", _kind_of(stack[-1]))
            for key, value in zip(items[::2], items[1::2], strict=True):
                if not isinstance(key, (str, int, float, type(None))) or len(str(key)[: _LONG_KEY + 1]) > _LONG_KEY:
                    raise _Stop(f"keys that are numbers or names of at most {_LONG_KEY} characters", _kind_of(key))
                stack[-1][key] = value
        elif op in b"ae":  # APPEND, APPENDS
            items = since_mark() if op == b"e" else [stack.pop()]
            if not isinstance(stack[-1], list):
                raise _Stop("items of a list", _kind_of(stack[-1]))
            stack[-1].extend(items)
        elif op == b"b":  # BUILD: an OrderedDict's attributes, such as _metadata
            stack.pop()
            if not isinstance(stack[-1], dict):
                raise _Stop("attributes of an OrderedDict", _kind_of(stack[-1]))
        elif op == b"\x80":  # PROTO
            take(1)
        elif op == b"\x95":  # FRAME
            take(8)
        elif op == b".":
            return stack.pop()
        else:
            raise _Stop("only the opcodes that torch.save writes", f"opcode 0x{op[0]:02x} at byte {at - 1} of data.pkl")
    raise _Stop(f"at most {PICKLE_STEPS} opcodes", "more")


def _kind_of(value: Any) -> str:
    return f"a {type(value).__name__.lstrip('_').lower()}"


def _storage(key: Any) -> _Storage:
    """Read a persistent id: ("storage", class, key, location, elements)."""
    match key:
        case ("storage", _Global(name), str(record), str(), int(count)) if name in _STORAGES and _size(count):
            return _Storage(_STORAGES[name], record, count)
    raise _Stop("the persistent id of a storage", "a malformed one")


def _reduce(function: Any, arguments: Any) -> Any:
    """Do what a known function would do to its arguments; shapes and strides must stay inside their storage."""
    match function, arguments:
        case _Global(name), (_Storage() as storage, int(offset), tuple(shape), tuple(strides), *more) if (
            name in _REBUILD and len(arguments) >= _REBUILD[name]
        ):
            if not len(shape) == len(strides) <= 64 or not all(map(_size, (offset, *shape, *strides))):
                raise _Stop("offset, shape and strides of a tensor", "a malformed one")
            dtype = storage.dtype
            if name == "torch._utils._rebuild_tensor_v3":
                if not (isinstance(more[2], _Global) and more[2].name in _DTYPES):
                    raise _Stop("a dtype", _kind_of(more[2]))
                dtype = _DTYPES[more[2].name]
            width = BITS[dtype] // 8
            last = 0 if 0 in shape else 1 + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
            if last and (offset + last) * width > storage.elements * BITS[storage.dtype] // 8:
                observed = f"{storage.elements} elements of {storage.dtype}"
                raise _Stop(f"{offset + last} elements of {dtype} in storage {_quote(storage.key)}", observed)
            return _Built(Tensor(dtype, shape, offset * width, (offset + last) * width), storage)
        case _Global(name), (_Built() as built, *_) if name == _PARAMETER:
            return built
        case _Global(name), () if name == _ORDERED:
            return {}
    called = function.name if isinstance(function, _Global) else _kind_of(function)
    raise _Stop("calls that rebuild tensors", f"a call of {called} with other arguments")


def _flatten(found: _Found, root: Any) -> dict[str, _Built]:
    """Return the tensors of a state dict, and of dicts directly in it under joined names; tell what is left out."""
    if not isinstance(root, dict):
        raise _Stop("a dict of tensors", _kind_of(root))
    tensors: dict[str, _Built] = {}
    outer: list[str] = []
    left: list[str] = []
    holds: dict[int, bool] = {}  # by identity: a dict may stand under many keys
    for key, value in root.items():
        leaves = [(str(key), value)]
        if isinstance(value, dict):
            if id(value) not in holds:
                holds[id(value)] = any(isinstance(leaf, _Built) for leaf in value.values())
            if holds[id(value)]:
                outer.append(str(key))
                leaves = [(f"{key}.{inner}", leaf) for inner, leaf in value.items()]
        for path, leaf in leaves:
            if not isinstance(leaf, _Built):
                left.append(path)
            elif path in tensors:
                raise _Stop("each name once", f"{_quote(path)} twice after joining names")
            else:
                tensors[path] = leaf
        if len(tensors) + len(left) > MAX_TENSORS:
            raise _Stop(f"at most {MAX_TENSORS} entries", "more")
    others = f"{', '.join(map(_quote, left[:8]))}{f' and {len(left) - 8} more' if len(left) > 8 else ''}"
    if not tensors:
        raise _Stop("tensors in the dict", f"no tensor, but {others or 'nothing'}")
    if outer or left:
        dicts = f"dicts of tensors under {', '.join(map(_quote, outer[:8]))}, names joined with '.'" if outer else ""
        note = f"not read: {others}" if left else ""
        observed = dicts or f"{len(left)} other entries"
        message = "file holds more than a flat state dict"
        found.add("SRC121", found.where, message, "tensors alone", observed, note=note, level="info")
    return tensors
