"""Does the compressed Jacobian add up to the whole function's? Random directions and cotangents through everything (method.md 3.4).

Load-bearing: a leak that detection missed is otherwise flagged, measured again in other company, found right and cleared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.climb import at_once
from gradverify.numerics.columns.bundle import Bundle
from gradverify.numerics.columns.cells import added
from gradverify.numerics.columns.compressed import Plan
from gradverify.numerics.columns.leaks import moved_near
from gradverify.numerics.columns.run import Run
from gradverify.numerics.columns.survey import Look
from gradverify.numerics.columns.tally import Judged
from gradverify.numerics.compare import PASS
from gradverify.numerics.kinks import SMOOTH
from gradverify.numerics.lines import rung
from gradverify.numerics.plain import once
from gradverify.numerics.point_lines import DirectionLine
from gradverify.numerics.reduction import cotangent, signed
from gradverify.numerics.rungs import QUICK, Array, Index, Mask, Z, repeated

PROBES = 1  # directions and cotangents: signed weights that stay away from 0, so that no leak hides from them by chance
SLACK = 1e-8  # of the sum of magnitudes: what method.md lets a screen miss
SLACK_LOW = 1e-3  # where x or f is float32: rounding of x alone is 1e-4 of a quick step


@dataclass(frozen=True)
class Disagreement:
    """Outputs of which the forward, or columns of which the backward, is not what its compressed Jacobian adds up to."""

    outputs: Index
    columns: Index


class Sums:
    """What the entries of one tensor add up to along one direction [N], per output, and for one `cotangent` [M], per column."""

    def __init__(self, run: Run, plan: Plan, cotangent: Array) -> None:
        self.run, self.plan, self.cotangent = run, plan, cotangent
        look = run.survey.looks[plan.tensor]
        self.look = look if look and len(look.columns) == plan.size else None
        n, m, own = plan.size, len(run.point.f0), slice(plan.first, plan.first + plan.size)
        self.direction = self.look.direction if self.look else signed(n, run.generator) * run.point.columns.scale[own]
        self.forward, self.forward_size, self.bar = np.zeros((3, m))
        self.back, self.back_size = np.zeros((2, n))
        self.usable = np.isfinite(run.point.columns.x[own])

    def add(self, judged: Judged) -> None:
        """The solved elements of a chunk; what is not solved is 0 in f."""
        off, bar = judged.column - self.plan.first, judged.derivative.bar
        if judged.verdict.any() or judged.derivative.rough:  # PASS is 0
            wrong = (judged.verdict != PASS) | (judged.derivative.outcome != SMOOTH)
            self.usable[off[wrong]] = False
        use = np.isfinite(bar) if self.usable.all() else self.usable[off] & np.isfinite(bar)
        out, value, lines = judged.out, judged.derivative.value, judged.lines
        if not use.all():
            off, out, value, bar, lines = off[use], out[use], value[use], bar[use], 0
        m, v = len(self.run.point.f0), self.direction.take(off)
        part = value * v
        self.forward += added(out, part, m, lines)
        self.forward_size += added(out, np.abs(part), m, lines)
        self.bar += added(out, bar * np.abs(v), m, lines)

    def add_back(self, bundle: Bundle, a: Array) -> None:
        """The analytic values [n, M] of a chunk; each column is in one of its lines."""
        own = slice(None) if bundle.owned.all() else bundle.owned
        column, part = bundle.owner[own].ravel() - self.plan.first, (a * self.cotangent)[own].ravel()
        if not np.isfinite(part).all():
            part = (np.nan_to_num(a, posinf=0.0, neginf=0.0) * self.cotangent)[own].ravel()
        self.back += np.bincount(column, part, self.plan.size)
        self.back_size += np.bincount(column, np.abs(part), self.plan.size)

    def check(self, gradient: Array) -> Disagreement:
        """Against the uncompressed function, and the `gradient` [C] of its cotangent."""
        return Disagreement(np.flatnonzero(self._forward_off()), self._backward_off(gradient))

    def _forward_off(self) -> Mask:
        columns, direction = self.run.point.columns.of(self.plan.tensor), self.direction
        if not self.usable.all():
            columns, direction = columns[self.usable], direction[self.usable]
        if not len(columns):
            return np.zeros(len(self.run.point.f0), bool)
        low = self.run.low_values()
        slack = np.where(low, SLACK_LOW, SLACK) if low.any() else SLACK
        floor = self.run.floors() * np.sqrt(len(columns))
        allowed = slack * self.forward_size + self.bar + floor
        value, bar, told = self._measured(columns, direction, allowed)
        off = np.asarray(told & (np.abs(value - self.forward) > allowed + bar))
        return off if told.all() or self.usable.all() else off | self._moved_by_others(~told, columns, direction)

    def _moved_by_others(self, untold: Mask, columns: Index, direction: Array) -> Mask:
        """Outputs [M], of those that are rough along the direction, that own none of its columns: a tie that hid from the structure moves them.

        Two calls, near x; none where there is no such output.
        """
        own, groups = ~untold, self.plan.grouping.groups
        usable = np.append(self.usable, False)  # the last one answers for NOBODY
        for group in range(groups.count if untold.any() else 0):
            own |= usable[groups.owner(group)]
        if own.all():
            return ~own
        return np.asarray(~own & moved_near(self.run, columns, direction))

    def _measured(self, columns: Index, direction: Array, allowed: Array) -> tuple[Array, Array, Mask]:
        """The derivative along the direction, its bar, and where it is known [M]; of a linear function from the survey's one rung.

        Nearly always two rungs show that no output is off by more than is `allowed`; then they are all that is looked at.
        """
        look = self.look if self.usable.all() else None
        if look and self.plan.tensor in self.run.linear:
            return self._secant(look)
        line = DirectionLine(self.run.point, columns, direction)
        known = {QUICK[0]: look.taken} if look else {}
        known |= {k: taken for k in QUICK[:2] if k not in known and (taken := rung(line, k))}
        if self.usable.all() and len(known) == 2:      # else a tie may hide here
            value, bar = once(known[QUICK[0]], known[QUICK[1]], self.run.survey.sigma, self.run.point.unit)
            if (np.abs(value - self.forward) + bar <= allowed).all():
                return value, bar, repeated(np.True_, len(value))
        d = at_once(line, self.run.outputs(), known)
        return d.value, d.bar, d.smooth & ~d.unclear & np.isfinite(d.bar)

    def _secant(self, look: Look) -> tuple[Array, Array, Mask]:
        up, down, width = look.taken.up, look.taken.down, look.taken.step_up + look.taken.step_down
        noise = np.maximum(self.run.survey.sigma, self.run.point.unit * np.maximum(np.abs(up), np.abs(down)))
        value = (up - down) / width
        return value, Z * np.sqrt(2.0) * noise / width, np.isfinite(value)

    def _backward_off(self, gradient: Array) -> Index:
        own = slice(self.plan.first, self.plan.first + self.plan.size)
        low = bool(self.run.low_precision().any())
        floor = self.run.floors().max(initial=0.0) / self.run.point.columns.size[own]
        allowed = (SLACK_LOW if low else SLACK) * self.back_size + floor
        off = np.abs(gradient[own] - self.back) > allowed
        return self.plan.first + np.flatnonzero(off & np.isfinite(gradient[own]) & self.usable)


def pulled_back(run: Run, w: Array) -> Array:
    """The gradient [C] of a dense cotangent [M] of all outputs at once, one backward."""
    point = run.point
    point.backward += 1
    return point.by_column(point.function.vjp([cotangent(point, n, w[part]) for n, part in enumerate(point.parts)]))
