"""One fault is one finding: what many tensors or keys show together is said once, with all its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import builder as b
from builder import ABSENT
from draftproof.adapt import adapt
from draftproof.contracts import Fact
from known_good import CASES, LLAMA, Good

OF = {case.id: case for case in CASES}
EAGLE3, SPECULATORS = "eagle3: SpecForge, for SGLang", "eagle3-speculators: llama layers"
DFLASH, MEDUSA, MTP = "dflash: SpecForge", "medusa: v1", "mtp-deepseek: DeepSeek-V3"
KIMI = "eagle3: of Kimi-K2.5, many heads, full vocabulary"


def found(
    case: Good, own: Mapping[str, Any] = {}, table: b.Table | None = None, theirs: Mapping[str, Any] = {}
) -> list[tuple[str, str]]:
    """Return code and whole text of all that is above info."""
    facts = {key: Fact(value, "its card") for key, value in case.facts.items()}
    drafter = b.given(b.edit(case.drafter_config, own), case.drafter_tensors if table is None else table, b.DRAFTER)
    target = b.given(b.edit(case.target_config, theirs), case.target_tensors, b.TARGET)
    family = "mtp" if case.inside else ""
    report = b.check(drafter, None if case.inside else target, facts=facts, family=family)
    rows = [f for f in b.against(report) if f.level not in ("pass", "info")]
    return [(f.code, " ".join((f.subject, f.message, f.expected, f.observed, f.note, f.help))) for f in rows]


def less(id: str, *parts: str) -> b.Table:
    return {name: row for name, row in OF[id].drafter_tensors.items() if not any(part in name for part in parts)}


FAULTS: Mapping[str, tuple[str, dict[str, Any], str, list[str]]] = {
    "head_dim doubled": (
        EAGLE3, {"own": {"head_dim": 88}}, "TEN403", ["4 * 44", "q_proj.weight", "3 more", "State head_dim as 44"],
    ),
    "key-value heads doubled": (
        EAGLE3, {"own": {"num_key_value_heads": 4}}, "TEN403", ["kv_heads were 2", "1 more", "k_proj", "v_proj"],
    ),
    "heads not stated": (DFLASH, {"own": {"num_attention_heads": ABSENT}}, "CFG312", ["num_attention_heads", "say 4"]),
    "layers not stated": (EAGLE3, {"own": {"num_hidden_layers": ABSENT}}, "CFG312", ["num_hidden_layers", "say 1"]),
    "a flag of tensors that are not there": (
        EAGLE3, {"own": {"mlp_bias": True}}, "TEN401", ["3 required", "gate_proj.bias", "up_proj.bias [96]", "[64]"],
    ),
    "a flag of every layer": (
        DFLASH, {"own": {"attention_bias": True}}, "TEN401", ["8 required", "layers.1.self_attn.k_proj.bias [88]"],
    ),
    "vocabulary of the target edited": (
        EAGLE3, {"theirs": {"vocab_size": 1024}}, "DIM401", ["1024", "512", "State vocab_size as 512"],
    ),
    "no table of the language model": (
        KIMI, {"theirs": {"text_config": ABSENT}}, "CFG312", ["text_config", "hidden_size", "num_hidden_layers"],
    ),
    "one expert missing": (MTP, {"table": less(MTP, ".experts.3.")}, "TEN401", ["3 required", "experts.3.up_proj"]),
    "two experts missing": (
        MTP, {"table": less(MTP, ".experts.4.", ".experts.5.")}, "TEN401", ["6 required", "experts.5.down_proj"],
    ),
    "the last Medusa head missing": (
        MEDUSA, {"table": {n: r for n, r in OF[MEDUSA].drafter_tensors.items() if n[0] != "2"}}, "DIM401",
        ["medusa_num_heads as 2", "3 (drafter"],
    ),
    "a Medusa head in the middle missing": (
        MEDUSA, {"table": {n: r for n, r in OF[MEDUSA].drafter_tensors.items() if n[0] != "1"}}, "TEN401",
        ["3 required", "1.0.linear.bias", "1.1.weight [512, 64]"],
    ),
    "the first of three Medusa heads of another size": (
        MEDUSA, {"table": OF[MEDUSA].drafter_tensors | {"0.1.weight": ("F16", (518, 64))}}, "TEN403",
        ["0.1.weight", "[512, 64]", "[518, 64]"],
    ),
    "the first of three blocks of another size": (
        MEDUSA, {"table": OF[MEDUSA].drafter_tensors | {"0.0.linear.weight": ("F16", (70, 64))}}, "TEN403",
        ["0.0.linear.weight", "[64, 64]", "[70, 64]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_one_finding_with_its_numbers(name: str) -> None:
    id, changes, code, shows = FAULTS[name]
    told = found(OF[id], **changes)
    assert [c for c, _ in told] == [code], told
    assert [part for part in shows if part not in told[0][1]] == []


def test_two_faults_are_two_findings() -> None:
    table = dict(OF[EAGLE3].drafter_tensors) | {"norm.weight": ("BF16", (72,))}
    told = found(OF[EAGLE3], {"head_dim": 88}, table)
    assert sorted(c for c, _ in told) == ["TEN403", "TEN403"]
    assert any("norm.weight" in text and "[72]" in text for _, text in told)


def test_table_of_the_layers_missing_is_not_told_key_by_key() -> None:
    told = found(OF[SPECULATORS], {"transformer_layer_config": ABSENT})
    assert [c for c, _ in told if c in ("CFG312", "TEN401", "TEN403")] == ["CFG312", "TEN403"]
    assert "heads is not stated" in next(text for c, text in told if c == "TEN403")


def test_tensors_that_disagree_blame_no_dim() -> None:
    table = dict(OF[EAGLE3].drafter_tensors)
    table["midlayer.self_attn.q_proj.weight"] = ("BF16", (180, 128))
    table["midlayer.self_attn.k_proj.weight"] = ("BF16", (84, 128))
    assert [c for c, _ in found(OF[EAGLE3], {}, table)] == ["TEN403", "TEN403"]


def test_target_of_another_width_is_said_once_of_all_heads() -> None:
    wide = OF[MEDUSA]._replace(target_tensors=b.target(hidden=80))
    told = found(wide, theirs={"hidden_size": 80})
    rows = [text for code, text in told if code.startswith("PAIR")]
    assert [c for c, _ in told if c.startswith("PAIR")] == ["PAIR401"], told
    assert all(part in rows[0] for part in ("1.0.linear.weight [64, 64] for [80, 80]", "2.1.weight"))


def test_heads_of_another_vocabulary_are_said_once() -> None:
    table = {n: (d, (500, 64) if s == (512, 64) else s) for n, (d, s) in OF[MEDUSA].drafter_tensors.items()}
    told = found(OF[MEDUSA], table=table)
    assert [c for c, _ in told] == ["PAIR404"], told
    assert all(part in told[0][1] for part in ("[512, 64]", "[500, 64]", "2.1.weight"))


@pytest.mark.parametrize(
    ("more", "number", "flag"),
    [
        (
            {f"midlayer.self_attn.{x}_proj.bias": (n * 44,) for x, n in (("q", 4), ("k", 2), ("v", 2))},
            3,
            "attention_bias",
        ),
        ({f"fc_norm.{k}.weight": (64,) for k in range(3)}, 3, "fc_norm"),
    ],
)
def test_tensors_that_one_flag_forbids_are_said_once(more: Any, number: int, flag: str) -> None:
    table = OF[EAGLE3].drafter_tensors | {name: ("BF16", shape) for name, shape in more.items()}
    told = found(OF[EAGLE3], table=table)
    assert [c for c, _ in told] == ["TEN405"], told
    assert f"{number} tensors must not be there" in told[0][1]
    assert flag in told[0][1]
    assert all(name in told[0][1] for name in more)


def test_flag_of_a_row_of_tensors_that_are_not_there_is_said_once() -> None:
    told = found(OF[EAGLE3], {"fc_norm": True})
    assert [c for c, _ in told] == ["TEN401"], told
    assert "3 required" in told[0][1]


def test_ids_more_than_fc_takes_are_not_also_said_to_be_no_default() -> None:
    told = found(OF[EAGLE3], {"eagle_config.eagle_aux_hidden_state_layer_ids": [2, 4, 6, 9]})
    assert [c for c, _ in told] == ["TEN403"], told


@pytest.mark.parametrize(
    ("scaling", "code", "shows"),
    [
        (
            {"rope_type": "yarn", "original_max_position_embeddings": 1024},
            "CFG312",
            ["rope_scaling.factor", "for yarn"],
        ),
        ({"type": "linear"}, "CFG312", ["rope_scaling.factor", "for linear"]),
        ({"rope_type": "yarnn", "factor": 4.0}, "CFG307", ["'yarnn'", "did you mean 'yarn'"]),
    ],
)
def test_rope_scaling_that_no_engine_reads_is_said(scaling: Any, code: str, shows: list[str]) -> None:
    told = found(OF[EAGLE3], {"rope_scaling": scaling})
    assert [c for c, _ in told] == [code], told
    assert [part for part in shows if part not in told[0][1]] == []


@pytest.mark.parametrize(
    "scaling", [{"rope_type": "dynamic", "alpha": 1000.0}, {"rope_type": "of-next-year"}, {"rope_type": "default"}]
)
def test_rope_scaling_that_is_newer_or_needs_no_factor_is_not_spoken_of(scaling: Any) -> None:
    assert found(OF[EAGLE3], {"rope_scaling": scaling}) == []


def test_optimizer_state_among_the_weights_is_not_also_a_wrong_dtype() -> None:
    told = found(OF[EAGLE3], {}, OF[EAGLE3].drafter_tensors | {"exp_avg.fc.weight": ("F32", (64, 192))})
    assert [c for c, _ in told] == ["TEN402"], told


@pytest.mark.parametrize("id", [MTP, "mtp-qwen3-next: Qwen3-Next", "mtp-glm4-moe: GLM-4.5", "mtp-mimo: MiMo"])
def test_layer_that_was_dropped_beside_the_layers_of_its_target_is_not_there(id: str) -> None:
    table = {n: r for n, r in OF[id].drafter_tensors.items() if "mtp" not in n and ".12." not in n}
    assert "model.layers.0.input_layernorm.weight" in table
    told = found(OF[id], {}, table)
    assert [c for c, _ in told] == ["TEN430"], told
    assert "none of them" in told[0][1]


def test_index_of_another_checkpoint_is_one_finding(tmp_path: Path) -> None:
    b.write(tmp_path / "a", OF[EAGLE3].drafter_config, OF[EAGLE3].drafter_tensors, shards=2)
    b.write(tmp_path / "b", OF[DFLASH].drafter_config, OF[DFLASH].drafter_tensors, shards=2)
    index = "model.safetensors.index.json"
    (tmp_path / "a" / index).write_bytes((tmp_path / "b" / index).read_bytes())
    report = b.check(str(tmp_path / "a"))
    rows = [f for f in report.findings if f.level == "error"]
    assert [f.code for f in rows] == ["IDX301"]
    assert "25 not there" in rows[0].observed


def test_renamed_shard_is_one_finding_that_says_so(tmp_path: Path) -> None:
    b.write(tmp_path, OF[EAGLE3].drafter_config, OF[EAGLE3].drafter_tensors, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").rename(tmp_path / "model-00002-of-00004.safetensors")
    report = b.check(str(tmp_path))
    rows = [f for f in report.findings if f.code.startswith("IDX")]
    assert [f.code for f in rows] == ["IDX304"]
    assert "'model-00002-of-00004.safetensors' is there" in rows[0].note


@pytest.mark.parametrize("id", ["medusa-merged: Medusa, the whole model", "mtp-mimo: MiMo"])
def test_target_with_a_drafter_inside_is_told_how_to_ask_for_it(id: str, tmp_path: Path) -> None:
    b.write(tmp_path / "both", OF[id].drafter_config, OF[id].drafter_tensors)
    report = b.check(str(tmp_path / "both"))
    told = next(f for f in report.findings if f.code == "PAIR422")
    assert f"--family {OF[id].family}" in told.help
    assert report.sides[0].provenance == "read"  # its tensors were


def test_plan_that_lacks_sizes_drops_no_tensor(tmp_path: Path) -> None:
    b.write(tmp_path / "m", OF[MEDUSA].drafter_config, OF[MEDUSA].drafter_tensors)
    b.write(tmp_path / "t", *LLAMA)
    plan = adapt(str(tmp_path / "m"), str(tmp_path / "t"), b.LIBRARY).plan
    assert plan is not None
    assert plan.verdict == "unknown"
    assert "hidden, target.vocab cannot be known" in plan.headline
    assert [step for step in plan.steps if step.action == "drop"] == []


@pytest.mark.parametrize(
    ("id", "own"),
    [
        ("draft-model: llama", {"vocab_size": 1024}),
        (EAGLE3, {"hidden_size": 128}),
    ],
)
def test_size_edited_in_the_drafter_is_not_also_one_of_another_target(id: str, own: Any) -> None:
    told = [row for row in found(OF[id], own) if row[0] != "PAIR448"]  # a model in memory has no tokenizer
    assert [c for c, _ in told] == ["DIM401"], told
    key, value = next(iter(own.items()))
    assert str(value) in told[0][1]
    assert f"State {key} as" in told[0][1]
