"""The interpreter of engine profiles, rule by rule, on an engine that exists only here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import api, engines
from draftproof.checkpoint import Checkpoint, Table, Tensor
from draftproof.conform import View
from draftproof.contracts import Fact
from draftproof.dims import Absent, Known, Unknown
from draftproof.engines import Prediction, World, findings_of, judge, predict
from draftproof.findings import Finding
from draftproof.hub import open_model
from draftproof.library import Library

KINDS = ("refuses", "ignored", "cut", "unset", "layers", "replaced", "reads", "stops", "launch", "copes")
CODES = {kind: f"VLLM{601 + n}" for n, kind in enumerate(KINDS)} | {"meant": "VLLM620", "unknown": "VLLM630"}
HEADS = {"basis": "run", "source": "toy.py:1"}
ROW = {"id": "row", "outcome": "degrades", "see": "it does otherwise", "when": "true"} | HEADS
PROFILE: dict[str, Any] = {
    "schema": 1,
    "kind": "profile",
    "id": "toy",
    "title": "Toy",
    "versions": [{"is": "2.1", "basis": "run"}, {"is": "2.0"}],
    "codes": CODES,
    "facts": {"n": "target.layers"},
    "methods": [{"is": "eagle3"}],
    "registry": {"toy-one": ["LlamaForCausalLMEagle3"]},
    "loaders": {
        "exact": {"other": "AssertionError"},
        "rows": {"axis": 0, "larger": "cut", "smaller": "padded"},
        "columns": {"axis": 1, "larger": "RuntimeError", "smaller": "padded"},
    },
    "rows": [],
}
CLASS: dict[str, Any] = {
    "schema": 1,
    "kind": "class",
    "id": "toy-one",
    "title": "Toy's class",
    "source": "toy.py",
    "basis": "run",
    "dims": {"width": "drafter.hidden_size", "rows": "drafter.draft_vocab_size", "use_aux": "false"},
    "unknown": "dropped",
    "skips": [{"match": "*"}],  # each test says which tensors are not passed over
    "params": {"fc.weight": {"shape": ["width", "3 * width"], "loader": "exact", "harmless": "true"}},
}


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)


def written(root: Path, profile: Mapping[str, Any], class_: Mapping[str, Any], **others: Mapping[str, Any]) -> Library:
    for folder, data in (("profiles", profile), ("classes", class_), *(("classes", one) for one in others.values())):
        path = root / "engines" / folder / f"{data['id']}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in data.items()))
    return Library(root)


class Toy:
    """An engine whose profile and class are the ones above with changes, asked about one drafter."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(
        self,
        profile: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Any] | None = None,
        *,
        target: bool = True,
        facts: Mapping[str, Fact] | None = None,
        flags: Mapping[str, Any] | None = None,
        runner: str = "",
        table: bool = True,
        request: Mapping[str, Any] | None = None,
        **class_: Any,
    ) -> Prediction:
        self.library = written(self.root, {**PROFILE, **(profile or {})}, {**CLASS, **class_})
        made, found = self.library.get("profile", "toy")
        assert made is not None, found
        for id in made.registry:
            assert self.library.get("class", id)[0] is not None, self.library.get("class", id)[1]
        drafter = b.given(
            b.dense_config(**(config or {})), b.changed(b.dense(), tensors or {}) if table else None, b.DRAFTER
        )
        other = b.given(b.target_config(), b.target(), b.TARGET) if target else None
        self.case = api.examine(drafter, other, self.library, facts=facts or {})
        assert self.case.drafter is not None
        assert self.case.drafter.contract is not None
        sides = (self.case.drafter, self.case.target, self.case.couple)
        return predict(made, self.library, *sides, flags=flags, runner=runner, request=request)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def only(made: Prediction) -> tuple[str, str, str, str]:
    """Return outcome, stage, kind and subject of the one effect that there is."""
    assert len(made.effects) == 1, made.effects
    one = made.effects[0]
    return one.outcome, one.stage, one.kind, one.subject


def row(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in (ROW | changes).items() if value is not None}


FC = "fc.weight"
LOST = b.ABSENT


@pytest.mark.parametrize("when", ["launch.n > 3 and launch.on", "launch.on and launch.n > 3", "n and launch.on"])
def test_one_condition_that_is_false_decides_whatever_the_others_are_worth(toy: Toy, when: str) -> None:
    flags = {"n": "a text", "on": False}
    assert toy({"rows": [row(when=when)]}, flags=flags).effects == []
    assert toy({"rows": [row(when=when)]}, flags=flags | {"on": True}).outcome == "unknown"


@pytest.mark.parametrize("type_", [["llama"], {"a": 1}, 7, None])
def test_target_whose_type_is_no_text_has_no_config_class(type_: Any) -> None:
    other = b.view(b.target_config(model_type=type_), b.target(), "target")
    made, _ = Library().get("profile", "vllm")
    configs = [Library().get("configs", id)[0] for id in made.configs.is_]
    world = World(made, b.view(b.dense_config(), b.dense(), "family"), other, None, {}, {}, configs)
    assert isinstance(world("theirs.num_hidden_layers"), Absent)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("special_tokens_map.json", '{"bos_token": ["<s>"]}'),
        ("tokenizer_config.json", '{"bos_token": {"content": {"a": 1}}}'),
        ("added_tokens.json", '{"<new>": true}'),
    ],
)
def test_tokens_that_are_no_texts_count_for_nothing(tmp_path: Path, file: str, text: str) -> None:
    b.write(tmp_path, b.dense_config(), b.dense())
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 1}}}')
    (tmp_path / file).write_text(text)
    source = open_model(str(tmp_path), ())
    assert not isinstance(source, Finding)
    made, _ = Library().get("profile", "llama.cpp")
    seen = World(made, View(Checkpoint(source, "drafter")), None, None, {}, {})("stored.last")
    assert isinstance(seen, Known)
    assert seen.value == (2 if "new" in text else 1)


def test_what_follows_from_a_refusal_is_told_in_one_line_with_its_reason(toy: Toy) -> None:
    def asks(id: str, stage: str, flag: str) -> dict[str, Any]:
        return row(id=id, key=id, when=f"launch.{flag} == 1", stage=stage)

    rows = [asks(id, "run", "file") for id in ("one", "two", "two.inner", *(f"more{n}" for n in range(9)))]
    rows += [asks("elsewhere", "load", "other")]
    flags = {"file": Unknown("config.json was not read"), "other": Unknown("it is not declared")}
    stop = row(id="stop", key="config.json", outcome="refuses", stage="config", error="OSError", effect="refuses")
    found = {f.subject.rpartition(": ")[2]: f for f in findings_of(toy({"rows": [stop, *rows]}, flags=flags))}
    after = found.pop("what comes after the refusal")
    assert (after.level, after.help) == ("unknown", "Mend what is refused first, then ask again.")
    assert after.observed == ("config.json was not read: one, two, more0, more1, more2, more3, more4, more5 and 3 more")
    assert [name for name, f in found.items() if f.level == "unknown"] == ["elsewhere"]  # for a reason of its own
    found = {f.subject.rpartition(": ")[2]: f for f in findings_of(toy({"rows": rows}, flags=flags))}
    assert "one and 11 more" in found
    alone = findings_of(toy({"rows": [stop, rows[0]]}, flags=flags))
    assert [f.subject.rpartition(": ")[2] for f in alone if f.level == "unknown"] == ["one"]


def test_thing_of_which_nothing_is_known_stands_beside_nothing(toy: Toy) -> None:
    shown = {"what": "rope theta", "declared": "launch.a", "trained": "declared.rope_theta", "read": "launch.a"}
    other = {"what": "image positions", "read": '"the token, not the image"'}
    made = toy({"beside": [shown, other]}, flags={"a": Unknown("it was not read")})
    assert made.beside == ["image positions: read the token, not the image"]


def test_nothing_speaks_against_it(toy: Toy) -> None:
    made = toy()
    assert (made.outcome, made.effects, made.class_, made.method) == ("as meant", [], "toy-one", "eagle3")
    (told,) = findings_of(made)
    assert (told.code, told.level, told.subject) == ("VLLM620", "pass", "Toy 2.1")


# --- rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "outcome"),
    [
        ("true", "degrades"),
        ("n == 12", "degrades"),
        ("not (n == 12)", "as meant"),
        ("stated(drafter.odd)", "as meant"),
        ("drafter.odd", "unknown"),  # which is not stated
        ("drafter.odd and n == 1", "as meant"),
        ("drafter.odd or n == 12", "degrades"),
        ("drafter.hidden_size", "unknown"),  # which is no truth
        ('drafter.eagle_config.use_aux_hidden_state and family == "eagle3"', "degrades"),
    ],
)
def test_row_holds_or_does_not_or_is_not_known(toy: Toy, when: str, outcome: str) -> None:
    assert toy({"rows": [row(when=when)]}).outcome == outcome


def test_row_that_needs_a_target_is_not_known_without_one(toy: Toy) -> None:
    made = toy({"rows": [row(when="n == 12"), row(id="two", when="target.layers == 3")]}, target=False)
    assert made.outcome == "unknown"
    told = findings_of(made)
    assert [(f.level, f.observed) for f in told] == [("unknown", "no target is given")]
    assert told[0].subject == "Toy 2.1: row and 1 more"


def test_row_that_only_changes_something_is_no_question(toy: Toy) -> None:
    assert toy({"rows": [row(outcome="changes", when="drafter.odd")]}).outcome == "as meant"


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        ("true", "drafter.odd", "degrades"),  # degraded, and what is not known would degrade it too
        ("drafter.odd", "drafter.odd", "unknown"),
    ],
)
def test_worst_of_what_is_known(toy: Toy, first: str, second: str, outcome: str) -> None:
    assert toy({"rows": [row(when=first), row(id="two", when=second)]}).outcome == outcome


def test_degraded_is_not_certain_where_a_refusal_may_come(toy: Toy) -> None:
    may = row(id="may", outcome="refuses", error="ValueError", when="drafter.odd")
    assert toy({"rows": [row(), may]}).outcome == "unknown"
    assert toy({"rows": [row(), may, row(id="does", outcome="refuses", error="TypeError")]}).outcome == "refuses"


