"""Mismatches that the noise of the backward itself may explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.excuses.cancelling import beyond_cancelling, hidden_by_cancelling
from gradverify.numerics.judging.judged import Decided, Judged, row_by_row
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import U32, ULP, VISIBLE, Array, Index, Mask, Z
from gradverify.numerics.tolerance import RTOL, Tolerances
from gradverify.numerics.verdict import MISMATCH, Limit

# ---- Mismatches that the rounding of the backward itself may explain
# roundings: how far a noisy f is asked whether backward follows its ripples (1e-12·sin(1e15·x) is
# noise to every step)
RIPPLES = 2.0**10
FEW, WIDER = 3, 32.0  # ways to round that are tried first, and how far these may underestimate it
NOISE_ROWS = 6  # rows at a time whose rounding is measured, until a mismatch stands
# Of the row: what operations may make of their roundings, as the inverse in det(A)·A⁻ᵀ near a
# singular A; more is a branch that
AMPLIFIED = 2.0**-4
# is taken otherwise, as where two points are one


def excuse_backward_noise(run: Run, judged: Judged) -> Iterator[Decided]:
    """Mismatches within what backward's operations make of their own roundings are undecided, or
    right where the forward is float32; never at kinks. So are those of a noisy forward within what
    backward changes by beside x.

    Not of a backward of lower precision than the finite differences: that is `excuse_rounded`'s. 9
    calls a row.
    """

    def excuse_row(i: Index, row: int) -> Iterator[Decided]:
        part = judged.take(i)
        noisy = run.survey.sigma[row] > VISIBLE * run.point.unit[row] * run.survey.size[row]
        most = (
            np.inf
            if noisy
            else AMPLIFIED
            * float(run.reach.rows(run.survey).reach[row])
            / run.point.columns.size[part.column]
        )
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
            yield Decided(
                i[excused],
                Limit.NONE if run.point.unit[row] == U32 and not noisy else Limit.ANALYTIC_NOISE,
            )

    if run.point.narrow is None:
        yield from row_by_row(judged, 1 if run.over_budget(POINTS) else NOISE_ROWS, excuse_row)


# ---- Mismatches that the rounding of a backward in float32 may explain, where the finite
# differences are those of float64 (method.md section 3)
ROWS_AT_ONCE = 6  # rows that are looked at before it is asked whether a mismatch stands
# Of a row: what the backward in float64 may be off by where it has no size of its own
NO_SIZE = 1e-8
AT_MOST = 5e-5  # of the row: larger deviations are not passed, however noisy both sides are
# Times what one rounding of each argument does: an operation may lose more (measured: digamma near
# its root, 2.4 to 5 times that)
LIBRARY = 8.0


def excuse_rounded(run: Run, judged: Judged) -> Iterator[Decided]:
    """Mismatches within the rounding of a backward of lower precision than the finite differences
    are right, or undecided; none of other backwards.

    Ten calls a row. A mismatch that numbers which cancel in float64 may explain does not keep other
    rows from being looked at.
    """
    reach = run.reach.rows(run.survey).reach

    def excuse_row(i: Index, row: int) -> Iterator[Decided]:
        part = judged.take(i)
        of_row = reach[row] / run.point.columns.size[part.column]
        explicable = _right_in_float64(run, part, row, of_row)
        if not explicable.any():
            return
        sigma = run.point.row_rounding(row, POINTS)
        noise = np.zeros(len(i)) if sigma is None else Z * np.nan_to_num(sigma[part.column])
        explained, right = (
            explicable & (part.verdicts_with(wider * noise) != MISMATCH) for wider in (LIBRARY, 1.0)
        )
        right &= np.abs(part.analytic - part.derivative.value) <= AT_MOST * of_row
        yield Decided(i[right], Limit.NONE)
        yield Decided(i[explained & ~right], Limit.ROUNDED)

    if run.point.narrow is not None:
        yield from row_by_row(
            judged,
            1 if run.over_budget(POINTS) else ROWS_AT_ONCE,
            excuse_row,
            ~beyond_cancelling(run, judged),
        )


def _right_in_float64(run: Run, part: Judged, row: int, of_row: Array) -> Mask:
    """Of which elements the function's own backward in float64 is right; all, where there is
    none."""
    full_row = run.point.row_in_float64(row)
    if full_row is None:
        return np.ones(len(part.analytic), bool)
    a: Array = full_row[part.column]
    tolerances = Tolerances(
        run.atol, np.full(len(a), RTOL), NO_SIZE * of_row, part.tolerances.unproven
    )
    full = replace(part, analytic=a, tolerances=tolerances)
    right = full.verdicts_with() != MISMATCH
    if not right.all():
        right[~right] = hidden_by_cancelling(run, full.take(np.flatnonzero(~right)))
    return np.asarray(right)
