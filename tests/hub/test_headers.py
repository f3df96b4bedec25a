"""All headers of many shards: from one answer, or by ranges; the index is proved, or read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import builder as b
from draftproof import checkpoint
from draftproof.checkpoint import Checkpoint
from draftproof.findings import Finding
from draftproof.hub import Source, whole_set
from hub import repos
from hub.asking import opened
from hub.server import Server, calls, says, sent

TABLE = b.target() | {f"x{n}": ("BF16", (8,)) for n in range(30)}


def read(spec: str = b.TARGET, mode: str = "live") -> tuple[Checkpoint, Source]:
    source = opened(spec, mode=mode, role="target")
    assert isinstance(source, Source), source
    return Checkpoint(source, "target"), source


def table_of(checked: Checkpoint) -> b.Table:
    return {n: (t.dtype, t.shape) for n, t in checked.table().tensors.items()}


@pytest.fixture
def wide(loopback: Server, tmp_path: Path) -> Path:
    """Return the folder of a target of ten shards, which is on the Hub."""
    folder = b.write(tmp_path / "wide", b.target_config(), TABLE, shards=10)
    loopback.add(b.TARGET, folder)
    return folder


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every index for a large one."""
    monkeypatch.setattr(checkpoint, "LARGE", 1)


def index_of(folder: Path, loopback: Server, **changes: str | None) -> None:
    """Change what an index says, and commit that."""
    path = folder / "model.safetensors.index.json"
    data = json.loads(path.read_text())
    where = {**data["weight_map"], **changes}
    data["weight_map"] = {name: shard for name, shard in sorted(where.items()) if shard is not None}
    path.write_text(json.dumps(data, indent=2))
    loopback.repos.pop(b.TARGET)
    loopback.add(b.TARGET, folder)


def ranged(loopback: Server) -> int:
    return len([seen for seen in loopback.log if seen.side == "cdn"])


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("at_once", [True, False])
def test_index_that_its_digest_proves_is_not_read(loopback: Server, wide: Path, at_once: bool) -> None:
    loopback.rules.extend([] if at_once else [calls_off()])
    checked, source = read()
    assert table_of(checked) == TABLE
    assert checked.findings == []
    asked = [seen for seen in loopback.log if seen.path.endswith("index.json") and seen.side == "hub" and seen.sent]
    assert {seen.range for seen in asked if "safetensors-metadata" not in seen.path} == {"bytes=0-13999"}
    assert (ranged(loopback) > 0) is not at_once
    where = json.loads((wide / "model.safetensors.index.json").read_text())["weight_map"]
    assert dict(checked.table().files) == where
    source.reader.hub.taken()
    loopback.reset()
    again, _ = read(mode="offline")
    assert table_of(again) == TABLE
    assert again.findings == []
    assert loopback.requests == 0


def calls_off() -> object:
    """Return a rule by which the endpoint does not give all headers at once."""
    from hub.server import Rule

    return Rule("*/safetensors-metadata/*", **says(404, "", "no such route"))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"absent.one": "model-00001-of-00010.safetensors"}, "IDX301"),
        ({"x1": None}, "IDX302"),
        ({"x1": "model-00011-of-00010.safetensors"}, "IDX304"),
    ],
)
def test_index_that_says_anything_else_is_read_and_judged(
    loopback: Server, wide: Path, at_once: bool, changes: dict[str, str | None], code: str
) -> None:
    loopback.rules.extend([] if at_once else [calls_off()])
    index_of(wide, loopback, **changes)
    checked, _ = read()
    checked.table()
    assert code in {f.code for f in checked.findings if f.level == "error"}
    local = Checkpoint(opened(str(wide)), "target")  # type: ignore[arg-type]
    assert table_of(local) == table_of(checked)
    assert {(f.code, f.subject) for f in local.findings} == {(f.code, f.subject) for f in checked.findings}


@pytest.mark.usefixtures("large")
def test_wrong_total_of_a_proved_index_is_found(loopback: Server, wide: Path) -> None:
    path = wide / "model.safetensors.index.json"
    data = json.loads(path.read_text())
    data["metadata"]["total_size"] += 1
    path.write_text(json.dumps(data))
    loopback.repos.pop(b.TARGET)
    loopback.add(b.TARGET, wide)
    checked, _ = read()
    assert table_of(checked) == TABLE
    assert [f.code for f in checked.findings] == ["IDX305"]


