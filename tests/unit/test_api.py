"""The Python API: draftproof.check on folders, ids and state_dicts, what it answers, and what it does with nonsense."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

import builder
import draftproof
from draftproof import adapt, api
from draftproof.findings import LEVELS, Finding, Report, Section, finding, holds, unknown, verdict_of
from draftproof.library import Library
from draftproof.rules import RULES

FOUNDING = ("AQ-MedAI/Kimi-K2-Instruct-eagle3", "moonshotai/Kimi-K2.5")
UNJUDGED = {"PAIR408 unknown", "PAIR417 unknown"}  # the convention and the lineage, which no file declares


class Config:
    """A config object as transformers has them."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def to_dict(self) -> dict[str, Any]:
        return self.data


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builder.write(tmp_path_factory.mktemp("api") / "drafter", builder.dense_config(), builder.dense())


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builder.write(tmp_path_factory.mktemp("api") / "target", builder.target_config(), builder.target())


def in_memory(tensors: Any, **changes: Any) -> dict[str, Any]:
    return {"config": builder.dense_config(**changes), "state_dict": tensors}


# --- what can be given --------------------------------------------------------------------------------------------


def test_folders_are_taken_as_text_and_as_path(drafter: Path, target: Path) -> None:
    text = draftproof.check(str(drafter), str(target))
    assert builder.codes(text) == UNJUDGED
    assert draftproof.check(drafter, target).findings == text.findings


