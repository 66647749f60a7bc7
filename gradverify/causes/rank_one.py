"""An error u·wᵀ in each independent block of the Jacobian: the mean or dot-product term of a norm or a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, settled
from gradverify.causes.words import factor
from gradverify.model.result import Cause
from gradverify.numerics.pairs.pair import ratios
from gradverify.numerics.rungs import Array, Index, Mask

LARGEST = 2**18  # elements of all blocks together
SWEEPS = 64  # until every element knows its block
CONDITIONS = 4  # 2×2 minors that vanish, at least: a single wrong row or element has none
STANDS_OUT = 3.0  # bars
SMALLEST = 4  # rows of a block that has minors beside its diagonal
LARGEST_MINORS = 12  # rows of which all minors are taken: 2,970 of them


@dataclass(frozen=True)
class Block:
    """One independent block of the Jacobian as dense matrices; `bar`: what is allowed between them."""

    analytic: Array
    numeric: Array
    bar: Array

    @property
    def error(self) -> Array:
        return self.analytic - self.numeric


def explain(pattern: Pattern) -> Iterator[Claim]:
    found = _term(pattern)
    if found is not None:
        yield lambda there: found[1] if (_term(there) or ("",))[0] == found[0] else None


def _term(pattern: Pattern) -> tuple[str, Cause] | None:
    """What is wrong with a term u·wᵀ of each block, and the cause in words; None where that is not the whole error."""
    wrong = [block for block in _blocks(pattern) if (np.abs(block.error) > STANDS_OUT * block.bar).any()]
    if not wrong or any(_rank_one(block.numeric, block.bar) for block in wrong) or not all(_rank_one(block.error, block.bar) for block in wrong):
        return None
    if sum(_conditions(block.error, block.bar) for block in wrong) < CONDITIONS:
        return None
    rows, columns = wrong[0].error.shape
    where = f"in each of {len(wrong)} blocks of {rows} × {columns} elements" if len(wrong) > 1 else f"of {rows} × {columns} elements"
    error = f"the error is one product u·wᵀ {where}, {pattern.everywhere}"
    if all(_simpler(block) for block in wrong):
        return "missing", Cause("missing rank-one term", f"{error}: a term like the mean or dot product of a norm or of softmax is left out")
    c = _multiple(pattern, wrong)
    if c is None:
        return None
    return f"scaled {c}", Cause("scaled rank-one term", f"{error}: the term that couples the elements of a block is {factor(c)} × what it must be")


def _simpler(block: Block) -> bool:
    """Is less left beside the diagonal than there must be: nothing instead of a product, a product instead of two?

    A term that is there with a wrong factor leaves as much as there was.
    """
    n, m = block.error.shape
    beside = _beside((n, m))
    if n != m or n < 3:
        return False
    if (np.abs(block.analytic[beside]) <= block.bar[beside]).all():
        return True
    return n >= SMALLEST and _product_beside(block.analytic, block.bar) and not _product_beside(block.numeric, block.bar)


def _beside(shape: tuple[int, ...]) -> Mask:
    """Where a matrix has no diagonal."""
    return np.not_equal.outer(np.arange(shape[0]), np.arange(shape[1]))


def _product_beside(matrix: Array, bar: Array) -> bool:
    """Is it u·wᵀ beside its diagonal? By the 2×2 minors that do not touch it."""
    n = min(len(matrix), LARGEST_MINORS)
    p, q, r, s = (each.reshape(-1) for each in np.indices((n, n, n, n)))
    apart = (p != r) & (p != s) & (q != r) & (q != s) & (p < q) & (r < s)
    p, q, r, s = p[apart], q[apart], r[apart], s[apart]
    a, b, c, d = matrix[p, r], matrix[q, s], matrix[p, s], matrix[q, r]
    allowed = np.abs(a) * bar[q, s] + np.abs(b) * bar[p, r] + np.abs(c) * bar[q, r] + np.abs(d) * bar[p, s]
    return bool((np.abs(a * b - c * d) <= 2 * allowed).all())


def _multiple(pattern: Pattern, blocks: list[Block]) -> float | None:
    """The factor of everything beside the diagonals, where it is one and none of 0 and 1."""
    low, high = -np.inf, np.inf
    for block in blocks:
        beside = _beside(block.error.shape)
        least, most = ratios(block.analytic[beside], block.numeric[beside], block.bar[beside])
        low, high = max(low, float(least.max(initial=-np.inf))), min(high, float(most.min(initial=np.inf)))
    c = settled(low, high)
    return c if c not in (None, 0.0, 1.0) and all(_scaled_beside(block, c) for block in blocks) else None


def _scaled_beside(block: Block, c: float) -> bool:
    """Is everything beside the diagonal of a square block c times what it must be, the zeros too?"""
    n, m = block.error.shape
    beside = _beside((n, m))
    return n == m >= SMALLEST - 1 and bool((np.abs(block.analytic - c * block.numeric) <= (1 + abs(c)) * block.bar)[beside].all())


def _blocks(pattern: Pattern) -> Iterator[Block]:
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
        analytic, numeric, bar = (np.zeros((len(rows), len(columns))) for _ in range(3))
        analytic[r, c], numeric[r, c], bar[r, c] = e.analytic[own], e.numeric[own], e.bar[own] + pattern.rounding[own]
        found.append(Block(analytic, numeric, bar + pattern.dust))
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


EXPLANATIONS = (Explanation(140, explain),)
REMEDIES = {
    "missing rank-one term": "each of these outputs depends on all inputs of its block: the term that couples them is missing, as "
                             "(g * y).sum(-1, keepdim=True) is in y * (g - …) of a softmax",
    "scaled rank-one term": "look at the factor of the term that couples the elements",
}
