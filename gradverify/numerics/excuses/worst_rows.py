"""Rows of the Jacobian with mismatches, the worst first, until one stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradverify.numerics.elements.judged import Judged
from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.rungs import Index, Mask
from gradverify.numerics.verdict import MISMATCH


def until_one_stands(judged: Judged, at_once: int, one_row: Callable[[Judged, Index, int], tuple[Judged, float]],
                     doubtful: Mask | None = None) -> Judged:
    """Rows with mismatches that are no kinks, the worst first and so many at once, until a mismatch stands that `one_row` could not excuse.

    `one_row` is given elements of one row; it gives the verdicts, and the relative noise of that row's backward where this is itself at fault.
    `doubtful` [E]: mismatches that something else may still explain, so that they do not keep other rows from being looked at.
    """
    bad, at_fault = np.flatnonzero((judged.verdict == MISMATCH) & (judged.derivative.outcome != KINK)), dict[int, float]()
    rows = list(dict.fromkeys(judged.out[bad[judged.take(bad).worst_first()]].tolist()))
    for n in range(0, len(rows), at_once):
        some = rows[n : n + at_once]
        for row in some:
            judged, excess = one_row(judged, bad[judged.out[bad] == row], row)
            if excess > 0:
                at_fault[row] = excess
        seen = bad[np.isin(judged.out[bad], some)]
        if (judged.verdict[seen if doubtful is None else seen[~doubtful[seen]]] == MISMATCH).any():
            break
    return replace(judged, at_fault={**judged.at_fault, **at_fault}) if at_fault else judged
