"""adapt answers the founding question, and says of other pairs what must change and what becomes of each tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof.adapt import adapt
from draftproof.answers import Plan
from draftproof.api import check_models
from draftproof.checkpoint import Checkpoint
from draftproof.conform import conform, layout
from draftproof.findings import Report
from draftproof.hub import Source
from draftproof.library import Library
from draftproof.render import report_text

LIBRARY = Library()
K2, K25 = "AQ-MedAI/Kimi-K2-Instruct-eagle3", "moonshotai/Kimi-K2.5"
TORCHSPEC = "lightseekorg/TorchSpec/configs/draft_models/kimi_k25_eagle3.json"
MLA = "k-l-lambda/Kimi-K2.5-Eagle3"

# --- the founding question ----------------------------------------------------------------------------------------

KIMI = {
    "fc.weight": (7168, 21504),
    "layers.0.hidden_norm.weight": (7168,),
    "layers.0.input_layernorm.weight": (7168,),
    "layers.0.post_attention_layernorm.weight": (7168,),
    "layers.0.self_attn.q_proj.weight": (8192, 14336),
    "layers.0.self_attn.k_proj.weight": (8192, 14336),
    "layers.0.self_attn.v_proj.weight": (8192, 14336),
    "layers.0.self_attn.o_proj.weight": (7168, 8192),
    "layers.0.mlp.gate_proj.weight": (18432, 7168),
    "layers.0.mlp.up_proj.weight": (18432, 7168),
    "layers.0.mlp.down_proj.weight": (7168, 18432),
    "norm.weight": (7168,),
    "lm_head.weight": (32000, 7168),
    "d2t": (32000,),
}
Row = tuple[str, tuple[int, ...] | None, tuple[int, ...] | None]


def rows(plan: Plan) -> dict[str, Row]:
    return {s.tensor: (s.action, s.old_shape, s.new_shape) for s in plan.steps}


def ask(like: str | None = None) -> tuple[Report, Plan]:
    report = adapt(K2, K25, LIBRARY, like=like)
    assert report.plan
    return report, report.plan


def said(plan: Plan, *words: str) -> bool:
    return any(all(word in line for word in words) for line in plan.says)


@pytest.fixture(scope="module")
def founding() -> tuple[Report, Plan]:
    return ask()


def test_founding_case_has_its_headline_and_exit_code(founding: tuple[Report, Plan]) -> None:
    report, plan = founding
    assert plan.headline == (
        "after these changes (max_position_embeddings), on published configs, tensor table unverified"
    )
    assert (plan.verdict, report.exit_code) == ("after these changes", 0)


def test_founding_case_copies_every_tensor(founding: tuple[Report, Plan]) -> None:
    assert rows(founding[1]) == {name: ("copy", shape, shape) for name, shape in KIMI.items()}


def test_founding_case_changes_the_context_and_cites_the_engine(founding: tuple[Report, Plan]) -> None:
    (change,) = founding[1].changes
    assert (change.key, change.old, change.new) == ("max_position_embeddings", 131072, 262144)
    assert change.why == (
        "the target's context; SGLang 0.5.23 refuses it otherwise (srt/configs/model_config.py:1291-1316)"
    )


@pytest.mark.parametrize(
    "line",
    [
        "geometry fits: hidden 7168, fc [7168, 21504], heads 64x128, key-value heads 64, intermediate 18432, "
        "draft vocabulary 32000 of 163840",
        "raising the context satisfies the engine, not the drafter: the length it was trained at is not declared",
        "aux layers: [2, 30, 58] is the boundary-style default for 61 layers",
        "identical to AQ-MedAI/Kimi-K25-eagle3 but for max_position_embeddings and transformers_version; that one was "
        "trained on this target (derived)",
    ],
)
def test_founding_case_says(founding: tuple[Report, Plan], line: str) -> None:
    assert line in founding[1].says


def test_founding_case_speaks_of_engine_lineage_convention_and_tables(founding: tuple[Report, Plan]) -> None:
    plan = founding[1]
    assert said(
        plan, "without the change of max_position_embeddings, SGLang 0.5.23 refuses: ValueError", "(run: srt/configs/"
    )
    assert said(plan, "lineage: trained on moonshotai/Kimi-K2-Instruct (model card)", "measure the accept length")
    assert said(plan, "aux layers: convention of the aux layer ids is not declared; [2, 30, 58]")
    assert said(plan, "tensor tables not read: drafter (computed from families/eagle3.toml", "TEN rules are unknown")


def test_torchspec_geometry_is_reached_only_in_part() -> None:
    report, plan = ask(TORCHSPEC)
    assert (plan.verdict, report.exit_code) == ("only in part", 1)
    assert plan.headline == (
        "only in part (intermediate 18432 -> 12288, draft_vocab 32000 -> 163840 full vocabulary), taken: fusion 1 of 1"
        ", attention 4 of 4, mlp 0 of 3, norm 4 of 4, head in part, on published configs, tensor table unverified"
    )
    expected: dict[str, Row] = {name: ("copy", shape, shape) for name, shape in KIMI.items()}
    for name in ("gate_proj", "up_proj"):
        expected[f"layers.0.mlp.{name}.weight"] = ("init", (18432, 7168), (12288, 7168))
    expected["layers.0.mlp.down_proj.weight"] = ("init", (7168, 18432), (7168, 12288))
    expected["lm_head.weight"] = ("rows", (32000, 7168), (163840, 7168))
    expected["d2t"] = ("drop", (32000,), None)
    assert rows(plan) == expected
    assert said(plan, "lm_head.weight: 32000 of 163840 rows: row i of the old head becomes row i + d2t[i]")
    assert said(plan, "can be taken: fc.weight, ", "layers.0.self_attn.o_proj.weight, norm.weight")


def test_torchspec_geometry_has_another_rope_and_no_aux_layers() -> None:
    _, plan = ask(TORCHSPEC)
    assert said(plan, "rope differs: trained with theta 1000000, no scaling", "has theta 50000, yarn", "q_proj")
    assert said(
        plan, "eagle_aux_hidden_state_layer_ids stays [2, 30, 58], not absent", "fc was trained on its own layers"
    )
    keys = [c.key for c in plan.changes]
    assert keys[:2] == ["intermediate_size", "max_position_embeddings"]
    assert not {"dtype", "torch_dtype", "eagle_config.eagle_aux_hidden_state_layer_ids"} & set(keys)


def test_mla_geometry_takes_no_attention() -> None:
    report, plan = ask(MLA)
    assert (plan.verdict, report.exit_code) == ("no", 1)
    assert plan.headline == (
        "no for attention: attention 0 of 7 can be taken, what remains: fusion 1 of 1, mlp 3 of 3, norm 4 of 4, "
        "head in part, on published configs, tensor table unverified"
    )
    expected: dict[str, Row] = {name: ("copy", shape, shape) for name, shape in KIMI.items()}
    for name in ("q_proj", "k_proj", "v_proj"):
        expected[f"layers.0.self_attn.{name}.weight"] = ("drop", (8192, 14336), None)
    for name, shape in {
        "q_a_proj": (1536, 14336),
        "q_a_layernorm": (1536,),
        "q_b_proj": (12288, 1536),
        "kv_a_proj_with_mqa": (576, 14336),
        "kv_a_layernorm": (512,),
        "kv_b_proj": (16384, 512),
    }.items():
        expected[f"layers.0.self_attn.{name}.weight"] = ("init", None, shape)
    expected["layers.0.self_attn.o_proj.weight"] = ("init", (7168, 8192), (7168, 8192))
    expected["lm_head.weight"] = ("rows", (32000, 7168), (163840, 7168))
    expected["d2t"] = ("drop", (32000,), None)
    assert rows(plan) == expected


def test_partial_recording_cannot_be_judged() -> None:
    report = adapt("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "meta-llama/Llama-3.1-8B", LIBRARY)
    assert report.plan
    assert report.plan.headline.startswith("unknown: only some config keys of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    assert (report.plan.verdict, report.exit_code) == ("unknown", 4)


# --- small models in memory ---------------------------------------------------------------------------------------

TARGET: dict[str, Any] = b.SMALL_TARGET | {"torch_dtype": "float16"}
DRAFTER: dict[str, Any] = b.SMALL_DRAFTER | {"torch_dtype": "float16"}
Shapes = dict[str, tuple[str, tuple[int, ...]]]


def shapes(config: dict[str, Any], **more: tuple[str, tuple[int, ...]]) -> Shapes:
    """Return the tensor table that a drafter's config asks for."""
    contract, _ = LIBRARY.get("family", "eagle3")
    config = {k: v for k, v in config.items() if v is not ...}
    view = conform(contract, Checkpoint(Source("new", kind="config", config=config), "drafter"), tensors=False)
    table = {n: ("I64" if n == "d2t" else "F16", shape) for n, (_, shape) in layout(contract, view.dims).items()}
    return table | more


