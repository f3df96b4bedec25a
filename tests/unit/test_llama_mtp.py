"""llama.cpp with the MTP layer of Qwen3.5: what it does with a broken one was found by converting and starting it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import api, engines
from draftproof.launch import flags_of
from draftproof.library import Library

CONFIG: b.Config = {
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 4, "vocab_size": 512,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "mtp_num_hidden_layers": 1, "dtype": "float32",
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.25},
    "layer_types": ["linear_attention"] * 3 + ["full_attention"], "tie_word_embeddings": False,
}  # fmt: skip
LAYER = {
    "input_layernorm": (64,), "post_attention_layernorm": (64,), "self_attn.q_proj": (256, 64),
    "self_attn.k_proj": (64, 64), "self_attn.v_proj": (64, 64), "self_attn.o_proj": (64, 128),
    "self_attn.q_norm": (32,), "self_attn.k_norm": (32,), "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64),
    "mlp.down_proj": (64, 96),
}  # fmt: skip
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (512, 64), "model.norm.weight": (64,), "lm_head.weight": (512, 64),
    "mtp.fc.weight": (64, 128), "mtp.pre_fc_norm_embedding.weight": (64,), "mtp.pre_fc_norm_hidden.weight": (64,),
    "mtp.norm.weight": (64,), **{f"mtp.layers.0.{name}.weight": shape for name, shape in LAYER.items()},
}  # fmt: skip
MTP = [name for name in SHAPES if name.startswith("mtp.")]
FLAGS = ("llama-server", "-m", "M", "--spec-type", "draft-mtp")


def predicted(folder: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...] | None]) -> engines.Prediction:
    table = {name: ("F32", shape) for name, shape in {**SHAPES, **shapes}.items() if shape is not None}
    path, library = str(b.write(folder / "m", {**CONFIG, **config}, table)), Library()
    case, profile = api.examine(path, path, library), library.get("profile", "llama.cpp")[0]
    flags = flags_of(FLAGS, {}, library)
    assert case.drafter is not None
    return engines.predict(profile, library, case.drafter, case.target, case.couple, flags=flags)


@pytest.mark.parametrize(
    ("config", "shapes", "said"),
    [
        ({}, {}, ("as meant",)),
        ({"mtp_num_hidden_layers": 0}, {}, ("as meant",)),  # the tensors tell
        ({}, {"mtp.layers.0.shared_head.head.weight": (512, 64)}, ("as meant",)),
        ({}, {"mtp.norm.weight": None}, ("degrades",)),
        ({}, {"mtp.fc.weight": None}, ("load", "GGML_ASSERT")),
        ({}, {"mtp.pre_fc_norm_hidden.weight": None}, ("load", "llama_model_load")),
        ({}, {"mtp.layers.0.self_attn.q_proj.weight": (128, 64)}, ("load", "llama_model_load")),
        ({}, {"mtp.fc.weight": (64, 64)}, ("load", "llama_model_load")),
        ({}, {"mtp.fc.bias": (64,)}, ("load", "llama_model_load")),
        ({}, {"mtp.extra.weight": (64,)}, ("convert", "ValueError")),
        ({}, {"mtp.layers.1.input_layernorm.weight": (64,)}, ("convert", "ValueError")),
        ({"mtp_num_hidden_layers": 2}, {}, ("load", "llama_model_load")),
        ({"mtp_num_hidden_layers": "1"}, {}, ("convert", "TypeError")),
        ({"mtp_num_hidden_layers": 0}, dict.fromkeys(MTP), ("convert", "AssertionError")),
    ],
)  # fmt: skip
def test_layer_of_qwen35_is_predicted_as_it_ran(
    config: dict[str, Any], shapes: dict[str, tuple[int, ...] | None], said: tuple[str, ...], tmp_path: Path
) -> None:
    made = predicted(tmp_path, config, shapes)
    refusal = made.refusal
    assert ((refusal.stage, refusal.error) if refusal is not None else (made.outcome,)) == said
