"""Keep a run of one mark to the files of that mark, so that it starts as fast as what it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent
OF_MARK = {mark: ROOT / "tests" / f"test_{mark}.py" for mark in ("shape", "snapshot")}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files and folders of other marks in `pytest -m MARK`, unless they were named on the command line."""
    own = OF_MARK.get(config.getoption("markexpr"))
    if (
        own is None
        or config.args_source is pytest.Config.ArgsSource.ARGS
        or ROOT / "tests" not in collection_path.parents
    ):
        return None
    return True if collection_path != own else None
