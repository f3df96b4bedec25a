"""The rows of docs/faults.md are whole, each has a test, and each code that they name is one."""

from __future__ import annotations

import re
from pathlib import Path

from draftproof.rules import RULES

ROWS = {"P": 32, "G": 15, "A": 17, "X": 12}  # rows that must be there
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def test_every_row_has_a_test_and_every_code_is_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d\d[a-z]?) \| (.+?) \| (.+?) \| (.+?) \| `(test_\w+)` \|$", text, re.MULTILINE)
    there = {row[0] for row in rows}
    wanted = {f"{letter}{n:02}" for letter, count in ROWS.items() for n in range(1, count + 1)}
    assert wanted <= there
    assert len(rows) == len(there) == sum(line.startswith("| ") for line in text.splitlines()) - len(ROWS)
    assert all(row[4].startswith(f"test_{row[0][:3].lower()}_") for row in rows)
    assert set(re.findall(r"\[([A-Z]{3}\d{3})\]", text)) <= set(RULES)
