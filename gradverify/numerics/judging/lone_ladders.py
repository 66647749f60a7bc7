"""Elements measured at every step, each by moving its column alone."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.estimate.climb import Elements, Ladders
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.judging.bundle import lone_columns
from gradverify.numerics.judging.run import Run
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import Index


class LoneLadders:
    """Elements (column, output) [E] in any order, the column of each on a line of its own, at every step: 48 forward calls a column.

    Outputs that only move beyond the column's own scale (`Survey.wide`) are measured by steps of at least unit scale.
    """

    def __init__(self, run: Run, column: Index, out: Index) -> None:
        self.run = run
        wide = run.survey.wide[run.point.columns.tensor[column], out]
        order = np.lexsort((out, column, wide))
        parts = np.split(order, [np.count_nonzero(~wide)])
        self._place = np.argsort(order)
        self._parts = [(self._ladders(column[i], out[i], is_wide), is_wide) for i, is_wide in zip(parts, (False, True), strict=True) if i.size]

    def _ladders(self, column: Index, out: Index, wide: bool) -> Ladders:
        columns, line = np.unique(column, return_inverse=True)
        return Ladders(lone_columns(self.run.point, columns, wide).lines, self.run.outputs(), Elements(line, out))

    def derivative(self) -> Derivative:
        """Of the elements, as they were asked."""
        return joined(ladders.every_rung() for ladders, _ in self._parts).take(self._place)

    def derivative_under_far_noise(self) -> Derivative:
        """The same under the noise of points far apart (`Run.far_noise`)."""
        noise = self.run.far_noise
        return joined(ladders.under(noise.far if wide else noise.noise).every_rung() for ladders, wide in self._parts).take(self._place)
