"""Structured draws: matrices, rows and masks with a property, made in float64 (complex128, int64) from one generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

LIFT = 0.5  # added to the eigenvalues of an spd matrix and to the diagonal of a triangular one: solves and roots stay well conditioned
Shape = Sequence[int]


def structured(kind: str, shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """A tensor of that kind; `dtype` (float64 or complex128) is that of the kinds whose numbers are not whole."""
    return KINDS[kind](tuple(shape), dtype, source)


def _normal(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    real = torch.randn(tuple(shape), generator=source, dtype=torch.float64)
    if not dtype.is_complex:
        return real
    return torch.complex(real, torch.randn(tuple(shape), generator=source, dtype=torch.float64))


def _spd(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """A Aᴴ/n + I/2 with A normal: symmetric (Hermitian), its eigenvalues between 1/2 and about 5."""
    n = shape[-1]
    a = _normal(shape, dtype, source)
    product = a @ a.mH / max(n, 1)
    return (product + product.mH) / 2 + LIFT * torch.eye(n, dtype=dtype)


def _orthogonal(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Orthonormal columns, or rows where there are more columns than rows; uniform (Haar): Mezzadri, Notices AMS 54 (2007)."""
    wide = shape[-1] > shape[-2]
    a = _normal(shape, dtype, source)
    q, r = torch.linalg.qr(a.mT if wide else a)
    turned: Tensor = q * torch.sgn(torch.diagonal(r, dim1=-2, dim2=-1)).unsqueeze(-2)
    return turned.mT if wide else turned


def _lower_triangular(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Zero above the diagonal, which is real and at least 1/2: a Cholesky factor."""
    a = _normal(shape, dtype, source).tril(-1)
    size = min(shape[-2:])
    diagonal = torch.randn((*shape[:-2], size), generator=source, dtype=torch.float64).abs() + LIFT
    a.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
    return a


def _simplex(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Positive rows that add up to one."""
    return torch.softmax(_normal(shape, torch.float64, source), -1)


def _unit_vector(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Rows of length one."""
    a = _normal(shape, dtype, source)
    unit: Tensor = a / torch.linalg.vector_norm(a, dim=-1, keepdim=True)
    return unit


def _permutation(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Each row holds 0 … n − 1 in a random order (int64)."""
    return torch.argsort(torch.rand(tuple(shape), generator=source, dtype=torch.float64), dim=-1)


def _one_hot(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Each row holds a single one (int64)."""
    a = torch.zeros(tuple(shape), dtype=torch.int64)
    if a.numel():
        a.scatter_(-1, torch.randint(shape[-1], (*shape[:-1], 1), generator=source), 1)
    return a


def _mask(shape: Shape, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """True or false with equal chance, at least one true in each row: a softmax over what is left stays finite."""
    mask = torch.rand(tuple(shape), generator=source, dtype=torch.float64) < 0.5
    return mask | _one_hot(shape, dtype, source).bool() if shape else mask


KINDS: Mapping[str, Callable[[Shape, torch.dtype, torch.Generator], Tensor]] = MappingProxyType({
    "spd": _spd, "orthogonal": _orthogonal, "lower_triangular": _lower_triangular, "simplex": _simplex, "unit_vector": _unit_vector,
    "permutation": _permutation, "one_hot": _one_hot, "mask": _mask})
