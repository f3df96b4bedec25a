"""adapt --for TRAINER --write DIR: what is written is what the trainer asks for, and check has nothing against it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_adapt_write import IDS, clean, floats, head, load, mask, offsets, plan_of, put, refused, said, tensors, tree

from builder import SMALL_DRAFTER as DRAFTER
from builder import SMALL_TARGET
from draftproof import rewrite
from draftproof.answers import Plan
from draftproof.api import examine, report
from draftproof.cli import main
from draftproof.contracts import Fact
from draftproof.courses import Trainer
from draftproof.hub import open_model
from draftproof.library import Library
from draftproof.render import report_text
from draftproof.torchzip import read_torch_zip

TARGET: dict[str, Any] = SMALL_TARGET | {"intermediate_size": 96}
REPO, BASE = "org/drafter", "org/target"
LIBRARY = Library()
TRAINERS: dict[str, Trainer] = {id: trainer for id, trainer, _ in LIBRARY.all("trainer")}
KEYS = {  # what each trainer's EAGLE-3 has, by its own names
    "midlayer": ["midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm"],
    "parts": [
        *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    ],
}


def asked(layer: str, top: str, *more: str) -> set[str]:
    """Return the names of a one-layer EAGLE-3, as a trainer spells them."""
    names = {f"{layer}{n.partition('.')[2]}.weight" for n in KEYS["midlayer"]}
    names |= {f"{layer}{n}.weight" for n in KEYS["parts"]} | {f"{top}fc.weight", f"{top}norm.weight"}
    return names | {"lm_head.weight"} | set(more)


NAMES = {
    "specforge": asked("midlayer.", "", "d2t", "t2d"),
    "speculators": asked("layers.0.", "", "d2t", "t2d"),
    "torchspec": asked("midlayer.", "", "d2t"),
    "modelopt": asked("layers.0.", "", "d2t"),
    "automodel": asked("model.layers.0.", "model.", "d2t", "t2d", "model.embed_tokens.weight"),
}
FILES = {
    "specforge": {"vocab_mapping.pt"}, "speculators": {"d2t.npy", "t2d.npy"}, "torchspec": set(),
    "modelopt": {"d2t.pt"}, "automodel": {"selected_token_ids.pt"},
}  # fmt: skip


def library(folder: Path, convention: str = "boundary") -> Library:
    """Return a library that knows what the drafter in a Hub cache was trained on."""
    (folder / "models").mkdir(parents=True)
    text = 'schema = 1\nkind = "model"\nid = "org--drafter"\nrepo = "org/drafter"\n'
    for key, value in {"trained_on": BASE, "aux_convention": convention}.items():
        text += f'[{key}]\nvalue = "{value}"\nsource = "its card"\n'
    (folder / "models" / "org--drafter.toml").write_text(text)
    return Library(folder)


def snapshot(root: Path, repo: str, config: dict[str, Any], table: Any) -> Path:
    """Write a checkpoint as a snapshot in a Hub cache, so that its repo is known."""
    return put(root / f"models--{repo.replace('/', '--')}" / "snapshots" / ("a" * 40), config, table)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    rows = {n: floats(512, 64) for n in ("model.embed_tokens.weight", "lm_head.weight")}
    return snapshot(tmp_path / "cache", BASE, TARGET, rows | {"model.norm.weight": floats(64)})


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    table = tensors(DRAFTER)
    del table["t2d"]
    return snapshot(tmp_path / "cache", REPO, DRAFTER, table)


def written(trainer: str, drafter: Path, target: Path, out: Path, **more: Any) -> Plan:
    anyway = TRAINERS[trainer].start.takes != "folder"
    more.setdefault("library", library(out.parent / f"facts-{trainer}"))
    made = rewrite.write(drafter, target, more.pop("library"), out, trainer=trainer, anyway=anyway, **more)
    plan = plan_of(made)
    assert plan.written == str(out), report_text(made)
    return plan


def against(out: Path, target: Path, convention: str) -> list[str]:
    """Return what check has against a written checkpoint, once it is declared what it was trained on."""
    facts = {"trained_on": Fact(BASE, "its card"), "aux_convention": Fact(convention, "its card")}
    case = examine(out, target, LIBRARY, repos=(REPO, BASE), facts=facts)
    return [f"{f.code} {f.level} {f.subject}: {f.observed}" for f in report(case, "").findings
            if f.level not in ("pass", "info")]  # fmt: skip


def torch_entries(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return what our own reader, which runs no pickle code, finds in a torch file."""
    raw = path.read_bytes()
    found, problems = read_torch_zip(lambda start, stop: raw[start:stop], len(raw), path.name)
    assert {f.level for f in problems} <= {"info"}
    assert found
    return {name: (t.dtype, t.shape) for name, t in found.tensors.items()}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_written_form_is_the_trainers_and_check_has_nothing_against_it(
    trainer: str, drafter: Path, target: Path, tmp_path: Path
) -> None:
    before = tree(tmp_path)
    out = tmp_path / "made" / trainer
    plan = written(trainer, drafter, target, out)
    assert {k: v for k, v in tree(tmp_path).items() if not k.startswith("made")} == before
    new, old = load(out), load(drafter)
    assert set(new) == NAMES[trainer]
    assert {p.name for p in out.iterdir()} == {"config.json", "model.safetensors"} | FILES[trainer]
    for name, raw in new.items():  # by its last parts, a tensor is the drafter's own
        own = next((t for n, t in old.items() if n.split(".")[-2:] == name.split(".")[-2:]), None)
        if own is not None:
            assert raw == own, name
    if "t2d" in NAMES[trainer]:
        assert new["t2d"] == mask(IDS)
    config = json.loads((out / "config.json").read_text())
    row, _ = TRAINERS[trainer].layout("eagle3")
    assert row
    assert config["architectures"] == [row.architectures[0]]
    ids = config.get("eagle_config", config)["eagle_aux_hidden_state_layer_ids"]
    assert ids == ([1, 3, 4] if trainer == "specforge" else [2, 4, 5])
    assert against(out, target, "output" if trainer == "specforge" else "boundary") == []
    again = rewrite.write(out, target, LIBRARY, tmp_path / "again", trainer=trainer)
    if TRAINERS[trainer].start.takes == "folder":
        assert plan_of(again).headline == "as is", plan_of(again).headline
        assert tree(tmp_path / "again") == tree(out)
    else:
        refused_again = plan_of(again).headline
        assert refused_again.startswith("nothing was written: checkpoint: the plan says no")
    assert plan.trainer == trainer