def test_folder_is_taken_relative_to_the_current_one(drafter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(drafter.parent)
    assert draftproof.check(Path(drafter.name)).verdict == "pass"
    assert draftproof.check(f"./{drafter.name}").verdict == "pass"
    monkeypatch.chdir(drafter)
    assert draftproof.check(".").verdict == "pass"


def test_ids_are_taken_from_the_recordings_without_a_network() -> None:
    report = draftproof.check(*FOUNDING)
    assert report.verdict == "fail"
    assert "PAIR403" in builder.codes(report)
    assert [s.name for s in report.sides] == list(FOUNDING)


def test_without_a_target_the_declared_one_is_taken() -> None:
    assert [s.name for s in draftproof.check(FOUNDING[0]).sides] == [FOUNDING[0], "moonshotai/Kimi-K2-Instruct"]


def test_dtype_and_shape_pairs_are_taken_in_place_of_tensors(target: Path) -> None:
    assert builder.codes(draftproof.check(in_memory(builder.dense()), target)) == UNJUDGED


def test_tensors_key_is_taken_in_place_of_state_dict(target: Path) -> None:
    model = {"config": builder.dense_config(), "tensors": builder.dense(), "name": "step 100"}
    report = draftproof.check(model, target)
    assert builder.codes(report) == UNJUDGED
    assert report.sides[0].name == "step 100"


def test_numpy_arrays_are_taken(target: Path) -> None:
    numpy = pytest.importorskip("numpy")
    names = {"BF16": "float16", "I64": "int64", "BOOL": "bool"}
    arrays = {n: numpy.zeros(shape, names[dtype]) for n, (dtype, shape) in builder.dense().items()}
    report = draftproof.check(in_memory(arrays, torch_dtype="float16"), target)
    assert builder.codes(report) - {"PAIR414 warning"} == UNJUDGED
    arrays["fc.weight"] = numpy.zeros((64, 256), "float16")
    assert "[64, 256]" in builder.text(draftproof.check(in_memory(arrays), target))


def tensors(table: Mapping[str, tuple[str, tuple[int, ...]]], **more: Any) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    types = {"BF16": torch.bfloat16, "I64": torch.int64, "BOOL": torch.bool}
    return OrderedDict((n, torch.empty(shape, dtype=types[dtype], **more)) for n, (dtype, shape) in table.items())


def test_torch_state_dict_is_taken(target: Path) -> None:
    assert builder.codes(draftproof.check(in_memory(tensors(builder.dense())), target)) == UNJUDGED
    bad = tensors(builder.changed(builder.dense(), {"fc.weight": ("BF16", (64, 256))}))
    report = draftproof.check(in_memory(bad), target)
    assert report.verdict == "fail"
    assert "[64, 256]" in builder.text(report)


def test_no_tensor_data_is_read(target: Path) -> None:
    meta = tensors(builder.dense(), device="meta")
    assert builder.codes(draftproof.check(in_memory(meta), target)) == UNJUDGED


def test_config_object_with_to_dict_is_taken(target: Path) -> None:
    torch = pytest.importorskip("torch")
    config = Config(builder.dense_config(torch_dtype=torch.bfloat16))
    report = draftproof.check({"config": config, "state_dict": builder.dense()}, target)
    assert builder.codes(report) == UNJUDGED


def test_target_is_taken_in_memory_too() -> None:
    other = {"config": Config(builder.target_config()), "state_dict": builder.target()}
    assert builder.codes(draftproof.check(in_memory(builder.dense()), other)) == UNJUDGED


def test_config_without_tensors_is_not_a_pass_of_the_tensor_rules(target: Path) -> None:
    report = draftproof.check({"config": builder.dense_config()}, target)
    assert report.verdict == "unknown"
    assert any(f.code.startswith(("TEN400", "SRC120")) for f in report.findings if f.level == "unknown")


def test_what_is_given_is_not_changed(target: Path) -> None:
    model = in_memory(builder.dense())
    before = json.dumps(model)
    draftproof.check(model, target)
    assert json.dumps(model) == before


def test_order_of_the_state_dict_changes_nothing(target: Path) -> None:
    table = builder.changed(builder.dense(), {"fc.weight": ("BF16", (64, 256)), "norm.weight": None})
    turned = dict(reversed(table.items()))
    assert draftproof.check(in_memory(turned), target) == draftproof.check(in_memory(table), target)


def test_family_is_taken_where_it_cannot_be_told(drafter: Path) -> None:
    report = draftproof.check(drafter, family="eagle3-mla")
    assert report.sides[0].contract == "eagle3-mla"
    assert report.verdict == "fail"


def test_contracts_of_ones_own_are_read(tmp_path: Path, drafter: Path, target: Path) -> None:
    facts = 'trained_on = { value = "org/target", source = "card" }\n'
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "org--drafter.toml").write_text(
        f'schema = 1\nkind = "model"\nid = "org--drafter"\nrepo = "org/drafter"\n{facts}'
    )
    (tmp_path / "recordings").mkdir()
    for folder, role in ((drafter, "drafter"), (target, "target")):
        made, _ = api.record(str(folder), f"org/{role}@{'a' * 40}", Library())
        assert made
        (tmp_path / "recordings" / made["file"]).write_text(json.dumps(made["recording"]))
    for contracts in (tmp_path, str(tmp_path)):
        report = draftproof.check("org/drafter", "org/target", contracts=contracts)
        assert builder.codes(report) == {"PAIR408 unknown"}


def test_folder_of_contracts_that_is_not_there_is_a_finding(tmp_path: Path, drafter: Path) -> None:
    report = draftproof.check(drafter, contracts=tmp_path / "none")
    assert "CON101" in builder.codes(report)
    assert report.exit_code == 2


# --- nonsense -----------------------------------------------------------------------------------------------------

