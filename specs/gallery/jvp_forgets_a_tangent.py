"""A product whose forward mode knows its first factor only.

Training runs backward, which is right; `torch.func.jvp`, `jacfwd` and Hessian-vector products run
jvp, and lose a term wherever y moves.
Repair: the product rule, x_t · y + x · y_t.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * y` whose jvp is `x_t * y`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x

    @staticmethod
    def jvp(ctx: Any, x_t: Tensor, y_t: Tensor) -> Tensor:
        y: Tensor = ctx.saved_tensors[1]
        return x_t * y


class Right(Faulty):
    """Both terms of the product rule."""

    @staticmethod
    def jvp(ctx: Any, x_t: Tensor, y_t: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        result: Tensor = x_t * y + x * y_t
        return result
