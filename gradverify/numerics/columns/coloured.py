"""Columns that no output shares, moved together in colour groups, against the analytic values of compressed VJPs (method.md section 5).

What a group says is believed where it says "right". A mismatch must be confirmed by the lone column and the one-hot row; one that
they clear says that the groups are not what they were taken for: the forward's (the tensor is broken) or the backward's (a leak, followed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gradverify.numerics.arrange import SMALL, Plan
from gradverify.numerics.columns.chunk import ChunkResult
from gradverify.numerics.columns.compressed import OffPattern, below_rounding
from gradverify.numerics.columns.confirm import replaced, resolve
from gradverify.numerics.columns.leaks import mover, source
from gradverify.numerics.columns.sums import Sums
from gradverify.numerics.elements.alone import MOST_COLUMNS, STOOD, believed, columns_at_once
from gradverify.numerics.elements.bundle import Bundle, GroupLine
from gradverify.numerics.elements.judged import Judged
from gradverify.numerics.elements.run import Run
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.probing.offpattern import change_along, present_at_x
from gradverify.numerics.reduction import WEIGHTS
from gradverify.numerics.rungs import BASE, QUICK, RATIO, Array, Index, Mask
from gradverify.numerics.survey import STRAY
from gradverify.numerics.verdict import Limit, Verdict

STRAYS = 12  # numbers of a pair that belong to nobody and are followed at most


@dataclass
class Confirmations:
    """Of one sweep: how many elements that were measured alone `stood` as mismatches or were `cleared`, by (input, output); and which
    (column, output) were counted though no group has them."""

    run: Run
    stood: Counter[tuple[int, int]] = field(default_factory=Counter)
    cleared: Counter[tuple[int, int]] = field(default_factory=Counter)
    counted: set[tuple[int, int]] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        """The budget does not afford another column, and an element that was measured alone is wrong: that is enough."""
        return self.run.enough(EVERY_RUNG) and self.stood.total() > 0

    def believed(self, pair: tuple[int, int]) -> bool:
        """Are the pair's other mismatches believed unasked?"""
        return believed(self.stood[pair], self.cleared[pair])


