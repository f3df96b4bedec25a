"""What each trainer's contract says of a drafter, on examples; and what is wrong with a contract of this kind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof.adapt import adapt
from draftproof.answers import Plan
from draftproof.checkpoint import Checkpoint
from draftproof.cli import main
from draftproof.conform import conform, layout
from draftproof.courses import Trainer
from draftproof.findings import Finding, Report
from draftproof.hub import Source
from draftproof.library import Library, load
from draftproof.pair import Couple
from draftproof.render import report_text
from draftproof.trainers import capture_of, captured_by, converted, ids_for

LIBRARY = Library()
TRAINERS: dict[str, Trainer] = {id: trainer for id, trainer, _ in LIBRARY.all("trainer")}
SLIM: dict[str, Any] = b.SMALL_TARGET | {
    "intermediate_size": 96
}  # as the drafter: one trainer copies the target's config
DRAFTER: dict[str, Any] = b.SMALL_DRAFTER
MLA: dict[str, Any] = DRAFTER | {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"], "model_type": "kimi_k2", "q_lora_rank": 48, "kv_lora_rank": 24,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "num_key_value_heads": 4,
}  # fmt: skip
BLOCK: dict[str, Any] = DRAFTER | {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 8, "draft_vocab_size": ...,
    "eagle_config": ..., "dflash_config": {"mask_token_id": 7, "target_layer_ids": [1, 3, 5]},
}  # fmt: skip
DOMINO: dict[str, Any] = BLOCK | {
    "architectures": ["DominoDraftModel"],
    "dflash_config": BLOCK["dflash_config"] | {"emb_dim": 24, "gru_hidden_dim": 40, "shift_label": True,
                                               "pure_draft_prefix_len": 1, "projector_type": "domino"},
}  # fmt: skip
DSPARK: dict[str, Any] = BLOCK | {
    "architectures": ["DSparkDraftModel"],
    "dflash_config": BLOCK["dflash_config"] | {"markov_rank": 20, "markov_head_type": "vanilla",
                                               "projector_type": "dspark", "use_confidence_head": True},
}  # fmt: skip
PARALLEL: dict[str, Any] = DRAFTER | {"architectures": ["PEagleDraftModel"], "mask_token_id": 7}
SPECULATORS: dict[str, Any] = {
    "speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"], "draft_vocab_size": 128,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5], "norm_before_residual": False,
    "transformer_layer_config": {k: v for k, v in DRAFTER.items() if k not in ("eagle_config", "draft_vocab_size")},
    "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "org/target", "architectures": ["Old"]}},
}  # fmt: skip
FAMILIES = {
    "eagle3": DRAFTER, "eagle3-mla": MLA, "dflash": BLOCK, "peagle": PARALLEL, "eagle3-speculators": SPECULATORS,
    "domino": DOMINO, "dspark": DSPARK,
}  # fmt: skip


def clean(config: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if v is not ...}


def drafter(family: str = "eagle3", drop: tuple[str, ...] = ("t2d",), more: dict[str, Any] | None = None, **over: Any):  # type: ignore[no-untyped-def]
    """Return a drafter in memory, of the family's own layout."""
    config = clean(FAMILIES[family] | over)
    contract, _ = LIBRARY.get("family", family)
    view = conform(contract, Checkpoint(Source("new", kind="config", config=config), "drafter"), tensors=False)
    table = {n: ("I64" if n == "d2t" else "BF16", shape) for n, (_, shape) in layout(contract, view.dims).items()}
    table = {n: row for n, row in table.items() if n not in drop} | (more or {})
    return {"name": b.DRAFTER, "config": config, "state_dict": table}


def target(**over: Any) -> dict[str, Any]:
    config = SLIM | over
    rows = (config["vocab_size"], config["hidden_size"])
    names = ("model.embed_tokens.weight", "lm_head.weight")
    table = dict.fromkeys(names, ("BF16", rows)) | {"model.norm.weight": ("BF16", rows[1:])}
    return {"name": b.TARGET, "config": config, "state_dict": table}


@pytest.fixture
def declared(tmp_path: Path) -> Library:
    """Return a library that knows what the drafter was trained on, and its convention."""
    return known(tmp_path, "boundary")


def known(folder: Path, convention: str) -> Library:
    (folder / "models").mkdir(exist_ok=True)
    facts = {"trained_on": b.TARGET, "aux_convention": convention}
    rows = "".join(f'[{key}]\nvalue = "{value}"\nsource = "its card"\n' for key, value in facts.items())
    repo = b.DRAFTER.replace("/", "--")
    text = f'schema = 1\nkind = "model"\nid = "{repo}"\nrepo = "{b.DRAFTER}"\n{rows}'
    (folder / "models" / f"{repo}.toml").write_text(text)
    return Library(folder)


