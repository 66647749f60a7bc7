"""Nonuniform Fourier transforms of type 1 and 2, to twelve digits."""

from __future__ import annotations

from pytorch_finufft.functional import finufft_type1, finufft_type2
from torch import Tensor


def spectrum(points: Tensor, values: Tensor) -> Tensor:
    made: Tensor = finufft_type1(points, values, (5,), eps=1e-13)
    return made


def spectrum2(points: Tensor, values: Tensor) -> Tensor:
    made: Tensor = finufft_type1(points, values, (3, 4), eps=1e-13)
    return made


def sampled(points: Tensor, targets: Tensor) -> Tensor:
    made: Tensor = finufft_type2(points, targets, eps=1e-13)
    return made
