"""Values of a tensor are read by ranges: only the rows asked for, near ones in one go, and never the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import builder as b
from draftproof.checkpoint import Checkpoint
from draftproof.hub import GAP, open_folder, read_tensor

ROWS, WIDTH = 4000, 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write one tensor of bytes, whose row n holds n modulo 251, behind another."""
    path = tmp_path_factory.mktemp("rows")
    b.write(path, {}, {"a": ("U8", (7,)), "b": ("U8", (ROWS, WIDTH))})
    raw = bytearray((path / "model.safetensors").read_bytes())
    values = b"".join(bytes([n % 251]) * WIDTH for n in range(ROWS))
    raw[-len(values) :] = values
    (path / "model.safetensors").write_bytes(raw)
    return path


def read(folder: Path, rows: list[int] | None) -> tuple[bytes, int, list[tuple[int, int]]]:
    source = open_folder(folder, "x")
    tensor = Checkpoint(source, "drafter").table().tensors["b"]
    asked: list[tuple[int, int]] = []
    inner = source.read

    def noted(name: str, start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return inner(name, start, stop)

    source.read = noted
    got = read_tensor(source, "model.safetensors", tensor, rows)
    return got.data, got.moved, asked[1:]  # the first is the header's length


def test_whole_tensor_is_one_range(folder: Path) -> None:
    data, moved, asked = read(folder, None)
    assert (len(data), moved, len(asked)) == (ROWS * WIDTH, ROWS * WIDTH, 1)
    assert data[WIDTH * 300] == 300 % 251


def test_rows_come_in_the_order_they_were_asked_for(folder: Path) -> None:
    data, _, _ = read(folder, [3000, 2, 2, 3999])
    assert [data[n * WIDTH] for n in range(4)] == [3000 % 251, 2, 2, 3999 % 251]
    assert len(data) == 4 * WIDTH


def test_near_rows_are_one_range_and_far_ones_are_apart(folder: Path) -> None:
    near, far = GAP // WIDTH, GAP // WIDTH + 2
    _, moved, asked = read(folder, [0, near])
    assert (moved, len(asked)) == ((near + 1) * WIDTH, 1)
    _, moved, asked = read(folder, [0, far])
    assert (moved, len(asked)) == (2 * WIDTH, 2)
    assert read(folder, [])[:2] == (b"", 0)


@pytest.mark.parametrize("row", [-1, ROWS])
def test_row_that_is_not_there_is_refused(folder: Path, row: int) -> None:
    with pytest.raises(ValueError, match=f"row {row} of {ROWS}"):
        read(folder, [0, row])


def test_file_that_ends_early_is_an_error(folder: Path, tmp_path: Path) -> None:
    source = open_folder(folder, "x")
    tensor = Checkpoint(source, "drafter").table().tensors["b"]
    cut = (folder / "model.safetensors").read_bytes()[:-1]
    (tmp_path / "model.safetensors").write_bytes(cut)
    with pytest.raises(OSError, match="the file ends before byte"):
        read_tensor(open_folder(tmp_path, "x"), "model.safetensors", tensor, [ROWS - 1])
