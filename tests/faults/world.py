"""A Hub with a drafter and its target on it, a cache of its own, and all that was found in reading them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import api
from draftproof.cache import Cache
from draftproof.checkpoint import Checkpoint, Table
from draftproof.findings import Finding, Report
from draftproof.hub import Source, open_model
from draftproof.library import Library
from draftproof.remote import Hub
from draftproof.transport import Limits
from hub.server import Server

fault = pytest.mark.fault
TOKEN = "hf_" + "S3cretS3cret" * 3
FAST = Limits(step=0.25, total=1.0, pause=0.01)  # seconds: for faults of time
PATIENT = Limits(step=5.0, total=20.0, pause=0.01)  # for faults that are told by an answer: a busy machine is none
SLACK = 3.0  # seconds that a busy machine may add


class World:
    """Hold a Hub with org/drafter and org/target, a cache, and all that was found."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder  # anything here but cache/ stays as it is
        self.cache = Cache(folder / "cache")
        self.drafter = b.write(folder / "root" / b.DRAFTER, b.dense_config(), b.dense())
        self.target = b.write(folder / "root" / b.TARGET, b.target_config(), b.target(), shards=3)
        self.commits = {repo: server.add(repo, folder / "root" / repo) for repo in (b.DRAFTER, b.TARGET)}
        self.found: list[Finding] = []
        self.before: Mapping[str, int] = {}
        self.limits = FAST

    def again(self, repo: str = b.DRAFTER) -> str:
        """Let the Hub see what was changed in a repo's folder, as its only commit; returns it."""
        self.server.repos.pop(repo, None)
        self.commits[repo] = self.server.add(repo, self.folder / "root" / repo)
        return self.commits[repo]

    def put(self, name: str, raw: bytes | Any, repo: str = b.DRAFTER) -> str:
        """Write a file of a repo, and commit it."""
        raw = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
        path = self.folder / "root" / repo / name
        path.write_bytes(raw)
        return self.again(repo)

    def drop(self, name: str, repo: str = b.DRAFTER) -> str:
        """Remove a file of a repo, and commit that."""
        (self.folder / "root" / repo / name).unlink()
        return self.again(repo)

    def snapshot(self, repo: str = b.DRAFTER) -> Path:
        """Write a repo into the Hub's cache as its own client does: links to blobs that are named by their digest."""
        root = self.folder / "home" / "hub" / f"models--{repo.replace('/', '--')}"
        made = root / "snapshots" / self.commits[repo]
        for folder in (made, root / "blobs", root / "refs"):
            folder.mkdir(parents=True)
        (root / "refs" / "main").write_text(self.commits[repo])
        for path in (self.folder / "root" / repo).iterdir():
            raw = path.read_bytes()
            git = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()
            blob = root / "blobs" / (hashlib.sha256(raw).hexdigest() if path.suffix == ".safetensors" else git)
            blob.write_bytes(raw)
            (made / path.name).symlink_to(os.path.relpath(blob, made))
        return made

    def hub(self, mode: str = "live", *, limits: Limits | None = None, token: Any = False, endpoint: str = "") -> Hub:
        """Return a reader of the Hub; the cache is that of the test."""
        return Hub(
            mode, endpoint=endpoint or self.server.hub, limits=limits or self.limits, cache=self.cache, token=token
        )

    def check(
        self, hub: Hub | None = None, drafter: str = b.DRAFTER, target: str | None = b.TARGET, **more: Any
    ) -> Report:
        """Check the pair over the network."""
        library = Library(hub=hub or self.hub(**more))
        repos = (b.DRAFTER, b.TARGET if target else "")
        report = api.report(api.examine(drafter, target, library, facts=b.FACTS, repos=repos), "a pair")
        self.found += report.findings
        return report

    def open(self, spec: str = b.DRAFTER, role: str = "", hub: Hub | None = None, **more: Any) -> Source | Finding:
        """Open one repo."""
        opened = open_model(spec, (), remote=hub or self.hub(**more), role=role)
        if isinstance(opened, Finding):
            self.found.append(opened)
        return opened

    def fails(self, spec: str = b.DRAFTER, role: str = "", hub: Hub | None = None, **more: Any) -> Finding:
        """Return why a repo could not be opened."""
        opened = self.open(spec, role, hub, **more)
        assert isinstance(opened, Finding), opened
        assert opened.level == "unknown", opened
        return opened

    def read(self, spec: str = b.DRAFTER, role: str = "", hub: Hub | None = None, **more: Any) -> list[Finding]:
        """Read config and tensor table of a repo whole; returns what was found."""
        opened = self.open(spec, role, hub, **more)
        if isinstance(opened, Finding):
            return [opened]
        checkpoint = Checkpoint(opened, role or "drafter")
        assert checkpoint.config is not None
        self.table: Table = checkpoint.table()
        self.found += checkpoint.findings
        return checkpoint.findings

    def one(self, code: str, found: list[Finding] | None = None) -> Finding:
        """Return the only finding of a code."""
        rows = [f for f in (self.found if found is None else found) if f.code == code]
        assert len(set(rows)) == 1, self.found if found is None else found
        return rows[0]

    @property
    def asked(self) -> list[str]:
        """Return the paths that were asked for."""
        return [seen.path for seen in self.server.log]


def files(folder: Path) -> dict[str, int]:
    """Return the files below a folder but outside its caches, with size; links are files."""
    out: dict[str, int] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [n for n in folders if n not in ("cache", "home")]
        out |= {os.path.join(root, n): os.lstat(os.path.join(root, n)).st_size for n in names}
    return out
