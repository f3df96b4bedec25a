"""What every fault test has: a drafter and its target on a Hub of its own, short limits, and what is held afterwards.

A test names its row with ``@fault(row, what goes wrong, codes)``; the first line of its docstring says what the reader
does. docs/faults.md is made of these. When the test ends, each code that it names (of A|B one) must have been reported,
no token may have reached another origin than the endpoint, and nothing may have been written outside the cache.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.world import FAST, PATIENT, TOKEN, World, files
from hub.server import Server


@pytest.fixture
def world(
    request: pytest.FixtureRequest, loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    made = World(loopback, tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    marker = request.node.get_closest_marker("fault")
    assert marker, "a fault test names its row"
    made.limits = FAST if "SRC107" in marker.args[2] else PATIENT
    yield made
    reported = {f.code for f in made.found}
    for codes in marker.args[2].split():
        assert reported & set(codes.split("|")), f"not {codes}, but {sorted(reported)}"
    assert not [seen for seen in loopback.log if seen.side == "cdn" and seen.token], "a token was sent to the CDN"
    outside = {p: s for p, s in files(tmp_path).items() if not Path(p).is_relative_to(tmp_path / "root")}
    assert outside.keys() <= set(getattr(made, "made", ())), "files were written outside the cache"
    until = time.monotonic() + 3.0  # a read that was given up may still end
    while any(thread.name == "draftproof-read" for thread in threading.enumerate()):
        assert time.monotonic() < until, "a read goes on for ever"
        time.sleep(0.01)
    assert not list((tmp_path / "cache").rglob(".new-*")), "half an entry is left in the cache"
    for found in made.found:
        text = repr(found)
        assert TOKEN not in text, "a token was shown"
        assert "Traceback" not in text


@pytest.fixture
def no_socket(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes every new connection of this process an error of the test."""
    import socket

    def stop() -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a socket was opened")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "create_connection", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)

    return stop
