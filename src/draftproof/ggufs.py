"""GGUF: the table of tensors and the keys of one file, and what config and names they are of in a checkpoint.

Only the head of a file is read, within bounds, whatever its lengths claim: what is wrong comes back as a finding. The
``gguf`` package, an extra, knows the types: how many bytes a block of each takes. Which key says what is data, a
contract of kind ``format``; the names of tensors are read by a dialect of a family, as those of any checkpoint.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from draftproof.container import Read, Tensor, looks_like
from draftproof.findings import Finding, finding, unknown, visible
from draftproof.hub import Source, unreadable
from draftproof.profiles import Format, KeyIn, TypeIn

EXTRA = "pip install 'draftproof[gguf]'"
VERSIONS = (2, 3)
MAX_KEYS = 65_536
MAX_TENSORS = 100_000
MAX_TEXT = 65_536  # bytes of a key, a name or a text that are kept; what is longer is passed over
MOST_TEXT = 1 << 30  # bytes of a text that any reader takes
MAX_NAME = 63  # bytes of a tensor's name
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
    unlike: int = 0  # of texts: how many different ones
    digest: int = 0  # of texts from FIRST on: the same number for the same texts


class Head(NamedTuple):
    """Hold what the head of a file says."""

    keys: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    types: Mapping[str, str] = MappingProxyType({})  # key -> u32, f32, bool, text, list i32
    start: int = 0  # where the bytes of the first tensor begin


class _Bad(Exception):
    """Say what is expected and what is there, and of which part it is; it leaves this module as a finding."""

    part = "head"  # text: one is longer than the file or any reader takes; data: a tensor lies beyond the end


class _BadText(_Bad):
    """Say so of the length of a text."""

    part = "text"


class _BadData(_Bad):
    """Say so of where a tensor's bytes lie."""

    part = "data"


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
        return self.bytes_of_text(what).decode("utf-8", "replace")

    def bytes_of_text(self, what: str) -> bytes:
        """Return the bytes of the next text, the first of them if it is long."""
        length = self.number("<Q", what)
        if length > MOST_TEXT or length > self.size - self.at:
            raise _BadText(f"{what} within a file of {self.size} bytes", f"{length} bytes at {self.at}")
        kept = self.take(min(length, MAX_TEXT), what)
        self.skip(length - len(kept), what)
        return kept


