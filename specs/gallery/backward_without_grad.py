"""An exponential whose backward runs under `no_grad` to save memory.

Autograd does not record backward anyway unless it is asked to; then it must, and here it gets a
constant: both derivatives of the gradient are lost, and nothing is raised. Repair: leave `no_grad`
out, or say `@once_differentiable`, which raises where it would be wrong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`exp(x)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        with torch.no_grad():
            gradient: Tensor = grad_output * y
        return gradient


class Right(Faulty):
    """Recorded where that is asked for."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        gradient: Tensor = grad_output * y
        return gradient
