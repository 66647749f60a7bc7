from __future__ import annotations

import pytest
import torch
from live import check, codes, randn

from rules.functions import RightProduct, X, Y, product, square

WRONG = {
    "factor": lambda x, g: x * g,
    "sign": lambda x, g: -2 * x * g,
    "one per mille": lambda x, g: 2.002 * x * g,
    "one in a hundred thousand": lambda x, g: 2.00002 * x * g,
    "transposed": lambda x, g: (2 * x * g).t().reshape(2, 3),
    "one element": lambda x, g: torch.where(torch.arange(6).reshape(2, 3) == 4, 0.0, 2 * x * g),
    "zero": lambda x, g: torch.zeros_like(x),
    "leak": lambda x, g: 2 * x * g + 1e-4 * g.sum(),
}


@pytest.mark.parametrize("backward", WRONG.values(), ids=WRONG)
def test_a_wrong_backward_is_found(backward):
    result = check(square(backward), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV101"})


def test_the_finding_names_input_output_element_and_both_values():
    result = check(square(WRONG["one element"]), X)
    found, = result.findings
    assert (found.input, found.output) == ("x", 0)
    assert "1 of 36 elements of d y0 / d x differs" in found.message
    assert "at y0[1,1] / x[1,1]: analytic 0, numeric -0.5" in found.message
    worst = result.comparisons[0].worst
    assert [(entry.output_index, entry.input_index, entry.analytic, entry.outcome) for entry in worst] == [((1, 1), (1, 1), 0.0, "mismatch")]
    assert worst[0].numeric == pytest.approx(-0.5)
    assert found.source == "return backward(x, grad_output)"


def test_every_pair_of_input_and_output_is_judged_by_itself():
    def two(x, y):
        return product(lambda ctx, x, y, g: (g * y, g * x * 2)).apply(x, y), x + y

    result = check(two, X, Y)
    assert [(found.input, found.output) for found in result.findings] == [("y", 0)]
    assert [(each.input, each.output, each.elements) for each in result.comparisons] == [("x", 0, 36), ("x", 1, 36), ("y", 0, 36), ("y", 1, 36)]


def test_only_the_outputs_that_the_spec_names_are_judged():
    def two(x, y):
        return product(lambda ctx, x, y, g: (g * y, g * x * 2)).apply(x, y), x + y

    assert codes(check(two, X, Y, outputs=(1,))) == set()
    assert codes(check(two, X, Y, outputs=(0,))) == {"GV101"}


def test_a_missing_conjugate_is_found():
    z, w = randn(3, dtype=torch.complex128), randn(3, seed=1, dtype=torch.complex128)
    assert codes(check(RightProduct, z, w)) == {"GV101"}        # right for real numbers only
    assert codes(check(product(lambda ctx, x, y, g: (g * y.conj(), g * x.conj())), z, w)) == set()


def test_float32_has_its_own_tolerance():
    assert codes(check(square(lambda x, g: 2 * x * g), X.float(), dtype="float32")) == set()
    assert codes(check(square(lambda x, g: 2.1 * x * g), X.float(), dtype="float32")) == {"GV101"}


def test_a_right_backward_passes_with_every_element_counted():
    result = check(RightProduct, X, Y)
    assert (result.verdict, codes(result)) == ("pass", set())
    assert sum(each.elements for each in result.comparisons) == 72


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


@pytest.mark.parametrize("seed", range(6))
def test_steps_beside_x_are_no_straight_line(seed):
    """All wrong elements are counted: one that moves only far from x is not taken for linear there."""
    found = next(each for each in check(Straight, randn(5, seed=seed), seed=seed).findings if each.code == "GV101")
    assert found.message.startswith("5 of 25 ")
