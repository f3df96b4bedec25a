"""diff: each change alone gives exactly its line, none gives no line, and what was not read is never unchanged."""

from __future__ import annotations

import json
import shutil
from array import array
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import api, cli, render
from draftproof.diff import diff, failing, phrases, view_changes
from draftproof.findings import Report
from draftproof.library import Library
from known_good import CASES, Good

AUX = "eagle_config.eagle_aux_hidden_state_layer_ids"
VERIFIER = {"speculators_config.verifier.name_or_path": b.TARGET}
NOT_COMPARED = "values of the weights are not compared"


def versions(
    folder: Path, config: Any, table: Any, other: Any = None, other_table: Any = None, **more: Any
) -> tuple[str, str]:
    """Write an old and a new version; returns their folders."""
    old = b.write(folder / "old", config, table)
    new = b.write(
        folder / "new", config if other is None else other, table if other_table is None else other_table, **more
    )
    return str(old), str(new)


def compared(old: Any, new: Any, **more: Any) -> Report:
    """Compare two versions; the report reads back as it was, and can be printed."""
    report = diff(old, new, b.LIBRARY, **more)
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    text = render.report_text(report)
    assert report.review
    assert report.review.headline.split(":")[0] in " ".join(text.split())
    assert all(word in text for d in report.review.differences for word in d.text.split())
    return report


def lines(report: Report, *topics: str) -> list[str]:
    """Return what changed, or could not be compared; of some topics only."""
    assert report.review
    return [d.text for d in report.review.differences if d.kind != "same" and (not topics or d.topic in topics)]


def kinds(report: Report) -> set[str]:
    assert report.review
    return {d.kind for d in report.review.differences}


# --- no difference ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "mla", "target"])
def test_the_same_twice_has_no_difference_and_exits_with_0(kind: str, tmp_path: Path) -> None:
    made = {
        "dense": (b.dense_config(), b.dense()),
        "mla": (b.mla_config(), b.mla()),
        "target": (b.target_config(), b.target()),
    }
    report = compared(*versions(tmp_path, *made[kind]))
    assert report.review
    assert (report.review.verdict, report.review.headline, report.exit_code) == ("same", "no difference", 0)
    assert lines(report) == []
    assert NOT_COMPARED in render.report_text(report)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("text_config.max_position_embeddings", 8192, "context 4096 → 8192"),
        ("text_config.model_type", "x", 'text_config.model_type: "kimi_k2" → "x"'),
        ("text_config.n_group", 2, "n_group: not there → 2"),
        ("hidden_size", 7, "hidden_size (outside text_config): not there → 7"),
        ("vision_config.patch_size", 7, "vision_config.patch_size: 14 → 7"),
        ("model_type", "kimi_k26", 'model_type: "kimi_k25" → "kimi_k26"'),
    ],
)
def test_key_of_a_nested_config_is_told_where_it_stands(key: str, value: Any, line: str) -> None:
    table = b.target(prefix="language_model.model.", head="language_model.lm_head.weight")
    old, new = (b.given(b.kimi_k25_config(**more), table, b.TARGET) for more in ({}, {key: value}))
    assert lines(compared(old, new), "family", "config", "tensors") == [line]
    assert len(lines(compared(new, old), "family", "config", "tensors")) == 1


def test_order_of_keys_and_spelling_of_a_number_are_no_difference(tmp_path: Path) -> None:
    other = dict(reversed(b.dense_config(rope_theta=500000).items()))
    assert lines(compared(*versions(tmp_path, b.dense_config(), b.dense(), other))) == []


# --- each change alone --------------------------------------------------------------------------------------------

