"""The interpolations of torchkbnufft, by a sparse matrix and by a table, at fixed points of
k-space."""

from __future__ import annotations

import torch
from torch import Tensor
from torchkbnufft import KbInterp, KbInterpAdjoint, KbNufft, KbNufftAdjoint, calc_tensor_spmatrix

OMEGA = torch.tensor([[-2.0, -0.7, 0.3, 1.1, 2.6]], dtype=torch.float64)
SIZES = {"im_size": (4,), "grid_size": (8,), "numpoints": 3, "dtype": torch.complex128}


def table_forward(image: Tensor) -> Tensor:
    return KbInterp(**SIZES)(image, OMEGA)


def table_adjoint(data: Tensor) -> Tensor:
    return KbInterpAdjoint(**SIZES)(data, OMEGA)


def spmat_forward(image: Tensor) -> Tensor:
    return KbInterp(**SIZES)(image, OMEGA, interp_mats=_matrices())


def spmat_adjoint(data: Tensor) -> Tensor:
    return KbInterpAdjoint(**SIZES)(data, OMEGA, interp_mats=_matrices())


def nufft(image: Tensor) -> Tensor:
    return KbNufft(**SIZES)(image, OMEGA)


def nufft_adjoint(data: Tensor) -> Tensor:
    return KbNufftAdjoint(**SIZES)(data, OMEGA)


def _matrices() -> tuple[Tensor, Tensor]:
    return calc_tensor_spmatrix(OMEGA, im_size=(4,), grid_size=(8,), numpoints=3)
