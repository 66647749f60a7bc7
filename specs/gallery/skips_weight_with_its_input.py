"""A matrix product that gives its weight no gradient where its input needs none.

In the first layer of every network the input is data and needs no gradient: its weight is never
trained, and nothing says so. Repair: each gradient asks for its own place in
`ctx.needs_input_grad`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x @ weight`, x (rows, k), weight (k, columns)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, None
        return grad_output @ weight.mT, x.mT @ grad_output


class Right(Faulty):
    """The two gradients are decided on one by one."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad_x = grad_output @ weight.mT if ctx.needs_input_grad[0] else None
        grad_weight = x.mT @ grad_output if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight
