"""Quantised weights: each scheme as its producer stores it, and one fault at a time.

The storage below is written by hand from compressed-tensors, Model-Optimizer, Quark, AutoGPTQ, AutoAWQ and DeepSeek
layouts. It does not look at the scheme contracts, so that the two can disagree.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builder as b
import known_good
from draftproof import api
from draftproof.checkpoint import Table
from draftproof.container import Tensor
from draftproof.library import Library
from draftproof.quantised import LOGICAL, Declared, Entries, logical, names_module

Shape = tuple[int, ...]
Rows = dict[str, tuple[str, Shape]]  # suffix behind the module -> dtype, shape


def group(weights: Mapping[str, Any], inputs: Any = None, format: str = "", **more: Any) -> dict[str, Any]:
    """Return a quantization_config of compressed-tensors with one group."""
    one = {"targets": ["Linear"], "weights": dict(weights), "input_activations": inputs, "output_activations": None}
    return {
        "quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": one},
        "ignore": ["lm_head"], "kv_cache_scheme": None, "quantization_status": "compressed",
    } | more  # fmt: skip


INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, "actorder": None}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor", "dynamic": False}
TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
STATIC = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
FP4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
LOCAL = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "dynamic": "local"}
QUARK = {
    "quant_method": "quark",
    "exclude": ["lm_head", "fc"],
    "layer_quant_config": {},
    "layer_type_quant_config": {},
    "global_quant_config": {
        "weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False, "group_size": None},
        "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
        "output_tensors": None,
    },
}
QUARK_CHANNEL = b.edit(QUARK, {
    "global_quant_config.weight.qscheme": "per_channel", "global_quant_config.input_tensors.is_dynamic": True,
})  # fmt: skip
QUARK_MXFP4 = b.edit(QUARK, {
    "global_quant_config.weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "is_dynamic": False},
    "global_quant_config.input_tensors": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "is_dynamic": True},
})  # fmt: skip


def modelopt(algo: str, size: int | None = None) -> dict[str, Any]:
    """Return a quantization_config as Model-Optimizer writes it into config.json."""
    weights = {"dynamic": False, "num_bits": 8, "type": "float"} | ({"group_size": size} if size else {})
    return {
        "quant_method": "modelopt", "quant_algo": algo, "ignore": ["lm_head", "fc*"],
        "config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}},
        "producer": {"name": "modelopt", "version": "0.29.0"},
    }  # fmt: skip


def up(n: int, by: int) -> int:
    return -(-n // by)


def same(dtype: str, **beside: tuple[str, Shape]) -> Callable[[int, int], Rows]:
    return lambda out, into: {".weight": (dtype, (out, into))} | {f".{k}": v for k, v in beside.items()}


Store = Callable[[int, int], Rows]
# name -> what the config says, how a Linear [out, into] is stored, whether fc is too
GOOD: dict[str, tuple[dict[str, Any], Store, bool]] = {
    "int4 in groups": (group(INT4, format="pack-quantized"), lambda o, i: {
        ".weight_packed": ("I32", (o, i // 8)), ".weight_scale": ("BF16", (o, i // 32)), ".weight_shape": ("I64", (2,)),
    }, True),
    "int4 with zero points": (group(INT4 | {"symmetric": False}, format="pack-quantized"), lambda o, i: {
        ".weight_packed": ("I32", (o, i // 8)), ".weight_scale": ("BF16", (o, i // 32)), ".weight_shape": ("I64", (2,)),
        ".weight_zero_point": ("I32", (up(o, 8), i // 32)),
    }, True),
    "int4 reordered": (group(INT4 | {"actorder": "group"}, format="pack-quantized"), lambda o, i: {
        ".weight_packed": ("I32", (o, i // 8)), ".weight_scale": ("BF16", (o, i // 32)), ".weight_shape": ("I64", (2,)),
        ".weight_g_idx": ("I32", (i,)),
    }, True),
    "int4 with 8-bit activations": (
        group(INT4, {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}, "pack-quantized"),
        lambda o, i: {".weight_packed": ("I32", (o, i // 8)), ".weight_scale": ("BF16", (o, i // 32)),
                      ".weight_shape": ("I64", (2,))}, True,
    ),
    "int8 packed by channel": (
        group(INT4 | {"num_bits": 8, "strategy": "channel", "group_size": None}, format="pack-quantized"),
        lambda o, i: {".weight_packed": ("I32", (o, i // 4)), ".weight_scale": ("BF16", (o, 1)),
                      ".weight_shape": ("I64", (2,))}, True,
    ),
    "int3 packed": (group(INT4 | {"num_bits": 3}, format="pack-quantized"), lambda o, i: {
        ".weight_packed": ("I32", (o, i * 3 // 32)), ".weight_scale": ("F16", (o, i // 32)),
        ".weight_shape": ("I32", (2,)),
    }, True),
    "fp8 by tensor, static input": (
        group(FP8, STATIC, "float-quantized"), same("F8_E4M3", weight_scale=("F32", (1,)), input_scale=("F32", (1,))),
        True,
    ),
    "fp8 by channel": (
        group(FP8 | {"strategy": "channel"}, TOKEN, "float-quantized"),
        lambda o, i: {".weight": ("F8_E4M3", (o, i)), ".weight_scale": ("BF16", (o, 1))}, True,
    ),
    "fp8 by block": (
        group(FP8 | {"strategy": "block", "block_structure": [128, 48]}, TOKEN, "float-quantized"),
        lambda o, i: {".weight": ("F8_E4M3", (o, i)), ".weight_scale": ("BF16", (up(o, 128), up(i, 48)))}, True,
    ),
    "int8 by channel": (
        group({"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}, TOKEN, "int-quantized"),
        lambda o, i: {".weight": ("I8", (o, i)), ".weight_scale": ("F32", (o, 1))}, True,
    ),
    "nvfp4": (group(FP4, LOCAL, "nvfp4-pack-quantized"), lambda o, i: {
        ".weight_packed": ("U8", (o, i // 2)), ".weight_scale": ("F8_E4M3", (o, i // 16)),
        ".weight_global_scale": ("F32", (1,)), ".input_global_scale": ("F32", (1,)),
    }, True),
    "nvfp4, weights alone": (group(FP4, None, "nvfp4-pack-quantized"), lambda o, i: {
        ".weight_packed": ("U8", (o, i // 2)), ".weight_scale": ("F8_E4M3", (o, i // 16)),
        ".weight_global_scale": ("F32", (1,)),
    }, True),
    "mxfp4": (
        group(FP4 | {"strategy": "group", "group_size": 32}, None, "mxfp4-pack-quantized"),
        lambda o, i: {".weight_packed": ("U8", (o, i // 2)), ".weight_scale": ("U8", (o, i // 32))}, True,
    ),
    "DeepSeek blocks": (
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
        lambda o, i: {".weight": ("F8_E4M3", (o, i)), ".weight_scale_inv": ("F32", (up(o, 128), up(i, 128)))}, False,
    ),
    "fp8 by tensor": (
        {"quant_method": "fp8", "activation_scheme": "static"},
        same("F8_E4M3", weight_scale=("F32", ()), input_scale=("F32", ())), False,
    ),
    "modelopt fp8": (
        modelopt("FP8"), same("F8_E4M3", weight_scale=("F32", ()), input_scale=("F32", ())), False,
    ),
    "modelopt nvfp4": (modelopt("NVFP4", 16), lambda o, i: {
        ".weight": ("U8", (o, i // 2)), ".weight_scale": ("F8_E4M3", (o, i // 16)), ".weight_scale_2": ("F32", ()),
        ".input_scale": ("F32", ()),
    }, False),
    "modelopt w4a8": (modelopt("W4A8_AWQ", 32), lambda o, i: {
        ".weight": ("U8", (o // 2, i)), ".weight_scale": ("BF16", (o, i // 32)), ".weight_scale_2": ("F32", ()),
        ".input_scale": ("F32", ()), ".pre_quant_scale": ("BF16", (i,)),
    }, False),
    "modelopt mxfp8": (
        modelopt("MXFP8", 32),
        lambda o, i: {".weight": ("F8_E4M3", (o, i)), ".weight_scale": ("U8", (o, i // 32))}, False,
    ),
    "quark fp8": (QUARK, same("F8_E4M3", weight_scale=("F32", ()), input_scale=("F32", ())), False),
    "quark fp8 by channel": (
        QUARK_CHANNEL, lambda o, i: {".weight": ("F8_E4M3", (o, i)), ".weight_scale": ("F32", (o,))}, False,
    ),
    "quark mxfp4": (
        QUARK_MXFP4, lambda o, i: {".weight": ("U8", (o, i // 2)), ".weight_scale": ("U8", (o, i // 32))}, False,
    ),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}, lambda o, i: {
        ".qweight": ("I32", (i // 8, o)), ".qzeros": ("I32", (i // 32, o // 8)), ".scales": ("F16", (i // 32, o)),
        ".g_idx": ("I32", (i,)),
    }, False),
    "gptq by channel": ({"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": True}, lambda o, i: {
        ".qweight": ("I32", (i // 4, o)), ".qzeros": ("I32", (1, o // 4)), ".scales": ("F16", (1, o)),
        ".g_idx": ("I32", (i,)),
    }, False),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}, lambda o, i: {
        ".qweight": ("I32", (i, o // 8)), ".qzeros": ("I32", (i // 32, o // 8)), ".scales": ("F16", (i // 32, o)),
    }, False),
    "8 bits of bitsandbytes": (
        {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False},
        lambda o, i: {".weight": ("I8", (o, i)), ".SCB": ("F32", (o,)), ".weight_format": ("U8", ())}, False,
    ),
    "w4afp8": (
        {"quant_method": "w4afp8"},
        lambda o, i: {".weight": ("F8_E4M3", (o, i)), ".weight_scale_inv": ("F32", (up(o, 128), up(i, 128)))}, False,
    ),
}  # fmt: skip
# a head is 32 wide here, so that every group size divides every width
CONFIG = b.dense_config(head_dim=32, intermediate_size=128)
PLAIN = {
    name: (dtype, tuple(128 if n == b.INTER else n for n in shape)) for name, (dtype, shape) in b.dense(dim=32).items()
}
UP = "midlayer.mlp.up_proj"  # [128, 64]


def stored(store: Store, fc: bool, plain: b.Table = PLAIN) -> b.Table:
    """Return a drafter's tensors with every Linear stored as a scheme does."""
    out: b.Table = {}
    for name, (dtype, shape) in plain.items():
        if "_proj." in name or (fc and name == "fc.weight"):
            out |= {name.removesuffix(".weight") + suffix: row for suffix, row in store(*shape).items()}
        else:
            out[name] = (dtype, shape)
    return out


