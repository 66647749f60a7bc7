"""A fused softmax in Triton whose backward sums over the whole tile.

A program takes two rows at a time. `tl.sum` without an axis adds up both of them, where each row
has an inner product of its own: with one row per program, as in a first version and its tests, it
is right. Repair: sum along the row.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

ROWS = 2  # of one program


@triton.jit
def forward_kernel(y, x, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, column = (
        tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None],
        tl.arange(0, BLOCK)[None, :],
    )
    there = (row < rows) & (column < columns)
    numbers = tl.load(x + row * columns + column, mask=there, other=-float("inf"))
    largest = tl.max(tl.where(row < rows, numbers, 0.0), axis=1)[:, None]
    powers = tl.exp(numbers - largest)
    sums = tl.sum(tl.where(row < rows, powers, 1.0), axis=1)[:, None]
    tl.store(y + row * columns + column, powers / sums, mask=there)


@triton.jit
def backward_kernel(
    dx, dy, y, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, EACH_ROW: tl.constexpr
):
    row, column = (
        tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None],
        tl.arange(0, BLOCK)[None, :],
    )
    there = (row < rows) & (column < columns)
    outputs = tl.load(y + row * columns + column, mask=there, other=0.0)
    pulled = outputs * tl.load(dy + row * columns + column, mask=there, other=0.0)
    if EACH_ROW:
        inner = tl.sum(pulled, axis=1)[:, None]
    else:
        inner = tl.sum(pulled)
    tl.store(dx + row * columns + column, pulled - outputs * inner, mask=there)


def launched_backward(y: Tensor, grad_output: Tensor, each_row: bool) -> Tensor:
    """The gradient of the input."""
    dx, (rows, columns) = torch.empty_like(y), y.shape
    backward_kernel[(triton.cdiv(rows, ROWS),)](
        dx,
        grad_output.contiguous(),
        y,
        rows,
        columns,
        ROWS=ROWS,
        BLOCK=triton.next_power_of_2(columns),
        EACH_ROW=each_row,
    )
    return dx


class Faulty(Function):
    """The softmax of each row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        y, (rows, columns) = torch.empty_like(x), x.shape
        forward_kernel[(triton.cdiv(rows, ROWS),)](
            y, x, rows, columns, ROWS=ROWS, BLOCK=triton.next_power_of_2(columns)
        )
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return launched_backward(y, grad_output, each_row=False)


class Right(Faulty):
    """An inner product for each row."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return launched_backward(y, grad_output, each_row=True)
