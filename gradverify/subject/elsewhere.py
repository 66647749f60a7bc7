"""Another point of the same kind: other values of the same sizes, without a draw and without a call."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.subject.subject import Argument

CLEAR = 512         # bytes in front of a tensor: as well aligned as torch's own, and not where one begins that was allocated by itself
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


def leaf_elsewhere(argument: Argument, like: Tensor) -> Tensor:
    """The same as a leaf that requires grad, with the strides of another one, at an address where no tensor of an earlier call began: what a
    function keeps by address it keeps anew."""
    x = elsewhere(argument)
    if type(x) is not Tensor or x.device.type != "cpu" or not x.numel() or not like.is_contiguous():
        return x.requires_grad_()
    memory = torch.empty(CLEAR + x.numel() * x.element_size(), dtype=torch.uint8)
    leaf = torch.frombuffer(memory.numpy(), dtype=x.dtype, count=x.numel(), offset=CLEAR)      # a storage of its own, which begins there
    return leaf.as_strided(x.shape, like.stride()).detach().copy_(x).requires_grad_()
