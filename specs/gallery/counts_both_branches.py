"""A leaky relu whose backward counts both branches at 0.

`>=` and `<=` both hold at 0, so the two slopes add up to 1.1 there: no slope between the two. It
strikes wherever zeros are common, behind a relu or in padded rows. Repair: one strict and one weak
comparison, or `torch.where`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

LEAK = 0.1


class Faulty(Function):
    """`x` where positive, `x / 10` elsewhere; the slope at 0 is 1.1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.where(x >= 0, x, LEAK * x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * (x >= 0) + LEAK * grad_output * (x <= 0)


class Right(Faulty):
    """The slope at 0 is 1, one of the two."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return torch.where(x >= 0, grad_output, LEAK * grad_output)
