"""adapt --write makes the checkpoint that it planned, whole or not at all, and touches nothing else."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors

from builder import SMALL_DRAFTER as DRAFTER
from builder import SMALL_TARGET as TARGET
from draftproof import check, rewrite
from draftproof.adapt import adapt
from draftproof.answers import Plan
from draftproof.checkpoint import Checkpoint
from draftproof.conform import conform, layout
from draftproof.findings import Report
from draftproof.hub import Source
from draftproof.library import Library
from draftproof.render import report_text

LIBRARY = Library()
MLA: dict[str, Any] = DRAFTER | {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "kimi_k2", "q_lora_rank": 48, "kv_lora_rank": 24,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "num_key_value_heads": 4,
}  # fmt: skip
IDS = np.sort(np.random.default_rng(0).permutation(512)[:128])
ITEM = {"BF16": 2, "F32": 4, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}


class Raw(NamedTuple):
    """A tensor as it lies in a file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def floats(*shape: int, dtype: str = "BF16") -> Raw:
    raw = np.random.default_rng([*shape]).integers(0, 256, ITEM[dtype] * int(np.prod(shape)), dtype=np.uint8)
    return Raw(dtype, shape, raw.tobytes())


def offsets(ids: Any, dtype: str = "I64") -> Raw:
    kind = {"I64": "<i8", "I32": "<i4"}[dtype]
    return Raw(dtype, (len(ids),), (ids - np.arange(len(ids))).astype(kind).tobytes())


def mask(ids: Any) -> Raw:
    return Raw("BOOL", (512,), np.isin(np.arange(512), ids).tobytes())


def tensors(
    config: dict[str, Any], family: str = "eagle3", prefix: str = "midlayer.", whole: str = ""
) -> dict[str, Raw]:
    """Return random tensors of a drafter in the names of a dialect, from the family's own layout."""
    contract, _ = LIBRARY.get("family", family)
    view = conform(contract, Checkpoint(Source("new", kind="config", config=config), "drafter"), tensors=False)
    out = {n: floats(*shape) for n, (_, shape) in layout(contract, view.dims).items()}
    vocab = config.get("draft_vocab_size", 512)
    out["lm_head.weight"] = floats(vocab, 64)
    if vocab < 512:
        out["d2t"], out["t2d"] = offsets(IDS), mask(IDS)
    return {whole + n.replace("layers.0.", prefix): t for n, t in out.items()}


def put(folder: Path, config: dict[str, Any], table: dict[str, Raw], shards: int = 1) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
    names = sorted(table)
    parts = [names[i::shards] for i in range(shards)]
    where = {}
    for n, part in enumerate(parts):
        file = "model.safetensors" if shards == 1 else f"model-{n + 1:05d}-of-{shards:05d}.safetensors"
        save(folder / file, {k: table[k] for k in part})
        where |= dict.fromkeys(part, file)
    if shards > 1:
        size = sum(len(t.data) for t in table.values())
        index = {"metadata": {"total_size": size}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def save(path: Path, table: dict[str, Raw]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, data) in table.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + b"".join(t.data for t in table.values()))


def load(folder: Path) -> dict[str, Raw]:
    """Return what a file holds, after safetensors itself has opened it."""
    path = folder / "model.safetensors"
    with safetensors.safe_open(path, framework="np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    raw = path.read_bytes()
    base = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:base])
    header.pop("__metadata__")
    assert {name: tuple(row["shape"]) for name, row in header.items()} == shapes
    cut = {n: raw[base + r["data_offsets"][0] : base + r["data_offsets"][1]] for n, r in header.items()}
    return {name: Raw(row["dtype"], shapes[name], cut[name]) for name, row in header.items()}


def tree(folder: Path) -> dict[str, Any]:
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "folder"
        for p in sorted(folder.rglob("*"))
    }


def plan_of(report: Report) -> Plan:
    assert report.plan
    return report.plan


def said(plan: Plan, *words: str) -> bool:
    return any(all(word in line for word in words) for line in plan.says)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    rows = {n: floats(512, 64) for n in ("model.embed_tokens.weight", "lm_head.weight")}
    return put(tmp_path / "target", TARGET, rows | {"model.norm.weight": floats(64)})


def repad(target: Path, rows: int) -> None:
    """Give a target so many rows, in its config and in its tensors."""
    config = json.loads((target / "config.json").read_text()) | {"vocab_size": rows}
    (target / "config.json").write_text(json.dumps(config))
    table = {n: floats(rows, 64) for n in ("model.embed_tokens.weight", "lm_head.weight")}
    save(target / "model.safetensors", table | {"model.norm.weight": floats(64)})


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    return put(tmp_path / "drafter", DRAFTER, tensors(DRAFTER))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "made" / "new"


def head(raw: Raw) -> Any:
    return np.frombuffer(raw.data, dtype=np.uint16).reshape(raw.shape)


# --- what is written ----------------------------------------------------------------------------------------------

WHOLE = {"draft_vocab_size": ...}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None, int]] = {
    # the drafter's config, what is another in the target, the geometry asked for, shards
    "as is": ({}, {}, None, 1),
    "sharded": ({}, {}, None, 2),
    "context": ({}, {"max_position_embeddings": 8192}, None, 1),
    "deeper target": ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}, {}, None, 1),
    "intermediate": ({}, {}, {"intermediate_size": 160}, 1),
    "whole vocabulary": ({}, {}, WHOLE, 1),
    "four aux layers": ({}, {}, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5, 6]}}, 1),
    "two layers": ({}, {}, {"num_hidden_layers": 2}, 1),
    "biases": ({"attention_bias": True}, {}, {"attention_bias": True, "mlp_bias": True}, 2),
    "qwen": ({}, {}, {"architectures": ["Eagle3Qwen3ForCausalLM"]}, 1),
    "attention of another kind": ({}, {}, MLA, 1),
    "norms before fc": ({"norm_before_fc": True}, {}, {"fc_norm": True, "target_hidden_size": 64}, 1),
    "wider target": ({}, {"hidden_size": 128}, None, 1),
}


def clean(config: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if v is not ...}


