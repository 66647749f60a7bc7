"""Mismatches that cancellation inside f may explain: 1 + erf(x) near −1, or 1 − cos(x) at 1e-9,
moves in steps of the rounding of 1.

Such a step can hold the whole ladder: f is constant there, or has a slope of its own, as exactly as
a smooth function. The rounding of the numbers that cancel inside f is the noise that a mismatch
must exceed, at the steps of its difference or at any rung. Nothing is called where it exceeds the
most that this noise can be.

Mismatches that the noise of the backward itself may explain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.judging import Decided, Judged, Run, lone_derivatives, row_by_row, standing
from gradverify.numerics.rungs import BASE, U32, U64, ULP, VISIBLE, Array, Index, Mask, Z
from gradverify.numerics.tolerance import RTOL, Tolerances
from gradverify.numerics.verdict import MISMATCH, UNDECIDED, Limit

# Of a derivative: a bar in which no steps hide, as they would differ from rung to rung by more
STEPLESS = 0.01
INSIDE = 8.0  # roundings of f: more noise comes from larger numbers inside it
ALIKE = 32.0  # times: so much may two measures of one noise differ
STEPS = 1e-5  # of what an output was seen to be: how far it may move at once by steps of rounding


def excuse_cancelled(run: Run, judged: Judged) -> Iterator[Decided]:
    """Mismatches that the rounding of cancelling numbers may explain are undecided, with bars no
    narrower than what the widest steps can tell.

    36 or 72 forward calls, and 48 a column of those that it hides at the steps of their
    differences."""
    wrong = (
        (judged.verdict == MISMATCH)
        & np.isfinite(judged.analytic)
        & ~beyond_cancelling(run, judged)
    )
    wrong &= judged.derivative.unchanged | hidden_by_cancelling(run, judged, run.most_noise)
    if wrong.any():
        wrong &= judged.derivative.unchanged | hidden_by_cancelling(run, judged)
    for i in run.by_pair(judged.column, judged.out, np.flatnonzero(wrong)):
        i = i[~_standing(run, judged.take(i))]
        yield Decided(i, Limit.CANCELS, _unseen_slope(run, judged.take(i)))


def judge_above_steps(run: Run, judged: Judged) -> tuple[Judged, Index]:
    """Undecided elements of an f that moves in steps, where these are the rounding of larger
    numbers inside it; and those judged above the steps.

    Where random rounding of every operation in float64 makes of f about what its noise is, f at
    rest on a tread is rounding too: such elements are judged by the reading above the steps, under
    the measured noise. Other steps belong to the function (`round(y * 1e3) / 1e3`, a cast), and
    leave it open. 6 forward calls, and those of the noise.
    """
    i = np.flatnonzero((judged.verdict == UNDECIDED) & (judged.limit == Limit.STAIRCASE))
    if not i.size:
        return judged, i
    (spread, coarsest) = run.spread
    noise = run.noise
    least = INSIDE * run.point.unit * np.abs(run.point.f0)
    judged = judged.undecided(i[(spread > least)[judged.out[i]]], Limit.CANCELS)
    as_noisy = (
        (np.minimum(spread, noise) > least)
        & (spread < ALIKE * noise)
        & (noise < ALIKE * spread)
        & (coarsest <= U64)
    )
    i = i[as_noisy[judged.out[i]] & (judged.derivative.second[i] == 0)]
    if not i.size:
        return judged, i
    above = judged.take(i)
    wider = np.maximum(
        _under(run, above, np.maximum(run.inner_noise, spread)[above.out])
        - above.derivative.noise_bar,
        0.0,
    )
    d = replace(
        above.derivative,
        second=np.full(len(i), np.nan),
        bar=above.derivative.bar + wider,
        noise_bar=above.derivative.noise_bar + wider,
    )
    above = replace(above, derivative=d)
    return judged.replaced(i, replace(above, verdict=above.verdicts_with()).with_limits()), i


def excuse_uncertain(run: Run, judged: Judged) -> Iterator[Decided]:
    """Where the budget is spent: mismatches that rounding might explain are undecided beside one
    that it cannot; as they are where there is none."""
    if run.over_budget(EVERY_RUNG):
        wrong = judged.verdict == MISMATCH
        certain = wrong & beyond_cancelling(run, judged)
        if certain.any():
            yield Decided(np.flatnonzero(wrong & ~certain), Limit.BUDGET)


def beyond_cancelling(run: Run, judged: Judged) -> Mask:
    """Mismatches [E] that stand against the noise that cancelling numbers can bring into f, by
    their derivatives as they are."""
    d, noise = judged.derivative, run.most_noise[judged.out]
    resolved = d.smooth & (run.noise[judged.out] > 0) & (d.bar <= STEPLESS * np.abs(d.value))
    still = d.unchanged & _hold_single_numbers(run, judged)
    most = (
        Z
        * np.maximum(noise, STEPS * run.survey.size[judged.out])
        / (BASE * run.point.columns.scale[judged.column])
    )
    stands = (
        judged.verdicts_with(np.where(d.unchanged, most, _under(run, judged, noise))) == MISMATCH
    )
    return np.asarray(stands & (resolved | still | ~np.isfinite(judged.analytic)))


def hidden_by_cancelling(run: Run, judged: Judged, noise: Array | None = None) -> Mask:
    """Elements [E] that are no mismatch under the noise [M] of cancelling numbers (None: as
    measured), at the very steps of their differences."""
    noise = run.inner_noise if noise is None else noise
    return np.asarray(judged.verdicts_with(_under(run, judged, noise[judged.out])) != MISMATCH)


def _standing(run: Run, part: Judged) -> Mask:
    """Which mismatches [E] stand when their columns climb every rung under the measured noise: the
    likeliest first, a few columns."""
    noise = run.inner_noise
    change = np.abs(part.analytic - part.derivative.value) * run.point.columns.scale[part.column]

    def stands(columns: Index) -> Mask:
        few = part.take(columns)
        d = lone_derivatives(run, few.column, few.out, noise)
        return np.asarray(
            few.verdicts_with(np.where(d.unchanged, _unseen_slope(run, few), 0.0), d) == MISMATCH
        )

    return standing(part.column, np.argsort(-change / noise[part.out], kind="stable"), stands)


def _unseen_slope(run: Run, judged: Judged) -> Array:
    """How large a derivative [E] may be of which no rung shows anything."""
    scale = run.point.columns.scale[judged.column]
    # Steps go beyond the scale of the inputs
    wide = run.survey.wide[run.point.columns.tensor[judged.column], judged.out]
    return Z * run.inner_noise[judged.out] / (BASE * np.where(wide, np.maximum(scale, 1.0), scale))


def _under(run: Run, judged: Judged, noise: Array) -> Array:
    """How far the derivatives [E] may be off under another noise [E] at the same steps; no number
    where nothing is known of theirs.

    The quotient comes first: products of numbers as small as 1e-300 are 0."""
    used, scale = run.noise[judged.out], run.point.columns.scale[judged.column]
    under_used = np.maximum(judged.derivative.noise_bar, Z * used / np.maximum(scale, 1.0))
    return under_used * (noise / used)


def _hold_single_numbers(run: Run, judged: Judged) -> Mask:
    """Elements [E] whose column holds a number that no other column of its tensor does: a tie hides
    from single columns."""
    c, single = run.point.columns, np.zeros(len(judged.analytic), bool)
    for tensor in np.unique(c.tensor[judged.column]).tolist():
        values, counts = np.unique(c.x[c.of(tensor)], return_counts=True)
        elements = np.flatnonzero(c.tensor[judged.column] == tensor)
        single[elements] = np.isin(c.x[judged.column[elements]], values[counts == 1])
    return single


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