def plan_of(trainer: str, own: Any = None, to: Any = None, library: Library = LIBRARY, **more: Any) -> Plan:
    report = adapt(own or drafter(), to or target(), library, trainer=trainer, **more)
    assert report.plan
    assert report_text(report)
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again.plan
    assert again.plan.trains == report.plan.trains
    return report.plan


def steps(plan: Plan) -> dict[str, str]:
    return {s.tensor: s.action for s in plan.steps}


def found(plan: Plan, code: str) -> list[Finding]:
    return [f for f in plan.trains if f.code == code]


def said(plan: Plan, *words: str) -> bool:
    return any(all(word in line for word in words) for line in plan.says)


def test_every_trainer_is_read_at_one_version() -> None:
    assert set(TRAINERS) == {"automodel", "modelopt", "specforge", "speculators", "torchspec"}
    for trainer in TRAINERS.values():
        assert trainer.version.split()[0] in trainer.source


def test_no_trainer_is_named_in_the_code() -> None:
    names = "|".join(re.escape(n) for id, trainer in TRAINERS.items() for n in (id, trainer.title))
    for path in sorted((Path(__file__).parents[2] / "src").rglob("*.py")):
        assert not re.findall(rf"\b({names})\b", path.read_text(encoding="utf-8")), path.name


# --- which layers it captures -------------------------------------------------------------------------------------

KIMI, V3, LLAMA = "KimiK25ForConditionalGeneration", "DeepseekV3ForCausalLM", "LlamaForCausalLM"
GLM = "Glm4MoeLiteForCausalLM"
# trainer, target, ids as written -> boundaries: b is the input of layer b
CAPTURED = [
    ("specforge", KIMI, [1, 29, 57], [2, 30, 58]),
    ("specforge", KIMI, [2, 30, 58], [2, 30, 58]),
    ("specforge", V3, [2, 30, 58], [2, 30, 58]),
    ("specforge", GLM, [3, 20, 40], [3, 20, 40]),
    ("specforge", LLAMA, [2, 30, 58], [3, 31, 59]),
    ("specforge", LLAMA, [1, 29, 57], [2, 30, 58]),
    ("specforge", "GptOssForCausalLM", [1, 29, 57], [2, 30, 58]),
    ("torchspec", KIMI, [2, 30, 58], [3, 31, 59]),
    ("torchspec", KIMI, [1, 29, 57], [2, 30, 58]),
    ("modelopt", KIMI, [1, 29, 57], [2, 30, 58]),
    ("automodel", LLAMA, [1, 29, 57], [2, 30, 58]),
    ("speculators", KIMI, [2, 30, 58], [2, 30, 58]),
    ("speculators", LLAMA, [1, 29, 57], [1, 29, 57]),
]


def couple_of(architecture: str | None, layers: int = 61) -> Couple:
    to = target(num_hidden_layers=layers, architectures=[architecture] if architecture else ...)
    to["config"] = clean(to["config"])
    own = b.view(clean(DRAFTER), drafter()["state_dict"])
    contract, _ = LIBRARY.get("target", "llama")
    theirs = conform(contract, Checkpoint(Source("t", kind="config", config=to["config"]), "target"), tensors=False)
    return Couple(own, theirs, LIBRARY, {})


@pytest.mark.parametrize(("trainer", "architecture", "ids", "boundaries"), CAPTURED)
def test_trainer_captures(trainer: str, architecture: str, ids: list[int], boundaries: list[int]) -> None:
    couple = couple_of(architecture)
    capture = capture_of(TRAINERS[trainer], "eagle3")
    assert capture
    assert captured_by(capture, couple, ids) == boundaries
    wanted = ids_for(capture, couple, boundaries)
    assert wanted is not None
    assert captured_by(capture, couple, wanted) == boundaries


@pytest.mark.parametrize("trainer", TRAINERS)
def test_default_of_every_trainer_is_the_same_three_layers(trainer: str) -> None:
    plan = plan_of(trainer, drafter(eagle_config=...), target(num_hidden_layers=61))
    (finding,) = found(plan, "PAIR452")
    assert finding.level == "pass"
    assert "captures the inputs of layers [2, 30, 58]" in finding.message


def test_rule_that_asks_for_the_target_is_unknown_where_the_target_does_not_say() -> None:
    capture = capture_of(TRAINERS["specforge"], "eagle3")
    assert capture
    assert captured_by(capture, couple_of(None), [2, 30, 58]) is None


