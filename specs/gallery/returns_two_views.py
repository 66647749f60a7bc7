"""A residual sum whose backward returns two views of grad_output.

Autograd keeps each view as the `.grad` of its leaf without a copy, as nobody else holds it: both
lie in one memory, and the next gradient is added twice to each. The first step is right. Repair:
return grad_output itself, which autograd sees to be held elsewhere, and copies.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x + residual` of equal shapes, computed flat."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor) -> Tensor:
        ctx.shape = x.shape
        return (x.reshape(-1) + residual.reshape(-1)).reshape(x.shape)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        flat = grad_output.reshape(-1)
        return flat.view(ctx.shape), flat.view(ctx.shape)


class Right(Faulty):
    """The gradient is one tensor."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, grad_output