def model(config: dict[str, Any], tensors: Shapes | None = None, drop: tuple[str, ...] = ()) -> dict[str, Any]:
    table = {n: t for n, t in (shapes(config) if tensors is None else tensors).items() if n not in drop}
    return {"name": "mine", "config": {k: v for k, v in config.items() if v is not ...}, "state_dict": table}


def target(**over: Any) -> dict[str, Any]:
    config = TARGET | over
    rows = (config["vocab_size"], config["hidden_size"])
    names = ("model.embed_tokens.weight", "lm_head.weight")
    return {
        "name": "theirs",
        "config": config,
        "state_dict": dict.fromkeys(names, ("F16", rows)) | {"model.norm.weight": ("F16", rows[1:])},
    }


def plan_of(drafter: Any, to: Any, **more: Any) -> Plan:
    report = adapt(drafter, to, LIBRARY, **more)
    assert report.plan
    assert report_text(report)
    assert report.exit_code == {"as is": 0, "after these changes": 0, "unknown": 4}.get(report.plan.verdict, 1)
    return report.plan


def test_drafter_that_fits_is_taken_as_is() -> None:
    plan = plan_of(model(DRAFTER), target())
    assert (plan.verdict, plan.headline, plan.changes) == ("as is", "as is", ())
    assert {s.action for s in plan.steps} == {"copy"}


def test_geometry_of_the_same_drafter_changes_nothing() -> None:
    assert plan_of(model(DRAFTER), target(), like=model(DRAFTER)).verdict == "as is"


def test_nothing_declared_reads_well() -> None:
    plan = plan_of(model(DRAFTER), target())
    assert said(plan, "lineage: the target that it was trained on is not declared: measure the accept length")
    assert not said(plan, "(not declared)")


@pytest.mark.parametrize(
    ("over", "key", "old", "new"),
    [
        ({"max_position_embeddings": 8192}, "max_position_embeddings", 4096, 8192),
        ({"eos_token_id": [7, 8]}, "eos_token_id", 2, [7, 8]),
    ],
)
def test_target_demands_one_change(over: dict[str, Any], key: str, old: Any, new: Any) -> None:
    plan = plan_of(model(DRAFTER), target(**over))
    assert [(c.key, c.old, c.new) for c in plan.changes] == [(key, old, new)]
    assert plan.verdict == "after these changes"


@pytest.mark.parametrize(("count", "kept"), [(36, 1), (2, 1), (1, 2), (3, 2)])
def test_drafter_that_lost_a_layer_does_not_become_a_shallower_one(count: int, kept: int) -> None:
    table = shapes(DRAFTER | {"num_hidden_layers": kept})
    plan = plan_of(model(DRAFTER | {"num_hidden_layers": count}, table), target())
    assert (plan.verdict, plan.changes, plan.steps) == ("no", (), ())
    assert plan.headline.startswith("no: the source is broken: layers: num_hidden_layers differs")
    assert f"{count} layers" in plan.headline
    assert f"{kept} in the file" in plan.headline


