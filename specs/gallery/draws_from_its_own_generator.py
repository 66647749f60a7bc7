"""A dropout that draws its mask from a NumPy generator of its own.

No seed of torch's reaches it: two runs of one training differ, and a forward that is computed again
(activation checkpointing) has another mask than the one that its backward belongs to. Repair: draw
with torch, whose generators checkpointing saves and restores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

KEPT = 0.5


class Faulty(Function):
    """Each element kept with probability 1/2, and doubled."""

    own = np.random.default_rng()

    @classmethod
    def mask(cls, x: Tensor) -> Tensor:
        return torch.from_numpy(cls.own.random(tuple(x.shape)) < KEPT).to(device=x.device)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mask = Faulty.mask(x)
        ctx.save_for_backward(mask)
        return x * mask / KEPT

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        mask: Tensor = ctx.saved_tensors[0]
        return grad_output * mask / KEPT


class Right(Faulty):
    """The mask comes from torch's generator."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mask = torch.rand_like(x) < KEPT
        ctx.save_for_backward(mask)
        return x * mask / KEPT
