"""Squared norms of rows, a registered operator whose fake kernel forgets the last dimension.

Whatever runs eagerly is right: the fake kernel is asked only by torch.compile, torch.export and the
like, which then compute on with a shape that is not there. Repair: `register_fake` returns what the
operator returns, with `keepdim`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("gradverify_gallery::misstates_its_shape", mutates_args=())
def Faulty(x: Tensor) -> Tensor:  # noqa: N802 - the name of every fault of the gallery
    """`sum(x²)` of each row, kept as a column."""
    return (x * x).sum(-1, keepdim=True)


@Faulty.register_fake
def _forgets_the_column(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1])


@torch.library.custom_op("gradverify_gallery::states_its_shape", mutates_args=())
def Right(x: Tensor) -> Tensor:  # noqa: N802
    """With the column."""
    return (x * x).sum(-1, keepdim=True)


@Right.register_fake
def _as_it_is(x: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], 1))


def _remember(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, grad_output: Tensor) -> Tensor:
    x: Tensor = ctx.saved_tensors[0]
    return 2 * x * grad_output


Faulty.register_autograd(_backward, setup_context=_remember)
Right.register_autograd(_backward, setup_context=_remember)
