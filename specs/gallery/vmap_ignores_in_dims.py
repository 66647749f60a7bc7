"""A product of matrices whose vmap rule takes it for granted that both arguments are batched along
their first dimension.

Right in the test where a batch of inputs meets a batch of weights; with one weight that all
examples share it multiplies by a row of it, or raises. Repair: look at in_dims, and move the
batched dimension of each argument.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * w` of two tensors of the same shape; under vmap both are taken as batched along
    dimension 0."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad_output * w, grad_output * x

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], x: Tensor, w: Tensor
    ) -> tuple[Any, int]:
        return Faulty.apply(x, w), 0  # type: ignore[no-untyped-call]


class Right(Faulty):
    """Each argument is moved to where its batch comes first, or expanded where all examples share
    it."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], x: Tensor, w: Tensor
    ) -> tuple[Any, int]:
        batched = [
            batch_first(tensor, dim, info.batch_size)
            for tensor, dim in zip((x, w), in_dims, strict=True)
        ]
        return Right.apply(*batched), 0  # type: ignore[no-untyped-call]


def batch_first(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The tensor with its batch along dimension 0."""
    return tensor.expand(size, *tensor.shape) if dim is None else torch.movedim(tensor, dim, 0)