@pytest.mark.parametrize("case", CASES)
def test_written_checkpoint_is_the_planned_one(case: str, tmp_path: Path, out: Path) -> None:
    own, other, like, shards = CASES[case]
    config, to = clean(DRAFTER | own), clean(TARGET | other)
    old = tensors(config)
    drafter = put(tmp_path / "drafter", config, old, shards)
    (drafter / "README.md").write_text("hello")
    wide = to["hidden_size"]
    rows = {n: floats(512, wide) for n in ("model.embed_tokens.weight", "lm_head.weight")}
    target = put(tmp_path / "target", to, rows | {"model.norm.weight": floats(wide)})
    geometry = put(tmp_path / "like", clean(DRAFTER | like), {}) if like else None
    if geometry:
        (geometry / "model.safetensors").unlink()
    before = tree(tmp_path)
    planned = plan_of(adapt(drafter, target, LIBRARY, like=geometry))
    if planned.verdict == "no":
        no = rewrite.write(drafter, target, LIBRARY, out, like=geometry)
        assert [f.code for f in no.findings if f.code.startswith("SRC")] == ["SRC123"]
        assert (plan_of(no).verdict, plan_of(no).written, no.exit_code) == ("no", "", 1)
        assert plan_of(no).headline.startswith("nothing was written: checkpoint: the plan says no")
        assert not out.parent.exists()
    report = rewrite.write(drafter, target, LIBRARY, out, like=geometry, anyway=planned.verdict == "no")
    plan = plan_of(report)
    assert plan.written == str(out), plan.headline
    untrained = [s.tensor for s in plan.steps if s.action == "init"]
    assert said(plan, "written untrained: ", *untrained[:8]) == bool(untrained)
    assert (plan.verdict, plan.steps, plan.changes) == (planned.verdict, planned.steps, planned.changes)
    assert {k: v for k, v in tree(tmp_path).items() if not k.startswith("made")} == before

    new = load(out)
    assert sorted(p.name for p in out.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert [p.name for p in out.parent.iterdir()] == ["new"]
    steps = {s.tensor.replace("layers.0.", "midlayer."): s for s in plan.steps}
    assert {n: t.shape for n, t in new.items()} == {n: s.new_shape for n, s in steps.items() if s.new_shape is not None}
    assert set(old) <= set(steps)
    for name, step in steps.items():
        if step.action == "copy":
            assert new[name] == old[name]
        elif step.action == "init" and step.new_shape is not None:
            kinds = {"BF16": np.uint16, "I64": np.int64}
            values = np.frombuffer(new[name].data, dtype=kinds[new[name].dtype])
            assert len(set(values.tolist())) == 1 if len(step.new_shape) == 1 else len(set(values.tolist())) > 50
    written = json.loads((out / "config.json").read_text())
    for change in plan.changes:
        value: Any = written
        for part in change.key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        assert value == change.new

    again = check(out, target)
    errors = {f.code for f in again.findings if f.level == "error"}
    announced = {line.split()[4] for line in plan.says if line.startswith("would still not hold: ")}
    assert errors == announced, report_text(again)
    if like is None:
        assert plan_of(adapt(out, target, LIBRARY)).verdict == "as is"


def test_rows_follow_the_map_into_the_whole_vocabulary(drafter: Path, target: Path, tmp_path: Path, out: Path) -> None:
    geometry = tmp_path / "like.json"
    geometry.write_text(json.dumps(clean(DRAFTER | WHOLE)))
    rewrite.write(drafter, target, LIBRARY, out, like=geometry)
    old, new = head(load(drafter)["lm_head.weight"]), head(load(out)["lm_head.weight"])
    assert (new[IDS] == old).all()
    rest = np.setdiff1d(np.arange(512), IDS)
    values = (new[rest].astype(np.uint32) << 16).view(np.float32)
    assert 0.015 < values.std() < 0.025
    assert not {"d2t", "t2d"} & set(load(out))


@pytest.mark.parametrize("size", [512, 200])
def test_map_and_rows_of_a_local_checkpoint_are_taken(size: int, target: Path, tmp_path: Path, out: Path) -> None:
    config = DRAFTER | {"draft_vocab_size": size}
    table = tensors(config)
    ids = np.arange(512)
    if size < 512:
        ids = np.sort(np.random.default_rng(1).permutation(512)[:size])
        table["d2t"], table["t2d"] = offsets(ids, "I32"), mask(ids)
    drafter = put(tmp_path / "drafter", config, table)
    like = put(tmp_path / "like", DRAFTER, tensors(DRAFTER))
    plan = plan_of(rewrite.write(drafter, target, LIBRARY, out, like=like))
    assert plan.written, plan.headline
    new, old = load(out), head(table["lm_head.weight"])
    assert (new["d2t"], new["t2d"]) == (offsets(IDS), mask(IDS))
    for row, wanted in enumerate(IDS):
        if (at := np.flatnonzero(ids == wanted)).size:
            assert (head(new["lm_head.weight"])[row] == old[at[0]]).all()
    assert not [f for f in check(out, target).findings if f.level == "error"]


@pytest.mark.parametrize("prefix", ["midlayer.", "layers.0."])
def test_trainer_names_become_serving_names(prefix: str, target: Path, tmp_path: Path, out: Path) -> None:
    drafter = put(tmp_path / "drafter", DRAFTER, tensors(DRAFTER, prefix=prefix, whole="draft_model."))
    assert {f.code for f in check(drafter, target).findings if f.level == "error"} == {"TEN406"}
    plan = plan_of(rewrite.write(drafter, target, LIBRARY, out))
    assert plan.written
    assert plan.headline == "after these changes (tensor names)"
    assert said(plan, "tensor names: draft_model.", "become the bare names of a serving checkpoint")
    assert set(load(out)) == set(tensors(DRAFTER, prefix="layers.0."))
    assert not [f for f in check(out, target).findings if f.level == "error"]


# --- files beside the weights -------------------------------------------------------------------------------------


def test_files_beside_the_weights_are_copied_or_named(drafter: Path, target: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("no")
    for name in (
        "optimizer.pt",
        "trainer_state.json",
        "pytorch_model.bin",
        "sub/scheduler.pt",
        ".cache/x",
        "sub/a/b.txt",
    ):
        (drafter / name).parent.mkdir(parents=True, exist_ok=True)
        (drafter / name).write_text(name)
    with open(drafter / "tokenizer.json", "wb") as stream:
        stream.truncate(20 << 20)
    os.symlink(tmp_path / "secret", drafter / "outside")
    os.symlink("README.md", drafter / "inside")
    os.symlink(tmp_path, drafter / "folder")
    os.mkfifo(drafter / "pipe")
    (drafter / "README.md").write_text("hello")
    plan = plan_of(rewrite.write(drafter, target, LIBRARY, out))
    assert plan.written, plan.headline
    made = tree(out)
    assert set(made) == {
        "README.md", "config.json", "inside", "model.safetensors", "sub", "sub/a", "sub/a/b.txt", "tokenizer.json",
    }  # fmt: skip
    assert not (out / "inside").is_symlink()
    assert made["tokenizer.json"] == tree(drafter)["tokenizer.json"]
    left = next(line for line in plan.says if line.startswith("left out of new: "))
    for name in (
        ".cache/",
        "folder (",
        "optimizer.pt (training state)",
        "outside (",
        "pipe (",
        "pytorch_model.bin (other",
    ):
        assert name in left
    assert "trainer_state.json (training" in left


def test_files_of_a_hub_cache_snapshot_are_copied(drafter: Path, target: Path, out: Path, tmp_path: Path) -> None:
    repo = tmp_path / "models--a--b"
    snapshot = repo / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (drafter / "tokenizer.json").write_text("{}")
    for file in drafter.iterdir():
        shutil.copy(file, repo / "blobs" / file.name)
        os.symlink(f"../../blobs/{file.name}", snapshot / file.name)
    assert plan_of(rewrite.write(snapshot, target, LIBRARY, out)).written
    assert tree(out)["tokenizer.json"] == tree(drafter)["tokenizer.json"]
    assert not any(p.is_symlink() for p in out.iterdir())


# --- what is refused ----------------------------------------------------------------------------------------------


def refused(report: Report, code: int, *words: str) -> Plan:
    plan = plan_of(report)
    assert plan.headline.startswith("nothing was written: "), plan.headline
    assert all(word in plan.headline for word in words), plan.headline
    assert "; the plan is: " in plan.headline
    assert (plan.written, report.exit_code) == ("", code)
    assert [f.code for f in report.findings if f.code in ("SRC113", "SRC122")] == (
        ["SRC113"] if "SRC113" in {f.code for f in report.findings} else ["SRC122"]
    )
    assert report_text(report).splitlines()[2].startswith("nothing was written")
    return plan


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("drafter", "DIR is the source"),
        ("drafter/new", "DIR lies inside the source"),
        (".", "DIR holds the source"),
        ("target", "DIR is the target"),
        ("target/deep/new", "DIR lies inside the target"),
        ("like", "DIR is the "),
        ("link", "DIR is the source"),
    ],
)
def test_folder_that_is_read_is_never_written(place: str, words: str, force: bool, tmp_path: Path) -> None:
    root = tmp_path / "root"
    drafter = put(root / "drafter", DRAFTER, tensors(DRAFTER))
    target = put(root / "target", TARGET, {"model.norm.weight": floats(64)})
    like = put(root / "like", DRAFTER, tensors(DRAFTER))
    os.symlink(drafter, root / "link")
    before = tree(root)
    for geometry in (like, like / "config.json"):
        report = rewrite.write(drafter, target, LIBRARY, root / place, like=geometry, force=force)
        refused(report, 2, words)
    assert tree(root) == before