def test_no_ids_give_the_state_before_the_first_layer_to_a_trainer_of_outputs() -> None:
    capture = capture_of(TRAINERS["torchspec"], "eagle3")
    assert capture
    assert ids_for(capture, couple_of(LLAMA), [0, 30, 58]) is None


@pytest.mark.parametrize(
    ("trainer", "convention", "written", "line"),
    [
        ("specforge", "boundary", [1, 3, 4], "the config gets [1, 3, 4]"),
        ("specforge", "output", [2, 4, 5], "as the drafter was trained (output ids (its card))"),
        ("torchspec", "boundary", [2, 4, 5], "as the drafter was trained (boundary ids (its card))"),
        ("torchspec", "output", [2, 4, 5], "run with inference.aux_hidden_states_layers = [2, 4, 5]"),
        ("modelopt", "output", [2, 4, 5], "eagle_aux_hidden_state_layer_ids = [2, 4, 5]"),
        ("automodel", "output", [2, 4, 5], "run with recipe_args.aux_layer_ids = [2, 4, 5]"),
        ("speculators", "output", [3, 5, 6], "run with --target-layer-ids of scripts/launch_vllm.py = [3, 5, 6]"),
        ("speculators", "boundary", [2, 4, 5], "run with --target-layer-ids of scripts/launch_vllm.py = [2, 4, 5]"),
    ],
)
def test_ids_are_written_so_that_the_trained_layers_are_captured(
    trainer: str, convention: str, written: list[int], line: str, tmp_path: Path
) -> None:
    plan = plan_of(trainer, library=known(tmp_path, convention))
    changed = [c.new for c in plan.changes if c.key.endswith("eagle_aux_hidden_state_layer_ids")]
    assert changed == ([] if written == [2, 4, 5] else [written])
    (finding,) = found(plan, "PAIR452")
    assert line in finding.message
    assert said(plan, line)
    mended = "; the config gets [" in finding.message
    right = "as the drafter was trained" in finding.message
    assert finding.level == ("info" if mended else "pass" if right else "warning")


def test_ids_of_an_undeclared_convention_are_kept_and_both_readings_told() -> None:
    plan = plan_of("specforge")
    assert not [c for c in plan.changes if "layer_ids" in c.key]
    key = "eagle_config.eagle_aux_hidden_state_layer_ids"
    (finding,) = found(plan, "PAIR452")
    assert finding.level == "unknown"
    assert f"if they are boundary ids, write {key} = [1, 3, 4]; if they are output ids, write {key} = [2, 4, 5]" in (
        finding.message
    )
    moved = plan_of("speculators")
    assert said(moved, "the new format takes those in the config for boundary ids")


def test_ids_under_a_key_that_the_trainer_does_not_read_are_put_where_it_does(declared: Library) -> None:
    own = drafter(eagle_config=..., eagle_aux_hidden_state_layer_ids=[2, 4, 5])
    for library, ids in ((LIBRARY, [2, 4, 5]), (declared, [1, 3, 4])):
        changes = {c.key: (c.old, c.new) for c in plan_of("specforge", own, library=library).changes}
        assert changes["eagle_config.eagle_aux_hidden_state_layer_ids"] == (None, ids)
        assert changes["eagle_aux_hidden_state_layer_ids"] == ([2, 4, 5], None)


def test_block_drafters_ids_are_outputs_to_every_trainer() -> None:
    for trainer in ("specforge", "modelopt"):
        plan = plan_of(trainer, drafter("dflash"))
        assert not [c for c in plan.changes if "layer_ids" in c.key]
    (finding,) = found(plan_of("specforge", drafter("dflash")), "PAIR452")
    assert "from [1, 3, 5] as written it captures the inputs of layers [2, 4, 6]" in finding.message
    assert finding.level == "pass"


# --- which tensors it takes, makes and refuses --------------------------------------------------------------------

