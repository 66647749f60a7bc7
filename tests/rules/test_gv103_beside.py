"""NaN or infinity where the finite difference is finite and resolved is GV103, whatever else is there; an infinite derivative is left alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from live import check, codes
from torch import Tensor
from torch.autograd import Function

BESIDE = {  # forward, input; the first element is where backward is made to fail
    "a kink": (torch.relu, (0.3, 0.0, -1.0)),
    "a clamp": (lambda x: x.clamp(-1, 1), (0.3, 1.0, -1.0)),
    "a tie": (lambda x: x[0] ** 2 + x[1:].amax(), (0.3, 2.0, 2.0)),
    "noise": (lambda x: x * x + 1e-10 * (1e12 * x).sin(), (0.3, 1.0, 2.0)),
    "a saturated tail": (torch.tanh, (0.3, 25.0, -25.0)),
    "the end of a domain": (torch.sqrt, (0.3, 0.0, 2.0)),
}


def planted(forward: Any, value: float) -> type[Function]:
    class Planted(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                found, = torch.autograd.grad(forward(x), x, g)
            return torch.cat([torch.full_like(found[:1], value), found[1:]])
    return Planted


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("name", BESIDE)
def test_what_is_no_number_beside_it_is_found(name: str, value: float):
    forward, x = BESIDE[name]
    assert "GV103" in codes(check(planted(forward, value), leaf(*x), select=("GV101", "GV103"), ignore=("GV0",)))


class ClampedAcos(torch.autograd.Function):
    """As torch itself had it before 2.14."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1).acos()

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return (x.abs() <= 1) * grad_output * -(1 - x.clamp(-1, 1) ** 2).rsqrt()


def test_nan_beside_a_finite_slope_on_one_side_is_found():
    """acos' is infinite at 1, and 0 · inf is what backward gives for the other outputs, which do not depend on that input."""
    result = check(ClampedAcos.apply, leaf(0.5, 1.0, -1.0), select=("GV101", "GV103"), ignore=("GV0",))
    assert result.verdict == "fail" and codes(result) == {"GV103"}


@pytest.mark.parametrize(("forward", "x"), [
    (torch.sqrt, leaf(0.0, 1.0, 2.0)), (torch.acos, leaf(0.5, 1.0, -1.0)), (lambda x: x.abs().sqrt(), leaf(0.0, 1.0, 2.0)),
    (lambda x: x.abs().sqrt() + 1000 * x, leaf(0.0, 1.0, 2.0)), (lambda x: x.sign() * x.abs().pow(1 / 3), leaf(0.0, 1.0, 2.0))],
    ids=["sqrt", "acos", "root of |x|", "steep root", "cube root"])
def test_a_derivative_that_is_infinite_is_left_alone(forward: Any, x: Tensor):
    assert not codes(check(forward, x, select=("GV101", "GV103"), ignore=("GV0",)))
