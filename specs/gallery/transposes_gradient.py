"""A matrix product whose weight gradient is transposed.

With a square weight the shapes agree, nothing raises, and the layer learns the transpose of what it
should. With any other weight it fails at once, which is why tests on square matrices miss it.
Repair: the gradient of w is xᵀ·grad_output.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x @ w` for square w, with the gradient of its transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad_output @ w.T, grad_output.T @ x


class Right(Faulty):
    """The gradient of w has the layout of w."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad_output @ w.T, x.T @ grad_output
