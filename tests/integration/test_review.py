"""The review of a new version, whole: a pair moves to a commit, its snapshot says what changed, an update accepts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import builder as b
from draftproof import cli

ROOT = Path(__file__).parents[2]
OLD, NEW = "0" * 39 + "1", "0123456789abcdef0123456789abcdef01234567"
PAIR = """schema = 1
kind = "pair"
id = "mine"
title = "ours"
drafter = { model = "org/drafter", revision = "%s" }  # the first
target = { model = "org/target", revision = "%s" }

[facts]
trained_on = { value = "org/target", source = "our run" }
aux_convention = { value = "boundary", source = "our run" }
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository of this layout with one pair, both sides recorded, its snapshot accepted."""
    for folder in ("families", "targets"):
        shutil.copytree(ROOT / "contracts" / folder, tmp_path / "contracts" / folder)
    (tmp_path / "contracts" / "pairs").mkdir()
    (tmp_path / "contracts" / "recordings").mkdir()
    (tmp_path / "contracts" / "pairs" / "mine.toml").write_text(PAIR % (OLD, OLD))
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_snapshot.py", tmp_path / "tests")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    for name, made in {"drafter": (b.dense_config(), b.dense()), "target": (b.target_config(), b.target())}.items():
        b.write(tmp_path / name, *made)
        file = f"contracts/recordings/org--{name}@{OLD[:8]}.json"
        assert cli.main(["record", name, "--as", f"org/{name}@{OLD}", "--output", file]) == 0
    code, out = snapshots(tmp_path, "--snapshot-update")
    assert code == 0, out
    return tmp_path


def snapshots(folder: Path, *words: str) -> tuple[int, str]:
    line = [sys.executable, "-m", "pytest", "-m", "snapshot", "-p", "no:cacheprovider", "-q", *words]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def held(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in (folder / "snapshots").rglob("*.json")}


def move(folder: Path, config: b.Config, table: b.Table) -> None:
    b.write(folder / "v2", config, table)
    assert cli.main(["record", "mine", "--drafter-revision", NEW, "--from", "v2"]) == 0


def test_new_version_fails_with_what_changed_and_is_accepted_by_an_update(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = b.dense_config(**{"eagle_config.eagle_aux_hidden_state_layer_ids": [2, 5, 7, 9]})
    move(tree, config, b.dense(style="bare", aux=4))
    said = capsys.readouterr().out
    before = held(tree)
    code, out = snapshots(tree)
    assert code == 1
    for line in ("drafter: fc reads 3 → 4 hidden states", "drafter: dialect midlayer → bare"):
        assert line in out
        assert line.removeprefix("drafter: ") in said
    assert "drafter: fc.weight [64, 192] → [64, 256]" in out
    assert "--snapshot-update" in out
    assert held(tree) == before
    assert snapshots(tree, "--snapshot-update")[0] == 0
    assert held(tree) != before


def test_new_commit_of_the_same_geometry_is_not_passed_over(tree: Path) -> None:
    move(tree, b.dense_config(), b.dense())
    code, out = snapshots(tree)
    assert code == 1
    assert f"drafter revision {OLD} → {NEW}" in out
    assert "drafter: " not in out


def test_version_with_a_failed_finding_is_not_accepted_by_an_update(tree: Path) -> None:
    move(tree, b.dense_config(max_position_embeddings=1024), b.dense())
    before = held(tree)
    code, out = snapshots(tree, "--snapshot-update")
    assert code == 1
    assert "does not accept this view" in out
    assert "PAIR403 context: expected at least 4096 tokens" in out
    assert held(tree) == before
    shutil.rmtree(tree / "snapshots")
    assert snapshots(tree, "--snapshot-update-new-only")[0] == 1
    assert not held(tree)
    pair = tree / "contracts" / "pairs" / "mine.toml"
    accepted = 'title = "ours"\nallow = [{ code = "PAIR403", because = "short prompts" }]'
    pair.write_text(pair.read_text().replace('title = "ours"', accepted))
    code, out = snapshots(tree, "--snapshot-update")
    assert code == 0, out
    assert held(tree)
