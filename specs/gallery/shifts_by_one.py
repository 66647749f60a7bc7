"""A difference of neighbours whose backward is off by one element.

Every gradient value is a right one, one place too late. Neighbouring elements of a signal are
alike, so the model still trains, a little worse.
Repair: element i is subtracted in output i and added in output i − 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x[1:] - x[:-1]` of a vector; the gradient lands one element too far, and what falls off the
    end is wrapped around."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x[1:] - x[:-1]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return Right.backward(ctx, grad_output).roll(1)


class Right(Faulty):
    """Each output pushes its right neighbour up and its left neighbour down."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        nothing = grad_output.new_zeros(1)
        return torch.cat([nothing, grad_output]) - torch.cat([grad_output, nothing])
