"""A module with a learned scale whose weight gradient is averaged over the batch instead of summed.

Its input gradient is right, so everything below trains well; the weight itself learns slower the
larger the batch is. Checks that look at inputs only never see it. Repair: the weight acts on every
example, so its gradient is the sum over the examples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function


class AveragedScale(Function):
    """`x * weight`: x (examples, features), weight (features)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grad_output * weight, (grad_output * x).mean(0)


class SummedScale(AveragedScale):
    """The repair."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grad_output * weight, (grad_output * x).sum(0)


class Faulty(nn.Module):
    """Scales each feature by a learned number, all 1 at the start."""

    scale: type[Function] = AveragedScale

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """x: (examples, features)."""
        result: Tensor = self.scale.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return result


class Right(Faulty):
    """The same module on the summed gradient."""

    scale = SummedScale
