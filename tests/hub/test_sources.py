"""Which of the places that know a model is asked: each when it proves most, and no other then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, snapshot_download

import builder as b
from draftproof import hub as sources
from draftproof import refresh
from draftproof.findings import Finding
from draftproof.hub import Source
from hub import asking
from hub.asking import ask, opened, said
from hub.server import Server, calls, says, sent

OTHER = "f" * 40


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return a folder of contracts of one's own."""
    return tmp_path / "contracts"


def source(found: Source | Finding) -> Source:
    assert isinstance(found, Source), found
    return found


def finding(found: Source | Finding) -> Finding:
    assert isinstance(found, Finding), found
    return found


# --- the order


def test_local_folder_of_the_name_comes_first(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.both(loopback, tmp_path)
    asking.drafter(tmp_path / "here" / b.DRAFTER)
    monkeypatch.chdir(tmp_path / "here")
    assert source(opened(b.DRAFTER)).kind == "folder"
    assert loopback.requests == 0


def test_recorded_recording_at_the_commit_comes_before_every_other_place(
    loopback: Server, tmp_path: Path, own: Path
) -> None:
    commit, _ = asking.both(loopback, tmp_path)
    snapshot_download(b.DRAFTER, endpoint=loopback.hub)
    loopback.reset()
    asking.record(own, b.DRAFTER, commit, "recorded", b.dense_config(), b.dense())
    assert source(opened(f"{b.DRAFTER}@{commit}", own)).kind == "recording"
    assert loopback.requests == 0
    assert source(opened(f"{b.DRAFTER}@{commit}", own, "live")).kind == "folder"  # live: no recording serves


def test_snapshot_of_the_commit_in_the_cache_of_the_hub_comes_before_the_network(
    loopback: Server, tmp_path: Path
) -> None:
    commit, _ = asking.both(loopback, tmp_path)
    snapshot_download(b.DRAFTER, endpoint=loopback.hub)
    loopback.reset()
    found = source(opened(f"{b.DRAFTER}@{commit}"))
    assert (found.kind, found.revision, found.repo) == ("folder", commit, b.DRAFTER)
    report = ask("live", f"{b.DRAFTER}@{commit}", None)
    assert report.verdict == "pass", said(report)
    assert loopback.requests == 0


def test_snapshot_that_lacks_the_weights_does_not_stand_for_the_repo(loopback: Server, tmp_path: Path) -> None:
    commit, base = asking.both(loopback, tmp_path)
    hf_hub_download(b.DRAFTER, "config.json", endpoint=loopback.hub)  # as loading a config alone does
    for name in ("config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors"):
        hf_hub_download(b.TARGET, name, endpoint=loopback.hub)
    loopback.reset()
    whole = ask("live", f"{b.DRAFTER}@{commit}", f"{b.TARGET}@{base}")
    assert "CFG301" not in said(whole)
    assert "SRC120 unknown" not in said(whole)
    assert "IDX301" not in said(whole)
    assert [s.provenance for s in whole.sides] == ["read", "read"]
    assert loopback.requests > 0
    assert said(whole) == said(ask("live"))


def test_own_cache_comes_before_the_network(loopback: Server, tmp_path: Path) -> None:
    commit, base = asking.both(loopback, tmp_path)
    first = ask()
    loopback.reset()
    again = ask("live", f"{b.DRAFTER}@{commit}", f"{b.TARGET}@{base}")
    assert loopback.requests == 0
    assert said(first) == said(again)


@pytest.mark.parametrize("provenance", ["derived", "partial"])
@pytest.mark.parametrize("known", [True, False])
def test_recording_that_was_not_read_loses_to_a_hub_that_answers(
    loopback: Server, tmp_path: Path, own: Path, provenance: str, known: bool
) -> None:
    commit, _ = asking.both(loopback, tmp_path)
    asking.record(own, b.DRAFTER, commit if known else None, provenance, b.dense_config(), b.dense())
    specs = [b.DRAFTER] + ([f"{b.DRAFTER}@{commit}"] if known else [])
    assert {(s.kind, s.revision) for s in map(source, (opened(spec, own) for spec in specs))} == {("hub", commit)}


@pytest.mark.parametrize(
    "fault", [sent(hang=60), sent(drop=True), says(503), says(401, "RepoNotFound"), says(401, "GatedRepo")]
)
def test_recording_serves_with_a_note_where_no_hub_gives_it(
    loopback: Server, tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch, fault: dict[str, object]
) -> None:
    monkeypatch.setattr(sources, "PATIENCE", 0.4)
    asking.both(loopback, tmp_path)
    asking.record(own, b.DRAFTER, None, "derived", b.dense_config(), b.dense())
    loopback.rule(what=fault)
    start = time.monotonic()
    report = asking.ask("auto", b.DRAFTER, None, own)
    assert time.monotonic() - start < 1.5
    assert [s.provenance for s in report.sides] == ["derived"]
    notes = [f for f in report.findings if f.code.startswith("SRC10")]
    assert [f.level for f in notes] == ["info"]
    assert "the recording serves" in notes[0].message


def test_patience_is_three_seconds() -> None:
    assert sources.PATIENCE == 3.0


def test_hub_that_was_silent_once_is_not_waited_for_again(
    loopback: Server, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PATIENCE", 0.4)
    loopback.rule(what=sent(hang=60))
    for repo in (b.DRAFTER, b.TARGET, "org/third"):
        asking.record(own, repo, None, "derived", b.dense_config(), b.dense())
    one = asking.hub("auto")
    start = time.monotonic()
    for repo in (b.DRAFTER, b.TARGET, "org/third"):
        found = source(sources.open_model(repo, (own / "recordings",), None, one, "drafter"))
        assert found.kind == "recording"
        assert [note.subject for note in found.notes] == [repo]
    assert time.monotonic() - start < 1.0


@pytest.mark.parametrize(
    ("fault", "code"),
    [(sent(drop=True), "SRC107"), (says(401, "RepoNotFound"), "SRC101"), (None, "SRC106")],
)
def test_wrong_name_is_answered_with_the_name_that_is_recorded_or_cached(
    loopback: Server, tmp_path: Path, own: Path, fault: dict[str, object] | None, code: str
) -> None:
    asking.both(loopback, tmp_path)
    snapshot_download(b.TARGET, endpoint=loopback.hub)
    asking.record(own, b.DRAFTER, None, "derived", b.dense_config(), b.dense())
    loopback.rule(what=fault or sent(drop=True))
    mode = "auto" if fault else "offline"
    for meant in (b.DRAFTER, b.TARGET):
        wrong = meant[:-2] + meant[-1] + meant[-2]
        found = finding(opened(wrong, own, mode))
        assert (found.code, found.level) == (code, "unknown")
        assert f"did you mean {meant!r}?" in found.observed
        assert found.help.startswith("use the name proposed, if it is meant; else: ")
        asked = finding(refresh.opened(wrong, asking.library(own, mode)))  # to record it
        assert (asked.code, f"did you mean {meant!r}?" in asked.observed) == (code, True)
    strange = finding(opened("somebody/something-else-entirely", own, mode))
    assert "did you mean" not in strange.observed + strange.help


def test_name_that_is_recorded_is_not_taken_for_a_wrong_one(loopback: Server, own: Path) -> None:
    for name in (b.DRAFTER, f"{b.DRAFTER}-2"):
        asking.record(own, name, None, "derived", b.dense_config(), b.dense())
    loopback.rule(what=sent(drop=True))
    found = finding(opened(b.DRAFTER, own, "live"))
    assert found.code == "SRC107"
    assert "did you mean" not in found.observed + found.help


# --- modes


def test_recordings_alone_open_no_socket(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking.no_socket(monkeypatch)
    asking.record(own, b.DRAFTER, None, "derived", b.dense_config(), b.dense())
    assert source(opened(b.DRAFTER, own, "recordings")).kind == "recording"
    assert finding(opened("org/absent", own, "recordings")).code == "SRC112"
    assert asked == []


def test_live_takes_no_recording(loopback: Server, tmp_path: Path, own: Path) -> None:
    asking.record(own, b.DRAFTER, None, "derived", b.dense_config(), b.dense())
    assert finding(opened(b.DRAFTER, own, "live")).code == "SRC101"
    commit, _ = asking.both(loopback, tmp_path)
    assert source(opened(b.DRAFTER, own, "live")).revision == commit


@pytest.mark.parametrize("how", ["mode", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_opens_no_socket_and_serves_what_is_on_this_machine(
    loopback: Server, tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    commit, base = asking.both(loopback, tmp_path)
    online = ask()
    snapshot_download(b.DRAFTER, endpoint=loopback.hub, cache_dir=tmp_path / "elsewhere")
    asking.record(own, "org/recorded", None, "derived", b.dense_config(), b.dense())
    if how != "mode":
        monkeypatch.setenv(how, "1")
    mode = "offline" if how == "mode" else "auto"
    asked = asking.no_socket(monkeypatch)
    loopback.reset()
    for at in ("", f"@{commit}", "@main"):
        report = ask(mode, f"{b.DRAFTER}{at}", b.TARGET, own)
        assert said(report) == said(online)
        assert [s.revision for s in report.sides] == [commit, base]
    assert source(opened("org/recorded", own, mode)).kind == "recording"
    absent = finding(opened("org/absent", own, mode))
    assert (absent.code, absent.level) == ("SRC106", "unknown")
    assert "go online" in absent.help
    other = finding(opened(f"{b.DRAFTER}@{OTHER}", own, mode))
    assert other.level == "unknown"
    assert (asked, loopback.requests) == ([], 0)


def test_offline_serves_the_snapshot_that_the_hubs_own_client_took(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, _ = asking.both(loopback, tmp_path)
    snapshot_download(b.DRAFTER, endpoint=loopback.hub)
    asked = asking.no_socket(monkeypatch)
    for at in ("", "@main", f"@{commit}"):
        found = source(opened(f"{b.DRAFTER}{at}", mode="offline"))
        assert (found.kind, found.revision) == ("folder", commit)
    assert asked == []


def test_offline_a_snapshot_without_weights_decides_nothing(
    loopback: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.both(loopback, tmp_path)
    hf_hub_download(b.DRAFTER, "config.json", endpoint=loopback.hub)
    for name in ("config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors"):
        hf_hub_download(b.TARGET, name, endpoint=loopback.hub)
    asking.no_socket(monkeypatch)
    report = ask("offline", b.DRAFTER, None)
    assert report.verdict == "unknown"
    assert said(report)[0] == "SRC120 unknown"
    other = ask("offline", asking.drafter(tmp_path / "own").as_posix(), b.TARGET)
    assert other.verdict == "unknown"
    (found,) = (f for f in other.findings if f.code.startswith("SRC"))
    assert (found.code, found.observed) == ("SRC106", "offline, and the snapshot in the Hub's cache lacks 2 shards")


# --- revisions and addresses


def test_branch_tag_and_commit_are_read_at_their_commit(loopback: Server, tmp_path: Path) -> None:
    old, _ = asking.both(loopback, tmp_path)
    new = loopback.add(b.DRAFTER, asking.drafter(tmp_path / "new", rope_theta=1e4), "main", "feature", "v2.0")
    at = {"": new, "@main": new, "@feature": new, "@v2.0": new, f"@{new}": new, f"@{old}": old}
    for spec, commit in at.items():
        found = source(opened(b.DRAFTER + spec))
        assert found.revision == commit, spec
        assert found.label == f"{b.DRAFTER}@{commit[:7]}"
        config = found.take("config.json", 1 << 20)
        assert isinstance(config, bytes)
        assert (b'"rope_theta": 10000.0' in config) == (commit == new), spec


@pytest.mark.parametrize("at", ["v3", OTHER])
def test_revision_that_is_not_there_is_told(loopback: Server, tmp_path: Path, at: str) -> None:
    asking.both(loopback, tmp_path)
    found = finding(opened(f"{b.DRAFTER}@{at}"))
    assert (found.code, found.level) == ("SRC109", "unknown")
    assert at in found.subject


@pytest.mark.parametrize("role", ["drafter", "target"])
@pytest.mark.parametrize("skip", range(3))
def test_branch_that_moves_between_requests_is_read_at_one_commit(
    loopback: Server, tmp_path: Path, role: str, skip: int
) -> None:
    """The two versions are of different sizes, so that a mixture of them would not hold."""
    changed = {"hidden_size": 32}
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder, more in zip(folders, ({}, changed), strict=True):
        shape = (more.get("hidden_size", b.HIDDEN),)
        b.write(folder, b.dense_config(**more), {"norm.weight": ("BF16", shape), "other": ("BF16", shape)})
    commits = [loopback.add("org/moves", folders[0])]
    loopback.rule(what=calls(lambda: commits.append(loopback.add("org/moves", folders[1]))), times=1, skip=skip)
    found = source(opened("org/moves", role=role))
    assert len(commits) == 2
    assert found.revision in commits
    hidden = (b.HIDDEN, 32)[commits.index(found.revision)]
    config = found.take("config.json", 1 << 20)
    head = found.read("model.safetensors", 0, 300)
    assert isinstance(config, bytes)
    assert f'"hidden_size": {hidden},'.encode() in config
    assert f'"shape": [{hidden}]'.encode() in head


@pytest.mark.parametrize(
    "spec",
    [
        "hf://{repo}",
        "hf://{repo}@{commit}",
        "{hub}/{repo}",
        "{hub}/{repo}/tree/main",
        "{hub}/{repo}/tree/{commit}",
        "{hub}/{repo}/blob/main/config.json",
        "{hub}/{repo}/resolve/{commit}/model.safetensors",
        "https://huggingface.co/{repo}",
        "https://huggingface.co/{repo}/",
        "https://hf.co/{repo}/blob/{commit}/README.md",
    ],
)
def test_address_names_the_repo_at_the_endpoint(loopback: Server, tmp_path: Path, spec: str) -> None:
    commit, _ = asking.both(loopback, tmp_path)
    found = source(opened(spec.format(hub=loopback.hub, repo=b.DRAFTER, commit=commit)))
    assert (found.name, found.revision, found.kind) == (b.DRAFTER, commit, "hub")
    assert loopback.requests > 0


@pytest.mark.parametrize("spec", ["https://huggingface.co/datasets/org/name", "hf://datasets/org/name"])
def test_address_of_a_dataset_is_no_model(loopback: Server, spec: str) -> None:
    assert finding(opened(spec)).code == "SRC125"
    assert loopback.requests == 0
