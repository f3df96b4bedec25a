"""Sizes are oracles: what each family's layout counts, at the dims of real models, is what others counted or published.

A row names a recording, what it assumes where the recording is silent, which optional tensors the file holds, and the
numbers: parameters and bytes by hand from the config, or as a card shows them. Each difference is explained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

import builder as b
from draftproof import api
from draftproof.checkpoint import Checkpoint
from draftproof.conform import conform, layout
from draftproof.hub import Source, open_model, recorded_repos
from draftproof.recognise import recognise

RECORDINGS = api.recordings(b.LIBRARY)
UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30, "B parameters": 10**9}
WIDTH = {"BF16": 2, "I64": 8, "BOOL": 1}
EMBED, HEAD, MAPS = "embed_tokens.weight", "lm_head.weight", ("d2t", "t2d")


@dataclass(frozen=True)
class Size:
    """State of one model what was counted or published of it, and what must be assumed to count it again."""

    repo: str
    parameters: int | None = None  # of floats
    shown: str = ""  # as published: "3.68 GB", "0.4 B parameters"
    tensors: int | None = None
    bytes: int | None = None  # of tensor data
    holds: tuple[str, ...] = ()  # optional tensors that the file has
    assumes: dict[str, Any] = field(default_factory=dict)  # config keys that its recording does not have
    why: str = ""  # what is assumed, or what explains a difference


def opened(repo: str) -> Source:
    source = open_model(repo, RECORDINGS)
    assert isinstance(source, Source), source
    return source


def counted(row: Size) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return canonical name -> dtype and shape of what the family's layout holds at the dims of a model."""
    source = opened(row.repo)
    contract, _ = recognise(b.LIBRARY, Checkpoint(source, "drafter"), "family")
    assert contract is not None
    source.config = b.edit(source.config or {}, row.assumes)
    source.provenance, source.unknown = "read", frozenset()  # what is not stated is not there
    view = conform(contract, Checkpoint(source, "drafter"), tensors=False)
    rows = layout(contract, view.dims, optional=True)
    unknown = set(row.holds) - set(rows)
    assert not unknown
    return {
        name: (want.rule.dtype[0], shape)
        for name, (want, shape) in rows.items()
        if want.presence == "required" or name in row.holds
    }


def parameters(table: dict[str, tuple[str, tuple[int, ...]]]) -> int:
    return sum(math.prod(shape) for dtype, shape in table.values() if dtype not in ("I64", "BOOL"))


def size(table: dict[str, tuple[str, tuple[int, ...]]]) -> int:
    return sum(WIDTH[dtype] * math.prod(shape) for dtype, shape in table.values())


def rounds(count: int, shown: str) -> bool:
    """Tell whether a count, shown with the digits of a published figure, is that figure."""
    value, unit = shown.split(" ", 1)
    return f"{count / UNITS[unit]:.{len(value.partition('.')[2])}f}" == value


# --- drafters whose size is published, or was counted from a published geometry -------------------------------------

