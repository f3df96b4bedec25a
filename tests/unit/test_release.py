"""A good release passes, each fault alone gives exactly its code, and the card block says what is unknown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import builder as b
from draftproof import cli
from draftproof.findings import Report
from draftproof.library import Library
from draftproof.release import CARD, FRONT_LIMIT, check_release, read_front
from draftproof.render import finding_text
from known_good import CASES, Good

FRONT = (
    "base_model: org/target\nlicense: apache-2.0\ntags: [eagle3, speculative-decoding]\nlibrary_name: transformers\n"
)
BODY = "# A drafter\n\nTrained on public chat data.\n\n```bash\nserve --draft path/to/drafter  # TODO: your-org\n```\n"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKEN = "hf_" + "a" * 34


def card(front: str = FRONT, body: str = BODY) -> str:
    return f"---\n{front}---\n{body}"


def release(
    folder: Path, files: Mapping[str, bytes | str | None] | None = None, config: Any = None, shards: int = 1
) -> Path:
    """Write a good release, with files added, replaced or (None) left out; a name that ends with / is a folder's."""
    b.write(folder, b.dense_config() if config is None else config, b.dense(), shards=shards)
    for name, data in ({CARD: card()} | dict(files or {})).items():
        path = folder / name
        if data is None:
            path.unlink(missing_ok=True)
        elif name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def checked(folder: Path | str, **more: Any) -> Report:
    return check_release(folder, more.pop("library", b.LIBRARY), **more)[0]


def codes(report: Report) -> set[str]:
    """Return what is said above info."""
    return {c for c in b.codes(report) if not c.endswith(" info")}


# --- good releases ------------------------------------------------------------------------------------------------

