"""The elements of a chunk of lines by the quick rungs alone: their derivatives, and verdicts by what is known now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.climb import Elements, Judge, Ladders
from gradverify.numerics.estimate.kinks import NON_FINITE
from gradverify.numerics.estimate.ladder import PIECE, Derivative
from gradverify.numerics.judging.bundle import Bundle
from gradverify.numerics.judging.cells import Cells
from gradverify.numerics.judging.judged import Judged, no_limits
from gradverify.numerics.judging.quick_samples import linear_derivatives, plain_derivatives, quick_samples
from gradverify.numerics.judging.run import Run
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import QUICK, WIDE_RUNG, Array, Codes, Index, Mask
from gradverify.numerics.tolerance import verdicts


class QuickLook:
    """The lines of a bundle of n on the quick rungs (on one wide rung where f is linear), beside analytic values a [n, M].

    `border`: columns, from the first on, along which f ends at x, as far as is known.
    """

    def __init__(self, run: Run, bundle: Bundle, a: Array) -> None:
        self.run, self.bundle, self.a = run, bundle, a
        self.linear = bool(len(bundle.tensor)) and run.linear.issuperset(bundle.tensor.tolist())
        self.samples = quick_samples(run.point, bundle, (WIDE_RUNG,), run.quiet) if self.linear else quick_samples(run.point, bundle)
        self.border = self.samples.at_border

    @cached_property
    def unmoved(self) -> Mask:
        """Elements [n, M] that only a coarser step surely moves."""
        return self.run.survey.unmoved[self.bundle.tensor]

    @cached_property
    def wide(self) -> Mask:
        """Elements [n, M] that only a step beyond the scale of x surely moves."""
        return self.run.survey.wide[self.bundle.tensor]

    # ---- derivatives
    def derivatives(self, cells: Cells) -> Derivative:
        """Of elements [E], `unclear` where these rungs cannot tell. The reach of the outputs is learnt from them."""
        result = linear_derivatives(self.samples, self.run, cells) if self.linear else self._extrapolated(cells)
        if self.run.survey.some_unmoved:
            result = replace(result, unclear=result.unclear | cells.by_line_and_output(self.unmoved | self.wide))
        self.learn(cells, result)
        return result

    def _extrapolated(self, cells: Cells) -> Derivative:
        result, hard = plain_derivatives(self.samples, self.run, cells)
        if not hard.size:
            return result
        hard_cells = cells.take(hard)
        by_piece = (self.ladders(hard_cells.take(p)).solve(np.arange(len(p)), QUICK, False) for p in pieces(hard_cells.line))
        return result.replaced(hard, joined(by_piece))

    def ladders(self, cells: Cells) -> Ladders:
        """The ladders of elements, which hold the quick rungs already."""
        ladders = Ladders(self.bundle.lines, self.run.outputs(), Elements(cells.line, cells.out))
        for n, k in enumerate(QUICK):
            ladders.put(k, self.samples.at(n, cells.line, cells.out))
        return ladders

    def learn(self, cells: Cells, d: Derivative) -> None:
        """How far outputs go: a row that was taken for dead may turn out to be alive."""
        self.run.reach.add_cells(cells, d.value, d.bar)

    # ---- verdicts
    def judged(self, cells: Cells, d: Derivative) -> Judged:
        """By what is known now; what limits the undecided ones is left out."""
        a, tolerances = cells.by_line_and_output(self.a), self.run.tolerances_of(cells)
        border_column = self.border.take(cells.column) if self.border.any() else None
        codes = verdicts(a, d, tolerances, border_column=border_column)
        return Judged(cells.column, cells.out, a, d, tolerances, codes, no_limits(len(cells)), cells.lines, border_column)

    def judged_at_last(self, cells: Cells, d: Derivative) -> Judged:
        """With the columns along which f was seen to end, and with what limits the undecided ones."""
        lost = np.flatnonzero(d.outcome == NON_FINITE)  # a backward may well be non-finite all along such a column
        lost = lost[np.isfinite(self.samples.f0.take(cells.out[lost]))]
        self.border[cells.column[lost[~self.samples.settles(cells.line[lost], cells.out[lost])]]] = True
        return self.judged(cells, d).with_limits()

    def judge(self, cells: Cells) -> Judge:
        """Verdicts for a climb of these elements, which learns from each derivative."""
        def codes(i: Index, d: Derivative) -> Codes:
            climbed = cells.take(i)
            self.learn(climbed, d)
            return self.judged(climbed, d).verdict

        return codes


def pieces(line: Index) -> Iterator[Index]:
    """Ranges of at most PIECE elements, whose lines [E] ascend, cut between lines where one line allows; one empty piece of nothing."""
    start, n = 0, len(line)
    while start < n or n == 0:
        stop = min(start + PIECE, n)
        if stop < n and line[stop] != line[start]:
            stop = int(np.searchsorted(line, line[stop]))
        yield np.arange(start, stop)
        start = stop
        if n == 0:
            return
