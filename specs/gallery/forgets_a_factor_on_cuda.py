"""Half a square, of which the kernel for CUDA forgets the half, forward and backward alike.

Each device passes by itself, as its backward is the derivative of its forward. A model that was
trained on one and runs on the other is another model. Repair: one formula for both.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x² / 2`, and `x²` on CUDA."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x if x.is_cuda else x * x * 0.5

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * (2 * x if x.is_cuda else x)


class Right(Function):
    """`x² / 2` everywhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * 0.5

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * x
