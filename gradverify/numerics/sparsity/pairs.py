"""Sparsity of symmetric inputs, whose elements (p, q) and (q, p) are one coordinate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import Index
from gradverify.numerics.sparsity.pattern import Pattern


def paired(point: Point, tensor: int, patterns: Sequence[Pattern]) -> tuple[Pattern, ...]:
    """Patterns of a tensor; where its columns are pairs (p, q), (q, p), with windows as wide as the matrix: both have one owner then."""
    if not (point.columns.paired and (point.columns.mirror[point.columns.of(tensor)] >= 0).any()):
        return tuple(patterns)
    last = 3 if point.function.inputs[tensor].is_complex() else 2
    return tuple(_widened(pattern, range(len(pattern.shape) - last, len(pattern.shape))) for pattern in patterns)


def _widened(pattern: Pattern, axes: range) -> Pattern:
    def bounds(old: Sequence[Index], end: Callable[[int], int]) -> tuple[Index, ...]:
        return tuple(np.where(pattern.nothing, own, end(pattern.shape[k])) if k in axes else own for k, own in enumerate(old))

    return replace(pattern, low=bounds(pattern.low, lambda n: 0), high=bounds(pattern.high, lambda n: n - 1), pointwise=False)
