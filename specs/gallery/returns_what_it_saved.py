"""A loss that computes its gradient in forward and hands out the saved tensor itself when
grad_output is 1.

`loss.backward()` is that case, so the shortcut is the rule. What it returns is the caller's to
write into, and may become `x.grad`: with `retain_graph=True` the next backward is refused, or
returns what was left of it. Repair: return a result of your own.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Faulty(Function):
    """`sum(x²)`, a 0-dim tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(2 * x)
        return (x * x).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        gradient: Tensor = ctx.saved_tensors[0]
        return gradient if grad_output == 1 else grad_output * gradient


class Right(Faulty):
    """Always the product, and from x, so that it can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x * x).sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * 2 * x
