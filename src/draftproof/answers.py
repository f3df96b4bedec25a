"""What adapt and diff answer beside findings. Apart from these, because a check needs none of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True)
class Change:
    """Name one config key that must change, and why."""

    key: str
    old: Any
    new: Any
    why: str
    required: bool = True


@dataclass(frozen=True)
class Step:
    """Say what becomes of one tensor: copy, rows of it, take it from the drafter it is to be like, init or drop.

    For a trainer it may also be made from another, as t2d from d2t, or be lent by the target, as its embedding.
    """

    tensor: str
    action: str
    old_shape: tuple[int, ...] | None
    new_shape: tuple[int, ...] | None
    why: str
    group: str = ""


@dataclass(frozen=True)
class Plan:
    """Hold the answer of adapt: verdict, config changes, one step per tensor."""

    verdict: str  # "as is", "after these changes", "only in part", "no", "unknown"
    headline: str
    changes: tuple[Change, ...] = ()
    steps: tuple[Step, ...] = ()
    says: tuple[str, ...] = ()  # facts and warnings a person must read, in order
    written: str = ""
    trainer: str = ""  # id of the trainer that is to start from it
    trains: tuple[Any, ...] = ()  # findings: what that trainer will do with it

    @property
    def exit_code(self) -> int:
        """Return 0 for as is and after changes, 1 for in part and no, 4 for unknown."""
        return {"as is": 0, "after these changes": 0, "only in part": 1, "no": 1}.get(self.verdict, 4)


@dataclass(frozen=True)
class Difference:
    """Say one thing of two versions: what changed, what could not be compared, how a verdict stands."""

    topic: str  # "family", "config", "tensors", "values", "files" or "verdicts"
    kind: str  # "changed", "worse", "unknown", or "same" for what is said though nothing changed
    text: str  # "layers 1 → 2"
    subject: str = ""  # the dim, config key, tensor, file or rung it is about
    old: str = ""
    new: str = ""


@dataclass(frozen=True)
class Review:
    """Hold the answer of diff: the verdict and every difference, in the order in which they are read."""

    verdict: str  # "same", "differs", "worse", "unknown"
    headline: str
    differences: tuple[Difference, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Return pass where no check failed that held, fail where one did, unknown where that was not judged."""
        outcomes: Mapping[str, Outcome] = {"same": "pass", "differs": "pass", "worse": "fail"}
        return outcomes.get(self.verdict, "unknown")
