"""Inputs for the wavelet transforms of pytorch-wavelets: an image or its coefficients, and the
filters of db2, of near_sym_a or of near_sym_b_bp."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from pytorch_wavelets import (
    DTCWTForward,
    DTCWTInverse,
    DWT1DForward,
    DWT1DInverse,
    DWTForward,
    DWTInverse,
)
from pytorch_wavelets.dwt.lowlevel import mode_to_int
from pytorch_wavelets.scatternet.layers import ScatLayer, ScatLayerj2
from torch import Tensor

Inputs = tuple[object, ...]


def _drawn(seed: int, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=source, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in shapes
    ]


def _afb1d(mode: str, seed: int, dtype: torch.dtype, device: str) -> Inputs:
    made = DWT1DForward(J=1, wave="db2", mode=mode).to(dtype)
    return *_drawn(seed, dtype, (1, 1, 8)), made.h0, made.h1, mode_to_int(mode)


def _afb2d(mode: str, seed: int, dtype: torch.dtype, device: str) -> Inputs:
    made = DWTForward(J=1, wave="db2", mode=mode).to(dtype)
    return (
        *_drawn(seed, dtype, (1, 1, 6, 6)),
        made.h0_row,
        made.h1_row,
        made.h0_col,
        made.h1_col,
        mode_to_int(mode),
    )


def _sfb1d(mode: str, seed: int, dtype: torch.dtype, device: str) -> Inputs:
    made = DWT1DInverse(wave="db2", mode=mode).to(dtype)
    return *_drawn(seed, dtype, (1, 1, 6), (1, 1, 6)), made.g0, made.g1, mode_to_int(mode)


def _sfb2d(mode: str, seed: int, dtype: torch.dtype, device: str) -> Inputs:
    made = DWTInverse(wave="db2", mode=mode).to(dtype)
    return (
        *_drawn(seed, dtype, (1, 1, 4, 4), (1, 1, 3, 4, 4)),
        made.g0_row,
        made.g1_row,
        made.g0_col,
        made.g1_col,
        mode_to_int(mode),
    )


def fwd_j1(seed: int, dtype: torch.dtype, device: str) -> Inputs:
    made = DTCWTForward(J=2).to(dtype)
    return *_drawn(seed, dtype, (1, 1, 8, 8)), made.h0o, made.h1o, False, 2, 5, 1


def fwd_j2plus(seed: int, dtype: torch.dtype, device: str) -> Inputs:
    made = DTCWTForward(J=2).to(dtype)
    return (
        *_drawn(seed, dtype, (1, 1, 8, 8)),
        made.h0a,
        made.h1a,
        made.h0b,
        made.h1b,
        False,
        2,
        5,
        1,
    )


def inv_j1(seed: int, dtype: torch.dtype, device: str) -> Inputs:
    made = DTCWTInverse().to(dtype)
    return *_drawn(seed, dtype, (1, 1, 4, 4), (1, 1, 6, 2, 2, 2)), made.g0o, made.g1o, 2, 5, 1


def inv_j2plus(seed: int, dtype: torch.dtype, device: str) -> Inputs:
    made = DTCWTInverse().to(dtype)
    return (
        *_drawn(seed, dtype, (1, 1, 4, 4), (1, 1, 6, 2, 2, 2)),
        made.g0a,
        made.g1a,
        made.g0b,
        made.g1b,
        2,
        5,
        1,
    )


def _scat(
    layer: Callable[..., torch.nn.Module],
    biort: str,
    names: str,
    size: int,
    seed: int,
    dtype: torch.dtype,
    device: str,
) -> Inputs:
    made = layer(biort=biort).to(dtype)
    return (
        *_drawn(seed, dtype, (1, 1, size, size)),
        *(getattr(made, name) for name in names.split()),
        1,
        1e-2,
        False,
    )


scat1 = partial(_scat, ScatLayer, "near_sym_a", "h0o h1o", 4)
scat1_rot = partial(_scat, ScatLayer, "near_sym_b_bp", "h0o h1o h2o", 4)
scat2 = partial(_scat, ScatLayerj2, "near_sym_a", "h0o h1o h0a h0b h1a h1b", 8)
scat2_rot = partial(
    _scat,
    partial(ScatLayerj2, qshift="qshift_b_bp"),
    "near_sym_b_bp",
    "h0o h1o h2o h0a h0b h1a h1b h2a h2b",
    8,
)
for _mode in ("zero", "symmetric", "reflect", "periodization"):
    globals().update(
        {
            f"{_function.__name__[1:]}_{_mode}": partial(_function, _mode)
            for _function in (_afb1d, _afb2d, _sfb1d, _sfb2d)
        }
    )
