"""The resolved view of every pair, for review: what is required of each tensor, as expression and as value.

A view that differs from its snapshot fails with what changed, in the field's terms; --snapshot-update accepts it,
unless a finding fails in it that the pair does not accept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.location import PyTestLocation

from draftproof.api import pair_view
from draftproof.diff import failing, view_changes
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
    view = pair_view(pair, LIBRARY)
    failed = failing(view)
    path = ROOT / "snapshots" / "test_snapshot" / f"test_pair[{id}].json"
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        old = None
    held = snapshot(extension_class=PairSnapshots)
    if failed:  # it is never accepted
        held.update_snapshots = held.update_new_snapshots_only = False
    same = held == view
    if same and not failed:
        return
    changed = [d.text for d in view_changes(old, view, LIBRARY)] if old else ["there is no snapshot that can be read"]
    said = [f"{id}: the view of the pair is not its snapshot", *(changed if not same else [])]
    if failed:
        said = [*said, "", "a finding fails, so that --snapshot-update does not accept this view:", *failed]
        said += [f"mend it, or accept it with a reason: allow = [...] in contracts/pairs/{id}.toml"]
    else:
        said += ["", "if it is as meant: pytest -m snapshot --snapshot-update"]
    pytest.fail("\n  ".join(said), pytrace=False)
