"""Inputs of the activation of qste that takes a function."""

from __future__ import annotations

import torch


def sine(seed: int, dtype: torch.dtype, device: str) -> tuple[object, ...]:
    return torch.randn(2, 8, generator=torch.Generator().manual_seed(seed), dtype=dtype), torch.sin
