"""What was read once is not read again, moves nothing while it stands, and never stands in for what is not so."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import cache as caches
from draftproof.findings import Report
from hub import asking
from hub.asking import ask, said
from hub.server import Net, Server, calls, sent


def kept(tmp_path: Path) -> list[Path]:
    """Return the entries of the cache."""
    return [p for p in (tmp_path / "home" / "draftproof").rglob("*") if p.is_file() and p.suffix != ".lock"]


def content(report: Report) -> Any:
    """Return what a report says of the models, without what was moved for it."""
    data = report.to_dict()
    return {k: v for k, v in data.items() if k not in ("read", "bytes_read", "requests", "cached")}


# --- warm runs


@pytest.mark.parametrize("role", ["drafter", "target"])
def test_second_run_on_a_branch_takes_one_request_each_and_none_when_pinned(
    loopback: Server, tmp_path: Path, role: str
) -> None:
    asking.both(loopback, tmp_path)
    own = asking.drafter(tmp_path / "own").as_posix()
    drafter, target = (b.DRAFTER, None) if role == "drafter" else (own, b.TARGET)
    first = ask("live", drafter, target)
    loopback.reset()
    second = ask("live", drafter, target)
    assert [(s.method, s.status) for s in loopback.log] == [("HEAD", 307)]
    assert content(second) == content(first)
    commit = loopback.repos[b.DRAFTER if role == "drafter" else b.TARGET].commit("main")
    loopback.reset()
    pinned = ask("live", *((f"{drafter}@{commit}", None) if role == "drafter" else (own, f"{target}@{commit}")))
    assert loopback.requests == 0
    assert said(pinned) == said(first)
    assert pinned.requests == 0
    assert pinned.cached > 0


def test_report_says_what_was_moved_as_the_server_counts_it(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    report = ask()
    assert report.requests == loopback.requests
    assert report.bytes_read == loopback.bytes
    assert report.cached == 0


def test_branch_that_moved_is_read_anew_and_only_what_changed_moves(loopback: Server, tmp_path: Path) -> None:
    own = asking.drafter(tmp_path / "own").as_posix()
    old = asking.target(tmp_path / "old", shards=3)
    loopback.add(b.TARGET, old)
    ask("live", own, b.TARGET)
    new = tmp_path / "new"
    new.mkdir()
    for path in old.iterdir():
        (new / path.name).write_bytes(path.read_bytes())
    (new / "config.json").write_text(json.dumps(b.target_config(rope_theta=1e4)))
    commit = loopback.add(b.TARGET, new)
    loopback.reset()
    report = ask("live", own, b.TARGET)
    assert [s.revision for s in report.sides] == [None, commit]
    assert "PAIR411 info" in said(report)  # the new config was read
    assert [s for s in loopback.log if s.side == "cdn" or "safetensors" in s.path] == []


def test_header_that_changed_is_not_taken_from_the_cache(loopback: Server, tmp_path: Path) -> None:
    own = asking.drafter(tmp_path / "own").as_posix()
    loopback.add(b.TARGET, asking.target(tmp_path / "old"))
    good = ask("live", own, b.TARGET)
    table = b.target() | {"model.norm.weight": ("BF16", (32,))}
    loopback.add(b.TARGET, b.write(tmp_path / "new", b.target_config(), table, shards=3))
    bad = ask("live", own, b.TARGET)
    assert good.verdict == "pass", said(good)
    assert bad.verdict == "fail"
    assert any(f.code.startswith("TEN4") for f in bad.findings if f.level == "error")


def test_repo_of_another_endpoint_is_another_repo(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, _ = asking.both(loopback, tmp_path)
    ask("live", b.DRAFTER, None)
    with Server() as mirror:
        mirror.add(b.DRAFTER, asking.drafter(tmp_path / "other", hidden=32), commit=commit)
        monkeypatch.setenv("HF_ENDPOINT", mirror.hub)
        report = ask("live", f"{b.DRAFTER}@{commit}", None)
        assert mirror.requests > 0
        assert report.verdict == "fail"


def test_commit_that_asks_for_more_tensors_than_before_reads_them(loopback: Server, tmp_path: Path) -> None:
    """The drafter borrows the target's embedding in one question, and embedding and head in the other."""
    own = asking.drafter(tmp_path / "own").as_posix()
    table = b.dense()
    table.pop("lm_head.weight")
    _, commit = asking.both(loopback, tmp_path)
    ask("live", own, f"{b.TARGET}@{commit}")
    bare = b.write(tmp_path / "bare", b.dense_config(draft_vocab_size=b.ABSENT), {
        n: row for n, row in table.items() if n not in ("d2t", "t2d")
    })  # fmt: skip
    warm = ask("live", bare.as_posix(), f"{b.TARGET}@{commit}")
    os.rename(tmp_path / "home", tmp_path / "away")
    assert said(ask("live", bare.as_posix(), f"{b.TARGET}@{commit}")) == said(warm)


