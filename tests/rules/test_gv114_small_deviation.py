from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn


def scaled(by):
    """tanh whose gradient is off by a factor."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.tanh(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * (1 - ctx.saved_tensors[0] ** 2) * by

    return Scaled


@pytest.mark.parametrize(("off", "expected"), [(0.0, set()), (1e-7, {"GV114"}), (1e-8, {"GV114"}), (1e-4, {"GV101"})])
def test_a_deviation_far_above_the_bars_and_below_the_tolerance_is_told(off, expected):
    assert codes(check(scaled(1 + off), randn(6))) == expected


def test_the_size_is_printed():
    assert "1e-07 of its size" in message(check(scaled(1 + 1e-7), randn(6)), "GV114")


@pytest.mark.parametrize("function", [torch.exp, torch.sin, torch.sigmoid, torch.nn.functional.gelu, lambda x: x.softmax(0), torch.cumprod],
                         ids=["exp", "sin", "sigmoid", "gelu", "softmax", "cumprod"])
def test_right_functions_deviate_by_no_more_than_their_bars(function):
    result = check(lambda x: function(x, 0), randn(6)) if function is torch.cumprod else check(function, randn(6))
    assert codes(result) == set()


def test_a_fixed_step_has_no_bars_to_measure_by():
    assert codes(check(scaled(1 + 1e-7), randn(6), eps=1e-6)) == set()
