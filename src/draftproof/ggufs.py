"""GGUF: the table of tensors and the keys of one file, and what config and names they are of in a checkpoint.

Only the head of a file is read, within bounds, whatever its lengths claim: what is wrong comes back as a finding. The
``gguf`` package, an extra, knows the types: how many bytes a block of each takes. Which key says what is data, a
contract of kind ``format``; the names of tensors are read by a dialect of a family, as those of any checkpoint.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from draftproof.container import Read, Tensor, looks_like
from draftproof.findings import Finding, finding, unknown, visible
from draftproof.hub import Source, unreadable
from draftproof.profiles import Format, KeyIn

EXTRA = "pip install 'draftproof[gguf]'"
VERSIONS = (2, 3)
MAX_KEYS = 65_536
MAX_TENSORS = 100_000
MAX_TEXT = 65_536  # bytes of a key, a name or a text that is kept
MAX_LIST = 4_096  # elements of a list that is kept; of a longer one only how many there are
MAX_PARTS = 1_000
MAX_STEPS = 8_000_000  # texts in all lists: the vocabularies of any tokenizer are fewer
CHUNK = 1 << 16
_PLAIN = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9
_NAMES = {0: "u8", 1: "i8", 2: "u16", 3: "i16", 4: "u32", 5: "i32", 6: "f32", 7: "bool", 8: "text", 9: "list",
          10: "u64", 11: "i64", 12: "f64"}  # fmt: skip


class Counted(NamedTuple):
    """Stand for a list that is too long to be kept."""

    length: int


class Head(NamedTuple):
    """Hold what the head of a file says."""

    keys: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    types: Mapping[str, str] = MappingProxyType({})  # key -> u32, f32, bool, text, list i32


class _Bad(Exception):
    """Say what is expected and what is there; it leaves this module as a finding."""


class _Stream:
    """Take bytes one after the other, in chunks; what reaches beyond the end is _Bad."""

    def __init__(self, read: Read, size: int) -> None:
        self.read, self.size, self.at = read, size, 0
        self.chunk, self.start = b"", 0

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        if count > self.size - self.at:
            raise _Bad(f"{count} bytes of {what} at {self.at}", f"a file of {self.size} bytes")
        at = self.at - self.start
        if at + count > len(self.chunk):
            self.chunk, self.start = self.read(self.at, min(self.size, self.at + max(count, CHUNK))), self.at
            at = 0
            if len(self.chunk) < count:
                raise _Bad(f"{count} bytes of {what} at {self.at}", f"{len(self.chunk)} bytes")
        self.at += count
        return self.chunk[at : at + count]

    def peek(self, count: int) -> bytes:
        """Return the next bytes, which stay to be taken; fewer at the end."""
        return self.read(self.at, min(self.size, self.at + count))

    def skip(self, count: int, what: str) -> None:
        """Pass over bytes without reading them."""
        if count > self.size - self.at:
            raise _Bad(f"{count} bytes of {what} at {self.at}", f"a file of {self.size} bytes")
        self.at += count
        if self.at > self.start + len(self.chunk):
            self.chunk, self.start = b"", self.at

    def number(self, form: str, what: str) -> Any:
        """Return the next number."""
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def text(self, what: str) -> str:
        """Return the next text: eight bytes of length, then UTF-8."""
        length = self.number("<Q", what)
        if length > MAX_TEXT:
            raise _Bad(f"{what} of at most {MAX_TEXT} bytes", f"{length} bytes at {self.at}")
        return self.take(length, what).decode("utf-8", "replace")


def read_gguf(read: Read, size: int, name: str) -> tuple[Head | None, list[Finding]]:
    """Read the head of a GGUF file of size bytes: keys and tensors; say so without the package that has its types."""
    types = _types()
    if types is None:
        expected = "the gguf package, which knows the types of its tensors"
        return None, [unknown("SRC129", name, expected=expected, observed="it is not installed", help=EXTRA)]
    try:
        head = read(0, 4)
        if head != b"GGUF":
            raise _Bad("GGUF", looks_like(read(0, 64)) if head else "an empty file")
        return _head(_Stream(read, size), types), []
    except _Bad as bad:
        return None, [finding("STF221", name, expected=visible(bad.args[0]), observed=visible(bad.args[1]))]


@cache
def _types() -> Mapping[int, tuple[str, int, int]] | None:
    """Return number -> name of a type, the elements of a block of it, and their bytes."""
    try:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType  # noqa: PLC0415 (an extra)
    except ImportError:
        return None
    return {int(t): (t.name, *map(int, GGML_QUANT_SIZES[t])) for t in GGMLQuantizationType}


def _head(stream: _Stream, types: Mapping[int, tuple[str, int, int]]) -> Head:
    stream.skip(4, "magic")
    version = stream.number("<I", "the version")
    if version not in VERSIONS:
        raise _Bad(f"version {' or '.join(map(str, VERSIONS))}, little-endian", f"version {version}")
    count, pairs = stream.number("<Q", "the count of tensors"), stream.number("<Q", "the count of keys")
    if count > MAX_TENSORS or pairs > MAX_KEYS:
        raise _Bad(f"at most {MAX_TENSORS} tensors and {MAX_KEYS} keys", f"{count} tensors, {pairs} keys")
    keys: dict[str, Any] = {}
    types_of: dict[str, str] = {}
    steps = [MAX_STEPS]
    for _ in range(pairs):
        key = stream.text("a key")
        if key in keys:
            raise _Bad("each key once", f"{key} twice")
        kind = stream.number("<I", f"the type of {key}")
        of = int.from_bytes(stream.peek(4), "little") if kind == _LIST else 0
        types_of[key] = f"list {_NAMES.get(of, of)}" if kind == _LIST else _NAMES.get(kind, str(kind))
        keys[key] = _value(stream, kind, key, steps)
    rows = []
    for _ in range(count):
        tensor = stream.text("the name of a tensor")
        axes = stream.number("<I", f"the axes of {tensor}")
        if axes > 4:
            raise _Bad(f"at most 4 axes of {tensor}", str(axes))
        shape = tuple(stream.number("<Q", f"the shape of {tensor}") for _ in range(axes))[::-1]
        rows.append((tensor, shape, stream.number("<I", f"the type of {tensor}"),
                     stream.number("<Q", f"the offset of {tensor}")))  # fmt: skip
    step = keys.get("general.alignment", 32)
    if type(step) is not int or step < 1 or step & (step - 1):
        raise _Bad("general.alignment: a power of two", repr(step))
    start = -(-stream.at // step) * step
    return Head(keys, dict(_placed(rows, start, stream.size, types)), types_of)


def _placed(
    rows: list[tuple[str, tuple[int, ...], int, int]], start: int, size: int, types: Mapping[int, tuple[str, int, int]]
) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor with the bytes that it takes, from the start of the data."""
    seen = set()
    for name, shape, number, offset in rows:
        if name in seen:
            raise _Bad("each tensor once", f"{name} twice")
        seen.add(name)
        if number not in types:
            raise _Bad(f"a type of {name} that the gguf package knows", f"type {number}")
        dtype, block, width = types[number]
        last = shape[-1] if shape else 1
        if last % block:
            raise _Bad(f"rows of {name} of a multiple of {block} elements, as {dtype} packs them", f"{last} elements")
        end = offset + math.prod(shape) // block * width
        if start + end > size:
            raise _Bad(f"{start + end} bytes, where {name} ends", f"a file of {size} bytes")
        yield name, Tensor(dtype, shape, start + offset, start + end)


