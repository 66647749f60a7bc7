"""Inputs of the reversible blocks of memcnn, which take modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def additive(seed: int, dtype: torch.dtype, device: str) -> tuple[object, ...]:
    return _channels(seed, dtype, device), nn.Tanh(), nn.Sigmoid()


def affine(seed: int, dtype: torch.dtype, device: str) -> tuple[object, ...]:
    return _channels(seed, dtype, device), _Two(), _Two()


class _Two(nn.Module):
    """A module that returns a scale that is not 0, and a shift."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return 2 + torch.tanh(x), torch.sin(x)


def _channels(seed: int, dtype: torch.dtype, device: str) -> Tensor:
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(seed), dtype=dtype).to(device)
