"""Helpers of the tests stand in this folder; bytes in the name of a test are shown by length and checksum."""

from __future__ import annotations

import os
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"  # no test speaks to the real Hub; those of the loopback Hub say so


def pytest_make_parametrize_id(val: object) -> str | None:
    """Return a short, printable name for bytes."""
    return f"{len(val)}-bytes-{zlib.crc32(val):08x}" if isinstance(val, bytes) else None