def _value(stream: _Stream, kind: int, key: str, steps: list[int], depth: int = 0) -> Any:
    if kind in _PLAIN:
        value = stream.number(_PLAIN[kind], key)
        return _short(value) if kind == 6 else value
    if kind == _TEXT:
        return stream.text(key)
    if kind != _LIST or depth > 4:
        raise _Bad(f"a type of {key} that GGUF has", f"type {kind}")
    of, length = stream.number("<I", key), stream.number("<Q", key)
    if of in _PLAIN and length > MAX_LIST:
        stream.skip(length * struct.calcsize(_PLAIN[of]), key)
        return Counted(length)
    steps[0] -= length
    if steps[0] < 0:
        raise _Bad(f"at most {MAX_STEPS} elements in all lists", f"{length} in {key}")
    kept = []
    for n in range(length):
        if of == _TEXT and n >= MAX_LIST:
            stream.skip(stream.number("<Q", key), key)
        else:
            kept.append(_value(stream, of, key, steps, depth + 1))
    return kept if len(kept) == length else Counted(length)


def _short(value: float) -> float:
    """Return the shortest number that is the same in 32 bits: 1e-05, where a double shows 9.999999747378752e-06."""
    for digits in range(1, 10):
        near = float(f"{value:.{digits}g}") if math.isfinite(value) else value
        if struct.pack("<f", near) == struct.pack("<f", value):
            return near
    return value


# --- as a checkpoint ----------------------------------------------------------------------------------------------


