"""Bad input gets a finding with a code, what was expected, what was seen, where and what to do; never an exception."""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import builder as b
from draftproof import api, cli
from draftproof.conform import _wanted_types
from draftproof.findings import Finding, Report
from draftproof.hub import open_model, read_recording
from draftproof.library import Library
from draftproof.rules import RULES

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
GOOD = b.safetensors(b.dense())
ESC = "\x1b[31mred\x1b[0m\nnext\u202eeman"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def whole(found: list[Finding]) -> None:
    """Hold every finding to what a person needs."""
    for f in found:
        assert f.code in RULES
        assert f.expected, f
        assert f.observed, f
        assert f.where or f.contract or f.subject, f
        assert f.help or RULES[f.code].fix, f
        assert not set(f"{f.subject}{f.message}{f.expected}{f.observed}{f.note}{f.help}{f.where}") & {
            "\n", "\x1b", "\u202e", "\x00"
        }, f  # fmt: skip


def checked(drafter: Any, target: Any = None) -> Report:
    target = b.given(b.target_config(), b.target(), b.TARGET) if target is None else target
    report = b.check(drafter, target)
    whole([f for f in report.findings if f.level not in ("pass", "info")])
    assert json.loads(json.dumps(report.to_dict()))["exit_code"] == report.exit_code
    return report


# --- folders ------------------------------------------------------------------------------------------------------


def put(files: Mapping[str, bytes | str | None], name: str = "drafter") -> Path:
    """Write a good drafter, with files replaced, or left out where None."""
    folder = Path(name)
    folder.mkdir()
    good: dict[str, bytes | str | None] = {"config.json": json.dumps(b.dense_config()), WEIGHTS: GOOD}
    for file, data in (good | dict(files)).items():
        if data is not None:
            (folder / file).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def header(names: list[str]) -> bytes:
    table = dict.fromkeys(names, ("BF16", (2,)))
    return b.safetensors({**b.dense(), **table})


def index(**more: str) -> dict[str, bytes | str | None]:
    names = dict.fromkeys(b.dense(), "model-00001-of-00001.safetensors")
    return {WEIGHTS: None, "model-00001-of-00001.safetensors": GOOD, INDEX: json.dumps({"weight_map": names | more})}


