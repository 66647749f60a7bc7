from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn

from rules.functions import Right, product, square


def test_a_backward_that_raises_on_nothing_is_found():
    result = check(square(lambda x, g: torch.stack([2 * row for row in x * g])), randn(0, 3))
    assert (result.verdict, codes(result)) == ("fail", {"GV221"})
    assert "x [0, 3]" in message(result, "GV221")


def test_a_gradient_that_is_not_zero_for_an_empty_output_is_found():
    class TakesNone(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, index):
            ctx.shape = x.shape
            return x[index]

        @staticmethod
        def backward(ctx, grad_output):
            return torch.full(ctx.shape, 7.0, dtype=grad_output.dtype), None

    result = check(TakesNone, randn(3), torch.zeros(0, dtype=torch.int64))
    assert codes(result) == {"GV221"}
    assert "must be zero, but it holds 7" in message(result, "GV221")


@pytest.mark.parametrize("function", [Right, torch.sin, lambda x: x.sum(), lambda x: (x * 2).sum(0)])
def test_right_functions_of_nothing_pass(function):
    result = check(function, randn(0, 3))
    assert (result.verdict, codes(result)) == ("pass", set())


def test_one_empty_input_of_two_is_checked_like_any_other():
    assert codes(check(lambda x, y: x.sum() + y, randn(0), randn(2))) == set()
    assert codes(check(product(lambda ctx, x, y, g: (g * y, g * x)), randn(0, 3), randn(0, 3))) == set()


def test_without_a_zero_size_it_does_not_apply():
    run, = (run for run in check(torch.sin, randn(2)).rules if run.code == "GV221")
    assert (run.status, run.reason) == ("not_applicable", "the spec gives no zero size")