# change of the config -> the lines it gives, where the tables stay as they are
CONFIGS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "context": ({"max_position_embeddings": 8192}, ["context 4096 → 8192"]),
    "aux layers": ({AUX: [2, 6, 8]}, ["aux layers [2, 6, 9] → [2, 6, 8]"]),
    "aux layers no longer named": (
        {"eagle_config": b.ABSENT},
        ["aux layers [2, 6, 9] → none", "eagle_config.use_aux_hidden_state: true → not there"],
    ),
    "theta": ({"rope_theta": 10000.0}, ["rope theta 500000.0 → 10000.0"]),
    "scaling": (
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        ["rope type none → yarn, factor none → 4.0"],
    ),
    "theta and scaling": (
        {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2.0}},
        ["rope theta 500000.0 → 10000.0, type none → linear, factor none → 2.0"],
    ),
    "partial rotary": ({"partial_rotary_factor": 0.5}, ["rope partial_rotary_factor none → 0.5"]),
    "special id": ({"eos_token_id": 3}, ["eos_token_id 2 → 3"]),
    "special ids": ({"eos_token_id": [2, 3]}, ["eos_token_id 2 → [2, 3]"]),
    "special id gone": ({"pad_token_id": b.ABSENT}, ["pad_token_id 0 → none"]),
    "epsilon": ({"rms_norm_eps": 1e-6}, ["norm epsilon 1e-05 → 1e-06"]),
    "flag of a norm": ({"fc_norm": True}, ["fc norm no → yes"]),
    "flag of a norm, elsewhere": ({"eagle_config.norm_before_fc": True}, ["norm before fc no → yes"]),
    "bias": ({"attention_bias": True}, ["attention bias no → yes"]),
    "tied": ({"tie_word_embeddings": True}, ["head tied to the embedding no → yes"]),
    "architecture": (
        {"architectures": ["LlamaEagle3DraftModel"]},
        ["architecture LlamaForCausalLMEagle3 → LlamaEagle3DraftModel"],
    ),
    "quantisation": ({"quantization_config": {"quant_method": "fp8", "bits": 8}}, ["quantisation none → fp8"]),
    "declared target": (VERIFIER, [f"declared target none → {b.TARGET}"]),
    "a default, stated": ({"mlp_bias": b.ABSENT}, ["mlp_bias: false → not there"]),
    "another key": ({"initializer_range": 0.01}, ["initializer_range: not there → 0.01"]),
    "text": ({"hidden_act": "gelu"}, ['hidden_act: "silu" → "gelu"']),
    "null": ({"hidden_act": None}, ['hidden_act: "silu" → null']),
    "true for 1": ({"use_cache": True, "x": 1}, ["use_cache: not there → true", "x: not there → 1"]),
    "another spelling": (
        {"torch_dtype": b.ABSENT, "dtype": "bfloat16"},
        ['torch_dtype: "bfloat16" → not there', 'dtype: not there → "bfloat16"'],
    ),
    "a table": (
        {"training": {"lr": 1, "by": {"who": "x"}}},
        ["training.lr: not there → 1", 'training.by.who: not there → "x"'],
    ),
    "an empty table": ({"training": {}}, ["training: not there → {}"]),
    "a list for a number": ({"x_y": [1, {"a": 2}]}, ['x_y: not there → [1, {"a": 2}]']),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_change_of_the_config_alone_gives_exactly_its_lines(case: str, tmp_path: Path) -> None:
    changes, expected = CONFIGS[case]
    report = compared(*versions(tmp_path, b.dense_config(), b.dense(), b.dense_config(**changes)))
    assert lines(report, "family", "config", "tensors", "values", "files") == expected


@pytest.mark.parametrize("case", CONFIGS)
def test_change_back_gives_as_many_lines_turned_round(case: str, tmp_path: Path) -> None:
    changes, expected = CONFIGS[case]
    report = compared(*versions(tmp_path, b.dense_config(**changes), b.dense(), b.dense_config()))
    said = lines(report, "family", "config", "tensors", "values", "files")
    assert len(said) == len(expected)
    assert not set(said) & set(expected)


# size in the layout -> the config that states it, its line, and how many tensors have another shape
SIZES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], int]] = {
    "layers": ({"layers": 2}, {"num_hidden_layers": 2}, ["layers 1 → 2"], 0),
    "aux": (
        {"aux": 4},
        {AUX: [2, 5, 7, 9]},
        ["fc reads 3 → 4 hidden states", "aux layers [2, 6, 9] → [2, 5, 7, 9]"],
        1,
    ),
    "draft vocabulary": ({"draft": 200}, {"draft_vocab_size": 200}, ["draft vocabulary 150 → 200"], 2),
    "heads": ({"heads": 8}, {"num_attention_heads": 8}, ["heads 4 → 8"], 2),
    "key-value heads": ({"kv": 4}, {"num_key_value_heads": 4}, ["key-value heads 2 → 4"], 2),
    "head dim": ({"dim": 48}, {"head_dim": 48}, ["head dim 44 → 48"], 4),
    "vocabulary": ({"vocab": 640}, {"vocab_size": 640}, ["target's vocabulary 512 → 640"], 1),
    "target's hidden": (
        {"target_hidden": 80},
        {"target_hidden_size": 80},
        ["target's hidden 64 → 80"],
        1,
    ),
}


@pytest.mark.parametrize("case", SIZES)
def test_change_of_a_size_is_told_in_the_terms_of_the_field(case: str, tmp_path: Path) -> None:
    layout, config, expected, reshaped = SIZES[case]
    pair = versions(tmp_path, b.dense_config(), b.dense(), b.dense_config(**config), b.dense(**layout))
    report = compared(*pair)
    assert lines(report, "config") == expected
    shapes = [line for line in lines(report, "tensors") if " → " in line]
    assert len(shapes) == reshaped
    assert all(line.count("[") == 2 for line in shapes)
    assert all(line.startswith("added ") for line in lines(report, "tensors") if line not in shapes)