def read_gguf(read: Read, size: int, name: str, parts: list[str] | None = None) -> tuple[Head | None, list[Finding]]:
    """Read the head of a GGUF file of size bytes: keys and tensors; say so without the package that has its types.

    Which part of a damaged one is wrong is added to parts: head, text or data.
    """
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
        (parts if parts is not None else []).append(bad.part)
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
        if not key:
            raise _Bad("a name for each key", f"none at {stream.at}")
        if key in keys:
            raise _Bad("each key once", f"{key} twice")
        kind = stream.number("<I", f"the type of {key}")
        of = int.from_bytes(stream.peek(4), "little") if kind == _LIST else 0
        types_of[key] = f"list {_NAMES.get(of, of)}" if kind == _LIST else _NAMES.get(kind, str(kind))
        keys[key] = _value(stream, kind, key, steps)
    rows = []
    for _ in range(count):
        tensor = stream.text("the name of a tensor")
        if len(tensor.encode()) > MAX_NAME:
            raise _Bad(f"names of tensors of at most {MAX_NAME} bytes", tensor)
        axes = stream.number("<I", f"the axes of {tensor}")
        if axes > 4:
            raise _Bad(f"at most 4 axes of {tensor}", str(axes))
        shape = tuple(stream.number("<Q", f"the shape of {tensor}") for _ in range(axes))[::-1]
        if math.prod(max(axis, 1) for axis in shape) > 2**63 - 1:
            raise _Bad(f"a shape of {tensor} that any file can hold", str(list(shape)))
        rows.append((tensor, shape, stream.number("<I", f"the type of {tensor}"),
                     stream.number("<Q", f"the offset of {tensor}")))  # fmt: skip
    step = keys.get("general.alignment", 32)
    if type(step) is not int or step < 1 or step & (step - 1) or types_of.get("general.alignment", "u32") != "u32":
        raise _Bad("general.alignment: a power of two, as u32", repr(step))
    start = -(-stream.at // step) * step
    return Head(keys, dict(_placed(rows, start, step, stream.size, types)), types_of, start)


def _placed(
    rows: list[tuple[str, tuple[int, ...], int, int]],
    start: int,
    step: int,
    size: int,
    types: Mapping[int, tuple[str, int, int]],
) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor with the bytes that it takes: one after the other from the start of the data, each aligned."""
    seen, at, beyond = set(), 0, ""
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
        if offset != at:
            raise _Bad(f"{name} at {at}, right behind the one before it", f"its offset is {offset}")
        end = offset + math.prod(shape) // block * width
        at = -(-end // step) * step
        if start + end > size and not beyond:
            beyond = f"{start + end} bytes, where {name} ends"
        yield name, Tensor(dtype, shape, start + offset, start + end)
    if beyond:
        raise _BadData(beyond, f"a file of {size} bytes")


def _value(stream: _Stream, kind: int, key: str, steps: list[int], depth: int = 0) -> Any:
    if kind in _PLAIN:
        value = stream.number(_PLAIN[kind], key)
        return _short(value) if kind == 6 else value
    if kind == _TEXT:
        return stream.text(key)
    if kind != _LIST or depth:
        raise _Bad(f"a type of {key} that GGUF has", f"type {kind}")
    of, length = stream.number("<I", key), stream.number("<Q", key)
    if of in _PLAIN and length > MAX_LIST:
        stream.skip(length * struct.calcsize(_PLAIN[of]), key)
        return Counted(length)
    steps[0] -= length
    if steps[0] < 0:
        raise _Bad(f"at most {MAX_STEPS} elements in all lists", f"{length} in {key}")
    if of == _TEXT and length > MAX_LIST:
        return _many(stream, key, length)
    return [_value(stream, of, key, steps, depth + 1) for _ in range(length)]


FIRST = 5  # texts of a vocabulary before it are not compared with those of another


def _many(stream: _Stream, key: str, length: int) -> Counted:
    """Pass over many texts, and tell how many there are, how many unlike ones, and what stands for the later ones."""
    return Counted(length, *_told_apart(stream.bytes_of_text(key) for _ in range(length)))


def _told_apart(texts: Iterator[bytes]) -> tuple[int, int]:
    """Return how many of the texts are unlike, and a number for those from FIRST on; an empty one is like no other."""
    unlike, digest = set(), 0
    for n, text in enumerate(texts):
        one = hash(text or n)
        unlike.add(one)
        digest = hash((digest, one)) if n >= FIRST else 0
    return len(unlike), digest


def _short(value: float) -> float:
    """Return the shortest number that is the same in 32 bits: 1e-05, where a double shows 9.999999747378752e-06."""
    for digits in range(1, 10):
        near = float(f"{value:.{digits}g}") if math.isfinite(value) else value
        if struct.pack("<f", near) == struct.pack("<f", value):
            return near
    return value


# --- as a checkpoint ----------------------------------------------------------------------------------------------


def open_gguf(
    path: Path, spec: str, format: Format, role: str = "drafter", parts: list[str] | None = None
) -> Source | Finding:
    """Open a GGUF file, with its other parts, as a checkpoint; what is damaged, or of no drafter, is a finding.

    Of a target only the keys are read: what they do not say is not known. What is wrong is added to parts: as of
    `read_gguf`, or missing, split, or arch and its name, unknown and its name.
    """
    parts = parts if parts is not None else []
    head = _head_of(path, spec, parts)
    if isinstance(head, Finding):
        return head
    files = {path.name: path.stat().st_size}
    if wrong := _not_first(head, path, spec):
        parts.append("split")
        return wrong
    for number, part in enumerate(_parts(path, head)[1:], 1):
        if not part.is_file():
            parts.append("missing")
            expected, help = f"each part of {path.name} beside it", "put all parts into one folder, under their names"
            return finding("STF221", visible(spec), expected=visible(expected), observed=f"no {visible(part.name)}",
                           help=help)  # fmt: skip
        read = _head_of(part, spec, parts)
        if isinstance(read, Finding):
            return read
        files[part.name] = part.stat().st_size
        both = set(read.tensors) & set(head.tensors)
        if both or read.keys.get("split.no") != number:
            parts.append("split")
            said = f"split.no {visible(read.keys.get('split.no'))} in {visible(part.name)}"
            seen = f"{visible(min(both))} in two parts" if both else said
            expected = "each tensor in one part, and each part with its number, from 0"
            return finding("STF221", visible(spec), expected=expected, observed=seen)
        head = head._replace(tensors={**head.tensors, **read.tensors})
    kind = head.keys.get("general.architecture")
    known = [name for name, one in format.architectures.items() if role != "drafter" or not one.target]
    if kind not in known and (role == "drafter" or not isinstance(kind, str)):
        read_by = format.types.get("general.architecture", TypeIn(())).is_
        parts += ["arch" if f"text={kind}" in read_by else "unknown", str(kind) if isinstance(kind, str) else ""]
        expected = f"a {role}: general.architecture {' or '.join(known)}"
        help = "give the safetensors checkpoint that it was converted from"
        return unknown("SRC116", visible(spec), expected=expected, observed=visible(kind), help=help)
    source = Source(spec, "gguf", files, config=config_of(head, format), folder=path.parent)
    source.tensors = head.tensors if role == "drafter" else None
    source.stated = {**_read_by_types(head, format, str(kind)), **({"table": head.tensors} if role == "target" else {})}
    return source


def bare_gguf(path: Path, spec: str, format: Format) -> Source | None:
    """Return what is known of a GGUF that cannot be opened: what is wrong with it; None where nothing is."""
    parts: list[str] = []
    opened = open_gguf(path, spec, format, parts=parts)
    if isinstance(opened, Source) or not parts or parts[0] == "arch":
        return None
    source = Source(spec, "gguf", {path.name: path.stat().st_size}, config={}, folder=path.parent)
    source.tensors = {}
    source.stated = {"part": parts[0], **({"general.architecture": parts[1]} if len(parts) > 1 else {})}
    return source


def _parts(path: Path, head: Head) -> list[Path]:
    """Return the parts that a file says it is the first of, by its name; else the file alone."""
    named = re.fullmatch(r"(.+)-00001-of-(\d{5})\.gguf", path.name)
    count = head.keys.get("split.count", 1)
    if named is None or type(count) is not int or not 1 < count <= MAX_PARTS or int(named[2]) != count:
        return [path]
    return [path.with_name(f"{named[1]}-{n:05}-of-{named[2]}.gguf") for n in range(1, count + 1)]


def _head_of(path: Path, spec: str, parts: list[str]) -> Head | Finding:
    """Return the head of one file, or what is wrong with it."""

    def read(start: int, stop: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(max(0, stop - start))

    shown = visible(spec) if path.name == Path(spec).name else visible(path.name)
    try:
        head, found = read_gguf(read, path.stat().st_size, shown, parts)
    except OSError as error:
        return unreadable(shown, error, shown)
    return found[0] if head is None else head


def _not_first(head: Head, path: Path, spec: str) -> Finding | None:
    """Say that a file is a part of several, and not the first, or not named as one, if it is."""
    count, number = head.keys.get("split.count", 1), head.keys.get("split.no")
    if type(count) is not int or count < 2 or (number == 0 and len(_parts(path, head)) == count):
        return None
    expected = f"the first of its {count} parts, named …-00001-of-{count:05}.gguf"
    return finding("STF221", visible(spec), expected=expected, observed=f"part {visible(number)}, {visible(path.name)}",
                   help="give the first part; the others are read from beside it")  # fmt: skip


def config_of(head: Head, format: Format) -> dict[str, Any]:
    """Return the config that the keys of a file state."""
    name = str(head.keys["general.architecture"])
    own = format.architectures.get(name)
    config: dict[str, Any] = dict(own.set) if own else {}
    wanted = _wanted(format, name)
    unread = {key for key, row in wanted.items() if not _counts(row, head)}
    head = head._replace(keys={key: value for key, value in head.keys.items() if key not in unread})
    each = {key for key, row in wanted.items() if any(t.endswith(" of layers") for t in row.is_)}
    for key, rule in {**format.keys, **(own.keys if own else {})}.items():
        value = _stated(head, rule, name, each)
        if value is None:
            continue
        *path, last = key.split(".")
        table = config
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return config


def _read_by_types(head: Head, format: Format, name: str) -> dict[str, Any]:
    """Return what an engine sees of a file beside a config, by the names that conditions ask for.

    lacks and wrong are keys: needed and not there, and not of what is read. own.KEY is a number or a text of its own
    architecture, KEY one of any other; lists are the keys of lists, odd those of numbers that are none. short are
    tensors of one axis that are no 32-bit floats, stiff those of more axes of a type that nothing is multiplied with;
    type.NAME is the type of one whose name has no dot. shifted: the bytes begin at no multiple of ALIGNED. tokens: how
    many, unlike: how many different ones, later: a number that is the same for the same tokens from FIRST on.
    """
    counts = [(key, row) for key, row in _wanted(format, name).items() if _counts(row, head)]
    plain = {key: value for key, value in head.keys.items() if type(value) in (int, float, bool, str)}
    odd = [key for key, value in plain.items() if isinstance(value, float) and not math.isfinite(value)]
    mine = {f"own.{k.removeprefix(f'{name}.')}" if k.startswith(f"{name}.") else k: v
            for k, v in plain.items() if k not in odd}  # fmt: skip
    flat = {one: t for one, t in head.tensors.items() if len(t.shape) == 1}
    tokens = head.keys.get("tokenizer.ggml.tokens")
    texts = [one.encode() for one in tokens if isinstance(one, str)] if isinstance(tokens, list) else []
    vocabulary = Counted(len(texts), *_told_apart(iter(texts))) if isinstance(tokens, list) else tokens
    counted = vocabulary if isinstance(vocabulary, Counted) else Counted(0)
    split = head.keys.get("split.count", 0)
    short = isinstance(split, int) and split > 1 and head.keys.get("split.tensors.count") != len(head.tensors)
    return {
        **mine,
        "part": "",
        "lacks": [key for key, row in counts if key not in head.keys and row.needed],
        "wrong": [key for key, row in counts if key in head.keys and not any(_is(one, key, head, name)
                  for one in row.is_)] + ["split.tensors.count"] * short,
        "lists": [key for key, value in head.keys.items() if isinstance(value, (list, Counted))],
        "odd": odd,
        "short": [one for one, t in flat.items() if t.dtype != "F32" and "." in one],
        "stiff": [one for one, t in head.tensors.items() if one not in flat and t.dtype in _STIFF],
        **{f"type.{one}": t.dtype for one, t in head.tensors.items() if "." not in one},
        "shifted": head.start % ALIGNED > 0,
        "tokens": counted.length,
        "unlike": counted.unlike,
        "later": counted.digest,
    }  # fmt: skip


def _wanted(format: Format, name: str) -> dict[str, TypeIn]:
    """Return the rows of the keys that are read of a file of one architecture."""
    own = format.architectures.get(name)
    return {k.replace("{a}", name): row for k, row in {**format.types, **(own.types if own else {})}.items()}


_STIFF = ("I8", "I16", "I32", "I64", "F64")
ALIGNED = 32  # bytes, of a file that is mapped into memory


def _counts(row: TypeIn, head: Head) -> bool:
    """Tell whether a row counts for a file: other keys of it say a value, or any of a list."""
    said = ((head.keys.get(key), wanted) for key, wanted in row.where.items())
    return all(value in (wanted if isinstance(wanted, list) else [wanted]) for value, wanted in said)


def _is(wanted: str, key: str, head: Head, name: str) -> bool:
    """Tell whether a key is as a row says: of a type; text=VALUE; a list, each: one a layer, long: one a token."""
    kind, told, text = wanted.partition("=")
    kind, _, many = kind.partition(" of ")
    value = head.keys[key]
    if head.types.get(key) != kind or (told and value != text):
        return False
    if not many:
        return True
    length = value.length if isinstance(value, Counted) else len(value)
    tokens = head.keys.get("tokenizer.ggml.tokens", ())
    most = tokens.length if isinstance(tokens, Counted) else len(tokens) if isinstance(tokens, list) else 0
    return bool(length >= most) if many == "tokens" else bool(length == head.keys.get(f"{name}.block_count"))


def _stated(head: Head, rule: KeyIn, name: str, each: Set[str]) -> Any:
    """Return what the keys of a rule say; a list of a layer each, all alike, as one of them."""
    if rule.length and isinstance(found := head.keys.get(rule.length), (list, Counted)):
        return len(found) if isinstance(found, list) else found.length
    for key in (one.replace("{a}", name) for one in rule.from_):
        value, layers = head.keys.get(key), head.keys.get(f"{name}.block_count")
        if key in each and isinstance(value, list) and value and type(layers) is int and value == value[:1] * layers:
            value = value[0]
        if isinstance(value, list) and rule.add:
            return [i + rule.add if type(i) is int else i for i in value]
        if value is not None and not isinstance(value, Counted):
            return value
    if rule.length:
        return 0
    if rule.lacks:
        return rule.lacks not in head.tensors
    tensor = head.tensors.get(rule.rows) if rule.rows else None
    return tensor.shape[0] if tensor is not None and tensor.shape else None
