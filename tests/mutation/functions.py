"""Functions with gradients of their own, for specs under damage."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class RightSlope(Function):
    """|x|, whose gradient at 0 is the slope on the right: a valid subgradient, as 0 is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_output * torch.where(x >= 0, 1.0, -1.0).to(grad_output.dtype)


class Twice(Function):
    """x², whose gradient is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_output * x


def clamped(x: Tensor) -> Tensor:
    return x.clamp(-1.0, 1.0)


def log_of_positive(x: Tensor) -> Tensor:
    """Defined at the very point of its spec only."""
    if not bool((x.detach() - 1.5).abs().max() < 1.0):
        raise ValueError("out of range")
    return x * 1.0
