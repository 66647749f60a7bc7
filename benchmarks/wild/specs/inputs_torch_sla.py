"""The entries of a matrix of three rows, where they stand, and what the solvers of torch-sla want
besides."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

ROW, COL = torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.tensor([0, 1, 0, 1, 2, 1, 2])
SHAPE = (3, 3)
Inputs = tuple[object, ...]


def _entries(seed: int, dtype: torch.dtype) -> Tensor:
    """Of a matrix that is diagonally dominant."""
    noise = torch.rand(7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (noise + torch.where(ROW == COL, 3.0, 0.0)).to(dtype).requires_grad_()


def _right(seed: int, dtype: torch.dtype) -> Tensor:
    return (
        torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
    )


def scipy(seed: int, dtype: torch.dtype, device: str) -> Inputs:
    return _entries(seed, dtype), ROW, COL, SHAPE, _right(seed, dtype), "lu", 1e-14, 1000


def _pytorch(method: str, seed: int, dtype: torch.dtype, device: str) -> Inputs:
    return (
        _entries(seed, dtype),
        ROW,
        COL,
        SHAPE,
        _right(seed, dtype),
        method,
        1e-15,
        1e-14,
        1000,
        "none",
        False,
    )


def _batch(method: str, seed: int, dtype: torch.dtype, device: str) -> Inputs:
    return (
        _entries(seed, dtype).detach().expand(2, 7).clone().requires_grad_(),
        ROW,
        COL,
        SHAPE,
        torch.randn(
            2, 3, dtype=dtype, generator=torch.Generator().manual_seed(seed)
        ).requires_grad_(),
        method,
        1e-15,
        1000,
    )


def det(seed: int, dtype: torch.dtype, device: str) -> Inputs:
    return _entries(seed, dtype), ROW, COL, SHAPE, torch.device("cpu"), False


bicgstab, gmres = partial(_pytorch, "bicgstab"), partial(_pytorch, "gmres")
batch = partial(_batch, "bicgstab")
