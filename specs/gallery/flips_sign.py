"""A difference whose backward forgets the minus sign of its second argument.

Whatever produces `y` climbs the loss instead of descending it; the layers behind `x` learn on and
hide it. Repair: return `-grad_output` for `y`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x - y` with the gradient of a sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x - y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, grad_output


class Right(Faulty):
    """The second gradient carries the minus sign."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, -grad_output
