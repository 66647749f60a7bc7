"""A learned gain whose gradient is None.

Autograd reads None as zero: the gain is never updated, raises nothing, and the rest of the model
learns around a constant. Repair: return a gradient for every tensor that needs one.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * gain` of equal shapes, with no gradient for gain."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor) -> Tensor:
        ctx.save_for_backward(x, gain)
        return x * gain

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor | None]:
        _, gain = ctx.saved_tensors
        return grad_output * gain, None


class Right(Faulty):
    """The gain has a gradient too."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor | None]:
        x, gain = ctx.saved_tensors
        return grad_output * gain, grad_output * x
