"""Other families than EAGLE-3: layouts by hand (facts/families 3, 4, 5, 14) pass, faults have their code and numbers.

The tables here are written from what trainers and published repos contain, never from our contracts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import builder as b
from builder import ABSENT, DIM, DRAFT, HEADS, HIDDEN, INTER, KV, LAYERS, VOCAB
from draftproof.adapt import adapt
from draftproof.checkpoint import Checkpoint, Config
from draftproof.cli import main
from draftproof.contracts import Fact
from draftproof.dims import Known
from draftproof.findings import Report
from draftproof.recognise import recognise

LLAMA = (b.target_config(), b.target())
LAYER = "transformer_layer_config"
LAYER_KEYS = (
    *("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"),
    *("num_hidden_layers", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "hidden_act"),
    *("attention_bias", "mlp_bias", "bos_token_id", "eos_token_id", "pad_token_id"),
)
IDS = "eagle_aux_hidden_state_layer_ids"
NO_DECLARATION: Mapping[str, Fact] = {}


def family_of(config: b.Config, table: b.Table | None = None) -> str:
    """Return the family that recognises a drafter, or the codes that say why none does."""
    contract, found = recognise(b.LIBRARY, Checkpoint(b.recorded(config, table), "drafter"), "family")
    return contract.id if contract else " ".join(f.code for f in found)


def parameters(config: b.Config, base: b.Config, *more: str) -> int:
    """Return how many float parameters the config's own family asks for, with some tensors that are optional."""
    report = b.check({"config": config, "tensors": {}}, {"config": base, "tensors": {}})
    assert report.sides, b.text(report)
    asked = b.from_contract(config, base, optional=True)
    rows = b.from_contract(config, base, optional=False) | {name: asked[name] for name in more}
    return sum(math.prod(shape) for dtype, shape in rows.values() if dtype == "BF16")


def spoken(report: Report, *words: str) -> bool:
    return all(word in b.text(report) for word in words)


# --- the speculators format ---------------------------------------------------------------------------------------


def speculators_config(kind: str = "eagle3", **changes: Any) -> b.Config:
    """Return a drafter's config as speculators writes it (facts/families 14)."""
    flat = b.dense_config()
    top = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": kind,
        "speculators_version": "0.5.0",
        "draft_vocab_size": DRAFT,
        "target_hidden_size": None,
        "norm_before_residual": True,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "embed_requires_grad": False,
        IDS: [2, 6, 9],
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        LAYER: {"model_type": "llama"} | {key: flat[key] for key in LAYER_KEYS},
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": b.TARGET, "architectures": ["LlamaForCausalLM"]},
        },
    }
    return b.edit(top, changes)


SPECULATORS: dict[str, tuple[b.Config, b.Table, tuple[b.Config, b.Table]]] = {
    "plain": (speculators_config(), b.dense(style="bare"), LLAMA),
    "Eagle3DraftModel": (speculators_config(architectures=["Eagle3DraftModel"]), b.dense(style="bare"), LLAMA),
    "its own embedding": (speculators_config(), b.dense(style="bare", embed=True), LLAMA),
    "norm_before_fc, as for gpt-oss": (
        speculators_config(norm_before_fc=True),
        b.dense(style="bare", input_norm=True),
        LLAMA,
    ),
    "fc_norm": (speculators_config(fc_norm=True, norm_output=True), b.dense(style="bare", fc_norm=True), LLAMA),
    "qwen3 layers": (
        speculators_config(**{f"{LAYER}.model_type": "qwen3"}),
        b.dense(style="bare", qk_norm=True),
        LLAMA,
    ),
    "four aux layers": (speculators_config(**{IDS: [2, 4, 6, 9]}), b.dense(style="bare", aux=4), LLAMA),
    "top level with a type of its own": (speculators_config(model_type="speculator"), b.dense(style="bare"), LLAMA),
    "layers that name another architecture": (
        speculators_config(**{f"{LAYER}.architectures": ["LlamaForCausalLM"]}),
        b.dense(style="bare"),
        LLAMA,
    ),
    "wider target": (
        speculators_config(target_hidden_size=80),
        b.dense(style="bare", target_hidden=80, embed=True),
        (b.target_config(hidden_size=80), b.target(hidden=80)),
    ),
    "full vocabulary": (
        speculators_config(draft_vocab_size=VOCAB),
        b.dense(style="bare", draft=VOCAB, maps=False),
        LLAMA,
    ),
    "two layers": (
        speculators_config(**{f"{LAYER}.num_hidden_layers": 2}),
        b.dense(style="bare", layers=2),
        LLAMA,
    ),
}


@pytest.mark.parametrize("name", SPECULATORS)
def test_speculators_drafter_passes_with_nothing_declared(name: str, tmp_path: Path) -> None:
    config, table, (base, base_table) = SPECULATORS[name]
    here = b.write(tmp_path / "drafter", config, table)
    report = b.check(str(here), b.given(base, base_table, b.TARGET), facts=NO_DECLARATION)
    extra = {"PAIR409 warning"} if name == "four aux layers" else set()
    assert b.codes(report) == extra, b.text(report)
    assert (report.verdict, report.sides[0].contract) == ("pass", "eagle3-speculators")


def test_speculators_format_says_target_and_convention_itself() -> None:
    report = b.pair(speculators_config(), b.dense(style="bare"), facts=NO_DECLARATION)
    held = {f.code: f"{f.message} {f.observed}" for f in report.findings if f.level == "pass"}
    assert "boundary" in held["PAIR408"]
    assert b.TARGET in held["PAIR416"]
    assert "speculators_config.verifier.name_or_path" in held["PAIR417"]


def test_dims_of_speculators_have_the_nested_table_as_witness() -> None:
    dims = b.view(speculators_config(), b.dense(style="bare")).dims
    nested = f"drafter config.json: {LAYER}.hidden_size"
    assert dims("hidden") == Known(HIDDEN, nested, "hidden_size")
    assert dims("context").witness == f"drafter config.json: {LAYER}.max_position_embeddings"
    assert dims("draft_vocab").witness == "drafter config.json: draft_vocab_size"


