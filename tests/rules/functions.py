"""Autograd Functions for the rules' tests: one right square, and what can be done to a backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def unary(
    forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Any]
) -> type[Function]:
    """`forward(x)` with `backward(x, grad_output)`."""

    class Unary(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return backward(x, grad_output)

    return Unary


def square(backward: Callable[[Tensor, Tensor], Any]) -> type[Function]:
    """x² with `backward(x, grad_output)`."""
    return unary(lambda x: x * x, backward)


def product(backward: Callable[[Any, Tensor, Tensor, Tensor], Any]) -> type[Function]:
    """x · y with `backward(ctx, x, y, grad_output)`."""

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Any:
            return backward(ctx, *ctx.saved_tensors, grad_output)

    return Product


Right = square(lambda x, g: 2 * x * g)
RightProduct = product(lambda ctx, x, y, g: (g * y, g * x))
X = torch.tensor([[0.5, -1.5, 2.0], [1.0, -0.25, 3.0]], dtype=torch.float64)
Y = torch.tensor([[2.0, 1.5, -1.0], [0.5, 1.25, 1.0]], dtype=torch.float64)
