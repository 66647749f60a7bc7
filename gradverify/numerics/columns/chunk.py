"""The lines of one chunk: quick rungs for all, then whatever each element still needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.climb import Climb, Elements, Judge, Ladders, settled
from gradverify.numerics.columns.bundle import Bundle, regrouped, widened
from gradverify.numerics.columns.quick import PIECE, WIDE, quick_samples, secants, told_at_once
from gradverify.numerics.columns.run import AliasSums, Run
from gradverify.numerics.columns.tally import Judged, Tally
from gradverify.numerics.compare import Bounds, Limit, Verdict, limits, verdicts
from gradverify.numerics.kinks import Smoothness
from gradverify.numerics.ladder import Derivative, concatenated
from gradverify.numerics.rungs import QUICK, Array, Codes, Index, Mask

SPAN = 1 << 17  # elements of a chunk that are judged at a time: what is known of each takes some 500 bytes
NO_COLUMNS = np.zeros(0, np.intp)
CONFIRM_COLUMNS = 3  # mismatching columns of a pair that climb every rung, the worst first, until one stands


@dataclass(frozen=True)
class ChunkResult:
    """`judged` elements, which of them the quick rungs settled, and mismatches that no lone column has confirmed [E].

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
        self.samples = quick_samples(run.point, bundle, WIDE if self.linear else QUICK)
        self.still, self.masked = self.samples.still, self.samples.masked & np.isfinite(a) & bundle.owned
        self.border = self.samples.at_border
        self.asleep, self.wide = run.survey.asleep[bundle.tensor], run.survey.wide[bundle.tensor]

    def judge(self, sums: AliasSums, suspects: Mask) -> Iterator[ChunkResult]:
        """Everything about the chunk, some outputs at a time; `suspects` [M]: outputs whose quick rungs are known to alias."""
        m = self.a.shape[1]
        width = max(1, SPAN // max(len(self.a), 1))
        for start in range(0, m, width) or [0]:
            outs = slice(start, min(start + width, m))
            yield self._part(outs, sums, suspects, self.bundle.columns if outs.stop == m else NO_COLUMNS)

    def _part(self, outs: slice, sums: AliasSums, suspects: Mask, finished: Index) -> ChunkResult:
        zeros, masked = self._zeros(outs), self.masked[:, outs]
        local, out = np.nonzero(~(zeros | masked) & self.bundle.owned[:, outs])
        out += outs.start
        quick = self._quick(local, out)
        missed = sums.add(finished, self.bundle.owner[local, out], out, quick.value, quick.bar)
        done = settled(quick, self._verdicts(local, out, quick)) & ~(suspects | missed)[out]
        derivative, unconfirmed = quick, np.zeros(len(out), bool)
        if not done.all():
            derivative, unconfirmed = self._climb(local, out, quick, ~done, (suspects | missed)[out])
        if not self.bundle.grouped:
            derivative, unconfirmed = self._confirm(local, out, derivative, unconfirmed), np.zeros(len(out), bool)
        late_local, late_out = np.nonzero(zeros & ~self._zeros(outs))  # floors moved meanwhile
        zeros[late_local, late_out] = False
        late_out += outs.start
        if late_out.size:
            derivative = concatenated([derivative, self._quick(late_local, late_out)])
            local, out = np.concatenate([local, late_local]), np.concatenate([out, late_out])
        late = np.zeros(len(late_out), bool)
        judged = self._judged(local, out, derivative)
        resolution = self._zero_resolution(outs) if zeros.any() else np.zeros(zeros.shape)
        return ChunkResult(outs, judged, np.concatenate([done, late]), np.concatenate([unconfirmed, late]), zeros, masked, resolution, missed,
                           self.samples.strays(outs, self.run.survey.sigma))

    def _zeros(self, outs: slice) -> Mask:
        """Bitwise zeros with an analytic value of zero or dust: most of a Jacobian, settled without a solver."""
        still = self.still[:, outs] & self.bundle.owned[:, outs]
        if not still.any():
            return still
        within = np.abs(self.a[:, outs]) <= self.run.zero_tolerance(self.bundle.owner[:, outs], outs)
        return np.asarray(still & within & ~(self.asleep | self.wide)[:, outs])

    def _zero_resolution(self, outs: slice) -> Array:
        f0 = np.nan_to_num(self.samples.f0[outs], posinf=0.0, neginf=0.0)
        rounding = self.run.point.unit[outs] * np.abs(f0) / self.samples.widest(outs)
        return np.asarray(self.run.zero_tolerance(self.bundle.owner[:, outs], outs) + rounding)

    # ---- elements
    def _ladders(self, local: Index, out: Index) -> Ladders:
        """On the lines of the bundle; elements ascend by line."""
        return self._with_quick(Ladders(self.bundle.lines, self.run.outputs(), Elements(local, out)), local, out)

    def _with_quick(self, ladders: Ladders, local: Index, out: Index) -> Ladders:
        for n, k in enumerate(QUICK):
            ladders.put(k, self.samples.at(n, local, out))
        return ladders

    def _quick(self, local: Index, out: Index) -> Derivative:
        result = secants(self.samples, self.run, local, out) if self.linear else self._solved(local, out)
        if self.run.survey.drowsy:
            result = replace(result, unclear=result.unclear | (self.asleep | self.wide)[local, out])
        self._learn(local, out, result)
        return result

    def _solved(self, local: Index, out: Index) -> Derivative:
        """From the quick rungs [E]."""
        result, hard = told_at_once(self.samples, self.run, local, out)
        if not hard.size:
            return result
        i, j = local[hard], out[hard]
        return result.replaced(hard, concatenated(self._ladders(i[p], j[p]).solve(np.arange(len(p)), QUICK, False) for p in pieces(i)))

    def _learn(self, local: Index, out: Index, d: Derivative) -> None:
        self.run.reach.add(self.bundle.owner[local, out], out, d.value, d.bar)

    def _bounds(self, local: Index, out: Index) -> Bounds:
        return self.run.bounds(self.bundle.owner[local, out], out)

    def _verdicts(self, local: Index, out: Index, d: Derivative) -> Codes:
        return verdicts(self.a[local, out], d, self._bounds(local, out), self.border[self.bundle.owner[local, out]])

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
                i, climber = self._climber(i, local, out, d, suspect)
                climbed = climber.run()
                d, unconfirmed[i], exhausted[i] = d.replaced(i, climbed.derivative), climbed.unconfirmed, climbed.exhausted
            rest = ~settled(d, self._verdicts(local, out, d)) & ~unconfirmed & ~exhausted
        return d, unconfirmed

    def _groups(self, local: Index, out: Index, i: Index) -> Iterator[Index]:
        """Elements i in pieces that climb together: those on their own scale, then those that only move beyond it."""
        wide = self.wide[local[i], out[i]]
        for group in (i[~wide], i[wide]):
            yield from (group[p] for p in pieces(local[group]) if len(p))

    def _climber(self, i: Index, local: Index, out: Index, quick: Derivative, suspect: Mask) -> tuple[Index, Climb]:
        """A climb of elements i, in the order in which it takes them: lines that can be shared are."""
        wide = bool(self.wide[local[i], out[i]].any())
        bundle = widened(self.bundle, self.run.point) if wide else self.bundle
        lines, home = regrouped(bundle, local[i], out[i])
        order = np.argsort(home, kind="stable")
        i, home = i[order], home[order]
        ladders = Ladders(lines, self.run.outputs(), Elements(home, out[i]))
        judge = self._judge(local[i], out[i])
        if wide or self.linear:
            nothing = np.zeros(len(i), bool)
            return i, Climb(ladders, ladders.solve(np.arange(len(i)), QUICK, False), judge, nothing, suspect[i])
        ladders = self._with_quick(ladders, local[i], out[i])
        return i, Climb(ladders, quick.take(i), judge, self.asleep[local[i], out[i]], suspect[i])

    def _confirm(self, local: Index, out: Index, d: Derivative, unconfirmed: Mask) -> Derivative:
        """No mismatch stands on quick rungs alone: the worst columns of each pair climb the whole ladder, until one stands."""
        point = self.run.point
        tensor = self.bundle.tensor[local]
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
                e, climb = self._climber(e, local, out, d, np.zeros(len(local), bool))
                climb.every_rung(np.arange(len(e)))
                d = d.replaced(e, climb.derivative)
            if (self._verdicts(local[batch], out[batch], d.take(batch)) == Verdict.MISMATCH).any():
                break
        return d

    def _judged(self, local: Index, out: Index, d: Derivative) -> Judged:
        column = self.bundle.owner[local, out]
        # a backward may well be non-finite all along such a column
        self.border[column[(d.outcome == Smoothness.NON_FINITE) & np.isfinite(self.samples.f0[out])]] = True
        a, bounds, verdict = self.a[local, out], self._bounds(local, out), self._verdicts(local, out, d)
        limit = np.full(len(out), Limit.NONE, object)
        open_ = np.flatnonzero(verdict == Verdict.UNDECIDED)
        limit[open_] = limits(a[open_], d.take(open_))
        return Judged(column, out, a, d, bounds, verdict, limit)


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
