"""A squared deviation from the mean that subtracts the mean from its input in place.

The write goes through `.data`, so autograd does not know of it, and the gradient of this function
is right. The caller's tensor is another one
afterwards: the residual branch beside this layer reads it too. Repair: subtract into a new tensor.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`(x - mean(x))²`, by element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.data.sub_(x.mean())
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        gradient = 2 * grad_output * (x - x.mean())
        return gradient - gradient.mean()


class Right(Faulty):
    """The deviation is a tensor of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        deviation = x - x.mean()
        return deviation * deviation