FULL = {"draft_vocab_size": 512}
HEAD = {"lm_head.weight": ("BF16", (512, 64))}
EMBED = {"embed_tokens.weight": ("BF16", (512, 64))}
MAPS = {"d2t": ("I64", (512,)), "t2d": ("BOOL", (512,))}
# trainer, the drafter, what becomes of its optional tensors
TAKEN: list[tuple[str, dict[str, Any], dict[str, str | None]]] = [
    ("specforge", {}, {"t2d": "make", "d2t": "copy", "embed_tokens.weight": None}),
    ("specforge", {"drop": ()}, {"t2d": "make"}),
    ("specforge", {"more": {"t2d": ("BOOL", (512,))}}, {"t2d": "copy"}),
    ("specforge", FULL | {"more": HEAD}, {"t2d": "make", "d2t": "make", "lm_head.weight": "copy"}),
    ("specforge", FULL, {"lm_head.weight": "lend"}),  # a drafter that borrowed the target's
    ("specforge", {"drop": ("lm_head.weight",)}, {"lm_head.weight": "init"}),
    ("specforge", {"more": EMBED}, {"embed_tokens.weight": "copy"}),
    ("specforge", {"bias": True}, {"fc.bias": "drop"}),
    ("specforge", {"fc_norm": True}, {"fc_norm.0.weight": "copy"}),
    ("torchspec", {"fc_norm": True}, {"fc_norm.0.weight": "drop", "t2d": None}),
    ("modelopt", {"more": EMBED | {"t2d": ("BOOL", (512,))}}, {"t2d": "drop", "embed_tokens.weight": "drop"}),
    ("automodel", {}, {"t2d": "make", "embed_tokens.weight": "lend", "d2t": "copy"}),
    ("automodel", {"more": EMBED}, {"embed_tokens.weight": "copy"}),
    ("automodel", FULL | {"more": HEAD | MAPS}, {"t2d": "drop", "d2t": "drop", "lm_head.weight": "copy"}),
    ("speculators", {}, {"t2d": "make", "embed_tokens.weight": None}),
    ("speculators", FULL | {"more": HEAD}, {"t2d": None, "d2t": None}),
]


@pytest.mark.parametrize(("trainer", "own", "expected"), TAKEN)
def test_what_becomes_of_optional_tensors(trainer: str, own: dict[str, Any], expected: dict[str, str | None]) -> None:
    plan = plan_of(trainer, drafter(**own))
    actions = steps(plan)
    assert {name: actions.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("trainer", "family", "name"),
    [
        ("specforge", "eagle3", "midlayer.self_attn.q_proj.weight"),
        ("specforge", "peagle", "layers.0.self_attn.q_proj.weight"),
        ("specforge", "dflash", "layers.0.self_attn.q_proj.weight"),
        ("speculators", "eagle3", "layers.0.self_attn.q_proj.weight"),
        ("torchspec", "eagle3", "midlayer.self_attn.q_proj.weight"),
        ("torchspec", "eagle3-mla", "midlayer.self_attn.q_a_proj.weight"),
        ("modelopt", "eagle3", "layers.0.self_attn.q_proj.weight"),
        ("automodel", "eagle3", "model.layers.0.self_attn.q_proj.weight"),
    ],
)
def test_names_and_architecture_are_the_trainers(trainer: str, family: str, name: str) -> None:
    own = drafter(family)
    report = adapt(own, target(), LIBRARY, trainer=trainer)
    assert report.plan
    row, _ = TRAINERS[trainer].layout(family)
    assert row
    contract, _ = LIBRARY.get("family", row.family)
    dialect = next(d for d in contract.dialects if d.name == row.dialect)
    assert dialect.encode(dialect.decode(name) or "") == name
    assert steps(report.plan)[dialect.decode(name) or ""] == "copy"
    if report.plan.verdict != "no":
        assert said(report.plan, f"{TRAINERS[trainer].title} takes ", name)
    stated = next((c.new for c in report.plan.changes if c.key == "architectures"), own["config"]["architectures"])
    assert stated == [row.architectures[0]]


@pytest.mark.parametrize(
    ("trainer", "family"),
    [("specforge", "eagle3-mla"), ("speculators", "eagle3-mla"), ("torchspec", "dflash"), ("automodel", "domino")],
)
def test_family_that_it_does_not_train_is_no(trainer: str, family: str) -> None:
    plan = plan_of(trainer, drafter(family))
    assert [f.code for f in plan.trains] == ["PAIR450"]
    assert (plan.verdict, plan.steps) == ("no", ())
    assert plan.headline.startswith(f"no: {TRAINERS[trainer].title}: this trainer does not train this family: {family}")
    assert all(row.family in plan.headline for row in TRAINERS[trainer].layouts)


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ("torchspec", "training then starts from random weights, without an error"),
        ("modelopt", "no setting takes a drafter"),
    ],
)
def test_trainer_that_takes_no_folder_is_no(trainer: str, words: str) -> None:
    plan = plan_of(trainer)
    assert plan.verdict == "no"
    assert words in plan.headline
    assert (plan.trains[0].code, plan.trains[0].level) == ("PAIR451", "error")
    assert not said(plan, " takes 13 tensors")


