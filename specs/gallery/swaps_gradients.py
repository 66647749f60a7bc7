"""A product that returns its two gradients in the wrong order.

Both have the same shape, so nothing raises, and where the factors are alike (a gate near 1 and a
normalised signal, say) the loss still falls.
Repair: return gradients in the order of forward's arguments.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * y`, gradients swapped."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grad_output * x, grad_output * y


class Right(Faulty):
    """The gradient of x is the other factor times grad_output, and comes first."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x