def check(quant: Any, table: b.Table, **config: Any) -> Any:
    base = b.target_config()
    return b.pair(b.edit(CONFIG, {"quantization_config": quant} | config), table, base)


@pytest.mark.parametrize("name", GOOD)
def test_quantised_drafter_as_its_producer_stores_it_has_nothing_wrong(name: str) -> None:
    quant, store, fc = GOOD[name]
    report = check(quant, stored(store, fc))
    assert b.codes(report) == set(), b.text(report)
    seen = [f for f in report.findings if f.code == "TEN403" and f.subject.endswith(f"{UP}.weight")]
    assert [f.message for f in seen] == ["quantised [128, 64]"]


@pytest.mark.parametrize("name", GOOD)
def test_each_part_that_a_scheme_needs_is_missed_by_name(name: str) -> None:
    quant, store, fc = GOOD[name]
    table = stored(store, fc)
    optional = {".weight_format", ".pre_quant_scale"} | ({".g_idx"} if quant.get("desc_act") is False else set())
    for suffix in store(128, 64):
        report = check(quant, b.changed(table, {f"{UP}{suffix}": None}))
        codes = b.codes(report)
        assert codes == (set() if suffix in optional else {"TEN414"}), (suffix, b.text(report))
        assert f"{UP}{suffix}" in b.text(report) or suffix in optional