def test_hidden_is_told_once_and_not_again_as_the_targets(tmp_path: Path) -> None:
    pair = versions(
        tmp_path, b.dense_config(), b.dense(), b.dense_config(hidden_size=80), b.dense(hidden=80, target_hidden=80)
    )
    assert lines(compared(*pair), "config") == ["hidden 64 → 80"]


@pytest.mark.parametrize("id", Library().files("family"))
def test_every_dim_of_every_family_has_one_phrase_with_one_place_for_its_value(id: str) -> None:
    contract, _ = Library().get("family", id)
    words = phrases(contract)
    assert words.keys() == contract.dims.keys()
    assert all(text.count("{}") == 1 for text in words.values())
    assert len(set(words.values())) == len(words)


# change of the table -> the lines it gives, the config the same
TABLES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "removed": ({"lm_head.weight": None}, ["removed lm_head.weight BF16 [150, 64]"]),
    "added": ({"embed_tokens.weight": ("BF16", (512, 64))}, ["added embed_tokens.weight BF16 [512, 64]"]),
    "unexplained": ({"odd.weight": ("BF16", (2, 3))}, ["added odd.weight BF16 [2, 3]"]),
    "re-shaped": ({"fc.weight": ("BF16", (64, 256))}, ["fc.weight [64, 192] → [64, 256]"]),
    "transposed": ({"fc.weight": ("BF16", (192, 64))}, ["fc.weight [64, 192] → [192, 64]"]),
    "another rank": ({"norm.weight": ("BF16", (64, 1))}, ["norm.weight [64] → [64, 1]"]),
    "re-typed": ({"norm.weight": ("F32", (64,))}, ["norm.weight BF16 → F32"]),
    "both": ({"norm.weight": ("F32", (65,))}, ["norm.weight [64] → [65]", "norm.weight BF16 → F32"]),
    "index re-typed": ({"d2t": ("I32", (150,))}, ["d2t I64 → I32"]),
}


@pytest.mark.parametrize("case", TABLES)
def test_change_of_the_table_alone_gives_exactly_its_lines(case: str, tmp_path: Path) -> None:
    changes, expected = TABLES[case]
    report = compared(*versions(tmp_path, b.dense_config(), b.dense(), None, b.changed(b.dense(), changes)))
    assert lines(report, "family", "config", "tensors", "values", "files") == expected


def test_another_dtype_of_all_weights_is_one_line_of_config_and_one_of_tensors(tmp_path: Path) -> None:
    other = b.dense_config(torch_dtype="float16")
    said = lines(compared(*versions(tmp_path, b.dense_config(), b.dense(), other, b.dense(dtype="F16"))))
    assert said[0] == "dtype bfloat16 → float16"
    assert said[1].startswith("13 tensors: ")
    assert said[1].endswith(" BF16 → F16")
    assert len(said) == 2


@pytest.mark.parametrize("style", ["bare", "nested", "trainer", "trainer-bare"])
def test_other_names_for_the_same_tensors_are_one_line(style: str, tmp_path: Path) -> None:
    report = compared(*versions(tmp_path, b.dense_config(), b.dense(), None, b.dense(style=style)))
    said = lines(report, "family", "config", "tensors", "values", "files")
    renamed = sum(b.STYLES["midlayer"](n) != b.STYLES[style](n) for n in b.dense(style="bare"))
    assert len(said) == 1
    assert said[0].startswith(f"dialect midlayer → {style}: {renamed} of {len(b.dense())} common tensors renamed")


def test_names_with_braces_below_a_prefix_are_told(tmp_path: Path) -> None:
    wrapped = {f"{{}}.{{x}}.{name}": row for name, row in b.dense().items()}
    said = lines(compared(*versions(tmp_path, b.dense_config(), b.dense(), None, wrapped)), "tensors")
    assert said[0].startswith("dialect midlayer → {}.{x}.* ")
    assert len(said) == 1


def test_tensor_twice_under_two_names_is_one_more(tmp_path: Path) -> None:
    more = b.dense() | {"layers.0.hidden_norm.weight": ("BF16", (64,))}
    said = lines(compared(*versions(tmp_path, b.dense_config(), b.dense(), None, more)), "tensors")
    assert said == ["added layers.0.hidden_norm.weight BF16 [64]"]


def test_dialect_with_a_real_change_beside_it_gives_both_lines(tmp_path: Path) -> None:
    other = b.changed(b.dense(style="bare"), {"layers.0.mlp.up_proj.weight": ("BF16", (97, 64))})
    said = lines(compared(*versions(tmp_path, b.dense_config(), b.dense(), None, other)), "tensors")
    assert [line.partition(":")[0] for line in said] == [
        "dialect midlayer → bare",
        "layers.0.mlp.up_proj.weight [96, 64] → [97, 64]",
    ]


# --- values -------------------------------------------------------------------------------------------------------


