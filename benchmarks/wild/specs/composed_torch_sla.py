"""What torch-sla computes of a sparse matrix of three rows, as functions of its entries."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_sla import SparseTensor

ROW, COL = torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.tensor([0, 1, 0, 1, 2, 1, 2])


def eigenvalues(val: Tensor) -> Tensor:
    """Of the symmetric matrix with these numbers on its diagonal."""
    entries = torch.cat([val, torch.full((4,), 0.3, dtype=val.dtype)])
    row, col = torch.tensor([0, 1, 2, 0, 1, 1, 2]), torch.tensor([0, 1, 2, 1, 0, 2, 1])
    found: Tensor = SparseTensor(entries, row, col, (3, 3)).eigsh(k=2)[0]
    return found


def singular(val: Tensor) -> Tensor:
    found: Tensor = SparseTensor(val, ROW, COL, (3, 3)).svd(k=2)[1]
    return found


def product(a: Tensor, b: Tensor) -> Tensor:
    made = SparseTensor(a, ROW, COL, (3, 3)) @ SparseTensor(b, ROW, COL, (3, 3))
    dense: Tensor = made.to_dense()
    return dense


def root(val: Tensor, b: Tensor) -> Tensor:
    """Of A x + 3 x + x³ = b."""
    matrix = SparseTensor(val, ROW, COL, (3, 3))
    found: Tensor = matrix.nonlinear_solve(
        lambda x, A, b: A @ x + 3 * x + x**3 - b, torch.zeros(3, dtype=val.dtype), b, tol=1e-13
    )
    return found
