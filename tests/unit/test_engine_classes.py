"""Classes of engines of which there is no family contract: what loads into them, and what of it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from draftproof import api, engines
from draftproof.library import Library

LIBRARY = Library()
BASE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 128, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
TARGET = {**BASE, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 8}
NORMS = ("input_layernorm", "post_attention_layernorm")
Shapes = dict[str, tuple[int, ...]]


def attention(start: str, wide: int = 64) -> Shapes:
    rows = {"q_proj": (128, wide), "k_proj": (64, wide), "v_proj": (64, wide), "o_proj": (wide, 128)}
    return {f"{start}self_attn.{name}.weight": shape for name, shape in rows.items()} | {
        f"{start}self_attn.{name}_norm.weight": (32,) for name in "qk"
    }


def experts(start: str, names: tuple[str, str, str], inter: int = 48) -> Shapes:
    gate, up, down = names
    return {
        f"{start}{i}.{name}.weight": (64, inter) if name == down else (inter, 64)
        for i in range(2)
        for name in (gate, up, down)
    }


def mlp(start: str, inter: int = 96) -> Shapes:
    return {f"{start}gate_proj.weight": (inter, 64), f"{start}up_proj.weight": (inter, 64),
            f"{start}down_proj.weight": (64, inter)}  # fmt: skip


def norms(start: str, *names: str, wide: int = 64) -> Shapes:
    return {f"{start}{name}.weight": (wide,) for name in names}


HY: dict[str, Any] = {
    **BASE, "architectures": ["HYV3ForCausalLM"], "model_type": "hy_v3", "num_experts": 2, "num_experts_per_tok": 1,
    "num_shared_experts": 1, "expert_hidden_dim": 48, "qk_norm": True, "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}  # fmt: skip
AT = "model.layers.2."
HY_TENSORS: Shapes = {
    **norms(AT, "enorm", "hnorm", "final_layernorm", *NORMS), f"{AT}eh_proj.weight": (64, 128), **attention(AT),
    f"{AT}mlp.router.gate.weight": (2, 64), f"{AT}mlp.expert_bias": (2,), **mlp(f"{AT}mlp.shared_mlp.", 48),
    **experts(f"{AT}mlp.experts.", ("gate_proj", "up_proj", "down_proj")),
}  # fmt: skip
GEMMA_TEXT: dict[str, Any] = {
    **BASE, "model_type": "gemma4_text", "hidden_size": 32, "global_head_dim": 32, "intermediate_size": 96,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "backbone_hidden_size": 64,
    "text_config": GEMMA_TEXT,
}  # fmt: skip
GEMMA_TENSORS: Shapes = {
    "model.embed_tokens.weight": (128, 32), "model.norm.weight": (32,), "pre_projection.weight": (32, 128),
    "post_projection.weight": (64, 32),
}  # fmt: skip
for i in range(2):
    start = f"model.layers.{i}."
    GEMMA_TENSORS |= {n: s for n, s in attention(start, 32).items() if n.rpartition("attn.")[2][0] not in "kv"}
    GEMMA_TENSORS |= norms(start, *NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm", wide=32)
    GEMMA_TENSORS |= {f"{start}mlp.{n}_proj.weight": (96, 32) for n in ("gate", "up")}
    GEMMA_TENSORS |= {f"{start}mlp.down_proj.weight": (32, 96), f"{start}layer_scalar": (1,)}
LAGUNA: dict[str, Any] = {
    **BASE, "architectures": ["DFlashLagunaForCausalLM"], "model_type": "laguna", "draft_vocab_size": 128,
    "layer_types": ["full_attention"] * 2, "gating": "per-head", "num_experts": 0, "block_size": 4,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [1, 5]},
}  # fmt: skip
LAGUNA_TENSORS: Shapes = {
    "fc.weight": (64, 128), **norms("", "hidden_norm", "norm", "aux_hidden_norms.0", "aux_hidden_norms.1")
}  # fmt: skip
for i in range(2):
    start = f"layers.{i}."
    LAGUNA_TENSORS |= {
        n: s
        for n, s in attention(start).items()
        if n.rpartition("attn.")[2][:2] not in ("q_", "k_", "v_") or "norm" in n
    }
    LAGUNA_TENSORS |= {f"{start}self_attn.qkv_proj.weight": (256, 64), f"{start}self_attn.g_proj.weight": (4, 64)}
    LAGUNA_TENSORS |= {**norms(start, *NORMS), **mlp(f"{start}mlp.")}
BAILING: dict[str, Any] = {
    **BASE, "architectures": ["BailingMoeV2_5ForCausalLM"], "model_type": "bailing_hybrid", "num_experts": 2,
    "num_experts_per_tok": 1, "num_shared_experts": 1, "moe_intermediate_size": 48, "q_lora_rank": 24,
    "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "num_nextn_predict_layers": 1, "auto_map": {"AutoConfig": "configuration_bailing.BailingConfig"},
}  # fmt: skip
BAILING_TENSORS: Shapes = {
    **norms(AT, "enorm", "hnorm", "final_layernorm", *NORMS), f"{AT}eh_proj.weight": (64, 128),
    f"{AT}attention.q_a_proj.weight": (24, 64), f"{AT}attention.q_a_layernorm.weight": (24,),
    f"{AT}attention.q_b_proj.weight": (96, 24), f"{AT}attention.kv_a_proj_with_mqa.weight": (24, 64),
    f"{AT}attention.kv_a_layernorm.weight": (16,), f"{AT}attention.kv_b_proj.weight": (128, 16),
    f"{AT}attention.dense.weight": (64, 64), f"{AT}mlp.gate.weight": (2, 64), **mlp(f"{AT}mlp.shared_experts.", 48),
    **experts(f"{AT}mlp.experts.", ("gate_proj", "up_proj", "down_proj")),
}  # fmt: skip
BAILING_3: dict[str, Any] = {
    **BAILING, "architectures": ["BailingMoeV3ForCausalLM"], "moe_shared_expert_intermediate_size": 48,
    "gated_attention_proj_granularity_type": "head_wise", "model_type": "bailing_moe_v3",
}  # fmt: skip
BAILING_3_TENSORS: Shapes = BAILING_TENSORS | {
    f"{AT}mlp.gate.expert_bias": (2,),
    f"{AT}attention.g_proj.weight": (4, 64),
}
EXAONE: dict[str, Any] = {
    "architectures": ["Exaone4_5_ForConditionalGeneration"], "model_type": "exaone4_5", "vocab_size": 128,
    "num_nextn_predict_layers": 1, "text_config": {**BASE, "model_type": "exaone4"},
}  # fmt: skip
EXAONE_TENSORS: Shapes = {
    "mtp.fc.weight": (64, 128), **norms("mtp.", "norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"),
    **attention("mtp.layers.0."), **mlp("mtp.layers.0.mlp."),
    **norms("mtp.layers.0.", "post_attention_layernorm", "post_feedforward_layernorm"),
}  # fmt: skip
NEMOTRON: dict[str, Any] = {
    **BASE, "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "n_routed_experts": 2,
    "num_experts_per_tok": 1, "moe_intermediate_size": 48, "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 24, "mtp_hybrid_override_pattern": "*E", "num_nextn_predict_layers": 1,
}  # fmt: skip
NEMOTRON_TENSORS: Shapes = {
    **norms("mtp.layers.0.", "enorm", "hnorm", "norm"), **norms("mtp.layers.1.", "norm", "final_layernorm"),
    "mtp.layers.0.eh_proj.weight": (64, 128), "mtp.layers.1.mixer.gate.weight": (2, 64),
    "mtp.layers.1.mixer.gate.e_score_correction_bias": (2,), "mtp.layers.0.mixer.q_proj.weight": (128, 64),
    "mtp.layers.0.mixer.k_proj.weight": (64, 64), "mtp.layers.0.mixer.v_proj.weight": (64, 64),
    "mtp.layers.0.mixer.o_proj.weight": (64, 128), "mtp.layers.1.mixer.shared_experts.up_proj.weight": (24, 64),
    "mtp.layers.1.mixer.shared_experts.down_proj.weight": (64, 24), "model.layers.0.norm.weight": (48,),
    **{f"mtp.layers.1.mixer.experts.{i}.up_proj.weight": (48, 64) for i in range(2)},
    **{f"mtp.layers.1.mixer.experts.{i}.down_proj.weight": (64, 48) for i in range(2)},
}  # fmt: skip
MADE: dict[str, tuple[str, dict[str, Any], Shapes, dict[str, Any]]] = {
    "vllm-mtp-hy-v3": ("mtp", HY, HY_TENSORS, HY),
    "vllm-mtp-gemma4": ("mtp", GEMMA, GEMMA_TENSORS, TARGET),
    "vllm-dflash-laguna": ("dflash", LAGUNA, LAGUNA_TENSORS, TARGET),
    "vllm-mtp-bailing": ("mtp", BAILING, BAILING_TENSORS, BAILING),
    "vllm-mtp-bailing-v3": ("mtp", BAILING_3, BAILING_3_TENSORS, BAILING_3),
    "vllm-mtp-nemotron-h": ("mtp", NEMOTRON, NEMOTRON_TENSORS, NEMOTRON),
    "vllm-mtp-exaone4-5": ("mtp", EXAONE, EXAONE_TENSORS, EXAONE),
}


def asked(id: str, tensors: Shapes, **changes: Any) -> engines.Prediction:
    method, config, _, target = MADE[id]
    own = {"config": {**config, **changes}, "state_dict": {n: ("BF16", s) for n, s in tensors.items()}}
    seen, _ = api.examine_models(own, {"config": target, "state_dict": {}}, LIBRARY)
    assert seen.drafter is not None
    spec = {"method": method, "model": "D", "num_speculative_tokens": 1}
    profile, _ = LIBRARY.get("profile", "vllm")
    flags = {"model": "T", "speculative_config": spec, "trust_remote_code": True, "env": {}}
    sides = (seen.drafter, seen.target, seen.couple)
    return engines.predict(profile, LIBRARY, *sides, version="0.33.0", flags=flags)


def loaded(made: engines.Prediction) -> list[tuple[str, str, str]]:
    found = [(e.outcome, e.subject, e.error) for e in made.effects if e.stage == "load" and e.outcome != "changes"]
    return [one for one in found if not one[1].startswith("target")]


@pytest.mark.parametrize("id", MADE)
def test_all_that_a_class_takes_finds_its_place(id: str) -> None:
    made = asked(id, MADE[id][2])
    assert (made.class_, made.refusal, loaded(made)) == (id, None, [])


@pytest.mark.parametrize(
    ("id", "name", "to", "error"),
    [
        ("vllm-mtp-hy-v3", f"{AT}extra.weight", (3,), "KeyError"),
        ("vllm-mtp-hy-v3", f"{AT}eh_proj.weight", (64, 64), "AssertionError"),
        ("vllm-mtp-hy-v3", f"{AT}mlp.shared_mlp.down_proj.weight", (64, 32), "RuntimeError"),
        ("vllm-mtp-gemma4", "extra.weight", (3,), "ValueError"),
        ("vllm-mtp-gemma4", "model.layers.0.self_attn.k_proj.weight", (64, 32), "ValueError"),
        ("vllm-mtp-gemma4", "model.layers.1.input_layernorm.weight", None, "ValueError"),
        ("vllm-mtp-gemma4", "post_projection.weight", (32, 32), "AssertionError"),
        ("vllm-dflash-laguna", "layers.0.self_attn.q_proj.weight", (128, 64), "KeyError"),
        ("vllm-dflash-laguna", "aux_hidden_norms.1.weight", None, "ValueError"),
        ("vllm-dflash-laguna", "fc.weight", (64, 64), "AssertionError"),
        ("vllm-mtp-bailing", f"{AT}final_layernorm.weight", None, "ValueError"),
        ("vllm-mtp-bailing", f"{AT}attention.kv_a_layernorm.weight", (24,), "AssertionError"),
        ("vllm-mtp-nemotron-h", "mtp.layers.1.norm.weight", None, "ValueError"),
        ("vllm-mtp-nemotron-h", "mtp.layers.0.mixer.o_proj.weight", (32, 128), "AssertionError"),
        ("vllm-mtp-exaone4-5", "model.language_model.layers.0.mlp.up_proj.weight", (8, 64), ""),
        ("vllm-mtp-exaone4-5", "mtp.extra.weight", (3,), "ValueError"),
        ("vllm-mtp-exaone4-5", "mtp.norm.weight", None, "ValueError"),
        ("vllm-mtp-exaone4-5", "model.language_model.layers.0.extra.weight", (3,), ""),
    ],
)
def test_tensor_that_a_class_refuses(id: str, name: str, to: tuple[int, ...] | None, error: str) -> None:
    tensors = {n: s for n, s in MADE[id][2].items() if n != name} | ({name: to} if to else {})
    refusal = asked(id, tensors).refusal
    assert (refusal.error if refusal else "") == error


@pytest.mark.parametrize("name", [f"{AT}mlp.up_projection.weight", "other.weight"])
def test_name_that_a_class_passes_over(name: str) -> None:
    made = asked("vllm-mtp-bailing", BAILING_TENSORS | {name: (3,)})
    assert (made.refusal, loaded(made)) == (None, [])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"draft_vocab_size": 64}, "ValueError"),
        ({"layer_types": ["full_attention"]}, "ValueError"),
        ({"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8}, "NotImplementedError"),
    ],
)
def test_config_that_a_class_refuses(changes: dict[str, Any], error: str) -> None:
    refusal = asked("vllm-dflash-laguna", LAGUNA_TENSORS, **changes).refusal
    assert refusal is not None
    assert refusal.error == error
