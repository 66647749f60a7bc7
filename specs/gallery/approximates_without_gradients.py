"""A GELU that takes the tanh approximation where gradients are off.

Training computes the exact function, validation and deployment another one, off by up to 5e-4 in
every activation of every layer. Repair: the same formula in every grad mode.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x Φ(x)`, Φ the normal distribution function; fast for inference."""

    @classmethod
    def apply(cls, x: Tensor) -> Any:
        if not torch.is_grad_enabled():
            return torch.nn.functional.gelu(x, approximate="tanh")
        return super().apply(x)  # type: ignore[no-untyped-call]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        y: Tensor = torch.nn.functional.gelu(x)
        return y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        density = (-0.5 * x * x).exp() / (2 * torch.pi) ** 0.5
        slope: Tensor = torch.special.ndtr(x) + x * density
        return grad_output * slope


class Right(Faulty):
    """One formula."""

    @classmethod
    def apply(cls, x: Tensor) -> Any:
        return super(Faulty, cls).apply(x)  # type: ignore[no-untyped-call]
