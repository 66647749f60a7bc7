"""A relu that computes its mask once per shape and keeps it on the class.

The first batch has the right gradient, every later one that of the first. A check at one point sees
one batch. Repair: what depends on the inputs belongs in ctx.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`max(x, 0)`; the masks are cached by shape, to save a comparison."""

    masks: ClassVar[dict[torch.Size, Tensor]] = {}

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(Faulty.masks.setdefault(x.shape, x > 0))
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        mask: Tensor = ctx.saved_tensors[0]
        return grad_output * mask


class Right(Faulty):
    """A mask of its own for every call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x > 0)
        return x.clamp_min(0)
