"""Weights in a torch file on the Hub: names, dtypes and shapes from its two ends; nothing of its pickle is run."""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

import builder as b
from hub.asking import ask
from hub.server import Server

KINDS = {"BF16": "BFloat16Storage", "I64": "LongStorage", "BOOL": "BoolStorage"}
SIZES = {"BF16": 2, "I64": 8, "BOOL": 1}
BLOCK = 1 << 16


def torch_file(table: b.Table, *, extra: bytes = b"") -> bytes:
    """Return what torch.save writes of a state dict: opcodes by hand, a storage for each tensor."""

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def whole(value: int) -> bytes:
        return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)

    def tensor(key: int, dtype: str, shape: tuple[int, ...]) -> bytes:
        strides = [math.prod(shape[n + 1 :]) for n in range(len(shape))]
        place = text("storage") + f"ctorch\n{KINDS[dtype]}\n".encode() + text(str(key)) + text("cpu")
        storage = b"(" + place + whole(math.prod(shape)) + b"tQ"
        sizes = b"".join(b"(" + b"".join(map(whole, row)) + b"t" for row in (shape, strides))
        return (
            b"ctorch._utils\n_rebuild_tensor_v2\n("
            + storage
            + whole(0)
            + sizes
            + b"\x89ccollections\nOrderedDict\n)RtR"
        )

    rows = b"".join(text(name) + tensor(key, *row) for key, (name, row) in enumerate(table.items()))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        file.writestr("pytorch_model/data.pkl", b"\x80\x02}(" + rows + extra + b"u.")
        for key, (dtype, shape) in enumerate(table.values()):
            file.writestr(f"pytorch_model/data/{key}", bytes(SIZES[dtype] * math.prod(shape)))
        file.writestr("pytorch_model/version", "3\n")
    return out.getvalue()


def repo(tmp_path: Path, raw: bytes) -> Path:
    folder = b.write(tmp_path / "repo", b.dense_config(), None)
    (folder / "pytorch_model.bin").write_bytes(raw)
    return folder


def test_fifteen_names_cost_two_reads_of_64_kilobytes(loopback: Server, tmp_path: Path) -> None:
    table = b.dense()
    assert len(table) == 15
    raw = torch_file(table)
    assert len(raw) > 3 * BLOCK
    commit = loopback.add(b.DRAFTER, repo(tmp_path, raw))
    report = ask("live", b.DRAFTER, None)
    side = report.sides[0]
    assert (report.verdict, side.provenance, side.tensors) == ("pass", "read", 15)
    assert "TEN403" in {f.code for f in report.findings if f.level == "pass"}
    cdn = [s for s in loopback.log if s.side == "cdn"]
    assert len(cdn) <= 2
    assert sum(s.sent for s in cdn) <= 2 * BLOCK
    # what finding it costs: config and its redirect, no model.safetensors, the list of files, where the file is
    assert len(loopback.log) - len(cdn) <= 5
    loopback.reset()
    assert ask("live", f"{b.DRAFTER}@{commit}", None).sides[0].tensors == 15
    assert loopback.requests == 0


def test_same_file_in_a_folder_says_the_same(loopback: Server, tmp_path: Path) -> None:
    folder = repo(tmp_path, torch_file(b.changed(b.dense(), {"fc.weight": ("BF16", (b.HIDDEN, 5))})))
    loopback.add(b.DRAFTER, folder)
    there, here = ask("live", b.DRAFTER, None), ask("live", str(folder), None)
    assert there.verdict == here.verdict == "fail"
    assert [(f.code, f.level, f.expected, f.observed.partition("   ")[0]) for f in there.findings] == [
        (f.code, f.level, f.expected, f.observed.partition("   ")[0]) for f in here.findings
    ]


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("kind", ["a call", "legacy", "cut"])
def test_file_that_is_not_readable_safely_is_not_judged(loopback: Server, tmp_path: Path, kind: str) -> None:
    trap = tmp_path / "ran"
    evil = pickle.dumps(Trap(trap), 2)[2:-1]
    whole = torch_file(b.dense(), extra=b"X\x04\x00\x00\x00evil" + evil)
    raw = {"a call": whole, "legacy": pickle.dumps({"fc.weight": Trap(trap)}, 2), "cut": whole[: len(whole) // 2]}[kind]
    loopback.add(b.DRAFTER, repo(tmp_path, raw))
    report = ask("live", b.DRAFTER, None)
    assert report.verdict == "unknown"
    assert "SRC121" in {f.code for f in report.findings if f.level == "unknown"}
    assert not trap.exists()
    assert sum(s.sent for s in loopback.log if s.side == "cdn") <= 3 * BLOCK
