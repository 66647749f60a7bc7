"""Columns that no output shares, moved together in colour groups, against the analytic values of compressed VJPs (method.md section 5).

An element of a group that is right counts as right. A mismatch must be confirmed by the lone column and the one-hot row; one that
they clear says that the groups are not what they were taken for: the forward's (the tensor is broken) or the backward's (a leak, followed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gradverify.numerics.entries.chunk import ChunkResult
from gradverify.numerics.entries.compressed import OffPattern, below_rounding
from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.entries.consistency import JacobianSums
from gradverify.numerics.entries.leaks import leaking_output, moving_column
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.judging.bundle import Bundle, GroupLine
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import ENOUGH_CONFIRMED, MOST_COLUMNS, columns_at_once, enough_confirmed
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.probing.off_pattern import change_along, present_at_x
from gradverify.numerics.rungs import BASE, QUICK, RATIO, Array, Index, Mask
from gradverify.numerics.seed_vectors import WEIGHTS
from gradverify.numerics.structure import SMALL, Plan
from gradverify.numerics.survey import STRAY
from gradverify.numerics.verdict import Limit, Verdict

LEAST_STEP = WEIGHTS[0] * BASE * RATIO ** -QUICK[0]  # of the scale: what a group's columns are moved by at least
STRAYS = 12  # numbers of a pair off the pattern that are followed at most


@dataclass
class Confirmations:
    """Of one sweep: how many elements that were measured alone are mismatches (`confirmed`) or right (`cleared`), by (input, output) tensor; and
    the (column, output) that were counted though no group has them."""

    run: Run
    confirmed: Counter[tuple[int, int]] = field(default_factory=Counter)
    cleared: Counter[tuple[int, int]] = field(default_factory=Counter)
    counted_strays: set[tuple[int, int]] = field(default_factory=set)

    @property
    def budget_ended(self) -> bool:
        """The budget does not afford another column, and an element that was measured alone is wrong: that is enough."""
        return self.run.over_budget(EVERY_RUNG) and self.confirmed.total() > 0

    def enough_confirmed(self, pair: tuple[int, int]) -> bool:
        """Do the pair's other mismatches count as wrong unasked?"""
        return enough_confirmed(self.confirmed[pair], self.cleared[pair])


