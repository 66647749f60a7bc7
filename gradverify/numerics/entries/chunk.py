"""Every element of a chunk of lines with its verdict: zeros at once, the others by the quick rungs,
and by more where those leave them open.

Elements that the quick rungs leave open climb further rungs until they are settled; a mismatch of a
single column is reported only after every rung.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.estimate.climb import EVERY_RUNG, Climb, Ladders, settled
from gradverify.numerics.estimate.ladder import NON_FINITE, PIECE, Derivative
from gradverify.numerics.excuses.rounding import beyond_cancelling
from gradverify.numerics.judging import (
    Bundle,
    Cells,
    Judged,
    Run,
    cells_where,
    columns_at_once,
    judged_now,
    linear_derivatives,
    plain_derivatives,
    quick_samples,
    widened,
    worst_first,
)
from gradverify.numerics.pairs.pair import Tally
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import CLIMB, QUICK, WIDE_RUNG, Array, Codes, Index, Mask
from gradverify.numerics.verdict import MISMATCH, Limit

# rungs of outputs that may have structure near x
NEARER = range(QUICK[0], QUICK[-1] + 2 * CLIMB + 1)
# Elements of a chunk that are judged at a time: what is known of each takes some 500 bytes
SPAN = 1 << 17


@dataclass(frozen=True)
class ChunkResult:
    """Some outputs `outs` of all lines: `judged` elements, and which of them the quick rungs
    settled [E]; `zeros`, `masked` [n, outs]: passed or left out without a solver."""

    outs: slice
    judged: Judged
    quick: Mask
    zeros: Mask
    masked: Mask


class Chunk:
    """The n lines of a bundle on the quick rungs (on one wide rung where f is linear), beside the
    analytic values a [n, M] of the columns that their outputs show.

    `suspect`: outputs [M] that are looked at nearer to x. `border`: columns, from the first on,
    along which f ends at x, as far as is known. `unmoved`, `wide`: elements [n, M] that only a
    coarser step, or one beyond the scale of x, surely moves.
    """

    def __init__(self, run: Run, bundle: Bundle, a: Array, suspect: Mask) -> None:
        self.run = run
        self.bundle = bundle
        self.a = a
        self.suspect = suspect
        self.linear = bool(len(bundle.tensor)) and run.linear.keys() >= {*bundle.tensor.tolist()}
        self.samples = (
            quick_samples(run.point, bundle, (WIDE_RUNG,), run.quiet)
            if self.linear
            else quick_samples(run.point, bundle)
        )
        self.border = self.samples.at_border
        self.unchanged = self.samples.unchanged
        self.masked = self.samples.masked
        self.unmoved, self.wide = run.survey.unmoved[bundle.tensor], run.survey.wide[bundle.tensor]
        if self.masked.any():
            self.masked = self.masked & np.isfinite(a) & bundle.in_pattern

    def judge(self) -> Iterator[ChunkResult]:
        """Everything about the chunk, some outputs at a time."""
        m = self.a.shape[1]
        width = max(1, SPAN // max(len(self.a), 1))
        for start in range(0, m, width) or [0]:
            outs = slice(start, min(start + width, m))
            zeros, masked = self._negligible_zeros(outs), self.masked[:, outs]
            here = ~(zeros | masked) & self.bundle.in_pattern[:, outs]
            cells = cells_where(self.bundle, here, start)
            yield ChunkResult(outs, *self._settled(cells), zeros, masked)

    def _settled(self, cells: Cells) -> tuple[Judged, Mask]:
        """Elements [E] with their verdicts, and which of them the quick rungs settled."""
        d, unaffordable = self._quick(cells), np.zeros(len(cells), bool)
        suspect = self.suspect[cells.out]
        for i, wide in self._pieces(cells, np.flatnonzero(suspect)):
            ladders = self._ladders(cells.take(i), wide)
            d = d.replaced(i, ladders.solve(np.arange(len(i)), NEARER, False))
        judged = self._judged(cells, d)
        open_ = ~settled(d, judged.verdict)
        quick = ~(open_ | suspect)
        if not open_.any():
            return judged, quick
        d, mismatch = self._climbed(cells, d, open_)
        # Those of a group are confirmed by moving each column alone
        if mismatch.any() and not self.bundle.grouped:
            d, unaffordable = self._confirmed(cells, d, mismatch)
        # A backward may well be non-finite all along such a column
        lost = np.flatnonzero(d.outcome == NON_FINITE)
        lost = lost[np.isfinite(self.samples.f0.take(cells.out[lost]))]
        self.border[
            cells.column[lost[~self.samples.settles(cells.line[lost], cells.out[lost])]]
        ] = True
        judged = self._judged(cells, d).with_limits()
        return judged.undecided(
            np.flatnonzero(unaffordable & (judged.verdict == MISMATCH)), Limit.BUDGET
        ), quick

    # ---- zeros
    def _negligible_zeros(self, outs: slice) -> Mask:
        """Elements [n, outs] of which f is bitwise still and the analytic value negligible: most of
        a Jacobian, settled without a solver."""
        still = self.unchanged[:, outs] & self.bundle.in_pattern[:, outs]
        if not still.any():
            return still
        return (
            still
            & (
                np.abs(self.a[:, outs])
                <= self.run.zero_tolerance(self.bundle.column_of[:, outs], outs)
            )
            & ~(self.unmoved | self.wide)[:, outs]
        )

    def add_zeros(self, tally: Tally, result: ChunkResult, rows: slice, part: slice) -> None:
        """What needed no solver, of lines `rows` and the outputs of `part`, and how large a
        derivative may be that passes as a zero."""
        first, last = max(part.start, result.outs.start), min(part.stop, result.outs.stop)
        if first >= last or not (result.zeros.any() or result.masked.any()):
            return
        here = (rows, slice(first - result.outs.start, last - result.outs.start))
        outs = slice(first, last)
        zeros, f0 = result.zeros[here], np.nan_to_num(self.samples.f0[outs], posinf=0.0, neginf=0.0)
        rounding = self.run.point.unit[outs] * np.abs(f0) / self.samples.widest(outs)
        resolution = (
            (self.run.zero_tolerance(self.bundle.column_of[:, outs], outs) + rounding)[rows]
            if zeros.any()
            else zeros
        )
        tally.add_zeros(
            self.a[rows, outs][zeros], np.asarray(resolution[zeros], float), result.masked[here]
        )

    # ---- derivatives
    def _quick(self, cells: Cells) -> Derivative:
        """Of elements [E], `unclear` where these rungs cannot tell."""
        if self.linear:
            result = linear_derivatives(self.samples, self.run, cells)
        else:
            result, hard = plain_derivatives(self.samples, self.run, cells)
            if hard.size:
                of_hard = cells.take(hard)
                found = (
                    self._ladders(of_hard.take(p)).solve(np.arange(len(p)), QUICK, False)
                    for p in _pieces(of_hard.line)
                )
                result = result.replaced(hard, joined(found))
        if self.run.survey.some_unmoved:
            result = replace(
                result, unclear=result.unclear | cells.by_line_and_output(self.unmoved | self.wide)
            )
        return result

    def _ladders(self, cells: Cells, wide: bool = False) -> Ladders:
        """The ladders of elements, which hold the quick rungs already, if f was sampled there; at
        steps of at least unit scale where these only move beyond that of x."""
        lines = widened(self.bundle, self.run.point).lines if wide else self.bundle.lines
        ladders = Ladders(lines, self.run.outputs(), cells.line, cells.out)
        if not (self.linear or wide):
            for n, k in enumerate(QUICK):
                ladders.put(k, self.samples.at(n, cells.line, cells.out))
        return ladders

    def _judged(self, cells: Cells, d: Derivative) -> Judged:
        """By what is known now; what limits the undecided ones is left out."""
        border_column = self.border.take(cells.column) if self.border.any() else None
        a = cells.by_line_and_output(self.a)
        return judged_now(self.run, cells.column, cells.out, a, d, border_column)

    def _pieces(self, cells: Cells, i: Index) -> Iterator[tuple[Index, bool]]:
        """Elements i in pieces that climb together: those on the scale of x, then those that only
        move beyond it, and which these are."""
        wide = cells.take(i).by_line_and_output(self.wide)
        for group, is_wide in ((i[~wide], False), (i[wide], True)):
            yield from ((group[p], is_wide) for p in _pieces(cells.line[group]) if len(p))

    def _climbed(self, cells: Cells, d: Derivative, hard: Mask) -> tuple[Derivative, Mask]:
        """Elements `hard` [E] climbed until each is settled; and the mismatches that have not seen
        every rung [E].

        Twice, because what is learnt of a row can unsettle its other elements.
        """
        unconfirmed, exhausted = np.zeros((2, len(cells)), bool)
        for _ in range(2):
            floors = self.run.floors()
            for i, wide in self._pieces(cells, np.flatnonzero(hard)):
                climb = self._climb(cells.take(i), d.take(i), wide)
                d = d.replaced(i, climb.run())
                unconfirmed[i], exhausted[i] = climb.unconfirmed, climb.exhausted
            if self.run.floors() is floors:
                break  # nothing was learnt
            hard = ~settled(d, self._judged(cells, d).verdict) & ~unconfirmed & ~exhausted
        return d, unconfirmed

    def _climb(self, cells: Cells, quick: Derivative, wide: bool) -> Climb:
        def judge(i: Index, d: Derivative) -> Codes:
            return self._judged(cells.take(i), d).verdict

        ladders = self._ladders(cells, wide)
        if self.linear or wide:
            return Climb(
                ladders,
                ladders.solve(np.arange(len(cells)), QUICK, False),
                judge,
                np.zeros(len(cells), bool),
            )
        return Climb(ladders, quick, judge, cells.by_line_and_output(self.unmoved))

    # ---- confirming
    def _confirmed(self, cells: Cells, d: Derivative, mismatch: Mask) -> tuple[Derivative, Mask]:
        """A mismatch is confirmed by the whole ladder: the worst columns of each pair climb it,
        until one is confirmed.

        And what the budget left [E]: where the budget is spent, one column climbs for all pairs.
        """
        run, unaffordable = self.run, np.zeros(len(cells), bool)
        misses = np.nan_to_num(
            np.abs(cells.by_line_and_output(self.a) - d.value) / (d.bar + 1e-300), nan=np.inf
        )
        for i in run.by_pair(cells.column, cells.out, np.flatnonzero(mismatch)):
            if run.certainly_wrong and run.over_budget(EVERY_RUNG):
                unaffordable[i] = True
                continue
            unmeasured = np.ones(len(i), bool)
            for places in worst_first(
                cells.line[i], np.argsort(-misses[i], kind="stable"), columns_at_once(run), None
            ):
                if not unmeasured.all() and run.over_budget(EVERY_RUNG):
                    unaffordable[i[unmeasured]] = True
                    break
                unmeasured[places], measured = False, i[places]
                for e, wide in self._pieces(cells, measured):
                    d = d.replaced(e, self._ladders(cells.take(e), wide).every_rung())
                judged = self._judged(cells.take(measured), d.take(measured))
                if (judged.verdict == MISMATCH).any():
                    run.certainly_wrong.update(judged.out[beyond_cancelling(run, judged)].tolist())
                    break
        return d, unaffordable


def _pieces(line: Index) -> Iterator[Index]:
    """Ranges of at most PIECE elements, whose lines [E] ascend, cut between lines where one line
    allows; one empty piece of nothing."""
    start, n = 0, len(line)
    while start < n or n == 0:
        stop = min(start + PIECE, n)
        if stop < n and line[stop] != line[start]:
            stop = int(np.searchsorted(line, line[stop]))
        yield np.arange(start, stop)
        start = stop
        if n == 0:
            return