def test_first_refusal_is_that_of_the_first_stage(toy: Toy) -> None:
    refuses = {"outcome": "refuses", "error": "ValueError"}
    rows = [row(id=stage, stage=stage, **refuses) for stage in ("run", "load", "config", "flags", "convert")]
    made = toy({"rows": rows})
    assert made.refusal is not None
    assert made.refusal.stage == "flags"
    told = findings_of(made)
    assert told[0].observed == "refuses when flags are read: it does otherwise"
    assert [f.subject for f in told] == ["Toy 2.1: flags"]
    later = [f"after that {id}: it does otherwise" for id in ("config", "convert", "load", "run")]
    assert told[0].note == "; ".join(["seen: Toy 2.1, toy.py:1", *later])


def test_what_degrades_is_told_beside_a_refusal_as_what_comes_next(toy: Toy) -> None:
    rows = [row(), row(id="no", outcome="refuses", error="ValueError")]
    told = [f.observed for f in findings_of(toy({"rows": rows}))]
    assert told == [
        "refuses at load: it does otherwise",
        "once it loads: it does otherwise; expect a low accept length; look for nothing in the log",
    ]


def test_class_is_made_before_it_is_filled(toy: Toy) -> None:
    rows = [row(outcome="refuses", error="TypeError", stage="load")]
    made = toy({"rows": rows}, skips=[{"match": "*", "as": "KeyError"}])
    assert made.refusal is not None
    assert made.refusal.error == "TypeError"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"outcome": "refuses", "error": "ValueError"}, "VLLM601"),
        ({"outcome": "degrades"}, "VLLM607"),
        ({"outcome": "changes"}, "VLLM610"),
        ({"outcome": "degrades", "effect": "stops"}, "VLLM608"),
        ({"outcome": "refuses", "error": "ValueError", "effect": "launch"}, "VLLM609"),
    ],
)
def test_code_is_that_of_the_outcome_unless_the_row_names_another(toy: Toy, changes: dict[str, str], code: str) -> None:
    assert [f.code for f in findings_of(toy({"rows": [row(**changes)]})) if f.level != "pass"] == [code]


def test_finding_says_what_will_be_seen_and_what_to_do(toy: Toy) -> None:
    (told,) = findings_of(toy({"rows": [row(key="odd", do="Write it.")]}))
    assert told.subject == "Toy 2.1: odd"
    assert told.observed == "loads; it does otherwise; expect a low accept length; look for nothing in the log"
    assert (told.note, told.help) == ("seen: Toy 2.1, toy.py:1", "Write it.")
    assert told.contract.endswith("profiles/toy.toml:11")
    (told,) = findings_of(toy({"rows": [row(log="it skips 3 tensors", effect="stops")]}))
    assert told.observed.endswith("; expect no drafts from there on; the log says: it skips 3 tensors")


@pytest.mark.parametrize(
    ("basis", "version", "word"), [("run", "2.1", "seen"), ("run", "2.0", "read"), ("told", "2.0", "told")]
)
def test_what_was_run_at_another_version_is_only_read_of_this_one(
    toy: Toy, basis: str, version: str, word: str
) -> None:
    made = toy({"rows": [row(basis=basis)]})
    made.version = version
    (told,) = findings_of(made)
    assert told.note == f"{word}: Toy {version}, toy.py:1"


# --- runner, method, class ----------------------------------------------------------------------------------------


def test_what_rests_on_a_choice_that_cannot_be_told_is_not_known(toy: Toy) -> None:
    methods = [{"is": "other", "when": "drafter.odd"}, {"is": "eagle3"}]
    made = toy({"methods": methods, "rows": [row(when='method == "eagle3"'), row(id="two", when='method != "eagle3"')]})
    assert made.method == ""
    assert {e.outcome for e in made.effects} == {"unknown"}
    assert len(made.effects) == 3
    assert toy({"methods": methods}, {"odd": False}).method == "eagle3"
    assert toy({"methods": methods}, {"odd": True}).method == "other"


def test_renamings_follow_each_other_until_the_last(toy: Toy) -> None:
    renamings = [
        {"when": 'starts(architecture, "Llama")', "becomes": ["First", "Second"]},
        {"prefix": "Toy", "unless": ["Second"]},
        {"when": 'architecture == "ToyFirst"', "prefix": "X", "last": True},
        {"prefix": "Never"},
    ]
    assert toy({"renamings": renamings, "registry": {"toy-one": ["XSecond"]}}).class_ == "toy-one"
    assert toy({"renamings": renamings, "registry": {"toy-one": ["NeverXSecond"]}}).class_ == ""


def test_architecture_without_a_class(toy: Toy) -> None:
    refuses = {k: v for k, v in row(outcome="refuses", error="ValueError", see="no {name} here").items() if k != "when"}
    profile = {"registry": {"toy-one": ["Other"]}, "unregistered": refuses}
    made = toy(profile)
    assert made.refusal is not None
    assert (made.refusal.error, made.refusal.see) == ("ValueError", "no LlamaForCausalLMEagle3 here")
    assert toy(profile | {"others": ["*Eagle3"]}).outcome == "unknown"
    assert toy(profile | {"renamings": [{"when": "drafter.odd", "prefix": "X"}]}).outcome == "unknown"


def test_class_that_cannot_be_read_is_not_known(toy: Toy, tmp_path: Path) -> None:
    toy()
    (tmp_path / "engines/classes/toy-one.toml").write_text("schema = 1")
    library = Library(tmp_path)
    profile, _ = library.get("profile", "toy")
    assert toy.case.drafter is not None
    assert predict(profile, library, toy.case.drafter).outcome == "unknown"


def test_target_must_serve_the_method(toy: Toy) -> None:
    bare = {k: v for k, v in row(outcome="refuses", error="RuntimeError", see="not {name}").items() if k != "when"}
    profile = {"hookless": bare, "hooks": {"eagle3": ["Qwen*"]}}
    made = toy(profile)
    assert made.refusal is not None
    assert made.refusal.see == "not LlamaForCausalLM"
    assert toy(profile | {"hooks": {"eagle3": ["Llama*"]}}).outcome == "as meant"
    assert toy(profile, target=False).outcome == "unknown"
    assert toy(profile | {"hooks": {}}).outcome == "as meant"
    assert toy(profile | {"targets": ["Mistral*"]}).outcome == "unknown"  # no class of it was read
    assert toy(profile | {"targets": ["Mistral*", "Llama*"]}).outcome == "refuses"


def test_target_that_does_not_serve_is_refused_as_the_version_does_it(toy: Toy) -> None:
    bare = row(outcome="refuses", see="no")
    rows = [bare | {"id": "old", "error": "KeyError", "until": "2.1"}, bare | {"error": "TypeError"}]
    refusal = toy({"hookless": rows, "hooks": {"eagle3": ["Qwen*"]}}).refusal  # of version 2.1
    assert refusal is not None
    assert refusal.error == "TypeError"
    rows[0]["until"] = "2.2"
    assert toy({"hookless": rows, "hooks": {"eagle3": ["Qwen*"]}}).refusal.error == "KeyError"  # type: ignore[union-attr]


def test_target_that_is_known_to_serve_none(toy: Toy) -> None:
    bare = {k: v for k, v in row(outcome="refuses", error="RuntimeError", see="not {name}").items() if k != "when"}
    profile = {"hookless": bare, "hooks": {"other": ["Qwen3ForCausalLM"]}, "alike": {"eagle3": "other"},
               "methods": [{"is": "eagle3"}, {"is": "other"}]}  # fmt: skip
    assert toy(profile | {"unhooked": ["GemmaForCausalLM"]}).outcome == "unknown"
    assert toy(profile | {"unhooked": ["LlamaForCausalLM"]}).outcome == "refuses"
    held = bare | {"when": "stated(drafter.no_such_key)"}
    assert toy(profile | {"unhooked": ["LlamaForCausalLM"], "hookless": held}).outcome == "as meant"


@pytest.mark.parametrize(("early", "error"), [(False, "TypeError"), (True, "KeyError")])
def test_what_is_looked_at_before_anything_is_loaded(toy: Toy, early: bool, error: str) -> None:
    params = {"absent": {"shape": ["1"], "loader": "exact", "missing": "KeyError", "early": early}}
    made = toy(skips=[{"match": "d2t", "as": "TypeError"}, {"match": "*"}], params=params)
    assert made.refusal is not None
    assert made.refusal.error == error


def test_what_all_runners_do_is_said_once(toy: Toy) -> None:
    runners = [{"is": "A", "when": "stated(launch.a)"}, {"is": "B"}]
    rows = [row(), row(id="b", see="B does this", when='runner == "B"')]
    toy({"runners": runners, "rows": rows})
    assert toy.case.drafter is not None
    told = judge(["toy"], toy.library, toy.case.drafter, toy.case.target, toy.case.couple)
    assert [f.subject for f in told] == ["Toy 2.1: row", "Toy 2.1 (B): b"]
    told = judge(["toy"], toy.library, toy.case.drafter, toy.case.target, toy.case.couple, {"toy": {"a": 1}})
    assert [f.subject for f in told] == ["Toy 2.1: row"]


# --- tensors ------------------------------------------------------------------------------------------------------


def shaped(shape: list[str], loader: str, **more: Any) -> dict[str, Any]:
    return {"skips": [], "params": {FC: {"shape": shape, "loader": loader} | more}, "names": NAMES}


NAMES: list[dict[str, str]] = []
KEEP = {"skips": [{"match": glob} for glob in ("midlayer.*", "norm.*", "lm_head*", "?2?", "embed*")]}