NONSENSE: dict[str, Any] = {
    "number": 5,
    "list": [],
    "bytes": b"",
    "bytes of a path": b"/tmp",
    "none": None,
    "object": object(),
    "class": Config,
    "empty text": "",
    "NUL": "\0",
    "blank": "   ",
    "slashes": "///",
    "endless text": "a" * 100_000,
    "not a user": "~nobody-of-that-name/x",
    "surrogate": "\udcff",
    "empty mapping": {},
    "config is a list": {"config": [], "state_dict": {}},
    "config is a number": {"config": 5, "state_dict": {}},
    "config holds an object": {"config": {"x": object()}, "state_dict": {}},
    "config holds NaN": {"config": {"hidden_size": float("nan")}, "state_dict": {}},
    "config has keys that are no text": {"config": {1: 2, None: 3, "model_type": "llama"}, "state_dict": {}},
    "state_dict is a list": {"config": {}, "state_dict": []},
    "state_dict is an object": {"config": {}, "state_dict": object()},
    "tensors are none": {"config": {}, "state_dict": {"a": None}},
    "tensor is a number": {"config": {}, "state_dict": {"a": 5}},
    "tensor has a bad shape": {"config": {}, "state_dict": {"a": ("F32", ["x", -1, 2.5])}},
    "tensor has a shape of a million dims": {"config": {}, "state_dict": {"a": ("F32", (1,) * 1_000_000)}},
    "tensor names are no text": {"config": {}, "state_dict": {1: ("F32", (1,)), b"x": ("F32", (1,))}},
    "name is no text": {"config": {}, "state_dict": {}, "name": object()},
}


class Raising:
    def to_dict(self) -> dict[str, Any]:
        raise RuntimeError("no config today")


NONSENSE["to_dict raises"] = {"config": Raising(), "state_dict": {}}
LOOP: dict[str, Any] = {"model_type": "llama"}
LOOP["self"] = LOOP
NONSENSE["config holds itself"] = {"config": LOOP, "state_dict": {}}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_as_drafter_is_a_finding_and_never_a_pass(case: str, target: Path) -> None:
    report = draftproof.check(NONSENSE[case], target)
    assert report.verdict != "pass"
    assert builder.against(report)
    assert json.loads(json.dumps(report.to_dict()))["verdict"] == report.verdict


@pytest.mark.parametrize("case", [c for c in NONSENSE if c != "none"])
def test_nonsense_as_target_is_a_finding_and_never_a_pass(case: str, drafter: Path) -> None:
    report = draftproof.check(drafter, NONSENSE[case])
    assert report.verdict != "pass"
    assert any(f.level in ("error", "unknown") for f in report.findings)


@pytest.mark.parametrize("case", ["number", "list", "bytes", "none", "object", "empty text"])
def test_argument_that_names_no_model_says_what_does(case: str) -> None:
    report = draftproof.check(NONSENSE[case])
    assert report.exit_code == 2
    assert 'a folder, ORG/NAME, or {"config": …, "state_dict": …}' in builder.text(report)


@pytest.mark.parametrize("family", ["", "no-such", "../x", "\0", "a" * 10_000])
def test_family_that_is_not_there_is_a_finding(family: str, drafter: Path) -> None:
    report = draftproof.check(drafter, family=family)
    assert report.exit_code == (2 if family else 0)


# --- what it answers ----------------------------------------------------------------------------------------------


def test_report_counts_its_findings_by_level(drafter: Path, target: Path) -> None:
    report = draftproof.check(drafter, target)
    counts = {level: sum(f.level == level for f in report.findings) for level in LEVELS}
    assert report.counts == counts | {"accepted": 0}
    assert (report.verdict, report.exit_code) == ("unknown", 4)


@pytest.mark.parametrize(
    ("levels", "verdict", "code"),
    [
        ((), "unknown", 4),
        (("info",), "unknown", 4),
        (("pass",), "pass", 0),
        (("pass", "info"), "pass", 0),
        (("pass", "warning"), "pass", 0),
        (("warning",), "unknown", 4),
        (("pass", "unknown"), "unknown", 4),
        (("pass", "unknown", "error"), "fail", 1),
    ],
    ids=str,
)
def test_verdict_and_exit_code_follow_from_the_levels(levels: Any, verdict: str, code: int) -> None:
    found = [finding("TEN401", f"t{n}", level=level) for n, level in enumerate(levels)]
    report = Report("x", (Section.of("conforms", found),))
    assert (report.verdict, report.exit_code) == (verdict, code)
    assert verdict_of(found) == verdict


