"""One thing wrong at a time gives exactly the code for it, with the numbers that a person needs to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import builder as b
from builder import ABSENT, DIM, HEADS, HIDDEN, INTER, KV, VOCAB
from draftproof.conform import _wanted_types
from draftproof.contracts import Fact
from draftproof.library import Library

CONFIG, TABLE = b.dense_config(), b.dense(embed=True)
MLA, MLA_TABLE = b.mla_config(), b.mla()
NAN = float("nan")


def test_what_is_mutated_here_is_good_before() -> None:
    assert b.codes(b.pair(CONFIG, TABLE)) == set()
    assert b.codes(b.pair(MLA, MLA_TABLE, b.deepseek_config())) == set()


# --- every tensor -------------------------------------------------------------------------------------------------

MISSING = {"lm_head.weight": {"PAIR406"}, "d2t": {"PAIR405"}, "t2d": set[str](), "embed_tokens.weight": set[str]()}
TENSORS = [("dense", name) for name in TABLE] + [("mla", name) for name in MLA_TABLE]


def judge(family: str, name: str, row: Any, more: Mapping[str, Any] | None = None) -> tuple[set[str], str]:
    config, table, base = (
        (CONFIG, TABLE, b.target_config()) if family == "dense" else (MLA, MLA_TABLE, b.deepseek_config())
    )
    report = b.pair(config, b.changed(table, {name: row, **(more or {})}), base)
    return b.codes(report), b.text(report)


def row_of(family: str, name: str) -> tuple[str, tuple[int, ...]]:
    return (TABLE if family == "dense" else MLA_TABLE)[name]


@pytest.mark.parametrize(("family", "name"), TENSORS)
def test_missing_tensor(family: str, name: str) -> None:
    codes, text = judge(family, name, None)
    assert codes == MISSING.get(name, {"TEN401"})
    assert not codes or (f"{name}:" in text and "not in the checkpoint" in text)


@pytest.mark.parametrize(("family", "name"), TENSORS)
def test_renamed_tensor_is_missing_and_unexpected(family: str, name: str) -> None:
    other = f"{name}s"
    codes, text = judge(family, name, None, {other: row_of(family, name)})
    assert codes == MISSING.get(name, {"TEN401"}) | {"TEN402"}
    assert f"{other}:" in text


@pytest.mark.parametrize("by", [1, -1])
@pytest.mark.parametrize(("family", "name"), TENSORS)
def test_dim_one_too_large_or_small(family: str, name: str, by: int) -> None:
    dtype, shape = row_of(family, name)
    for axis, size in enumerate(shape):
        wrong = (*shape[:axis], size + by, *shape[axis + 1 :])
        codes, text = judge(family, name, (dtype, wrong))
        assert codes == {"TEN403"}
        assert f"= {list(shape)}" in text
        assert f"observed {list(wrong)}" in text


@pytest.mark.parametrize(("family", "name"), [(f, n) for f, n in TENSORS if len(row_of(f, n)[1]) == 2])
def test_transposed_tensor(family: str, name: str) -> None:
    dtype, shape = row_of(family, name)
    codes, text = judge(family, name, (dtype, shape[::-1]))
    assert codes == {"TEN403"}
    assert "note the tensor is transposed" in text


@pytest.mark.parametrize(("family", "name"), TENSORS)
def test_tensor_of_another_rank(family: str, name: str) -> None:
    dtype, shape = row_of(family, name)
    for wrong in ((*shape, 1), (1, *shape), ()):
        assert judge(family, name, (dtype, wrong))[0] == {"TEN403"}


@pytest.mark.parametrize("dtype", ["I64", "U8", "F8_E4M3", "F64"])
@pytest.mark.parametrize(("family", "name"), TENSORS)
def test_tensor_of_another_dtype(family: str, name: str, dtype: str) -> None:
    right, shape = row_of(family, name)
    codes, text = judge(family, name, (dtype, shape))
    assert codes == ({"TEN404"} if dtype != right else set())
    assert f"observed {dtype}" in text or dtype == right


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("name", ["d2t", "t2d"])
def test_map_of_floats_is_one_fault(name: str, dtype: str) -> None:
    codes, text = judge("dense", name, (dtype, TABLE[name][1]))
    assert codes == {"TEN404"}
    assert f"observed {dtype}" in text


@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_weight_of_another_float_than_declared_is_a_warning(dtype: str) -> None:
    codes, text = judge("dense", "midlayer.mlp.up_proj.weight", (dtype, (INTER, HIDDEN)))
    assert codes == {"CFG309 warning"}
    assert f"9 tensors bfloat16, 1 tensors float{dtype[1:]}" in text  # matrices; norms may be wider


# --- every config key ---------------------------------------------------------------------------------------------

# What a value of the wrong JSON type, or out of any range, gives; the same for all keys of a type.
TYPED: Mapping[str, Mapping[str, tuple[Any, str]]] = {
    "size": {
        "text": ("4096", "CFG304"), "float": (64.0, "CFG304"), "true": (True, "CFG304"), "list": ([64], "CFG304"),
        "negative": (-1, "CFG305"), "zero": (0, "CFG305"), "huge": (10**12, "CFG305"), "nan": (NAN, "CFG306"),
    },
    "bool": {
        "text": ("true", "CFG304"), "float": (1.0, "CFG304"), "one": (1, "CFG304"), "list": ([True], "CFG304"),
        "negative": (-1, "CFG304"), "nan": (NAN, "CFG306"),
    },
    "float": {
        "text": ("1e-5", "CFG304"), "true": (True, "CFG304"), "list": ([1e-5], "CFG304"), "huge": (1e300, "CFG305"),
        "nan": (NAN, "CFG306"), "infinite": (float("inf"), "CFG306"),
    },
    "str": {
        "float": (1.0, "CFG304"), "true": (True, "CFG304"), "list": (["a"], "CFG304"), "nan": (NAN, "CFG306"),
        "negative": (-1, "CFG304"),
    },
    "texts": {
        "text": ("LlamaForCausalLMEagle3", "CFG304"), "true": (True, "CFG304"), "inside": ([1], "CFG304"),
        "empty": ([], "CFG305"), "nan": (NAN, "CFG306"),
    },
    "ints": {
        "text": ("2", "CFG304"), "integer": (2, "CFG304"), "true": (True, "CFG304"), "inside": ([2, 6.0, 9], "CFG304"),
        "text inside": ([2, "6", 9], "CFG304"), "true inside": ([2, True, 9], "CFG304"),
        "null inside": ([2, None, 9], "CFG304"),
        "empty": ([], "CFG305"), "huge": ([2, 6, 10**12], "CFG305"), "nan": (NAN, "CFG306"),
    },
    "ids": {
        "text": ("1", "CFG304"), "float": (1.0, "CFG304"), "true": (True, "CFG304"), "inside": (["1"], "CFG304"),
        "empty": ([], "CFG305"), "nan": (NAN, "CFG306"),
    },
    "object": {
        "text": ("yarn", "CFG304"), "true": (True, "CFG304"), "list": ([], "CFG304"), "nan": (NAN, "CFG306"),
        "negative": (-1, "CFG304"),
    },
}  # fmt: skip
NOTHING: set[str] = set()
NO_LAYERS = {"PAIR408 unknown", "PAIR409 warning"}
# key -> type, what its absence gives, what null gives
KEYS: Mapping[str, tuple[str, set[str], set[str]]] = {
    "architectures": ("texts", {"CFG312"}, {"CFG312"}),
    "model_type": ("str", NOTHING, NOTHING),
    "hidden_act": ("str", NOTHING, NOTHING),
    "hidden_size": ("size", {"CFG312"}, {"CFG312"}),
    "num_attention_heads": ("size", {"CFG312"}, {"CFG312"}),
    "num_key_value_heads": ("size", {"TEN403"}, {"TEN403"}),
    "head_dim": ("size", {"TEN403"}, {"TEN403"}),
    "intermediate_size": ("size", {"CFG312"}, {"CFG312"}),
    "num_hidden_layers": ("size", {"CFG312"}, {"CFG312"}),
    "vocab_size": ("size", {"CFG312"}, {"CFG312"}),
    "draft_vocab_size": ("size", {"DIM401"}, {"DIM401"}),
    "target_hidden_size": ("size", NOTHING, NOTHING),
    "num_aux_hidden_states": ("size", NOTHING, NOTHING),
    "max_position_embeddings": ("size", {"CFG312"}, {"CFG312"}),
    "rms_norm_eps": ("float", {"CFG314 warning"}, {"CFG314 warning"}),
    "rope_theta": ("float", {"CFG314 warning", "PAIR411 info"}, {"CFG314 warning", "PAIR411 info"}),
    "rope_scaling": ("object", NOTHING, NOTHING),
    "rope_parameters": ("object", NOTHING, NOTHING),
    "rope_interleave": ("bool", NOTHING, NOTHING),
    "partial_rotary_factor": ("float", NOTHING, NOTHING),
    "tie_word_embeddings": ("bool", NOTHING, NOTHING),
    "attention_bias": ("bool", NOTHING, NOTHING),
    "mlp_bias": ("bool", NOTHING, NOTHING),
    "bias": ("bool", NOTHING, NOTHING),
    "fc_norm": ("bool", NOTHING, NOTHING),
    "use_aux_norm": ("bool", NOTHING, NOTHING),
    "norm_before_fc": ("bool", NOTHING, NOTHING),
    "norm_output": ("bool", NOTHING, NOTHING),
    "dtype": ("str", NOTHING, NOTHING),
    "torch_dtype": ("str", NOTHING, NOTHING),
    "bos_token_id": ("ids", NOTHING, NOTHING),
    "eos_token_id": ("ids", NOTHING, NOTHING),
    "pad_token_id": ("ids", NOTHING, NOTHING),
    "quantization_config": ("object", NOTHING, NOTHING),
    "compression_config": ("object", NOTHING, NOTHING),
    "eagle_config": ("object", NO_LAYERS, NO_LAYERS | {"CFG325 warning"}),
    "eagle_config.use_aux_hidden_state": ("bool", NOTHING, NOTHING),
    "eagle_config.norm_before_fc": ("bool", NOTHING, NOTHING),
    "eagle_config.eagle_aux_hidden_state_layer_ids": ("ints", NO_LAYERS, {"PAIR408 unknown", "PAIR409 info"}),
    "eagle_aux_hidden_state_layer_ids": ("ints", NOTHING, NOTHING),
    "parallel_draft_step": ("size", NOTHING, NOTHING),
    "parallel_draft_heads_num_layers": ("size", NOTHING, NOTHING),
    "eagle_config.parallel_draft_step": ("size", NOTHING, NOTHING),
    "eagle_config.parallel_draft_heads_num_layers": ("size", NOTHING, NOTHING),
    "speculators_config": ("object", NOTHING, NOTHING),
    "speculators_config.verifier": ("object", NOTHING, NOTHING),
    "speculators_config.verifier.name_or_path": ("str", NOTHING, NOTHING),
}
TARGET_KEYS: Mapping[str, tuple[str, set[str]]] = {
    "hidden_size": ("size", {"CFG312"}),
    "num_attention_heads": ("size", {"CFG312"}),
    "head_dim": ("size", NOTHING),
    "num_hidden_layers": ("size", {"CFG312"}),
    "vocab_size": ("size", {"CFG312"}),
    "max_position_embeddings": ("size", {"CFG312"}),
    "tie_word_embeddings": ("bool", NOTHING),
    "rms_norm_eps": ("float", NOTHING),
    "rope_theta": ("float", {"PAIR411 info"}),
    "rope_scaling": ("object", NOTHING),
    "rope_parameters": ("object", NOTHING),
    "rope_interleave": ("bool", NOTHING),
    "partial_rotary_factor": ("float", NOTHING),
    "dtype": ("str", NOTHING),
    "torch_dtype": ("str", NOTHING),
    "bos_token_id": ("ids", NOTHING),
    "eos_token_id": ("ids", NOTHING),
    "pad_token_id": ("ids", NOTHING),
    "quantization_config": ("object", NOTHING),
    "compression_config": ("object", NOTHING),
}
BAD = [(key, kind, name) for key, (kind, *_) in KEYS.items() for name in TYPED[kind]]
BAD_TARGET = [(key, kind, name) for key, (kind, *_) in TARGET_KEYS.items() for name in TYPED[kind]]


def test_every_key_that_the_contracts_read_is_mutated_here() -> None:
    family, target = b.LIBRARY.get("family", "eagle3")[0], b.LIBRARY.get("target", "llama")[0]
    assert set(_wanted_types(family, "drafter")) == set(KEYS)
    assert set(_wanted_types(target, "target")) == set(TARGET_KEYS)


@pytest.mark.parametrize(("key", "kind", "name"), BAD)
def test_value_of_the_wrong_type_or_range_gives_that_one_code(key: str, kind: str, name: str) -> None:
    value, code = TYPED[kind][name]
    report = b.pair(b.edit(CONFIG, {key: value}), TABLE)
    assert b.codes(report) == {code}
    assert f"drafter config.json: {key}" in b.text(report)
    assert report.exit_code == 1


@pytest.mark.parametrize(("key", "kind", "name"), BAD_TARGET)
def test_value_of_the_wrong_type_or_range_in_a_target(key: str, kind: str, name: str) -> None:
    value, code = TYPED[kind][name]
    report = b.pair(CONFIG, TABLE, b.edit(b.target_config(), {key: value}))
    assert b.codes(report) == {code}
    assert f"target config.json: {key}" in b.text(report)


@pytest.mark.parametrize("key", KEYS)
def test_absent_key(key: str) -> None:
    report = b.pair(b.edit(CONFIG, {key: ABSENT}), TABLE)
    assert b.codes(report) == KEYS[key][1]
    if {"CFG312"} & KEYS[key][1]:
        assert f"{key}: config key is missing" in b.text(report)


@pytest.mark.parametrize("key", [key for key in KEYS if "." not in key or key.startswith("eagle_config")])
def test_null_key(key: str) -> None:
    assert b.codes(b.pair(b.edit(CONFIG, {key: None}), TABLE)) == KEYS[key][2]


@pytest.mark.parametrize("value", [ABSENT, None])
@pytest.mark.parametrize("key", TARGET_KEYS)
def test_absent_or_null_key_of_a_target(key: str, value: Any) -> None:
    assert b.codes(b.pair(CONFIG, TABLE, b.edit(b.target_config(), {key: value}))) == TARGET_KEYS[key][1]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("64", ['observed "64" (text)', "write 64"]),
        (64.0, ["observed 64.0 (a float)", "write 64"]),
        (True, ["observed true (a boolean)", "expected an integer"]),
        (-64, ["observed -64 (an integer)", "expected 1 to 2147483647"]),
        (2**31, ["observed 2147483648 (an integer)", "expected 1 to 2147483647"]),
        (NAN, ["observed NaN (a float)"]),
    ],
)
def test_wrong_value_is_shown_with_its_type_and_what_to_write(value: Any, words: list[str]) -> None:
    text = b.text(b.pair(b.edit(CONFIG, {"hidden_size": value}), TABLE))
    assert "config.json: hidden_size" in text
    assert not [word for word in words if word not in text]


# --- one fault at a time: what a person changes -------------------------------------------------------------------

IDS, TOP = "eagle_config.eagle_aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"
QUANT = {"quant_method": "fp8"}
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
FULL_TABLE = b.dense(draft=VOCAB, maps=False)
O_BIAS = {"midlayer.self_attn.o_proj.bias": ("BF16", (HIDDEN,))}
PACKED = {
    "midlayer.mlp.up_proj.weight": None,
    "midlayer.mlp.up_proj.weight_packed": ("I32", (INTER, 8)),
    "midlayer.mlp.up_proj.weight_scale": ("BF16", (INTER, 2)),
}
EIGHT_BITS = {
    name: row
    for name, (_, shape) in TABLE.items() if "_proj." in name
    for name, row in ((name, ("F8_E4M3", shape)), (f"{name}_scale", ("F32", (1,))))
}  # fmt: skip
EMBED = "model.embed_tokens.weight"

Fault = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], set[str], list[str]]
# name -> changes to the drafter's config and tensors, to the target's, the codes, the words of the answer
FAULTS: Mapping[str, Fault] = {
    # dims that shape tensors
    "hidden size halved": (
        {"hidden_size": 32}, {}, {}, {}, {"DIM401"}, ["32 (drafter config.json: hidden_size)", "64 (tensor"],
    ),
    "intermediate size of the target": (
        {"intermediate_size": 160}, {}, {}, {}, {"DIM401"}, ["160 (drafter config.json: intermediate_size)",
        "96 (tensor"],
    ),
    "heads doubled": ({"num_attention_heads": 8}, {}, {}, {}, {"TEN403"}, [f"{HEADS * DIM}", "heads were 4"]),
    "heads that do not divide": (
        {"num_attention_heads": 3}, {}, {}, {}, {"CFG307", "TEN403"}, ["query heads must divide evenly"],
    ),
    "key-value heads of the target": (
        {"num_key_value_heads": 4}, {}, {}, {}, {"TEN403"}, ["kv_heads were 2", "[176, 128]"],
    ),
    "odd head_dim": ({"head_dim": 43}, {}, {}, {}, {"CFG307", "TEN403"}, ["rotary embedding pairs the dims"]),
    "layers of the target in the drafter's config": (
        {"num_hidden_layers": 36}, {}, {}, {}, {"CFG308"}, ["36 layers (drafter config.json: num_hidden_layers)",
        "1 in the file: 0"],
    ),
    "second layer that the config does not count": (
        {}, {n: r for n, r in b.dense(layers=2).items() if ".1." in n}, {}, {}, {"CFG308"}, ["1 layers",
        "2 in the file: 0, 1"],
    ),
    "second layer that the file lacks": (
        {"num_hidden_layers": 2}, {}, {}, {}, {"CFG308"}, ["2 layers", "1 in the file: 0"],
    ),
    # flags against tensors
    "fc_norm said, not there": (
        {"fc_norm": True}, {}, {}, {}, {"TEN401"}, ["fc_norm.0.weight", "fc_norm.2.weight", "required because fc_norm"],
    ),
    "fc_norm there, not said": (
        {}, {f"fc_norm.{k}.weight": ("BF16", (HIDDEN,)) for k in range(3)}, {}, {}, {"TEN405"},
        ["absent unless fc_norm"],
    ),
    "fourth fc_norm": (
        {"fc_norm": True}, {f"fc_norm.{k}.weight": ("BF16", (HIDDEN,)) for k in range(4)}, {}, {}, {"TEN402"},
        ["i is 3"],
    ),
    "input_norm there, not said": (
        {}, {"input_norm.weight": ("BF16", (3 * HIDDEN,))}, {}, {}, {"TEN405"}, ["absent unless norm_before_fc"],
    ),
    "norms of queries in a llama drafter": (
        {}, {"midlayer.self_attn.q_norm.weight": ("BF16", (DIM,))}, {}, {}, {"TEN405"}, ["absent unless qk_norm"],
    ),
    "fc bias there, not said": ({}, {"fc.bias": ("BF16", (HIDDEN,))}, {}, {}, {"TEN405"}, ["fc.bias"]),
    "mlp bias there, not said": (
        {}, {"midlayer.mlp.up_proj.bias": ("BF16", (INTER,))}, {}, {}, {"TEN405"}, ["absent unless mlp_bias"],
    ),
    "attention bias said, not there": (
        {"attention_bias": True}, {}, {}, {}, {"TEN401"}, [f"[{HEADS * DIM}]", f"[{KV * DIM}]"],
    ),
    "bias of o_proj alone, not said": ({}, O_BIAS, {}, {}, {"TEN405"}, ["o_proj.bias"]),
    "fc and hidden_norm without aux states": (
        {"eagle_config": {"use_aux_hidden_state": False}}, {}, {}, {}, {"TEN405"}, ["fc.weight", "hidden_norm"],
    ),
    "buffer that a trainer left in": (
        {}, {"midlayer.self_attn.rotary_emb.inv_freq": ("F32", (22,))}, {}, {}, NOTHING, [],
    ),
    "names of two trainers": (
        {}, {"midlayer.hidden_norm.weight": None, "layers.0.hidden_norm.weight": ("BF16", (HIDDEN,))}, {}, {},
        {"TEN407"}, ["midlayer.", "layers.0.hidden_norm.weight"],
    ),
    # vocabularies
    "draft vocabulary beyond the target's": (
        {"draft_vocab_size": 600}, {"lm_head.weight": ("BF16", (600, HIDDEN)), "d2t": ("I64", (600,))}, {}, {},
        {"PAIR420"}, ["600", "512"],
    ),
    "target with another vocabulary": (
        {}, {}, {"vocab_size": 500}, {EMBED: ("BF16", (500, HIDDEN)), "lm_head.weight": ("BF16", (500, HIDDEN))},
        {"PAIR404"}, ["500 (target config.json: vocab_size)", "512 (drafter config.json: vocab_size)"],
    ),
    "target with a padded vocabulary": (
        {}, {}, {"vocab_size": 576}, {EMBED: ("BF16", (576, HIDDEN)), "lm_head.weight": ("BF16", (576, HIDDEN))},
        {"PAIR404"}, ["they differ by 64: padding rows, if both tokenizers are the same"],
    ),
    "reduced vocabulary, and no draft_vocab_size": (
        {"draft_vocab_size": ABSENT}, {}, {}, {}, {"DIM401"}, ["512 (drafter config.json: vocab_size)", "150 (tensor"],
    ),
    "head tied, and reduced": ({"tie_word_embeddings": True}, {}, {}, {}, {"CFG310"}, ["150", "512"]),
    # the target's states
    "target twice as wide": (
        {}, {"embed_tokens.weight": None}, {"hidden_size": 128}, b.target(hidden=128), {"PAIR401", "PAIR402"},
        ["[64, 384]", "width 128", "width 64"],
    ),
    "target_hidden_size of another target": (
        {"target_hidden_size": 72}, {"fc.weight": ("BF16", (HIDDEN, 216))}, {}, {}, {"PAIR401"},
        ["64 (target config.json: hidden_size)", "72 (drafter config.json: target_hidden_size)"],
    ),
    "narrower, without an embedding of its own": (
        {"target_hidden_size": 80}, {"fc.weight": ("BF16", (HIDDEN, 240)), "embed_tokens.weight": None},
        {"hidden_size": 80}, b.target(hidden=80), {"PAIR402"}, ["width 80", "width 64", "and none"],
    ),
    "fc for four states, and three declared": (
        {}, {"fc.weight": ("BF16", (HIDDEN, 256))}, {}, {}, {"TEN403"},
        ["[64, 3 * 64] = [64, 192]", "256 = 4 * 64: matches if aux were 4"],
    ),
    # aux layers
    "aux layers one short": ({IDS: [2, 6]}, {}, {}, {}, {"TEN403"}, ["aux were 3", "[64, 128]"]),
    "aux layers one more": (
        {IDS: [2, 4, 6, 9]}, {}, {}, {}, {"TEN403"}, ["aux were 3", "len(eagle_config.eagle_aux"],
    ),
    "aux layers in another order": (
        {IDS: [6, 2, 9]}, {}, {}, {}, {"PAIR407"}, ["[6, 2, 9]: the order is not ascending"],
    ),
    "aux layer twice": ({IDS: [2, 6, 6]}, {}, {}, {}, {"PAIR407"}, ["[2, 6, 6]: a layer is named twice"]),
    "aux layer negative": ({IDS: [-1, 6, 9]}, {}, {}, {}, {"PAIR407"}, ["-1 is outside 0..12 (boundary)"]),
    "aux layer beyond the target": ({IDS: [2, 6, 13]}, {}, {}, {}, {"PAIR407"}, ["13 is outside 0..12 (boundary)"]),
    "aux layers of a deeper target": (
        {IDS: [2, 18, 33]}, {}, {}, {}, {"PAIR407"}, ["18, 33 are outside 0..12", "the target's 12"],
    ),
    "aux layers that are nobody's default": (
        {IDS: [2, 5, 9]}, {}, {}, {}, {"PAIR409 warning"}, ["boundary: [2, 6, 9]", "output: [1, 5, 8]", "[2, 5, 9]"],
    ),
    "aux layers of the other convention than declared": (
        {IDS: [1, 5, 8]}, {}, {}, {}, {"PAIR409 warning"}, ["output-style default for 12 layers"],
    ),
    "two keys that name other layers": ({TOP: [2, 5, 8]}, {}, {}, {}, {"CFG309"}, ["[2, 6, 9] and [2, 5, 8]"]),
    "two keys of other lengths": ({TOP: [2, 6]}, {}, {}, {}, {"DIM401"}, ["3 (drafter", "2 (drafter"]),
    "a number of layers that is not the list's": (
        {"num_aux_hidden_states": 4}, {}, {}, {}, {"DIM401"}, ["4 (drafter", "3 (drafter"],
    ),
    # context
    "context shorter than the target's": (
        {"max_position_embeddings": 2048}, {}, {}, {}, {"PAIR403"}, ["at least 4096", "2048", "SGLang 0.5.23 refuses"],
    ),
    "context one short": ({"max_position_embeddings": 4095}, {}, {}, {}, {"PAIR403"}, ["4095"]),
    "context longer": ({"max_position_embeddings": 8192}, {}, {}, {}, NOTHING, []),
    # special tokens
    "eos outside the vocabulary": ({"eos_token_id": 512}, {}, {}, {}, {"CFG331"}, ["0 to 511", "observed 512"]),
    "another eos": ({"eos_token_id": 3}, {}, {}, {}, {"PAIR410 warning"}, ["[2] (target)", "[3]"]),
    "one of the target's eos": ({"eos_token_id": 2}, {}, {"eos_token_id": [2, 3]}, {}, NOTHING, []),
    "another pad": ({"pad_token_id": 5}, {}, {}, {}, {"PAIR410 info"}, ["[0] (target)", "[5]"]),
    # rope
    "another theta": ({"rope_theta": 10000.0}, {}, {}, {}, {"PAIR411 info"}, ["theta 500000", "theta 10000"]),
    "theta in two places, not the same": (
        {"rope_parameters": {"rope_theta": 10000.0}}, {}, {}, {}, {"CFG309"}, ["500000.0", "10000.0"],
    ),
    "factor in two places, not the same": (
        {"rope_scaling": YARN, "rope_parameters": {**YARN, "factor": 64.0}}, {}, {}, {}, {"CFG309"}, ["32.0", "64.0"],
    ),
    "rope type that is a number": (
        {"rope_scaling": {"rope_type": 4, "factor": 2.0}}, {}, {}, {}, {"CFG304"}, ["rope type", "expected text", "4"],
    ),
    "factor below zero": (
        {"rope_scaling": {"type": "linear", "factor": -4}}, {}, {}, {}, {"CFG305"}, ["a number above 0", "-4"],
    ),
    "factor as text": (
        {"rope_scaling": {**YARN, "factor": "4"}}, {}, {}, {}, {"CFG304"}, ["rope factor", "a number", '"4"'],
    ),
    "factor of the target as text": ({}, {}, {"rope_scaling": {**YARN, "factor": "4"}}, {}, {"CFG304"}, ['"4"']),
    "theta below zero inside rope_parameters": (
        {"rope_theta": ABSENT, "rope_parameters": {"rope_theta": -5.0}}, {}, {}, {}, {"CFG305"}, ["rope theta", "-5.0"],
    ),
    "scaling that only the target has": ({}, {}, {"rope_scaling": YARN}, {}, {"PAIR411 info"}, ["yarn, factor 32"]),
    "another scaling than the target's": (
        {"rope_scaling": {"rope_type": "llama3", "factor": 32.0}}, {}, {"rope_scaling": YARN}, {},
        {"PAIR411 warning"}, ["yarn", "llama3"],
    ),
    "partial rotary copied from the target": (
        {"partial_rotary_factor": 0.5}, {}, {"partial_rotary_factor": 0.5}, {},
        {"PAIR412 unknown"}, ["0.5", "it is the target's own: was it copied?"],
    ),
    "partial rotary copied, inside rope_parameters": (
        {"rope_parameters": {"partial_rotary_factor": 0.5}}, {}, {"rope_parameters": {"partial_rotary_factor": 0.5}},
        {}, {"PAIR412 unknown"}, ["rope_parameters.partial_rotary_factor", "was it copied?"],
    ),
    "partial rotary of its own": ({"partial_rotary_factor": 0.5}, {}, {}, {}, {"PAIR412 unknown"}, ["0.5"]),
    "partial rotary that only the target has": ({}, {}, {"partial_rotary_factor": 0.5}, {}, NOTHING, []),
    # norms, dtypes, quantisation
    "another epsilon": ({"rms_norm_eps": 1e-6}, {}, {}, {}, {"PAIR413 info"}, ["1e-05 (target)", "1e-06 (drafter)"]),
    "dtype against torch_dtype": (
        {"dtype": "float16"}, {}, {}, {}, {"CFG309", "CFG309 warning", "PAIR414 warning"},
        ["dtype = float16 and torch_dtype = bfloat16"],
    ),
    "dtype that is not the stored one": (
        {"torch_dtype": "float16"}, {}, {}, {}, {"CFG309 warning", "PAIR414 warning"},
        ["10 tensors bfloat16", "expected float16"],
    ),
    "drafter of another dtype": (
        {"torch_dtype": "float16"}, {n: ("F16", s) for n, (d, s) in TABLE.items() if d == "BF16"}, {}, {},
        {"PAIR414 warning"}, ["float16", "bfloat16 (target config.json: torch_dtype)"],
    ),
    "quantised target": ({}, {}, {"quantization_config": QUANT}, {}, {"PAIR415 info"}, ["fp8"]),
    "both quantised": (
        {"quantization_config": QUANT}, EIGHT_BITS, {"quantization_config": QUANT}, {}, NOTHING, [],
    ),
    "drafter of packed weights that says so": (
        {"quantization_config": {"quant_method": "compressed-tensors"}}, PACKED, {}, {},
        {"CFG341"}, ["config_groups"],
    ),
    "drafter of packed weights of a scheme that is not known": (
        {"quantization_config": {"quant_method": "own-way"}}, PACKED, {}, {},
        {"CFG340 unknown", "TEN401 unknown", "TEN402 unknown"}, ["quantised (own-way)"],
    ),
    "drafter of packed weights that does not say so": ({}, PACKED, {}, {}, {"TEN418"}, ["weight_packed"]),
    # where it comes from
    "another verifier declared": (
        {"speculators_config": {"verifier": {"name_or_path": "org/other"}}}, {}, {}, {}, {"PAIR416 warning"},
        ["org/other", "org/target"],
    ),
    "the verifier declared": (
        {"speculators_config": {"verifier": {"name_or_path": "Org/Target"}}}, {}, {}, {}, NOTHING, [],
    ),
    "architecture of another family": ({"architectures": ["LlamaForCausalLMEagle"]}, {}, {}, {}, {"CFG315"},
        ["LlamaForCausalLMEagle", "did you mean 'LlamaForCausalLMEagle3'?"]),
    # the target's own tensors
    "target without an embedding": ({}, {}, {}, {EMBED: None}, {"TEN401"}, [f"target {EMBED}"]),
    "target whose embedding has another width": (
        {}, {}, {}, {EMBED: ("BF16", (VOCAB, 63))}, {"TEN403"}, [f"target {EMBED}", "[512, 63]"],
    ),
    "target without a head, not tied": ({}, {}, {}, {"lm_head.weight": None}, {"TEN401"}, ["target lm_head.weight"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault_gives_exactly_its_codes_and_numbers(name: str) -> None:
    config, tensors, base, base_tensors, codes, words = FAULTS[name]
    report = b.pair(
        b.edit(CONFIG, config), b.changed(TABLE, tensors),
        b.edit(b.target_config(), base), b.changed(b.target(), base_tensors),
    )  # fmt: skip
    text = b.text(report)
    assert b.codes(report) == codes, text
    assert not [word for word in words if word not in text], text
    fails = any(" " not in code for code in codes)
    assert report.verdict == ("fail" if fails else "unknown" if any("unknown" in c for c in codes) else "pass")


def test_no_lm_head_at_full_vocabulary_with_draft_vocab_size_declared() -> None:
    table = b.dense(draft=VOCAB, maps=False, head=False)
    report = b.pair(b.edit(CONFIG, {"draft_vocab_size": VOCAB}), table)
    assert b.codes(report) == {"PAIR418"}
    assert "no tensor, draft_vocab_size = 512" in b.text(report)
    assert b.codes(b.pair(b.edit(CONFIG, {"draft_vocab_size": VOCAB}), b.dense(draft=VOCAB, maps=False))) == set()


@pytest.mark.parametrize("first", ["midlayer.self_attn.k_proj.weight", "fc.weight", "norm.weight", "lm_head.weight"])
def test_order_of_the_file_never_matters(first: str) -> None:
    table = {first: TABLE[first], **TABLE}
    report = b.pair(b.edit(CONFIG, {"hidden_size": ABSENT}), table)
    assert b.codes(report) == {"CFG312"}
    assert "the tensors say 64" in b.text(report)


def test_tensor_of_another_family_makes_it_another_family() -> None:
    assert b.pair(CONFIG, TABLE).sides[0].contract == "eagle3"
    report = b.pair(CONFIG, b.changed(TABLE, {"mask_hidden": ("BF16", (1, 1, 3 * HIDDEN))}))
    assert report.sides[0].contract == "peagle"
    assert b.codes(report) == set()


@pytest.mark.parametrize("layers", [0, 2])
def test_latent_drafter_has_one_layer(layers: int) -> None:
    report = b.pair(b.mla_config(num_hidden_layers=layers), MLA_TABLE, b.deepseek_config())
    assert b.codes(report) == ({"CFG305"} if layers == 0 else {"CFG307", "CFG308"})


@pytest.mark.parametrize("key", ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"])
@pytest.mark.parametrize("name", TYPED["size"])
def test_rank_of_latent_attention_of_the_wrong_type(key: str, name: str) -> None:
    value, code = TYPED["size"][name]
    report = b.pair(b.edit(MLA, {key: value}), MLA_TABLE, b.deepseek_config())
    assert b.codes(report) == {code}
    assert f"drafter config.json: {key}" in b.text(report)


@pytest.mark.parametrize(
    ("key", "codes", "tensor"),
    [
        ("q_lora_rank", {"TEN403"}, "self_attn.q_a_proj.weight"),
        ("kv_lora_rank", {"TEN403"}, "self_attn.kv_b_proj.weight"),
        ("qk_nope_head_dim", {"TEN403"}, "self_attn.q_b_proj.weight"),
        ("qk_rope_head_dim", {"TEN403"}, "self_attn.kv_a_proj_with_mqa.weight"),
        ("v_head_dim", {"TEN403"}, "self_attn.o_proj.weight"),
    ],
)
def test_rank_of_latent_attention_one_too_large(key: str, codes: set[str], tensor: str) -> None:
    report = b.pair(b.edit(MLA, {key: MLA[key] + 2}), MLA_TABLE, b.deepseek_config())
    assert b.codes(report) - {"DIM401"} == codes or b.codes(report) == {"DIM401"}
    assert key in b.text(report)
    assert str(MLA[key]) in b.text(report)


# --- what is declared beyond the files ----------------------------------------------------------------------------


def declared(**facts: Any) -> dict[str, Fact]:
    return {**b.FACTS, **{name: Fact(value, "its card") for name, value in facts.items()}}


@pytest.mark.parametrize(
    ("facts", "changes", "codes", "words"),
    [
        (declared(aux_layers=[2, 6, 9]), {}, set(), []),
        (declared(aux_layers=[2, 5, 9]), {}, {"PAIR409"}, ["[2, 5, 9] (its card)", "observed [2, 6, 9]"]),
        (declared(aux_layers=[2, 5, 9]), {IDS: [2, 5, 9]}, set(), []),
        (declared(aux_layers=[2, 6, 9]), {"eagle_config": ABSENT}, set(), []),
        (
            declared(aux_layers=[3, 6, 8]),
            {"eagle_config": ABSENT},
            {"PAIR409"},
            ["[3, 6, 8]", "engines capture [2, 6, 9]"],
        ),
        (declared(aux_convention="output"), {IDS: [1, 5, 8]}, set(), []),
        (declared(aux_convention="output"), {IDS: [1, 5, 12]}, {"PAIR407"}, ["12 is outside 0..11 (output)"]),
        (declared(aux_convention="output"), {}, {"PAIR409 warning"}, ["boundary-style default"]),
        (declared(trained_context=2048), {}, {"PAIR403 warning"}, ["trained at 2048 tokens (its card)", "4096"]),
        (declared(trained_context=4096), {}, set(), []),
        (declared(trained_context=2048), {"max_position_embeddings": 2048}, {"PAIR403"}, ["trained at 2048 tokens"]),
        (declared(partial_rotary_factor=0.5), {}, {"PAIR412"}, ["0.5 (its card)", "observed 1"]),
        (declared(partial_rotary_factor=0.5), {"partial_rotary_factor": 0.5}, set(), []),
        (declared(partial_rotary_factor=1.0), {"partial_rotary_factor": 0.5}, {"PAIR412"}, ["1.0 (its card)"]),
        (declared(trained_on="org/other"), {}, {"PAIR417 unknown"}, ["org/other (its card)", "relation unknown"]),
        (
            {"aux_convention": Fact("boundary", "x")},
            {},
            {"PAIR417 unknown"},
            ["the target it was trained on is not declared"],
        ),
        ({"trained_on": Fact(b.TARGET, "x")}, {}, {"PAIR408 unknown"}, ["[2, 6, 9] is the boundary-style default"]),
    ],
)
def test_declared_fact(facts: dict[str, Fact], changes: dict[str, Any], codes: set[str], words: list[str]) -> None:
    report = b.pair(b.edit(CONFIG, changes), TABLE, facts=facts)
    assert b.codes(report) == codes, b.text(report)
    assert not [word for word in words if word not in b.text(report)], b.text(report)


@pytest.mark.parametrize(
    ("trained", "target", "relation"),
    [
        ("org/a", "org/a", ""),
        ("Org/A", "org/a", ""),
        ("org/a", "org/a-tuned", "fine-tune of it"),
        ("org/a", "org/a-fp8", "quantised of it"),
        ("org/a", "org/a-tuned-fp8", "fine-tune of it"),
        ("org/a-fp8", "org/a", "it is a quantised of this target"),
        ("org/a-tuned", "org/a-fp8", "both come from org/a"),
        ("org/a", "org/unheard-of", "relation unknown"),
    ],
)
def test_lineage(tmp_path: Any, trained: str, target: str, relation: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    rows = [("a-tuned", "a", "fine-tune"), ("a-fp8", "a", "quantised"), ("a-tuned-fp8", "a-tuned", "quantised")]
    for name, parent, kind in rows:
        (folder / f"org--{name}.toml").write_text(
            f'schema = 1\nkind = "model"\nid = "org--{name}"\nrepo = "org/{name}"\n'
            f'[lineage]\nparent = "org/{parent}"\nrelation = "{kind}"\nsource = "its card"\n'
        )
    library = b.Library(tmp_path)
    drafter, base = b.given(CONFIG, TABLE, b.DRAFTER), b.given(b.target_config(), b.target(), target)
    report = b.check(drafter, base, facts=declared(trained_on=trained), library=library)
    assert b.codes(report) == ({"PAIR417 unknown"} if relation else set()), b.text(report)
    assert relation in b.text(report)
    assert report.verdict == ("unknown" if relation else "pass")


# --- which is which -----------------------------------------------------------------------------------------------


def test_swapped_roles_are_seen() -> None:
    report = b.check(b.given(b.target_config(), b.target(), b.TARGET), b.given(CONFIG, TABLE, b.DRAFTER))
    assert b.codes(report) == {"PAIR422", "PAIR422 unknown"}, b.text(report)
    assert "a target (llama)" in b.text(report)
    assert "a drafter (eagle3)" in b.text(report)
    assert [f.message for f in report.findings if f.level == "error"] == [
        "this is not a drafter",
        "this is not a target",
    ]
    assert report.exit_code == 1


@pytest.mark.parametrize(("config", "table"), [(CONFIG, TABLE), (MLA, MLA_TABLE)], ids=["dense", "mla"])
def test_drafter_given_as_target_is_seen(config: b.Config, table: b.Table) -> None:
    report = b.check(b.given(CONFIG, TABLE, b.DRAFTER), b.given(config, table, "org/other"))
    assert b.codes(report) == {"PAIR422", "PAIR422 unknown"}, b.text(report)
    assert "a drafter" in b.text(report)


def test_target_given_twice_is_not_two_models(tmp_path: Any) -> None:
    folder = b.write(tmp_path / "one", CONFIG, TABLE)
    for other in (folder, tmp_path / "." / "one", str(folder) + "/"):
        report = b.check(folder, other)
        assert b.codes(report) == {"SRC118", "PAIR422 unknown"}
        assert report.exit_code == 2


def test_link_to_the_same_folder_is_not_another_model(tmp_path: Any) -> None:
    folder = b.write(tmp_path / "one", CONFIG, TABLE)
    (tmp_path / "two").symlink_to(folder)
    assert "SRC118" in b.codes(b.check(folder, tmp_path / "two"))


def test_model_of_no_known_family_is_unknown_not_a_pass() -> None:
    report = b.pair({"architectures": ["RwkvForCausalLM"], "model_type": "rwkv"}, {"emb.weight": ("BF16", (8, 8))})
    assert b.codes(report) == {"TEN408 unknown", "PAIR422 unknown"}
    assert "RwkvForCausalLM" in b.text(report)
    assert (report.verdict, report.exit_code) == ("unknown", 4)


# --- public reports, rebuilt with their numbers -------------------------------------------------------------------


def large(**changes: Any) -> b.Config:
    """Return the config of a drafter for an 8B Llama."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
             "intermediate_size": 14336, "vocab_size": 128256, "draft_vocab_size": 32000,
             "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29],
             "use_aux_hidden_state": True}}  # fmt: skip
    return b.dense_config(**sizes | changes)


