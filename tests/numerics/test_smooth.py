"""The short way to a derivative: its values against closed forms, and everything that it must leave
to the whole solver."""

import numpy as np
import pytest

from gradverify.numerics.estimate.ladder import smooth_estimate
from gradverify.numerics.estimate.samples import Samples
from gradverify.numerics.rungs import QUICK, U64, step

M = 4000


def sampled(f, x, scale=None, sigma=0.0):
    """f at the quick rungs around x [m], and what `smooth_estimate` is given of it."""
    scale = np.abs(x) if scale is None else scale
    h = np.array([step(1.0, k) for k in QUICK])[:, None] * scale
    above, below = x + h, x - h
    with np.errstate(all="ignore"):
        values = f(above), f(below), f(x)
    return Samples(
        values[0],
        values[1],
        above - x,
        x - below,
        values[2],
        np.full(len(x), sigma),
        np.full(len(x), U64),
        np.abs(x),
        scale,
        True,
    )


def estimated(s):
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
    found = estimated(s)
    assert found.unclear.mean() < 0.02
    assert (np.abs(found.value - scale * derivative(x)) <= found.bar)[~found.unclear].all()


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
    assert (~estimated(sampled(forward, x)).unclear).mean() < (0.05 if "wave" in name else 1e-9)