def test_force_replaces_only_a_checkpoint(drafter: Path, target: Path, out: Path) -> None:
    (drafter / "notes.xyz").write_text("copied")
    assert plan_of(rewrite.write(drafter, target, LIBRARY, out)).written
    first = tree(out)
    refused(rewrite.write(drafter, target, LIBRARY, out), 2, "DIR exists")
    (drafter / "notes.xyz").write_text("copied anew")
    assert plan_of(rewrite.write(drafter, target, LIBRARY, out, force=True)).written
    assert tree(out)["notes.xyz"] != first["notes.xyz"]
    (out / "precious.xyz").write_text("mine")
    refused(rewrite.write(drafter, target, LIBRARY, out, force=True), 2, "more than a checkpoint", "precious.xyz")
    assert (out / "precious.xyz").read_text() == "mine"
    assert [p.name for p in out.parent.iterdir()] == ["new"]


@pytest.mark.parametrize("kind", ["foreign", "no weights", "file", "link", "dangling"])
def test_what_is_no_checkpoint_is_not_replaced(kind: str, drafter: Path, target: Path, out: Path) -> None:
    out.parent.mkdir()
    if kind in ("file", "link", "dangling"):
        if kind == "file":
            out.write_text("mine")
        else:
            (out.parent / "elsewhere").mkdir()
            os.symlink("nowhere" if kind == "dangling" else "elsewhere", out)
    elif kind == "foreign":
        put(out, DRAFTER, tensors(DRAFTER))
        (out / "thesis").mkdir()
        (out / "thesis" / "draft.txt").write_text("mine")
    else:
        out.mkdir()
        (out / "config.json").write_text("{}")
    before = tree(out.parent)
    refused(rewrite.write(drafter, target, LIBRARY, out, force=True), 2, "DIR ")
    assert tree(out.parent) == before