def rewritten(
    folder: str, name: str, edit: Callable[[array[int]], None], code: str = "q", file: str = "model.safetensors"
) -> None:
    """Change the integers of one tensor in a file of a folder."""
    path = Path(folder, file)
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    first, last = (start + n for n in json.loads(raw[8:start])[name]["data_offsets"])
    values = array(code, raw[first:last])
    edit(values)
    path.write_bytes(raw[:first] + values.tobytes() + raw[last:])


@pytest.mark.parametrize("index", ["I64", "I32"])
@pytest.mark.parametrize("count", [1, 41])
def test_changed_targets_of_the_map_are_counted(count: int, index: str, tmp_path: Path) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense(index=index))

    def edit(values: array[int]) -> None:
        for i in range(count):
            values[i * 3] += 1

    rewritten(new, "d2t", edit, "q" if index == "I64" else "i")
    report = compared(old, new)
    assert lines(report) == [f"d2t: {count} of 150 targets changed, {150 - count} are in both"]
    assert report.exit_code == 0


def test_map_of_another_length_says_how_many_targets_are_in_both(tmp_path: Path) -> None:
    other = b.dense_config(draft_vocab_size=75)
    said = lines(compared(*versions(tmp_path, b.dense_config(), b.dense(), other, b.dense(draft=75))), "values")
    old, new = {i * 3 for i in range(150)}, {i * 6 for i in range(75)}
    assert said[0] == f"d2t: 150 → 75 targets, {len(old & new)} of them in both"


def test_changed_tokens_of_the_mask_are_counted(tmp_path: Path) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense())

    def edit(values: array[int]) -> None:
        values[0], values[1], values[2] = 0, 1, 1

    rewritten(new, "t2d", edit, "B")
    assert lines(compared(old, new)) == ["t2d: 3 of 512 tokens changed, 150 → 151 are in"]


def test_map_of_a_shard_is_read_there(tmp_path: Path) -> None:
    old = str(b.write(tmp_path / "old", b.dense_config(), b.dense(), shards=3))
    shutil.copytree(old, tmp_path / "new")
    index = json.loads(Path(old, "model.safetensors.index.json").read_text())

    def edit(values: array[int]) -> None:
        values[7] += 300

    rewritten(str(tmp_path / "new"), "d2t", edit, file=index["weight_map"]["d2t"])
    assert lines(compared(old, str(tmp_path / "new"))) == ["d2t: 1 of 150 targets changed, 149 are in both"]


def test_values_of_a_recording_are_not_compared_and_not_called_unchanged(tmp_path: Path) -> None:
    old = b.write(tmp_path / "old", b.dense_config(), b.dense())
    report = compared(str(old), b.recorded(b.dense_config(), b.dense()))
    assert "d2t: values cannot be compared: new: a recording holds no values" in lines(report, "values")
    assert report.review
    assert report.review.verdict == "same"
    assert report.review.headline == "no difference; 3 not compared"


# --- files --------------------------------------------------------------------------------------------------------


def test_weights_cut_into_shards_are_one_line(tmp_path: Path) -> None:
    table = b.dense(maps=False)
    report = compared(*versions(tmp_path, b.dense_config(), table, shards=3))
    assert lines(report) == ["weights model.safetensors → 3 shards and model.safetensors.index.json"]


def test_shards_of_other_names_are_one_line(tmp_path: Path) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense(maps=False), shards=2)
    shutil.rmtree(old)
    shutil.copytree(new, old)
    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json"):
        text = Path(new, "model.safetensors.index.json").read_text().replace("model-00001", "part-00001")
        if name.endswith("json"):
            Path(new, name).write_text(text)
        else:
            Path(new, name).rename(Path(new, name.replace("model", "part")))
    said = lines(compared(old, new), "files")
    names = "model-00001-of-00002.safetensors → part-00001-of-00002.safetensors"
    assert said == [f"weights in files of other names: {names}"]


def test_other_files_that_came_went_or_changed_are_named(tmp_path: Path) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense())
    for folder, texts in (
        (old, {"a.txt": "1", "same.txt": "s", "b.txt": "12", "c.txt": "1"}),
        (new, {"same.txt": "s", "b.txt": "1", "c.txt": "2", "d.txt": "1"}),
    ):
        for name, text in texts.items():
            Path(folder, name).write_text(text)
    assert lines(compared(old, new)) == [
        "files removed: a.txt",
        "files added: d.txt",
        "b.txt 2 → 1 bytes",
        "c.txt changed, 1 bytes as before",
    ]


# --- every family -------------------------------------------------------------------------------------------------


