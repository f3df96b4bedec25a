"""What an engine reads beside the plain keys of a config: keys by Python's truth, a launch's own keys, torch files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_engines import CAPTURE, FC, TOP, TRAINED, Toy, row

from draftproof.dims import Absent, Known, Unknown, parse, value_of
from draftproof.engines import World
from draftproof.torchzip import write_torch_zip


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


@pytest.mark.parametrize(
    ("held", "on"), [("no", True), ({"a": 1}, True), (0, False), ("", False), (None, False), ({}, False)]
)
def test_on_is_what_python_takes_for_true(held: Any, on: bool) -> None:
    assert value_of(parse("on(drafter.bias)", True), lambda name: Known(held, name)) is on


def test_on_of_what_is_not_there_is_false_and_of_what_is_not_known_is_not() -> None:
    assert value_of(parse("on(drafter.bias)", True), Absent) is False
    assert isinstance(value_of(parse("on(drafter.bias)", True), Unknown), Unknown)


@pytest.mark.parametrize(("texts", "out"), [(["a", "b"], False), (["a", "c"], True), ([], False), ([7], True)])
def test_outside_is_one_that_is_none_of_the_words(texts: list[Any], out: bool) -> None:
    assert value_of(parse('outside(drafter.types, "a b")', True), lambda name: Known(texts, name)) is out


@pytest.mark.parametrize(
    ("ids", "captured"), [([2.7, 6, 9], [2, 6, 9]), (["2", "6", 9], [2, 6, 9]), (["two", 6, 9], None)]
)
def test_ids_that_are_cast(toy: Toy, ids: list[Any], captured: list[int] | None) -> None:
    made = toy({"captures": [CAPTURE | {"cast": True, "odd": "ValueError"}]}, {TOP: ids}, facts=TRAINED)
    assert made.captured == captured
    assert made.outcome == ("refuses" if captured is None else "as meant")


def test_count_of_layers_that_is_no_number_is_not_known(toy: Toy) -> None:
    dims = {"width": "drafter.hidden_size", "use_aux": "true", "aux_count": "drafter.states"}
    made = toy({"captures": [CAPTURE]}, {TOP: [2, 6, 9], "states": "3"}, facts=TRAINED, dims=dims)
    assert made.outcome == "unknown"


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ('{"rms_norm_eps": 0.5}', "0.5"),
        ({"rms_norm_eps": 2.0}, "2"),
        ('{"rope": 1}', "1e-05"),
        ("{", "1e-05"),
        ("[]", "1e-05"),
        (None, "1e-05"),
    ],
)
def test_launch_gives_keys_of_the_config(toy: Toy, said: Any, seen: str) -> None:
    flags = {} if said is None else {"keys": said}
    profile = {"overrides": "keys", "rows": [row(see="{drafter.rms_norm_eps}")]}
    made = toy(profile, {"rms_norm_eps": 1e-5}, flags=flags)
    assert next(e.see for e in made.effects if e.subject == "row") == seen


def test_key_below_one_that_the_launch_gives_is_not_there(toy: Toy) -> None:
    profile = {"overrides": "keys", "rows": [row(when="not stated(drafter.outer.inner)")]}
    assert toy(profile, {"outer": {"inner": 1}}, flags={"keys": {"outer": {}}}).outcome == "degrades"
    assert toy(profile, {"outer": {"inner": 1}}, flags={}).outcome == "as meant"


def test_second_name_of_a_parameter_takes_its_place(toy: Toy) -> None:
    names = [{"starts": "model.", "to": ""}]
    rule = {FC: {"shape": ["width", "3 * width"], "loader": "exact"}}
    twice = toy(tensors={f"model.{FC}": ("BF16", (4, 12))}, names=names, params=rule, skips=[])
    assert any(e.subject == f"model.{FC}" and e.kind == "replaced" for e in twice.effects)
    once = toy(names=names, params=rule, skips=[])
    assert not any(e.kind == "replaced" for e in once.effects)


def test_second_name_of_a_parameter_is_refused_where_the_class_says_so(toy: Toy) -> None:
    class_ = {"names": [{"starts": "model.", "to": ""}], "twice": "ValueError", "twice_says": "twice: {name}"}
    rule = {FC: {"shape": ["width", "3 * width"], "loader": "exact"}}
    twice = toy(tensors={f"model.{FC}": ("BF16", (4, 12))}, params=rule, skips=[], **class_)
    assert twice.refusal is not None
    assert (twice.refusal.error, twice.refusal.see) == ("ValueError", f"twice: model.{FC}")
    assert toy(params=rule, skips=[], **class_).refusal is None


def test_what_a_torch_file_holds(toy: Toy, tmp_path: Path) -> None:
    path = tmp_path / "side.pt"
    write_torch_zip(path, {"embedding": ("F32", (4,), bytes(16)), "token": 7})
    toy()
    assert toy.case.drafter is not None
    drafter = toy.case.drafter

    def seen(key: str, raw: bytes | None) -> Any:
        source = drafter.checkpoint.source
        files = {**source.files, **({} if raw is None else {"side.pt": len(raw)})}
        read = lambda name, start, stop: (raw or b"")[start:stop]  # noqa: E731
        checkpoint: Any = SimpleNamespace(source=replace(source, files=files, read=read))
        view = replace(drafter, checkpoint=checkpoint)
        profile, _ = toy.library.get("profile", "toy")
        return World(profile, view, None, None, {}, {})(f"held.side.{key}")

    assert seen("embedding", path.read_bytes()) == Known([4], "the drafter's side.pt")
    assert seen("token", path.read_bytes()) == Known(7, "the drafter's side.pt")
    assert isinstance(seen("other", path.read_bytes()), Absent)
    assert isinstance(seen("token", None), Absent)
    assert isinstance(seen("token", b"no torch file"), Unknown)
