"""One scheduler of steps. The class of faults: elements measured again though they are settled, or left open though steps are left."""

import numpy as np
import pytest

from gradverify.numerics.estimate.refine import refine
from gradverify.numerics.halving import halved, most_off


def refined(needed: list[int], stages: int) -> tuple[list[list[int]], list[int]]:
    """Elements that settle at their nth stage: who was measured at each stage, and at which stage each was settled (−1: never)."""
    settled, asked = np.full(len(needed), -1), list[list[int]]()

    def measure(i, stage):
        asked.append(i.tolist())
        return np.array(needed)[i] <= stage

    def keep(i, found):
        settled[i[found]] = len(asked) - 1

    refine(range(stages), lambda _: np.flatnonzero(settled < 0), measure, keep)
    return asked, settled.tolist()


def test_only_open_elements_are_measured_and_nothing_after_the_last_is_settled():
    assert refined([0, 2, 1], 9) == ([[0, 1, 2], [1, 2], [1]], [0, 2, 1])


def test_what_no_stage_settles_sees_every_stage():
    assert refined([0, 7], 3) == ([[0, 1], [1], [1]], [0, -1])


def test_nothing_open_calls_nothing():
    assert refined([], 3) == ([], [])


@pytest.mark.parametrize("cut", [0, 1, 5, 12, 13])
@pytest.mark.parametrize("size", [1, 2, 3, 13])
def test_the_place_is_found_in_as_many_questions_as_halvings(size, cut):
    for at in range(size):
        asked = []
        places = np.arange(10, 10 + size)

        def holds(half, at=at, asked=asked):
            asked.append(len(half))
            return bool((half == 10 + at).any())

        assert halved(places, holds, cut) == 10 + at
        assert len(asked) <= 1 + np.ceil(np.log2(size))


def test_the_half_that_is_off_by_more_is_followed():
    off = np.array([0.5, 0.0, -3.0, 1.0, np.nan, 1.0])
    assert most_off(np.arange(4), lambda half: float(off[half].sum()), float(off[:4].sum())) == 2
    assert most_off(np.arange(6), lambda half: float(off[half].sum()), np.nan) == 4       # no number is the largest, whichever half it is in
