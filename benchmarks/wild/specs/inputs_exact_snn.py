"""Inputs of the layers of exact-snn-nn at which the neuron spikes."""

from __future__ import annotations

import torch
from torch import Tensor

Arguments = tuple[object, ...]
TM, TS, T_MAX, PEAK, THETA = 10.0, 2.5, 50.0, 0.0625, 1.0


def layer(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return (
        *_tensors(seed, dtype, (1, 3), (2, 1)),
        0.0,
        THETA,
        TM,
        TS,
        False,
        PEAK,
        _grid(dtype),
        0.01,
    )


def event(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return *_tensors(seed, dtype, (1, 3), (2, 1)), 0.0, THETA, T_MAX, TM, TS, PEAK, 0.01


def multi_spike(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    return (
        *_tensors(seed, dtype, (1, 3), (2, 1)),
        0.0,
        THETA,
        TM,
        TS,
        PEAK,
        T_MAX,
        _grid(dtype),
        2,
        False,
    )


def convolution(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    weight, times = _tensors(seed, dtype, (1, 5), (1, 1, 2, 2))
    return (
        weight,
        times,
        0.0,
        THETA,
        TM,
        TS,
        False,
        PEAK,
        _grid(dtype),
        T_MAX,
        1,
        0,
        2,
        1,
        2,
        2,
        0.01,
    )


def recurrent(seed: int, dtype: torch.dtype, device: str) -> Arguments:
    weight, times = _tensors(seed, dtype, (1, 4), (2, 1))
    return (
        weight,
        times,
        _tensors(seed + 1, dtype, (1, 2), (1, 1))[1],
        0.0,
        THETA,
        TM,
        TS,
        False,
        PEAK,
        _grid(dtype),
        0.01,
    )


def _grid(dtype: torch.dtype) -> Tensor:
    return torch.linspace(0.0, T_MAX, 501, dtype=dtype)


def _tensors(
    seed: int, dtype: torch.dtype, weights: tuple[int, ...], times: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Weights that are positive, and times of spikes."""
    source = torch.Generator().manual_seed(seed)
    return 0.8 + 0.8 * torch.rand(weights, generator=source, dtype=dtype), 1 + 4 * torch.rand(
        times, generator=source, dtype=dtype
    )