def open_gguf(path: Path, spec: str, format: Format, role: str = "drafter") -> Source | Finding:
    """Open a GGUF file, with its other parts, as a checkpoint; what is damaged, or of no drafter, is a finding.

    Of a target only the keys are read: what they do not say is not known.
    """
    head, files = None, dict[str, int]()
    for part in _parts(path):
        if not part.is_file():
            expected, help = f"each part of {path.name} beside it", "put all parts into one folder, under their names"
            return finding("STF221", visible(spec), expected=visible(expected), observed=f"no {visible(part.name)}",
                           help=help)  # fmt: skip
        read = _head_of(part, spec)
        if isinstance(read, Finding):
            return read
        files[part.name] = part.stat().st_size
        if head is None and (wrong := _not_first(read, path, spec)):
            return wrong
        both = set(read.tensors) & set(head.tensors if head else ())
        if both:
            seen = f"{visible(min(both))} in two parts"
            return finding("STF221", visible(spec), expected="each tensor in one part", observed=seen)
        head = read if head is None else head._replace(tensors={**head.tensors, **read.tensors})
    assert head is not None
    kind = head.keys.get("general.architecture")
    known = [name for name, one in format.architectures.items() if role != "drafter" or not one.target]
    if kind not in known and (role == "drafter" or not isinstance(kind, str)):
        expected = f"a {role}: general.architecture {' or '.join(known)}"
        help = "give the safetensors checkpoint that it was converted from"
        return unknown("SRC116", visible(spec), expected=expected, observed=visible(kind), help=help)
    source = Source(spec, "gguf", files, config=config_of(head, format), folder=path.parent)
    source.tensors = head.tensors if role == "drafter" else None
    source.stated = _read_by_types(head, format, str(kind))
    return source


def _parts(path: Path) -> list[Path]:
    """Return the parts of a file that is named as the first of several, itself the first; else the file alone."""
    named = re.fullmatch(r"(.+)-00001-of-(\d{5})\.gguf", path.name)
    count = int(named[2]) if named else 1
    if named is None or not 1 < count <= MAX_PARTS:
        return [path]
    return [path.with_name(f"{named[1]}-{n:05}-of-{named[2]}.gguf") for n in range(1, count + 1)]


def _head_of(path: Path, spec: str) -> Head | Finding:
    """Return the head of one file, or what is wrong with it."""

    def read(start: int, stop: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(max(0, stop - start))

    shown = visible(spec) if path.name == Path(spec).name else visible(path.name)
    try:
        head, found = read_gguf(read, path.stat().st_size, shown)
    except OSError as error:
        return unreadable(shown, error, shown)
    return found[0] if head is None else head


def _not_first(head: Head, path: Path, spec: str) -> Finding | None:
    """Say that a file is a part of several, and not the first, or not named as one, if it is."""
    count, number = head.keys.get("split.count", 1), head.keys.get("split.no", 0)
    if type(count) is not int or count < 2 or (number == 0 and len(_parts(path)) == count):
        return None
    expected = f"the first of its {count} parts, named …-00001-of-{count:05}.gguf"
    return finding("STF221", visible(spec), expected=expected, observed=f"part {visible(number)}, {visible(path.name)}",
                   help="give the first part; the others are read from beside it")  # fmt: skip


def config_of(head: Head, format: Format) -> dict[str, Any]:
    """Return the config that the keys of a file state."""
    name = str(head.keys["general.architecture"])
    own = format.architectures.get(name)
    config: dict[str, Any] = dict(own.set) if own else {}
    for key, rule in {**format.keys, **(own.keys if own else {})}.items():
        value = _stated(head, rule, name)
        if value is None:
            continue
        *path, last = key.split(".")
        table = config
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return config


def _read_by_types(head: Head, format: Format, name: str) -> dict[str, Any]:
    """Return the keys that are needed and not there, those of another type than is read, and the numbers of its own.

    Beside them the names of tensors of one axis that have sixteen bits.
    """
    own = format.architectures.get(name)
    wanted = {k.replace("{a}", name): row for k, row in {**format.types, **(own.types if own else {})}.items()}
    mine = {f"own.{k.removeprefix(f'{name}.')}": v for k, v in head.keys.items() if type(v) in (int, float, bool)}
    return {
        **mine,
        "lacks": [key for key, row in wanted.items() if key not in head.keys and row.needed
                  and all(head.keys.get(k) == v for k, v in row.where.items())],
        "wrong": [key for key, row in wanted.items() if key in head.keys and head.types.get(key) not in row.is_],
        "short": [name for name, one in head.tensors.items() if len(one.shape) == 1 and one.dtype in ("F16", "BF16")],
    }  # fmt: skip


def _stated(head: Head, rule: KeyIn, name: str) -> Any:
    for key in rule.from_:
        value = head.keys.get(key.replace("{a}", name))
        if isinstance(value, list) and rule.add:
            return [i + rule.add if type(i) is int else i for i in value]
        if value is not None and not isinstance(value, Counted):
            return value
    if rule.length and isinstance(found := head.keys.get(rule.length), (list, Counted)):
        return len(found) if isinstance(found, list) else found.length
    if rule.lacks:
        return rule.lacks not in head.tensors
    tensor = head.tensors.get(rule.rows) if rule.rows else None
    return tensor.shape[0] if tensor is not None and tensor.shape else None
