"""A low-rank adapter without its scale alpha/rank.

Adapters start with `up` at zero, so at the start the value is right whatever the scale; and
backward fits its own forward, so finite differences agree as well. It trains, with another step
size than the one that was published. Repair: scale the adapter, in forward and in backward. Only
the gradient of another implementation can tell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

ALPHA = 16.0  # the published strength of the adapter


class Faulty(Function):
    """`x + x @ down.T @ up.T`: x (n, width), down (rank, width), up (width, rank)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, down: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(x, down, up)
        return x + x @ down.T @ up.T

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, down, up = ctx.saved_tensors
        return (
            grad_output + grad_output @ up @ down,
            (grad_output @ up).T @ x,
            grad_output.T @ (x @ down.T),
        )


class Right(Function):
    """`x + alpha / rank * x @ down.T @ up.T`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, down: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(x, down, up)
        return x + scale(down) * (x @ down.T @ up.T)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, down, up = ctx.saved_tensors
        scaled = scale(down) * grad_output
        return grad_output + scaled @ up @ down, (scaled @ up).T @ x, scaled.T @ (x @ down.T)


def scale(down: Tensor) -> float:
    """alpha / rank."""
    return ALPHA / down.shape[0]


def reference(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """The adapted layer as it is published."""
    return x + scale(down) * torch.nn.functional.linear(torch.nn.functional.linear(x, down), up)