def test_another_makers_checkpoint_is_replaced_with_force(drafter: Path, target: Path, out: Path) -> None:
    put(out, DRAFTER | {"intermediate_size": 32}, tensors(DRAFTER | {"intermediate_size": 32}), 2)
    assert plan_of(rewrite.write(drafter, target, LIBRARY, out, force=True)).written
    assert load(out)["fc.weight"] == load(drafter)["fc.weight"]
    assert not list(out.glob("model-0*"))


def test_no_plan_and_no_local_source_are_refused(drafter: Path, target: Path, tmp_path: Path, out: Path) -> None:
    k2, k25 = "AQ-MedAI/Kimi-K2-Instruct-eagle3", "moonshotai/Kimi-K2.5"
    refused(rewrite.write(k2, k25, LIBRARY, out), 4, "no local safetensors checkpoint")
    yuhuili, llama = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "meta-llama/Llama-3.1-8B"
    refused(rewrite.write(yuhuili, llama, LIBRARY, out), 4, "there is no plan to write")
    assert not out.parent.exists()


@pytest.mark.parametrize("size", [64, 512])
def test_reduced_vocabulary_without_its_map_is_refused(size: int, target: Path, tmp_path: Path, out: Path) -> None:
    config = DRAFTER | {"draft_vocab_size": size}
    drafter = put(tmp_path / "drafter", config, tensors(config) | ({"d2t": offsets(IDS[:64])} if size < 512 else {}))
    geometry = tmp_path / "like.json"
    geometry.write_text(json.dumps(DRAFTER))
    refused(rewrite.write(drafter, target, LIBRARY, out, like=geometry), 4, "d2t must come from the trainer")
    assert not out.parent.exists()


BAD_MAPS = {
    "out of range": Raw("I64", (128,), np.full(128, 9999).astype("<i8").tobytes()),
    "negative": Raw("I64", (128,), np.full(128, -5).astype("<i8").tobytes()),
    "twice": Raw("I64", (128,), (-np.arange(128)).astype("<i8").tobytes()),
    "all zero": Raw("I32", (128,), bytes(512)),
    "float": floats(128, dtype="F32"),
    "too short": offsets(IDS[:64]),
}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", BAD_MAPS)
def test_map_that_maps_nothing_is_refused_first(
    name: str, whole: bool, target: Path, tmp_path: Path, out: Path
) -> None:
    drafter = put(tmp_path / "drafter", DRAFTER, tensors(DRAFTER) | {"d2t": BAD_MAPS[name]})
    geometry = tmp_path / "like.json"
    geometry.write_text(json.dumps(clean(DRAFTER | WHOLE)))
    report = rewrite.write(drafter, target, LIBRARY, out, like=geometry if whole else None)
    if whole and name in ("float", "too short"):
        assert said(plan_of(report), "it is not known which tokens its head's rows stand for")
    else:
        refused(report, 4, "d2t ")
        assert not out.exists()


def test_map_of_the_other_checkpoint_is_looked_at_too(target: Path, tmp_path: Path, out: Path) -> None:
    config = DRAFTER | {"draft_vocab_size": 512}
    drafter = put(tmp_path / "drafter", config, tensors(config))
    like = put(tmp_path / "like", DRAFTER, tensors(DRAFTER) | {"d2t": BAD_MAPS["all zero"]})
    refused(rewrite.write(drafter, target, LIBRARY, out, like=like), 4, "d2t of ", "all zero")


