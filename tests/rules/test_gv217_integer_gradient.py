from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message, randn


def scales(of_index, of_factor):
    class Scales(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, index, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.factor, of_index, of_factor

    return Scales


@pytest.mark.parametrize(("of_index", "of_factor", "verdict", "said"), [
    (torch.zeros(2), None, "pass", "a gradient for index, which is a int64 tensor"),
    (None, torch.zeros(()), "fail", "a gradient for factor, which is a float"),
])
def test_a_gradient_for_what_has_none_is_found(of_index, of_factor, verdict, said):
    """Autograd drops that of a tensor, which is a warning, and raises for a plain value, which is an error."""
    result = check(scales(of_index, of_factor), randn(2), torch.tensor([0, 0]), 3.0)
    assert (result.verdict, codes(result)) == (verdict, {"GV217"})
    assert said in message(result, "GV217")


def test_after_a_gradient_for_an_integer_the_jacobian_is_judged():
    class Doubles(scales(torch.zeros(2), None)):
        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output * ctx.factor, torch.zeros(2), None

    result = check(Doubles, randn(2), torch.tensor([0, 0]), 3.0)
    assert (result.verdict, codes(result)) == ("fail", {"GV217", "GV101"})


def test_none_is_right():
    assert codes(check(scales(None, None), randn(2), torch.tensor([0, 0]), 3.0)) == set()


def test_a_floating_tensor_that_needs_no_gradient_may_be_given_one():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = ctx.saved_tensors
            return grad_output * y, grad_output * x

    assert codes(check(Product, randn(2), fixed(randn(2, seed=1)))) == set()