@pytest.mark.parametrize("name", GOOD)
def test_each_part_of_another_shape_is_one_finding_with_both_shapes(name: str) -> None:
    quant, store, fc = GOOD[name]
    table = stored(store, fc)
    for suffix, (dtype, shape) in store(128, 64).items():
        wrong = (*shape[:-1], shape[-1] * 2) if shape else (3,)
        report = check(quant, b.changed(table, {f"{UP}{suffix}": (dtype, wrong)}))
        said = [f for f in b.against(report) if f.level == "error"]
        if suffix in (".weight", ".weight_packed", ".qweight"):  # another width, or other scales: either is said
            assert said, suffix
            assert {f.code for f in said} <= {"TEN403", "TEN415", "TEN419"}
        else:
            assert [f.code for f in said] == ["TEN415"], (suffix, b.text(report))
            assert str(list(wrong)) in b.text(report)
            assert f"{UP}{suffix}" in b.text(report)


@pytest.mark.parametrize("name", GOOD)
def test_each_part_of_another_dtype_is_one_finding(name: str) -> None:
    quant, store, fc = GOOD[name]
    table = stored(store, fc)
    for suffix, (dtype, shape) in store(128, 64).items():
        if suffix == ".weight_format":
            continue
        report = check(quant, b.changed(table, {f"{UP}{suffix}": ("BOOL", shape)}))
        assert b.codes(report) == {"TEN416"}, (suffix, b.text(report))
        assert dtype in b.text(report)
        assert "observed BOOL" in b.text(report)


