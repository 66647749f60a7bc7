"""The tutorial's addition: it saves its result for backward and never uses it.

All numbers are right. The saved tensor lives until the backward pass is over: memory held for
nothing, in every layer that adds. Repair: save only what backward reads.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x + y` of equal shapes, result saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        output = x + y
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, grad_output


class Right(Faulty):
    """Nothing saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + y
