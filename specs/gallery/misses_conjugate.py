"""A complex product whose backward forgets the conjugate.

On real tensors it is right, and a test on real tensors passes. On complex ones the imaginary part
of the gradient points the wrong way. Repair: PyTorch's gradient of z is ∂L/∂a + i ∂L/∂b, so the
factor is conjugated: grad_x = grad_output · conj(y).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * y` without conjugates."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x


class Right(Faulty):
    """The other factor, conjugated."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grad_output * y.conj(), grad_output * x.conj()
