"""Noise levels against injected noise; precision read off bits."""

import numpy as np
import pytest

from gradverify.numerics.estimate.noise import Ending, ecnoise, repeat_noise
from gradverify.numerics.roundoff import Bits
from gradverify.numerics.rungs import U32, U64, U_BF16


@pytest.mark.parametrize("level", [1e-14, 1e-9, 1e-3])
def test_ecnoise_finds_injected_noise_within_a_factor(level):
    rng, points = np.random.default_rng(1), np.linspace(0, 1e-6, 9)[:, None]
    f = np.sin(1 + points) + level * rng.standard_normal((9, 200))
    sigma, ending = ecnoise(f, np.ones(200))
    found = sigma[ending == Ending.FOUND]
    assert found.size > 150
    assert level / 2 < np.median(found) < 2 * level


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


VALUES = np.random.default_rng(0).normal(size=50)


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        (VALUES, U64),
        (VALUES.astype(np.float32).astype(float), U32),
        (
            (VALUES.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000))
            .view(np.float32)
            .astype(float),
            U_BF16,
        ),
        (np.arange(-100.0, 100.0), U64),
        (np.array([0.5, 0.25]), U64),
        (np.array([np.nan, np.inf, 0.0]), U64),
    ],
)
def test_the_unit_roundoff_is_read_off_the_bits(values, unit):
    assert Bits().seen(values).unit == unit