K25_MLA = {  # the geometry of TorchSpec's training config; published files of this family agree with it to the byte
    "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 1, "num_attention_heads": 64,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "vocab_size": 163840,
}  # fmt: skip
K2_DENSE = {
    "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 1, "num_attention_heads": 64,
    "num_key_value_heads": 64, "head_dim": 128, "vocab_size": 163840,
}  # fmt: skip
GLM_DSPARK = {
    "architectures": ["DSparkDraftModel"], "dflash_config.target_layer_ids": [1] * 5,
    "dflash_config.enable_confidence_head": True, "dflash_config.confidence_head_with_markov": True,
}  # fmt: skip
BIAS = "confidence_head.proj.bias"
K2_TABLE = 1_190_948_864  # of the K2 drafters with 32000 ids
PUBLISHED = [
    Size("AQ-MedAI/Kimi-K2-Instruct-eagle3", K2_TABLE),
    Size("AQ-MedAI/Kimi-K2-Instruct-eagle3", 2_365_353_984, holds=(EMBED,)),
    Size("AQ-MedAI/Kimi-K25-eagle3", K2_TABLE),
    Size("AQ-MedAI/Kimi-K25-eagle3", 2_365_353_984, holds=(EMBED,)),
    Size("nvidia/Kimi-K2.6-Eagle3", 1_841_199_104, "3.68 GB", 16, 3_682_398_208, holds=(HEAD,), assumes=K25_MLA,
         why="the head is that of the target, copied in"),
    Size("nvidia/Kimi-K2.5-Thinking-Eagle3", 1_841_199_104, "1.8 B parameters", holds=(HEAD,), assumes=K25_MLA),
    Size("nvidia/Kimi-K2-Thinking-Eagle3", 1_841_199_104, "1.8 B parameters", holds=(HEAD,), assumes=K25_MLA),
    Size("lightseekorg/kimi-k2.6-eagle3-mla", 3_015_604_224, "6.03 GB", None, 6_031_208_448, holds=(HEAD, EMBED),
         assumes=K25_MLA),
    Size("k-l-lambda/kimi-k2.7-code-eagle3-mla", 3_015_604_224, "6.03 GB", holds=(HEAD, EMBED),
         assumes=K25_MLA | {"draft_vocab_size": 163840}, why="its earlier revision, with the full vocabulary"),
    Size("k-l-lambda/kimi-k2.7-code-eagle3-mla", 2_070_575_104, holds=(EMBED,), assumes=K25_MLA),
    Size("lightseekorg/kimi-k2.5-eagle3", 3_178_262_528, "5.9 GiB", holds=(HEAD, EMBED),
         assumes={"num_key_value_heads": 64}, why="its card says 6.0 GB, which is neither 6.36 GB nor 5.92 GiB: round"),
    Size("Zhangdanyang/Kimi_K25_eagle3_v2", 3_178_262_528, "3 B parameters", holds=(HEAD, EMBED),
         assumes=K2_DENSE | {"intermediate_size": 12288}, why="assumed: the geometry of lightseekorg/kimi-k2.5-eagle3"),
    Size("pratiknarola/Kimi-K25-eagle3-2L-48K", None, "2 B parameters", holds=MAPS,
         assumes=K2_DENSE | {"num_hidden_layers": 2, "draft_vocab_size": 48000},
         why="assumed: the geometry of the K2 drafters, two layers by its name"),
    Size("z-lab/Kimi-K2.5-DFlash", 3_479_277_056, "6.48 GiB",
         assumes={"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 18432},
         why="heads and intermediate size are assumed, and fit the size"),
    Size("z-lab/Kimi-K2.6-DFlash", 3_479_277_056, "6.48 GiB",
         assumes={"hidden_size": 7168, "num_hidden_layers": 6, "num_attention_heads": 64, "num_key_value_heads": 8,
                  "head_dim": 128, "intermediate_size": 18432, "dflash_config.target_layer_ids": [1] * 6},
         why="assumed: the geometry of its sibling for Kimi-K2.5"),
    Size("z-lab/gemma-4-31B-it-DFlash", 1_535_967_488, "2.86 GiB"),
    Size("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", 424_689_664, "810 MiB", holds=MAPS,
         why="as the same geometry by SpecForge, listed with 811 MB: listings round 810.4 up"),
    Size("yuhuili/EAGLE3-Vicuna1.3-13B", 638_341_120, "1.28 GB", None, 1_276_682_240, holds=(HEAD,),
         assumes={"hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40, "num_hidden_layers": 1,
                  "vocab_size": 32000}, why="the geometry of its target; the size shows that there is no embedding"),
    Size("yuhuili/EAGLE-Qwen2-7B-Instruct", None, "1.65 GB", holds=(EMBED,),
         assumes={"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 1,
                  "num_key_value_heads": 28, "vocab_size": 152064, "qkv_bias": True},
         why="the size tells 28 key-value heads: with the 4 of its target it would be 1.61 GB"),
    Size("unknown/GLM-5.3-DSpark-speculator", 1_249_565_313, "2.50 GB", 40, 2_499_130_626, holds=(BIAS,),
         assumes=GLM_DSPARK, why="its fc reads five layers; with the bias, one number, the published bytes are met"),
    Size("siro1/glm-5.2-dspark-preview", 3_807_067_009, "7.61 GB", 64, 7_614_134_018, holds=(BIAS, EMBED, HEAD),
         assumes=GLM_DSPARK | {"hidden_size": 6144, "intermediate_size": 12288, "num_attention_heads": 64,
                               "num_key_value_heads": 64, "head_dim": 64, "vocab_size": 154880,
                               "dflash_config.target_layer_ids": [8, 23, 39, 55, 70], "dflash_config.markov_rank": 256},
         why="assumed: the geometry of GLM-5.3's, which fits both counts exactly; the published bytes are 6,864 "
         "more, the header of the file"),
    Size("nebius/EAGLE3-gpt-oss-120b", None, "0.4 B parameters",
         assumes={"hidden_size": 2880, "intermediate_size": 11520, "num_attention_heads": 64, "head_dim": 64,
                  "num_key_value_heads": 8, "num_hidden_layers": 1, "vocab_size": 201088, "draft_vocab_size": 64000},
         why="assumed: intermediate size and draft vocabulary of its sibling for the 20b, heads of its target"),
]  # fmt: skip


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row.repo} {row.shown}".strip())
def test_layout_has_the_size_that_was_counted_and_published(row: Size) -> None:
    table = counted(row)
    if row.parameters is not None:
        assert parameters(table) == row.parameters
    if row.tensors is not None:
        assert len(table) == row.tensors
    if row.bytes is not None:
        assert size(table) == row.bytes
    if row.shown:
        assert rounds(parameters(table) if "parameters" in row.shown else size(table), row.shown)


