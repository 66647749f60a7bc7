"""A double-precision function whose backward returns float32.

Autograd casts the gradient back without a word: half of its digits are gone, and a check with a
loose tolerance passes. In a long chain the error looks like noise of the data. Repair: compute the
gradient in the input's own dtype.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`exp(x)` with a float32 gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        output = x.exp()
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        output: Tensor = ctx.saved_tensors[0]
        return (grad_output * output).float()


class Right(Faulty):
    """The gradient in the dtype of the input."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        output: Tensor = ctx.saved_tensors[0]
        return grad_output * output
