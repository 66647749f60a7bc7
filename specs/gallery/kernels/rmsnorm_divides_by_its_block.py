"""An RMSNorm in Triton whose backward takes the mean over the block in place of the row.

A block has a power of two of columns, and what is beyond the row is zero: the sum is right, and the
number that it is divided by is not. Rows of 64 or 4096 columns, the usual ones, show nothing.
Repair: divide by the number of columns.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

EPS = 1e-6


@triton.jit
def forward_kernel(y, scale, x, gain, columns, EPS: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    there = column < columns
    numbers = tl.load(x + row * columns + column, mask=there, other=0.0)
    inverse = 1 / tl.sqrt(tl.sum(numbers * numbers) / columns + EPS)
    tl.store(scale + row, inverse)
    tl.store(
        y + row * columns + column,
        numbers * inverse * tl.load(gain + column, mask=there, other=0.0),
        mask=there,
    )


@triton.jit
def backward_kernel(dx, of_gain, dy, x, gain, scale, columns, length, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    there, place = column < columns, row * columns + column
    inverse = tl.load(scale + row)
    normed = tl.load(x + place, mask=there, other=0.0) * inverse
    pulled = tl.load(dy + place, mask=there, other=0.0)
    tl.store(of_gain + place, pulled * normed, mask=there)
    pulled = pulled * tl.load(gain + column, mask=there, other=0.0)
    tl.store(dx + place, (pulled - normed * tl.sum(pulled * normed) / length) * inverse, mask=there)


def launched_backward(
    saved: tuple[Tensor, ...], grad_output: Tensor, length: int
) -> tuple[Tensor, Tensor]:
    """The gradients of the input and of the gain, of which each row has its part. `length`: what
    the mean divides by."""
    x, gain, scale = saved
    dx, of_gain, (rows, columns) = torch.empty_like(x), torch.empty_like(x), x.shape
    backward_kernel[(rows,)](
        dx,
        of_gain,
        grad_output.contiguous(),
        x,
        gain,
        scale,
        columns,
        length,
        BLOCK=triton.next_power_of_2(columns),
    )
    return dx, of_gain.sum(0)


class Faulty(Function):
    """`gain * x / sqrt(mean(x²) + 1e-6)` of each row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor) -> Tensor:
        x, gain = x.contiguous(), gain.contiguous()
        rows, columns = x.shape
        y, scale = torch.empty_like(x), x.new_empty(rows)
        forward_kernel[(rows,)](
            y, scale, x, gain, columns, EPS=EPS, BLOCK=triton.next_power_of_2(columns)
        )
        ctx.save_for_backward(x, gain, scale)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return launched_backward(
            ctx.saved_tensors, grad_output, triton.next_power_of_2(grad_output.shape[1])
        )


class Right(Faulty):
    """The mean over the row."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return launched_backward(ctx.saved_tensors, grad_output, grad_output.shape[1])
