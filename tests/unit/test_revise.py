"""record PAIR --drafter-revision: one value of the contract changes and nothing else, and the commit is recorded."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import cli
from draftproof.hub import Source, read_recording
from draftproof.library import Library
from draftproof.revise import Revised, revise, with_text

OLD, NEW = "0" * 39 + "1", "0123456789abcdef0123456789abcdef01234567"
HEAD = 'schema = 1\nkind = "pair"\nid = "mine"\ntitle = "t" # a title\n'
TARGET = 'target = { model = "org/target" }\n'
LAYOUTS = {
    "inline": 'drafter = { model = "org/drafter" }  # v1\n' + TARGET,
    "inline, pinned": f'drafter = {{ revision = "{OLD}", model = "org/drafter" }}\n' + TARGET,
    "inline, literal": f"drafter = {{ model = 'org/drafter', revision = '{OLD}' }} # x ] \n" + TARGET,
    "inline, tight": 'drafter={model="org/drafter"}\n' + TARGET,
    "dotted": 'drafter.model = "org/drafter"   # v1\n' + TARGET,
    "dotted, pinned": f'drafter.model = "org/drafter"\ndrafter.revision = "{OLD}" # {OLD}\n' + TARGET,
    "table": TARGET + '\n[drafter]\n  model = "org/drafter" # v1\n  # more\n',
    "table, pinned": TARGET + f'\n[drafter]\nrevision = "{OLD}"\nmodel = "org/drafter"\n\n[facts]\n',
    "table, at the end": TARGET + '[drafter]\nmodel = "org/drafter"',
    "quoted key": '"drafter" = { "model" = "org/drafter" }\n' + TARGET,
    "same text elsewhere": f'# revision = "{OLD}"\ndrafter = {{ model = "org/drafter", revision = "{OLD}" }}\n'
    f'target = {{ model = "org/target", revision = "{OLD}" }}\n',
}


@pytest.mark.parametrize("break_", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_revision_changes_in_every_layout(layout: str, break_: str) -> None:
    text = (HEAD + LAYOUTS[layout]).replace("\n", break_)
    out = with_text(text, ("drafter", "revision"), NEW, ("drafter", "model"))
    assert out is not None
    before, after = tomllib.loads(text), tomllib.loads(out)
    assert after["drafter"].pop("revision") == NEW
    before["drafter"].pop("revision", None)
    assert after == before
    kept = [line for line in text.split(break_) if "org/drafter" not in line and OLD not in line]
    assert set(kept) <= set(out.split(break_))
    assert out.count("#") == text.count("#")
    assert out.count("\r\n") >= text.count("\r\n")
    assert len(out.replace(NEW, "")) - len(text.replace(OLD, "", 1)) <= len('drafter.revision = ""') + 3
    assert with_text(out, ("drafter", "revision"), NEW, ("drafter", "model")) == out


@pytest.mark.parametrize("text", ["", "drafter = 1\n", "[drafter]\n", "drafter = {", 'drafter = "org/drafter"\n'])
def test_text_without_the_place_is_not_edited(text: str) -> None:
    assert with_text(text, ("drafter", "revision"), NEW, ("drafter", "model")) is None


# --- a pair -------------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with a pair, its models recorded at OLD, and no Hub cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "contracts" / "pairs").mkdir(parents=True)
    (tmp_path / "contracts" / "recordings").mkdir()
    b.write(tmp_path / "v1", b.dense_config(), b.dense())
    b.write(tmp_path / "v2", b.dense_config(max_position_embeddings=8192), b.dense(style="bare"))
    b.write(tmp_path / "base", b.target_config(), b.target())
    for folder, name in (("v1", "org/drafter"), ("base", "org/target")):
        file = f"contracts/recordings/{name.replace('/', '--')}@{OLD[:8]}.json"
        assert cli.main(["record", folder, "--as", f"{name}@{OLD}", "--output", file]) == 0
    pair(tmp_path, LAYOUTS["same text elsewhere"])
    return tmp_path


def pair(root: Path, sides: str, id: str = "mine") -> Path:
    path = root / "contracts" / "pairs" / f"{id}.toml"
    path.write_text(HEAD.replace("mine", id) + sides)
    return path


def state(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def recording(root: Path, name: str = "org--drafter") -> Source:
    source = read_recording(root / "contracts" / "recordings" / f"{name}@{NEW[:8]}.json")
    assert isinstance(source, Source), source
    return source


def test_commit_of_a_folder_is_recorded_and_pinned(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(repository)
    assert cli.main(["record", "mine", "--drafter-revision", NEW, "--from", "v2"]) == 0
    after = state(repository)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"contracts/pairs/mine.toml", f"contracts/recordings/org--drafter@{NEW[:8]}.json"}
    text = before["contracts/pairs/mine.toml"].decode()
    at = text.index("drafter = {")
    assert after["contracts/pairs/mine.toml"].decode() == text[:at] + text[at:].replace(OLD, NEW, 1)
    source = recording(repository)
    assert (source.name, source.revision, source.provenance) == ("org/drafter", NEW, "recorded")
    out = capsys.readouterr().out
    assert f"org/drafter@{OLD[:7]} → org/drafter@{NEW[:7]}: " in " ".join(out.split())
    for word in ("\n  context 4096 → 8192\n", "dialect midlayer → bare", "mine now: ", "pytest -m snapshot"):
        assert word in out
    assert cli.main(["check", "mine"]) == 4  # the pair is whole; its lineage is not declared


def test_commit_of_a_target_is_recorded_and_pinned(repository: Path) -> None:
    b.write(repository / "base2", b.target_config(rms_norm_eps=1e-6), b.target())
    assert cli.main(["record", "mine", "--target-revision", NEW, "--from", "base2"]) == 0
    assert recording(repository, "org--target").config["rms_norm_eps"] == 1e-6  # type: ignore[index]
    data = tomllib.loads((repository / "contracts/pairs/mine.toml").read_text())
    assert (data["drafter"]["revision"], data["target"]["revision"]) == (OLD, NEW)


def snapshot(root: Path, home: str, commit: str = NEW, repo: str = "org--drafter") -> Path:
    folder = root / home / f"models--{repo}" / "snapshots" / commit
    return b.write(folder, b.dense_config(max_position_embeddings=8192), b.dense())


@pytest.mark.parametrize(
    ("variable", "value", "home"),
    [
        ("HF_HUB_CACHE", "cache", "cache"),
        ("HF_HOME", "hf", "hf/hub"),
        ("XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"),
        ("HOME", "home", "home/.cache/huggingface/hub"),
    ],
)
def test_commit_is_found_in_the_hub_cache(
    variable: str, value: str, home: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(repository / value))
    snapshot(repository, home)
    assert cli.main(["record", "mine", "--drafter-revision", NEW]) == 0
    assert recording(repository).revision == NEW


def test_commit_that_was_recorded_before_needs_no_folder(repository: Path) -> None:
    assert cli.main(["record", "mine", "--drafter-revision", NEW, "--from", "v2"]) == 0
    assert cli.main(["record", "mine", "--drafter-revision", OLD]) == 0
    made = revise("mine", {"drafter": NEW}, "", Library(Path("contracts")))
    assert isinstance(made, Revised)
    assert [p.name for p in made.files] == ["mine.toml"]
    assert any("recorded before" in line for line in made.says)


def test_recording_of_that_commit_is_refreshed(repository: Path) -> None:
    assert cli.main(["record", "mine", "--drafter-revision", NEW, "--from", "v2"]) == 0
    b.write(repository / "v2", b.dense_config(max_position_embeddings=2048), b.dense())
    assert cli.main(["record", "mine", "--drafter-revision", NEW, "--from", "v2"]) == 0
    assert recording(repository).config["max_position_embeddings"] == 2048  # type: ignore[index]


def test_other_pairs_of_the_model_are_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair(repository, LAYOUTS["inline"], "loose")
    pair(repository, LAYOUTS["inline, pinned"], "pinned")
    assert cli.main(["record", "mine", "--drafter-revision", NEW, "--from", "v2"]) == 0
    out = capsys.readouterr().out
    assert "pair loose names no revision" in out
    assert f"pair pinned stays at {OLD[:7]}" in out


def test_pair_given_as_its_file_is_edited_there(repository: Path) -> None:
    path = repository / "contracts" / "pairs" / "mine.toml"
    assert cli.main(["record", str(path), "--drafter-revision", NEW, "--from", "v2"]) == 0
    assert tomllib.loads(path.read_text())["drafter"]["revision"] == NEW


def test_model_named_by_an_alias_is_recorded_under_its_repo(repository: Path) -> None:
    models = repository / "contracts" / "models"
    models.mkdir()
    head = 'schema = 1\nkind = "model"\nid = "org--drafter"\nrepo = "org/drafter"\n'
    alias = 'aliases = ["our/drafter"]\n'
    (models / "org--drafter.toml").write_text(head + alias)
    pair(repository, LAYOUTS["inline"].replace("org/drafter", "our/drafter"))
    assert cli.main(["record", "mine", "--drafter-revision", NEW, "--from", "v2"]) == 0
    assert recording(repository).name == "org/drafter"
    assert cli.main(["check", "mine"]) == 4
    data = tomllib.loads((repository / "contracts/pairs/mine.toml").read_text())
    assert data["drafter"] == {"model": "our/drafter", "revision": NEW}


def test_acceptance_that_no_longer_matches_is_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = b.write(repository / "short", b.dense_config(max_position_embeddings=1024), b.dense())
    file = f"contracts/recordings/org--drafter@{OLD[:8]}.json"
    Path(file).unlink()
    assert cli.main(["record", str(short), "--as", f"org/drafter@{OLD}", "--output", file]) == 0
    accepted = 'allow = [{ code = "PAIR403", because = "short prompts" }]\n'
    pair(repository, accepted + LAYOUTS["inline, pinned"])
    assert cli.main(["record", "mine", "--drafter-revision", NEW, "--from", "v2"]) == 0
    out = capsys.readouterr().out
    assert "no longer needed: mine: allow PAIR403" in out
    assert "gone: PAIR403 context" in out


def test_json_names_files_reviews_and_the_check(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = ["record", "mine", "--drafter-revision", NEW, "--from", "v2", "--format", "json"]
    assert cli.main(words) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == {"schema", "files", "says", "reviews", "check", "requests", "bytes", "cached"}
    assert data["files"][-1] == "contracts/pairs/mine.toml"
    assert data["reviews"][0]["review"]["verdict"] in ("differs", "unknown")
    assert data["check"]["subject"] == "mine"


# --- bad input ----------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[list[str], int, str]] = {
    "a branch": (["mine", "--drafter-revision", "main", "--from", "v2"], 2, "SRC117"),
    "an upper-case commit": (["mine", "--drafter-revision", NEW.upper(), "--from", "v2"], 2, "SRC117"),
    "a short commit": (["mine", "--drafter-revision", NEW[:8], "--from", "v2"], 2, "SRC117"),
    "no such pair": (["mien", "--drafter-revision", NEW, "--from", "v2"], 2, "CON113"),
    "no such file": (["./mien.toml", "--drafter-revision", NEW, "--from", "v2"], 2, "SRC111"),
    "a pair outside contracts": (["outside.toml", "--drafter-revision", NEW, "--from", "v2"], 2, "contracts/pairs/"),
    "a pair of other contracts": (["more/pairs/mine.toml", "--drafter-revision", NEW], 2, "give --contracts"),
    "a folder for a pair": (["v2", "--drafter-revision", NEW], 2, "CON113"),
    "not at hand": (["mine", "--drafter-revision", NEW], 4, "hf download org/drafter --revision"),
    "no such folder": (["mine", "--drafter-revision", NEW, "--from", "./none"], 2, "SRC111"),
    "an empty folder": (["mine", "--drafter-revision", NEW, "--from", "empty"], 2, "SRC114"),
    "cut weights": (["mine", "--drafter-revision", NEW, "--from", "cut"], 1, "STF203"),
    "a snapshot of another commit": (["mine", "--drafter-revision", NEW, "--from", "other"], 2, "SRC119"),
    "a path in the pair": (["local", "--drafter-revision", NEW, "--from", "v2"], 2, "a path has no revision"),
    "a pair that is broken": (["torn", "--drafter-revision", NEW, "--from", "v2"], 2, "CON102"),
    "one good side of two": (["mine", "--drafter-revision", OLD, "--target-revision", NEW], 4, "SRC112"),
    "another file in its place": (["taken", "--drafter-revision", NEW, "--from", "v2"], 2, "another file stands"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_a_finding_and_nothing_is_written(
    case: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, code, said = REFUSED[case]
    (repository / "empty").mkdir()
    cut = b.write(repository / "cut", b.dense_config(), b.dense())
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:99])
    (repository / "other").symlink_to(snapshot(repository, "elsewhere", "f" * 40))
    pair(repository, 'drafter = { model = "../../v1" }\n' + TARGET, "local")
    (repository / "contracts/pairs/torn.toml").write_text('schema = 1\nkind = "pair\n')
    pair(repository, LAYOUTS["inline"].replace("org/drafter", "org/taken"), "taken")
    (repository / f"contracts/recordings/org--taken@{NEW[:8]}.json").write_text("precious")
    (repository / "outside.toml").write_text(HEAD.replace("mine", "outside") + LAYOUTS["inline"])
    (repository / "more" / "pairs").mkdir(parents=True)
    shutil.copy(repository / "contracts/pairs/mine.toml", repository / "more/pairs")
    before = state(repository)
    capsys.readouterr()
    assert cli.main(["record", *words]) == code
    out = capsys.readouterr()
    assert said in " ".join((out.out + out.err).split())
    assert state(repository) == before


@pytest.mark.parametrize(
    "words",
    [
        ["v1", "--from", "v2"],
        ["mine", "--drafter-revision", NEW, "--as", f"org/drafter@{NEW}"],
        ["mine", "--drafter-revision", NEW, "--output", "x.json"],
        ["mine", "--drafter-revision", ""],
        ["mine", "--drafter-revision", NEW, "--from", ""],
        ["mine", "--drafter-revision", NEW, "--target-revision", NEW, "--from", "v2"],
    ],
    ids=" ".join,
)
def test_words_that_do_not_go_together_are_usage(words: list[str], repository: Path) -> None:
    before = state(repository)
    with pytest.raises(SystemExit) as stop:
        cli.main(["record", *words])
    assert stop.value.code == 2
    assert state(repository) == before


def test_pair_inside_the_package_is_not_edited(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from draftproof import revise as module

    monkeypatch.setattr(module, "__file__", str(repository / "revise.py"))
    made: Any = revise("mine", {"drafter": NEW}, "v2", Library(Path("contracts")))
    assert [f.message for f in made.findings] == ["the pair ships with draftproof"]
