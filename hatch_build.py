"""Put the compiled form of long contracts into the wheel: read, checked, and fast to read again."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


class Compile(BuildHookInterface[Any]):
    """Write the forms into a folder of their own, which goes with the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile every contract of the kinds that are; an editable install reads the files themselves."""
        if version == "editable":
            return
        self.made = tempfile.TemporaryDirectory()
        sys.path.insert(0, str(ROOT / "src"))
        from draftproof.library import compile_all  # noqa: PLC0415

        compile_all(ROOT / "contracts", Path(self.made.name))
        build_data["force_include"][self.made.name] = "draftproof/compiled"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if version != "editable":
            self.made.cleanup()