@pytest.mark.parametrize(
    ("shape", "loader", "expected"),
    [
        (["width", "3 * width"], "exact", None),
        (["width", "2 * width"], "exact", ("refuses", "AssertionError")),
        (["width"], "exact", ("refuses", "AssertionError")),
        (["width - 1", "3 * width"], "rows", ("degrades", "")),
        (["width + 1", "3 * width"], "rows", ("degrades", "")),
        (["width", "3 * width + 1"], "rows", ("refuses", "AssertionError")),
        (["width", "3 * width - 1"], "columns", ("refuses", "RuntimeError")),
        (["width", "drafter.odd"], "exact", ("unknown", "")),
        (["width", "drafter.model_type"], "exact", ("unknown", "")),  # which is no size
    ],
)
def test_tensor_of_another_shape(toy: Toy, shape: list[str], loader: str, expected: tuple[str, str] | None) -> None:
    made = toy(**KEEP, params={FC: {"shape": shape, "loader": loader}})
    assert [(e.outcome, e.error) for e in made.effects] == ([expected] if expected else [])


@pytest.mark.parametrize(("ones", "outcome"), [(True, "as meant"), (False, "refuses")])
def test_axes_of_one_in_front_may_count_for_nothing(toy: Toy, ones: bool, outcome: str) -> None:
    profile = {"loaders": {"exact": {"other": "AssertionError", "ones": ones}}}
    made = toy(profile, tensors={FC: ("BF16", (1, b.HIDDEN, 3 * b.HIDDEN))}, **KEEP,
               params={FC: {"shape": ["width", "3 * width"], "loader": "exact"}})  # fmt: skip
    assert made.outcome == outcome


@pytest.mark.parametrize("taken", ["other", "larger", "smaller"])
def test_loader_may_take_any_shape(toy: Toy, taken: str) -> None:
    loader = {"axis": 0, "larger": "ValueError", "smaller": "ValueError", "other": "ValueError"} | {taken: "taken"}
    shape = {"other": ["width", "7"], "larger": ["1", "3 * width"], "smaller": ["2 * width", "3 * width"]}[taken]
    profile = {"loaders": PROFILE["loaders"] | {"own": loader}}
    assert toy(profile, **KEEP, params={FC: {"shape": shape, "loader": "own"}}).outcome == "as meant"


def test_parameter_may_exist_or_not(toy: Toy) -> None:
    def outcome(when: str, unknown: str) -> str:
        params = {FC: {"shape": ["width", "3 * width"], "loader": "exact", "when": when}}
        return toy(**KEEP, params=params, unknown=unknown).outcome

    assert outcome("true", "ValueError") == "as meant"
    assert outcome("false", "ValueError") == "refuses"
    assert outcome("false", "dropped") == "degrades"
    assert outcome("drafter.odd", "ValueError") == "unknown"
    assert outcome("drafter.odd", "dropped") == "unknown"


@pytest.mark.parametrize(
    ("stop", "outcome"),
    [
        ("1", "as meant"),
        ("drafter.odd", "unknown"),
        ("drafter.model_type", "unknown"),
        ("9000000000000000000", "unknown"),
    ],
)
def test_rows_of_parameters(toy: Toy, stop: str, outcome: str) -> None:
    params = {"midlayer.{i}.x": {"shape": ["width"], "loader": "exact", "harmless": "true", "for": f"i in 0..{stop}"}}
    made = toy(tensors={"midlayer.0.x": ("BF16", (b.HIDDEN,))}, params=params, unknown="ValueError",
               skips=[{"match": "[!m]*"}, {"match": "midlayer.[!0]*"}])  # fmt: skip
    assert made.outcome == outcome


@pytest.mark.parametrize(
    ("tensors", "outcome"),
    [({}, "as meant"), ({"odd": ("BF16", (1,))}, "as meant"), ({"fc.odd": ("BF16", (1,))}, "as meant")],
)
def test_tensor_that_nobody_knows_is_passed_over(toy: Toy, tensors: dict[str, Any], outcome: str) -> None:
    made = toy(tensors=tensors, **KEEP)
    assert made.outcome == outcome
    assert all(e.kind == "copes" for e in made.effects)
    assert len(made.effects) == len(tensors)


@pytest.mark.parametrize(
    ("skip", "outcome"),
    [
        ({"as": "harmless"}, "as meant"),
        ({"as": "dropped"}, "degrades"),
        ({"as": "KeyError"}, "refuses"),
        ({"as": "KeyError", "when": "n == 1"}, "as meant"),
        ({"as": "KeyError", "when": "drafter.odd"}, "unknown"),
        ({"as": "KeyError", "lost": True}, "as meant"),  # it finds its parameter
    ],
)
def test_tensor_that_is_passed_over(toy: Toy, skip: dict[str, Any], outcome: str) -> None:
    assert toy(skips=[{"match": "fc.*"} | skip, *KEEP["skips"]]).outcome == outcome


def test_name_in_the_file_becomes_that_of_a_parameter(toy: Toy) -> None:
    names = [{"part": "fc.", "to": "fusion."}, {"starts": "", "to": "model.", "unless": ["lm_head*"]}]
    params = {"model.fusion.weight": {"shape": ["width", "3 * width"], "loader": "exact"}}
    assert toy(**KEEP, names=names, params=params, unknown="ValueError").outcome == "as meant"
    assert toy(**KEEP, names=names[:1], params=params, unknown="ValueError").outcome == "refuses"


@pytest.mark.parametrize(
    ("param", "outcome"),
    [
        ({}, "degrades"),
        ({"missing": "ones"}, "degrades"),
        ({"missing": "target"}, "as meant"),
        ({"missing": "KeyError"}, "refuses"),
        ({"harmless": "true"}, "as meant"),
        ({"shared": "n == 12"}, "as meant"),
        ({"shared": "n == 1"}, "degrades"),
        ({"shared": "drafter.odd"}, "unknown"),
        ({"shared": "drafter.odd", "missing": "KeyError"}, "unknown"),
        ({"unused": "true"}, "as meant"),
        ({"replaced": "true"}, "as meant"),
    ],
)
def test_parameter_that_the_file_does_not_have(toy: Toy, param: dict[str, str], outcome: str) -> None:
    made = toy(params={"bare": {"shape": ["width"], "loader": "exact"} | param})
    assert made.outcome == outcome


def test_parameter_that_another_tensor_holds_too(toy: Toy) -> None:
    bare = {"shape": ["width"], "loader": "exact", "missing": "KeyError"}
    both = {"shape": ["width", "3 * width"], "loader": "exact", "gives": ["bare"]}
    assert toy(**KEEP, params={"bare": bare, FC: both}).outcome == "as meant"
    assert toy(**KEEP, params={"bare": bare, FC: both | {"gives": []}}).outcome == "refuses"


@pytest.mark.parametrize(("unused", "shape", "outcome"), [
    ("true", ["width + 1", "3 * width"], "as meant"),  # padded, and nobody reads it
    ("false", ["width + 1", "3 * width"], "degrades"),
    ("drafter.odd", ["width + 1", "3 * width"], "unknown"),
    ("true", ["width", "width"], "refuses"),  # it is loaded all the same
])  # fmt: skip
def test_parameter_that_nothing_reads(toy: Toy, unused: str, shape: list[str], outcome: str) -> None:
    assert toy(**KEEP, params={FC: {"shape": shape, "loader": "rows", "unused": unused}}).outcome == outcome


@pytest.mark.parametrize(("replaced", "copies", "outcome"), [
    ("false", None, "as meant"),
    ("true", None, "unknown"),
    ("drafter.odd", None, "unknown"),
    ("true", [FC], "as meant"),
    ("drafter.odd", [FC], "as meant"),
])  # fmt: skip
def test_parameter_that_the_target_replaces(toy: Toy, replaced: str, copies: Any, outcome: str) -> None:
    facts = {"copies": Fact(copies, "the test")} if copies else {}
    params = {FC: {"shape": ["width", "3 * width"], "loader": "exact", "replaced": replaced}}
    assert toy(**KEEP, params=params, facts=facts).outcome == outcome


@pytest.mark.parametrize(("own", "outcome"), [(None, "unknown"), (True, "degrades"), (False, "as meant")])
def test_embedding_that_the_target_replaces_may_be_declared_a_copy(toy: Toy, own: bool | None, outcome: str) -> None:
    facts = {"own_embedding": Fact(own, "the test")} if own is not None else {}
    skips = {"skips": [{"match": glob} for glob in ("midlayer.*", "norm.*", "lm_head*", "?2?", "fc*")]}
    shape = ["drafter.vocab_size", "drafter.hidden_size"]
    params = {"embed_tokens.weight": {"shape": shape, "loader": "exact", "replaced": "true"}}
    table = {"embed_tokens.weight": ("BF16", (b.VOCAB, b.HIDDEN))}
    assert toy(None, None, table, **skips, params=params, facts=facts).outcome == outcome


@pytest.mark.parametrize(
    ("sizes", "outcome"),
    [
        ({"0.a": 8, "0.b": 8}, "as meant"),
        ({"0.a": 7, "0.b": 7}, "as meant"),  # all alike
        ({"0.a": 7, "0.b": 8}, "degrades"),
        ({"0.a": 7, "0.b": 6}, "degrades"),
        ({"0.a": 7, "0.b": 7, "1.a": 8, "1.b": 8}, "as meant"),  # each layer for itself
        ({"0.a": 7, "0.b": 8, "1.a": 8, "1.b": 7}, "degrades"),
        ({"0.a": 9, "0.b": 9}, "degrades"),  # cut, which is never alike
    ],
)
def test_what_is_padded_alike_changes_nothing(toy: Toy, sizes: dict[str, int], outcome: str) -> None:
    param = {"shape": ["8"], "loader": "rows", "pads": "mlp", "harmless": "true", "for": "i in 0..2"}
    made = toy(
        tensors={f"midlayer.{name}": ("BF16", (size,)) for name, size in sizes.items()},
        skips=[{"match": "[!m]*"}, {"match": "midlayer.[!01]*"}],
        params={"midlayer.{i}.a": param, "midlayer.{i}.b": param},
    )
    assert made.outcome == outcome


