"""A relu that deletes its mask in backward, to free memory early.

Training asks for one backward. Two losses on one output, a gradient penalty or a Jacobian ask for a
second one, with `retain_graph=True`, and it raises. Repair: `save_for_backward` lets go of its
tensors by itself as soon as no backward can follow.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`max(x, 0)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mask = x > 0
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        gradient: Tensor = grad_output * ctx.mask
        del ctx.mask
        return gradient


class Right(Faulty):
    """The mask is saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x > 0)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        mask: Tensor = ctx.saved_tensors[0]
        return grad_output * mask