GOOD: Mapping[str, dict[str, Any]] = {
    "as it is": {},
    "sharded": {"shards": 3},
    "with what else a repo holds": {
        "files": {"LICENSE": "", ".gitattributes": "", "generation_config.json": "{}", "tokenizer.json": "{}",
                  "assets/": None, "train_log.png": b"x", "tokenizer_config.json": '{"chat_template": "{{ x }}/a/b"}'}
    },
    "licence of its own": {
        "files": {CARD: card("base_model: org/target\nlicense: other\nlicense_name: mine\nlicense_link: LICENSE\n")}
    },
    "two base models": {"files": {CARD: card("base_model:\n- org/target\n- org/other\nlicense: mit\n")}},
    "front matter with CRLF": {"files": {CARD: card().replace("\n", "\r\n")}},
    "front matter alone": {"files": {CARD: card(body="")}},
    "comments and code are no placeholders": {"files": {CARD: card(body="<!-- TODO -->\nuse `TODO` here\n")}},
    "licence in capitals": {"files": {CARD: card(FRONT.replace("apache-2.0", "Apache-2.0"))}},
    "names like the beginning of a token": {
        "files": {CARD: card(body="call hf_hub_download_of_a_long_name; task-" + "a" * 40 + "\n")}
    },
    "name of another model": {"config": b.dense_config(_name_or_path="org/before")},
    "code of another repo": {"config": b.dense_config(auto_map={"AutoModel": "org/code--modeling_x.X"})},
    "code of its own": {
        "config": b.dense_config(auto_map={"AutoModel": "modeling_x.X"}), "files": {"modeling_x.py": ""},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_release_passes_with_nothing_above_info(name: str, tmp_path: Path) -> None:
    more = dict(GOOD[name])
    files = {k: ("" if v is None and k != "assets/" else v) for k, v in more.pop("files", {}).items()}
    (tmp_path / "drafter" / "assets").mkdir(parents=True)
    files.pop("assets/", None)
    report = checked(release(tmp_path / "drafter", files, **more))
    assert codes(report) == set(), b.text(report)
    assert (report.verdict, report.exit_code) == ("pass", 0)
    assert report.sections[-1].rung == "release"
    assert {f.code for f in report.sections[-1].findings if f.level == "pass"} >= {
        "REL501", "REL503", "REL504", "REL506", "REL507", "REL509", "REL510", "REL511", "REL512", "REL514", "REL516",
    }  # fmt: skip


def test_config_without_a_dtype_is_an_info(tmp_path: Path) -> None:
    config = {key: value for key, value in b.dense_config().items() if key not in ("dtype", "torch_dtype")}
    report = checked(release(tmp_path / "d", config=config))
    assert codes(report) == set()
    assert "REL513 [info] config.json: dtype: config declares no dtype" in " ".join(map(finding_text, report.findings))


def test_code_that_the_config_names_and_that_is_not_there_is_an_info(tmp_path: Path) -> None:
    report = checked(release(tmp_path / "d", config=b.dense_config(auto_map={"AutoModel": "modeling_x.X"})))
    assert codes(report) == set()
    assert "REL512 [info] modeling_x.py" in " ".join(finding_text(f) for f in report.findings)


@pytest.mark.parametrize("case", [c for c in CASES if not c.inside], ids=lambda case: case.id)
def test_what_trainers_write_is_no_fault_of_a_release(case: Good, tmp_path: Path) -> None:
    folder = b.write(tmp_path / "d", case.drafter_config, case.drafter_tensors)
    (folder / CARD).write_text(card(f"base_model: {b.TARGET}\nlicense: mit\n"))
    (folder / "tokenizer.json").write_text("{}")
    report = checked(folder)
    assert {c for c in codes(report) if c.startswith("REL")} == set(), b.text(report)


def test_release_says_all_that_check_says_of_the_drafter(tmp_path: Path) -> None:
    folder = release(tmp_path / "drafter", config=b.dense_config(num_hidden_layers=7))
    assert codes(checked(folder)) == {"CFG308"}


# --- one fault at a time ------------------------------------------------------------------------------------------


def front(**changes: str | None) -> dict[str, bytes | str | None]:
    """Return a card whose front matter has keys replaced, or left out where None."""
    keys = dict(line.split(": ", 1) for line in FRONT.splitlines())
    keys |= {k: v for k, v in changes.items() if v is not None}
    return {CARD: card("".join(f"{k}: {v}\n" for k, v in keys.items() if changes.get(k, "") is not None))}


def sharded_without_index(folder: Path) -> None:
    release(folder, shards=2)
    (folder / INDEX).unlink()


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: release(folder, config=b.dense_config(**changes)) and None


FAULTS: Mapping[str, tuple[Mapping[str, bytes | str | None] | Callable[[Path], None], set[str], str]] = {
    "no card": ({CARD: None}, {"REL501"}, "no such file"),
    "card under another name": ({CARD: None, "readme.txt": "x"}, {"REL501"}, "there is readme.txt"),
    "card without front matter": ({CARD: BODY}, {"REL502"}, "text without front matter"),
    "empty card": ({CARD: ""}, {"REL502"}, "text without"),
    "front matter not closed": ({CARD: f"---\n{FRONT}\n# x\n"}, {"REL503"}, "opened and not closed"),
    "front matter is no YAML": (
        {CARD: card(FRONT + "a: b: c\n")}, {"REL503"}, "line 6: mapping values are not allowed here",
    ),
    "front matter with a tab": ({CARD: card(FRONT + "x:\n\t- a\n")}, {"REL503"}, "line 7"),
    "front matter with a key twice": ({CARD: card(FRONT + "license: x\n")}, {"REL503"}, "line 6: license stands twice"),
    "front matter is a list": ({CARD: card("- a\n- b\n")}, {"REL503"}, "a list, not a mapping"),
    "front matter is empty": ({CARD: card("")}, {"REL503"}, "nothing"),
    "front matter with an alias": (
        {CARD: card(FRONT + "a: &x [1, 2]\nb: [*x, *x]\n")}, {"REL503"}, "alias",
    ),
    "front matter asks for code": (
        {CARD: card(FRONT + "a: !!python/object/apply:os.system [ls]\n")}, {"REL503"},
        "could not determine a constructor",
    ),
    "front matter without end": ({CARD: card("a: " + "[" * 5000 + "]" * 5000 + "\n")}, {"REL503"}, "nested too deep"),
    "card is not UTF-8": ({CARD: card().encode("utf-16")}, {"REL503"}, "not UTF-8"),
    "card of 5 MB": ({CARD: card(body="x" * (5 << 20))}, {"SRC113 unknown"}, "5242"),
    "no base model": (front(base_model=None), {"REL504"}, "nothing"),
    "base model is null": (front(base_model="null"), {"REL504"}, "nothing"),
    "base model is a path": (front(base_model="/home/me/target"), {"REL504"}, "a path says nothing to others"),
    "base model is a bare name": (front(base_model="target"), {"REL504"}, "target"),
    "base model is a number": (front(base_model="7"), {"REL504"}, "7"),
    "no licence": (front(license=None), {"REL506"}, "nothing"),
    "licence read as no": (front(license="no"), {"REL506"}, "quote it"),
    "licence misspelt": (front(license="apache2.0"), {"REL506 warning"}, "did you mean 'apache-2.0'?"),
    "licence unknown": (front(license="unknown"), {"REL506 unknown"}, "declared to be unknown"),
    "licence other without a name": (front(license="other"), {"REL506 warning"}, "no license_name and no license_link"),
    "library of another format": (front(library_name="peft"), {"REL507 warning"}, "peft"),
    "library is a list": (front(library_name="[a]"), {"REL507 warning"}, "a text"),
    "tags are a text of another format": (front(tags="gguf"), {"REL507 warning"}, "gguf"),
    "tags hold a number": (front(tags="[eagle3, 7]"), {"REL507 warning"}, "a list of texts"),
    "relation is adapter": ({CARD: card(FRONT + "base_model_relation: adapter\n")}, {"REL507 warning"}, "finetune"),
    "template left in the card": (
        {CARD: card(body="# x\n- **Developed by:** [More Information Needed]\n")}, {"REL509 warning"}, "Developed by",
    ),
    "to do left in the card": ({CARD: card(body="Accept length: TODO\n")}, {"REL509 warning"}, "Accept length: TODO"),
    "placeholder in the front matter": (
        {CARD: card(FRONT + "model_name: your-model\n")}, {"REL509 warning"}, "model_name: your-model",
    ),
    "placeholder in the config": (config(model_note="TODO"), {"REL509 warning"}, "config.json: model_note: TODO"),
    "optimizer state": ({"optimizer.pt": b""}, {"REL510"}, "optimizer state"),
    "scheduler state": ({"scheduler.pt": b""}, {"REL510"}, "scheduler state"),
    "random state": ({"rng_state_0.pth": b""}, {"REL510"}, "random state"),
    "trainer state": ({"trainer_state.json": '{"best": "/home/me/out"}'}, {"REL510"}, "trainer state"),
    "shards of a training run": ({"global_step500/": ""}, {"REL510"}, "global_step500/"),
    "shard of an optimizer": ({"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt": b""}, {"REL510"}, "optimizer state"),
    "checkpoints on the way": ({"checkpoint-1000/": ""}, {"REL510"}, "checkpoint-1000/"),
    "arguments of the trainer": ({"training_args.bin": b""}, {"REL510 warning"}, "training_args.bin"),
    "logs": ({"wandb/": "", "events.out.tfevents.1.host": b""}, {"REL510 warning"}, "wandb/"),
    "no weights": ({WEIGHTS: None}, {"SRC120 unknown", "REL512"}, "*.safetensors"),
    "no config": ({"config.json": None}, {"CFG301"}, "config.json"),
    "shards without an index": (sharded_without_index, {"REL512"}, "index of 2 shards"),
    "dtype not as declared": (config(torch_dtype="float32"), {"CFG309 warning"}, "float32"),
    "path in the config": (config(_name_or_path="/home/me/out/run-1"), {"REL514 warning"}, "/home/me/out/run-1"),
    "path of Windows": (config(data="C:\\Users\\me\\x"), {"REL514 warning"}, "C:"),
    "path of a run": (config(_name_or_path="outputs/run/checkpoint-500"), {"REL514 warning"}, "checkpoint-500"),
    "path deep in another file": (
        {"generation_config.json": '{"a": [{"b": "/mnt/data/x"}]}'}, {"REL514 warning"},
        "generation_config.json: a[0].b",
    ),
    "token in the config": (config(note=TOKEN), {"REL516"}, "a Hugging Face token, in a text of 37 characters"),
    "token in prose": ({CARD: card(body=f"run with ({TOKEN})\n")}, {"REL516"}, "a Hugging Face token"),
    "token in a text": ({"run.json": json.dumps({"cmd": f"--token={TOKEN} --x"})}, {"REL516"}, "run.json: cmd"),
    "token in code of the card": (
        {CARD: card(body=f"```bash\nexport HF_TOKEN={TOKEN}\n```\n")}, {"REL516"}, "README.md, line 8",
    ),
    "path in the front matter": ({CARD: card(FRONT + "datasets: /data/me/x\n")}, {"REL514 warning"}, "/data/me/x"),
    "token in a script": ({"serve.sh": f"export X={TOKEN}\n"}, {"REL516"}, "serve.sh, line 1"),
    "key that holds a secret": ({"run.json": '{"api_key": "abc"}'}, {"REL516"}, "run.json: api_key"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_gives_exactly_its_code(name: str, tmp_path: Path) -> None:
    fault, expected, word = FAULTS[name]
    folder = tmp_path / "drafter"
    if callable(fault):
        fault(folder)
    else:
        release(folder, fault)
    report = checked(folder)
    assert codes(report) == expected, b.text(report)
    assert word in b.text(report), b.text(report)
    assert report.verdict == ("fail" if any(" " not in c for c in expected) else
                              "unknown" if any("unknown" in c for c in expected) else "pass")  # fmt: skip
    assert TOKEN not in b.text(report)


def test_every_fault_comes_at_once(tmp_path: Path) -> None:
    folder = release(tmp_path / "d", {CARD: card("license: no\n"), "optimizer.pt": b"", "scheduler.pt": b""},
                     b.dense_config(_name_or_path="/root/x/y", api_key="k"))  # fmt: skip
    report = checked(folder)
    assert codes(report) == {"REL504", "REL506", "REL510", "REL514 warning", "REL516"}
    assert report.counts["error"] == 5


def test_tensor_names_with_a_wrapper_inside_are_told_as_such(tmp_path: Path) -> None:
    table = {n.replace("midlayer.", "midlayer._fsdp_wrapped_module."): row for n, row in b.dense().items()}
    folder = release(tmp_path / "d", {WEIGHTS: b.safetensors(table)})
    assert {"REL511", "TEN401", "TEN402"} <= codes(checked(folder))


def test_tensor_names_below_a_wrapper_are_told_by_rung_1_alone(tmp_path: Path) -> None:
    table = {f"_orig_mod.{n}": row for n, row in b.dense().items()}
    said = codes(checked(release(tmp_path / "d", {WEIGHTS: b.safetensors(table)})))
    assert "TEN406" in said
    assert "REL511" not in said


def test_pickled_weights_are_named(tmp_path: Path) -> None:
    folder = release(tmp_path / "d", {WEIGHTS: None, "pytorch_model.bin": b"x"})
    assert "REL517 warning" in codes(checked(folder))
    assert "REL512" not in codes(checked(folder))


# --- targets ------------------------------------------------------------------------------------------------------


def own(folder: Path, **models: str) -> Library:
    """Return a library that knows models: ORG__NAME = body of its contract."""
    (folder / "models").mkdir(parents=True)
    for name, body in models.items():
        repo = name.replace("__", "/")
        text = f'schema = 1\nkind = "model"\nid = "{repo.replace("/", "--")}"\nrepo = "{repo}"\n{body}'
        (folder / "models" / f"{repo.replace('/', '--')}.toml").write_text(text)
    return Library(folder)


def test_base_model_that_is_not_the_verifier_of_the_config_is_an_error(tmp_path: Path) -> None:
    verifier = {"verifier": {"name_or_path": "org/other"}}
    folder = release(tmp_path / "d", config=b.dense_config(speculators_config=verifier))
    report = checked(folder)
    assert codes(report) == {"REL505", "SRC112 unknown"}
    assert "org/other (drafter config.json: speculators_config.verifier.name_or_path)" in b.text(report)


def test_base_model_that_is_the_verifier_in_other_letters_holds(tmp_path: Path) -> None:
    verifier = {"verifier": {"name_or_path": "Org/Target"}}
    report = checked(release(tmp_path / "d", config=b.dense_config(speculators_config=verifier)))
    assert codes(report) == {"SRC112 unknown"}
    assert any(f.code == "REL505" and f.level == "pass" for f in report.findings)


def test_verifier_that_is_a_local_path_is_an_error(tmp_path: Path) -> None:
    verifier = {"verifier": {"name_or_path": "/data/models/target"}}
    report = checked(release(tmp_path / "d", config=b.dense_config(speculators_config=verifier)))
    assert "REL515" in codes(report)
    assert "REL514 warning" not in codes(report)


def test_base_model_that_is_a_quantised_copy_of_the_target_is_an_info(tmp_path: Path) -> None:
    lineage = '[lineage]\nparent = "org/other"\nrelation = "quantised"\nsource = "its card"\n'
    verifier = {"verifier": {"name_or_path": "org/other"}}
    folder = release(tmp_path / "d", config=b.dense_config(speculators_config=verifier))
    report = checked(folder, library=own(tmp_path / "own", org__target=lineage))
    assert codes(report) == {"SRC112 unknown"}
    assert "quantised" in b.text(report)


def test_target_that_is_given_is_paired_as_check_does(tmp_path: Path) -> None:
    folder = release(tmp_path / "d", config=b.dense_config(max_position_embeddings=1024))
    target = b.write(tmp_path / "t", b.target_config(), b.target())
    report = checked(folder, target=str(target))
    assert "PAIR403" in codes(report)
    assert [s.rung for s in report.sections] == ["conforms", "fits", "release"]


@pytest.mark.parametrize(("context", "expected"), [(4096, set()), (1024, {"REL508"})])
def test_base_model_at_hand_is_held_to_what_the_card_promises(context: int, expected: set[str], tmp_path: Path) -> None:
    (tmp_path / "own" / "recordings").mkdir(parents=True)
    named = {n: [d, list(s)] for n, (d, s) in b.target().items()}
    data = {"schema": 1, "repo": "org/target", "revision": "a" * 40, "provenance": "recorded", "normalised": False,
            "read": {}, "unknown": [], "respelled": [], "config": b.target_config(),
            "tensors": {"complete": False, "count": 4, "parameters": None, "named": named}}  # fmt: skip
    (tmp_path / "own" / "recordings" / "org--target@aaaaaaaa.json").write_text(json.dumps(data))
    folder = release(tmp_path / "d", config=b.dense_config(max_position_embeddings=context))
    report = checked(folder, library=Library(tmp_path / "own"))
    assert codes(report) == expected, b.text(report)
    assert ("PAIR403" in b.text(report)) == bool(expected)


# --- what is no release -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "code"),
    [("./nope", "SRC111"), ("AQ-MedAI/Kimi-K2-Instruct-eagle3", "SRC117"), ("org/nope", "SRC112 unknown")],
)
def test_what_is_no_folder_is_said(spec: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert codes(checked(spec)) == {code}


def test_folder_of_no_known_family_is_checked_for_the_rest(tmp_path: Path) -> None:
    folder = release(tmp_path / "d", {CARD: None}, {"architectures": ["New"]})
    (folder / WEIGHTS).write_bytes(b.safetensors({"a.weight": ("BF16", (4, 4))}))
    assert codes(checked(folder)) == {"TEN408 unknown", "REL501"}


def test_file_that_the_family_needs_of_its_own_is_named(tmp_path: Path) -> None:
    text = Library().files("family")["eagle3"].read_text().replace('id = "eagle3"', 'id = "mine"', 1)
    (tmp_path / "own" / "families").mkdir(parents=True)
    text = text.replace("\n[detect]", 'serving = ["tokenizer.json | tokenizer.model"]\n\n[detect]', 1)
    (tmp_path / "own" / "families" / "mine.toml").write_text(text)
    folder, library = release(tmp_path / "d"), Library(tmp_path / "own")
    report = checked(folder, library=library, family="mine")
    assert codes(report) == {"REL512"}, b.text(report)
    assert "tokenizer.json or tokenizer.model" in b.text(report)
    (folder / "tokenizer.model").write_bytes(b"x")
    assert codes(checked(folder, library=library, family="mine")) == set()


# --- front matter, at random --------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet=st.sampled_from(list("ab:-[]{}&*!|>'\"#%@`,?\n\t 0\x00\ud7ff\ufeff"))))
@example("a: 2024-13-45\n")
@example("a: !!binary x\n")
@example("? [a]\n: b\n")
@example("a: 1_000_000e99999\n")
@example("<<: 1\n")
@example("a: &x {b: *x}\n")
def test_front_matter_is_read_or_refused_and_never_raises(text: str) -> None:
    data, problem = read_front(text)
    assert isinstance(data, dict)
    assert not (data and problem)
    assert "\n" not in problem


def test_front_matter_without_measure_is_refused_before_it_is_parsed() -> None:
    assert "too large" in read_front("a: " + "x" * FRONT_LIMIT)[1]


# --- the block for the card ---------------------------------------------------------------------------------------


def block(folder: Path, **more: Any) -> str:
    return check_release(folder, more.pop("library", b.LIBRARY), **more)[1]


def test_card_block_states_family_geometry_conventions_and_engines(tmp_path: Path) -> None:
    text = block(release(tmp_path / "d"))
    assert "| family | `eagle3`: EAGLE-3" in text
    assert "| target | org/target (its model card) |" in text
    assert "| tensor names | `midlayer` |" in text
    assert "| tensors | 15, " in text
    assert "fc [64, 192]" in text
    assert "| captured layers | [2, 6, 9] (eagle_config.eagle_aux_hidden_state_layer_ids) |" in text
    assert "| layer ids are | *unknown*: one of boundary, output |" in text
    assert "| trained at | *unknown* |" in text
    assert "| SGLang | " in text
    assert "Accept length: *unknown*" in text


def test_card_block_says_what_an_engine_does_with_the_pair(tmp_path: Path) -> None:
    folder = release(tmp_path / "d", config=b.dense_config(max_position_embeddings=1024))
    target = b.write(tmp_path / "t", b.target_config(), b.target())
    text = block(folder, target=str(target))
    assert "| SGLang | 0.5.23 | refuses: " in text
    assert "without a target" not in text


def test_card_block_states_declared_facts_with_their_source(tmp_path: Path) -> None:
    body = '[aux_convention]\nvalue = "boundary"\nsource = "our run"\n'
    body += '[trained_context]\nvalue = 2048\nsource = "our run"\n'
    path = tmp_path / "models--org--drafter" / "snapshots" / ("a" * 40)
    text = block(release(path), library=own(tmp_path / "own", org__drafter=body))
    assert "| layer ids are | boundary (our run) |" in text
    assert "| trained at | 2048 tokens (our run) |" in text


def test_card_block_of_an_unknown_family_says_unknown(tmp_path: Path) -> None:
    folder = release(tmp_path / "d", {CARD: None}, {"architectures": ["New<b>|"]})
    (folder / WEIGHTS).write_bytes(b.safetensors({"a.weight": ("BF16", (4, 4))}))
    text = block(folder)
    for row in ("family", "target", "tensor names", "geometry", "dtype"):
        assert f"| {row} | *unknown* |" in text


def test_card_block_is_a_table_that_a_name_cannot_break(tmp_path: Path) -> None:
    folder = release(tmp_path / "d", config=b.dense_config(torch_dtype=None, dtype="a|b\n<script>"))
    lines = block(folder).splitlines()
    assert not any("<script>" in line for line in lines)
    rows = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {3, 4}


def test_command_prints_the_report_or_the_block_with_the_same_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(release(tmp_path / "d"))
    assert cli.main(["check", "--release", folder]) == 0
    assert "release: holds" in capsys.readouterr().out
    assert cli.main(["check", "--release", folder, "--card"]) == 0
    assert capsys.readouterr().out.startswith("## Drafter\n")
    assert cli.main(["check", "--release", folder, "--card", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["card"].startswith("## Drafter\n")
    (Path(folder) / "optimizer.pt").write_bytes(b"")
    assert cli.main(["check", "--release", folder, "--card"]) == 1


def test_command_refuses_a_card_without_a_release(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", "--drafter", "x", "--card"])
    assert ended.value.code == 2
    assert "--card goes with --release DIR" in capsys.readouterr().err