def test_tensors_that_share_a_fate_are_told_once(toy: Toy) -> None:
    made = toy(skips=[])
    told = findings_of(made)
    assert len(made.effects) > 10
    assert len(told) == 1
    assert told[0].code == "VLLM602"
    assert told[0].subject.endswith(f" and {len(made.effects) - 1} more")
    assert all(e.subject in told[0].subject + told[0].note for e in made.effects)
    made = toy(skips=[], unknown="ValueError", says="no module {name}")
    told = findings_of(made)
    assert len(told) == 1
    assert f"after that {made.effects[1].subject} and {len(made.effects) - 2} more: ValueError" in told[0].note
    assert told[0].observed == f"refuses at load: ValueError: no module {made.effects[0].subject}"


def test_tensors_that_were_not_read_are_not_known(toy: Toy) -> None:
    assert toy(table=False).outcome == "unknown"
    made = toy()
    drafter = toy.case.drafter
    assert made.outcome == "as meant"
    assert drafter is not None
    part = replace(drafter, table=replace(drafter.table, complete=False))
    assert predict(made.profile, toy.library, part).outcome == "unknown"


LIFTED = {"lifts": ["inner"], "lift_with": "outer", "lift_by": "sort", "lift_alone": {"a": ["one"]},
          "lift_copies": {"a": ["two"]}}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "config", "seen"),
    [
        ("one", {"one": 1, "inner": {"one": 2}}, "1"),
        ("one", {"inner": {"one": 2}}, "?"),
        ("two", {"two": 1, "inner": {"two": 2}}, "1"),
        ("two", {"two": None, "inner": {"two": 2}}, "2"),
        ("two", {"inner": {"two": 2}}, "2"),
        ("two", {"sort": "b", "two": 1, "inner": {"two": 2}}, "2"),
        ("three", {"three": 1, "inner": {}}, "?"),
    ],
)
def test_what_is_read_of_the_whole_and_what_of_its_table(toy: Toy, key: str, config: Any, seen: str) -> None:
    told = row(see=f"{{drafter.{key}}} and {{whole.{key}}}")
    made = toy({**LIFTED, "rows": [told]}, {"outer": {}, "sort": "a", **config})
    whole = {None: "None", 1: "1"}.get(config.get(key, "?"), "?")
    assert next(e.see for e in made.effects if e.subject == "row") == f"{seen} and {whole}"


# --- layers -------------------------------------------------------------------------------------------------------

IDS = "eagle_config.eagle_aux_hidden_state_layer_ids"
TOP = "eagle_aux_hidden_state_layer_ids"
CAPTURE = {"keys": [{"key": TOP}, {"key": IDS, "offset": 1}], "default": ["2", "n // 2", "n - 3"], "low": "0",
           "high": "n - 1"} | HEADS  # fmt: skip
TRAINED = {"aux_layers": Fact([2, 6, 9], "the test"), "aux_convention": Fact("boundary", "the test")}


@pytest.mark.parametrize(
    ("config", "capture", "captured", "outcome"),
    [
        ({}, {}, [3, 7, 10], "degrades"),
        ({}, {"keys": [{"key": IDS}]}, [2, 6, 9], "as meant"),
        ({TOP: [2, 6, 9]}, {}, [2, 6, 9], "as meant"),
        ({TOP: None}, {}, [3, 7, 10], "degrades"),
        ({TOP: [9, 2, 6]}, {}, [2, 6, 9], "as meant"),
        ({TOP: []}, {}, [2, 6, 9], "as meant"),  # its default
        ({TOP: []}, {"empty": "ValueError"}, None, "refuses"),
        ({TOP: []}, {"empty": "next"}, [3, 7, 10], "degrades"),
        ({TOP: "2"}, {"odd": "TypeError"}, None, "refuses"),
        ({TOP: [2, True, 9]}, {}, [1, 2, 9], "degrades"),  # it is one
        ({TOP: [2, True, 9]}, {"whole": True}, [2, 6, 9], "as meant"),
        ({TOP: [2, True, 9]}, {"whole": True, "odd": "TypeError", "motley": "ValueError"}, None, "refuses"),
        ({TOP: {"a": 2}}, {"motley": "ValueError"}, None, "refuses"),
        ({TOP: 0}, {"odd": "TypeError", "falsy": True}, [2, 6, 9], "as meant"),
        ({TOP: 0}, {"odd": "TypeError"}, None, "refuses"),
        ({TOP: [2, 6, 12]}, {"outside": "IndexError"}, [2, 6], "refuses"),
        ({TOP: [2, 6, 12]}, {}, [2, 6], "degrades"),
        ({}, {"default": ["drafter.odd"], "keys": []}, None, "unknown"),
        ({}, {"high": "drafter.odd"}, None, "unknown"),
        ({}, {"when": "drafter.odd"}, None, "unknown"),
        ({}, {"keys": [{"key": IDS, "when": "drafter.odd"}]}, None, "unknown"),
    ],
)
def test_layers_that_are_captured(toy: Toy, config: Any, capture: Any, captured: Any, outcome: str) -> None:
    made = toy({"captures": [CAPTURE | capture]}, config, facts=TRAINED)
    assert (made.captured, made.outcome) == (captured, outcome)


def test_fusion_takes_as_many_states_as_it_has_columns_for(toy: Toy) -> None:
    def outcome(count: str) -> tuple[str, str]:
        made = toy({"captures": [CAPTURE | {"keys": []}]}, facts=TRAINED, dims=CLASS["dims"] | {"aux_count": count})
        return made.outcome, made.refusal.error if made.refusal else ""

    assert outcome("3") == ("as meant", "")
    assert outcome("4") == ("refuses", "RuntimeError")
    assert outcome("drafter.odd") == ("unknown", "")


@pytest.mark.parametrize(
    ("config", "capture", "count", "error"),
    [
        ({TOP: [2, 6]}, {"more": "ValueError", "none": "KeyError"}, "3", "RuntimeError"),
        ({TOP: [2, 6, 9]}, {"more": "ValueError", "none": "KeyError"}, "2", "ValueError"),
        ({TOP: [20, 30]}, {"more": "ValueError", "none": "KeyError"}, "2", "KeyError"),
        ({TOP: ["2", "6"]}, {"texts": "lost", "none": "KeyError"}, "2", "KeyError"),
        ({TOP: ["2", "6"]}, {"texts": "IndexError"}, "2", "IndexError"),
        ({TOP: ["2", 6]}, {"texts": "lost", "mixed": "TypeError"}, "2", "TypeError"),
        ({TOP: "2"}, {"keys": [{"key": TOP, "odd": "KeyError", "odd_stage": "load"}]}, "3", "KeyError"),
        ({TOP: [2, 6, 9]}, {"width": "width"}, "3", ""),
        ({TOP: [2, 6, 9]}, {"width": "width + 1"}, "3", "RuntimeError"),
        ({TOP: [2, 6, 9]}, {"width": "width - 1", "more": "ValueError"}, "3", "ValueError"),
    ],
)
def test_states_that_the_fusion_does_not_take(toy: Toy, config: Any, capture: Any, count: str, error: str) -> None:
    dims = CLASS["dims"] | {"aux_count": count}
    made = toy({"captures": [CAPTURE | capture]}, config, facts=TRAINED, dims=dims)
    assert (made.refusal.error if made.refusal else "") == error


def test_rows_may_speak_of_what_is_captured(toy: Toy) -> None:
    when = {"captures": [CAPTURE], "rows": [row(when="0 in captured")]}
    assert toy(when, {TOP: [0, 6, 9]}, facts=TRAINED | {"aux_layers": Fact([0, 6, 9], "x")}).outcome == "degrades"
    assert toy(when, {TOP: [2, 6, 9]}, facts=TRAINED).outcome == "as meant"


def test_layers_that_nobody_declared_are_not_known(toy: Toy) -> None:
    made = toy({"captures": [CAPTURE]})
    assert made.outcome == "unknown"
    assert made.captured == [3, 7, 10]


# --- contracts with a mistake -------------------------------------------------------------------------------------


def mistakes(root: Path, profile: Mapping[str, Any] = PROFILE, class_: Mapping[str, Any] = CLASS) -> list[Finding]:
    library = written(root, profile, class_)
    return [*library.get("profile", "toy")[1], *library.get("class", "toy-one")[1]]


def test_these_two_have_none(tmp_path: Path) -> None:
    assert mistakes(tmp_path) == []


