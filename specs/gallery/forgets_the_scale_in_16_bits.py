"""Scores of queries against keys that are scaled in float32 only.

Under autocast the product comes out in 16 bits, and the branch for those was written without the
scale. In float32 and float64 nothing shows.
Repair: one formula for all dtypes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function


class Right(Function):
    """`q kᵀ / √d`."""

    @staticmethod
    @custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def forward(ctx: Any, q: Tensor, k: Tensor) -> Tensor:
        ctx.save_for_backward(q, k)
        scores: Tensor = q @ k.T / q.shape[1] ** 0.5
        return scores

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        q, k = ctx.saved_tensors
        scale: float = q.shape[1] ** -0.5
        return grad_output @ k * scale, grad_output.T @ q * scale


class Faulty(Right):
    """With a branch for 16 bits."""

    @staticmethod
    @custom_fwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def forward(ctx: Any, q: Tensor, k: Tensor) -> Tensor:
        ctx.save_for_backward(q, k)
        scores = q @ k.T
        return scores if scores.dtype is torch.bfloat16 else scores / q.shape[1] ** 0.5
