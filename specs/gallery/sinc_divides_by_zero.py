"""sin(x)/x whose backward divides by x² at 0.

Forward treats 0 with care and backward does not: 0/0 is NaN, and one NaN in a gradient ruins every
weight below it. Random inputs never are exactly 0, padded ones are. Repair: near 0 use the power
series, and keep the division away from 0 also where its result is not taken.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`sin(x) / x`, 1 at 0; its derivative is NaN there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.where(x == 0, 1.0, x.sin() / x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * quotient(x)


class Right(Faulty):
    """The series near 0, the quotient elsewhere."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        near_zero = x.abs() < SERIES_BELOW
        return grad_output * torch.where(
            near_zero, series(x), quotient(x.masked_fill(near_zero, 1.0))
        )


# There the quotient has lost u/x², about 1e-13, to cancellation; the first dropped term is below
# 1e-20
SERIES_BELOW = 0.03


def quotient(x: Tensor) -> Tensor:
    """The derivative of sin(x)/x for x ≠ 0."""
    return (x * x.cos() - x.sin()) / (x * x)


def series(x: Tensor) -> Tensor:
    """The same as a power series: −x/3 + x³/30 − x⁵/840 + x⁷/45360."""
    square = x * x
    return -x * (1 / 3 - square * (1 / 30 - square * (1 / 840 - square / 45360)))
