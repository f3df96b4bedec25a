"""A hostile Hub that answers each request with a random fault: reads end in time, raise nothing and judge truly."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from faults.fuzz import FAULTS, SLACK, fuzz

RUNS = 200


def test_hostile_hub(online: Callable[[str], None], tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**9)
    wrong, late, hits = fuzz(RUNS, seed, tmp_path)
    assert wrong == [], f"again with: python tests/faults/fuzz.py --runs {RUNS} --seed {seed}"
    assert late < SLACK, f"a read ended {late:.2f} s after its deadline; first seed {seed}"
    assert set(hits) == set(FAULTS), "each fault was met"
