"""An exponential that keeps its output as an attribute of ctx.

The output refers to its node, the node is ctx, and ctx refers to the output: a circle that
reference counting cannot free. Every step leaves its activations in memory until the garbage
collector happens to run. Repair: `save_for_backward` knows outputs and makes no circle.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`exp(x)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.y = x.exp()
        result: Tensor = ctx.y
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        y: Tensor = ctx.y
        return grad_output * y


class Right(Faulty):
    """Saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        y: Tensor = ctx.saved_tensors[0]
        return grad_output * y
