"""Tensors with structure: their columns in colour groups, their analytic values from compressed VJPs (method.md section 5).

What a group says is believed where it says "right". A mismatch must be confirmed by the lone column and the one-hot row; one that
they clear says that the groups are not what they were taken for: the forward's (`Walked.broken`) or the backward's (a leak, followed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.columns.bundle import Bundle, GroupLine
from gradverify.numerics.columns.chunk import ChunkResult
from gradverify.numerics.columns.compressed import Compressed, Plan, Stray, below_rounding
from gradverify.numerics.columns.confirm import resolve, with_opinions
from gradverify.numerics.columns.judged import Judged
from gradverify.numerics.columns.leaks import mover, source
from gradverify.numerics.columns.quick import STRAY
from gradverify.numerics.columns.run import Run
from gradverify.numerics.columns.standing import ASKED, STOOD, at_once, believed
from gradverify.numerics.columns.sums import Sums, pulled_back
from gradverify.numerics.columns.tally import Tally
from gradverify.numerics.columns.walk import Walk
from gradverify.numerics.compare import verdicts
from gradverify.numerics.estimate.climb import ALONE
from gradverify.numerics.probing.offpattern import along, lasting
from gradverify.numerics.reduction import WEIGHTS, signed_short
from gradverify.numerics.rungs import BASE, QUICK, RATIO, Array, Index, Mask
from gradverify.numerics.verdict import Limit, Verdict

CHUNK_BYTES = 600  # an element whose derivative is solved: samples of the quick rungs, their steps, owners, the derivative and its copies
STRAYS = 12  # numbers of a pair that belong to nobody and are followed at most


@dataclass
class _Confirmed:
    stood: int = 0
    cleared: int = 0


@dataclass(frozen=True)
class Groups:
    """The lines of some colour groups of one tensor, as `LineSource`."""

    walk: Coloured
    plan: Plan
    bundle: Bundle
    sums: Sums

    def confirmed(self, result: ChunkResult) -> Judged | None:
        return self.walk.confirm(self.plan, result)

    def hold(self, result: ChunkResult, judged: Judged) -> bool:
        self.sums.add(judged)
        return self.walk.moved(self.plan, self.bundle, result)

    def entry(self, column: int, output: int) -> float:
        return float(self.walk.run.point.row(output)[column])


class Coloured:
    """Walks the planned tensors once."""

    def __init__(self, run: Run, plans: Sequence[Plan], walk: Walk, limit: int, weights: Array) -> None:
        self.run, self.plans, self.tallies, self.limit = run, plans, walk.tallies, limit
        self._walk, self.compressed = walk, Compressed(run, plans, weights)
        self._cotangent = signed_short(len(run.point.f0), run.generator)
        self._confirmed = {pair: _Confirmed() for pair in walk.tallies}
        self._counted = set[tuple[int, int]]()

    def walk(self) -> set[int]:
        """All tensors, and then whether it all adds up: those whose forward has other groups than it was said to have."""
        broken, m = set[int](), max(len(self.run.point.f0), 1)
        sums = {plan.tensor: Sums(self.run, plan, self._cotangent) for plan in self.plans}
        whole = sum(plan.grouping.groups.count for plan in self.plans) * m * 8 <= self.limit // 2
        values, strays = self.compressed.fill({p.tensor: range(p.grouping.groups.count if whole else 0) for p in self.plans})
        for plan in self.plans:
            step = plan.grouping.groups.count if whole else max(1, self.limit // 2 // (8 * m))
            for first in range(0, plan.grouping.groups.count, step):
                span = range(first, min(first + step, plan.grouping.groups.count))
                a = values[plan.tensor] if whole else self.compressed.fill({plan.tensor: span})[0][plan.tensor]
                if plan.tensor not in broken and not self._tile(plan, first, a, sums[plan.tensor]):
                    broken.add(plan.tensor)
        for stray in strays:
            if stray.tensor not in broken and not self._ended and not self._follow(stray):
                broken.add(stray.tensor)
        return broken or self._not_adding_up(sums)

    def _not_adding_up(self, sums: Mapping[int, Sums]) -> set[int]:
        """The tensors of which a sum is off, though no element that was measured alone is wrong."""
        gradient = pulled_back(self.run, self._cotangent)
        off = {tensor for tensor, own in sums.items() if own.check(gradient).any}
        return off - {tensor for (tensor, _), seen in self._confirmed.items() if seen.stood or self._ended}

    def _tile(self, plan: Plan, first: int, a: Array, sums: Sums) -> bool:
        count = max(1, self.limit // (CHUNK_BYTES * max(a.shape[1], 1)))
        for start in range(0, len(a), count):
            part = a[start : start + count]
            bundle = plan.grouping.bundle(self.run.point, first + start, len(part))
            if not self._walk.judge(Groups(self, plan, bundle, sums), bundle, part, len(part) == plan.grouping.groups.count):
                return False
            sums.add_back(bundle, part)
        return True

    # ---- mismatches
    def confirm(self, plan: Plan, result: ChunkResult) -> Judged | None:
        """The elements after the worst mismatches were measured alone; None where the forward's groups are wrong."""
        judged: Judged | None = result.judged
        if not result.unconfirmed.any():
            return judged
        for output, part in enumerate(self.run.point.parts):
            asked = 0
            state = self._confirmed[plan.tensor, output]
            while judged is not None and asked < ASKED and not believed(state.stood, state.cleared) and not self._ended:
                i = self._open(judged, part, result.unconfirmed)[: at_once(self.run)]
                if not i.size:
                    break
                judged = self._alone(plan, output, judged, i, state, result.unconfirmed)
                asked += len(i)
            if judged is not None and (state.cleared or not state.stood):
                rest = np.flatnonzero(result.unconfirmed & (judged.out >= part.start) & (judged.out < part.stop))
                rest = rest[judged.verdict[rest] == Verdict.MISMATCH]  # none is said before it was measured alone
                judged = judged.undecided(rest, Limit.BUDGET if self._ended else Limit.COMPANY if state.cleared else Limit.ALONE)
        return judged

    @property
    def _ended(self) -> bool:
        """The budget does not afford another column, and an element that was measured alone is wrong: that is enough."""
        return self.run.enough(ALONE) and any(state.stood for state in self._confirmed.values())

    def _open(self, judged: Judged, part: slice, unconfirmed: Mask) -> Index:
        """The worst mismatches of an output that nobody has confirmed, of different columns."""
        i = np.flatnonzero(unconfirmed)
        i = i[(judged.verdict[i] == Verdict.MISMATCH) & (judged.out[i] >= part.start) & (judged.out[i] < part.stop)]
        i = i[judged.take(i).worst_first()]
        return np.asarray(i[np.sort(np.unique(judged.column[i], return_index=True)[1])])

    def _alone(self, plan: Plan, output: int, judged: Judged, i: Index, state: _Confirmed, unconfirmed: Mask) -> Judged | None:
        alone = resolve(self.run, judged.column[i], judged.out[i])
        before = judged.a[i]
        judged, unconfirmed[i] = _replaced(judged, i, alone), False
        cleared = alone.verdict == Verdict.PASS
        state.stood += int(np.sum(alone.verdict == Verdict.MISMATCH))
        state.cleared += int(np.sum(cleared))
        for n in np.flatnonzero(cleared).tolist():
            if abs(before[n] - alone.a[n]) <= alone.bounds.take(np.array([n])).tolerance(alone.a[n : n + 1], alone.a[n : n + 1])[0]:
                return None
            judged = self._uncover(plan, output, judged, int(alone.column[n]), int(alone.out[n]), unconfirmed)
        return judged

    # ---- leaks
    def _uncover(self, plan: Plan, output: int, judged: Judged, column: int, out: int, open_: Mask) -> Judged:
        """A backward that lets one output of a group into another's gradient: which one, and what is still open without it."""
        part, rows = self.run.point.parts[output], plan.rows[output]
        members = part.start + rows.members(int(rows.group[out - part.start]))
        leaking = source(self.run, output, members[members != out], self.compressed.weights, column)
        if leaking is None:
            return judged
        self._count(plan, output, resolve(self.run, np.array([column]), np.array([leaking])))
        row, weights = self.run.point.row(leaking), self.compressed.weights
        row[plan.first : plan.first + plan.size][rows.owner(int(rows.group[out - part.start])) == leaking - part.start] = 0.0  # its own place
        i = np.flatnonzero(open_ & np.isin(judged.out, members) & (judged.out != leaking) & (row[judged.column] != 0))
        a = judged.a.copy()
        a[i] -= weights[leaking] * row[judged.column[i]] / weights[judged.out[i]]
        judged = replace(judged, a=a, verdict=judged.verdict.copy())
        again = judged.take(i)
        judged.verdict[i] = verdicts(again.a, again.derivative, again.bounds, again.derivative.at_border)
        return judged

    def moved(self, plan: Plan, bundle: Bundle, result: ChunkResult) -> bool:
        """Outputs that moved though nobody owns them: False where one truly depends on a column, rightly, or where they are many."""
        if not result.strays.any():
            return True
        local, out = np.nonzero(result.strays)
        local, out = self._lasting(bundle, local, out + result.outs.start)
        for n, j in zip(local[: STRAYS + 1].tolist(), out[: STRAYS + 1].tolist(), strict=True):
            if self._ended:
                return True
            line = bundle.lines[n]
            column = mover(self.run, line, j) if isinstance(line, GroupLine) else None
            if column is None:
                continue
            found = resolve(self.run, np.array([column]), np.array([j]))
            if found.verdict[0] == Verdict.PASS and not found.zero[0]:
                return False
            self._count(plan, next(o for o, part in enumerate(self.run.point.parts) if part.start <= j < part.stop), found)
        return len(local) <= STRAYS or any(state.stood for (tensor, _), state in self._confirmed.items() if tensor == plan.tensor)

    def _lasting(self, bundle: Bundle, local: Index, out: Index) -> tuple[Index, Index]:
        """Those of the outputs that moved along these lines which do so near x: at most four calls a line."""
        kept, point, sigma = np.ones(len(local), bool), self.run.point, self.run.survey.sigma
        still, noise = STRAY * sigma, self.run.noise
        for n in np.unique(local).tolist():
            i = np.flatnonzero(local == n)
            kept[i] = lasting(along(bundle.lines[n], point.f0), out[i], QUICK[0], still, noise)
        return local[kept], out[kept]

    def _count(self, plan: Plan, output: int, found: Judged) -> None:
        """An element that no group has, and that may be met in several ways: it is added once, as it was measured alone."""
        place = int(found.column[0]), int(found.out[0])
        if place in self._counted:
            return
        self._counted.add(place)
        found = with_opinions(self.run, found)
        self._confirmed[plan.tensor, output].stood += int(np.sum(found.verdict == Verdict.MISMATCH))
        self.tallies[plan.tensor, output].add(found.compared(self.run.point.parts[output].start, found.column - plan.first))

    def _follow(self, stray: Stray) -> bool:
        """Numbers that belong to nobody, judged where they come from; False where f does depend on them, or where too many are open."""
        plan = next(p for p in self.plans if p.tensor == stray.tensor)
        part, members = self.run.point.parts[stray.output], np.zeros(len(self.run.point.f0), bool)
        members[part.start + plan.rows[stray.output].members(stray.group)] = True
        open_ = np.flatnonzero(~below_rounding(self.run, stray, members, self.run.floors(), plan.first))
        size = self.run.point.columns.size[plan.first + stray.coordinates]
        open_ = open_[np.argsort(-np.nan_to_num(np.abs(stray.values) * size, nan=np.inf)[open_], kind="stable")]
        state = self._confirmed[stray.tensor, stray.output]
        for n in open_[:STRAYS].tolist():
            column = plan.first + int(stray.coordinates[n])
            row = source(self.run, stray.output, np.flatnonzero(members), self.compressed.weights, column)
            if row is None:
                continue
            found = resolve(self.run, np.array([column]), np.array([row]))
            if found.verdict[0] == Verdict.PASS and not found.zero[0]:
                return False
            self._count(plan, stray.output, found)
            if state.stood >= STOOD or self._ended:
                return True
        return len(open_) <= STRAYS or state.stood > 0


def _replaced(judged: Judged, i: Index, alone: Judged) -> Judged:
    a, rtol, floor = (x.copy() for x in (judged.a, judged.bounds.rtol, judged.bounds.floor))
    verdict, limit = judged.verdict.copy(), judged.limit.copy()
    a[i], verdict[i], limit[i], rtol[i], floor[i] = alone.a, alone.verdict, alone.limit, alone.bounds.rtol, alone.bounds.floor
    bounds = replace(judged.bounds, rtol=rtol, floor=floor)
    return replace(judged, a=a, verdict=verdict, limit=limit, bounds=bounds, derivative=judged.derivative.replaced(i, alone.derivative))


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
