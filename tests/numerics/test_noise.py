"""Noise levels against injected noise; precision read off bits."""

import numpy as np
import pytest

from gradverify.numerics.estimate.noise import Ending, Ray, ecnoise, gradient_noise, noise_along, pooled, repeat_noise
from gradverify.numerics.roundoff import Bits
from gradverify.numerics.rungs import U32, U64, U_BF16


def ray(evaluate, n=1, x=1.3, seed=0):
    at = np.full(n, x) * (1 + 0.1 * np.arange(n))
    sign = np.random.default_rng(seed).choice([-1.0, 1.0], n)
    return Ray(at, np.abs(at), sign, lambda: np.spacing(at), lambda v: v, evaluate)


@pytest.mark.parametrize("level", [1e-14, 1e-9, 1e-3])
def test_ecnoise_finds_injected_noise_within_a_factor(level):
    rng, points = np.random.default_rng(1), np.linspace(0, 1e-6, 9)[:, None]
    f = np.sin(1 + points) + level * rng.standard_normal((9, 200))
    sigma, ending = ecnoise(f, np.ones(200))
    found = sigma[ending == Ending.FOUND]
    assert found.size > 150
    assert level / 2 < np.median(found) < 2 * level


def test_noise_under_a_polynomial_shows_in_the_last_orders_only():
    """Of degree 4: the first four orders of differences are the polynomial's own. Beside values that show theirs at once."""
    t, random = np.arange(1.0, 10.0)[:, None], np.random.default_rng(2)
    noise = 1e-12 * random.normal(size=(9, 300))
    plain, steep = 1.0 + noise, 1.0 + 1e-5 * t**4 + noise
    sigma, ending = ecnoise(np.concatenate([plain, steep], 1), np.ones(600))
    assert (ending[:300] == Ending.FOUND).mean() > 0.9
    assert (ending[300:] == Ending.FOUND).mean() > 0.3
    assert np.median(sigma[300:][ending[300:] == Ending.FOUND]) == pytest.approx(1e-12, rel=0.5)
    one = ecnoise(steep[:, :1], np.ones(1)), ecnoise(steep[:, 1:2], np.ones(1))
    assert [float(each[0][0]) for each in one] == sigma[300:302].tolist()


def test_exactly_linear_points_have_no_noise_and_constant_ones_say_so():
    points = np.stack([np.arange(9.0), np.full(9, 2.5)], 1)
    sigma, ending = ecnoise(points, np.full(2, 100.0))
    assert ending.tolist() == [Ending.FOUND, Ending.CONSTANT]
    assert not sigma.any()


def test_points_that_differ_in_the_first_digit_are_too_wide():
    _, ending = ecnoise(np.exp(3 * np.arange(9.0))[:, None], np.ones(1))
    assert ending[0] == Ending.TOO_WIDE


def test_a_kink_or_jump_at_x_is_no_noise():
    def f(x):
        return np.abs(x - 1.3) + (x > 1.3)

    for seed in range(4):
        assert noise_along(ray(f, seed=seed), np.ones(1), np.ones(1, bool)).sigma[0] < 1e-14


def test_a_coarse_grid_is_probed_further_apart_only_where_the_rungs_moved_it():
    calls = []

    def rounded(x):
        calls.append(1)
        return np.round(x * 1e7) / 1e7

    moved = noise_along(ray(rounded), np.full(1, 1.3), np.ones(1, bool))
    wide, calls[:] = len(calls), []
    still = noise_along(ray(rounded), np.full(1, 1.3), np.zeros(1, bool))
    assert (wide, len(calls)) == (18, 9)
    assert moved.sigma[0] > 1e-8 > still.sigma[0]


def test_the_secant_spans_the_probe():
    along = ray(lambda x: np.array([x.sum(), 2 * x[0]]), n=3)
    moved_by = along.moved_by()
    assert noise_along(along, np.ones(2), np.ones(2, bool)).change == pytest.approx([moved_by.sum(), 2 * moved_by[0]], rel=1e-6)


def test_a_float16_backward_shows_its_noise():
    def g(x):
        return np.cos(3e8 * x).astype(np.float16).astype(float) * 1e-3 + np.cos(x)

    sigma, _ = gradient_noise(ray(g), np.ones(1))
    assert 1e-5 < sigma[0] < 1e-1


def test_repeats_cost_one_call_where_f_is_deterministic_and_five_where_not():
    rng, calls = np.random.default_rng(0), []

    def f(level):
        calls.append(1)
        return 1 + level * rng.standard_normal(50)

    assert not repeat_noise(lambda: (calls.append(1), np.ones(3))[1], np.ones(3)).any()
    assert len(calls) == 1
    sigma = repeat_noise(lambda: f(1e-3), f(1e-3))
    assert len(calls) == 7
    assert 5e-4 < np.median(sigma) < 2e-3


def test_an_earlier_call_at_the_point_is_the_repeat_where_it_agrees_and_tells_nothing_else():
    def refused():
        raise AssertionError("called again")

    assert not repeat_noise(refused, np.ones(3), np.ones(3)).any()
    assert not repeat_noise(lambda: np.ones(3), np.ones(3), 1.1 * np.ones(3)).any()     # a first call that warms up is no noise of the others


def test_a_lucky_output_takes_its_tensors_typical_noise():
    sigma = pooled(np.array([1e-12, 0.0, 2e-12, 1.0]), np.array([1.0, 2.0, 1.0, 5.0]), [slice(0, 3), slice(3, 4)])
    assert sigma == pytest.approx([1.5e-12, 3e-12, 2e-12, 1.0])


VALUES = np.random.default_rng(0).normal(size=50)


@pytest.mark.parametrize(("values", "unit"), [
    (VALUES, U64),
    (VALUES.astype(np.float32).astype(float), U32),
    ((VALUES.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(float), U_BF16),
    (np.arange(-100.0, 100.0), U64),
    (np.array([0.5, 0.25]), U64),
    (np.array([np.nan, np.inf, 0.0]), U64),
])
def test_the_unit_roundoff_is_read_off_the_bits(values, unit):
    assert Bits().seen(values).unit == unit


def test_one_value_of_full_precision_settles_the_precision():
    assert Bits().seen(VALUES.astype(np.float32).astype(float)).seen(np.array([0.1])).unit == U64
