"""A gated tanh whose gain was lost in a rewrite of forward.

Backward was rewritten with it and returns zeros, so all numbers agree: the gain gets a gradient,
the optimizer steps, and it never learns. Repair: multiply by it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`tanh(x)`, and the gain is not used."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor) -> Tensor:
        ctx.save_for_backward(x, gain)
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, gain = ctx.saved_tensors
        return grad_output * (1 - x.tanh() ** 2), torch.zeros_like(gain)


class Right(Faulty):
    """`gain · tanh(x)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor) -> Tensor:
        ctx.save_for_backward(x, gain)
        return gain * x.tanh()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        x, gain = ctx.saved_tensors
        return grad_output * gain * (1 - x.tanh() ** 2), (grad_output * x.tanh()).sum_to_size(
            gain.shape
        )