@pytest.mark.parametrize("name", GOOD)
def test_one_weight_left_plain_is_one_finding_unless_it_is_ignored(name: str) -> None:
    quant, store, fc = GOOD[name]
    table = {n: row for n, row in stored(store, fc).items() if not n.startswith(f"{UP}.")}
    table[f"{UP}.weight"] = ("BF16", (128, 64))
    report = check(quant, table)
    assert b.codes(report) == {"TEN417"}, b.text(report)
    assert f"{UP}.weight" in b.text(report)
    assert "BF16 [128, 64]" in b.text(report)
    key = next((k for k in ("ignore", "exclude") if k in quant), "modules_to_not_convert")
    key = "llm_int8_skip_modules" if quant["quant_method"] == "bitsandbytes" else key
    quiet = quant | {key: [*quant.get(key, []), UP]}
    assert b.codes(check(quiet, table)) == set(), b.text(check(quiet, table))


@pytest.mark.parametrize("name", GOOD)
def test_a_quantised_weight_that_is_named_as_ignored_is_one_finding(name: str) -> None:
    quant, store, fc = GOOD[name]
    key = next((k for k in ("ignore", "exclude") if k in quant), "modules_to_not_convert")
    key = "llm_int8_skip_modules" if quant["quant_method"] == "bitsandbytes" else key
    report = check(quant | {key: [*quant.get(key, []), UP]}, stored(store, fc))
    assert b.codes(report) == {"TEN418"}, b.text(report)
    assert f"ignored by '{UP}'" in b.text(report)


@pytest.mark.parametrize("name", GOOD)
def test_a_drafter_declared_quantised_and_all_plain_is_one_finding(name: str) -> None:
    quant, _, fc = GOOD[name]
    report = check(quant, PLAIN)
    assert b.codes(report) == {"TEN417"}, b.text(report)
    assert f"{8 if fc else 7} weights" in b.text(report)


@pytest.mark.parametrize("name", GOOD)
def test_a_quantised_drafter_of_another_width_is_told_in_logical_numbers(name: str) -> None:
    quant, store, fc = GOOD[name]
    report = check(quant, stored(store, fc), intermediate_size=96)
    said = b.against(report)
    assert {f.code for f in said} == {"DIM401"} or {f.code for f in said} == {"TEN403"}, b.text(report)
    assert "128" in b.text(report)
    assert "96" in b.text(report)


def test_group_size_that_does_not_divide_is_said_with_its_numbers() -> None:
    quant, store, fc = GOOD["int4 in groups"]
    quant = group(INT4 | {"group_size": 48}, format="pack-quantized")
    report = check(quant, stored(store, fc))
    assert "TEN419" in b.codes(report)
    assert "64 == 64 // 48 * 48" in b.text(report)
    assert "group=48" in b.text(report)