def test_specforge_takes_its_vocabulary_from_the_file(drafter: Path, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    written("specforge", drafter, target, out)
    path = out / "vocab_mapping.pt"
    assert torch_entries(path) == {"d2t": ("I64", (128,)), "t2d": ("BOOL", (512,))}
    torch = pytest.importorskip("torch")
    found = torch.load(path)  # as load_vocab_mapping does, with weights_only
    assert sorted(found) == ["d2t", "t2d"]
    assert (found["d2t"].numpy() == IDS - np.arange(128)).all()
    assert (torch.nonzero(found["t2d"]).flatten().numpy() == IDS).all()
    buffers = {"d2t": torch.zeros(128, dtype=torch.int64), "t2d": torch.ones(512, dtype=torch.bool)}
    for name, buffer in buffers.items():
        buffer.copy_(found[name])
    assert torch.load(path, map_location="cpu", weights_only=True)["d2t"].dtype == torch.int64


def test_specforge_gets_both_maps_at_a_whole_vocabulary(target: Path, tmp_path: Path) -> None:
    config = DRAFTER | {"draft_vocab_size": 512}
    whole = snapshot(tmp_path / "whole", REPO, config, tensors(config))
    out = tmp_path / "made"
    written("specforge", whole, target, out)
    new = load(out)
    assert new["d2t"].data == bytes(8 * 512)
    assert new["t2d"].data == b"\x01" * 512
    assert {p.name for p in out.iterdir()} == {"config.json", "model.safetensors"}  # there is nothing to map
    assert against(out, target, "output") == []


def test_speculators_takes_its_vocabulary_from_two_arrays(drafter: Path, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    written("speculators", drafter, target, out)
    d2t, t2d = np.load(out / "d2t.npy"), np.load(out / "t2d.npy")
    assert (d2t.dtype, d2t.shape, t2d.dtype, t2d.shape) == (np.int64, (128,), np.bool_, (512,))
    assert (np.flatnonzero(t2d) == d2t + np.arange(128)).all()
    assert int(t2d.sum()) == 128
    config = json.loads((out / "config.json").read_text())
    assert config["speculators_config"]["verifier"] == {"name_or_path": BASE, "architectures": ["LlamaForCausalLM"]}
    assert config["transformer_layer_config"]["num_hidden_layers"] == 1
    back = tmp_path / "back"  # and the other way: the same tensors, the same config
    written("specforge", out, target, back, library=Library())
    plain = json.loads((back / "config.json").read_text())
    assert {k: plain[k] for k in ("hidden_size", "intermediate_size", "vocab_size", "draft_vocab_size")} == {
        k: DRAFTER[k] for k in ("hidden_size", "intermediate_size", "vocab_size", "draft_vocab_size")
    }
    assert plain["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 4]
    assert not {"speculators_config", "transformer_layer_config", "speculators_model_type"} & set(plain)
    assert load(back)["fc.weight"] == load(drafter)["fc.weight"]
    assert against(back, target, "output") == []


def test_modelopt_takes_its_vocabulary_from_one_tensor(drafter: Path, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    written("modelopt", drafter, target, out)
    torch = pytest.importorskip("torch")
    found = torch.load(out / "d2t.pt", map_location="cpu", weights_only=True)
    assert (found.shape, found.dtype) == (torch.Size([128]), torch.int64)
    assert (found.numpy() == IDS - np.arange(128)).all()


def test_automodel_gets_an_embedding_and_the_ids_of_its_cache(drafter: Path, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    written("automodel", drafter, target, out)
    new = load(out)
    assert new["model.embed_tokens.weight"] == load(target)["model.embed_tokens.weight"]
    assert torch_entries(out / "selected_token_ids.pt") == {"selected_token_ids": ("I64", (128,))}
    torch = pytest.importorskip("torch")
    found = torch.load(out / "selected_token_ids.pt", map_location="cpu", weights_only=True)
    assert (found["selected_token_ids"].numpy() == IDS).all()
    assert found["target_vocab_size"] == 512
    run = found["selected_token_ids"] - torch.arange(128)  # what set_vocab_mapping makes of it
    assert offsets(IDS).data == run.numpy().astype("<i8").tobytes() == new["d2t"].data


def test_block_drafter_for_speculators_gets_what_the_verifier_has(target: Path, tmp_path: Path) -> None:
    block = clean(DRAFTER | {
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 8, "draft_vocab_size": ...,
        "eagle_config": ..., "dflash_config": {"mask_token_id": 7, "target_layer_ids": [1, 3, 5]},
    })  # fmt: skip
    table = tensors(block, "dflash", "layers.0.")
    del table["lm_head.weight"]
    own = snapshot(tmp_path / "block", REPO, block, table)
    out = tmp_path / "made"
    written("speculators", own, target, out, library=LIBRARY)
    new = load(out)
    assert new["lm_head.weight"] == load(target)["lm_head.weight"]
    assert new["embed_tokens.weight"] == load(target)["model.embed_tokens.weight"]
    assert {n: new[n] for n in table} == table
    assert json.loads((out / "config.json").read_text())["aux_hidden_state_layer_ids"] == [2, 4, 6]
    assert against(out, target, "boundary") == []


def test_target_that_is_not_at_hand_lends_nothing(drafter: Path, target: Path, tmp_path: Path) -> None:
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        folder = tmp_path / name
        shutil.copytree(target, folder)
        (folder / "model.safetensors").unlink()
        made = rewrite.write(drafter, folder, LIBRARY, tmp_path / "out", trainer="automodel")
        refused(made, 4, "it comes from the target, which is not at hand")
    assert not (tmp_path / "out").exists()


def test_map_of_the_other_checkpoint_goes_into_the_file(target: Path, tmp_path: Path) -> None:
    config = DRAFTER | {"draft_vocab_size": 512}
    whole = put(tmp_path / "whole", config, tensors(config))
    like = put(tmp_path / "like", DRAFTER, tensors(DRAFTER))
    out = tmp_path / "made"
    plan = written("specforge", whole, target, out, like=like, library=LIBRARY)
    assert {s.tensor: s.action for s in plan.steps if s.tensor in ("d2t", "t2d", "lm_head.weight")} == {
        "lm_head.weight": "rows", "d2t": "take", "t2d": "take",
    }  # fmt: skip
    new = load(out)
    assert (head(new["lm_head.weight"]) == head(load(whole)["lm_head.weight"])[IDS]).all()
    torch = pytest.importorskip("torch")
    assert (torch.load(out / "vocab_mapping.pt")["d2t"].numpy() == IDS - np.arange(128)).all()


@pytest.mark.parametrize("trainer", ["torchspec", "modelopt"])
def test_trainer_that_would_not_read_it_gets_nothing_without_a_word(
    trainer: str, drafter: Path, target: Path, tmp_path: Path
) -> None:
    made = rewrite.write(drafter, target, LIBRARY, tmp_path / "out", trainer=trainer)
    assert (plan_of(made).verdict, made.exit_code) == ("no", 1)
    assert "SRC123" in {f.code for f in made.findings}
    assert not (tmp_path / "out").exists()


def test_command_writes_replaces_and_says(
    drafter: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["adapt", str(drafter), "--to", str(target), "--for", "specforge", "--write", str(out)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "make t2d" in text
    assert f"model.vocab_mapping_path={out}/vocab_mapping.pt" in "".join(text.split())
    assert f"model.draft_checkpoint_path = {out};" in " ".join(text.split())
    assert main(words) == 2
    assert main([*words, "--force"]) == 0  # the files of the vocabulary are its own, and no strangers
    assert open_model(str(out), ()).files.keys() == {"config.json", "model.safetensors", "vocab_mapping.pt"}  # type: ignore[union-attr]
    capsys.readouterr()
    assert main([*words[:6], "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["trainer"] == "specforge"
    assert {f["code"] for f in plan["trains"]} == {"PAIR451", "PAIR452", "PAIR453"}


def test_bad_map_is_refused_before_a_file_is_made_of_it(target: Path, tmp_path: Path) -> None:
    from test_adapt_write import BAD_MAPS

    for n, name in enumerate(("out of range", "negative", "twice", "all zero")):
        folder = put(tmp_path / f"d{n}", clean(DRAFTER), tensors(DRAFTER) | {"d2t": BAD_MAPS[name]})
        refused(rewrite.write(folder, target, LIBRARY, tmp_path / "out", trainer="speculators"), 4, "d2t ")
    assert not (tmp_path / "out").exists()
    assert not said(plan_of(rewrite.write(folder, target, LIBRARY, tmp_path / "out")), "written untrained")
