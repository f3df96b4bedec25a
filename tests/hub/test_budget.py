"""What a read of the founding case may cost, at its real scale: counted, so that no clock decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import builder as b
from draftproof.checkpoint import Checkpoint
from draftproof.dims import Known
from draftproof.hub import Source
from hub import repos
from hub.asking import ask, opened
from hub.server import Server

# A process of its own: what it asks is given as words, its imports are done before the memory is looked at.
MEASURE = """
import json, sys
import filelock, huggingface_hub.constants
from huggingface_hub.utils import get_session, get_token
from draftproof import api, cli, remote, render, testing  # what a check imports, before it
from draftproof.library import Library

def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) * 1024

get_session()
api.check_models(sys.argv[1], None, Library(hub=api.Connection("live")))
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = status("VmRSS")
report = api.check_models(sys.argv[1], sys.argv[2], Library(hub=api.Connection("live")))
print(json.dumps([status("VmHWM") - before, report.requests, [s.tensors for s in report.sides], report.verdict]))
"""


@pytest.fixture
def scaled(loopback: Server, kimi: Path) -> Server:
    """Return a Hub with the drafter and the target of the founding case."""
    loopback.add(repos.DRAFTER, kimi / repos.DRAFTER)
    loopback.add(repos.K25, kimi / repos.K25)
    return loopback


def test_budget_of_a_cold_drafter_is_four_requests_and_20_kilobytes(scaled: Server) -> None:
    source = opened(repos.DRAFTER, mode="live")
    assert isinstance(source, Source)
    read = Checkpoint(source, "drafter")
    assert len(read.table().tensors) == 15
    assert read.config("hidden_size") == Known(7168, "drafter config.json: hidden_size", "hidden_size")
    assert scaled.requests <= 4
    assert scaled.bytes <= 20_000


def test_budget_of_a_cold_target_of_a_trillion_parameters_is_sixteen_requests_and_a_megabyte(
    scaled: Server, kimi: Path
) -> None:
    report = ask("live", str(kimi / repos.DRAFTER), repos.K25)
    assert [s.provenance for s in report.sides] == ["read", "read"]
    assert {f.code for f in report.findings if f.level == "pass"} >= {"PAIR401", "PAIR402"}
    assert scaled.requests <= 16
    assert scaled.bytes <= 1_000_000
    assert not [s for s in scaled.log if s.path.endswith("index.json")]


def test_budget_of_a_warm_pair_is_one_request_for_each_branch_and_none_for_a_commit(scaled: Server) -> None:
    first = ask("live", repos.DRAFTER, repos.K25)
    scaled.reset()
    second = ask("live", repos.DRAFTER, repos.K25)
    assert [(s.method, s.sent) for s in scaled.log] == [("HEAD", 0)] * 2
    commits = [scaled.repos[name].commit("main") for name in (repos.DRAFTER, repos.K25)]
    scaled.reset()
    pinned = ask("live", *(f"{n}@{c}" for n, c in zip((repos.DRAFTER, repos.K25), commits, strict=True)))
    assert scaled.requests == 0
    assert first.counts == second.counts == pinned.counts


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak of memory is told by Linux alone")
def test_budget_of_memory_is_40_megabytes_for_a_target_of_a_trillion_parameters(scaled: Server, tmp_path: Path) -> None:
    words = [sys.executable, "-c", MEASURE, repos.DRAFTER, repos.K25]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True)
    growth, requests, _, _ = json.loads(done.stdout)
    assert 0 < requests <= 17
    assert growth <= 40 << 20


def test_budget_of_a_tensor_that_is_not_there_is_the_index_once(loopback: Server, tmp_path: Path) -> None:
    """Only that something is missing needs the index."""
    table = b.changed(b.target(), {"model.norm.weight": None}) | {f"x{n}": ("BF16", (8,)) for n in range(8)}
    loopback.add(b.TARGET, b.write(tmp_path / "repo", b.target_config(), table, shards=6))
    drafter = b.write(tmp_path / "own", b.dense_config(), b.dense())
    ask("live", str(drafter), b.TARGET)
    assert len([s for s in loopback.log if s.path.endswith("index.json") and s.status == 200]) == 1
    assert loopback.requests <= 24


def test_repo_of_the_budget_is_of_the_size_of_the_real_one(kimi: Path) -> None:
    folder = kimi / repos.K25
    index = json.loads((folder / "model.safetensors.index.json").read_bytes())
    assert len(index["weight_map"]) == 208_547
    files = list(folder.glob("*.safetensors"))
    assert len(files) == 64
    assert round(sum(p.stat().st_size for p in files) / 1e9) == 595
    assert sum(p.stat().st_blocks * 512 for p in files) < 50e6  # on this disk
