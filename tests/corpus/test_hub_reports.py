"""Reports that need a Hub: a header as long as a first read, a connection gone silent, a branch that moves."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import builder as b
from hub import asking
from hub.server import Server, sent


@pytest.mark.parametrize("length", [13_992, 13_993, 99_994, 99_999, 100_000, 100_001])
def test_report_m01_header_as_long_as_a_first_read_is_read_whole(loopback: Server, tmp_path: Path, length: int) -> None:
    folder = asking.drafter(tmp_path / "d")
    raw = (folder / "model.safetensors").read_bytes()
    old = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + old])
    header["__metadata__"] = {"format": "pt", "padding": ""}
    space = length - len(json.dumps(header, separators=(",", ":")))
    header["__metadata__"]["padding"] = "x" * space
    text = json.dumps(header, separators=(",", ":")).encode()
    assert len(text) == length
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + old :])
    loopback.add(b.DRAFTER, folder)
    loopback.add(b.TARGET, asking.target(tmp_path / "t"))
    assert b.codes(asking.ask()) == set()


def test_report_m02_connection_that_goes_silent_ends_at_the_deadline_and_says_what_was_read(
    loopback: Server, tmp_path: Path
) -> None:
    asking.both(loopback, tmp_path)
    loopback.rule("*model-00002*", side="cdn", what=sent(hang=3600))
    start = time.monotonic()
    report = asking.ask()
    assert time.monotonic() - start < 2 * asking.QUICK.total + 1
    (told,) = [f for f in report.findings if f.code == "SRC107"]
    assert told.level == "unknown"
    assert report.verdict == "unknown"


def test_report_m07_branch_that_moved_since_it_was_read_is_said_with_both_commits(
    loopback: Server, tmp_path: Path
) -> None:
    first, _ = asking.both(loopback, tmp_path)
    assert b.codes(asking.ask()) == set()
    second = loopback.add(b.DRAFTER, asking.drafter(tmp_path / "other", rms_norm_eps=1e-6))
    report = asking.ask()
    (told,) = [f for f in report.findings if f.code == "SRC128"]
    assert (told.level, told.observed) == ("info", second)
    assert first in told.expected
    assert report.sides[0].revision == second
    assert "SRC128 info" not in b.codes(asking.ask())  # said once: it has not moved again