# --- the tokens of another vocabulary -----------------------------------------------------------------------------


def tokenizer(words: int, letter: str = "t", padding: int = 0) -> str:
    vocab = {f"{letter}{i}": i for i in range(words)} | {f"<pad{i}>": words + i for i in range(padding)}
    return json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []})


def test_tokenizer_of_another_vocabulary_is_left_out(drafter: Path, target: Path, tmp_path: Path, out: Path) -> None:
    (drafter / "tokenizer.json").write_text(tokenizer(512))
    (target / "tokenizer.json").write_text(tokenizer(512, "u"))
    geometry = tmp_path / "like.json"
    geometry.write_text(json.dumps(clean(DRAFTER | WHOLE)))
    plan = plan_of(rewrite.write(drafter, target, LIBRARY, out, like=geometry))
    assert plan.written, plan.headline
    assert {s.tensor: s.action for s in plan.steps}["lm_head.weight"] in ("init", "drop")
    assert said(plan, "the tokenizers give the same ids other tokens")
    assert not (out / "tokenizer.json").exists()


def test_padding_moves_no_token(drafter: Path, target: Path, out: Path) -> None:
    for folder in (drafter, target):
        (folder / "tokenizer.json").write_text(tokenizer(500))
    repad(target, 576)
    plan = plan_of(rewrite.write(drafter, target, LIBRARY, out))
    assert [(c.key, c.new) for c in plan.changes] == [("vocab_size", 576)]
    assert {s.tensor: s.action for s in plan.steps}["lm_head.weight"] == "copy"
    assert {s.tensor: s.action for s in plan.steps}["t2d"] == "drop"


@pytest.mark.parametrize("rows", [576, 504])
def test_embedding_of_which_only_padding_differs_is_kept(rows: int, target: Path, tmp_path: Path, out: Path) -> None:
    table = tensors(DRAFTER) | {"embed_tokens.weight": floats(512, 64)}
    drafter = put(tmp_path / "drafter", DRAFTER, table)
    for folder in (drafter, target):
        (folder / "tokenizer.json").write_text(tokenizer(500))
    repad(target, rows)
    if rows < 512:  # ids that are not padding
        ids = np.sort(np.random.default_rng(0).permutation(500)[:128])
        drafter = put(tmp_path / "small", DRAFTER, table | {"d2t": offsets(ids), "t2d": mask(ids)})
        (drafter / "tokenizer.json").write_text(tokenizer(500))
    plan = plan_of(rewrite.write(drafter, target, LIBRARY, out))
    assert plan.written, plan.headline
    assert plan.verdict == "after these changes"
    step = {s.tensor: s for s in plan.steps}["embed_tokens.weight"]
    assert (step.action, step.old_shape, step.new_shape) == ("rows", (512, 64), (rows, 64))
    new = head(load(out)["embed_tokens.weight"])
    assert (new[:500] == head(table["embed_tokens.weight"])[:500]).all()
    assert len(new) == rows


def test_target_whose_config_is_not_that_of_its_tensors_is_not_planned_for(
    drafter: Path, target: Path, out: Path
) -> None:
    config = json.loads((target / "config.json").read_text()) | {"vocab_size": 576}
    (target / "config.json").write_text(json.dumps(config))
    plan = plan_of(rewrite.write(drafter, target, LIBRARY, out))
    assert plan.verdict == "unknown"
    assert "the target's vocab: two sources of a dim disagree" in plan.headline
    assert not out.exists()


# --- what goes wrong on the way -----------------------------------------------------------------------------------


def _full(monkeypatch: pytest.MonkeyPatch, drafter: Path, out: Path) -> None:
    def fails(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rewrite, "_made", fails)
    monkeypatch.setattr(rewrite.os, "fsync", fails)


def _small(monkeypatch: pytest.MonkeyPatch, drafter: Path, out: Path) -> None:
    monkeypatch.setattr(rewrite.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 5, 5))  # type: ignore[attr-defined]


def _short(monkeypatch: pytest.MonkeyPatch, drafter: Path, out: Path) -> None:
    copy = rewrite._copy_files

    def cut(*args: Any) -> Any:
        os.truncate(drafter / "model.safetensors", 30_000)
        return copy(*args)

    monkeypatch.setattr(rewrite, "_copy_files", cut)


