"""Consistency of a measured Jacobian: the derivative along one direction of the whole function, and
one VJP, against sums of its elements; and the column that moves an output off the sparsity
pattern, found by halving.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.climb import derivative, from_quick_rungs
from gradverify.numerics.estimate.kinks import SMOOTH
from gradverify.numerics.estimate.samples import sample_rung
from gradverify.numerics.estimate.smooth import extrapolate_once, secant
from gradverify.numerics.function.point import DirectionLine
from gradverify.numerics.halving import halved
from gradverify.numerics.judging.bundle import Bundle, GroupLine, summed_by_output
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.prepare import Plan
from gradverify.numerics.probing.off_pattern import NEARER
from gradverify.numerics.probing.seed_matrices import SCREEN, SCREEN_LOW
from gradverify.numerics.rungs import QUICK, Array, Index, Mask, repeated, step
from gradverify.numerics.seed_vectors import signed_weights
from gradverify.numerics.survey import STRAY
from gradverify.numerics.verdict import PASS

# directions and cotangents: signed weights that stay away from 0, so that no leak hides from them
# by chance
VERIFIED_ALONG = 1


def moving_column(run: Run, line: GroupLine, out: int) -> int | None:
    """The column of a group that moves an output which none of them owns: two forward calls a
    halving. None where none does alone."""
    h = step(line.scale, QUICK[0])

    def moves(columns: Index) -> bool:
        part = replace(line, columns=columns)
        off = max(abs(float(part.at(t)[0][out] - run.point.f0[out])) for t in (h, -h))
        return off > STRAY * float(run.survey.sigma[out])

    column = halved(line.columns, moves)
    return column if moves(np.array([column])) else None


def moved_near_x(run: Run, columns: Index, direction: Array) -> Mask:
    """The outputs [M] that move beyond their noise with all of these columns [k] along a direction
    [k], near x: two calls."""
    samples = sample_rung(DirectionLine(run.point, columns, direction), QUICK[0] + NEARER)
    if samples is None:
        return np.zeros(len(run.point.f0), bool)
    off = np.fmax(np.abs(samples.up - run.point.f0), np.abs(samples.down - run.point.f0))
    return np.asarray(off > STRAY * run.survey.sigma)


class JacobianSums:
    """What the entries of one tensor add up to along one direction [N], per output, and for one
    `cotangent` [M], per column."""

    def __init__(self, run: Run, plan: Plan, cotangent: Array) -> None:
        self.run, self.plan, self.cotangent = run, plan, cotangent
        sample = run.survey.direction_samples[plan.tensor]
        self.sample = sample if sample and sample.moves[0].all() else None
        n, m, columns = plan.size, len(run.point.f0), slice(plan.first, plan.first + plan.size)
        source, scale = (
            run.point.seed.generator("sums along", plan.tensor),
            run.point.columns.scale[columns],
        )
        self.direction = self.sample.moves[0] if self.sample else signed_weights(n, source) * scale
        self.numeric, self.bar, self.numeric_size = np.zeros((3, m))
        self.analytic, self.analytic_size = np.zeros((2, n))
        self.usable = np.isfinite(run.point.columns.x[columns])

    def add_numeric(self, judged: Judged) -> None:
        """The solved elements of a chunk; what is not solved is 0 in f."""
        place, bar = judged.column - self.plan.first, judged.derivative.bar
        if judged.verdict.any() or judged.derivative.rough:  # PASS is 0
            wrong = (judged.verdict != PASS) | (judged.derivative.outcome != SMOOTH)
            self.usable[place[wrong]] = False
        usable = np.isfinite(bar) if self.usable.all() else self.usable[place] & np.isfinite(bar)
        out, value, lines = judged.out, judged.derivative.value, judged.lines
        if not usable.all():
            place, out, value, bar, lines = (
                place[usable],
                out[usable],
                value[usable],
                bar[usable],
                0,
            )
        m, move = len(self.run.point.f0), self.direction.take(place)
        terms = value * move
        self.numeric += summed_by_output(out, terms, m, lines)
        self.bar += summed_by_output(out, bar * np.abs(move), m, lines)
        self.numeric_size += summed_by_output(out, np.abs(terms), m, lines)

    def add_analytic(self, bundle: Bundle, a: Array) -> None:
        """The analytic values [n, M] of a chunk; each column is in one of its lines."""
        in_pattern = slice(None) if bundle.in_pattern.all() else bundle.in_pattern
        column, part = (
            bundle.column_of[in_pattern].ravel() - self.plan.first,
            (a * self.cotangent)[in_pattern].ravel(),
        )
        if not np.isfinite(part).all():
            part = (np.nan_to_num(a, posinf=0.0, neginf=0.0) * self.cotangent)[in_pattern].ravel()
        self.analytic += np.bincount(column, part, self.plan.size)
        self.analytic_size += np.bincount(column, np.abs(part), self.plan.size)

    def disagree(self, gradient: Array) -> bool:
        """Are they not what the uncompressed function gives along the direction, or the `gradient`
        [C] of its cotangent?"""
        return bool(self._numeric_off().any()) or self._analytic_off(gradient)

    def _numeric_off(self) -> Mask:
        columns, direction = self.run.point.columns.of(self.plan.tensor), self.direction
        if not self.usable.all():
            columns, direction = columns[self.usable], direction[self.usable]
        if not len(columns):
            return np.zeros(len(self.run.point.f0), bool)
        low = self.run.low_values()
        slack = np.where(low, SCREEN_LOW, SCREEN) if low.any() else SCREEN
        allowed = slack * self.numeric_size + self.bar + self.run.floors() * np.sqrt(len(columns))
        value, bar, known_at = self._slope_along(columns, direction, allowed)
        off = np.asarray(known_at & (np.abs(value - self.numeric) > allowed + bar))
        if off.any():  # a few steps alone prove nothing: the limit of a clamp may lie between them
            found = derivative(
                DirectionLine(self.run.point, columns, direction),
                self.run.outputs(),
                every_rung=True,
            )
            known_at &= found.smooth | ~off
            off &= found.smooth & (np.abs(found.value - self.numeric) > allowed + found.bar)
        return (
            off
            if known_at.all() or self.usable.all()
            else off | self._moved_by_others(~known_at, columns, direction)
        )

    def _moved_by_others(self, rough: Mask, columns: Index, direction: Array) -> Mask:
        """Outputs [M], of those that are rough along the direction, that own none of its columns: a
        tie that hid from the structure moves them.

        Two calls, near x; none where there is no such output.
        """
        explained, groups = ~rough, self.plan.grouping.groups
        usable = np.append(self.usable, False)  # the last one answers for NO_ENTRY
        for group in range(groups.count if rough.any() else 0):
            explained |= usable[groups.columns_of(range(group, group + 1))[0]]
        if explained.all():
            return ~explained
        return np.asarray(~explained & moved_near_x(self.run, columns, direction))

    def _slope_along(
        self, columns: Index, direction: Array, allowed: Array
    ) -> tuple[Array, Array, Mask]:
        """The derivative along the direction, its bar, and where it is known [M]; of a linear
        function from the survey's one rung.

        Nearly always two rungs show that no output is off by more than is `allowed`; then they are
        all that is looked at.
        """
        sample = self.sample if self.usable.all() else None
        line = DirectionLine(self.run.point, columns, direction)
        if sample and self.plan.tensor in self.run.linear:
            wide, of_x = sample.at(QUICK[0]), None if self.run.point.columns.rounded else line.magnitude
            slope = secant(
                wide.up,
                wide.down,
                wide.step_up + wide.step_down,
                self.run.point.f0,
                self.run.survey.sigma,
                self.run.point.unit,
                of_x,
            )
            return slope.value, slope.bar, np.isfinite(slope.value)
        rungs = {QUICK[0]: sample.at(QUICK[0])} if sample else {}
        rungs |= {
            k: values for k in QUICK[:2] if k not in rungs and (values := sample_rung(line, k))
        }
        if self.usable.all() and len(rungs) == 2:  # else a tie may hide here
            value, bar = extrapolate_once(
                rungs[QUICK[0]], rungs[QUICK[1]], self.run.survey.sigma, self.run.point.unit
            )
            if (np.abs(value - self.numeric) + bar <= allowed).all():
                return value, bar, repeated(np.True_, len(value))
        d = from_quick_rungs(line, self.run.outputs(), rungs)
        return d.value, d.bar, d.smooth & ~d.unclear & np.isfinite(d.bar)

    def _analytic_off(self, gradient: Array) -> bool:
        columns = slice(self.plan.first, self.plan.first + self.plan.size)
        low = bool(self.run.low_precision().any())
        floor = self.run.floors().max(initial=0.0) / self.run.point.columns.size[columns]
        allowed = (SCREEN_LOW if low else SCREEN) * self.analytic_size + floor
        return bool(
            (
                (np.abs(gradient[columns] - self.analytic) > allowed)
                & np.isfinite(gradient[columns])
                & self.usable
            ).any()
        )