@pytest.mark.parametrize("rung", ["contract", "usage"])
def test_broken_contract_and_wrong_usage_give_2(rung: str) -> None:
    code = next(r.code for r in RULES.values() if r.rung == rung and r.severity == "error")
    assert Report("x", (Section.of("contract", [finding(code, "x")]),)).exit_code == 2


def test_accepted_failures_do_not_fail_and_accepted_unknowns_stay_unknown() -> None:
    error = replace(finding("TEN401", "x"), accepted="because")
    unjudged = replace(unknown("TEN400", "x"), accepted="because")
    passed = holds("TEN402", "x")
    assert verdict_of([error, passed]) == "pass"
    assert verdict_of([unjudged, passed]) == "unknown"
    assert not any(f.fails(level) for f in (error, unjudged) for level in ("error", "warning", "unknown"))


def test_findings_come_in_rung_order_and_worst_first(target: Path) -> None:
    table = builder.changed(builder.dense(), {"fc.weight": ("BF16", (64, 256)), "norm.weight": None})
    report = draftproof.check(in_memory(table, max_position_embeddings=1024), target)
    rungs = [s.rung for s in report.sections]
    assert rungs == [r for r in api.RUNGS if r in rungs]
    for section in report.sections:
        assert list(section.findings) == sorted(section.findings, key=lambda f: f.order)
        assert len(set(section.findings)) == len(section.findings)


def test_same_question_gives_the_same_report_under_another_hash_seed(drafter: Path, target: Path) -> None:
    code = (
        "import draftproof, json, sys\n"
        "reports = [draftproof.check(*sys.argv[1:3]), draftproof.check(*sys.argv[3:])]\n"
        "print(json.dumps([r.to_dict() for r in reports]))"
    )
    words = [
        sys.executable,
        "-c",
        code,
        str(drafter),
        str(target),
        *FOUNDING,
    ]
    said = {
        subprocess.run(words, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_reports_survive_json(drafter: Path, target: Path) -> None:
    for report in (
        draftproof.check(drafter, target),
        draftproof.check(*FOUNDING),
        draftproof.check(5),  # type: ignore[arg-type]
        adapt.adapt(FOUNDING[0], FOUNDING[1], Library()),
        adapt.adapt(str(drafter), str(target), Library()),
    ):
        assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report


@pytest.mark.parametrize("schema", [None, 0, 2, "1", 1.5])
def test_another_schema_is_refused(schema: Any, drafter: Path) -> None:
    data = draftproof.check(drafter).to_dict() | {"schema": schema}
    with pytest.raises(ValueError, match="report schema"):
        Report.from_dict(data)


def test_findings_are_frozen(drafter: Path) -> None:
    report = draftproof.check(drafter)
    with pytest.raises(FrozenInstanceError):
        report.findings[0].level = "pass"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        report.subject = "x"  # type: ignore[misc]


def test_rerun_of_a_report_is_the_command_that_asks_again(drafter: Path, target: Path) -> None:
    assert draftproof.check(drafter, target).rerun == f"draftproof check --drafter {drafter} --target {target}"
    assert draftproof.check(in_memory(builder.dense()), target).rerun == ""


# --- the package --------------------------------------------------------------------------------------------------


def test_public_names_are_what_they_say_and_are_imported_when_used() -> None:
    assert set(draftproof.__all__) == {"check", "Finding", "Report", "__version__"}
    assert draftproof.check is api.check
    assert (draftproof.Finding, draftproof.Report) == (Finding, Report)
    with pytest.raises(AttributeError, match="no_such_name"):
        draftproof.no_such_name  # noqa: B018
    code = "import sys, draftproof; print(sorted(m for m in sys.modules if m.startswith('draftproof')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "['draftproof']\n"