BARE = {k: v for k, v in ROW.items() if k != "when"}
WRONG_PROFILES: list[tuple[dict[str, Any], str, str]] = [
    ({"codes": {k: v for k, v in CODES.items() if k != "unset"}}, "CON105", "codes.unset"),
    ({"codes": CODES | {"unset": "VLLM699"}}, "CON116", "codes.unset"),
    ({"registry": {"toy-on": ["X"]}}, "CON113", "did you mean 'toy-one'"),
    ({"engine": "vlm"}, "CON113", "did you mean 'vllm'"),
    ({"rows": [row(when="m == 1")]}, "CON107", "rows[0].when"),
    ({"rows": [row(when="drafer.odd == 1")]}, "CON107", "drafer.odd"),
    ({"rows": [row(when="hass.head")]}, "CON107", "did you mean 'has'"),
    ({"rows": [row(when="declared.copys")]}, "CON107", "did you mean 'copies'"),
    ({"rows": [row(when="i == 0")]}, "CON107", "rows[0].when"),
    ({"rows": [row(when='method == "eagle"')]}, "CON107", "did you mean 'eagle3'"),
    ({"rows": [row(when='code in ("toy-one", "toy-tow")')]}, "CON107", "did you mean 'toy-one'"),
    ({"rows": [row(), row()]}, "CON104", "rows[1].id"),
    ({"rows": [row(outcome="refuses")]}, "CON105", "rows[0].error"),
    ({"rows": [row(outcome="refuses", error="an error")]}, "CON104", "rows[0].error"),
    ({"rows": [row(outcome="dies")]}, "CON104", "rows[0].outcome"),
    ({"unregistered": BARE | {"outcome": "refuses"}}, "CON105", "unregistered.error"),
    ({"hooks": {"eagl3": ["X"]}}, "CON107", "did you mean 'eagle3'"),
    ({"loaders": {"exact": {"larger": "cut"}}}, "CON105", "loaders.exact.larger"),
    ({"loaders": {"exact": {"axis": 0, "larger": "cut"}}}, "CON105", "loaders.exact.smaller"),
    ({"loaders": {"exact": {"axis": -1, "larger": "cut", "smaller": "cut"}}}, "CON104", "loaders.exact.axis"),
    ({"loaders": {"exact": {"axis": 0, "larger": "cutt", "smaller": "padded"}}}, "CON104", "did you mean 'cut'"),
    ({"captures": [CAPTURE | {"empty": "defaults"}]}, "CON104", "did you mean 'default'"),
    ({"versions": []}, "CON104", "versions"),
]
WRONG_CLASSES: list[tuple[dict[str, Any], str, str]] = [
    ({"params": {"x": {"shape": ["width"], "loader": "exakt"}}}, "CON104", "did you mean 'exact'"),
    ({"params": {"x": {"shape": ["widht"], "loader": "exact"}}}, "CON107", "did you mean 'width'"),
    ({"params": {"x": {"shape": ["width"], "loader": "columns"}}}, "CON104", "params.x.shape"),
    ({"params": {"x": {"shape": ["width"], "loader": "exact", "missing": "noize"}}}, "CON104", "did you mean 'noise'"),
    ({"params": {"x": {"shape": ["width"], "loader": "exact", "gives": ["y"]}}}, "CON107", "params.x.gives[0]"),
    ({"params": {"x.{i}": {"shape": ["width"], "loader": "exact"}}}, "CON104", '"x.{i}".for'),
    ({"params": {"x": {"shape": ["width"], "loader": "exact", "for": "i in 0..2"}}}, "CON104", "params.x.for"),
    ({"params": {"x": {"shape": ["i"], "loader": "exact"}}}, "CON107", "params.x.shape[0]"),
    ({"skips": [{"match": "*", "as": "harmles"}]}, "CON104", "did you mean 'harmless'"),
    ({"unknown": "droped"}, "CON104", "did you mean 'dropped'"),
    ({"names": [{"to": "x"}]}, "CON105", "names[0]"),
    ({"names": [{"to": "x", "starts": "y", "part": "z"}]}, "CON105", "names[0]"),
    ({"extends": "toy-tow"}, "CON108", "extends"),
]


@pytest.mark.parametrize(("profile", "code", "said"), WRONG_PROFILES)
def test_wrong_profile_is_told_with_its_line(tmp_path: Path, profile: Any, code: str, said: str) -> None:
    found = mistakes(tmp_path, PROFILE | profile)
    assert any(f.code == code and said in f"{f.subject} {f.observed}" for f in found), found
    assert all(f.contract.rpartition(":")[0].endswith("toy.toml") for f in found), found


@pytest.mark.parametrize(("class_", "code", "said"), WRONG_CLASSES)
def test_wrong_class_is_told_with_its_line(tmp_path: Path, class_: Any, code: str, said: str) -> None:
    found = mistakes(tmp_path, PROFILE, CLASS | class_)
    assert any(f.code == code and said in f"{f.subject} {f.observed}" for f in found), found
    assert all(f.contract.rpartition(":")[0].endswith("toy-one.toml") for f in found), found


# --- what an engine reads a config through ------------------------------------------------------------------------

CONFIGS: dict[str, Any] = {
    "schema": 1,
    "kind": "configs",
    "id": "lib",
    "title": "a library's classes",
    "version": "1",
    "source": "lib.py",
    "known": ["mamba"],
    "types": {"llama": {"hidden_act": ["text", "silu"], "partial": ["int null", 2], "hidden_size": ["int", 8]}},
}
THROUGH = {"is": ["lib"], "stage": "flags", "unknown": "ValueError", "wrong": "TypeError", "also": {"other": "llama"}}


@pytest.fixture
def reading(toy: Toy) -> Toy:
    path = toy.root / "engines" / "configs" / "lib.toml"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in CONFIGS.items()))
    return toy


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        ({}, None),
        ({"model_type": "other"}, None),
        ({"model_type": "mamba"}, None),
        ({"model_type": "nothing"}, ("refuses", "flags", "refuses", "model_type", "ValueError")),
        ({"hidden_act": 3}, ("refuses", "flags", "refuses", "hidden_act", "TypeError")),
        ({"hidden_act": None}, ("refuses", "flags", "refuses", "hidden_act", "TypeError")),
        ({"partial": None}, None),
        ({"partial": True}, ("refuses", "flags", "refuses", "partial", "TypeError")),
    ],
)
def test_config_class_refuses_a_type_it_does_not_know_and_values_of_another_kind(
    reading: Toy, config: Mapping[str, Any], seen: tuple[str, ...] | None
) -> None:
    made = reading({"configs": THROUGH}, config)
    found = [(e.outcome, e.stage, e.kind, e.subject, e.error) for e in made.effects]
    assert found == ([seen] if seen else [])


@pytest.mark.parametrize(
    ("config", "when", "holds"),
    [
        ({}, "drafter.partial == 2", True),
        ({}, "stated(written.partial)", False),
        ({"partial": 5}, "drafter.partial == 5 and stated(written.partial)", True),
        ({"model_type": "mamba"}, "stated(drafter.partial)", False),
        ({"partial": [1, 2]}, 'kind(drafter.partial) == "list" and first(drafter.partial) == 1', True),
        ({"partial": "Abc"}, 'kind(drafter.partial) == "text" and lower(drafter.partial) == "abc"', True),
        ({"model_type": "mamba"}, 'kind(drafter.partial) == "absent"', True),
        ({}, 'file("tokenizer*")', False),
        ({}, 'stored.config == "read" and stored.weights == "read" and stored.dtype == "BF16"', True),
    ],
)
def test_what_a_config_class_fills_in_is_what_the_engine_reads(
    reading: Toy, config: Mapping[str, Any], when: str, holds: bool
) -> None:
    profile = {"configs": {**THROUGH, "wrong": "KeyError", "stage": "run"}, "rows": [row(when=when)]}
    assert any(e.subject == "row" and e.outcome == "degrades" for e in reading(profile, config).effects) is holds


@pytest.mark.parametrize(
    ("config", "when", "holds"),
    [
        ({}, 'read_as == "class" and drafter.partial == 2', True),
        ({"model_type": "nothing"}, 'read_as == "none" and kind(drafter.partial) == "absent"', True),
        ({"hidden_act": 3}, 'read_as == "wrong" and kind(drafter.partial) == "absent"', True),
        ({"hidden_act": 3, "partial": 4}, "drafter.partial == 4", True),
        ({"model_type": "mamba"}, 'read_as == "class"', True),
    ],
)
def test_config_that_no_class_takes_may_be_read_as_it_stands(
    reading: Toy, config: Mapping[str, Any], when: str, holds: bool
) -> None:
    made = reading({"configs": {"is": ["lib"], "alone": True}, "rows": [row(when=when)]}, config)
    assert [e.subject for e in made.effects] == (["row"] if holds else [])


@pytest.mark.parametrize(
    ("over", "when", "outcome"),
    [
        (True, "drafter.partial == 7 and drafter.below == 1", "degrades"),
        (True, "drafter.above == 2", "degrades"),
        (True, 'kind(drafter.nowhere) == "absent"', "degrades"),
        (False, 'kind(drafter.above) == "absent"', "degrades"),
        (False, "drafter.below == 1", "degrades"),
    ],
)
def test_table_may_lie_over_the_whole_config(toy: Toy, over: bool, when: str, outcome: str) -> None:
    profile = {"lifts": ["text_config"], "lift_keeps": ["architectures"], "lift_over": over, "rows": [row(when=when)]}
    config = {"text_config": {"partial": 7, "below": 1}, "partial": 3, "above": 2}
    assert toy(profile, config, params={}).outcome == outcome


def test_target_that_an_engine_takes_none_of(toy: Toy) -> None:
    other = {k: v for k, v in row(outcome="refuses", error="SystemExit", see="not {name}").items() if k != "when"}
    made = toy({"unserved": other})
    assert made.refusal is not None
    assert (made.refusal.error, made.refusal.see) == ("SystemExit", "not LlamaForCausalLM")
    assert toy({"unserved": other, "unhooked": ["Llama*"]}).outcome == "as meant"
    assert toy({"unserved": other, "hooks": {"eagle3": ["LlamaForCausalLM"]}}).outcome == "as meant"
    assert toy({"unserved": other}, target=False).outcome == "as meant"


def test_nothing_of_a_drafter_is_read_by_a_method_that_drafts_without_it(toy: Toy) -> None:
    made = toy({"methods": [{"is": "none", "idle": True}]}, {"architectures": ["Nobody"], "draft_vocab_size": 512})
    assert (made.effects, made.class_) == ([], "")


def test_what_comes_late_is_the_first_refusal_of_its_stage_only_if_it_is_alone(toy: Toy) -> None:
    late = row(id="late", outcome="refuses", error="KeyError", late=True)
    early = row(id="early", outcome="refuses", error="TypeError")
    first = toy({"rows": [late, early]}).refusal
    assert first is not None
    assert first.error == "TypeError"
    assert toy({"rows": [late]}).refusal.error == "KeyError"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ({"stage": "flags"}, {"stage": "config", "order": "flags", "early": True}, "TypeError"),
        ({"stage": "config"}, {"stage": "load", "order": "convert"}, "KeyError"),
        ({"stage": "load"}, {"stage": "load", "order": "convert"}, "TypeError"),
        ({"stage": "config", "order": "convert", "late": True}, {"stage": "load", "order": "convert"}, "TypeError"),
    ],
)
def test_refusal_may_come_among_those_of_another_stage(toy: Toy, first: Any, second: Any, error: str) -> None:
    rows = [row(id="a", outcome="refuses", error="KeyError") | first]
    rows += [row(id="b", outcome="refuses", error="TypeError") | second]
    refusal = toy({"rows": rows}).refusal
    assert refusal is not None
    assert (refusal.error, refusal.stage) == (error, (first if error == "KeyError" else second)["stage"])


