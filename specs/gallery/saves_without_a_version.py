"""A square that saves `x.data`.

Backward raises when a saved tensor was written in place after forward; but `.data` has a version of
its own, which stays as it was. An in-place activation after this function makes its gradient wrong
without a word. Repair: save x.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Faulty(Function):
    """`x²`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.data)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return 2 * grad_output * x


class Right(Faulty):
    """x itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return 2 * grad_output * x