def test_recorded_counts_are_those_of_the_layout() -> None:
    """A partial recording that says how many tensors or parameters there are says what the layout counts."""
    counts = {repo: opened(repo).tensors for repo in recorded_repos(RECORDINGS)}
    rows = [row for row in PUBLISHED if (counts[row.repo] or {}).get("basis", "").startswith(("by its", "counts"))]
    assert rows
    for row in rows:
        said, table = counts[row.repo], counted(row)
        assert said is not None
        assert said["parameters"] == parameters(table)
        assert said["count"] in (None, len(table))


# --- training configs: what was counted of each, without an embedding, with a head ----------------------------------

TRAINING = {
    "sgl-project/SpecForge/configs": {
        "deepseek-v2-lite-eagle3.json": 174_727_168,
        "deepseek-v3-671b-eagle3.json": 1_447_849_984,
        "gemma3-1b-eagle3.json": 69_456_384,
        "gpt-oss-120B-eagle3.json": 307_641_600,
        "gpt-oss-20B-eagle3.json": 307_641_600,
        "ling-flash-2.0-eagle3.json": 424_689_664,
        "llama3-70B-ealge3.json": 1_403_027_456,
        "llama3-8B-eagle3.json": 424_689_664,
        "llama4-scout-17B-16E-eagle3.json": 845_434_880,
        "longcat-flash-eagle3.json": 1_346_396_160,
        "phi4-eagle3.json": 622_612_480,
        "qwen2-5-vl-7b-eagle3.json": 402_798_592,
        "qwen2.5-0.5b-eagle3.json": 32_689_664,
        "qwen2.5-7b-eagle3.json": 345_454_592,
        "qwen2.5-vl-32b-eagle3.json": 599_019_520,
        "qwen3-235B-A22B-eagle3.json": 592_461_824,
        "qwen3-30B-A3B-eagle3.1.json": 182_984_704,
        "qwen3-30B-A3B-eagle3.json": 182_984_704,
        "qwen3-32b-eagle3.json": 782_520_320,
        "qwen3-4b-eagle3.json": 218_245_120,
        "qwen3-8b-eagle3.json": 399_523_840,
        "qwen3-coder-30B-A3B-instruct-eagle3.json": 182_984_704,
        "qwen3-coder-480B-A35B-instruct-eagle3.json": 863_526_912,
        "qwen3-coder-next-eagle3.json": 145_235_968,
        "qwen3-next-80b-a3b-eagle3.json": 208_150_528,
        "qwen3.5-35b-a3b-eagle3.json": 208_150_528,
        "qwq-32B-eagle3.json": 766_791_680,
    },
    "lightseekorg/TorchSpec/configs/draft_models": {
        "kimi_k25_eagle3.json": 2_003_857_408,
        "minimax_m25_eagle3.json": 859_975_680,
        "qwen3_8b_eagle3.json": 399_523_840,
    },
    "Tencent/AngelSlim/angelslim/compressor/speculative/train/configs": {
        "cosyvoice3-llm-eagle3.json": 24_411_520,
        "hunyuan-1.8b-eagle3.json": 132_653_056,
        "hunyuan-4b-eagle3.json": 252_456_960,
        "hunyuan-7b-eagle3.json": 424_689_664,
        "hunyuan_ocr-eagle3.json": 57_413_632,
        "qwen2-audio-7b-eagle3.json": 375_406_592,
        "qwen2.5-0.5b-eagle3.json": 47_025_664,
        "qwen2.5-1.5b-eagle3.json": 106_174_464,
        "qwen2.5-3b-eagle3.json": 160_440_320,
        "qwen2.5-7b-eagle3.json": 402_798_592,
        "qwen2.5-vl-3b-eagle3-mrope.json": 160_440_320,
        "qwen2.5-vl-7b-eagle3-mrope.json": 402_798_592,
        "qwen3-0.6b-eagle3.json": 55_840_768,
        "qwen3-1.7b-eagle3.json": 136_847_360,
        "qwen3-14b-eagle3.json": 609_505_280,
        "qwen3-30b-a3b-eagle3.json": 145_235_968,
        "qwen3-32b-eagle3.json": 782_520_320,
        "qwen3-4b-eagle3.json": 218_245_120,
        "qwen3-8b-eagle3.json": 399_523_840,
        "qwen3-vl-2b-eagle3-mrope.json": 136_847_360,
        "qwen3-vl-30b-a3b-eagle3-mrope.json": 145_235_968,
        "qwen3-vl-4b-eagle3-mrope.json": 218_245_120,
        "qwen3-vl-4b-eagle3.json": 218_245_120,
        "qwen3-vl-8b-eagle3-mrope.json": 399_523_840,
    },
}
DIFFERENT = {  # the count above is of another layout, and why
    "qwen3-30B-A3B-eagle3.1.json": (182_990_848, "fc_norm: three norms of 2048, which that count leaves out"),
    "cosyvoice3-llm-eagle3.json": (367_349_248, "its 24 layers are those of the target; that count is of one"),
}
COUNTED = [(f"{folder}/{name}", count) for folder, rows in TRAINING.items() for name, count in rows.items()]


