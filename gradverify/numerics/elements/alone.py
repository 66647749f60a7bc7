"""Elements measured by themselves: the column of each moved alone, by every step of the ladder. And how many are, the worst first, until so many
stand that the others are believed unasked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradverify.numerics.elements.bundle import lone
from gradverify.numerics.elements.run import Run
from gradverify.numerics.estimate.climb import ALONE, Elements, Ladders
from gradverify.numerics.estimate.ladder import Derivative, concatenated
from gradverify.numerics.rungs import Index

STOOD = 3  # confirmed mismatches, after which the rest is believed, if none was cleared
ASKED = 24  # that are confirmed at most
AT_ONCE = 3  # columns that are measured together


def believed(stood: int, cleared: int) -> bool:
    """Do so many stand, and was none cleared, that the others need no confirmation?"""
    return stood >= STOOD and not cleared


def at_once(run: Run) -> int:
    """How many columns are measured together: one where the budget does not afford more."""
    return 1 if run.enough(AT_ONCE * ALONE) else AT_ONCE


def a_few_at_a_time(column: Index, likeliest: Index) -> Iterator[Index]:
    """Elements [E] by their columns, AT_ONCE of them at a time and ASKED at most: first the columns of the likeliest elements."""
    columns = list(dict.fromkeys(column[likeliest].tolist()))
    for n in range(0, min(len(columns), ASKED), AT_ONCE):
        yield np.flatnonzero(np.isin(column, columns[n : n + AT_ONCE]))


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
        return concatenated(ladders.every_rung() for ladders, _ in self._parts).take(self._place)

    def under_wider_noise(self) -> Derivative:
        """The same under the noise of points far apart (`Run.coarse`)."""
        coarse = self.run.coarse
        found = concatenated(ladders.under(coarse.far if beyond else coarse.noise).every_rung() for ladders, beyond in self._parts)
        return found.take(self._place)
