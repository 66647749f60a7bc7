"""The tutorial's ReLU: backward writes zeros into grad_output and returns it.

The values it returns are right, but the tensor belongs to the caller: a second branch, a hook or
`retain_grad` that shares it now reads a damaged gradient. Repair: write into a clone.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`max(x, 0)`; backward works in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        grad_output[x < 0] = 0
        return grad_output


class Right(Faulty):
    """In place on its own copy."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        grad_input = grad_output.clone()
        grad_input[x < 0] = 0
        return grad_input
