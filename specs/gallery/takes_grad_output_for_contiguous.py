"""A square whose backward reads grad_output from its first address on, as a kernel does that knows
a pointer and a count.

Right as long as grad_output is contiguous. Behind a transpose, a slice or a sum it is not, and the
gradient is made of other numbers, or of memory that is none of its own. Repair:
`grad_output.contiguous()` before its memory is read.
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
    """`x ** 2`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return as_if_contiguous(grad_output) * 2 * x


class Right(Faulty):
    """grad_output is made contiguous first."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return as_if_contiguous(grad_output.contiguous()) * 2 * x
