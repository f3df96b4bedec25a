"""adapt --engine: what must change so that several engines run a drafter as meant; judged by the interpreter alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftproof import adapt, api, rewrite
from draftproof.answers import Plan
from draftproof.cli import main
from draftproof.library import Library
from draftproof.testing import cases, fixtures, truth

ENGINES = ("vllm", "sglang")


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Return a function that writes a case's two folders and plans for engines; what it was trained on is declared."""

    def plan(id: str, *engines: str, **more: Any) -> Plan:
        case = cases.case(id)
        target, drafter = cases.models(case)
        fixtures.write(target, tmp_path / "target")
        fixtures.write(drafter, tmp_path / "drafter")
        facts = truth.facts(case)
        monkeypatch.setattr(api, "declared_facts", lambda *args, **words: facts)
        return adapt.plan_for(
            str(tmp_path / "drafter"), str(tmp_path / "target"), Library(), engines=engines or ENGINES, **more
        )[1]

    return plan


def changes(plan: Plan) -> dict[str, Any]:
    return {change.key: change.new for change in plan.changes}


def test_drafter_that_every_engine_runs_stays_as_it_is(planned: Callable[..., Plan]) -> None:
    plan = planned("eagle3/healthy")
    assert plan.verdict == "as is"
    assert not plan.changes
    assert {step.action for step in plan.steps} == {"copy"}


@pytest.mark.parametrize(
    ("id", "wanted"),
    [
        ("aux/top", {"eagle_config.eagle_aux_hidden_state_layer_ids": [0, 2, 5]}),
        ("aux/contradict", {"eagle_config.eagle_aux_hidden_state_layer_ids": [0, 2, 5]}),
        ("key/model_type/deepseek_v3", {"model_type": "llama"}),
        ("key/tie_word_embeddings/true", {"tie_word_embeddings": False}),
        ("key/head_dim/absent", {"head_dim": 64}),
        ("key/num_key_value_heads/absent", {"num_key_value_heads": 2}),  # another key stands in for it
        ("key/architectures/Llama", {"architectures": ["LlamaForCausalLMEagle3"]}),
        ("key/architectures/misspelt", {"architectures": ["LlamaForCausalLMEagle3"]}),
    ],
)
def test_key_that_an_engine_reads_otherwise_is_written_as_all_read_it(
    id: str, wanted: dict[str, Any], planned: Callable[..., Plan]
) -> None:
    plan = planned(f"eagle3/{id}")
    assert (plan.verdict, changes(plan)) == ("after these changes", wanted), plan.headline
    assert all(change.why for change in plan.changes)


def test_names_that_an_engine_refuses_become_those_of_a_dialect_that_all_take(planned: Callable[..., Plan]) -> None:
    plan = planned("eagle3/names/model")
    assert plan.verdict == "after these changes"
    assert "tensor names" in plan.headline
    assert any("refuses → as meant" in line for line in plan.says)


def test_optional_tensor_that_an_engine_refuses_is_left_out(planned: Callable[..., Plan]) -> None:
    plan = planned("eagle3/vocab/full-d2t")
    assert plan.verdict == "after these changes"
    assert "without d2t" in plan.headline
    assert [(s.tensor, s.action) for s in plan.steps if s.action != "copy"] == [("d2t", "drop")]


def test_what_one_engine_cannot_do_is_said_and_is_no_pass(planned: Callable[..., Plan]) -> None:
    plan = planned("eagle3/key/norm_before_residual/true")
    assert plan.verdict == "only in part"
    assert any("SGLang" in line and "still" in line for line in plan.says)
    assert "norm_before_residual" not in changes(plan)  # it says what the drafter computes


def test_edit_that_mends_nothing_is_not_among_what_cannot_be_had_at_once(planned: Callable[..., Plan]) -> None:
    plan = planned("eagle3/aux/long-top", "vllm", "sglang", "llama.cpp")
    assert not [line for line in plan.says if "at once: architectures" in line]


def test_layers_that_are_not_declared_leave_the_answer_open(tmp_path: Path) -> None:
    target, drafter = cases.models(cases.case("eagle3/healthy"))
    fixtures.write(target, tmp_path / "target")
    fixtures.write(drafter, tmp_path / "drafter")
    sides = str(tmp_path / "drafter"), str(tmp_path / "target")
    report = adapt.adapt(*sides, Library(), engines=ENGINES)
    assert report.plan is not None
    assert (report.plan.verdict, report.exit_code) == ("unknown", 4)


def test_written_checkpoint_is_what_every_engine_then_runs(planned: Callable[..., Plan], tmp_path: Path) -> None:
    planned("eagle3/names/model")
    sides = str(tmp_path / "drafter"), str(tmp_path / "target")
    report = rewrite.write(*sides, Library(), tmp_path / "made", engines=ENGINES)
    assert report.plan is not None
    assert report.plan.written
    header = (tmp_path / "made" / "model.safetensors").read_bytes()
    size = int.from_bytes(header[:8], "little")
    names = set(json.loads(header[8 : 8 + size])) - {"__metadata__"}
    assert not {name for name in names if name.startswith("model.")}
    again = adapt.adapt(str(tmp_path / "made"), sides[1], Library(), engines=ENGINES)
    assert again.plan is not None
    assert again.plan.verdict == "as is"


def test_engine_that_is_not_known_is_named_with_the_nearest(tmp_path: Path, capsys: Any) -> None:
    target, drafter = cases.models(cases.case("eagle3/healthy"))
    fixtures.write(target, tmp_path / "target")
    fixtures.write(drafter, tmp_path / "drafter")
    sides = [str(tmp_path / "drafter"), "--to", str(tmp_path / "target")]
    assert main(["adapt", *sides, "--engine", "sglng"]) in (2, 4)
    assert "sglang" in capsys.readouterr().out


def test_adapt_without_a_target_and_an_engine_is_wrong_usage(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["adapt", "./drafter"])
    assert ended.value.code == 2
    assert "--to TARGET, or --engine" in capsys.readouterr().err
