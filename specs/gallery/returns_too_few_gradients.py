"""A backward that returns one gradient for two inputs.

It raises as soon as backward runs; until then the forward is used, benchmarked and shipped. Repair:
one return value for every argument of forward, None for those that are no tensors.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * y`, with a gradient for x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        _, y = ctx.saved_tensors
        return grad_output * y


class Right(Faulty):
    """A gradient for each."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x