@pytest.mark.parametrize(("sure", "outcome"), [(True, "as meant"), (False, "unknown")])
def test_row_that_cannot_be_told_may_say_nothing(toy: Toy, sure: bool, outcome: str) -> None:
    flags = {"odd": Unknown("it was not read")}
    assert toy({"rows": [row(when="launch.odd == 1", sure=sure)]}, flags=flags).outcome == outcome
    assert toy({"rows": [row(when="launch.odd == 1", sure=sure)]}, flags={"odd": 1}).outcome == "degrades"


def test_row_may_say_that_it_is_not_known(toy: Toy) -> None:
    made = toy({"rows": [row(outcome="unknown", see="whether {launch.path} is there")]}, flags={"path": "a.pt"})
    assert (made.outcome, only(made)[0], made.effects[0].see) == ("unknown", "unknown", "whether a.pt is there")


@pytest.mark.parametrize(
    ("value", "when"),
    [
        ("7", "cast.drafter.odd == 7"),
        (7.9, "cast.drafter.odd == 7"),
        (True, "cast.drafter.odd == 1"),
        ("seven", 'cast.drafter.odd == "seven"'),
        (["1", 2], "max(cast.drafter.odd) == 2"),
        ("NONE", 'kind(cast.drafter.odd) == "absent"'),
    ],
)
def test_what_is_cast_to_an_integer(toy: Toy, value: Any, when: str) -> None:
    assert degrades(toy, when, config={} if value == "NONE" else {"odd": value})


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ('{"depth": 5}', "drafter.depth == 5 and whole.depth == 3 and overrides.depth == 5"),
        ('{"late": 5}', "drafter.late == 4 and overrides.late == 5"),
        ("[1]", 'kind(overrides) == "list" and on(overrides) and drafter.depth == 3'),
        ("[]", 'kind(overrides) == "list" and not on(overrides)'),
        ("{", 'kind(overrides) == "absent" and stated(launch.more)'),
        ('{"depth": 5}', "target.depth == 5 and not stated(whole.target.depth)"),
    ],
)
def test_flag_may_change_keys_of_both_configs(toy: Toy, text: str, when: str) -> None:
    profile = {"overrides": "more", "overrides_late": ["late"]}
    assert degrades(toy, when, profile, config={"depth": 3, "late": 4}, flags={"more": text})


@pytest.mark.parametrize(
    ("side", "when"),
    [
        ("target", "drafter.depth == 3 and target.depth == 5 and overrides.depth == 5"),
        ("drafter", "drafter.depth == 5 and not stated(target.depth) and overrides.depth == 5"),
    ],
)
def test_flag_may_change_keys_of_one_config_alone(toy: Toy, side: str, when: str) -> None:
    given = {"config": {"depth": 3}, "flags": {"more": '{"depth": 5}'}}
    assert degrades(toy, when, {"overrides": "more", "overrides_of": side}, **given)
    assert not degrades(toy, when, {"overrides": "more"}, **given)


def test_value_of_the_wrong_kind_in_a_flag_is_refused_when_that_is_read(reading: Toy) -> None:
    through = {**THROUGH, "target": True}
    profile = {"configs": through, "overrides": "more", "overrides_stage": "config"}
    refusal = reading(profile, flags={"more": '{"hidden_act": 3}'}).refusal
    assert refusal is not None
    assert (refusal.stage, refusal.error, refusal.subject) == ("config", "TypeError", "hidden_act")