VALUES = {
    "bits below": ("weights.num_bits", -4), "bits above": ("weights.num_bits", 4096),
    "bits as text": ("weights.num_bits", "4"),
    "no bits": ("weights.num_bits", 0), "a group of none": ("weights.group_size", 0),
    "yes and no": ("weights.symmetric", 1),
    "a negative group": ("weights.group_size", -7), "half a group": ("weights.group_size", 32.0),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_bad_value_of_the_declaration_is_one_finding(name: str) -> None:
    key, value = VALUES[name]
    quant, store, fc = GOOD["int4 in groups"]
    quant = b.edit(quant, {f"config_groups.group_0.{key}": value})
    report = check(quant, stored(store, fc))
    assert b.codes(report) == {"CFG342"}, b.text(report)
    assert key in b.text(report)
    assert json.dumps(value) in b.text(report)


LACKING = {
    "blocks of one": ("DeepSeek blocks", "weight_block_size", [128], "weight_block_size"),
    "blocks of text": ("DeepSeek blocks", "weight_block_size", "128x128", "weight_block_size"),
    "no blocks": ("fp8 by block", "config_groups.group_0.weights.block_structure", None, "weights.block_structure"),
    "no bits for gptq": ("gptq", "bits", b.ABSENT, "bits"),
    "no group for awq": ("awq", "group_size", b.ABSENT, "group_size"),
}


@pytest.mark.parametrize("name", LACKING)
def test_value_that_a_layout_needs_and_that_is_not_stated_is_one_finding(name: str) -> None:
    good, key, value, shown = LACKING[name]
    quant, store, fc = GOOD[good]
    report = check(b.edit(quant, {key: value}), stored(store, fc))
    assert b.codes(report) == {"CFG342"}, b.text(report)
    assert f"quantization_config: {shown}" in b.text(report)


TABLES: dict[str, tuple[Any, set[str]]] = {
    "empty": ({}, {"CFG341"}),
    "no method": ({"bits": 4}, {"CFG341"}),
    "method null": ({"quant_method": None, "format": "x"}, {"CFG341"}),
    "method a list": ({"quant_method": ["gptq"]}, {"CFG341"}),
    "method of no one": ({"quant_method": "my-own"}, {"CFG340 unknown"}),
    "method like one": ({"quant_method": "compressed_tensors"}, {"CFG340 unknown"}),
    "no groups": ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, {"CFG341"}),
    "groups a list": ({"quant_method": "compressed-tensors", "config_groups": [1]}, {"CFG341"}),
    "group null": ({"quant_method": "compressed-tensors", "config_groups": {"group_0": None}}, {"CFG341"}),
    "ignore a text": (group(INT4, format="pack-quantized", ignore="lm_head"), {"CFG341", "TEN417"}),
    "pattern that is none": (group(INT4, format="pack-quantized", ignore=["re:("]), {"CFG341", "TEN417"}),
    "pattern without an end": (group(INT4, format="pack-quantized", ignore=["re:(a+)+$"]), {"CFG341", "TEN417"}),
    "format of no one": (group(INT4, format="marlin-24"), {"CFG340 unknown"}),
    "algorithm of no one": (modelopt("FP3"), {"CFG340 unknown"}),
}


@pytest.mark.parametrize("name", TABLES)
def test_declaration_that_cannot_be_used_says_so_and_unknown_is_never_a_pass(name: str) -> None:
    quant, codes = TABLES[name]
    report = check(quant, PLAIN)
    assert b.codes(report) == codes, b.text(report)
    assert report.verdict == ("unknown" if codes == {"CFG340 unknown"} else "fail")


def test_null_declaration_is_none() -> None:
    assert b.codes(check(None, PLAIN)) == set()


def test_format_that_is_not_known_is_named_and_its_tensors_are_not_judged() -> None:
    _, store, fc = GOOD["int4 in groups"]
    report = check(group(INT4, format="marlin-24"), stored(store, fc))
    assert b.codes(report) == {"CFG340 unknown"}
    assert "format = marlin-24" in b.text(report)


@pytest.mark.parametrize("name", [n for n in GOOD if any(s != ".weight" for s in GOOD[n][1](128, 64))])
def test_packed_tensors_that_nothing_declares_are_one_finding(name: str) -> None:
    _, store, fc = GOOD[name]
    report = check(b.ABSENT, stored(store, fc))
    assert "TEN418" in b.codes(report), b.text(report)
    assert not {"TEN401", "TEN402"} & b.codes(report)
    assert "quantization_config" in b.text(report)


def test_scale_under_the_name_of_another_layout_is_named() -> None:
    quant, store, fc = GOOD["DeepSeek blocks"]
    table = stored(store, fc)
    wrong = {f"{UP}.weight_scale_inv": None, f"{UP}.weight_scale": ("F32", (1,))}
    report = check(quant, b.changed(table, wrong))
    assert b.codes(report) == {"TEN414"}
    assert f"there is {UP}.weight_scale" in b.text(report)
    report = check(quant, b.changed(table, {f"{UP}.weight_scale": ("F32", (1,))}))
    assert b.codes(report) == {"TEN418"}


def test_zero_sizes_are_refused_and_raise_nothing() -> None:
    quant, store, fc = GOOD["int4 in groups"]
    report = check(quant, b.changed(stored(store, fc), {f"{UP}.weight_packed": ("I32", (0, 0))}))
    assert report.verdict == "fail"
    assert "[0, 0]" in b.text(report)


