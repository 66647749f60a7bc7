"""A square whose backward has a fast path for float32, which forgot the factor 2.

Gradient checks run in float64 and never take that path; training does nothing else. Repair: the
factor, and a check with `dtype: float32`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x ** 2`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        if x.dtype == torch.float32:
            return grad_output * x
        return grad_output * 2 * x


class Right(Faulty):
    """One path for every dtype."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * 2 * x