@dataclass(frozen=True)
class Groups:
    """One tensor of a sweep, whose columns are moved in groups. `weights` [M]: those of compressed VJPs; `sums`: what its entries add up to."""

    run: Run
    plan: Plan
    tallies: Mapping[tuple[int, int], Tally]
    weights: Array
    counts: Confirmations
    sums: JacobianSums

    def confirmed(self, result: ChunkResult) -> Judged | None:
        """The elements after the worst mismatches were measured alone; None where the forward's groups are wrong, or a small tensor is better
        walked column by column."""
        judged: Judged | None = result.judged
        if not result.unconfirmed.any():
            return judged
        if self.plan.size <= SMALL and not self.run.over_budget(EVERY_RUNG):
            return None
        for output, part in enumerate(self.run.point.parts):
            asked, pair = 0, (self.plan.tensor, output)
            while judged is not None and asked < MOST_COLUMNS and not (self.counts.budget_ended or self.counts.enough_confirmed(pair)):
                i = self._unconfirmed_mismatches(judged, part, result.unconfirmed)  # ranked anew: a leak changes what others are off by
                i = i[: columns_at_once(self.run)]
                if not i.size:
                    break
                judged = self._measure_alone(output, judged, i, result.unconfirmed)
                asked += len(i)
            if judged is not None and (self.counts.cleared[pair] or not self.counts.confirmed[pair]):
                rest = np.flatnonzero(result.unconfirmed & (judged.out >= part.start) & (judged.out < part.stop))
                rest = rest[judged.verdict[rest] == Verdict.MISMATCH]  # none is reported before it was measured alone
                why = Limit.COMPANY if self.counts.cleared[pair] else Limit.ALONE
                judged = judged.undecided(rest, Limit.BUDGET if self.counts.budget_ended else why)
        return judged

    def consistent(self, bundle: Bundle, result: ChunkResult, judged: Judged) -> bool:
        """Are the groups what they were taken for, by all that these elements show?"""
        self.sums.add_numeric(judged)
        return self._strays_explained(bundle, result)

    # ---- mismatches
    def _unconfirmed_mismatches(self, judged: Judged, part: slice, unconfirmed: Mask) -> Index:
        """The mismatches of an output tensor that are not confirmed yet, the worst of each column, in this order."""
        i = np.flatnonzero(unconfirmed)
        i = i[(judged.verdict[i] == Verdict.MISMATCH) & (judged.out[i] >= part.start) & (judged.out[i] < part.stop)]
        i = i[judged.take(i).worst_first()]
        return np.asarray(i[np.sort(np.unique(judged.column[i], return_index=True)[1])])

    def _measure_alone(self, output: int, judged: Judged, i: Index, unconfirmed: Mask) -> Judged | None:
        """With elements i as they were measured alone; None where one is right though its group was not, and no leak of backward explains that."""
        alone = measured_alone(self.run, judged.column[i], judged.out[i])
        before = judged.analytic[i]
        judged, unconfirmed[i] = judged.replaced(i, alone), False
        cleared = alone.verdict == Verdict.PASS
        self.counts.confirmed[self.plan.tensor, output] += int(np.sum(alone.verdict == Verdict.MISMATCH))
        self.counts.cleared[self.plan.tensor, output] += int(np.sum(cleared))
        for n in np.flatnonzero(cleared).tolist():
            if abs(before[n] - alone.analytic[n]) <= alone.tolerances.tolerance(alone.analytic, alone.analytic)[n]:
                return None
            judged = self._without_leak(output, judged, int(alone.column[n]), int(alone.out[n]), unconfirmed)
        return judged

    # ---- leaks
    def _without_leak(self, output: int, judged: Judged, column: int, out: int, unconfirmed: Mask) -> Judged:
        """With the analytic values that a group has without the output that leaks into it: a backward that lets one into another's gradient."""
        part, rows = self.run.point.parts[output], self.plan.rows[output]
        members = part.start + rows.members(int(rows.group[out - part.start]))
        leaking = leaking_output(self.run, output, members[members != out], self.weights, column)
        if leaking is None:
            return judged
        self._add_stray(output, column, leaking)
        row, weights = self.run.point.row(leaking), self.weights
        leak = row[self.plan.first : self.plan.first + self.plan.size]
        leak[rows.row_of(int(rows.group[out - part.start])) == leaking - part.start] = 0.0  # its own place
        i = np.flatnonzero(unconfirmed & np.isin(judged.out, members) & (judged.out != leaking) & (row[judged.column] != 0))
        analytic = judged.analytic.copy()
        analytic[i] -= weights[leaking] * row[judged.column[i]] / weights[judged.out[i]]
        judged = replace(judged, analytic=analytic, verdict=judged.verdict.copy())
        judged.verdict[i] = judged.take(i).verdicts_with()
        return judged

    def _strays_explained(self, bundle: Bundle, result: ChunkResult) -> bool:
        """Outputs that moved off the pattern: False where one truly depends on a column, rightly, or where they are many."""
        if not result.strays.any():
            return True
        line, out = np.nonzero(result.strays)
        line, out = self._lasting_strays(bundle, line, out + result.outs.start)
        for n, j in zip(line[: STRAYS + 1].tolist(), out[: STRAYS + 1].tolist(), strict=True):
            if self.counts.budget_ended:
                return True
            group_line = bundle.lines[n]
            column = moving_column(self.run, group_line, j) if isinstance(group_line, GroupLine) else None
            if column is None:
                continue
            if not self._add_stray(self.run.point.output_tensor(j), column, j):
                return False
        return len(line) <= STRAYS or any(self.counts.confirmed[self.plan.tensor, output] for output in range(len(self.run.point.parts)))

    def _lasting_strays(self, bundle: Bundle, line: Index, out: Index) -> tuple[Index, Index]:
        """Those of the outputs that moved along these lines which do so near x: at most four calls a line."""
        kept, point, sigma = np.ones(len(line), bool), self.run.point, self.run.survey.sigma
        still, noise = STRAY * sigma, self.run.noise
        for n in np.unique(line).tolist():
            i = np.flatnonzero(line == n)
            kept[i] = present_at_x(change_along(bundle.lines[n], point.f0), out[i], QUICK[0], still, noise)
        return line[kept], out[kept]

    def _add_stray(self, output: int, column: int, out: int) -> bool:
        """Adds an element that no group has, as it is when measured alone, and once, in however many ways it is met.

        False where f does depend on it and backward is right: then the groups are not what they were taken for.
        """
        found = measured_alone(self.run, np.array([column]), np.array([out]))
        right = found.verdict[0] == Verdict.PASS and not found.is_zero[0]
        if (column, out) not in self.counts.counted_strays:
            self.counts.counted_strays.add((column, out))
            found = excused(self.run, found)
            self.counts.confirmed[self.plan.tensor, output] += int(np.sum(found.verdict == Verdict.MISMATCH))
            self.tallies[self.plan.tensor, output].add(found.pair_elements(self.run.point.parts[output].start, found.column - self.plan.first))
        return not right

    def follow_leak(self, stray: OffPattern) -> bool:
        """Numbers off the pattern, judged where they come from; False where f does depend on them, or where too many are open."""
        pair = (stray.tensor, stray.output)
        part, members = self.run.point.parts[stray.output], np.zeros(len(self.run.point.f0), bool)
        members[part.start + self.plan.rows[stray.output].members(stray.group)] = True
        open_ = np.flatnonzero(~below_rounding(self.run, stray, members, self.run.floors(), self.plan.first))
        size = self.run.point.columns.size[self.plan.first + stray.coordinates]
        open_ = open_[np.argsort(-np.nan_to_num(np.abs(stray.values) * size, nan=np.inf)[open_], kind="stable")]
        for n in open_[:STRAYS].tolist():
            column = self.plan.first + int(stray.coordinates[n])
            row = leaking_output(self.run, stray.output, np.flatnonzero(members), self.weights, column)
            if row is None:
                continue
            if not self._add_stray(stray.output, column, row):
                return False
            if self.counts.confirmed[pair] >= ENOUGH_CONFIRMED or self.counts.budget_ended:
                return True
        return len(open_) <= STRAYS or self.counts.confirmed[pair] > 0


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
