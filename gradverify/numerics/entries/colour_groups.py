"""Columns that no output shares, moved together in colour groups, against the analytic values of compressed VJPs (method.md section 5).

An element of a group that is right counts as right. Where one is wrong, or a number lies off the pattern, the numbers of its row group are taken
apart to those of one-hot cotangents (`one_hot`). A mismatch must then be confirmed by the lone column and the one-hot row; one that they clear says
that the groups are not what they were taken for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.entries.chunk import SPAN, ChunkResult
from gradverify.numerics.entries.compressed import OffPattern
from gradverify.numerics.entries.confirm import Confirmations, measured_alone
from gradverify.numerics.entries.consistency import JacobianSums
from gradverify.numerics.entries.one_hot import OneHot, off_pattern
from gradverify.numerics.entries.strays import GroupStrays
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.ladder import at_rest
from gradverify.numerics.judging.bundle import Bundle
from gradverify.numerics.judging.judged import Judged, no_limits
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import MOST_COLUMNS, columns_at_once
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import BASE, QUICK, RATIO, Array, Index, Mask, in_range
from gradverify.numerics.seed_vectors import WEIGHTS
from gradverify.numerics.structure import SMALL, Plan
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import Limit, Verdict

LEAST_STEP = WEIGHTS[0] * BASE * RATIO ** -QUICK[0]  # of the scale: what a group's columns are moved by at least


@dataclass(frozen=True)
class ColourGroups:
    """One tensor of a sweep, whose columns are moved in groups. `weights` [M]: those of compressed VJPs; `sums`: what its entries add up to;
    `one_hot`: what is known of row groups, by output tensor and number."""

    run: Run
    plan: Plan
    tallies: Mapping[tuple[int, int], Tally]
    weights: Array
    counts: Confirmations
    sums: JacobianSums
    one_hot: dict[tuple[int, int], OneHot] = field(default_factory=dict)

    @cached_property
    def _strays(self) -> GroupStrays:
        return GroupStrays(self.run, self.plan, self.tallies, self.counts)

    def confirmed(self, result: ChunkResult) -> ChunkResult | None:
        """The elements after the worst mismatches were measured alone; None where the forward's groups are wrong, or a small tensor is better
        compared column by column."""
        if not result.unconfirmed.any():
            return result
        if self._by_columns:
            return None
        result = self._with_one_hot(result)
        judged = self._confirmed(result.judged, result.unconfirmed)
        return None if judged is None else replace(result, judged=judged)

    @property
    def _by_columns(self) -> bool:
        """Is the tensor so small that its columns are better compared one by one?"""
        return self.plan.size <= SMALL and not self.run.over_budget(EVERY_RUNG)

    def _confirmed(self, judged: Judged, unconfirmed: Mask) -> Judged | None:
        for output in range(len(self.run.point.parts)):
            of_output = self._confirmed_in(output, judged, unconfirmed)
            if of_output is None:
                return None
            judged = of_output
        return judged

    def consistent(self, bundle: Bundle, result: ChunkResult, judged: Judged) -> bool:
        """Are the groups what they were taken for, by all that these elements show?"""
        self.sums.add_numeric(judged)
        return self._strays.moved(bundle, result.strays, result.outs.start)

    # ---- one-hot numbers
    def _with_one_hot(self, result: ChunkResult) -> ChunkResult:
        """With the one-hot numbers of the row groups that hold mismatches, and without the elements whose number the budget leaves unknown."""
        judged, keep = result.judged, np.ones(len(result.judged.out), bool)
        analytic = judged.analytic.copy()
        for output, part in enumerate(self.run.point.parts):
            wrong, group = np.flatnonzero(result.unconfirmed & in_range(judged.out, part)), self.plan.rows[output].group
            for g in np.unique(group[judged.out[wrong] - part.start]).tolist():
                found = self._off_pattern(output, g)
                i = np.flatnonzero(in_range(judged.out, part))
                i = i[group[judged.out[i] - part.start] == g]
                if found is None:
                    keep[i[judged.verdict[i] == Verdict.MISMATCH]] = False
                elif len(found.shared):
                    order = np.argsort(found.shared)
                    place = np.minimum(np.searchsorted(found.shared, judged.column[i], sorter=order), len(order) - 1)
                    here = found.shared[order[place]] == judged.column[i]
                    analytic[i[here]] = found.own[order[place[here]]]
                    keep[i[here]] = np.isfinite(analytic[i[here]])
        changed = np.flatnonzero(keep & (analytic != judged.analytic))
        if changed.size:
            judged = replace(judged, analytic=analytic)
            judged = judged.replaced(changed, replace(judged.take(changed), verdict=judged.take(changed).verdicts_with()).with_limits())
        for output, part in enumerate(self.run.point.parts):
            self.tallies[self.plan.tensor, output].leave(int(np.count_nonzero(~keep & in_range(judged.out, part))))
        kept = np.flatnonzero(keep)
        judged = judged.take(kept)
        unconfirmed = (result.unconfirmed | (analytic != result.judged.analytic))[kept] & (judged.verdict == Verdict.MISMATCH)
        return replace(result, judged=judged, quick=result.quick[kept], unconfirmed=unconfirmed)

    def _off_pattern(self, output: int, group: int) -> OneHot | None:
        """What a row group has off the pattern; None where the budget has ended, and something else is wrong."""
        if (output, group) not in self.one_hot:
            if self.counts.budget_ended:
                return None
            self.one_hot[output, group] = off_pattern(self.run, self.plan, output, group, self.weights)
        return self.one_hot[output, group]

    def off_pattern(self, strays: Sequence[OffPattern]) -> Iterator[Judged | None]:
        """Entries off the pattern, some at a time, as elements whose derivative is 0: of row groups that hold mismatches, and of `strays`.

        None where f does depend on one of these inputs, or a small tensor is better compared column by column.
        """
        floors = self.run.floors()
        for stray in strays:
            members = self.run.point.parts[stray.output].start + self.plan.rows[stray.output].members(stray.group)
            if not stray.size <= floors[members].min(initial=np.inf):
                if self._by_columns:
                    yield None
                    return
                self._off_pattern(stray.output, stray.group)
        for found in self.one_hot.values():
            places, counted = zip(found.column.tolist(), found.out.tolist(), strict=True), self.counts.counted_strays
            new = np.flatnonzero([place not in counted for place in places])
            for start in range(0, len(new), SPAN):
                i = new[start : start + SPAN]
                yield self._confirmed_off_pattern(found.column[i], found.out[i], found.value[i])

    def _confirmed_off_pattern(self, column: Index, out: Index, value: Array) -> Judged | None:
        run, c = self.run, self.run.point.columns
        bar = np.where(np.isfinite(run.point.f0), run.noise, np.inf)[out] / (LEAST_STEP * c.scale[column])
        d, tolerances = at_rest(bar), run.tolerances(column, out)
        judged = Judged(column, out, value, d, tolerances, verdicts(value, d, tolerances), no_limits(len(out))).with_limits()
        return self._confirmed(judged, judged.verdict == Verdict.MISMATCH)

    # ---- mismatches
    def _confirmed_in(self, output: int, judged: Judged, unconfirmed: Mask) -> Judged | None:
        """The same of one output tensor. None of its mismatches is reported before one was measured alone."""
        part, pair, measured = self.run.point.parts[output], (self.plan.tensor, output), 0
        while measured < MOST_COLUMNS and not (self.counts.budget_ended or self.counts.enough_confirmed(pair)):
            i = self._unconfirmed_mismatches(judged, part, unconfirmed)
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
        """With elements i as they were measured alone; None where one is right though its group was not, by the same number of backward."""
        alone = measured_alone(self.run, judged.column[i], judged.out[i])
        before = judged.analytic[i]
        judged, unconfirmed[i] = judged.replaced(i, alone), False
        self.counts.count((self.plan.tensor, output), alone)
        for n in np.flatnonzero(alone.verdict == Verdict.PASS).tolist():
            if abs(before[n] - alone.analytic[n]) <= alone.tolerances.tolerance(alone.analytic, alone.analytic)[n]:
                return None
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
