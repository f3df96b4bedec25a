"""Other faults of the kinds that the corpus shows: other families, sizes, keys and sides than those of its reports."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from draftproof.library import Library
from draftproof.testing import corpus

LIBRARY = Library()
# The same language as the corpus; each names the report whose kind it varies. `expect` is code, level, what it shows.
VARIANTS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("variants.toml").read_text(encoding="utf-8")
)["case"]


def case_of(id: str) -> corpus.Case:
    row = VARIANTS[id]
    expect = tuple(corpus.Expected(e[0], tuple(e[2:]), e[1]) for e in row["expect"])
    return corpus.Case(id, id.partition("-")[0], "", "", id, expect, tuple(row.get("also", ())),
                       family=row.get("family", ""), parts=row)  # fmt: skip


@pytest.mark.parametrize("id", VARIANTS)
def test_variant_is_caught_with_its_numbers_and_its_right_twin_passes(id: str, tmp_path: Path) -> None:
    case = case_of(id)
    result = corpus.judge(case, corpus.build(case, tmp_path), LIBRARY)
    assert result.missed == ()
    assert result.alarms == ()
