"""An exponential whose forward reads its input from the first address on, as a kernel does that
knows a pointer and a count.

Right as long as the input is contiguous; of `x.T` or `x[:, ::2]` it computes the exponential of
other numbers, without a word. Repair: `x.contiguous()` first thing in forward, or refuse what is
not contiguous.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def as_if_contiguous(x: Tensor) -> Tensor:
    """The numbers that lie in memory from the first element on: what a kernel reads that was given
    a pointer and a count."""
    contiguous = torch.empty(x.shape, device="meta").stride()
    return x.as_strided(x.shape, contiguous)


class Faulty(Function):
    """`exp(x)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = as_if_contiguous(x).exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        result: Tensor = ctx.saved_tensors[0]
        return grad_output * result


class Right(Faulty):
    """The input is made contiguous first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        result = as_if_contiguous(x.contiguous()).exp()
        ctx.save_for_backward(result)
        return result
