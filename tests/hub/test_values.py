"""Values of tensors over the network: the rows that are asked for, by ranges; and the bar of a long read."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import builder as b
from draftproof import transport
from draftproof.checkpoint import Checkpoint
from draftproof.hub import GAP, Source, read_tensor
from hub.asking import opened
from hub.server import Server

ROWS, WIDTH = 2000, 256


@pytest.fixture
def source(loopback: Server, tmp_path: Path) -> Source:
    """Return a drafter on the Hub with a large tensor of bytes, whose row n holds n modulo 251; its header is read."""
    table = b.dense() | {"zz": ("U8", (ROWS, WIDTH))}
    folder = b.write(tmp_path / "d", b.dense_config(), table)
    path = folder / "model.safetensors"
    values = b"".join(bytes([n % 251]) * WIDTH for n in range(ROWS))
    raw = path.read_bytes()
    at = 8 + int.from_bytes(raw[:8], "little") + Checkpoint(opened(str(folder)), "x").table().tensors["zz"].start  # type: ignore[arg-type]
    path.write_bytes(raw[:at] + values + raw[at + len(values) :])
    loopback.add(b.DRAFTER, folder)
    found = opened(b.DRAFTER)
    assert isinstance(found, Source)
    return found


def test_rows_of_a_tensor_move_their_own_bytes_alone_and_say_how_many(loopback: Server, source: Source) -> None:
    tensor = Checkpoint(source, "drafter").table().tensors["zz"]
    loopback.reset()
    near = GAP // WIDTH // 2
    rows = [1500, 3, 3 + near, 1999]
    got = read_tensor(source, "model.safetensors", tensor, rows)
    assert [got.data[n * WIDTH] for n in range(len(rows))] == [row % 251 for row in rows]
    ranges = [seen for seen in loopback.log if seen.range]
    assert len(ranges) == 3  # two rows lie near each other
    assert got.moved == loopback.bytes == (near + 3) * WIDTH
    assert {seen.side for seen in loopback.log} == {"cdn"}  # at the address that gave the header


def test_whole_tensor_is_one_range_of_its_file(loopback: Server, source: Source) -> None:
    tensor = Checkpoint(source, "drafter").table().tensors["zz"]
    loopback.reset()
    got = read_tensor(source, "model.safetensors", tensor)
    assert (len(got.data), got.moved, loopback.bytes, loopback.requests) == (*[ROWS * WIDTH] * 3, 1)
    assert got.data[WIDTH * 300] == 300 % 251


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("disabled", [True, False])
def test_long_read_has_a_bar_on_a_terminal_unless_that_is_disabled(
    source: Source, monkeypatch: pytest.MonkeyPatch, terminal: bool, disabled: bool
) -> None:
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    tensor = Checkpoint(source, "drafter").table().tensors["zz"]
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(transport, "LONG", ROWS * WIDTH - 1)
    (disable_progress_bars if disabled else enable_progress_bars)()
    try:
        again = opened(b.DRAFTER)
        assert isinstance(again, Source)
        read_tensor(again, "model.safetensors", tensor)
    finally:
        enable_progress_bars()
    assert ("draftproof" in shown.getvalue()) is (terminal and not disabled)
