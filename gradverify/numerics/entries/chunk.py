"""Finite differences of elements along some lines, refined: three steps for all, more for each that needs them, no mismatch without every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from gradverify.numerics.entries.chunk_result import ChunkResult, Solved
from gradverify.numerics.entries.consistency import AliasSums
from gradverify.numerics.estimate.climb import EVERY_RUNG, Climb, Elements, Judge, Ladders, settled
from gradverify.numerics.estimate.kinks import NON_FINITE
from gradverify.numerics.estimate.ladder import PIECE, Derivative
from gradverify.numerics.excuses.cancelling import beyond_cancelling
from gradverify.numerics.judging.bundle import Bundle, widened
from gradverify.numerics.judging.cells import Cells, cells_where
from gradverify.numerics.judging.judged import Judged, no_limits
from gradverify.numerics.judging.quick import linear_derivatives, plain_derivatives, quick_samples
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import columns_at_once, worst_first
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import QUICK, WIDE_RUNG, Array, Codes, Index, Mask
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import MISMATCH, Limit

SPAN = 1 << 17  # elements of a chunk that are judged at a time: what is known of each takes some 500 bytes
NO_COLUMNS = np.zeros(0, np.intp)


class Chunk:
    """Judges the lines of a bundle of n against analytic values a [n, M], those of the columns that the outputs show."""

    def __init__(self, run: Run, bundle: Bundle, a: Array) -> None:
        self.run, self.bundle, self.a = run, bundle, a
        self.linear = bool(len(bundle.tensor)) and run.linear.issuperset(bundle.tensor.tolist())
        self.samples = quick_samples(run.point, bundle, (WIDE_RUNG,), run.quiet) if self.linear else quick_samples(run.point, bundle)
        self.unchanged, self.masked = self.samples.unchanged, self.samples.masked
        if self.masked.any():
            self.masked = self.masked & np.isfinite(a) & bundle.in_pattern
        self.border = self.samples.at_border
        self.some_unmoved = run.survey.some_unmoved

    @cached_property
    def unmoved(self) -> Mask:
        return self.run.survey.unmoved[self.bundle.tensor]

    @cached_property
    def wide(self) -> Mask:
        return self.run.survey.wide[self.bundle.tensor]

    def judge(self, sums: AliasSums, aliasing: Mask) -> Iterator[ChunkResult]:
        """Everything about the chunk, some outputs at a time; `aliasing` [M]: outputs whose quick rungs are known to alias."""
        m = self.a.shape[1]
        width = max(1, SPAN // max(len(self.a), 1))
        for start in range(0, m, width) or [0]:
            outs = slice(start, min(start + width, m))
            yield self._part(outs, sums, aliasing, self.bundle.columns if outs.stop == m else NO_COLUMNS)

    def _part(self, outs: slice, sums: AliasSums, aliasing: Mask, finished: Index) -> ChunkResult:
        """Some outputs of all lines. `finished`: the columns that are complete with them."""
        zeros, masked = self._negligible_zeros(outs), self.masked[:, outs]
        cells = cells_where(self.bundle, ~(zeros | masked) & self.bundle.in_pattern[:, outs], outs)
        quick = self._from_quick_rungs(cells)
        off_secant = sums.add(finished, cells, quick.value, quick.bar)
        solved = self._solved_with(quick, cells, (aliasing | off_secant)[cells.out])
        revived = self._revived(zeros, outs)
        if len(revived):
            solved = solved.and_quick(revived, self._from_quick_rungs(revived))
        judged = self._final(solved)
        resolution = self._zero_resolution(outs) if zeros.any() else np.zeros(zeros.shape)
        return ChunkResult(outs, judged, solved.easy, (judged.verdict == MISMATCH) & self.bundle.grouped, zeros, masked, resolution, off_secant,
                           self.samples.strays(outs, self.run.survey.sigma))

    def _solved_with(self, quick: Derivative, cells: Cells, suspect: Mask) -> Solved:
        """Elements with their derivatives by the quick rungs, and by more for those that are not settled, or are `suspect` [E]."""
        judged, floors, unit = self._verdicts(cells, quick), self.run.floors(), self.run.point.unit
        easy = settled(quick, judged.verdict) & ~suspect
        if easy.all():
            derivative, unaffordable = quick, np.zeros(len(cells), bool)
        else:
            derivative, unaffordable = self._refined(cells, quick, ~easy, suspect)
        stands = easy.all() and self.run.floors() is floors and self.run.point.unit is unit
        return Solved(cells, derivative, easy, unaffordable, judged if stands else None)

    def _refined(self, cells: Cells, quick: Derivative, hard: Mask, suspect: Mask) -> tuple[Derivative, Mask]:
        """With more rungs for the elements that are `hard` [E], every rung for mismatches of lone columns; and those that the budget left [E]."""
        derivative, mismatch = self._climb(cells, quick, hard, suspect)
        if self.bundle.grouped or not mismatch.any():
            return derivative, np.zeros(len(cells), bool)
        return self._confirm(cells, derivative, mismatch)

    def _final(self, solved: Solved) -> Judged:
        """The verdicts by all that is known now; no mismatch where the budget left steps out."""
        judged = solved.judged or self._judged(solved.cells, solved.derivative)
        if not solved.unaffordable.any():
            return judged
        return judged.undecided(np.flatnonzero(solved.unaffordable & (judged.verdict == MISMATCH)), Limit.BUDGET)

    def _negligible_zeros(self, outs: slice) -> Mask:
        """Bitwise zeros with an analytic value that is zero or negligible: most of a Jacobian, settled without a solver."""
        still = self.unchanged[:, outs] & self.bundle.in_pattern[:, outs]
        if not still.any():
            return still
        zeros = still & (np.abs(self.a[:, outs]) <= self.run.zero_tolerance(self.bundle.column_of[:, outs], outs))
        return zeros & ~(self.unmoved | self.wide)[:, outs] if self.some_unmoved else zeros

    def _revived(self, zeros: Mask, outs: slice) -> Cells:
        """What is no zero any more because floors moved meanwhile; taken off `zeros`."""
        revived = cells_where(self.bundle, zeros & ~self._negligible_zeros(outs) if zeros.any() else zeros, outs)
        zeros[revived.line, revived.out - outs.start] = False
        return revived

    def _zero_resolution(self, outs: slice) -> Array:
        f0 = np.nan_to_num(self.samples.f0[outs], posinf=0.0, neginf=0.0)
        rounding = self.run.point.unit[outs] * np.abs(f0) / self.samples.widest(outs)
        return np.asarray(self.run.zero_tolerance(self.bundle.column_of[:, outs], outs) + rounding)

    # ---- elements
    def _with_quick(self, ladders: Ladders, cells: Cells) -> Ladders:
        """With the samples that are there."""
        for n, k in enumerate(QUICK):
            ladders.put(k, self.samples.at(n, cells.line, cells.out))
        return ladders

    def _from_quick_rungs(self, cells: Cells) -> Derivative:
        result = linear_derivatives(self.samples, self.run, cells) if self.linear else self._solved(cells)
        if self.some_unmoved:
            result = replace(result, unclear=result.unclear | cells.by_line_and_output(self.unmoved | self.wide))
        self._learn(cells, result)
        return result

    def _solved(self, cells: Cells) -> Derivative:
        """From the quick rungs [E]."""
        result, hard = plain_derivatives(self.samples, self.run, cells)
        if not hard.size:
            return result
        rest = cells.take(hard)
        return result.replaced(hard, joined(self._ladders_of(rest.take(p)).solve(np.arange(len(p)), QUICK, False) for p in pieces(rest.line)))

    def _ladders_of(self, cells: Cells) -> Ladders:
        return self._with_quick(Ladders(self.bundle.lines, self.run.outputs(), Elements(cells.line, cells.out)), cells)

    def _learn(self, cells: Cells, d: Derivative) -> None:
        self.run.reach.add_cells(cells, d.value, d.bar)

    def _verdicts(self, cells: Cells, d: Derivative) -> Judged:
        """By what is known now; what limits the undecided ones is left out."""
        a, tolerances = cells.by_line_and_output(self.a), self.run.tolerances_of(cells)
        border_column = self._border_column(cells)
        codes = verdicts(a, d, tolerances, border_column=border_column)
        return Judged(cells.column, cells.out, a, d, tolerances, codes, no_limits(len(cells)), cells.lines, border_column)

    def _border_column(self, cells: Cells) -> Mask | None:
        return self.border.take(cells.column) if self.border.any() else None

    def _judge(self, cells: Cells) -> Judge:
        def judge(i: Index, d: Derivative) -> Codes:
            some = cells.take(i)
            self._learn(some, d)  # a row that was taken for dead may turn out to be alive
            return self._verdicts(some, d).verdict

        return judge

    # ---- climbing
    def _climb(self, cells: Cells, d: Derivative, rest: Mask, suspect: Mask) -> tuple[Derivative, Mask]:
        """Elements `rest` [E] until each is settled; and the mismatches that have not seen every rung [E].

        Twice, because what is learnt of a row can unsettle its other elements.
        """
        unconfirmed, exhausted = np.zeros((2, len(cells)), bool)
        for _ in range(2):
            floors, climbed = self.run.floors(), list[tuple[Index, Derivative]]()
            for i in self._groups(cells, np.flatnonzero(rest)):
                i, climber = self._climber(i, cells, d, suspect)
                found = climber.run()
                climbed.append((i, found.derivative))
                unconfirmed[i], exhausted[i] = found.unconfirmed, found.exhausted
            d = _exchanged(d, climbed)
            if self.run.floors() is floors:
                break  # nothing was learnt
            rest = ~settled(d, self._verdicts(cells, d).verdict) & ~unconfirmed & ~exhausted
        return d, unconfirmed

    def _groups(self, cells: Cells, i: Index) -> Iterator[Index]:
        """Elements i in pieces that climb together: those on their own scale, then those that only move beyond it."""
        wide = cells.take(i).by_line_and_output(self.wide)
        for group in (i[~wide], i[wide]):
            yield from (group[p] for p in pieces(cells.line[group]) if len(p))

    def _climber(self, i: Index, cells: Cells, quick: Derivative, suspect: Mask) -> tuple[Index, Climb]:
        """A climb of elements i, in the order in which it takes them."""
        i, climbing, ladders = self._ladders(i, cells)
        judge = self._judge(climbing)
        if self._measured_elsewhere(climbing):
            nothing = np.zeros(len(i), bool)
            return i, Climb(ladders, ladders.solve(np.arange(len(i)), QUICK, False), judge, nothing, suspect[i])
        return i, Climb(self._with_quick(ladders, climbing), quick.take(i), judge, climbing.by_line_and_output(self.unmoved), suspect[i])

    def _ladders(self, i: Index, cells: Cells) -> tuple[Index, Cells, Ladders]:
        """The lines of elements i, and these in the order of the lines."""
        bundle = widened(self.bundle, self.run.point) if cells.take(i).by_line_and_output(self.wide).any() else self.bundle
        i = i[np.argsort(cells.line[i], kind="stable")]
        climbing = Cells(self.bundle, cells.line[i], cells.out[i])
        return i, climbing, Ladders(bundle.lines, self.run.outputs(), Elements(climbing.line, climbing.out))

    def _measured_elsewhere(self, cells: Cells) -> bool:
        """Are these measured elsewhere than on the quick rungs that are there?"""
        return self.linear or bool(cells.by_line_and_output(self.wide).any())

    def _confirm(self, cells: Cells, d: Derivative, unconfirmed: Mask) -> tuple[Derivative, Mask]:
        """No mismatch stands on quick rungs alone: the worst columns of each pair climb the whole ladder, until one stands.

        And what is left open [E]: where the budget is spent, one column climbs for all pairs.
        """
        unaffordable = np.zeros(len(cells), bool)
        for of_pair in self.run.by_pair(cells.column, cells.out, np.flatnonzero(unconfirmed)):
            if self.run.certainly_wrong and self.run.over_budget(EVERY_RUNG):
                unaffordable[of_pair] = True
                continue
            d, rest = self._confirm_pair(cells, d, of_pair)
            unaffordable[rest] = True
        return d, unaffordable

    def _confirm_pair(self, cells: Cells, d: Derivative, i: Index) -> tuple[Derivative, Index]:
        misses = np.abs(cells.by_line_and_output(self.a)[i] - d.value[i]) / (d.bar[i] + 1e-300)
        order, unmeasured = np.argsort(-np.nan_to_num(misses, nan=np.inf), kind="stable"), np.ones(len(i), bool)
        for places in worst_first(cells.line[i], order, columns_at_once(self.run), None):
            if not unmeasured.all() and self.run.over_budget(EVERY_RUNG):
                return d, i[unmeasured]
            unmeasured[places], batch = False, i[places]
            for e in self._groups(cells, batch):
                e, climbing, ladders = self._ladders(e, cells)
                d = d.replaced(e, (ladders if self._measured_elsewhere(climbing) else self._with_quick(ladders, climbing)).every_rung())
            judged = self._verdicts(cells.take(batch), d.take(batch))
            if (judged.verdict == MISMATCH).any():
                self.run.certainly_wrong.update(judged.out[beyond_cancelling(self.run, judged)].tolist())
                break
        return d, NO_COLUMNS

    def _judged(self, cells: Cells, d: Derivative) -> Judged:
        lost = np.flatnonzero(d.outcome == NON_FINITE)  # a backward may well be non-finite all along such a column
        self.border[cells.column[lost[np.isfinite(self.samples.f0.take(cells.out[lost]))]]] = True
        return self._verdicts(cells, d).with_limits()


def _exchanged(d: Derivative, parts: Sequence[tuple[Index, Derivative]]) -> Derivative:
    """With these elements exchanged."""
    if not parts:
        return d
    return d.replaced(np.concatenate([i for i, _ in parts]), joined(new for _, new in parts))


def pieces(local: Index) -> Iterator[Index]:
    """Ranges of at most PIECE elements, cut between columns where one column allows; one empty piece of nothing."""
    start, n = 0, len(local)
    while start < n or n == 0:
        stop = min(start + PIECE, n)
        if stop < n and local[stop] != local[start]:
            stop = int(np.searchsorted(local, local[stop]))
        yield np.arange(start, stop)
        start = stop
        if n == 0:
            return
