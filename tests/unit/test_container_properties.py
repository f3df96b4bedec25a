"""What must hold of every header: the reference reader is the judge, and nothing is ever raised."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from draftproof import container
from draftproof.container import BITS, STRICTER, read_header, read_index
from draftproof.strict import strict_json
from draftproof.torchzip import read_torch_zip

safetensors = pytest.importorskip("safetensors")
numpy = pytest.importorskip("numpy")
save = pytest.importorskip("safetensors.numpy").save

shapes = st.lists(st.integers(0, 4), max_size=4)
names = st.text(max_size=12).filter(lambda name: name != "__metadata__" and _encodable(name))


def _encodable(text: str) -> bool:
    return not any(0xD800 <= ord(c) <= 0xDFFF for c in text)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """Draw a valid header object, its tensors in any order, and the length of its data."""
    header: dict[str, Any] = {}
    end = 0
    for name in draw(st.lists(names, max_size=5, unique=True)):
        dtype, shape = draw(st.sampled_from(sorted(BITS))), draw(shapes)
        if math.prod(shape) * BITS[dtype] % 8:
            shape = [*shape, 4]
        size = math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    if draw(st.booleans()):
        header["__metadata__"] = draw(st.dictionaries(names, names, max_size=2))
    return dict(draw(st.permutations(list(header.items())))), end


def pack(header: dict[str, Any], size: int, compact: bool = True, ascii_only: bool = True) -> bytes:
    separators = (",", ":") if compact else None
    text = json.dumps(header, separators=separators, ensure_ascii=ascii_only).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(size)


def ours(file: bytes) -> tuple[bool, set[str]]:
    _, findings = read_header(lambda a, b: file[a:b], len(file), "f")
    refused = {f.code for f in findings if f.level in ("error", "unknown")}
    return not refused, refused


def reference(file: bytes) -> bool:
    try:
        safetensors.deserialize(file)
    except safetensors.SafetensorError:
        return False
    return True


def agree(file: bytes) -> None:
    """Hold the oracle: we accept nothing that the reference refuses, and refuse more only as documented."""
    accepted, refused = ours(file)
    if accepted:
        assert reference(file)
    elif reference(file):
        assert refused <= STRICTER.keys()


@given(tables(), st.booleans(), st.booleans())
def test_valid_headers_are_accepted_and_read_as_the_reference_reads_them(
    table: tuple[dict[str, Any], int], compact: bool, ascii_only: bool
) -> None:
    header, size = table
    file = pack(header, size, compact, ascii_only)
    read, findings = read_header(lambda a, b: file[a:b], len(file), "f")
    assert {f.code for f in findings} <= {"STF217"}
    assert read is not None
    rows = {name: (row.dtype, list(row.shape), row.end - row.start) for name, row in read.tensors.items()}
    theirs = {name: (view["dtype"], view["shape"], len(view["data"])) for name, view in safetensors.deserialize(file)}
    assert rows == theirs
    assert read.metadata == header.get("__metadata__", {})


@given(st.dictionaries(names, st.tuples(st.sampled_from(["float32", "int64", "bool", "uint8"]), shapes), max_size=5))
def test_files_of_the_reference_writer_have_no_finding(tensors: dict[str, tuple[str, list[int]]]) -> None:
    plain = {name: t for name, t in tensors.items() if name.isprintable() and name.isascii() and name}
    file = save({name: numpy.zeros(shape, dtype) for name, (dtype, shape) in plain.items()}, {"format": "np"})
    read, findings = read_header(lambda a, b: file[a:b], len(file), "f")
    assert findings == []
    assert read is not None
    assert {name: list(row.shape) for name, row in read.tensors.items()} == {
        n: shape for n, (_, shape) in plain.items()
    }


@given(tables(), st.booleans())
def test_both_ways_of_reading_agree(table: tuple[dict[str, Any], int], compact: bool) -> None:
    header, size = table
    file = pack(header, size, compact)
    first = read_header(lambda a, b: file[a:b], len(file), "f")
    quick, container._canonical = container._canonical, lambda data: None
    try:
        assert read_header(lambda a, b: file[a:b], len(file), "f") == first
    finally:
        container._canonical = quick


SNIPPETS = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"-0", b"NaN", b"1e400", b"null", b"true", b" ", b"\n", b"\t",
    b"\0", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u0061", b"18446744073709551616", b"0", b"00", b"1.0",
    b"1e0", b"[]", b"{}",
    b'"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},', b'"__metadata__":{},', b'"x":[{"y":1}],', b'"dtype":"F32",',
    b'["F32",[1],[0,4]]', b"1_0", b"+1", b"\xc2\xa0", b"\x7f", b"\x0b", b"9" * 400,
]  # fmt: skip
edits = st.lists(
    st.tuples(
        st.floats(0, 1), st.sampled_from(["insert", "delete", "replace", "repeat", "swap"]), st.sampled_from(SNIPPETS)
    ),
    min_size=1,
    max_size=4,
)


def mutate(text: bytes, changes: list[tuple[float, str, bytes]]) -> bytes:
    for where, kind, snippet in changes:
        at = int(where * len(text))
        if kind == "insert":
            text = text[:at] + snippet + text[at:]
        elif kind == "delete":
            text = text[:at] + text[at + len(snippet) :]
        elif kind == "replace":
            text = text[:at] + snippet + text[at + len(snippet) :]
        elif kind == "repeat":
            text = text[:at] + text[at // 2 : at] + text[at:]
        else:
            text = text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
    return text


@given(tables(), edits, st.integers(-2, 2), st.booleans())
@settings(max_examples=500, deadline=None)
def test_mutated_headers_agree_with_the_reference(
    table: tuple[dict[str, Any], int], changes: list[tuple[float, str, bytes]], extra: int, honest: bool
) -> None:
    header, size = table
    text = mutate(json.dumps(header, separators=(",", ":")).encode(), changes)
    length = len(text) if honest else max(0, len(text) + extra)
    agree(struct.pack("<Q", length) + text + bytes(max(0, size + (extra if honest else 0))))


values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        ["F32", "f32", "BF16", "F4", "", None, True, -1, 0, 1, 4, 2**63, 2**64, 1.0, [], {}, [0, 4], [4, 0]]
    ),
    st.lists(st.sampled_from([0, 1, 2, 4, 2**32, 2**64 - 1, -1, 1.5, None, "1"]), max_size=3),
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.one_of(st.sampled_from(sorted(BITS)), values),
        "shape": st.one_of(shapes, values),
        "data_offsets": st.one_of(st.tuples(st.integers(0, 8), st.integers(0, 8)).map(list), values),
        "extra": values,
    },
)


@given(st.dictionaries(names, st.one_of(entries, values), max_size=3), st.integers(0, 16))
@settings(max_examples=500, deadline=None)
@example({"a": {"dtype": "U8", "shape": [0, 2**64 - 1, 2**64 - 1], "data_offsets": [0, 0]}}, 0)
@example({"a": {"dtype": "U8", "shape": [2**64 - 1, 2**64 - 1, 0], "data_offsets": [0, 0]}}, 0)
def test_well_formed_json_of_any_content_agrees_with_the_reference(header: dict[str, Any], size: int) -> None:
    agree(pack(header, size))


@given(st.binary(max_size=64))
def test_no_bytes_raise(data: bytes) -> None:
    agree(data)
    agree(struct.pack("<Q", len(data)) + data)
    value, faults = strict_json(data)
    assert value is not None or faults or data.strip() == b"null"
    index, found = read_index(lambda a, b: data[a:b], len(data), "i")
    assert (index is None) == any(f.level == "error" for f in found)
    header, found = read_torch_zip(lambda a, b: data[a:b], len(data), "t")
    assert (header is None) == any(f.level == "unknown" for f in found)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=12,
)


@given(json_values, st.booleans())
def test_strict_json_reads_back_what_json_writes(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    if not _encodable(text) or "\\ud" in text:
        return
    read, faults = strict_json(text.encode())
    assert faults == []
    assert read == value


@given(json_values, edits)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_strict_json_never_raises_and_is_no_laxer_than_json(
    value: Any, changes: list[tuple[float, str, bytes]]
) -> None:
    text = mutate(json.dumps(value).encode(), changes)
    read, faults = strict_json(text)
    try:
        plain = json.loads(text)
    except ValueError:
        assert faults
    else:
        assert faults or repr(read) == repr(plain) or "-0" in repr(read)


def test_the_reference_really_accepts_each_stricter_row() -> None:
    row = b'{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    files = {
        "STF207": b'{"a":' + row + b',"a":' + row + b"}",
        "STF209": b'{"a":["F32",[1],[0,4]]}',
        "STF210": b'{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}',
    }
    for code, text in files.items():
        file = struct.pack("<Q", len(text)) + text + bytes(4)
        assert ours(file) == (False, {code})
        assert reference(file)
    assert STRICTER.keys() == {*files, "STF202"}  # STF202: the caps are tested with lower limits