@pytest.mark.parametrize("size", ["small", "large"])
def test_branch_that_moves_while_all_headers_come_is_read_by_ranges(
    loopback: Server, wide: Path, tmp_path: Path, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commit has files of the same sizes, so that only the branch tells."""
    monkeypatch.setattr(checkpoint, "LARGE", 1 if size == "large" else 1 << 30)
    other = TABLE | {"x1": ("F16", (8,)), "x2": ("F16", (8,))}
    folder = b.write(tmp_path / "other", b.target_config(), other, shards=10)
    first = loopback.repos[b.TARGET].commit("main")
    loopback.rule("*/safetensors-metadata/*", what=calls(lambda: loopback.add(b.TARGET, folder)), times=1)
    checked, source = read()
    assert table_of(checked) == TABLE
    assert source.revision == first
    assert checked.findings == []
    assert ranged(loopback) >= 10
    source.reader.hub.taken()
    later, source = read()
    assert source.revision != first
    assert table_of(later) == other


@pytest.mark.usefixtures("large")
def test_answer_that_is_cut_gives_what_came_and_the_rest_is_read_by_ranges(loopback: Server, wide: Path) -> None:
    loopback.gzip = False
    loopback.rule("*/safetensors-metadata/*", what=sent(cut=900))
    checked, _ = read()
    assert table_of(checked) == TABLE
    assert checked.findings == []
    assert 0 < ranged(loopback) < 10


def test_connection_serves_again_when_a_part_of_a_file_has_come(loopback: Server, wide: Path) -> None:
    """Config and first bytes of a file, one after the other, need no new connection."""
    _, source = read()
    loopback.connections = 0
    for n in range(1, 6):
        source.read(f"model-{n:05d}-of-00010.safetensors", 0, 8)
    assert len({seen.connection for seen in loopback.log}) <= 4
    assert loopback.connections <= 2


def test_whole_set_is_numbered_alone_and_complete() -> None:
    names = [f"model-{n:05d}-of-00003.safetensors" for n in (3, 1, 2)]
    assert whole_set(["config.json", *names]) == sorted(names)
    for more in ("model.safetensors", "consolidated.safetensors", "other-00001-of-00003.safetensors"):
        assert whole_set([*names, more]) == []
    assert whole_set(names[:2]) == []
    assert whole_set(["model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"]) == []
    assert whole_set(["model-00001-of-99999.safetensors"]) == []
    assert whole_set([]) == []


def test_budget_of_all_headers_is_one_answer_where_the_endpoint_gives_it(loopback: Server, kimi: Path) -> None:
    loopback.add(repos.K25, kimi / repos.K25)
    checked, source = read(repos.K25)
    assert len(checked.table().tensors) == 208_547
    assert checked.findings == []
    assert loopback.requests <= 9
    assert loopback.bytes <= 2_500_000
    source.reader.hub.taken()


def test_budget_of_all_headers_by_ranges_is_two_requests_a_shard_and_no_index(loopback: Server, kimi: Path) -> None:
    loopback.add(repos.K25, kimi / repos.K25, "fixed")
    loopback.add(repos.K25, kimi / repos.K25, "main", commit="1" * 40)
    checked, _ = read(f"{repos.K25}@{loopback.repos[repos.K25].commit('fixed')}")
    assert len(checked.table().tensors) == 208_547
    assert checked.findings == []
    assert loopback.requests <= 2 * 64 + 8
    assert loopback.bytes <= 34_000_000


def test_findings_of_what_cannot_be_read_are_told_once(loopback: Server, wide: Path) -> None:
    loopback.rule("*model-00004-of-00010*", what=says(404, "EntryNotFound", "gone"))
    loopback.rules.append(calls_off())  # type: ignore[arg-type]
    checked, _ = read()
    assert not checked.table().read
    told: list[Finding] = [f for f in checked.findings if f.level == "unknown"]
    assert len(told) == 1