FULL = json.dumps(b.dense_config())
BAD_FOLDERS: Mapping[str, tuple[Mapping[str, bytes | str | None], set[str], int, str]] = {
    "no config": ({"config.json": None}, {"CFG301"}, 1, "model.safetensors"),
    "empty config": ({"config.json": b""}, {"CFG302"}, 1, "byte 0"),
    "config is a list": ({"config.json": "[1]"}, {"CFG303"}, 1, "a list"),
    "config is a number": ({"config.json": "17"}, {"CFG303"}, 1, "a number"),
    "config is null": ({"config.json": "null"}, {"CFG303"}, 1, "null"),
    "config is HTML": ({"config.json": "<html>sign in</html>"}, {"CFG302"}, 1, "byte 0"),
    "config is not UTF-8": ({"config.json": FULL.encode("utf-16")}, {"CFG302"}, 1, "not UTF-8"),
    "config with a comma too many": ({"config.json": FULL[:-1] + ",}"}, {"CFG302"}, 1, "byte"),
    "config with a byte-order mark": ({"config.json": "\ufeff" + FULL}, {"CFG302"}, 1, "byte 0"),
    "config with a key twice": (
        {"config.json": FULL[:-1] + ', "hidden_act": "gelu"}'}, {"CFG302"}, 1, "'hidden_act' stands twice",
    ),
    "config with NaN": ({"config.json": FULL.replace("1e-05", "NaN")}, {"CFG306"}, 1, "rms_norm_eps"),
    "config with an integer of 401 digits": (
        {"config.json": FULL[:-1] + f', "seed": {"9" * 401}}}'}, {"CFG306"}, 1, "does not fit in 64-bit floating point",
    ),
    "config too deep": ({"config.json": '{"a":' * 100 + "1" + "}" * 100}, {"CFG311"}, 1, "64 levels"),
    "config of five million brackets": ({"config.json": "[" * 5_000_000}, {"CFG311"}, 1, "64 levels"),
    "config of 17 MB": ({"config.json": b" " * (17 << 20)}, {"CFG311"}, 1, "16777216"),
    "weights empty": ({WEIGHTS: b""}, {"STF201"}, 1, "0 bytes"),
    "header truncated": ({WEIGHTS: GOOD[:500]}, {"STF203"}, 1, "500 bytes"),
    "data truncated": ({WEIGHTS: GOOD[:-7]}, {"STF216"}, 1, str(len(GOOD) - 7)),
    "HTML as safetensors": ({WEIGHTS: "<!DOCTYPE html><html>Sign in"}, {"STF202"}, 1, "HTML"),
    "git-lfs pointer": (
        {WEIGHTS: "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"}, {"STF202"}, 1, "git lfs pull",
    ),
    "GGUF named safetensors": ({WEIGHTS: b"GGUF\x03\0\0\0" + bytes(64)}, {"STF202"}, 1, "GGUF"),
    "GGUF": ({WEIGHTS: None, "model.gguf": b"GGUF\x03\0\0\0"}, {"SRC116 unknown"}, 4, "model.gguf"),
    "no weights": ({WEIGHTS: None}, {"SRC120 unknown"}, 4, "config.json"),
    "pickle": ({WEIGHTS: None, "model.bin": b"\x80\x04cos\nsystem\n."}, {"SRC121 unknown"}, 4, "model.bin"),
    "shard missing": (
        index(more="model-00002-of-00002.safetensors"), {"IDX304"}, 1, "model-00002-of-00002.safetensors",
    ),
    "index names a file above": (index(more="../x.safetensors"), {"IDX307"}, 1, "../x.safetensors"),
    "index names an absolute file": (index(more="/etc/passwd"), {"IDX307"}, 1, "/etc/passwd"),
    "index names a Windows path": (index(more="..\\x.safetensors"), {"IDX307"}, 1, "x.safetensors"),
    "index names a tensor that is not there": (
        index(**{"extra.weight": "model-00001-of-00001.safetensors"}), {"IDX301"}, 1, "extra.weight",
    ),
    "index is a list": ({**index(), INDEX: "[]"}, {"IDX306"}, 1, "[]"),
    "index truncated": ({**index(), INDEX: '{"weight_map": {"a": "b'}, {"IDX306"}, 1, INDEX),
    "number of a shard missing": (
        {WEIGHTS: None, "model-00002-of-00003.safetensors": GOOD}, {"IDX304"}, 1,
        "a shard of a numbered set is missing expected 3 shards observed no number 1, 3",
    ),
    "tensor in two files": (
        {WEIGHTS: None, "a.safetensors": GOOD, "b.safetensors": GOOD}, {"IDX303"}, 1, "a.safetensors and b.safetensors",
    ),
    "stale shard beside the whole": (
        {"model-00001-of-00002.safetensors": GOOD}, {"IDX308 warning"}, 0, "model-00001-of-00002.safetensors",
    ),
    "whole beside an index": ({**index(), WEIGHTS: GOOD}, {"IDX309 warning"}, 0, "both"),
    "training state": ({"optimizer.pt": b"", "trainer_state.json": b"{}"}, {"IDX308 info"}, 0, "optimizer.pt"),
    "adapter": ({"adapter_model.safetensors": GOOD}, {"IDX308 warning"}, 0, "adapter_model.safetensors"),
    "tensor name with escapes": ({WEIGHTS: header([ESC])}, {"STF217 warning", "TEN402"}, 1, "\\x1b[31mred"),
    "empty tensor name": ({WEIGHTS: header([""])}, {"STF217 warning", "TEN402"}, 1, "STF217"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FOLDERS)
def test_bad_folder(name: str) -> None:
    files, codes, exit_code, seen = BAD_FOLDERS[name]
    report = checked(put(files))
    assert b.codes(report) == codes, b.text(report)
    assert seen in b.text(report)
    assert report.exit_code == exit_code


@pytest.mark.parametrize(
    ("spec", "codes", "exit_code"),
    [
        ("./nope", {"SRC111"}, 2),
        ("/nope/nope", {"SRC111"}, 2),
        ("nope", {"SRC117"}, 2),
        ("", {"SRC117"}, 2),
        ("org/nope", {"SRC112 unknown"}, 4),
        ("org/name@main", {"SRC117"}, 2),
        ("AQ-MedAI/Kimi-K2-Instruct-eagle3@" + "a" * 40, {"SRC119"}, 2),
        ("https://huggingface.co/org/name", {"SRC112 unknown"}, 4),
        ("a\0b", {"SRC117"}, 2),
        ("~nobody-here/x", {"SRC117"}, 2),
        (ESC, {"SRC117"}, 2),
        ("./" + "x" * 5000, {"SRC113 unknown"}, 4),
        (7, {"SRC117"}, 2),
        (None, {"SRC117"}, 2),
    ],
)
@pytest.mark.parametrize("side", ["drafter", "target"])
def test_name_that_leads_nowhere(spec: Any, codes: set[str], exit_code: int, side: str) -> None:
    if spec is None and side == "target":
        spec = 0.5
    good = b.given(b.dense_config(), b.dense(), b.DRAFTER)
    report = checked(spec) if side == "drafter" else checked(good, spec)
    assert b.codes(report) == codes | {"PAIR422 unknown"}, b.text(report)
    assert report.exit_code == exit_code
    assert f"{side} " in b.text(report)


def test_empty_folder_holds_no_model() -> None:
    Path("empty").mkdir()
    report = checked("empty")
    assert b.codes(report) == {"SRC114", "PAIR422 unknown"}
    assert "an empty folder" in b.text(report)
    assert report.exit_code == 2


@pytest.mark.parametrize("to", ["loop", "nowhere"])
def test_link_that_leads_nowhere_is_told_as_one(to: str) -> None:
    Path("loop").symlink_to(to)
    report = checked("./loop")
    assert b.codes(report) == {"SRC111", "PAIR422 unknown"}
    assert "a link that leads nowhere" in b.text(report)


def test_file_in_place_of_a_folder_says_which_folder() -> None:
    put({})
    report = checked(f"drafter/{WEIGHTS}")
    assert b.codes(report) == {"SRC117", "PAIR422 unknown"}
    assert "give its folder: drafter" in b.text(report)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def sock(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name if path.parent == Path() else os.path.relpath(path))


def folder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def circle(path: Path) -> None:
    path.symlink_to(path.name)


ODD: list[Callable[[Path], None]] = [fifo, sock, folder, dangling, circle]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("file", ["config.json", WEIGHTS])
def test_what_is_no_plain_file_is_unknown_and_never_waited_for(odd: Callable[[Path], None], file: str) -> None:
    where = put({file: None})
    odd(where / file)
    report = checked(where)
    assert b.codes(report) == {"SRC113 unknown"}, b.text(report)
    assert file in b.text(report)
    assert (report.verdict, report.exit_code) == ("unknown", 4)


@pytest.mark.parametrize("odd", [fifo, sock, dangling, circle])
def test_index_that_is_no_plain_file_is_unknown(odd: Callable[[Path], None]) -> None:
    where = put({**index(), INDEX: None})
    odd(where / INDEX)
    report = checked(where)
    assert b.codes(report) == {"SRC113 unknown"}, b.text(report)
    assert INDEX in b.text(report)
    assert report.exit_code == 4


def test_odd_things_beside_a_good_checkpoint_do_no_harm() -> None:
    where = put({"README.md": ESC})
    fifo(where / "pipe")
    dangling(where / "link")
    folder(where / "folder")
    (where / "name\nwith\x1b[0mescapes").write_bytes(b"")
    assert b.codes(checked(where)) == set()


def test_every_fault_of_a_folder_comes_at_once() -> None:
    config = b.dense_config(hidden_act=1, rms_norm_eps="x", num_hidden_layers=36, max_position_embeddings=8)
    table = b.changed(b.dense(), {"norm.weight": None, "d2t": None, "new.weight": ("BF16", (2,))})
    report = checked(put({"config.json": json.dumps(config), WEIGHTS: b.safetensors(table)}))
    assert b.codes(report) == {"CFG304", "CFG308", "TEN401", "TEN402", "PAIR403", "PAIR405"}
    assert report.counts["error"] == 7


def test_findings_are_in_a_stable_order_and_said_once() -> None:
    where = put({WEIGHTS: b.safetensors(b.changed(b.dense(), {"norm.weight": None, "a.b": ("U8", (1,))}))})
    first, second = checked(where), checked(where)
    assert first.findings == second.findings
    assert len({*first.findings}) == len(first.findings)


# --- in memory ----------------------------------------------------------------------------------------------------


class Bomb:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


loop: list[Any] = []
loop.append(loop)
MEMORY: Mapping[str, tuple[Any, set[str]]] = {
    "no config": ({"tensors": b.dense()}, {"CFG301 unknown"}),
    "nothing": ({"config": None}, {"CFG301 unknown", "PAIR422 unknown"}),
    "config is a list": ({"config": [1], "tensors": b.dense()}, {"CFG303"}),
    "config is text": ({"config": "{}", "tensors": b.dense()}, {"CFG303"}),
    "config holds an object": ({"config": {"a": object()}, "tensors": b.dense()}, {"CFG302", "PAIR422 unknown"}),
    "config holds itself": ({"config": {"a": loop}, "tensors": b.dense()}, {"CFG302", "PAIR422 unknown"}),
    "config with bytes": ({"config": {"a": b"x"}, "tensors": b.dense()}, {"CFG302", "PAIR422 unknown"}),
    "tensors are a list": ({"config": b.dense_config(), "tensors": [1]}, {"SRC117", "PAIR422 unknown"}),
    "tensor is a number": (
        {"config": b.dense_config(), "tensors": {**b.dense(), "norm.weight": 3}}, {"TEN402", "TEN401"},
    ),
    "shape is text": (
        {"config": b.dense_config(), "tensors": {**b.dense(), "norm.weight": ("BF16", "ab")}}, {"TEN402", "TEN401"},
    ),
    "name is a number": ({"config": b.dense_config(), "tensors": {**b.dense(), 7: ("BF16", (2,))}}, {"TEN402"}),
    "name with escapes": ({"config": b.dense_config(), "tensors": {**b.dense(), ESC: ("BF16", (2,))}}, {"TEN402"}),
    "config says escapes": (
        {"config": b.dense_config(architectures=[ESC], torch_dtype=ESC), "tensors": b.dense()},
        {"CFG315", "CFG304"},
    ),
    "layers without end": (
        {"config": b.dense_config(num_hidden_layers=2**31 - 1), "tensors": b.dense()}, {"CFG308"},
    ),
    "aux layers without end": (
        {"config": b.dense_config(fc_norm=True, num_aux_hidden_states=2**31 - 1, eagle_config=b.ABSENT),
         "tensors": b.dense()},
        {"TEN401 unknown", "TEN403", "PAIR408 unknown", "PAIR409 warning"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEMORY)
def test_bad_model_in_memory(name: str) -> None:
    model, codes = MEMORY[name]
    report = checked({"name": b.DRAFTER, **model})
    assert b.codes(report) == codes, b.text(report)
    assert report.verdict != "pass"


def test_object_that_cannot_be_shown_is_not_shown() -> None:
    report = checked({"config": {"a": Bomb()}, "tensors": b.dense()})
    assert report.verdict != "pass"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope_scaling", {"rope_type": ["yarn"], "factor": {"a": 1}, "": None, ESC: [1, [2]]}),
        ("rope_parameters", {"full": {"rope_theta": 1.0}, "sliding": {"rope_theta": 2.0}}),
        ("rope_parameters", {"rope_theta": [1], "partial_rotary_factor": "half"}),
        ("rope_scaling", {"factor": 10**400}),
        ("quantization_config", {"quant_method": {"a": [ESC]}}),
        ("eagle_config", {"eagle_aux_hidden_state_layer_ids": {"0": 2}}),
        ("eagle_config", {"eagle_aux_hidden_state_layer_ids": list(range(100_000))}),
        ("eos_token_id", list(range(100_000))),
        ("architectures", ["LlamaForCausalLMEagle3", 7, None, ["x"], ESC]),
        ("architectures", ["x" * 100_000] * 50),
        ("speculators_config", {"verifier": {"name_or_path": ESC * 1000}}),
        ("vocab_size", 2**31 - 1),
        ("draft_vocab_size", 2**31),
        ("hidden_size", 10**5000),
        ("num_attention_heads", 2**31 - 1),
        ("model_type", ESC),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else type(value).__name__,
)
@pytest.mark.parametrize("side", ["drafter", "target"])
def test_hostile_value_is_judged_and_never_raises(key: str, value: Any, side: str) -> None:
    own = b.edit(b.dense_config(), {key: value} if side == "drafter" else {})
    base = b.edit(b.target_config(), {key: value} if side == "target" else {})
    report = checked(b.given(own, b.dense(), b.DRAFTER), b.given(base, b.target(), b.TARGET))
    assert max(len(f.observed) + len(f.expected) for f in report.findings) < 3000
    assert len(report.findings) < 500


# --- contracts ----------------------------------------------------------------------------------------------------


PAIR = """schema = 1
kind = "pair"
id = "mine"
title = "t"
drafter = { model = "AQ-MedAI/Kimi-K2-Instruct-eagle3" }
target = { model = "moonshotai/Kimi-K2-Instruct" }
"""
UNKNOWN = """expect_unknown = [
  { code = "TEN400", because = "not read" },
  { code = "PAIR408", because = "not declared" },
]
"""


def pair_file(text: str, name: str = "mine") -> Path:
    path = Path("contracts/pairs") / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.main([*words])
    return code, " ".join(capsys.readouterr().out.split())


def test_pair_of_two_recordings_holds(capsys: pytest.CaptureFixture[str]) -> None:
    pair_file(PAIR + UNKNOWN)
    code, out = run(capsys, "check", "mine")
    assert code == 4, out  # accepted, and still not judged
    assert "0 error" not in out


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ('allow = [{ code = "PAIR403", because = "x" }]\n', "CON112", ["a finding of PAIR403 that fails", "none"]),
        ('allow = [{ code = "PAIR403" }]\n', "CON105", ["because", "mine.toml:7"]),
        ('allow = [{ code = "PAIR403", because = " " }]\n', "CON111", ["mine.toml:7"]),
        ('allow = [{ code = "PAIR999", because = "x" }]\n', "CON116", ["PAIR999"]),
        ("alow = []\n", "CON103", ["did you mean 'allow'?"]),
        ('family = "eagle3-mle"\n', "CON113", ["did you mean 'eagle3-mla'?"]),
    ],
)
def test_pair_that_accepts_what_is_not_there_is_broken(
    more: str, code: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pair_file(PAIR + more)
    status, out = run(capsys, "check", "mine")
    assert status == 2
    assert f"{code} " in out
    assert not [word for word in words if word not in out], out


def test_contract_with_five_mistakes_says_five(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (
        "schema = 1",
        'kind = "pair"',
        'id = "other"',
        'titel = "t"',
        "drafter = { model = 3 }",
        'target = { model = "a/b", revision = "main" }',
        'allow = [{ code = "PAIR403", because = "" }]',
    )
    pair_file("\n".join(lines))
    status, out = run(capsys, "check", "mine")
    assert status == 2
    for code, line in (("CON104", 3), ("CON103", 4), ("CON104", 5), ("CON110", 6), ("CON111", 7), ("CON105", 1)):
        assert f"{code} " in out
        assert f"contracts/pairs/mine.toml:{line}" in out


BOMBS = {
    "expression bomb": ('hidden = { drafter = "hidden_size" }', "9**9**9**9", "CON106"),
    "a call of code": ('hidden = { drafter = "hidden_size" }', "__import__('os').system('x')", "CON106"),
    "thousand parentheses": ('hidden = { drafter = "hidden_size" }', "(" * 400 + "1" + ")" * 400, "CON106"),
    "long expression": ('hidden = { drafter = "hidden_size" }', "+".join("1" * 400), "CON106"),
}
FAMILY = (b.LIBRARY.files("family")["eagle3"]).read_text()


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_in_a_family_is_a_finding(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, bomb, code = BOMBS[name]
    folder = Path("contracts/families")
    folder.mkdir(parents=True)
    text = FAMILY.replace(line, f'hidden = {{ drafter = "hidden_size", default = "{bomb}" }}')
    assert text != FAMILY
    (folder / "eagle3.toml").write_text(text)
    status, out = run(capsys, "check", "kimi-k2-eagle3")
    assert status == 2
    assert f"{code} " in out
    assert "contracts/families/eagle3.toml:20" in out


@pytest.mark.parametrize(
    ("text", "code", "seen"),
    [
        ("a = 1\n" * 2_000_000, "CON101", "at most 1000000 bytes"),
        ("a = [" + "[" * 100_000, "CON101", "nested brackets"),
        ("\x00", "CON102", "mine.toml:1"),
        ("schema = 2\n", "CON109", "schema = 1"),
        ("", "CON109", "nothing"),
        ("schema = 1\nschema = 1\n", "CON102", "mine.toml:2"),
    ],
    ids=["10 MB", "brackets", "NUL", "newer schema", "empty", "key twice"],
)
def test_contract_that_cannot_be_read(text: str, code: str, seen: str, capsys: pytest.CaptureFixture[str]) -> None:
    pair_file(text)
    status, out = run(capsys, "check", "mine")
    assert status == 2
    assert f"{code} " in out
    assert seen in out


def test_extends_in_a_circle_ends(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("contracts/families")
    folder.mkdir(parents=True)
    for one, other in (("one", "two"), ("two", "one")):
        (folder / f"{one}.toml").write_text(
            f'schema = 1\nkind = "family"\nid = "{one}"\ntitle = "t"\nsource = "s"\nextends = "{other}"\n'
        )
    for id in ("one", "two"):
        status, out = run(capsys, "show", id)
        assert status == 2
        assert "CON108 " in out


# --- recordings ---------------------------------------------------------------------------------------------------

COMMIT = "0123456789abcdef0123456789abcdef01234567"
RECORDING: Mapping[str, Any] = {
    "schema": 1, "repo": "org/name", "revision": COMMIT, "provenance": "recorded", "normalised": False,
    "read": {"date": "2026-01-01", "source": "s"}, "unknown": [], "respelled": [], "config": b.dense_config(),
    "tensors": {"complete": True, "count": 1, "parameters": 1, "named": {"a": ["BF16", [1]]}}, "files": {},
}  # fmt: skip
BAD_RECORDINGS: Mapping[str, Any] = {
    "not an object": [],
    "no schema": {k: v for k, v in RECORDING.items() if k != "schema"},
    "newer schema": {**RECORDING, "schema": 2},
    "schema true": {**RECORDING, "schema": True},
    "no config": {**RECORDING, "config": None},
    "config a list": {**RECORDING, "config": []},
    "unknown provenance": {**RECORDING, "provenance": "guessed"},
    "recorded without a commit": {**RECORDING, "revision": None},
    "branch": {**RECORDING, "revision": "main"},
    "unknown is text": {**RECORDING, "unknown": "vocab_size"},
    "unknown holds a number": {**RECORDING, "unknown": [1]},
    "read is text": {**RECORDING, "read": "s"},
    "no table of tensors": {**RECORDING, "tensors": []},
    "complete is text": {**RECORDING, "tensors": {"complete": "yes", "named": {}}},
    "count is text": {**RECORDING, "tensors": {**RECORDING["tensors"], "count": "1"}},
    "count negative": {**RECORDING, "tensors": {**RECORDING["tensors"], "count": -1}},
    "named is a list": {**RECORDING, "tensors": {**RECORDING["tensors"], "named": []}},
    "size negative": {**RECORDING, "tensors": {**RECORDING["tensors"], "named": {"a": ["BF16", [-1]]}}},
    "size a float": {**RECORDING, "tensors": {**RECORDING["tensors"], "named": {"a": ["BF16", [1.0]]}}},
    "dtype a number": {**RECORDING, "tensors": {**RECORDING["tensors"], "named": {"a": [16, [1]]}}},
    "row too short": {**RECORDING, "tensors": {**RECORDING["tensors"], "named": {"a": ["BF16"]}}},
    "another repo than its file name": {**RECORDING, "repo": "org/other"},
}


def record_file(data: Any, name: str = "org--name@01234567.json") -> Path:
    path = Path("contracts/recordings") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_recording_that_is_mutated_here_is_good_before() -> None:
    source = read_recording(record_file(RECORDING))
    assert not isinstance(source, Finding)
    assert (source.name, source.revision) == ("org/name", COMMIT)


@pytest.mark.parametrize("name", BAD_RECORDINGS)
def test_malformed_recording(name: str) -> None:
    path = record_file(BAD_RECORDINGS[name])
    found = read_recording(path)
    assert isinstance(found, Finding)
    assert (found.code, found.level) == ("SRC115", "unknown")
    whole([found])
    assert path.name in found.where
    report = b.check("org/name", library=Library(Path("contracts")))
    assert (report.verdict, report.exit_code) == ("unknown", 4), b.text(report)


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1, "schema": 1}', '{"schema": NaN}', "[" * 100_000, "\ufeff{}"])
def test_recording_that_is_not_strict_json(text: str) -> None:
    found = read_recording(record_file(text))
    assert isinstance(found, Finding)
    assert found.code == "SRC115"
    whole([found])


@pytest.mark.parametrize("odd", ODD)
def test_recording_that_is_no_file(odd: Callable[[Path], None]) -> None:
    path = record_file("{}")
    path.unlink()
    odd(path)
    found = open_model("org/name", (Path("contracts/recordings"),))
    assert isinstance(found, Finding)
    assert found.level == "unknown"


# --- unknown is never pass ----------------------------------------------------------------------------------------

FAMILY_KEYS = sorted(_wanted_types(b.LIBRARY.get("family", "eagle3")[0], "drafter"))
TARGET_KEYS = sorted(_wanted_types(b.LIBRARY.get("target", "llama")[0], "target"))
UNREAD = {"hidden_act", "model_type"}  # typed, and compared with nothing
TARGET_UNREAD = {"partial_rotary_factor"}  # a drafter without one is held to what it was trained with, not to this
OWN = (b.dense_config(), b.dense(embed=True))
THEIRS = (b.target_config(), b.target())


def recorded_pair(unknown: Any = (), their_unknown: Any = (), own: Any = OWN, theirs: Any = THEIRS) -> Report:
    return b.check(b.recorded(*own, b.DRAFTER, unknown), b.recorded(*theirs, b.TARGET, their_unknown))


def test_recorded_pair_passes_where_nothing_is_unknown() -> None:
    assert b.codes(recorded_pair()) == set()
    assert recorded_pair().verdict == "pass"


@pytest.mark.parametrize("key", FAMILY_KEYS)
@pytest.mark.parametrize("stated", [True, False])
def test_unknown_key_of_a_drafter_is_never_a_pass(key: str, stated: bool) -> None:
    config = OWN[0] if stated else b.edit(OWN[0], {key: b.ABSENT})
    report = recorded_pair({key}, own=(config, OWN[1]))
    assert report.verdict == "unknown" or (report.verdict == "pass" and key in UNREAD), b.text(report)
    assert key in b.text(report) or key in UNREAD


@pytest.mark.parametrize("key", TARGET_KEYS)
@pytest.mark.parametrize("stated", [True, False])
def test_unknown_key_of_a_target_is_never_a_pass(key: str, stated: bool) -> None:
    config = THEIRS[0] if stated else b.edit(THEIRS[0], {key: b.ABSENT})
    report = recorded_pair((), {key}, theirs=(config, THEIRS[1]))
    assert report.verdict == "unknown" or (report.verdict == "pass" and key in TARGET_UNREAD), b.text(report)


def test_key_of_a_target_that_decides_nothing_is_needed_once_the_drafter_has_it() -> None:
    own = (b.edit(OWN[0], {"partial_rotary_factor": 0.5}), OWN[1])
    assert recorded_pair((), {"partial_rotary_factor"}, own=own).verdict == "unknown"


@pytest.mark.parametrize("key", sorted(_wanted_types(b.LIBRARY.get("family", "eagle3-mla")[0], "drafter")))
def test_unknown_key_of_a_latent_drafter_is_never_a_pass(key: str) -> None:
    own, theirs = (b.mla_config(), b.mla()), (b.deepseek_config(), b.target())
    assert recorded_pair(own=own, theirs=theirs).verdict == "pass"
    report = recorded_pair({key}, own=own, theirs=theirs)
    assert report.verdict == "unknown" or (report.verdict == "pass" and key in UNREAD), b.text(report)


@pytest.mark.parametrize("key", ["text_config", "text_config.vocab_size", "text_config.hidden_size",
                                 "text_config.rope_parameters", "text_config.num_hidden_layers"])  # fmt: skip
def test_unknown_key_of_a_nested_target_is_never_a_pass(key: str) -> None:
    theirs = (b.kimi_k25_config(), b.target(prefix="language_model.model.", head="language_model.lm_head.weight"))
    own = (b.dense_config(rope_theta=50000.0), b.dense())
    assert recorded_pair(own=own, theirs=theirs).verdict == "pass"
    assert recorded_pair((), {key}, own=own, theirs=theirs).verdict == "unknown"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(sorted({*FAMILY_KEYS} - UNREAD)), min_size=1),
       st.sets(st.sampled_from(TARGET_KEYS)))  # fmt: skip
def test_unknown_keys_are_never_a_pass(own: set[str], theirs: set[str]) -> None:
    report = recorded_pair(own, theirs)
    assert report.verdict == "unknown", b.text(report)
    assert report.counts["error"] == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.sampled_from(FAMILY_KEYS)), st.sampled_from(["norm.weight", "fc.weight"]))
