"""A backward that reads an attribute which forward never set on ctx.

Inference works, and so does every test of the values; the first training step raises. Repair: keep
in forward what backward reads.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * factor` for a plain number; backward looks for `ctx.factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        return grad_output * ctx.factor, None


class Right(Faulty):
    """The factor is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x * factor
