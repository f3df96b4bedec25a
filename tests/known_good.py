"""Known-good tiny checkpoints: what each trainer writes of each family, by hand, for checks that must stay silent.

Nothing here looks at contracts/families. Layouts and config keys were read from the trainers' own sources: SpecForge
a6b6b023, speculators c05b95b3, Model-Optimizer a2fbac7b, Automodel 36044ad3, TorchSpec 6f21829c, EAGLE cb7e0841,
Medusa e2a5d20c, Hydra 3f39fbd2, fms-extras 16339f7c, FR-Spec 9d40eea8, transformers 5.24.0 for the layers of targets,
and the loaders of vLLM and SGLang where a layout outlived its trainer. Sizes that could be mistaken for each other
all differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import builder as b
from builder import ABSENT, DIM, DRAFT, HEADS, HIDDEN, INTER, KV, LAYERS, TARGET, VOCAB, Config, Table

# fmt: off
Sizes = dict[str, tuple[int, ...]]


class Good(NamedTuple):
    """One known-good checkpoint and its target; `files` are further files, by their place under both folders."""

    id: str
    family: str
    drafter_config: Config
    drafter_tensors: Table
    target_config: Config
    target_tensors: Table
    facts: Mapping[str, Any] = {}
    files: Mapping[str, str] = {}
    dialect: str = ""  # expected, where it is named
    weights: str = "model.safetensors"  # the drafter's weight file; .pt and .bin are torch's
    inside: bool = False  # the family's tensors stand in the target's own checkpoint


NOTHING: Mapping[str, Any] = {}
TRAINED: Mapping[str, Any] = {"trained_on": TARGET}
BOUNDARY = {**TRAINED, "aux_convention": "boundary"}
OUTPUT = {**TRAINED, "aux_convention": "output"}
# The defaults for a target of 12 layers: EAGLE-3 as boundaries and as outputs, DFlash as outputs and as boundaries.
EDGES, OUTS, TAPS, TAP_EDGES = [2, 6, 9], [1, 5, 8], [1, 3, 5, 7, 9], [2, 4, 6, 8, 10]
RECYCLES = {"meanings.norm_output": "recycles-the-normed-state"}  # as vLLM, SGLang, speculators and Automodel mean it
DEFAULT = {**BOUNDARY, "aux_layers": EDGES}  # most configs name no layers: trainers and engines have one default
RANK, GRU, EMB = 10, 28, 20  # of a Markov head, of Domino's recurrence and its projection
TAPS_OF_CONV, GROUP, SELECT = 3, 8, 14  # DFlash2: taps and channels per group of a convolution, rank of the selector
EXPERTS, MOE, SHARED = 6, 40, 56
THIN, THIN_INTER, THIN_HEADS, THIN_KV, THIN_DIM = 52, 116, 6, 3, 18  # a small language model
STEPS, INNER = 3, 34  # an MLP speculator


def tensors(sizes: Sizes, dtype: str = "BF16") -> Table:
    """Return a table of one dtype."""
    return {name: (dtype, shape) for name, shape in sizes.items()}


def renamed(table: Table, name: Callable[[str], str]) -> Table:
    """Return a table under other names."""
    return {name(old): row for old, row in table.items()}


def prefixed(prefix: str, *starts: str) -> Callable[[str], str]:
    """Return a renaming that puts a prefix before the names that start so, or before all."""
    return lambda name: prefix + name if not starts or name.startswith(starts) else name


def without(table: Table, *ends: str) -> Table:
    """Return a table less the tensors whose names end so."""
    return {name: row for name, row in table.items() if not name.endswith(ends)}


# --- layers -------------------------------------------------------------------------------------------------------


def attention(
    *,
    width: int = HIDDEN,
    hidden: int = HIDDEN,
    heads: int = HEADS,
    kv: int = KV,
    dim: int = DIM,
    norms: bool = False,
    biases: str = "",
    gate: bool = False,
) -> Sizes:
    """Return grouped attention that reads `width`; `biases` are letters of projections; a gate doubles the queries."""
    rows = {"q": heads * dim * (2 if gate else 1), "k": kv * dim, "v": kv * dim, "o": hidden}
    out: Sizes = {f"self_attn.{x}_proj.weight": (rows[x], width) for x in "qkv"}
    out["self_attn.o_proj.weight"] = (hidden, heads * dim)
    out |= {f"self_attn.{x}_proj.bias": (rows[x],) for x in biases}
    return out | ({"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)} if norms else {})


def latent() -> Sizes:
    """Return latent attention as DeepSeek-V3 has it."""
    return {
        "self_attn.q_a_proj.weight": (b.Q_RANK, HIDDEN), "self_attn.q_a_layernorm.weight": (b.Q_RANK,),
        "self_attn.q_b_proj.weight": (HEADS * (b.NOPE + b.ROTARY), b.Q_RANK),
        "self_attn.kv_a_proj_with_mqa.weight": (b.KV_RANK + b.ROTARY, HIDDEN),
        "self_attn.kv_a_layernorm.weight": (b.KV_RANK,),
        "self_attn.kv_b_proj.weight": (HEADS * (b.NOPE + b.V_DIM), b.KV_RANK),
        "self_attn.o_proj.weight": (HIDDEN, HEADS * b.V_DIM),
    }


def mlp(*, hidden: int = HIDDEN, inter: int = INTER, at: str = "mlp.") -> Sizes:
    return {
        f"{at}gate_proj.weight": (inter, hidden), f"{at}up_proj.weight": (inter, hidden),
        f"{at}down_proj.weight": (hidden, inter),
    }


def experts(*, shared: str, width: int, correction: bool) -> Sizes:
    """Return a mixture of experts, one tensor per expert and projection."""
    out: Sizes = {"mlp.gate.weight": (EXPERTS, HIDDEN)}
    out |= {"mlp.gate.e_score_correction_bias": (EXPERTS,)} if correction else {}
    for e in range(EXPERTS):
        out |= mlp(inter=MOE, at=f"mlp.experts.{e}.")
    return out | mlp(inter=width, at=f"mlp.{shared}.")


def norms(hidden: int = HIDDEN) -> Sizes:
    return {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}


def at(prefix: str, *parts: Sizes) -> Sizes:
    """Return parts of a layer under its prefix."""
    return {prefix + name: shape for part in parts for name, shape in part.items()}


# --- configs ------------------------------------------------------------------------------------------------------


def saved(config: Config, **changes: Any) -> Config:
    """Return a config as transformers 5 saves it: rope_parameters, dtype, transformers_version."""
    theta = config.get("rope_theta", 10000.0)
    own = {
        "rope_theta": ABSENT, "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "torch_dtype": ABSENT, "dtype": "bfloat16", "transformers_version": "5.24.0", "use_cache": True,
        "initializer_range": 0.02, "attention_dropout": 0.0,
    }
    return b.edit(config, own | changes)


def qwen3_config(architecture: str, **changes: Any) -> Config:
    """Return the config of a block drafter as SpecForge's configs/qwen3-8b-*.json state it."""
    own = {
        "architectures": [architecture], "attention_bias": False, "attention_dropout": 0.0,
        "auto_map": {"AutoModel": f"dflash.{architecture}"}, "block_size": 16, "bos_token_id": 1,
        "dflash_config": {"mask_token_id": 511, "target_layer_ids": TAPS}, "dtype": "bfloat16", "eos_token_id": 2,
        "head_dim": DIM, "hidden_act": "silu", "hidden_size": HIDDEN, "initializer_range": 0.02,
        "intermediate_size": INTER, "layer_types": ["full_attention", "full_attention"],
        "max_position_embeddings": 4096, "max_window_layers": 2, "model_type": "qwen3",
        "num_attention_heads": HEADS, "num_hidden_layers": 2, "num_key_value_heads": KV,
        "num_target_layers": LAYERS, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 500000.0,
        "sliding_window": None, "tie_word_embeddings": False, "use_cache": True, "use_sliding_window": False,
        "vocab_size": VOCAB,
    }
    return b.edit(own, changes)


def within(table: str, **keys: Any) -> Config:
    """Return changes of the keys of a nested table."""
    return {f"{table}.{key}": value for key, value in keys.items()}


LAYER = "transformer_layer_config"


