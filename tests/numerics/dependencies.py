"""Which inputs really move which outputs, found without gradverify: Jacobians of torch's own, and windows drawn around them by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.rungs import Mask
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, column_groups


def dependency(forward: Callable[[Tensor], Tensor], x: Tensor) -> Mask:
    """Where torch's Jacobian [M, N] in real coordinates is not zero."""
    def real(t: Tensor) -> Tensor:
        return forward(torch.view_as_complex(t) if x.is_complex() else t)

    def out(t: Tensor) -> Tensor:
        y = real(t)
        return torch.view_as_real(y) if y.is_complex() else y

    start = torch.view_as_real(x).clone() if x.is_complex() else x
    return np.asarray(torch.autograd.functional.jacobian(out, start).reshape(-1, start.numel()).numpy() != 0)


def pattern_of(depends_on: Mask, shape: Sequence[int]) -> Pattern:
    """The narrowest windows that hold a dependency matrix [M, N], element by element."""
    low, high = np.zeros((len(shape), len(depends_on)), np.intp), np.full((len(shape), len(depends_on)), -1)
    for m, row in enumerate(depends_on):
        places = [index for index, depends in zip(itertools.product(*map(range, shape)), row, strict=True) if depends]
        for k in range(len(shape)):
            if places:
                low[k, m], high[k, m] = min(p[k] for p in places), max(p[k] for p in places)
    return Pattern(tuple(shape), tuple(low), tuple(high), ~depends_on.any(1))


def full(pattern: Pattern) -> Mask:
    """All that the windows hold [M, N], element by element."""
    result = np.zeros((len(pattern), pattern.size), bool)
    for m, (n, index) in itertools.product(range(len(pattern)), enumerate(itertools.product(*map(range, pattern.shape)))):
        inside = all(pattern.low[k][m] <= at <= pattern.high[k][m] for k, at in enumerate(index))
        result[m, n] = inside and not pattern.nothing[m]
    return result


def matrix(pattern: Pattern) -> np.ndarray:
    """The pattern as zeros and ones [M, N], by its own column groups."""
    groups, result = column_groups([pattern]), np.zeros((len(pattern), pattern.size))
    for group in range(groups.count):
        column_of = groups.column_of(group)
        rows = np.flatnonzero(column_of != NO_ENTRY)
        result[rows, column_of[rows]] = 1
    return result
