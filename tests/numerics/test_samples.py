"""What follows from f at its rungs, by hand: steps, quotients, what is bad, still, far or noise."""

from __future__ import annotations

import numpy as np
import pytest

from gradverify.numerics.estimate.samples import Samples
from gradverify.numerics.rungs import U32, U64

NAN, INF = np.nan, np.inf
STEPS = np.array([0.4, 0.1, 0.01])


def samples(*functions, x=1.0, steps=STEPS, down=None, sigma=0.0, unit=U64, scale=1.0, rounds_x=True):
    """One element each, at the same x."""
    down, m = steps if down is None else down, len(functions)
    up, low = (np.array([[f(x + sign * h) for f in functions] for h in side], float) for sign, side in ((1, steps), (-1, down)))
    each = [np.full(m, float(v)) for v in (sigma, unit, abs(x), scale)]
    spread = [np.broadcast_to(side[:, None], (len(side), m)) for side in (steps, down)]
    return Samples(up, low, *spread, np.array([f(x) for f in functions], float), *each, rounds_x)


def square(x):
    return x * x


def test_quotients_are_central_and_relative_to_the_largest_value():
    s = samples(square, lambda x: 1e300 * x, lambda x: 1e-300 * x)
    np.testing.assert_allclose(s.quotient * s.largest, np.array([[2.0, 1e300, 1e-300]] * 3), rtol=1e-12)
    np.testing.assert_allclose(s.largest, [1.4**2, 1.4e300, 1.4e-300])


def test_second_differences_are_those_of_the_square():
    np.testing.assert_allclose((samples(square).second * 1.4**2).ravel(), 2 * STEPS**2, rtol=1e-10)
    np.testing.assert_allclose(samples(lambda x: 3 * x + 1).second.ravel(), 0, atol=4 * U64)


def test_a_rung_is_as_wide_as_both_of_its_steps():
    s = samples(square, square, down=STEPS / 2)
    np.testing.assert_allclose(s.h, np.repeat(0.75 * STEPS[:, None], 2, 1))
    assert s.width.shape == (3, 1)          # one number for all elements
    np.testing.assert_allclose(s.width.ravel(), 1.5 * STEPS)
    own = Samples(*(a.copy() for a in (s.up, s.down, s.step_up, s.step_down)), s.f0, s.sigma, s.unit, s.magnitude, s.scale, True)
    assert own.width.shape == (3, 2)


def test_far_is_beyond_three_tenths_of_the_scale():
    assert samples(square).far.ravel().tolist() == [True, False, False]
    assert samples(square, scale=10.0).far.ravel().tolist() == [False] * 3


@pytest.mark.parametrize(("f", "bad", "enough"), [
    (square, [0, 0, 0], True),
    (lambda x: NAN if x > 1.3 else x, [1, 0, 0], True),
    (lambda x: INF if x < 0.95 else x, [1, 1, 0], False),
    (lambda x: 1e60 if x > 1.3 else x, [1, 0, 0], True),        # beyond its own scale, and dwarfs what is near
    (lambda x: 1e40 if x > 1.3 else x, [0, 0, 0], True),
    (lambda x: 1e60 if abs(x - 1) > 0.05 else x, [0, 0, 0], True),
])
def test_rungs_without_a_value_on_both_sides_are_bad(f, bad, enough):
    s = samples(f)
    assert s.unusable.ravel().tolist() == bad
    assert s.two_sided.tolist() == [enough]
    assert np.isnan(s.quotient.ravel()).tolist() == [bool(b) for b in bad]


@pytest.mark.parametrize(("f", "still", "unchanged"), [
    (lambda x: 2.0, [1, 1, 1], True), (square, [0, 0, 0], False), (lambda x: 2.0 + (x > 1.3), [0, 1, 1], False),
    (lambda x: NAN if x > 1.3 else 2.0, [0, 1, 1], True), (lambda x: NAN if x != 1 else 2.0, [0, 0, 0], False)])
def test_what_no_rung_moves_is_unchanged(f, still, unchanged):
    s = samples(f)
    assert (s.still.ravel().tolist(), s.unchanged.tolist()) == ([bool(v) for v in still], [unchanged])


def test_noise_is_the_measured_one_and_at_least_rounding():
    assert samples(lambda x: 2.0).noise.ravel().tolist() == [U64] * 3
    np.testing.assert_allclose(samples(lambda x: 2.0, sigma=1e-3).noise.ravel(), [5e-4] * 3)


@pytest.mark.parametrize(("unit", "rounds_x", "wanted"), [(U32, True, 20 * U32 * 10), (U32, False, None), (U64, True, None)])
def test_a_low_precision_forward_rounds_x_too(unit, rounds_x, wanted):
    """f' = 20 at x = 10, of which f itself, 0.2 at most, would show far less rounding."""
    s = samples(lambda x: 20 * (x - 10), x=10.0, steps=STEPS / 40, unit=unit, rounds_x=rounds_x)
    rounding = unit * 20 * STEPS / 40
    np.testing.assert_allclose((s.noise * s.largest).ravel(), rounding if wanted is None else [wanted] * 3, rtol=1e-6)


def test_some_elements_have_what_they_had_among_all():
    s = samples(square, np.sin, np.exp)
    part = s.take(np.array([2, 0]))
    assert np.array_equal(part.quotient, s.quotient[:, [2, 0]])
    assert np.array_equal(part.f0, s.f0[[2, 0]])
