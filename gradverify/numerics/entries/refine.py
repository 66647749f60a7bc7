"""Elements that the quick rungs leave open: each climbs further rungs until it is settled; no mismatch stands that has not seen every rung.

Three steps for all, then: `quick` derivatives → climbed, those that are not settled → confirmed by every rung, the mismatches of lone columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.entries.quick_look import QuickLook, pieces
from gradverify.numerics.estimate.climb import EVERY_RUNG, Climb, Elements, Ladders, settled
from gradverify.numerics.estimate.kinks import KINK, SMOOTH
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.estimate.noise import FLAT, POINTS
from gradverify.numerics.excuses.cancelling import MEASURED, beyond_cancelling
from gradverify.numerics.judging.bundle import widened
from gradverify.numerics.judging.cells import Cells
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.worst_first import columns_at_once, worst_first
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import QUICK, RUNGS, Index, Mask
from gradverify.numerics.verdict import MISMATCH, PASS, Limit

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
                climb = self._climb(i, d, suspect)
                climbed = climb.run()
                found.append((i, self._under_rounding(climb.ladders, self.cells.take(i), climbed.derivative, climbed.exhausted)))
                unconfirmed[i], exhausted[i] = climbed.unconfirmed, climbed.exhausted
            if found:
                d = d.replaced(np.concatenate([i for i, _ in found]), joined(new for _, new in found))
            if self.run.floors() is floors:
                break  # nothing was learnt
            hard = ~settled(d, self.look.judged(self.cells, d).verdict) & ~unconfirmed & ~exhausted
        return d, unconfirmed

    def _under_rounding(self, ladders: Ladders, cells: Cells, d: Derivative, exhausted: Mask) -> Derivative:
        """Elements, those of them that saw every rung and look rough read once more under the rounding of larger numbers inside f.

        One ulp of such a number is a jump, a step or an endless slope to a noise that knows f's own ulp only, and f
        rests between two ulps, which is no derivative of it. None becomes a mismatch by that: steps and jumps may be
        meant. No calls but those that measure the rounding: 9, and where every operation's own explains nothing, 45 and
        more.
        """
        own = self.run.point.unit * np.abs(self.run.point.f0)
        for calls, far in ((POINTS, False), (MEASURED, True)):
            rough = exhausted & ((d.outcome != SMOOTH) & (d.outcome != KINK) | np.isfinite(d.second)) & ~d.at_border
            rough &= self.look.judged(cells, d).verdict != PASS
            if not rough.any() or self.run.over_budget(calls):
                break
            noise = self.run.far_rounding if far else self.run.rounding
            i = np.flatnonzero(rough & (noise > FLAT * own)[cells.out])
            if i.size:
                again = ladders.under(noise).solve(i, range(RUNGS), True).without_second()
                codes = self.look.judged(cells.take(i), again).verdict
                known = np.flatnonzero(again.smooth & np.isfinite(again.bar) & (codes != MISMATCH))
                d = d.replaced(i[known], again.take(known))
        return d

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
                cells = self.cells.take(e)
                ladders = self._ladders(cells)
                d = d.replaced(e, self._under_rounding(ladders, cells, ladders.every_rung(), np.ones(len(e), bool)))
            judged = self.look.judged(self.cells.take(measured), d.take(measured))
            if (judged.verdict == MISMATCH).any():
                self.run.certainly_wrong.update(judged.out[beyond_cancelling(self.run, judged)].tolist())
                break
        return d, NONE_LEFT