def _changed(monkeypatch: pytest.MonkeyPatch, drafter: Path, out: Path) -> None:
    copy = rewrite._copy_files

    def touch(*args: Any) -> Any:
        os.utime(drafter / "model.safetensors", ns=(1, 1))
        return copy(*args)

    monkeypatch.setattr(rewrite, "_copy_files", touch)


def _gone(monkeypatch: pytest.MonkeyPatch, drafter: Path, out: Path) -> None:
    copy = rewrite._copy_file

    def lose(path: Path, *args: Any) -> Any:
        path.unlink()
        return copy(path, *args)

    monkeypatch.setattr(rewrite, "_copy_file", lose)


def _closed(monkeypatch: pytest.MonkeyPatch, drafter: Path, out: Path) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(out.parent))

    monkeypatch.setattr(rewrite.tempfile, "mkdtemp", refuse)


def _nan(monkeypatch: pytest.MonkeyPatch, drafter: Path, out: Path) -> None:
    monkeypatch.setattr(rewrite, "_rows", lambda *_: json.dumps(float("nan"), allow_nan=False))


FAULTS: dict[str, tuple[Callable[..., None], str, str]] = {
    "disk full": (_full, "SRC122", "No space left on device"),
    "disk too small": (_small, "SRC122", "the disk has 5 bytes, and "),
    "source cut": (_short, "SRC113", "ended early"),
    "source changed": (_changed, "SRC113", "changed while it was read"),
    "file gone": (_gone, "SRC113", "No such file"),
    "parent closed": (_closed, "SRC122", "Permission denied"),
    "not JSON": (_nan, "SRC122", "not JSON compliant"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_failure_leaves_nothing_and_leads_the_answer(
    fault: str, drafter: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (drafter / "README.md").write_text("hello")
    setup, code, words = FAULTS[fault]
    setup(monkeypatch, drafter, out)
    report = rewrite.write(drafter, target, LIBRARY, out)
    refused(report, 4, words)
    assert code in {f.code for f in report.findings}
    assert not out.parent.exists()


def test_parent_that_is_a_file_is_one_finding(drafter: Path, target: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(rewrite.write(drafter, target, LIBRARY, tmp_path / "file" / "new"), 4, "it could not be written")
    refused(rewrite.write(drafter, target, LIBRARY, tmp_path / ("n" * 300)), 4, "it could not be written")


def test_failed_move_puts_the_old_folder_back(
    drafter: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plan_of(rewrite.write(drafter, target, LIBRARY, out)).written
    before, rename = tree(out.parent), os.rename

    def fails(old: Any, new: Any) -> None:
        if Path(new) == out and Path(old).name != "old":
            raise OSError(errno.EIO, "Input/output error")
        rename(old, new)

    monkeypatch.setattr(rewrite.os, "rename", fails)
    refused(rewrite.write(drafter, target, LIBRARY, out, force=True), 4, "Input/output error")
    assert tree(out.parent) == before


SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests run in the background
from pathlib import Path
from draftproof import rewrite
from draftproof.library import Library
real = rewrite._data
def slow(*args):
    print("copying", flush=True)
    time.sleep(60)
    yield from real(*args)
rewrite._data = slow
rewrite.write(sys.argv[1], sys.argv[2], Library(), Path(sys.argv[3]))
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_interrupted_run_leaves_nothing_or_is_named(name: str, drafter: Path, target: Path, out: Path) -> None:
    words = [sys.executable, "-c", SLOW, str(drafter), str(target), str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        try:
            assert run.stdout
            assert run.stdout.readline() == b"copying\n"
            time.sleep(0.05)
            run.send_signal(getattr(signal, name))
            run.wait(20)
        finally:
            run.kill()
    assert not out.exists()
    left = list(out.parent.iterdir()) if out.parent.exists() else []
    assert len(left) == (1 if name == "SIGKILL" else 0)
    plan = plan_of(rewrite.write(drafter, target, LIBRARY, out))
    assert plan.written
    assert said(plan, "left by a run that did not end", str(left[0])) if left else not said(plan, "left by a run")