def speculators_config(kind: str, layer: str = "llama", **changes: Any) -> Config:
    """Return a config as speculators saves it, with transformers 5.24."""
    architecture = {
        "eagle3": "Eagle3DraftModel", "peagle": "PEagleDraftModel", "dflash": "DFlashDraftModel",
        "dflash2": "DFlash2DraftModel", "dspark": "DSparkDraftModel", "mtp": "MTPDraftModel",
    }[kind]
    nested = {
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": DIM,
        "hidden_act": "silu", "hidden_size": HIDDEN, "initializer_range": 0.02, "intermediate_size": INTER,
        "max_position_embeddings": 4096, "model_type": layer, "num_attention_heads": HEADS, "num_hidden_layers": 1,
        "num_key_value_heads": KV, "pad_token_id": 0, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}, "tie_word_embeddings": False,
        "transformers_version": "5.24.0", "use_cache": True, "vocab_size": VOCAB,
    }
    nested |= (
        {"mlp_bias": False, "pretraining_tp": 1}
        if layer == "llama"
        else {"max_window_layers": 28, "sliding_window": None, "use_sliding_window": False}
    )
    greedy = {"accept_tolerance": 0.0, "proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1}
    own: Config = {
        "architectures": [architecture],
        "auto_map": {"": f"config.{architecture.removesuffix('DraftModel')}SpeculatorConfig"},
        "dtype": "bfloat16",
        "speculators_config": {
            "algorithm": kind, "default_proposal_method": "greedy", "proposal_methods": [greedy],
            "verifier": {"architectures": [f"{layer.capitalize()}ForCausalLM"], "name_or_path": TARGET},
        },
        "speculators_model_type": kind,
        "speculators_version": "0.5.0",
        "tie_word_embeddings": False,
        LAYER: nested,
        "transformers_version": "5.24.0",
    }
    if kind != "mtp":
        own |= {"draft_vocab_size": DRAFT, "target_hidden_size": None}
    if kind in ("eagle3", "peagle"):
        own |= {
            "eagle_aux_hidden_state_layer_ids": EDGES, "embed_requires_grad": kind == "peagle", "fc_norm": False,
            "norm_before_fc": False, "norm_before_residual": kind == "eagle3", "norm_output": False,
        }
    if kind in ("dflash", "dflash2", "dspark"):
        own |= {
            "aux_hidden_state_layer_ids": TAP_EDGES, "block_size": 8, "mask_token_id": 511,
            "sample_from_anchor": kind == "dspark", "sliding_window_non_causal": kind == "dflash2",
        }
        nested |= {"num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"]}
    own |= {"mask_token_id": 511} if kind == "peagle" else {}
    return b.edit(own, changes)


# --- targets ------------------------------------------------------------------------------------------------------

LLAMA = (b.target_config(), b.target())
QWEN3 = (b.target_config(architectures=["Qwen3ForCausalLM"], model_type="qwen3", rms_norm_eps=1e-6), b.target())
TIED = (b.target_config(tie_word_embeddings=True), b.target(head=""))
WIDE = (b.target_config(hidden_size=80), b.target(hidden=80))
HALF = (b.target_config(torch_dtype="float16"), {name: ("F16", shape) for name, (_, shape) in b.target().items()})
K2 = (b.deepseek_config(), b.target())
K25 = (b.kimi_k25_config(), b.target(prefix="language_model.model.", head="language_model.lm_head.weight"))
Side = tuple[Config, Table]
THREE_ROPES = {"type": "mrope", "mrope_section": [6, 8, 8]}  # of Qwen2.5-VL: one part a dimension
WOVEN_ROPES = {"type": "default", "rope_type": "default", "mrope_interleaved": True, "mrope_section": [8, 7, 7]}
QWEN25_VL = (
    b.target_config(
        architectures=["Qwen2_5_VLForConditionalGeneration"], model_type="qwen2_5_vl", rope_scaling=THREE_ROPES,
        vision_config={"patch_size": 14},
    ),
    b.target(),
)
QWEN3_VL = (
    {
        "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "torch_dtype": "bfloat16",
        "text_config": b.target_config(architectures=ABSENT, model_type="qwen3_vl_text", rope_scaling=WOVEN_ROPES),
        "vision_config": {"patch_size": 16},
    },
    b.target(prefix="model.language_model."),
)


def good(
    id: str, config: Config, table: Table, side: Side = LLAMA, facts: Mapping[str, Any] | None = None, **more: Any
) -> Good:
    """Return a known-good checkpoint; the family is what stands before the colon of its id."""
    declared = needed(config) if facts is None else facts
    return Good(id, id.partition(":")[0], config, table, *side, declared, **more)


def needed(config: Config) -> Mapping[str, Any]:
    """Return what must be declared of an EAGLE-3 drafter: also its layers and what a key means, where that is open."""
    key = "eagle_aux_hidden_state_layer_ids"
    named = key in config or key in config.get("eagle_config", {})
    return (BOUNDARY if named else DEFAULT) | (RECYCLES if config.get("norm_output") else {})


# --- EAGLE-3 ------------------------------------------------------------------------------------------------------

