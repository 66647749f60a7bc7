"""Kinks, jumps, infinite slopes and borders, told apart on samples of closed forms."""

import numpy as np
import pytest

from gradverify.numerics.estimate.kinks import Smoothness
from gradverify.numerics.estimate.ladder import solve
from gradverify.numerics.estimate.samples import Samples, sample_rung
from gradverify.numerics.rungs import RUNGS
from numerics.callable_line import CallableLine


def solved(f, x):
    """The full ladder of f at x, from plain samples."""
    line, up, down = CallableLine(lambda t: np.array([f(x + t)]), magnitude=abs(x), cast=lambda t: (x + t) - x), [], []
    steps = []
    for k in range(RUNGS):
        taken = sample_rung(line, k)
        up.append(taken.up if taken else [np.nan])
        down.append(taken.down if taken else [np.nan])
        steps.append([taken.step_up if taken else 1.0])
    one, h = np.ones(1), np.array(steps)
    f0 = np.array([f(x)])
    unit = 2.0**-53
    return solve(Samples(np.array(up), np.array(down), h, h, f0, unit * np.abs(f0) + 1e-300, unit * one, abs(x) * one, one, True), True)


@pytest.mark.parametrize(("f", "x", "expected"), [
    (np.sin, 1.0, Smoothness.SMOOTH), (abs, 0.0, Smoothness.KINK), (lambda x: max(x, 0.0), 0.0, Smoothness.KINK),
    (lambda x: max(x * x, 1.0), 1.0, Smoothness.KINK), (lambda x: float(x >= 0.25) + x, 0.25, Smoothness.JUMP),
    (lambda x: x**3, 0.5, Smoothness.SMOOTH), (lambda x: abs(x - 1.01), 1.0, Smoothness.SMOOTH)])
def test_what_f_does_at_x_is_told(f, x, expected):
    assert solved(f, x).outcome[0] == expected


@pytest.mark.parametrize(("f", "x", "left", "right"), [(abs, 0.0, -1, 1), (lambda x: max(x, 0.0), 0.0, 0, 1),
                                                      (lambda x: max(x * x, 1.0), 1.0, 0, 2), (lambda x: min(3 * x, 5 * x), 0.0, 5, 3)])
def test_a_kink_has_its_slopes_on_both_sides(f, x, left, right):
    d = solved(f, x)
    assert abs(d.left[0] - left) <= d.left_bar[0] < 1e-3
    assert abs(d.right[0] - right) <= d.right_bar[0] < 1e-3


def test_an_infinite_slope_is_no_kink():
    assert solved(lambda x: np.sqrt(abs(x)), 0.0).outcome[0] == Smoothness.NON_FINITE


def test_at_a_border_the_one_side_is_taken():
    d = solved(lambda x: x**1.5 if x >= 0 else np.nan, 0.0)
    assert d.at_border[0] and abs(d.value[0]) <= d.bar[0]


def test_a_kink_a_little_beside_is_judged_on_this_side():
    d = solved(lambda x: abs(x - 1.0), 1.0001)
    assert (d.outcome[0], round(float(d.value[0]), 6)) == (Smoothness.SMOOTH, 1.0)
