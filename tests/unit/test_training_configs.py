"""Every training config that is recorded is checked as a config, before anything is trained: its family and verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import builder as b
from draftproof import api, cli
from draftproof.findings import Report
from draftproof.hub import Source, open_model, recorded_repos

RECORDINGS = api.recordings(b.LIBRARY)
SPECFORGE, ANGELSLIM = (
    "sgl-project/SpecForge/configs",
    "Tencent/AngelSlim/angelslim/compressor/speculative/train/configs",
)
TORCHSPEC, EAGLE = "lightseekorg/TorchSpec/configs/draft_models", "SafeAILab/EAGLE/eagle/train"
TEMPLATE = "NVIDIA/Model-Optimizer/modelopt/torch/speculative/default_kimik2_eagle_config"  # a part of a config
REPOS = sorted(repo for repo in recorded_repos(RECORDINGS) if repo.count("/") > 1 and repo != TEMPLATE)
# by the trainer's name of the model; every other is eagle3
FAMILIES = {"-dflash": "dflash", "-dspark": "dspark", "-domino": "domino", "-peagle": "peagle", "_mla": "eagle3-mla"}
_TIED = (
    "CFG310: copied from a target that ties its embedding, with 32000 ids of its own: SGLang 0.5.23 then takes the "
    "embedding for the head"
)
_OUTSIDE = "special ids that stand beyond its own vocabulary, left from the config it was copied from"
# What does not hold of these is wrong with them, and why.
WRONG = {
    f"{TORCHSPEC}/kimi_k25_eagle3_mla.json": "CFG312: it states no context, so its class's default would be written",
    f"{ANGELSLIM}/cosyvoice3-llm-eagle3.json": f"CFG315, CFG331: a class that no engine has, and {_OUTSIDE}",
    f"{SPECFORGE}/deepseek-v3-671b-eagle3.json": f"CFG331: {_OUTSIDE}",
    f"{SPECFORGE}/ling-flash-2.0-eagle3.json": f"CFG331: {_OUTSIDE}",
    **{
        f"{ANGELSLIM}/{name}-eagle3.json": _TIED
        for name in (
            "hunyuan-1.8b", "hunyuan-4b", "hunyuan-7b", "hunyuan_ocr", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b",
            "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-vl-4b",
        )
    },
    **{f"{ANGELSLIM}/{n}-eagle3-mrope.json": _TIED for n in ("qwen2.5-vl-3b", "qwen3-vl-2b", "qwen3-vl-4b")},
}  # fmt: skip
# Configs of plain models: the tensors, or the one who asks, must tell the family.
UNTOLD = [repo for repo in REPOS if repo.startswith(EAGLE)]


def checked(repo: str, folder: Path, target: str | None = None, family: str = "") -> Report:
    source = open_model(repo, RECORDINGS)
    assert isinstance(source, Source), source
    path = folder / repo.rpartition("/")[2]
    path.write_text(json.dumps(source.config), encoding="utf-8")
    return api.check_config(path, b.LIBRARY, target, family)


def failed(report: Report) -> list[str]:
    return [f.code for f in report.findings if f.level in ("error", "warning", "unknown")]


def test_there_are_as_many_as_are_known() -> None:
    assert len(REPOS) == 81
    assert set(WRONG) <= set(REPOS)
    assert len(UNTOLD) == 7


@pytest.mark.parametrize("repo", [repo for repo in REPOS if repo not in UNTOLD], ids=lambda repo: Path(repo).stem)
def test_training_config_has_its_family_and_holds_unless_it_is_wrong(repo: str, tmp_path: Path) -> None:
    report = checked(repo, tmp_path)
    family = next((id for part, id in FAMILIES.items() if part in repo), "eagle3")
    assert [side.contract for side in report.sides] == [family]
    why = WRONG.get(repo, "")
    assert sorted(set(failed(report))) == (why.partition(":")[0].split(", ") if why else [])
    assert report.verdict == ("fail" if why else "pass")


@pytest.mark.parametrize("repo", UNTOLD, ids=lambda repo: Path(repo).stem)
def test_config_of_a_plain_model_holds_for_the_family_that_is_named(repo: str, tmp_path: Path) -> None:
    assert failed(checked(repo, tmp_path)) == ["TEN408"]
    report = checked(repo, tmp_path, family="eagle1")
    assert (failed(report), report.verdict) == ([], "pass")


@pytest.mark.parametrize(
    ("name", "target", "codes"),
    [
        (f"{TORCHSPEC}/kimi_k25_eagle3.json", "Kimi-K2.5", {"PAIR409 warning", "PAIR408 unknown"}),
        (f"{TORCHSPEC}/kimi_k25_eagle3.json", "moonshotai/Kimi-K2-Instruct", {"PAIR409 warning", "PAIR408 unknown"}),
        (f"{SPECFORGE}/kimi-k3-dspark.json", "Kimi-K2.5", {"PAIR407"}),
        (f"{SPECFORGE}/llama3-8B-eagle3.json", "moonshotai/Kimi-K2.5", {"PAIR401", "PAIR403", "PAIR404"}),
    ],
)
def test_training_config_against_a_target(name: str, target: str, codes: set[str], tmp_path: Path) -> None:
    report = checked(name, tmp_path, target)
    seen = {f.code if f.level == "error" else f"{f.code} {f.level}" for f in report.findings if f.level != "pass"}
    assert codes <= seen, b.text(report)


def test_command_says_of_a_recorded_config_what_the_function_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = f"{ANGELSLIM}/qwen3-4b-eagle3.json"
    report = checked(repo, tmp_path)
    assert cli.main(["check", "--config", str(tmp_path / "qwen3-4b-eagle3.json")]) == report.exit_code == 1
    assert "CFG310" in capsys.readouterr().out
