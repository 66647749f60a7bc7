"""An added bias whose gradient keeps the shape of the broadcast result.

Autograd sums it down to the bias's shape, so the numbers are right; a Function that builds on this
one, a hook, or a caller of `backward` gets a tensor of the wrong shape, and a broadcast over a
dimension of size 1 in the input goes wrong elsewhere. Repair: sum over the broadcast dimensions.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x + bias`: x (rows, columns), bias (columns); the bias gradient is (rows, columns)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        return x + bias

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, grad_output


class Right(Faulty):
    """The bias gradient has the shape of the bias."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, grad_output.sum(0)
