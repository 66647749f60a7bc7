"""A ReLU that keeps its mask on the class instead of on ctx.

One forward and one backward are right. Two layers of a network share the class: the backward of the
first one uses the mask of the second. Repair: what belongs to one call is kept on ctx.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`max(x, 0)`; the mask of the last call is the mask of all."""

    mask: Tensor

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Faulty.mask = x > 0
        return x * Faulty.mask

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output * Faulty.mask


class Right(Faulty):
    """Every call has its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mask = x > 0
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        mask: Tensor = ctx.saved_tensors[0]
        return grad_output * mask