def held(case: Good, config: Any = None, table: Any = None) -> dict[str, Any]:
    """Return a known-good drafter in memory, with another config or table."""
    return b.given(config or case.drafter_config, table or case.drafter_tensors, b.DRAFTER)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_drafter_of_any_family_is_the_same_as_itself_and_each_change_is_told(case: Good) -> None:
    family = "" if not case.inside else "mtp" if case.family.startswith("mtp-") else case.family
    report = compared(held(case), held(case), family=family)
    assert lines(report, "family", "config", "tensors") == []
    assert [s.contract for s in report.sides] == [case.family] * 2
    name = max(case.drafter_tensors, key=lambda n: (n.endswith("weight"), n))
    dtype, shape = case.drafter_tensors[name]
    table = b.changed(case.drafter_tensors, {name: (dtype, (*shape[:-1], shape[-1] + 1))})
    report = compared(held(case), held(case, table=table), family=family)
    assert lines(report, "family", "config", "tensors") == [f"{name} {list(shape)} → {[*shape[:-1], shape[-1] + 1]}"]
    config = b.edit(case.drafter_config, {"a_key_of_nobody": 7})
    report = compared(held(case), held(case, config), family=family)
    assert lines(report, "family", "config", "tensors") == ["a_key_of_nobody: not there → 7"]


def test_family_inside_its_target_is_judged_with_the_target_of_each_version() -> None:
    report = compared("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1", family="mtp")
    assert report.review
    assert "fits its own target" in {d.subject for d in report.review.differences}
    assert {s.contract for s in report.sides} == {"mtp-deepseek"}


# --- what was not read --------------------------------------------------------------------------------------------


def test_table_that_was_not_read_is_never_unchanged(tmp_path: Path) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense())
    (Path(new) / "model.safetensors").unlink()
    report = compared(old, new)
    assert "tensors cannot be compared: new: there are no weights" in lines(report)
    assert report.exit_code == 4


@pytest.mark.parametrize("keys", [["rope_theta"], ["num_hidden_layers"], ["hidden_act"], ["eagle_config"]])
@pytest.mark.parametrize("turned", [False, True])
def test_key_that_was_not_published_is_never_unchanged(keys: list[str], turned: bool) -> None:
    whole = b.recorded(b.dense_config(), b.dense())
    config = b.edit(b.dense_config(), dict.fromkeys(keys, b.ABSENT))
    part = b.recorded(config, b.dense(), unknown=keys)
    report = compared(*((part, whole) if turned else (whole, part)))
    said = [line for line in lines(report, "config") if line.startswith("cannot be compared: ")]
    words = {
        "rope_theta": "rope",
        "num_hidden_layers": "layers",
        "hidden_act": "hidden_act",
        "eagle_config": "aux layers",
    }
    assert any(words[keys[0]] in line and line.endswith(f"not known of {'old' if turned else 'new'}") for line in said)
    assert report.exit_code == 4
    assert not [line for line in lines(report, "config") if line not in said]


def test_both_partly_published_say_what_is_not_known_of_both() -> None:
    source = b.recorded({"hidden_size": 64, "architectures": ["LlamaForCausalLMEagle3"]}, None)
    source.provenance = "partial"
    report = compared(source, source)
    for label in ("old", "new"):
        assert f"of {label} only 2 config keys are published: of all others nothing is known" in lines(report)
    assert any("heads" in line and line.endswith("not known of old and new") for line in lines(report, "config"))
    assert report.exit_code == 4


def test_nothing_published_of_the_new_one_is_unknown_and_not_a_change() -> None:
    nothing = b.recorded({}, None)
    nothing.provenance = "partial"
    report = compared(b.recorded(b.dense_config(), b.dense()), nothing)
    assert report.exit_code == 4
    assert kinds(report) <= {"unknown", "same"}
    assert "TEN408" in {f.code for f in report.findings}
    assert "of new no config key is published: of all others nothing is known" in lines(report)


def test_nothing_published_of_both_is_unknown_and_the_verdict_as_before() -> None:
    sources = [b.recorded({}, None, name) for name in ("org/one", "org/two")]
    for source in sources:
        source.provenance = "partial"
    report = compared(*sources)
    assert report.exit_code == 4
    assert "conforms: could not be judged, as before: TEN408" in render.report_text(report)
    assert len([line for line in lines(report) if "no config key is published" in line]) == 2


# --- verdicts -----------------------------------------------------------------------------------------------------


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(b.write(tmp_path / "target", b.target_config(), b.target()))


def test_new_failure_is_worse_and_shown_whole(tmp_path: Path, target: str) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense(), b.dense_config(max_position_embeddings=1024))
    report = compared(old, new, targets=[target])
    assert report.exit_code == 1
    assert report.review
    assert report.review.verdict == "worse"
    (line,) = [d for d in report.review.differences if d.kind == "worse"]
    assert line.text.startswith(f"fits {target}: could not be judged → does not hold; new: PAIR403 context")
    assert "PAIR403" in {f.code for f in report.findings}
    assert "at least 4096 tokens" in render.report_text(report)


