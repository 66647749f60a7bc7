"""Mismatches that the noise of the backward itself may explain."""

from __future__ import annotations

from functools import partial

import numpy as np

from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import excuse_row_by_row
from gradverify.numerics.rungs import U32, VISIBLE, Array, Index, Z
from gradverify.numerics.survey import analytic_noise
from gradverify.numerics.verdict import MISMATCH, Limit

NOISE_CALLS = 18  # for that of one row of backward
NOISE_ROWS = 6  # rows at a time whose analytic noise is measured, until a mismatch stands
BACKWARD_CAP = 2.0**10  # roundoffs of |a| ...
SUMS = 2.0**-40  # of f: more noise than the rounding of large sums is of another kind, as ripples, which backward may follow
FLOOR_CAP = 16  # ... or floors, for what cancels to nothing: more noise than either is itself the backward's fault, ...
AMPLIFIED = 2.0**-4  # ... unless its operations amplify their rounding, up to so much of the row: the inverse in det(A)·A⁻ᵀ near a singular A;
# more is a branch that is taken otherwise, as where two points are one
FEW, WIDER = 3, 32.0  # ways to round that are tried first, and how far these may underestimate it


def excuse_backward_noise(run: Run, judged: Judged) -> Judged:
    """Mismatches within the backward's own noise, up to a cap, are undecided, or right where the forward is float32; never at kinks. Beyond the cap
    it is no more than what its operations make of their own roundings, at random (3 calls a row, or 12).

    Not of a backward of lower precision than the finite differences: that is `excuse_rounded`'s.
    """
    if run.point.narrow is not None:
        return judged
    return excuse_row_by_row(judged, 1 if run.over_budget(NOISE_CALLS) else NOISE_ROWS, partial(_excuse_row, run))


def _excuse_row(run: Run, judged: Judged, i: Index, row: int) -> tuple[Judged, float]:
    """Elements i of one row; and the relative noise of its backward where it is above the cap."""
    part = judged.take(i)
    cap = _cap(run, part.analytic, part.tolerances.floor, row)
    if run.over_budget(NOISE_CALLS):
        stands = part.verdicts_with(_largest_noise(run, part.analytic, cap, row)) == MISMATCH
        if stands.any():
            return judged.undecided(i[~stands], Limit.BUDGET), 0.0
    sigma, _ = analytic_noise(run.point, row, _row_of(run, judged, i))
    noise = Z * sigma[part.column]
    right = part.verdicts_with(np.minimum(noise, cap)) != MISMATCH
    if not right.all():
        right |= part.verdicts_with(_amplified(run, part, row)) != MISMATCH
    excused = i[right]
    excess = np.where(noise > cap, noise / Z / np.abs(part.analytic), 0.0)
    judged = judged.undecided(excused, Limit.ANALYTIC_NOISE)
    if run.point.unit[row] == U32:
        judged = judged.passed(excused)
    return judged, float(np.nan_to_num(excess).max(initial=0.0))


def _cap(run: Run, a: Array, floor: Array, row: int) -> Array:
    """Noise that a backward may have; no cap where the forward itself is noisy beyond rounding: a right backward follows its ripples."""
    noisy = run.survey.sigma[row] > VISIBLE * run.point.unit[row] * run.survey.size[row]
    rounding = BACKWARD_CAP * run.point.unit[row] * np.nan_to_num(np.abs(a), posinf=0.0)
    return np.full(len(a), np.inf) if noisy else np.maximum(rounding, FLOOR_CAP * floor)


def _amplified(run: Run, part: Judged, row: int) -> Array:
    """What the roundings of all operations may make of elements [E] of a row; 0, and no call, where none that is off could be explained by them."""
    most = AMPLIFIED * float(run.reach.rows(run.survey).reach[row]) / run.point.columns.size[part.column]
    if (part.verdicts_with(most) == MISMATCH).all():
        return np.zeros(len(most))
    for ways, wider in ((FEW, WIDER), (POINTS, 1.0)):
        sigma = run.point.row_rounding(row, ways)
        noise = np.zeros(len(most)) if sigma is None else wider * Z * np.nan_to_num(sigma[part.column])
        if (part.verdicts_with(noise) == MISMATCH).all():
            return np.zeros(len(most))
    return np.where(noise <= most, noise, 0.0)


def _largest_noise(run: Run, a: Array, cap: Array, row: int) -> Array:
    """The cap; of a forward that sums many numbers, and is noisy with that alone, as many times that noise."""
    noise = run.survey.sigma[row] / run.survey.size[row] if run.survey.size[row] else np.inf
    return np.minimum(cap, BACKWARD_CAP * noise * np.abs(a)) if run.point.unit[row] < noise <= SUMS else cap


def _row_of(run: Run, judged: Judged, i: Index) -> Array:
    """The analytic row [C] as far as elements i show it."""
    row = np.zeros(len(run.point.columns))
    row[judged.column[i]] = np.nan_to_num(judged.analytic[i])
    return row
