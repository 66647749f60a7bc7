"""An identity that returns `x.detach()`: the memory of its input, unknown to autograd.

The values and the gradient are right. An in-place operation on the output changes x, whose version
counter and graph know nothing of a view. Repair: `x.view_as(x)`, which autograd tracks.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """x, marked by a node of its own in the graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output


class Right(Faulty):
    """A view."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)
