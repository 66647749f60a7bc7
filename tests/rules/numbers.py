"""Modules that are built with a plain number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class Scaled(Function):
    """k x, of which backward takes k to be `ctx.k`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: float, said: float) -> Tensor:
        ctx.k = said
        return k * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return g * ctx.k, None, None


class Right(nn.Module):
    """A slope times w x."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope, self.weight = slope, nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Any:
        return Scaled.apply(x * self.weight, self.slope, self.slope)  # type: ignore[no-untyped-call]


class Fixed(Right):
    """A half is written into backward."""

    def forward(self, x: Tensor) -> Any:
        return Scaled.apply(x * self.weight, self.slope, 0.5)  # type: ignore[no-untyped-call]
