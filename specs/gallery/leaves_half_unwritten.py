"""A product with its own gradient, of which `backward` writes the positive rows only.

The rest is what memory happened to hold: zeros in the test, which is right for a ReLU and nothing
else, and any number in training.
Repair: write every element, or begin with zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x²`, whose gradient is written where x is positive."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        grad_x, positive = torch.empty_like(x), x > 0
        grad_x[positive] = 2 * x[positive] * grad_output[positive]
        return grad_x


class Right(Faulty):
    """All of it."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        grad_x, positive = torch.empty_like(x), x > 0
        grad_x[positive] = 2 * x[positive] * grad_output[positive]
        grad_x[~positive] = 2 * x[~positive] * grad_output[~positive]
        return grad_x
