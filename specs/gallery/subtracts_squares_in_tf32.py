"""Squared distances of points, by `|x|² + |y|² - 2 x·y`.

Where the points are far from the origin large numbers are to cancel, and in TF32, which has ten
bits, the product is off by more than the distances are: neighbours are wrong on every GPU with
tensor cores, and right on the others. Repair: sum the squares of differences.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def product(a: Tensor, b: Tensor) -> Tensor:
    """As tensor cores compute it where that is allowed: operands of ten bits."""
    if torch.backends.cuda.matmul.allow_tf32:
        a, b = (
            torch.ldexp(torch.frexp(x).mantissa.half().float(), torch.frexp(x).exponent)
            for x in (a, b)
        )
    return a @ b


class Right(Function):
    """`Σ (x - y)²`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return (x[:, None] - y).square().sum(2)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        weighed = 2 * grad_output[:, :, None] * (x[:, None] - y)
        return weighed.sum(1), -weighed.sum(0)


class Faulty(Right):
    """`|x|² + |y|² - 2 x·y`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x.square().sum(1)[:, None] + y.square().sum(1) - 2 * product(x, y.T)