AUX = "eagle_config.eagle_aux_hidden_state_layer_ids"
FULL: dict[str, Any] = {"draft": VOCAB, "maps": False}
# What Model-Optimizer's export template states: nulls included, and the keys of its deprecated parallel heads.
MODELOPT = {
    "attention_dropout": 0.0,
    "initializer_range": 0.01,
    "pretraining_tp": None,
    "transformers_version": None,
    "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "default", "rope_theta": 500000.0},
    "use_cache": True,
    "eagle_config": {
        "eagle_aux_hidden_state_layer_ids": OUTS, "use_aux_hidden_state": True,
        "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True, "use_mtp_layernorm": False,
        "next_layer_regular": True, "parallel_draft_step": 1, "parallel_draft_heads_num_layers": 1,
    },
}
# Automodel copies the target's config and adds these. It copies the target's num_hidden_layers too, though its drafter
# has one layer; both engines would build that many, so the good form states one.
AUTOMODEL = {
    "architectures": ["LlamaEagle3DraftModel"], "target_hidden_size": HIDDEN, "tie_word_embeddings": False,
    "attn_implementation": "eager", "fc_norm": False, "norm_output": False, "parallel_drafting": False,
    "eagle_config": ABSENT,
}
# Left out, as no known-good state of it is known: Model-Optimizer's export without hidden states of the target (its
# attention is not widened, and no engine reads that), AngelSlim's configs with tie_word_embeddings of a reduced
# vocabulary, and use_qk_norm of its Hunyuan configs. SpecForge means another thing by norm_output
# than the engines do, so that a drafter of it is good without the key.
EAGLE3: list[Good] = [
    good("eagle3: SpecForge, for SGLang", b.dense_config(), b.dense(), dialect="midlayer"),
    good("eagle3: SpecForge, for transformers", b.dense_config(), b.dense(embed=True), dialect="midlayer"),
    good(
        "eagle3: SpecForge, saved by transformers 5",
        saved(b.dense_config(), rope_theta=500000.0),  # SpecForge mirrors the base at the top level
        b.dense(),
    ),
    good("eagle3: SpecForge, aux layers not named", b.dense_config(eagle_config=ABSENT), b.dense()),
    good(
        "eagle3: SpecForge, aux layers as outputs, as for gpt-oss",
        b.dense_config(eagle_config={"eagle_aux_hidden_state_layer_ids": OUTS}),
        b.dense(),
        facts=OUTPUT,
    ),
    good(
        "eagle3: SpecForge 3.1, less its norm_output",
        b.dense_config(fc_norm=True, eagle_config=ABSENT, max_window_layers=48, sliding_window=None),
        b.dense(fc_norm=True),
    ),
    good(
        "eagle3: SpecForge, model_type phi3, no head_dim",
        b.dense_config(
            model_type="phi3", head_dim=ABSENT, eagle_config=ABSENT, num_attention_heads=2, num_key_value_heads=1
        ),
        b.dense(heads=2, kv=1, dim=HIDDEN // 2),
    ),
    good(
        "eagle3: SpecForge, full vocabulary, maps all the same", b.dense_config(draft_vocab_size=VOCAB),
        b.dense(draft=VOCAB),
    ),
    good(
        "eagle3: EAGLE, plain architecture, in F16",
        b.dense_config(
            architectures=["LlamaForCausalLM"], torch_dtype="float16", eagle_config=ABSENT,
            transformers_version="4.28.1", use_cache=True,
        ),
        b.dense(dtype="F16"),
        HALF,
        dialect="midlayer",
    ),
    good(
        "eagle3: EAGLE, full vocabulary",
        b.dense_config(architectures=["LlamaForCausalLM"], draft_vocab_size=VOCAB, eagle_config=ABSENT),
        b.dense(**FULL), weights="pytorch_model.bin",
    ),
    good(
        "eagle3: EAGLE, of a wider target",
        b.dense_config(architectures=["LlamaForCausalLM"], target_hidden_size=80, eagle_config=ABSENT),
        b.dense(target_hidden=80, embed=True), WIDE,
    ),
    good(
        "eagle3: nebius, two names of the reduced vocabulary, I32",
        b.dense_config(architectures=["LlamaForCausalLM"], truncated_vocab_size=DRAFT, eagle_config=ABSENT),
        b.dense(index="I32", embed=True),
    ),
    good(
        "eagle3: AngelSlim",
        b.dense_config(
            architectures=["Eagle3LlamaForCausalLM"], target_model_type="qwen3", eagle_config=ABSENT,
            attention_dropout=0.0, sliding_window=None, use_sliding_window=False, modal_type="VLM",
        ),
        b.dense(),
        QWEN3,
        dialect="midlayer",
    ),
    good(
        "eagle3: TorchSpec, full vocabulary",
        b.dense_config(draft_vocab_size=VOCAB, _torchspec_version="0.1.0", eagle_config=ABSENT),
        b.dense(**FULL, embed=True), dialect="midlayer",
    ),
    good(
        "eagle3: TorchSpec, pruned, for vLLM",
        b.dense_config(_torchspec_version="0.1.0", eagle_config=ABSENT),
        b.dense(style="bare", embed=True),
        dialect="bare",
    ),
    good(
        "eagle3: Model-Optimizer", b.dense_config(**MODELOPT), b.dense(style="bare", t2d=False), facts=OUTPUT,
        dialect="bare",
    ),
    good(
        "eagle3: Model-Optimizer, its head the target's", b.dense_config(**MODELOPT, draft_vocab_size=VOCAB),
        b.dense(style="bare", **FULL), facts=OUTPUT,
    ),
    good(
        "eagle3: Model-Optimizer, three layers", b.dense_config(**MODELOPT, num_hidden_layers=3),
        b.dense(style="bare", t2d=False, layers=3, later=("input_layernorm",)), facts=OUTPUT,
    ),
    good("eagle3: Automodel", b.dense_config(**AUTOMODEL), b.dense(style="nested", embed=True), dialect="nested"),
    good(
        "eagle3: Automodel 3.1, full vocabulary",
        b.dense_config(**AUTOMODEL | {"fc_norm": True, "norm_output": True, "draft_vocab_size": VOCAB}),
        b.dense(style="nested", embed=True, fc_norm=True, **FULL), dialect="nested",
    ),
    good(
        "eagle3: Automodel, biases everywhere",
        b.dense_config(**AUTOMODEL | {"attention_bias": True, "mlp_bias": True}),
        b.dense(style="nested", embed=True, attention_bias=True, mlp_bias=True)
        | {"model.layers.0.self_attn.o_proj.bias": ("BF16", (HIDDEN,))},
    ),
    good(
        "eagle3: four hidden states",
        b.dense_config(eagle_aux_hidden_state_layer_ids=[2, 4, 6, 9], num_aux_hidden_states=4, eagle_config=ABSENT),
        b.dense(style="bare", aux=4), facts={**BOUNDARY, "aux_layers": [2, 4, 6, 9]},
    ),
    good(
        "eagle3: 3.1 under its first names", b.dense_config(use_aux_norm=True), b.dense(style="aux-norm", fc_norm=True)
    ),
    good(
        "eagle3: norm_before_fc", b.dense_config(norm_before_fc=True, norm_before_residual=True),
        b.dense(style="bare", input_norm=True),
    ),
    good(
        "eagle3: qwen3 layers", b.dense_config(architectures=["Eagle3Qwen3ForCausalLM"], model_type="qwen3"),
        b.dense(style="bare", qk_norm=True), QWEN3,
    ),
    good(
        "eagle3: qwen3 layers, midlayer names",
        b.dense_config(architectures=["Eagle3Qwen3ForCausalLM"], model_type="qwen3"),
        b.dense(qk_norm=True, embed=True), QWEN3,
    ),
    good(
        "eagle3: two layers for vLLM",
        b.dense_config(num_hidden_layers=2),
        b.dense(style="bare", layers=2, later=("input_layernorm",)),
    ),
    good(
        "eagle3: two layers for SGLang",
        b.dense_config(num_hidden_layers=2),
        b.dense(style="bare", layers=2, later=("hidden_norm",)),
    ),
    good("eagle3: recycles the normed state", b.dense_config(norm_output=True), b.dense(style="bare")),
    good(
        "eagle3: norm_before_fc as vLLM reads it too",
        b.dense_config(**{"eagle_config.norm_before_fc": True}), b.dense(style="bare", input_norm=True),
    ),
    good("eagle3: fc with a bias", b.dense_config(bias=True), b.dense(fc_bias=True)),
    good("eagle3: of a target with a tied head", b.dense_config(), b.dense(), TIED),
    good(
        "eagle3: tied to its own embedding, full vocabulary",
        b.dense_config(draft_vocab_size=ABSENT, tie_word_embeddings=True), b.dense(**FULL, head=False, embed=True),
    ),
    good(
        "eagle3: SpecForge, of Qwen2.5-VL",
        b.dense_config(
            target_model_type="qwen2_5_vl", rope_scaling=THREE_ROPES, sliding_window=32768, use_sliding_window=False,
            pretraining_tp=1, eagle_config=ABSENT,
        ),
        b.dense(), QWEN25_VL,
    ),
    good(
        "eagle3: AngelSlim, of Qwen3-VL",
        b.dense_config(
            architectures=["Eagle3LlamaForCausalLM"], target_model_type="qwen3_vl", rope_scaling=WOVEN_ROPES,
            modal_type="VLM", image_token_id=500, video_token_id=501, vision_start_token_id=502, eagle_config=ABSENT,
        ),
        b.dense(), QWEN3_VL,
    ),
    good("eagle3: of Kimi-K2, as AQ-MedAI", b.dense_config(rope_theta=1000000.0), b.dense(), K2),
    good(
        "eagle3: of Kimi-K2.5, many heads, full vocabulary",
        b.dense_config(draft_vocab_size=VOCAB, num_key_value_heads=HEADS), b.dense(**FULL, kv=HEADS), K25,
        dialect="midlayer",
    ),
]

YARN = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 64.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 64, "type": "yarn",
}
K25_YARN = (b.edit(K25[0], {"text_config.rope_scaling": YARN}), K25[1])
K2_YARN = (b.edit(K2[0], {"rope_scaling": YARN}), K2[1])
WHOLE = {"draft_vocab_size": VOCAB, "rope_scaling": YARN}
EMBED: Table = {"embed_tokens.weight": ("BF16", (VOCAB, HIDDEN))}
THREE_NORMS: Table = {f"fc_norm.{k}.weight": ("BF16", (HIDDEN,)) for k in range(3)}
# Left out: model_type deepseek_v3, which vLLM takes for an MTP layer, and q_lora_rank null, which SGLang refuses.
EAGLE3_MLA: list[Good] = [
    good(
        "eagle3-mla: TorchSpec, full vocabulary", b.mla_config(**WHOLE, head_dim=ABSENT, max_window_layers=48),
        b.mla(draft=VOCAB, maps=False) | EMBED, K25_YARN, dialect="midlayer",
    ),
    good(
        "eagle3-mla: TorchSpec, aux layers as outputs",
        b.mla_config(
            **WHOLE,
            **{AUX: OUTS},
            **within(
                "eagle_config", use_input_layernorm_in_first_layer=True, use_last_layernorm=True,
                use_mtp_layernorm=False,
            ),
        ),
        b.mla(draft=VOCAB, maps=False) | EMBED,
        K25_YARN,
        OUTPUT,
    ),
    good(
        "eagle3-mla: TorchSpec, for vLLM",
        b.mla_config(**WHOLE, _torchspec_version="0.1.0"),
        b.mla(style="bare", draft=VOCAB, maps=False) | EMBED,
        K25_YARN,
        dialect="bare",
    ),
    good(
        "eagle3-mla: reduced vocabulary, no t2d, whole embedding",
        b.mla_config(rope_scaling=YARN, first_k_dense_replace=1, moe_layer_freq=1),
        without(b.mla(style="bare"), "t2d") | EMBED, K25_YARN,
    ),
    good(
        "eagle3-mla: 3.1", b.mla_config(**WHOLE, fc_norm=True, norm_output=True),
        b.mla(style="bare", draft=VOCAB, maps=False) | EMBED | THREE_NORMS, K25_YARN,
    ),
    good(
        "eagle3-mla: Model-Optimizer",
        b.mla_config(
            **{k: v for k, v in MODELOPT.items() if not k.startswith("rope_")},
            draft_vocab_size=ABSENT,
            rope_scaling=YARN | {"rope_theta": 50000.0},
            first_k_dense_replace=1,
            moe_layer_freq=1,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=2,
            moe_intermediate_size=MOE,
            num_nextn_predict_layers=0,
            topk_method="noaux_tc",
            scoring_func="sigmoid",
            seq_aux=True,
        ),
        b.mla(style="bare", draft=VOCAB, maps=False),
        K25_YARN,
        OUTPUT,
        dialect="bare",
    ),
    good(
        "eagle3-mla: Automodel",
        b.mla_config(
            **AUTOMODEL | {"architectures": ["DeepseekV3Eagle3DraftModel"]}, head_dim=b.ROTARY,
            qk_head_dim=b.NOPE + b.ROTARY, n_routed_experts=8, first_k_dense_replace=1, rope_interleave=True,
        ),
        renamed(b.mla(style="bare") | EMBED, b.STYLES["nested"]),
        K2,
        dialect="nested",
    ),
    good(
        "eagle3-mla: Automodel 3.1, full vocabulary",
        b.mla_config(
            **AUTOMODEL | {"architectures": ["DeepseekV3Eagle3DraftModel"], "fc_norm": True, "norm_output": True},
            draft_vocab_size=VOCAB,
        ),
        renamed(b.mla(style="bare", draft=VOCAB, maps=False) | EMBED | THREE_NORMS, b.STYLES["nested"]),
        K2,
    ),
    good(
        "eagle3-mla: under DeepSeek-V3's name",
        b.mla_config(architectures=["Eagle3DeepseekV3ForCausalLM"], model_type="deepseek_v2"), b.mla(style="bare"),
        K2,
    ),
]

