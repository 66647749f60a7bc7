"""An added bias whose gradient is one row of grad_output instead of the sum over all rows.

The shape is right and with a batch of one so is the number. In training the bias hears only the
first example of every batch, which looks like noise. Repair: sum over every dimension that was
broadcast.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x + bias`, x (rows, columns), bias (columns); the bias gradient is that of the first row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        return x + bias

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, grad_output[0]


class Right(Faulty):
    """The bias acts on every row, so its gradient is the sum over the rows."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, grad_output.sum(0)
