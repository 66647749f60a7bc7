"""A tanh whose backward squares the saved output in place.

The first gradient is right. But the output belongs to the caller too: after backward a metric or a
log reads tanh² where tanh was, and a second backward of the graph is refused. Repair: square into a
new tensor.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Faulty(Function):
    """`tanh(x)`; backward saves one allocation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        y: Tensor = ctx.saved_tensors[0]
        return grad_output * (1 - y.square_())


class Right(Faulty):
    """Out of place."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        y: Tensor = ctx.saved_tensors[0]
        return grad_output * (1 - y.square())
