"""What becomes of a tensor of another shape than its parameter's, by the way in which an engine takes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from draftproof import engines
from draftproof.dims import parse
from draftproof.profiles import Loader, Param

CUT = Loader(axis=1, larger="cut", smaller="RuntimeError", narrows="IndexError")
FILLED = Loader(axis=1, larger="cut", smaller="padded", narrows="IndexError")
EQUAL = Loader(axis=1, larger="TypeError", smaller="RuntimeError", other="AssertionError")
TAKEN = Loader(other="taken")


@pytest.mark.parametrize(
    ("loader", "shape", "outcome"),
    [
        (CUT, (4, 6), ""),
        (CUT, (4, 8), "degrades"),
        (CUT, (4, 5), "RuntimeError"),
        (CUT, (6, 4), "RuntimeError"),  # it is too short before it is odd
        (CUT, (6, 8), "AssertionError"),
        (CUT, (24,), "IndexError"),
        (CUT, (4, 6, 1), "AssertionError"),
        (FILLED, (4, 5), "degrades"),
        (FILLED, (6, 4), "AssertionError"),
        (EQUAL, (6, 4), "AssertionError"),
        (EQUAL, (4, 4), "RuntimeError"),
        (EQUAL, (4, 8), "TypeError"),
        (TAKEN, (6, 4), ""),
    ],
)
def test_tensor_of_another_shape(loader: Loader, shape: tuple[int, ...], outcome: str) -> None:
    profile: Any = SimpleNamespace(loaders={"one": loader})
    class_: Any = SimpleNamespace(source="toy.py", basis="read")
    world: Any = SimpleNamespace()
    rule = Param("w", (parse("4"), parse("6")), "one")
    made, _ = engines._fitted(profile, class_, rule, "w", shape, world)
    assert (made.error or made.outcome if made else "") == outcome
