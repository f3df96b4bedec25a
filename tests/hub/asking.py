"""What the tests of the reader share: a small drafter and target on the Hub, and how to ask about them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builder as b
from draftproof import api
from draftproof.findings import Finding, Report
from draftproof.hub import Source, open_model
from draftproof.library import Library
from draftproof.remote import Hub
from draftproof.transport import Limits
from hub.server import Server

QUICK = Limits(step=2.0, total=4.0, pause=0.01)


def drafter(folder: Path, *, hidden: int = b.HIDDEN, **changes: Any) -> Path:
    """Write a drafter; another hidden size makes other weights, but no other config."""
    table = b.dense()
    if hidden != b.HIDDEN:
        table["norm.weight"] = ("BF16", (hidden,))
    return b.write(folder, b.dense_config(**changes), table)


def target(folder: Path, shards: int = 3) -> Path:
    """Write a target in shards."""
    return b.write(folder, b.target_config(), b.target(), shards=shards)


def both(server: Server, root: Path) -> tuple[str, str]:
    """Give a drafter and a target that it fits to the Hub; returns their commits."""
    return server.add(b.DRAFTER, drafter(root / "d")), server.add(b.TARGET, target(root / "t"))


def hub(mode: str = "live", **more: Any) -> Hub:
    """Return a Hub that gives up soon."""
    return Hub(mode, **({"limits": QUICK} | more))


def library(own: Path | None = None, mode: str = "auto", **more: Any) -> Library:
    """Return the contracts, and what reads ORG/NAME."""
    return Library(*([own] if own else []), hub=hub(mode, **more))


def ask(mode: str = "live", drafter: str = b.DRAFTER, target: str | None = b.TARGET, own: Path | None = None) -> Report:
    """Check two models with all that can be declared of them, in a run of its own."""
    case, _ = api.examine_models(drafter, target, library(own, mode), facts=b.FACTS)
    return api.report(case, "a question")


def opened(spec: str, own: Path | None = None, mode: str = "auto", role: str = "drafter") -> Source | Finding:
    """Open one model."""
    return open_model(spec, (own / "recordings",) if own else (), None, hub(mode), role)


def record(own: Path, repo: str, commit: str | None, provenance: str, config: Any, table: b.Table | None) -> Path:
    """Write a recording into a folder of contracts."""
    named = {n: [dtype, list(shape)] for n, (dtype, shape) in (table or {}).items()}
    tensors = {"complete": True, "count": len(named), "parameters": None, "named": named}
    data = {
        "schema": 1, "repo": repo, "revision": commit, "provenance": provenance, "normalised": False,
        "read": {"date": "2026-01-01", "source": "a test"}, "unknown": [], "respelled": [], "config": config,
        "tensors": tensors if table is not None else None, "files": None,
    }  # fmt: skip
    name = f"{repo.replace('/', '--')}@{commit[:8] if commit else 'unknown'}.json"
    path = own / "recordings" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


def settle(seconds: float) -> None:
    """Wait for reads that go on after their answer was no longer needed."""
    until = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread.name == "draftproof-read":
            thread.join(max(0.0, until - time.monotonic()))


def no_socket(monkeypatch: Any) -> list[Any]:
    """Make every new socket a failure; returns a list of those that were asked for."""
    import socket

    settle(5.0)
    asked: list[Any] = []

    class Refused(socket.socket):
        def __init__(self, *args: Any, **more: Any) -> None:
            asked.append(args)
            raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", Refused)
    monkeypatch.setattr(socket, "create_connection", lambda *args, **more: Refused())
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: Refused())
    return asked


def said(report: Report) -> list[str]:
    """Return the codes of what could not be read, or was found wrong, with their level where it is not error."""
    return [f.code if f.level == "error" else f"{f.code} {f.level}" for f in report.findings if f.level != "pass"]


Moves = Callable[[], Any]
