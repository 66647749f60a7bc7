"""A sine that keeps its cosine on ctx.

Forward runs without a graph, so backward multiplies by a constant: the gradient is right, its own
derivative is zero, and nothing is raised. A gradient penalty then trains on the wrong loss. Repair:
save the input, and compute the cosine in backward.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`sin(x)` whose backward reads an intermediate of forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.cosine = x.cos()
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        gradient: Tensor = grad_output * ctx.cosine
        return gradient


class Right(Function):
    """The cosine computed from what was saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gradient: Tensor = grad_output * x.cos()
        return gradient
