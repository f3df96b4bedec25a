"""Reports that came after the corpus: what is typed and what is in the files is told with its numbers, and no more."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from draftproof.library import Library
from draftproof.testing import corpus

LIBRARY = Library()
REPORTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("reports.toml").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the models of these reports to those of the corpus."""
    for kind in ("model", "layout"):
        for name, made in REPORTS[kind].items():
            assert name not in corpus._DATA[kind]
            monkeypatch.setitem(corpus._DATA[kind], name, made)


def case_of(id: str) -> corpus.Case:
    row = REPORTS["case"][id]
    expect = tuple(corpus.Expected(e["code"], tuple(e["shows"]), e["level"]) for e in row["expect"])
    also = tuple(row.get("also", ()))
    return corpus.Case(id, id, "", row["url"], row["fault"], expect, also, row.get("family", ""), row)


@pytest.mark.parametrize("id", REPORTS["case"])
def test_later_report_is_caught_and_its_right_twin_passes(id: str, tmp_path: Path) -> None:
    case = case_of(id)
    assert case.url.startswith("https://github.com/")
    assert case.expect
    result = corpus.judge(case, corpus.build(case, tmp_path), LIBRARY)
    assert result.missed == ()
    assert result.alarms == ()
