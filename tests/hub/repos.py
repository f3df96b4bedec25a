"""Repos of the size of real ones for the loopback Hub: true headers over files without bytes, so that they fit a disk.

Configs, and the drafter's tensor table, are those of the shipped recordings; the layout of shards follows what was
published of these models: a layer in each, embedding, norm and head in one of the last, vision at the end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parents[2] / "contracts" / "recordings"
DRAFTER = "AQ-MedAI/Kimi-K2-Instruct-eagle3"
K2 = "moonshotai/Kimi-K2-Instruct"
K25 = "moonshotai/Kimi-K2.5"
SIZES = {"F8_E4M3": 1, "U8": 1, "BOOL": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8}  # bytes
HIDDEN, INTER, EXPERT, LAYERS, EXPERTS, VOCAB = 7168, 18432, 2048, 61, 384, 163840
VISION, VISION_INTER = 1152, 4304

Row = tuple[str, str, Sequence[int]]  # name, dtype, shape


def recording(repo: str) -> dict[str, Any]:
    """Return the shipped recording of a model."""
    data: dict[str, Any] = json.loads((RECORDINGS / f"{repo.replace('/', '--')}@unknown.json").read_text())
    return data


# --- files without bytes ------------------------------------------------------------------------------------------


def header(rows: Iterable[Row]) -> tuple[bytes, int]:
    """Return a safetensors header as the reference writer lays it out, and the bytes of data that it declares."""
    parts, at = ['{"__metadata__":{"format":"pt"}'], 0
    for name, dtype, shape in sorted(rows, key=lambda row: (-SIZES[row[1]], row[0])):
        end = at + SIZES[dtype] * math.prod(shape)
        sizes = ",".join(map(str, shape))
        parts.append(f',{json.dumps(name)}:{{"dtype":"{dtype}","shape":[{sizes}],"data_offsets":[{at},{end}]}}')
        at = end
    text = "".join(parts).encode() + b"}"
    return text + b" " * (-len(text) % 8), at


def sparse(path: Path, rows: Iterable[Row]) -> int:
    """Write a safetensors file whose data is a hole in the disk; returns the bytes that it declares."""
    head, size = header(rows)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + size)
    return size


def sharded(folder: Path, config: Mapping[str, Any], shards: Sequence[Sequence[Row]]) -> Path:
    """Write a repo of shards with its index, which is sorted by name."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    total, where = 0, []
    for number, rows in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        total += sparse(folder / name, rows)
        where += [f'    "{row[0]}": "{name}"' for row in rows]
    index = f'{{\n  "metadata": {{\n    "total_size": {total}\n  }},\n  "weight_map": {{\n'
    (folder / "model.safetensors.index.json").write_text(index + ",\n".join(sorted(where)) + "\n  }\n}\n")
    return folder


# --- a drafter ----------------------------------------------------------------------------------------------------


def drafter(root: Path) -> Path:
    """Write the EAGLE-3 drafter of Kimi-K2: 15 tensors in one file, 1.5 kB of header."""
    known = recording(DRAFTER)
    rows: list[Row] = [(name, dtype, shape) for name, (dtype, shape) in known["tensors"]["named"].items()]
    folder = root / DRAFTER
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(known["config"], indent=2))
    sparse(folder / "model.safetensors", [*rows, ("t2d", "BOOL", [VOCAB])])
    return folder


# --- targets ------------------------------------------------------------------------------------------------------

Linear = Callable[[str, Sequence[int]], list[Row]]  # the tensors of a linear of some storage, [out, in]


def _bf16(name: str, shape: Sequence[int]) -> list[Row]:
    return [(f"{name}.weight", "BF16", shape)]


