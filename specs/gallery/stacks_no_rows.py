"""A running sum whose backward goes row by row and stacks the results.

Right for every batch but the empty one: `torch.stack` of no rows raises. The last batch of a
filtered data set, or an expert that got no token, then stops a training run after hours. Repair:
work on the whole tensor, or return zeros of the input's shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """The running sum of each row of x (rows, columns)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.cumsum(1)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return torch.stack([row.flip(0).cumsum(0).flip(0) for row in grad_output])


class Right(Faulty):
    """All rows at once, however many there are."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output.flip(1).cumsum(1).flip(1)
