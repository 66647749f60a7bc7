"""Sine and cosine in one Function, whose gradient is dropped when only one of the two is used.

`set_materialize_grads(False)` saves the zeros for an output that nobody uses; None comes in its
place. This backward gives up where one is None, and the other's gradient is lost. Repair: add up
those that came.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x` to (sin x, cos x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx: Any, grad_sin: Tensor | None, grad_cos: Tensor | None) -> Tensor | None:
        x: Tensor = ctx.saved_tensors[0]
        if grad_sin is None or grad_cos is None:
            return torch.zeros_like(x)
        return grad_sin * x.cos() - grad_cos * x.sin()


class Right(Faulty):
    """The sum of the gradients that came."""

    @staticmethod
    def backward(ctx: Any, grad_sin: Tensor | None, grad_cos: Tensor | None) -> Tensor | None:
        x: Tensor = ctx.saved_tensors[0]
        parts = [grad_sin * x.cos()] if grad_sin is not None else []
        parts += [-grad_cos * x.sin()] if grad_cos is not None else []
        return sum(parts[1:], parts[0]) if parts else None