def test_scales_of_a_key_value_cache_are_no_parts_of_a_weight() -> None:
    quant, store, fc = GOOD["modelopt fp8"]
    beside = {"midlayer.self_attn.k_proj.k_scale": ("F32", ()), "midlayer.self_attn.v_proj.v_scale": ("F32", ())}
    assert b.codes(check(quant, b.changed(stored(store, fc), beside))) == set()


def test_layers_may_have_their_own_arguments() -> None:
    eight, nine = GOOD["modelopt fp8"][1], GOOD["modelopt nvfp4"][1]
    table = stored(eight, False)
    table = {n: row for n, row in table.items() if not n.startswith(f"{UP}.")}
    table |= {UP + suffix: row for suffix, row in nine(128, 64).items()}
    layers = {n.removesuffix(".weight"): {"quant_algo": "FP8"} for n in table if n.endswith("_proj.weight")}
    layers[UP] = {"quant_algo": "NVFP4", "group_size": 16}
    quant = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert b.codes(check(quant, table)) == set(), b.text(check(quant, table))
    layers[UP] = {"quant_algo": "FP8"}
    assert "TEN416" in b.codes(check(quant, table))


def test_target_with_a_packed_head_is_understood(tmp_path: Path) -> None:
    quant, store, _ = GOOD["int4 in groups"]
    config = b.edit(b.target_config(), {"quantization_config": quant | {"ignore": []}})
    table = b.changed(b.target(), {"lm_head.weight": None})
    table |= {f"lm_head{suffix}": row for suffix, row in store(b.VOCAB, b.HIDDEN).items()}
    b.write(tmp_path / "t", config, table, shards=2)
    plain = b.given(b.dense_config(), b.dense(), b.DRAFTER)
    assert b.codes(b.check(plain, str(tmp_path / "t"))) <= {"PAIR415 info", "PAIR417 unknown"}
    for row in (("lm_head.weight_scale", None, "TEN414"), ("lm_head.weight_packed", ("I32", (b.VOCAB, 16)), "TEN4")):
        folder = tmp_path / row[0]
        b.write(folder, config, b.changed(table, {row[0]: row[1]}), shards=2)
        report = b.check(plain, str(folder))
        assert any(code.startswith(row[2]) for code in b.codes(report)), b.text(report)
        assert report.verdict == "fail"


def test_recording_of_a_target_keeps_what_stands_beside_its_packed_head(tmp_path: Path) -> None:
    quant, store, _ = GOOD["int4 in groups"]
    config = b.edit(b.target_config(), {"quantization_config": quant | {"ignore": []}})
    table = b.changed(b.target(), {"lm_head.weight": None})
    table |= {f"lm_head{suffix}": row for suffix, row in store(b.VOCAB, b.HIDDEN).items()}
    made, _ = api.record(str(b.write(tmp_path, config, table)), f"{b.TARGET}@{'a' * 40}", b.LIBRARY)
    assert made is not None
    named = {n: (dtype, tuple(shape)) for n, (dtype, shape) in made["recording"]["tensors"]["named"].items()}
    assert set(named) - {"model.layers.0.input_layernorm.weight"} == {n for n in table if ".layers." not in n}
    report = b.check(b.given(b.dense_config(), b.dense(), b.DRAFTER), b.recorded(config, named, b.TARGET))
    assert not [f for f in report.findings if f.code.startswith("TEN") and f.level != "pass"], b.text(report)


def test_nested_declaration_of_a_target_is_found() -> None:
    quant, store, _ = GOOD["int4 in groups"]
    config = b.kimi_k25_config(**{"text_config.quantization_config": quant | {"ignore": []}})
    prefix = "language_model.model."
    table = b.target(prefix=prefix, head="")
    table |= {f"language_model.lm_head{suffix}": row for suffix, row in store(b.VOCAB, b.HIDDEN).items()}
    assert not [f for f in b.view(config, table, "target").findings if f.level in ("error", "unknown")]
    wrong = b.changed(table, {"language_model.lm_head.weight_packed": ("I32", (b.VOCAB, 4))})
    said = {f.code for f in b.view(config, wrong, "target").findings if f.level == "error"}
    assert said == {"TEN403", "TEN415"}  # 32 wide is not the hidden size, and not what the scales are for


