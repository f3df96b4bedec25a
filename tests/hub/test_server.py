"""The loopback Hub is what huggingface_hub's own client takes for the Hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfApi, errors, hf_hub_download, snapshot_download
from huggingface_hub.utils import get_session

import builder as b
from hub.server import WAN, Net, Server, body, calls, halved, page, redirects, says, sent, with_headers

REPO = "org/name"


@pytest.fixture
def folder(loopback: Server, tmp_path: Path) -> Path:
    """Write a small drafter in two shards, and give it to the Hub."""
    made = b.write(tmp_path / "repo", b.dense_config(), b.dense(), shards=2)
    loopback.add(REPO, made)
    return made


@pytest.fixture
def api(loopback: Server) -> HfApi:
    return HfApi(endpoint=loopback.hub)


def test_download_of_a_config_is_its_bytes_and_fills_the_cache_as_from_the_hub(
    loopback: Server, folder: Path, tmp_path: Path
) -> None:
    commit = loopback.repos[REPO].commit("main")
    cache = tmp_path / "cache"
    got = Path(hf_hub_download(REPO, "config.json", endpoint=loopback.hub, cache_dir=cache))
    assert got.read_bytes() == (folder / "config.json").read_bytes()
    assert got.parent == cache / "models--org--name" / "snapshots" / commit
    assert (cache / "models--org--name" / "refs" / "main").read_text() == commit
    assert got.resolve().name == loopback.told(folder / "config.json")[0]
    loopback.reset()
    hf_hub_download(REPO, "config.json", endpoint=loopback.hub, cache_dir=cache)
    assert [(s.method, s.status) for s in loopback.log] == [("HEAD", 307), ("HEAD", 200)]
    loopback.reset()
    hf_hub_download(REPO, "config.json", endpoint=loopback.hub, cache_dir=cache, revision=commit)
    assert loopback.requests == 0


def test_download_of_weights_leads_to_the_other_origin_and_no_token_goes_there(
    loopback: Server, folder: Path, tmp_path: Path
) -> None:
    loopback.tokens = {"hf_secret"}
    name = "model-00001-of-00002.safetensors"
    got = hf_hub_download(REPO, name, endpoint=loopback.hub, cache_dir=tmp_path / "cache", token="hf_secret")
    assert Path(got).read_bytes() == (folder / name).read_bytes()
    assert {(s.side, s.token) for s in loopback.log} == {("hub", "hf_secret"), ("cdn", "")}
    assert [(s.side, s.method, s.status) for s in loopback.log] == [("hub", "HEAD", 302), ("cdn", "GET", 200)]


def test_snapshot_has_every_file_of_one_commit(loopback: Server, folder: Path, tmp_path: Path) -> None:
    got = Path(snapshot_download(REPO, endpoint=loopback.hub, cache_dir=tmp_path / "cache"))
    assert got.name == loopback.repos[REPO].commit("main")
    assert {p.name: p.read_bytes() for p in got.iterdir()} == {p.name: p.read_bytes() for p in folder.iterdir()}


def test_model_info_tells_commit_files_sizes_and_digests(loopback: Server, folder: Path, api: HfApi) -> None:
    info = api.model_info(REPO, files_metadata=True, securityStatus=True)
    assert info.sha == loopback.repos[REPO].commit("main")
    assert {s.rfilename: s.size for s in info.siblings or ()} == {p.name: p.stat().st_size for p in folder.iterdir()}
    lfs = {s.rfilename: s.lfs.sha256 for s in info.siblings or () if s.lfs}
    assert lfs == {p.name: loopback.told(p)[0] for p in folder.glob("*.safetensors")}
    assert (info.gated, info.private) == (False, False)
    expanded = api.model_info(REPO, expand=["sha", "siblings", "config"])
    assert (expanded.sha, expanded.config) == (info.sha, json.loads((folder / "config.json").read_bytes()))


def test_headers_are_what_the_files_hold_by_all_three_calls(loopback: Server, folder: Path, api: HfApi) -> None:
    table = {name: (dtype, list(shape)) for name, (dtype, shape) in b.dense().items()}
    ranged = api.get_safetensors_metadata(REPO)
    assert set(ranged.weight_map) == set(table)
    for name, shard in ranged.weight_map.items():
        one = ranged.files_metadata[shard].tensors[name]
        assert (one.dtype, one.shape) == table[name]
    loopback.reset()
    at_once = api.get_sharded_safetensors_metadata(REPO)
    assert loopback.requests == 1
    assert at_once.files_metadata == ranged.files_metadata
    name = "model-00002-of-00002.safetensors"
    assert api.parse_safetensors_file_metadata(REPO, name) == ranged.files_metadata[name]


def test_listing_of_many_files_comes_in_pages(loopback: Server, folder: Path, api: HfApi) -> None:
    loopback.page = 3
    rows = list(api.list_repo_tree(REPO))
    assert sorted(row.path for row in rows) == sorted(p.name for p in folder.iterdir())
    assert loopback.requests == 2
    asked = api.get_paths_info(REPO, ["config.json", "absent"])
    assert [(row.path, row.blob_id) for row in asked] == [("config.json", loopback.told(folder / "config.json")[0])]


def test_branch_tag_and_commit_are_revisions_and_another_is_not(
    loopback: Server, folder: Path, api: HfApi, tmp_path: Path
) -> None:
    old = loopback.repos[REPO].commit("main")
    new = loopback.add(REPO, b.write(tmp_path / "next", b.dense_config(), b.dense()), "main", "v2", "feature/x")
    assert [api.model_info(REPO, revision=r).sha for r in ("main", "v2", "feature/x", new, old)] == [new] * 4 + [old]
    with pytest.raises(errors.RevisionNotFoundError):
        api.model_info(REPO, revision="v3")
    with pytest.raises(errors.RevisionNotFoundError):
        hf_hub_download(REPO, "config.json", revision="v3", endpoint=loopback.hub, cache_dir=tmp_path / "cache")
    at_old = hf_hub_download(REPO, "config.json", revision=old, endpoint=loopback.hub, cache_dir=tmp_path / "cache")
    assert Path(at_old).parent.name == old


def fetch(loopback: Server, tmp_path: Path, name: str = REPO, file: str = "config.json", **more: object) -> str:
    return hf_hub_download(name, file, endpoint=loopback.hub, cache_dir=tmp_path / "cache", **more)  # type: ignore


def test_missing_file_missing_repo_gated_and_private_are_the_clients_own_errors(
    loopback: Server, folder: Path, api: HfApi, tmp_path: Path
) -> None:
    loopback.tokens = {"hf_reader", "hf_other"}
    with pytest.raises(errors.RemoteEntryNotFoundError):
        fetch(loopback, tmp_path, file="absent.json")
    for token in (False, "hf_other"):
        with pytest.raises(errors.RepositoryNotFoundError):
            api.model_info("org/absent", token=token)
    one = loopback.repos[REPO]
    one.access, one.readers = "gated", {"hf_reader"}
    for token, status in ((False, 401), ("hf_other", 403)):
        with pytest.raises(errors.GatedRepoError) as caught:
            fetch(loopback, tmp_path, token=token)
        assert caught.value.response.status_code == status
        assert api.model_info(REPO, token=token).gated == "manual"  # that it is there may be seen
    one.access = "private"
    for token in (False, "hf_other"):
        with pytest.raises(errors.RepositoryNotFoundError):
            fetch(loopback, tmp_path, token=token)
    with pytest.raises(errors.HfHubHTTPError) as refused:
        api.model_info(REPO, token="hf_expired")
    assert refused.value.response.status_code == 401
    assert fetch(loopback, tmp_path, token="hf_reader")


def test_range_is_kept_but_not_of_a_compressed_answer(loopback: Server, folder: Path) -> None:
    raw = (folder / "config.json").read_bytes().ljust(2000)
    (folder / "config.json").write_bytes(raw)

    def get(encoding: str, name: str = "config.json", span: str = "bytes=10-19") -> tuple[int, bytes, str]:
        headers = {"range": span, "accept-encoding": encoding}
        got = get_session().get(f"{loopback.hub}/{REPO}/resolve/main/{name}", headers=headers)
        return got.status_code, got.content, got.headers.get("content-range", "")

    assert get("identity") == (206, raw[10:20], "bytes 10-19/2000")
    assert get("gzip") == (200, raw, "")
    name = "model-00001-of-00002.safetensors"
    weights = (folder / name).read_bytes()
    assert get("gzip", name)[:2] == (206, weights[10:20])
    assert get("identity", name, "bytes=-5")[:2] == (206, weights[-5:])
    assert get("identity", name, f"bytes={len(weights)}-")[0] == 416
    assert get("identity", name, "bytes=0-4,9-12")[0] == 200


FAULTS = {  # what is done to a header read -> what huggingface_hub raises
    "an error of the server": (says(503), "HfHubHTTPError"),
    "too many requests": (says(429, Retry_After="1"), "HfHubHTTPError"),
    "a web page": (page(), "SafetensorsParsingError"),
    "other bytes": (body(b"\1\0\0\0\0\0\0\0{"), "SafetensorsParsingError"),
    "a redirect to itself": (redirects(), "TooManyRedirects"),
    "half of the bytes": (halved(), "RemoteProtocolError"),
    "no answer": (sent(drop=True), "RemoteProtocolError"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_one_for_the_clients_header_read_for_as_long_as_the_rule_stands(
    loopback: Server, folder: Path, api: HfApi, fault: str
) -> None:
    what, error = FAULTS[fault]
    name = "model-00001-of-00002.safetensors"
    loopback.rule(f"*{name}", what=what)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (of several libraries)
        api.parse_safetensors_file_metadata(REPO, name)
    assert type(caught.value).__name__ == error
    loopback.rules.clear()
    assert api.parse_safetensors_file_metadata(REPO, name).tensors


def test_rule_may_skip_requests_name_a_side_and_act_between_them(
    loopback: Server, folder: Path, tmp_path: Path
) -> None:
    moved = b.write(tmp_path / "next", b.dense_config(), b.dense())
    loopback.rule("*config.json", what=calls(lambda: loopback.add(REPO, moved)), times=1, skip=1)
    loopback.rule("*", what=with_headers(X_Repo_Commit=None, ETag='"other"'), side="hub", method="GET")
    old = loopback.repos[REPO].commit("main")
    first, second, third = (
        get_session().head(f"{loopback.hub}/{REPO}/resolve/main/config.json").headers["x-repo-commit"] for _ in range(3)
    )
    assert first == old != second == third
    got = get_session().get(f"{loopback.hub}/{REPO}/resolve/main/config.json", follow_redirects=False)
    assert "x-repo-commit" not in got.headers
    assert got.headers["etag"] == '"other"'


def test_counts_are_exact(loopback: Server, folder: Path) -> None:
    size = (folder / "config.json").stat().st_size
    got = get_session().get(f"{loopback.hub}/{REPO}/resolve/main/config.json", headers={"accept-encoding": "identity"})
    assert len(got.content) == size
    hop = len(b"Temporary Redirect.")
    assert (loopback.requests, loopback.bytes, loopback.connections) == (2, size + hop, 1)
    assert [s.sent for s in loopback.log] == [hop, size]


def test_network_takes_its_time(online: Callable[[str], None], tmp_path: Path) -> None:
    import time

    made = b.write(tmp_path / "root" / REPO, {"text": "x" * 100_000}, None)
    with Server(tmp_path / "root", Net(latency=0.02)) as server:
        client = get_session()
        start = time.monotonic()
        client.get(f"{server.hub}/{REPO}/resolve/main/config.json")
        assert 0.04 <= time.monotonic() - start < 0.5
        server.net, server.gzip = WAN, False
        start = time.monotonic()
        got = client.get(
            f"{server.hub}/api/resolve-cache/models/{REPO}/{server.repos[REPO].commit('main')}/config.json"
        )
        # 40 ms to ask; 14,600, then 29,200 and 58,400 bytes: two more round trips; it is the connection of before
        assert 0.12 <= time.monotonic() - start < 0.6
        assert got.content == (made / "config.json").read_bytes()