def test_trainer_of_few_targets_and_of_the_targets_geometry() -> None:
    assert plan_of("automodel").verdict == "after these changes"
    other = plan_of("automodel", to=target(architectures=["Gemma2ForCausalLM"]))
    assert "this trainer does not take this target: Gemma2ForCausalLM" in other.headline
    wider = plan_of("automodel", to=target(intermediate_size=128))
    assert wider.verdict == "no"
    assert [(f.code, f.observed, f.expected) for f in wider.trains if f.level == "error"] == [
        ("CFG337", "96", "128 (the target's)")
    ]
    rope = plan_of("automodel", to=target(rope_theta=1e6))
    assert rope.verdict == "after these changes"
    assert said(rope, "it takes rope_theta from the target: 1000000.0, where the drafter was trained with 500000.0")


# --- the vocabulary -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trainer", "level", "words"),
    [
        ("specforge", "info", ("model.vocab_mapping_path=DIR/vocab_mapping.pt", "copied head rows mean other tokens")),
        ("speculators", "info", ("--d2t-path DIR/d2t.npy --t2d-path DIR/t2d.npy", "the head is frozen")),
        ("torchspec", "warning", ("no way to keep the old one", "copied head rows then mean other tokens")),
        ("modelopt", "info", ("data.draft_vocab_cache=DIR/d2t.pt", "FileNotFoundError")),
        ("automodel", "info", ("selected_token_ids_path=DIR/selected_token_ids.pt", "is a ValueError")),
    ],
)
def test_fate_of_the_map_is_told(trainer: str, level: str, words: tuple[str, ...]) -> None:
    plan = plan_of(trainer)
    (finding,) = found(plan, "PAIR453")
    assert finding.level == level
    assert said(plan, *words)
    assert not found(plan_of(trainer, drafter(**FULL, more=HEAD)), "PAIR453")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_map_that_is_lost_is_not_promised_as_a_file(trainer: str) -> None:
    lost = drafter(drop=("d2t", "t2d"))
    for plan in (plan_of(trainer, lost), plan_of(trainer, to=target(vocab_size=600))):
        assert "t2d" not in steps(plan)
        (finding,) = found(plan, "PAIR453")
        assert "DIR/" not in finding.message
        assert "head rows" not in finding.message
        assert plan.verdict in ("only in part", "no")


def test_reason_of_a_refusal_is_said_once() -> None:
    plan = plan_of("speculators", to=target(hidden_size=128))
    assert plan.headline.count("ValueError") == 1
    assert said(plan, "it refuses: ValueError: the verifier's hidden size does not match the drafter's (read: ")


# --- flags --------------------------------------------------------------------------------------------------------

# trainer and row -> a drafter of which it speaks
WHEN: dict[str, dict[str, Any]] = {
    "layers > 1": {"num_hidden_layers": 2},
    "not aux == 3": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4, 5]}},
    "norm_before_fc": {"norm_before_fc": True},
    "qk_norm": {"architectures": ["Eagle3Qwen3ForCausalLM"]},
    "attention_bias or mlp_bias or fc_bias": {"bias": True},
    "not hidden == target.hidden": {"target_hidden_size": 128},
    "norm_before_fc and fc_norm": {"norm_before_fc": True, "fc_norm": True},
    "draft_vocab < target.vocab": {},
    "fc_norm or norm_before_fc": {"fc_norm": True},
    "fc_norm": {"fc_norm": True},
}
ROWS = [(id, row) for id, trainer in TRAINERS.items() for row in trainer.rows]


@pytest.mark.parametrize(("id", "row"), ROWS, ids=[f"{id}-{row.id}" for id, row in ROWS])
def test_row_speaks_of_the_drafter_that_it_is_about(id: str, row: Any) -> None:
    family = row.families[0] if row.families else "eagle3"
    over = WHEN[str(row.when)] if row.when else b.edit({}, {row.key: row.value})
    over |= FULL if row.key == "tie_word_embeddings" else {}  # else adapt unties it
    if "eagle_config" in over and row.value is not None:
        over = {"eagle_config": DRAFTER["eagle_config"] | over["eagle_config"]}
    wide = over.get("target_hidden_size", 64)
    plan = plan_of(id, drafter(family, **over), target(hidden_size=wide))
    code = "PAIR451" if row.outcome == "refuses" else "PAIR454"
    assert [f.observed for f in found(plan, code)].count(row.see) == 1
    assert said(plan, row.see, row.source)
    if row.outcome == "refuses":
        assert plan.verdict == "no"
    if str(row.when) != "draft_vocab < target.vocab":
        plain = plan_of(id, drafter(family))
        assert row.see not in [f.observed for f in plain.trains]


