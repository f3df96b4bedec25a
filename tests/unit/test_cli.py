"""The command line: every command, text and JSON, exit codes by the one table, and a hostile terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import builder
from draftproof import adapt, api, cli, plugin
from draftproof.findings import Report
from draftproof.language import FOLDERS
from draftproof.library import Library
from draftproof.rules import RULES

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FOUNDING = ("AQ-MedAI/Kimi-K2-Instruct-eagle3", "moonshotai/Kimi-K2.5")
FACTS = """[facts]
trained_on = { value = "org/target", source = "its card" }
aux_convention = { value = "boundary", source = "its card" }
"""
COMMANDS = (
    "check",
    "init",
    "adapt",
    "diff",
    "show",
    "list",
    "record",
    "cache",
    "explain",
    "launch",
    "truth",
    "fixture",
)
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # what a terminal may act on


class Done(NamedTuple):
    """What a command gave: exit code, standard output and standard error."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a good drafter, a bad one and a target, recordings of the good pair, and pair contracts of both."""
    root = tmp_path_factory.mktemp("cli")
    builder.write(root / "drafter", builder.dense_config(), builder.dense())
    builder.write(root / "target", builder.target_config(), builder.target())
    table = builder.changed(builder.dense(), {"fc.weight": ("BF16", (64, 256)), "norm.weight": None})
    builder.write(root / "bad", builder.dense_config(), table)
    for role in ("drafter", "target"):
        made, report = api.record(str(root / role), f"org/{role}@{COMMIT}", Library())
        assert made, report
        (root / "contracts" / "recordings").mkdir(parents=True, exist_ok=True)
        (root / "contracts" / "recordings" / made["file"]).write_text(json.dumps(made["recording"]))
    sides = {"good": "org/drafter", "bad": "../../bad", "murky": "../../drafter"}
    for id, drafter in sides.items():
        path = root / "contracts" / "pairs" / f"{id}.toml"
        path.parent.mkdir(exist_ok=True)
        head = f'schema = 1\nkind = "pair"\nid = "{id}"\ntitle = "t"\n'
        both = f'drafter = {{ model = "{drafter}" }}\ntarget = {{ model = "org/target" }}\n'
        path.write_text(head + both + (FACTS if id != "murky" else ""))
    (root / "contracts" / "pairs" / "torn.toml").write_text('schema = 1\nkind = "pair"\nid = "torn\n')
    (root / "broken.json").write_text('{"hidden_size": 1,}')
    (root / "list.json").write_text("[1, 2]")
    (root / "bad.json").write_text(json.dumps(builder.dense_config(num_key_value_heads=3)))
    return root