@pytest.mark.parametrize(
    ("flags", "subject"),
    [(None, "auto_map"), ({"trust_remote_code": False}, "auto_map"), ({"trust_remote_code": True}, "")],
)
def test_repo_may_bring_its_own_config_class(reading: Toy, flags: Any, subject: str) -> None:
    config = {"model_type": "nothing", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    refusal = reading({"configs": THROUGH}, config, flags=flags).refusal
    assert (refusal.subject if refusal else "") == subject


def test_config_of_the_target_goes_through_the_classes_first(reading: Toy) -> None:
    rows = [row(outcome="refuses", error="KeyError", stage="flags")]
    profile = {"configs": {**THROUGH, "target": True}, "rows": rows, "overrides": "more"}
    assert reading(profile).refusal.error == "KeyError"  # type: ignore[union-attr]
    profile["configs"] = {**THROUGH, "target": True, "also": {}}
    made = reading(profile, {"model_type": "nothing"})
    assert [e.subject for e in made.effects if e.error == "ValueError"] == ["model_type"]


def test_name_is_replaced_as_a_whole(toy: Toy) -> None:
    params = {"map": {"shape": ["rows"], "loader": "exact"}}
    made = toy(names=[{"match": "*d2t*", "to": "map"}], skips=[{"match": "*", "lost": True}], params=params)
    assert made.effects == []


@pytest.mark.parametrize(
    ("sizes", "seen"),
    [
        ((4, 8), None),
        ((5, 7), ("degrades", "cut")),
        ((4, 9), ("refuses", "refuses")),
        ((4, None), ("degrades", "ignored")),
    ],
)
def test_tensors_that_are_put_together_are_checked_by_their_sum(
    toy: Toy, sizes: tuple[int, int | None], seen: tuple[str, str] | None
) -> None:
    names = ("a.weight", "b.weight")
    params = {
        name: {"shape": [str(want), "width"], "loader": "rows", "joined": "ab", "harmless": "true"}
        for name, want in zip(names, (4, 8), strict=True)
    }
    tensors = {name: ("BF16", (size, b.HIDDEN)) for name, size in zip(names, sizes, strict=True) if size is not None}
    made = toy(tensors=tensors, skips=[{"match": "*", "lost": True}], params=params)
    assert [(e.outcome, e.kind) for e in made.effects] == ([seen] if seen else [])


def test_tensor_that_the_target_s_stands_for_matters_unless_it_is_a_copy(toy: Toy) -> None:
    asked = {"skips": [{"match": "lm_head*", "as": "target"}, {"match": "*"}]}
    assert toy(**asked).outcome == "unknown"
    assert toy(facts={"copies": Fact(["lm_head.weight"], "s")}, **asked).outcome == "as meant"
    assert toy(facts={"copies": Fact([], "s")}, **asked).outcome == "degrades"


# --- side by side -------------------------------------------------------------------------------------------------

BESIDE = {
    "codes": CODES | {"beside": "VLLM611"},
    "captures": [
        {
            "keys": [{"key": "eagle_aux_hidden_state_layer_ids"}],
            "default": ["2", "n // 2", "n - 3"],
            "source": "toy.py:9",
        }
    ],
}


def beside(made: Prediction) -> str:
    (told,) = [f for f in findings_of(made) if f.code == "VLLM611"]
    assert told.level == "info"
    return told.observed


def test_layers_are_shown_as_declared_as_trained_and_as_read_with_the_key_that_is_not_read(toy: Toy) -> None:
    facts = {"aux_layers": Fact([2, 6, 9], "card"), "aux_convention": Fact("boundary", "card")}
    nested = "eagle_config.eagle_aux_hidden_state_layer_ids"
    assert beside(toy(BESIDE, facts=facts)) == (
        f"layers of the target: declared {nested} [2, 6, 9], trained the inputs of layers [2, 6, 9], "
        f"read the inputs of layers [2, 6, 9], its default; it does not read {nested}"
    )


def test_layers_that_are_not_declared_are_shown_so_and_their_key_where_it_is_read(toy: Toy) -> None:
    config = {"eagle_config": None, "eagle_aux_hidden_state_layer_ids": [1, 4, 9]}
    assert beside(toy(BESIDE, config)) == (
        "layers of the target: declared eagle_aux_hidden_state_layer_ids [1, 4, 9], trained not declared, "
        "read the inputs of layers [1, 4, 9], from eagle_aux_hidden_state_layer_ids"
    )


def test_what_a_profile_shows_beside_is_evaluated_where_its_condition_holds(toy: Toy) -> None:
    rows = [
        {"what": "theta", "declared": "drafter.rope_theta", "trained": "declared.rope_theta", "read": "n * 10"},
        {"what": "none", "when": "false", "read": "n"},
    ]
    profile = {"codes": BESIDE["codes"], "beside": rows}
    assert beside(toy(profile)) == "theta: declared 500000, trained not declared, read 120"
    known = {"rope_theta": Fact(1e6, "card")}
    assert beside(toy(profile, facts=known)) == "theta: declared 500000, trained 1000000, read 120"


def test_layers_that_nobody_read_are_not_known_unless_the_class_uses_none(toy: Toy) -> None:
    dims = {"width": "drafter.hidden_size", "rows": "drafter.draft_vocab_size"}
    assert toy().outcome == "as meant"
    for more in ({}, {"use_aux": "true"}, {"use_aux": "drafter.odd"}):
        made = toy(dims=dims | more)
        assert (made.outcome, made.effects[-1].subject) == ("unknown", "aux layers")


# --- what requests ask for ----------------------------------------------------------------------------------------

REQUESTS = {
    "codes": CODES | {"requests": "VLLM612"},
    "requests": [
        {"id": "a", "asks": ["min_p"], "does": "refused", "asked": "request.min_p > 0", "error": "ValueError",
         "basis": "run", "source": "toy.py:7"},
        {"id": "b", "asks": ["logit_bias"], "does": "ignored", "basis": "read", "source": "toy.py:8, toy.py:9"},
        {"id": "c", "asks": ["top_p"], "does": "unseen", "basis": "read", "source": "toy.py:8"},
        {"id": "d", "asks": ["seed"], "does": "undrafted", "when": "either(launch.slow, false)", "basis": "read",
         "source": "toy.py:1"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        ({}, "as meant"),
        ({"min_p": 0}, "as meant"),
        ({"min_p": 1}, "refuses"),
        ({"logit_bias": {"5": 1}}, "degrades"),
        ({"top_p": 0.5}, "as meant"),
        ({"seed": 3}, "as meant"),
    ],
)
def test_what_a_request_asks_for_decides_what_becomes_of_it(toy: Toy, request_: dict[str, Any], outcome: str) -> None:
    made = toy(REQUESTS, request=request_)
    assert made.outcome == outcome
    if outcome == "refuses":
        assert made.refusal is not None
        assert (made.refusal.stage, made.refusal.error) == ("run", "ValueError")


def test_what_requests_ask_for_is_told_in_one_finding_the_worst_first(toy: Toy) -> None:
    (told,) = [f for f in findings_of(toy(REQUESTS)) if f.code == "VLLM612"]
    assert told.level == "info"
    assert told.observed == (
        "refuses min_p (ValueError); ignores logit_bias without a word; "
        "drafts without top_p, and checks with all of it: fewer are accepted"
    )
    assert told.note == "seen: toy.py:7; read: toy.py:8 and 9"


def test_what_never_comes_to_a_request_says_nothing_of_requests(toy: Toy) -> None:
    none = {"outcome": "refuses", "stage": "config", "error": "ValueError", "see": "no", "id": "x"}
    profile = {"unregistered": {**none, "basis": "read", "source": "s"}, "registry": {"toy-one": ["NoSuchDrafter"]}}
    made = toy(REQUESTS | profile)
    assert made.refusal is not None
    assert not [f for f in findings_of(made) if f.code == "VLLM612"]


# --- fields that the recorded tables alone would hold -------------------------------------------------------------

WHOLE = {"shape": ["width", "3 * width"], "loader": "exact"}


def degrades(toy: Toy, when: str, profile: Mapping[str, Any] | None = None, **asked: Any) -> bool:
    """Tell whether a condition holds, as a row that asks for it alone."""
    made = toy({**(profile or {}), "rows": [row(when=when)]}, **asked)
    return any(e.subject == "row" and e.outcome == "degrades" for e in made.effects)


NESTED = {"inner": {"depth": 7}, "depth": 3, "mark": 1}


@pytest.mark.parametrize(
    ("lifts", "config", "when", "holds"),
    [
        ({}, NESTED, "drafter.depth == 3 and not lifted", True),
        ({"lifts": ["inner"]}, NESTED, "drafter.depth == 7 and lifted", True),
        ({"lifts": ["inner"]}, {"depth": 3}, "stated(drafter.depth)", False),  # the table takes the place of the whole
        ({"lifts": ["inner"], "lift_with": "mark"}, NESTED, "drafter.depth == 7 and lifted", True),
        ({"lifts": ["inner"], "lift_with": "no_such"}, NESTED, "drafter.depth == 3 and not lifted", True),
        ({"lifts": ["inner"], "lift_keeps": ["depth"]}, NESTED, "drafter.depth == 3 and lifted", True),
        ({"lifts": ["inner"], "lift_keeps": ["mark"]}, NESTED, "drafter.depth == 7 and drafter.mark == 1", True),
    ],
)
def test_tables_that_are_read_in_place_of_the_whole(
    toy: Toy, lifts: dict[str, Any], config: dict[str, Any], when: str, holds: bool
) -> None:
    keys = {"lift_keeps": [*lifts.get("lift_keeps", ()), "architectures"]} if lifts else {}
    assert degrades(toy, when, lifts | keys, config=config) is holds


@pytest.mark.parametrize(("multiple", "outcome"), [("8", "as meant"), ("7", "refuses"), ("0", "as meant")])
def test_first_axis_that_is_regrouped_must_be_a_multiple(toy: Toy, multiple: str, outcome: str) -> None:
    profile = {"loaders": PROFILE["loaders"] | {"own": {"other": "AssertionError", "uneven": "RuntimeError"}}}
    made = toy(profile, **KEEP, params={FC: WHOLE | {"loader": "own", "multiple": multiple}})
    assert (made.outcome, made.refusal.error if made.refusal else "") == (
        outcome,
        "RuntimeError" if outcome == "refuses" else "",
    )
    assert toy(**KEEP, params={FC: WHOLE | {"multiple": multiple}}).outcome == "as meant"  # it is not regrouped


def test_config_that_names_no_architecture(toy: Toy) -> None:
    bare = {k: v for k, v in row(outcome="refuses", error="KeyError").items() if k != "when"}
    other = bare | {"error": "IndexError"}
    for config in ({"architectures": None}, {"architectures": []}, {"architectures": b.ABSENT}):
        assert toy({"unregistered": bare, "unnamed": other}, config).refusal.error == "IndexError"  # type: ignore[union-attr]
        assert toy({"unregistered": bare}, config).refusal.error == "KeyError"  # type: ignore[union-attr]
    assert toy({"unregistered": bare, "unnamed": other}, {"architectures": ["X"]}).refusal.error == "KeyError"  # type: ignore[union-attr]
    assert toy({}, {"architectures": ["X"]}).outcome == "unknown"  # nobody read what happens then


def test_first_architecture_alone_may_count(toy: Toy) -> None:
    config = {"architectures": ["Other", "LlamaForCausalLMEagle3"]}
    assert toy({}, config).class_ == "toy-one"
    assert toy({"first": True}, config).class_ == ""


@pytest.mark.parametrize(
    ("ids", "capture", "captured"),
    [
        ([9, 2, 6], {}, [2, 6, 9]),
        ([9, 2, 6], {"ordered": True}, [9, 2, 6]),
        ([2, 2, 6], {}, [2, 6]),
        ([2, 2, 6], {"ordered": True}, [2, 2, 6]),
        ([2.0, 6, 9], {}, [2, 6, 9]),
        ([2.0, 6, 9], {"whole": True}, [3, 7, 10]),  # the nested key's
        ([2.5, 6, 9], {}, [3, 7, 10]),
        ([1e400, 6, 9], {}, [3, 7, 10]),
        ([float("nan"), 6, 9], {}, [3, 7, 10]),
    ],
)
def test_ids_that_are_captured_in_their_order_and_that_are_no_numbers(
    toy: Toy, ids: list[Any], capture: dict[str, Any], captured: list[int]
) -> None:
    made = toy({"captures": [CAPTURE | {"odd": "next"} | capture]}, {TOP: ids})
    assert made.captured == captured


@pytest.mark.parametrize(
    ("ends", "ids", "lost", "outcome"),
    [
        ({}, [2, 6, 13], [13], "degrades"),  # lost without a word
        ({"checked_high": "14"}, [2, 6, 13], [13], "degrades"),
        ({"checked_high": "12"}, [2, 6, 13], [13], "refuses"),
        ({"checked_high": "12"}, [2, 6, 11], [], "degrades"),
        ({"checked_low": "-2"}, [-1, 2, 6], [-1], "degrades"),
        ({"checked_low": "0"}, [-1, 2, 6], [-1], "refuses"),
        ({"checked_low": "drafter.odd"}, [2, 6, 9], [], "unknown"),
        ({"high": "drafter.model_type"}, [2, 6, 9], [], "unknown"),  # which is no number
    ],
)
def test_boundaries_that_are_refused_where_others_are_lost(
    toy: Toy, ends: dict[str, str], ids: list[int], lost: list[int], outcome: str
) -> None:
    outside = {"outside": "IndexError"} if {"checked_low", "checked_high"} & ends.keys() else {}
    made = toy({"captures": [CAPTURE | ends | outside]}, {TOP: ids}, facts=TRAINED)
    assert (made.lost, made.outcome) == (lost, outcome)


@pytest.mark.parametrize(("count", "captured"), [("3", [1, 5, 9]), ("5", [1, 3, 5, 7, 9]), ("1", [5]), ("0", [5])])
def test_default_layers_that_are_spread_evenly(toy: Toy, count: str, captured: list[int]) -> None:
    made = toy({"captures": [CAPTURE | {"keys": [], "default": ["1", "n - 3"], "spaced": count}]})
    assert made.captured == captured


def test_rows_and_columns_of_the_tensor_that_plays_a_part(toy: Toy) -> None:
    assert degrades(toy, f"rows.fusion == {b.HIDDEN} and columns.fusion == {3 * b.HIDDEN} and rows.map == {b.DRAFT}")
    assert not degrades(toy, "stated(rows.embedding)")
    asked = toy({"rows": [row(when="stated(rows.fusion)")]}, table=False)
    assert asked.outcome == "unknown"  # no tensor was read
    assert [e.subject for e in asked.effects if e.outcome == "degrades"] == []


@pytest.mark.parametrize(("when", "holds"), [
    ("stored.count == 16", False),
    ('stored.dtype == "BF16"', True),
    ('stored.weights == "read" and stored.config == "read" and stored.index == "same"', True),
    ("stored.listed", False),  # it is in memory
    ("stored.later", False),
    ('"STF216" in stored.faults', False),
    ('stored.torn == ""', True),
])  # fmt: skip
def test_what_is_stored(toy: Toy, when: str, holds: bool) -> None:
    assert degrades(toy, when) is holds


def folder(root: Path, library: Library, change: Any) -> Prediction:
    """Return what the engine is predicted to do with a drafter's folder, of which a change spoils something."""
    place = root / "drafter"
    b.write(place, b.dense_config(), b.dense())
    change(place)
    case = api.examine(str(place), None, library)
    view = case.drafter or case.bare
    assert view is not None
    return predict(library.get("profile", "toy")[0], library, view)


SPOILT: dict[str, Any] = {
    'stored.config == "CFG302"': lambda p: (p / "config.json").write_text("{"),
    'stored.config == "CFG303" and stored.kind == "list"': lambda p: (p / "config.json").write_text("[]"),
    'stored.config == "CFG303" and stored.kind == "null"': lambda p: (p / "config.json").write_text("null"),
    'stored.config == "CFG301"': lambda p: (p / "config.json").unlink(),
    'stored.weights == "none"': lambda p: (p / "model.safetensors").unlink(),
    'stored.weights == "none" and stored.config == "SRC114"': lambda p: [one.unlink() for one in p.iterdir()],
    'stored.weights == "unreadable" and damaged("*.safetensors") and "STF216" in stored.faults': lambda p: (
        p / "model.safetensors"
    ).write_bytes((p / "model.safetensors").read_bytes()[:-64]),
    'stored.weights == "unreadable" and damaged("*.safetensors") and "STF201" in stored.faults': lambda p: (
        p / "model.safetensors"
    ).write_bytes(b"1234"),
    'stored.weights == "read" and damaged("*.safetensors") and not damaged("m*")': lambda p: (
        p / "other.safetensors"
    ).write_bytes(b"1234"),
    'stored.later and not damaged("*.safetensors")': lambda p: (
        (p / "other.safetensors").write_bytes((p / "model.safetensors").read_bytes() + b"")
        and (p / "other.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    ),
    'stored.index == "no JSON"': lambda p: (p / "model.safetensors.index.json").write_text("{"),
    'stored.index == "list"': lambda p: (p / "model.safetensors.index.json").write_text("[]"),
    'stored.index == "no weight_map"': lambda p: (p / "model.safetensors.index.json").write_text("{}"),
    'stored.index == "weight_map list"': lambda p: (p / "model.safetensors.index.json").write_text(
        '{"weight_map": []}'
    ),
    'stored.index == "odd"': lambda p: (p / "model.safetensors.index.json").write_text('{"weight_map": {"fc": 3}}'),
    'stored.index == "empty"': lambda p: (p / "model.safetensors.index.json").write_text('{"weight_map": {}}'),
    'stored.torn == "zip"': lambda p: (p / "model.safetensors").rename(p / "pytorch_model.bin").write_bytes(b"PK\3\4"),
    'stored.torn == "other"': lambda p: (p / "model.safetensors").rename(p / "pytorch_model.bin").write_bytes(b"text"),
    'stored.torn == "zeros"': lambda p: (p / "model.safetensors").rename(p / "pytorch_model.bin").write_bytes(bytes(9)),
    'stored.torn == "nothing"': lambda p: (p / "model.safetensors").rename(p / "pytorch_model.bin").write_bytes(b""),
}


@pytest.mark.parametrize("when", SPOILT)
def test_files_that_are_damaged_or_not_there(tmp_path: Path, when: str) -> None:
    rows = [row(when=when, outcome="refuses", error="KeyError")]
    library = written(tmp_path / "contracts", {**PROFILE, "rows": rows}, CLASS)
    assert library.get("profile", "toy")[1] == ()
    made = folder(tmp_path, library, SPOILT[when])
    assert any(e.subject == "row" and e.error == "KeyError" for e in made.effects), made.effects
    assert folder(tmp_path / "whole", library, lambda p: None).refusal is None


@pytest.mark.parametrize(("misread", "outcome", "error"), [
    ({}, "unknown", ""),
    ({"STF216": "ValueError"}, "refuses", "ValueError"),
    ({"STF216": "unknown"}, "unknown", ""),
    ({"STF213": "ValueError"}, "unknown", ""),
])  # fmt: skip
def test_tensor_whose_bytes_are_not_all_there(
    tmp_path: Path, misread: dict[str, str], outcome: str, error: str
) -> None:
    last = max(b.dense())  # a writer sorts them
    profile = {**PROFILE, "misread": misread}
    params = {last: {"shape": [str(n) for n in b.dense()[last][1]], "loader": "exact"}}
    library = written(tmp_path / "contracts", profile, {**CLASS, "params": params, "skips": [
        {"match": name} for name in b.dense() if name != last]})  # fmt: skip
    made = folder(tmp_path, library, lambda p: (p / "model.safetensors").write_bytes(
        (p / "model.safetensors").read_bytes()[:-64]))  # fmt: skip
    hit = [e for e in made.effects if e.subject == last]
    assert [(e.outcome, e.error) for e in hit] == ([(outcome, error)] if misread.get("STF216") else [])


LAYER = ("BF16", (b.HIDDEN,))
THEIRS = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")


@pytest.mark.parametrize(
    ("more", "borrowed"),
    [
        ({}, True),
        ({f"model.layers.{b.LAYERS}.enorm.weight": LAYER}, True),  # behind those that its config counts
        ({"model.layers.0.input_layernorm.weight": LAYER}, False),
        ({f"language_model.model.layers.{b.LAYERS - 1}.input_layernorm.weight": LAYER}, False),
    ],
)
def test_target_whose_files_hold_none_of_its_layers_is_a_stand_in(tmp_path: Path, more: Any, borrowed: bool) -> None:
    library = written(tmp_path / "contracts", {**PROFILE, "rows": [row(when="stored.borrowed")]}, CLASS)
    profile, _ = library.get("profile", "toy")
    table = {name: row for name, row in b.target().items() if name in THEIRS} | more
    config = b.target_config(num_hidden_layers=b.LAYERS)
    there = b.write(tmp_path / "target", config, table)
    drafter = b.given(b.dense_config(), b.dense(), b.DRAFTER)
    for target, seen in ((str(there), borrowed), (b.given(config, table, b.TARGET), False)):
        case = api.examine(drafter, target, library, facts={})
        made = predict(profile, library, case.drafter, case.target, case.couple)
        assert any(e.subject == "row" for e in made.effects) is seen


@pytest.mark.parametrize(("late", "error"), [(False, "KeyError"), (True, "TypeError")])
def test_what_comes_late_is_refused_after_the_tensors(toy: Toy, late: bool, error: str) -> None:
    rows = [row(outcome="refuses", error="KeyError", stage="load", late=late)]
    made = toy({"rows": rows}, skips=[{"match": "*", "as": "TypeError"}])
    assert made.refusal is not None
    assert made.refusal.error == error


@pytest.mark.parametrize(("early", "error"), [(False, "AssertionError"), (True, "KeyError")])
def test_tensor_that_is_passed_over_before_anything_is_loaded(toy: Toy, early: bool, error: str) -> None:
    params = {FC: {"shape": ["1"], "loader": "exact"}}
    others = [{"match": glob} for glob in ("midlayer.*", "lm_head*", "?2?", "embed*")]
    made = toy(skips=[{"match": "norm.weight", "as": "KeyError", "early": early}, *others], params=params)
    assert made.refusal is not None
    assert made.refusal.error == error


@pytest.mark.parametrize(("plain", "outcome"), [("true", "refuses"), ("false", "as meant"), (None, "as meant")])
def test_parameter_that_is_plain_takes_no_quantised_tensor(toy: Toy, plain: str | None, outcome: str) -> None:
    config = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}}
    name = "midlayer.mlp.up_proj.weight"
    tensors = {name: ("F8_E4M3", (b.INTER, b.HIDDEN)), f"{name}_scale": ("F32", ())}
    params = {name: {"shape": [str(b.INTER), "width"], "loader": "exact"} | ({"plain": plain} if plain else {})}
    made = toy(None, config, tensors, skips=[{"match": "*", "lost": True}], params=params, unknown="KeyError")
    assert toy.case.drafter is not None
    assert toy.case.drafter.logical is not None
    assert name in toy.case.drafter.logical.stored
    assert (made.outcome, made.refusal.error if made.refusal else "") == (
        outcome,
        "KeyError" if outcome == "refuses" else "",
    )


def test_drafter_of_no_known_family_is_never_as_meant(toy: Toy) -> None:
    made = toy()
    assert made.outcome == "as meant"
    assert toy.case.drafter is not None
    assert predict(made.profile, toy.library, replace(toy.case.drafter, contract=None)).outcome == "unknown"


def test_method_that_no_row_gives_is_not_known(toy: Toy) -> None:
    assert toy({"methods": [{"is": "eagle3", "when": "n == 1"}]}).outcome == "unknown"
    assert toy({"methods": [{"is": "eagle3", "when": "n == 12"}]}).outcome == "as meant"


@pytest.mark.parametrize("named", [3, True, "LlamaForCausalLM", {"a": 1}, [None, 3]])
def test_target_whose_architectures_are_no_list_is_not_known_to_serve(toy: Toy, named: Any) -> None:
    bare = {k: v for k, v in row(outcome="refuses", error="RuntimeError", see="not {name}").items() if k != "when"}
    made = toy({"hookless": bare, "hooks": {"eagle3": ["Llama*"]}, "targets": ["Llama*"]})
    assert made.outcome == "as meant"
    assert toy.case.target is not None
    other = b.given(b.target_config(architectures=named), b.target(), b.TARGET)
    drafter = b.given(b.dense_config(), b.dense(), b.DRAFTER)
    case = api.examine(drafter, other, toy.library, family="eagle3")
    assert case.drafter is not None
    assert predict(made.profile, toy.library, case.drafter, case.target, case.couple).outcome == "unknown"


def test_class_that_is_not_known_is_told_once_and_not_with_each_row_that_asks_for_it() -> None:
    library = Library()
    drafter, target = b.dense_config(), b.target_config()
    del drafter["architectures"]
    made = api.examine(
        b.recorded(drafter, None, unknown=["architectures"]), b.recorded(target, None, "target"), library
    )
    assert made.drafter is not None
    for id in ("vllm", "sglang", "llama.cpp"):
        profile, _ = library.get("profile", id)
        found = predict(profile, library, made.drafter, made.target, made.couple).effects
        whys = [
            e.subject for e in found if e.outcome == "unknown" and e.see.startswith("architectures was not published")
        ]
        assert whys in (["architectures"], ["architectures", "aux layers"])


def test_layers_of_a_target_that_are_as_the_first_are_asked_for_once() -> None:
    def layer(number: int, rows: int = 4) -> dict[str, Tensor]:
        return {f"model.layers.{number}.q.weight": Tensor("F32", (rows, 4), 0, 0)}

    table = Table({**layer(0), **layer(1), **layer(2, rows=5), **layer(3), "norm.weight": Tensor("F32", (4,), 0, 0)})
    left, alike = engines._unlike_the_first(table)
    assert alike == {1}  # the last stays, whatever it holds: it may be one too many
    assert list(left.tensors) == [*layer(0), *layer(2), *layer(3), "norm.weight"]
    assert engines._unlike_the_first(Table(layer(5)))[1] == frozenset()
