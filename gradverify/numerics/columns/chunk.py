"""The columns of one chunk: quick rungs for all, then whatever each element still needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.climb import Climb, Elements, Judge, Ladders, settled
from gradverify.numerics.columns.run import AliasSums, Run
from gradverify.numerics.columns.tally import Judged
from gradverify.numerics.compare import Bounds, Limit, Verdict, limits, verdicts
from gradverify.numerics.kinks import Smoothness
from gradverify.numerics.ladder import Derivative, concatenated
from gradverify.numerics.lines import Line, rung
from gradverify.numerics.point import Point, element_line
from gradverify.numerics.rungs import QUICK, Array, Codes, Index, Mask, step

PIECE = 1 << 14  # elements that climb together: their samples stay below 12 MiB
CONFIRM_COLUMNS = 3  # mismatching columns of a pair that climb every rung, the worst first, until one stands


@dataclass(frozen=True)
class QuickSamples:
    """f on the quick rungs of n columns from `first` on: up, down [rungs, n, M], realised steps [rungs, n] (nominal where x is stuck)."""

    first: int
    lines: list[Line]
    up: Array
    down: Array
    step_up: Array
    step_down: Array
    f0: Array

    def at(self, n: int, local: Index, out: Index) -> Array:
        """Samples [4, E] of the n-th rung for elements."""
        return np.stack([self.up[n, local, out], self.down[n, local, out], self.step_up[n, local], self.step_down[n, local]])

    @property
    def still(self) -> Mask:
        """Elements [n, M] whose output is bitwise f(x) at every rung that has a value, two or more."""
        bad = ~(np.isfinite(self.up) & np.isfinite(self.down))
        same = (self.up == self.f0) & (self.down == self.f0)
        return np.asarray((same | bad).all(0) & (np.sum(~bad, 0) >= 2))

    @property
    def masked(self) -> Mask:
        """Elements [n, M] whose output is one and the same infinity everywhere."""
        return np.asarray(np.isinf(self.f0) & (self.up == self.f0).all(0) & (self.down == self.f0).all(0))

    @property
    def at_border(self) -> Mask:
        """Columns [n] along which some output is not finite on both sides; one and the same infinity everywhere is taken as finite."""
        lost = ~(np.isfinite(self.up) & np.isfinite(self.down)) & ~self.masked
        one_side = np.isfinite(self.up) != np.isfinite(self.down)
        return np.asarray((lost | one_side).any((0, 2)))


def quick_samples(point: Point, first: int, count: int) -> QuickSamples:
    """Six forward calls a column."""
    lines: list[Line] = [element_line(point, c) for c in range(first, first + count)]
    up, down = np.full((2, len(QUICK), count, len(point.f0)), np.nan)
    step_up, step_down = np.empty((2, len(QUICK), count))
    for i, line in enumerate(lines):
        for n, k in enumerate(QUICK):
            taken = rung(line, k)
            if taken is None:
                step_up[n, i] = step_down[n, i] = step(line.scale, k)
            else:
                up[n, i], down[n, i], step_up[n, i], step_down[n, i] = taken
    return QuickSamples(first, lines, up, down, step_up, step_down, point.f0)


@dataclass(frozen=True)
class ChunkResult:
    """`judged` elements, which of them the quick rungs settled [E]; `zeros`, `masked` [n, M]: passed or left out without a solver."""

    judged: Judged
    quick: Mask
    zeros: Mask
    masked: Mask
    zero_resolution: Array
    suspects: Mask


class Chunk:
    """Judges the columns `first` … of analytic values a [n, M]."""

    def __init__(self, run: Run, first: int, a: Array) -> None:
        self.run, self.a, self.columns = run, a, np.arange(first, first + len(a))
        self.samples = quick_samples(run.point, first, len(a))
        self.still, self.masked = self.samples.still, self.samples.masked & np.isfinite(a)
        self.border = self.samples.at_border
        survey, tensor = run.survey, run.point.columns.tensor[self.columns]
        self.asleep, self.wide = survey.asleep[tensor], survey.wide[tensor]

    def judge(self, sums: AliasSums, suspects: Mask) -> ChunkResult:
        """Everything about the chunk; `suspects` [M]: outputs whose quick rungs are known to alias."""
        zeros = self._zeros()
        local, out = np.nonzero(~(zeros | self.masked))
        quick = self._quick(local, out)
        missed = sums.add(self.samples.first, len(self.a), self.columns[local], out, quick.value, quick.bar)
        done = settled(quick, self._verdicts(local, out, quick)) & ~(suspects | missed)[out]
        derivative, unconfirmed = self._climb(local, out, quick, ~done, (suspects | missed)[out])
        derivative = self._confirm(local, out, derivative, unconfirmed)
        late_local, late_out = np.nonzero(zeros & ~self._zeros())  # floors moved meanwhile
        derivative = concatenated([derivative, self._quick(late_local, late_out)])
        local, out = np.concatenate([local, late_local]), np.concatenate([out, late_out])
        done = np.concatenate([done, np.zeros(len(late_out), bool)])
        zeros[late_local, late_out] = False
        return ChunkResult(self._judged(local, out, derivative), done, zeros, self.masked, self._zero_resolution(), missed)

    def _zeros(self) -> Mask:
        """Bitwise zeros with an analytic value of zero or dust: most of a Jacobian, settled without a solver."""
        within = np.abs(self.a) <= self.run.zero_tolerance(self.columns)
        return np.asarray(self.still & within & ~self.asleep & ~self.wide)

    def _zero_resolution(self) -> Array:
        widest = np.maximum(self.samples.step_up[0], self.samples.step_down[0])[:, None]
        rounding = self.run.point.unit * np.abs(np.nan_to_num(self.samples.f0, posinf=0.0, neginf=0.0)) / widest
        return np.asarray(self.run.zero_tolerance(self.columns) + rounding)

    # ---- elements
    def _ladders(self, local: Index, out: Index) -> Ladders:
        ladders = Ladders(self.samples.lines, self.run.outputs(), Elements(local, out))
        for n, k in enumerate(QUICK):
            ladders.put(k, self.samples.at(n, local, out))
        return ladders

    def _quick(self, local: Index, out: Index) -> Derivative:
        parts = [self._ladders(local[p], out[p]).solve(np.arange(len(p)), QUICK, False) for p in pieces(local)]
        result = concatenated(parts)
        result.unclear[:] |= (self.asleep | self.wide)[local, out]
        self._learn(local, out, result)
        return result

    def _learn(self, local: Index, out: Index, d: Derivative) -> None:
        self.run.reach.add(self.columns[local], out, d.value, d.bar)

    def _bounds(self, local: Index, out: Index) -> Bounds:
        return self.run.bounds(self.columns[local], out)

    def _verdicts(self, local: Index, out: Index, d: Derivative) -> Codes:
        return verdicts(self.a[local, out], d, self._bounds(local, out), self.border[local])

    def _judge(self, local: Index, out: Index) -> Judge:
        def judge(i: Index, d: Derivative) -> Codes:
            self._learn(local[i], out[i], d)  # a row that was taken for dead may turn out to be alive
            return self._verdicts(local[i], out[i], d)

        return judge

    # ---- climbing
    def _climb(self, local: Index, out: Index, d: Derivative, rest: Mask, suspect: Mask) -> tuple[Derivative, Mask]:
        """Elements `rest` [E] until each is settled; and the mismatches that have not seen every rung [E].

        Twice, because what is learnt of a row can unsettle its other elements.
        """
        unconfirmed, exhausted = np.zeros((2, len(local)), bool)
        for _ in range(2):
            for i in self._groups(local, out, np.flatnonzero(rest)):
                climbed = self._climber(local[i], out[i], d.take(i), suspect[i]).run()
                d, unconfirmed[i], exhausted[i] = d.replaced(i, climbed.derivative), climbed.unconfirmed, climbed.exhausted
            rest = ~settled(d, self._verdicts(local, out, d)) & ~unconfirmed & ~exhausted
        return d, unconfirmed

    def _groups(self, local: Index, out: Index, i: Index) -> Iterator[Index]:
        """Elements i in pieces that climb together: those on their own scale, then those that only move beyond it."""
        wide = self.wide[local[i], out[i]]
        for group in (i[~wide], i[wide]):
            yield from (group[p] for p in pieces(local[group]) if len(p))

    def _climber(self, local: Index, out: Index, quick: Derivative, suspect: Mask) -> Climb:
        if not self.wide[local, out].any():
            return Climb(self._ladders(local, out), quick, self._judge(local, out), self.asleep[local, out], suspect)
        lines: list[Line] = [element_line(self.run.point, int(c), wide=True) for c in self.columns]
        ladders = Ladders(lines, self.run.outputs(), Elements(local, out))
        quick = ladders.solve(np.arange(len(local)), QUICK, False)
        return Climb(ladders, quick, self._judge(local, out), np.zeros(len(local), bool), suspect)

    def _confirm(self, local: Index, out: Index, d: Derivative, unconfirmed: Mask) -> Derivative:
        """No mismatch stands on quick rungs alone: the worst columns of each pair climb the whole ladder, until one stands."""
        point = self.run.point
        tensor = point.columns.tensor[self.columns[local]]
        output = np.searchsorted([p.stop for p in point.parts], out, side="right")
        for pair in sorted(set(zip(tensor[unconfirmed].tolist(), output[unconfirmed].tolist(), strict=True))):
            d = self._confirm_pair(local, out, d, np.flatnonzero(unconfirmed & (tensor == pair[0]) & (output == pair[1])))
        return d

    def _confirm_pair(self, local: Index, out: Index, d: Derivative, i: Index) -> Derivative:
        misses = np.abs(self.a[local[i], out[i]] - d.value[i]) / (d.bar[i] + 1e-300)
        order = np.argsort(-np.nan_to_num(misses, nan=np.inf), kind="stable")
        worst_first = list(dict.fromkeys(local[i[order]].tolist()))
        for n in range(0, len(worst_first), CONFIRM_COLUMNS):
            batch = i[np.isin(local[i], worst_first[n : n + CONFIRM_COLUMNS])]
            for e in self._groups(local, out, batch):
                climb = self._climber(local[e], out[e], d.take(e), np.zeros(len(e), bool))
                climb.every_rung(np.arange(len(e)))
                d = d.replaced(e, climb.derivative)
            if (self._verdicts(local[batch], out[batch], d.take(batch)) == Verdict.MISMATCH).any():
                break
        return d

    def _judged(self, local: Index, out: Index, d: Derivative) -> Judged:
        infinite = np.unique(local[(d.outcome == Smoothness.NON_FINITE) & np.isfinite(self.samples.f0[out])])
        self.border[infinite] = True  # a backward may well be non-finite all along such a column
        a, bounds, verdict = self.a[local, out], self._bounds(local, out), self._verdicts(local, out, d)
        limit = np.full(len(out), Limit.NONE, object)
        open_ = np.flatnonzero(verdict == Verdict.UNDECIDED)
        limit[open_] = limits(a[open_], d.take(open_))
        return Judged(self.columns[local], out, a, d, bounds, verdict, limit)


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
