"""The table of codes: each is emitted by something, and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from draftproof.rules import BANDS, RULES

ROOT = Path(__file__).parents[2]
SOURCES = [p for p in (ROOT / "src" / "draftproof").glob("*.py") if p.name != "rules.py"]
TEXT = "\n".join(p.read_text(encoding="utf-8") for p in (*SOURCES, *(ROOT / "contracts").rglob("*.toml")))
EMITTED = set(re.findall(r'"([A-Z]{3,4}\d{3})"', TEXT))


@pytest.mark.parametrize("code", RULES)
def test_every_code_is_emitted_by_something(code: str) -> None:
    assert code in EMITTED


def test_every_code_that_is_emitted_is_in_the_table() -> None:
    assert {code for code in EMITTED if code.startswith(tuple(BANDS))} == set(RULES)


def test_table_stands_in_the_order_of_bands_and_codes() -> None:
    assert list(RULES) == sorted(RULES, key=lambda code: ([*BANDS].index(code.rstrip("0123456789")), code))


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_every_rule_says_why_and_what_to_do(rule: object) -> None:
    assert 0 < len(rule.summary) < 80  # type: ignore[attr-defined]
    assert rule.why.endswith(".")  # type: ignore[attr-defined]
    assert rule.fix.endswith(".")  # type: ignore[attr-defined]
