"""One place at fault among many is found by halves, with as many questions as halvings."""

import numpy as np
import pytest

from gradverify.numerics.halving import half_off, halved, most_off

PLACES = np.arange(10, 74)


@pytest.mark.parametrize("at", [10, 11, 41, 42, 73])
def test_a_place_is_found_by_six_questions(at):
    asked = []
    assert halved(PLACES, lambda half: asked.append(half) or at in half) == at
    assert len(asked) == 6


def test_the_first_question_may_be_cut_elsewhere():
    asked = []
    assert halved(PLACES, lambda half: asked.append(half) or 11 in half, 4) == 11
    assert [len(half) for half in asked] == [4, 2, 1]


def deviation(off):
    return lambda half: sum(by for at, by in off.items() if at in half)


@pytest.mark.parametrize("search", [most_off, half_off])
@pytest.mark.parametrize(("off", "found"), [({30: 2.0}, 30), ({30: 2.0, 60: -9.0}, 60), ({30: float("nan")}, 30), ({70: -1e-3}, 70)])
def test_a_deviation_is_followed_to_where_most_of_it_is(search, off, found):
    assert search(PLACES, deviation(off), sum(off.values())) == found


def test_of_two_that_cancel_the_first_is_enough_where_it_is_half_of_what_is_left():
    off = {12: 1.0, 70: -3.0}
    assert most_off(PLACES, deviation(off), -2.0) == 70
    assert half_off(PLACES, deviation(off), -2.0) == 12
