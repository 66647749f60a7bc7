"""The bars cover the truth: closed forms on scales from 1e-8 to 1e8, in float64 and float32."""

import math

import numpy as np
import pytest

from gradverify.numerics.estimate.ladder import Outputs, Smoothness, derivative
from gradverify.numerics.rungs import U32, U64
from numerics.callable_line import CallableLine


def along(f, x, kind=float, **options):
    """The derivative of f at x and the number of calls; f computes in `kind`."""
    calls = []

    def evaluate(t):
        calls.append(t)
        return np.array([float(f(kind(x + t)))])

    x, unit = float(kind(x)), U64 if kind is float else U32
    outputs = Outputs(
        np.array([float(f(kind(x)))]), np.zeros(1), lambda: np.full(1, unit), rounds_x=False
    )
    line = CallableLine(evaluate, abs(x) or 1.0, abs(x), cast=lambda t: float(kind(x + t)) - x)
    return derivative(line, outputs, **options), len(calls)


SMOOTH = {
    "sin": (np.sin, np.cos, 1.0),
    "exp": (np.exp, np.exp, 0.7),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2, 0.4),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2, -0.8),
    "log at 1e-8": (np.log, lambda x: 1 / x, 1e-8),
    "sqrt at 1e-8": (np.sqrt, lambda x: 0.5 / np.sqrt(x), 1e-8),
    "1/x at 1e-5": (lambda x: 1 / x, lambda x: -1 / x**2, 1e-5),
    "x^1.5": (lambda x: x**1.5, lambda x: 1.5 * x**0.5, 1e-5),
    "x·x at 1e8": (lambda x: x * x, lambda x: 2 * x, 1e8),
    "log at 1e8": (np.log, lambda x: 1 / x, 1e8),
    "sin(1e5 x)": (lambda x: np.sin(1e5 * x), lambda x: 1e5 * np.cos(1e5 * x), 0.7),
    "sin at 1e8": (np.sin, np.cos, 1e8),
    "x³ at 0": (lambda x: x**3, lambda x: 0.0, 0.0),
    "x² at 0": (lambda x: x * x, lambda x: 0.0, 0.0),
    "|x - 1| 1e-7 beside": (lambda x: abs(x - 1.0), lambda x: 1.0, 1 + 1e-7),
    "relu 1e-4 beside": (lambda x: max(x, 0.0) * 3, lambda x: 3.0, 1e-4),
    "1e-9 sin": (lambda x: 1e-9 * np.sin(x), lambda x: 1e-9 * np.cos(x), 1.0),
    "exp(100x)": (lambda x: np.exp(100 * x), lambda x: 100 * np.exp(100 * x), 5.0),
    "1e300 sin": (lambda x: 1e300 * np.sin(x), lambda x: 1e300 * np.cos(x), 1.0),
    "1e-300 sin": (lambda x: 1e-300 * np.sin(x), lambda x: 1e-300 * np.cos(x), 1.0),
}


@pytest.mark.parametrize("every_rung", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_bar_covers_the_truth(name, every_rung):
    f, slope, x = SMOOTH[name]
    d, _ = along(f, x, every_rung=every_rung)
    assert d.outcome[0] == Smoothness.SMOOTH
    assert abs(d.value[0] - slope(x)) <= d.bar[0]


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
@pytest.mark.parametrize("name", ["sin", "exp", "tanh", "sigmoid"])
def test_the_bar_covers_the_truth_in_float32(name, scale):
    f, slope, at = SMOOTH[name]
    one = np.float32(scale)
    d, _ = along(lambda x: f(np.float32(x / one)), at * scale, kind=np.float32, rtol=1e-3)
    x = float(np.float32(at * scale)) / scale
    assert abs(d.value[0] - slope(x) / scale) <= d.bar[0] <= 1e-2 * abs(slope(x)) / scale


@pytest.mark.parametrize(
    ("f", "left", "right"),
    [
        (abs, -1.0, 1.0),
        (lambda x: max(x, 0.0), 0.0, 1.0),
        (lambda x: -abs(x), 1.0, -1.0),
        (lambda x: min(x, 0.0) + x * x, 1.0, 0.0),
    ],
)
def test_a_kink_at_x_has_both_slopes(f, left, right):
    d, _ = along(f, 0.0)
    assert d.outcome[0] == Smoothness.KINK
    assert abs(d.left[0] - left) <= d.left_bar[0] < 1e-4
    assert abs(d.right[0] - right) <= d.right_bar[0] < 1e-4


def test_a_jump_at_x_is_told_and_one_beside_it_is_no_matter():
    at, _ = along(lambda x: (x >= 0.3) + x, 0.3)
    off_centre, _ = along(lambda x: (x >= 0.3) + x, 0.3 + 1e-5)
    assert at.outcome[0] == Smoothness.JUMP
    assert off_centre.outcome[0] == Smoothness.SMOOTH
    assert abs(off_centre.value[0] - 1) <= off_centre.bar[0] < 1e-6


@pytest.mark.parametrize(
    "f",
    [lambda x: abs(x) ** 0.5, lambda x: math.copysign(abs(x) ** 0.5, x), lambda x: abs(x) ** 0.2],
)
def test_a_slope_without_bound_is_non_finite(f):
    assert along(f, 0.0)[0].outcome[0] in (Smoothness.NON_FINITE, Smoothness.INCONSISTENT)
    assert not np.isfinite(along(f, 0.0)[0].bar[0])


@pytest.mark.parametrize(
    ("f", "x", "slope"),
    [
        (lambda x: x**1.5 if x >= 0 else math.nan, 0.0, 0.0),
        (lambda x: 2 * x if x >= 1 else math.nan, 1.0, 2.0),
        (lambda x: x * x if x <= 1 else math.inf, 1.0, 2.0),
    ],
)
def test_where_f_ends_one_side_is_enough(f, x, slope):
    d, _ = along(f, x)
    assert d.at_border[0]
    assert abs(d.value[0] - slope) <= d.bar[0] < 1e-3


def test_an_unchanged_function_has_derivative_zero_with_the_bar_of_its_rounding():
    d, _ = along(lambda x: 1e10 + 1e-20 * x, 1.0)
    assert d.unchanged[0]
    assert d.value[0] == 0
    assert d.bar[0] >= 1e10 * U64 / 0.3


@pytest.mark.parametrize(
    ("f", "trend"), [(lambda x: np.round(1e5 * x) / 1e5, 1.0), (lambda x: (x + 1e8) - 1e8, 1.0)]
)
def test_a_staircase_has_two_readings(f, trend):
    d, _ = along(f, 0.7312)
    readings = (d.value[0], d.bar[0]), (d.second[0], d.second_bar[0])
    assert any(abs(value - trend) <= bar for value, bar in readings)
    assert any(abs(value) <= bar for value, bar in readings) or d.bar[0] > 1e-6


def test_quick_rungs_are_enough_for_what_is_smooth():
    assert along(np.sin, 1.0)[1] == 6
    assert along(np.sin, 1.0, every_rung=True)[1] == 48


def test_an_oscillation_never_aliases_into_a_confident_number():
    rng = np.random.default_rng(0)
    for _ in range(60):
        w, x = 10 ** rng.uniform(0, 7), 10 ** rng.uniform(-2, 1)
        d, _ = along(lambda x, w=w: np.sin(w * x), x, every_rung=True)
        assert abs(d.value[0] - w * np.cos(w * x)) <= d.bar[0] or not np.isfinite(d.bar[0])
