"""Mismatches that the noise of the backward itself may explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from gradverify.model.fault import UserCodeError
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.excuses.cancelling import beyond_cancelling, hidden_by_cancelling
from gradverify.numerics.function.point import Narrow
from gradverify.numerics.judging.judged import Decided, Judged, row_by_row
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import U32, ULP, VISIBLE, Array, Index, Mask, Z
from gradverify.numerics.survey import narrow_points
from gradverify.numerics.tolerance import RTOL, Tolerances
from gradverify.numerics.verdict import MISMATCH, Limit

# ---- Mismatches that the rounding of the backward itself may explain
RIPPLES = 2.0**10  # roundings: how far a noisy f is asked whether backward follows its ripples (1e-12·sin(1e15·x) is noise to every step)
FEW, WIDER = 3, 32.0  # ways to round that are tried first, and how far these may underestimate it
NOISE_ROWS = 6  # rows at a time whose rounding is measured, until a mismatch stands
AMPLIFIED = 2.0**-4  # of the row: what operations may make of their roundings, as the inverse in det(A)·A⁻ᵀ near a singular A; more is a branch that
# is taken otherwise, as where two points are one


def excuse_backward_noise(run: Run, judged: Judged) -> Iterator[Decided]:
    """Mismatches within what backward's operations make of their own roundings are undecided, or right where the forward is float32; never at kinks.
    So are those of a noisy forward within what backward changes by beside x.

    Not of a backward of lower precision than the finite differences: that is `excuse_rounded`'s. 9 calls a row.
    """
    def excuse_row(i: Index, row: int) -> Iterator[Decided]:
        part = judged.take(i)
        noisy = run.survey.sigma[row] > VISIBLE * run.point.unit[row] * run.survey.size[row]
        most = np.inf if noisy else AMPLIFIED * float(run.reach.rows(run.survey).reach[row]) / run.point.columns.size[part.column]
        stands = part.verdicts_with(most) == MISMATCH
        if stands.any() and run.over_budget(POINTS):
            yield Decided(i[~stands], Limit.BUDGET)
        elif not stands.all():
            for ways, wider in ((FEW, WIDER), (POINTS, 1.0)):
                sigma = run.point.row_rounding(row, ways, RIPPLES if noisy else ULP)
                noise = np.zeros(len(i)) if sigma is None else Z * np.nan_to_num(sigma[part.column])
                if (part.verdicts_with(wider * noise) == MISMATCH).all():
                    return
            excused = part.verdicts_with(np.where(noise <= most, noise, 0.0)) != MISMATCH
            yield Decided(i[excused], Limit.NONE if run.point.unit[row] == U32 and not noisy else Limit.ANALYTIC_NOISE)

    if run.point.narrow is None:
        yield from row_by_row(judged, 1 if run.over_budget(POINTS) else NOISE_ROWS, excuse_row)


# ---- Mismatches that the rounding of a backward in float32 may explain, where the finite differences are those of float64 (method.md section 3)
ROWS_AT_ONCE = 6  # rows that are looked at before it is asked whether a mismatch stands
NEARBY = 18  # backwards that it takes to know the rounding of a row
NO_SIZE = 1e-8  # of a row: what the backward in float64 may be off by where it has no size of its own
STEADY = 4.0  # roundings of the row that may be the same at all points: of a constant, say
SATURATES, TIMES = 1.5e-5, 64.0  # f is off by so much of its row in float32: then its derivative may be off by so much more (tanh at 9: by 18);
# together the relative tolerance, so that nothing is left between (measured: of 64 right saturating functions 13 were accused at 1e-3, none at 1e-4)
IN_FULL = 1e-3  # of a derivative where f saturates: what a backward in float64 may be off by there, as it rounds too (gelu at −6: by 1e-4)
GONE = 0.5  # of f: so much of it float32 loses where it has nothing of it
LOST = 16.0  # times the share of f that float32 loses: gelu at −6 is 0 and not −1e-10, and so is its slope, 20 times that and more in other inputs
PASSES, AT_MOST = 64.0, 5e-5  # roundings of a row, and of the row: larger deviations are not passed, however noisy both sides are
CAP, OWN = 256.0, 2.0**10  # roundings of the row, of the element: more noise is the backward's own fault, unless it is what f rounds away itself:
# a row that cancels has terms of the size of f (at the optimum of an entropy, logits of 3: noise of 0.1 to 0.6 of that, and of 1,000 of the row)
LIBRARY = 8.0  # times what one rounding of each argument does: an operation may lose more (measured: digamma near its root, 2.4 to 5 times that)


@dataclass(frozen=True)
class _Noise:
    """Of elements [E] of a row: how far the backward in float32 is off from point to point (one standard deviation), and their mean deviation."""

    sigma: Array
    mean: Array
    points: int


def excuse_rounded(run: Run, judged: Judged) -> Iterator[Decided]:
    """Mismatches within the rounding of a backward of lower precision than the finite differences are right, or undecided; none of other backwards.

    At most 40 calls a row. A mismatch that numbers which cancel in float64 may explain does not keep other rows from being looked at.
    """
    narrow = run.point.narrow
    if narrow is not None:
        yield from row_by_row(judged, 1 if run.over_budget(NEARBY) else ROWS_AT_ONCE,
                              lambda i, row: _Row(run, judged.take(i), row, narrow).excused(i), ~beyond_cancelling(run, judged))


class _Row:
    """Mismatches [E] of one row.

    `rounding` [E]: a float32 rounding of the row's reach, as a derivative. `f_error`: what float32 makes f off by; `amplification`: how many
    roundings of f that is; `forward_noise` [E]: the same as a derivative, and at least that of a rounding.
    """

    def __init__(self, run: Run, elements: Judged, row: int, narrow: Narrow) -> None:
        self.run, self.elements, self.row, self.narrow = run, elements, row, narrow
        columns, self.f_size = run.point.columns, abs(float(run.point.f0[row]))
        self.reach = float(run.reach.rows(run.survey).reach[row])
        self.scale, self.rounding = columns.scale[elements.column], narrow.unit * self.reach / columns.size[elements.column]
        self.f_error = float(np.nan_to_num(narrow.rounding()[row]))
        usual = narrow.unit * max(self.f_size, float(run.survey.size[row]))
        self.forward_noise = max(self.f_error, usual) / self.scale
        self.amplification = max(self.f_error / usual if usual else 1.0, 1.0)

    def excused(self, i: Index) -> Iterator[Decided]:
        """What rounding explains of these, elements i: up to so many roundings of the row they are right."""
        f_lost, over_budget = self._f_lost(), self.run.over_budget(NEARBY)
        right_in_full = self._right_in_full() & ~f_lost
        yield Decided(i[f_lost], Limit.ROUNDED)
        if not right_in_full.any():
            return
        cap = self._cap()
        stands = ~right_in_full | (self.elements.verdicts_with(np.maximum(cap, self._saturated())) == MISMATCH)
        if over_budget and stands.any():
            yield Decided(i[~stands], Limit.BUDGET)
            return
        noise = self._noise()
        explained = right_in_full & (self.elements.verdicts_with(self._may_be_off(noise, cap)) != MISMATCH)
        right = explained & self._within(PASSES * self.amplification)
        open_ = right_in_full & ~right
        if open_.any():
            perturbed = Z * self._perturbed()
            by_operations = open_ & (self.elements.verdicts_with(perturbed) != MISMATCH)
            right |= by_operations & self._within(AT_MOST / self.narrow.unit)
            explained |= by_operations | (open_ & (self.elements.verdicts_with(self._may_be_off(noise, LIBRARY * perturbed)) != MISMATCH))
        yield Decided(i[right], Limit.NONE)
        yield Decided(i[explained & ~right], Limit.ROUNDED)

    def _cap(self) -> Array:
        """More noise [E] than this is the backward's own fault."""
        roundings = np.maximum(CAP * self.rounding, OWN * self.narrow.unit * np.abs(self.elements.analytic))
        return np.maximum(self.amplification * roundings, self.forward_noise)

    def _may_be_off(self, noise: _Noise, cap: Array) -> Array:
        """What noise explains [E], up to the cap: nothing where all points are off by the same; and what saturation does."""
        steady = np.abs(noise.mean) > Z * noise.sigma / noise.points**0.5 + np.maximum(STEADY * self.rounding, self.forward_noise)
        off = np.where(steady, 0.0, np.minimum(Z * noise.sigma, cap))
        return np.maximum(off, self._saturated()) if self._saturates else off

    def _f_lost(self) -> Mask:
        """Of which elements float32 has nothing of f, and numbers that cancel in float64 may hide the slope: it is neither's to say."""
        lost = self._saturates and self.f_error > GONE * self.f_size
        return np.asarray(~beyond_cancelling(self.run, self.elements) & lost)

    @property
    def _saturates(self) -> bool:
        """Does float32 round f by more than its row shows?"""
        return self.f_error > SATURATES * self.reach

    def _saturated(self) -> Array:
        """What derivatives [E] may be off by where f saturates: no less of them than float32 loses of f."""
        lost = min(self.f_error / self.f_size, 1.0) if self.f_size else 1.0
        return np.maximum(TIMES * self.f_error / self.scale, LOST * lost * np.abs(self.elements.derivative.value))

    def _within(self, roundings: float) -> Mask:
        """Deviations of so many roundings of the row, and no more than may pass."""
        off = np.abs(self.elements.analytic - self.elements.derivative.value)
        return np.asarray(off <= min(roundings, AT_MOST / self.narrow.unit) * self.rounding)

    def _right_in_full(self) -> Mask:
        """Of which elements the function's own backward in the precision of the finite differences is right; all, where there is none."""
        full_row = self.run.point.row_in_float64(self.row)
        if full_row is None:
            return np.ones(len(self.elements.analytic), bool)
        a: Array = full_row[self.elements.column]
        rtol = np.full(len(a), IN_FULL if self._saturates else RTOL)
        tolerances = Tolerances(self.run.atol, rtol, NO_SIZE / self.narrow.unit * self.rounding, self.elements.tolerances.unproven)
        full = replace(self.elements, analytic=a, tolerances=tolerances)
        right = full.verdicts_with() != MISMATCH
        if not right.all():
            right[~right] = hidden_by_cancelling(self.run, full.take(np.flatnonzero(~right)))
        return np.asarray(right)

    def _perturbed(self) -> Array:
        """One standard deviation of what float32 makes of the backward in float64, each operation rounded at random; 0 where it refuses that.

        Also of roundings that are the same at all nearby points: a softmax of 1 − 1e-6 is one float32 number at all of them.
        """
        sigma = self.run.point.row_rounding(self.row, POINTS)
        return np.zeros(len(self.elements.analytic)) if sigma is None else np.nan_to_num(sigma[self.elements.column])

    def _noise(self) -> _Noise:
        """By the backward at nearby points that float32 holds, against the one in float64, or else against the mean of them all."""
        point, column = self.run.point, self.elements.column
        columns, points = narrow_points(point, self.row)
        off = [self.elements.analytic - self.elements.derivative.value]
        try:
            for at in points:
                x = point.coordinates(columns, at)
                full = point.row_in_float64(self.row, x)
                off.append(point.row(self.row, x)[column] - (full[column] if full is not None else self.elements.derivative.value))
        except UserCodeError:  # the backward refuses other points than its own: then its noise is not known
            return _Noise(np.zeros(len(column)), off[0], 1)
        return _Noise(np.nan_to_num(np.std(off, 0, ddof=1)), np.nan_to_num(np.mean(off, 0)), len(off))