@pytest.fixture
def run(models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs one command in the folder of the models."""
    monkeypatch.chdir(models)

    def command(*words: str | Path) -> Done:
        try:
            code = cli.main([str(w) for w in words])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Done(code, said.out, said.err)

    return command


def program(*words: str, folder: Path, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command line as a program of its own."""
    env = {**os.environ, **more.pop("env", {})}
    settings = {"capture_output": True} | more
    return subprocess.run(
        [sys.executable, "-m", "draftproof.cli", *words], cwd=folder, env=env, timeout=60, check=False, **settings
    )


# --- one table of exit codes, and one object behind both formats --------------------------------------------------

REPORTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "check: pair holds": (0, ("check", "good")),
    "check: pair does not hold": (1, ("check", "bad")),
    "check: pair cannot be judged": (4, ("check", "murky")),
    "check: pair is broken": (2, ("check", "torn")),
    "check: no such pair": (2, ("check", "goood")),
    "check: shipped pair beside own ones": (4, ("check", "kimi-k2-eagle3")),
    "check: pair's file": (0, ("check", "contracts/pairs/good.toml")),
    "check: pair's file is not there": (2, ("check", "contracts/pairs/none.toml")),
    "check: drafter alone": (0, ("check", "--drafter", "drafter")),
    "check: drafter alone is bad": (1, ("check", "--drafter", "bad")),
    "check: drafter with target": (4, ("check", "--drafter", "drafter", "--target", "target")),
    "check: drafter not at hand": (4, ("check", "--drafter", "nowhere/model")),
    "check: drafter's folder is not there": (2, ("check", "--drafter", "./nowhere")),
    "check: drafter is a file": (2, ("check", "--drafter", "drafter/config.json")),
    "check: drafter at a branch": (2, ("check", "--drafter", "org/drafter@main", "--hub", "recordings")),
    "check: drafter at a branch, offline": (4, ("check", "--drafter", "org/other@dev")),
    "check: target not at hand": (4, ("check", "--drafter", "drafter", "--target", "nowhere/model")),
    "check: the same twice": (2, ("check", "--drafter", "drafter", "--target", "drafter")),
    "check: sides swapped": (1, ("check", "--drafter", "target", "--target", "drafter")),
    "check: no such family": (2, ("check", "--drafter", "drafter", "--family", "eagle4")),
    "check: config holds": (0, ("check", "--config", "drafter/config.json")),
    "check: config does not": (1, ("check", "--config", "bad.json")),
    "check: config with target": (4, ("check", "--config", "drafter/config.json", "--target", "target")),
    "check: config is a folder": (2, ("check", "--config", "drafter")),
    "check: config is not there": (2, ("check", "--config", "none.json")),
    "check: config is not JSON": (1, ("check", "--config", "broken.json")),
    "check: config is a list": (1, ("check", "--config", "list.json")),
    "adapt: founding case": (0, ("adapt", FOUNDING[0], "--to", FOUNDING[1])),
    "adapt: not at hand": (4, ("adapt", "nowhere/model", "--to", FOUNDING[1])),
    "adapt: no such folder": (2, ("adapt", "./nowhere", "--to", FOUNDING[1])),
    "diff: no difference": (0, ("diff", "org/drafter", "org/drafter")),
    "diff: a check fails that did not": (1, ("diff", "drafter", "bad")),
    "diff: a check that failed holds": (0, ("diff", "bad", "drafter")),
    "diff: drafter with target": (2, ("diff", "drafter", "target")),
    "diff: not there": (2, ("diff", "drafter", "./nowhere")),
    "diff: not at hand": (4, ("diff", "drafter", "nowhere/model")),
    "diff: tables not read": (4, ("diff", FOUNDING[0], "AQ-MedAI/Kimi-K25-eagle3")),
    "show: no such thing": (2, ("show", "eagle4")),
    "show: broken pair": (2, ("show", "torn")),
    "show: not recorded": (4, ("show", "nowhere/model")),
    "record: no commit": (2, ("record", "drafter")),
    "record: a branch": (2, ("record", "drafter", "--as", "org/drafter@main")),
    "record: nothing there": (2, ("record", "./nowhere", "--as", f"org/drafter@{COMMIT}")),
    "record: recorded already": (2, ("record", "org/drafter", "--as", f"org/drafter@{COMMIT}")),
}


@pytest.mark.parametrize("case", REPORTS)
def test_exit_code_is_that_of_the_table_in_both_formats(case: str, run: Run) -> None:
    code, words = REPORTS[case]
    text = run(*words)
    assert (text.code, text.err) == (code, "")
    assert text.out.endswith("\n")
    assert not text.out.endswith("\n\n")
    answer = run(*words, "--format", "json")
    assert (answer.code, answer.err) == (code, "")
    assert json.loads(answer.out)["exit_code"] == code


@pytest.mark.parametrize("case", REPORTS)
def test_json_reads_back_as_the_report(case: str, run: Run) -> None:
    data = json.loads(run(*REPORTS[case][1], "--format", "json").out)
    report = Report.from_dict(data)
    assert Report.from_dict(report.to_dict()) == report
    assert json.loads(json.dumps(report.to_dict())) == data
    assert data["schema"] == 1
    assert data["verdict"] == report.verdict
    assert [s["verdict"] for s in data["sections"]] == [s.verdict for s in report.sections]


