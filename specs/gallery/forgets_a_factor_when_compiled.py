"""A square whose backward takes a shorter path under torch.compile, and forgets the 2 there.

The path was meant to spare the compiler something. No eager call ever takes it; whoever compiles
the model trains with half of the gradient. Repair: one path for both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x ** 2`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * x if torch.compiler.is_compiling() else grad_output * 2 * x


class Right(Faulty):
    """With one path."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * 2 * x
