"""The mean over columns whose backward is that of the sum.

Every gradient below is too large by the number of columns, which reads like a learning rate that
somebody tuned; it changes with the width of the layer. Repair: divide by the number of elements
that were averaged.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x.mean(1)` of a matrix, with the gradient of `x.sum(1)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.mean(1)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output[:, None].expand(ctx.shape)


class Right(Faulty):
    """Each element has the share 1/columns."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        columns: int = ctx.shape[1]
        return grad_output[:, None].expand(ctx.shape) / columns
