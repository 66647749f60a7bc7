"""A fixed random mask, for which forward seeds torch's global generator.

Whatever draws after it in the network, dropout or a sampler, draws the same numbers in every step,
and the loss still falls. Repair: seed inside `torch.random.fork_rng`, which puts the generator
back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

SEED, KEPT = 7, 0.5


class Faulty(Function):
    """Half of the elements, always the same ones, doubled."""

    @staticmethod
    def mask(x: Tensor) -> Tensor:
        torch.manual_seed(SEED)
        return torch.rand(x.shape).to(device=x.device) < KEPT

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
    """The generator is afterwards what it was."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            mask = Faulty.mask(x)
        ctx.save_for_backward(mask)
        return x * mask / KEPT
