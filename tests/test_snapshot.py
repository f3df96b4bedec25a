"""The resolved view of every pair, for review: what is required of each tensor, as expression and as value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.location import PyTestLocation

from draftproof.api import pair_view
from draftproof.library import Library

ROOT = Path(__file__).parents[1]
LIBRARY = Library(ROOT / "contracts", shipped=False)  # of this tree, whatever is installed


class PairSnapshots(JSONSnapshotExtension):
    """Keep one file per pair in snapshots/ at the top level."""

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        return str(ROOT / "snapshots" / test_location.basename)


@pytest.mark.snapshot
@pytest.mark.parametrize("id", LIBRARY.files("pair"))
def test_pair(id: str, snapshot: Any) -> None:
    pair, found = LIBRARY.get("pair", id)
    assert not found
    assert pair_view(pair, LIBRARY) == snapshot(extension_class=PairSnapshots)
