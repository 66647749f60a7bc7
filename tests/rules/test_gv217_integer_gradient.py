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


@pytest.mark.parametrize(("of_index", "of_factor", "said"), [
    (torch.zeros(2), None, "a gradient for index, which is a int64 tensor"),
    (None, torch.zeros(()), "a gradient for factor, which is a float"),
])
def test_a_gradient_for_what_has_none_is_found(of_index, of_factor, said):
    result = check(scales(of_index, of_factor), randn(2), torch.tensor([0, 0]), 3.0)
    assert codes(result) == {"GV217"}
    assert said in message(result, "GV217")


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
