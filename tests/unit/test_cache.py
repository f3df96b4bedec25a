"""The cache on disk: whole entries or none, no name of a server in a path, and no error where it cannot write."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from draftproof import cli
from draftproof.cache import MAGIC, Cache, default_folder


def entry(cache: Cache) -> Path:
    assert cache.folder is not None
    (path,) = (p for p in cache.folder.rglob("*") if p.is_file() and not p.name.endswith(".lock"))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "home" / "draftproof")


def test_what_was_put_is_got_under_its_key_alone(cache: Cache) -> None:
    cache.put(b"body\nmore", "file", "../../etc", "\0x")
    assert cache.get("file", "../../etc", "\0x") == b"body\nmore"
    assert cache.get("file", "../../etc") is None
    assert cache.get("file", "../../etc", "\0x", "") is None
    assert entry(cache).read_bytes().startswith(MAGIC)


def test_folder_is_for_its_owner_alone(cache: Cache) -> None:
    cache.put(b"x", "a")
    assert cache.folder is not None
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(cache).stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"x", MAGIC, MAGIC + b"0" * 64 + b"\nbody"])
def test_damaged_entry_is_as_if_it_were_not_there(cache: Cache, damage: bytes) -> None:
    cache.put(b"body", "a")
    entry(cache).write_bytes(damage)
    assert cache.get("a") is None
    cache.put(b"again", "a")
    assert cache.get("a") == b"again"


def test_link_in_place_of_an_entry_is_not_followed(cache: Cache, tmp_path: Path) -> None:
    cache.put(b"body", "a")
    path = entry(cache)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.get("a") is None


def test_disk_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "cache", None):
        cache = Cache(folder)
        cache.put(b"body", "a")
        with cache.lock("a"):
            assert cache.get("a") is None
        assert cache.usage()[1:] == (0, 0)


def test_usage_counts_and_prune_removes_what_is_old(cache: Cache) -> None:
    cache.put(b"old", "a")
    os.utime(entry(cache), (1000, 1000))
    cache.put(b"new", "b")
    assert cache.usage().entries == 2
    assert cache.prune(3600, time.time()).entries == 1
    assert (cache.get("a"), cache.get("b")) == (None, b"new")
    assert cache.prune(0, time.time() + 1).entries == 1
    assert cache.usage()[1:] == (0, 0)


def test_folder_stands_where_the_hub_client_keeps_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(key, raising=False)
    assert default_folder() == Path.home() / ".cache" / "huggingface" / "draftproof"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert default_folder() == tmp_path / "draftproof"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    assert default_folder() == tmp_path / "home" / "draftproof"


def test_command_shows_and_prunes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    Cache(default_folder()).put(b"body", "a")
    assert cli.main(["cache"]) == 0
    assert "holds    1 entries" in capsys.readouterr().out
    assert cli.main(["cache", "--prune"]) == 0
    out = capsys.readouterr().out
    assert "removed  1 entries" in out
    assert "holds    0 entries" in out
    with pytest.raises(SystemExit):
        cli.main(["cache", "--older", "3"])
