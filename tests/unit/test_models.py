"""What is known of models beyond their files, what pairs accept together, and the pairs that ship."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import api
from draftproof.contracts import Pair
from draftproof.hub import Source, open_model, recorded_repos
from draftproof.library import Library
from draftproof.recognise import rank

RECORDINGS = api.recordings(b.LIBRARY)
REPOS = sorted(recorded_repos(RECORDINGS))


def opened(repo: str) -> Source:
    source = open_model(repo, RECORDINGS)
    assert isinstance(source, Source), source
    return source


def put(root: Path, folder: str, id: str, text: str) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    kind = {"models": "model", "pairs": "pair", "acceptances": "acceptance"}[folder]
    (root / folder / f"{id}.toml").write_text(f'schema = 1\nkind = "{kind}"\nid = "{id}"\n{text}', encoding="utf-8")


def side(report: Any, role: str) -> str:
    return {s.role: s.name for s in report.sides}[role]


# --- aliases ------------------------------------------------------------------------------------------------------

K25 = "AQ-MedAI/Kimi-K25-eagle3"


@pytest.mark.parametrize("name", ["Kimi-K2.5", "kimi-k2.5", "moonshotai/kimi-k2.5"])
def test_alias_of_a_target_is_the_target_whatever_its_letters(name: str) -> None:
    report = api.check(K25, name)
    assert side(report, "target") == "moonshotai/Kimi-K2.5"
    assert b.codes(report) == b.codes(api.check(K25, "moonshotai/Kimi-K2.5"))


def test_declared_verifier_may_be_an_alias() -> None:
    config = dict(opened(K25).config or {}) | {"speculators_config": {"verifier": {"name_or_path": "Kimi-K2.5"}}}
    report = api.check({"config": config, "state_dict": b.dense(), "name": "org/own"})
    assert side(report, "target") == "moonshotai/Kimi-K2.5"
    held = {f.code: f.message for f in report.findings if f.level == "pass"}
    assert held["PAIR416"] == "moonshotai/Kimi-K2.5"
    assert held["PAIR417"].startswith("trained on Kimi-K2.5 (drafter config.json: speculators_config")
    other = api.check({"config": config, "state_dict": b.dense(), "name": "org/own"}, "moonshotai/Kimi-K2-Instruct")
    assert "both come from moonshotai/kimi-k2-base" in b.text(other)


def test_alias_with_a_commit_asks_for_that_commit() -> None:
    report = api.check(K25, f"Kimi-K2.5@{'f' * 40}")
    assert "SRC119" in b.codes(report)


def test_alias_of_two_models_is_of_neither_and_both_are_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put(tmp_path, "models", f"org--{name}", f'repo = "org/{name}"\naliases = ["Both"]\n')
    report = api.check(K25, "Both", contracts=tmp_path)
    assert "org/one and org/two both go by it" in b.text(report)
    assert report.exit_code == 2


def test_alias_of_a_model_that_is_not_recorded_names_the_model(tmp_path: Path) -> None:
    put(tmp_path, "models", "org--one", 'repo = "org/one"\naliases = ["One"]\n')
    report = api.check(K25, "One", contracts=tmp_path)
    assert "SRC112 unknown" in b.codes(report)
    assert "org/one" in b.text(report)


def test_folder_of_the_same_name_wins_over_an_alias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    b.write(tmp_path / "Kimi-K2.5", b.target_config(), b.target())
    assert side(api.check(K25, "Kimi-K2.5"), "target") == "Kimi-K2.5"


def test_name_that_nobody_goes_by_stays_a_usage_error() -> None:
    report = api.check(K25, "Kimi-K9")
    assert "SRC117" in b.codes(report)


def test_no_alias_that_ships_means_two_models_or_hides_one() -> None:
    models = [model for _, model, _ in b.LIBRARY.all("model")]
    names = [alias.lower() for model in models for alias in model.aliases]
    assert names
    assert len(names) == len(set(names))
    assert not set(names) & {repo.lower() for repo in REPOS}


# --- the contract that speaks of a model -----------------------------------------------------------------------------


def test_declared_contract_speaks_of_a_model_of_which_only_the_name_is_known() -> None:
    report = api.check("nvidia/gpt-oss-120b-Eagle3-v3")
    assert report.sides[0].contract == "eagle3"
    assert report.verdict == "unknown"
    assert not [f for f in report.findings if f.level in ("error", "warning")]


def test_declared_contract_does_not_speak_where_tensors_were_read(tmp_path: Path) -> None:
    put(tmp_path, "models", "org--drafter", 'repo = "org/drafter"\ncontract = { value = "dflash", source = "s" }\n')
    library = Library(tmp_path)
    for provenance, contract in (("derived", "dflash"), ("partial", "dflash"), ("recorded", "eagle3")):
        source = b.recorded(b.dense_config(), b.dense())
        source.provenance = provenance
        assert [s.contract for s in b.check(source, library=library).sides] == [contract]


def test_declared_contract_that_does_not_exist_is_an_error_of_the_file(tmp_path: Path) -> None:
    put(tmp_path, "models", "org--a", 'repo = "org/a"\ncontract = { value = "eagle33", source = "s" }\n')
    _, found = Library(tmp_path).get("model", "org--a")
    assert [(f.code, f.observed) for f in found] == [("CON113", "eagle33 (did you mean 'eagle3'?)")]


@pytest.mark.parametrize("repo", REPOS)
def test_what_its_architecture_tells_is_what_is_declared(repo: str) -> None:
    """Where a recording's own architecture is known to one contract, a declaration may only agree."""
    model, _ = b.LIBRARY.model(repo)
    if model is None or model.contract is None:
        return
    kind = "target" if model.contract.value in b.LIBRARY.files("target") else "family"
    checkpoint = api.Checkpoint(opened(repo), "drafter")
    architectures = checkpoint.config.texts("architectures")
    sure = [
        id
        for _, id in rank(b.LIBRARY, checkpoint, kind, 8)
        if set(architectures) & set(b.LIBRARY.detect(kind, id).get("any_architecture", ()))
    ]
    assert set(sure) <= {model.contract.value}


