"""record REPO: what the Hub says of a repo at a commit is kept, whole or not at all; --all refreshes what pairs use."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import cli
from draftproof.hub import Source, read_recording
from draftproof.transport import Limits
from hub.server import Server, calls, halved, ignores_range, page, says, with_headers

DRAFTER, TARGET = "org/drafter", "org/target"
PAIR = """schema = 1
kind = "pair"
id = "{id}"
title = "t"
{more}drafter = {{ model = "org/drafter"{drafter} }}
target = {{ model = "org/target"{target} }}

[facts]
trained_on = {{ value = "org/target", source = "its card" }}
aux_convention = {{ value = "boundary", source = "its card" }}
meanings.norm_output = {{ value = "recycles-the-normed-state", source = "its card" }}
"""


class Here:
    """Hold a repository of contracts beside a Hub of its own."""

    def __init__(self, root: Path, hub: Server, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.hub, self.capsys = root, hub, capsys
        self.commits: dict[str, str] = {}
        self.out = self.err = ""
        (root / "contracts" / "pairs").mkdir(parents=True)
        (root / "contracts" / "recordings").mkdir()

    def publish(self, repo: str, config: b.Config, tensors: b.Table, *refs: str, **how: Any) -> str:
        """Publish a version of a repo; returns its commit."""
        folder = b.write(self.root / "published" / f"{repo}-{len(self.commits)}", config, tensors, **how)
        self.commits[repo] = commit = self.hub.add(repo, folder, *refs)
        return commit

    def pair(self, id: str = "mine", more: str = "", **pins: str) -> None:
        pins = {role: f', revision = "{pins[role]}"' if pins.get(role) else "" for role in ("drafter", "target")}
        (self.root / "contracts/pairs" / f"{id}.toml").write_text(PAIR.format(id=id, more=more, **pins))

    def run(self, *words: str) -> int:
        self.capsys.readouterr()
        try:
            code = cli.main(list(words))
        except SystemExit as stop:
            code = int(stop.code or 0)
        told = self.capsys.readouterr()
        self.out, self.err = told.out, told.err
        return code

    def json(self, *words: str) -> Any:
        self.code = self.run(*words, "--format", "json")
        return json.loads(self.out)

    def recorded(self, repo: str, commit: str = "") -> dict[str, Any]:
        """Return a recording, which is also readable as one."""
        path = self.file(repo, commit or self.commits[repo])
        assert isinstance(read_recording(path), Source)
        data: dict[str, Any] = json.loads(path.read_text())
        return data

    def file(self, repo: str, commit: str) -> Path:
        return self.root / "contracts/recordings" / f"{repo.replace('/', '--')}@{commit[:8]}.json"

    def files(self) -> list[str]:
        return sorted(p.name for p in (self.root / "contracts/recordings").iterdir())

    def old(self, repo: str, commit: str | None = None, provenance: str = "partial", **config: Any) -> str:
        """Write a recording as it stood before."""
        data = {
            "schema": 1, "repo": repo, "revision": commit, "provenance": provenance, "normalised": False,
            "read": {"date": "2026-01-01", "source": "its card"}, "unknown": [], "respelled": [],
            "config": config, "tensors": None, "files": None,
        }  # fmt: skip
        name = f"{repo.replace('/', '--')}@{commit[:8] if commit else 'unknown'}.json"
        (self.root / "contracts/recordings" / name).write_text(json.dumps(data))
        return name


@pytest.fixture
def here(tmp_path: Path, loopback: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    root = tmp_path / "work"
    root.mkdir()
    monkeypatch.chdir(root)
    out = Here(root, loopback, capsys)
    out.publish(DRAFTER, b.dense_config(), b.dense())
    out.publish(TARGET, b.target_config(), b.target(), shards=3)
    return out


# --- one repo -----------------------------------------------------------------------------------------------------


def test_recording_of_a_repo_is_that_of_its_folder_but_for_where_it_was_read(here: Here) -> None:
    for repo in (DRAFTER, TARGET):
        commit = here.commits[repo]
        folder = here.hub.repos[repo].commits[commit]
        assert here.run("record", str(folder), "--as", f"{repo}@{commit}", "--output", "local.json") == 0
        assert here.run("record", repo) == 0
        local, own = json.loads(Path("local.json").read_text()), here.recorded(repo)
        read = own.pop("read")
        assert read.pop("date") == local["read"]["date"]
        assert read == {"source": f"the Hub at {here.hub.hub.removeprefix('http://')}"}
        assert own == {key: value for key, value in local.items() if key != "read"}
        assert own["revision"] == commit
        weights = [row for name, row in own["files"].items() if name.endswith(".safetensors")]
        assert all(row["size"] > 0 and len(row["header_sha256"]) == 64 for row in weights)


def test_branch_is_resolved_to_its_commit_and_said(here: Here) -> None:
    one = here.commits[DRAFTER]
    two = here.publish(DRAFTER, b.dense_config(max_position_embeddings=8192), b.dense(), "next")
    assert here.run("record", f"{DRAFTER}@next", f"{DRAFTER}@{one}") == 0
    assert here.recorded(DRAFTER, two)["config"]["max_position_embeddings"] == 8192
    assert here.recorded(DRAFTER, one)["config"]["max_position_embeddings"] == 4096
    assert f"{DRAFTER}@{two[:7]} recorded in contracts/recordings/" in here.out
    assert "\n2 recorded\n" in here.out
    assert "bytes in" in here.out.splitlines()[-1]


def test_recording_of_the_hub_decides_tensor_rules_without_a_network(here: Here) -> None:
    here.old(DRAFTER, **b.dense_config())
    here.old(TARGET, **b.target_config())
    here.pair()
    assert here.run("check", "mine", "--hub", "recordings") == 4
    assert "TEN400" in here.out
    assert here.run("record", DRAFTER, TARGET) == 0
    here.hub.reset()
    assert here.run("check", "mine", "--hub", "recordings") == 0
    assert "TEN400" not in here.out
    assert here.hub.requests == 0
    wrong = b.changed(b.dense(), {"fc.weight": ("BF16", (64, 256))})
    here.publish(DRAFTER, b.dense_config(), wrong)
    assert here.run("record", DRAFTER) == 0
    here.pair(drafter=here.commits[DRAFTER])
    assert here.run("check", "mine", "--hub", "recordings") == 1
    assert "TEN403" in here.out


def test_of_a_target_only_what_contracts_name_is_kept_and_all_is_counted(here: Here) -> None:
    assert here.run("record", TARGET) == 0
    tensors = here.recorded(TARGET)["tensors"]
    assert {n for n in tensors["named"] if ".layers." not in n} == {n for n in b.target() if ".layers." not in n}
    assert "model.layers.0.mlp.gate_proj.weight" in b.target()
    assert "model.layers.0.mlp.gate_proj.weight" not in tensors["named"]
    assert (tensors["count"], tensors["complete"]) == (len(b.target()), False)


def test_values_are_not_fetched(here: Here) -> None:
    big = b.changed(b.dense(draft=150), {"lm_head.weight": ("BF16", (4096, 512))})  # 4 MB
    here.publish(DRAFTER, b.dense_config(), big)
    here.hub.reset()
    assert here.run("record", DRAFTER) == 0
    assert here.hub.bytes < 50_000


def test_second_record_of_the_same_commit_changes_nothing_and_fetches_little(here: Here) -> None:
    assert here.run("record", DRAFTER) == 0
    path = here.file(DRAFTER, here.commits[DRAFTER])
    before = path.read_bytes()
    here.hub.reset()
    assert here.run("record", f"{DRAFTER}@{here.commits[DRAFTER]}") == 0
    assert "nothing differs" in here.out
    assert path.read_bytes() == before
    assert here.hub.requests == 0
    assert "from the cache" in here.out


def test_repo_that_was_checked_as_a_drafter_before_is_recorded_with_all_its_files(here: Here) -> None:
    commit = here.commits[DRAFTER]
    folder = here.hub.repos[DRAFTER].commits[commit]
    (folder / "README.md").write_text("a card")
    assert here.run("check", "--drafter", f"{DRAFTER}@{commit}") in (0, 4)
    assert here.run("record", f"{DRAFTER}@{commit}") == 0
    assert set(here.recorded(DRAFTER)["files"]) == {p.name for p in folder.iterdir()}


def test_recording_that_stands_and_differs_is_shown_and_kept_without_force(here: Here) -> None:
    commit = here.commits[DRAFTER]
    name = here.old(DRAFTER, commit, **b.dense_config(max_position_embeddings=1024))
    before = (here.root / "contracts/recordings" / name).read_bytes()
    assert here.run("record", DRAFTER) == 2
    assert "\n  context 1024 → 4096\n" in here.out
    assert "exists, and differs from it; give --force to replace it" in here.err
    assert (here.root / "contracts/recordings" / name).read_bytes() == before
    assert here.run("record", DRAFTER, "--force") == 0
    assert here.recorded(DRAFTER)["provenance"] == "recorded"


def test_difference_that_no_diff_tells_is_told(here: Here) -> None:
    assert here.run("record", TARGET) == 0
    path = here.file(TARGET, here.commits[TARGET])
    data = json.loads(path.read_text())
    del data["tensors"]["absent"]
    data["tensors"]["parameters"] = 7
    data["files"]["config.json"]["size"] = 1
    data["files"]["old.txt"] = {"size": 3}
    path.write_text(json.dumps(data))
    told = here.json("record", TARGET)["recordings"][0]
    assert here.code == 2
    assert told["state"] == "stands"
    real = here.hub.repos[TARGET].commits[here.commits[TARGET]] / "config.json"
    assert told["also"] == [
        f"parameters 7 → {sum(math.prod(shape) for _, shape in b.target().values())}",
        "which tensors of the contract it lacks was not recorded, and is now",
        f"config.json 1 → {real.stat().st_size} bytes",
        "old.txt removed",
    ]


def test_recording_too_large_to_be_read_is_not_written(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    from draftproof import refresh

    monkeypatch.setattr(refresh, "CONFIG_LIMIT", 2000)
    assert here.run("record", DRAFTER) == 4
    assert "SRC115" in here.out
    assert here.files() == []


def test_other_recordings_of_the_repo_stay_and_what_is_new_is_shown(here: Here) -> None:
    name = here.old(DRAFTER, **b.dense_config(max_position_embeddings=1024))
    assert here.run("record", DRAFTER) == 0
    assert "\n  context 1024 → 4096\n" in here.out
    assert name in here.files()


@pytest.mark.parametrize("form", ["hf://{}", "{hub}/{}", "{hub}/{}/tree/main", "hf://{}@main"])
def test_address_of_a_repo_names_it(form: str, here: Here) -> None:
    assert here.run("record", form.format(DRAFTER, hub=here.hub.hub)) == 0
    assert here.recorded(DRAFTER)["repo"] == DRAFTER


def test_json_says_of_each_what_came_of_it(here: Here) -> None:
    data = here.json("record", DRAFTER, "org/none", TARGET)
    assert here.code == data["exit_code"] == 4
    assert [one["state"] for one in data["recordings"]] == ["written", "failed", "written"]
    assert data["recordings"][0]["file"] == f"contracts/recordings/org--drafter@{here.commits[DRAFTER][:8]}.json"
    assert data["recordings"][1]["file"] is None
    assert data["recordings"][1]["report"]["verdict"] == "unknown"
    assert data["requests"] == here.hub.requests > 0
    assert data["bytes"] > 0


def test_target_of_real_scale_is_counted_by_its_headers_alone(here: Here, kimi: Path) -> None:
    repo = "moonshotai/Kimi-K2.5"
    commit = here.hub.add(repo, kimi / repo)
    here.hub.reset()
    assert here.run("record", repo) == 0
    data = here.recorded(repo, commit)
    index = json.loads((kimi / repo / "model.safetensors.index.json").read_text())
    assert data["tensors"]["count"] == len(index["weight_map"])
    assert len(data["tensors"]["named"]) < 10
    weights = [row for name, row in data["files"].items() if name.endswith(".safetensors")]
    assert sum(row["size"] for row in weights) > 5e11
    for name in sorted(n for n in data["files"] if n.endswith(".safetensors"))[::9]:
        with open(kimi / repo / name, "rb") as file:
            size = file.read(8)
            head = size + file.read(int.from_bytes(size, "little"))
        assert data["files"][name]["header_sha256"] == hashlib.sha256(head).hexdigest()
    assert data["tensors"]["parameters"] > 1e12  # of packed weights: what they stand for
    assert here.hub.requests < 2 * len(weights)
    assert here.hub.bytes < 60e6
    assert here.file(repo, commit).stat().st_size < 60_000


# --- what cannot be recorded --------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], int, str]] = {
    "no such repo": ({}, {"what": says(404, "RepoNotFound")}, 4, "SRC101"),
    "gated": ({}, {"what": says(403, "GatedRepo")}, 4, "SRC102"),
    "no such revision": ({}, {"what": says(404, "RevisionNotFound")}, 4, "SRC109"),
    "server error": ({}, {"what": says(500)}, 4, "SRC105"),
    "a portal": ({}, {"what": page()}, 4, "SRC107"),
    "a shard that fails": ({"match": "*00002*"}, {"what": says(500), "side": "cdn"}, 4, "SRC105"),
    "a shard that is cut": ({"match": "*00002*"}, {"what": halved(), "side": "cdn"}, 4, "SRC107"),
    "another commit": (
        {"match": "*00002*"},
        {"what": with_headers(X_Repo_Commit="f" * 40), "side": "hub"},
        4,
        "SRC107",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_written_of_a_repo_that_was_not_read_whole(
    fault: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftproof import remote

    monkeypatch.setattr(remote, "Limits", lambda: Limits(step=1.0, total=2.0, pause=0.05))
    which, how, code, said = FAULTS[fault]
    here.hub.rule(which.get("match", f"*{TARGET}*"), **how)
    assert here.run("record", TARGET, DRAFTER) == code
    assert said in here.out
    assert [name.partition("@")[0] for name in here.files()] == ["org--drafter"]


ODD: dict[str, tuple[dict[str, bytes], int, str]] = {
    "an adapter": ({"adapter_config.json": b"{}", "adapter_model.safetensors": b.safetensors({})}, 2, "SRC124"),
    "a config alone": ({"config.json": json.dumps(b.dense_config()).encode()}, 4, "SRC120"),
    "GGUF": ({"config.json": json.dumps(b.dense_config()).encode(), "a.gguf": b"GGUF"}, 4, "SRC116"),
    "a diffusion model": (
        {"model_index.json": b'{"_class_name": "X"}', "a.safetensors": b.safetensors({})},
        2,
        "SRC125",
    ),
    "no model": ({"README.md": b"hello"}, 2, "SRC114"),
    "nothing": ({}, 2, "SRC114"),
    "training state": ({"optimizer.pt": b"x", "trainer_state.json": b"{}"}, 2, "SRC126"),
    "a config that is no JSON": ({"config.json": b"{", "model.safetensors": b.safetensors({})}, 1, "CFG302"),
    "empty weights": ({"config.json": json.dumps(b.dense_config()).encode(), "model.safetensors": b""}, 1, "STF201"),
}


@pytest.mark.parametrize("case", ODD)
def test_repo_that_holds_something_else_is_told_as_what_it_is(case: str, here: Here) -> None:
    files, code, said = ODD[case]
    folder = here.root / "published" / "odd"
    folder.mkdir()
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    here.hub.add("org/odd", folder)
    assert here.run("record", "org/odd") == code, here.out
    assert said in here.out
    assert here.files() == []


def test_malformed_repo_is_told_from_one_that_could_not_be_read(here: Here) -> None:
    folder = here.hub.repos[DRAFTER].commits[here.commits[DRAFTER]]
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    here.hub.add(DRAFTER, folder)
    assert here.run("record", DRAFTER) == 1
    assert "STF" in here.out
    assert here.files() == []


def test_server_that_ignores_ranges_is_no_reason_not_to_record(here: Here) -> None:
    here.hub.rule(side="cdn", what=ignores_range())
    assert here.run("record", DRAFTER) == 0
    assert here.recorded(DRAFTER)["tensors"]["count"] == len(b.dense())


WORDS: dict[str, tuple[list[str], int, str]] = {
    "no model": ([], 2, "record takes folders"),
    "a pair": (["mine"], 2, "--drafter-revision COMMIT"),
    "a name that is none": (["nothing"], 2, "SRC117"),
    "a path of three": (["org/name/more"], 2, "ORG/NAME of a repo on the Hub"),
    "a dataset": (["datasets/org/name"], 2, "SRC125"),
    "an empty text": ([""], 2, "SRC117"),
    "a NUL": (["a\0b"], 2, "SRC117"),
    "recordings alone": ([DRAFTER, "--hub", "recordings"], 4, "leave --hub recordings away"),
    "offline": ([DRAFTER, "--hub", "offline"], 4, "SRC106"),
    "--as of two": ([DRAFTER, TARGET, "--as", f"{DRAFTER}@{'a' * 40}"], 2, "go with one model"),
    "--output of two": ([DRAFTER, TARGET, "--output", "x.json"], 2, "go with one model"),
    "--all of one": ([DRAFTER, "--all"], 2, "it takes no models"),
    "a revision of two pairs": (["mine", "yours", "--drafter-revision", "a" * 40], 2, "go with one pair"),
}


@pytest.mark.parametrize("case", WORDS)
def test_words_that_name_no_repo_say_what_was_expected(case: str, here: Here) -> None:
    here.pair()
    words, code, said = WORDS[case]
    assert here.run("record", *words) == code
    assert said in " ".join((here.out + here.err).split())
    assert here.files() == []
    assert here.hub.requests == 0


def test_offline_what_the_hub_cache_holds_is_recorded(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = here.commits[DRAFTER]
    folder = here.root.parent / "home/hub/models--org--drafter/snapshots" / commit
    shutil.copytree(here.hub.repos[DRAFTER].commits[commit], folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert here.run("record", f"{DRAFTER}@{commit}") == 0
    assert here.recorded(DRAFTER)["read"]["source"] == "a snapshot in a Hub cache"
    assert here.hub.requests == 0


def test_folder_that_cannot_be_written_is_a_finding(here: Here) -> None:
    shutil.rmtree(here.root / "contracts/recordings")
    (here.root / "contracts/recordings").write_text("a file")
    assert here.run("record", DRAFTER) == 2
    assert "SRC122" in here.out


# --- all ----------------------------------------------------------------------------------------------------------


def test_all_refreshes_what_pairs_use_and_says_what_differs(here: Here) -> None:
    allow = 'allow = [{ code = "PAIR403", because = "short prompts" }]\n'
    unknown = 'expect_unknown = [{ code = "TEN400", because = "not recorded yet" }]\n'
    here.pair(more=allow + unknown)
    here.old(DRAFTER, provenance="derived", **b.dense_config(max_position_embeddings=1024))
    here.old(TARGET, provenance="derived", **b.target_config())
    here.old("org/other", **b.dense_config())
    assert here.run("check", "mine", "--hub", "recordings") == 4  # accepted, and not judged
    assert here.run("record", "--all") == 0
    assert "\n  context 1024 → 4096\n" in here.out
    assert "no longer needed: mine: allow PAIR403 (contracts/pairs/mine.toml:5)" in here.out
    assert "no longer needed: mine: expect_unknown TEN400 (contracts/pairs/mine.toml:6)" in here.out
    assert "pair mine: " in here.out
    kept = {f"{repo.replace('/', '--')}@{here.commits[repo][:8]}.json" for repo in (DRAFTER, TARGET)}
    assert set(here.files()) == kept | {"org--other@unknown.json"}
    assert "removed contracts/recordings/org--drafter@unknown.json" in here.out
    assert "next: pytest -m snapshot" in here.out
    again = here.json("record", "--all")
    assert here.code == 0
    assert [one["state"] for one in again["recordings"]] == ["same", "same"]
    assert again["pairs"][0]["idle"] == ["mine: allow PAIR403", "mine: expect_unknown TEN400"]


def test_all_goes_on_after_a_bad_repo_and_leaves_its_recording(here: Here) -> None:
    here.pair()
    stays = here.old(DRAFTER, **b.dense_config())
    here.old(TARGET, **b.target_config())
    here.hub.rule(f"*{DRAFTER}*", what=says(403, "GatedRepo"))
    data = here.json("record", "--all")
    assert here.code == 4
    assert {one["repo"] or one["asked"]: one["state"] for one in data["recordings"]} == {
        DRAFTER: "failed",
        TARGET: "written",
    }
    assert here.files() == [stays, f"org--target@{here.commits[TARGET][:8]}.json"]


def test_all_reads_a_pinned_model_at_its_pin_and_keeps_that_recording(here: Here) -> None:
    one = here.commits[DRAFTER]
    here.pair("pinned", drafter=one)
    here.pair("loose")
    here.old(TARGET, **b.target_config())
    assert here.run("record", DRAFTER) == 0
    two = here.publish(DRAFTER, b.dense_config(max_position_embeddings=8192), b.dense())
    assert here.run("record", "--all") == 0
    assert here.recorded(DRAFTER, one)["config"]["max_position_embeddings"] == 4096
    assert here.recorded(DRAFTER, two)["config"]["max_position_embeddings"] == 8192


def test_all_moves_an_unpinned_recording_to_the_commit_of_main(here: Here) -> None:
    here.pair()
    assert here.run("record", DRAFTER, TARGET) == 0
    one = here.file(DRAFTER, here.commits[DRAFTER])
    here.publish(DRAFTER, b.dense_config(max_position_embeddings=1024), b.dense(style="bare"))
    assert here.run("record", "--all") == 0
    for line in ("  context 4096 → 1024", "dialect midlayer → bare"):
        assert line in here.out
    assert "pair mine: holds → does not hold" in here.out
    assert not one.exists()
    here.recorded(DRAFTER)


def test_all_names_models_that_are_not_recorded_and_does_not_ask_for_them(here: Here) -> None:
    here.pair()
    here.old(DRAFTER, **b.dense_config())
    assert here.run("record", "--all") == 0
    assert "org/target is not recorded: draftproof record org/target" in here.out
    assert not [seen for seen in here.hub.log if TARGET in seen.path]


def test_all_asks_a_silent_hub_three_times_and_then_no_more(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    from draftproof import remote

    monkeypatch.setattr(remote, "Limits", lambda: Limits(step=0.3, total=0.6, pause=0.05))
    for n in range(5):
        text = PAIR.format(id=f"p{n}", more="", drafter="", target="").replace("org/drafter", f"org/d{n}")
        (here.root / f"contracts/pairs/p{n}.toml").write_text(text)
        here.old(f"org/d{n}", **b.dense_config())
    here.hub.rule(what=says(500))
    data = here.json("record", "--all")
    assert here.code == 4
    assert [one["state"] for one in data["recordings"]] == ["failed"] * 5
    asked = {f"org/d{n}" for n in range(5) if any(f"org/d{n}/" in seen.path for seen in here.hub.log)}
    assert asked == {"org/d0", "org/d1", "org/d2"}
    assert len(here.files()) == 5


def test_broken_pair_is_told_and_the_others_are_refreshed(here: Here) -> None:
    here.pair()
    here.old(DRAFTER, **b.dense_config())
    (here.root / "contracts/pairs/torn.toml").write_text('schema = 1\nkind = "pair\n')
    assert here.run("record", "--all") == 2
    assert "CON102" in here.out
    here.recorded(DRAFTER)


@pytest.mark.parametrize("state", ["no folder", "no pair", "nothing recorded"])
def test_all_without_anything_to_refresh_is_usage(state: str, here: Here) -> None:
    if state == "no folder":
        shutil.rmtree(here.root / "contracts")
    elif state == "nothing recorded":
        here.pair()
    assert here.run("record", "--all") == 2
    assert here.hub.requests == 0


# --- pairs --------------------------------------------------------------------------------------------------------


def test_commit_of_a_pair_that_is_not_at_hand_is_fetched(here: Here) -> None:
    one = here.commits[DRAFTER]
    here.pair(drafter=one)
    assert here.run("record", DRAFTER, TARGET) == 0
    two = here.publish(DRAFTER, b.dense_config(max_position_embeddings=8192), b.dense(style="bare"), "next")
    assert here.run("record", "mine", "--drafter-revision", two) == 0
    assert "\n  context 4096 → 8192\n" in here.out
    assert f'revision = "{two}"' in (here.root / "contracts/pairs/mine.toml").read_text()
    assert here.recorded(DRAFTER, two)["read"]["source"].startswith("the Hub at 127.0.0.1")
    assert here.run("check", "mine", "--hub", "recordings") == 0


def test_json_of_a_moved_pair_says_what_was_moved(here: Here) -> None:
    here.pair(drafter=here.commits[DRAFTER])
    assert here.run("record", DRAFTER, TARGET) == 0
    two = here.publish(DRAFTER, b.dense_config(), b.dense(style="bare"), "next")
    here.hub.reset()
    data = here.json("record", "mine", "--drafter-revision", two)
    assert data["requests"] > 0
    assert data["requests"] + data["check"]["requests"] == here.hub.requests
    assert data["bytes"] > 0


def test_commit_of_a_pair_that_the_repo_has_not_changes_nothing(here: Here) -> None:
    here.pair(drafter=here.commits[DRAFTER])
    before = (here.root / "contracts/pairs/mine.toml").read_bytes()
    assert here.run("record", "mine", "--drafter-revision", "f" * 40) == 4
    assert "SRC109" in here.out
    assert (here.root / "contracts/pairs/mine.toml").read_bytes() == before
    assert here.files() == []


def test_snapshot_that_lacks_the_weights_is_completed_from_the_hub(here: Here) -> None:
    commit = here.commits[DRAFTER]
    folder = here.root.parent / "home/hub/models--org--drafter/snapshots" / commit
    folder.mkdir(parents=True)
    shutil.copy(here.hub.repos[DRAFTER].commits[commit] / "config.json", folder)
    here.pair()
    assert here.run("record", "mine", "--drafter-revision", commit) == 0
    assert here.recorded(DRAFTER)["tensors"]["count"] == len(b.dense())


@pytest.mark.parametrize("mode", ["auto", "live", "recordings", "offline"])
@pytest.mark.parametrize("role", ["drafter", "target"])
def test_recording_of_another_commit_than_the_pin_is_a_finding_in_every_mode(role: str, mode: str, here: Here) -> None:
    assert here.run("record", DRAFTER, TARGET) == 0
    repo = f"org/{role}"
    config, tensors = (b.dense_config(), b.dense()) if role == "drafter" else (b.target_config(), b.target())
    pin = here.publish(repo, {**config, "initializer_range": 0.5}, tensors, "other")
    here.pair(**{role: pin})
    code = here.run("check", "mine", "--hub", mode)
    assert "SRC119" in here.out
    assert f"expected  a recording of {pin}" in here.out
    assert code == (0 if mode in ("auto", "live") else 2)
    assert here.run("record", f"{repo}@{pin}") == 0
    assert here.run("check", "mine", "--hub", mode) == 0
    assert "SRC119" not in here.out


def test_pin_that_is_recorded_beside_another_commit_is_no_finding(here: Here) -> None:
    assert here.run("record", DRAFTER, TARGET) == 0
    here.pair(drafter=here.commits[DRAFTER])
    here.old(DRAFTER, "e" * 40, **b.dense_config())
    assert here.run("check", "mine") == 0
    assert "SRC119" not in here.out


@pytest.mark.parametrize("mode", ["recordings", "auto", "live"])
def test_pytest_says_too_that_only_another_commit_is_recorded(mode: str, here: Here) -> None:
    assert here.run("record", DRAFTER, TARGET) == 0
    pin = here.publish(DRAFTER, b.dense_config(initializer_range=0.5), b.dense(), "other")
    here.pair(drafter=pin)
    (here.root / "test_ours.py").write_text("from draftproof.testing import TestShape\n")
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "shape", "--draftproof-fail-on", "warning"]
    done = subprocess.run(
        [sys.executable, *words, f"--draftproof-hub={mode}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"a recording of {pin}" in done.stdout


def test_of_several_recordings_the_one_that_was_read_last_counts(here: Here) -> None:
    for commit, date, context in (
        ("a" * 40, "2026-02-01", 1024),
        ("b" * 40, "2026-03-01", 2048),
        ("c" * 40, "2026-01-01", 512),
    ):
        name = here.old(DRAFTER, commit, **b.dense_config(max_position_embeddings=context))
        path = here.root / "contracts/recordings" / name
        data = json.loads(path.read_text())
        data["read"]["date"] = date
        path.write_text(json.dumps(data))
    here.old(DRAFTER, **b.dense_config())
    data = here.json("show", DRAFTER, "--hub", "recordings")
    assert data["config"]["max_position_embeddings"] == 2048


def test_branch_that_moves_while_it_is_recorded_gives_one_commit(here: Here) -> None:
    one = here.commits[TARGET]
    more = b.target() | {"model.layers.1.extra.weight": ("BF16", (b.HIDDEN,))}
    two = here.publish(TARGET, b.target_config(max_position_embeddings=8192), more, "next", shards=3)
    here.hub.rule("*config.json", times=1, what=calls(lambda: here.hub.repos[TARGET].refs.update(main=two)))
    assert here.run("record", TARGET) == 0
    (name,) = here.files()
    data = json.loads((here.root / "contracts/recordings" / name).read_text())
    kept = {one: (4096, len(b.target())), two: (8192, len(more))}[data["revision"]]
    assert (data["config"]["max_position_embeddings"], data["tensors"]["count"]) == kept


def test_torch_files_are_recorded_without_running_them(here: Here) -> None:
    torch = pytest.importorskip("torch")
    folder = here.root / "published" / "bin"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(b.dense_config()))
    kinds = {"BF16": torch.bfloat16, "I64": torch.int64, "BOOL": torch.bool}
    tensors = {n: torch.zeros(shape, dtype=kinds[dtype]) for n, (dtype, shape) in b.dense().items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    commit = here.hub.add(DRAFTER, folder)
    assert here.run("record", DRAFTER) == 0
    named = here.recorded(DRAFTER, commit)["tensors"]["named"]
    assert named == {n: [dtype, list(shape)] for n, (dtype, shape) in b.dense().items()}


def test_packed_parts_of_a_target_decide_without_a_network(here: Here) -> None:
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True, "dynamic": False}
    quant = {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": [],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }  # fmt: skip
    table = b.changed(b.target(), {"lm_head.weight": None}) | {
        "lm_head.weight_packed": ("I32", (b.VOCAB, b.HIDDEN // 8)),
        "lm_head.weight_scale": ("BF16", (b.VOCAB, b.HIDDEN // 32)),
        "lm_head.weight_shape": ("I64", (2,)),
    }
    here.run("record", DRAFTER)
    here.pair()
    for lost, code in (("", 0), ("lm_head.weight_scale", 1)):
        shutil.rmtree(here.root / "home", ignore_errors=True)
        there = b.changed(table, {lost: None} if lost else {})
        here.publish(TARGET, b.target_config(quantization_config=quant), there, shards=2)
        assert here.run("record", TARGET) == 0
        assert here.recorded(TARGET)["tensors"]["count"] == len(there)
        here.pair(target=here.commits[TARGET])
        assert here.run("check", "mine", "--hub", "recordings") == code
        assert ("TEN414" in here.out) is bool(lost)
