"""The pytest plugin, as another repository sees it: marks, pairs, options, summary, rerun, xdist, zero-file mode."""

from __future__ import annotations

import gc
import json
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy  # noqa: F401 (pytester forgets what an inner run imports, and numpy must not be loaded twice)
import pytest

import builder
from draftproof import adapt, api, library, rewrite  # noqa: F401 (the same)
from hub.server import Server

pytest_plugins = ["pytester"]

COMMIT = "0" * 40
FACTS = """
[facts]
trained_on = { value = "org/target", source = "its card" }
aux_convention = { value = "boundary", source = "its card" }
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a good drafter, a bad one and a target, and the recordings of the good pair."""
    root = tmp_path_factory.mktemp("models")
    builder.write(root / "drafter", builder.dense_config(), builder.dense())
    builder.write(root / "target", builder.target_config(), builder.target())
    table = builder.changed(builder.dense(), {"fc.weight": ("BF16", (64, 256)), "norm.weight": None})
    builder.write(root / "bad", builder.dense_config(max_position_embeddings=1024), table)
    (root / "recordings").mkdir()
    for role in ("drafter", "target"):
        made, report = api.record(str(root / role), f"org/{role}@{COMMIT}", builder.LIBRARY)
        assert made, report
        (root / "recordings" / made["file"]).write_text(json.dumps(made["recording"]))
    return root


