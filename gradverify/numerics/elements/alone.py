"""Elements confirmed one by one, the worst first: the column of each moved alone, by every step, until so many mismatches stand that the others are
believed unasked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gradverify.numerics.elements.bundle import lone
from gradverify.numerics.elements.judged import Judged
from gradverify.numerics.elements.run import Run
from gradverify.numerics.estimate.climb import EVERY_RUNG, Elements, Ladders
from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import Index, Mask
from gradverify.numerics.verdict import MISMATCH

STOOD = 3  # confirmed mismatches, after which the rest is believed, if none was cleared
MOST_COLUMNS = 24  # that are confirmed at most
COLUMNS_AT_ONCE = 3  # columns that are measured together


def believed(stood: int, cleared: int) -> bool:
    """Do so many stand, and was none cleared, that the others need no confirmation?"""
    return stood >= STOOD and not cleared


def columns_at_once(run: Run) -> int:
    """How many columns are measured together: one where the budget does not afford more."""
    return 1 if run.enough(COLUMNS_AT_ONCE * EVERY_RUNG) else COLUMNS_AT_ONCE


def worst_first(place: Index, order: Index, at_once: int = COLUMNS_AT_ONCE, most: int | None = MOST_COLUMNS) -> Iterator[Index]:
    """Elements [E] by the column or row that they lie in (`place`), some at a time: first the places of the elements that `order` has first."""
    places = list(dict.fromkeys(place[order].tolist()))[:most]
    for n in range(0, len(places), at_once):
        yield np.flatnonzero(np.isin(place, places[n : n + at_once]))


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


class Alone:
    """f at every step of the columns of elements (column, output) [E], asked in any order: 48 forward calls a column.

    Outputs that only move beyond the column's own scale (`Survey.wide`) are measured by steps of at least unit scale.
    """

    def __init__(self, run: Run, column: Index, out: Index) -> None:
        self.run = run
        wide = run.survey.wide[run.point.columns.tensor[column], out]
        order = np.lexsort((out, column, wide))
        near = int(np.sum(~wide))
        self._place = np.argsort(order)
        self._parts = [(self._ladders(column[i], out[i], beyond), beyond) for i, beyond in ((order[:near], False), (order[near:], True)) if i.size]

    def _ladders(self, column: Index, out: Index, beyond: bool) -> Ladders:
        columns, line = np.unique(column, return_inverse=True)
        return Ladders(lone(self.run.point, columns, beyond).lines, self.run.outputs(), Elements(line, out))

    def derivative(self) -> Derivative:
        """Of the elements, as they were asked."""
        return joined(ladders.every_rung() for ladders, _ in self._parts).take(self._place)

    def under_wider_noise(self) -> Derivative:
        """The same under the noise of points far apart (`Run.far_noise`)."""
        wider = self.run.far_noise
        found = joined(ladders.under(wider.far if beyond else wider.noise).every_rung() for ladders, beyond in self._parts)
        return found.take(self._place)
