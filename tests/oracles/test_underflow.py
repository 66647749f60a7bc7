"""In float32 a slope below the smallest normal number of float32 may be zero: the finite difference
in float64 still sees it."""

import pytest
import torch
from live import check, codes
from torch.autograd import Function

X = torch.tensor([-280.0, -200.0, -2.0, 0.5, 3.0])


def sigmoid(backward):
    class Sigmoid(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.sigmoid()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            return backward(g, *ctx.saved_tensors)

    return Sigmoid


def right(g, x, y):
    return g * y * (1 - y)


def test_a_slope_that_underflows_is_rightly_zero():
    result = check(sigmoid(right), X, dtype="float32")
    assert (result.verdict, codes(result)) == ("pass", set())


@pytest.mark.parametrize(
    ("x", "backward"),
    [
        (X, lambda g, x, y: right(g, x, y) * (x < 0)),
        (torch.tensor([-80.0, -60.0, 0.5]), lambda g, x, y: right(g, x, y) * (x > -50)),
    ],
    ids=["zero where it is 0.2", "zero where it is 1e-26"],
)
def test_a_slope_that_float32_holds_must_not_be_zero(x, backward):
    assert "GV101" in codes(check(sigmoid(backward), x, dtype="float32"))