# --- damage


@pytest.mark.parametrize(
    "damage", ["emptied", "cut", "other bytes", "another entry's", "foreign", "a folder", "a link"]
)
def test_damaged_entry_costs_a_read_and_changes_no_answer(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    commit, base = asking.both(loopback, tmp_path)
    first = ask()
    entries = kept(tmp_path)
    assert len(entries) > 5
    raw = {path: path.read_bytes() for path in entries}
    for n, path in enumerate(entries):
        if damage == "emptied":
            path.write_bytes(b"")
        elif damage == "cut":
            path.write_bytes(raw[path][:-1])
        elif damage == "other bytes":
            path.write_bytes(raw[path].replace(b"org/", b"orX/").replace(b"0", b"1"))
        elif damage == "another entry's":
            path.write_bytes(raw[entries[n - 1]])
        elif damage == "a folder":
            path.unlink()
            path.mkdir()
        elif damage == "a link":
            path.rename(tmp_path / f"away-{n}")
            path.symlink_to(tmp_path / f"away-{n}")
    if damage == "foreign":
        monkeypatch.setattr(caches, "_ours", lambda info: False)
    loopback.reset()
    again = ask("live", f"{b.DRAFTER}@{commit}", f"{b.TARGET}@{base}")
    assert said(again) == said(first)
    assert again.verdict == first.verdict
    assert loopback.requests > 0


@pytest.mark.parametrize("fault", [errno.EROFS, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("call", ["mkdir", "mkstemp", "replace"])
def test_disk_that_cannot_be_written_costs_the_cache_alone(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, fault: int
) -> None:
    def fails(*args: Any, **more: Any) -> Any:
        raise OSError(fault, os.strerror(fault))

    asking.both(loopback, tmp_path)
    place = {"mkdir": (Path, "mkdir"), "mkstemp": (caches.tempfile, "mkstemp"), "replace": (caches.os, "replace")}
    with monkeypatch.context() as patch:
        patch.setattr(*place[call], fails)
        reports = [ask(), ask()]
        assert kept(tmp_path) == []
    assert [r.verdict for r in reports] == ["pass", "pass"]
    assert [s.provenance for s in reports[0].sides] == ["read", "read"]
    assert min(r.requests for r in reports) > 4


def test_home_that_is_a_file_is_survived(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    (tmp_path / "home").write_text("")
    assert ask().verdict == "pass"


def test_nothing_is_written_outside_the_cache(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    ask()
    made = {p for p in tmp_path.rglob("*") if p.is_file()} - before
    assert made
    assert {p.relative_to(tmp_path).parts[:2] for p in made} == {("home", "draftproof")}


# --- two at once


RUN = "import sys; from draftproof.cli import main; sys.exit(main())"


def test_two_processes_fetch_once(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    loopback.net = Net(latency=0.03)
    words = [sys.executable, "-c", RUN, "check", "--hub", "live", "--drafter", b.DRAFTER, "--target", b.TARGET]
    runs = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path) for _ in range(2)]
    texts = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [4, 4], texts
    heads = [s.path for s in loopback.log if s.side == "cdn"]
    assert len(heads) == len(set(heads)) == 4, texts
    assert len([s for s in loopback.log if s.method == "GET" and s.path.endswith("config.json")]) == 4, texts


def test_process_that_dies_while_it_holds_the_lock_holds_up_no_other(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    loopback.rule("*", what=sent(hang=60), times=2)
    words = [sys.executable, "-c", RUN, "check", "--hub", "live", "--drafter", b.DRAFTER]
    stuck = subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=tmp_path)
    until = time.monotonic() + 30.0
    while loopback.requests < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert loopback.requests == 2
    stuck.kill()
    stuck.wait()
    assert ask("live", b.DRAFTER, None).verdict == "pass"


def test_branch_that_moves_while_a_warm_run_asks_is_read_at_one_commit(loopback: Server, tmp_path: Path) -> None:
    asking.both(loopback, tmp_path)
    first = ask()
    new = asking.drafter(tmp_path / "new", rope_theta=1e4)
    moved: list[str] = []
    loopback.rule("*config.json", what=calls(lambda: moved.append(loopback.add(b.DRAFTER, new))), times=1)
    second = ask()
    assert second.sides[0].revision == moved[0] != first.sides[0].revision
