"""The slope of a polynomial over a wide interval, against closed forms. Faults stood for: a bar that does not hold the truth, and a slope that is
told where f is no polynomial (a kink, a jump, waves finer than the nodes, an iteration's steps), so that noise is not what is left of it."""

import math

import numpy as np
import pytest

from gradverify.numerics.entries.interval_fits import nodes, slope

SIGMA, WIDTH = 1e-9, 1.0
UNIT = np.full(200, 2.0**-53)
T = nodes(WIDTH, 1e-8)


def of(f, sigma=SIGMA, draws=200):
    """Of f at the nodes with as many draws of noise as there are outputs."""
    noise = np.random.default_rng(0).standard_normal((len(T), draws))
    return slope(T, f[:, None] + sigma * noise, WIDTH, UNIT[:draws])


@pytest.mark.parametrize(("f", "truth"), [
    (np.sin(T + 0.3), np.cos(0.3)), (np.exp(T), 1.0), (1 / (T + 2), -0.25), (np.tanh(T + 1), 1 - np.tanh(1) ** 2), (np.sin(8 * T), 8.0),
    (5 + 0 * T, 0.0)], ids=["sine", "exp", "a pole at twice the width", "tanh", "sine of 8 x", "constant"])
def test_the_bar_holds_the_truth_and_is_far_below_that_of_a_central_difference(f, truth):
    value, bar = of(f)
    assert (np.abs(value - truth) <= bar).all()
    assert np.median(bar) < 60 * SIGMA      # a central difference at a step of 0.01 has 6 σ / 0.014 = 400 σ


@pytest.mark.parametrize("f", [
    np.abs(T - 0.01), 1e-6 * np.abs(T), np.where(T > 0.013, 1e-6, 0.0), np.sin(3000 * T), 1e-7 * np.sin(300 * T), 1 / (T + 1.01)],
    ids=["a kink beside x", "a small kink at x", "a jump", "waves finer than the nodes", "ripples", "a pole at the end"])
def test_nothing_is_told_of_what_is_no_polynomial_beside_its_noise(f):
    assert not np.isfinite(of(np.sin(T) + f)[1]).any()


@pytest.mark.parametrize("x", [-4.6, -3.9, 4.2, 4.5])
def test_where_f_saturates_its_known_rounding_is_no_structure(x):
    """Twins share the rounding of 1 - 1e-9: their difference is no measure of it."""
    t, unit = nodes(1.0, 4e-9), np.full(1, 2.0**-53)
    at = x + t
    value, bar = slope(at - x, np.array([[math.erf(each)] for each in at]), 1.0, unit)
    assert abs(value[0] - 2 / math.sqrt(math.pi) * math.exp(-x * x)) <= bar[0] < 2e-14