BLOCK: dict[str, Any] = DRAFTER | {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 8, "draft_vocab_size": ...,
    "eagle_config": ..., "dflash_config": {"mask_token_id": 7, "target_layer_ids": [1, 3, 5]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("own", "changes"),
    [
        ({"num_target_layers": 8}, []),
        ({}, []),
        ({"num_target_layers": 36}, [("num_target_layers", 36, 8)]),
        # TorchSpec's config: the first counts the captured layers, which the new target does not change
        ({"num_target_layers": 3, "target_num_hidden_layers": 8}, []),
        ({"num_target_layers": 3, "target_num_hidden_layers": 36}, [("target_num_hidden_layers", 36, 8)]),
    ],
    ids=str,
)
def test_layer_count_of_a_block_drafters_target_is_changed_where_it_is_stated(
    own: dict[str, Any], changes: list[Any]
) -> None:
    config = {k: v for k, v in (BLOCK | own).items() if v is not ...}
    contract, _ = LIBRARY.get("family", "dflash")
    view = conform(contract, Checkpoint(Source("new", kind="config", config=config), "drafter"), tensors=False)
    table = {n: ("F16", shape) for n, (_, shape) in layout(contract, view.dims).items()}
    plan = plan_of(model(config, table), target())
    assert [(c.key, c.old, c.new) for c in plan.changes] == changes
    assert plan.verdict == ("after these changes" if changes else "as is")


SPECULATORS: dict[str, Any] = {
    "speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"], "draft_vocab_size": 128,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5], "torch_dtype": "float16",
    "transformer_layer_config": {k: v for k, v in DRAFTER.items() if k not in ("eagle_config", "draft_vocab_size")},
    "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "a/b", "architectures": ["Old"]}},
}  # fmt: skip


def test_declared_verifier_becomes_the_new_target() -> None:
    to = target(architectures=["LlamaForCausalLM"]) | {"name": "meta/new"}
    own = model(SPECULATORS, shapes(DRAFTER))
    found = {c.key: (c.old, c.new) for c in plan_of(own, to).changes}
    assert found == {
        "speculators_config.verifier.name_or_path": ("a/b", "meta/new"),
        "speculators_config.verifier.architectures": (["Old"], ["LlamaForCausalLM"]),
    }
    same = SPECULATORS | {"speculators_config": {"verifier": {"name_or_path": "meta/new"}}}
    assert plan_of(model(same, shapes(DRAFTER)), to).changes == ()
    lacking = SPECULATORS | {"speculators_config": {"algorithm": "eagle3"}}
    plan = plan_of(model(lacking, shapes(DRAFTER)), to)
    assert [(c.key, c.old, c.new) for c in plan.changes] == [
        ("speculators_config.verifier.name_or_path", None, "meta/new"),
        ("speculators_config.verifier.architectures", None, ["LlamaForCausalLM"]),
    ]


def test_moved_aux_layers_are_announced_with_the_copied_fc() -> None:
    deep = DRAFTER | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}
    plan = plan_of(model(deep), target())
    assert [(c.key, c.new) for c in plan.changes] == [("eagle_config.eagle_aux_hidden_state_layer_ids", [2, 4, 5])]
    assert said(plan, "fc is copied, and was trained on [2, 30, 58]", "must be trained again")


# --- another vocabulary, another width ----------------------------------------------------------------------------


def test_other_vocabulary_is_never_taken_whole() -> None:
    plan = plan_of(model(DRAFTER), target(vocab_size=600))
    assert plan.verdict == "only in part"
    assert ("vocab_size", 512, 600) in [(c.key, c.old, c.new) for c in plan.changes]
    assert {n: r[0] for n, r in rows(plan).items() if n in ("lm_head.weight", "d2t", "fc.weight")} == {
        "lm_head.weight": "init", "d2t": "init", "fc.weight": "copy",
    }  # fmt: skip
    assert said(plan, "another vocabulary: 600 token ids against 512, and no tokenizers at hand that agree")
    assert said(plan, "d2t of the new draft vocabulary must come from its trainer")


