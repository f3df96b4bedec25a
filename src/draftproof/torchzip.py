"""The table of a torch zip file (``.bin``, ``.pt``), read without running any pickle code.

A small machine knows the few opcodes and globals that tensors and plain containers need; anything else is refused.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

from draftproof.container import BITS, MAX_TENSORS, Header, Read, Tensor, is_size, looks_like
from draftproof.findings import Finding, visible
from draftproof.strict import Collector, Stop, quote

PICKLE_LIMIT = 16 << 20  # bytes of data.pkl, and of a zip directory
PICKLE_STEPS = 4_000_000  # opcodes; 16 MB of real state dict need fewer


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


# --- writing ------------------------------------------------------------------------------------------------------


def write_torch_zip(path: Path, value: Any) -> None:
    """Write what torch.save would of one tensor, or of a dict of tensors and integers: (dtype, shape, bytes) each.

    The pickle asks for nothing but the rebuilding of tensors, so that torch.load takes it with weights_only.
    """
    import zipfile  # noqa: PLC0415 (only to write)

    storages: list[bytes] = []
    body = b"\x80\x02" + _pickled(value, storages) + b"."
    parts = [("data.pkl", body), (".format_version", b"1"), ("byteorder", b"little")]
    parts += [(f"data/{n}", raw) for n, raw in enumerate(storages)] + [("version", b"3\n")]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, raw in parts:
            file.writestr(zipfile.ZipInfo(f"{path.stem}/{name}"), raw)


def _pickled(value: Any, storages: list[bytes]) -> bytes:
    if isinstance(value, dict):
        items = b"".join(_text(key) + _pickled(one, storages) for key, one in value.items())
        return b"}(" + items + b"u"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    dtype, shape, raw = value
    name = next(name for name, kind in _STORAGES.items() if kind == dtype)
    strides: list[int] = []
    count = 1
    for size in reversed(shape):
        strides.insert(0, count)
        count *= size
    module, _, kind = name.rpartition(".")
    storage = b"(" + _text("storage") + f"c{module}\n{kind}\n".encode() + _text(str(len(storages))) + _text("cpu")
    storage += _pickled(count, storages) + b"tQ"
    storages.append(raw)
    sizes = [b"(" + b"".join(_pickled(n, storages) for n in row) + b"t" for row in (shape, strides)]
    hooks = b"\x89ccollections\nOrderedDict\n)R"  # no gradient, no hooks
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + sizes[0] + sizes[1] + hooks + b"tR"


def _text(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


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
    found = Collector(name)
    try:
        records = _records(read, size)
        pickles = [path for path in records if path.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Stop("one */data.pkl", f"{len(pickles)} of them" if pickles else f"none in {len(records)} records")
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
                raise Stop(f"{need} bytes in data/{storage.key}, the storage of {quote(tensor)}", observed)
            tensors[tensor] = row
    except Stop as why:
        found.add("SRC121", name, "", why.expected, why.observed)
        return None, found.done()
    return Header(name, tensors, {}, len(data), sum(row.end - row.start for row in tensors.values())), found.done()


def read_entries(read: Read, size: int) -> dict[str, Any]:
    """Return what the dict of a torch.save zip file holds: shapes [*int] of tensors, and plain values, by joined names.

    Raises ValueError with what is wrong of one that cannot be read.
    """
    try:
        records = _records(read, size)
        path = next((path for path in records if path.endswith("/data.pkl")), None)
        root = _unpickle(_stored(read, path, *records[path])) if path else None
    except Stop as why:
        raise ValueError(f"expected {why.expected}, observed {why.observed}") from None
    if not isinstance(root, dict):
        raise ValueError("it holds no dict")
    rows = {str(key): value for key, value in root.items()}
    for key, value in list(rows.items()):
        rows |= {f"{key}.{inner}": leaf for inner, leaf in value.items()} if isinstance(value, dict) else {}
    return {key: list(value.tensor.shape) if isinstance(value, _Built) else value for key, value in rows.items()}


def _records(read: Read, size: int) -> dict[str, tuple[int, int, int, int]]:
    """Read the directory of a zip file: name -> flags, method, length, offset of the local header."""
    head = read(0, min(size, 512))
    if not head.startswith(b"PK\x03\x04"):
        observed = "a tar archive, the oldest torch format" if head[257:262] == b"ustar" else looks_like(head)
        observed = "a bare pickle, the torch format before 1.6" if head[:1] == b"\x80" else observed
        raise Stop("a zip file, as torch.save has written since 1.6", observed)
    base = max(0, size - 65536 - 22 - 20 - 56)  # comment, end record, zip64 locator and end record
    tail = read(base, size)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22 or end + 22 + int.from_bytes(tail[end + 20 : end + 22], "little") != len(tail):
        raise Stop("a zip directory that ends the file", "none: the file was cut")
    count, length, start = struct.unpack_from("<HII", tail, end + 10)
    if tail[end - 20 : end - 16] == b"PK\x06\x07" and end >= 20:
        (zip64,) = struct.unpack_from("<Q", tail, end - 12)
        record = read(zip64, zip64 + 56) if zip64 <= size else b""
        if len(record) != 56 or record[:4] != b"PK\x06\x06":
            raise Stop("a zip64 end record", f"none at byte {zip64}")
        count, length, start = struct.unpack_from("<QQQ", record, 32)
    if length > PICKLE_LIMIT or start + length > size:
        raise Stop(f"a zip directory of at most {PICKLE_LIMIT} bytes inside the file", f"{length} bytes at {start}")
    directory = read(start, start + length)
    records: dict[str, tuple[int, int, int, int]] = {}
    at = 0
    while directory[at : at + 4] == b"PK\x01\x02" and at + 46 <= len(directory):
        flags, method, packed, full, *lengths, offset = struct.unpack_from("<8xHH8xIIHHH8xI", directory, at)
        name_end = at + 46 + lengths[0]
        path = directory[at + 46 : name_end].decode("utf-8", "replace")
        sizes = _zip64(directory[name_end : name_end + lengths[1]], full, packed, offset)
        if path in records:
            raise Stop("each record once", f"{quote(path)} stands twice in the zip directory")
        records[path] = (flags, method, sizes[0], sizes[2])
        at += 46 + sum(lengths)
    if at != length or len(records) != count:
        raise Stop(f"{count} records in {length} bytes of zip directory", f"{len(records)} in {at} bytes")
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
        raise Stop(f"{path} stored as it is", "encrypted" if flags & 1 else f"compressed (method {method})")
    if length > PICKLE_LIMIT:
        raise Stop(f"{path} of at most {PICKLE_LIMIT} bytes", f"{length} bytes")
    local = read(offset, offset + 30)
    if len(local) != 30 or local[:4] != b"PK\x03\x04":
        raise Stop(f"the record of {path} at byte {offset}", "something else")
    name_len, extra_len = struct.unpack_from("<HH", local, 26)
    start = offset + 30 + name_len + extra_len
    data = read(start, start + length)
    if len(data) != length:
        raise Stop(f"{length} bytes of {path}", f"{len(data)} bytes")
    return data


def _unpickle(data: bytes) -> Any:
    """Run the few opcodes that torch.save writes, on stand-ins: nothing is imported, nothing is called."""
    try:
        return _machine(data)
    except (IndexError, KeyError, UnicodeDecodeError, struct.error) as bad:
        raise Stop("the pickle of a state dict", f"a damaged one ({type(bad).__name__})") from None


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
            raise Stop(f"{count} more bytes of data.pkl", f"{len(data) - at}: it was cut")
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
                    raise Stop("the name of a global", "something else")
            if (path := f"{module}.{attribute}") not in _KNOWN:
                raise Stop("only the globals that rebuild tensors", f"global {visible(path)}")
            stack.append(_Global(path))
        elif op == b"Q":  # BINPERSID
            stack.append(_storage(stack.pop()))
        elif op == b"R":  # REDUCE
            arguments = stack.pop()
            stack.append(_reduce(stack.pop(), arguments))
        elif op in b"su":  # SETITEM, SETITEMS
            items = since_mark() if op == b"u" else [stack.pop(-2), stack.pop()]
            if not isinstance(stack[-1], dict) or len(items) % 2:
                raise Stop("items of a dict", _kind_of(stack[-1]))
            for key, value in zip(items[::2], items[1::2], strict=True):
                if not isinstance(key, (str, int, float, type(None))) or len(str(key)[: _LONG_KEY + 1]) > _LONG_KEY:
                    raise Stop(f"keys that are numbers or names of at most {_LONG_KEY} characters", _kind_of(key))
                stack[-1][key] = value
        elif op in b"ae":  # APPEND, APPENDS
            items = since_mark() if op == b"e" else [stack.pop()]
            if not isinstance(stack[-1], list):
                raise Stop("items of a list", _kind_of(stack[-1]))
            stack[-1].extend(items)
        elif op == b"b":  # BUILD: an OrderedDict's attributes, such as read_metadata
            stack.pop()
            if not isinstance(stack[-1], dict):
                raise Stop("attributes of an OrderedDict", _kind_of(stack[-1]))
        elif op == b"\x80":  # PROTO
            take(1)
        elif op == b"\x95":  # FRAME
            take(8)
        elif op == b".":
            return stack.pop()
        else:
            raise Stop("only the opcodes that torch.save writes", f"opcode 0x{op[0]:02x} at byte {at - 1} of data.pkl")
    raise Stop(f"at most {PICKLE_STEPS} opcodes", "more")


def _kind_of(value: Any) -> str:
    return f"a {type(value).__name__.lstrip('_').lower()}"


def _storage(key: Any) -> _Storage:
    """Read a persistent id: ("storage", class, key, location, elements)."""
    match key:
        case ("storage", _Global(name), str(record), str(), int(count)) if name in _STORAGES and is_size(count):
            return _Storage(_STORAGES[name], record, count)
    raise Stop("the persistent id of a storage", "a malformed one")


def _reduce(function: Any, arguments: Any) -> Any:
    """Do what a known function would do to its arguments; shapes and strides must stay inside their storage."""
    match function, arguments:
        case _Global(name), (_Storage() as storage, int(offset), tuple(shape), tuple(strides), *more) if (
            name in _REBUILD and len(arguments) >= _REBUILD[name]
        ):
            if not len(shape) == len(strides) <= 64 or not all(map(is_size, (offset, *shape, *strides))):
                raise Stop("offset, shape and strides of a tensor", "a malformed one")
            dtype = storage.dtype
            if name == "torch._utils._rebuild_tensor_v3":
                if not (isinstance(more[2], _Global) and more[2].name in _DTYPES):
                    raise Stop("a dtype", _kind_of(more[2]))
                dtype = _DTYPES[more[2].name]
            width = BITS[dtype] // 8
            last = 0 if 0 in shape else 1 + sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
            if last and (offset + last) * width > storage.elements * BITS[storage.dtype] // 8:
                observed = f"{storage.elements} elements of {storage.dtype}"
                raise Stop(f"{offset + last} elements of {dtype} in storage {quote(storage.key)}", observed)
            return _Built(Tensor(dtype, shape, offset * width, (offset + last) * width), storage)
        case _Global(name), (_Built() as built, *_) if name == _PARAMETER:
            return built
        case _Global(name), () if name == _ORDERED:
            return {}
    called = function.name if isinstance(function, _Global) else _kind_of(function)
    raise Stop("calls that rebuild tensors", f"a call of {called} with other arguments")


def _flatten(found: Collector, root: Any) -> dict[str, _Built]:
    """Return the tensors of a state dict, and of dicts directly in it under joined names; tell what is left out."""
    if not isinstance(root, dict):
        raise Stop("a dict of tensors", _kind_of(root))
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
                raise Stop("each name once", f"{quote(path)} twice after joining names")
            else:
                tensors[path] = leaf
        if len(tensors) + len(left) > MAX_TENSORS:
            raise Stop(f"at most {MAX_TENSORS} entries", "more")
    others = f"{', '.join(map(quote, left[:8]))}{f' and {len(left) - 8} more' if len(left) > 8 else ''}"
    if not tensors:
        raise Stop("tensors in the dict", f"no tensor, but {others or 'nothing'}")
    if outer or left:
        dicts = f"dicts of tensors under {', '.join(map(quote, outer[:8]))}, names joined with '.'" if outer else ""
        note = f"not read: {others}" if left else ""
        observed = dicts or f"{len(left)} other entries"
        message = "file holds more than a flat state dict"
        found.add("SRC121", found.where, message, "tensors alone", observed, note=note, level="info")
    return tensors