@dataclass(frozen=True)
class Groups:
    """One tensor of a sweep, whose columns are moved in groups. `weights` [M]: those of compressed VJPs; `sums`: what its entries add up to."""

    run: Run
    plan: Plan
    tallies: Mapping[tuple[int, int], Tally]
    weights: Array
    seen: Confirmations
    sums: Sums

    def confirmed(self, result: ChunkResult) -> Judged | None:
        """The elements after the worst mismatches were measured alone; None where the forward's groups are wrong, or a small tensor is better
        walked column by column."""
        judged: Judged | None = result.judged
        if not result.unconfirmed.any():
            return judged
        if self.plan.size <= SMALL and not self.run.enough(EVERY_RUNG):
            return None
        for output, part in enumerate(self.run.point.parts):
            asked, pair = 0, (self.plan.tensor, output)
            while judged is not None and asked < MOST_COLUMNS and not (self.seen.ended or self.seen.believed(pair)):
                i = self._open(judged, part, result.unconfirmed)[: columns_at_once(self.run)]  # ranked anew: a leak changes what others are off by
                if not i.size:
                    break
                judged = self._alone(output, judged, i, result.unconfirmed)
                asked += len(i)
            if judged is not None and (self.seen.cleared[pair] or not self.seen.stood[pair]):
                rest = np.flatnonzero(result.unconfirmed & (judged.out >= part.start) & (judged.out < part.stop))
                rest = rest[judged.verdict[rest] == Verdict.MISMATCH]  # none is said before it was measured alone
                judged = judged.undecided(rest, Limit.BUDGET if self.seen.ended else Limit.COMPANY if self.seen.cleared[pair] else Limit.ALONE)
        return judged

    def consistent(self, bundle: Bundle, result: ChunkResult, judged: Judged) -> bool:
        """Are the groups what they were taken for, by all that these elements show?"""
        self.sums.add(judged)
        return self._moved(bundle, result)

    # ---- mismatches
    def _open(self, judged: Judged, part: slice, unconfirmed: Mask) -> Index:
        """The worst mismatches of an output that nobody has confirmed, of different columns."""
        i = np.flatnonzero(unconfirmed)
        i = i[(judged.verdict[i] == Verdict.MISMATCH) & (judged.out[i] >= part.start) & (judged.out[i] < part.stop)]
        i = i[judged.take(i).worst_first()]
        return np.asarray(i[np.sort(np.unique(judged.column[i], return_index=True)[1])])

    def _alone(self, output: int, judged: Judged, i: Index, unconfirmed: Mask) -> Judged | None:
        alone = resolve(self.run, judged.column[i], judged.out[i])
        before = judged.a[i]
        judged, unconfirmed[i] = replaced(judged, i, alone), False
        cleared = alone.verdict == Verdict.PASS
        self.seen.stood[self.plan.tensor, output] += int(np.sum(alone.verdict == Verdict.MISMATCH))
        self.seen.cleared[self.plan.tensor, output] += int(np.sum(cleared))
        for n in np.flatnonzero(cleared).tolist():
            if abs(before[n] - alone.a[n]) <= alone.bounds.take(np.array([n])).tolerance(alone.a[n : n + 1], alone.a[n : n + 1])[0]:
                return None
            judged = self._uncover(output, judged, int(alone.column[n]), int(alone.out[n]), unconfirmed)
        return judged

    # ---- leaks
    def _uncover(self, output: int, judged: Judged, column: int, out: int, open_: Mask) -> Judged:
        """A backward that lets one output of a group into another's gradient: which one, and what is still open without it."""
        part, rows = self.run.point.parts[output], self.plan.rows[output]
        members = part.start + rows.members(int(rows.group[out - part.start]))
        leaking = source(self.run, output, members[members != out], self.weights, column)
        if leaking is None:
            return judged
        self._count(output, resolve(self.run, np.array([column]), np.array([leaking])))
        row, weights = self.run.point.row(leaking), self.weights
        own = row[self.plan.first : self.plan.first + self.plan.size]
        own[rows.owner(int(rows.group[out - part.start])) == leaking - part.start] = 0.0  # its own place
        i = np.flatnonzero(open_ & np.isin(judged.out, members) & (judged.out != leaking) & (row[judged.column] != 0))
        a = judged.a.copy()
        a[i] -= weights[leaking] * row[judged.column[i]] / weights[judged.out[i]]
        judged = replace(judged, a=a, verdict=judged.verdict.copy())
        again = judged.take(i)
        judged.verdict[i] = again.under()
        return judged

    def _moved(self, bundle: Bundle, result: ChunkResult) -> bool:
        """Outputs that moved though nobody owns them: False where one truly depends on a column, rightly, or where they are many."""
        if not result.strays.any():
            return True
        local, out = np.nonzero(result.strays)
        local, out = self._lasting(bundle, local, out + result.outs.start)
        for n, j in zip(local[: STRAYS + 1].tolist(), out[: STRAYS + 1].tolist(), strict=True):
            if self.seen.ended:
                return True
            line = bundle.lines[n]
            column = mover(self.run, line, j) if isinstance(line, GroupLine) else None
            if column is None:
                continue
            found = resolve(self.run, np.array([column]), np.array([j]))
            if found.verdict[0] == Verdict.PASS and not found.zero[0]:
                return False
            self._count(self.run.point.output_tensor(j), found)
        return len(local) <= STRAYS or any(self.seen.stood[self.plan.tensor, output] for output in range(len(self.run.point.parts)))

    def _lasting(self, bundle: Bundle, local: Index, out: Index) -> tuple[Index, Index]:
        """Those of the outputs that moved along these lines which do so near x: at most four calls a line."""
        kept, point, sigma = np.ones(len(local), bool), self.run.point, self.run.survey.sigma
        still, noise = STRAY * sigma, self.run.noise
        for n in np.unique(local).tolist():
            i = np.flatnonzero(local == n)
            kept[i] = present_at_x(change_along(bundle.lines[n], point.f0), out[i], QUICK[0], still, noise)
        return local[kept], out[kept]

    def _count(self, output: int, found: Judged) -> None:
        """An element that no group has, and that may be met in several ways: it is added once, as it was measured alone."""
        place = int(found.column[0]), int(found.out[0])
        if place in self.seen.counted:
            return
        self.seen.counted.add(place)
        found = excused(self.run, found)
        self.seen.stood[self.plan.tensor, output] += int(np.sum(found.verdict == Verdict.MISMATCH))
        self.tallies[self.plan.tensor, output].add(found.compared(self.run.point.parts[output].start, found.column - self.plan.first))

    def follow(self, stray: OffPattern) -> bool:
        """Numbers that belong to nobody, judged where they come from; False where f does depend on them, or where too many are open."""
        pair = (stray.tensor, stray.output)
        part, members = self.run.point.parts[stray.output], np.zeros(len(self.run.point.f0), bool)
        members[part.start + self.plan.rows[stray.output].members(stray.group)] = True
        open_ = np.flatnonzero(~below_rounding(self.run, stray, members, self.run.floors(), self.plan.first))
        size = self.run.point.columns.size[self.plan.first + stray.coordinates]
        open_ = open_[np.argsort(-np.nan_to_num(np.abs(stray.values) * size, nan=np.inf)[open_], kind="stable")]
        for n in open_[:STRAYS].tolist():
            column = self.plan.first + int(stray.coordinates[n])
            row = source(self.run, stray.output, np.flatnonzero(members), self.weights, column)
            if row is None:
                continue
            found = resolve(self.run, np.array([column]), np.array([row]))
            if found.verdict[0] == Verdict.PASS and not found.zero[0]:
                return False
            self._count(stray.output, found)
            if self.seen.stood[pair] >= STOOD or self.seen.ended:
                return True
        return len(open_) <= STRAYS or self.seen.stood[pair] > 0


def structural_zeros(run: Run, plan: Plan, tallies: Mapping[tuple[int, int], Tally]) -> None:
    """What no group has: f does not depend on it, and its gradient is 0."""
    missing = {output: plan.size * (part.stop - part.start) - tallies[plan.tensor, output].elements for output, part in enumerate(run.point.parts)}
    if not any(count > 0 for count in missing.values()):
        return
    c, point = run.point.columns, run.point
    own = slice(plan.first, plan.first + plan.size)
    floors, rounding = run.floors(), point.unit * np.where(np.isfinite(point.f0), np.abs(point.f0), 0.0)
    for output, part in enumerate(point.parts):
        if missing[output] > 0:
            resolution = run.atol + floors[part].max() / c.size[own].min() + rounding[part].max() / (LEAST_STEP * c.scale[own].min())
            tallies[plan.tensor, output].add_structural(missing[output], float(resolution))


LEAST_STEP = WEIGHTS[0] * BASE * RATIO ** -QUICK[0]  # of the scale: what a group's columns were moved by at least
