"""Inputs of the spikes of sinabs, which take a function for their gradient."""

from __future__ import annotations

import torch
from torch import Tensor


def multi(seed: int, dtype: torch.dtype, device: str) -> tuple[object, ...]:
    return _potentials(seed, dtype), 0.8, _slope


def limited(seed: int, dtype: torch.dtype, device: str) -> tuple[object, ...]:
    return _potentials(seed, dtype), 2, 0.8, _slope


def _potentials(seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _slope(potential: Tensor, threshold: float) -> Tensor:
    return torch.exp(-(potential - threshold).abs())
