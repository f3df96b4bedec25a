"""Target architectures: the config and the names of each, by hand from what is published, and one fault at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof.checkpoint import Checkpoint
from draftproof.conform import conform
from draftproof.findings import Finding
from draftproof.hub import open_model
from draftproof.library import Library
from draftproof.recognise import recognise

INNER, OUTER = "model.language_model.", "language_model.model."
LATENT = {"q_lora_rank": 48, "kv_lora_rank": 24, "qk_nope_head_dim": 42, "qk_rope_head_dim": 16, "v_head_dim": 36}
NO_TIE: dict[str, Any] = {"tie_word_embeddings": b.ABSENT}
# architecture -> contract, model_type, is the text nested, prefix of the text model, head ("" if it is tied), changes
KNOWN: dict[str, tuple[str, str, bool, str, str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("llama", "llama", False, "model.", "lm_head.", {}),
    "Qwen3ForCausalLM": ("qwen3", "qwen3", False, "model.", "lm_head.", {}),
    "Qwen3MoeForCausalLM": ("qwen3", "qwen3_moe", False, "model.", "lm_head.", {"num_experts": 8}),
    "Qwen2ForCausalLM": ("decoder", "qwen2", False, "model.", "lm_head.", NO_TIE),
    "Qwen2MoeForCausalLM": ("decoder", "qwen2_moe", False, "model.", "lm_head.", NO_TIE),
    "MistralForCausalLM": ("decoder", "mistral", False, "model.", "lm_head.", NO_TIE),
    "MixtralForCausalLM": ("decoder", "mixtral", False, "model.", "lm_head.", NO_TIE),
    "GptOssForCausalLM": ("decoder", "gpt_oss", False, "model.", "lm_head.", {
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
    }),
    "MiniMaxM2ForCausalLM": ("decoder", "minimax_m2", False, "model.", "lm_head.", {"rotary_dim": 22}),
    "MiMoForCausalLM": ("decoder", "mimo", False, "model.", "lm_head.", {"num_nextn_predict_layers": 1}),
    "Phi3ForCausalLM": ("decoder", "phi3", False, "model.", "lm_head.", NO_TIE),
    "Glm4MoeForCausalLM": ("decoder", "glm4_moe", False, "model.", "lm_head.", {"partial_rotary_factor": 0.5}),
    "HunYuanDenseV1ForCausalLM": ("decoder", "hunyuan_v1_dense", False, "model.", "", {"tie_word_embeddings": True}),
    "HunYuanMoEV1ForCausalLM": ("decoder", "hunyuan_v1_moe", False, "model.", "lm_head.", {}),
    "Qwen3NextForCausalLM": ("decoder", "qwen3_next", False, "model.", "lm_head.", {"partial_rotary_factor": 0.25}),
    "Qwen3_5ForCausalLM": ("decoder", "qwen3_5_text", False, "model.", "lm_head.", {}),
    "Qwen3_5MoeForCausalLM": ("decoder", "qwen3_5_moe_text", False, "model.", "lm_head.", {}),
    "GraniteForCausalLM": ("decoder", "granite", False, "model.", "lm_head.", NO_TIE),
    "GraniteMoeForCausalLM": ("decoder", "granitemoe", False, "model.", "lm_head.", NO_TIE),
    "GraniteMoeSharedForCausalLM": ("decoder", "granitemoeshared", False, "model.", "lm_head.", NO_TIE),
    "ApertusForCausalLM": ("decoder", "apertus", False, "model.", "lm_head.", NO_TIE),
    "AfmoeForCausalLM": ("decoder", "afmoe", False, "model.", "lm_head.", NO_TIE),
    "LagunaForCausalLM": ("decoder", "laguna", False, "model.", "lm_head.", NO_TIE),
    "Ministral3ForCausalLM": ("decoder", "ministral3", False, "model.", "lm_head.", NO_TIE),
    "ArceeForCausalLM": ("decoder", "arcee", False, "model.", "lm_head.", NO_TIE),
    "CwmForCausalLM": ("decoder", "cwm", False, "model.", "lm_head.", NO_TIE),
    "Dots1ForCausalLM": ("decoder", "dots1", False, "model.", "lm_head.", NO_TIE),
    "Exaone4ForCausalLM": ("decoder", "exaone4", False, "model.", "lm_head.", NO_TIE),
    "ExaoneMoeForCausalLM": ("decoder", "exaone_moe", False, "model.", "lm_head.", NO_TIE),
    "FlexOlmoForCausalLM": ("decoder", "flex_olmo", False, "model.", "lm_head.", NO_TIE),
    "Glm4ForCausalLM": ("decoder", "glm4", False, "model.", "lm_head.", NO_TIE),
    "GlmForCausalLM": ("decoder", "glm", False, "model.", "lm_head.", NO_TIE),
    "Jais2ForCausalLM": ("decoder", "jais2", False, "model.", "lm_head.", NO_TIE),
    "KimiLinearForCausalLM": ("decoder", "kimi_linear", False, "model.", "lm_head.", NO_TIE),
    "Llama4ForCausalLM": ("decoder", "llama4_text", False, "model.", "lm_head.", NO_TIE),
    "MiMoV2FlashForCausalLM": ("decoder", "mimo_v2_flash", False, "model.", "lm_head.", NO_TIE),
    "Olmo2ForCausalLM": ("decoder", "olmo2", False, "model.", "lm_head.", NO_TIE),
    "Olmo3ForCausalLM": ("decoder", "olmo3", False, "model.", "lm_head.", NO_TIE),
    "OlmoForCausalLM": ("decoder", "olmo", False, "model.", "lm_head.", NO_TIE),
    "OlmoeForCausalLM": ("decoder", "olmoe", False, "model.", "lm_head.", NO_TIE),
    "PhiForCausalLM": ("decoder", "phi", False, "model.", "lm_head.", NO_TIE),
    "SeedOssForCausalLM": ("decoder", "seed_oss", False, "model.", "lm_head.", NO_TIE),
    "Ernie4_5ForCausalLM": ("tied-decoder", "ernie4_5", False, "model.", "", NO_TIE),
    "Gemma2ForCausalLM": ("tied-decoder", "gemma2", False, "model.", "", NO_TIE),
    "SmolLM3ForCausalLM": ("tied-decoder", "smollm3", False, "model.", "", NO_TIE),
    "Starcoder2ForCausalLM": ("tied-decoder", "starcoder2", False, "model.", "", NO_TIE),
    "VaultGemmaForCausalLM": ("tied-decoder", "vaultgemma", False, "model.", "", NO_TIE),
    "Glm4MoeLiteForCausalLM": ("deepseek-v3", "glm4_moe_lite", False, "model.", "lm_head.", LATENT),
    "Gemma3ForCausalLM": ("tied-decoder", "gemma3_text", False, "model.", "", NO_TIE),
    "Gemma4ForCausalLM": ("tied-decoder", "gemma4_text", False, "model.", "", NO_TIE),
    "MiniCPMForCausalLM": ("tied-decoder", "minicpm", False, "model.", "", NO_TIE),
    "Ernie4_5_MoeForCausalLM": ("tied-decoder", "ernie4_5_moe", False, "model.", "", NO_TIE),
    "CohereForCausalLM": ("tied-decoder", "cohere", False, "model.", "", NO_TIE),
    "Cohere2ForCausalLM": ("tied-decoder", "cohere2", False, "model.", "", NO_TIE),
    "Cohere2MoeForCausalLM": ("tied-decoder", "cohere2_moe", False, "model.", "", NO_TIE),
    "Gemma3ForConditionalGeneration": ("tied-multimodal", "gemma3", True, OUTER, "", NO_TIE),
    "Gemma4ForConditionalGeneration": ("tied-multimodal", "gemma4", True, INNER, "", NO_TIE),
    "HunYuanVLForConditionalGeneration": ("tied-multimodal", "hunyuan_vl", False, "model.", "", NO_TIE),
    "Mistral3ForConditionalGeneration": ("tied-multimodal", "mistral3", True, OUTER, "", NO_TIE),
    "LlavaForConditionalGeneration": ("multimodal", "llava", True, OUTER, "language_model.lm_head.", NO_TIE),
    "Llama4ForConditionalGeneration": ("multimodal", "llama4", True, OUTER, "language_model.lm_head.", NO_TIE),
    "Qwen2VLForConditionalGeneration": ("multimodal", "qwen2_vl", False, "model.", "lm_head.", {}),
    "Qwen2_5_VLForConditionalGeneration": ("multimodal", "qwen2_5_vl", False, "model.", "lm_head.", {}),
    "Qwen3VLForConditionalGeneration": ("multimodal", "qwen3_vl", True, INNER, "lm_head.", NO_TIE),
    "Qwen3VLMoeForConditionalGeneration": ("multimodal", "qwen3_vl_moe", True, INNER, "lm_head.", NO_TIE),
    "Qwen3_5ForConditionalGeneration": ("multimodal", "qwen3_5", True, INNER, "lm_head.", NO_TIE),
    "Qwen3_5MoeForConditionalGeneration": ("multimodal", "qwen3_5_moe", True, INNER, "lm_head.", NO_TIE),
    "Qwen2AudioForConditionalGeneration": ("qwen2-audio", "qwen2_audio", True, OUTER, "language_model.lm_head.", {}),
    "BailingMoeV2ForCausalLM": ("bailing", "bailing_moe", False, "model.", "lm_head.", {}),
    "BailingMoeForCausalLM": ("bailing", "bailing_moe", False, "model.", "lm_head.", {}),
    "BailingMoEForCausalLM": ("bailing", "bailing_moe", False, "model.", "lm_head.", {}),
    "Lfm2ForCausalLM": ("lfm2", "lfm2", False, "model.", "", {
        "tie_word_embeddings": b.ABSENT, "tie_embedding": True, "rms_norm_eps": b.ABSENT, "norm_eps": 1e-5,
    }),
    "Lfm2MoeForCausalLM": ("lfm2", "lfm2_moe", False, "model.", "", NO_TIE),
    "Step3p5ForCausalLM": ("step3p5", "step3p5", False, "model.", "lm_head.", {"rope_theta": [5e6, 1e4, 1e4, 1e4] * 3}),
    "DeepseekV2ForCausalLM": ("deepseek-v3", "deepseek_v2", False, "model.", "lm_head.", LATENT | {
        "q_lora_rank": None,
    }),
    "DeepseekV3ForCausalLM": ("deepseek-v3", "deepseek_v3", False, "model.", "lm_head.", LATENT),
    "MistralLarge3ForCausalLM": ("deepseek-v3", "deepseek_v3", False, "", "output.", LATENT),
    "DeepseekV32ForCausalLM": ("deepseek-v3", "deepseek_v32", False, "model.", "lm_head.", LATENT),
    "GlmMoeDsaForCausalLM": ("deepseek-v3", "glm_moe_dsa", False, "model.", "lm_head.", LATENT),
    "Glm5NextForConditionalGeneration": ("glm5", "glm5_next", True, INNER, "lm_head.", {
        "qk_rope_head_dim": 0, "head_dim": 0,
    }),
    "KimiK25ForConditionalGeneration": ("kimi-k25", "kimi_k25", True, OUTER, "language_model.lm_head.", LATENT),
    "LongcatFlashForCausalLM": ("longcat-flash", "longcat_flash", False, "model.", "lm_head.", LATENT | {
        "num_hidden_layers": b.ABSENT, "num_layers": 6,
    }),
    "KimiK3ForConditionalGeneration": ("kimi-k3", "kimi_k3", True, OUTER, "language_model.lm_head.", {
        "max_position_embeddings": b.ABSENT, "model_max_length": 4096,
    }),
    "KimiK3LinearForCausalLM": ("kimi-k3", "kimi_linear", False, "model.", "lm_head.", {}),
    "InklingForConditionalGeneration": ("inkling", "inkling_mm_model", True, "model.llm.", "model.llm.unembed.", {}),
}  # fmt: skip
EMBEDDING = {"bailing": "word_embeddings.", "inkling": "embed.", "MistralLarge3ForCausalLM": "tok_embeddings."}
NORM = {"lfm2": "embedding_norm."}


def config_of(name: str, **more: Any) -> b.Config:
    _, model_type, nested, _, _, changes = KNOWN[name]
    flat = b.target_config(**(changes | more))
    own = {"architectures": [name], "model_type": model_type}
    if not nested:
        return flat | own
    inner = {k: v for k, v in flat.items() if k != "architectures"} | {"model_type": f"{model_type}_text"}
    return own | {
        "text_config": inner,
        "vision_config": {"hidden_size": 32, "num_hidden_layers": 2, "model_type": "vit"},
    }


def names_of(name: str) -> tuple[str, str, str]:
    id, _, _, prefix, head, _ = KNOWN[name]
    return (
        f"{prefix}{EMBEDDING.get(name, EMBEDDING.get(id, 'embed_tokens.'))}weight",
        head and f"{head}weight",
        (f"{prefix}{NORM.get(id, 'norm.')}weight"),
    )


def tensors_of(name: str, vocab: int = b.VOCAB, hidden: int = b.HIDDEN) -> b.Table:
    embedding, head, norm = names_of(name)
    out: b.Table = {
        embedding: ("BF16", (vocab, hidden)),
        norm: ("BF16", (hidden,)),
        "visual.x.weight": ("BF16", (3, 3)),
    }
    return out | ({head: ("BF16", (vocab, hidden))} if head else {})


def faults(config: b.Config, table: b.Table) -> set[tuple[str, str]]:
    checkpoint = Checkpoint(b.recorded(config, table, b.TARGET), "target")
    contract, found = recognise(Library(), checkpoint, "target")
    assert contract is not None, found
    said = b.view(config, table, "target").findings
    return {(f.code, f.subject) for f in said if f.level in ("error", "unknown", "warning")}


@pytest.mark.parametrize("name", KNOWN)
def test_published_layout_of_an_architecture_is_understood(name: str) -> None:
    config, table = config_of(name), tensors_of(name)
    view = b.view(config, table, "target")
    assert view.contract is not None
    assert view.contract.id == KNOWN[name][0]
    assert faults(config, table) == set()
    embedding, head, norm = names_of(name)
    assert view.names[view.contract.roles["embedding"]] == embedding
    assert view.names.get(view.contract.roles["head"], "") == head
    assert view.names[view.contract.roles["norm"]] == norm
    sizes = {part: getattr(view.size(part), "value", None) for part in ("hidden", "vocab", "layers", "context")}
    layers = 6 if KNOWN[name][0] == "longcat-flash" else b.LAYERS
    assert sizes == {"hidden": b.HIDDEN, "vocab": b.VOCAB, "layers": layers, "context": 4096}


@pytest.mark.parametrize("name", KNOWN)
def test_each_tensor_that_a_drafter_borrows_is_missed_and_measured(name: str) -> None:
    config, table = config_of(name), tensors_of(name)
    for tensor in filter(None, names_of(name)):
        assert faults(config, b.changed(table, {tensor: None})) == {("TEN401", tensor)}
        wrong = tuple(n + 1 for n in table[tensor][1])
        assert faults(config, b.changed(table, {tensor: ("BF16", wrong)})) == {("TEN403", tensor)}


@pytest.mark.parametrize("name", [n for n in KNOWN if not KNOWN[n][4]])
def test_head_that_is_the_embedding_need_not_stand_and_must_where_the_config_unties_it(name: str) -> None:
    config, table = config_of(name, tie_word_embeddings=False, tie_embedding=b.ABSENT), tensors_of(name)
    assert {code for code, _ in faults(config, table)} == {"TEN401"}
    assert not faults(config_of(name, tie_word_embeddings=True), table)


@pytest.mark.parametrize("name", KNOWN)
def test_drafter_for_an_architecture_is_paired_with_its_text_model(name: str) -> None:
    if KNOWN[name][0] == "longcat-flash":
        return  # its layers are counted otherwise: see the contract
    drafter = b.given(b.dense_config(), b.dense(), b.DRAFTER)
    report = b.check(drafter, b.given(config_of(name), tensors_of(name), b.TARGET))
    said = {f.code for f in b.against(report) if f.level == "error"}
    assert said == set(), b.text(report)
    other = config_of(name, hidden_size=2 * b.HIDDEN)
    report = b.check(drafter, b.given(other, tensors_of(name, hidden=2 * b.HIDDEN), b.TARGET))
    assert "PAIR401" in {f.code for f in b.against(report)}


def layered(name: str, count: int) -> b.Table:
    """Return the table of a target of some layers, by the norm that each of its layers begins with."""
    id, prefix = KNOWN[name][0], KNOWN[name][3]
    norms = {"lfm2": "operator_norm", "longcat-flash": "input_layernorm.0", "inkling": "attn_norm"}
    norm = "attention_norm" if name == "MistralLarge3ForCausalLM" else norms.get(id, "input_layernorm")
    rows = {f"{prefix}layers.{i}.{norm}.weight": ("BF16", (b.HIDDEN,)) for i in range(count)}
    return tensors_of(name) | rows


@pytest.mark.parametrize("name", KNOWN)
def test_layers_that_a_config_counts_are_held_to_the_names(name: str, tmp_path: Path) -> None:
    config = config_of(name)
    layers = (6 if KNOWN[name][0] == "longcat-flash" else b.LAYERS) + config.get("num_nextn_predict_layers", 0)
    for count, level in ((layers, None), (layers + 1, "warning"), (3, "error")):
        view = b.view(config, layered(name, count), "target")
        assert [f.level for f in view.findings if f.code == "CFG308"] == [level or "pass"], count
    short = b.view(config, layered(name, 3), "target")
    assert f"layers.{layers - 1 - config.get('num_nextn_predict_layers', 0)}." in next(
        f.observed for f in short.findings if f.code == "CFG308"
    )


def test_layers_are_counted_by_the_index_and_no_shard_is_read_for_them(tmp_path: Path) -> None:
    name = "Qwen2ForCausalLM"
    table = layered(name, b.LAYERS)
    b.write(tmp_path, config_of(name), table, shards=len(table))
    source = open_model(str(tmp_path), ())
    assert not isinstance(source, Finding)
    read: list[str] = []
    inner = source.read
    source.read = lambda file, start, stop: (read.append(file), inner(file, start, stop))[1]  # type: ignore[func-returns-value]
    checkpoint = Checkpoint(source, "target")
    contract, _ = recognise(Library(), checkpoint, "target")
    assert contract is not None
    view = conform(contract, checkpoint)
    assert [f.level for f in view.findings if f.code == "CFG308"] == ["pass"]
    assert len({file for file in read if file.endswith(".safetensors")}) == 3  # embedding, head, norm


def test_every_architecture_of_every_contract_is_tried_here() -> None:
    named = {a for _, c, _ in Library().all("target") if c for a in c.detect.get("any_architecture", ())}
    assert named == set(KNOWN)


def test_no_two_contracts_claim_one_architecture_or_model_type() -> None:
    for key in ("any_architecture", "any_model_type"):
        claims = [v for _, c, _ in Library().all("target") if c for v in c.detect.get(key, ())]
        assert len(claims) == len(set(claims)), key


def test_architecture_of_no_contract_stays_unknown(tmp_path: Path) -> None:
    config = b.target_config(architectures=["NobodyForCausalLM"], model_type="nobody")
    report = b.check(b.given(b.dense_config(), b.dense(), b.DRAFTER), b.given(config, b.target(), b.TARGET))
    assert "TEN410 unknown" in b.codes(report)
    assert report.verdict == "unknown"


def test_sizes_that_a_config_leaves_to_its_class_are_those_of_the_class() -> None:
    config = config_of("Qwen2AudioForConditionalGeneration", hidden_size=b.ABSENT, num_hidden_layers=b.ABSENT)
    view = b.view(config, tensors_of("Qwen2AudioForConditionalGeneration", hidden=4096), "target")
    assert not [f for f in view.findings if f.level in ("error", "unknown")]
    assert getattr(view.size("layers"), "value", None) == 32