# --- what pairs accept together --------------------------------------------------------------------------------------

SHARED = 'title = "t"\nprovenance = ["derived"]\nexpect_unknown = [{ code = "TEN400", because = "not read" }]\n'
LISTED = f'title = "t"\ndrafter = {{ model = "{K25}" }}\ntarget = {{ model = "moonshotai/Kimi-K2.5" }}\n'


def shared(root: Path, text: str, accepts: str = 'accepts = ["mine"]\n') -> Any:
    put(root, "acceptances", "mine", text)
    put(root, "pairs", "p", LISTED + accepts)
    return api.check_pair_id("p", Library(root))


def test_shared_acceptance_accepts_for_a_pair_that_names_it_and_stays_unknown(tmp_path: Path) -> None:
    report = shared(tmp_path, SHARED)
    assert {f.accepted for f in report.findings if f.code == "TEN400"} == {"not read"}
    assert (report.verdict, report.exit_code) == ("unknown", 4)
    report = shared(tmp_path, SHARED, "")
    assert {f.accepted for f in report.findings if f.code == "TEN400"} == {""}


def test_shared_acceptance_counts_only_for_the_provenance_it_speaks_of(tmp_path: Path) -> None:
    report = shared(tmp_path, SHARED.replace("derived", "partial"))
    assert {f.accepted for f in report.findings if f.code == "TEN400"} == {""}
    assert "CON112" in b.codes(report)
    assert "p: accepts mine" in b.text(report)


def test_shared_acceptance_that_matches_nothing_is_a_finding_at_the_pairs_line(tmp_path: Path) -> None:
    report = shared(tmp_path, SHARED.replace("TEN400", "TEN401"))
    stale = [f for f in report.findings if f.code == "CON112"]
    assert [f.contract.rpartition("/")[2] for f in stale] == ["p.toml:7"]
    assert report.exit_code == 2


def test_shared_acceptance_may_allow_a_failure(tmp_path: Path) -> None:
    put(tmp_path, "acceptances", "mine", 'title = "t"\nallow = [{ code = "PAIR403", because = "short" }]\n')
    own = LISTED.replace(K25, "AQ-MedAI/Kimi-K2-Instruct-eagle3")
    put(tmp_path, "pairs", "p", f'{own}accepts = ["mine"]\n')
    report = api.check_pair_id("p", Library(tmp_path))
    assert [f.accepted for f in report.findings if f.code == "PAIR403"] == ["short"]
    assert report.verdict == "unknown"


