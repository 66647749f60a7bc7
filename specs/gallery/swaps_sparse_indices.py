"""The product of a sparse matrix with a dense one, whose gradient takes columns for rows.

On a graph, whose matrix is square, nothing raises: every edge gets the gradient of the edge back,
and learns where the graph is symmetric alone.
Repair: the gradient at (i, j) is row i of grad_output times row j of the dense factor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`a @ b` of a sparse COO matrix and a dense one; the gradient of a is sparse, of the pattern
    of a."""

    outer, inner = 1, 0

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        product: Tensor = torch.sparse.mm(a, b)
        return product

    @classmethod
    def pulled(cls, ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        at = a.indices()
        values = (grad_output[at[cls.outer]] * b[at[cls.inner]]).sum(1)
        return torch.sparse_coo_tensor(at, values, a.shape, is_coalesced=True), a.transpose(
            0, 1
        ) @ grad_output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return Faulty.pulled(ctx, grad_output)


class Right(Faulty):
    """Rows of grad_output, columns of a."""

    outer, inner = 0, 1

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return Right.pulled(ctx, grad_output)
