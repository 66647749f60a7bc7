"""Finite differences of elements along some lines, refined: three steps for all, more for each that needs them, no mismatch without every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.columns.sums import AliasSums
from gradverify.numerics.elements.alone import columns_at_once, worst_first
from gradverify.numerics.elements.bundle import Bundle, regrouped, widened
from gradverify.numerics.elements.cells import Cells, chosen
from gradverify.numerics.elements.judged import Judged, no_limits
from gradverify.numerics.elements.quick import quick_samples, secants, told_at_once
from gradverify.numerics.elements.run import Run
from gradverify.numerics.estimate.climb import EVERY_RUNG, Climb, Elements, Judge, Ladders, settled
from gradverify.numerics.estimate.kinks import NON_FINITE
from gradverify.numerics.estimate.ladder import PIECE, Derivative
from gradverify.numerics.excuses.cancelling import beyond_cancelling
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import QUICK, WIDE_RUNG, Array, Codes, Index, Mask
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import MISMATCH, UNDECIDED, Limit

SPAN = 1 << 17  # elements of a chunk that are judged at a time: what is known of each takes some 500 bytes
NO_COLUMNS = np.zeros(0, np.intp)


@dataclass(frozen=True)
class ChunkResult:
    """`judged` elements, which of them the quick rungs settled, and mismatches of groups, which no lone column has confirmed [E].

    `outs`: the outputs of this part. `zeros`, `masked`, `strays` [n, outs]: passed or left out without a solver; `QuickSamples.strays`.
    """

    outs: slice
    judged: Judged
    quick: Mask
    unconfirmed: Mask
    zeros: Mask
    masked: Mask
    zero_resolution: Array
    suspects: Mask
    strays: Mask

    def add_zeros(self, tally: Tally, a: Array, rows: slice, part: slice) -> None:
        """What needed no solver, of lines `rows` and the outputs of `part`; a [n, M]."""
        if not (self.zeros.any() or self.masked.any()):
            return
        first, last = max(part.start, self.outs.start), min(part.stop, self.outs.stop)
        if first < last:
            here = rows, slice(first - self.outs.start, last - self.outs.start)
            zeros = self.zeros[here]
            tally.add_zeros(a[rows, first:last][zeros], self.zero_resolution[here][zeros], self.masked[here])


class Chunk:
    """Judges the lines of a bundle of n against analytic values a [n, M], those of the columns that the outputs show."""

    def __init__(self, run: Run, bundle: Bundle, a: Array) -> None:
        self.run, self.bundle, self.a = run, bundle, a
        self.linear = bool(len(bundle.tensor)) and run.linear.issuperset(bundle.tensor.tolist())
        self.samples = quick_samples(run.point, bundle, (WIDE_RUNG,), run.quiet) if self.linear else quick_samples(run.point, bundle)
        self.still, self.masked = self.samples.still, self.samples.masked
        if self.masked.any():
            self.masked = self.masked & np.isfinite(a) & bundle.owned
        self.border = self.samples.at_border
        self.some_unmoved = run.survey.some_unmoved

    @cached_property
    def unmoved(self) -> Mask:
        return self.run.survey.unmoved[self.bundle.tensor]

    @cached_property
    def wide(self) -> Mask:
        return self.run.survey.wide[self.bundle.tensor]

    def judge(self, sums: AliasSums, suspects: Mask) -> Iterator[ChunkResult]:
        """Everything about the chunk, some outputs at a time; `suspects` [M]: outputs whose quick rungs are known to alias."""
        m = self.a.shape[1]
        width = max(1, SPAN // max(len(self.a), 1))
        for start in range(0, m, width) or [0]:
            outs = slice(start, min(start + width, m))
            yield self._part(outs, sums, suspects, self.bundle.columns if outs.stop == m else NO_COLUMNS)

    def _part(self, outs: slice, sums: AliasSums, suspects: Mask, finished: Index) -> ChunkResult:
        zeros, masked = self._zeros(outs), self.masked[:, outs]
        cells = chosen(self.bundle, ~(zeros | masked) & self.bundle.owned[:, outs], outs)
        quick = self._quick(cells)
        missed = sums.add(finished, cells, quick.value, quick.bar)
        judged, floors, unit = self._verdicts(cells, quick), self.run.floors(), self.run.point.unit
        done, doubted = settled(quick, judged.verdict), suspects | missed
        if doubted.any():
            done &= ~doubted[cells.out]
        derivative, unconfirmed = quick, np.zeros(len(cells), bool)
        if not done.all():
            derivative, unconfirmed = self._climb(cells, quick, ~done, doubted[cells.out])
        left = np.zeros(len(cells), bool)
        if not self.bundle.grouped and unconfirmed.any():
            derivative, left = self._confirm(cells, derivative, unconfirmed)
        late = self._late(zeros, outs)
        if len(late):
            derivative = joined([derivative, self._quick(late)])
            cells = Cells(self.bundle, np.concatenate([cells.local, late.local]), np.concatenate([cells.out, late.out]))
            done, left = (np.concatenate([each, np.zeros(len(late), bool)]) for each in (done, left))
        if len(late) or self.run.floors() is not floors or self.run.point.unit is not unit:
            judged = self._judged(cells, derivative)
        elif not done.all():
            judged = self._judged_again(judged, cells, derivative, np.flatnonzero(~done))
        if left.any():
            judged = judged.undecided(np.flatnonzero(left & (judged.verdict == MISMATCH)), Limit.BUDGET)
        unconfirmed = judged.verdict == MISMATCH if self.bundle.grouped else np.zeros(len(done), bool)
        resolution = self._zero_resolution(outs) if zeros.any() else np.zeros(zeros.shape)
        return ChunkResult(outs, judged, done, unconfirmed, zeros, masked, resolution, missed, self.samples.strays(outs, self.run.survey.sigma))

    def _zeros(self, outs: slice) -> Mask:
        """Bitwise zeros with an analytic value that is zero or negligible: most of a Jacobian, settled without a solver."""
        still = self.still[:, outs] & self.bundle.owned[:, outs]
        if not still.any():
            return still
        zeros = still & (np.abs(self.a[:, outs]) <= self.run.zero_tolerance(self.bundle.owner[:, outs], outs))
        return zeros & ~(self.unmoved | self.wide)[:, outs] if self.some_unmoved else zeros

    def _late(self, zeros: Mask, outs: slice) -> Cells:
        """What is no zero any more because floors moved meanwhile; taken off `zeros`."""
        late = chosen(self.bundle, zeros & ~self._zeros(outs) if zeros.any() else zeros, outs)
        zeros[late.local, late.out - outs.start] = False
        return late

    def _zero_resolution(self, outs: slice) -> Array:
        f0 = np.nan_to_num(self.samples.f0[outs], posinf=0.0, neginf=0.0)
        rounding = self.run.point.unit[outs] * np.abs(f0) / self.samples.widest(outs)
        return np.asarray(self.run.zero_tolerance(self.bundle.owner[:, outs], outs) + rounding)

    # ---- elements
    def _with_quick(self, ladders: Ladders, cells: Cells) -> Ladders:
        """With the samples that are there."""
        for n, k in enumerate(QUICK):
            ladders.put(k, self.samples.at(n, cells.local, cells.out))
        return ladders

    def _quick(self, cells: Cells) -> Derivative:
        result = secants(self.samples, self.run, cells) if self.linear else self._solved(cells)
        if self.some_unmoved:
            result = replace(result, unclear=result.unclear | cells.of(self.unmoved | self.wide))
        self._learn(cells, result)
        return result

    def _solved(self, cells: Cells) -> Derivative:
        """From the quick rungs [E]."""
        result, hard = told_at_once(self.samples, self.run, cells)
        if not hard.size:
            return result
        rest = cells.take(hard)
        return result.replaced(hard, joined(self._on_lines(rest.take(p)).solve(np.arange(len(p)), QUICK, False) for p in pieces(rest.local)))

    def _on_lines(self, cells: Cells) -> Ladders:
        return self._with_quick(Ladders(self.bundle.lines, self.run.outputs(), Elements(cells.local, cells.out)), cells)

    def _learn(self, cells: Cells, d: Derivative) -> None:
        self.run.reach.add_cells(cells, d.value, d.bar)

    def _verdicts(self, cells: Cells, d: Derivative) -> Judged:
        """By what is known now; what limits the undecided ones is left out."""
        a, bounds = cells.of(self.a), self.run.bounds_of(cells)
        ending = self._ending(cells)
        return Judged(cells.column, cells.out, a, d, bounds, verdicts(a, d, bounds, ending=ending), no_limits(len(cells)), cells.lines, ending)

    def _ending(self, cells: Cells) -> Mask | None:
        return self.border.take(cells.column) if self.border.any() else None

    def _judge(self, cells: Cells) -> Judge:
        def judge(i: Index, d: Derivative) -> Codes:
            own = cells.take(i)
            self._learn(own, d)  # a row that was taken for dead may turn out to be alive
            return self._verdicts(own, d).verdict

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
            d = _with(d, climbed)
            if self.run.floors() is floors:
                break  # nothing was learnt
            rest = ~settled(d, self._verdicts(cells, d).verdict) & ~unconfirmed & ~exhausted
        return d, unconfirmed

    def _groups(self, cells: Cells, i: Index) -> Iterator[Index]:
        """Elements i in pieces that climb together: those on their own scale, then those that only move beyond it."""
        wide = cells.take(i).of(self.wide)
        for group in (i[~wide], i[wide]):
            yield from (group[p] for p in pieces(cells.local[group]) if len(p))

    def _climber(self, i: Index, cells: Cells, quick: Derivative, suspect: Mask) -> tuple[Index, Climb]:
        """A climb of elements i, in the order in which it takes them."""
        i, own, ladders = self._ladders(i, cells)
        judge = self._judge(own)
        if self._far(own):
            nothing = np.zeros(len(i), bool)
            return i, Climb(ladders, ladders.solve(np.arange(len(i)), QUICK, False), judge, nothing, suspect[i])
        return i, Climb(self._with_quick(ladders, own), quick.take(i), judge, own.of(self.unmoved), suspect[i])

    def _ladders(self, i: Index, cells: Cells) -> tuple[Index, Cells, Ladders]:
        """The lines of elements i, and these in the order in which the lines take them: lines that can be shared are."""
        bundle = widened(self.bundle, self.run.point) if cells.take(i).of(self.wide).any() else self.bundle
        lines, home = regrouped(bundle, cells.local[i], cells.out[i])
        order = np.argsort(home, kind="stable")
        i, home = i[order], home[order]
        own = Cells(self.bundle, cells.local[i], cells.out[i])
        return i, own, Ladders(lines, self.run.outputs(), Elements(home, own.out))

    def _far(self, own: Cells) -> bool:
        """Are these measured elsewhere than on the quick rungs that are there?"""
        return self.linear or bool(own.of(self.wide).any())

    def _confirm(self, cells: Cells, d: Derivative, unconfirmed: Mask) -> tuple[Derivative, Mask]:
        """No mismatch stands on quick rungs alone: the worst columns of each pair climb the whole ladder, until one stands.

        And what is left open [E]: where the budget is spent, one column climbs for all pairs.
        """
        left = np.zeros(len(cells), bool)
        for own in self.run.by_pair(cells.column, cells.out, np.flatnonzero(unconfirmed)):
            if self.run.certain and self.run.enough(EVERY_RUNG):
                left[own] = True
                continue
            d, rest = self._confirm_pair(cells, d, own)
            left[rest] = True
        return d, left

    def _confirm_pair(self, cells: Cells, d: Derivative, i: Index) -> tuple[Derivative, Index]:
        misses = np.abs(cells.of(self.a)[i] - d.value[i]) / (d.bar[i] + 1e-300)
        order, left = np.argsort(-np.nan_to_num(misses, nan=np.inf), kind="stable"), np.ones(len(i), bool)
        for some in worst_first(cells.local[i], order, columns_at_once(self.run), None):
            if not left.all() and self.run.enough(EVERY_RUNG):
                return d, i[left]
            left[some], batch = False, i[some]
            for e in self._groups(cells, batch):
                e, own, ladders = self._ladders(e, cells)
                d = d.replaced(e, (ladders if self._far(own) else self._with_quick(ladders, own)).every_rung())
            judged = self._verdicts(cells.take(batch), d.take(batch))
            if (judged.verdict == MISMATCH).any():
                self.run.certain.update(judged.out[beyond_cancelling(self.run, judged)].tolist())
                break
        return d, NO_COLUMNS

    def _judged_again(self, judged: Judged, cells: Cells, d: Derivative, i: Index) -> Judged:
        """With other derivatives `d` of elements i, where nothing that tolerances rest on was learnt meanwhile."""
        new, verdict, limit = self._judged(cells.take(i), d.take(i)), judged.verdict.copy(), judged.limit
        verdict[i] = new.verdict
        if (new.verdict == UNDECIDED).any():
            limit = limit.copy()
            limit[i] = new.limit
        return replace(judged, derivative=d, verdict=verdict, limit=limit, ending=self._ending(cells))

    def _judged(self, cells: Cells, d: Derivative) -> Judged:
        lost = np.flatnonzero(d.outcome == NON_FINITE)  # a backward may well be non-finite all along such a column
        self.border[cells.column[lost[np.isfinite(self.samples.f0.take(cells.out[lost]))]]] = True
        return self._verdicts(cells, d).explained()


def _with(d: Derivative, parts: Sequence[tuple[Index, Derivative]]) -> Derivative:
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
