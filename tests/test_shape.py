"""Rungs 1 and 2 over every pair in contracts/pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftproof.language import FOLDERS
from draftproof.library import Library
from draftproof.testing import TestShape  # noqa: F401

ROOT = Path(__file__).parents[1]


@pytest.mark.shape
@pytest.mark.parametrize("kind", FOLDERS)
def test_contract_files_are_read_without_error(kind: str) -> None:
    broken = {f"{f.contract} {f.code} {f.message}: {f.observed}" for _, _, found in Library().all(kind) for f in found}
    assert not broken


@pytest.mark.shape
def test_no_snapshot_is_an_orphan() -> None:
    pairs = set(Library().files("pair"))
    kept = {p.stem.removeprefix("test_pair[").removesuffix("]") for p in (ROOT / "snapshots").rglob("*.json")}
    assert kept == pairs
