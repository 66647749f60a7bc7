"""An error u·wᵀ in each independent block of the Jacobian: the mean or dot-product term of a norm or a softmax."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradverify.causes.pattern import Pattern
from gradverify.model.result import Cause
from gradverify.numerics.rungs import Array, Index

LARGEST = 2**18  # elements of all blocks together
SWEEPS = 64  # until every element knows its block
CONDITIONS = 4  # 2×2 minors that vanish, at least: a single wrong row or element has none
STANDS_OUT = 3.0  # bars


def explain(pattern: Pattern) -> Cause | None:
    blocks = list(_blocks(pattern))
    wrong = [block for block in blocks if (np.abs(block[0]) > STANDS_OUT * block[2]).any()]
    if not wrong or any(_rank_one(value, bar) for _, value, bar in wrong) or not all(_rank_one(error, bar) for error, _, bar in wrong):
        return None
    if sum(_conditions(error, bar) for error, _, bar in wrong) < CONDITIONS:
        return None
    rows, columns = wrong[0][0].shape
    where = f"in each of {len(wrong)} blocks of {rows} × {columns} elements" if len(wrong) > 1 else f"of {rows} × {columns} elements"
    return Cause("missing rank-one term", f"the error is one product u·wᵀ {where}, {pattern.everywhere}: like the mean or dot-product term of a norm "
                 "or of softmax")


def _blocks(pattern: Pattern) -> Iterator[tuple[Array, Array, Array]]:
    """(error, numeric, allowance) of each independent block, as dense matrices."""
    e = pattern.entries
    use = pattern.significant & ~pattern.unknown
    label = _labels(e.output[use], e.input[use], pattern.output.size)
    area, found = 0, []
    for block in np.unique(label):
        own = np.flatnonzero(use)[label == block]
        rows, r = np.unique(e.output[own], return_inverse=True)
        columns, c = np.unique(e.input[own], return_inverse=True)
        area += len(rows) * len(columns)
        if area > LARGEST:
            return
        error, value, bar = (np.zeros((len(rows), len(columns))) for _ in range(3))
        error[r, c], value[r, c] = e.analytic[own] - e.numeric[own], e.numeric[own]
        bar[r, c] = e.bar[own] + pattern.rounding[own]
        found.append((error, value, bar + pattern.dust))
    yield from found


def _labels(rows: Index, columns: Index, n: int) -> Index:
    """The block of each element: elements that share a row or a column are in one."""
    columns = columns + n
    own = np.arange(max(rows.max(initial=0), columns.max(initial=0)) + 1)
    for _ in range(SWEEPS):
        least = np.minimum(own[rows], own[columns])
        before = own.copy()
        np.minimum.at(own, rows, least)
        np.minimum.at(own, columns, least)
        own = own[own]
        if (own == before).all():
            break
    return own[rows]


def _rank_one(matrix: Array, bar: Array) -> bool:
    """Is it u·wᵀ within the bars? By its largest element: M = M[:, q] M[p, :] / M[p, q]."""
    p, q = np.unravel_index(int(np.argmax(np.abs(matrix))), matrix.shape)
    pivot = matrix[p, q]
    if pivot == 0:
        return True
    u, w = matrix[:, q : q + 1] / pivot, matrix[p : p + 1]
    allowed = bar + np.abs(u) * bar[p : p + 1] + np.abs(w / pivot) * bar[:, q : q + 1] + np.abs(u * w / pivot) * bar[p, q]
    return bool((np.abs(matrix - u * w) <= 2 * allowed).all())


def _conditions(matrix: Array, bar: Array) -> int:
    p, q = np.unravel_index(int(np.argmax(np.abs(matrix))), matrix.shape)
    rows, columns = (np.abs(matrix[:, q]) > STANDS_OUT * bar[:, q]).sum(), (np.abs(matrix[p]) > STANDS_OUT * bar[p]).sum()
    return int((rows - 1) * (columns - 1))