class Repo:
    """A repository of somebody else, with contracts/ and tests/."""

    def __init__(self, pytester: pytest.Pytester, models: Path) -> None:
        self.pytester, self.models, self.path = pytester, models, pytester.path
        self.write("pytest.ini", "[pytest]\naddopts = --strict-markers --strict-config\n")
        self.write("tests/test_drafter.py", "from draftproof.testing import TestShape  # noqa: F401\n")
        for path in (models / "recordings").iterdir():
            self.write(f"contracts/recordings/{path.name}", path.read_text())

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def pair(self, id: str, drafter: str = "org/drafter", target: str = "org/target", more: str = FACTS) -> None:
        head = f'schema = 1\nkind = "pair"\nid = "{id}"\ntitle = "t"\n'
        sides = f"drafter = {{ model = {json.dumps(drafter)} }}\ntarget = {{ model = {json.dumps(target)} }}\n"
        self.write(f"contracts/pairs/{id}.toml", head + sides + more)

    def bad(self, id: str = "bad", more: str = FACTS) -> None:
        self.pair(id, str(self.models / "bad"), more=more)

    def murky(self, id: str = "murky", more: str = "") -> None:
        """Write a pair that conforms, and of which two checks of the fit are unknown: PAIR408 and PAIR417."""
        self.pair(id, more=more)

    def unheard(self, id: str = "unheard") -> None:
        """Write a pair of which nothing is at hand, so that nothing can be decided."""
        self.pair(id, "nowhere/drafter", "nowhere/target", "")

    def pytest(self, *words: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess(*QUICK, *words)

    def xdist(self, *words: str) -> pytest.RunResult:
        return self.pytester.runpytest_subprocess(*QUICK, "-n", "2", *words, timeout=60)

    def typed(self, line: str, *more: str) -> pytest.RunResult:
        """Run a line that was printed, as if typed in the current folder."""
        program, *words = shlex.split(line)
        if program == "draftproof":
            return self.pytester.run(sys.executable, "-m", "draftproof.cli", *words, *more, timeout=60)
        assert program == "pytest"
        return self.pytest(*words, *more)


QUICK = ("-p", "no:cacheprovider", "-p", "no:benchmark", "-p", "no:syrupy", "-p", "no:hypothesispytest")


@pytest.fixture
def repo(pytester: pytest.Pytester, models: Path) -> Repo:
    return Repo(pytester, models)


@pytest.fixture
def empty(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder that is a root of its own."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def rerun_of(result: pytest.RunResult, n: int = 0) -> str:
    return re.findall(r"^ *rerun +(.+)$", result.stdout.str(), re.M)[n]


def next_of(result: pytest.RunResult) -> str:
    return re.findall(r"^next: (.+)$", result.stdout.str(), re.M)[0]


def counts_of(result: pytest.RunResult) -> str:
    return re.findall(r"^\d+ pairs?: .*$", result.stdout.str(), re.M)[0]


def flat(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


# --- marks --------------------------------------------------------------------------------------------------------


def test_marks_are_registered_so_that_strict_markers_works_in_another_repository(repo: Repo) -> None:
    marks = ("shape", "weights", "forward", "gpu", "live", "snapshot")
    body = "".join(f"@pytest.mark.{m}\ndef test_{m}(): pass\n" for m in marks)
    repo.write("tests/test_drafter.py", f"import pytest\n{body}")
    repo.pytest("--strict-markers").assert_outcomes(passed=len(marks))
    out = repo.pytest("--markers").stdout.str()
    assert all(f"@pytest.mark.{m}: " in out for m in marks)


GARBAGE = """
import gc
import sys

import pytest

from draftproof.testing import TestShape  # noqa: F401


class TestWhile:
    @pytest.mark.shape
    def test_none(self, draftproof_verify):
        assert not gc.isenabled()
        assert "draftproof.api" in sys.modules


def test_after():
    assert gc.isenabled()
"""


def test_python_looks_for_no_garbage_while_pairs_are_read_and_does_so_again_after(repo: Repo) -> None:
    repo.pair("good")
    repo.write("tests/test_drafter.py", GARBAGE)
    was, finders = gc.isenabled(), list(sys.meta_path)
    gc.enable()
    try:
        repo.pytester.runpytest_inprocess("tests", "-p", "no:cacheprovider").assert_outcomes(passed=4)
        assert gc.isenabled()
        gc.disable()
        repo.pytester.runpytest_inprocess("tests", "-p", "no:cacheprovider", "-k", "TestShape or TestWhile")
        assert not gc.isenabled()  # as the caller had it
    finally:
        (gc.enable if was else gc.disable)()
    assert sys.meta_path == finders


def test_unknown_mark_is_still_refused_under_strict_markers(repo: Repo) -> None:
    repo.write("tests/test_drafter.py", "import pytest\n@pytest.mark.shap\ndef test_x(): pass\n")
    assert repo.pytest().ret == 2


def test_options_and_ini_keys_are_in_help(repo: Repo) -> None:
    out = flat(repo.pytest("--help"))
    for word in ("--drafter", "--target", "--draftproof-fail-on", "--draftproof-require", "--draftproof-contracts"):
        assert word in out
    assert "draftproof_fail_on" in out
    assert "draftproof_contracts" in out


# --- one test per pair and rung -----------------------------------------------------------------------------------


def test_each_pair_gives_one_test_per_rung_named_by_its_id(repo: Repo) -> None:
    repo.pair("first")
    repo.pair("second")
    out = repo.pytest("--collect-only", "-q", "-m", "shape").stdout.str()
    ids = [line for line in out.splitlines() if "::" in line]
    assert sorted(ids) == [
        f"tests/test_drafter.py::TestShape::test_{rung}[{id}]"
        for rung in ("conforms", "fits")
        for id in ("first", "second")
    ]


def test_pair_that_holds_passes_and_shipped_pairs_are_not_run_beside_own_ones(repo: Repo) -> None:
    repo.pair("good")
    result = repo.pytest("-m", "shape")
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    assert counts_of(result).startswith("1 pair: ")


def test_failing_pair_is_one_failure_per_rung_with_all_its_findings(repo: Repo) -> None:
    repo.bad()
    result = repo.pytest("-k", "test_conforms")
    result.assert_outcomes(failed=1, deselected=1)
    out = result.stdout.str()
    assert "TEN401 drafter norm.weight: " in out
    assert "TEN403 drafter fc.weight: " in out
    assert "[64, 256]" in out
    assert len(re.findall(r"^  help ", out, re.M)) == 2


@pytest.mark.parametrize("variable", ["CI", "BUILD_NUMBER"])
def test_on_a_ci_the_findings_are_printed_once_too(repo: Repo, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "true")
    repo.bad()
    lines = repo.pytest("-k", "test_conforms").stdout.lines
    assert sum(line.startswith("  help ") for line in lines) == 2
    assert next(line for line in lines if line.startswith("FAILED ")).endswith("bad: TEN401, TEN403")


@pytest.mark.parametrize("style", ["auto", "long", "short", "native"])
def test_failure_holds_no_traceback_of_ours(repo: Repo, style: str) -> None:
    repo.bad()
    out = repo.pytest(f"--tb={style}").stdout.str()
    assert "TEN403" in out
    assert "src/draftproof" not in out
    assert "Traceback" not in out
    assert "plugin.py" not in out


def test_passing_checks_are_not_printed_in_a_failure(repo: Repo) -> None:
    repo.bad()
    assert "[pass]" not in repo.pytest().stdout.str()


def test_short_summary_of_a_failure_names_the_pair_and_a_code(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    repo.bad()
    line = next(x for x in repo.pytest("-k", "conforms").stdout.lines if x.startswith("FAILED "))
    assert "[bad]" in line
    assert "TEN401" in line


# --- rerun --------------------------------------------------------------------------------------------------------


def test_rerun_typed_from_the_root_runs_exactly_that_test(repo: Repo) -> None:
    repo.bad("one")
    repo.bad("two")
    line = rerun_of(repo.pytest("-m", "shape"), 2)
    result = repo.typed(line, "-v")
    result.assert_outcomes(failed=1)
    node = re.findall(r"(\S+::\S+) FAILED", result.stdout.str())
    assert len(node) == 1
    assert node[0] in line


def test_rerun_typed_from_a_subdirectory_runs_exactly_that_test(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.bad("one")
    repo.bad("two")
    (repo.path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(repo.path / "deep" / "er")
    line = rerun_of(repo.pytest("../..", "-m", "shape", "-k", "two and fits"))
    assert "../../tests/test_drafter.py" in line
    result = repo.typed(line, "-v")
    result.assert_outcomes(failed=1)
    assert "test_fits[two]" in result.stdout.str()


def test_rerun_keeps_the_threshold_that_failed_the_test(repo: Repo) -> None:
    repo.murky()
    result = repo.pytest("--draftproof-fail-on", "unknown", "-k", "fits")
    result.assert_outcomes(failed=1, deselected=1)
    repo.typed(rerun_of(result)).assert_outcomes(failed=1)


def test_rerun_keeps_the_folder_of_contracts(repo: Repo) -> None:
    repo.bad()
    (repo.path / "contracts").rename(repo.path / "my own")
    result = repo.pytest("--draftproof-contracts", "my own", "-k", "fits")
    result.assert_outcomes(failed=1, deselected=1)
    repo.typed(rerun_of(result)).assert_outcomes(failed=1)


def test_rerun_works_for_a_test_module_and_an_id_that_a_shell_would_split(repo: Repo) -> None:
    repo.bad()
    (repo.path / "tests").rename(repo.path / "my tests")
    result = repo.pytest("my tests", "-k", "fits")
    repo.typed(rerun_of(result)).assert_outcomes(failed=1)


def test_rerun_is_one_line_however_long(repo: Repo, models: Path) -> None:
    deep = repo.path / "/".join(["a-folder-with-a-long-name"] * 4)
    builder.write(deep / "bad", builder.dense_config(max_position_embeddings=1024), builder.dense())
    drafter, target = str(deep / "bad"), str(models / "target")
    result = repo.pytest("-m", "shape", f"--drafter={drafter}", f"--target={target}")
    result.assert_outcomes(failed=1, passed=1)
    words = shlex.split(rerun_of(result))
    assert f"--drafter={drafter}" in words
    assert f"--target={target}" in words


def test_rerun_of_zero_file_mode_fails_again(repo: Repo, empty: Path, models: Path) -> None:
    result = repo.pytest("-m", "shape", "--drafter", str(models / "bad"), "--target", str(models / "target"))
    result.assert_outcomes(failed=2)
    repo.typed(next_of(result)).assert_outcomes(failed=2)


# --- unknown ------------------------------------------------------------------------------------------------------


def test_unknown_is_a_skip_with_the_reason_that_names_the_pair(repo: Repo) -> None:
    repo.murky()
    result = repo.pytest("-m", "shape", "-ra")
    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == 0
    skip = next(line for line in result.stdout.lines if line.startswith("SKIPPED"))
    assert "murky: unknown: PAIR408 " in skip
    assert "PAIR417 lineage" in skip


def test_skips_of_two_pairs_are_told_apart(repo: Repo) -> None:
    repo.murky("one")
    repo.murky("two")
    out = repo.pytest("-ra").stdout.str()
    assert "one: unknown: " in out
    assert "two: unknown: " in out


def test_skip_does_not_point_into_the_plugin(repo: Repo) -> None:
    repo.murky()
    assert "plugin.py" not in repo.pytest("-ra").stdout.str()


def test_model_that_is_not_at_hand_is_unknown_on_every_rung(repo: Repo) -> None:
    repo.unheard()
    result = repo.pytest("-ra")
    result.assert_outcomes(skipped=2)
    assert "SRC112 drafter nowhere/drafter" in result.stdout.str()


# --- fail-on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "failed"), [(None, 0), ("error", 0), ("warning", 0), ("unknown", 1)], ids=str)
def test_fail_on_decides_what_unknown_does(repo: Repo, level: str | None, failed: int) -> None:
    repo.murky()
    words = ["--draftproof-fail-on", level] if level else []
    repo.pytest(*words).assert_outcomes(passed=1, failed=failed, skipped=1 - failed)


@pytest.mark.parametrize(("level", "failed"), [("error", 0), ("warning", 1), ("unknown", 1)])
def test_fail_on_decides_what_a_warning_does(repo: Repo, level: str, failed: int) -> None:
    builder.write(repo.path / "warned", builder.dense_config(bos_token_id=7), builder.dense())
    repo.pair("warned", str(repo.path / "warned"))
    report = api.check_pair_id("warned", library.Library(repo.path / "contracts"))
    assert report.counts["warning"] == 1
    assert report.counts["error"] == report.counts["unknown"] == 0
    repo.pytest("--draftproof-fail-on", level).assert_outcomes(passed=2 - failed, failed=failed)


def test_fail_on_ini_key_is_read_and_the_option_wins(repo: Repo) -> None:
    repo.murky()
    repo.write("pytest.ini", "[pytest]\ndraftproof_fail_on = unknown\n")
    repo.pytest().assert_outcomes(passed=1, failed=1)
    repo.pytest("--draftproof-fail-on", "error").assert_outcomes(passed=1, skipped=1)


def test_bad_fail_on_option_is_a_usage_error(repo: Repo) -> None:
    result = repo.pytest("--draftproof-fail-on", "unknwon")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--draftproof-fail-on*unknwon*"])


def test_bad_fail_on_ini_key_is_a_usage_error_that_lists_the_words(repo: Repo) -> None:
    repo.write("pytest.ini", "[pytest]\ndraftproof_fail_on = eror\n")
    result = repo.pytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*draftproof_fail_on*eror*error, warning or unknown*"])


# --- acceptances --------------------------------------------------------------------------------------------------

EXPECTED = """
expect_unknown = [
  { code = "PAIR408", because = "the card states none" },
  { code = "PAIR417", because = "not published" },
]
"""


@pytest.mark.parametrize("level", ["error", "warning", "unknown"])
def test_expected_unknown_is_accepted_at_every_level(repo: Repo, level: str) -> None:
    repo.murky(more=EXPECTED)
    result = repo.pytest("--draftproof-fail-on", level)
    result.assert_outcomes(passed=2)
    assert "2 unknown (2 expected)" in counts_of(result)


def test_expected_unknown_fails_once_the_thing_is_known(repo: Repo) -> None:
    repo.murky(more=EXPECTED + FACTS)
    result = repo.pytest()
    result.assert_outcomes(passed=1, failed=1)
    out = result.stdout.str()
    assert out.count("CON112") >= 2
    assert "contracts/pairs/murky.toml:9" in out


def test_allow_with_a_reason_accepts_an_error_and_the_summary_counts_it(repo: Repo) -> None:
    allow = 'allow = [\n  { code = "PAIR403", because = "it is served with short prompts" },\n]\n'
    builder.write(repo.path / "short", builder.dense_config(max_position_embeddings=1024), builder.dense())
    repo.pair("short", str(repo.path / "short"), more=allow + FACTS)
    result = repo.pytest("--draftproof-fail-on", "unknown")
    result.assert_outcomes(passed=2)
    assert "0 fail" in counts_of(result)
    assert "1 accepted" in counts_of(result)


def test_allow_without_a_reason_is_a_failing_test_not_a_collection_crash(repo: Repo) -> None:
    repo.pair("good")
    repo.pair("lazy", more='allow = [{ code = "PAIR403" }]\n' + FACTS)
    result = repo.pytest()
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "contracts/pairs/lazy.toml:7" in result.stdout.str()
    assert "because" in result.stdout.str()


def test_allow_that_matches_nothing_fails(repo: Repo) -> None:
    repo.pair("good", more='allow = [{ code = "PAIR403", because = "short" }]\n' + FACTS)
    result = repo.pytest()
    result.assert_outcomes(passed=1, failed=1)
    assert "CON112 good: allow PAIR403" in result.stdout.str()


# --- broken contracts ---------------------------------------------------------------------------------------------


def test_broken_toml_is_a_failing_test_with_file_and_line(repo: Repo) -> None:
    repo.pair("good")
    repo.write("contracts/pairs/torn.toml", 'schema = 1\nkind = "pair"\nid = "torn\n')
    result = repo.pytest()
    result.assert_outcomes(passed=2, failed=1, skipped=1)
    assert "test_conforms[torn]" in result.stdout.str()
    assert "contracts/pairs/torn.toml:3" in result.stdout.str()


def test_every_mistake_of_a_contract_is_in_the_one_failure(repo: Repo) -> None:
    repo.pair("wrong", more='expect_unknwon = []\nallow = [{ code = "x", because = "y" }, { code = "PAIR403" }]\n')
    out = repo.pytest("-k", "conforms").stdout.str()
    assert "did you mean 'expect_unknown'?" in out
    assert len(set(re.findall(r"^(CON\d{3}) ", out, re.M))) >= 2


@pytest.mark.parametrize("architecture", ["LlamaForCausalLMEagle3", "ThatNoPairHas"])
def test_broken_family_of_the_repository_fails_a_test_with_file_and_line(repo: Repo, architecture: str) -> None:
    repo.pair("good")
    head = 'schema = 1\nkind = "family"\nid = "mine"\n'
    repo.write("contracts/families/mine.toml", f'{head}nonsense = 1\n[detect]\nany_architecture = ["{architecture}"]\n')
    result = repo.pytest("-m", "shape")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    out = result.stdout.str()
    assert "contracts/families/mine.toml:4" in out
    assert "nonsense" in out
    assert "src/draftproof" not in out


def test_pair_that_is_a_folder_or_not_utf8_fails_without_a_traceback(repo: Repo) -> None:
    (repo.path / "contracts/pairs/folder.toml").mkdir(parents=True)
    (repo.path / "contracts/pairs/latin.toml").write_bytes(b'title = "\xe9"\n')
    result = repo.pytest("-k", "conforms")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "Traceback" not in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    assert "test_conforms[latin]" in result.stdout.str()


# --- require ------------------------------------------------------------------------------------------------------


def test_require_fails_a_run_in_which_everything_was_skipped(repo: Repo) -> None:
    repo.unheard()
    assert repo.pytest().ret == 0
    result = repo.pytest("--draftproof-require", "shape")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "required: shape, and no test of that kind decided anything" in result.stdout.str()


def test_require_is_met_by_one_decided_test(repo: Repo) -> None:
    repo.unheard()
    repo.pair("good")
    result = repo.pytest("--draftproof-require", "shape")
    assert result.ret == 0
    assert "required" not in result.stdout.str()


def test_require_of_two_kinds_names_the_one_that_was_not_decided(repo: Repo) -> None:
    repo.pair("good")
    result = repo.pytest("--draftproof-require", "shape", "--draftproof-require", "weights")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "required: weights" in result.stdout.str()
    assert "required: shape" not in result.stdout.str()


def test_require_in_addopts_fails_a_run_in_which_nothing_was_selected(repo: Repo) -> None:
    repo.pair("good")
    repo.write("pytest.ini", "[pytest]\naddopts = --draftproof-require=shape\n")
    assert repo.pytest("-k", "no_such_test").ret != 0


def test_require_keeps_the_exit_code_of_a_run_that_broke(repo: Repo) -> None:
    repo.write("tests/test_torn.py", "import no_such_module\n")
    assert repo.pytest("--draftproof-require", "shape").ret == pytest.ExitCode.INTERRUPTED


def test_require_does_not_fail_a_listing(repo: Repo) -> None:
    repo.pair("good")
    assert repo.pytest("--collect-only", "--draftproof-require", "shape").ret == 0


def test_require_of_an_unknown_kind_is_a_usage_error(repo: Repo) -> None:
    assert repo.pytest("--draftproof-require", "shapes").ret == pytest.ExitCode.USAGE_ERROR


# --- nothing selected ---------------------------------------------------------------------------------------------


def test_shape_in_an_empty_folder_is_an_error_that_lists_what_exists(repo: Repo, empty: Path) -> None:
    result = repo.pytest("-m", "shape")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    out = result.stdout.str()
    assert "kimi-k2-eagle3-on-k25" in out
    assert "eagle3-mla" in out
    assert "kimi-k25" in out
    assert "--drafter=MODEL" in out


@pytest.mark.parametrize("folder", ["contracts", "contracts/pairs", ""])
def test_repository_without_pairs_fails_and_lists_what_exists(repo: Repo, folder: str) -> None:
    shutil.rmtree(repo.path / "contracts")
    (repo.path / folder).mkdir(parents=True, exist_ok=True)
    result = repo.pytest("-m", "shape")
    assert result.ret != 0
    out = result.stdout.str()
    assert f"no pair contract in {repo.path / 'contracts' / 'pairs'}" in out
    assert "kimi-k2-eagle3-on-k25" in out
    assert "Traceback" not in out


@pytest.mark.parametrize("folder", ["contracts", "contracts/pairs"])
def test_contracts_without_pairs_and_without_a_test_module_exit_with_5(repo: Repo, empty: Path, folder: str) -> None:
    (empty / folder).mkdir(parents=True)
    result = repo.pytest("-m", "shape")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "kimi-k2-eagle3-on-k25" in result.stdout.str()


def test_deselecting_everything_exits_with_5_and_lists_what_exists(repo: Repo) -> None:
    repo.pair("good")
    result = repo.pytest("-m", "shape", "-k", "no_such_pair")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "good" in result.stdout.str()
    assert "no pair contract in" not in result.stdout.str()  # there is one


def test_run_of_other_tests_says_nothing_of_draftproof(repo: Repo, empty: Path) -> None:
    (empty / "test_own.py").write_text("def test_own(): pass\n")
    result = repo.pytest()
    result.assert_outcomes(passed=1)
    assert "draftproof ===" not in result.stdout.str()
    assert repo.pytest("-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED


# --- --drafter, --target ------------------------------------------------------------------------------------------

FOUNDING = ("--drafter=AQ-MedAI/Kimi-K2-Instruct-eagle3", "--target=moonshotai/Kimi-K2.5")


def test_founding_case_is_checked_from_an_empty_folder(repo: Repo, empty: Path) -> None:
    result = repo.pytest("-m", "shape", *FOUNDING)
    result.assert_outcomes(failed=1, skipped=1)
    assert "PAIR403 context: " in result.stdout.str()
    assert list(empty.iterdir()) == []


def test_drafter_alone_is_checked_with_the_target_it_declares(repo: Repo, empty: Path) -> None:
    result = repo.pytest("-m", "shape", FOUNDING[0], "-rs")
    assert "Kimi-K2-Instruct" in result.stdout.str()
    assert result.parseoutcomes().get("failed", 0) == 0


def test_drafter_needs_no_mark(repo: Repo, empty: Path) -> None:
    repo.pytest(*FOUNDING).assert_outcomes(failed=1, skipped=1)


def test_drafter_does_not_collect_the_tests_of_the_folder_it_is_typed_in(repo: Repo, empty: Path) -> None:
    (empty / "test_own.py").write_text("import pytest\n@pytest.mark.shape\ndef test_own(): assert False\n")
    (empty / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    result = repo.pytest("-m", "shape", *FOUNDING, "-v")
    assert "test_own" not in result.stdout.str()
    result.assert_outcomes(failed=1, skipped=1)


def test_drafter_with_a_path_runs_what_the_path_names_on_that_drafter(repo: Repo) -> None:
    repo.pair("good")
    repo.write("tests/test_own.py", "def test_own(): pass\n")
    result = repo.pytest("tests/test_drafter.py", *FOUNDING)
    result.assert_outcomes(failed=1, skipped=1)
    assert "good" not in result.stdout.str()


def test_drafter_may_be_a_folder_given_relative_to_where_it_is_typed(
    repo: Repo, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    result = repo.pytest("-m", "shape", "--drafter", "./drafter", "--target", "./target")
    result.assert_outcomes(passed=1, skipped=1)


def test_drafter_elsewhere_is_checked_with_the_contracts_of_the_repository_it_is_typed_in(repo: Repo) -> None:
    family = (ROOT / "contracts/families/eagle3.toml").read_text()
    family = family.replace('id = "eagle3"', 'id = "mine"').replace("LlamaForCausalLMEagle3", "MyOwnEagle3")
    repo.write("contracts/families/mine.toml", family)
    config = builder.dense_config(architectures=["MyOwnEagle3"])
    drafter = builder.write(repo.path.parent / "elsewhere" / "mine", config, builder.dense())
    more = ("--target", str(repo.models / "target"), "--draftproof-family", "mine")
    split = repo.pytest("-m", "shape", "--drafter", str(drafter), *more)
    assert split.ret == pytest.ExitCode.USAGE_ERROR
    assert "write --drafter=MODEL and --target=MODEL" in split.stderr.str()
    more = (f"--target={repo.models / 'target'}", "--draftproof-family=mine")
    repo.pytest("-m", "shape", f"--drafter={drafter}", *more).assert_outcomes(passed=1, skipped=1)


def test_drafter_elsewhere_never_silently_drops_the_settings_of_the_repository(repo: Repo) -> None:
    repo.write("pytest.ini", "[pytest]\ndraftproof_fail_on = unknown\n")
    more = (str(repo.models / "drafter"), "--target", str(repo.models / "target"))
    result = repo.pytest("-m", "shape", "--drafter", *more)
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_unknown_model_is_a_skip_that_says_how_to_get_it(repo: Repo, empty: Path) -> None:
    result = repo.pytest("-m", "shape", "--drafter", "nowhere/model", "-ra")
    assert result.ret == 0
    assert "SRC106" in result.stdout.str()
    assert "nowhere/model" in result.stdout.str()
    assert repo.pytest("--drafter", "nowhere/model", "--draftproof-fail-on", "unknown").ret == 1


def test_misspelt_folder_fails(repo: Repo, empty: Path) -> None:
    result = repo.pytest("-m", "shape", "--drafter", "./no-such-folder")
    assert result.ret == 1
    assert "SRC111" in result.stdout.str()


@pytest.mark.parametrize("bad", [False, True], ids=["skip", "failure"])
def test_escape_sequences_of_a_folder_or_tensor_never_reach_the_output_raw(repo: Repo, bad: bool) -> None:
    evil = "x\x1b[31mred\u202e"
    table = builder.dense() | ({f"{evil}.weight": ("BF16", (2, 2))} if bad else {})
    builder.write(repo.path / evil, builder.dense_config(), table)
    result = repo.pytest("-m", "shape", f"--drafter=./{evil}", "--target=org/target", "-ra", "-v", "--color=no")
    assert result.parseoutcomes() == ({"failed": 1, "skipped": 1} if bad else {"passed": 1, "skipped": 1})
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", result.stdout.str())


def test_target_alone_is_a_usage_error(repo: Repo) -> None:
    result = repo.pytest("--target", "moonshotai/Kimi-K2.5")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--target goes with --drafter*"])


def test_family_alone_is_a_usage_error(repo: Repo) -> None:
    assert repo.pytest("--draftproof-family", "eagle3").ret == pytest.ExitCode.USAGE_ERROR


# --- --draftproof-contracts ---------------------------------------------------------------------------------------


def test_contracts_folder_is_taken_from_where_it_is_typed(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.pair("good")
    (repo.path / "contracts").rename(repo.path / "mine")
    repo.pytest("--draftproof-contracts", "mine").assert_outcomes(passed=2)
    monkeypatch.chdir(repo.path / "tests")
    repo.pytest("--draftproof-contracts", "../mine").assert_outcomes(passed=2)


def test_contracts_ini_key_is_below_the_root(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.pair("good")
    (repo.path / "contracts").rename(repo.path / "mine")
    repo.write("pytest.ini", "[pytest]\ndraftproof_contracts = mine\n")
    monkeypatch.chdir(repo.path / "tests")
    repo.pytest().assert_outcomes(passed=2)


def test_contracts_folder_that_is_not_there_is_a_usage_error(repo: Repo) -> None:
    assert repo.pytest("--draftproof-contracts", "no-such").ret == pytest.ExitCode.USAGE_ERROR
    repo.write("pytest.ini", "[pytest]\n")
    assert repo.pytest("--draftproof-contracts", "pytest.ini").ret == pytest.ExitCode.USAGE_ERROR


# --- the shipped pairs --------------------------------------------------------------------------------------------


def test_shipped_pairs_pass_from_an_empty_folder(repo: Repo, empty: Path) -> None:
    words = ("--draftproof-fail-on", "unknown", "--draftproof-require", "shape")
    result = repo.pytest("--pyargs", "draftproof.testing", "-m", "shape", *words)
    ids = library.Library().files("pair")
    outcomes = result.parseoutcomes()  # where only a name is known nothing is decided: such a test is skipped
    assert set(outcomes) == {"passed", "skipped"}
    pairs = [library.Library().get("pair", id)[0] for id in ids]
    assert sum(outcomes.values()) == sum(2 + len(pair.engines) for pair in pairs if pair)
    assert counts_of(result).startswith(f"{len(ids)} pairs: ")


def test_pair_of_which_nothing_is_known_is_skipped_and_says_so(repo: Repo, empty: Path) -> None:
    words = ("--draftproof-fail-on", "unknown", "-k", "yuhuili-vicuna-13b-eagle3", "-rs")
    result = repo.pytest("--pyargs", "draftproof.testing", "-m", "shape", *words)
    assert result.parseoutcomes()["skipped"] == 2
    said = "yuhuili-vicuna-13b-eagle3: unknown: nothing is known that decides; as expected, "
    assert f"{said}CFG313, SRC112, TEN400" in result.stdout.str()
    assert f"{said}PAIR422" in result.stdout.str()


def test_rerun_of_the_shipped_test_class_on_contracts_of_ones_own_works(repo: Repo) -> None:
    repo.bad()
    (repo.path / "tests" / "test_drafter.py").unlink()
    result = repo.pytest("--pyargs", "draftproof.testing", "-m", "shape", "-k", "fits")
    result.assert_outcomes(failed=1, deselected=1)
    repo.typed(rerun_of(result)).assert_outcomes(failed=1)


# --- summary ------------------------------------------------------------------------------------------------------


def test_summary_counts_what_the_reports_hold(repo: Repo) -> None:
    repo.pair("good")
    repo.bad()
    repo.murky()
    known = library.Library(repo.path / "contracts")
    reports = [api.check_pair_id(id, known) for id in ("good", "bad", "murky")]
    total = {level: sum(r.counts[level] for r in reports) for level in ("pass", "error", "unknown")}
    read = sum(r.bytes_read for r in reports)
    said = (
        f"3 pairs: {total['pass']} checks hold, {total['error']} fail, {total['unknown']} unknown; {read:,} bytes read"
    )
    assert counts_of(repo.pytest()) == said


def test_summary_counts_only_the_rungs_that_ran(repo: Repo) -> None:
    repo.bad()
    assert " 2 fail, " in counts_of(repo.pytest("-k", "conforms"))
    assert " 1 fail, " in counts_of(repo.pytest("-k", "fits"))


def test_next_after_a_failure_runs_it_again(repo: Repo) -> None:
    repo.bad()
    repo.typed(next_of(repo.pytest())).assert_outcomes(failed=1)


def test_next_after_a_skip_shows_the_reason(repo: Repo) -> None:
    repo.murky()
    result = repo.typed(next_of(repo.pytest()))
    result.assert_outcomes(skipped=1)
    assert "PAIR408" in result.stdout.str()


def test_next_after_all_passed_is_a_command_that_works_in_this_repository(repo: Repo) -> None:
    repo.pair("good")
    assert repo.typed(next_of(repo.pytest())).ret == 0


def test_next_after_a_zero_file_run_that_passed_has_no_placeholder(repo: Repo) -> None:
    head = 'schema = 1\nkind = "model"\nid = "org--drafter"\nrepo = "org/drafter"\n'
    repo.write("contracts/models/org--drafter.toml", head + FACTS.replace("[facts]\n", ""))
    result = repo.pytest("-m", "shape", "--drafter", "org/drafter", "--target", "org/target")
    result.assert_outcomes(passed=2)
    assert not re.search(r"\b[A-Z][A-Z_]{3,}\b", next_of(result))
    assert repo.typed(next_of(result)).ret in (0, 1, 4)


# --- properties ---------------------------------------------------------------------------------------------------


def test_user_properties_are_json_with_the_counts(repo: Repo) -> None:
    repo.bad()
    seen: list[dict[str, Any]] = []

    class Look:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call":
                seen.extend(json.loads(str(v)) for k, v in report.user_properties if k == "draftproof")

    repo.pytester.inline_run(*QUICK, plugins=[Look()])
    assert [row["pair"] for row in seen] == ["bad", "bad"]
    assert [row["fail"] for row in seen] == [2, 1]
    assert all(row["marks"] == ["shape"] for row in seen)
    assert all(row["rerun"].startswith("pytest ") for row in seen)


def test_junit_xml_holds_the_property_of_each_test(repo: Repo) -> None:
    repo.bad()
    repo.pair("good")
    repo.pytest("--junitxml", "out.xml")
    tree = ET.parse(repo.path / "out.xml")
    cases = list(tree.iter("testcase"))
    assert len(cases) == 4
    rows = [json.loads(p.get("value", "")) for c in cases for p in c.iter("property") if p.get("name") == "draftproof"]
    assert sorted(row["pair"] for row in rows) == ["bad", "bad", "good", "good"]


# --- xdist --------------------------------------------------------------------------------------------------------


def test_xdist_gives_the_same_results_counts_and_rerun_lines(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.pair("good")
    repo.bad()
    repo.murky()
    monkeypatch.chdir(repo.path / "tests")
    alone, spread = repo.pytest("-m", "shape"), repo.xdist("-m", "shape")
    assert spread.parseoutcomes() == alone.parseoutcomes() == {"passed": 3, "failed": 2, "skipped": 1}
    assert counts_of(spread) == counts_of(alone)
    assert {rerun_of(spread, n) for n in range(2)} == {rerun_of(alone, n) for n in range(2)}
    assert "'test_drafter.py::" in rerun_of(spread)
    assert spread.ret == alone.ret == 1


def test_xdist_tells_all_that_the_workers_moved_over_the_network(repo: Repo, loopback: Server) -> None:
    """The two tests of one pair go to two workers: both ask the Hub, the second after what the first has kept."""
    for role in ("drafter", "target"):
        loopback.add(f"org/{role}", repo.models / role)
    repo.pair("good")
    for words in (["-n", "2"], []):
        loopback.reset()
        done = repo.pytester.runpytest_subprocess(*QUICK, *words, "-m", "shape", "--draftproof-hub", "live", timeout=60)
        assert done.parseoutcomes() == {"passed": 2}
        told = re.search(r"([\d,]+) bytes read in (\d+) requests", done.stdout.str())
        assert told, done.stdout.str()
        assert int(told[2]) == loopback.requests > 0
        assert int(told[1].replace(",", "")) >= loopback.bytes


def test_xdist_and_require_fail_an_all_skipped_run_and_pass_a_decided_one(repo: Repo) -> None:
    repo.unheard()
    undecided = repo.xdist("--draftproof-require", "shape")
    assert undecided.ret == pytest.ExitCode.TESTS_FAILED
    assert "required: shape" in undecided.stdout.str()
    repo.pair("good")
    assert repo.xdist("--draftproof-require", "shape").ret == 0


def test_xdist_works_with_no_file(repo: Repo, empty: Path) -> None:
    result = repo.xdist("-m", "shape", *FOUNDING)
    assert result.parseoutcomes() == {"failed": 1, "skipped": 1}
    assert next_of(result) == shlex.join(["pytest", "-m", "shape", *FOUNDING])


# --- without the plugin, and its weight ---------------------------------------------------------------------------


def test_plugin_can_be_switched_off(repo: Repo) -> None:
    repo.write("tests/test_drafter.py", "def test_own(): pass\n")
    result = repo.pytest("-p", "no:draftproof")
    result.assert_outcomes(passed=1)
    assert "draftproof" not in result.stdout.str().replace(str(repo.path), "")
    assert repo.pytest("-p", "no:draftproof", "--drafter", "a/b").ret == pytest.ExitCode.USAGE_ERROR


HEAVY = "{'torch', 'numpy', 'huggingface_hub', 'safetensors', 'draftproof.api', 'draftproof.contracts'}"


def python(code: str, folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_plugin_imports_nothing_heavy(tmp_path: Path) -> None:
    code = f"import sys, draftproof.plugin; print(sorted({HEAVY} & set(sys.modules)))"
    assert python(code, tmp_path) == ["[]"]


def test_run_of_other_tests_imports_nothing_heavy_and_a_run_of_pairs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    code = (
        "import os, sys, pytest\n"
        "os.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'\n"
        "words = ['-q', '-p', 'draftproof.plugin', '-p', 'no:cacheprovider']\n"
        "assert pytest.main(words) == 0\n"
        f"print('\\nplain', sorted({HEAVY} & set(sys.modules)))\n"
        "assert pytest.main([*words, '-m', 'shape', '--pyargs', 'draftproof.testing']) == 0\n"
        "print('\\npairs', sorted({'torch', 'numpy', 'huggingface_hub'} & set(sys.modules)))\n"
    )
    out = python(code, tmp_path)
    assert "plain []" in out
    assert "pairs []" in out


# --- engines ------------------------------------------------------------------------------------------------------

TRAINED = FACTS + 'aux_layers = { value = [2, 6, 9], source = "its card" }\n'


def loads(result: pytest.RunResult) -> list[str]:
    """Return the tests of engines that were collected."""
    return sorted(set(re.findall(r"test_loads\[.+?\]", "\n".join(result.outlines))))


def test_no_engine_is_asked_about_unless_a_pair_or_the_command_line_names_one(repo: Repo) -> None:
    repo.pair("good")
    result = repo.pytest("-v")
    result.assert_outcomes(passed=2)
    assert not loads(result)


def test_engine_of_the_command_line_is_asked_about_with_every_pair(repo: Repo) -> None:
    repo.pair("good", more=TRAINED)
    repo.pair("other", more=TRAINED)
    result = repo.pytest("-v", "--engine", "sglang", "--engine=sglang")
    assert loads(result) == ["test_loads[good-sglang]", "test_loads[other-sglang]"]


def test_all_stands_for_every_engine_that_is_known(repo: Repo) -> None:
    repo.pair("good", more=TRAINED)
    found = loads(repo.pytest("-v", "--engine", "all"))
    assert found == [f"test_loads[good-{name}]" for name in sorted(builder.LIBRARY.files("profile"))]


def test_pair_names_the_engines_that_are_to_serve_it(repo: Repo) -> None:
    repo.pair("good", more='engines = ["sglang"]\n' + TRAINED)
    repo.pair("other", more=TRAINED)
    result = repo.pytest("-v", "-m", "shape")
    assert loads(result) == ["test_loads[good-sglang]"]


def test_pair_that_says_how_it_is_launched_is_held_to_that_engine_and_line(repo: Repo) -> None:
    line = "sglang serve org/target --speculative-draft-model org/drafter --speculative-num-steps three"
    repo.pair("good", more=f"{TRAINED}[launch]\nsglang = '{line}'\n")
    result = repo.pytest("-v", "-m", "shape")
    assert loads(result) == ["test_loads[good-sglang]"]
    result.stdout.fnmatch_lines(["*CLI658*", "*launch: --speculative-num-steps*"])


def test_failure_of_an_engine_is_a_test_of_its_own_that_is_run_again_as_printed(repo: Repo) -> None:
    repo.bad(more=TRAINED)
    result = repo.pytest("-v", "--engine", "sglang", "-k", "loads")
    result.assert_outcomes(failed=1, deselected=2)
    result.stdout.fnmatch_lines(["*SGL6*", "*rerun*--engine=sglang*"])
    rerun = next(line for line in result.outlines if line.strip().startswith("rerun")).split(None, 1)[1]
    repo.typed(rerun).assert_outcomes(failed=1)


def test_engine_that_a_pair_misspells_fails_with_the_right_name(repo: Repo) -> None:
    repo.pair("good", more='engines = ["sglng"]\n' + TRAINED)
    result = repo.pytest()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*CON113*", "*did you mean 'sglang'*"])


def test_engine_goes_with_a_drafter_and_no_file(repo: Repo, empty: Path, models: Path) -> None:
    result = repo.pytest("-v", f"--drafter={models / 'drafter'}", f"--target={models / 'target'}", "--engine=sglang")
    assert len(loads(result)) == 1
