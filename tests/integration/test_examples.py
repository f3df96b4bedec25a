"""The README is true: its order, its commands, and each of its examples, taken out of it and run."""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy  # noqa: F401 (pytester forgets what an inner run imports, and numpy must not be loaded twice)
import pytest

import builder
from draftproof import adapt, api, cli, rewrite  # noqa: F401 (the same)
from draftproof.library import Library, load
from draftproof.rules import RULES

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = [
    "Two commands",
    "What each rung checks",
    "What the engine will do with it",
    "How to write a contract",
    "In CI",
]
FOUNDING = "draftproof adapt AQ-MedAI/Kimi-K2-Instruct-eagle3 --to moonshotai/Kimi-K2.5 --hub recordings"


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def commands(text: str) -> list[str]:
    """Return what is typed in the console blocks, without prompts and comments."""
    typed = [line[2:] for block in blocks(text, "console") for line in block.splitlines() if line.startswith("$ ")]
    return [re.sub(r" {2,}#.*$", "", line) for line in typed]


def python(title: str, word: str) -> str:
    return next(block for block in blocks(section(title), "python") if word in block)


PAIR = next(b for b in blocks(section("How to write a contract"), "toml") if 'kind = "pair"' in b)
FAMILY = next(b for b in blocks(section("How to write a contract"), "toml") if "[dialects]" in b)


# --- order and commands -------------------------------------------------------------------------------------------


def test_readme_asks_the_question_first_and_keeps_its_order() -> None:
    assert re.findall(r"^## (.+)$", README, re.M) == SECTIONS
    first = README.partition("\n## ")[0]
    assert "Can this drafter" in first or "Will this drafter" in first
    assert "can AQ-MedAI/Kimi-K2-Instruct-eagle3" in first


def test_first_two_commands_answer_the_founding_case_and_run_the_tests() -> None:
    assert commands(README)[:2] == [
        f"pip install . && {FOUNDING}",
        "pip install -c constraints.txt '.[test]' && pytest -n auto",
    ]
    assert commands(section("Two commands")) == commands(README)[:2]


def test_output_of_the_first_command_is_generated_and_stands_below_it() -> None:
    text = section("Two commands")
    assert text.index(FOUNDING) < text.index(f"<!-- {FOUNDING} -->\n```text\n") < text.index("pytest -n auto")


def test_ci_runs_what_the_second_command_says() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"pip install .*-c constraints\.txt '\.\[[a-z,]*test\b", script)
    assert re.search(r"pytest\b.*-n", script)


def test_every_draftproof_command_of_the_readme_is_one_that_exists() -> None:
    parser = cli.parser()
    lines = [part for line in commands(README) for part in line.split(" && ") if part.startswith("draftproof ")]
    assert {shlex.split(line)[1] for line in lines} >= {"adapt", "check", "record"}
    for line in lines:
        parser.parse_args(shlex.split(line)[1:])


def test_every_name_in_the_readme_is_real() -> None:
    known = set(RULES) | {f"{code[:-1]}*" for code in RULES}
    assert set(re.findall(r"\b[A-Z]{3,4}[1-4]\d\d\b", README)) <= known
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert "://" in link or (ROOT / link).exists(), link
    families = re.search(r"^Families: (.+?)\. *$|^Families: (.+?)\.\n", README, re.M | re.S)
    assert families
    assert all(f"`{id}`" in section("What each rung checks") for id in Library().files("family"))