def test_embedding_of_another_vocabulary_is_dropped() -> None:
    own = model(DRAFTER, shapes(DRAFTER) | {"embed_tokens.weight": ("F16", (512, 64))})
    assert rows(plan_of(own, target()))["embed_tokens.weight"][0] == "copy"
    assert rows(plan_of(own, target(vocab_size=600)))["embed_tokens.weight"][0] == "drop"


def test_head_of_the_whole_vocabulary_follows_another_one() -> None:
    own = DRAFTER | {"draft_vocab_size": 512}
    table = shapes(own) | {"lm_head.weight": ("F16", (512, 64))}
    plan = plan_of(model(own, table), target(vocab_size=600))
    assert {c.key: c.new for c in plan.changes} == {"vocab_size": 600, "draft_vocab_size": 600}
    assert rows(plan)["lm_head.weight"] == ("init", (512, 64), (600, 64))
    assert "d2t" not in rows(plan)


def test_wider_target_needs_another_fc_and_an_embedding() -> None:
    plan = plan_of(model(DRAFTER), target(hidden_size=128))
    assert plan.verdict == "only in part"
    assert [(c.key, c.old, c.new) for c in plan.changes] == [("target_hidden_size", None, 128)]
    assert rows(plan)["fc.weight"] == ("init", (64, 192), (64, 384))
    assert rows(plan)["embed_tokens.weight"] == ("init", None, (512, 64))


def test_whole_vocabulary_from_a_reduced_one_drops_the_maps() -> None:
    own = model(DRAFTER, shapes(DRAFTER) | {"t2d": ("BOOL", (512,))})
    plan = plan_of(own, target(), like=model(DRAFTER | {"draft_vocab_size": ...}, {}))
    assert {n: rows(plan)[n][0] for n in ("lm_head.weight", "d2t", "t2d")} == {
        "lm_head.weight": "rows", "d2t": "drop", "t2d": "drop",
    }  # fmt: skip


@pytest.mark.parametrize("size", [64, 512])
def test_another_reduced_vocabulary_needs_the_trainers_map(size: int) -> None:
    own = DRAFTER | {"draft_vocab_size": size}
    plan = plan_of(model(own, shapes(own) | {"lm_head.weight": ("F16", (size, 64))}), target(), like=model(DRAFTER))
    assert rows(plan)["lm_head.weight"][0] == "rows"
    assert rows(plan)["d2t"][0] == "init"
    assert said(plan, "d2t of the new draft vocabulary must come from its trainer", "give --like a local checkpoint")


def test_head_without_its_map_cannot_be_taken() -> None:
    whole = model(DRAFTER | {"draft_vocab_size": ...}, {})
    for own in (model(DRAFTER, drop=("d2t",)), model(DRAFTER, shapes(DRAFTER) | {"d2t": ("F32", (128,))})):
        plan = plan_of(own, target(), like=whole)
        assert rows(plan)["lm_head.weight"][0] != "rows"
        assert said(plan, "so it is not known which tokens its head's rows stand for")


# --- a geometry asked for -----------------------------------------------------------------------------------------


def test_copied_fc_keeps_its_aux_layers() -> None:
    other = DRAFTER | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 6]}, "intermediate_size": 160}
    plan = plan_of(model(DRAFTER), target(), like=model(other))
    assert [c.key for c in plan.changes] == ["intermediate_size"]
    assert said(plan, "eagle_aux_hidden_state_layer_ids stays [2, 4, 5], not [1, 2, 6]", "fc was trained on its own")


def test_kept_aux_layers_are_still_moved_into_the_target() -> None:
    deep = DRAFTER | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}
    plan = plan_of(model(deep), target(), like=model(DRAFTER | {"eagle_config": ...}))
    assert [(c.new, c.why) for c in plan.changes] == [([2, 4, 5], "layers of this target, the boundary-style default")]
    assert said(plan, "fc is copied, and was trained on [2, 30, 58]", "must be trained again")


