"""A matrix product whose weight gradient has the shape of the transpose.

Autograd refuses it as soon as a weight is not square, with a message that names no line of the
backward. Repair: a gradient has the shape of its argument.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x @ w`; the gradient of w is transposed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad_output @ w.T, grad_output.T @ x


class Right(Faulty):
    """The gradient of w has its shape."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad_output @ w.T, x.T @ grad_output
