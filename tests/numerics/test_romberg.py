"""Extrapolation against closed forms: bars that hold, and no value from a plateau that finer rungs
leave."""

import numpy as np
import pytest

from gradverify.numerics.estimate.ladder import one_sided, pick
from gradverify.numerics.rungs import QUICK, RUNGS, step

ALL = np.array([step(1.0, k) for k in range(RUNGS)])
FEW = np.array([step(1.0, k) for k in QUICK])


def quotients(f, x, h):
    return ((f(x + h) - f(x - h)) / (2 * h))[:, None]


def picked(f, x, h, sigma=1e-16, full=True):
    return pick(quotients(f, x, h), h[:, None], np.full((len(h), 1), sigma), full)


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (np.sin, np.cos),
        (np.exp, np.exp),
        (lambda x: 1 / x, lambda x: -1 / x**2),
        (lambda x: x**5, lambda x: 5 * x**4),
    ],
)
@pytest.mark.parametrize("x", [0.7, 1.3])
@pytest.mark.parametrize(("h", "largest"), [(ALL, 1e-9), (FEW, 1e-8)])
def test_the_bar_holds_and_is_narrow(f, slope, x, h, largest):
    choice = picked(f, x, h, sigma=4e-16, full=len(h) > 8)
    assert abs(choice.value[0] - slope(x)) <= choice.bar[0] < largest * abs(slope(x)) + 1e-9


def test_random_numbers_are_never_certified_narrowly():
    noise = np.random.default_rng(0).standard_normal((RUNGS, 300))
    choice = pick(noise, ALL[:, None] * np.ones((1, 300)), np.full((RUNGS, 300), 1e-16), True)
    assert np.mean((choice.rung >= 0) & (choice.bar < 1e-2)) < 0.02


def test_a_plateau_that_finer_rungs_leave_gives_no_value():
    D = np.where(np.arange(RUNGS) < 12, 1.0, 2.0)[:, None]
    choice = pick(D, ALL[:, None], np.full((RUNGS, 1), 1e-16), True)
    assert choice.value[0] == 2.0


def test_three_changes_bound_the_error_of_a_fractional_order_at_a_border():
    h = ALL[:12, None]
    choice = one_sided(h**1.5 + 3 * h, h, np.full_like(h, 1e-17), safety=3.0)
    assert abs(choice.value[0] - 3) <= choice.bar[0] < 1e-2