@pytest.mark.parametrize("case", REPORTS)
def test_every_finding_in_text_says_what_to_do(case: str, run: Run) -> None:
    words = REPORTS[case][1]
    data = json.loads(run(*words, "--format", "json").out)
    out = run(*words).out
    if data["plan"] is None:
        said = [f for s in data["sections"] for f in s["findings"] if f["level"] in ("error", "warning", "unknown")]
        assert all(f"{f['code']}" in out for f in said)
        assert len(re.findall(r"^  (?:help|accepted) ", out, re.M)) == len(said)
    rows = [line for line in out.splitlines() if line.startswith("  ")]
    assert all(len(line) <= 118 or " " not in line[12:] for line in rows)


@pytest.mark.parametrize(
    "case", ["check: pair holds", "check: drafter with target", "check: config with target", "adapt: founding case"]
)
def test_rerun_line_gives_the_same_answer(case: str, run: Run) -> None:
    first = run(*REPORTS[case][1])
    line = re.findall(r"^rerun +(.+)$", first.out, re.M)
    if case.startswith("adapt") and not line:
        return
    program, *words = shlex.split(line[0])
    assert program == "draftproof"
    assert run(*words) == first


def test_rerun_line_of_long_paths_is_one_line(run: Run, tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["a-folder-with-a-long-name"] * 4)
    builder.write(deep / "drafter", builder.dense_config(), builder.dense())
    out = run("check", "--drafter", deep / "drafter", "--target", "target").out
    line = re.findall(r"^rerun +(.+)$", out, re.M)[0]
    assert shlex.split(line)[-2:] == ["--target", "target"]


# --- usage --------------------------------------------------------------------------------------------------------

USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "no command": ((), "COMMAND"),
    "unknown command": (("frobnicate",), "frobnicate"),
    "unknown option": (("check", "good", "--frob"), "--frob"),
    "check of nothing": (("check",), "one of: a pair id, --drafter MODEL, --config FILE"),
    "check of two things": (("check", "good", "--drafter", "drafter"), "one of"),
    "check of target alone": (("check", "--target", "target"), "one of"),
    "pair with target": (("check", "good", "--target", "target"), "names its own target"),
    "pair with family": (("check", "good", "--family", "eagle3"), "names its own target and family"),
    "model in the place of a pair": (("check", "org/drafter", "--target", "target"), "--drafter 'org/drafter'"),
    "empty drafter": (("check", "--drafter", "", "--target", "target"), "the drafter is an empty text"),
    "empty target": (("check", "--drafter", "drafter", "--target", ""), "the target is an empty text"),
    "empty folder to write": (("adapt", "drafter", "--to", "target", "--write", ""), "the write is an empty text"),
    "empty trainer": (("adapt", "drafter", "--to", "target", "--for="), "the for is an empty text"),
    "empty drafter of a launch": (("launch", "--drafter", "", "--engine", "vllm"), "the drafter is an empty text"),
    "empty output": (("check", "good", "--output", ""), "the output is an empty text"),
    "empty folder of a fixture": (("fixture", "--family", "eagle3", "--out="), "the out is an empty text"),
    "empty pair": (("check", ""), "the pair is an empty text"),
    "adapt without target": (("adapt", "drafter"), "--to"),
    "force without write": (("adapt", "drafter", "--to", "target", "--force"), "--write"),
    "unknown format": (("list", "--format", "yaml"), "yaml"),
    "unknown kind": (("list", "family"), "families"),
    "no such folder of contracts": (("list", "--contracts", "none"), "no such folder"),
    "folder without contracts": (
        ("list", "--contracts", "drafter"),
        "no contracts in it: none of the folders families,",
    ),
    "folder of one kind": (("check", "good", "--contracts", "contracts/pairs"), "did you mean"),
    "show of nothing": (("show",), "ID"),
    "unknown code": (("explain", "TEN999"), "draftproof list rules"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_told_on_stderr_and_exits_with_2(case: str, run: Run) -> None:
    words, said = USAGE[case]
    done = run(*words)
    assert done.code == 2
    assert done.out == ""
    assert said in done.err


def test_help_lists_every_command_with_examples_and_the_exit_codes(run: Run) -> None:
    done = run("--help")
    assert done.code == 0
    assert all(f"\n    {name} " in done.out for name in COMMANDS)
    assert cli.EXIT_CODES in " ".join(done.out.split())
    examples = re.findall(r"^  (draftproof \S+)", done.out, re.M)
    assert {line.split()[1] for line in examples} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_says_what_it_does_and_every_option(name: str, run: Run) -> None:
    done = run(name, "--help")
    said = " ".join(done.out.split())
    assert done.code == 0
    assert cli.EXIT_CODES in said
    for option in ("--format", "--output", "--contracts"):
        assert option in said
    helped = re.findall(r"^  (?:-\w, )?(--[a-z-]+|[a-z]+)(.*(?:\n {10,}.*)*)", done.out, re.M)
    assert all(re.search(r" {2,}\S", text.replace("\n", "  ")) for option, text in helped if option != "usage"), helped


@pytest.mark.parametrize("name", COMMANDS)
def test_parser_of_one_command_is_that_of_all(name: str) -> None:
    def one(only: str) -> str:
        return cli.parser(only)._subparsers._group_actions[0].choices[name].format_help()  # type: ignore[union-attr,index,call-overload]

    assert one(name) == one("")


def test_examples_of_the_help_are_commands_that_exist(run: Run) -> None:
    lines = re.findall(r"^  draftproof (.+?)(?: {2,}.*)?$", run("--help").out, re.M)
    parser = cli.parser()
    assert len(lines) >= 8
    for line in lines:
        parser.parse_args(shlex.split(line))


def test_version_is_printed(run: Run) -> None:
    assert re.fullmatch(r"draftproof \d+\.\d+\.\d+\n", run("--version").out)


# --- explain, show, list ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["TEN403", "ten403"])
def test_explain_prints_the_page_that_the_docs_hold(code: str, run: Run) -> None:
    page = Path(__file__).parents[2] / "docs" / "rules" / "TEN403.md"
    assert run("explain", code) == (0, page.read_text(), "")


def test_explain_in_json_holds_the_whole_rule(run: Run) -> None:
    assert json.loads(run("explain", "TEN403", "--format", "json").out) == {"schema": 1, **RULES["TEN403"]._asdict()}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("explain", "TNE403"), "TEN403"),
        (("check", "kimi-k2-eagle"), "kimi-k2-eagle3"),
        (("show", "eagle3-mle"), "eagle3-mla"),
        (("show", "moonshotai/Kimi-K25"), "moonshotai/Kimi-K2.5"),
        (("check", "--drafter", "./draftr"), "drafter"),
        (("check", "--drafter", "drafter", "--family", "eagle3-mle"), "eagle3-mla"),
    ],
    ids=str,
)
def test_misspelt_name_gets_a_did_you_mean(words: tuple[str, ...], meant: str, run: Run) -> None:
    done = run(*words)
    assert re.search(rf"did you mean '[^']*{re.escape(meant)}[^']*'\?", done.out + done.err)


@pytest.mark.parametrize("kind", [k for k in FOLDERS if k != "model"])
def test_show_prints_a_contract_of_each_kind_in_both_formats(kind: str, run: Run) -> None:
    for id in [*Library().files(kind)][::7]:
        text, data = run("show", id), run("show", id, "--format", "json")
        assert (text.code, data.code) == (0, 0)
        assert f"id: {id}" in text.out
        assert json.loads(data.out)["id"] == id


def test_show_of_a_model_fact_file_prints_what_is_declared(run: Run) -> None:
    out = run("show", "k-l-lambda--kimi-k2.5-eagle3").out
    assert "moonshotai/Kimi-K2.5" in out
    assert "model card" in out


