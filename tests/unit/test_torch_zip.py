"""Torch zip files: what torch.save writes is read, nothing of a pickle is ever run, all else is SRC121."""

from __future__ import annotations

import io
import os
import pickle
import struct
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof import container, torchzip
from draftproof.container import Header, Tensor
from draftproof.findings import Finding
from draftproof.torchzip import read_torch_zip


def judge(file: bytes) -> tuple[Header | None, list[Finding]]:
    return read_torch_zip(lambda a, b: file[a:b], len(file), "pytorch_model.bin")


def record(name: str, method: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    """Return an entry that holds no time: the same bytes in every process."""
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    return info


def zipped(pkl: bytes, storages: dict[str, int] | None = None, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        file.writestr(record("archive/data.pkl", method), pkl)
        for key, size in (storages or {}).items():
            file.writestr(record(f"archive/data/{key}", method), bytes(size))
    return out.getvalue()


def refused(file: bytes) -> str:
    header, findings = judge(file)
    assert header is None
    assert [(f.code, f.level) for f in findings if f.level != "info"] == [("SRC121", "unknown")]
    assert findings[-1].expected
    return f"{findings[-1].expected} | {findings[-1].observed}"


# --- pickles by hand: opcodes as torch.save writes them ---------------------------------------------------------------


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def glob(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def whole(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def sizes(*values: int) -> bytes:
    return b"(" + b"".join(map(whole, values)) + b"t"


def storage(kind: bytes = glob("torch", "FloatStorage"), key: str = "0", count: int = 6) -> bytes:
    return b"(" + text("storage") + kind + text(key) + text("cpu") + whole(count) + b"tQ"


ORDERED = glob("collections", "OrderedDict") + b")R"
V2 = glob("torch._utils", "_rebuild_tensor_v2")


def tensor(
    where: bytes | None = None, offset: int = 0, shape: bytes = sizes(2, 3), strides: bytes = sizes(3, 1)
) -> bytes:
    return V2 + b"(" + (where or storage()) + whole(offset) + shape + strides + b"\x89" + ORDERED + b"tR"


def state(*items: tuple[str, bytes]) -> bytes:
    return b"\x80\x02}(" + b"".join(text(name) + value for name, value in items) + b"u."


def test_hand_made_state_dict() -> None:
    header, findings = judge(zipped(state(("fc.weight", tensor())), {"0": 24}))
    assert findings == []
    assert header is not None
    assert dict(header.tensors) == {"fc.weight": Tensor("F32", (2, 3), 0, 24)}
    assert (header.name, header.data) == ("pytorch_model.bin", 24)


class Evil:
    """Pickle to a call of anything."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("call", [(os.system, "touch {}"), (eval, "open('{}', 'w')"), (open, "{}", "w"), (exec, "1/0")])
def test_nothing_runs(tmp_path: Path, protocol: int, call: tuple[Any, ...]) -> None:
    trap = tmp_path / "ran"
    evil = Evil(call[0], *(part.format(trap) for part in call[1:]))
    said = refused(zipped(pickle.dumps({"fc.weight": evil}, protocol)))
    assert not trap.exists()
    assert ("opcode 0x64" if protocol == 0 else f".{call[0].__name__}") in said


@pytest.mark.parametrize(
    ("pkl", "words"),
    [
        (state(("a", glob("os", "system") + text("x") + b"\x85R")), "global os.system"),
        (state(("a", glob("torch", "load"))), "global torch.load"),
        (state(("a", glob("torch.storage", "_load_from_bytes"))), "global torch.storage._load_from_bytes"),
        (state(("a", glob("torch._utils", "_rebuild_qtensor"))), "global torch._utils._rebuild_qtensor"),
        (state(("a", glob("torch", "QInt8Storage"))), "global torch.QInt8Storage"),
        (state(("a", glob("builtins", "set"))), "global builtins.set"),
        (state(("a", glob("x\x1b[31m", "y"))), "global x\\x1b[31m.y"),
        (state(("a", text("os") + text("system") + b"\x93")), "global os.system"),
        (state(("a", b"N" + text("system") + b"\x93")), "the name of a global"),
        (state(("a", text("m" * 600) + text("n" * 600) + b"\x93")), "the name of a global"),
        (b"\x80\x02(ios\nsystem\n.", "opcode 0x69"),
        (b"\x80\x02(" + glob("collections", "OrderedDict") + b"o.", "opcode 0x6f"),
        (state(("a", glob("collections", "OrderedDict") + b")\x81")), "opcode 0x81"),
        (state(("a", b"\x82\x01")), "opcode 0x82"),
        (state(("a", b"\x83\x01\x00")), "opcode 0x83"),
        (state(("a", b"P0\n")), "opcode 0x50"),
        (state(("a", b"\x97")), "opcode 0x97"),
        (state(("a", b"\x96" + bytes(8))), "opcode 0x96"),
        (state(("a", b"\x8f")), "opcode 0x8f"),
        (state(("a", b"B\xff\xff\xff\x7f")), "opcode 0x42"),
        (state(("a", b"\x8b\xff\xff\xff\x7f")), "opcode 0x8b"),
        (state(("a", b"X\xff\xff\xff\xffabc")), "4294967295 more bytes of data.pkl"),
        (state(("a", b"\x8d" + b"\xff" * 8)), "18446744073709551615 more bytes"),
        (state(("a", b"\x8a\xff1")), "255 more bytes"),
        (state(("a", b"h\x07")), "KeyError"),
        (state(("a", b"X\x01\0\0\0\xff")), "UnicodeDecodeError"),
        (b"\x80\x02}", "1 more bytes of data.pkl | 0: it was cut"),
        (b"", "1 more bytes"),
        (b".", "IndexError"),
        (b"\x80\x02t.", "IndexError"),
        (b"\x80\x02K\x01\x86.", "IndexError"),
        (b"\x80\x02cos", "IndexError"),
        (b"\x80\x02N.", "a dict of tensors | a nonetype"),
        (b"\x80\x02].", "a dict of tensors | a list"),
        (b"\x80\x02" + tensor() + b".", "a dict of tensors | a built"),
        (b"\x80\x02}.", "no tensor, but nothing"),
        (state(("epoch", b"K\x03")), "no tensor, but 'epoch'"),
        (b"\x80\x02]" + text("a") + tensor() + b"s.", "items of a dict | a list"),
        (b"\x80\x02}(" + text("a") + b"u.", "items of a dict"),
        (b"\x80\x02}K\x01a.", "items of a list | a dict"),
        (b"\x80\x02}" + sizes(1) + tensor() + b"s.", "keys that are numbers or names of at most 4096"),
        (state(("k" * 5000, tensor())), "keys that are numbers or names of at most 4096"),
        (b"\x80\x02" + sizes(1) + b"}b.", "attributes of an OrderedDict | a tuple"),
        (state(("a", text("f") + b")R")), "a call of a str"),
        (state(("a", glob("torch", "FloatStorage") + b")R")), "a call of torch.FloatStorage"),
        (state(("a", glob("collections", "OrderedDict") + text("x") + b"\x85R")), "a call of collections.OrderedDict"),
        (state(("a", V2 + b")R")), "a call of torch._utils._rebuild_tensor_v2 with other arguments"),
        (state(("a", V2 + b"(" + storage() + whole(0) + sizes(2, 3) + sizes(3, 1) + b"tR")), "with other arguments"),
        (state(("a", tensor(shape=sizes(2, -3)))), "offset, shape and strides"),
        (state(("a", tensor(shape=sizes(2)))), "offset, shape and strides"),
        (state(("a", tensor(offset=-1))), "offset, shape and strides"),
        (state(("a", tensor(shape=b"(\x88K\x06t"))), "offset, shape and strides"),
        (state(("a", tensor(shape=sizes(*[1] * 65), strides=sizes(*[1] * 65)))), "offset, shape and strides"),
        (state(("a", tensor(shape=sizes(2, 4), strides=sizes(4, 1)))), "8 elements of F32 in storage '0' | 6 elements"),
        (state(("a", tensor(offset=1))), "7 elements of F32 in storage '0' | 6 elements of F32"),
        (state(("a", tensor(shape=sizes(2**62, 2**62), strides=sizes(2**62, 1)))), "elements of F32 in storage '0'"),
        (state(("a", tensor(text("x") + b"Q"))), "persistent id"),
        (state(("a", tensor(b"(" + text("storage") + b"tQ"))), "persistent id"),
        (state(("a", tensor(storage(kind=text("FloatStorage"))))), "persistent id"),
        (state(("a", tensor(storage(kind=glob("torch._utils", "_rebuild_tensor"))))), "persistent id"),
        (state(("a", tensor(storage(count=-1)))), "persistent id"),
        (state(("a", tensor(storage(count=2**64)))), "persistent id"),
        (state(("a", tensor(storage(key="1")))), "24 bytes in data/1, the storage of 'a' | no such record"),
        (state(("a", tensor(storage(count=7)))), "28 bytes in data/0, the storage of 'a' | 24 bytes"),
        (state(("a.b", tensor()), ("a", b"}(" + text("b") + tensor() + b"u")), "'a.b' twice after joining names"),
    ],
)
def test_refused_pickles(pkl: bytes, words: str) -> None:
    assert words in refused(zipped(pkl, {"0": 24}))


V3 = glob("torch._utils", "_rebuild_tensor_v3")
RAW = glob("torch.storage", "UntypedStorage")


def test_dtypes_without_a_storage_class() -> None:
    body = V3 + b"(" + storage(RAW, "0", 24) + whole(0) + sizes(2, 6) + sizes(6, 1) + b"\x89" + ORDERED
    header, _ = judge(zipped(state(("a", body + glob("torch", "uint16") + b"tR")), {"0": 24}))
    assert header is not None
    assert header.tensors["a"] == Tensor("U16", (2, 6), 0, 24)
    assert "a dtype | a str" in refused(zipped(state(("a", body + text("uint16") + b"tR")), {"0": 24}))
    wide = state(("a", body + glob("torch", "uint32") + b"tR"))
    assert "12 elements of U32 in storage '0' | 24 elements of U8" in refused(zipped(wide, {"0": 24}))


def test_shared_expanded_empty_and_strided_tensors() -> None:
    pkl = state(
        ("a", tensor()),
        ("tied", tensor(shape=sizes(3, 2), strides=sizes(1, 3))),
        ("tail", tensor(offset=4, shape=sizes(2), strides=sizes(1))),
        ("expanded", tensor(shape=sizes(1000, 6), strides=sizes(0, 1))),
        ("none", tensor(offset=6, shape=sizes(0, 5), strides=sizes(5, 1))),
        ("scalar", tensor(shape=b")", strides=b")")),
    )
    header, findings = judge(zipped(pkl, {"0": 24}))
    assert findings == []
    assert header is not None
    assert {name: t.shape for name, t in header.tensors.items()} == {
        "a": (2, 3), "tied": (3, 2), "tail": (2,), "expanded": (1000, 6), "none": (0, 5), "scalar": (),
    }  # fmt: skip
    assert header.tensors["tail"][2:] == (16, 24)


def test_nested_dicts_are_joined_and_the_rest_is_told() -> None:
    inner = b"}(" + text("fc.weight") + tensor() + text("step") + b"K\x05u"
    pkl = state(("model", inner), ("epoch", b"K\x03"), ("optimizer", b"}(" + text("state") + inner + b"u"))
    header, findings = judge(zipped(pkl, {"0": 24}))
    assert header is not None
    assert list(header.tensors) == ["model.fc.weight"]
    assert [(f.code, f.level) for f in findings] == [("SRC121", "info")]
    assert "under 'model', names joined with '.'" in findings[0].observed
    assert findings[0].note == "not read: 'model.step', 'epoch', 'optimizer'"


# --- the zip around it ----------------------------------------------------------------------------------------------

GOOD = zipped(state(("fc.weight", tensor())), {"0": 24})


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "a zip file, as torch.save has written since 1.6"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "a bare pickle, the torch format before 1.6"),
        (b"./".ljust(257, b"\0") + b"ustar\x00" + bytes(300), "a tar archive, the oldest torch format"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer"),
        (b"<html>", "HTML page"),
        (GOOD[:-10], "a zip directory that ends the file | none"),
        (GOOD[:60], "a zip directory that ends the file | none"),
        (GOOD + b"junk", "a zip directory that ends the file | none"),
        (zipped(GOOD, method=zipfile.ZIP_DEFLATED), "stored as it is | compressed (method 8)"),
    ],
)
def test_refused_files(file: bytes, words: str) -> None:
    said = refused(file)
    assert words in said


def archive(*records: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in records:
            file.writestr(record(name), data)
    return out.getvalue()


def test_exactly_one_data_pkl() -> None:
    pkl = state(("a", tensor()))
    assert "one */data.pkl | none in 1 records" in refused(archive(("archive/version", b"3")))
    assert "one */data.pkl | none in 1 records" in refused(archive(("data.pkl", pkl)))
    assert "one */data.pkl | 2 of them" in refused(archive(("a/data.pkl", pkl), ("b/data.pkl", pkl)))


def test_a_record_twice_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        file = archive(("archive/data.pkl", b"}."), ("archive/data.pkl", b"}."))
    assert "'archive/data.pkl' stands twice" in refused(file)


def patched(file: bytes, mark: bytes, offset: int, value: bytes) -> bytes:
    at = file.rindex(mark) + offset
    return file[:at] + value + file[at + len(value) :]


def test_damaged_directories() -> None:
    end, central = b"PK\x05\x06", b"PK\x01\x02"
    assert "encrypted" in refused(patched(zipped(b"}."), central, 8, b"\x01\x00"))
    assert "9 records" in refused(patched(GOOD, end, 10, b"\x09\x00"))
    assert "inside the file" in refused(patched(GOOD, end, 16, b"\xff\xff\xff\x7f"))
    assert "at most 16777216 bytes" in refused(patched(GOOD, end, 12, b"\xff\xff\xff\x7f"))
    assert "something else" in refused(patched(zipped(b"}."), central, 42, b"\x05\0\0\0"))
    big = patched(patched(zipped(b"}."), central, 24, b"\0\0\0\x7f"), central, 20, b"\0\0\0\x7f")
    assert "of at most 16777216 bytes | 2130706432 bytes" in refused(big)
    long = patched(patched(zipped(b"}."), central, 24, b"\0\x10\0\0"), central, 20, b"\0\x10\0\0")
    assert "4096 bytes of archive/data.pkl" in refused(long)


def test_zip64() -> None:
    at = GOOD.rindex(b"PK\x05\x06")
    count, length, start = struct.unpack_from("<HII", GOOD, at + 10)
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, length, start)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, at, 1)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    header, findings = judge(GOOD[:at] + record + locator + end)
    assert findings == []
    assert header is not None
    assert list(header.tensors) == ["fc.weight"]
    lost = b"PK\x06\x07" + struct.pack("<IQI", 0, 2**60, 1)
    assert f"none at byte {2**60}" in refused(GOOD[:at] + record + lost + end)


def test_zip64_sizes_of_a_record() -> None:
    extra = struct.pack("<HHQQQ", 1, 24, 5_000_000_000, 5_000_000_000, 7_000_000_000)
    other = struct.pack("<HH4s", 0x4246, 4, b"pads")
    full = 0xFFFFFFFF
    assert torchzip._zip64(other + extra, full, full, full) == [5_000_000_000, 5_000_000_000, 7_000_000_000]
    assert torchzip._zip64(struct.pack("<HHQ", 1, 8, 7), 3, 3, full) == [3, 3, 7]
    assert torchzip._zip64(b"\x01\x00\xff\xff", full, 1, 1) == [full, 1, 1]


# --- bombs ----------------------------------------------------------------------------------------------------------

TWICE = b"q\0h\0\x86"  # x -> (x, x)
BOMBS = {
    "memo index": state(("a", b"Nr\xff\xff\xff\xff")),
    "doubled tuples as key": b"\x80\x02}N" + TWICE * 60 + b"Ns.",
    "doubled tuples as global": b"\x80\x02N" + TWICE * 60 + b"q\1h\1\x93.",
    "doubled tuples as shape": state(("a", tensor(shape=b"N" + TWICE * 60, strides=b"N" + TWICE * 60))),
    "doubled tuples as function": b"\x80\x02N" + TWICE * 60 + b")R.",
    "nested tuples": b"\x80\x02)" + b"\x85" * 1_000_000 + b".",
    "nested lists": b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b".",
    "list in itself": b"\x80\x02]q\0h\0a.",
    "dict in itself": b"\x80\x02}q\0" + text("a") + b"h\0s.",
    "endless": b"\x80\x02" + b"}" * 5_000_000,
    "marks": b"\x80\x02" + b"(" * 5_000_000,
    "one shape of many sizes": state(("a", tensor(shape=b"(" + b"K\1" * 1_000_000 + b"t"))),
    "one dict under many keys": b"\x80\x02}(" + b"".join(
        text(str(i)) + (b"}(" + b"".join(text(str(k)) + b"N" for k in range(3000)) + b"uq\0" if not i else b"h\0")
        for i in range(3000)
    ) + b"u.",
}  # fmt: skip


@pytest.mark.parametrize("pkl", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_end(pkl: bytes) -> None:
    start = time.perf_counter()
    if pkl is BOMBS["memo index"]:
        assert "no tensor" in refused(zipped(pkl))
    else:
        refused(zipped(pkl, {"0": 24}))
    assert time.perf_counter() - start < 20


def test_one_dict_of_tensors_under_many_keys_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchzip, "MAX_TENSORS", 50)
    inner = b"}(" + b"".join(text(str(k)) + tensor() for k in range(9)) + b"uq\0"
    pkl = state(*((f"k{i}", inner if not i else b"h\0") for i in range(9)))
    assert "at most 50 entries" in refused(zipped(pkl, {"0": 24}))


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_mutations_never_raise(data: st.DataObject) -> None:
    second = tensor(offset=2, shape=sizes(3), strides=sizes(1))
    file = bytearray(data.draw(st.sampled_from([GOOD, state(("a", tensor()), ("b", second))])))
    for _ in range(data.draw(st.integers(1, 6))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    whole_file = bytes(file) if file.startswith(b"PK") else zipped(bytes(file), {"0": 24})
    header, findings = judge(whole_file)
    assert (header is None) == any(f.level == "unknown" for f in findings)
    assert {f.code for f in findings} <= {"SRC121"}


@given(st.binary(max_size=80))
@settings(deadline=None)
def test_any_pickle_bytes_never_raise(pkl: bytes) -> None:
    refused(zipped(pkl))


# --- the real writer ------------------------------------------------------------------------------------------------


def saved(value: Any, **options: Any) -> bytes:
    torch = pytest.importorskip("torch")
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


NAMES = {
    "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0", "uint16": "U16", "uint32": "U32", "uint64": "U64",
}  # fmt: skip


@pytest.mark.parametrize(("theirs", "name"), NAMES.items())
def test_every_dtype_of_torch(theirs: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    header, findings = judge(saved({"a": torch.zeros(2, 3, dtype=torch.uint8).to(getattr(torch, theirs))}))
    assert findings == []
    assert header is not None
    size = container.BITS[name] // 8
    assert dict(header.tensors) == {"a": Tensor(name, (2, 3), 0, 6 * size)}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_state_dict_of_a_module(protocol: int) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.LayerNorm(5), torch.nn.Embedding(7, 2))
    module[0].weight = torch.nn.Parameter(module[0].weight.to(torch.bfloat16))
    values = OrderedDict(module.state_dict())
    values["view"] = torch.arange(40).reshape(4, 10)[1:3, ::2]
    values["tied"] = values["2.weight"].t()
    values["parameter"] = torch.nn.Parameter(torch.ones(2))
    values["scalar"], values["empty"] = torch.tensor(1.5), torch.zeros(0, 4)
    for value in (values, module.state_dict()):
        header, findings = judge(saved(value, pickle_protocol=protocol))
        assert findings == []
        assert header is not None
        assert {n: (t.shape, t.dtype) for n, t in header.tensors.items()} == {
            n: (tuple(t.shape), NAMES[str(t.dtype).removeprefix("torch.")]) for n, t in value.items()
        }


def test_a_training_checkpoint() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    value = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "lr": 1e-4, "best": None}
    header, findings = judge(saved(value))
    assert header is not None
    assert sorted(header.tensors) == ["model.bias", "model.weight"]
    assert [(f.level, f.note) for f in findings] == [("info", "not read: 'optimizer', 'epoch', 'lr', 'best'")]


def test_what_torch_saves_otherwise_is_refused() -> None:
    torch = pytest.importorskip("torch")
    assert "a bare pickle" in refused(saved({"a": torch.ones(2)}, _use_new_zipfile_serialization=False))
    with pytest.warns():
        quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    assert "global torch._utils._rebuild_qtensor" in refused(saved({"a": quantised}))
    assert "global torch._utils._rebuild_sparse_tensor" in refused(saved({"a": torch.eye(2).to_sparse()}))
    assert "global torch._utils._rebuild_meta_tensor_no_storage" in refused(saved({"a": torch.ones(2, device="meta")}))
    assert "global torch.nn.modules.linear.Linear" in refused(saved(torch.nn.Linear(2, 2)))
    assert "a dict of tensors" in refused(saved(torch.ones(2)))


def test_only_the_directory_and_the_pickle_are_read() -> None:
    torch = pytest.importorskip("torch")
    file = saved({"a": torch.zeros(3_000_000)})
    taken = 0

    def read(start: int, stop: int) -> bytes:
        nonlocal taken
        taken += len(file[start:stop])
        return file[start:stop]

    header, _ = read_torch_zip(read, len(file), "m")
    assert header is not None
    assert taken < 100_000


def test_entries_are_shapes_of_tensors_and_plain_values(tmp_path: Path) -> None:
    path = tmp_path / "mask_embedding.pt"
    held = ("F32", (4,), bytes(16))
    torchzip.write_torch_zip(path, {"embedding": held, "mask_token_id": 7, "more": {"inner": held}})
    file = path.read_bytes()
    rows = torchzip.read_entries(lambda a, b: file[a:b], len(file))
    assert rows["embedding"] == rows["more.inner"] == [4]
    assert rows["mask_token_id"] == 7
    with pytest.raises(ValueError, match="expected"):
        torchzip.read_entries(lambda a, b: file[:100][a:b], 100)