def test_mended_failure_is_told_and_is_not_worse(tmp_path: Path, target: str) -> None:
    old, new = versions(tmp_path, b.dense_config(max_position_embeddings=1024), b.dense(), b.dense_config())
    report = compared(old, new, targets=[target])
    assert report.exit_code == 0
    assert any("does not hold → could not be judged; gone: PAIR403 context" in line for line in lines(report))


def test_failure_that_was_there_before_is_not_new_whatever_the_dialect(tmp_path: Path) -> None:
    change = {"mlp.up_proj.weight": ("BF16", (97, 64))}
    tables = [
        b.changed(b.dense(style=s), {f"{p}{n}": row for n, row in change.items()})
        for s, p in (("midlayer", "midlayer."), ("bare", "layers.0."))
    ]
    report = compared(*versions(tmp_path, b.dense_config(), tables[0], None, tables[1]))
    assert report.exit_code == 0
    assert lines(report, "verdicts") == []
    assert "does not hold, as before: TEN403" in render.report_text(report)


def test_same_code_on_another_tensor_is_a_new_failure(tmp_path: Path) -> None:
    rows = {"fc.weight": ("BF16", (64, 256))}, {"norm.weight": ("BF16", (65,))}
    report = compared(
        *versions(tmp_path, b.dense_config(), b.changed(b.dense(), rows[0]), None, b.changed(b.dense(), rows[1]))
    )
    assert report.exit_code == 1
    assert any("new: TEN403 norm.weight" in line and "gone: TEN403 fc.weight" in line for line in lines(report))


def test_check_that_held_and_is_unknown_now_is_not_passed(tmp_path: Path, target: str) -> None:
    table = b.target()
    old, new = versions(tmp_path, b.target_config(), table)
    (Path(new) / "model.safetensors").unlink()
    assert compared(old, new).exit_code == 4


def test_targets_that_are_declared_are_judged_and_one_not_at_hand_is_unknown(tmp_path: Path) -> None:
    config = b.dense_config(**{"speculators_config.verifier.name_or_path": "nowhere/target"})
    report = compared(*versions(tmp_path, config, b.dense()))
    assert report.exit_code == 4
    assert any(
        line.startswith("fits nowhere/target: could not be judged: model is not at hand") for line in lines(report)
    )


def test_targets_of_pairs_that_name_either_are_judged() -> None:
    report = compared("AQ-MedAI/Kimi-K2-Instruct-eagle3", "AQ-MedAI/Kimi-K25-eagle3")
    assert report.review
    rungs = {d.subject for d in report.review.differences if d.topic == "verdicts"}
    assert {"conforms", "fits moonshotai/Kimi-K2-Instruct", "fits moonshotai/Kimi-K2.5"} <= rungs
    assert "context 131072 → 262144" in lines(report)
    assert any("gone: PAIR403 context" in line for line in lines(report))
    assert any(line.startswith("tensors cannot be compared: old: ") for line in lines(report))


def test_folder_counts_as_the_repo_that_it_is_said_to_hold(tmp_path: Path) -> None:
    repo = "AQ-MedAI/Kimi-K25-eagle3"
    config = b.edit(dict(api.open_side(repo, "drafter", b.LIBRARY).config.data), {})
    new = str(b.write(tmp_path / "new", config, None))
    alone, named = compared(repo, new), compared(repo, new, repo=repo)
    assert any("PAIR417 [unknown] lineage" in line for line in lines(alone, "verdicts"))
    assert not any("PAIR417" in line for line in lines(named, "verdicts"))
    assert named.rerun.endswith(f" --as {repo}")
    with pytest.raises(SystemExit) as stop:
        cli.main(["diff", repo, new, "--as", "a b"])
    assert stop.value.code == 2


def test_two_targets_are_compared_with_the_drafters_of_pairs() -> None:
    report = compared("moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2.5")
    assert "the model's own keys stand in the top level → text_config" in lines(report)
    assert not [line for line in lines(report) if line.startswith("hidden_size")]
    assert any(line.startswith("fits AQ-MedAI/Kimi-K2-Instruct-eagle3: ") for line in lines(report))
    assert "PAIR456" in {f.code for f in report.findings}


# --- bad input ----------------------------------------------------------------------------------------------------


def test_folder_that_is_not_there_is_named_with_its_side(tmp_path: Path) -> None:
    old = str(b.write(tmp_path / "old", b.dense_config(), b.dense()))
    for pair, label in (((old, "./none"), "new"), (("./none", old), "old")):
        report = compared(*pair)
        assert report.exit_code == 2
        assert [(f.code, f.subject) for f in report.findings] == [("SRC111", f"{label} ./none")]
        assert [s.role for s in report.sides] == [{"new": "old", "old": "new"}[label]]
    assert compared("./none", "./nor").exit_code == 2


def test_model_that_is_not_at_hand_could_not_be_judged(tmp_path: Path) -> None:
    old = str(b.write(tmp_path / "old", b.dense_config(), b.dense()))
    assert compared(old, "nowhere/model").exit_code == 4


