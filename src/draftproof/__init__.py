"""Contract tests for speculative-decoding drafters: is it well formed, does it fit its target, what must change?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof.api import check
    from draftproof.findings import Finding, Report

__version__ = "0.1.0"
__all__ = ["Finding", "Report", "__version__", "check"]

_HOMES = {"check": "api", "Finding": "findings", "Report": "findings"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that the pytest plugin starts fast."""
    if name in _HOMES:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"draftproof.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'draftproof' has no attribute {name!r}")
