"""Rows of the Jacobian with mismatches, the worst first, until one stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradverify.numerics.elements.alone import worst_first
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
    counts, asked = np.ones(len(bad), bool) if doubtful is None else ~doubtful[bad], np.zeros(len(bad), bool)
    for n, own in enumerate(worst_first(judged.out[bad], judged.take(bad).worst_first(), 1, None), 1):
        row = int(judged.out[bad[own[0]]])
        judged, excess = one_row(judged, bad[own], row)
        if excess > 0:
            at_fault[row] = excess
        asked[own] = counts[own]
        if n % at_once == 0 and (judged.verdict[bad[asked]] == MISMATCH).any():
            break
    return replace(judged, at_fault={**judged.at_fault, **at_fault}) if at_fault else judged