def test_unknown_keys_never_hide_a_missing_tensor(keys: set[str], lacking: str) -> None:
    report = recorded_pair(keys, own=(OWN[0], b.changed(OWN[1], {lacking: None})))
    assert report.verdict != "pass"


@pytest.mark.parametrize("provenance", ["derived", "partial"])
def test_table_that_was_not_read_never_passes(provenance: str) -> None:
    own, theirs = b.recorded(*OWN, b.DRAFTER), b.recorded(*THEIRS, b.TARGET)
    own.provenance = provenance
    report = b.check(own, theirs)
    assert report.verdict == "unknown"
    assert "TEN400 unknown" in b.codes(report)
    assert "draftproof record org/drafter" in b.text(report)


def test_key_that_a_partial_recording_lacks_is_unknown_and_its_default_does_not_bind() -> None:
    source = b.recorded(b.edit(OWN[0], {"attention_bias": b.ABSENT, "tie_word_embeddings": b.ABSENT}), None, b.DRAFTER)
    source.provenance = "partial"
    report = b.check(source, b.recorded(*THEIRS, b.TARGET))
    told = next(f for f in report.findings if f.code == "CFG313")
    assert "attention_bias" in told.expected
    assert "tie_word_embeddings" in told.expected
    bindings = " ".join(next(s for s in report.sides if s.role == "drafter").bindings)
    assert "attention_bias=" not in bindings
    assert "tied=" not in bindings
    assert "hidden=64" in bindings


