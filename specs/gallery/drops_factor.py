"""The square whose backward drops the factor 2.

The direction of the gradient is right, so training converges, at half the learning rate for every
layer below this one. Repair: d(x²)/dx = 2x.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x ** 2` with the derivative `x`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * x


class Right(Faulty):
    """The derivative is `2 * x`."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * 2 * x
