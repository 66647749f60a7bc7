"""Steps and the small sums over rungs, against numbers by hand and NumPy's own."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from gradverify.numerics.rungs import BASE, NEAR, QUICK, RATIO, RUNGS, U64, finite_size, in_a_row, in_range, nanmedian, nonzero, step

INF, NAN = math.inf, math.nan


def test_steps_shrink_by_the_ratio_and_go_with_the_scale():
    assert step(1.0, 0) == BASE
    assert [step(2.0, k) / step(2.0, k + 1) for k in range(-3, RUNGS)] == pytest.approx([RATIO] * (RUNGS + 3), rel=1e-14)
    assert step(1e-300, 4) == pytest.approx(1e-300 * step(1.0, 4), rel=1e-14)


def test_the_ladder_reaches_from_a_quarter_of_the_scale_into_the_rounding():
    assert step(1.0, 0) < NEAR < step(1.0, -1)
    assert step(1.0, RUNGS - 1) < 1e3 * U64
    assert step(1.0, QUICK[-1]) ** 2 > 1e6 * U64        # a quick step's curvature is above the rounding


@pytest.mark.parametrize("periods", [1, 2, 3, 4])
def test_a_period_that_a_step_hits_is_missed_by_coarser_ones(periods):
    """Were the ratio of steps an integer, a sine that one step makes 0 would be 0 at every coarser one."""
    frequency = periods / step(1.0, 5)
    assert all(abs(frequency * step(1.0, k) - round(frequency * step(1.0, k))) > 1e-3 for k in (2, 3, 4))


@pytest.mark.parametrize(("given", "wanted"), [([1.0, 2.0], [1, 2]), ([0.0, 3.0], [1, 3]), ([0.0, 0.0], [1, 1]), ([INF, 0.0], [INF, 1]), ([], [])])
def test_what_is_divided_by_is_nowhere_zero(given, wanted):
    assert nonzero(np.array(given)).tolist() == wanted


def test_what_is_nowhere_zero_is_not_copied():
    a = np.array([1.0, 2.0])
    assert nonzero(a) is a


@pytest.mark.parametrize(("given", "wanted"), [([-1.5, 2.0], [1.5, 2]), ([-INF, INF, NAN, -3.0], [0, 0, 0, 3]), ([], [])])
def test_the_size_of_what_is_not_finite_is_zero(given, wanted):
    assert finite_size(np.array(given)).tolist() == wanted


@pytest.mark.parametrize("rungs", [1, 2, 3, 6])
def test_the_median_over_rungs_is_numpys_and_warns_of_nothing(rungs):
    rng = np.random.default_rng(rungs)
    a = rng.standard_normal((rungs, 40))
    a[rng.random(a.shape) < 0.4] = NAN
    a[:, 0], a[:, 1] = NAN, 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = nanmedian(a)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(found, np.nanmedian(a, 0))


@pytest.mark.parametrize(("given", "wanted"), [([3, 4, 5], slice(3, 6)), ([7], slice(7, 8))])
def test_indices_in_a_row_are_a_slice(given, wanted):
    assert in_a_row(np.array(given)) == wanted


@pytest.mark.parametrize("given", [[0, 2, 3], [5, 4], []])
def test_other_indices_are_themselves(given):
    indices = np.array(given, int)
    assert in_a_row(indices) is indices


@pytest.mark.parametrize(("given", "wanted"), [([3, 4, 5], slice(3, 6)), ([7], slice(7, 8)), ([3, 5, 4, 6], None), ([5, 4], None), ([0, 2], None)])
def test_a_permutation_of_indices_in_a_row_is_no_slice(given, wanted):
    indices = np.array(given)
    found = in_a_row(indices)
    assert found is indices if wanted is None else found == wanted


def test_numbers_lie_in_a_range_from_its_first_on_and_before_its_end():
    assert in_range(np.array([1, 4, 2, 3, 5, 2]), slice(2, 4)).tolist() == [False, False, True, True, False, True]
