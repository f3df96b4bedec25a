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
    """Hold each pair to rungs 1 and 2, from configs and headers alone."""

    def test_conforms(self, draftproof_verify: Any) -> None:
        """Check that both checkpoints are well formed for their contracts, and that the contracts are."""
        draftproof_verify("contract", "conforms")

    def test_fits(self, draftproof_verify: Any) -> None:
        """Check that the drafter fits the target."""
        draftproof_verify("fits")
