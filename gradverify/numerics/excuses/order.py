"""The excuses by which an element that differs is right or undecided, in the order in which they
are tried (`EXCUSES`, at the end)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from gradverify.numerics.estimate.ladder import (
    EVERY_RUNG,
    KINK,
    NON_FINITE,
    SMOOTH,
    Best,
    derivative,
    one_sided,
)
from gradverify.numerics.estimate.noise import FINE, LEAST_ULPS, POINTS
from gradverify.numerics.function.coordinates import mirror_of, rms
from gradverify.numerics.function.point import DirectionLine
from gradverify.numerics.judging import (
    ENOUGH_CONFIRMED,
    Decided,
    Judged,
    Run,
    enough_confirmed,
    quick_samples,
    single_columns,
    single_derivatives,
    worst_first,
)
from gradverify.numerics.rungs import (
    BASE,
    RATIO,
    U32,
    U64,
    ULP,
    VISIBLE,
    Array,
    Index,
    Mask,
    Z,
    nonzero,
    step,
)
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.tolerance import RTOL, Tolerances, limits
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED, Limit

# ---- Mismatches confirmed a few columns or rows at a time, the worst first
NOISE_ROWS = 6  # rows whose rounding is measured at a time, until a mismatch remains


def confirmed_mismatches(column: Index, order: Index, remain: Callable[[Index], Mask]) -> Mask:
    """Return which of the mismatches [E] are confirmed by `remain`, which is evaluated for a few
    columns at a time, the worst first; the rest counts as confirmed once `enough_confirmed`."""
    confirmed, measured = np.zeros((2, len(column)), bool)
    for i in worst_first(column, order):
        confirmed[i], measured[i] = remain(i), True
        count = int(confirmed.sum())
        if count >= ENOUGH_CONFIRMED:
            if enough_confirmed(count, int(measured.sum()) - count):
                return confirmed | ~measured
            return confirmed
    return confirmed


def row_by_row(
    run: Run,
    judged: Judged,
    excuse_row: Callable[[Index, int], Iterator[Decided]],
    doubtful: Mask | None = None,
) -> Iterator[Decided]:
    """Apply `excuse_row` to rows with mismatches other than kinks, the worst first and NOISE_ROWS
    at a time (one where the budget is spent), until one of them keeps a mismatch.

    `excuse_row` gets the elements of one row. `doubtful` [E]: mismatches that something else may
    still explain; they do not end the iteration.
    """
    bad = np.flatnonzero(judged.wrong & (judged.derivative.outcome != KINK))
    left = np.ones(len(bad), bool) if doubtful is None else ~doubtful[bad]
    examined = np.zeros(len(bad), bool)
    at_once = 1 if run.over_budget(POINTS) else NOISE_ROWS
    for n, in_row in enumerate(
        worst_first(judged.out[bad], judged.take(bad).worst_first(), 1, None), 1
    ):
        for found in excuse_row(bad[in_row], int(judged.out[bad[in_row[0]]])):
            left &= ~np.isin(bad, found.i)
            yield found
        examined[in_row] = True
        if n % at_once == 0 and (left & examined).any():
            return


def row_noise(run: Run, part: Judged, row: int, ways: int, roundings: float = ULP) -> Array:
    """Return the noise bars [E] of elements of one row, by so many random roundings of backward; 0
    where they are not known."""
    sigma = run.point.row_rounding(row, ways, roundings)
    return np.zeros(len(part.out)) if sigma is None else Z * np.nan_to_num(sigma[part.column])


# Mismatches that cancellation inside f may explain: 1 + erf(x) near −1, or 1 − cos(x) at 1e-9,
# moves in steps of the rounding of 1.
# One such step can cover the whole ladder: f is constant there, or has a slope of its own, as
# exactly as a smooth function. The rounding of the numbers that cancel inside f is the noise that a
# mismatch must exceed, at the steps of its difference or at any rung. No call is made where the
# mismatch exceeds the largest possible noise of this kind.
# Relative bar of a derivative in which no steps can hide, as they would differ more from rung to
# rung
STEPLESS = 0.01
INSIDE = 8.0  # roundings of f: larger noise comes from larger numbers inside f
ALIKE = 32.0  # largest ratio of two measurements of the same noise
STEPS = 1e-5  # of the largest output: the most that steps of rounding may move it at once


def excuse_cancelled(run: Run, judged: Judged) -> Iterator[Decided]:
    """Make mismatches undecided that the rounding of cancelling numbers may explain; their bars
    become at least as wide as the resolution of the widest steps.

    36 or 72 forward calls, and 48 per column of the mismatches that this rounding hides at the
    steps of their differences.
    """
    wrong = judged.wrong & np.isfinite(judged.analytic) & ~beyond_cancelling(run, judged)
    wrong &= judged.derivative.unchanged | hidden_by_cancelling(run, judged, run.most_noise)
    if wrong.any():
        wrong &= judged.derivative.unchanged | hidden_by_cancelling(run, judged)
    for i in run.by_pair(judged.column, judged.out, np.flatnonzero(wrong)):
        i = i[~_confirmed(run, judged.take(i))]
        yield Decided(i, Limit.CANCELS, _unseen_slope(run, judged.take(i)))


def judge_above_steps(run: Run, judged: Judged) -> tuple[Judged, Index]:
    """Judge undecided elements of an f that moves in steps, where the steps are the rounding of
    larger numbers inside it. Return all elements, and the indices of those judged above the steps.

    Where rounding every operation at random in float64 changes f by about its noise, the flat
    treads of f are rounding too: such elements are judged by the reading above the steps, under the
    measured noise. Other steps belong to the function (`round(y * 1e3) / 1e3`, a cast) and leave
    the element open. 6 forward calls, and those of the noise.
    """
    i = np.flatnonzero((judged.verdict == UNDECIDED) & (judged.limit == Limit.STAIRCASE))
    if not i.size:
        return judged, i
    (spread, coarsest) = run.spread
    noise = run.noise
    least = INSIDE * run.point.unit * np.abs(run.point.f0)
    judged = judged.decided(i[(spread > least)[judged.out[i]]], Limit.CANCELS)
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
    return judged.replaced(i, above.judged_anew(derivative=d).with_limits()), i


def excuse_uncertain(run: Run, judged: Judged) -> Iterator[Decided]:
    """Where the budget is spent, make mismatches undecided that rounding might explain, if there is
    a mismatch that it cannot explain; else leave them."""
    if run.over_budget(EVERY_RUNG):
        wrong = judged.wrong
        certain = wrong & beyond_cancelling(run, judged)
        if certain.any():
            yield Decided(np.flatnonzero(wrong & ~certain), Limit.BUDGET)


def beyond_cancelling(run: Run, judged: Judged) -> Mask:
    """Return which mismatches [E] exceed any noise that cancelling numbers can bring into f, by
    their derivatives as they are."""
    d, noise = judged.derivative, run.most_noise[judged.out]
    resolved = d.smooth & (run.noise[judged.out] > 0) & (d.bar <= STEPLESS * np.abs(d.value))
    # Columns whose number occurs once in their tensor: differences along single columns miss a tie
    c, single = run.columns, np.zeros(len(judged.analytic), bool)
    for tensor in np.unique(c.tensor[judged.column]).tolist():
        values, counts = np.unique(c.x[c.of(tensor)], return_counts=True)
        elements = np.flatnonzero(c.tensor[judged.column] == tensor)
        single[elements] = np.isin(c.x[judged.column[elements]], values[counts == 1])
    still = d.unchanged & single
    most = (
        Z
        * np.maximum(noise, STEPS * run.survey.size[judged.out])
        / (BASE * run.columns.scale[judged.column])
    )
    wrong = (
        judged.verdicts_with(np.where(d.unchanged, most, _under(run, judged, noise))) == MISMATCH
    )
    return np.asarray(wrong & (resolved | still | ~np.isfinite(judged.analytic)))


def hidden_by_cancelling(run: Run, judged: Judged, noise: Array | None = None) -> Mask:
    """Return which elements [E] are no mismatch under the noise [M] of cancelling numbers (None: as
    measured), at the steps of their differences."""
    noise = run.inner_noise if noise is None else noise
    return np.asarray(judged.verdicts_with(_under(run, judged, noise[judged.out])) != MISMATCH)


def _confirmed(run: Run, part: Judged) -> Mask:
    """Return which mismatches [E] remain when their columns climb every rung under the measured
    noise: a few columns, the likeliest first."""
    noise = run.inner_noise
    change = np.abs(part.analytic - part.derivative.value) * run.columns.scale[part.column]

    def wrong(columns: Index) -> Mask:
        few = part.take(columns)
        d = single_derivatives(run, few.column, few.out, noise)
        return np.asarray(
            few.verdicts_with(np.where(d.unchanged, _unseen_slope(run, few), 0.0), d) == MISMATCH
        )

    return confirmed_mismatches(
        part.column, np.argsort(-change / noise[part.out], kind="stable"), wrong
    )


def _unseen_slope(run: Run, judged: Judged) -> Array:
    """Return the largest derivative [E] that shows on no rung."""
    scale = run.columns.scale[judged.column]
    # Wide steps go beyond the scale of the inputs
    wide = run.survey.wide[run.columns.tensor[judged.column], judged.out]
    return Z * run.inner_noise[judged.out] / (BASE * np.where(wide, np.maximum(scale, 1.0), scale))


def _under(run: Run, judged: Judged, noise: Array) -> Array:
    """Return the largest errors [E] of the derivatives under another noise [E] at the same steps;
    NaN where the noise of a derivative is unknown.

    The quotient is computed first, because products of numbers as small as 1e-300 are 0.
    """
    used = run.noise[judged.out]
    scale = run.columns.scale[judged.column]
    under_used = np.maximum(judged.derivative.noise_bar, Z * used / np.maximum(scale, 1.0))
    return under_used * (noise / used)


# ---- Mismatches that the rounding of the backward itself may explain
# Perturbation, in roundings, by which backward is compared with the ripples of a noisy f
# (1e-12·sin(1e15·x) is noise to every step)
RIPPLES = 2.0**10
# Random roundings that are tried first, and the factor by which these may underestimate
FEW, WIDER = 3, 32.0
# Amplification of their roundings by operations, as a fraction of the row, as by the inverse in
# det(A)·A⁻ᵀ near a singular A; a larger change is a branch taken differently, as where two points
# coincide
AMPLIFIED = 2.0**-4


def excuse_backward_noise(run: Run, judged: Judged) -> Iterator[Decided]:
    """Make mismatches undecided that are within the amplified rounding of backward's own
    operations, or right where the forward is float32; never at kinks. For a noisy forward, do so
    within the change of backward near x.

    Does not apply to a backward of lower precision than the finite differences, which
    `excuse_rounded` handles. 9 calls per row.
    """

    def excuse_row(i: Index, row: int) -> Iterator[Decided]:
        part = judged.take(i)
        noisy = run.survey.sigma[row] > VISIBLE * run.point.unit[row] * run.survey.size[row]
        most = (
            np.inf
            if noisy
            else AMPLIFIED * float(run.reach.rows().reach[row]) / run.columns.size[part.column]
        )
        wrong = part.verdicts_with(most) == MISMATCH
        if wrong.any() and run.over_budget(POINTS):
            yield Decided(i[~wrong], Limit.BUDGET)
        elif not wrong.all():
            for ways, wider in ((FEW, WIDER), (POINTS, 1.0)):
                noise = row_noise(run, part, row, ways, RIPPLES if noisy else ULP)
                if (part.verdicts_with(wider * noise) == MISMATCH).all():
                    return
            excused = part.verdicts_with(np.where(noise <= most, noise, 0.0)) != MISMATCH
            yield Decided(
                i[excused],
                Limit.NONE if run.point.unit[row] == U32 and not noisy else Limit.ANALYTIC_NOISE,
            )

    if run.point.narrow is None:
        yield from row_by_row(run, judged, excuse_row)


# ---- Mismatches that the rounding of a backward in float32 may explain, where the finite
# differences are those of float64 (method.md section 3)
# Error of the backward in float64, relative to a row, where it has no size of its own
NO_SIZE = 1e-8
AT_MOST = 5e-5  # of the row: larger deviations do not pass, however noisy both sides are
# Multiple of the effect of one rounding of each argument: an operation may lose more (measured:
# digamma near its root, 2.4 to 5 times that)
LIBRARY = 8.0


def excuse_rounded(run: Run, judged: Judged) -> Iterator[Decided]:
    """Make mismatches right, or undecided, that are within the rounding of a backward of lower
    precision than the finite differences; other backwards are left.

    Ten calls per row. A mismatch that numbers which cancel in float64 may explain does not keep
    other rows from being examined.
    """
    reach = run.reach.rows().reach

    def excuse_row(i: Index, row: int) -> Iterator[Decided]:
        part = judged.take(i)
        of_row = reach[row] / run.columns.size[part.column]
        explicable = _right_in_float64(run, part, row, of_row)
        if not explicable.any():
            return
        noise = row_noise(run, part, row, POINTS)
        explained, right = (
            explicable & (part.verdicts_with(wider * noise) != MISMATCH) for wider in (LIBRARY, 1.0)
        )
        right &= np.abs(part.analytic - part.derivative.value) <= AT_MOST * of_row
        yield Decided(i[right], Limit.NONE)
        yield Decided(i[explained & ~right], Limit.ROUNDED)

    if run.point.narrow is not None:
        yield from row_by_row(run, judged, excuse_row, ~beyond_cancelling(run, judged))


def _right_in_float64(run: Run, part: Judged, row: int, of_row: Array) -> Mask:
    """Return for which elements the function's own backward in float64 is right; all, where there
    is no such backward."""
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


# Elements that the noise of f leaves open, by polynomials fitted to f over wide intervals
# (method.md section 9).
# Where noise limits central differences, many points far apart resolve more than two close ones.
# Each of Chebyshev's nodes has a twin nearby, beyond the treads where f moves in steps. The
# differences between twins are the noise at that place, and the residual of the polynomial must not
# exceed it; otherwise f has structure there that is no polynomial (a kink, a jump, a pole, waves
# finer than the nodes), and the fit has no result. Two intervals must agree. A fit passes elements,
# and calls none wrong.
# Half widths of the first intervals, as fractions of the column's scale: until one gives a slope
FIRST = 1.0, 0.25, 0.0625
FURTHER = 2.0, 0.5, 0.25, 0.125  # times that width: until two give the slopes of all outputs
NODES = 64  # each with a twin: 128 calls per interval
# Nodes where two intervals agree and both leave the element open: 1,024 calls, a third of the noise
DENSE = 512
# Least distance of twins, in treads (a tread is the distance over which f moves by its noise) ...
TREADS = 16.0
# ... and the largest, as a fraction of an interval: the distance of the outer nodes
FARTHEST = 2.0**-10
DEGREE = 31  # largest degree: the noise of a slope grows as the degree to the power 1.5
# Multiple of the twins' noise above which the residual is structure (64 nodes determine the noise
# to 10 %)
STRUCTURE = 1.4
OUTLIER = 6.0  # standard deviations: none of 128 points of noise deviates by more
LATE = 3  # number of higher degrees, at least, that must agree with the chosen one


def pass_fitted(run: Run, judged: Judged, stepping: Index) -> Judged:
    """Pass open elements that a fit shows to be right. Nothing changes where some elements are
    wrong, or the budget does not afford two intervals per column.

    `stepping`: elements for which f moves in steps of its rounding.
    """
    open_ = np.flatnonzero(
        (judged.verdict == UNDECIDED)
        & judged.derivative.smooth
        & ((judged.limit == Limit.NOISE) | (judged.limit == Limit.TRUNCATION))
    )
    columns = np.unique(judged.column[open_]).tolist()
    if not columns or judged.wrong.any() or run.over_budget(len(columns) * 4 * NODES):
        return judged
    for column in columns:
        i = open_[judged.column[open_] == column]
        treads = (
            np.isin(i, stepping)
            * run.noise[judged.out[i]]
            / nonzero(np.abs(judged.derivative.value[i]))
        )
        found = _of_column(run, judged.take(i), column, TREADS * float(treads.max()))
        if not (found.verdict == PASS).any():
            break  # the other columns are as noisy
        judged = judged.replaced(i, found)
    return judged


def _of_column(run: Run, judged: Judged, column: int, apart: float) -> Judged:
    """Fit open elements of one column: interval by interval until all are right or two intervals
    give the slopes, then the best of these with more nodes."""
    widths = list[float]()
    values = list[Array]()
    bars = list[Array]()
    d = judged.derivative

    def within(width: float, count: int = NODES) -> Judged:
        value, bar = _slope_within(run, column, judged.out, width, apart, count)
        widths.append(width)
        values.append(value)
        bars.append(bar)
        value, bar = _agreed(np.array(values), np.array(bars))
        fitted = replace(d, value=value, bar=bar, noise_bar=bar)
        i = np.flatnonzero(judged.verdicts_with(derivative=fitted) == PASS)
        return replace(judged, derivative=d.replaced(i, fitted.take(i))).decided(i, Limit.NONE)

    for width in FIRST:
        best = within(width)
        if np.isfinite(bars).any():
            break
    else:
        return best
    for factor in FURTHER:
        best = within(factor * width)
        if (best.verdict == PASS).all():
            return best
        # More nodes of the same interval do not replace a second interval
        if (np.isfinite(bars).sum(0) >= 2).all():
            if run.over_budget(2 * DENSE):
                return best
            return within(widths[np.argmin(np.max(bars, 1))], DENSE)
    return best


def _agreed(values: Array, bars: Array) -> tuple[Array, Array]:
    """Return from several intervals [n, k] the slope with the smallest bar [k]; the bar is inf
    where fewer than two intervals have a slope, or two disagree."""
    known = np.isfinite(bars)
    apart = np.abs(values[:, None] - values[None]) > bars[:, None] + bars[None]
    unsure = (apart & known[:, None] & known[None]).any((0, 1)) | (known.sum(0) < 2)
    best, output = np.argmin(bars, 0), np.arange(values.shape[1])
    return values[best, output], np.where(unsure, np.inf, bars[best, output])


def _slope_within(
    run: Run, column: int, out: Index, width: float, apart: float, count: int
) -> tuple[Array, Array]:
    """Return slopes of the outputs [k] with their bars from one interval with `count` nodes and
    twins at distance `apart`; bars are inf where f has no value on the interval."""
    c, moved = run.columns, np.array([column])
    x, scale = float(c.x[column]), float(c.scale[column])
    apart = max(
        FINE * scale, LEAST_ULPS * float(c.ulp(moved)[0]), min(apart, FARTHEST * width * scale)
    )
    at = c.cast(x + nodes(width * scale, apart, count), moved)
    f = np.array([run.point.values_at(moved, np.array([place]))[out] for place in at])
    value, bar = np.full(len(out), np.nan), np.full(len(out), np.inf)
    known = np.flatnonzero(np.isfinite(f).all(0))
    if known.size:
        value[known], bar[known] = slope(
            at - x, f[:, known], width * scale, run.point.unit[out[known]]
        )
    return value, bar


def nodes(width: float, twin: float, count: int = NODES) -> Array:
    """Return Chebyshev's nodes in ± width, then their twins at distance `twin` [2 count]."""
    t = width * np.cos((np.arange(count) + 0.5) * np.pi / count)
    return np.concatenate([t, t + np.where(t > 0, -twin, twin)])


