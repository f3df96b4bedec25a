"""What is kept between questions changes no answer: it equals what is asked anew, in whatever order."""

from __future__ import annotations

import random

import pytest

from draftproof import api
from draftproof.engines import Prediction, predict
from draftproof.findings import finding
from draftproof.library import Library

ENGINES = ("vllm", "sglang", "llama.cpp")
PAIRS = random.Random(3).sample(sorted(Library().files("pair")), 12)


def answers(pairs: list[str], library: Library | None) -> dict[str, object]:
    """Return the sections of the report of each pair, each from a library of its own where none is given."""
    return {id: api.check_pair_id(id, library or Library(), ENGINES).sections for id in pairs}


def test_pairs_are_answered_alike_by_one_library_in_any_order_and_by_a_new_one_each() -> None:
    anew = answers(PAIRS, None)
    shuffled = random.Random(5).sample([*PAIRS, *PAIRS], 2 * len(PAIRS))
    assert answers(PAIRS, library := Library()) == anew
    assert answers(shuffled, library) == anew


@pytest.mark.parametrize("id", PAIRS[:4])
def test_runner_that_takes_over_from_another_comes_to_the_same(id: str) -> None:
    library = Library()
    pair, path, _ = api.find_pair(id, library)
    assert pair is not None
    case = api.examine_pair(pair, library, path.parent)
    profile, _ = library.get("profile", "vllm")

    def told(like: Prediction | None, runner: str = "") -> Prediction:
        assert case.drafter is not None
        return predict(profile, library, case.drafter, case.target, case.couple, runner=runner, like=like)

    first = told(None)
    (other,) = {row.is_ for row in profile.runners} - {first.runner}
    after, alone = told(first, other), told(None, other)
    assert [vars(e) for e in after.effects] == [vars(e) for e in alone.effects]
    assert (after.outcome, after.captured, after.beside) == (alone.outcome, alone.captured, alone.beside)


def test_copy_of_a_finding_has_other_values_and_no_other_fields() -> None:
    one = finding("PAIR409", "x", expected="a")
    assert one.but(subject="y") == finding("PAIR409", "y", expected="a")
    assert one == finding("PAIR409", "x", expected="a")
    with pytest.raises(TypeError, match="subjekt"):
        one.but(subjekt="y")
