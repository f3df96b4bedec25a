"""What is no drafter, or no checkpoint, is told as what it is, each with what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import api, cli
from draftproof.findings import Report
from draftproof.library import Library

CONFIG, TABLE = b.dense_config(), b.dense()
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
GOOD = {"config.json": json.dumps(CONFIG), WEIGHTS: b.safetensors(TABLE)}
LORA = {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 8}
LORA_TABLE: b.Table = {
    f"base_model.model.layers.0.self_attn.{p}_proj.lora_{x}.weight": ("BF16", (8, 64)) for p in "qkv" for x in "AB"
}
COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(files: Mapping[str, bytes | str], name: str = "drafter") -> str:
    """Write files, with the folders on the way to them; returns the folder's name."""
    for file, data in files.items():
        path = Path(name, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return name


def under(folder: str, files: Mapping[str, bytes | str] = GOOD) -> dict[str, bytes | str]:
    return {f"{folder}/{name}": data for name, data in files.items()}


def alone(model: Any, **more: Any) -> Report:
    return api.check_models(model, None, b.LIBRARY, **more)


# --- folders and files that hold something else -------------------------------------------------------------------

FOLDERS: Mapping[str, tuple[Mapping[str, bytes | str], str, int, tuple[str, ...]]] = {
    "LoRA adapter": (
        {"adapter_config.json": json.dumps(LORA), "adapter_model.safetensors": b.safetensors(LORA_TABLE)},
        "SRC124", 2, ("a LORA adapter of org/base", "merge it into org/base"),
    ),
    "LoRA adapter with a config beside it": (
        {"config.json": json.dumps(CONFIG), "adapter_config.json": json.dumps(LORA), "adapter_model.bin": b"x"},
        "SRC124", 2, ("of org/base",),
    ),
    "adapter that names no base": (
        {"adapter_config.json": "{}", "adapter_model.safetensors": b"x"},
        "SRC124", 2, ("a base model that it does not name", "merge it into its base model"),
    ),
    "adapter whose config is broken": (
        {"adapter_config.json": "{", "adapter_model.safetensors": b"x"}, "SRC124", 2,
        ("an adapter, of a base model that it does not name",),
    ),
    "adapter weights alone": ({"adapter_model.safetensors": b"x"}, "SRC124", 2, ("an adapter",)),
    "diffusion pipeline": (
        {"model_index.json": '{"_class_name": "StableDiffusionPipeline"}', "unet/config.json": "{}",
         "vae/config.json": "{}"},
        "SRC125", 2, ("a diffusion model (StableDiffusionPipeline)", "unet, vae"),
    ),
    "one part of a diffusion model": (
        {"config.json": '{"_class_name": "UNet2DConditionModel"}', "diffusion_pytorch_model.safetensors": b"x"},
        "SRC125", 2, ("a diffusion model",),
    ),
    "dataset": (
        {"README.md": "---\ntask_categories: [x]\n---\n", "data/train-00000-of-00001.parquet": b"PAR1"},
        "SRC125", 2, ("a dataset: data/train-00000-of-00001.parquet",),
    ),
    "dataset saved to disk": ({"dataset_info.json": "{}", "data-00000.arrow": b""}, "SRC125", 2, ("a dataset",)),
    "GGUF": (
        {"drafter-Q4_K_M.gguf": b"GGUF\x03\0\0\0"}, "SRC116 unknown", 4,
        ("GGUF: drafter-Q4_K_M.gguf", "converted from"),
    ),
    "GGUF beside a config": (
        {"config.json": json.dumps(CONFIG), "d.gguf": b"GGUF"}, "SRC116 unknown", 4, ("d.gguf: GGUF", "converted from"),
    ),
    "ONNX": ({"model.onnx": b"", "README.md": ""}, "SRC116 unknown", 4, ("ONNX: model.onnx", "exported from")),
    "TensorFlow": (
        {"config.json": json.dumps(CONFIG), "tf_model.h5": b""}, "SRC116 unknown", 4, ("TensorFlow", "other names"),
    ),
    "Flax": (
        {"config.json": json.dumps(CONFIG), "flax_model.msgpack": b""}, "SRC116 unknown", 4, ("Flax", "transposed"),
    ),
    "saved graph": ({"saved_model.pb": b"", "variables/x": b""}, "SRC116 unknown", 4, ("saved graph",)),
    "training state": (
        {"optimizer.pt": b"", "scheduler.pt": b"", "trainer_state.json": "{}", "rng_state_0.pth": b""},
        "SRC126", 2, ("optimizer.pt, rng_state_0.pth, scheduler.pt, trainer_state.json", "export the weights"),
    ),
    "training state with a config": (
        {"config.json": json.dumps(CONFIG), "optimizer.bin": b"", "training_args.bin": b""},
        "SRC126", 2, ("optimizer.bin, training_args.bin",),
    ),
    "shards of a trainer": (
        {"latest": "global_step10", "zero_to_fp32.py": "", "global_step10/mp_rank_00_model_states.pt": b""},
        "SRC126", 2, ("global_step10/", "put together first"),
    ),
    "state of a distributed trainer": (
        {"optimizer_0/__0_0.distcp": b"", "pytorch_model_fsdp_0/__0_0.distcp": b"", "scheduler.pt": b""},
        "SRC126", 2, ("pytorch_model_fsdp_0/",),
    ),
    "checkpoints of a training run": (
        {**under("checkpoint-500"), **under("checkpoint-1000"), **under("checkpoint-2000"), "trainer_state.json": "{}"},
        "SRC127", 2, ("3 folders", "give one of them: drafter/checkpoint-2000 has the highest number"),
    ),
    "model one folder down": (under("model"), "SRC127", 2, ("give drafter/model",)),
    "root of a Hub cache": (
        {"models--org--a/refs/main": COMMIT, "models--org--b/refs/main": COMMIT, "version.txt": "1"},
        "SRC127", 2, ("root of a Hub cache, with 2 models", "drafter/models--org--a/snapshots/COMMIT"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("side", ["drafter", "target"])
def test_folder_that_holds_something_else_is_told_as_what_it_is(name: str, side: str) -> None:
    files, code, exit_code, words = FOLDERS[name]
    folder = put(files)
    good = b.given(CONFIG, TABLE, b.DRAFTER)
    report = alone(folder) if side == "drafter" else b.check(good, folder)
    said = b.codes(report) - {"IDX308 info"}
    if side == "drafter":
        assert said == {code}, b.text(report)
        assert report.exit_code == exit_code
    else:
        assert code in said, b.text(report)
    for word in words:
        assert word in b.text(report), b.text(report)


def cache(name: str = "models--org--name", main: str = COMMIT, commits: tuple[str, ...] = (COMMIT,)) -> str:
    files: dict[str, bytes | str] = {"refs/main": main, "blobs/x": b""}
    for commit in commits:
        files |= under(f"snapshots/{commit}")
    return put(files, name)


def test_root_of_a_cached_repo_names_its_snapshot() -> None:
    report = alone(cache())
    assert b.codes(report) == {"SRC127"}
    assert "a Hub cache folder of org/name, with 1 snapshot" in b.text(report)
    assert f"give the snapshot: models--org--name/snapshots/{COMMIT}" in b.text(report)
    assert alone(f"models--org--name/snapshots/{COMMIT}").exit_code == 0


def test_root_of_a_cached_repo_with_two_snapshots_names_that_of_main_first() -> None:
    text = b.text(alone(cache(main=OTHER, commits=(COMMIT, OTHER))))
    assert f"snapshots/{OTHER} (refs/main); or models--org--name/snapshots/{COMMIT}" in text


def test_snapshots_folder_of_a_cached_repo_names_its_snapshot() -> None:
    cache()
    assert f"give the snapshot: models--org--name/snapshots/{COMMIT}" in b.text(alone("models--org--name/snapshots"))


def test_cached_repo_without_a_snapshot_says_so() -> None:
    put({"refs/main": COMMIT, "snapshots/.keep": ""}, "models--org--name")
    report = alone("models--org--name")
    assert b.codes(report) == {"SRC127"}
    assert "0 snapshots: nothing to read" in b.text(report)


def test_cached_dataset_is_told_as_one() -> None:
    assert b.codes(alone(cache("datasets--org--name"))) == {"SRC125"}


FILES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    WEIGHTS: ("SRC117", ("one weight file", "give its folder: drafter")),
    INDEX: ("SRC117", ("the index of a sharded checkpoint", "give its folder: drafter")),
    "config.json": ("SRC117", ("give its folder: drafter", "--config drafter/config.json")),
    "model.gguf": ("STF221", ("GGUF", "the file starts with 78")),
    "model.onnx": ("SRC116 unknown", ("ONNX",)),
    "drafter.tar.gz": ("SRC117", ("unpack it",)),
    "pair.toml": ("SRC117", ("draftproof check drafter/pair.toml",)),
}


@pytest.mark.parametrize("file", FILES)
def test_file_in_place_of_a_folder_says_what_to_give(file: str) -> None:
    code, words = FILES[file]
    folder = put({**GOOD, file: GOOD.get(file, b"x")})
    report = alone(f"{folder}/{file}")
    assert b.codes(report) == {code}, b.text(report)
    for word in words:
        assert word in b.text(report)


def test_file_of_an_adapter_is_told_as_its_adapter() -> None:
    put(FOLDERS["LoRA adapter"][0])
    assert b.codes(alone("drafter/adapter_model.safetensors")) == {"SRC124"}


@pytest.mark.parametrize(
    ("spec", "code", "word"),
    [
        ("datasets/org/name", "SRC125", "a dataset repo"),
        ("https://huggingface.co/datasets/org/name", "SRC125", "a dataset repo"),
        ("https://huggingface.co/spaces/org/name", "SRC125", "a space repo"),
        ("hf://datasets/org/name", "SRC125", "a dataset repo"),
        ("https://huggingface.co/org/name", "SRC112", "SRC112 [unknown] drafter org/name:"),
        ("hf://org/name", "SRC112", "SRC112 [unknown] drafter org/name:"),
        (f"https://huggingface.co/org/name/tree/{COMMIT}", "SRC112", "org/name"),
        ("https://huggingface.co/org/name/tree/main", "SRC112", "SRC112 [unknown] drafter org/name:"),
        ("https://huggingface.co/org/name/blob/dev/config.json", "SRC117", "40 hex digits"),
    ],
)
def test_address_says_what_to_write(spec: str, code: str, word: str) -> None:
    report = alone(spec)
    assert {c.split()[0] for c in b.codes(report)} == {code}
    assert word in b.text(report)


def test_whole_checkpoint_with_an_adapter_or_training_state_beside_it_is_read() -> None:
    beside = {"adapter_config.json": json.dumps(LORA), "optimizer.pt": b"", **under("checkpoint-1")}
    assert b.codes(alone(put({**GOOD, **beside}))) == {"IDX308 info"}


def test_arguments_of_a_trainer_are_no_weights() -> None:
    files = {"config.json": json.dumps(CONFIG), "training_args.bin": b"x", "tokenizer.json": "{}"}
    assert b.codes(alone(put(files))) == {"SRC126", "IDX308 info"}


def test_command_line_ends_with_wrong_usage_where_a_folder_holds_no_checkpoint(capsys: Any) -> None:
    folder = put(FOLDERS["LoRA adapter"][0])
    assert cli.main(["check", "--drafter", folder]) == 2
    assert "SRC124" in capsys.readouterr().out


# --- families that cannot be told ---------------------------------------------------------------------------------

PLAIN = b.edit(CONFIG, {"architectures": ["NewDrafter"], "model_type": "new", "eagle_config": b.ABSENT,
                        "draft_vocab_size": b.ABSENT})  # fmt: skip
NO_FUSION = b.changed(TABLE, {"fc.weight": None, "midlayer.hidden_norm.weight": None, "d2t": None, "t2d": None})


def test_family_that_cannot_be_told_names_what_comes_near_and_by_what_it_fails() -> None:
    report = alone(b.given(PLAIN, NO_FUSION, b.DRAFTER))
    assert b.codes(report) == {"TEN408 unknown"}
    text = b.text(report)
    assert "eagle3: 11 of 11 tensor names, lacks fc.weight, layers.0.hidden_norm.weight; " in text
    assert "no: " in text
    assert "dflash" in text.partition("no: ")[2]
    assert "--family eagle3; else write a contract for it: draftproof init --drafter" in text


def test_what_a_near_family_lacks_is_named() -> None:
    table = b.changed(NO_FUSION, {"norm.weight": None, "odd.weight": ("BF16", (2,))})
    text = b.text(alone(b.given(PLAIN, table, b.DRAFTER)))
    assert "eagle3: 10 of 11 tensor names, lacks fc.weight, layers.0.hidden_norm.weight, norm.weight" in text


def test_what_rules_a_near_family_out_is_named() -> None:
    config = b.edit(PLAIN, {"speculators_model_type": "new"})
    text = b.text(alone(b.given(config, TABLE, b.DRAFTER)))
    assert "eagle3: 15 of 15 tensor names, ruled out by speculators_model_type in config.json" in text


def test_checkpoint_that_is_near_no_family_says_so_and_what_to_do() -> None:
    text = b.text(alone(b.given(PLAIN, {"a.weight": ("BF16", (2,)), "b.weight": ("BF16", (3,))}, b.DRAFTER)))
    assert "no: " in text
    assert "of 2 tensor names" not in text
    assert "write a contract for it: draftproof init" in text


def test_misspelt_architecture_is_told_what_it_may_mean() -> None:
    config = b.edit(PLAIN, {"architectures": ["LlamaForCausalLMEagle33"]})
    text = b.text(alone(b.given(config, NO_FUSION, b.DRAFTER)))
    assert "did you mean 'LlamaForCausalLMEagle3'?" in text


def two(folder: Path) -> Library:
    """Return a library in which two families have the same architecture."""
    text = (Library().files("family")["eagle3"]).read_text()
    (folder / "families").mkdir(parents=True)
    (folder / "families" / "mine.toml").write_text(text.replace('id = "eagle3"', 'id = "mine"', 1))
    return Library(folder)


def test_two_families_that_both_match_are_named_with_their_evidence_and_the_flag(tmp_path: Path) -> None:
    library = two(tmp_path / "own")
    report = api.check_models(put(GOOD), None, library)
    assert b.codes(report) == {"TEN409 unknown"}
    text = b.text(report)
    assert "eagle3 (by LlamaForCausalLMEagle3" in text
    assert "mine (by LlamaForCausalLMEagle3" in text
    assert "--family eagle3 or --family mine" in text
    assert b.codes(api.check_models("drafter", None, library, "mine")) == set()


def test_adapter_that_is_named_like_a_model_is_told_by_its_tensors() -> None:
    report = alone(put({"config.json": json.dumps(CONFIG), WEIGHTS: b.safetensors(LORA_TABLE)}))
    assert b.codes(report) == {"TEN435"}
    assert "6 of 6 tensors of an adapter" in b.text(report)


def test_adapter_that_is_named_like_a_model_names_its_base_where_its_config_stands_beside_it() -> None:
    files = {
        "config.json": json.dumps(CONFIG),
        WEIGHTS: b.safetensors(LORA_TABLE),
        "adapter_config.json": json.dumps(LORA),
    }
    report = alone(put(files))
    assert b.codes(report) == {"TEN435"}
    assert "merge it into org/base" in b.text(report)


@pytest.mark.parametrize(
    ("below", "words"),
    [("onnx/model.onnx", "ONNX: an ONNX graph is made for one runtime"),
     ("checkpoint-7/model.safetensors", "weights stand in checkpoint-7: give that folder")],
)  # fmt: skip
def test_weights_below_a_folder_with_a_config_are_pointed_to(below: str, words: str) -> None:
    report = alone(put({"config.json": json.dumps(CONFIG), below: b.safetensors(TABLE)}))
    assert "SRC120 unknown" in b.codes(report)
    assert words in b.text(report)


def test_diffusion_config_in_memory_is_told_as_one() -> None:
    report = alone(b.given({"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.30"}, {}, "org/u"))
    assert b.codes(report) == {"SRC125"}
    assert "UNet2DConditionModel" in b.text(report)


# --- roles --------------------------------------------------------------------------------------------------------


def test_drafter_given_as_target_is_told_as_a_drafter() -> None:
    report = b.check(b.given(CONFIG, TABLE, b.DRAFTER), put(GOOD))
    assert "PAIR422" in b.codes(report)
    assert "a drafter (eagle3)" in b.text(report)


def test_drafter_and_target_that_are_swapped_are_told_the_right_order() -> None:
    target, drafter = b.write(Path("target"), b.target_config(), b.target()), put(GOOD)
    report = api.check_models(target, drafter, b.LIBRARY)
    assert b.codes(report) == {"PAIR422", "PAIR422 unknown"}
    assert "the two are swapped: --drafter drafter --target target" in b.text(report)


def test_same_repo_for_both_is_no_pair_wherever_the_two_are_read() -> None:
    cache("models--org--name", COMMIT)
    cache("other/models--org--name", OTHER, (OTHER,))
    both = [f"models--org--name/snapshots/{COMMIT}", f"other/models--org--name/snapshots/{OTHER}"]
    for other in both:
        assert "SRC118" in b.codes(api.check_models(both[0], other, b.LIBRARY))
