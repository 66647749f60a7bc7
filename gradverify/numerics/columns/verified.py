"""Does the compressed Jacobian add up to the whole function's? Random directions and cotangents through everything (method.md 3.4).

Load-bearing: a leak that detection missed is otherwise flagged, measured again in other company, found right and cleared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.climb import at_once
from gradverify.numerics.columns.bundle import Bundle
from gradverify.numerics.columns.compressed import Plan, cotangent
from gradverify.numerics.columns.run import Run
from gradverify.numerics.columns.tally import Judged
from gradverify.numerics.compare import Verdict
from gradverify.numerics.kinks import Smoothness
from gradverify.numerics.point import DirectionLine
from gradverify.numerics.rungs import Array, Index, Mask

PROBES = 2  # directions and cotangents: one may be unlucky
SLACK = 1e-8  # of the sum of magnitudes: what method.md lets a screen miss
SLACK_LOW = 1e-3  # where x or f is float32: rounding of x alone is 1e-4 of a quick step


@dataclass(frozen=True)
class Disagreement:
    """Outputs of which the forward, or columns of which the backward, is not what its compressed Jacobian adds up to."""

    outputs: Index
    columns: Index


class Sums:
    """What the entries of one tensor add up to: over its columns per output, over outputs per column; `directions` [PROBES, N]."""

    def __init__(self, run: Run, plan: Plan, directions: Array, cotangents: Array) -> None:
        self.run, self.plan, self.directions, self.cotangents = run, plan, directions, cotangents
        n, m = plan.size, len(run.point.f0)
        self.forward, self.forward_size, self.bar = np.zeros((PROBES, m)), np.zeros((PROBES, m)), np.zeros((PROBES, m))
        self.back, self.back_size = np.zeros((PROBES, n)), np.zeros((PROBES, n))
        self.usable = np.isfinite(run.point.columns.x[plan.first : plan.first + n])

    def add(self, judged: Judged) -> None:
        """The solved elements of a chunk; what is not solved is 0 in f."""
        off = judged.column - self.plan.first
        wrong = (judged.verdict != Verdict.PASS) | (judged.derivative.outcome != Smoothness.SMOOTH)
        self.usable[off[wrong]] = False
        use = self.usable[off] & np.isfinite(judged.derivative.bar)
        out, value, bar = judged.out, judged.derivative.value, judged.derivative.bar
        if not use.all():
            off, out, value, bar = off[use], out[use], value[use], bar[use]
        m = len(self.run.point.f0)
        for p in range(PROBES):
            v = self.directions[p][off]
            part = value * v
            self.forward[p] += np.bincount(out, part, m)
            self.forward_size[p] += np.bincount(out, np.abs(part), m)
            self.bar[p] += np.bincount(out, bar * np.abs(v), m)

    def add_back(self, bundle: Bundle, a: Array) -> None:
        """The analytic values [n, M] of a chunk."""
        a = np.nan_to_num(a, posinf=0.0, neginf=0.0)
        for n in range(len(a)):
            own = np.flatnonzero(bundle.owned[n] & (a[n] != 0))
            column = bundle.owner[n][own] - self.plan.first
            for p in range(PROBES):
                part = a[n][own] * self.cotangents[p][own]
                self.back[p] += np.bincount(column, part, self.plan.size)
                self.back_size[p] += np.bincount(column, np.abs(part), self.plan.size)

    def check(self, gradients: Array) -> Disagreement:
        """Against the uncompressed function, and `gradients` [PROBES, C] of its cotangents."""
        return Disagreement(np.flatnonzero(self._forward_off()), self._backward_off(gradients))

    def _forward_off(self) -> Mask:
        columns = self.plan.first + np.flatnonzero(self.usable)
        off = np.zeros(len(self.run.point.f0), bool)
        if not len(columns):
            return off
        slack = np.where(self.run.low_precision(), SLACK_LOW, SLACK)
        floor = self.run.floors() * np.sqrt(len(columns))
        for p in range(PROBES):
            line = DirectionLine(self.run.point, columns, self.directions[p][self.usable])
            d = at_once(line, self.run.outputs())
            told = d.smooth & ~d.unclear & np.isfinite(d.bar)
            allowed = slack * self.forward_size[p] + self.bar[p] + d.bar + floor
            off |= told & (np.abs(d.value - self.forward[p]) > allowed)
        return off

    def _backward_off(self, gradients: Array) -> Index:
        own = slice(self.plan.first, self.plan.first + self.plan.size)
        low = bool(self.run.low_precision().any())
        floor = self.run.floors().max(initial=0.0) / self.run.point.columns.size[own]
        off = np.zeros(self.plan.size, bool)
        for p in range(PROBES):
            allowed = (SLACK_LOW if low else SLACK) * self.back_size[p] + floor
            off |= np.abs(np.nan_to_num(gradients[p][own]) - self.back[p]) > allowed
        finite = np.isfinite(gradients[:, own]).all(0)
        return self.plan.first + np.flatnonzero(off & finite & self.usable)


def pulled_back(run: Run, cotangents: Array) -> Array:
    """The gradients [PROBES, C] of dense cotangents [PROBES, M] of all outputs at once, one backward each."""
    point, rows = run.point, []
    for w in cotangents:
        point.backward += 1
        rows.append(point.by_column(point.function.vjp([cotangent(point, n, w[part]) for n, part in enumerate(point.parts)])))
    return np.array(rows)