def test_row_with_what_was_seen_covers_only_that(tmp_path: Path) -> None:
    row = '{ code = "PAIR408", observed = "not declared", because = "b" }'
    text = f'title = "t"\nexpect_unknown = [{row}]\n'
    assert {f.accepted for f in shared(tmp_path, text).findings if f.code == "PAIR408"} == {"b"}
    other = text.replace("not declared", "*published*")
    assert {f.accepted for f in shared(tmp_path, other).findings if f.code == "PAIR408"} == {""}


def test_acceptance_that_does_not_exist_is_an_error_of_the_pair(tmp_path: Path) -> None:
    report = shared(tmp_path, SHARED, 'accepts = ["mien"]\n')
    assert [(f.code, f.observed) for f in report.findings] == [("CON113", "mien (did you mean 'mine'?)")]


def test_broken_acceptance_is_told_and_accepts_nothing(tmp_path: Path) -> None:
    report = shared(tmp_path, SHARED.replace("because", "becaus"))
    assert {"CON103", "CON105"} <= b.codes(report)
    assert {f.accepted for f in report.findings if f.code == "TEN400"} == {""}
    assert report.exit_code == 2


def test_each_shared_row_that_ships_is_needed_by_a_pair() -> None:
    needed: set[str] = set()
    for id, _, _ in b.LIBRARY.all("pair"):
        needed |= {f.accepted for f in api.check_pair_id(id, b.LIBRARY).findings}
    rows = [row for _, one, _ in b.LIBRARY.all("acceptance") for row in (*one.allow, *one.expect_unknown)]
    assert [row.because for row in rows if row.because not in needed] == []


def test_of_a_config_in_part_nothing_is_said_to_be_absent() -> None:
    """What was not published may stand there: no finding may build on its absence."""
    partial = [repo for repo in REPOS if opened(repo).provenance == "partial"]
    seen = {f.code for repo in partial for f in api.check(repo).findings if f.level in ("error", "warning", "info")}
    assert seen <= {"CFG320", "PAIR403", "PAIR413", "PAIR422"}  # of values that are published, and targets given alone


@pytest.mark.parametrize(
    ("drafter", "target", "said"),
    [
        ("deepseek-ai/DeepSeek-V3.2", None, "a target (deepseek-v3)"),
        (K25, "nebius/EAGLE3-gpt-oss-20b", "a drafter (eagle3)"),
    ],
)
def test_model_declared_to_be_one_side_is_refused_as_the_other(drafter: str, target: str | None, said: str) -> None:
    report = api.check(drafter, target)
    (found,) = [f for f in report.findings if f.code == "PAIR422" and f.level == "error"]
    assert found.observed.endswith(said)
    assert report.exit_code == 1


def test_shape_that_is_not_known_names_the_sizes_that_are_not() -> None:
    report = api.check_pair_id("z-lab-kimi-k25-dflash", b.LIBRARY)
    (said,) = [f for f in report.findings if f.code == "PAIR401" and f.subject == "fc.weight"]
    assert said.observed == "not known: target.hidden"
    assert all(not f.observed.endswith(": ") for f in report.findings)


# --- pairs -----------------------------------------------------------------------------------------------------------


def test_every_drafter_that_is_known_to_be_of_a_target_has_a_pair_with_it() -> None:
    pairs = [pair for _, pair, _ in b.LIBRARY.all("pair") if isinstance(pair, Pair)]
    there = {(pair.drafter, pair.target) for pair in pairs}
    facts = {repo: b.LIBRARY.model(repo)[0] for repo in REPOS}
    wanted = {(r, str(m.facts["trained_on"].value)) for r, m in facts.items() if m and "trained_on" in m.facts}
    assert wanted <= there
    assert len(wanted) == 57


@pytest.mark.parametrize("id", b.LIBRARY.files("pair"))
def test_shipped_pair_says_nothing_that_it_does_not_accept(id: str) -> None:
    report = api.check_pair_id(id, b.LIBRARY)
    assert [f for f in report.findings if f.fails("unknown")] == []
    assert report.verdict != "fail"
