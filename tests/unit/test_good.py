"""Checkpoints as trainers and publishers really write them pass, whole, with nothing above info."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors

import builder as b
from builder import ABSENT, DIM, DRAFT, HEADS, HIDDEN, KV, LAYERS, VOCAB
from draftproof.library import Library

LLAMA = (b.target_config(), b.target())
QWEN3 = (b.target_config(architectures=["Qwen3ForCausalLM"], model_type="qwen3"), b.target())
TIED = (b.target_config(tie_word_embeddings=True), b.target(head=""))
WIDE = (b.target_config(hidden_size=80), b.target(hidden=80))
K2 = (b.deepseek_config(), b.target())
K25_TABLE = b.target(prefix="language_model.model.", head="language_model.lm_head.weight")
K25 = (b.kimi_k25_config(), b.changed(K25_TABLE, {"vision_tower.patch_embed.weight": ("BF16", (8, 14))}))
K25_FLAT = (b.kimi_k25_config(), b.target(prefix="language_model.", head="language_model.lm_head.weight"))
FULL = {"draft": VOCAB, "vocab": VOCAB}
QK = {"architectures": ["Eagle3Qwen3ForCausalLM"], "model_type": "qwen3"}
KEY, NESTED_KEY = "eagle_aux_hidden_state_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids"
FOUR = [2, 4, 6, 9]
LATENT = b.mla_config()

GOOD: dict[str, tuple[b.Config, b.Table, tuple[b.Config, b.Table]]] = {
    "midlayer names, as SpecForge and EAGLE write": (b.dense_config(), b.dense(), LLAMA),
    "bare names, as speculators writes": (b.dense_config(), b.dense(style="bare"), LLAMA),
    "model. names, as Automodel writes": (
        b.dense_config(architectures=["LlamaEagle3DraftModel"]),
        b.dense(style="nested", embed=True),
        LLAMA,
    ),
    "Eagle3LlamaForCausalLM, as AngelSlim writes": (
        b.dense_config(architectures=["Eagle3LlamaForCausalLM"]),
        b.dense(),
        LLAMA,
    ),
    "plain LlamaForCausalLM, as EAGLE and nebius write": (
        b.dense_config(architectures=["LlamaForCausalLM"]),
        b.dense(embed=True),
        LLAMA,
    ),
    "no t2d, as Model-Optimizer writes": (b.dense_config(), b.dense(style="bare", t2d=False), LLAMA),
    "its own embedding": (b.dense_config(), b.dense(embed=True), LLAMA),
    "I32 d2t, as nebius": (b.dense_config(), b.dense(index="I32"), LLAMA),
    "F16": (
        b.dense_config(torch_dtype="float16"),
        b.dense(dtype="F16"),
        (b.target_config(torch_dtype="float16"), LLAMA[1] | {n: ("F16", s) for n, (_, s) in LLAMA[1].items()}),
    ),
    "F32": (
        b.dense_config(torch_dtype="float32"),
        b.dense(dtype="F32"),
        (b.target_config(torch_dtype="float32"), {n: ("F32", s) for n, (_, s) in LLAMA[1].items()}),
    ),
    "dtype spelled as transformers 5 does": (
        b.dense_config(torch_dtype=ABSENT, dtype="bfloat16"),
        b.dense(),
        (b.target_config(torch_dtype=ABSENT, dtype="bfloat16"), LLAMA[1]),
    ),
    "no dtype declared": (b.dense_config(torch_dtype=ABSENT), b.dense(), LLAMA),
    "rope in rope_parameters, as transformers 5 does": (
        b.dense_config(rope_theta=ABSENT, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
        b.dense(),
        LLAMA,
    ),
    "no head_dim: hidden // heads": (
        b.dense_config(head_dim=ABSENT, num_attention_heads=2, num_key_value_heads=1),
        b.dense(heads=2, kv=1, dim=HIDDEN // 2),
        LLAMA,
    ),
    "no key-value heads: as many as heads": (
        b.dense_config(num_key_value_heads=ABSENT),
        b.dense(kv=HEADS),
        LLAMA,
    ),
    "qwen3, with norms of queries and keys": (b.dense_config(**QK), b.dense(qk_norm=True), QWEN3),
    "3.1: fc_norm": (b.dense_config(fc_norm=True, norm_output=True), b.dense(fc_norm=True), LLAMA),
    "3.1: aux_norm_low, mid and high": (
        b.dense_config(use_aux_norm=True),
        b.dense(style="aux-norm", fc_norm=True),
        LLAMA,
    ),
    "norm_before_fc": (b.dense_config(norm_before_fc=True), b.dense(style="bare", input_norm=True), LLAMA),
    "norm_before_fc inside eagle_config": (
        b.dense_config(**{"eagle_config.norm_before_fc": True}),
        b.dense(style="bare", input_norm=True),
        LLAMA,
    ),
    "attention_bias": (b.dense_config(attention_bias=True), b.dense(attention_bias=True), LLAMA),
    "attention_bias, with one on o_proj": (
        b.dense_config(attention_bias=True),
        b.dense(attention_bias=True) | {"midlayer.self_attn.o_proj.bias": ("BF16", (HIDDEN,))},
        LLAMA,
    ),
    "mlp_bias": (b.dense_config(mlp_bias=True), b.dense(mlp_bias=True), LLAMA),
    "fc with bias": (b.dense_config(bias=True), b.dense(fc_bias=True), LLAMA),
    "two layers": (b.dense_config(num_hidden_layers=2), b.dense(layers=2), LLAMA),
    "two layers for vLLM": (
        b.dense_config(num_hidden_layers=2),
        b.dense(style="bare", layers=2, later=("input_layernorm",)),
        LLAMA,
    ),
    "three layers by Model-Optimizer": (
        b.dense_config(num_hidden_layers=3),
        b.dense(style="bare", layers=3, later=(), t2d=False),
        LLAMA,
    ),
    "full vocabulary, draft_vocab_size absent": (
        b.dense_config(draft_vocab_size=ABSENT),
        b.dense(**FULL, maps=False),
        LLAMA,
    ),
    "full vocabulary, draft_vocab_size null": (
        b.dense_config(draft_vocab_size=None),
        b.dense(**FULL, maps=False),
        LLAMA,
    ),
    "full vocabulary, draft_vocab_size equal": (
        b.dense_config(draft_vocab_size=VOCAB),
        b.dense(**FULL, maps=False),
        LLAMA,
    ),
    "full vocabulary with d2t of zeros, as SpecForge": (
        b.dense_config(draft_vocab_size=VOCAB),
        b.dense(**FULL),
        LLAMA,
    ),
    "full vocabulary, head borrowed": (
        b.dense_config(draft_vocab_size=ABSENT),
        b.dense(**FULL, maps=False, head=False),
        LLAMA,
    ),
    "full vocabulary, head tied to its own embedding": (
        b.dense_config(draft_vocab_size=ABSENT, tie_word_embeddings=True),
        b.dense(**FULL, maps=False, head=False, embed=True),
        LLAMA,
    ),
    "narrower than the target, with its own embedding": (
        b.dense_config(target_hidden_size=80),
        b.dense(target_hidden=80, embed=True),
        WIDE,
    ),
    "target_hidden_size null": (b.dense_config(target_hidden_size=None), b.dense(), LLAMA),
    "four aux layers, key at the top level": (
        b.dense_config(**{KEY: FOUR, "eagle_config": ABSENT}),
        b.dense(aux=4),
        LLAMA,
    ),
    "four aux layers, key inside eagle_config": (b.dense_config(**{NESTED_KEY: FOUR}), b.dense(aux=4), LLAMA),
    "four aux layers, as a number too": (
        b.dense_config(**{NESTED_KEY: FOUR, "num_aux_hidden_states": 4}),
        b.dense(aux=4),
        LLAMA,
    ),
    "both keys, in the conventions of the engines that read them": (
        b.dense_config(**{KEY: [1, 5, 8]}),
        b.dense(),
        LLAMA,
    ),
    "no hidden states of the target at all": (
        b.dense_config(eagle_config={"use_aux_hidden_state": False}),
        b.changed(b.dense(style="bare", t2d=False), {"fc.weight": None, "layers.0.hidden_norm.weight": None}),
        LLAMA,
    ),
    "target without a head: tied": (b.dense_config(), b.dense(), TIED),
    "qwen3 mixture of experts": (
        b.dense_config(),
        b.dense(),
        (b.target_config(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe"), LLAMA[1]),
    ),
    "dense drafter for Kimi-K2": (b.dense_config(rope_theta=1000000.0), b.dense(), K2),
    "dense drafter for Kimi-K2.5": (b.dense_config(), b.dense(), K25),
    "dense drafter for Kimi-K2.5 NVFP4, flat names": (b.dense_config(), b.dense(), K25_FLAT),
    "latent attention for Kimi-K2.5": (LATENT, b.mla(), K25),
    "latent attention, bare names": (LATENT, b.mla(style="bare"), K2),
    "latent attention, model. names": (
        b.mla_config(architectures=["DeepseekV3Eagle3DraftModel"]),
        b.mla(style="nested"),
        K2,
    ),
    "latent attention, full vocabulary, as nvidia": (
        b.mla_config(draft_vocab_size=VOCAB, architectures=["Eagle3DeepseekV3ForCausalLM"]),
        b.mla(draft=VOCAB, maps=False),
        K25,
    ),
}
ADVICE = {  # what is said, as info, of pairs that are good all the same
    "full vocabulary with d2t of zeros, as SpecForge": {"PAIR405 info"},  # its zeros are not read here
    "dense drafter for Kimi-K2": {"PAIR411 info"},
    "dense drafter for Kimi-K2.5": {"PAIR411 info"},
    "dense drafter for Kimi-K2.5 NVFP4, flat names": {"PAIR411 info"},
}
NOT_DEFAULT = {name for name in GOOD if name.startswith("four aux")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, so that org/drafter and org/target are folders and names at once."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", GOOD)
def test_real_layout_passes(name: str, here: Path) -> None:
    config, table, (base, base_table) = GOOD[name]
    b.write(here / b.DRAFTER, config, table)
    b.write(here / b.TARGET, base, base_table)
    report = b.check(b.DRAFTER, b.TARGET)
    extra = {"PAIR409 warning"} if name in NOT_DEFAULT else set()  # four layers are nobody's default
    assert b.codes(report) == ADVICE.get(name, set()) | extra, b.text(report)
    assert (report.verdict, report.exit_code) == ("pass", 0)
    assert report.counts["pass"] >= len(table)


@pytest.mark.parametrize("name", sorted(NOT_DEFAULT))
def test_other_aux_layers_are_silent_once_they_are_declared_as_trained(name: str) -> None:
    config, table, (base, base_table) = GOOD[name]
    facts = b.FACTS | {"aux_layers": b.Fact(FOUR, "its card")}
    report = b.pair(config, table, base, base_table, facts=facts)
    assert b.codes(report) == set(), b.text(report)
    assert report.verdict == "pass"


def test_passes_say_what_was_held_against_what(here: Path) -> None:
    b.write(here / b.DRAFTER, b.dense_config(), b.dense())
    b.write(here / b.TARGET, *LLAMA)
    report = b.check(b.DRAFTER, b.TARGET)
    shapes = {f.subject: (f.message, f.expected) for f in report.findings if f.code == "TEN403"}
    assert shapes["drafter fc.weight"] == (f"BF16 [{HIDDEN}, {3 * HIDDEN}]", "[hidden, aux * target.hidden]")
    assert len([s for s in shapes if s.startswith("drafter")]) == len(b.dense())
    decided = {f.code for f in report.findings}
    assert {"CFG308", "CFG315", "DIM402", "TEN403"} <= decided
    assert {f"PAIR{n}" for n in (401, 402, 403, 404, 407, 408, 409, 410, 411, 412, 413, 414, 416, 417)} - decided <= {
        "PAIR401",  # fc.weight stands under TEN403
        "PAIR416",  # no verifier is declared
    }


@pytest.mark.parametrize(("style", "flagged"), [("trainer", "draft_model.midlayer."), ("trainer-bare", "draft_model.")])
def test_training_checkpoint_says_that_and_only_that(style: str, flagged: str) -> None:
    report = b.pair(b.dense_config(), b.dense(style=style))
    assert b.codes(report) == {"TEN406"}
    assert flagged in b.text(report)
    assert report.exit_code == 1


@pytest.mark.parametrize("shards", [2, 5])
@pytest.mark.parametrize("side", ["drafter", "target"])
def test_shards_with_an_index_pass(here: Path, shards: int, side: str) -> None:
    b.write(here / b.DRAFTER, b.dense_config(), b.dense(), shards=shards if side == "drafter" else 1)
    b.write(here / b.TARGET, *LLAMA, shards=shards if side == "target" else 1)
    report = b.check(b.DRAFTER, b.TARGET)
    assert b.codes(report) == set(), b.text(report)
    assert report.verdict == "pass"


@pytest.mark.parametrize(("dtype", "word"), [("bfloat16", "BF16"), ("float16", "F16"), ("float32", "F32")])
def test_torch_file_passes(here: Path, dtype: str, word: str) -> None:
    torch = pytest.importorskip("torch")
    kinds = {"BF16": getattr(torch, dtype), "I64": torch.int64, "BOOL": torch.bool}
    folder = b.write(here / b.DRAFTER, b.dense_config(torch_dtype=dtype), None)
    tensors = {name: torch.zeros(shape, dtype=kinds[kind]) for name, (kind, shape) in b.dense().items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    base = {name: (word, shape) for name, (_, shape) in b.target().items()}
    b.write(here / b.TARGET, b.target_config(torch_dtype=dtype), base)
    report = b.check(b.DRAFTER, b.TARGET)
    assert b.codes(report) == set(), b.text(report)
    assert report.verdict == "pass"


def test_state_dict_of_torch_passes() -> None:
    torch = pytest.importorskip("torch")
    kinds = {"BF16": torch.bfloat16, "I64": torch.int64, "BOOL": torch.bool}
    state = {name: torch.zeros(shape, dtype=kinds[kind]) for name, (kind, shape) in b.dense().items()}
    drafter = {"config": b.dense_config(), "state_dict": state, "name": b.DRAFTER}
    report = b.check(drafter, b.given(*LLAMA, b.TARGET))
    assert b.codes(report) == set(), b.text(report)
    assert report.verdict == "pass"


# --- the builder itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["midlayer names, as SpecForge and EAGLE write", "I32 d2t, as nebius", "F16", "F32"])
def test_built_file_is_read_by_safetensors_itself(name: str) -> None:
    table = GOOD[name][1]
    read = {n: (t["dtype"], tuple(t["shape"])) for n, t in safetensors.deserialize(b.safetensors(table))}
    assert read == table


def test_built_maps_are_maps() -> None:
    data = {n: bytes(t["data"]) for n, t in safetensors.deserialize(b.safetensors(b.dense()))}
    d2t = [int.from_bytes(data["d2t"][8 * i : 8 * i + 8], "little") for i in range(DRAFT)]
    chosen = [j for j, byte in enumerate(data["t2d"]) if byte]
    assert [i + d for i, d in enumerate(d2t)] == chosen
    assert len(chosen) == DRAFT
    assert max(chosen) < VOCAB


DIALECTS = [
    (f, d.name) for f in ("eagle3", "eagle3-mla") for d in Library().get("family", f)[0].dialects if not d.format
]


@pytest.mark.parametrize(("family", "dialect"), DIALECTS)
def test_layout_of_the_contract_passes_in_each_dialect(family: str, dialect: str, here: Path) -> None:
    config = {"eagle3": b.dense_config(fc_norm=True), "eagle3-mla": b.mla_config(fc_norm=True)}[family]
    base, names = (LLAMA[0], LLAMA[1]) if family == "eagle3" else K2
    b.write(here / b.DRAFTER, config, b.from_contract(config, base, dialect))
    b.write(here / b.TARGET, base, names)
    report = b.check(b.DRAFTER, b.TARGET)
    assert b.codes(report) == ({"TEN406"} if dialect.startswith("trainer") else set()), b.text(report)
    assert next(s.dialect for s in report.sides if s.role == "drafter") == dialect


FLAVOURS: dict[str, tuple[dict[str, Any], b.Table]] = {
    "plain": ({}, b.dense(embed=True)),
    "fc_norm": ({"fc_norm": True}, b.dense(fc_norm=True, embed=True)),
    "input_norm": ({"norm_before_fc": True}, b.dense(input_norm=True, embed=True)),
    "biases": ({"mlp_bias": True, "bias": True}, b.dense(mlp_bias=True, fc_bias=True, embed=True)
               | {"midlayer.self_attn.o_proj.bias": ("BF16", (HIDDEN,))}),
    "qwen3": (QK, b.dense(qk_norm=True, embed=True)),
    "two layers": ({"num_hidden_layers": 2}, b.dense(layers=2, embed=True)),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAVOURS)
def test_contract_asks_for_exactly_what_trainers_write(name: str) -> None:
    changes, table = FLAVOURS[name]
    asked = b.from_contract(b.dense_config(**changes), LLAMA[0], "midlayer")
    assert {
        n: row for n, row in asked.items() if "rotary_emb" not in n and "rope_freqs" not in n
    } == table  # buffers that are allowed, not asked for


def test_contract_asks_for_exactly_the_latent_tensors_that_are_published() -> None:
    embed: b.Table = {"embed_tokens.weight": ("BF16", (VOCAB, HIDDEN))}
    asked = b.from_contract(b.mla_config(), K2[0], "midlayer")
    assert asked == b.mla() | embed
    assert asked["midlayer.self_attn.q_b_proj.weight"] == ("BF16", (HEADS * 58, 48))
    assert len([1 for dtype, _ in b.mla().values() if dtype == "BF16"]) == 16


def test_sizes_of_the_builder_are_all_different() -> None:
    sizes = [size for _, shape in (*b.dense(embed=True).values(), *b.mla().values()) for size in shape]
    sizes = [*{*sizes}, DIM, HEADS, KV, LAYERS]
    assert len({*sizes}) == len(sizes) == 18
    assert HEADS * DIM != HIDDEN