@pytest.mark.parametrize(("repo", "count"), COUNTED, ids=[repo.rpartition("/")[2] for repo, _ in COUNTED])
def test_training_config_asks_for_the_size_that_was_counted(repo: str, count: int) -> None:
    wanted, why = DIFFERENT.get(repo.rpartition("/")[2], (count, ""))
    assert parameters(counted(Size(repo, holds=(HEAD,)))) == wanted
    assert (wanted != count) is bool(why)


def test_one_layer_of_the_config_with_the_layers_of_its_target_is_what_was_counted() -> None:
    repo = next(repo for repo, _ in COUNTED if "cosyvoice3" in repo)
    assert parameters(counted(Size(repo, holds=(HEAD,), assumes={"num_hidden_layers": 1}))) == dict(COUNTED)[repo]


# --- single shapes and names that are published ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repo", "shapes"),
    [
        ("unknown/GLM-5.3-DSpark-speculator", {"fc.weight": (6144, 30720), "confidence_head.proj.weight": (1, 6400)}),
        (
            "sgl-project/SpecForge/configs/qwen3-8b-dspark.json",  # of deepseek-ai/dspark_qwen3_8b_block7
            {"markov_head.markov_w1.weight": (151936, 256), "confidence_head.proj.weight": (1, 4352)},
        ),
        ("k-l-lambda/kimi-k2.7-code-eagle3-mla", {HEAD: (32000, 7168), EMBED: (163840, 7168), "d2t": (32000,)}),
    ],
)
def test_published_shapes_are_those_of_the_layout(repo: str, shapes: dict[str, tuple[int, ...]]) -> None:
    row = next((r for r in reversed(PUBLISHED) if r.repo == repo), Size(repo))
    table = counted(row)
    assert {name: table[name][1] for name in shapes} == shapes