def _fp8(name: str, shape: Sequence[int]) -> list[Row]:
    blocks = [-(-n // 128) for n in shape]
    return [(f"{name}.weight", "F8_E4M3", shape), (f"{name}.weight_scale_inv", "F32", blocks)]


def _int4(name: str, shape: Sequence[int]) -> list[Row]:
    rows, columns = shape
    return [
        (f"{name}.weight_packed", "I32", [rows, columns // 8]),
        (f"{name}.weight_scale", "BF16", [rows, columns // 32]),
        (f"{name}.weight_shape", "I32", [2]),
    ]


def _layer(prefix: str, number: int, linear: Linear, expert: Linear) -> list[Row]:
    """Return one layer: latent attention, then a dense MLP in the first layer and experts in the others."""
    at = f"{prefix}model.layers.{number}."
    heads = 64
    rows: list[Row] = [
        *linear(f"{at}self_attn.q_a_proj", [1536, HIDDEN]),
        (f"{at}self_attn.q_a_layernorm.weight", "BF16", [1536]),
        *linear(f"{at}self_attn.q_b_proj", [heads * 192, 1536]),
        *linear(f"{at}self_attn.kv_a_proj_with_mqa", [576, HIDDEN]),
        (f"{at}self_attn.kv_a_layernorm.weight", "BF16", [512]),
        *linear(f"{at}self_attn.kv_b_proj", [heads * 256, 512]),
        *linear(f"{at}self_attn.o_proj", [HIDDEN, heads * 128]),
        (f"{at}input_layernorm.weight", "BF16", [HIDDEN]),
        (f"{at}post_attention_layernorm.weight", "BF16", [HIDDEN]),
    ]
    if number == 0:
        return rows + _mlp(f"{at}mlp.", INTER, linear)
    rows += [
        (f"{at}mlp.gate.weight", "BF16", [EXPERTS, HIDDEN]),
        (f"{at}mlp.gate.e_score_correction_bias", "F32", [EXPERTS]),
    ]
    rows += _mlp(f"{at}mlp.shared_experts.", EXPERT, linear)
    for one in range(EXPERTS):
        rows += _mlp(f"{at}mlp.experts.{one}.", EXPERT, expert)
    return rows


def _mlp(at: str, inter: int, linear: Linear) -> list[Row]:
    rows = linear(f"{at}gate_proj", [inter, HIDDEN]) + linear(f"{at}up_proj", [inter, HIDDEN])
    return rows + linear(f"{at}down_proj", [HIDDEN, inter])


def _ends(prefix: str) -> list[Row]:
    return [
        (f"{prefix}model.embed_tokens.weight", "BF16", [VOCAB, HIDDEN]),
        (f"{prefix}model.norm.weight", "BF16", [HIDDEN]),
        (f"{prefix}lm_head.weight", "BF16", [VOCAB, HIDDEN]),
    ]


def _projector() -> list[Row]:
    wide = 4 * VISION
    sizes = {"proj.0": [wide, wide], "proj.2": [HIDDEN, wide], "pre_norm": [VISION]}
    return [row for name, shape in sizes.items() for row in _with_bias(f"mm_projector.{name}", shape)]


def _vision() -> list[Row]:
    rows = _with_bias("vision_tower.patch_embed.proj", [VISION, 3, 14, 14])
    sizes = {
        "wqkv": [3 * VISION, VISION],
        "wo": [VISION, VISION],
        "mlp.fc0": [VISION_INTER, VISION],
        "mlp.fc1": [VISION, VISION_INTER],
        "norm0": [VISION],
        "norm1": [VISION],
    }
    for number in range(27):
        for name, shape in sizes.items():
            rows += _with_bias(f"vision_tower.encoder.blocks.{number}.{name}", shape)
    return rows


def _with_bias(name: str, shape: Sequence[int]) -> list[Row]:
    return [(f"{name}.weight", "BF16", shape), (f"{name}.bias", "BF16", shape[:1])]


def kimi_k2(root: Path) -> Path:
    """Write Kimi-K2 in blocks of FP8: 139,583 tensors in 62 shards."""
    shards = [_layer("", n, _fp8, _fp8) for n in range(LAYERS)] + [_ends("")]
    return sharded(root / K2, recording(K2)["config"], shards)


def kimi_k25(root: Path) -> Path:
    """Write Kimi-K2.5, its experts in 4 bits: 208,547 tensors in 64 shards, which declare 595 GB."""
    inside = "language_model."
    shards = [_layer(inside, n, _bf16, _int4) for n in range(LAYERS)] + [_ends(inside), _projector(), _vision()]
    return sharded(root / K25, recording(K25)["config"], shards)