@pytest.mark.parametrize("trainer", ["specforge", "torchspec"])
def test_flag_that_is_declared_to_mean_what_the_trainer_means_is_no_warning(trainer: str, tmp_path: Path) -> None:
    library = known(tmp_path, "boundary")
    path = next((tmp_path / "models").iterdir())
    plain = path.read_text()
    for meaning, warned in (("recycles-the-normed-state", True), ("norms-before-the-head-only", False)):
        path.write_text(f'{plain}[meanings.norm_output]\nvalue = "{meaning}"\nsource = "its card"\n')
        plan = plan_of(trainer, drafter(norm_output=True), library=Library(tmp_path))
        assert any(f.subject == "config.json: norm_output" for f in plan.trains) == warned
    assert library.files("trainer")


def test_settings_name_the_tensors_of_a_target_with_other_names() -> None:
    plan = plan_of("specforge", "AQ-MedAI/Kimi-K2-Instruct-eagle3", "moonshotai/Kimi-K2.5")
    assert said(plan, "run with model.embedding_key=language_model.model.embed_tokens.weight")
    assert said(plan, "run with model.lm_head_key=language_model.lm_head.weight")
    assert not said(plan_of("specforge"), "embedding_key")
    assert plan.headline.startswith("after these changes (max_position_embeddings, t2d)")


TRAINED = [
    (id, family)
    for id, trainer in TRAINERS.items()
    for row in trainer.layouts
    for family in (row.family, *(c.family for c in row.converts))
    if family in FAMILIES
]


@pytest.mark.parametrize(("trainer", "family"), TRAINED)
def test_every_family_that_a_trainer_takes_gets_its_whole_form(trainer: str, family: str, tmp_path: Path) -> None:
    row, _ = TRAINERS[trainer].layout(family)
    assert row
    of_target = {"architectures": row.targets[:1]} if row.targets and family != "eagle3-mla" else {}
    plan = plan_of(trainer, drafter(family), target(**of_target), known(tmp_path, "boundary"))
    assert not said(plan, "would still not hold")
    takes = row.takes or TRAINERS[trainer].start.takes
    if takes == "folder" and not (trainer == "automodel" and family == "eagle3-mla"):  # a target of another attention
        assert plan.verdict in ("as is", "after these changes"), plan.headline
    else:
        assert plan.verdict == "no"
        assert any(f.level == "error" for f in found(plan, "PAIR451"))
    lost = [s.tensor for s in plan.steps if s.action in ("init", "drop")]
    assert all(any(r.name in row.lacks for r, _ in rules(row.family, n)) for n in lost), lost


def rules(family: str, name: str) -> Any:
    contract, _ = LIBRARY.get("family", family)
    return contract.rules_for(name)


def test_block_drafter_of_another_format_has_its_ids_as_inputs() -> None:
    plan = plan_of("speculators", drafter("dflash"))
    changes = {c.key: c.new for c in plan.changes}
    assert changes["aux_hidden_state_layer_ids"] == [2, 4, 6]  # outputs 1, 3, 5
    assert changes["draft_vocab_size"] == 512  # 32000 where nothing is said
    assert said(plan, "the config becomes one of dflash-speculators")
    assert (plan.verdict, steps(plan)["lm_head.weight"]) == ("after these changes", "lend")
    own = drafter("dflash")["config"]
    inner = converted(own, TRAINERS["speculators"].layout("dflash")[1])
    assert (inner["mask_token_id"], inner["block_size"]) == (7, 8)
    assert "dflash_config" not in inner


def test_whole_vocabulary_is_written_out_where_the_format_has_a_smaller_default() -> None:
    _, conversion = TRAINERS["speculators"].layout("eagle3")
    new = converted(clean(DRAFTER | {"draft_vocab_size": ...}), conversion)
    assert (new["draft_vocab_size"], new["transformer_layer_config"]["vocab_size"]) == (512, 512)


def test_norms_of_later_layers_are_those_that_the_trainer_reads() -> None:
    two = {"num_hidden_layers": 2}
    other = {"layers.1.hidden_norm.weight": ("BF16", (64,))}
    plan = plan_of("speculators", drafter(more=other, **two))
    assert steps(plan)["layers.1.input_layernorm.weight"] == "init"
    assert steps(plan)["layers.1.hidden_norm.weight"] == "drop"
    right = plan_of("speculators", drafter(more={"layers.1.input_layernorm.weight": ("BF16", (64,))}, **two))
    assert steps(right)["layers.1.input_layernorm.weight"] == "copy"


