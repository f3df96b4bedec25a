"""A launch line asks a whole question, and a pair says how it is launched: what engines then do is told."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import api, cli, engines, render
from draftproof.findings import Report
from draftproof.launch import parse
from draftproof.library import Library
from draftproof.testing import cases, corpus, fixtures, truth

DRAFTER, TARGET = "AQ-MedAI/Kimi-K2-Instruct-eagle3", "moonshotai/Kimi-K2.5"
SPEC = json.dumps({"method": "eagle3", "model": DRAFTER, "num_speculative_tokens": 3})
VLLM = f"vllm serve {TARGET} --speculative-config '{SPEC}'"
SGLANG = f"python -m sglang.launch_server --model-path {TARGET} --speculative-draft-model-path {DRAFTER}"
PAIR = """schema = 1
kind = "pair"
id = "mine"
title = "t"
drafter = {{ model = "{}" }}
target = {{ model = "{}" }}
[launch]
{}
"""


def sections(report: Report) -> dict[str, list[str]]:
    return {s.rung: [f.code for f in s.findings] for s in report.sections}


def test_line_alone_is_a_whole_question() -> None:
    report = api.check_launch(VLLM, Library())
    assert [side.name for side in report.sides] == [DRAFTER, TARGET]
    assert "launch" not in sections(report)
    assert sections(report)["loads vllm"]
    assert report.rerun.startswith("draftproof check --launch 'vllm serve")


def test_line_of_several_lines_is_asked_again_as_one_line() -> None:
    report = api.check_launch(VLLM.replace(" --spec", " \\\n    --spec").replace(", ", ",\n "), Library())
    words = shlex.split(report.rerun)
    assert "\n" not in report.rerun
    assert words[:3] == ["draftproof", "check", "--launch"]
    assert shlex.split(words[3]) == shlex.split(VLLM)


def test_tag_of_an_image_is_the_version_and_an_engine_that_is_asked_about_counts_before_it() -> None:
    line = f"docker run --gpus all vllm/vllm-openai:v0.32.0 --model {TARGET} --speculative-config '{SPEC}'"
    assert "loads vllm/vllm-openai:v0.32.0" in sections(api.check_launch(line, Library()))
    seen = sections(api.check_launch(line, Library(), engines=["vllm@0.33", "sglang"]))
    assert [name for name in seen if name.startswith("loads")] == ["loads vllm@0.33", "loads sglang"]
    assert "launch" not in seen


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ({}, []),
        ({"drafter": DRAFTER, "target": TARGET, "engines": ["all"]}, []),
        ({"drafter": "AQ-MedAI/Kimi-K25-eagle3"}, ["CLI661"]),
        ({"target": "moonshotai/Kimi-K2-Instruct", "engines": ["sglang"]}, ["CLI661", "CLI661"]),
    ],
)
def test_line_and_question_that_contradict_are_told(given: dict[str, object], codes: list[str]) -> None:
    report = api.check_launch(VLLM, Library(), **given)  # type: ignore[arg-type]
    assert sections(report).get("launch", []) == codes
    assert (report.exit_code == 2) == bool(codes)


def test_flag_that_is_not_known_is_refused_at_the_version_that_was_read_and_unknown_at_others() -> None:
    line = f"{VLLM} --no-such-flag"
    here = api.check_launch(line, Library())
    assert [(f.code, f.level) for f in here.findings if f.code.startswith("CLI")] == [("CLI657", "error")]
    assert "VLLM609" in sections(here)["loads vllm"]
    there = api.check_launch(line, Library(), engines=["vllm@0.32"])
    assert [(f.code, f.level) for f in there.findings if f.code.startswith("CLI")] == [("CLI657", "unknown")]
    assert "VLLM609" not in sections(there)["loads vllm@0.32"]


def test_flags_that_exclude_each_other_are_refused_and_a_key_that_is_not_there_too() -> None:
    for more, seen in {"--spec-method eagle": "mutually exclusive", "--spec-tokens 3": "mutually exclusive"}.items():
        report = api.check_launch(f"{VLLM} {more}", Library())
        assert [seen in f.observed for f in report.findings if f.code == "VLLM609"] == [True]
    report = api.check_launch(VLLM.replace('"method"', '"metod"'), Library())
    assert next(f.observed for f in report.findings if f.code == "VLLM609").endswith("keyword argument metod")
    assert [f.code for f in report.findings if f.code == "CLI657"] == ["CLI657"]
    report = api.check_launch("llama-server -m a -md b", Library(), DRAFTER, TARGET)
    assert any("never drafts" in f.observed for f in report.findings)


def test_line_without_a_drafter_says_what_the_engine_then_does() -> None:
    plain = api.check_launch(f"vllm serve {TARGET}", Library())
    assert sections(plain)["launch"] == ["CLI663"]
    assert not [name for name in sections(plain) if name.startswith("loads")]
    own = api.check_launch(f"sglang serve {TARGET} --speculative-algorithm EAGLE3", Library())
    assert sections(own)["launch"] == ["CLI663"]
    assert "SGL601" in sections(own)["loads sglang"]


def test_line_that_names_no_model_or_cannot_be_read_is_the_whole_answer() -> None:
    assert sections(api.check_launch("vllm serve", Library())) == {"launch": ["CLI663"]}
    report = api.check_launch("vllm serve 'a", Library())
    assert (sections(report), report.exit_code) == ({"launch": ["CLI655"]}, 2)


def own_pair(folder: Path, launch: str) -> Library:
    (folder / "pairs").mkdir(parents=True, exist_ok=True)
    (folder / "pairs" / "mine.toml").write_text(PAIR.format(DRAFTER, TARGET, launch), encoding="utf-8")
    return Library(folder)


def test_pair_says_how_it_is_launched(tmp_path: Path) -> None:
    library = own_pair(tmp_path, f"vllm = '''{VLLM} --port x'''\nsglang = '''{SGLANG}'''")
    seen = sections(api.check_pair_id("mine", library))
    assert [name for name in seen if name.startswith("loads")] == ["loads vllm", "loads sglang"]
    assert seen["launch"] == ["CLI658"]
    seen = sections(api.check_pair_id("mine", library, ["sglang"]))
    assert [name for name in seen if name.startswith("loads")] == ["loads sglang"]
    assert "launch" not in seen
    seen = sections(api.check_pair_id("mine", library, (), VLLM))
    assert [name for name in seen if name.startswith("loads")] == ["loads vllm"]
    assert "launch" not in seen


def test_launch_of_a_pair_that_speaks_of_another_model_or_engine_is_told(tmp_path: Path) -> None:
    report = api.check_pair_id("mine", own_pair(tmp_path, "vllm = 'vllm serve other/target -sc.model other/drafter'"))
    assert sections(report)["launch"] == ["CLI661", "CLI661"]
    report = api.check_pair_id("mine", own_pair(tmp_path, f"sglang = '''{VLLM}'''"))
    assert sections(report)["launch"] == ["CLI661"]
    report = api.check_pair_id("mine", own_pair(tmp_path, "vlm = 'vllm serve a'"))
    assert [(f.code, f.subject) for f in report.findings] == [("CON113", "launch.vlm")]


def test_command_takes_a_line_alone_with_models_or_with_a_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--launch", VLLM, "--hub", "recordings"]) in (1, 4)
    assert "loads vllm" in capsys.readouterr().out
    words = ["check", "kimi-k2-eagle3-on-k25", "--launch", SGLANG, "--hub", "recordings", "--format", "json"]
    assert cli.main(words) in (1, 4)
    assert "loads sglang" in [s["rung"] for s in json.loads(capsys.readouterr().out)["sections"]]
    assert cli.main(["check", "--launch", "vlm serve a"]) == 2
    assert "did you mean 'vllm serve'?" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["check", "--config", "x.json", "--launch", VLLM])


# --- the command that is right ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_command_that_is_printed_is_read_again_as_a_launch_of_the_pair(engine: str) -> None:
    library = Library()
    made, report = api.make_launch(DRAFTER, TARGET, engine, library)
    read = parse(made["command"], library)
    assert (read.engine, read.drafter, read.target, read.findings) == (engine, DRAFTER, TARGET, ())
    assert all(row["because"] and row["basis"] in ("run", "read") for row in made["flags"])
    assert f"loads {engine}" in sections(report)
    assert report.rerun == f"draftproof launch --drafter {DRAFTER} --target {TARGET} --engine {engine}"


def test_command_gives_what_the_pair_needs_and_leaves_out_what_is_the_default() -> None:
    made, _ = api.make_launch(DRAFTER, TARGET, "sglang@0.5.23", Library())
    assert made["env"] == {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
    assert made["command"].startswith("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 python -m sglang.launch_server")
    assert {"--speculative-num-steps", "--speculative-eagle-topk", "--trust-remote-code"} <= set(
        made["command"].split()
    )
    made, _ = api.make_launch(DRAFTER, TARGET, "llama.cpp", Library())
    assert "--spec-type draft-eagle3" in made["command"]
    assert "--spec-draft-n-max" not in made["command"]
    made, _ = api.make_launch(DRAFTER, TARGET, "vllm", Library())
    assert [row["flag"] for row in made["flags"] if "unknown" in row] == ["VLLM_USE_V2_MODEL_RUNNER"]


def test_no_command_is_printed_for_a_family_that_the_engine_has_no_method_for_or_an_engine_that_is_not_one() -> None:
    made, report = api.make_launch("FasterDecoding/medusa-vicuna-7b-v1.3", None, "sglang", Library())
    assert (made, sections(report)["launch"]) == ({}, ["CLI664"])
    made, report = api.make_launch({"config": {}, "tensors": {}}, None, "vllm", Library())
    assert (made, [f.message for f in report.findings if f.code == "CLI664"]) == ({}, ["no target is known"])
    for engine in ("sglnag", "all", "vllm@>=0.32,<0.34"):
        made, report = api.make_launch(DRAFTER, TARGET, engine, Library())
        assert (made, report.exit_code) == ({}, 2)
        assert "CLI651" in sections(report)["launch"]


def model(folder: Path, name: str, **changes: Any) -> str:
    """Write a tiny model, keys of its config changed, or taken away where they are None; returns its folder."""
    made = fixtures.model(name).copy()
    made.config = {key: value for key, value in {**made.config, **changes}.items() if value is not None}
    fixtures.write(made, folder)
    return str(folder)


def test_whole_model_of_no_family_that_is_known_drafts_by_tokens(tmp_path: Path) -> None:
    target = model(tmp_path / "target", "target")
    drafter = model(tmp_path / "drafter", "draft-model", architectures=["SmolLM3ForCausalLM"], model_type="smollm3")
    for engine, word in (("vllm", '"draft_model"'), ("sglang", "STANDALONE"), ("llama.cpp", "draft-simple")):
        made, report = api.make_launch(drafter, target, engine, Library())
        assert made["family"]["value"] == "draft-model"
        assert "SmolLM3ForCausalLM" in made["family"]["because"]
        assert word in made["command"]
        assert report.rerun.endswith("--family draft-model")
        assert render.launch_text(made).splitlines()[2] == "--family draft-model"
    assert "family" not in api.make_launch(model(tmp_path / "known", "draft-model"), target, "vllm", Library())[0]


def test_drafter_that_can_be_of_several_families_is_told_with_the_words_to_type(tmp_path: Path) -> None:
    target, library = model(tmp_path / "target", "target"), Library()
    drafter = model(tmp_path / "drafter", "draft-model")
    (tmp_path / "drafter" / "model.safetensors").unlink()  # its config alone is that of a head, too
    made, report = api.make_launch(drafter, target, "vllm", library)
    (found,) = [f for f in report.findings if f.code == "TEN409"]
    assert (made, found.level, report.verdict) == ({}, "unknown", "unknown")
    assert found.help.startswith("say which is meant: --family draft-model or --family eagle1")
    for family in found.observed.split(", "):
        assert f"--family {family}" in found.help
        assert api.make_launch(drafter, target, "vllm", library, family)[1].rerun.endswith(f"--family {family}")


def test_drafter_that_no_family_fits_stays_one_that_cannot_be_told(tmp_path: Path) -> None:
    drafter = model(tmp_path / "drafter", "draft-model", architectures=["SmolLM3ForCausalLM"], model_type="smollm3")
    b.write(tmp_path / "drafter", json.loads((tmp_path / "drafter" / "config.json").read_text()), {"a": ("F32", (4,))})
    made, report = api.make_launch(drafter, model(tmp_path / "target", "target"), "vllm", Library())
    assert made == {}
    assert {f.code for f in report.findings} & {"TEN408", "PAIR422"}


def test_flag_whose_value_is_published_nowhere_is_told_with_where_to_look(tmp_path: Path) -> None:
    target = model(tmp_path / "target", "target")
    whole, _ = api.make_launch(model(tmp_path / "whole", "dflash"), target, "vllm", Library())
    assert '"num_speculative_tokens": 3' in whole["command"]
    made, report = api.make_launch(model(tmp_path / "drafter", "dflash", block_size=None), target, "vllm", Library())
    (row,) = [row for row in made["flags"] if row["flag"] == "--speculative-config.num_speculative_tokens"]
    assert "block_size is not stated" in row["unknown"]
    assert "model card" in row["find"]
    assert f"find      {row['find'][:40]}" in render.launch_text(made)
    (told,) = [f for f in report.findings if f.code == "CLI662"]
    assert (told.level, told.help, report.verdict) == ("unknown", row["find"], "unknown")
    assert "VLLM609" not in {f.code for f in report.findings}  # that it is not given is no fault of the launch


def test_target_of_no_contract_that_is_known_is_read_all_the_same(tmp_path: Path) -> None:
    target = model(tmp_path / "target", "target", architectures=["NewForCausalLM"], model_type="new")
    made, _ = api.make_launch(model(tmp_path / "drafter", "eagle3"), target, "vllm", Library())
    assert not [row for row in made["flags"] if "no target is given" in row.get("unknown", "")]
    own = model(tmp_path / "own", "target", architectures=["NewForCausalLM"], model_type="new", auto_map={"a": "b.C"})
    assert "--trust-remote-code" in api.make_launch(str(tmp_path / "drafter"), own, "vllm", Library())[0]["command"]


def test_command_line_prints_command_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["launch", "--drafter", DRAFTER, "--target", TARGET, "--engine", "vllm", "--hub", "recordings"]
    code = cli.main(words)
    out = capsys.readouterr().out
    assert out.startswith(f"vllm serve {TARGET} ")
    assert "--speculative-config.num_speculative_tokens 3\n  because   it must be given" in out
    assert cli.main([*words, "--format", "json"]) == code
    data = json.loads(capsys.readouterr().out)
    assert (data["engine"], data["report"]["exit_code"]) == ("vllm", code)
    assert out.startswith(data["command"])


COMMIT = "0123456789abcdef0123456789abcdef01234567"
REVISED = {
    "vllm": 'vllm serve {target} --revision {target_at} --speculative-config \'{{"method": "eagle3", "model": '
    '"{drafter}", "num_speculative_tokens": 3, "revision": "{drafter_at}"}}\'',
    "sglang": "python -m sglang.launch_server --model-path {target} --revision {target_at} "
    "--speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path {drafter} --speculative-draft-model-revision {drafter_at} "
    "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
}


@pytest.mark.parametrize("engine", REVISED)
def test_revision_in_a_line_pins_what_is_opened(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    opened = api.open_side
    monkeypatch.setattr(
        api,
        "open_side",
        lambda model, role, *rest, **more: asked.append(f"{role} {model}") or opened(model, role, *rest),
    )
    sides = {"target": "no-org/no-target", "drafter": "no-org/no-drafter"}
    line = REVISED[engine].format(**sides, target_at=COMMIT, drafter_at=COMMIT[::-1])
    report = api.check_launch(line, Library())
    assert {f"target no-org/no-target@{COMMIT}", f"drafter no-org/no-drafter@{COMMIT[::-1]}"} <= set(asked)
    assert not [f for f in report.findings if f.code == "CLI662"]
    report = api.check_launch(REVISED[engine].format(**sides, target_at="main", drafter_at="v2"), Library())
    assert {"target no-org/no-target", "drafter no-org/no-drafter"} <= set(asked)
    assert [(f.level, f.subject) for f in report.findings if f.code == "CLI662"] == [("unknown", "launch: drafter")]


@pytest.mark.parametrize("engine", REVISED)
def test_revision_of_a_path_has_no_meaning(engine: str, tmp_path: Path) -> None:
    line = REVISED[engine].format(
        target=tmp_path / "target", drafter=tmp_path / "drafter", target_at=COMMIT, drafter_at=COMMIT
    )
    found = [f for f in api.check_launch(line, Library()).findings if f.code == "CLI662"]
    assert {(f.level, f.subject) for f in found} == {("info", "launch: target"), ("info", "launch: drafter")}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("llama-cli -m T -md D --spec-type draft-eagle3 -p hi -n 64 -st", ""),
        ("llama serve -m T -md D --spec-type draft-eagle3 --port 80", ""),
        ("llama-cli -m T -md D --spec-type draft-eagle3 --port 80", "llama-cli does not take"),
        ("llama-server -m T -md D --spec-type draft-eagle3 -p hi", "llama-server does not take"),
        ("llama-speculative-simple -m T -md D --spec-type draft-eagle3 -p hi --color on", ""),
        (
            "llama-speculative-simple -m T -md D --spec-type draft-eagle3 --jinja",
            "llama-speculative-simple do not take",
        ),
        ("llama-speculative-simple -m T -md D -p hi", "failed to initialize speculative decoding"),
        ("llama-speculative -m T -p hi", "--model-draft is required"),
        ("llama-server -m T -md D --spec-type draft-eagle3 --spec-synth-rates 0.9,0.8,0.8", ""),
        ("llama-server -m T -md D --spec-type draft-eagle3 --spec-synth-rates 0.8,0.9,0.8", "--spec-synth-rates wants"),
        ("llama-server -m T -md D --spec-type draft-eagle3 --spec-synth-rates 0.9", "--spec-synth-rates wants one"),
        ("llama-server -m T -md D --spec-type draft-eagle3 --spec-synth-rates nan,0,0", "--spec-synth-rates wants"),
        ("llama-server -m T -md D --spec-type draft-eagle3 --spec-synth-rates a", "argument --spec-synth-rates"),
        ("llama-server -m T -md D --spec-type draft-eagle3 --grammar yes", "failed to parse grammar"),
        ("llama-server -m T -md D --spec-type draft-eagle3 -sm tensor -fa off", "requires flash_attn to be enabled"),
        ("llama-server -m T -md D --spec-type draft-eagle3 -devd 1", "argument -devd"),
    ],
)
def test_each_program_of_llama_cpp_takes_its_own_flags(line: str, said: str) -> None:
    made = truth.predict(cases.case("known/healthy"), "llama.cpp", "2026.10.11549")
    assert made.world is not None
    world = made.world
    flags = parse(line, Library()).flags
    made = engines.predict(made.profile, Library(), world.drafter, world.target, world.couple, flags=flags)
    seen = [effect.see for effect in made.effects if effect.outcome == "refuses"]
    assert any(said in one for one in seen) if said else not seen, seen


def test_the_nearer_word_is_offered() -> None:
    for word, near in (
        ("draft", "draft-simple"),
        ("mtp", "draft-mtp"),
        ("eagle3", "draft-eagle3"),
        ("ngram-mo", "ngram-mod"),
    ):
        found = parse(f"llama-server -m T --spec-type {word}", Library()).findings
        assert [f"did you mean {near!r}" in f.expected for f in found] == [True], found


def test_line_that_serves_a_speculator_alone_takes_it_for_the_drafter(tmp_path: Path) -> None:
    parts = {"drafter": "qwen3-8b-speculator", "target": "qwen3-8b"}
    folder = corpus.build(corpus.Case("X", "X", "", "", "", (), parts=parts), tmp_path) / "right"
    drafter, target = folder / "drafter", folder / "target"
    line = f"vllm serve {drafter} --tensor-parallel-size 2"
    alone = api.check_launch(line, Library())
    assert [side.name for side in alone.sides] == [str(drafter)]
    assert "launch" not in sections(alone)
    assert "VLLM601" not in sections(alone)["loads vllm"]
    both = api.check_launch(line, Library(), drafter, target, engines=["vllm", "vllm@0.10.2", "sglang"])
    told = {s.rung: [f for f in s.findings if f.level == "error"] for s in both.sections}
    assert not told["loads vllm"]
    (nothing,) = told["loads vllm@0.10.2"]
    assert "nothing is drafted" in nothing.observed
    (drafter / "config.json").write_text(
        json.dumps(json.loads((drafter / "config.json").read_text()) | {"speculators_config": {}}), encoding="utf-8"
    )
    (refused,) = [f for f in api.check_launch(line, Library(), drafter, target).findings if f.code == "VLLM601"]
    assert "Invalid speculators config structure" in refused.observed
