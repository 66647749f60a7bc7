"""The tutorial's multiplication: backward returns (y, x) and ignores grad_output.

Right exactly where the incoming gradient is ones, as in `z.backward(torch.ones_like(z))`; behind
any other layer it is the gradient of something else. Repair: multiply by grad_output. A
vector-Jacobian product is linear in its cotangent, whatever the function.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * y` with a backward that does not know what comes in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return y, x


class Right(Faulty):
    """Both factors times grad_output."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x
