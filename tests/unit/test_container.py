"""The law of the safetensors header, row by row, on literal bytes."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from draftproof import container
from draftproof.container import BITS, STRICTER, Header, Tensor, read_header
from draftproof.findings import Finding
from draftproof.rules import RULES
from draftproof.strict import strict_json

A = b'{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
U64 = 18446744073709551615


def pack(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def judge(file: bytes, size: int | None = -1) -> tuple[Header | None, list[Finding]]:
    return read_header(lambda a, b: file[a:b], len(file) if size == -1 else size, "m.safetensors")


def said(f: Finding) -> str:
    return " | ".join((f.subject, f.message, f.expected, f.observed, f.note))


def entry(dtype: str = '"F32"', shape: str = "[1]", offsets: str = "[0,4]", more: str = "") -> bytes:
    return f'{{"a":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}}}'.encode()


REFUSED = [
    ("empty file", b"", "STF201", ["at least 8 bytes", "0 bytes"]),
    ("seven bytes", b"\x02\0\0\0\0\0\0", "STF201", ["7 bytes"]),
    ("html", b"<!DOCTYPE html><html><body>sign in</body>", "STF202", ["at most 100000000 bytes", "HTML page"]),
    ("html, lower case", b"\n<html lang=en><body>502</body></html>", "STF202", ["HTML page"]),
    (
        "lfs",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00",
        "STF202",
        ["git-lfs pointer", "git lfs pull"],
    ),
    ("zip", b"PK\x03\x04\0\0\x08\x08\0\0\0\0", "STF202", ["zip archive"]),
    ("gguf", b"GGUF\x03\0\0\0\x10\0\0\0", "STF202", ["a GGUF file"]),
    ("json", b'{"architectures": ["LlamaForCausalLM"]}', "STF202", ["JSON text without the 8-byte length"]),
    ("xml", b"<?xml version='1.0'?><Error/>", "STF202", ["XML message"]),
    ("2**63", pack(b"{}", length=2**63), "STF202", ["9223372036854775808 bytes"]),
    ("limit + 1", pack(b"{}", length=100_000_001), "STF202", ["100000001 bytes", "starts with 01 e1 f5 05"]),
    ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc", "STF203", ["at least 559911 bytes", "13 bytes", "gzip data"]),
    ("truncated header", pack(b"{}", length=100), "STF203", ["at least 108 bytes (8 + header of 100)", "10 bytes"]),
    ("no bytes of the header", pack(b"", length=5), "STF203", ["at least 13 bytes", "8 bytes"]),
    ("N = 0", bytes(8), "STF204", ["byte 0 of the header", "the end", "zeros"]),
    ("not JSON", pack(b"hello"), "STF204", ["byte 0 of the header", "hello"]),
    ("trailing NUL", pack(b'{"a":' + A + b"}\0", bytes(4)), "STF204", ["Extra data", "byte 54 of the header"]),
    ("BOM", pack(b"\xef\xbb\xbf{}"), "STF204", ["byte 0 of the header", "\\ufeff"]),
    ("comma at the end", pack(b'{"a":' + A + b",}", bytes(4)), "STF204", ["byte 54 of the header"]),
    ("NaN", pack(entry(more=',"x":[1,{"b":NaN}]'), bytes(4)), "STF204", ["NaN is not JSON", "a.x[1].b"]),
    (
        "-Infinity in shape",
        pack(entry(shape="[-Infinity]"), bytes(4)),
        "STF204",
        ["-Infinity is not JSON", "a.shape[0]"],
    ),
    ("1e400", pack(entry(more=',"x":1e400'), bytes(4)), "STF204", ["does not fit in 64-bit floating point", "a.x"]),
    ("5000 digits", pack(entry(more=',"x":' + "9" * 5000), bytes(4)), "STF204", ["does not fit", "a.x"]),
    ("depth 128", pack(entry(more=',"x":' + "[" * 126 + "]" * 126), bytes(4)), "STF204", ["at most 127 levels"]),
    ("depth 5 million", pack(b"[" * 5_000_000), "STF204", ["nested more than 127 levels"]),
    ("depth of objects", pack(b'{"a":' * 500_000), "STF204", ["nested more than 127 levels"]),
    ("lone surrogate name", pack(b'{"\\ud800":' + A + b"}", bytes(4)), "STF204", ["half a surrogate pair", "\\ud800"]),
    (
        "lone surrogate text",
        pack(b'{"__metadata__":{"k":"\\uDC01"}}'),
        "STF204",
        ["half a surrogate", "__metadata__.k"],
    ),
    ("raw newline in name", pack(b'{"a\n":' + A + b"}", bytes(4)), "STF204", ["control character", "byte 3"]),
    ("leading zero", pack(entry(shape="[01]"), bytes(4)), "STF204", ["byte 30 of the header"]),
    ("form feed", pack(b"\x0c{}"), "STF204", ["byte 0 of the header"]),
    ("not UTF-8", pack(b'{"a\xff":' + A + b"}", bytes(4)), "STF205", ["byte 0xff", "byte 3 of the header"]),
    ("surrogate in UTF-8", pack(b'{"a\xed\xa0\x80":' + A + b"}", bytes(4)), "STF205", ["byte 0xed", "byte 3"]),
    ("list", pack(b"[]"), "STF206", ["an object", "[]"]),
    ("null", pack(b"null"), "STF206", ["null"]),
    ("number", pack(b"7"), "STF206", ["7"]),
    ("twice, same range", pack(b'{"a":' + A + b',"a":' + A + b"}", bytes(4)), "STF207", ["a |", "[0, 4] and [0, 4]"]),
    (
        "twice, other range",
        pack(b'{"a":' + A + b',"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)),
        "STF207",
        ["2 times", "[0, 4] and [4, 8]"],
    ),
    ("metadata twice", pack(b'{"__metadata__":{},"__metadata__":{}}'), "STF207", ["__metadata__", "2 times"]),
    ("field twice", pack(entry(more=',"dtype":"F32"'), bytes(4)), "STF207", ["key 'dtype' stands twice", "a.dtype"]),
    (
        "key of metadata twice",
        pack(b'{"__metadata__":{"k":"1","k":"2"}}'),
        "STF207",
        ["'k' stands twice", "__metadata__.k"],
    ),
    ("key twice, escaped", pack(b'{"a":' + A + b',"\\u0061":' + A + b"}", bytes(4)), "STF207", ["2 times"]),
    ("metadata number", pack(b'{"__metadata__":{"k":1}}'), "STF208", ["a string for each key", "'k': 1"]),
    ("metadata null value", pack(b'{"__metadata__":{"k":null}}'), "STF208", ["'k': null"]),
    ("metadata list", pack(b'{"__metadata__":["k"]}'), "STF208", ["an object of strings", '["k"]']),
    ("array entry", pack(b'{"a":["F32",[1],[0,4]]}', bytes(4)), "STF209", ["an object with dtype", '["F32", …, …]']),
    ("null entry", pack(b'{"a":null}'), "STF209", ["a |", "null"]),
    ("no dtype", pack(b'{"a":{"shape":[1],"data_offsets":[0,4]}}', bytes(4)), "STF209", ["'shape', 'data_offsets'"]),
    ("empty entry", pack(b'{"a":{}}'), "STF209", ["fields none"]),
    ("unknown dtype", pack(entry('"F8_E3M4"'), bytes(4)), "STF210", ["F8_E4M3 F8_E8M0", '"F8_E3M4"', "did you mean"]),
    ("lower case dtype", pack(entry('"bf16"'), bytes(4)), "STF210", ['"bf16"', "(did you mean 'BF16'?)"]),
    ("dtype a number", pack(entry("32"), bytes(4)), "STF210", ["32"]),
    ("dtype an object", pack(entry('{"F32":null}'), bytes(4)), "STF210", ['{"F32": …}']),
    ("shape negative", pack(entry(shape="[2,-1]"), bytes(4)), "STF211", ["[2, -1]", "item 1 is -1"]),
    ("shape -0", pack(entry(shape="[-0]"), bytes(4)), "STF211", ["item 0 is -0.0"]),
    ("shape float", pack(entry(shape="[1.0]"), bytes(4)), "STF211", ["item 0 is 1.0"]),
    ("shape bool", pack(entry(shape="[true]"), bytes(4)), "STF211", ["item 0 is true"]),
    ("shape string", pack(entry(shape='["1"]'), bytes(4)), "STF211", ['item 0 is "1"']),
    ("shape too large", pack(entry(shape=f"[{U64 + 1}]"), bytes(4)), "STF211", ["item 0 is 18446744073709551616"]),
    ("shape 5000 digits", pack(entry(shape="[" + "9" * 5000 + "]"), bytes(4)), "STF211", ["item 0 is Infinity"]),
    ("shape 1e400", pack(entry(shape="[1e400]"), bytes(4)), "STF211", ["item 0 is Infinity"]),
    ("shape no list", pack(entry(shape="1"), bytes(4)), "STF211", ["a list of integers", "| 1 |"]),
    ("three offsets", pack(entry(offsets="[0,4,4]"), bytes(4)), "STF212", ["two integers", "[0, 4, 4]"]),
    ("offsets negative", pack(entry(offsets="[-4,0]"), bytes(4)), "STF212", ["[-4, 0]"]),
    ("offsets float", pack(entry(offsets="[0,4.0]"), bytes(4)), "STF212", ["[0, 4.0]"]),
    ("offsets null", pack(entry(offsets="null"), bytes(4)), "STF212", ["null"]),
    (
        "offsets beyond 64 bits",
        pack(entry(offsets=f"[{U64 + 1},{U64 + 5}]"), bytes(4)),
        "STF212",
        ["18446744073709551620"],
    ),
    (
        "offsets reversed",
        pack(entry(offsets="[4,0]"), bytes(4)),
        "STF212",
        ["not a range", "the first not greater", "[4, 0]"],
    ),
    (
        "does not start at 0",
        pack(entry(offsets="[4,8]"), bytes(8)),
        "STF212",
        ["hole of 4 bytes", "the data starts at 0", "'a' [4, 8] starts at 4"],
    ),
    (
        "hole",
        pack(b'{"a":' + A + b',"b":{"dtype":"U8","shape":[2],"data_offsets":[7,9]}}', bytes(9)),
        "STF212",
        ["b |", "hole of 3 bytes", "start 4", "'a' ends at 4", "'b' [7, 9] starts at 7", "3 bytes in no tensor"],
    ),
    (
        "overlap",
        pack(b'{"a":' + A + b',"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}', bytes(5)),
        "STF212",
        ["b |", "overlaps 'a'", "'b' [3, 5] starts 1 bytes before the end of 'a' [0, 4]"],
    ),
    (
        "empty tensor inside another",
        pack(b'{"a":' + A + b',"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}', bytes(4)),
        "STF212",
        ["b |", "'b' [2, 2] starts 2 bytes before the end of 'a' [0, 4]"],
    ),
    (
        "same range",
        pack(b'{"a":' + A + b',"b":' + A + b"}", bytes(4)),
        "STF212",
        ["starts 4 bytes before the end of 'a'"],
    ),
    (
        "size differs",
        pack(entry(shape="[2,3]"), bytes(4)),
        "STF213",
        ["24 bytes: [2, 3] of F32, 32 bits", "4 bytes in [0, 4]"],
    ),
    (
        "scalar of 8 bytes",
        pack(entry(shape="[]", offsets="[0,8]"), bytes(8)),
        "STF213",
        ["4 bytes: [] of F32", "8 bytes"],
    ),
    ("overflow", pack(entry(shape=f"[{2**62}]"), bytes(4)), "STF214", [f"[{2**62}] of F32", "more than 2**64-1"]),
    ("wraps to 4 bytes", pack(entry('"U8"', "[4194305,4194305,211106198978564]"), bytes(4)), "STF214", ["4194305"]),
    ("overflow before a zero", pack(entry(shape=f"[{U64},{U64},0]", offsets="[0,0]")), "STF214", [f"{U64}"]),
    (
        "3 of F4",
        pack(entry('"F4"', "[3]", "[0,2]"), bytes(2)),
        "STF215",
        ["a multiple of 8 bits", "[3] of F4", "12 bits"],
    ),
    ("2 of F6", pack(entry('"F6_E3M2"', "[2]", "[0,2]"), bytes(2)), "STF215", ["12 bits"]),
    (
        "cut by one byte",
        pack(b'{"a":' + A + b"}", bytes(3)),
        "STF216",
        ["66 bytes (8 + header of 54 + data of 4)", "1 are missing"],
    ),
    (
        "polyglot",
        pack(b'{"a":' + A + b"}", b"1234PK"),
        "STF216",
        ["66 bytes", "68 bytes: 2 at the end belong to no tensor"],
    ),
    ("nothing but data", pack(b"{}", b"x"), "STF216", ["10 bytes (8 + header of 2 + data of 0)", "11 bytes"]),
]


@pytest.mark.parametrize(("file", "code", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(file: bytes, code: str, words: list[str]) -> None:
    _, findings = judge(file)
    assert {f.code for f in findings if f.level == "error"} == {code}
    text = said(next(f for f in findings if f.code == code))
    assert [word for word in words if word not in text] == [], text
    assert all(f.expected and f.observed and f.where == "m.safetensors" for f in findings)


def test_every_code_of_the_law_has_a_row() -> None:
    covered = {row[2] for row in REFUSED} | {code for row in ACCEPTED for code in row[2]}
    assert covered == {code for code in RULES if code.startswith("STF")} - {"STF221"}  # of GGUF: test_ggufs.py


PAIR_OF_NAMES = b'{"a":' + A + b',"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]}}'
ACCEPTED = [
    ("plain", pack(b'{"a":' + A + b"}", bytes(4)), {}, {"a": Tensor("F32", (1,), 0, 4)}),
    ("two", pack(PAIR_OF_NAMES, bytes(16)), {}, {"a": Tensor("F32", (1,), 0, 4), "b": Tensor("BF16", (2, 3), 4, 16)}),
    ("padded by the writer", pack(b'{"a":' + A + b"}  ", bytes(4)), {}, {"a": Tensor("F32", (1,), 0, 4)}),
    ("blank inside", pack(b'{ "a" :\n' + A + b"}", bytes(4)), {}, {"a": Tensor("F32", (1,), 0, 4)}),
    ("no tensors", pack(b"{}"), {}, {}),
    (
        "other order",
        pack(b'{"b":{"data_offsets":[4,8],"shape":[1],"dtype":"F32"},"a":' + A + b"}", bytes(8)),
        {},
        {"a": Tensor("F32", (1,), 0, 4), "b": Tensor("F32", (1,), 4, 8)},
    ),
    ("scalar", pack(entry(shape="[]"), bytes(4)), {}, {"a": Tensor("F32", (), 0, 4)}),
    ("zero-sized", pack(entry(shape="[0,5]", offsets="[0,0]")), {}, {"a": Tensor("F32", (0, 5), 0, 0)}),
    (
        "zero before what would overflow",
        pack(entry(shape=f"[0,{U64},{U64}]", offsets="[0,0]")),
        {},
        {"a": Tensor("F32", (0, U64, U64), 0, 0)},
    ),
    (
        "zero-sized on a border",
        pack(
            b'{"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"a":'
            + A
            + b',"c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
            bytes(8),
        ),
        {},
        {"a": Tensor("F32", (1,), 0, 4), "z": Tensor("F32", (0,), 4, 4), "c": Tensor("F32", (1,), 4, 8)},
    ),
    ("4 bits", pack(entry('"F4"', "[2]", "[0,1]"), b"x"), {}, {"a": Tensor("F4", (2,), 0, 1)}),
    ("6 bits", pack(entry('"F6_E2M3"', "[4]", "[0,3]"), b"xyz"), {}, {"a": Tensor("F6_E2M3", (4,), 0, 3)}),
    (
        "metadata",
        pack(b'{"__metadata__":{"format":"pt"},"a":' + A + b"}", bytes(4)),
        {},
        {"a": Tensor("F32", (1,), 0, 4)},
    ),
    ("surrogate pair", pack(b'{"\\ud83d\\ude00":' + A + b"}", bytes(4)), {}, {"\U0001f600": Tensor("F32", (1,), 0, 4)}),
    ("escaped dtype", pack(entry('"\\u004632"'), bytes(4)), {}, {"a": Tensor("F32", (1,), 0, 4)}),
    (
        "depth 127",
        pack(entry(more=',"x":' + "[" * 125 + "]" * 125), bytes(4)),
        {"STF220": ["'x'"]},
        {"a": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "brackets in a name",
        pack(b'{"' + b"[" * 200 + b'\\"":' + A + b"}", bytes(4)),
        {},
        {"[" * 200 + '"': Tensor("F32", (1,), 0, 4)},
    ),
    (
        "leading blanks",
        pack(b' \t{"a":' + A + b"}", bytes(4)),
        {"STF218": ["2 before", '" \\t"']},
        {"a": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "tab at the end",
        pack(b'{"a":' + A + b"} \t\r\n", bytes(4)),
        {"STF218": ["4 after", '" \\t\\r\\n"']},
        {"a": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "metadata null",
        pack(b'{"__metadata__":null,"a":' + A + b"}", bytes(4)),
        {"STF219": ["null"]},
        {"a": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "extra field",
        pack(entry(more=',"strides":[1],"y":-0,"z":1e-400'), bytes(4)),
        {"STF220": ["a |", "also 'strides', 'y', 'z'"]},
        {"a": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "empty name",
        pack(b'{"":' + A + b"}", bytes(4)),
        {"STF217": ["'' (0 characters)"]},
        {"": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "NUL in the name",
        pack(b'{"a\\u0000":' + A + b"}", bytes(4)),
        {"STF217": ["'a\\x00' (2 characters)"]},
        {"a\0": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "escape code in the name",
        pack(b'{"\\u001b[31m":' + A + b"}", bytes(4)),
        {"STF217": ["\\x1b[31m"]},
        {"\x1b[31m": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "newline in the name",
        pack(b'{"a\\nb":' + A + b"}", bytes(4)),
        {"STF217": ["a\\x0ab"]},
        {"a\nb": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "DEL in the name",
        pack(b'{"a\x7f":' + A + b"}", bytes(4)),
        {"STF217": ["a\\x7f"]},
        {"a\x7f": Tensor("F32", (1,), 0, 4)},
    ),
    (
        "direction override in the name",
        pack('{"a\u202e":'.encode() + A + b"}", bytes(4)),
        {"STF217": ["a\\u202e"]},
        {"a\u202e": Tensor("F32", (1,), 0, 4)},
    ),
]


@pytest.mark.parametrize(("file", "codes", "tensors"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_accepted(file: bytes, codes: dict[str, list[str]], tensors: dict[str, Tensor]) -> None:
    header, findings = judge(file)
    assert {f.code for f in findings} == set(codes)
    for f in findings:
        assert f.level == ("warning" if f.code == "STF217" else "info")
        assert [word for word in codes[f.code] if word not in said(f)] == [], said(f)
    assert header is not None
    assert dict(header.tensors) == tensors
    assert header.size + header.data == len(file)


def test_metadata_is_kept_in_both_readings() -> None:
    for blank in (b"", b"\n"):
        header, _ = judge(pack(b'{"__metadata__":{"format":"pt","x":""},' + blank + b'"a":' + A + b"}", bytes(4)))
        assert header is not None
        assert header.metadata == {"format": "pt", "x": ""}


@pytest.mark.parametrize("dtype", BITS)
def test_every_dtype(dtype: str) -> None:
    size = BITS[dtype]  # 8 elements
    header, findings = judge(pack(entry(f'"{dtype}"', "[2,4]", f"[0,{size}]"), bytes(size)))
    assert findings == []
    assert header is not None
    assert header.tensors["a"] == Tensor(dtype, (2, 4), 0, size)


def test_unknown_size_is_unknown_and_not_a_pass() -> None:
    header, findings = judge(pack(b'{"a":' + A + b"}", bytes(4)), size=None)
    assert [(f.code, f.level) for f in findings] == [("STF216", "unknown")]
    assert "66 bytes" in findings[0].expected
    assert header is not None
    _, cut = judge(pack(b"{}", length=100), size=None)
    assert [(f.code, f.level, f.observed) for f in cut] == [("STF203", "error", "10 bytes")]


def test_a_read_that_ends_early_is_a_truncated_header() -> None:
    file = pack(b'{"a":' + A + b"}", bytes(4))
    _, findings = read_header(lambda a, b: file[:20][a:b], len(file), "m")
    assert [(f.code, f.observed) for f in findings] == [("STF203", "20 bytes")]


def test_all_errors_come_at_once_and_the_table_stays_readable() -> None:
    header, findings = judge(
        pack(
            b'{"__metadata__":{"k":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]},'
            b'"b":{"dtype":"F7","shape":[1],"data_offsets":[6,10]}}',
            bytes(11),
        )
    )
    assert sorted(f.code for f in findings) == ["STF208", "STF210", "STF212", "STF213", "STF216"]
    assert header is not None
    assert {name: t.shape for name, t in header.tensors.items()} == {"a": (2,), "b": (1,)}


@pytest.mark.parametrize("bad", [b'{"dtype":"F32","shape":[-1],"data_offsets":[4,8]}', b"[]", b'"F32"'])
def test_no_table_where_a_tensor_cannot_be_told(bad: bytes) -> None:
    header, findings = judge(pack(b'{"a":' + A + b',"b":' + bad + b"}", bytes(4)))
    assert header is None
    assert [f.subject for f in findings] == ["b"]


def test_findings_of_one_code_are_bounded() -> None:
    rows = b",".join(
        b'"t%d":{"dtype":"F32","shape":[2],"data_offsets":[%d,%d]}' % (i, 4 * i, 4 * i + 4) for i in range(50)
    )
    _, findings = judge(pack(b"{" + rows + b"}", bytes(200)))
    assert [f.code for f in findings] == ["STF213"] * 21
    assert findings[-1].message == "and 30 more like these"
    assert findings[-1].observed == "50 in all, 20 of them listed"


def test_foreign_text_is_escaped() -> None:
    _, findings = judge(pack(b'{"\\u001b]0;x\\u0007":{"dtype":"\\u001b[2J","shape":[],"data_offsets":[0,0]}}'))
    assert {f.code for f in findings} == {"STF210", "STF217"}
    assert all(part.isprintable() for f in findings for part in (f.subject, f.message, f.expected, f.observed, f.note))


def test_a_name_cannot_pose_as_structure() -> None:
    name = b'x\\":{\\"dtype\\":\\"F32\\",\\"shape\\":[1],\\"data_offsets\\":[0,4]},\\"y'
    header, findings = judge(pack(b'{"' + name + b'":' + A + b"}", bytes(4)))
    assert findings == []
    assert header is not None
    assert list(header.tensors) == [name.decode().replace("\\", "")]


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"dtype":"F32"}}',
        b'{"__metadata__":{"a":"b"},"a":{"dtype":"F32","shape":[1_0],"data_offsets":[0,40]}}',
        b'{"a":{"dtype":"F32","shape":[ 1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[00,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},',
        b'{"a"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        b'{"a\\":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        b'{"__metadata__":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        b'{"__metadata__":{"a":"b"}"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
    ],
)
def test_the_quick_way_takes_only_what_the_long_way_takes(header: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = judge(pack(header, bytes(4)))
    monkeypatch.setattr(container, "_canonical", lambda data: None)
    assert quick == judge(pack(header, bytes(4)))


def test_shape_of_a_long_text_is_not_multiplied() -> None:
    tracemalloc.start()
    _, findings = judge(pack(entry(shape='["' + "A" * 1000 + '",1500000]'), bytes(4)))
    assert [f.code for f in findings] == ["STF211"]
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_large_products_stop_early() -> None:
    start = time.perf_counter()
    _, findings = judge(pack(entry(shape="[" + ",".join(["9" * 300] * 4000) + "]"), bytes(4)))
    assert [f.code for f in findings] == ["STF211"]
    _, findings = judge(pack(entry(shape="[" + ",".join([str(U64)] * 50_000) + "]"), bytes(4)))
    assert [f.code for f in findings] == ["STF214"]
    assert time.perf_counter() - start < 5


def test_too_many_tensors_are_refused_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_TENSORS", 3)
    rows = b",".join(b'"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i, i, i + 1) for i in range(6))
    header, findings = judge(pack(b"{" + rows + b"}", bytes(6)))
    assert header is None
    assert [f.code for f in findings] == ["STF202"]
    assert "at most 3 objects" in findings[0].expected
    assert "7 and " in findings[0].observed


def test_a_header_of_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_VALUES", 1000)
    _, findings = judge(pack(entry(shape="[" + "1," * 2000 + "1]"), bytes(4)))
    assert [f.code for f in findings] == ["STF202"]


def test_a_million_tensors_end_in_bounded_time() -> None:
    count = 200_000  # a fifth, so that the suite stays quick; both ways are linear
    rows = b",".join(b'"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i, i, i + 1) for i in range(count))
    for text in (b"{" + rows + b"}", b"{ " + rows + b"}"):
        start = time.perf_counter()
        header, findings = judge(pack(text, bytes(count)))
        assert time.perf_counter() - start < 10
        assert findings == []
        assert header is not None
        assert len(header.tensors) == count


def test_the_stricter_rows_are_codes() -> None:
    assert STRICTER.keys() <= RULES.keys()
    assert all(RULES[code].severity == "error" for code in STRICTER)


# --- strict JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "where", "words"),
    [
        (b'{"a":\xff}', "utf8", "byte 5", "0xff"),
        (b'{"a":1,}', "syntax", "byte 7", "property name"),
        ('{"é":1,}'.encode(), "syntax", "byte 8", "property name"),
        (b"{'a':1}", "syntax", "byte 1", "'a'"),
        (b"// c\n{}", "syntax", "byte 0", "Expecting value"),
        (b"", "syntax", "byte 0", "the end"),
        (b"[" * 65 + b"]" * 65, "depth", "top level", "64 levels"),
        (b'{"a":{"b":1,"b":2}}', "duplicate", "a.b", "'b' stands twice"),
        (b'{"rope":{"factor":NaN}}', "constant", "rope.factor", "NaN is not JSON"),
        (b'{"l":[1,-Infinity]}', "constant", "l[1]", "-Infinity is not JSON"),
        (b'{"x":1e999}', "number", "x", "does not fit"),
        (b'{"x":-' + b"1" * 4400 + b"}", "number", "x", "does not fit"),
        (b'{"x":"\\udfff"}', "surrogate", "x", "half a surrogate pair"),
        (b'{"\\ud9ab":1}', "surrogate", "\\ud9ab", "half a surrogate pair"),
    ],
)
def test_strict_json_faults(text: bytes, kind: str, where: str, words: str) -> None:
    value, faults = strict_json(text)
    assert [(f.kind, f.where) for f in faults] == [(kind, where)]
    assert words in faults[0].text
    assert faults[0].fatal == (kind in ("utf8", "syntax", "depth"))
    assert (value is None) == faults[0].fatal


def test_strict_json_reports_every_fault_and_still_gives_the_value() -> None:
    value, faults = strict_json(b'{"a":NaN,"b":{"c":[Infinity,1e400],"c":2},"a":1}')
    assert [(f.kind, f.where) for f in faults] == [
        ("duplicate", "a"),
        ("constant", "a"),
        ("duplicate", "b.c"),
        ("constant", "b.c[0]"),
        ("number", "b.c[1]"),
    ]
    assert value == {"a": 1, "b": {"c": 2}}


def test_strict_json_takes_what_is_right() -> None:
    text = b' {"a":[1,-2.5,1e3,true,null,"\\ud83d\\ude00",{"":{}}],"n":1000000000000000000000000000000}\n'
    value, faults = strict_json(text)
    assert faults == []
    assert value == {"a": [1, -2.5, 1000.0, True, None, "\U0001f600", {"": {}}], "n": 10**30}
    assert strict_json(b"[" * 64 + b"]" * 64)[1] == []
    assert strict_json(b'["' + b"[" * 500 + b'\\\\","[\\"["]')[1] == []
    assert strict_json(b"1" * 309)[1] == []
    assert [f.kind for f in strict_json(b"2" * 309)[1]] == ["number"]


def test_faults_are_bounded() -> None:
    start = time.perf_counter()
    assert len(strict_json(b"[" + b"NaN," * 1_000_000 + b"1]")[1]) == 1000
    _, findings = judge(pack(b"{" + b",".join([b'"a":' + A] * 100_000) + b"}", bytes(4)))
    assert [f.code for f in findings] == ["STF207"] * 21
    assert time.perf_counter() - start < 20


# --- headers that are alike ---------------------------------------------------------------------------------------


def layer(number: int, extra: str = "", metadata: str = '{"format":"pt"}', width: int = 2) -> bytes:
    """Return the header of a layer's shard, as the library writes it."""
    rows, at = [], 0
    for name in (f"model.layers.{number}.mlp.experts.{n}.w{extra}" for n in range(3)):
        rows.append(f'"{name}":{{"dtype":"F32","shape":[{width}],"data_offsets":[{at},{at + 4 * width}]}}')
        at += 4 * width
    return f'{{"__metadata__":{metadata},{",".join(rows)}}}'.encode()