def test_table_that_only_held_aux_layers_goes_with_them() -> None:
    plan = plan_of(model(DRAFTER | {"eagle_config": ...}), target(), like=model(DRAFTER))
    assert plan.changes == ()
    assert said(plan, "eagle_aux_hidden_state_layer_ids stays absent, not [2, 4, 5]")


def test_new_fc_takes_the_aux_layers_asked_for() -> None:
    other = DRAFTER | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5, 6]}}
    plan = plan_of(model(DRAFTER), target(), like=model(other))
    assert rows(plan)["fc.weight"] == ("init", (64, 192), (64, 256))
    assert [c.new for c in plan.changes] == [[1, 3, 5, 6]]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"fc_norm": True}, "fc_norm true -> false"),
        ({"norm_before_fc": True}, "norm_before_fc true -> false"),
        ({"norm_output": True}, "norm_output true -> false"),
        ({"norm_before_residual": True}, "norm_before_residual true -> absent"),
        ({"hidden_act": "silu"}, 'hidden_act "silu" -> "gelu"'),
    ],
)
def test_flags_that_copied_tensors_were_trained_with_are_named(own: dict[str, Any], words: str) -> None:
    config = DRAFTER | {"target_hidden_size": 64} | own
    like = DRAFTER | {"target_hidden_size": 64, "hidden_act": "gelu" if "hidden_act" in own else ...}
    assert said(plan_of(model(config), target(), like=model(like)), "flags differ: ", words, "train again")


def test_geometry_is_mended_for_the_target_too() -> None:
    plan = plan_of(model(DRAFTER), target(), like=model(DRAFTER | {"max_position_embeddings": 2048}))
    assert plan.verdict == "as is"


def test_stored_bytes_stay_the_drafters() -> None:
    like = DRAFTER | {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}
    assert plan_of(model(DRAFTER), target(), like=model(like)).changes == ()


def test_config_file_gives_a_geometry(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DRAFTER | {"intermediate_size": 160}))
    plan = plan_of(model(DRAFTER), target(), like=path)
    assert [(c.key, c.new) for c in plan.changes] == [("intermediate_size", 160)]
    path.write_text("[1]")
    report = adapt(model(DRAFTER), target(), LIBRARY, like=str(path))
    assert report.plan
    assert report.plan.headline.startswith("unknown: like config.json: config.json is not a")


# --- every tensor is spoken of, and nothing breaks ----------------------------------------------------------------


def test_foreign_tensors_are_dropped_by_name() -> None:
    plan = plan_of(model(DRAFTER, shapes(DRAFTER) | {"foo": ("F16", (5, 5)), "a\nb": ("F16", (2,))}), target())
    assert rows(plan)["foo"] == ("drop", (5, 5), None)
    assert rows(plan)["a\\x0ab"] == ("drop", (2,), None)
    assert plan.verdict == "only in part"


def test_tensor_of_a_foreign_dtype_is_not_copied() -> None:
    for name in ("fc.weight", "lm_head.weight"):
        table = shapes(DRAFTER)
        table[name] = ("U8", table[name][1])
        assert rows(plan_of(model(DRAFTER, table), target()))[name][0] == "init"
        assert rows(plan_of(model(DRAFTER, table), target(), like=model(DRAFTER | {"draft_vocab_size": ...}, {})))


def test_quantised_drafter_cannot_be_judged() -> None:
    plan = plan_of(model(DRAFTER | {"quantization_config": {"quant_method": "fp8"}}), target())
    assert plan.headline.startswith("unknown: the drafter is quantised (fp8)")


def test_error_that_remains_is_announced() -> None:
    plan = plan_of(model(DRAFTER | {"rms_norm_eps": 2.0}), target())
    assert plan.verdict == "only in part"
    assert "CFG307 would still not hold" in plan.headline
    assert said(plan, "would still not hold: CFG307 config.json: rms_norm_eps")


