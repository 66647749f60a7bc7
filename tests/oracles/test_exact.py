"""Numbers without truncation: rounding passes, the same infinity is left out, anything else is a
mismatch."""

import numpy as np
import pytest

from gradverify.model.case import Settings
from gradverify.numerics.pairs.pair import Outcome
from gradverify.oracles.given import exact_elements, exactly, rounding_floor

U = 2.0**-53


def pair(analytic, value, floor=0.0, atol=0.0, rtol=1e-6):
    settings = Settings(atol=atol, rtol=rtol)
    return exactly((0, 0), np.atleast_2d(analytic), np.atleast_2d(value), floor, settings, U)


@pytest.mark.parametrize(
    ("off", "outcome"),
    [
        (0.9e-6, Outcome.PASS),
        (1.1e-6, Outcome.MISMATCH),
        (np.nan, Outcome.MISMATCH),
        (np.inf, Outcome.MISMATCH),
    ],
)
def test_the_tolerance_is_relative_to_the_larger(off, outcome):
    assert pair([2.0, 2.0 * (1 + off)], [2.0, 2.0]).count(outcome) == 1 + (outcome is Outcome.PASS)


def test_a_difference_at_the_very_tolerance_is_undecided():
    assert pair([1.0], [1.0 + 1e-6], atol=1e-6, rtol=0.0).count(Outcome.UNDECIDED) == 1


def test_the_same_infinity_is_left_out_and_another_one_is_not():
    same = pair([np.inf, 1.0], [np.inf, 1.0])
    assert (same.masked, same.count(Outcome.PASS)) == (1, 1)
    assert pair([-np.inf], [np.inf]).count(Outcome.MISMATCH) == 1
    assert pair([1.0], [np.nan]).count(Outcome.MISMATCH) == 1


def test_a_number_that_an_oracle_lacks_is_no_mismatch_unless_it_must_have_it():
    first, mine, theirs = np.zeros(1, int), np.ones(1), np.array([np.nan])
    elements = exact_elements(first, first, mine, theirs, np.zeros(1), Settings(), U)
    assert elements.outcome.tolist() == [Outcome.NON_FINITE]


def test_dust_is_ten_thousand_roundings_of_the_largest_of_the_row():
    analytic, rows = np.array([3.0, 1e-13, 0.0, 0.0]), np.array([0, 0, 1, 1])
    scale = np.array([2.0, 1.0, 2.0, 1.0])
    floor = rounding_floor(U, rows, analytic, np.zeros(4), scale, scale)
    assert floor == pytest.approx(1e4 * U * np.array([6 / 2, 6 / 1, 0, 0]))
    analytic, floor = analytic.reshape(2, 2), floor.reshape(2, 2)
    assert pair(analytic, [[3.0, 0.0], [0.0, 0.0]], floor).count(Outcome.PASS) == 4
