"""Mismatches confirmed, the worst first: a few columns or rows at a time, until so many stand that the rest counts as wrong unasked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Index, Mask
from gradverify.numerics.verdict import MISMATCH

ENOUGH_CONFIRMED = 3  # mismatches that stand, after which the rest counts as wrong, if none was cleared
MOST_COLUMNS = 24  # that are confirmed at most
COLUMNS_AT_ONCE = 3  # columns that are measured together


def enough_confirmed(confirmed: int, cleared: int) -> bool:
    """Are so many mismatches confirmed, and none cleared, that the others need no confirmation?"""
    return confirmed >= ENOUGH_CONFIRMED and not cleared


def columns_at_once(run: Run) -> int:
    """How many columns are measured together: one where the budget does not afford more."""
    return 1 if run.over_budget(COLUMNS_AT_ONCE * EVERY_RUNG) else COLUMNS_AT_ONCE


def worst_first(place: Index, order: Index, at_once: int = COLUMNS_AT_ONCE, most: int | None = MOST_COLUMNS) -> Iterator[Index]:
    """Elements [E] by the column or row that they lie in (`place`), some at a time: first the places of the elements that `order` has first."""
    places = list(dict.fromkeys(place[order].tolist()))[:most]
    for n in range(0, len(places), at_once):
        yield np.flatnonzero(np.isin(place, places[n : n + at_once]))


def standing(column: Index, order: Index, stands: Callable[[Index], Mask]) -> Mask:
    """Which of the mismatches [E] stand: `stands` of a few columns, the worst first, and of the rest if that is `enough_confirmed`."""
    confirmed, measured = np.zeros((2, len(column)), bool)
    for i in worst_first(column, order):
        confirmed[i], measured[i] = stands(i), True
        count = int(confirmed.sum())
        if count >= ENOUGH_CONFIRMED:
            return np.asarray(confirmed | ~measured) if enough_confirmed(count, int(measured.sum()) - count) else confirmed
    return confirmed


def excuse_row_by_row(judged: Judged, at_once: int, excuse_row: Callable[[Judged, Index, int], tuple[Judged, float]],
                      doubtful: Mask | None = None) -> Judged:
    """Rows with mismatches that are no kinks, the worst first and so many at once, until a mismatch stands that `excuse_row` could not excuse.

    `excuse_row` is given elements of one row; it gives the verdicts, and the relative noise of that row's backward where this is itself at fault.
    `doubtful` [E]: mismatches that something else may still explain, so that they do not keep other rows from being looked at.
    """
    bad, backward_noise = np.flatnonzero((judged.verdict == MISMATCH) & (judged.derivative.outcome != KINK)), dict[int, float]()
    counts, asked = np.ones(len(bad), bool) if doubtful is None else ~doubtful[bad], np.zeros(len(bad), bool)
    for n, in_row in enumerate(worst_first(judged.out[bad], judged.take(bad).worst_first(), 1, None), 1):
        row = int(judged.out[bad[in_row[0]]])
        judged, noise = excuse_row(judged, bad[in_row], row)
        if noise > 0:
            backward_noise[row] = noise
        asked[in_row] = counts[in_row]
        if n % at_once == 0 and (judged.verdict[bad[asked]] == MISMATCH).any():
            break
    return replace(judged, backward_noise={**judged.backward_noise, **backward_noise}) if backward_noise else judged
