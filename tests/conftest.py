"""Helpers of the tests stand in this folder; bytes in the name of a test are shown by length and checksum."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hub.server import Server

os.environ["HF_HUB_OFFLINE"] = "1"  # no test speaks to the real Hub; those of the loopback Hub say so


def pytest_make_parametrize_id(val: object) -> str | None:
    """Return a short, printable name for bytes."""
    return f"{len(val)}-bytes-{zlib.crc32(val):08x}" if isinstance(val, bytes) else None


class Timed:
    """Pass calls on to an HTTP client; note those that have no timeout."""

    def __init__(self, client: Any, without: list[Any]) -> None:
        self._client = client
        self._without = without

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def timed(*args: Any, **more: Any) -> Any:
            timeout = more.get("timeout")
            if not isinstance(timeout, (int, float)) or isinstance(timeout, bool) or not 0 < timeout <= 60:
                self._without.append((name, *args))
            return call(*args, **more)

        return timed if callable(call) else call


@pytest.fixture
def without_timeout(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Fail a test in which draftproof sends a request without a timeout."""
    import huggingface_hub.utils as client

    session, rows = client.get_session, list[Any]()
    monkeypatch.setattr(client, "get_session", lambda: Timed(session(), rows))
    yield rows
    assert rows == []


@pytest.fixture
def online(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, without_timeout: list[Any]
) -> Iterator[Callable[[str], None]]:
    """Let a test speak to an endpoint of its own, with empty caches and no token; returns what names the endpoint."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    from hub.asking import settle

    mine = ("HF_", "TRANSFORMERS_OFFLINE", "HUGGINGFACE_", "HUGGING_FACE_")
    for name in [n for n in os.environ if n.startswith(mine) or n.upper().endswith("_PROXY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    yield lambda endpoint: monkeypatch.setenv("HF_ENDPOINT", endpoint)
    settle(2.0)
    if any(n.upper().endswith("_PROXY") for n in os.environ):
        close_session()  # the client reads the environment when it is made


@pytest.fixture
def loopback(online: Callable[[str], None]) -> Iterator[Server]:
    """Start a Hub on the loopback, without repos, and make it the endpoint."""
    from hub.server import Server

    with Server() as server:
        online(server.hub)
        yield server


@pytest.fixture(scope="session")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the drafter and the target of the founding case, at their real scale, once for all workers."""
    import filelock

    from hub import repos

    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    root = shared / "kimi"
    with filelock.FileLock(shared / "kimi.lock"):
        if not (root / repos.K25).exists():
            repos.drafter(root)
            repos.kimi_k25(root)
    return root