def test_file_of_a_recording_is_a_version_and_another_json_file_is_a_finding(tmp_path: Path) -> None:
    folder = b.write(tmp_path / "old", b.dense_config(), b.dense())
    commit = "0123456789abcdef0123456789abcdef01234567"
    made, _ = api.record(str(folder), f"org/drafter@{commit}", b.LIBRARY)
    assert made
    path = tmp_path / made["file"]
    path.write_text(json.dumps(made["recording"]))
    report = compared(str(folder), str(path))
    assert lines(report, "family", "config", "tensors") == []
    assert [(s.role, s.name, s.revision) for s in report.sides][1] == ("new", "org/drafter", commit)
    report = compared(str(folder), str(folder / "config.json"))
    assert ([f.code for f in report.findings], report.exit_code) == (["SRC115"], 4)
    assert compared(str(folder), str(tmp_path / "none.json")).exit_code == 2


def test_drafter_against_target_is_refused(tmp_path: Path, target: str) -> None:
    old = str(b.write(tmp_path / "old", b.dense_config(), b.dense()))
    for pair in ((old, target), (target, old)):
        report = compared(*pair)
        assert (report.exit_code, [f.code for f in report.findings]) == (2, ["PAIR455"])
        assert lines(report) == []


def test_two_families_are_compared_as_far_as_they_go_with_a_finding(tmp_path: Path) -> None:
    report = compared(*versions(tmp_path, b.dense_config(), b.dense(), b.mla_config(), b.mla()))
    assert [f.code for f in report.findings] == ["PAIR456"]
    said = lines(report)
    assert said[0] == "family eagle3 → eagle3-mla"
    assert "q rank not stated → 48" in said
    assert "rope theta 500000.0 → 50000.0, interleaved no → yes" in said
    assert "removed midlayer.self_attn.q_proj.weight BF16 [176, 128]" in said
    assert not [line for line in said if "fc.weight" in line]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("broken", ["weights", "config", "not JSON", "list"])
def test_corrupt_file_is_a_finding_of_its_side(broken: str, turned: bool, tmp_path: Path) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense())
    bad = Path(old if turned else new)
    if broken == "weights":
        (bad / "model.safetensors").write_bytes(b"\xff" * 40)
    else:
        (bad / "config.json").write_text({"config": "", "not JSON": "{", "list": "[1]"}[broken])
    report = compared(old, new)
    assert report.exit_code == (4 if turned else 1)
    label = "old" if turned else "new"
    about = "tensors" if broken == "weights" else "config"
    assert any(line.startswith(f"{about} cannot be compared: {label}: ") for line in lines(report))
    text = render.report_text(report)
    assert ("STF202" if broken == "weights" else "CFG30") in text


def test_both_corrupt_is_not_the_same(tmp_path: Path) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense())
    for folder in (old, new):
        Path(folder, "model.safetensors").write_bytes(b"")
    assert compared(old, new).exit_code == 4


def test_file_cut_after_its_header_was_read_is_not_compared(tmp_path: Path) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense())
    path = Path(new, "model.safetensors")
    path.write_bytes(path.read_bytes()[:-8])
    report = compared(old, new)
    assert report.exit_code == 1
    assert any("cannot be compared" in line for line in lines(report, "values", "tensors"))


def test_family_that_cannot_be_told_is_judged_by_the_one_given(tmp_path: Path) -> None:
    config = b.dense_config(architectures=["Nobody"], eagle_config=b.ABSENT, draft_vocab_size=b.ABSENT)
    table = b.dense(draft=512, maps=False)
    old, new = versions(tmp_path, config, table, b.edit(config, {"max_position_embeddings": 8192}))
    assert "context 4096 → 8192" in lines(compared(old, new, family="eagle3"))


def test_hostile_names_are_escaped_and_many_changes_are_cut(tmp_path: Path) -> None:
    evil = "x\x1b[31m\u202e"
    keys = {f"{evil}{n}": n for n in range(1000)}
    table = b.dense() | {f"{evil}.{n}": ("BF16", (1, 2)) for n in range(500)}
    report = compared(*versions(tmp_path, b.dense_config(), b.dense(), {**b.dense_config(), **keys}, table))
    text = render.report_text(report)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "and 800 more config keys" in lines(report)
    assert "and 300 more added" in lines(report)


# --- the command --------------------------------------------------------------------------------------------------


