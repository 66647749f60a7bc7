"""Functions that move in steps: a right gradient of their trend is never called wrong, a wrong one
is. Truth: the smooth function itself."""

import math

import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from numerics.differentiable import Differentiable, with_backward

SMOOTH = {
    "sin": (torch.sin, torch.cos),
    "exp": (torch.exp, torch.exp),
    "cube": (lambda x: x**3, lambda x: 3 * x * x),
}


def counted(name, rows, factor, n=200):
    """Outcomes of a table with `rows` rows per unit, whose gradient is `factor` times that of the
    smooth function."""
    smooth, slope = SMOOTH[name]
    op = with_backward(
        lambda x: smooth(torch.round(x * rows) / rows), lambda x, g: factor * slope(x) * g
    )
    x = torch.randn(n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    (pair,) = compare(Differentiable(op, x), mode=Mode.ENTRIES).pairs
    return dict(zip(Outcome, pair.counts, strict=True))


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("rows", [1e6, 1e5])
def test_a_table_does_not_make_a_right_gradient_wrong(name, rows):
    seen = counted(name, rows, 1)
    assert seen[Outcome.MISMATCH] == 0
    assert seen[Outcome.STAIRCASE] > 150


@pytest.mark.parametrize("name", SMOOTH)
def test_a_table_does_not_hide_a_wrong_gradient(name):
    assert counted(name, 1e5, 2)[Outcome.MISMATCH] > 190


def test_a_zero_gradient_of_a_table_is_neither_right_nor_wrong():
    seen = counted("exp", 1e6, 0)
    assert seen[Outcome.MISMATCH] == 0
    assert seen[Outcome.UNDECIDED] + seen[Outcome.STAIRCASE] > 190


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_that_are_wide_against_the_input_make_no_right_gradient_wrong(dtype):
    x = torch.randn(200, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    found = {}
    for slope in (1.0, 3.0):
        op = with_backward(
            lambda x: torch.round(x * 1e3) / 1e3, lambda x, g, slope=slope: slope * g
        )
        (pair,) = compare(Differentiable(op, x), mode=Mode.ENTRIES).pairs
        found[slope] = dict(zip(Outcome, pair.counts, strict=True))
    assert found[1.0][Outcome.MISMATCH] == 0
    # The zeros off the diagonal, and where the trend's quotient happens to be 1
    assert found[1.0][Outcome.PASS] <= 200 * 199 + 2
    assert found[3.0][Outcome.MISMATCH] > 180


def gelu(x):
    """As kernels write it: below zero 1 + tanh moves in steps of its rounding, and the product with
    x is a slope between them."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x):
    """Without cancellation: x·σ(2u), u = √(2/π)(x + 0.044715 x³), in float64."""
    x64 = x.double()
    u = math.sqrt(2 / math.pi) * (x64 + 0.044715 * x64**3)
    du = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x64**2)
    s = torch.sigmoid(2 * u)
    return (s + 2 * x64 * s * torch.sigmoid(-2 * u) * du).to(x.dtype)


def outcomes_of_gelu(factor, dtype, low, high):
    x = torch.linspace(low, high, 120, dtype=dtype)
    (pair,) = compare(
        Differentiable(with_backward(gelu, lambda x, g: factor * gelu_slope(x) * g), x),
        mode=Mode.ENTRIES,
    ).pairs
    return dict(zip(Outcome, pair.counts, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_right_gradient_is_not_wrong_where_the_forward_loses_all_its_digits(dtype):
    assert outcomes_of_gelu(1, dtype, -9.0, 3.0)[Outcome.MISMATCH] == 0


@pytest.mark.parametrize("factor", [2, -1])
def test_a_wrong_gradient_is_found_where_the_forward_loses_half_of_its_digits(factor):
    seen = outcomes_of_gelu(factor, torch.float32, -3.0, -1.0)
    # The zeros off the diagonal
    assert seen[Outcome.MISMATCH] > 110 and seen[Outcome.PASS] == 120 * 119
