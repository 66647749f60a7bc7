"""Another point of the same kind: other values of the same sizes, without a draw and without a call."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.subject.subject import Argument

STRETCH = 1.01      # so that a tensor of equal numbers moves too, and one number alone
NEAR_ZERO = 0.01    # for a tensor that is zero throughout


def elsewhere(argument: Argument) -> Tensor:
    """A differentiable input with its elements moved on by one place and stretched, inside its domain. Symmetric matrices are stretched only."""
    x = argument.value.detach()
    moved: Tensor = (x if argument.symmetric else x.reshape(-1).roll(1).reshape(x.shape)) * STRETCH
    moved = moved if moved.any() else moved + NEAR_ZERO
    if argument.domain is None or moved.is_complex():
        return moved
    low, high = argument.domain
    return torch.clamp(moved, low, high)
