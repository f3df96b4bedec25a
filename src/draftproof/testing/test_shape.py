"""The suite's test classes, for any repository: ``from draftproof.testing import TestShape`` in a test module.

Pairs are read from ``contracts/pairs/`` below the root of that repository (ini key ``draftproof_contracts``); families,
targets and engines come from there and from draftproof. Each class gives one test per pair and rung.
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["TestShape"]


@pytest.mark.shape
class TestShape:
    """Hold each pair to rungs 1 to 3, from configs and headers alone."""

    def test_conforms(self, draftproof_verify: Any) -> None:
        """Check that both checkpoints are well formed for their contracts, and that the contracts are."""
        draftproof_verify("contract", "conforms")

    def test_fits(self, draftproof_verify: Any) -> None:
        """Check that the drafter fits the target."""
        draftproof_verify("fits")

    def test_loads(self, draftproof_verify: Any, draftproof_engine: str) -> None:
        """Check that each engine runs the drafter as meant: those of --engine, else those that the pair names."""
        draftproof_verify("launch", f"loads {draftproof_engine}")