LATER = ("input_layernorm",)  # speculators' later layers are plain ones
EAGLE3_SPECULATORS: list[Good] = [
    good(
        "eagle3-speculators: llama layers",
        speculators_config("eagle3"),
        b.dense(style="bare", embed=True),
        facts=NOTHING,
        files={"drafter/config.py": "# the class of this config\n"},
    ),
    good(
        "eagle3-speculators: as older versions name it, without the embedding",
        speculators_config("eagle3", architectures=["Eagle3Speculator"]), b.dense(style="bare"), facts=NOTHING,
    ),
    good(
        "eagle3-speculators: qwen3 layers, 3.1",
        speculators_config("eagle3", "qwen3", fc_norm=True, norm_output=True, norm_before_residual=False),
        b.dense(style="bare", embed=True, qk_norm=True, fc_norm=True), QWEN3, NOTHING,
    ),
    good(
        "eagle3-speculators: norm_before_fc, as for gpt-oss",
        speculators_config("eagle3", norm_before_fc=True),
        b.dense(style="bare", embed=True, input_norm=True),
        facts=NOTHING,
    ),
    good(
        "eagle3-speculators: two layers with biases, full vocabulary",
        speculators_config(
            "eagle3", draft_vocab_size=VOCAB, **within(LAYER, num_hidden_layers=2, attention_bias=True, mlp_bias=True)
        ),
        b.dense(style="bare", embed=True, layers=2, later=LATER, attention_bias=True, mlp_bias=True, **FULL)
        | {f"layers.{i}.self_attn.o_proj.bias": ("BF16", (HIDDEN,)) for i in range(2)},
        facts=NOTHING,
    ),
]

# --- P-EAGLE ------------------------------------------------------------------------------------------------------


def parallel(*, aux: int = 3, **more: Any) -> Table:
    """Return the tensors of a P-EAGLE drafter: those of EAGLE-3, its embedding, and what stands for hidden states."""
    table = b.dense(**{"style": "bare", "later": LATER, "aux": aux, "embed": True} | more)
    return table | {"mask_hidden": ("BF16", (1, 1, aux * HIDDEN))}


PARALLEL = {
    "architectures": ["PEagleDraftModel"], "num_hidden_layers": 4, "norm_before_residual": False,
    "eagle_config": ABSENT,
}
PEAGLE: list[Good] = [
    good("peagle: SpecForge", b.dense_config(**PARALLEL), parallel(layers=4)),
    good(
        "peagle: SpecForge, saved by transformers 5, one layer",
        saved(b.dense_config(**PARALLEL | {"num_hidden_layers": 1})), parallel(layers=1),
    ),
    good(
        "peagle: llama of vLLM",
        b.dense_config(**PARALLEL | {"architectures": ["PeagleLlamaForCausalLM"], "mask_token_id": 511}),
        parallel(layers=4, t2d=False),
    ),
    good(
        "peagle: qwen3 of vLLM",
        b.dense_config(
            **PARALLEL | {"architectures": ["PeagleQwen3ForCausalLM"], "mask_token_id": 511, "model_type": "qwen3"}
        ),
        parallel(layers=4, qk_norm=True),
        QWEN3,
    ),
    good(
        "peagle: Automodel",
        b.dense_config(
            **AUTOMODEL
            | {
                "parallel_drafting": True, "mask_token_id": 511, "num_depths": 8, "down_sample_ratio": 0.7,
                "down_sample_ratio_min": 0.2, "num_hidden_layers": 2,
            }
        ),
        renamed(parallel(layers=2), lambda n: n if n == "mask_hidden" else b.STYLES["nested"](n)),
    ),
    good(
        "peagle-speculators: llama layers", speculators_config("peagle", **within(LAYER, num_hidden_layers=4)),
        parallel(layers=4), facts=NOTHING,
    ),
    good(
        "peagle-speculators: four hidden states",
        speculators_config("peagle", eagle_aux_hidden_state_layer_ids=[2, 4, 6, 9],
                           **within(LAYER, num_hidden_layers=2)),
        parallel(layers=2, aux=4), facts={"aux_layers": [2, 4, 6, 9]},
    ),
    good(
        "peagle-speculators: qwen3 layers, norm_before_fc",
        speculators_config("peagle", "qwen3", norm_before_fc=True, **within(LAYER, num_hidden_layers=2)),
        parallel(layers=2, qk_norm=True, input_norm=True), QWEN3, NOTHING,
    ),
]

# --- EAGLE-1 and FR-Spec ------------------------------------------------------------------------------------------


def first(*, layers: int = 1, bias: bool = True, biases: str = "", embed: bool = True, dtype: str = "BF16") -> Table:
    """Return the tensors of an EAGLE-1, EAGLE-2 or HASS drafter: no norm before its first layer, none at its end."""
    sizes: Sizes = {"fc.weight": (HIDDEN, 2 * HIDDEN)} | ({"fc.bias": (HIDDEN,)} if bias else {})
    sizes |= {"embed_tokens.weight": (VOCAB, HIDDEN)} if embed else {}
    for i in range(layers):
        own = at(f"layers.{i}.", attention(biases=biases), mlp(), norms())
        sizes |= {name: shape for name, shape in own.items() if i or not name.endswith("input_layernorm.weight")}
    return tensors(sizes, dtype)


def first_config(**changes: Any) -> Config:
    """Return a config as EAGLE's train/*_config.json state it: that of any llama of one layer."""
    gone = dict.fromkeys(("draft_vocab_size", "eagle_config", "attention_bias", "mlp_bias"), ABSENT)
    own = {
        "architectures": ["LlamaForCausalLM"], "initializer_range": 0.02, "transformers_version": "4.28.1",
        "use_cache": True,
    }
    return b.dense_config(**gone | own | changes)


# Left out: Automodel's EAGLE-1 (LlamaEagleDraftModel), which norms before its first layer and at its end, has no bias
# and states the target's num_hidden_layers.
EAGLE1: list[Good] = [
    good("eagle1: EAGLE", first_config(), first(), facts=TRAINED),
    good(
        "eagle1: EAGLE, in F16", first_config(torch_dtype="float16", rope_scaling=None, pretraining_tp=1),
        first(dtype="F16"), HALF, TRAINED, weights="pytorch_model.bin",
    ),
    good("eagle1: without its embedding", first_config(), first(embed=False), facts=TRAINED),
    good("eagle1: bias true", first_config(bias=True), first(), facts=TRAINED),
    good("eagle1: bias false", first_config(bias=False), first(bias=False), facts=TRAINED),
    good(
        "eagle1: qwen2, with biases of its projections", first_config(qkv_bias=True), first(biases="qkv"),
        (b.target_config(architectures=["Qwen2ForCausalLM"], model_type="qwen2"), b.target()), TRAINED,
    ),
    good("eagle1: of Mixtral, model_type mixtral", first_config(model_type="mixtral"), first(), facts=TRAINED),
    good(
        "eagle1: max_sequence_length, as of Vicuna 33B",
        first_config(max_position_embeddings=ABSENT, max_sequence_length=4096), first(), facts=TRAINED,
    ),
    good("eagle1: two layers", first_config(num_hidden_layers=2), first(layers=2), facts=TRAINED),
    good("eagle1: in vLLM's wrapper", {"model_type": "eagle", "model": first_config()}, first(), facts=TRAINED),
    good("eagle1: SGLang's name", first_config(architectures=["LlamaForCausalLMEagle"]), first(), facts=TRAINED),
]

# FR-Spec's repository splits fc in memory, at load: the first half reads the embedding and takes the bias, and the
# embedding is the target's. That a file with the halves exists is said by the facts alone; the ids are a side file.
FR_SPEC: list[Good] = [
    good(
        "fr-spec: fc in two halves",
        first_config(),
        without(first(embed=False), "fc.weight", "fc.bias")
        | tensors({"fc1.weight": (HIDDEN, HIDDEN), "fc1.bias": (HIDDEN,), "fc2.weight": (HIDDEN, HIDDEN)}),
        facts=TRAINED,
    )
]

# --- DFlash and what grew out of it -------------------------------------------------------------------------------


