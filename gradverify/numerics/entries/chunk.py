"""Every element of a chunk of lines with its verdict: zeros at once, the others by the quick rungs, and by more where those leave them open.

Elements that the quick rungs leave open climb further rungs until they are settled; no mismatch stands that has not seen every rung. Three steps for
all, then: `quick` derivatives → climbed, those that are not settled → confirmed by every rung, the mismatches of lone columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.entries.consistency import AliasSums
from gradverify.numerics.estimate.climb import EVERY_RUNG, Climb, Elements, Judge, Ladders, settled
from gradverify.numerics.estimate.kinks import NON_FINITE
from gradverify.numerics.estimate.ladder import PIECE, Derivative
from gradverify.numerics.excuses.cancelling import beyond_cancelling
from gradverify.numerics.judging.bundle import Bundle, Cells, cells_where, widened
from gradverify.numerics.judging.judged import Judged, columns_at_once, no_limits, worst_first
from gradverify.numerics.judging.quick_samples import linear_derivatives, plain_derivatives, quick_samples
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import QUICK, WIDE_RUNG, Array, Codes, Index, Mask
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import MISMATCH, Limit


# ---- The elements of a chunk of lines by the quick rungs alone: their derivatives, and verdicts by what is known now
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


# ---- Elements that the quick rungs leave open: each climbs further rungs until it is settled; no mismatch stands that has not seen every rung
NONE_LEFT = np.zeros(0, np.intp)


@dataclass(frozen=True)
class Refined:
    """Elements [E] with their derivatives: which of them the `quick` rungs settled, and which mismatches the budget left unconfirmed.

    `judged`: their verdicts, where these stand already.
    """

    cells: Cells
    derivative: Derivative
    quick: Mask
    unaffordable: Mask
    judged: Judged | None = None

    def and_quick(self, cells: Cells, derivative: Derivative) -> Refined:
        """With more elements of the same bundle, which saw the quick rungs alone."""
        every = Cells(cells.bundle, np.concatenate([self.cells.line, cells.line]), np.concatenate([self.cells.out, cells.out]))
        nothing = np.zeros(len(cells), bool)
        return Refined(every, joined([self.derivative, derivative]), np.concatenate([self.quick, nothing]),
                       np.concatenate([self.unaffordable, nothing]))

    def verdicts(self, look: QuickLook) -> Judged:
        """By all that is known now; no mismatch where the budget left steps out."""
        judged = self.judged or look.judged_at_last(self.cells, self.derivative)
        if not self.unaffordable.any():
            return judged
        return judged.undecided(np.flatnonzero(self.unaffordable & (judged.verdict == MISMATCH)), Limit.BUDGET)


def refined(look: QuickLook, cells: Cells, quick: Derivative, suspect: Mask) -> Refined:
    """Elements [E] with `quick` derivatives, and finer ones where those settle nothing, or where they may have met an alias (`suspect`)."""
    judged, nothing = look.judged(cells, quick), np.zeros(len(cells), bool)
    easy = settled(quick, judged.verdict) & ~suspect
    if easy.all():
        return Refined(cells, quick, easy, nothing, judged)
    refinement = _Refinement(look, cells)
    derivative, mismatch = refinement.climbed(quick, ~easy, suspect)
    unaffordable = nothing
    if mismatch.any() and not look.bundle.grouped:  # those of a group are confirmed by the lone column
        derivative, unaffordable = refinement.confirmed(derivative, mismatch)
    return Refined(cells, derivative, easy, unaffordable)


class _Refinement:
    """Further rungs for elements [E] of a chunk, in the order of their lines."""

    def __init__(self, look: QuickLook, cells: Cells) -> None:
        self.look, self.run, self.cells = look, look.run, cells

    def climbed(self, d: Derivative, hard: Mask, suspect: Mask) -> tuple[Derivative, Mask]:
        """Elements `hard` [E] climbed until each is settled; and the mismatches that have not seen every rung [E].

        Twice, because what is learnt of a row can unsettle its other elements.
        """
        unconfirmed, exhausted = np.zeros((2, len(self.cells)), bool)
        for _ in range(2):
            floors, found = self.run.floors(), list[tuple[Index, Derivative]]()
            for i in self._pieces(np.flatnonzero(hard)):
                climbed = self._climb(i, d, suspect).run()
                found.append((i, climbed.derivative))
                unconfirmed[i], exhausted[i] = climbed.unconfirmed, climbed.exhausted
            if found:
                d = d.replaced(np.concatenate([i for i, _ in found]), joined(new for _, new in found))
            if self.run.floors() is floors:
                break  # nothing was learnt
            hard = ~settled(d, self.look.judged(self.cells, d).verdict) & ~unconfirmed & ~exhausted
        return d, unconfirmed

    def _pieces(self, i: Index) -> Iterator[Index]:
        """Elements i in pieces that climb together: those on the scale of x, then those that only move beyond it."""
        wide = self.cells.take(i).by_line_and_output(self.look.wide)
        for group in (i[~wide], i[wide]):
            yield from (group[p] for p in pieces(self.cells.line[group]) if len(p))

    def _climb(self, i: Index, quick: Derivative, suspect: Mask) -> Climb:
        cells = self.cells.take(i)
        ladders, judge = self._ladders(cells), self.look.judge(cells)
        if self._has_no_quick_rungs(cells):
            return Climb(ladders, ladders.solve(np.arange(len(i)), QUICK, False), judge, np.zeros(len(i), bool), suspect[i])
        return Climb(ladders, quick.take(i), judge, cells.by_line_and_output(self.look.unmoved), suspect[i])

    def _ladders(self, cells: Cells) -> Ladders:
        """The ladders of elements, at steps of at least unit scale where these only move beyond that of x."""
        if not self._has_no_quick_rungs(cells):
            return self.look.ladders(cells)
        bundle = self.look.bundle
        lines = widened(bundle, self.run.point).lines if self._is_wide(cells) else bundle.lines
        return Ladders(lines, self.run.outputs(), Elements(cells.line, cells.out))

    def _has_no_quick_rungs(self, cells: Cells) -> bool:
        """Was f not sampled on the quick rungs of their ladders?"""
        return self.look.linear or self._is_wide(cells)

    def _is_wide(self, cells: Cells) -> bool:
        return bool(cells.by_line_and_output(self.look.wide).any())

    # ---- confirming
    def confirmed(self, d: Derivative, mismatch: Mask) -> tuple[Derivative, Mask]:
        """No mismatch stands on a part of the ladder: the worst columns of each pair climb the whole of it, until one stands.

        And what the budget left [E]: where the budget is spent, one column climbs for all pairs.
        """
        unaffordable = np.zeros(len(self.cells), bool)
        for of_pair in self.run.by_pair(self.cells.column, self.cells.out, np.flatnonzero(mismatch)):
            if self.run.certainly_wrong and self.run.over_budget(EVERY_RUNG):
                unaffordable[of_pair] = True
                continue
            d, left = self._confirmed_pair(d, of_pair)
            unaffordable[left] = True
        return d, unaffordable

    def _confirmed_pair(self, d: Derivative, i: Index) -> tuple[Derivative, Index]:
        """Mismatches i of one pair by every rung, the worst columns first, until one stands; and those that the budget left."""
        misses = np.abs(self.cells.by_line_and_output(self.look.a)[i] - d.value[i]) / (d.bar[i] + 1e-300)
        order, unmeasured = np.argsort(-np.nan_to_num(misses, nan=np.inf), kind="stable"), np.ones(len(i), bool)
        for places in worst_first(self.cells.line[i], order, columns_at_once(self.run), None):
            if not unmeasured.all() and self.run.over_budget(EVERY_RUNG):
                return d, i[unmeasured]
            unmeasured[places], measured = False, i[places]
            for e in self._pieces(measured):
                d = d.replaced(e, self._ladders(self.cells.take(e)).every_rung())
            judged = self.look.judged(self.cells.take(measured), d.take(measured))
            if (judged.verdict == MISMATCH).any():
                self.run.certainly_wrong.update(judged.out[beyond_cancelling(self.run, judged)].tolist())
                break
        return d, NONE_LEFT


# ---- Every element of a chunk of lines with its verdict: zeros at once, the others by the quick rungs, and by more where those leave them open
SPAN = 1 << 17  # elements of a chunk that are judged at a time: what is known of each takes some 500 bytes
NO_COLUMNS = np.zeros(0, np.intp)


@dataclass(frozen=True)
class ChunkResult:
    """`judged` elements, which of them the quick rungs settled, and mismatches of groups, which no lone column has confirmed [E].

    `outs`: the outputs of this part. `zeros`, `masked` [n, outs]: passed or left out without a solver. `strays` [n, outs]: `QuickSamples.strays`.
    `off_secant` [M]: outputs that miss a secant of the survey, so that their quick rungs met an alias.
    """

    outs: slice
    judged: Judged
    quick: Mask
    unconfirmed: Mask
    zeros: Mask
    masked: Mask
    zero_resolution: Array
    off_secant: Mask
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
    """The lines of a bundle of n, and the analytic values a [n, M] of the columns that their outputs show."""

    def __init__(self, run: Run, bundle: Bundle, a: Array) -> None:
        self.run, self.bundle, self.a = run, bundle, a
        self.look = QuickLook(run, bundle, a)
        self.unchanged, self.masked = self.look.samples.unchanged, self.look.samples.masked
        if self.masked.any():
            self.masked = self.masked & np.isfinite(a) & bundle.in_pattern

    def judge(self, sums: AliasSums, aliasing: Mask) -> Iterator[ChunkResult]:
        """Everything about the chunk, some outputs at a time; `aliasing` [M]: outputs whose quick rungs are known to alias."""
        m = self.a.shape[1]
        width = max(1, SPAN // max(len(self.a), 1))
        for start in range(0, m, width) or [0]:
            outs = slice(start, min(start + width, m))
            yield self._judge_outputs(outs, sums, aliasing, self.bundle.columns if outs.stop == m else NO_COLUMNS)

    def _judge_outputs(self, outs: slice, sums: AliasSums, aliasing: Mask, completed: Index) -> ChunkResult:
        """Some outputs of all lines. `completed`: the columns of which these are the last."""
        zeros, masked = self._negligible_zeros(outs), self.masked[:, outs]
        cells = cells_where(self.bundle, ~(zeros | masked) & self.bundle.in_pattern[:, outs], outs)
        quick = self.look.derivatives(cells)
        off_secant = sums.add(completed, cells, quick.value, quick.bar)
        found = refined(self.look, cells, quick, (aliasing | off_secant)[cells.out])
        revived = self._revived(zeros, outs)
        if len(revived):
            found = found.and_quick(revived, self.look.derivatives(revived))
        judged = found.verdicts(self.look)
        resolution = self._zero_resolution(outs) if zeros.any() else np.zeros(zeros.shape)
        unconfirmed = (judged.verdict == MISMATCH) & self.bundle.grouped
        return ChunkResult(outs, judged, found.quick, unconfirmed, zeros, masked, resolution, off_secant,
                           self.look.samples.strays(outs, self.run.survey.sigma))

    # ---- zeros
    def _negligible_zeros(self, outs: slice) -> Mask:
        """Elements [n, outs] of which f is bitwise still and the analytic value negligible: most of a Jacobian, settled without a solver."""
        still = self.unchanged[:, outs] & self.bundle.in_pattern[:, outs]
        if not still.any():
            return still
        zeros = still & (np.abs(self.a[:, outs]) <= self.run.zero_tolerance(self.bundle.column_of[:, outs], outs))
        return zeros & ~(self.look.unmoved | self.look.wide)[:, outs] if self.run.survey.some_unmoved else zeros

    def _revived(self, zeros: Mask, outs: slice) -> Cells:
        """What is no zero any more because floors moved meanwhile; taken off `zeros`."""
        revived = cells_where(self.bundle, zeros & ~self._negligible_zeros(outs) if zeros.any() else zeros, outs)
        zeros[revived.line, revived.out - outs.start] = False
        return revived

    def _zero_resolution(self, outs: slice) -> Array:
        """How large a derivative [n, outs] may be that passes as a zero."""
        f0 = np.nan_to_num(self.look.samples.f0[outs], posinf=0.0, neginf=0.0)
        rounding = self.run.point.unit[outs] * np.abs(f0) / self.look.samples.widest(outs)
        return np.asarray(self.run.zero_tolerance(self.bundle.column_of[:, outs], outs) + rounding)
