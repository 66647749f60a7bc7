"""Entries of a flagged line that are right by what a screen asks of the line as a whole, though their bars are wider than their own tolerance."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.flagged.column_row_block import FlaggedBlocks
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.probing.thresholds import SCREEN_LOW, screen_of
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.seed_vectors import gradient_of_rows
from gradverify.numerics.verdict import Verdict


class ScreenAccuracy:
    """The norms of columns and rows that undecided entries are compared with. `weights` [M]: cotangents."""

    def __init__(self, run: Run, weights: Array) -> None:
        self.run, self.weights = run, weights
        self._norms: dict[int, Array] = {}

    def applied(self, lines: FlaggedBlocks, entries: Judged) -> Judged:
        """Undecided entries that are known to what a screen asks of their line are right: a zero's bar may be wider than its floor."""
        i = np.flatnonzero((entries.verdict == Verdict.UNDECIDED) & entries.derivative.smooth & np.isfinite(entries.analytic))
        if not i.size:
            return entries
        d, low_precision = entries.derivative.take(i), bool(self.run.low_values()[lines.part].any())
        norm = self._row_norms(entries.column[i], entries.out[i])
        if lines.by_column:  # a column of zeros has no size to compare with
            norm = np.where((entries.analytic[i] == 0) & (d.value == 0), norm, self._column_norms(lines.pair.output)[entries.column[i]])
        share = SCREEN_LOW if low_precision else screen_of(self.run.point)
        return entries.passed(i[np.isfinite(norm) & (np.abs(entries.analytic[i] - d.value) + d.bar <= share * norm)])

    def _column_norms(self, output: int) -> Array:
        """About the norm [C] of each column, by one backward with random weights."""
        if output not in self._norms:
            part = self.run.point.parts[output]
            self._norms[output] = np.abs(gradient_of_rows(self.run.point, output, np.arange(part.start, part.stop), self.weights[part]))
        return self._norms[output]

    def _row_norms(self, columns: Index, outputs: Index) -> Array:
        """The norm of each entry's row [E], in units of its column."""
        c = self.run.point.columns
        norm = {j: float(np.linalg.norm(np.nan_to_num(self.run.point.row(j), posinf=0.0, neginf=0.0) * c.scale)) for j in np.unique(outputs).tolist()}
        return np.array([norm[j] for j in outputs.tolist()]) / c.scale[columns]