def test_show_of_a_family_prints_its_expressions_and_dialects(run: Run) -> None:
    data = json.loads(run("show", "eagle3", "--format", "json").out)
    assert data["tensors"]["fc.weight"]["shape"] == ["hidden", "aux * target.hidden"]
    assert data["dialects"]["nested"]["rename"] == {"model.": ""}


def test_show_of_a_recording_says_how_well_it_is_known(run: Run) -> None:
    data = json.loads(run("show", FOUNDING[1], "--format", "json").out)
    assert (data["provenance"], data["revision"], data["normalised"]) == ("derived", None, True)
    assert data["config"]["model_type"] == "kimi_k25"
    out = run("show", "org/drafter").out
    assert f"revision: {COMMIT}" in out
    assert "provenance: recorded" in out


def test_show_of_a_folder_never_says_that_its_config_is_empty(run: Run) -> None:
    done = run("show", "drafter", "--format", "json")
    if done.code == 0:
        assert json.loads(done.out)["config"]["hidden_size"] == builder.HIDDEN
        assert "norm.weight" in str(json.loads(done.out)["tensors"])


def test_list_prints_every_id_of_every_kind(run: Run) -> None:
    data = json.loads(run("list", "--format", "json").out)
    assert set(data) == {
        "schema",
        "families",
        "targets",
        "schemes",
        "pairs",
        "acceptances",
        "engines/profiles",
        "engines/classes",
        "engines/configs",
        "launches",
        "formats",
        "engines",
        "trainers",
        "releases",
        "recordings",
    }
    for kind, folder in FOLDERS.items():
        if kind != "model":
            assert set(Library().files(kind)) <= set(data[folder])
    assert {"good", "bad", "murky"} <= set(data["pairs"])
    assert "broken" in data["pairs"]["torn"]
    assert "org/drafter" in data["recordings"]


@pytest.mark.parametrize(
    "kind", ["families", "targets", "schemes", "pairs", "acceptances", "engines", "recordings", "rules"]
)
def test_list_of_one_kind_prints_that_kind_sorted(kind: str, run: Run) -> None:
    data = json.loads(run("list", kind, "--format", "json").out)
    assert list(data) == ["schema", kind]
    if kind == "rules":
        assert list(data[kind]) == list(RULES)
    else:
        assert list(data[kind]) == sorted(data[kind], key=str.lower) or list(data[kind]) == sorted(data[kind])
    out = run("list", kind).out
    assert out.startswith(f"{kind}\n")
    assert all(f"\n  {id}: " in out for id in data[kind])


