"""Measure the container checks on a sparse 1T-parameter target: 208,547 tensors in 64 shards, no weight bytes on disk.

usage: python benchmarks/header.py [FOLDER]     (needs safetensors, a file system with sparse files, about 70 MB)

Prints ratios of one run, each the median of several rounds in fresh processes: the full cross-check of index and
shards against opening every shard with the reference reader and asking every shape, and the growth of peak memory.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HIDDEN, DENSE, EXPERT, LAYERS, EXPERTS, VOCAB = 7168, 18432, 2048, 61, 384, 163840
WIDTH = {"I32": 4, "F32": 4, "BF16": 2}
ROUNDS = 5
WANTED = [
    "language_model.model.embed_tokens.weight",
    "language_model.lm_head.weight",
    "language_model.model.norm.weight",
    *(f"language_model.model.layers.{i}.input_layernorm.weight" for i in (0, 2, 30, 58)),
]
Row = tuple[str, str, list[int]]


def decoder(layer: int) -> Iterator[Row]:
    """Yield the tensors of one decoder layer: MLA attention, then a dense MLP or packed int4 experts."""
    at = f"language_model.model.layers.{layer}."
    attention = {
        "q_a_proj": [1536, HIDDEN], "q_a_layernorm": [1536], "q_b_proj": [12288, 1536],
        "kv_a_proj_with_mqa": [576, HIDDEN], "kv_a_layernorm": [512], "kv_b_proj": [16384, 512],
        "o_proj": [HIDDEN, 8192],
    }  # fmt: skip
    for part, shape in attention.items():
        yield f"{at}self_attn.{part}.weight", "BF16", shape
    yield f"{at}input_layernorm.weight", "BF16", [HIDDEN]
    yield f"{at}post_attention_layernorm.weight", "BF16", [HIDDEN]
    wide = EXPERT if layer else DENSE
    for part, (rows, columns) in {"gate": (wide, HIDDEN), "up": (wide, HIDDEN), "down": (HIDDEN, wide)}.items():
        if not layer:
            yield f"{at}mlp.{part}_proj.weight", "BF16", [rows, columns]
            continue
        yield f"{at}mlp.shared_experts.{part}_proj.weight", "BF16", [rows, columns]
        for expert in range(EXPERTS):
            stem = f"{at}mlp.experts.{expert}.{part}_proj.weight"
            yield f"{stem}_packed", "I32", [rows, columns // 8]
            yield f"{stem}_scale", "BF16", [rows, columns // 32]
            yield f"{stem}_shape", "I32", [2]
    if layer:
        yield f"{at}mlp.gate.weight", "BF16", [EXPERTS, HIDDEN]
        yield f"{at}mlp.gate.e_score_correction_bias", "F32", [EXPERTS]


def rest() -> Iterator[list[Row]]:
    """Yield the last three shards: embedding and head, projector, vision tower."""
    head = {"model.embed_tokens": [VOCAB, HIDDEN], "model.norm": [HIDDEN], "lm_head": [VOCAB, HIDDEN]}
    yield [(f"language_model.{name}.weight", "BF16", shape) for name, shape in head.items()]
    parts = {"pre_norm": [1152], "proj.0": [4608, 4608], "proj.2": [HIDDEN, 4608]}
    yield [
        (f"mm_projector.{name}.{kind}", "BF16", shape if kind == "weight" else shape[:1])
        for name, shape in parts.items()
        for kind in ("weight", "bias")
    ]
    block = {"norm0": [1152], "norm1": [1152], "wqkv": [3456, 1152], "wo": [1152, 1152],
             "mlp.fc0": [4304, 1152], "mlp.fc1": [1152, 4304]}  # fmt: skip
    names = {"patch_embed.proj": [1152, 3, 14, 14]}
    names |= {f"encoder.blocks.{i}.{part}": shape for i in range(27) for part, shape in block.items()}
    yield [
        (f"vision_tower.{name}.{kind}", "BF16", shape if kind == "weight" else shape[:1])
        for name, shape in names.items()
        for kind in ("weight", "bias")
    ]


def write_shard(path: Path, rows: list[Row]) -> int:
    """Write a real header before a hole as long as the data; return the length of the data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, dtype, shape in sorted(rows, key=lambda row: (-WIDTH[row[1]], row[0])):
        start, end = end, end + WIDTH[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return end


def write_target(folder: Path) -> int:
    """Write the 64 shards and their index; return the number of tensors."""
    shards = [list(decoder(i)) for i in range(LAYERS)] + list(rest())
    weight_map: dict[str, str] = {}
    total = 0
    for number, rows in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        total += write_shard(folder / file, rows)
        weight_map.update((name, file) for name, _, _ in rows)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return len(weight_map)


CHILD = """
import os, sys, time
def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
folder, wanted = sys.argv[1], sys.argv[2:]
names = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
def reader(name):
    handle = os.open(os.path.join(folder, name), os.O_RDONLY)
    return (lambda a, b: os.pread(handle, b - a, a)), os.fstat(handle).st_size
INDEX = "model.safetensors.index.json"
"""
JOBS = {
    "reference": """
from safetensors import safe_open
before, start = peak(), time.perf_counter()
count = 0
for name in names:
    with safe_open(os.path.join(folder, name), "np") as file:
        for key in file.keys():
            file.get_slice(key).get_shape()
            count += 1
""",
    "full": """
from draftproof.container import check_shards, read_header, read_index
before, start = peak(), time.perf_counter()
index, findings = read_index(*reader(INDEX), INDEX)
count = sum(index.shards.values())
def headers():
    for name in names:
        header, found = read_header(*reader(name), name)
        findings.extend(found)
        yield name, header
findings += check_shards(index, headers(), names)
assert not findings, findings[:3]
""",
    "wanted": """
from draftproof.container import check_shards, read_header, read_index
before, start = peak(), time.perf_counter()
index, findings = read_index(*reader(INDEX), INDEX, wanted=wanted)
shapes = {}
def headers():
    for name in sorted(set(index.weight_map.values())):
        header, found = read_header(*reader(name), name)
        findings.extend(found)
        shapes.update((t, header.tensors[t].shape) for t, home in index.weight_map.items() if home == name)
        yield name, header
findings += check_shards(index, headers(), names)
count = len(shapes)
assert not findings, findings[:3]
""",
}


def run(job: str, folder: Path) -> tuple[float, float, int]:
    """Run one job in a fresh process: seconds, MB of peak memory beyond the imports, tensors seen."""
    code = CHILD + JOBS[job] + "print(time.perf_counter() - start, peak() - before, count)"
    source = Path(__file__).resolve().parents[1] / "src"
    env = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", code, str(folder), *WANTED]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    seconds, memory, count = done.stdout.split()
    return float(seconds), float(memory), int(count)


def main() -> None:
    """Print the ratios, and the goals they are held to."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else made)
        folder.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        tensors = write_target(folder)
        print(f"target: {tensors} tensors, {LAYERS + 3} shards, written in {time.perf_counter() - started:.1f} s")
        results: dict[str, list[tuple[float, float, int]]] = {job: [] for job in JOBS}
        for _ in range(ROUNDS):  # interleaved, so that a slow spell of the machine hits all of them
            for job in JOBS:
                results[job].append(run(job, folder))
        base = statistics.median(seconds for seconds, _, _ in results["reference"])
        goals = {"reference": "", "full": "goal: <= 1.5x and <= 150 MB", "wanted": "goal: <= 40 MB"}
        for job, rounds in results.items():
            seconds = statistics.median(r[0] for r in rounds)
            memory = max(r[1] for r in rounds)
            measured = f"{seconds * 1000:5.0f} ms  {seconds / base:5.2f}x  +{memory:.0f} MB"
            print(f"{job:10} {rounds[0][2]:7} tensors  {measured}  {goals[job]}".rstrip())


if __name__ == "__main__":
    main()