def block(*, layers: int = 2, taps: int = 5, biases: str = "", head: int = 0, maps: bool = False) -> Table:
    """Return the tensors of a DFlash drafter; with a head, those that speculators ships too."""
    sizes: Sizes = {"fc.weight": (HIDDEN, taps * HIDDEN), "hidden_norm.weight": (HIDDEN,), "norm.weight": (HIDDEN,)}
    for i in range(layers):
        sizes |= at(f"layers.{i}.", attention(norms=True, biases=biases), mlp(), norms())
    sizes |= {"embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (head, HIDDEN)} if head else {}
    maps_: Table = {"d2t": ("I64", (head,)), "t2d": ("BOOL", (VOCAB,))} if maps else {}
    return tensors(sizes) | maps_


DCONF = "dflash_config"
PROJECTOR = f"{DCONF}.projector_type"
# Left out: TorchSpec's DFlash, whose native names (context_proj, context_norm, final_norm) no engine reads.
DFLASH: list[Good] = [
    good("dflash: SpecForge", qwen3_config("DFlashDraftModel"), block(), QWEN3, TRAINED),
    good(
        "dflash: SpecForge, saved by transformers 5",
        saved(qwen3_config("DFlashDraftModel", rope_scaling=ABSENT), rope_theta=500000.0, pad_token_id=None),
        block(),
        QWEN3,
        TRAINED,
        files={"drafter/dflash.py": "# the class that auto_map names\n"},
    ),
    good(
        "dflash: SpecForge, tied, eight layers less than the taps",
        qwen3_config("DFlashDraftModel", tie_word_embeddings=True, num_hidden_layers=1, layer_types=["full_attention"]),
        block(layers=1), QWEN3, TRAINED,
    ),
    good(
        "dflash: SpecForge, biases", qwen3_config("DFlashDraftModel", attention_bias=True), block(biases="qkvo"),
        LLAMA, TRAINED,
    ),
    good(
        "dflash: SpecForge, layers that slide",
        qwen3_config(
            "DFlashDraftModel", layer_types=["sliding_attention", "full_attention"], sliding_window=2048,
            use_sliding_window=True,
        ),
        block(),
        QWEN3,
        TRAINED,
    ),
    good(
        "dflash: no bos, several eos, as of GLM",
        qwen3_config("DFlashDraftModel", bos_token_id=None, eos_token_id=[2, 7, 9], pad_token_id=2), block(),
        (b.target_config(bos_token_id=None, eos_token_id=[2, 7, 9], pad_token_id=2), b.target()), TRAINED,
    ),
    good(
        "dflash: z-lab, block size with the rest",
        saved(
            qwen3_config(
                "DFlashDraftModel", block_size=ABSENT, rope_scaling=ABSENT, is_causal=False, auto_map=ABSENT,
                layer_types=["sliding_attention"] * 2, sliding_window=2048, use_sliding_window=True,
            ),
            **within(DCONF, block_size=8),
        ),
        block(),
        QWEN3,
        TRAINED,
    ),
    good(
        "dflash: Model-Optimizer",
        qwen3_config(
            "DFlashDraftModel", auto_map=ABSENT, torch_dtype="bfloat16", dtype=ABSENT, bos_token_id=ABSENT,
            eos_token_id=ABSENT, max_window_layers=ABSENT, sliding_window=2048, use_cache=ABSENT,
            use_sliding_window=ABSENT, **within(DCONF, use_swa=True, swa_window_size=2048, causal=False),
        ),
        block(),
        QWEN3,
        TRAINED,
    ),
    good(
        "dflash: Automodel, block size at both places",
        saved(
            qwen3_config("Qwen3DFlashDraftModel", auto_map=ABSENT, rope_scaling=ABSENT, is_causal=False),
            **within(DCONF, block_size=16),
        ),
        block(),
        QWEN3,
        TRAINED,
    ),
    good(
        "dflash-speculators: reduced vocabulary", speculators_config("dflash", "qwen3"),
        block(head=DRAFT, maps=True), QWEN3, NOTHING,
    ),
    good(
        "dflash-speculators: full vocabulary", speculators_config("dflash", "qwen3", draft_vocab_size=VOCAB),
        block(head=VOCAB), QWEN3, NOTHING,
    ),
    good(
        "dflash-speculators: as its config class names it",
        speculators_config("dflash", "qwen3", architectures=["DFlashSpeculator"]), block(head=DRAFT, maps=True),
        QWEN3, NOTHING,
    ),
]


def convolved(table: Table, taps: int = TAPS_OF_CONV, group: int = GROUP, rank: int = SELECT) -> Table:
    """Return a DFlash table with the convolutions and the selector of DFlash2."""
    more: Sizes = {
        "candidate_selector.predecessor_codebook": (VOCAB, rank),
        "candidate_selector.successor_codebook": (VOCAB, rank),
        "candidate_selector.hidden_projection.weight": (rank, HIDDEN),
    }
    for i in range(2):
        for part in ("attention_conv", "mlp_conv"):
            more[f"layers.{i}.{part}.base_kernel"] = (2, taps, HIDDEN)
            more[f"layers.{i}.{part}.kernel_projection.weight"] = (2 * taps * (HIDDEN // group), HIDDEN)
    return table | tensors(more)


CONV = {"conv_kernel_size": TAPS_OF_CONV, "conv_group_size": GROUP, "selector_rank": SELECT, "selector_top_k": 5}
DFLASH2: list[Good] = [
    good(
        "dflash2: as published, keys in dflash_config",
        saved(
            qwen3_config(
                "DFlash2DraftModel", block_size=ABSENT, auto_map=ABSENT, rope_scaling=ABSENT, is_causal=False,
                layer_types=["sliding_attention"] * 2, sliding_window=2048, use_sliding_window=True,
            ),
            **within(DCONF, block_size=8, **CONV),
        ),
        convolved(block()),
        QWEN3,
        TRAINED,
    ),
    good(
        "dflash2: the sizes of its paper",
        qwen3_config(
            "DFlash2DraftModel", auto_map=ABSENT,
            **within(DCONF, **CONV | {"conv_kernel_size": 2, "conv_group_size": 16}),
        ),
        convolved(block(), taps=2, group=16),
        QWEN3,
        TRAINED,
    ),
    good(
        "dflash2: Automodel",
        saved(
            qwen3_config("Qwen3DFlash2DraftModel", auto_map=ABSENT, rope_scaling=ABSENT, is_causal=False),
            **within(DCONF, block_size=16, **CONV),
        ),
        convolved(block()),
        QWEN3,
        TRAINED,
    ),
    # The pinned speculators has no DFlash2 yet: keys as vLLM 0.33.0 translates them, full vocabulary.
    good(
        "dflash2-speculators: full vocabulary",
        speculators_config("dflash2", "qwen3", draft_vocab_size=VOCAB, **CONV), convolved(block(head=VOCAB)), QWEN3,
        NOTHING,
    ),
]

CORRECTION: Sizes = {
    "prefix_gru.weight_ih_l0": (3 * GRU, HIDDEN), "prefix_gru.weight_hh_l0": (3 * GRU, GRU),
    "embed_proj.0.weight": (EMB, HIDDEN + GRU), "embed_proj.2.weight": (VOCAB, EMB),
}
DOMINO_KEYS = {
    "projector_type": "domino", "emb_dim": EMB, "gru_hidden_dim": GRU, "pure_draft_prefix_len": 1,
    "shift_label": True,
}
DOMINO: list[Good] = [
    good(
        "domino: SpecForge", qwen3_config("DominoDraftModel", emb_dim=EMB, **within(DCONF, **DOMINO_KEYS)),
        block() | tensors(CORRECTION), QWEN3, TRAINED,
    ),
    good(
        "domino: SpecForge, labels not shifted, no bos",
        qwen3_config(
            "DominoDraftModel", bos_token_id=None, pad_token_id=2,
            **within(DCONF, **DOMINO_KEYS | {"shift_label": False}),
        ),
        block() | tensors(CORRECTION),
        (b.edit(QWEN3[0], {"bos_token_id": None, "pad_token_id": 2}), QWEN3[1]),
        TRAINED,
    ),
    good(
        "domino: SpecForge, older names", qwen3_config("DominoDraftModel", **within(DCONF, **DOMINO_KEYS)),
        block() | renamed(tensors(CORRECTION), prefixed("logit_head.")), QWEN3, TRAINED,
    ),
    good(
        "domino: Model-Optimizer, named as DFlash",
        qwen3_config(
            "DFlashDraftModel", auto_map=ABSENT, emb_dim=EMB, torch_dtype="bfloat16", dtype=ABSENT,
            **within(DCONF, **DOMINO_KEYS),
        ),
        block() | tensors(CORRECTION),
        QWEN3,
        TRAINED,
    ),
]


def markov(kind: str, *, out: int = VOCAB, confidence: int = 0) -> Sizes:
    """Return a Markov head, and a confidence head that reads so many numbers if any."""
    sizes: Sizes = {"markov_head.markov_w1.weight": (VOCAB, RANK), "markov_head.markov_w2.weight": (out, RANK)}
    if kind == "gated":
        sizes |= {"markov_head.gate_proj.weight": (RANK, HIDDEN + RANK), "markov_head.gate_proj.bias": (RANK,)}
    if kind == "rnn":
        sizes |= {
            "markov_head.joint_proj.weight": (3 * RANK, 2 * RANK + HIDDEN),
            "markov_head.joint_proj.bias": (3 * RANK,),
        }
    if confidence:
        sizes |= {"confidence_head.proj.weight": (1, confidence), "confidence_head.proj.bias": (1,)}
    return sizes


def dspark_keys(kind: str = "vanilla", **changes: Any) -> Config:
    return {
        "projector_type": "dspark", "attention_mode": "gqa", "markov_rank": RANK, "markov_head_type": kind,
        "confidence_head_alpha": 1.0, "enable_confidence_head": True, "confidence_head_with_markov": True,
    } | changes


def flat(name: str) -> str:
    """Name a tensor of the heads as Model-Optimizer does."""
    return name.replace("confidence_head.proj.", "confidence_proj.").removeprefix("markov_head.")


BOTH = HIDDEN + RANK
MODELOPT_BLOCK = {"auto_map": ABSENT, "torch_dtype": "bfloat16", "dtype": ABSENT}
DSPARK: list[Good] = [
    good(
        f"dspark: SpecForge, {kind}",
        qwen3_config("DSparkDraftModel", block_size=7, **within(DCONF, **dspark_keys(kind))),
        block() | tensors(markov(kind, confidence=BOTH)), QWEN3, TRAINED,
    )
    for kind in ("vanilla", "gated", "rnn")
]
DSPARK += [
    good(
        "dspark: SpecForge, confidence without Markov",
        qwen3_config(
            "DSparkDraftModel", block_size=7, **within(DCONF, **dspark_keys(confidence_head_with_markov=False))
        ),
        block() | tensors(markov("vanilla", confidence=HIDDEN)),
        QWEN3,
        TRAINED,
    ),
    good(
        "dspark: SpecForge, no confidence head",
        qwen3_config(
            "DSparkDraftModel", block_size=7,
            **within(DCONF, **dspark_keys(enable_confidence_head=False, confidence_head_alpha=0.0)),
        ),
        block() | tensors(markov("vanilla")),
        QWEN3,
        TRAINED,
    ),
    good(
        "dspark: SpecForge, older names",
        qwen3_config("DSparkDraftModel", block_size=7, **within(DCONF, **dspark_keys("gated"))),
        block() | renamed(tensors(markov("gated", confidence=BOTH)), prefixed("logit_head.")), QWEN3, TRAINED,
    ),
    good(
        "dspark: SpecForge, as many key-value heads as heads",
        qwen3_config(
            "DSparkDraftModel", block_size=7, num_key_value_heads=HEADS,
            **within(DCONF, **dspark_keys(attention_mode="mha")),
        ),
        block()
        | tensors(at("layers.0.", attention(kv=HEADS)) | at("layers.1.", attention(kv=HEADS)))
        | tensors(markov("vanilla", confidence=BOTH)),
        QWEN3,
        TRAINED,
    ),
    good(
        "dspark: SpecForge, saved by transformers 5, yarn",
        saved(
            qwen3_config("DSparkDraftModel", block_size=7, rope_scaling=ABSENT, **within(DCONF, **dspark_keys())),
            rope_parameters={
                "factor": 64.0, "original_max_position_embeddings": 64, "rope_theta": 500000.0, "rope_type": "yarn",
            },
        ),
        block() | tensors(markov("vanilla", confidence=BOTH)),
        (
            b.edit(
                QWEN3[0],
                {"rope_scaling": {"factor": 64.0, "original_max_position_embeddings": 64, "rope_type": "yarn"}},
            ),
            QWEN3[1],
        ),
        TRAINED,
    ),
    good(
        "dspark: DeepSpec and Automodel, keys at the top level, own embedding and head",
        saved(
            qwen3_config(
                "Qwen3DSparkModel", auto_map=ABSENT, rope_scaling=ABSENT, dflash_config=ABSENT, block_size=7,
                mask_token_id=511, target_layer_ids=TAPS, num_anchors=64, enable_confidence_head=True,
                confidence_head_with_markov=True, markov_rank=RANK, markov_head_type="vanilla",
            )
        ),
        block(head=VOCAB) | tensors(markov("vanilla", confidence=BOTH)),
        QWEN3,
        TRAINED,
    ),
    *(
        good(
            f"dspark: Model-Optimizer, {kind}, named as DFlash",
            qwen3_config(
                "DFlashDraftModel",
                **MODELOPT_BLOCK,
                **within(
                    DCONF, projector_type="dspark", shift_label=True, markov_rank=RANK, markov_head_type=kind,
                    use_confidence_head=sure,
                ),
            ),
            block() | renamed(tensors(markov(kind, confidence=BOTH if sure else 0)), flat),
            QWEN3,
            TRAINED,
        )
        for kind, sure in (("vanilla", True), ("gated", True), ("rnn", False))
    ),
    *(
        good(
            f"dspark-speculators: {kind}",
            speculators_config(
                "dspark", "qwen3", draft_vocab_size=out, markov_rank=RANK, markov_head_type=kind,
                enable_confidence_head=reads > 0, confidence_head_with_markov=reads == BOTH,
            ),
            block(head=out, maps=out < VOCAB) | tensors(markov(kind, out=out, confidence=reads)),
            QWEN3,
            NOTHING,
        )
        for kind, out, reads in (("vanilla", DRAFT, BOTH), ("gated", DRAFT, HIDDEN), ("rnn", VOCAB, 0))
    ),
    good(
        "dspark-speculators: as its config class names it",
        speculators_config(
            "dspark", "qwen3", architectures=["DSparkSpeculator"], markov_rank=RANK, markov_head_type="vanilla",
            enable_confidence_head=True, confidence_head_with_markov=True,
        ),
        block(head=DRAFT, maps=True) | tensors(markov("vanilla", out=DRAFT, confidence=BOTH)),
        QWEN3,
        NOTHING,
    ),
]

# --- layers that stand in the target ------------------------------------------------------------------------------


def next_layer(prefix: str, *, embed: bool = True, head: bool = True) -> Sizes:
    """Return what DeepSeek-V3 adds around its next-token layer."""
    out: Sizes = {
        f"{prefix}enorm.weight": (HIDDEN,), f"{prefix}hnorm.weight": (HIDDEN,),
        f"{prefix}eh_proj.weight": (HIDDEN, 2 * HIDDEN), f"{prefix}shared_head.norm.weight": (HIDDEN,),
    }
    out |= {f"{prefix}embed_tokens.weight": (VOCAB, HIDDEN)} if embed else {}
    return out | ({f"{prefix}shared_head.head.weight": (VOCAB, HIDDEN)} if head else {})


P = f"model.layers.{LAYERS}."
DEEPSEEK_MTP = b.deepseek_config(
    model_type="deepseek_v3", num_nextn_predict_layers=1, n_routed_experts=EXPERTS, n_shared_experts=1,
    moe_intermediate_size=MOE, num_experts_per_tok=2, n_group=1, topk_group=1, first_k_dense_replace=3,
    moe_layer_freq=1, norm_topk_prob=True, routed_scaling_factor=2.5, scoring_func="sigmoid",
    topk_method="noaux_tc", num_key_value_heads=HEADS, rms_norm_eps=1e-6, head_dim=ABSENT,
)
DEEP = next_layer(P) | at(P, latent(), experts(shared="shared_experts", width=MOE, correction=True), norms())
MIMO_CONFIG = b.target_config(
    architectures=["MiMoForCausalLM"], model_type="mimo", num_nextn_predict_layers=1, attention_bias=True,
    rope_theta=640000.0, use_sliding_window=False, sliding_window=32, max_window_layers=LAYERS,
)
MIMO = at("model.mtp_layers.0.", attention(biases="qkv"), mlp(inter=160), norms()) | {
    "model.mtp_layers.0.token_layernorm.weight": (HIDDEN,), "model.mtp_layers.0.hidden_layernorm.weight": (HIDDEN,),
    "model.mtp_layers.0.input_proj.weight": (HIDDEN, 2 * HIDDEN),
    "model.mtp_layers.0.final_layernorm.weight": (HIDDEN,),
}
ERNIE_CONFIG = b.target_config(
    architectures=["Ernie4_5_MoeForCausalLM"], model_type="ernie4_5_moe", num_nextn_predict_layers=1, use_bias=False,
    moe_num_experts=EXPERTS, moe_k=2, moe_intermediate_size=MOE,
)
ERNIE = at("model.mtp_block.0.", attention(), mlp(inter=160), norms()) | {
    "model.mtp_emb_norm.0.weight": (HIDDEN,), "model.mtp_hidden_norm.0.weight": (HIDDEN,),
    "model.mtp_linear_proj.0.weight": (HIDDEN, 2 * HIDDEN),
}
NEXT_CONFIG = b.target_config(
    architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", attention_bias=False, num_experts=EXPERTS,
    num_experts_per_tok=2, moe_intermediate_size=MOE, shared_expert_intermediate_size=SHARED, decoder_sparse_step=1,
    norm_topk_prob=True, full_attention_interval=4, linear_conv_kernel_dim=4, linear_key_head_dim=16,
    linear_num_key_heads=2, linear_num_value_heads=4, linear_value_head_dim=16, partial_rotary_factor=0.25,
    mlp_only_layers=[], rms_norm_eps=1e-6,
)
NEXT = at(
    "mtp.layers.0.", attention(norms=True, gate=True),
    experts(shared="shared_expert", width=SHARED, correction=False), {"mlp.shared_expert_gate.weight": (1, HIDDEN)},
    norms(),
) | {
    "mtp.fc.weight": (HIDDEN, 2 * HIDDEN), "mtp.pre_fc_norm_hidden.weight": (HIDDEN,),
    "mtp.pre_fc_norm_embedding.weight": (HIDDEN,), "mtp.norm.weight": (HIDDEN,),
}
GLM_CONFIG = b.target_config(
    architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", num_nextn_predict_layers=1, attention_bias=True,
    n_routed_experts=EXPERTS, n_shared_experts=1, moe_intermediate_size=MOE, num_experts_per_tok=2, n_group=1,
    topk_group=1, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.0, use_qk_norm=True,
    partial_rotary_factor=0.5,
)


def glm(*, norms_of_heads: bool) -> Sizes:
    """Return GLM-4.5's next-token layer; it has embedding and head of its own, as DeepSeek-V3's has."""
    own = (attention(norms=norms_of_heads, biases="qkv"), norms())
    return next_layer(P) | at(P, *own, experts(shared="shared_experts", width=MOE, correction=True))


def corrected(table: Table) -> Table:
    """Return a table whose corrections of the router are kept in F32, as DeepSeek and transformers keep them."""
    return {n: ("F32", s) if n.endswith("e_score_correction_bias") else (d, s) for n, (d, s) in table.items()}


def standing(id: str, config: Config, sizes: Sizes, change: Callable[[Table], Table] = lambda t: t) -> Good:
    """Return a target in which the family's tensors stand: it is the drafter and the target at once."""
    table = change(b.target() | tensors(sizes))
    return good(id, config, table, (config, table), NOTHING, inside=True)


FUSED: Sizes = {"mlp.experts.gate_up_proj": (EXPERTS, 2 * MOE, HIDDEN), "mlp.experts.down_proj": (EXPERTS, HIDDEN, MOE)}
ROUTED_NEXT = {
    "model_type": "qwen3_next", "num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": MOE,
    "shared_expert_intermediate_size": SHARED, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 3,
}
SPEC_MTP: Sizes = {
    "mtp_layers.0.input_proj.weight": (HIDDEN, 2 * HIDDEN), "mtp_layers.0.hidden_layernorm.weight": (HIDDEN,),
    "mtp_layers.0.token_layernorm.weight": (HIDDEN,), "mtp_layers.0.final_layernorm.weight": (HIDDEN,),
}


def mtp_speculators(layer: str, **changes: Any) -> Config:
    """Return speculators' config of an MTP layer: the layer's config is the whole target's, depth included."""
    own = within(LAYER, num_hidden_layers=LAYERS, intermediate_size=160)
    return speculators_config("mtp", layer, num_nextn_predict_layers=1, **own | changes)


# Left out: what DeepSeek-V3.2 adds to its layer (an indexer), and the head that speculators' converter leaves behind
# unread (verifier_lm_head.weight).
MTP: list[Good] = [
    standing("mtp-deepseek: DeepSeek-V3", DEEPSEEK_MTP, DEEP),
    standing("mtp-deepseek: its router's correction in F32", DEEPSEEK_MTP, DEEP, corrected),
    standing(
        "mtp-deepseek: norms in F32, as in DeepSeek-V3.2",
        DEEPSEEK_MTP,
        DEEP,
        lambda t: {
            n: ("F32", s) if n.endswith(("enorm.weight", "hnorm.weight")) else (d, s) for n, (d, s) in t.items()
        },
    ),
    standing("mtp-mimo: MiMo", MIMO_CONFIG, MIMO),
    standing("mtp-ernie: Ernie 4.5", ERNIE_CONFIG, ERNIE),
    standing("mtp-qwen3-next: Qwen3-Next", NEXT_CONFIG, NEXT),
    standing("mtp-glm4-moe: GLM-4.5", GLM_CONFIG, glm(norms_of_heads=True)),
    standing(
        "mtp-glm4-moe: GLM-4.5-Air, no norms of queries and keys", b.edit(GLM_CONFIG, {"use_qk_norm": False}),
        glm(norms_of_heads=False), corrected,
    ),
    good(
        "mtp-speculators: qwen3 layer",
        mtp_speculators("qwen3", **within(LAYER, layer_types=["full_attention"] * LAYERS)),
        tensors(SPEC_MTP | at("mtp_layers.0.", attention(norms=True), mlp(inter=160), norms())), QWEN3, NOTHING,
    ),
    good(
        "mtp-speculators: qwen3-next layer, experts in one tensor",
        mtp_speculators(
            "qwen3",
            **within(LAYER, **ROUTED_NEXT),
            **{"speculators_config.verifier.architectures": ["Qwen3NextForCausalLM"]},
        ),
        tensors(
            SPEC_MTP
            | at(
                "mtp_layers.0.", attention(norms=True, gate=True), FUSED, norms(),
                mlp(inter=SHARED, at="mlp.shared_expert."),
            )
            | at("mtp_layers.0.mlp.", {"gate.weight": (EXPERTS, HIDDEN), "shared_expert_gate.weight": (1, HIDDEN)})
        ),
        (NEXT_CONFIG, b.target() | tensors(NEXT)),
        NOTHING,
    ),
]

# --- heads --------------------------------------------------------------------------------------------------------


def medusa(*, heads: int = 3, layers: int = 1, head: bool = True, dtype: str = "F16") -> Table:
    """Return Medusa's heads: blocks, then a projection; all blocks of a head are one module, stored as often."""
    sizes: Sizes = {}
    for h in range(heads):
        for i in range(layers):
            sizes |= {f"{h}.{i}.linear.weight": (HIDDEN, HIDDEN), f"{h}.{i}.linear.bias": (HIDDEN,)}
        sizes |= {f"{h}.{layers}.weight": (VOCAB, HIDDEN)} if head else {}
    return tensors(sizes, dtype)


def medusa_config(heads: int = 3, layers: int = 1, **changes: Any) -> Config:
    """Return what Medusa's config class saves: neither a model type nor a size."""
    own = {
        "base_model_name_or_path": TARGET, "medusa_num_heads": heads, "medusa_num_layers": layers,
        "transformers_version": "4.34.1",
    }
    return own | changes


def old_medusa(*, heads: int = 3, layers: int = 2, out: int = VOCAB, bias: bool = False) -> Table:
    """Return the heads under the names of vLLM's own Medusa, which it had until 0.33."""
    sizes: Sizes = {f"lm_heads.{h}.weight": (out, HIDDEN) for h in range(heads)}
    for h in range(heads):
        for i in range(layers):
            sizes[f"blocks.{h}.layers.{i}.weight"] = (HIDDEN, HIDDEN)
            sizes |= {f"blocks.{h}.layers.{i}.bias": (HIDDEN,)} if bias else {}
    return tensors(sizes)


OLD_MEDUSA = {
    "architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": HIDDEN, "vocab_size": VOCAB,
    "num_heads": 3, "num_hidden_layers": 2, "max_paths": 64, "topk": 10, "truncated_vocab_size": VOCAB,
    "torch_dtype": "bfloat16", "transformers_version": "4.41.2",
}
# A merged checkpoint is the whole target with heads, under the target's own config.
MERGED = b.edit(LLAMA[0], {"medusa_num_heads": 3, "medusa_num_layers": 1})
MERGED_TABLE = LLAMA[1] | renamed(medusa(dtype="BF16"), prefixed("medusa_head."))
OPTIMISED = b.edit(LLAMA[0], {"medusa": {"num_medusa_heads": 3, "num_medusa_layers": 2}})
OPTIMISED_TABLE = LLAMA[1] | renamed(medusa(dtype="BF16", layers=2), prefixed("medusa_heads."))
MEDUSA: list[Good] = [
    good("medusa: v1", medusa_config(), medusa(), HALF, NOTHING, weights="medusa_lm_head.pt"),
    good(
        "medusa: v1, two blocks", medusa_config(5, 2), medusa(heads=5, layers=2), HALF, NOTHING,
        weights="medusa_lm_head.pt",
    ),
    good("medusa: v1, under the usual file name", medusa_config(), medusa(), HALF, NOTHING),
    good(
        "medusa: version 2, blocks alone", medusa_config(4, version="2"), medusa(heads=4, head=False), HALF,
        NOTHING, weights="medusa_lm_head.safetensors",
    ),
    good(
        "medusa: merged names, heads alone", medusa_config(), renamed(medusa(), prefixed("medusa_head.")), HALF, NOTHING
    ),
    good("medusa-merged: Medusa, the whole model", MERGED, MERGED_TABLE, (MERGED, MERGED_TABLE), NOTHING, inside=True),
    good(
        "medusa-merged: Model-Optimizer, the whole model", OPTIMISED, OPTIMISED_TABLE, (OPTIMISED, OPTIMISED_TABLE),
        NOTHING, inside=True,
    ),
    good("medusa-blocks: vLLM's own names", OLD_MEDUSA, old_medusa(), facts=TRAINED),
    good(
        "medusa-blocks: vLLM's own names, biases", OLD_MEDUSA | {"medusa_fc_bias": True}, old_medusa(bias=True),
        facts=TRAINED,
    ),
    good(
        "medusa-blocks: vLLM's own names, reduced vocabulary", OLD_MEDUSA | {"truncated_vocab_size": DRAFT},
        old_medusa(out=DRAFT) | {"token_map": ("I64", (DRAFT,))}, facts=TRAINED,
    ),
]


def mlp_speculator(*, inner: int = INNER, dtype: str = "F16") -> Table:
    """Return an MLP speculator's stages; where weights are tied, each stage is stored all the same."""
    sizes: Sizes = {}
    for i in range(STEPS):
        sizes |= {
            f"emb.{i}.weight": (VOCAB, inner), f"proj.{i}.weight": (inner, inner if i else HIDDEN),
            f"head.{i}.weight": (VOCAB, inner), f"ln.{i}.weight": (inner,), f"ln.{i}.bias": (inner,),
        }
    return renamed(tensors(sizes, dtype), prefixed("speculator."))


def mlp_config(**changes: Any) -> Config:
    own = {
        "architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator", "emb_dim": HIDDEN,
        "inner_dim": INNER, "n_candidates": 5, "n_predict": STEPS, "scale_input": False, "tie_weights": False,
        "top_k_tokens_per_head": [5, 4, 3], "torch_dtype": "float16", "transformers_version": "4.38.2",
        "vocab_size": VOCAB,
    }
    return own | changes


# scale_input adds a norm that has no tensors: neither scale nor shift (fms-extras, and vLLM's loader).
MLP_SPECULATOR: list[Good] = [
    good("mlp-speculator: fms-extras", mlp_config(), mlp_speculator(), HALF, TRAINED),
    good("mlp-speculator: scale_input", mlp_config(scale_input=True), mlp_speculator(), HALF, TRAINED),
    good("mlp-speculator: tied", mlp_config(tie_weights=True, scale_input=True), mlp_speculator(), HALF, TRAINED),
    good(
        "mlp-speculator: inner_dim 0 is emb_dim", mlp_config(inner_dim=0), mlp_speculator(inner=HIDDEN), HALF, TRAINED
    ),
    good(
        "mlp-speculator: bare names", mlp_config(torch_dtype="bfloat16"),
        renamed(mlp_speculator(dtype="BF16"), lambda n: n.removeprefix("speculator.")), facts=TRAINED,
    ),
]


def hydra(*, heads: int = 3, layers: int = 1, prefix: bool = False, grounded: bool = True) -> Table:
    """Return Hydra's heads: head k of a grounded one reads k + 2 vectors; with a prefix, dropouts stand between."""
    sizes: Sizes = {}
    step, offset = (2, 1) if prefix else (1, 0)
    for k in range(heads):
        for i in range(layers):
            p = f"hydra_mlp.{k}.{i * step + offset}."
            width = (k + 2) * HIDDEN if grounded and i == 0 else HIDDEN
            for part in ("linear", "res_connection") if width > HIDDEN else ("linear",):
                sizes |= {f"{p}{part}.weight": (HIDDEN, width), f"{p}{part}.bias": (HIDDEN,)}
        p = f"hydra_lm_head.{k}." + ("1." if prefix else "")
        sizes |= {f"{p}weight": (VOCAB, HIDDEN), f"{p}bias": (VOCAB,)}
    if prefix:  # a whole llama of one layer with the target's sizes, its unused embedding included
        p = "prefix_embeding_layer."
        sizes |= {f"{p}embed_tokens.weight": (VOCAB, HIDDEN), f"{p}norm.weight": (HIDDEN,)}
        sizes |= at(f"{p}layers.0.", attention(dim=HIDDEN // HEADS), mlp(inter=160), norms())
        sizes[f"{p}layers.0.self_attn.rotary_emb.inv_freq"] = (HIDDEN // HEADS // 2,)
    return tensors(sizes)


def hydra_config(arch: str = "mlp", heads: int = 3, layers: int = 1, **changes: Any) -> Config:
    own = {
        "base_model_name_or_path": TARGET, "grounded_heads": True, "hidden_state_offset": 0,
        "hydra_head_arch": arch, "hydra_num_heads": heads, "hydra_num_layers": layers,
        "transformers_version": "4.34.1",
    }
    return own | changes


SQUARE = (b.target_config(head_dim=ABSENT), b.target())  # Hydra's llama has hidden // heads
HYDRA: list[Good] = [
    good("hydra: grounded", hydra_config(), hydra(), facts=NOTHING, weights="hydra_lm_head.pt"),
    good("hydra: grounded, two blocks", hydra_config(layers=2), hydra(layers=2), facts=NOTHING),
    good("hydra: not grounded", hydra_config(grounded_heads=False), hydra(grounded=False), facts=NOTHING),
    good("hydra-prefix: prefix-mlp", hydra_config("prefix-mlp"), hydra(prefix=True), SQUARE, NOTHING),
    good(
        "hydra-prefix: prefix-mlp, four blocks as published", hydra_config("prefix-mlp", heads=4, layers=4),
        hydra(prefix=True, heads=4, layers=4), SQUARE, NOTHING,
    ),
]

# --- small models -------------------------------------------------------------------------------------------------


def small(
    *, layers: int = 2, head: bool = True, norms_of_heads: bool = False, biases: str = "", more: Iterable[str] = ()
) -> Table:
    """Return a whole small language model."""
    sizes: Sizes = {"model.embed_tokens.weight": (VOCAB, THIN), "model.norm.weight": (THIN,)}
    own = attention(
        width=THIN, hidden=THIN, heads=THIN_HEADS, kv=THIN_KV, dim=THIN_DIM, norms=norms_of_heads, biases=biases
    )
    for i in range(layers):
        sizes |= at(f"model.layers.{i}.", own, mlp(hidden=THIN, inter=THIN_INTER), norms(THIN))
        sizes |= {f"model.layers.{i}.{name}.weight": (THIN,) for name in more}
    return tensors(sizes | ({"lm_head.weight": (VOCAB, THIN)} if head else {}))


def small_config(**changes: Any) -> Config:
    thin = {
        "hidden_size": THIN, "intermediate_size": THIN_INTER, "num_attention_heads": THIN_HEADS,
        "num_key_value_heads": THIN_KV, "head_dim": THIN_DIM, "num_hidden_layers": 2,
    }
    return b.target_config(**thin | changes)


def tokenizer(size: int = VOCAB) -> str:
    """Return a tokenizer.json of so many words, three of them special."""
    words = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, size)}
    special = [
        {
            "id": id, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True,
        }
        for word, id in list(words.items())[:3]
    ]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": words, "merges": []}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return json.dumps({"version": "1.0", **parts, "added_tokens": special, "model": model})


SPECIAL = json.dumps(
    {
        "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 4096,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
)
WORDS = {
    f"{side}/{name}": text
    for side in ("drafter", "target")
    for name, text in (("tokenizer.json", tokenizer()), ("tokenizer_config.json", SPECIAL))
}
# Any target with the same tokenizer will do: these read tokens alone.
GEMMA = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
DRAFT_MODEL: list[Good] = [
    good("draft-model: llama", small_config(), small(), facts=TRAINED, files=WORDS),
    good(
        "draft-model: llama, tied", small_config(tie_word_embeddings=True), small(head=False), facts=TRAINED,
        files=WORDS,
    ),
    good(
        "draft-model: qwen2, with biases",
        small_config(
            architectures=["Qwen2ForCausalLM"], model_type="qwen2", head_dim=ABSENT, hidden_size=THIN,
            num_attention_heads=2, num_key_value_heads=1, use_sliding_window=False, max_window_layers=2,
        ),
        small(biases="qkv")
        | tensors(
            at("model.layers.0.", attention(width=THIN, hidden=THIN, heads=2, kv=1, dim=26, biases="qkv"))
            | at("model.layers.1.", attention(width=THIN, hidden=THIN, heads=2, kv=1, dim=26, biases="qkv"))
        ),
        (b.target_config(architectures=["Qwen2ForCausalLM"], model_type="qwen2"), b.target()),
        TRAINED,
        files=WORDS,
    ),
    good(
        "draft-model: qwen3, tied",
        small_config(
            architectures=["Qwen3ForCausalLM"], model_type="qwen3", tie_word_embeddings=True, attention_bias=False,
            rms_norm_eps=1e-6,
        ),
        small(head=False, norms_of_heads=True),
        QWEN3,
        TRAINED,
        files=WORDS,
    ),
    good(
        "draft-model: gemma2, tied without a word",
        small_config(
            architectures=["Gemma2ForCausalLM"], model_type="gemma2", tie_word_embeddings=ABSENT, head_dim=THIN_DIM,
            hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=THIN_DIM, sliding_window=1024,
            attn_logit_softcapping=50.0, final_logit_softcapping=30.0, rms_norm_eps=1e-6,
        ),
        small(head=False, more=GEMMA), facts=TRAINED, files=WORDS,
    ),
    good(
        "draft-model: gemma3, tied",
        b.edit(
            saved(
                small_config(
                    architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", tie_word_embeddings=True,
                    hidden_act=ABSENT, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                    query_pre_attn_scalar=THIN_DIM, sliding_window=1024, layer_types=["sliding_attention"] * 2,
                )
            ),
            {"rope_parameters": {
                "full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
            }},
        ),
        small(head=False, norms_of_heads=True, more=GEMMA), facts=TRAINED, files=WORDS,
    ),
]

CASES: tuple[Good, ...] = (
    *EAGLE3, *EAGLE3_MLA, *EAGLE3_SPECULATORS, *PEAGLE, *EAGLE1, *FR_SPEC, *DFLASH, *DFLASH2, *DOMINO, *DSPARK,
    *MTP, *MEDUSA, *MLP_SPECULATOR, *HYDRA, *DRAFT_MODEL,
)
