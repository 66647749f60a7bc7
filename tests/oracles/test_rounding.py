"""Two right ways to a gradient, of which one rounds larger numbers inside than it returns, and a
formula that is wrong by as little.

The class: a difference between backward and another opinion (a reference, a hand-written gradient,
numbers in the spec) that comes and goes with the bits of the inputs is no disagreement, whichever
of the two rounds; one that stays is, however small the gradient.
"""

import math

import pytest
import torch
from live import Oracles, check, codes, randn
from torch.autograd import Function

HERE = "oracles.test_rounding"


def accurate(x):
    return torch.tanh(x)


def cancelling(x):
    """tanh, in steps of the rounding of 1."""
    return 1 - 2 / (1 + torch.exp(2 * x))


def log_cosh(slope):
    class LogCosh(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.abs() + torch.nn.functional.softplus(-2 * x.abs()) - math.log(2)

        @staticmethod
        def backward(ctx, g):
            return g * slope(*ctx.saved_tensors)

    return LogCosh


def by_accurate(x):
    return log_cosh(accurate).apply(x)


def gradient_accurate(x, g):
    return g * accurate(x)


SMALL = [
    torch.tensor([3e-11], dtype=torch.float64),
    torch.tensor([3e-11, -4e-10, 7e-12], dtype=torch.float64),
]
ROUTES = [(cancelling, "accurate"), (accurate, "cancelling")]


@pytest.mark.parametrize("x", SMALL, ids=["one", "three"])
@pytest.mark.parametrize(("slope", "other"), ROUTES, ids=["backward rounds", "the other rounds"])
def test_what_one_of_two_right_ways_rounds_away_accuses_nobody(slope, other, x):
    for oracles in (
        Oracles(reference=f"{HERE}:by_{other}"),
        Oracles(gradient=f"{HERE}:gradient_{other}"),
    ):
        assert not codes(check(log_cosh(slope), x, oracles=oracles)) & {"GV106", "GV107"}


@pytest.mark.parametrize("x", SMALL, ids=["one", "three"])
def test_nor_do_accurate_numbers_in_the_spec(x):
    assert "GV107" not in codes(
        check(log_cosh(cancelling), x, oracles=Oracles(expected={"x": accurate(x).tolist()}))
    )


@pytest.mark.population(most=4)
@pytest.mark.parametrize("factor", [1 + 1e-5, 1.01, 0.0, -1.0])
@pytest.mark.parametrize("x", [*SMALL, randn(3)], ids=["one", "three", "large"])
def test_a_formula_that_is_off_is_found_where_neither_rounds(x, factor):
    function = log_cosh(lambda x: factor * torch.tanh(x))
    assert codes(check(function, x, oracles=Oracles(reference=f"{HERE}:by_accurate"))) & {"GV106"}
    for oracles in (
        Oracles(gradient=f"{HERE}:gradient_accurate"),
        Oracles(expected={"x": accurate(x).tolist()}),
    ):
        assert codes(check(function, x, oracles=oracles)) & {"GV107"}


@pytest.mark.parametrize("factor", [1 + 1e-5, 0.0, -1.0])
def test_one_that_is_off_by_more_than_the_rounding_is_found_beside_it(factor):
    function = log_cosh(lambda x: factor * cancelling(x))
    assert "GV106" in codes(
        check(function, randn(3), oracles=Oracles(reference=f"{HERE}:by_accurate"))
    )
    assert "GV107" in codes(
        check(function, randn(3), oracles=Oracles(gradient=f"{HERE}:gradient_accurate"))
    )
