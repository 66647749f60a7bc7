"""The slope of a polynomial over a wide interval, against closed forms. Faults to be found: a bar
that does not hold the truth, and a slope that is given where f is no polynomial (a kink, a jump,
waves finer than the nodes, an iteration's steps), so that noise is not what is left of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.excuses.order import nodes, slope
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import Differentiable, leaf

SIGMA, WIDTH = 1e-9, 1.0
UNIT = np.full(200, 2.0**-53)
T = nodes(WIDTH, 1e-8)


def of(f: np.ndarray, sigma: float = SIGMA, draws: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Of f at the nodes with as many draws of noise as there are outputs."""
    noise = np.random.default_rng(0).standard_normal((len(T), draws))
    return slope(T, f[:, None] + sigma * noise, WIDTH, UNIT[:draws])


@pytest.mark.parametrize(
    ("f", "truth"),
    [
        (np.sin(T + 0.3), np.cos(0.3)),
        (np.exp(T), 1.0),
        (1 / (T + 2), -0.25),
        (np.tanh(T + 1), 1 - np.tanh(1) ** 2),
        (np.sin(8 * T), 8.0),
        (5 + 0 * T, 0.0),
    ],
    ids=["sine", "exp", "a pole at twice the width", "tanh", "sine of 8 x", "constant"],
)
def test_the_bar_holds_the_truth_and_is_far_below_that_of_a_central_difference(f, truth):
    value, bar = of(f)
    assert (np.abs(value - truth) <= bar).all()
    # A central difference at a step of 0.01 has 6 σ / 0.014 = 400 σ
    assert np.median(bar) < 60 * SIGMA


@pytest.mark.parametrize(
    "f",
    [
        np.abs(T - 0.01),
        1e-6 * np.abs(T),
        np.where(T > 0.013, 1e-6, 0.0),
        np.sin(3000 * T),
        1e-7 * np.sin(300 * T),
        1 / (T + 1.01),
    ],
    ids=[
        "a kink near x",
        "a small kink at x",
        "a jump",
        "waves finer than the nodes",
        "ripples",
        "a pole at the end",
    ],
)
def test_what_is_no_polynomial_with_noise_has_no_slope(f):
    assert not np.isfinite(of(np.sin(T) + f)[1]).any()


def test_steps_that_twins_share_have_no_slope():
    """An iteration that stops early is off by what hardly differs between neighbours: that is no
    noise."""
    steps = 1e-9 * np.sign(np.sin(40 * T))
    assert not np.isfinite(of(np.sin(T) + steps, sigma=1e-13)[1]).any()


def test_noise_that_grows_with_f_is_measured_where_it_is():
    draw = np.random.default_rng(1).standard_normal((len(T), 200))
    bump = np.exp(-((T / 0.6) ** 2)) * (1 + T)
    value, bar = slope(T, bump[:, None] * (1 + SIGMA * draw), WIDTH, UNIT)
    known = np.isfinite(bar)
    assert known.mean() > 0.5 and (np.abs(value - 1)[known] <= bar[known]).all()


def test_without_any_noise_the_bar_is_rounding():
    value, bar = slope(T, np.sin(T)[:, None], WIDTH, UNIT[:1])
    assert bar[0] == np.inf or abs(value[0] - 1) <= bar[0] < 1e-12


@pytest.mark.parametrize("x", [-4.6, -3.9, 4.2, 4.5])
def test_where_f_saturates_its_known_rounding_is_no_structure(x):
    """Twins share the rounding of 1 - 1e-9: their difference is no measure of it."""
    t, unit = nodes(1.0, 4e-9), np.full(1, 2.0**-53)
    at = x + t
    value, bar = slope(at - x, np.array([[math.erf(each)] for each in at]), 1.0, unit)
    assert abs(value[0] - 2 / math.sqrt(math.pi) * math.exp(-x * x)) <= bar[0] < 2e-14


@pytest.mark.parametrize(
    "f",
    [
        1 + 2.0**-48 * np.sign(T - 0.3),
        1 + 2.0**-44 * np.abs(T - 0.01),
        1 + 2.0**-48 * np.round(np.sin(9 * T)),
    ],
    ids=["a jump", "a kink", "steps"],
)
def test_structure_of_a_few_roundings_is_structure(f):
    assert not np.isfinite(slope(T, f[:, None], WIDTH, UNIT[:1])[1]).any()


def test_where_f_does_not_move_by_its_rounding_any_slope_that_rounding_hides_is_within_the_bar():
    value, bar = slope(T, np.ones((len(T), 1)), WIDTH, UNIT[:1])
    assert value[0] == 0 and bar[0] > 2.0**-54 / WIDTH


# ---- in a comparison
def noisy(function, sigma):
    """With noise that depends on the input alone, as an iteration leaves it, in a gradient of which
    nothing is seen."""

    def forward(x):
        noise = torch.frac(torch.sin(x.detach() * 1e11) * 43758.5453) - 0.5
        return function(x) + sigma * noise

    return forward


def verdict(forward, x, damage=None, **settings):
    (pair,) = compare(
        Differentiable(forward, leaf(*x), damage=damage), mode=Mode.ENTRIES, **settings
    ).pairs
    return pair.verdict


def smooth(x):
    return torch.sin(2 * x) + x


X = (0.3, 0.9, -1.4)


def test_a_right_gradient_of_a_noisy_forward_is_decided_by_a_fit():
    assert verdict(noisy(smooth, 3e-9), X) is Verdict.PASS


def test_without_budget_for_two_intervals_of_each_column_it_stays_open():
    assert (
        verdict(noisy(smooth, 3e-9), X, over_budget=lambda ahead=0: ahead > 100)
        is Verdict.UNDECIDED
    )


@pytest.mark.parametrize("factor", [1 + 5e-6, 1 - 1e-4, 1.01, -1, 0])
def test_no_wrong_gradient_of_a_noisy_forward_passes(factor):
    assert (
        verdict(noisy(smooth, 3e-9), X, damage=lambda gradients: [factor * g for g in gradients])
        is not Verdict.PASS
    )


def test_a_kink_within_the_interval_keeps_it_from_passing_what_the_other_side_has():
    def other_side(gradients):
        return [
            g + 1e-4 * (x > 0.29) * (x < 0.31)
            for g, x in zip(gradients, [torch.tensor(X)], strict=True)
        ]

    forward = noisy(lambda x: smooth(x) + 1e-4 * torch.relu(x - 0.302), 3e-9)
    assert verdict(forward, X, damage=other_side) is not Verdict.PASS