def test_contracts_option_reads_another_folder(run: Run, models: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("check", "good").code == 2
    assert run("check", "good", "--contracts", models / "contracts").code == 0
    assert "good" in run("list", "pairs", "--contracts", models / "contracts").out


# --- check --------------------------------------------------------------------------------------------------------


def test_check_of_a_drafter_takes_the_target_it_declares_and_that_is_at_hand(run: Run) -> None:
    out = run("check", "--drafter", FOUNDING[0]).out
    assert out.startswith(f"{FOUNDING[0]} with moonshotai/Kimi-K2-Instruct: ")
    assert "\nfits: " in out


def declaring(folder: Path, target: str) -> Path:
    verifier = {"speculators_config.verifier.name_or_path": target}
    return builder.write(folder / "declares", builder.edit(builder.dense_config(), verifier), builder.dense())


def test_check_of_a_drafter_takes_the_target_its_config_declares(run: Run, tmp_path: Path) -> None:
    out = run("check", "--drafter", declaring(tmp_path, "org/target")).out
    assert out.splitlines()[0].partition(": ")[0].endswith(" with org/target")


def test_declared_target_that_is_not_at_hand_is_unknown_and_said(run: Run, tmp_path: Path) -> None:
    done = run("check", "--drafter", declaring(tmp_path, "nowhere/target"))
    assert done.code == 4
    assert "SRC106 [unknown] declared target nowhere/target" in done.out


def test_check_of_a_drafter_that_declares_no_target_says_that_it_alone_was_judged(run: Run) -> None:
    done = run("check", "--drafter", "drafter")
    assert done.code == 0
    assert re.search(r"no target|only the drafter|drafter alone|target +none", done.out)


def test_pair_file_names_folders_below_its_own(run: Run, models: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("check", models / "contracts/pairs/murky.toml", "--contracts", models / "contracts")
    assert "SRC1" not in done.out
    assert done.code == 4
    assert "TEN403" in run("check", models / "contracts/pairs/bad.toml", "--contracts", models / "contracts").out


def test_verbose_shows_the_checks_that_hold(run: Run) -> None:
    assert "[pass]" not in run("check", "good").out
    for flag in ("-v", "--verbose"):
        assert "[pass] " in run("check", "good", flag).out


def test_check_of_a_config_says_that_no_weights_were_read(run: Run) -> None:
    assert "a config, no weights" in run("check", "--config", "drafter/config.json").out


def test_check_of_a_config_with_a_target_compares_them(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(builder.dense_config(max_position_embeddings=1024)))
    done = run("check", "--config", config, "--target", "target")
    assert done.code == 1
    assert "PAIR403" in done.out


def test_check_of_a_folder_as_config_names_the_file_to_give(run: Run) -> None:
    assert "give drafter/config.json" in run("check", "--config", "drafter").out


def test_family_option_decides_where_the_config_does_not_tell(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(builder.dense_config(architectures=["Nobody"], eagle_config=builder.ABSENT)))
    told = run("check", "--config", config, "--family", "eagle3-mla")
    assert "; eagle3-mla; a config" in told.out


# --- record -------------------------------------------------------------------------------------------------------


def test_record_writes_a_file_that_check_then_reads(run: Run, models: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("record", models / "drafter", "--as", f"mine/own@{COMMIT}")
    file = tmp_path / "mine--own@01234567.json"
    assert (done.code, done.out) == (0, f"recorded in {file.name}\n")
    assert json.loads(file.read_text())["provenance"] == "recorded"
    (tmp_path / "contracts" / "recordings").mkdir(parents=True)
    file.rename(tmp_path / "contracts" / "recordings" / file.name)
    again = run("check", "--drafter", "mine/own")
    assert again.code == 0
    assert "mine/own@0123456; eagle3 (midlayer names); recorded" in again.out
    assert run("check", "--drafter", f"mine/own@{COMMIT}").code == 0
    assert "SRC119" in run("check", "--drafter", f"mine/own@{'f' * 40}").out


def test_record_knows_a_snapshot_in_a_hub_cache(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "hub" / "models--my-org--my-name" / "snapshots" / COMMIT
    builder.write(folder, builder.dense_config(), builder.dense())
    assert run("record", folder).code == 0
    data = json.loads((tmp_path / "my-org--my-name@01234567.json").read_text())
    assert (data["repo"], data["revision"]) == ("my-org/my-name", COMMIT)
    assert "snapshot" in data["read"]["source"]


def test_record_refuses_to_replace_a_file_that_it_was_not_told_to_write(
    run: Run, models: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine--own@01234567.json"
    file.write_text("precious")
    done = run("record", models / "drafter", "--as", f"mine/own@{COMMIT}")
    assert done.code == 2
    assert "exists" in done.err
    assert file.read_text() == "precious"
    assert run("record", models / "drafter", "--as", f"mine/own@{COMMIT}", "--output", "other.json").code == 0
    assert json.loads((tmp_path / "other.json").read_text())["repo"] == "mine/own"


def test_record_of_a_broken_checkpoint_writes_nothing(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    folder = builder.write(tmp_path / "cut", builder.dense_config(), builder.dense())
    (folder / "model.safetensors").write_bytes(b"\xff" * 4)
    before = sorted(tmp_path.iterdir())
    done = run("record", folder, "--as", f"mine/own@{COMMIT}")
    assert done.code == 1
    assert "STF201" in done.out
    assert sorted(tmp_path.iterdir()) == before


def test_record_of_a_target_keeps_only_what_its_contract_names(run: Run, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run("record", models / "target", "--as", f"mine/target@{COMMIT}", "--output", out)
    tensors = json.loads(out.read_text())["tensors"]
    assert tensors["count"] == len(builder.target())
    assert "model.layers.0.mlp.gate_proj.weight" not in tensors["named"]
    assert not tensors["complete"]


@pytest.mark.parametrize("words", [("show", ""), ("record", "", "--as", f"mine/own@{COMMIT}")], ids=["show", "record"])
def test_empty_name_is_not_the_current_folder(
    words: tuple[str, ...], run: Run, models: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(models / "drafter")
    assert run(*words, "--output", tmp_path / "out").code == 2


# --- where the answer goes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("words", [("check", "bad"), ("list",), ("explain", "TEN403"), ("show", "eagle3")], ids=str)
def test_output_file_holds_what_the_terminal_would_show(
    words: tuple[str, ...], format: str, run: Run, tmp_path: Path
) -> None:
    shown = run(*words, "--format", format)
    done = run(*words, "--format", format, "--output", tmp_path / "out")
    assert done == (shown.code, "", "")
    assert (tmp_path / "out").read_text() == shown.out


@pytest.mark.parametrize("output", ["none/such/out", "drafter", "drafter/config.json/out"])
def test_output_that_cannot_be_written_exits_with_2_and_says_why(output: str, run: Run) -> None:
    done = run("check", "good", "--output", output)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"draftproof: cannot write {output}: ")
    assert len(done.err.splitlines()) == 1


def test_full_device_exits_with_2_and_says_why(models: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = program("check", "bad", folder=models, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, b"draftproof: cannot write the answer: No space left on device\n")


def test_reader_that_went_away_gets_no_traceback_and_no_false_verdict(models: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = program("check", "bad", folder=models, capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert done.stderr == b""
    assert done.returncode in (1, 141)  # 0 would say that the pair holds


def test_closed_stdout_is_no_crash(models: Path) -> None:
    words = shlex.join([sys.executable, "-m", "draftproof.cli", "check", "bad"])
    done = subprocess.run(["sh", "-c", f"{words} >&-"], cwd=models, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode in (1, 2)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_terminal_that_knows_only_ascii_gets_escapes(locale: str, tmp_path: Path) -> None:
    folder = builder.write(tmp_path / "größe…", builder.dense_config(), builder.dense())
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": locale, "PYTHONUTF8": "0"}
    done = program("check", "--drafter", folder.name, folder=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    if locale == "C.UTF-8":
        assert done.stdout.startswith(rb"gr\xf6\xdfe\u2026: holds")
    wrong = program("check", "--drafter", "./größe", "--frob", folder=tmp_path, env=env)
    assert wrong.returncode == 2
    assert wrong.stderr.isascii()
    assert b"Traceback" not in wrong.stderr


def test_interrupt_exits_with_130_and_says_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "check_pair_id", stop)
    assert run("check", "good") == (130, "", "")
    monkeypatch.setattr(adapt, "adapt", stop)
    assert run("adapt", "drafter", "--to", "target") == (130, "", "")


def test_program_returns_the_exit_code(models: Path) -> None:
    assert [program("check", id, folder=models).returncode for id in ("good", "bad", "torn", "murky")] == [0, 1, 2, 4]


def test_check_of_a_recording_imports_neither_numpy_nor_hub_nor_torch(models: Path) -> None:
    code = (
        "import sys; from draftproof import cli; cli.main(['check', 'good', '--output', sys.argv[1]]);"
        "print(sorted({'numpy', 'torch', 'huggingface_hub', 'safetensors', 'pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, os.devnull], cwd=models, capture_output=True, check=True)
    assert done.stdout == b"[]\n"


# --- what is foreign never reaches a terminal raw -----------------------------------------------------------------

EVIL = "x\x1b[31mred\x1b[0m\u202e\x9b2J"


def evil(folder: Path) -> tuple[Path, Path]:
    """Write a drafter and a target whose folder, tensors, shards and config hold escape sequences."""
    table = builder.dense() | {f"{EVIL}.weight": ("BF16", (2, 2)), "layers.\x1b[2J.weight": ("BF16", (3,))}
    config = builder.dense_config(architectures=[EVIL, "LlamaForCausalLMEagle3"], model_type=EVIL, hidden_act=EVIL)
    config |= {EVIL: EVIL, "rope_scaling": {EVIL: EVIL, "rope_type": EVIL}, "quantization_config": {EVIL: EVIL}}
    other = builder.target() | {f"model.{EVIL}": ("BF16", (2, 2))}
    base = builder.target_config(model_type="llama", torch_dtype=EVIL, rope_scaling={"rope_type": EVIL})
    drafter = builder.write(folder / f"drafter {EVIL}", config, table)
    (drafter / f"{EVIL}.safetensors").write_bytes(b"stray")
    return drafter, builder.write(folder / f"target {EVIL}", base, other)


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--drafter", "D"),
        ("check", "--drafter", "D", "--verbose"),
        ("check", "--drafter", "D", "--target", "T", "--verbose"),
        ("check", "--config", "D/config.json", "--target", "T"),
        ("check", "--drafter", "D", "--family", EVIL),
        ("check", EVIL),
        ("check", f"{EVIL}.toml"),
        ("adapt", "D", "--to", "T"),
        ("adapt", "D", "--to", "T", "--family", "eagle3"),
        ("adapt", "D", "--to", "T", "--like", "D"),
        ("diff", "D", "T"),
        ("diff", "D", "D", "--target", "T"),
        ("diff", EVIL, "D"),
        ("show", "D"),
        ("show", EVIL),
        ("record", "D"),
        ("record", "D", "--as", EVIL),
        ("explain", EVIL),
    ],
    ids=lambda words: " ".join(words).replace(EVIL, "EVIL"),
)
def test_escape_sequences_never_reach_the_output_raw(words: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    drafter, target = evil(tmp_path)
    places = {"D": str(drafter), "T": str(target), "D/config.json": str(drafter / "config.json")}
    done = run(*(places.get(w, w) for w in words))
    assert done.out + done.err
    assert not RAW.findall(done.out + done.err)
    answer = run(*(places.get(w, w) for w in words), "--format", "json")
    assert not RAW.findall(answer.out + answer.err)


def test_escape_sequences_of_a_recording_or_contract_never_reach_the_output_raw(
    run: Run, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    drafter, _ = evil(tmp_path)
    (tmp_path / "contracts" / "recordings").mkdir(parents=True)
    (tmp_path / "contracts" / "pairs").mkdir()
    file = f"contracts/recordings/evil--one@{COMMIT[:8]}.json"
    assert run("record", drafter, "--as", f"evil/one@{COMMIT}", "--output", file).code == 0
    pair = 'schema = 1\nkind = "pair"\nid = "evil"\ntitle = "t\\u001b[2J\\u202e"\n'
    sides = 'drafter = { model = "a\\u001b[2J/b" }\ntarget = { model = "org/target" }\n'
    (tmp_path / "contracts" / "pairs" / "evil.toml").write_text(pair + sides)
    for line in ("show evil/one", "show evil", "list", "check evil", "check --drafter evil/one"):
        done = run(*line.split())
        assert not RAW.findall(done.out + done.err), line


def test_plugin_and_command_line_know_the_same_modes_of_the_hub() -> None:
    (options,) = [options for flag, options in cli._COMMON if flag == "--hub"]
    assert options["choices"] == plugin.HUB


def test_program_writes_all_of_its_answer_before_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["list", "--format", "json", "--hub", "recordings"]
    assert cli.main(words) == 0
    done = subprocess.run([sys.executable, "-m", "draftproof.cli", *words], check=True, capture_output=True, text=True)
    assert done.stdout == capsys.readouterr().out
    assert not done.stderr


def test_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "draftproof", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("draftproof ")
