"""A table lookup whose backward overwrites the gradient of a row that is looked up twice.

`grad[index] = grad_output` keeps the last one only. Where indices do not repeat, as a few drawn
from a large table, it is right. Repair: `index_add`, which adds them up.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`table[index]`: table (entries, width), index (n) int64."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.entries = table.shape[0]
        ctx.save_for_backward(index)
        return table[index]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        index: Tensor = ctx.saved_tensors[0]
        return grad_output.new_zeros(ctx.entries, grad_output.shape[1]).index_copy(
            0, index, grad_output
        ), None


class Right(Faulty):
    """What repeats is added up."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        index: Tensor = ctx.saved_tensors[0]
        return grad_output.new_zeros(ctx.entries, grad_output.shape[1]).index_add(
            0, index, grad_output
        ), None
