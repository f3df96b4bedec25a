"""Rungs 1 and 2 over every pair in contracts/pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.language import FOLDERS
from draftproof.library import Library
from draftproof.plugin import state_of
from draftproof.testing import TestShape  # noqa: F401

ROOT = Path(__file__).parents[1]
LIBRARY = Library(ROOT / "contracts", shipped=False)  # of this tree, whatever is installed


@pytest.mark.shape
@pytest.mark.parametrize("kind", FOLDERS)
def test_contract_files_are_read_without_error(kind: str, request: pytest.FixtureRequest) -> None:
    library = state_of(request.config).library  # which the other tests read from too
    assert set(LIBRARY.files(kind).items()) <= set(library.files(kind).items())
    library.read(kind)  # those that are not as they were when the package was built
    assert not {f"{f.contract} {f.code} {f.message}: {f.observed}" for f in library.broken(kind)}


@pytest.mark.shape
def test_no_snapshot_is_an_orphan() -> None:
    there = {p.relative_to(ROOT / "snapshots").as_posix() for p in (ROOT / "snapshots").rglob("*") if not p.is_dir()}
    assert there == {f"test_snapshot/test_pair[{id}].json" for id in LIBRARY.files("pair")}
