"""One secant for all that is linear: the class of fault is a bar that leaves out one of the ways in which the two values are off.

Truth is the slope of functions that are linear by construction, computed with the roundings in question.
"""

import numpy as np
import pytest

from gradverify.numerics.estimate.smooth import secant
from gradverify.numerics.rungs import U32, U64, WIDE_RUNG, step

RNG = np.random.default_rng(0)
X = RNG.normal(size=4000) * 10.0 ** RNG.integers(-6, 6, 4000)
NONE, SIZE = np.zeros(len(X)), np.abs(X)


def ends(f, scale):
    h = step(1.0, WIDE_RUNG) * scale
    up, down = X + h, X - h
    return f(up), f(down), up - down, f(X)


def errors(f, slope, unit, rounding_of_x, sigma=NONE, scale=SIZE):
    """By how many bars each is off."""
    up, down, width, f0 = ends(f, scale)
    found = secant(up, down, width, f0, sigma, np.full(len(X), unit), rounding_of_x)
    return np.abs(found.value - slope) / found.bar, found


@pytest.mark.parametrize("slope", [1.0, -3.7, 1e-9, 2e7])
def test_float64_is_within_its_bar_and_the_bar_is_some_roundings_of_the_slope(slope):
    off, found = errors(lambda x: slope * x, slope, U64, SIZE)
    assert off.max() <= 1
    assert (found.bar <= 100 * U64 * abs(slope)).all()


def test_a_forward_that_rounds_x_is_within_its_bar_only_with_that_rounding():
    """float32(x) − float32(x₀) at steps far below x: exact on what it is given, so that the rounding of x is all there is."""
    def f(x):
        return (x.astype(np.float32) - X.astype(np.float32)).astype(float)

    with_, _ = errors(f, 1.0, U32, SIZE, scale=1e-2 * SIZE)
    without, _ = errors(f, 1.0, U32, None, scale=1e-2 * SIZE)
    assert with_.max() <= 1 < without.max()


def test_in_float64_no_rounding_of_x_is_added():
    (_, with_), (_, without) = errors(lambda x: x - X, 1.0, U64, SIZE), errors(lambda x: x - X, 1.0, U64, None)
    assert (with_.bar == without.bar).all()


@pytest.mark.parametrize("noise", [1e-12, 1e-6])
def test_measured_noise_is_within_the_bar_and_is_the_most_of_it(noise):
    size = SIZE * noise
    off, found = errors(lambda x: x + size * RNG.normal(size=len(x)), 1.0, U64, None, size)
    assert off.max() <= 1
    assert (found.noise > 0.9 * found.bar).all()


def test_the_value_at_x_counts_where_f_is_smaller_at_both_ends():
    """As where one end is cut off by a domain: f is computed from numbers as large as f(x) all the same."""
    large = secant(np.ones(1), -np.ones(1), 2.0, np.array([1e6]), np.zeros(1), np.full(1, U64), None)
    assert large.noise[0] >= 1e6 * U64


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_a_missing_value_gives_nothing_finite(lost):
    found = secant(np.array([lost]), np.ones(1), 2.0, np.ones(1), np.zeros(1), np.full(1, U64), None)
    assert not np.isfinite(found.value).any() or not np.isfinite(found.bar).any()