def test_command_prints_both_formats_with_one_exit_code(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = versions(tmp_path, b.dense_config(), b.dense(), b.dense_config(max_position_embeddings=1024))
    assert cli.main(["diff", old, new, "--target", target]) == 1
    text = capsys.readouterr().out
    assert "\nold       " in text
    assert "\n! fits " in text
    assert cli.main(["diff", old, new, "--target", target, "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["exit_code"], data["verdict"], data["review"]["verdict"]) == (1, "fail", "worse")
    assert [d["text"] for d in data["review"]["differences"] if d["topic"] == "config"] == ["context 4096 → 1024"]


def test_copy_of_a_folder_has_no_difference(tmp_path: Path) -> None:
    old = b.write(tmp_path / "old", b.dense_config(), b.dense(), shards=2)
    shutil.copytree(old, tmp_path / "new")
    assert lines(compared(str(old), str(tmp_path / "new"))) == []


# --- views of a pair ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def view() -> dict[str, Any]:
    pair, _ = b.LIBRARY.get("pair", "kimi-k2-eagle3-on-k25")
    return dict(json.loads(json.dumps(api.pair_view(pair, b.LIBRARY))))


def told(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [d.text for d in view_changes(old, new, b.LIBRARY)]


def test_equal_views_have_no_line_and_are_left_as_they_are(view: dict[str, Any]) -> None:
    before = deepcopy(view)
    assert told(view, deepcopy(view)) == []
    assert view == before


# path in the view, its new value -> the line
VIEWS: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "size": (
        ("drafter side", "bindings", "context"),
        "262144 (drafter config.json: max_position_embeddings)",
        "drafter: context 131072 → 262144",
    ),
    "fusion": (("drafter side", "bindings", "aux"), "4 (x)", "drafter: fc reads 3 → 4 hidden states"),
    "flag": (("drafter side", "bindings", "fc_norm"), "True (x)", "drafter: fc norm no → yes"),
    "witness": (
        ("drafter side", "bindings", "layers"),
        "1 (tensor x)",
        "drafter: layers 1, now by tensor x; before by drafter config.json: num_hidden_layers",
    ),
    "of the target": (("target side", "bindings", "vocab"), "5 (x)", "target: vocab 163840 → 5"),
    "dialect": (("drafter side", "dialect"), "bare", "drafter: dialect midlayer → bare"),
    "provenance": (("drafter side", "provenance"), "recorded", "drafter: provenance derived → recorded"),
    "shape": (
        ("drafter side", "tensors", "fc.weight", "value"),
        [7168, 28672],
        "drafter: fc.weight [7168, 21504] → [7168, 28672]",
    ),
    "presence": (
        ("drafter side", "tensors", "t2d", "presence"),
        "required",
        "drafter: t2d presence optional → required",
    ),
    "verdict": (("verdicts", "conforms"), "fail", "conforms: could not be judged → does not hold"),
    "repo": (("drafter",), "a/b", "drafter AQ-MedAI/Kimi-K2-Instruct-eagle3 → a/b"),
    "a key of tomorrow": (("drafter side", "new"), {"a": [1]}, "drafter: new.a not there → [1]"),
}


@pytest.mark.parametrize("case", VIEWS)
def test_change_of_a_view_is_told_in_the_terms_of_the_field(case: str, view: dict[str, Any]) -> None:
    path, value, line = VIEWS[case]
    other = deepcopy(view)
    table = other
    for part in path[:-1]:
        table = table[part]
    table[path[-1]] = value
    if case == "of the target":
        line = line.replace("vocab ", "vocabulary ")
    assert told(view, other) == [line]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value of a view, tables included."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))


def test_no_change_of_a_view_goes_untold(view: dict[str, Any]) -> None:
    silent = []
    for path in leaves(view):
        for edit in ("change", "remove"):
            other = deepcopy(view)
            table: Any = other
            for part in path[:-1]:
                table = table[part]
            if edit == "remove":
                del table[path[-1]]
            else:
                table[path[-1]] = "another"
            silent += [] if told(view, other) and told(other, view) else [(edit, path)]
    assert silent == []


def test_order_of_the_findings_alone_is_told(view: dict[str, Any]) -> None:
    other = deepcopy(view)
    other["findings"].reverse()
    assert told(view, other) == ["the same findings or tensors, in another order"]


def test_finding_that_came_or_went_is_told_and_one_that_fails_is_worse(view: dict[str, Any]) -> None:
    row = {"code": "TEN403", "level": "error", "subject": "fc.weight", "expected": "[1]", "observed": "[2]"}
    other = deepcopy(view) | {"findings": [*view["findings"], row]}
    (line,) = view_changes(view, other, b.LIBRARY)
    assert (line.kind, line.text) == ("worse", "new: TEN403 [error] fc.weight: expected [1], observed [2]")
    assert failing(other) == ["TEN403 fc.weight: expected [1], observed [2]"]
    (line,) = view_changes(other, view, b.LIBRARY)
    assert (line.kind, line.text.partition(":")[0]) == ("changed", "gone")
    assert failing(view) == []
    accepted = deepcopy(other)
    accepted["findings"][-1]["accepted"] = "on purpose"
    assert failing(accepted) == []
    assert told(accepted, other) == ["TEN403 [error] fc.weight: accepted on purpose → not there"]