def scaled(config: Mapping[str, Any], aux: int = 3, base: int = 0, **more: Any) -> b.Table:
    """Return the tensors for a config, of any size."""
    h, heads, kv, dim, inter = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads",
                                                    "head_dim", "intermediate_size"))  # fmt: skip
    vocab = config["vocab_size"]
    draft = config.get("draft_vocab_size") or vocab
    table = b.dense(hidden=h, target_hidden=base or h, heads=heads, kv=kv, dim=dim, aux=aux, draft=draft, vocab=vocab,
                    maps=draft < vocab, **more)  # fmt: skip
    swap = {b.INTER: inter}
    return {
        n: (d, tuple(swap.get(s, s) for s in shape)) if ".mlp." in n else (d, shape) for n, (d, shape) in table.items()
    }


def base_of(**changes: Any) -> tuple[b.Config, b.Table]:
    """Return a Llama target of any size."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
             "num_hidden_layers": 32, "vocab_size": 128256}  # fmt: skip
    config = b.target_config(**sizes | changes)
    return config, b.target(hidden=config["hidden_size"], vocab=config["vocab_size"])


def test_report_b05_map_shorter_than_the_draft_vocabulary() -> None:
    config = large()
    report = b.pair(config, scaled(config) | {"d2t": ("I64", (6054,))}, *base_of())
    assert b.codes(report) == {"TEN403"}
    assert "[draft_vocab] = [32000] observed [6054]" in b.text(report)


def test_report_b07_reduced_head_is_by_design() -> None:
    config = large()
    assert scaled(config)["lm_head.weight"] == ("BF16", (32000, 4096))
    assert b.codes(b.pair(config, scaled(config), *base_of())) == set()


def test_report_c01_aux_layers_left_to_the_engine() -> None:
    sizes = {"hidden_size": 8192, "num_attention_heads": 64}
    config = large(**sizes, eagle_config=ABSENT)
    report = b.pair(config, scaled(config), *base_of(**sizes, num_hidden_layers=80))
    assert b.codes(report) == {"PAIR409 warning", "PAIR408 unknown"}
    assert "engines capture [2, 40, 77]" in b.text(report)
    assert report.verdict == "unknown"


def test_report_c07_aux_layer_beyond_the_target() -> None:
    sizes = {"hidden_size": 2560, "vocab_size": 151936}
    config = large(**sizes, **{IDS: [1, 9, 17, 25, 33]})
    table = scaled(config, aux=5)
    assert table["fc.weight"] == ("BF16", (2560, 12800))
    report = b.pair(config, table, *base_of(**sizes))
    assert b.codes(report) == {"PAIR407"}
    assert "33 is outside 0..32" in b.text(report)
    assert "the target's 32" in b.text(report)


def test_report_c08_aux_layer_is_the_layer_count() -> None:
    config = large(**{IDS: [2, 24, 48]})
    facts = declared(aux_convention="output")
    report = b.pair(config, scaled(config), *base_of(num_hidden_layers=48), facts=facts)
    assert b.codes(report) == {"PAIR407"}
    assert "48 is outside 0..47 (output)" in b.text(report)


def test_report_c11_four_ids_and_fc_for_three() -> None:
    config = large(**{IDS: [2, 46, 91, 93], "norm_before_fc": True, "norm_output": True, "target_hidden_size": None})
    table = scaled(config, aux=3, input_norm=True)
    report = b.pair(config, table, *base_of(num_hidden_layers=94))
    assert b.codes(report) == {"TEN403"}
    assert "[4096, 16384] observed [4096, 12288]" in b.text(report)
    assert "12288 = 3 * 4096: matches if aux were 3" in b.text(report)


def test_report_d01_narrower_drafter_ships_its_embedding() -> None:
    config = large(hidden_size=6144, target_hidden_size=8192, **{IDS: [2, 40, 77]})
    table = scaled(config, base=8192, embed=True)
    assert table["fc.weight"] == ("BF16", (6144, 24576))
    target = base_of(hidden_size=8192, num_hidden_layers=80)
    assert b.codes(b.pair(config, table, *target)) == set()
    lacking = b.pair(config, b.changed(table, {"embed_tokens.weight": None}), *target)
    assert b.codes(lacking) == {"PAIR402"}
    assert "width 8192" in b.text(lacking)


def test_report_d08_converter_dropped_head_dim() -> None:
    config = large(hidden_size=5120, num_attention_heads=64, head_dim=128, **{IDS: [2, 32, 61]})
    table = scaled(config)
    report = b.pair(b.edit(config, {"head_dim": ABSENT}), table, *base_of(hidden_size=5120, num_hidden_layers=64))
    assert b.codes(report) == {"TEN403"}
    assert "head_dim=80 (default: hidden // heads" in b.text(report)
    assert "matches if head_dim were 128" in b.text(report)


def test_report_d10_plain_model_used_as_drafter() -> None:
    config = b.target_config(hidden_size=1024)
    table = {"model.embed_tokens.weight": ("BF16", (VOCAB, 1024)), "model.norm.weight": ("BF16", (1024,))}
    report = b.pair(config, table, *base_of(hidden_size=2048), family="eagle3")
    assert {"TEN401", "PAIR401", "PAIR402"} & b.codes(report)
    assert "fc.weight" in b.text(report)
    plain = b.pair(config, table, *base_of(hidden_size=2048))
    assert b.codes(plain) == {"PAIR422", "PAIR422 unknown"}


def test_report_e01_head_is_declared_and_not_there() -> None:
    sizes = {"hidden_size": 7168, "num_attention_heads": 64, "vocab_size": 163840}
    config = large(**sizes, draft_vocab_size=163840, **{IDS: [2, 30, 58]})
    base, base_table = base_of(**sizes, num_hidden_layers=61)
    report = b.pair(config, scaled(config, head=False), base, base_table)
    assert b.codes(report) == {"PAIR418"}
    assert "no tensor, draft_vocab_size = 163840" in b.text(report)
    assert b.codes(b.pair(config, scaled(config), base, base_table)) == set()


def test_report_e08_tied_head_of_a_reduced_vocabulary() -> None:
    sizes = {"hidden_size": 2560, "vocab_size": 151936}
    config = large(**sizes, tie_word_embeddings=True)
    report = b.pair(config, scaled(config, embed=True), *base_of(**sizes))
    assert b.codes(report) == {"CFG310"}
    assert "32000" in b.text(report)
    assert "151936" in b.text(report)


def test_report_e11_layers_without_what_makes_them_a_drafter() -> None:
    gone = {"fc.weight": None, "lm_head.weight": None, "d2t": None, "t2d": None, "layers.0.hidden_norm.weight": None}
    config = large()
    report = b.pair(config, b.changed(scaled(config, style="bare", embed=True), gone), *base_of())
    assert b.codes(report) == {"TEN401", "PAIR405", "PAIR406"}
    assert not [name for name in gone if name != "t2d" and name not in b.text(report)]


def test_report_h01_float16_head_for_an_8b_with_a_70b() -> None:
    config = large(torch_dtype="float16")
    report = b.pair(config, scaled(config, dtype="F16"), *base_of(hidden_size=8192))
    assert b.codes(report) == {"PAIR401", "PAIR402", "PAIR414 warning"}
    assert "[4096, 24576]" in b.text(report)
    assert "float16" in b.text(report)


def test_report_h02_float16_with_bfloat16() -> None:
    config = large(torch_dtype="float16")
    report = b.pair(config, scaled(config, dtype="F16"), *base_of())
    assert b.codes(report) == {"PAIR414 warning"}


@pytest.mark.parametrize("report", ["I01", "I05"])
def test_report_i01_i05_context_of_the_training_template(report: str) -> None:
    config = large(max_position_embeddings=2048)
    made = b.pair(config, scaled(config), *base_of(max_position_embeddings=40960))
    assert b.codes(made) == {"PAIR403"}
    assert "at least 40960 tokens" in b.text(made)
    assert "observed 2048" in b.text(made)
    assert "the length it was trained at is not declared" in b.text(made)


def test_report_i07_theta_only_in_rope_parameters() -> None:
    spelled = {"rope_parameters": {"rope_theta": 5000000.0, "rope_type": "default"}}
    config = large(rope_theta=ABSENT, **spelled)
    same = b.pair(config, scaled(config), *base_of(rope_theta=5000000.0))
    assert b.codes(same) == set()
    other = b.pair(config, scaled(config), *base_of(rope_theta=10000.0))
    assert b.codes(other) == {"PAIR411 info"}
    assert "theta 5000000" in b.text(other)


def test_report_i10_another_scaling_than_the_target() -> None:
    config = large(rope_theta=150000, rope_scaling={"rope_type": "llama3"})
    base, table = base_of(rope_theta=150000, rope_scaling=YARN)
    report = b.pair(config, scaled(config), base, table)
    assert b.codes(report) == {"PAIR411 warning"}
    assert "yarn, factor 32" in b.text(report)
    assert "llama3" in b.text(report)


def test_report_j02_norms_that_the_config_does_not_name() -> None:
    config = large()
    there = b.pair(config, scaled(config, fc_norm=True), *base_of())
    assert b.codes(there) == {"TEN405"}
    assert "fc_norm.0.weight" in b.text(there)
    said = b.pair(b.edit(config, {"fc_norm": True}), scaled(config), *base_of())
    assert b.codes(said) == {"TEN401"}


def test_report_j07_biases_of_another_architecture() -> None:
    config = large(attention_bias=False)
    report = b.pair(config, scaled(config, style="bare", attention_bias=True), *base_of())
    assert b.codes(report) == {"TEN405"}
    assert "layers.0.self_attn.q_proj.bias" in b.text(report)


def test_report_k17_full_vocabulary_head_without_maps_is_good() -> None:
    config = large(draft_vocab_size=128256, **{IDS: None})
    facts = declared(aux_layers=[2, 16, 29])
    report = b.pair(config, scaled(config), *base_of(), facts=facts)
    assert b.codes(report) == set(), b.text(report)
    assert report.verdict == "pass"
    undeclared = b.pair(config, scaled(config), *base_of())
    assert b.codes(undeclared) == {"PAIR409 info", "PAIR408 unknown"}


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "base_model.model.", "_fsdp_wrapped_module."])
@pytest.mark.parametrize("style", ["midlayer", "bare"])
def test_wrapper_around_every_name_is_one_finding(prefix: str, style: str) -> None:
    table = {prefix + name: row for name, row in b.dense(style=style).items()}
    report = b.pair(CONFIG, table)
    assert b.codes(report) == {"TEN406"}
    assert f"{prefix}fc.weight" in b.text(report)


@pytest.mark.parametrize("architecture", ["PaliGemmaForConditionalGeneration", "InternVLChatModel"])
def test_target_of_another_architecture_is_not_taken_for_one_with_like_names(architecture: str) -> None:
    text = {**b.target_config(), "model_type": "other"}
    config = {"architectures": [architecture], "model_type": "other", "text_config": text}
    report = b.pair(CONFIG, TABLE, config, {f"language_model.{n}": row for n, row in b.target().items()})
    assert b.codes(report) == {"TEN410 unknown", "PAIR422 unknown"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float16"}, ["dtype = float16", "torch_dtype = bfloat16"]),
        ({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2.0}}, ["rope type", "linear", "yarn"]),
        ({"rope_parameters": {"rope_theta": 10000.0}}, ["rope theta", "500000.0", "10000.0"]),
    ],
)
def test_contradiction_of_a_drafter_with_itself_needs_no_target(changes: b.Config, words: list[str]) -> None:
    report = b.pair(b.edit(CONFIG, changes), TABLE)
    (conforms,) = [s for s in report.sections if s.rung == "conforms"]
    (told,) = [f for f in conforms.findings if f.level == "error"]
    assert told.code == "CFG309"
    assert not [word for word in words if word not in f"{told.subject} {told.expected} {told.observed}"]
    assert not [f for s in report.sections if s.rung != "conforms" for f in s.findings if f.code == "CFG309"]


@pytest.mark.parametrize("key", ["model_type", "hidden_act"])
def test_text_that_is_empty_says_nothing(key: str) -> None:
    report = b.pair(b.edit(CONFIG, {key: ""}), TABLE)
    assert b.codes(report) == {"CFG305"}
    assert "text that is not empty" in b.text(report)


# --- what only a contract of its own, or a second copy, shows ------------------------------------------------------


def test_tensor_in_two_spellings_is_named_with_both() -> None:
    name, twin = "midlayer.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"
    report = b.pair(CONFIG, b.changed(TABLE, {twin: TABLE[name]}))
    assert b.codes(report) == {"TEN407", "TEN411"}
    assert f"TEN411 drafter {twin}: two tensors have the same canonical name" in b.text(report)
    assert f"observed {name} and {twin}" in b.text(report)


def test_rule_that_has_no_value_says_why(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    (tmp_path / "families" / "own.toml").write_text(
        'schema = 1\nkind = "family"\nid = "own"\ntitle = "t"\nsource = "s"\nextends = "eagle3"\n'
        '[config]\nintermediate_size = { check = "it // (heads - heads) > 0" }\n'
    )
    report = b.pair(CONFIG, TABLE, library=Library(tmp_path), family="own")
    assert b.codes(report) == {"DIM404"}
    assert "DIM404 drafter config.json: intermediate_size: expression has no value here" in b.text(report)
    assert "observed it // (heads - heads) divides by zero" in b.text(report)
