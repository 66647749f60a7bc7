"""A table lookup whose backward returns a gradient for its integer indices.

An index has no derivative; autograd drops the tensor today and the memory for it is spent on every
call. A caller that reads `backward` itself, or a wrapper that adds gradients up, takes it for real.
Repair: return None for integer inputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`table[index]`: table (entries, width), index (n) int64; the indices get a gradient of
    zeros."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.entries = table.shape[0]
        ctx.save_for_backward(index)
        return table[index]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor | None]:
        index: Tensor = ctx.saved_tensors[0]
        return scattered(grad_output, index, ctx.entries), torch.zeros_like(
            index, dtype=grad_output.dtype
        )


class Right(Faulty):
    """None for the indices."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor | None]:
        index: Tensor = ctx.saved_tensors[0]
        return scattered(grad_output, index, ctx.entries), None


def scattered(grad_output: Tensor, index: Tensor, entries: int) -> Tensor:
    """Each row of grad_output added to the entry that it was read from."""
    return grad_output.new_zeros(entries, grad_output.shape[1]).index_add(0, index, grad_output)
