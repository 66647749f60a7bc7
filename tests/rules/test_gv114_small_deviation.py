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


@pytest.mark.parametrize("least", [1e-8, 1e-10])
def test_what_an_inverse_makes_of_rounding_is_no_deviation(least):
    """det(A)·A⁻ᵀ, whose closed form knows no inverse, is good to the condition number times a roundoff."""
    (u, _), (v, _) = torch.linalg.qr(randn(4, 4, seed=2)), torch.linalg.qr(randn(4, 4, seed=3))
    a = u * torch.tensor([1.0, 0.8, 0.6, least], dtype=torch.float64) @ v

    class Determinant(torch.autograd.Function):
        off = 0.0

        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return torch.linalg.det(a)

        @staticmethod
        def backward(ctx, grad_output):
            a, = ctx.saved_tensors
            return grad_output * torch.linalg.det(a) * torch.linalg.inv(a).T * (1 + Determinant.off)

    assert codes(check(Determinant, a, select=("GV114",))) == set()
    Determinant.off = 5e-7
    assert codes(check(Determinant, a, select=("GV114",))) == ({"GV114"} if least == 1e-8 else set())