def test_declaration_beside_the_config_is_read_and_two_that_differ_are_said(tmp_path: Path) -> None:
    quant, store, fc = GOOD["modelopt nvfp4"]
    table = stored(store, fc)
    b.write(tmp_path, CONFIG, table)
    inner = {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": ["lm_head", "fc"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"producer": {}, "quantization": inner}))
    assert "TEN4" not in b.text(b.check(str(tmp_path)))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": quant | {"quant_algo": "FP8"}}))
    text = b.text(b.check(str(tmp_path)))
    assert "CFG343" in text
    assert '"FP8"' in text
    (tmp_path / "hf_quant_config.json").write_text("{")
    text = b.text(b.check(str(tmp_path)))
    assert "CFG302" in text
    assert "hf_quant_config.json" in text


def test_target_declared_quantised_by_the_file_beside_its_config_is_told(tmp_path: Path) -> None:
    b.write(tmp_path, b.target_config(), b.target())
    inner = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"producer": {}, "quantization": inner}))
    report = b.check(b.given(b.dense_config(), b.dense(), b.DRAFTER), str(tmp_path))
    told = [f for f in report.findings if f.code == "PAIR415"]
    assert [(f.level, f.observed) for f in told] == [("info", "target modelopt, drafter none")]


MATCHES = [
    ("lm_head", "lm_head", "exact", True), ("lm_head", "model.lm_head", "exact", True),
    ("model.layers.0.mlp.up_proj", "layers.0.mlp.up_proj", "exact", True), ("up_proj", "gate_up_proj", "exact", False),
    ("mlp.gate", "model.layers.0.mlp.gate", "path", True), ("mlp.gate", "model.layers.0.mlp.gate_proj", "path", False),
    ("model.layers.61", "model.layers.61.self_attn.q_proj", "path", True),
    ("model.layers.6", "model.layers.61.self_attn.q_proj", "path", False),
    ("model.layers.0.self_attn*", "layers.0.self_attn.q_proj", "glob", True), ("mtp*", "mtp_layers.0.fc", "glob", True),
    ("model.layers.0*", "model.layers.1.self_attn.q_proj", "glob", False), ("lm_head", "x.lm_head", "part", True),
    ("re:.*self_attn.*", "language_model.model.layers.0.self_attn.q_proj", "exact", True),
    ("re:.*self_attn.*", "layers.0.mlp.up_proj", "exact", False), ("re:model\\.fc", "fc", "exact", False),
    ("re:fc", "model.fc", "exact", True), ("", "fc", "part", False),
    ("re:(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaa", "exact", False),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "module", "match", "named"), MATCHES)
def test_entry_names_module(entry: str, module: str, match: str, named: bool) -> None:
    assert names_module(entry, module, match) is named
    assert (Entries([entry], match).find(module) is not None) is named


def test_lists_of_many_and_of_endless_entries_are_searched_in_little_time() -> None:
    quant, store, fc = GOOD["DeepSeek blocks"]
    many = [f"model.layers.{i}.mlp.experts.{j}.up_proj" for i in range(60) for j in range(300)]
    start = time.perf_counter()
    report = check(quant | {"modules_to_not_convert": [*many, "." * 10**5, "a." * 10**5, "re:" + "(a+)" * 10**4]},
                   stored(store, fc))  # fmt: skip
    assert time.perf_counter() - start < 5
    assert b.codes(report) == {"CFG341"}
    long = b.changed(stored(store, fc), {"." * 10**5 + "weight_scale_inv": ("F32", (1, 1))})
    start = time.perf_counter()
    assert check(quant | {"modules_to_not_convert": many}, long).verdict == "fail"
    assert time.perf_counter() - start < 5


def test_stacked_experts_of_mxfp4_have_a_logical_shape() -> None:
    scheme, _ = Library().get("scheme", "mxfp4")
    name = "model.layers.0.mlp.experts.gate_up_proj"
    rows = {f"{name}_blocks": Tensor("U8", (4, 64, 2, 16), 0, 0), f"{name}_scales": Tensor("U8", (4, 64, 2), 0, 0)}
    out = logical(Declared({"quant_method": "mxfp4"}, "config", "mxfp4", scheme), Table(rows), lambda n: "", "x")
    assert not out.findings
    assert out.tensors == {name: Tensor(LOGICAL, (4, 64, 64), 0, 0)}


