"""Behaviour near x, or far from it, that nothing at x shows: limits of clamps, and losses at
their minimum. Truth: closed forms."""

import pytest
import torch
from live import check

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from numerics.differentiable import DOUBLE, Differentiable, with_backward

NEAR = (1e-2, 1e-4, 1e-6)


def outcomes(f, gradient, x):
    (pair,) = compare(Differentiable(with_backward(f, gradient), x), mode=Mode.ENTRIES).pairs
    return dict(zip(Outcome, pair.counts, strict=True))


# ---- near a limit
PLATEAUS = {  # a function that is constant above 1, and its slope below
    "clamp": (lambda x: x.clamp(max=1.0), 1.0),
    "a jump to a constant": (lambda x: torch.where(x > 1, 2.0, x), 1.0),
    "a jump of a quarter": (lambda x: torch.where(x > 1, 1.25, 1.0 + 0 * x), 0.0),
}


@pytest.mark.parametrize("distance", NEAR)
@pytest.mark.parametrize("name", PLATEAUS)
def test_a_zero_beside_a_limit_is_right_and_a_slope_is_wrong(name, distance):
    f, slope = PLATEAUS[name]
    x = torch.tensor([1 + distance, 1 - 3 * distance, 0.3], dtype=DOUBLE)
    right = outcomes(f, lambda x, g: torch.where(x > 1, 0.0, slope) * g, x)
    assert right[Outcome.PASS] == 9
    wrong = outcomes(f, lambda x, g: torch.where(x > 1, 0.5, slope) * g, x)
    assert (wrong[Outcome.MISMATCH], wrong[Outcome.PASS]) == (1, 8)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("inner", [1e6, 1e8])
def test_a_zero_where_f_moves_in_steps_on_both_sides_is_not_passed(inner, seed):
    """x + c − c: its treads are the roundings of c, and x lies anywhere on one."""
    x = torch.randn(20, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    seen = outcomes(lambda x: (x + inner) - inner, lambda x, g: 0 * g, x)
    assert seen[Outcome.PASS] == 20 * 19  # the zeros off the diagonal


# ---- a loss at its minimum
T = torch.tensor([1.0, -0.5, 2.0], dtype=DOUBLE)
MINIMA = {  # a loss that is 0 at T with its gradient
    "mean square": (lambda x: ((x - T) ** 2).mean(), lambda x: 2 * (x - T) / 3),
    "exp(d) - d - 1": (
        lambda x: (torch.exp(x - T) - (x - T) - 1).sum(),
        lambda x: torch.exp(x - T) - 1,
    ),
    "KL divergence": (
        lambda x: (T.softmax(0) * (T.log_softmax(0) - x.log_softmax(0))).sum(),
        lambda x: x.softmax(0) - T.softmax(0),
    ),
    "1 - cosine": (
        lambda x: 1 - (x @ T) / (x.norm() * T.norm()),
        lambda x: (x @ T * x / x.norm() ** 2 - T) / (x.norm() * T.norm()),
    ),
    "Rosenbrock": (
        lambda x: (
            (T[0] - x[0]) ** 2
            + 100 * (x[1] - T[1] - x[0] ** 2 + T[0] ** 2) ** 2
            + (x[2] - T[2]) ** 2
        ),
        lambda x: 0 * x,
    ),
}


@pytest.mark.parametrize("name", MINIMA)
def test_at_the_minimum_of_a_loss_the_right_gradient_passes_and_one_that_is_off_fails(name):
    """As a check goes: of 1 - cosine, which cancels, one element may stay open."""
    f, slope = MINIMA[name]
    right, wrong = (
        check(
            with_backward(f, lambda x, g, off=off: g * (slope(x) + off)),
            T.clone(),
            select=("GV101", "GV007"),
        )
        for off in (0, 1e-7)
    )
    assert right.verdict == "pass"
    assert sum(each.undecided for each in right.comparisons) <= (name == "1 - cosine")
    assert sum(each.mismatched for each in wrong.comparisons) == 3


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e-14])
def test_a_zero_of_a_small_function_that_vanishes_with_a_slope_is_wrong(size):
    seen = outcomes(lambda x: size * (x - T), lambda x, g: 0 * g, T.clone())
    assert seen[Outcome.MISMATCH] == 3
