"""Columns that no output shares, moved together in colour groups, against the analytic values of compressed VJPs (method.md section 5).

An element of a group that is right counts as right. A mismatch must be confirmed by the lone column and the one-hot row; one that
they clear says that the groups are not what they were taken for: the forward's (the tensor is broken) or the backward's (a leak, followed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.entries.chunk import ChunkResult
from gradverify.numerics.entries.compressed import OffPattern
from gradverify.numerics.entries.confirm import Confirmations, measured_alone
from gradverify.numerics.entries.consistency import JacobianSums
from gradverify.numerics.entries.leaks import leaking_output
from gradverify.numerics.entries.strays import GroupStrays
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.judging.bundle import Bundle
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import MOST_COLUMNS, columns_at_once
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import BASE, QUICK, RATIO, Array, Index, Mask, in_range
from gradverify.numerics.seed_vectors import WEIGHTS
from gradverify.numerics.structure import SMALL, Plan
from gradverify.numerics.verdict import Limit, Verdict

LEAST_STEP = WEIGHTS[0] * BASE * RATIO ** -QUICK[0]  # of the scale: what a group's columns are moved by at least


@dataclass(frozen=True)
class ColourGroups:
    """One tensor of a sweep, whose columns are moved in groups. `weights` [M]: those of compressed VJPs; `sums`: what its entries add up to."""

    run: Run
    plan: Plan
    tallies: Mapping[tuple[int, int], Tally]
    weights: Array
    counts: Confirmations
    sums: JacobianSums

    @cached_property
    def _strays(self) -> GroupStrays:
        return GroupStrays(self.run, self.plan, self.tallies, self.weights, self.counts)

    def confirmed(self, result: ChunkResult) -> Judged | None:
        """The elements after the worst mismatches were measured alone; None where the forward's groups are wrong, or a small tensor is better
        compared column by column."""
        judged = result.judged
        if not result.unconfirmed.any():
            return judged
        if self.plan.size <= SMALL and not self.run.over_budget(EVERY_RUNG):
            return None
        for output in range(len(self.run.point.parts)):
            of_output = self._confirmed_in(output, judged, result.unconfirmed)
            if of_output is None:
                return None
            judged = of_output
        return judged

    def consistent(self, bundle: Bundle, result: ChunkResult, judged: Judged) -> bool:
        """Are the groups what they were taken for, by all that these elements show?"""
        self.sums.add_numeric(judged)
        return self._strays.moved(bundle, result.strays, result.outs.start)

    def follow_leak(self, stray: OffPattern) -> bool:
        """Judges gradients off the pattern; False where f does depend on these inputs, or where too many are open."""
        return self._strays.pulled_back(stray)

    # ---- mismatches
    def _confirmed_in(self, output: int, judged: Judged, unconfirmed: Mask) -> Judged | None:
        """The same of one output tensor. None of its mismatches is reported before one was measured alone."""
        part, pair, measured = self.run.point.parts[output], (self.plan.tensor, output), 0
        while measured < MOST_COLUMNS and not (self.counts.budget_ended or self.counts.enough_confirmed(pair)):
            i = self._unconfirmed_mismatches(judged, part, unconfirmed)  # ranked anew: a leak changes what others are off by
            i = i[: columns_at_once(self.run)]
            if not i.size:
                break
            found = self._measure_alone(output, judged, i, unconfirmed)
            if found is None:
                return None
            judged, measured = found, measured + len(i)
        if not self.counts.cleared[pair] and self.counts.confirmed[pair]:
            return judged
        left = np.flatnonzero(unconfirmed & in_range(judged.out, part))
        left = left[judged.verdict[left] == Verdict.MISMATCH]
        why = Limit.COMPANY if self.counts.cleared[pair] else Limit.ALONE
        return judged.undecided(left, Limit.BUDGET if self.counts.budget_ended else why)

    def _unconfirmed_mismatches(self, judged: Judged, part: slice, unconfirmed: Mask) -> Index:
        """The mismatches of an output tensor that are not confirmed yet, the worst of each column, in this order."""
        i = np.flatnonzero(unconfirmed)
        i = i[(judged.verdict[i] == Verdict.MISMATCH) & in_range(judged.out[i], part)]
        i = i[judged.take(i).worst_first()]
        return np.asarray(i[np.sort(np.unique(judged.column[i], return_index=True)[1])])

    def _measure_alone(self, output: int, judged: Judged, i: Index, unconfirmed: Mask) -> Judged | None:
        """With elements i as they were measured alone; None where one is right though its group was not, and no leak of backward explains that."""
        alone = measured_alone(self.run, judged.column[i], judged.out[i])
        before = judged.analytic[i]
        judged, unconfirmed[i] = judged.replaced(i, alone), False
        self.counts.count((self.plan.tensor, output), alone)
        for n in np.flatnonzero(alone.verdict == Verdict.PASS).tolist():
            if abs(before[n] - alone.analytic[n]) <= alone.tolerances.tolerance(alone.analytic, alone.analytic)[n]:
                return None
            judged = self._without_leak(output, judged, int(alone.column[n]), int(alone.out[n]), unconfirmed)
        return judged

    def _without_leak(self, output: int, judged: Judged, column: int, out: int, unconfirmed: Mask) -> Judged:
        """With the analytic values that a group has without the output that leaks into it: a backward that lets one into another's gradient."""
        part, rows = self.run.point.parts[output], self.plan.rows[output]
        group = int(rows.group[out - part.start])
        members = part.start + rows.members(group)
        leaking = leaking_output(self.run, output, members[members != out], self.weights, column)
        if leaking is None:
            return judged
        self._strays.add(output, column, leaking)
        row, weights = self.run.point.row(leaking), self.weights
        row_of_tensor = row[self.plan.first : self.plan.first + self.plan.size]
        row_of_tensor[rows.row_of(group) == leaking - part.start] = 0.0  # what belongs to it is no leak
        i = np.flatnonzero(unconfirmed & np.isin(judged.out, members) & (judged.out != leaking) & (row[judged.column] != 0))
        analytic = judged.analytic.copy()
        analytic[i] -= weights[leaking] * row[judged.column[i]] / weights[judged.out[i]]
        judged = replace(judged, analytic=analytic, verdict=judged.verdict.copy())
        judged.verdict[i] = judged.take(i).verdicts_with()
        return judged


def structural_zeros(run: Run, plan: Plan, tallies: Mapping[tuple[int, int], Tally]) -> None:
    """What no group has: f does not depend on it, and its gradient is 0."""
    missing = {output: plan.size * (part.stop - part.start) - tallies[plan.tensor, output].elements for output, part in enumerate(run.point.parts)}
    if not any(count > 0 for count in missing.values()):
        return
    columns, point = run.point.columns, run.point
    of_tensor = slice(plan.first, plan.first + plan.size)
    floors, rounding = run.floors(), point.unit * np.where(np.isfinite(point.f0), np.abs(point.f0), 0.0)
    for output, part in enumerate(point.parts):
        if missing[output] > 0:
            least_step = LEAST_STEP * columns.scale[of_tensor].min()
            resolution = run.atol + floors[part].max() / columns.size[of_tensor].min() + rounding[part].max() / least_step
            tallies[plan.tensor, output].add_structural(missing[output], float(resolution))