def test_shape_that_only_the_bytes_tell_is_unknown() -> None:
    quant = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    table = stored(lambda o, i: {
        ".weight": ("U8", (o * i // 2, 1)), ".weight.absmax": ("F32", (o * i // 64,)),
        ".weight.quant_map": ("F32", (16,)),
        ".weight.quant_state.bitsandbytes__nf4": ("U8", (90,)),
    }, False)  # fmt: skip
    report = check(quant, table)
    assert b.codes(report) == {"TEN415 unknown"}, b.text(report)
    assert "the header does not tell it" in b.text(report)


def test_incomplete_recording_leaves_a_scale_that_is_not_listed_unknown() -> None:
    scheme, _ = Library().get("scheme", "fp8")
    rows = {"lm_head.weight": Tensor("F8_E4M3", (512, 64), 0, 0)}
    quant = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    for all_names, level in ((True, "error"), (False, "unknown")):
        out = logical(
            Declared(quant, "config", "fp8", scheme), Table(rows), lambda n: "", "x", looked_for_all=all_names
        )
        assert [(f.code, f.level) for f in out.findings] == [("TEN414", level)]
        assert "[4, 1]" in out.findings[0].expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from(["pack-quantized", "group", "int", "fp8", "NVFP4", "re:(", "lm_head", "Linear"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["weights", "targets", "num_bits", "group_size", "strategy", "first", "x"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
DECLARED = [
    "quant_method", "format", "config_groups", "config_groups.group_0", "config_groups.group_0.weights", "ignore",
    "config_groups.group_0.targets", "config_groups.group_0.weights.num_bits",
    "config_groups.group_0.input_activations",
    "config_groups.group_0.weights.group_size", "config_groups.group_0.weights.actorder", "kv_cache_scheme",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(DECLARED), JSON, max_size=3))
def test_no_declaration_makes_a_drafter_without_a_scale_pass(changes: dict[str, Any]) -> None:
    quant, store, fc = GOOD["int4 in groups"]
    table = b.changed(stored(store, fc), {f"{UP}.weight_scale": None})
    assert check(b.edit(quant, changes), table).verdict in ("fail", "unknown")


# --- every family -------------------------------------------------------------------------------------------------

BLOCKS: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
CHANNELS = group(
    FP8 | {"strategy": "channel"}, TOKEN, "float-quantized", ignore=["re:.*(lm_head|fc|eh_proj|input_proj)"]
)
FUSION = ("eh_proj", "input_proj", "embed_proj", "hidden_proj", "kernel_projection")
WHOLE = [c for c in known_good.CASES if c.weights.endswith(".safetensors")]


def linear(name: str, shape: Shape) -> bool:
    return name.endswith(".weight") and len(shape) == 2 and "_proj" in name and not any(word in name for word in FUSION)


def halved(case: known_good.Good, quant: dict[str, Any], keep: str = " ") -> tuple[int, Any]:
    """Check a drafter whose Linear weights, but for those with a word in their names, are stored in 8 bits."""
    out: b.Table = {}
    for name, (dtype, shape) in case.drafter_tensors.items():
        if not linear(name, shape) or keep in name:
            out[name] = (dtype, shape)
        elif quant is BLOCKS:
            out |= {name: ("F8_E4M3", shape), f"{name}_scale_inv": ("F32", (up(shape[0], 128), up(shape[1], 128)))}
        else:
            out |= {name: ("F8_E4M3", shape), f"{name}_scale": ("BF16", (shape[0], 1))}
    drafter = b.given(case.drafter_config | {"quantization_config": quant}, out, b.DRAFTER)
    other = None if case.inside else b.given(case.target_config, case.target_tensors, b.TARGET)
    family = "" if not case.inside else "mtp" if case.family.startswith("mtp-") else case.family
    return len(out) - len(case.drafter_tensors), b.check(drafter, other, family=family)


@pytest.mark.parametrize("quant", [BLOCKS, CHANNELS], ids=["blocks", "channels"])
@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.id)
def test_drafter_of_every_family_is_understood_when_it_is_quantised(case: known_good.Good, quant: Any) -> None:
    count, report = halved(case, quant)
    said = [f for f in b.against(report) if f.code[:3] in ("TEN", "CFG", "DIM") and f.level != "info"]
    assert not [f for f in said if count or f.code != "TEN417"], b.text(report)


@pytest.mark.parametrize("family", ["mtp-qwen3-next", "mtp-deepseek", "mtp-glm4-moe"])
def test_experts_left_plain_in_a_quantised_layer_of_the_target_are_named(family: str) -> None:
    case = next(c for c in WHOLE if c.family == family)
    count, report = halved(case, CHANNELS, ".experts.")
    assert count
    said = [f for f in b.against(report) if f.level == "error"]
    assert [f.code for f in said] == ["TEN417"], b.text(report)
    assert "experts.0." in said[0].observed
    assert "weights" in said[0].subject