GUIDES = sorted((ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_every_command_and_link_of_a_guide_is_one_that_exists(path: Path) -> None:
    text, parser = path.read_text(encoding="utf-8"), cli.parser()
    for line in (*commands(text), *re.findall(r"^<!-- (draftproof .*?) -->$", text, re.M)):
        if line.startswith("draftproof "):
            parser.parse_args(shlex.split(line)[1:])
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in link or (path.parent / link).exists(), link
    said = set(re.findall(r"\b[A-Z]{3,4}[1-4]\d\d\b", text))
    assert said <= set(RULES)


def test_guide_of_a_review_shows_the_line_of_drafters_with_their_real_output() -> None:
    text = (ROOT / "docs" / "review.md").read_text(encoding="utf-8")
    shown = re.findall(r"^<!-- draftproof diff (\S+) (\S+) -->\n```text\n(.*?)^```$", text, re.M | re.S)
    assert [row[0] for row in shown[1:]] == [row[1] for row in shown[:-1]]
    assert "\n  context 131072 → 262144\n" in shown[0][2]
    assert all(out.startswith(f"{old} → {new}: ") for old, new, out in shown)
    assert all("not known of" in out for *_, out in shown[1:])


def test_trainers_of_the_readme_are_all_and_their_files_too() -> None:
    (named,) = re.findall(r"`--for TRAINER` \((.+?)\)", README)
    trainers = [trainer for _, trainer, _ in Library().all("trainer")]
    assert set(re.findall(r"`(\w+)`", named)) == {t.id for t in trainers}
    (files,) = re.findall(r"`d2t` in its form \((.+?)\)", README.replace("\n", " "))
    assert set(re.findall(r"`([\w.]+)`", files)) == {f.name for t in trainers for f in t.map.files}


def test_commands_of_adapt_write_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drafter, target = builder.SMALL_DRAFTER, builder.SMALL_TARGET | {"max_position_embeddings": 8192}
    table = builder.from_contract(drafter, target, "midlayer", optional=False)
    weights = builder.write(tmp_path / "my-eagle3", drafter, table) / "model.safetensors"
    raw = weights.read_bytes()
    base = 8 + int.from_bytes(raw[:8], "little")
    start, stop = (base + n for n in json.loads(raw[8:base])["d2t"]["data_offsets"])
    weights.write_bytes(raw[:start] + (1).to_bytes(8, "little") * 128 + raw[stop:])  # target ids 1 to 128
    builder.write(tmp_path / "other-target", target, builder.target())
    lines = [line for line in commands(README) if line.startswith("draftproof adapt ./my-eagle3 --to ./other-target")]
    assert [cli.main(shlex.split(line)[1:]) for line in lines] == [0, 0]
    assert sorted(p.name for p in (tmp_path / "start").iterdir()) == [
        "config.json", "model.safetensors", "vocab_mapping.pt",
    ]  # fmt: skip
    assert json.loads((tmp_path / "new" / "config.json").read_text())["max_position_embeddings"] == 8192


# --- the contract examples ----------------------------------------------------------------------------------------


def test_pair_example_is_read_without_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "contracts" / "pairs" / "my-pair.toml"
    path.parent.mkdir(parents=True)
    path.write_text(PAIR, encoding="utf-8")
    assert PAIR.startswith(f"# {path.relative_to(tmp_path)}\n")
    pair, found = load(path, "pair", Library())
    assert list(found) == []
    assert (pair.id, pair.drafter) == ("my-pair", "./drafter")
    assert pair.facts["aux_convention"].value == "boundary"


def within(part: Any, whole: Any) -> bool:
    """Tell whether each key of part stands in whole, with the same value."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and within(v, whole[k]) for k, v in part.items())
    return bool(part == whole)


def test_family_excerpt_stands_in_the_family() -> None:
    excerpt = tomllib.loads(FAMILY)
    family = tomllib.loads((ROOT / "contracts" / "families" / "eagle3.toml").read_text(encoding="utf-8"))
    assert set(excerpt) == {"dims", "tensors", "dialects", "config"}
    wrong = {
        f"{table}.{key}"
        for table in excerpt
        for key in excerpt[table]
        if not within(excerpt[table][key], family.get(table, {}).get(key))
    }
    assert not wrong


# --- a drafter that fits ------------------------------------------------------------------------------------------


def recorded(repo: str) -> dict[str, Any]:
    path = next((ROOT / "contracts" / "recordings").glob(f"{repo.replace('/', '--')}@*.json"))
    return dict(json.loads(path.read_text(encoding="utf-8"))["config"])


def fitting() -> tuple[builder.Config, builder.Table]:
    """Return config and tensors of a drafter of the right geometry for Kimi-K2.5."""
    config = recorded("AQ-MedAI/Kimi-K25-eagle3")
    return config, builder.from_contract(config, recorded("moonshotai/Kimi-K2.5"), "midlayer", optional=False)


def hollow(folder: Path, config: builder.Config, table: builder.Table) -> None:
    """Write a checkpoint of full size whose weights are a hole in the file."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, stop = {}, 0
    for name, (dtype, shape) in table.items():
        start, stop = stop, stop + math.prod(shape) * (8 if dtype == "I64" else 1 if dtype == "BOOL" else 2)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}
    raw = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + stop)