def test_heads_of_a_medusa_v1_file_have_the_published_names() -> None:
    drafter = {"config": opened("FasterDecoding/medusa-vicuna-7b-v1.3").config, "name": "org/heads"}
    target = {"config": b.target_config(), "name": b.TARGET}  # the config of such a drafter has no sizes
    names = {"0.0.linear.weight", "0.0.linear.bias", "0.1.weight", "1.0.linear.weight", "1.0.linear.bias", "1.1.weight"}
    couple = api.examine(drafter, target, b.LIBRARY, family="medusa").couple
    assert couple is not None
    asked = layout(couple.family, couple.dims)
    assert names in [{d.encode(name) for name in asked} for d in couple.family.dialects]


def test_rows_of_the_head_are_what_a_smaller_draft_vocabulary_saves() -> None:
    """Ex0bit/Qwen3.6-27B-PRISM-EAGLE3: 3.1 GB with 248320 ids, 1.1 GB with 32000, at the width of its target, 5120."""
    saved = 2 * (248320 - 32000) * 5120 / UNITS["GiB"]
    assert 3.05 - 1.15 < saved < 3.15 - 1.05


# --- stated, and not computed: of each model the reason ---------------------------------------------------------------

_NO_DIMS = "its config is not published, and its size alone tells no geometry"
_TARGET = "a target contract names the tensors that a drafter borrows, not all of a model"
NOT_COMPUTED = {
    "unknown/ginsongsong-kimi-k2.5-eagle3-w4a8": ("4.8 GB", "the layout of its w4a8 scheme is not known"),
    "z-lab/gpt-oss-20b-DFlash": ("1.46 GiB", _NO_DIMS),
    "z-lab/gpt-oss-120b-DFlash": ("1.46 GiB", _NO_DIMS),
    "unknown/z-lab-gemma-4-26B-A4B-it-DFlash": ("0.80 GiB", _NO_DIMS),
    "z-lab/MiniMax-M2.7-DFlash": ("1.04 GiB", _NO_DIMS),
    "Ex0bit/Qwen3.6-27B-PRISM-EAGLE3": ("3.1 and 1.1 GB", f"{_NO_DIMS}; what its head saves is above"),
    "moonshotai/Kimi-K2-Instruct": ("139644 tensors, 1,026,470,731,056 parameters", _TARGET),
    "moonshotai/Kimi-K2.5": ("208550 tensors, 554.30 GiB", _TARGET),
    "moonshotai/Kimi-K2.6": ("595,148,192,736 bytes", _TARGET),
    "moonshotai/Kimi-K2.7-Code": ("595,204,986,173 bytes", _TARGET),
    "openai/gpt-oss-20b": ("459 tensors, 12.82 GiB", _TARGET),
}


def test_what_is_not_computed_is_of_recorded_models_and_of_no_other_row() -> None:
    assert set(NOT_COMPUTED) <= set(recorded_repos(RECORDINGS))
    assert not set(NOT_COMPUTED) & {row.repo for row in PUBLISHED}
    for repo, (stated, _) in NOT_COMPUTED.items():
        said = opened(repo).tensors or {}
        assert said.get("count") is None or f"{said['count']} tensors" in stated
        assert said.get("parameters") is None or f"{said['parameters']:,} parameters" in stated
