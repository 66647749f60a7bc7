"""A product of matrices in Triton whose backward drops the tail of the sum over the batch.

The loop over blocks runs `rows // BLOCK` times: what is left behind the last whole block is not
added to the gradient of the weights. Batches that are multiples of the block, the usual ones of a
benchmark, show nothing. Repair: `triton.cdiv`, as in forward; the mask is there already.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

BLOCK = 16  # the least that `tl.dot` takes


@triton.jit
def product_kernel(
    c, a, b, rows, columns, length, blocks, a_row, a_column, b_row, b_column, BLOCK: tl.constexpr
):
    row, column = (
        tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None],
        tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :],
    )
    tile = tl.zeros((BLOCK, BLOCK), dtype=c.dtype.element_ty)
    for block in range(blocks):
        of_a, of_b = (
            block * BLOCK + tl.arange(0, BLOCK)[None, :],
            block * BLOCK + tl.arange(0, BLOCK)[:, None],
        )
        left = tl.load(
            a + row * a_row + of_a * a_column, mask=(row < rows) & (of_a < length), other=0.0
        )
        right = tl.load(
            b + of_b * b_row + column * b_column,
            mask=(of_b < length) & (column < columns),
            other=0.0,
        )
        tile += tl.dot(left, right, input_precision="ieee", out_dtype=tile.dtype)
    tl.store(c + row * columns + column, tile, mask=(row < rows) & (column < columns))


def product(a: Tensor, b: Tensor, blocks: int) -> Tensor:
    """`a @ b`, the sums over so many blocks."""
    (rows, length), columns = a.shape, b.shape[1]
    c = a.new_empty(rows, columns)
    grid = triton.cdiv(rows, BLOCK), triton.cdiv(columns, BLOCK)
    product_kernel[grid](
        c, a, b, rows, columns, length, blocks, *a.stride(), *b.stride(), BLOCK=BLOCK
    )
    return c


class Faulty(Function):
    """`a @ b`."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return product(a, b, triton.cdiv(a.shape[1], BLOCK))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return product(grad_output, b.T, triton.cdiv(b.shape[1], BLOCK)), product(
            a.T, grad_output, a.shape[0] // BLOCK
        )


class Right(Faulty):
    """The whole batch."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return product(grad_output, b.T, triton.cdiv(b.shape[1], BLOCK)), product(
            a.T, grad_output, triton.cdiv(a.shape[0], BLOCK)
        )
