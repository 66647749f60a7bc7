"""The short way to a derivative: its values against closed forms, and everything that it must leave to the whole solver."""

from __future__ import annotations

import numpy as np
import pytest

from gradverify.numerics.estimate.samples import Samples, sample_rung
from gradverify.numerics.estimate.smooth import NOISES, extrapolate_once, smooth_estimate
from gradverify.numerics.rungs import QUICK, RATIO, U64, step
from numerics.callable_line import CallableLine

M = 4000


def sampled(f, x, scale=None, sigma=0.0):
    """f at the quick rungs around x [m], and what `smooth_estimate` is given of it."""
    scale = np.abs(x) if scale is None else scale
    h = np.array([step(1.0, k) for k in QUICK])[:, None] * scale
    above, below = x + h, x - h
    with np.errstate(all="ignore"):
        values = f(above), f(below), f(x)
    return Samples(values[0], values[1], above - x, x - below, values[2], np.full(len(x), sigma), np.full(len(x), U64), np.abs(x), scale, True)


def told(s):
    with np.errstate(all="ignore"):
        return smooth_estimate(s.up, s.down, s.step_up + s.step_down, s.f0, s.sigma, s.unit)


def points(seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=M)


SMOOTH = {
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "reciprocal": (lambda x: 1 / x, lambda x: -1 / x**2),
    "offset": (lambda x: x + 1e6, np.ones_like),
    "straight": (lambda x: -3 * x, lambda x: np.full_like(x, -3.0)),
}


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_truth_lies_within_the_bar_and_most_is_told(name, scale):
    forward, derivative = SMOOTH[name]
    x = points()
    s = sampled(lambda z: scale * forward(z), x)
    found = told(s)
    assert found.smooth.mean() > 0.98
    assert (np.abs(found.value - scale * derivative(x)) <= found.bar)[found.smooth].all()


X = points(2)
LEFT = {
    "a kink at x": (lambda z: np.abs(z - X), X),
    "a jump at x": (lambda z: z + (z > X), X),
    "a kink within the finest rung": (lambda z: np.abs(z - X - 5e-5 * np.abs(X)), X),
    "a border": (lambda z: np.sqrt(z - X), X),
    "infinite values": (lambda z: np.where(z > X, np.inf, z), X),
    "nothing moves": (np.ones_like, X),
    "values whose squares vanish": (lambda z: 1e-200 * np.sin(z), X),
    "a wave shorter than the rungs": (lambda z: np.sin(1e6 * z), X),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_plain_is_left(name):
    forward, x = LEFT[name]
    assert told(sampled(forward, x)).smooth.mean() < (0.05 if "wave" in name else 1e-9)


BESIDE = {
    "a kink between the rungs": (lambda z: np.abs(z - X - 3e-4 * np.abs(X)), -1.0),
    "a step between the rungs": (lambda z: np.where(z > X + 3e-4 * np.abs(X), 1.0, 0.0) + z, 1.0),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_lies_beside_x_is_left_or_within_the_bar(name):
    forward, truth = BESIDE[name]
    found = told(sampled(forward, X))
    assert (np.abs(found.value - truth) <= found.bar)[found.smooth].all()


def test_noise_widens_the_bar():
    noise, x = 1e-9, points(3)
    source = np.random.default_rng(4)
    found = told(sampled(lambda z: np.sin(z) + noise * source.normal(size=z.shape), x, sigma=noise))
    assert found.smooth.mean() > 0.9
    assert (np.abs(found.value - np.cos(x)) <= found.bar)[found.smooth].mean() > 0.999
    assert np.median((found.noise / found.bar)[found.smooth]) > 0.5


def test_up_and_down_may_be_exchanged():
    s = sampled(np.sin, points(5))
    found, turned = told(s), smooth_estimate(s.down, s.up, -(s.step_up + s.step_down), s.f0, s.sigma, s.unit)
    assert np.array_equal(found.smooth, turned.smooth)
    assert np.allclose(found.value, turned.value, rtol=1e-15, atol=0)
    assert np.allclose(found.bar, turned.bar, rtol=1e-12, atol=0)


def test_one_width_for_all_elements_is_spread():
    x = points(6)
    s = sampled(np.sin, x, scale=np.ones(M))
    width = np.array([2 * step(1.0, k) for k in QUICK])[:, None]
    found = smooth_estimate(s.up, s.down, width, s.f0, s.sigma, s.unit)
    assert np.abs(found.value - np.cos(x))[found.smooth].max() < 1e-9


def test_the_noise_of_a_value_is_that_of_its_extrapolation():
    """Of T(1, 0), T(2, 0) and T(2, 2) = the combination of quotients with two powers of the width gone, from six values of unit noise."""
    width = RATIO ** -np.arange(3.0)
    quotients = np.eye(3)
    first = [quotients[k] + (quotients[k] - quotients[k - 1]) / (RATIO**2 - 1) for k in (1, 2)]
    twice = first[1] + (first[1] - first[0]) / (RATIO**4 - 1)
    wanted = [np.sqrt((weights**2 * 2 / width**2).sum()) * width[2] for weights in (quotients[1], quotients[2], twice)]
    np.testing.assert_allclose(NOISES, wanted, rtol=1e-4)  # the two of one power are taken as independent


def along(f, x, sigma=0.0):
    """The derivative of f(x + t·|x|) at t = 0 by two rungs, and its noise [m]."""
    line = CallableLine(lambda t: f(x + t * np.abs(x)))
    return extrapolate_once(sample_rung(line, QUICK[0]), sample_rung(line, QUICK[1]), np.full(len(x), sigma), np.full(len(x), U64))


@pytest.mark.parametrize("name", SMOOTH)
def test_two_rungs_make_the_derivative_along_a_line(name):
    forward, derivative = SMOOTH[name]
    x = points(7)
    value, noise = along(forward, x)
    right = np.abs(x) * derivative(x)
    assert (np.abs(value - right) <= noise + 1e-9 * np.abs(right)).mean() > 0.99


def test_the_noise_of_two_rungs_covers_that_of_the_function():
    noise, x = 1e-9, points(8)
    source = np.random.default_rng(9)
    value, bar = along(lambda z: np.sin(z) + noise * source.normal(size=z.shape), x, sigma=noise)
    off = np.abs(value - np.abs(x) * np.cos(x))
    assert (off <= bar).all() and off.max() > bar.max() / 10     # and is not much wider
