"""A backward that takes another way for a grad_output with one element is not linear."""

import torch
from live import check, codes, randn
from torch.autograd import Function


def scaled(when):
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g * (1.5 if when(int((g != 0).sum())) else 1.0)

    return Square


def test_one_element_alone_is_pulled_back_otherwise():
    assert "GV201" in codes(check(scaled(lambda count: count > 1), randn(2, 3)))


def test_a_backward_that_looks_and_does_nothing_is_left_alone():
    assert "GV201" not in codes(check(scaled(lambda count: count < 0), randn(2, 3)))


def test_a_sum_over_rows_is_left_alone():
    assert codes(check(lambda x: torch.logsumexp(x, -1), randn(3, 4))) == set()
