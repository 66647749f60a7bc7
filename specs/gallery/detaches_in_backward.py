"""A square whose backward detaches what it saved.

The first derivative is right. Differentiated again it is linear in grad_output and constant in x:
the term 2 · grad_output is missing, and nothing is raised. Repair: use the saved tensor as it is;
autograd records backward only where somebody asks for it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x * x`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0].detach()
        return 2 * x * grad_output


class Right(Faulty):
    """The saved tensor as it is."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return 2 * x * grad_output