# --- another format -----------------------------------------------------------------------------------------------


def test_plain_config_becomes_one_of_speculators() -> None:
    trainer = TRAINERS["speculators"]
    _, conversion = trainer.layout("eagle3")
    new = converted(clean(DRAFTER), conversion)
    inner = new["transformer_layer_config"]
    assert (inner["hidden_size"], inner["vocab_size"], inner["model_type"]) == (64, 512, "llama")
    assert new["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert (new["draft_vocab_size"], new["speculators_model_type"]) == (128, "eagle3")
    assert new["norm_before_residual"] is False  # vLLM takes true where nothing is said
    assert not {"eagle_config", "hidden_size", "max_position_embeddings"} & set(new)
    stated = converted(clean(DRAFTER | {"norm_before_residual": True, "fc_norm": True}), conversion)
    assert (stated["norm_before_residual"], stated["fc_norm"]) == (True, True)


def test_changes_of_a_converted_config_leave_out_what_only_moved() -> None:
    plan = plan_of("speculators", to=target(max_position_embeddings=8192))
    changes = {c.key: (c.old, c.new) for c in plan.changes}
    assert changes["transformer_layer_config.max_position_embeddings"] == (4096, 8192)
    assert changes["architectures"] == (["LlamaForCausalLMEagle3"], ["Eagle3Speculator"])
    assert changes["speculators_config.verifier.name_or_path"] == (None, b.TARGET)
    assert "transformer_layer_config.hidden_size" not in changes
    assert said(plan, "the config becomes one of eagle3-speculators")


def test_speculators_config_becomes_a_plain_one(declared: Library) -> None:
    plan = plan_of("specforge", drafter("eagle3-speculators"), library=declared)
    changes = {c.key: c.new for c in plan.changes}
    assert changes["architectures"] == ["LlamaForCausalLMEagle3"]
    assert changes["eagle_config.eagle_aux_hidden_state_layer_ids"] == [1, 3, 4]  # boundaries to outputs
    assert plan.verdict == "after these changes"
    assert said(plan, "the config becomes one of eagle3")
    trained = plan_of("specforge", drafter("eagle3-speculators", norm_before_residual=True))
    assert said(trained, "because of norm_before_residual True", "the residual is the state without its norm")


def test_geometry_asked_for_is_written_for_the_trainer_too() -> None:
    like = clean(DRAFTER | {"intermediate_size": 160, "draft_vocab_size": ...})
    plan = plan_of("torchspec", like={"name": "like", "config": like, "state_dict": {}})
    assert steps(plan)["lm_head.weight"] == "rows"
    assert ("intermediate_size", 160) in [(c.key, c.new) for c in plan.changes]
    assert not found(plan, "PAIR453")


# --- the command, and what is wrong with a contract ---------------------------------------------------------------


def test_unknown_trainer_is_wrong_usage_with_a_proposal(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["adapt", "AQ-MedAI/Kimi-K2-Instruct-eagle3", "--to", "moonshotai/Kimi-K2.5", "--for", "specforg"]
    assert main(words) == 2
    assert "specforg (did you mean 'specforge'?)" in capsys.readouterr().out


def test_trainer_is_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "trainers"]) == 0
    out = capsys.readouterr().out
    assert all(f"{id}: {trainer.title} {trainer.version}" in out for id, trainer in TRAINERS.items())
    assert main(["show", "specforge", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["start"]["setting"] == "model.draft_checkpoint_path"
    assert data["layouts"][0]["needs"]["t2d"] == "true"
    assert data["captures"][0]["rules"][0]["when"] == "first == 1"


SMALLEST = """
schema = 1
kind = "trainer"
id = "mine"
title = "Mine"
version = "1"
source = "s"
[start]
setting = "from"
takes = "folder"
see = "s"
basis = "read"
source = "f"
[[layouts]]
family = "eagle3"
dialect = "bare"
architectures = ["A"]
needs = { "t2d" = "draft_vocab < target.vocab" }
lacks = ["fc.bias"]
see = "s"
basis = "read"
source = "f"
converts = [{ family = "eagle1", lacking = { "a.b" = [{ c = 1 }] } }]
[map]
otherwise = "kept"
files = [{ name = "d2t.npy", form = "npy", holds = { "" = "offsets" } }]
see = "s"
basis = "read"
source = "f"
[[captures]]
default = ["1"]
[[captures.rules]]
when = "first == 1 and layers == 1"
offset = 1
see = "s"
basis = "read"
source = "f"
[[rows]]
id = "r"
key = "k"
value = true
outcome = "changes"
see = "s"
basis = "run"
source = "f"
"""
WRONG = {
    "family": ('family = "eagle3"', 'family = "eagle33"', "CON113", "layouts[0].family[0]"),
    "dialect": ('"bare"', '"bear"', "CON107", "layouts[0].dialect"),
    "needed tensor": ('"t2d" =', '"td2" =', "CON107", 'layouts[0].needs.td2'),
    "dim of a need": ("draft_vocab <", "draft_vocap <", "CON107", "layouts[0].needs.t2d"),
    "lacking tensor": ('["fc.bias"]', '["fc.bias", "fc.bios"]', "CON107", "layouts[0].lacks[1]"),
    "family twice": ('family = "eagle1"', 'family = "eagle3"', "CON104", "layouts[0].converts[0].family"),
    "converted family": ('family = "eagle1"', 'family = "eagle"', "CON113", "layouts[0].converts[0].family[0]"),
    "date": ("[{ c = 1 }]", "2026-11-30", "CON104", 'layouts[0].converts[0].lacking."a.b"'),
    "not a number": ("c = 1", "c = nan", "CON104", 'layouts[0].converts[0].lacking."a.b"[0].c'),
    "entries of npy": ('"" = "offsets"', 'd2t = "offsets"', "CON104", "map.files[0].holds"),
    "no setting": ('setting = "from"\n', "", "CON105", "start.setting"),
    "dim of a rule": ("layers == 1", "layer == 1", "CON107", "captures[0].rules[0].when"),
    "number for a condition": ("first == 1 and layers == 1", "first + 1", "CON106", "captures[0].rules[0].when"),
    "condition for an id": ('["1"]', '["1 == 1"]', "CON106", "captures[0].default[0]"),
    "row of nothing": ("value = true\n", "", "CON105", "rows[0]"),
    "row twice": ("[[rows]]", '[[rows]]\nid = "r"\nkey = "k"\nvalue = 1\noutcome = "changes"\nsee = "s"\n'
                  'basis = "run"\nsource = "f"\n[[rows]]', "CON104", "rows[1].id"),
    "no rows of layers": ("[[captures]]", "[[capture]]", "CON103", "capture"),
}  # fmt: skip


@pytest.mark.parametrize("case", ["none", *WRONG])
def test_mistake_in_a_contract_is_one_finding_at_its_line(case: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    old, new, code, subject = WRONG.get(case, ("", "", "", ""))
    assert old in SMALLEST
    path.write_text(SMALLEST.replace(old, new, 1))
    trainer, problems = load(path, "trainer", LIBRARY)
    if case == "none":
        assert isinstance(trainer, Trainer)
        assert problems == ()
        return
    assert trainer is None
    hits = [f for f in problems if (f.code, f.subject) == (code, subject)]
    assert hits, [(f.code, f.subject, f.observed) for f in problems]
    word = new.split("\n")[0] if new else ""
    line = int(hits[0].contract.rpartition(":")[2])
    assert word.split("=")[-1].strip() in path.read_text().splitlines()[line - 1] or case in (
        "no setting", "row of nothing", "row twice",
    )  # fmt: skip


ODD: list[Any] = [None, "64", 64.5, True, -1, 10**30, [[2]], [], ["2", "4", "5"], {"a": 1}, [-3, -2, -1], [2**70]]
STRANGE = [
    *DRAFTER, "eagle_config.eagle_aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids", "target_hidden_size",
    "num_aux_hidden_states", "transformer_layer_config", "speculators_config", "norm_output", "dflash_config",
]  # fmt: skip


@pytest.mark.parametrize("trainer", TRAINERS)
def test_whatever_the_configs_hold_there_is_an_answer(trainer: str) -> None:
    whole, shift = drafter(), list(TRAINERS).index(trainer)
    for n, key in enumerate(STRANGE):  # every trainer meets every key, and every value at some of them
        for value in (ODD[(n + 5 * shift) % len(ODD)],):
            strange = whole | {"config": b.edit(whole["config"], {key: value})}
            to = target()
            to["config"] = b.edit(to["config"], {key: value})
            for report in (
                adapt(strange, target(num_hidden_layers=12), LIBRARY, trainer=trainer),
                adapt(whole, to, LIBRARY, trainer=trainer),
                adapt(whole, target(), LIBRARY, trainer=trainer, like=strange),
            ):
                assert report.plan, (key, value)
                assert report_text(report)
                Report.from_dict(json.loads(json.dumps(report.to_dict())))
