"""A square that looks whether grad_output is zero, to spare a product.

The numbers are right, but `.item()` waits for the device in every step, and a batch of cotangents
(`jacobian(vectorize=True)`, `is_grads_batched=True`) has no single number: it raises. Repair:
multiply.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x²`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        if grad_output.abs().max().item() == 0:
            return torch.zeros_like(x)
        return 2 * x * grad_output


class Right(Faulty):
    """Multiplies whatever it gets."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return 2 * x * grad_output