ODD: list[Any] = [None, "64", 64.5, True, -1, 10**30, [[2]], ["2", "4", "5"], {"a": 1}]
KEYS = [
    *DRAFTER, "eagle_config.eagle_aux_hidden_state_layer_ids", "target_hidden_size", "num_aux_hidden_states",
    "rope_scaling", "text_config", "quantization_config", "fc_norm",
]  # fmt: skip


def odd(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    table, _, last = key.rpartition(".")
    return config | ({table: {last: value}} if table else {key: value})


@pytest.mark.parametrize("key", KEYS)
def test_whatever_the_config_holds_there_is_an_answer(key: str) -> None:
    whole = model(DRAFTER)
    for value in ODD:
        strange = {"name": "odd", "config": odd(DRAFTER, key, value), "state_dict": whole["state_dict"]}
        to = target()
        to["config"] = odd(TARGET, key, value)
        for report in (
            adapt(strange, target(num_hidden_layers=12, max_position_embeddings=8192), LIBRARY),
            adapt(whole, target(), LIBRARY, like=strange),
            adapt(whole, to, LIBRARY),
        ):
            assert report.plan, (key, value)
            assert report_text(report)
            Report.from_dict(json.loads(json.dumps(report.to_dict())))


@pytest.mark.parametrize(("drafter", "to"), [("no/such", K25), (K2, "no/such"), (K2, K2), (K25, K2)])
def test_side_that_is_not_at_hand_leads_the_answer(drafter: str, to: str) -> None:
    report = adapt(drafter, to, LIBRARY)
    assert report.plan
    judged = "no: " if drafter == K25 else "unknown: "  # a target given as drafter is read, and is none
    assert report.plan.headline.startswith(judged)
    assert report.exit_code == check_models(drafter, to, LIBRARY).exit_code
    assert not report.plan.steps


def _corrupt(folder: Path, how: str) -> None:
    weights, config = folder / "model.safetensors", folder / "config.json"
    if how == "cut":
        weights.write_bytes(weights.read_bytes()[:-10])
    elif how == "garbage":
        weights.write_bytes(b"\xff" * 64)
    elif how == "config":
        config.write_text("{")
    elif how == "list":
        config.write_text("[]")
    elif how == "no weights":
        weights.unlink()
    elif how == "no config":
        config.unlink()
    elif how == "layers":
        config.write_text(config.read_text().replace('"num_hidden_layers": 1', '"num_hidden_layers": 2'))


@pytest.mark.parametrize("how", ["cut", "garbage", "config", "list", "no weights", "no config", "layers"])
def test_corrupt_source_gets_the_exit_code_that_check_gives_it(how: str, tmp_path: Path) -> None:
    folder = b.write(tmp_path / "drafter", DRAFTER, {n: (d, s) for n, (d, s) in shapes(DRAFTER).items()})
    assert plan_of(folder, target()).verdict == "as is"
    _corrupt(folder, how)
    report = adapt(folder, target(), LIBRARY)
    assert report.plan
    assert report.exit_code == check_models(folder, target(), LIBRARY).exit_code
    assert report.plan.verdict == {1: "no", 4: "unknown"}.get(report.exit_code, "unknown")
    assert not report.plan.steps or report.plan.verdict == "unknown"


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_position_embeddings": "131072"}, {"max_position_embeddings": None}, {"num_hidden_layers": "8"},
        {"num_hidden_layers": None}, {"rms_norm_eps": "1e-5"}, {"rope_theta": [5e5]}, {"tie_word_embeddings": "no"},
    ],
    ids=str,
)  # fmt: skip
def test_target_whose_config_cannot_be_read_leaves_the_answer_unknown(wrong: dict[str, Any]) -> None:
    plan = plan_of(model(DRAFTER), target(**wrong))
    assert plan.verdict == "unknown"
    assert next(iter(wrong)) in plan.headline


def test_checkpoint_of_no_tensors_gives_nothing_to_take() -> None:
    plan = plan_of(model(DRAFTER, {}), target())
    assert plan.verdict == "no"
    assert {s.action for s in plan.steps} == {"init"}