# --- any JSON at any key ------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 600) | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from(["bfloat16", "LlamaForCausalLMEagle3", "boundary", b.TARGET]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["rope_theta", "rope_type", "factor", "partial_rotary_factor", "verifier", "name_or_path",
                         "eagle_aux_hidden_state_layer_ids", "quant_method", "x"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
HARMLESS = [k for k in FAMILY_KEYS if k not in ("architectures", "quantization_config") and "." not in k]
ANY_KEYS = [key for key in FAMILY_KEYS if "." not in key] + [k for k in FAMILY_KEYS if k.startswith("eagle_config.")]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(ANY_KEYS), JSON, max_size=4),
    st.dictionaries(st.sampled_from(TARGET_KEYS), JSON, max_size=2),
)
@example({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [[]]}}, {})
@example({"architectures": [""]}, {})
@example({"rope_parameters": {"rope_theta": {"x": 1}}}, {"rope_scaling": {"rope_type": []}})
def test_any_json_at_any_key_is_judged(own: dict[str, Any], theirs: dict[str, Any]) -> None:
    report = checked(
        b.given(b.edit(b.dense_config(), own), b.dense(), b.DRAFTER),
        b.given(b.edit(b.target_config(), theirs), b.target(), b.TARGET),
    )
    assert report.verdict in ("pass", "fail", "unknown")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([k for k in ANY_KEYS if k not in ("architectures", "quantization_config")]), JSON, max_size=3
    )
)
def test_nothing_in_a_config_makes_a_broken_drafter_pass(own: dict[str, Any]) -> None:
    table = b.changed(b.dense(), {"norm.weight": None, "odd.weight": ("BF16", (3,))})
    report = checked(b.given(b.edit(b.dense_config(), own), table, b.DRAFTER))
    assert report.verdict == "fail", b.text(report)
    assert {"TEN401", "TEN402"} <= b.codes(report)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_any_json_in_place_of_a_recording_is_refused_or_read(data: Any) -> None:
    assert isinstance(read_recording(record_file(json.dumps(data))), Finding)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(RECORDING)), JSON)
def test_any_json_at_any_key_of_a_recording_is_refused_or_read(key: str, value: Any) -> None:
    made = read_recording(record_file({**RECORDING, key: value}))
    if isinstance(made, Finding):
        whole([made])
    else:
        b.check(made, b.given(*THEIRS, b.TARGET))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_is_none_is_found_in_a_file_too(value: float) -> None:
    report = checked(put({"config.json": json.dumps(b.dense_config(rope_theta=value))}))
    assert b.codes(report) == {"CFG306"}
    assert "config.json: rope_theta" in b.text(report)
    assert api.check("drafter").exit_code == 1