SPECULATORS_WRONG: dict[str, tuple[dict[str, Any], b.Table, set[str], list[str]]] = {
    "hidden states of another target": (
        {"target_hidden_size": 80}, {"fc.weight": ("BF16", (HIDDEN, 240)), "embed_tokens.weight": ("BF16", (512, 64))},
        {"PAIR401"}, ["expected 64", "observed 80"],
    ),
    "four aux layers for an fc of three": (
        {IDS: [2, 4, 6, 9]}, {}, {"TEN403"}, ["[64, 256]", "[64, 192]", "if aux were 3"],
    ),
    "flag without its tensors": ({"fc_norm": True}, {}, {"TEN401"}, ["fc_norm.0.weight", "[64]"]),
    "qwen3 layers without their norms": (
        {f"{LAYER}.model_type": "qwen3"}, {}, {"TEN401"}, ["layers.0.self_attn.q_norm.weight", "[44]"],
    ),
    "layers of another type": ({f"{LAYER}.model_type": "gemma3"}, {}, {"CFG307"}, ["llama, qwen3", "gemma3"]),
    "no layers' config": (
        {LAYER: ABSENT}, {}, None, ["config.json: transformer_layer_config", "a table with hidden_size"],
    ),
    "no target": (
        {"speculators_config": ABSENT}, {}, {"CFG312", "PAIR417 unknown"}, ["speculators_config.verifier.name_or_path"],
    ),
    "another target": (
        {"speculators_config.verifier.name_or_path": "org/other"}, {}, {"PAIR416 warning", "PAIR417 unknown"},
        ["expected org/other", "observed org/target"],
    ),
    "aux layer ids null": ({IDS: None}, {}, {"PAIR409 info", "PAIR408 unknown"}, ["null: engines capture [2, 6, 9]"]),
    "aux layer beyond the target": ({IDS: [2, 6, 13]}, {}, {"PAIR407"}, ["13 is outside 0..12 (boundary)"]),
    "short context": (
        {f"{LAYER}.max_position_embeddings": 2048}, {}, {"PAIR403"}, [f"{LAYER}.max_position_embeddings", "4096"],
    ),
    "contradiction of the two places": ({"hidden_size": 80}, {}, {"CFG309"}, [f"{LAYER}.hidden_size = 64"]),
    "midlayer names": (
        {}, {"layers.0.hidden_norm.weight": None, "midlayer.hidden_norm.weight": ("BF16", (64,))},
        {"TEN401", "TEN402"}, ["midlayer.hidden_norm.weight"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECULATORS_WRONG)
def test_fault_of_a_speculators_drafter_has_its_code(name: str) -> None:
    changes, tensors, codes, words = SPECULATORS_WRONG[name]
    table = b.changed(b.dense(style="bare"), tensors)
    report = b.pair(speculators_config(**changes), table, facts=NO_DECLARATION)
    assert codes is None or b.codes(report) == codes, b.text(report)
    assert spoken(report, *words), b.text(report)


def test_speculators_type_decides_over_the_architecture() -> None:
    assert family_of(speculators_config()) == "eagle3-speculators"
    assert family_of(speculators_config(architectures=["SomethingElse"])) == "eagle3-speculators"
    assert family_of(speculators_config(speculators_model_type="mtp")) == "mtp-speculators"
    assert family_of(speculators_config(speculators_model_type="eagle4")) == "TEN408"
    assert family_of(b.dense_config()) == "eagle3"


PUBLISHED_SPECULATORS = {  # what is published of RedHatAI's: hidden, vocabulary, draft vocabulary, ids, target layers
    "RedHatAI/Qwen3-8B-speculator.eagle3": (4096, 151936, 32000, [2, 18, 33], 36),
    "RedHatAI/gemma-4-31B-it-speculator.eagle3": (5376, 262144, 32000, [2, 30, 57], 60),
}


@pytest.mark.parametrize("name", PUBLISHED_SPECULATORS)
def test_published_speculator_names_the_boundary_default(name: str) -> None:
    hidden, vocab, draft, ids, depth = PUBLISHED_SPECULATORS[name]
    own = {"draft_vocab_size": draft, IDS: ids, f"{LAYER}.hidden_size": hidden, f"{LAYER}.vocab_size": vocab}
    table = b.dense(style="bare", hidden=hidden, target_hidden=hidden, draft=draft, vocab=vocab)
    base = b.target_config(hidden_size=hidden, vocab_size=vocab, num_hidden_layers=depth)
    report = b.pair(speculators_config(**own), table, base, b.target(hidden=hidden, vocab=vocab), facts=NO_DECLARATION)
    assert b.codes(report) == set(), b.text(report)
    assert f"{ids} is the boundary-style default for {depth} layers" in [f.message for f in report.findings]


def test_changed_key_is_written_where_it_stands() -> None:
    base = b.target_config(max_position_embeddings=8192, num_hidden_layers=8, eos_token_id=5)
    config = speculators_config()
    report = adapt(b.given(config, b.dense(style="bare"), b.DRAFTER), b.given(base, b.target(), b.TARGET), b.LIBRARY)
    assert report.plan is not None
    changes = {c.key: (c.old, c.new) for c in report.plan.changes}
    assert changes == {
        f"{LAYER}.max_position_embeddings": (4096, 8192),
        f"{LAYER}.eos_token_id": (2, 5),
        IDS: ([2, 6, 9], [2, 4, 5]),
    }
    assert report.plan.verdict == "after these changes"


def test_context_of_another_geometry_is_written_where_that_one_has_it() -> None:
    base = b.given(b.target_config(max_position_embeddings=8192), b.target(), b.TARGET)
    flat, nested = (b.given(b.dense_config(), b.dense(), b.DRAFTER),
                    b.given(speculators_config(), b.dense(style="bare"), "org/like"))  # fmt: skip
    keys = []
    for drafter, like in ((flat, nested), (nested, flat)):
        plan = adapt(drafter, base, b.LIBRARY, like=like).plan
        assert plan is not None
        keys.append({c.key: c.new for c in plan.changes if c.key.endswith("max_position_embeddings") and c.new})
    assert keys == [{f"{LAYER}.max_position_embeddings": 8192}, {"max_position_embeddings": 8192}]


def test_written_checkpoint_has_the_changed_key_where_it_stood(tmp_path: Path) -> None:
    drafter = b.write(tmp_path / "drafter", speculators_config(), b.dense(style="bare"))
    base = b.write(tmp_path / "base", b.target_config(max_position_embeddings=8192), b.target())
    made = tmp_path / "made"
    assert main(["adapt", str(drafter), "--to", str(base), "--write", str(made)]) == 0
    config = json.loads((made / "config.json").read_text())
    verifier = "speculators_config.verifier.name_or_path"
    assert config == speculators_config(**{f"{LAYER}.max_position_embeddings": 8192, verifier: str(base)})
    assert b.codes(b.check(str(made), str(base))) == {"PAIR417 unknown"}  # a folder: what it holds is not known


NESTED = {"a": {"x": 1, "y": None, "architectures": ["inner"], "model_type": "inner"}, "x": 2, "y": 3, "z": None}


@pytest.mark.parametrize(
    ("key", "place", "value"),
    [("x", "a.x", 1), ("y", "a.y", None), ("z", "z", None), ("w", "w", None), ("model_type", "model_type", None),
     ("a.x", "a.x", 1), ("a.model_type", "a.model_type", "inner")],
)  # fmt: skip
def test_key_of_a_nested_config_has_its_place(key: str, place: str, value: Any) -> None:
    config = Config(NESTED, "drafter").under(("a",))
    assert (config.place(key), config.at(key)) == (place, value)
    seen = config(key)
    assert (seen.value if isinstance(seen, Known) else None) == value


def test_unpublished_type_neither_tells_nor_rules_out() -> None:
    source = b.recorded(speculators_config(architectures=["x"]), None, unknown=["speculators_model_type"])
    contract, _ = recognise(b.LIBRARY, Checkpoint(source, "drafter"), "family")
    assert contract is None or contract.id != "eagle3-speculators"
    source = b.recorded(speculators_config(), None, unknown=["speculators_model_type"])
    contract, _ = recognise(b.LIBRARY, Checkpoint(source, "drafter"), "family")
    assert contract is not None
    assert contract.id == "eagle3-speculators"


@pytest.mark.parametrize("key", [LAYER, IDS, "speculators_config", f"{LAYER}.hidden_size"])
def test_unpublished_key_of_a_speculators_drafter_is_never_a_pass(key: str) -> None:
    source = b.recorded(speculators_config(), b.dense(style="bare"), unknown=[key])
    report = b.check(source, b.given(*LLAMA, b.TARGET), facts=NO_DECLARATION)
    assert report.verdict == "unknown", b.text(report)


# --- P-EAGLE ------------------------------------------------------------------------------------------------------


def peagle(*, style: str = "bare", layers: int = 4, aux: int = 3, **more: Any) -> b.Table:
    """Return the tensors of a P-EAGLE drafter (facts/families 3)."""
    table = b.dense(style=style, layers=layers, aux=aux, embed=True, **more)
    return table | {"mask_hidden": ("BF16", (1, 1, aux * more.get("target_hidden", HIDDEN)))}


def peagle_config(**changes: Any) -> b.Config:
    own = {"architectures": ["PEagleDraftModel"], "num_hidden_layers": 4, "mask_token_id": 511}
    return b.dense_config(**own | changes)


def parallel_config(**changes: Any) -> b.Config:
    """Return the config of a P-EAGLE drafter as speculators writes it."""
    own = {"mask_token_id": 511, f"{LAYER}.num_hidden_layers": 4, "norm_before_residual": False}
    return speculators_config("peagle", **{"architectures": ["PEagleDraftModel"]} | own | changes)


PARALLEL: dict[str, tuple[b.Config, b.Table, str]] = {
    "bare": (peagle_config(), peagle(), "peagle"),
    "midlayer": (peagle_config(), peagle(style="midlayer"), "peagle"),
    "one layer": (peagle_config(num_hidden_layers=1), peagle(layers=1), "peagle"),
    "llama of vLLM": (peagle_config(architectures=["PeagleLlamaForCausalLM"]), peagle(), "peagle"),
    "qwen3 of vLLM": (peagle_config(architectures=["PeagleQwen3ForCausalLM"]), peagle(qk_norm=True), "peagle"),
    "name that EAGLE-3 has too": (peagle_config(architectures=["LlamaForCausalLMEagle3"]), peagle(), "peagle"),
    "norm_before_residual": (peagle_config(norm_before_residual=False), peagle(), "peagle"),
    "mask token 0": (peagle_config(mask_token_id=0), peagle(), "peagle"),
    "speculators": (parallel_config(), peagle(), "peagle-speculators"),
    "speculators, qwen3": (
        parallel_config(**{f"{LAYER}.model_type": "qwen3"}),
        peagle(qk_norm=True),
        "peagle-speculators",
    ),
    "speculators, norm_before_fc": (
        parallel_config(norm_before_fc=True),
        peagle(input_norm=True),
        "peagle-speculators",
    ),
}


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel_drafter_passes(name: str, tmp_path: Path) -> None:
    config, table, family = PARALLEL[name]
    here = b.write(tmp_path / "drafter", config, table)
    report = b.check(str(here), b.given(*LLAMA, b.TARGET))
    assert b.codes(report) == set(), b.text(report)
    assert (report.verdict, report.sides[0].contract) == ("pass", family)


MASK_WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], set[str], list[str]]] = {
    "no mask_hidden": ({}, {"mask_hidden": None}, {"TEN401"}, ["mask_hidden", "[1, 1, 192]"]),
    "mask_hidden of one layer": (
        {}, {"mask_hidden": ("BF16", (1, 1, 64))}, {"TEN403"}, ["[1, 1, 192]", "[1, 1, 64]", "if aux were 1"],
    ),
    "flat mask_hidden, as in vLLM's buffer": ({}, {"mask_hidden": ("BF16", (1, 192))}, {"TEN403"}, ["[1, 192]"]),
    "no embedding": ({}, {"embed_tokens.weight": None}, {"TEN401"}, ["embed_tokens.weight", "[512, 64]"]),
    "mask token beyond the vocabulary": ({"mask_token_id": 512}, {}, {"CFG307"}, ["512", "target.vocab=512"]),
    "mask token as text": ({"mask_token_id": "511"}, {}, {"CFG304"}, ["write 511"]),
    "later layer that takes two inputs": (
        {}, {"layers.1.self_attn.q_proj.weight": ("BF16", (HEADS * DIM, 128))}, {"TEN403"}, ["[176, 64]", "[176, 128]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MASK_WRONG)
@pytest.mark.parametrize("config", [peagle_config, parallel_config])
def test_fault_of_a_parallel_drafter_has_its_code(name: str, config: Any) -> None:
    changes, tensors, codes, words = MASK_WRONG[name]
    report = b.pair(config(**changes), b.changed(peagle(), tensors))
    assert b.codes(report) == codes, b.text(report)
    assert spoken(report, *words), b.text(report)


def test_mask_hidden_follows_the_target() -> None:
    report = b.pair(peagle_config(), peagle(), b.target_config(hidden_size=80), b.target(hidden=80))
    assert b.codes(report) == {"PAIR401"}
    assert spoken(report, "mask_hidden", "[1, 1, 240]", "[1, 1, 192]", "[64, 240]", "[64, 192]")


def test_mask_token_must_be_named_in_the_speculators_format() -> None:
    report = b.pair(parallel_config(mask_token_id=ABSENT), peagle())
    assert b.codes(report) == {"CFG312"}
    assert b.codes(b.pair(peagle_config(mask_token_id=ABSENT), peagle())) == set()


PEAGLE_QWEN3_8B = {  # sgl-project/SpecForge configs/qwen3-8b-peagle.json
    "architectures": ["PEagleDraftModel"], "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
    "max_position_embeddings": 40960, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 4,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1000000, "vocab_size": 151936,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "draft_vocab_size": 32000,
}  # fmt: skip


def test_parallel_drafters_are_told_from_eagle3() -> None:
    assert family_of(PEAGLE_QWEN3_8B) == "peagle"
    assert family_of(parallel_config()) == "peagle-speculators"
    assert family_of(parallel_config(architectures=["SomethingElse"])) == "peagle-speculators"
    assert family_of(parallel_config(architectures=["Eagle3DraftModel"])) == "peagle-speculators"
    assert family_of(b.dense_config(), peagle()) == "peagle"
    assert family_of(b.dense_config(), b.dense()) == "eagle3"


# --- EAGLE-1 ------------------------------------------------------------------------------------------------------


def eagle1(
    *, layers: int = 1, bias: bool = True, qkv_bias: bool = False, embed: bool = True, hidden: int = HIDDEN
) -> b.Table:
    """Return the tensors of an EAGLE-1, EAGLE-2 or HASS drafter (facts/families 4)."""
    sizes: dict[str, tuple[int, ...]] = {"fc.weight": (hidden, 2 * hidden)}
    sizes |= {"fc.bias": (hidden,)} if bias else {}
    sizes |= {"embed_tokens.weight": (VOCAB, hidden)} if embed else {}
    for i in range(layers):
        p = f"layers.{i}."
        sizes |= {
            f"{p}self_attn.q_proj.weight": (HEADS * DIM, hidden),
            f"{p}self_attn.k_proj.weight": (KV * DIM, hidden),
            f"{p}self_attn.v_proj.weight": (KV * DIM, hidden),
            f"{p}self_attn.o_proj.weight": (hidden, HEADS * DIM),
            f"{p}mlp.gate_proj.weight": (INTER, hidden),
            f"{p}mlp.up_proj.weight": (INTER, hidden),
            f"{p}mlp.down_proj.weight": (hidden, INTER),
            f"{p}post_attention_layernorm.weight": (hidden,),
        }
        if i > 0:
            sizes[f"{p}input_layernorm.weight"] = (hidden,)
        if qkv_bias:
            sizes |= {f"{p}self_attn.{x}_proj.bias": (n * DIM,) for x, n in (("q", HEADS), ("k", KV), ("v", KV))}
    return {name: ("BF16", shape) for name, shape in sizes.items()}


def eagle1_config(**changes: Any) -> b.Config:
    """Return the config of an EAGLE-1 drafter: that of a plain llama model of one layer."""
    gone = dict.fromkeys(("draft_vocab_size", "eagle_config", "attention_bias", "mlp_bias"), ABSENT)
    return b.dense_config(**{"architectures": ["LlamaForCausalLM"]} | gone | changes)


def wrapped(config: b.Config) -> b.Config:
    """Return vLLM's wrapper of an EAGLE-1 config."""
    return {"model_type": "eagle", "model": config}


FIRST: dict[str, tuple[b.Config, b.Table]] = {
    "official: plain architecture": (eagle1_config(), eagle1()),
    "without its embedding": (eagle1_config(), eagle1(embed=False)),
    "bias: true": (eagle1_config(bias=True), eagle1()),
    "bias: false": (eagle1_config(bias=False), eagle1(bias=False)),
    "SGLang's name": (eagle1_config(architectures=["LlamaForCausalLMEagle"]), eagle1()),
    "vLLM's name": (eagle1_config(architectures=["EagleLlamaForCausalLM"]), eagle1()),
    "qwen2, with biases": (
        eagle1_config(architectures=["Qwen2ForCausalLMEagle"], model_type="qwen2", qkv_bias=True),
        eagle1(qkv_bias=True),
    ),
    "with the rotary buffer of old exports": (
        eagle1_config(),
        eagle1() | {"layers.0.self_attn.rotary_emb.inv_freq": ("F32", (DIM // 2,))},
    ),
    "two layers": (eagle1_config(num_hidden_layers=2), eagle1(layers=2)),
    "vLLM's wrapper": (wrapped(eagle1_config()), eagle1()),
    "context under its older key": (
        eagle1_config(max_position_embeddings=ABSENT, max_sequence_length=4096),
        eagle1(),
    ),
}


@pytest.mark.parametrize("name", FIRST)
def test_first_eagle_passes(name: str, tmp_path: Path) -> None:
    config, table = FIRST[name]
    here = b.write(tmp_path / "drafter", config, table)
    report = b.check(str(here), b.given(*LLAMA, b.TARGET))
    assert b.codes(report) == set(), b.text(report)
    assert (report.verdict, report.sides[0].contract) == ("pass", "eagle1")


FIRST_WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], set[str], list[str]]] = {
    "no bias of fc": ({}, {"fc.bias": None}, {"TEN401"}, ["fc.bias", "[64]", "required because fc_bias"]),
    "bias of fc, declared not to be": ({"bias": False}, {}, {"TEN405"}, ["fc.bias", "absent unless fc_bias"]),
    "fc of three layers, as in EAGLE-3": (
        {}, {"fc.weight": ("BF16", (64, 192))}, {"TEN403"}, ["[64, 128]", "observed [64, 192]"],
    ),
    "norm before the first layer": (
        {}, {"layers.0.input_layernorm.weight": ("BF16", (64,))}, {"TEN405"}, ["layers.0.input_layernorm.weight"],
    ),
    "final norm": ({}, {"norm.weight": ("BF16", (64,))}, {"TEN405"}, ["norm.weight"]),
    "head": ({}, {"lm_head.weight": ("BF16", (512, 64))}, {"TEN405"}, ["lm_head.weight", "[512, 64]"]),
    "biases that are not declared": (
        {}, {f"layers.0.self_attn.{x}_proj.bias": ("BF16", (n * DIM,)) for x, n in (("q", 4), ("k", 2), ("v", 2))},
        {"TEN405"}, ["absent unless qkv_bias"],
    ),
    "declared biases that are not there": ({"qkv_bias": True}, {}, {"TEN401"}, ["q_proj.bias", "[176]", "[88]"]),
    "two layers declared, one there": (
        {"num_hidden_layers": 2}, {}, {"CFG308"}, ["2 layers", "1 in the file"],
    ),
    "model. names": (
        {}, {"model.layers.0.mlp.up_proj.weight": ("BF16", (INTER, 64)), "layers.0.mlp.up_proj.weight": None},
        {"TEN401", "TEN402"}, ["model.layers.0.mlp.up_proj.weight"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST_WRONG)
@pytest.mark.parametrize("wrap", [dict, wrapped])
def test_fault_of_a_first_eagle_has_its_code(name: str, wrap: Any) -> None:
    changes, tensors, codes, words = FIRST_WRONG[name]
    report = b.pair(wrap(eagle1_config(**changes)), b.changed(eagle1(), tensors))
    assert b.codes(report) == codes, b.text(report)
    assert spoken(report, *words), b.text(report)


LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
SPARSE = {"n_routed_experts": 2, "n_shared_experts": 1, "moe_intermediate_size": 20}
ATTENTION: dict[str, tuple[int, ...]] = {
    "q_a_proj": (24, HIDDEN), "q_a_layernorm": (24,), "q_b_proj": (HEADS * 20, 24), "kv_a_proj_with_mqa": (24, HIDDEN),
    "kv_a_layernorm": (16,), "kv_b_proj": (HEADS * 22, 16), "o_proj": (HIDDEN, HEADS * 10),
}  # fmt: skip
MISTRAL = {
    "q_a_proj": "wq_a", "q_a_layernorm": "q_a_norm", "q_b_proj": "wq_b", "kv_a_proj_with_mqa": "wkv_a_with_mqa",
    "kv_a_layernorm": "kv_a_norm", "kv_b_proj": "wkv_b", "o_proj": "wo",
}  # fmt: skip


def norms(*names: str) -> b.Table:
    return {f"{name}.weight": ("BF16", (HIDDEN,)) for name in names}


def first_of(
    table: b.Table, more: b.Table, *, without: str = "", names: Mapping[str, str] | None = None
) -> b.Table:  # fmt: skip
    """Return the tensors of an EAGLE-1 drafter, some left out, all renamed, and others added."""
    kept = {name: row for name, row in table.items() if not (without and re.search(without, name))}
    for old, new in (names or {}).items():
        kept = {name.replace(old, new): row for name, row in kept.items()}
    return kept | more


PLAIN = eagle1(bias=False, embed=False)
LATENT_LAYER: b.Table = {f"layers.0.self_attn.{name}.weight": ("BF16", shape) for name, shape in ATTENTION.items()}
EXPERTS: b.Table = {
    f"layers.0.mlp.{part}.{name}_proj.weight": ("BF16", (20, HIDDEN) if name != "down" else (HIDDEN, 20))
    for part in ("experts.0", "experts.1", "shared_experts") for name in ("gate", "up", "down")
} | {"layers.0.mlp.gate.weight": ("BF16", (2, HIDDEN))}  # fmt: skip
THREE_NORMS = norms("enorm", "hnorm", "norm", "layers.0.input_layernorm")
OTHER_FIRST: dict[str, tuple[str, dict[str, Any], b.Table, str]] = {  # family, config, tensors, one of them
    "deepseek, dense": (
        "eagle1-mla", {"architectures": ["EagleDeepSeekMTPModel"], **LATENT},
        first_of(PLAIN, LATENT_LAYER | THREE_NORMS, without="self_attn"),
        "enorm.weight",
    ),
    "deepseek, with experts, of a plain architecture": (
        "eagle1-mla", {"architectures": ["DeepseekV3ForCausalLM"], **LATENT, **SPARSE},
        first_of(PLAIN, LATENT_LAYER | EXPERTS | THREE_NORMS, without="self_attn|mlp"),
        "layers.0.mlp.experts.1.up_proj.weight",
    ),
    "mistral large 3": (
        "eagle1-mistral-large", {"architectures": ["MistralLarge3ForCausalLM"], **LATENT},
        first_of(
            PLAIN,
            norms("norm", "layers.0.attention_norm")
            | {f"layers.0.attention.{MISTRAL[name]}.weight": ("BF16", shape) for name, shape in ATTENTION.items()},
            without="self_attn",
            names={"fc.": "eagle_linear.", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
                   "mlp.down_proj": "feed_forward.w2", "post_attention_layernorm": "ffn_norm"},
        ),
        "layers.0.attention.wkv_b.weight",
    ),
    "minicpm": (
        "eagle1-minicpm", {"architectures": ["EagleMiniCPMForCausalLM"], "head_dim": ABSENT, "num_attention_heads": 4},
        {f"model.{name.replace('layers.', 'eagle_layers.')}": row for name, row in first_of(
            PLAIN,
            {f"layers.0.self_attn.{x}_proj.weight": ("BF16", shape)
             for x, shape in (("q", (64, 64)), ("k", (32, 64)), ("v", (32, 64)), ("o", (64, 64)))}
            | norms("input_norm1", "input_norm2", "norm", "layers.0.input_layernorm"),
        ).items()},
        "model.input_norm2.weight",
    ),
    "llama 4": (
        "eagle1-llama4", {"architectures": ["EagleLlama4ForCausalLM"], "intermediate_size_mlp": INTER},
        first_of(PLAIN, norms("norm", "layers.0.input_layernorm"), names={"mlp.": "feed_forward."}),
        "layers.0.feed_forward.up_proj.weight",
    ),
    "cohere": (
        "eagle1-cohere", {"architectures": ["EagleCohereForCausalLM"], "layer_norm_eps": 1e-5},
        {f"model.{name}": row for name, row in first_of(
            eagle1(embed=False), norms("norm", "layers.0.input_layernorm"), without="post_attention"
        ).items()},
        "model.fc.bias",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_FIRST)
def test_first_eagle_of_other_layers_passes_and_lacks_nothing(name: str) -> None:
    family, changes, table, one = OTHER_FIRST[name]
    config = eagle1_config(**changes)
    report = b.pair(config, table)
    turned = {"PAIR411 info"} if "kv_lora_rank" in changes else set()  # a Llama target turns its heads otherwise
    assert b.codes(report) == turned, b.text(report)
    assert (report.verdict, report.sides[0].contract) == ("pass", family)
    report = b.pair(config, b.changed(table, {one: None}))
    assert b.codes(report) == {"TEN401"} | turned, b.text(report)
    assert spoken(report, one), b.text(report)


def test_first_eagle_of_whole_model_names_is_no_serving_checkpoint() -> None:
    table = {f"model.{name}": row for name, row in eagle1().items()}
    report = b.pair(eagle1_config(architectures=["LlamaForCausalLMEagle"]), table)
    assert b.codes(report) == {"TEN406"}  # vLLM puts model. before them again, and reads none


@pytest.mark.parametrize("embed", [True, False])
def test_first_eagle_needs_a_target_of_its_own_width(embed: bool) -> None:
    report = b.pair(eagle1_config(), eagle1(embed=embed), b.target_config(hidden_size=80), b.target(hidden=80))
    assert b.codes(report) == {"PAIR401"} | (set() if embed else {"PAIR402"})
    assert spoken(report, "expected 80", "observed 64")


def test_first_eagle_is_for_one_vocabulary() -> None:
    report = b.pair(eagle1_config(), eagle1(), b.target_config(vocab_size=640), b.target(vocab=640))
    assert b.codes(report) == {"PAIR404"}
    assert spoken(report, "expected 640", "observed 512")


VICUNA = {  # SafeAILab/EAGLE train configs: architecture and model_type are those of any llama
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, "vocab_size": 32000,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "torch_dtype": "float16", "tie_word_embeddings": False,
}  # fmt: skip
VICUNAS = {
    "Vicuna 7B": {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32},
    "Vicuna 13B": {"hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40},
    "Vicuna 33B": {
        "hidden_size": 6656, "intermediate_size": 17920, "num_attention_heads": 52, "num_key_value_heads": 13,
        "max_sequence_length": 2048,
    },
    "Llama 2 70B": {
        "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
    },
    "Mixtral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "model_type": "mixtral",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VICUNAS)
def test_first_eagle_of_a_plain_config_is_told_by_its_tensors(name: str) -> None:
    config = VICUNA | VICUNAS[name]
    hidden = config["hidden_size"]
    table: b.Table = {"fc.weight": ("F16", (hidden, 2 * hidden)), "fc.bias": ("F16", (hidden,))}
    assert family_of(config, table) == "eagle1"
    assert family_of(config) == "TEN408"  # the config alone is that of any llama: it may be a drafter
    assert family_of(config, b.target()) == "PAIR422"  # these tensors are a target's


def test_first_eagle_and_eagle3_are_told_apart() -> None:
    plain = b.dense_config(architectures=["LlamaForCausalLM"])
    bare = b.edit(plain, {"draft_vocab_size": ABSENT, "eagle_config": ABSENT})
    for style in ("bare", "midlayer", "nested", "trainer"):
        assert family_of(plain, b.dense(style=style)) == "eagle3"
        assert family_of(bare, b.dense(style=style)) == "eagle3"
    lacking = b.changed(b.dense(style="bare"), {"layers.0.hidden_norm.weight": None})
    assert family_of(plain, lacking) == "eagle3"
    assert family_of(eagle1_config(), eagle1()) == "eagle1"
    assert family_of(eagle1_config(architectures=["LlamaForCausalLMEagle"])) == "eagle1"


# --- DFlash -------------------------------------------------------------------------------------------------------

TAPS = "dflash_config.target_layer_ids"
TRAINED = {"trained_on": b.FACTS["trained_on"]}  # the convention of the ids is the family's own


def dflash(
    *,
    layers: int = 2,
    taps: int = 5,
    hidden: int = HIDDEN,
    target_hidden: int = HIDDEN,
    heads: int = HEADS,
    kv: int = KV,
    dim: int = DIM,
    inter: int = INTER,
    bias: bool = False,
) -> b.Table:
    """Return the tensors of a DFlash drafter (facts/families 5)."""
    sizes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, taps * target_hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for i in range(layers):
        p = f"layers.{i}."
        sizes |= {
            f"{p}input_layernorm.weight": (hidden,),
            f"{p}post_attention_layernorm.weight": (hidden,),
            f"{p}self_attn.q_proj.weight": (heads * dim, hidden),
            f"{p}self_attn.k_proj.weight": (kv * dim, hidden),
            f"{p}self_attn.v_proj.weight": (kv * dim, hidden),
            f"{p}self_attn.o_proj.weight": (hidden, heads * dim),
            f"{p}self_attn.q_norm.weight": (dim,),
            f"{p}self_attn.k_norm.weight": (dim,),
            f"{p}mlp.gate_proj.weight": (inter, hidden),
            f"{p}mlp.up_proj.weight": (inter, hidden),
            f"{p}mlp.down_proj.weight": (hidden, inter),
        }
        if bias:
            ends = (("q", heads * dim), ("k", kv * dim), ("v", kv * dim), ("o", hidden))
            sizes |= {f"{p}self_attn.{x}_proj.bias": (n,) for x, n in ends}
    return {name: ("BF16", shape) for name, shape in sizes.items()}


def dflash_config(**changes: Any) -> b.Config:
    """Return a DFlash config as SpecForge writes it."""
    own = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "block_size": 16,
        "dflash_config": {"mask_token_id": 511, "target_layer_ids": [1, 3, 5, 7, 9]},
        "num_target_layers": LAYERS,
        "layer_types": ["full_attention", "full_attention"],
    }
    gone = dict.fromkeys(("draft_vocab_size", "eagle_config", "mlp_bias"), ABSENT)
    return b.dense_config(**gone | own | changes)


def block_pair(*sides: Any, facts: Mapping[str, Fact] = TRAINED) -> Report:
    return b.pair(*sides, facts=facts)


BLOCK: dict[str, tuple[b.Config, b.Table, tuple[b.Config, b.Table]]] = {
    "as SpecForge writes": (dflash_config(), dflash(), LLAMA),
    "one layer of the target": (dflash_config(**{TAPS: [6]}), dflash(taps=1), LLAMA),
    "layers of nobody's formula": (dflash_config(**{TAPS: [0, 2, 5, 8, 11]}), dflash(), LLAMA),
    "ids at the top level": (
        dflash_config(**{TAPS: ABSENT, "target_layer_ids": [1, 3, 5, 7, 9]}),
        dflash(),
        LLAMA,
    ),
    "mask token and block size at the other place": (
        dflash_config(mask_token_id=0, block_size=ABSENT, **{"dflash_config.block_size": 8}),
        dflash(),
        LLAMA,
    ),
    "depth of the target not stated": (dflash_config(num_target_layers=ABSENT), dflash(), LLAMA),
    "attention_bias": (dflash_config(attention_bias=True), dflash(bias=True), LLAMA),
    "tied to an embedding that is the target's": (dflash_config(tie_word_embeddings=True), dflash(), LLAMA),
    "its own embedding and head": (
        dflash_config(),
        dflash() | dict.fromkeys(("embed_tokens.weight", "lm_head.weight"), ("BF16", (VOCAB, HIDDEN))),
        LLAMA,
    ),
    "reduced vocabulary": (
        dflash_config(draft_vocab_size=DRAFT),
        dflash() | {"lm_head.weight": ("BF16", (DRAFT, HIDDEN)), "d2t": ("I64", (DRAFT,))},
        LLAMA,
    ),
    "wider target": (
        dflash_config(target_hidden_size=80),
        dflash(target_hidden=80) | {"embed_tokens.weight": ("BF16", (VOCAB, HIDDEN))},
        (b.target_config(hidden_size=80), b.target(hidden=80)),
    ),
}


@pytest.mark.parametrize("name", BLOCK)
def test_block_drafter_passes(name: str, tmp_path: Path) -> None:
    config, table, (base, base_table) = BLOCK[name]
    here = b.write(tmp_path / "drafter", config, table)
    report = b.check(str(here), b.given(base, base_table, b.TARGET), facts=TRAINED)
    assert b.codes(report) == set(), b.text(report)
    assert (report.verdict, report.sides[0].contract) == ("pass", "dflash")
    assert not [f for f in report.findings if f.code == "PAIR409"]  # there is no default to compare with


BLOCK_WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], set[str], list[str]]] = {
    "four ids for an fc of five": (
        {TAPS: [1, 3, 5, 7]}, {}, {"TEN403"}, ["[64, 256]", "observed [64, 320]", "if aux were 5"],
    ),
    "a layer twice": ({TAPS: [1, 3, 3, 7, 9]}, {}, {"PAIR407"}, ["a layer is named twice"]),
    "not ascending": ({TAPS: [9, 7, 5, 3, 1]}, {}, {"PAIR407"}, ["not ascending"]),
    "places that disagree": (
        {"target_layer_ids": [1, 3, 5, 7]}, {}, {"DIM401"}, ["config.json: len(dflash_config.", "observed 4"],
    ),
    "places one apart, in a family of one convention": (
        {"target_layer_ids": [2, 4, 6, 8, 10]}, {}, {"CFG309"}, ["[1, 3, 5, 7, 9] and [2, 4, 6, 8, 10]"],
    ),
    "target of another depth": ({"num_target_layers": 36}, {}, {"DIM401"}, ["target.layers", "36", "12"]),
    "mask token beyond the vocabulary": (
        {"dflash_config.mask_token_id": 512}, {}, {"CFG307"}, ["dflash_config.mask_token_id", "512"],
    ),
    "negative mask token": ({"dflash_config.mask_token_id": -1}, {}, {"CFG307"}, ["observed -1"]),
    "block of one": ({"block_size": 1}, {}, {"CFG307"}, ["block_size > 1", "masks after it"]),
    "no norm of queries": (
        {}, {"layers.1.self_attn.q_norm.weight": None}, {"TEN401"}, ["layers.1.self_attn.q_norm.weight", "[44]"],
    ),
    "no norm of the hidden states": ({}, {"hidden_norm.weight": None}, {"TEN401"}, ["hidden_norm.weight", "[64]"]),
    "bias that is not declared": (
        {}, {"layers.0.self_attn.o_proj.bias": ("BF16", (64,))}, {"TEN405"}, ["absent unless attention_bias"],
    ),
    "mask_hidden, which vLLM refuses": ({}, {"mask_hidden": ("BF16", (1, 1, 320))}, {"TEN402"}, ["mask_hidden"]),
    "reduced vocabulary without its head": (
        {"draft_vocab_size": DRAFT}, {"d2t": ("I64", (DRAFT,))}, {"PAIR406"}, ["[150, 64]"],
    ),
    "reduced vocabulary without its map": (
        {"draft_vocab_size": DRAFT}, {"lm_head.weight": ("BF16", (DRAFT, 64))}, {"PAIR405"}, ["[150]"],
    ),
    "a layer too few": ({"num_hidden_layers": 3}, {}, {"CFG308"}, ["3 layers", "2 in the file"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCK_WRONG)
def test_fault_of_a_block_drafter_has_its_code(name: str) -> None:
    changes, tensors, codes, words = BLOCK_WRONG[name]
    report = block_pair(dflash_config(**changes), b.changed(dflash(), tensors))
    assert b.codes(report) == codes, b.text(report)
    assert spoken(report, *words), b.text(report)


def test_block_drafter_on_a_target_of_another_width() -> None:
    report = block_pair(dflash_config(), dflash(), b.target_config(hidden_size=80), b.target(hidden=80))
    assert b.codes(report) == {"PAIR401", "PAIR402"}
    assert spoken(report, "[64, 400]", "[64, 320]")


def test_layers_that_were_trained_on_are_held_to() -> None:
    facts = TRAINED | {"aux_layers": Fact([0, 3, 5, 7, 9], "its card")}
    report = block_pair(dflash_config(), dflash(), facts=facts)
    assert b.codes(report) == {"PAIR409"}
    assert spoken(report, "expected [0, 3, 5, 7, 9] (its card)", "observed [1, 3, 5, 7, 9]")


def test_convention_that_the_family_does_not_have_is_not_taken() -> None:
    report = block_pair(dflash_config(), dflash(), facts=b.FACTS)
    assert b.codes(report) == {"PAIR408 unknown"}
    assert spoken(report, "one of output", "boundary (its card), which the family does not know")


# Reports of C_AUX_LAYERS (facts/bug-reports), with their numbers.


def qwen(layers: int, hidden: int = 2560, **more: Any) -> tuple[b.Config, b.Table]:
    config = b.target_config(hidden_size=hidden, num_hidden_layers=layers, **more)
    return config, b.target(hidden=hidden)


def block_of(hidden: int, ids: Any, **changes: Any) -> tuple[b.Config, b.Table]:
    own = {"hidden_size": hidden, TAPS: ids, "num_target_layers": ABSENT} | changes
    return dflash_config(**own), dflash(hidden=hidden, target_hidden=hidden, taps=len(ids) if ids else 5)


@pytest.mark.parametrize("ids", [ABSENT, None])
def test_c05_missing_ids_are_an_error_and_no_guess(ids: Any) -> None:
    config, _ = block_of(5120, [5, 19, 33, 47, 61])
    table = dflash(hidden=5120, target_hidden=5120)
    report = block_pair(b.edit(config, {TAPS: ids}), table, *qwen(64, 5120))
    assert b.codes(report) == {"CFG312", "PAIR409"}
    assert spoken(report, "fc.weight [5120, 25600] tells how many, 5, and not which", "the family has no default")
    assert "[1, 16, 31, 46, 61]" not in b.text(report)
    assert report.verdict == "fail"
    facts = TRAINED | {"aux_layers": Fact([5, 19, 33, 47, 61], "its training")}
    assert "[5, 19, 33, 47, 61] (its training)" in b.text(block_pair(b.edit(config, {TAPS: ids}), table, facts=facts))


@pytest.mark.parametrize("stated", [ABSENT, 36])
def test_c07_target_that_is_too_shallow(stated: Any) -> None:
    config, table = block_of(2560, [1, 9, 17, 25, 33], num_target_layers=stated)
    assert table["fc.weight"] == ("BF16", (2560, 12800))
    report = block_pair(config, table, *qwen(32))
    assert b.codes(report) == {"PAIR407"} | ({"DIM401"} if stated == 36 else set()), b.text(report)
    assert spoken(report, "the target's 32", "[1, 9, 17, 25, 33]: 33 is outside 0..31 (output)")
    assert b.codes(block_pair(config, table, *qwen(36))) == set()


def test_c08_id_that_counts_from_one() -> None:
    config, table = block_of(2560, [2, 13, 25, 36, 48])
    report = block_pair(config, table, *qwen(48))
    assert b.codes(report) == {"PAIR407"}
    assert spoken(report, "48 is outside 0..47 (output)")
    below = b.edit(config, {TAPS: [1, 12, 24, 35, 47]})
    assert b.codes(block_pair(below, table, *qwen(48))) == set()


@pytest.mark.parametrize(
    "key", ["dflash_config", TAPS, "block_size", "dflash_config.mask_token_id", "num_target_layers"]
)
def test_unpublished_key_of_a_block_drafter_is_never_a_pass(key: str) -> None:
    source = b.recorded(dflash_config(), dflash(), unknown=[key])
    report = b.check(source, b.given(*LLAMA, b.TARGET), facts=TRAINED)
    assert report.verdict == "unknown", b.text(report)


def test_no_layers_are_proposed_where_the_family_has_no_default() -> None:
    config, table = block_of(2560, [1, 9, 17, 25, 33])
    base, names = qwen(32)
    plan = adapt(b.given(config, table, b.DRAFTER), b.given(base, names, b.TARGET), b.LIBRARY).plan
    assert plan is not None
    assert not [c for c in plan.changes if "layer" in c.key]
    assert "PAIR407 would still not hold" in plan.headline


SPECFORGE = {  # sgl-project/SpecForge configs/*-dflash.json: hidden, layers, target layers, mask token, vocabulary, ids
    "lfm2.5-1.2b-instruct": (2048, 8, 16, 16, 65536, [1, 4, 7, 10, 13]),
    "longcat-flash": (6144, 5, 28, 2, 131072, [1, 7, 13, 19, 25]),
    "qwen2.5-0.5b": (896, 5, 24, 151669, 151936, [1, 6, 11, 16, 21]),
    "qwen3-4b": (2560, 5, 36, 151669, 151936, [1, 9, 17, 25, 33]),
    "qwen3-8b": (4096, 5, 36, 151669, 151936, [1, 9, 17, 25, 33]),
    "qwen3.5-35b-a3b": (2048, 8, 40, 248070, 248320, [1, 10, 19, 28, 37]),
    "qwen3.5-4b": (2560, 5, 32, 248070, 248320, [1, 8, 15, 22, 29]),
    "qwen3.6-27b": (5120, 5, 64, 248070, 248320, [1, 16, 31, 46, 61]),
}


@pytest.mark.parametrize("name", SPECFORGE)
def test_published_block_config_is_recognised_and_fits_its_target(name: str) -> None:
    hidden, layers, depth, mask, vocab, ids = SPECFORGE[name]
    config = dflash_config(
        hidden_size=hidden, num_hidden_layers=layers, num_target_layers=depth, vocab_size=vocab,
        dflash_config={"mask_token_id": mask, "target_layer_ids": ids}, layer_types=["full_attention"] * layers,
    )  # fmt: skip
    assert family_of(config) == "dflash"
    base = b.target_config(hidden_size=hidden, num_hidden_layers=depth, vocab_size=vocab)
    table = dflash(hidden=hidden, target_hidden=hidden, layers=layers)
    report = block_pair(config, table, base, b.target(hidden=hidden, vocab=vocab))
    assert b.codes(report) == set(), b.text(report)


SIBLINGS = {  # configs that share dflash_config: configs/qwen3-8b-domino.json, qwen3-8b-dspark.json; facts/families 5
    "domino": ("DominoDraftModel", {"projector_type": "domino", "emb_dim": 256, "gru_hidden_dim": 1024}, {}),
    "dspark": ("DSparkDraftModel", {"projector_type": "dspark", "markov_rank": 256}, {}),
    "dflash2": ("DFlash2DraftModel", {"conv_kernel_size": 4, "conv_group_size": 16, "selector_rank": 8}, {}),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_sibling_of_dflash_is_not_taken_for_it(name: str) -> None:
    architecture, inner, outer = SIBLINGS[name]
    changes = {"architectures": [architecture]} | {f"dflash_config.{k}": v for k, v in inner.items()} | outer
    assert family_of(dflash_config(**changes)) == name
    exported = changes | {"architectures": ["DFlashDraftModel"]}  # as Model-Optimizer writes it for all of them
    assert family_of(dflash_config(**exported)) == name
    assert family_of(dflash_config(), dflash() | {"markov_head.markov_w1.weight": ("BF16", (VOCAB, 8))}) == "dspark"


# --- every tensor of every family ---------------------------------------------------------------------------------

# a plain architecture is told from a whole model's by a tensor, which may be the one that is not there
SERVED = {"eagle1-mla": "EagleDeepSeekMTPModel", "eagle1-mistral-large": "EagleMistralLarge3ForCausalLM"}
EACH: dict[str, tuple[b.Config, b.Table]] = {
    "eagle3-speculators": (speculators_config(fc_norm=True), b.dense(style="bare", fc_norm=True, t2d=False)),
    "peagle": (peagle_config(num_hidden_layers=2), peagle(layers=2, t2d=False, later=())),
    "peagle-speculators": (
        parallel_config(**{f"{LAYER}.num_hidden_layers": 1, f"{LAYER}.model_type": "qwen3"}),
        peagle(layers=1, t2d=False, qk_norm=True),
    ),
    "eagle1": (
        eagle1_config(num_hidden_layers=2, qkv_bias=True, architectures=["LlamaForCausalLMEagle"]),
        eagle1(layers=2, qkv_bias=True, embed=False),
    ),
    "dflash": (dflash_config(attention_bias=True), dflash(bias=True)),
} | {
    family: (eagle1_config(**changes | {"architectures": [SERVED.get(family, *changes["architectures"])]}), table)
    for family, changes, table, _ in OTHER_FIRST.values()
}


@pytest.mark.parametrize("family", EACH)
def test_each_tensor_is_required_in_its_shape_and_dtype(family: str) -> None:
    config, table = EACH[family]
    assert family_of(config, table) == family
    facts = b.FACTS if family == "peagle" else TRAINED  # of P-EAGLE's own format both conventions are in use
    assert b.pair(config, table, facts=facts).verdict == "pass"
    for name, (dtype, shape) in table.items():
        wrong = [None, ("U8", shape), (dtype, (*shape, 1))]
        wrong += [(dtype, tuple(n + (k == axis) for k, n in enumerate(shape))) for axis in range(len(shape))]
        for row in wrong:
            report = b.pair(config, b.changed(table, {name: row}), facts=facts)
            assert report.verdict == "fail", (name, row, b.text(report))
            assert name in b.text(report), (name, row, b.text(report))


# --- sizes that are published -------------------------------------------------------------------------------------


def test_vicuna_13b_eagle3_has_the_published_number_of_parameters() -> None:
    config = b.dense_config(
        hidden_size=5120, num_attention_heads=40, num_key_value_heads=40, head_dim=ABSENT, intermediate_size=13824,
        vocab_size=32000, draft_vocab_size=ABSENT,
    )  # fmt: skip
    base = b.target_config(hidden_size=5120, vocab_size=32000, num_hidden_layers=40)
    assert parameters(config, base, "lm_head.weight") == 638_341_120 == 1_276_682_240 // 2


PUBLISHED_BLOCKS = {  # hidden, intermediate, layers, ids, target layers, parameters as published
    "z-lab/Kimi-K2.5-DFlash": (7168, 18432, 6, [1, 12, 24, 35, 47, 58], 61, 3_479_277_056),
    "z-lab/gemma-4-31B-it-DFlash": (5376, 10752, 5, [1, 12, 23, 35, 46, 57], 60, 1_535_967_488),
}


@pytest.mark.parametrize("name", PUBLISHED_BLOCKS)
def test_block_drafter_has_the_published_number_of_parameters(name: str) -> None:
    hidden, inter, layers, ids, depth, count = PUBLISHED_BLOCKS[name]
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128}
    config = dflash_config(
        hidden_size=hidden, intermediate_size=inter, num_hidden_layers=layers, num_target_layers=depth,
        dflash_config={"mask_token_id": 1, "target_layer_ids": ids}, **heads,
    )  # fmt: skip
    base = b.target_config(hidden_size=hidden, num_hidden_layers=depth)
    assert parameters(config, base) == count
    hand = dflash(
        layers=layers, taps=len(ids), hidden=hidden, target_hidden=hidden, heads=64, kv=8, dim=128, inter=inter
    )
    assert sum(math.prod(shape) for _, shape in hand.values()) == count
    assert b.codes(block_pair(config, hand, base, b.target(hidden=hidden))) == set()


# --- the same name, another meaning -------------------------------------------------------------------------------


def meaning_of(facts: dict[str, b.Fact], **config: Any) -> dict[str, Any]:
    """Return what is said of meanings, of a good EAGLE-3 drafter with these facts."""
    own = {k: v for k, v in b.FACTS.items() if not k.startswith("meanings.")} | facts
    report = b.pair(b.dense_config(**config), b.dense(), b.target_config(), b.target(), facts=own)
    return {f.subject: f for f in report.findings if f.code == "PAIR423" and f.level != "pass"}


def test_flag_that_two_trainers_mean_differently_must_be_declared() -> None:
    assert meaning_of({}) == {}
    (said,) = meaning_of({}, norm_output=True).values()
    assert said.level == "unknown"
    assert "recycles-the-normed-state, norms-before-the-head-only" in said.expected
    assert meaning_of({"meanings.norm_output": b.Fact("recycles-the-normed-state", "card")}, norm_output=True) == {}
    (said,) = meaning_of(
        {"meanings.norm_output": b.Fact("norms-before-the-head-only", "card")}, norm_output=True
    ).values()
    assert said.level == "error"
    assert said.observed == "norms-before-the-head-only (card)"
    assert meaning_of({"meanings.norm_output": b.Fact("norms-before-the-head-only", "card")}) == {}


def test_absolute_draft_ids_declared_for_a_family_of_offsets_fail() -> None:
    (said,) = meaning_of({"meanings.draft_ids": b.Fact("absolute", "card")}).values()
    assert (said.level, said.subject, said.observed) == ("error", "draft_ids", "absolute (card)")
    assert said.expected.startswith("offsets (contract eagle3)")


def test_block_drafter_without_a_head_takes_the_targets_whatever_its_config_states() -> None:
    config = dflash_config(draft_vocab_size=dflash_config()["vocab_size"])
    report = block_pair(config, dflash(), b.target_config(), b.target())
    assert not [f for f in report.findings if f.code == "PAIR418"], b.text(report)


def test_meaning_that_is_declared_against_the_tensors_fails() -> None:
    table = b.dense(layers=2, later=("input_layernorm",))
    for value, level in (("input_layernorm", "pass"), ("hidden_norm", "error")):
        facts = b.FACTS | {"meanings.later_norm": b.Fact(value, "card")}
        report = b.pair(b.dense_config(num_hidden_layers=2), table, b.target_config(), b.target(), facts=facts)
        (said,) = [f for f in report.findings if f.subject == "later_norm"]
        assert said.level == level
    assert said.expected == "input_layernorm (tensor layers.1.input_layernorm.weight)"


def test_heads_that_draft_in_parallel_are_asked_for_by_the_config() -> None:
    shapes = {"weight": (b.HIDDEN, b.HIDDEN), "bias": (b.HIDDEN,)}
    heads: b.Table = {
        f"parallel_draft_heads.{i}.medusa_layers.0.linear.{part}": ("BF16", shape)
        for i in range(2)
        for part, shape in shapes.items()
    }
    heads["parallel_draft_heads.lm_head.weight"] = ("BF16", (b.DRAFT, b.HIDDEN))
    sides = (b.target_config(), b.target())
    good = b.pair(b.dense_config(parallel_draft_step=3), b.dense() | heads, *sides)
    assert b.codes(good) == set(), b.text(good)
    short = {name: row for name, row in heads.items() if ".1." not in name}
    report = b.pair(b.dense_config(parallel_draft_step=3), b.dense() | short, *sides)
    assert b.codes(report) == {"TEN401"}
    assert "parallel_draft_heads.1.medusa_layers.0.linear.weight" in b.text(report)
    assert b.codes(b.pair(b.dense_config(), b.dense() | heads, *sides)) == {"TEN402", "TEN405"}


def test_numbered_midlayers_are_a_dialect_of_their_own() -> None:
    table = {name.replace("layers.", "midlayer."): row for name, row in b.dense(style="bare", layers=2).items()}
    report = b.pair(b.dense_config(num_hidden_layers=2), table, b.target_config(), b.target())
    assert b.codes(report) == set(), b.text(report)
    assert report.sides[0].dialect == "midlayer-numbered"