class Model:
    """A model with a state_dict."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self.tensors = tensors

    def state_dict(self) -> dict[str, Any]:
        return self.tensors


def test_python_snippet_passes_a_drafter_that_fits_and_stops_one_that_does_not() -> None:
    code = python("What each rung checks", "draftproof.check")
    config, table = fitting()
    seen: dict[str, Any] = {"config": config, "model": Model(dict(table))}
    exec(code, seen)
    assert seen["report"].verdict == "unknown"
    wrong = builder.changed(table, {"fc.weight": ("BF16", (7168, 28672))})
    with pytest.raises(AssertionError, match="shape differs"):
        exec(code, {"config": config, "model": Model(dict(wrong))})


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Make the repository that the README describes: its pair, its test module, a drafter; run one of its commands."""
    config, table = fitting()
    config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [10, 30, 50], "use_aux_hidden_state": True}
    path = pytester.path / PAIR.splitlines()[0].removeprefix("# ")
    hollow(path.parent / "drafter", config, table)
    target = tomllib.loads(PAIR)["target"]["model"]
    if target.startswith("."):
        own = {"prefix": "language_model.model.", "head": "language_model.lm_head.weight"}
        other = builder.target(hidden=7168, vocab=163840, **own)
        hollow(path.parent / target, recorded("moonshotai/Kimi-K2.5"), other)
    path.write_text(PAIR, encoding="utf-8")
    module = python("In CI", "TestShape")
    test = pytester.path / module.splitlines()[0].removeprefix("# ")
    test.parent.mkdir()
    test.write_text(module, encoding="utf-8")

    def run(line: str) -> pytest.RunResult:
        assert shlex.split(line)[0] == "pytest"
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *shlex.split(line)[1:])

    return run


def test_example_of_another_repository_fits_in_ten_lines() -> None:
    module, command = python("In CI", "TestShape"), commands(section("In CI"))[0]
    assert len(module.splitlines()) + len(command.splitlines()) <= 10


def test_example_of_another_repository_passes_as_it_stands(repository: Callable[..., pytest.RunResult]) -> None:
    line = commands(section("In CI"))[0]
    assert "--draftproof-fail-on unknown" in line
    result = repository(line)
    result.assert_outcomes(passed=2)
    assert result.ret == 0


def test_example_of_another_repository_fails_once_the_drafter_breaks(
    repository: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    path = next(pytester.path.rglob("drafter/config.json"))
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"max_position_embeddings": 131072}))
    result = repository(commands(section("In CI"))[0])
    result.assert_outcomes(passed=1, failed=1)
    assert "PAIR403" in result.stdout.str()


def test_command_without_a_file_runs_from_any_folder(
    repository: Callable[..., pytest.RunResult], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = pytester.path / "empty"
    empty.mkdir()
    next(pytester.path.rglob("drafter")).rename(empty / "my-eagle3")
    monkeypatch.chdir(empty)
    result = repository(commands(section("In CI"))[1])
    assert "SRC1" not in result.stdout.str()
    assert result.parseoutcomes().get("passed", 0) + result.parseoutcomes().get("skipped", 0) == 2


def test_documented_options_exist(repository: Callable[..., pytest.RunResult]) -> None:
    said = set(re.findall(r"--(?:draftproof-[a-z-]+|drafter|target)\b", README))
    out = repository("pytest --help").stdout.str()
    assert said
    assert not {option for option in said if option not in out}


# --- a release, and the start of a contract -----------------------------------------------------------------------

CARD = "---\nbase_model: org/target\nlicense: apache-2.0\n---\n# A drafter\n"


def typed(word: str, title: str) -> list[list[str]]:
    """Return the README's draftproof commands of a section in which a word stands."""
    return [shlex.split(line)[1:] for line in commands(section(title)) if word in shlex.split(line)]


def test_release_example_passes_a_good_folder_and_stops_one_with_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = builder.write(tmp_path / "my-eagle3", builder.dense_config(), builder.dense())
    (folder / "README.md").write_text(CARD)
    report, block = typed("--release", "What each rung checks")
    assert "--card" in block
    assert cli.main(report) == 0
    assert "release: holds" in capsys.readouterr().out
    assert cli.main(block) == 0
    assert "| family | `eagle3`" in capsys.readouterr().out
    (folder / "optimizer.pt").write_bytes(b"")
    assert cli.main(report) == 1


def test_init_examples_write_contracts_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("pairs", "families"):
        (tmp_path / "contracts" / kind).mkdir(parents=True)
    builder.write(tmp_path / "my-eagle3", builder.dense_config(), builder.dense())
    builder.write(tmp_path / "my-target", builder.target_config(), builder.target())
    config = builder.dense_config(architectures=["New"], eagle_config=builder.ABSENT, draft_vocab_size=builder.ABSENT)
    builder.write(tmp_path / "my-new-drafter", config, {"fc.weight": ("BF16", (64, 192)), "a.weight": ("BF16", (64,))})
    pair, family = typed("init", "How to write a contract")
    assert cli.main(pair) == 0
    assert cli.main(["check", pair[-1]]) == cli.main(["check", *pair[1:-2]]) == 4
    assert cli.main(family) == 0
    contract, found = load(Path(family[-1]), "family", Library(Path("contracts")))
    assert list(found) == []
    assert [str(axis) for axis in contract.tensors["fc.weight"].shape] == ["hidden", "3 * hidden"]
    assert cli.main(["check", *family[1:-2]]) == 0
    capsys.readouterr()