ALIKE = [
    layer(0), layer(1), layer(10), layer(1, width=3), layer(7, metadata='{"of":"model.layers.7."}'),
    layer(8, metadata='{"of":"model.layers.7."}'), layer(1, extra=".layers.1.layers.1.x"),
    layer(2, extra=".layers.2.layers.2.x"), layer(2, extra=".layers.1.layers.1.x"), layer(3, extra="#"), layer(4, "##"),
    layer(5).replace(b"[0,8]", b"[0,9]"), layer(6).replace(b".0.w", b".1.w"), layer(9).replace(b"F32", b"F31"),
    layer(3) + b"  ", b'{"norm":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"{", b"", layer(12), layer(13),
]  # fmt: skip


def test_header_like_another_says_what_it_says_when_it_is_read_for_itself() -> None:
    """In any order; what is refused alone is refused beside one that it is like."""
    for turn in range(len(ALIKE)):
        known = container.Alike()
        for data in ALIKE[turn:] + ALIKE[:turn]:
            assert known.read(data) == container._canonical(data), data


def test_findings_of_a_header_are_the_same_beside_one_that_it_is_like() -> None:
    known = container.Alike()
    for data in ALIKE:
        file = pack(data, bytes(24))
        alone = judge(file)
        assert read_header(lambda a, b, f=file: f[a:b], len(file), "m.safetensors", alike=known) == alone  # type: ignore[misc]
    rows = container.Rows(["a", "b"], [Tensor("F32", (1,), 0, 4), Tensor("I64", (1,), 4, 12)])
    assert rows["b"].dtype == "I64"
    assert ("a" in rows, "c" in rows, list(rows), len(rows)) == (True, False, ["a", "b"], 2)