def slope(t: Array, f: Array, width: float, unit: Array) -> tuple[Array, Array]:
    """Return slopes at 0 of f [2 count, k] at t (nodes, then their twins) with their bars (inf:
    unknown); `unit` [k]: the unit roundoff of f.

    The degree is the one with the smallest bar among those that all higher degrees agree with.
    """
    basis, triangle = np.linalg.qr(chebvander(t / width, DEGREE))
    orders = np.arange(DEGREE + 1)
    # T_j'(0)
    at_middle = np.where(orders % 2, orders * np.where(orders // 2 % 2, -1.0, 1.0), 0.0) / width
    rounding, f = unit * np.abs(f).max(0), f - f[0]  # the arithmetic rounds changes of f, not f
    size = np.maximum(np.abs(f).max(0), np.maximum(rounding, np.finfo(float).tiny))
    part = basis.T @ (f / size)
    f, rounding = f / size, rounding / size
    values, noises, bars = list[Array](), list[Array](), list[Array]()
    for d in range(2, DEGREE + 2, 2):  # the polynomial of each odd degree
        weights = basis[:, :d] @ np.linalg.solve(triangle[:d, :d].T, at_middle[:d])
        residual = f - basis[:, :d] @ part[:d]
        free = len(f) / (len(f) - d)
        twins = np.sqrt(np.mean(np.subtract(*np.split(residual, 2)) ** 2, 0) / 2)
        spread = np.sqrt(np.maximum(free * np.mean(residual**2, 0), rounding**2))
        # Noise that varies from place to place
        by_place = np.sqrt(free * (weights**2) @ residual**2)
        noise = Z * np.maximum(by_place, spread * np.sqrt(np.sum(weights**2)))
        is_noise = (spread <= STRUCTURE * np.maximum(twins, rounding)) & (
            np.abs(residual).max(0) <= OUTLIER * spread
        )
        values.append(weights @ f)
        # Roundings of neighbours may be correlated
        noises.append(np.maximum(noise, rounding * np.sum(np.abs(weights))))
        bars.append(np.where(is_noise, 0.0, np.inf))
    value, noise, bar = np.array(values) * size, np.array(noises) * size, np.array(bars)
    change, n = np.abs(np.diff(value, axis=0)), len(value)
    bar[1:-1] += noise[1:-1] + np.maximum(change[:-1], change[1:])
    bar[0] = np.inf
    for k in range(n - LATE):
        agree = np.abs(value[k] - value[k + 1 :]) <= bar[k] + noise[k + 1 :]
        bar[k] = np.where(agree.all(0), bar[k], np.inf)
    bar[n - LATE :] = np.inf
    best, elements = np.argmin(bar, 0), np.arange(value.shape[1])
    return value[best, elements], bar[best, elements]


# ---- treads
# Mismatches where f is a staircase with a tread as wide as all small steps: rounded to a grid
# (`round(y * 1e3) / 1e3`), f is as flat there as a constant.
# The ladder detects a staircase where it takes several steps on both sides. Near a small input, or
# in a row whose slope is small, a tread is as wide as the ladder, or the first step on one side
# looks like a kink near x. So f is called at places further away, twice at each, a little apart: an
# f that moves from place to place, and never within such a pair, moves in steps, and its zero
# difference is no derivative. No call is made unless a flat element is about to be called wrong.
# Places where f is called, as fractions of the size of an input, or of its tensor if that is larger
PLACES = (2.0, -1.3, 0.85, -0.55, 0.35, -0.23, 0.15, -0.1)
# Distance of the second call from the first, as a fraction of the distance of the place; a tread is
# wider, and a float32 input still moves
TWIN = 2.0**-16
# Fraction of the places to which an output moves at which the two calls agree bit for bit
STILL = 0.75
# Of the size of the outputs: where all steps are higher, they are the function's own, as those of
# round(x) at 1
HIGHEST = 2.0**-5
# Smallest number of values that an output of the tensor takes: a step function, or a clamp between
# its ends, has two
LEVELS = 4


def excuse_treads(run: Run, judged: Judged) -> Iterator[Decided]:
    """Make mismatches undecided where f is flat but moves in steps: 16 calls per pair."""
    d = judged.derivative
    flat = np.flatnonzero(judged.wrong & np.isfinite(judged.analytic) & d.smooth & (d.value == 0))
    for of_pair in run.by_pair(judged.column, judged.out, flat):
        yield Decided(
            of_pair[_in_steps(run, np.unique(judged.column[of_pair]), judged.out[of_pair])],
            Limit.STAIRCASE,
        )


def _in_steps(run: Run, columns: Index, out: Index) -> Mask:
    """Return which outputs [E] of one tensor move where these columns of a tensor are moved
    together; none, unless some output of their tensor moves in steps."""
    point, c = run.point, run.columns
    size = np.maximum(c.scale[columns], rms(c.x[c.of(int(c.tensor[columns[0]]))]))
    move = (
        size
        * (1 + 0.4 * ((np.arange(len(columns)) * 0.618034) % 1))
        * (-1.0) ** np.arange(len(columns))
    )
    x, low, high = c.x[columns], c.low[columns], c.high[columns]

    def moved_by(by: Array) -> Array:
        """Return f where the columns are moved by `by`: in the other direction where they would
        leave their domain, not at all where both directions do."""
        by = np.where((x + by < low) | (x + by > high), -by, by)
        return point.values_at(columns, np.where((x + by < low) | (x + by > high), x, x + by))

    values = np.array([[moved_by(far * t * move) for far in (1.0, 1.0 + TWIN)] for t in PLACES])
    finite = np.isfinite(values).all(1)
    moved = finite & (values[:, 0] != point.f0)
    at_rest = (moved & (values[:, 0] == values[:, 1])).sum(0)
    part = point.parts[point.output_tensor(out[0])]
    ordered = np.sort(
        np.vstack([np.where(finite, values[:, 0], point.f0), point.f0])[:, part], axis=0
    )
    rises = np.diff(ordered, axis=0)
    fine = np.where(rises > 0, rises, np.inf).min(0) <= HIGHEST * rms(run.survey.size[part])
    steps = (at_rest > 0) & (at_rest >= STILL * moved.sum(0))
    return np.asarray(
        moved.any(0)[out] & (steps[part] & fine & ((rises != 0).sum(0) >= LEVELS - 1)).any()
    )


# ---- Columns along which f ends at x, or climbs without bound on both sides: asin at 1, sqrt at 0,
# the root of |x|
def columns_at_ends(run: Run, columns: Index) -> Index:
    """Return those of some columns along which an output ends or climbs without bound: six forward
    calls per column, 48 for a climb."""
    quick = quick_samples(run.point, single_columns(run.point, columns))
    found = quick.at_border[columns]
    for n in np.flatnonzero(~found).tolist():
        steep = quick.growing(n)
        steep = steep[~quick.settles(np.full_like(steep, n), steep)]
        d = single_derivatives(run, np.full_like(steep, columns[n]), steep) if steep.size else None
        found[n] = d is not None and bool((d.outcome == NON_FINITE).any())
    return columns[found]


def excuse_ends(run: Run, judged: Judged) -> Iterator[Decided]:
    """Make gradients that are NaN or infinite undecided along columns that f ends along: six
    forward calls per column, 48 more for a climb."""
    not_numbers = np.flatnonzero(judged.wrong & ~np.isfinite(judged.analytic))
    if not_numbers.size:
        column = judged.column[not_numbers]

        def wrong(few: Index) -> Mask:
            return ~np.isin(column[few], columns_at_ends(run, np.unique(column[few])))

        i = not_numbers[~confirmed_mismatches(column, np.arange(len(column)), wrong)]
        yield Decided(i, np.array(limits(judged.derivative.take(i)), object))


# ---- Ties of order statistics: outputs that no single one of several equal inputs moves, though
# all of them together do (a sort, the median, the third largest)
# There f has no derivative, and no difference along one column shows that: the value in the middle
# of a tie stays where it is whichever of the tied inputs moves. Every order of the tied values has
# its own gradient, so a mismatch against the measured zero proves nothing. Central differences
# distinguish the two: those of a function with a derivative add up (and so do those of kinks along
# single columns), those of a tie do not.
TIED_RUNGS = (8, 10)  # 8e-6 and 6e-7 of s: below the quick rungs, well above the roundings
TRIALS = 12  # at most: one trial shows a tie of three with probability one half
# Fraction of the deficit at the coarser step that must last: the deficit of a smooth function
# shrinks with the step
LASTS = 0.5
SURE = 30.0  # standard deviations of noise
SHARE = 1e-3  # of |a|·s: a smaller deficit does not bear on the gradient in question


def excuse_ties(run: Run, judged: Judged) -> Iterator[Decided]:
    """Make mismatches of zero differences undecided where the output's changes do not add up when
    columns that hold the same number move together.

    At most 144 forward calls in total for a number that several columns hold.
    """
    zeros = np.flatnonzero(judged.wrong & (judged.derivative.value == 0))
    column, c = judged.column[zeros], run.columns
    claimed = SHARE * np.abs(judged.analytic[zeros]) * c.scale[column]
    found = np.zeros(len(zeros), bool)
    for tensor, x in sorted(set(zip(c.tensor[column].tolist(), c.x[column].tolist(), strict=True))):
        of_number = np.flatnonzero((c.tensor[column] == tensor) & (c.x[column] == x))
        out, wanted, equal = judged.out[zeros[of_number]], claimed[of_number], c.of(tensor)
        equal = equal[c.x[equal] == x]
        trials, largest = run.tie_sums.get((tensor, x), (0, np.zeros(len(run.point.f0))))
        while len(equal) > 1 and trials < TRIALS and not (largest[out] > wanted).all():
            trials, largest = trials + 1, np.maximum(largest, _deficit(run, equal, trials))
            run.tie_sums[tensor, x] = trials, largest
        found[of_number] = largest[out] > wanted
    yield Decided(zeros[found], Limit.TIE)


def _deficit(run: Run, columns: Index, trial: int) -> Array:
    """Return the differences [M] between the slope along all columns and the sum of the slopes
    along two halves of them; 0 where the difference shrinks with the step."""
    c = run.columns
    seed, noise, deficits = run.point.seed.within("tied", int(columns[0]), trial), run.noise, []
    move = signed_weights_float32(len(columns), seed.generator("move")) * c.scale[columns]
    half = signed_weights_float32(len(columns), seed.generator("half")) < 0
    for t in (step(1.0, rung) for rung in TIED_RUNGS):
        changes = []
        for part in (move, np.where(half, move, 0.0), np.where(half, 0.0, move)):
            up, down = (run.point.shifted(columns, by) for by in (t * part, -t * part))
            changes.append(up - down)
        both, one, other = changes
        off = np.abs(both - one - other)
        deficits.append(np.where(off > SURE * noise, off / (2 * t), 0.0))
    return np.where(deficits[1] >= LASTS * deficits[0], deficits[1], 0.0)


# ---- Sums of gradients at a kink: a subgradient also holds along several inputs moved together
KINK_RUNGS = range(4, 10)
SUM_SLACK = 1e-6  # of Σ|a|
NEARBY_RUNGS = (6, 8)  # the distances from x of the points whose slopes are measured
WITHIN = 1 / 16  # of that distance: the step of such a slope
# Random sides of the kinks, in addition to those with the largest and the smallest slopes and those
# nearest to the gradients
PIECES = 8
# Of Σ|a|: a sum that exceeds the slopes by less than such a bar counts as one of them
BLURRED = 1e-3
NEARBY_CALLS = 4 * (3 + PIECES)  # forward calls


def judge_kink_sums(run: Run, judged: Judged) -> Judged:
    """Judge elements at a kink that passed as wrong where their sum is no slope of f near x along
    all of them.

    12 forward calls for outputs that share their kinks; 44 more per output whose sum is no slope at
    x itself. Undecided where slopes nearby are not known well enough.
    """
    if not judged.derivative.rough:
        return judged
    kinked = np.flatnonzero((judged.derivative.outcome == KINK) & (judged.verdict == PASS))
    elements_of: dict[int, list[int]] = defaultdict(list)
    for i in kinked.tolist():
        elements_of[int(judged.out[i])].append(i)
    # Outputs that share their columns share the calls
    outputs_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for out, kinks in elements_of.items():
        if len(kinks) > 1:
            outputs_of[tuple(judged.column[kinks].tolist())].append(out)
    for shared, outs in outputs_of.items():
        columns = np.array(shared)
        elements = np.array([elements_of[out] for out in outs])
        for i in elements[beyond_slopes(run, columns, np.array(outs), judged.analytic[elements])]:
            judged = _against_pieces(run, judged, i)
    return judged


def beyond_slopes(run: Run, columns: Index, outs: Index, a: Array) -> Mask:
    """Return the outputs [k] whose analytic values a [k, columns] sum to more than the largest, or
    less than the smallest, slope at x along all columns together."""
    point, c, sides = run.point, run.columns, list[Best]()
    steps = [BASE * c.scale[columns].min() * RATIO ** float(-k) for k in KINK_RUNGS]
    for sign in (-1.0, 1.0):
        values = [point.shifted(columns, sign * h)[outs] for h in steps]
        h = np.repeat(sign * np.array(steps)[:, None], len(outs), 1)
        noise = np.broadcast_to(run.noise[outs], h.shape)
        sides.append(one_sided(np.array(values) - point.f0[outs], h, noise))
    left, right = sides
    pad, total = np.maximum(left.bar, right.bar) + SUM_SLACK * np.abs(a).sum(1), a.sum(1)
    low, high = np.minimum(left.value, right.value), np.maximum(left.value, right.value)
    return np.asarray((total < low - pad) | (total > high + pad))


def _against_pieces(run: Run, judged: Judged, i: Index) -> Judged:
    """Judge elements i of one output against the slopes along all of their columns in the smooth
    pieces of f around x."""
    if run.over_budget(NEARBY_CALLS) or run.columns.rounded:
        return judged.decided(i, Limit.KINK_SUM)
    d = judged.derivative
    a = judged.analytic[i]
    columns = judged.column[i]
    out = int(judged.out[i[0]])
    up = np.where(d.right[i] >= d.left[i], 1, -1)  # the side of each kink with the larger slope
    nearest = np.where(np.abs(a - d.right[i]) <= np.abs(a - d.left[i]), 1, -1)
    source = run.point.seed.generator("pieces", out, int(columns[0]))
    chosen = (up, -up, nearest, *source.choice([-1, 1], (PIECES, len(i))))
    slope, bar = np.array(
        [
            _slope_nearby(run, columns, out, each * source.uniform(0.5, 1.5, len(i)))
            for each in chosen
        ]
    ).T
    off = max(slope.min() - a.sum(), a.sum() - slope.max())
    size = np.abs(a).sum()
    widest = bar.max()
    if off <= SUM_SLACK * size or off <= widest <= BLURRED * size:
        return judged
    if not off - widest > SUM_SLACK * size:
        return judged.decided(i, Limit.KINK_SUM)
    verdict = judged.verdict.copy()
    limit = judged.limit.copy()
    left = d.left.copy()
    right = d.right.copy()
    # The slopes along all columns of the two sides
    verdict[i] = MISMATCH
    limit[i] = Limit.KINK_SUM
    left[i] = slope.min()
    right[i] = slope.max()
    return replace(
        judged, verdict=verdict, limit=limit, derivative=replace(d, left=left, right=right)
    )


def _slope_nearby(run: Run, columns: Index, out: int, away: Array) -> tuple[float, float]:
    """Return the slope of an output along all columns at a point near x, in direction `away`, and
    its bar: 4 forward calls."""
    point = run.point
    c = run.columns
    slopes = list[float]()
    h = 0.0
    for rung in NEARBY_RUNGS:
        distance = BASE * c.scale[columns].min() * RATIO ** float(-rung)
        h = WITHIN * distance
        above, below = (
            point.values_at(columns, c.x[columns] + distance * away + step)[out] for step in (h, -h)
        )
        slopes.append(float(above - below) / (2 * h))
    return slopes[1], abs(slopes[1] - slopes[0]) + Z * float(run.noise[out]) / h


# ---- Undecided elements that are right nevertheless: negligible relative to their own input
# element, or zero where no step moves that
HUNDREDTH = 0.01  # of a derivative: a bar too narrow to hide an error that matters


def pass_slight(run: Run, judged: Judged) -> Judged:
    """Pass undecided elements that are negligible relative to their own |x| and known to a
    HUNDREDTH.

    A floor is divided by the tensor's RMS, or small elements would pass unchecked among large ones.
    In hypot of 1e-12 and 1 that requires digits of the smaller one's derivative that no difference
    of f has.
    """
    d = judged.derivative
    known = (
        (judged.verdict == UNDECIDED)
        & d.smooth
        & (np.abs(judged.analytic - d.value) <= d.bar)
        & (d.bar <= HUNDREDTH * np.abs(d.value))
    )
    # The smaller steps agree
    agreed = ~np.isfinite(d.second) | (d.far & (np.abs(judged.analytic - d.second) <= d.second_bar))
    i = np.flatnonzero(known & agreed & ~judged.tolerances.unproven)
    reach = (
        np.maximum(np.abs(judged.analytic[i]), np.abs(d.value[i]))
        * run.columns.scale[judged.column[i]]
    )
    slight = i[reach <= run.floors()[judged.out[i]]]
    return judged.decided(slight, Limit.NONE)


def pass_unmovable(run: Run, judged: Judged) -> Judged:
    """Pass zeros where x is infinite or NaN: x + h is x for every step h, so that f, finite there,
    is constant along all of them."""
    x, f0 = run.columns.x, run.point.f0
    if run.columns.finite:
        return judged
    i = np.flatnonzero(
        (judged.verdict == UNDECIDED)
        & ~np.isfinite(x[judged.column])
        & np.isfinite(f0[judged.out])
        & (judged.analytic == 0)
    )
    d = judged.derivative.take(i)
    zeros = np.zeros(len(i))
    at_rest = replace(
        d,
        value=zeros,
        bar=zeros,
        noise_bar=zeros,
        outcome=np.full(len(i), SMOOTH, np.int8),
        unchanged=np.ones(len(i), bool),
    )
    return replace(judged.decided(i, Limit.NONE), derivative=judged.derivative.replaced(i, at_rest))


# ---- Symmetric inputs: a function may read one triangle of a symmetric matrix and spread the
# gradient over both
SYMMETRIC = 2.0**-45  # of the largest entry; in float32 only bitwise symmetry is within it


def excuse_symmetric(run: Run, judged: Judged) -> Iterator[Decided]:
    """Excuse mismatches where an input is (conjugate) symmetric: an op may read one triangle and
    spread the gradient over both.

    An element is undecided where the gradient is itself symmetric and right along the symmetric
    direction.
    """
    c = run.columns
    bad = np.flatnonzero(judged.wrong)
    for t, x in enumerate(run.point.buffers):
        if (
            x.dim() < 2
            or not x.numel()
            or x.shape[-1] != x.shape[-2]
            or (c.mirror[c.of(t)] >= 0).any()
            # Symmetric up to rounding: b @ b.mT is not bitwise symmetric everywhere
            or not ((x - x.mT.conj()).abs() <= SYMMETRIC * x.abs().amax()).all()
        ):
            continue
        first, (mirror, sign) = int(c.of(t)[0]), mirror_of(x)
        wrong = bad[c.tensor[judged.column[bad]] == t]
        mirrored = first + mirror[judged.column[wrong] - first]
        signs = sign[judged.column[wrong] - first]
        diagonal = mirrored == judged.column[wrong]
        # The imaginary part of a real diagonal element
        yield Decided(wrong[diagonal & (signs < 0)], Limit.SYMMETRY)
        wrong, mirrored, signs = (each[~diagonal] for each in (wrong, mirrored, signs))
        values = signs * run.analytic(mirrored, judged.out[wrong])
        for column in np.unique(judged.column[wrong]).tolist():
            of_column = np.flatnonzero(judged.column[wrong] == column)
            other = int(mirrored[of_column[0]])
            its_sign = float(signs[of_column[0]])
            right = _right_along_pair(
                run, judged.take(wrong[of_column]), values[of_column], other, its_sign
            )
            yield Decided(wrong[of_column][right], Limit.SYMMETRY)


def _right_along_pair(run: Run, judged: Judged, mirrored: Array, other: int, sign: float) -> Mask:
    """Return which elements of one column are right when it moves together with its mirror image
    `other`, whose analytic values are `mirrored` [E]."""
    column = int(judged.column[0])
    scale = run.columns.scale[column]
    line = DirectionLine(run.point, np.array([column, other]), np.array([scale, sign * scale]))
    wanted = np.full(len(run.point.f0), np.inf)
    wanted[judged.out] = (
        judged.tolerances.tolerance(judged.analytic, judged.derivative.value) * scale / 2
    )
    d = derivative(line, run.outputs(), rtol=0.0, atol=wanted).take(judged.out)
    analytic = judged.analytic + mirrored
    numeric = d.value / scale
    bar = d.bar / scale
    tolerance = judged.tolerances.tolerance(analytic, numeric)
    return np.asarray(
        (np.abs(judged.analytic - mirrored) <= tolerance)
        & (np.abs(analytic - numeric) <= tolerance + bar)
    )


# ---- The excuses for a mismatch, in the order in which they are tried. A mismatch that no excuse
# explains is wrong
Excuse = Callable[[Run, Judged], Iterator[Decided]]
"""The mismatches that it explains, with the reason; it writes nothing, and calls nothing where none
is left."""
EXCUSES: tuple[Excuse, ...] = (
    excuse_ends,
    excuse_symmetric,
    excuse_uncertain,
    excuse_ties,
    excuse_rounded,
    excuse_backward_noise,
    excuse_cancelled,
    excuse_treads,
)


def excused(run: Run, judged: Judged) -> Judged:
    """Return the elements with all excuses applied, however they were measured: slight and
    unmovable ones passed, mismatches excused, sums at kinks judged."""
    judged, above = judge_above_steps(run, pass_unmovable(run, judged.with_limits()))
    judged = pass_slight(run, judged)
    for excuse in EXCUSES:
        if judged.wrong.any():
            for found in excuse(run, judged):
                judged = judged.decided(*found)
    judged = pass_fitted(run, judge_kink_sums(run, judged), above)
    return judged.decided(above[judged.verdict[above] == UNDECIDED], Limit.CANCELS)
