"""The column that moves an output off the sparsity pattern, found by halving."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.estimate.climb import derivative, from_quick_rungs
from gradverify.numerics.estimate.kinks import SMOOTH
from gradverify.numerics.estimate.samples import sample_rung
from gradverify.numerics.estimate.smooth import extrapolate_once, secant
from gradverify.numerics.function.point import DirectionLine, Point
from gradverify.numerics.halving import halved
from gradverify.numerics.judging.bundle import Bundle, Cells, GroupLine, summed_by_output
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.prepare import Plan
from gradverify.numerics.probing.off_pattern import NEARER
from gradverify.numerics.probing.seed_matrices import SCREEN, SCREEN_LOW
from gradverify.numerics.rungs import QUICK, Array, Index, Mask, Z, repeated, step
from gradverify.numerics.seed_vectors import signed_weights
from gradverify.numerics.survey import STRAY, Survey
from gradverify.numerics.verdict import PASS


# ---- The column that moves an output off the sparsity pattern, found by halving
def moving_column(run: Run, line: GroupLine, out: int) -> int | None:
    """The column of a group that moves an output which none of them owns: two forward calls a halving. None where none does alone."""
    h = step(line.scale, QUICK[0])

    def moves(columns: Index) -> bool:
        part = replace(line, columns=columns)
        off = max(abs(float(part.at(t)[0][out] - run.point.f0[out])) for t in (h, -h))
        return off > STRAY * float(run.survey.sigma[out])

    column = halved(line.columns, moves)
    return column if moves(np.array([column])) else None


def moved_near_x(run: Run, columns: Index, direction: Array) -> Mask:
    """The outputs [M] that move beyond their noise with all of these columns [k] along a direction [k], near x: two calls."""
    samples = sample_rung(DirectionLine(run.point, columns, direction), QUICK[0] + NEARER)
    if samples is None:
        return np.zeros(len(run.point.f0), bool)
    off = np.fmax(np.abs(samples.up - run.point.f0), np.abs(samples.down - run.point.f0))
    return np.asarray(off > STRAY * run.survey.sigma)


# ---- Consistency of a measured Jacobian: directional derivatives of the whole function, and its VJPs, against sums of the elements
VERIFIED_ALONG = 1  # directions and cotangents: signed weights that stay away from 0, so that no leak hides from them by chance
ALIAS_SLACK = 1e-3  # of the sum along a secant: its own curvature


class RunningSum:
    """What elements add up to along a move of their columns, per output [M], and how uncertain that is."""

    def __init__(self, m: int) -> None:
        self.value, self.bar = np.zeros((2, m))

    def add(self, out: Index, terms: Array, bar: Array, lines: int) -> None:
        """Elements [E] with their derivatives and bars, times how far the column of each moves."""
        m = len(self.value)
        self.value += summed_by_output(out, terms, m, lines)
        self.bar += summed_by_output(out, bar, m, lines)


class AliasSums:
    """Do the columns of an input tensor add up to the secant of its noise points? If not, the quick rungs met an alias."""

    def __init__(self, point: Point, survey: Survey) -> None:
        self._point, self._survey = point, survey
        m, n = len(point.f0), len(survey.secants)
        self._sums, self._known, self._columns_added = [RunningSum(m) for _ in range(n)], np.ones((n, m), bool), np.zeros(n, int)

    def add(self, done: Index, cells: Cells, value: Array, bar: Array) -> Mask:
        """Adds elements, with which the columns `done` [k] are complete; outputs [M] that miss a secant of which all columns are."""
        off, tensors, c = np.zeros(len(self._point.f0), bool), set(cells.bundle.tensor.tolist()), self._point.columns
        known = np.isfinite(bar)
        if not known.all():
            value, bar = np.where(known, value, 0.0), np.where(known, bar, 0.0)
        for n, chord in enumerate(self._survey.secants):
            if int(c.tensor[chord.columns[0]]) not in tensors:
                continue
            dx = cells.by_column(chord.by_column(len(c)))
            if not dx.any():
                continue
            self._sums[n].add(cells.out, value * dx, bar * np.abs(dx), cells.lines)
            if not known.all():
                self._known[n, cells.out[~known & (dx != 0)]] = False
            self._columns_added[n] += np.count_nonzero(np.isin(done, chord.columns))
            if self._columns_added[n] == len(chord.columns):
                off |= self._off(n, chord.change)
        return off

    def _off(self, n: int, change: Array) -> Mask:
        noise, sums = 2 * Z * np.maximum(self._survey.sigma, self._point.unit * np.abs(self._point.f0)), self._sums[n]
        slack = sums.bar + noise + ALIAS_SLACK * np.abs(sums.value)
        return np.asarray(np.isfinite(change) & self._known[n] & (np.abs(sums.value - change) > slack))


@dataclass(frozen=True)
class Disagreement:
    """Outputs of which the forward, or columns of which the backward, is not what its compressed Jacobian adds up to."""

    outputs: Index
    columns: Index

    @property
    def any(self) -> bool:
        return bool(len(self.outputs) or len(self.columns))


class JacobianSums:
    """What the entries of one tensor add up to along one direction [N], per output, and for one `cotangent` [M], per column."""

    def __init__(self, run: Run, plan: Plan, cotangent: Array) -> None:
        self.run, self.plan, self.cotangent = run, plan, cotangent
        sample = run.survey.direction_samples[plan.tensor]
        self.sample = sample if sample and len(sample.columns) == plan.size else None
        n, m, columns = plan.size, len(run.point.f0), slice(plan.first, plan.first + plan.size)
        source, scale = run.point.seed.generator("sums along", plan.tensor), run.point.columns.scale[columns]
        self.direction = self.sample.direction if self.sample else signed_weights(n, source) * scale
        self.numeric, self.numeric_size = RunningSum(m), np.zeros(m)
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
            place, out, value, bar, lines = place[usable], out[usable], value[usable], bar[usable], 0
        m, move = len(self.run.point.f0), self.direction.take(place)
        terms = value * move
        self.numeric.add(out, terms, bar * np.abs(move), lines)
        self.numeric_size += summed_by_output(out, np.abs(terms), m, lines)

    def add_analytic(self, bundle: Bundle, a: Array) -> None:
        """The analytic values [n, M] of a chunk; each column is in one of its lines."""
        in_pattern = slice(None) if bundle.in_pattern.all() else bundle.in_pattern
        column, part = bundle.column_of[in_pattern].ravel() - self.plan.first, (a * self.cotangent)[in_pattern].ravel()
        if not np.isfinite(part).all():
            part = (np.nan_to_num(a, posinf=0.0, neginf=0.0) * self.cotangent)[in_pattern].ravel()
        self.analytic += np.bincount(column, part, self.plan.size)
        self.analytic_size += np.bincount(column, np.abs(part), self.plan.size)

    def check(self, gradient: Array) -> Disagreement:
        """Against the uncompressed function, and the `gradient` [C] of its cotangent."""
        return Disagreement(np.flatnonzero(self._numeric_off()), self._analytic_off(gradient))

    def _numeric_off(self) -> Mask:
        columns, direction = self.run.point.columns.of(self.plan.tensor), self.direction
        if not self.usable.all():
            columns, direction = columns[self.usable], direction[self.usable]
        if not len(columns):
            return np.zeros(len(self.run.point.f0), bool)
        low = self.run.low_values()
        slack = np.where(low, SCREEN_LOW, SCREEN) if low.any() else SCREEN
        floor = self.run.floors() * np.sqrt(len(columns))
        allowed = slack * self.numeric_size + self.numeric.bar + floor
        value, bar, known_at = self._slope_along(columns, direction, allowed)
        off = np.asarray(known_at & (np.abs(value - self.numeric.value) > allowed + bar))
        if off.any():       # a few steps alone prove nothing: the limit of a clamp may lie between them
            found = derivative(DirectionLine(self.run.point, columns, direction), self.run.outputs(), every_rung=True)
            known_at &= found.smooth | ~off
            off &= found.smooth & (np.abs(found.value - self.numeric.value) > allowed + found.bar)
        return off if known_at.all() or self.usable.all() else off | self._moved_by_others(~known_at, columns, direction)

    def _moved_by_others(self, rough: Mask, columns: Index, direction: Array) -> Mask:
        """Outputs [M], of those that are rough along the direction, that own none of its columns: a tie that hid from the structure moves them.

        Two calls, near x; none where there is no such output.
        """
        explained, groups = ~rough, self.plan.grouping.groups
        usable = np.append(self.usable, False)  # the last one answers for NO_ENTRY
        for group in range(groups.count if rough.any() else 0):
            explained |= usable[groups.column_of(group)]
        if explained.all():
            return ~explained
        return np.asarray(~explained & moved_near_x(self.run, columns, direction))

    def _slope_along(self, columns: Index, direction: Array, allowed: Array) -> tuple[Array, Array, Mask]:
        """The derivative along the direction, its bar, and where it is known [M]; of a linear function from the survey's one rung.

        Nearly always two rungs show that no output is off by more than is `allowed`; then they are all that is looked at.
        """
        sample = self.sample if self.usable.all() else None
        line = DirectionLine(self.run.point, columns, direction)
        if sample and self.plan.tensor in self.run.linear:
            wide, of_x = sample.values, None if self.run.point.columns.rounded else line.magnitude
            slope = secant(wide.up, wide.down, wide.step_up + wide.step_down, self.run.point.f0, self.run.survey.sigma, self.run.point.unit, of_x)
            return slope.value, slope.bar, np.isfinite(slope.value)
        rungs = {QUICK[0]: sample.values} if sample else {}
        rungs |= {k: values for k in QUICK[:2] if k not in rungs and (values := sample_rung(line, k))}
        if self.usable.all() and len(rungs) == 2:      # else a tie may hide here
            value, bar = extrapolate_once(rungs[QUICK[0]], rungs[QUICK[1]], self.run.survey.sigma, self.run.point.unit)
            if (np.abs(value - self.numeric.value) + bar <= allowed).all():
                return value, bar, repeated(np.True_, len(value))
        d = from_quick_rungs(line, self.run.outputs(), rungs)
        return d.value, d.bar, d.smooth & ~d.unclear & np.isfinite(d.bar)

    def _analytic_off(self, gradient: Array) -> Index:
        columns = slice(self.plan.first, self.plan.first + self.plan.size)
        low = bool(self.run.low_precision().any())
        floor = self.run.floors().max(initial=0.0) / self.run.point.columns.size[columns]
        allowed = (SCREEN_LOW if low else SCREEN) * self.analytic_size + floor
        off = np.abs(gradient[columns] - self.analytic) > allowed
        return self.plan.first + np.flatnonzero(off & np.isfinite(gradient[columns]) & self.usable)
