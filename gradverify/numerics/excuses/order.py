"""Mismatches where f is a staircase with a tread as wide as all small steps: rounded to a grid
(`round(y * 1e3) / 1e3`), it is as flat there as a constant.

The ladder of steps sees a staircase where it takes several steps on both sides. Beside an input
that is small, or in a row whose slope is small, a tread is as wide as the ladder, or the first step
on one side looks like a kink beside x. So f is called at places further away, each twice, a little
apart: what moves from place to place, and never between the two, moves in steps. There zero is no
derivative. Nothing is called but where something flat is about to be called wrong.

Ties of order statistics: outputs that no one of several equal inputs moves, and all of them do
(a sort, the median, the third largest).

There f has no derivative, and no difference along one column shows it: the value in the middle of a
tie stays where it is whichever of the tied moves. Every order of the tied values has a gradient of
its own, so a mismatch against the zero that was measured proves nothing. Central differences
tell: those of a function with a derivative add up (and so do those of kinks along single columns),
those of a tie do not.

The reasons for which an element that differs is right or undecided, in the order in which they
are tried.

Here are those of undecided elements and of symmetric inputs; the larger ones are modules of this
folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from torch import Tensor

from gradverify.numerics.estimate.climb import Ladders, derivative
from gradverify.numerics.estimate.ladder import KINK, NON_FINITE, SMOOTH, Best, one_sided
from gradverify.numerics.excuses.rounding import (
    excuse_backward_noise,
    excuse_cancelled,
    excuse_rounded,
    excuse_uncertain,
    judge_above_steps,
)
from gradverify.numerics.excuses.wide_fits import pass_fitted
from gradverify.numerics.function.coordinates import mirror_of, rms
from gradverify.numerics.function.point import DirectionLine
from gradverify.numerics.judging import (
    Bundle,
    Decided,
    Judged,
    Run,
    lone_columns,
    quick_samples,
    standing,
)
from gradverify.numerics.rungs import BASE, RATIO, Array, Index, Mask, Z, step
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.sparsity.pattern import NO_ENTRY
from gradverify.numerics.tolerance import limits
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED, Limit, Verdict

# ---- treads
# Of the size of an input, or of its tensor if that is larger: where f is called
PLACES = (2.0, -1.3, 0.85, -0.55, 0.35, -0.23, 0.15, -0.1)
# Of that distance: how far the second call is from the first; a tread is wider, and a float32 input
# still moves
TWIN = 2.0**-16
# Of the places to which an output moves: at so many the two calls agree, bit for bit
STILL = 0.75
# Of the size of the outputs: steps that are all higher are the function's own, as those of round(x)
# at 1
HIGHEST = 2.0**-5
# Values at least that an output of the tensor takes: a step function, or a clamp between its ends,
# has two
LEVELS = 4


def excuse_treads(run: Run, judged: Judged) -> Iterator[Decided]:
    """Mismatches with a flat f that moves in steps are undecided: 16 calls a pair."""
    d = judged.derivative
    flat = np.flatnonzero(
        (judged.verdict == MISMATCH) & np.isfinite(judged.analytic) & d.smooth & (d.value == 0)
    )
    for of_pair in run.by_pair(judged.column, judged.out, flat):
        yield Decided(
            of_pair[_in_steps(run, np.unique(judged.column[of_pair]), judged.out[of_pair])],
            Limit.STAIRCASE,
        )


def _in_steps(run: Run, columns: Index, out: Index) -> Mask:
    """Which outputs [E] of one tensor move where these columns of a tensor are moved together;
    none, unless some of their tensor move in steps."""
    point, c = run.point, run.point.columns
    size = np.maximum(c.scale[columns], rms(c.x[c.of(int(c.tensor[columns[0]]))]))
    move = (
        size
        * (1 + 0.4 * ((np.arange(len(columns)) * 0.618034) % 1))
        * (-1.0) ** np.arange(len(columns))
    )
    values = np.array(
        [
            [
                point.values_at(columns, _within(run, columns, far * t * move))
                for far in (1.0, 1.0 + TWIN)
            ]
            for t in PLACES
        ]
    )
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


def _within(run: Run, columns: Index, move: Array) -> Array:
    """The columns moved so far; to the other side where they would leave their domain, not at all
    where both do."""
    c = run.point.columns
    x = c.x[columns]
    low = c.low[columns]
    high = c.high[columns]
    outside = (x + move < low) | (x + move > high)
    move = np.where(outside, -move, move)
    return np.where((x + move < low) | (x + move > high), x, x + move)


# ---- Columns along which f ends at x, or climbs without bound on both sides: asin at 1, sqrt at 0,
# the root of |x|
def columns_at_ends(run: Run, bundle: Bundle) -> Index:
    """The columns of a bundle's lines along which an output that they own ends or climbs without
    bound: six forward calls a line, 48 for a climb."""
    # The last one answers for NO_ENTRY
    quick, found = quick_samples(run.point, bundle), np.zeros(len(run.point.columns) + 1, bool)
    border = quick.at_border
    found[: len(border)] = border
    for n, column_of in enumerate(bundle.column_of):
        steep = quick.growing(n)
        steep = steep[
            (column_of[steep] != NO_ENTRY)
            & ~found[column_of[steep]]
            & ~quick.settles(np.full_like(steep, n), steep)
        ]
        if steep.size:
            ladders = Ladders([bundle.lines[n]], run.outputs(), np.zeros_like(steep), steep)
            found[column_of[steep[ladders.every_rung().outcome == NON_FINITE]]] = True
    return np.flatnonzero(found[:-1])


def excuse_ends(run: Run, judged: Judged) -> Iterator[Decided]:
    """Gradients that are no number are undecided along columns that f ends along: six forward calls
    a column, 48 more for a climb."""
    not_numbers = np.flatnonzero((judged.verdict == MISMATCH) & ~np.isfinite(judged.analytic))
    if not_numbers.size:
        column = judged.column[not_numbers]

        def stands(few: Index) -> Mask:
            return ~np.isin(
                column[few], columns_at_ends(run, lone_columns(run.point, np.unique(column[few])))
            )

        i = not_numbers[~standing(column, np.arange(len(column)), stands)]
        yield Decided(i, np.array(limits(judged.derivative.take(i)), object))


# ---- Ties of order statistics: outputs that no one of several equal inputs moves, and all of them
# do (a sort, the median, the third largest)
TIED_RUNGS = (8, 10)  # 8e-6 and 6e-7 of s: below the quick rungs, well above the roundings
TRIALS = 12  # at most: one shows a tie of three with a chance of a half
# Of what is missing at the coarser step: that of a smooth function goes with the step
LASTS = 0.5
SURE = 30.0  # standard deviations of noise
SHARE = 1e-3  # of |a|·s: less is another matter than the gradient in question


def excuse_ties(run: Run, judged: Judged) -> Iterator[Decided]:
    """Mismatches of zero differences are undecided where the output does not add up when columns
    that hold the same number move together.

    At most 144 forward calls in all for a number that several columns hold.
    """
    zeros = np.flatnonzero((judged.verdict == Verdict.MISMATCH) & (judged.derivative.value == 0))
    column, c = judged.column[zeros], run.point.columns
    claimed = SHARE * np.abs(judged.analytic[zeros]) * c.scale[column]
    found = np.zeros(len(zeros), bool)
    for tensor, x in sorted(set(zip(c.tensor[column].tolist(), c.x[column].tolist(), strict=True))):
        of_number = np.flatnonzero((c.tensor[column] == tensor) & (c.x[column] == x))
        found[of_number] = _do_not_add_up(
            run, tensor, x, judged.out[zeros[of_number]], claimed[of_number]
        )
    yield Decided(zeros[found], Limit.TIE)


def _do_not_add_up(run: Run, tensor: int, x: float, out: Index, claimed: Array) -> Mask:
    """Of which outputs [k] more than is `claimed` is missing when the columns of this number move
    together, as far as is known or can be asked."""
    equal = run.point.columns.of(tensor)
    equal = equal[run.point.columns.x[equal] == x]
    trials, largest = run.tie_sums.get((tensor, x), (0, np.zeros(len(run.point.f0))))
    while len(equal) > 1 and trials < TRIALS and not (largest[out] > claimed).all():
        trials, largest = trials + 1, np.maximum(largest, _deficit(run, equal, trials))
        run.tie_sums[tensor, x] = trials, largest
    return largest[out] > claimed


def _deficit(run: Run, columns: Index, trial: int) -> Array:
    """By how much slopes [M] along two halves of the columns miss that along both; 0 where less and
    less is missing."""
    seed = run.point.seed.within("tied", int(columns[0]), trial)
    move = (
        signed_weights_float32(len(columns), seed.generator("move"))
        * run.point.columns.scale[columns]
    )
    half = signed_weights_float32(len(columns), seed.generator("half")) < 0
    noise = run.noise
    deficits = []
    for t in (step(1.0, rung) for rung in TIED_RUNGS):
        both, one, other = (
            _change(run, columns, t * part)
            for part in (move, np.where(half, move, 0.0), np.where(half, 0.0, move))
        )
        off = np.abs(both - one - other)
        deficits.append(np.where(off > SURE * noise, off / (2 * t), 0.0))
    return np.where(deficits[1] >= LASTS * deficits[0], deficits[1], 0.0)


def _change(run: Run, columns: Index, move: Array) -> Array:
    """f(x + move) − f(x − move) [M]."""
    c, x = run.point.columns, run.point.columns.x[columns]
    up, down = (
        run.point.values_at(columns, c.cast(x + sign * move, columns)) for sign in (1.0, -1.0)
    )
    return up - down


# ---- Sums of gradients at a kink: a subgradient holds along several inputs moved together, too
KINK_RUNGS = range(4, 10)
SUM_SLACK = 1e-6  # of Σ|a|
NEARBY_RUNGS = (6, 8)  # the distances from x of the points whose slopes are measured
WITHIN = 1 / 16  # of that distance: the step of such a slope
# Random sides of the kinks, beside those with the largest and the least slopes and those nearest to
# the gradients
PIECES = 8
BLURRED = 1e-3  # of Σ|a|: a sum that lies beyond the slopes by less than such a bar is one of them
NEARBY_CALLS = 4 * (3 + PIECES)  # forward calls


def judge_kink_sums(run: Run, judged: Judged) -> Judged:
    """Elements at a kink that passed are wrong where their sum is no slope that f has near x along
    all of them.

    12 forward calls for outputs that share their kinks; 44 more an output whose sum is no slope at
    x itself. Undecided where slopes nearby are not known well enough.
    """
    if not judged.derivative.rough:
        return judged
    kinked = np.flatnonzero((judged.derivative.outcome == KINK) & (judged.verdict == PASS))
    elements_of: dict[int, list[int]] = defaultdict(list)
    for i in kinked.tolist():
        elements_of[int(judged.out[i])].append(i)
    # That share their columns share the calls
    outputs_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for out, kinks in elements_of.items():
        if len(kinks) > 1:
            outputs_of[tuple(judged.column[kinks].tolist())].append(out)
    for shared, outs in outputs_of.items():
        columns, elements = np.array(shared), np.array([elements_of[out] for out in outs])
        for i in elements[beyond_slopes(run, columns, np.array(outs), judged.analytic[elements])]:
            judged = _against_pieces(run, judged, i)
    return judged


def beyond_slopes(run: Run, columns: Index, outs: Index, a: Array) -> Mask:
    """Outputs [k] whose analytic values a [k, columns] add up to more, or less, than the slopes at
    x along all columns together."""
    left, right = (_joint_side(run, columns, outs, sign) for sign in (-1.0, 1.0))
    pad, total = np.maximum(left.bar, right.bar) + SUM_SLACK * np.abs(a).sum(1), a.sum(1)
    low, high = np.minimum(left.value, right.value), np.maximum(left.value, right.value)
    return np.asarray((total < low - pad) | (total > high + pad))


def _joint_side(run: Run, columns: Index, outs: Index, sign: float) -> Best:
    point, c = run.point, run.point.columns
    steps = [BASE * c.scale[columns].min() * RATIO ** float(-k) for k in KINK_RUNGS]
    values = np.array([point.values_at(columns, c.x[columns] + sign * h)[outs] for h in steps])
    noise = run.noise[outs]
    h = np.repeat(sign * np.array(steps)[:, None], len(outs), 1)
    return one_sided(values - point.f0[outs], h, np.broadcast_to(noise, h.shape))


def _against_pieces(run: Run, judged: Judged, i: Index) -> Judged:
    """Elements i of one output against the slopes along all of their columns in the pieces of f
    around x."""
    if run.over_budget(NEARBY_CALLS) or run.point.columns.rounded:
        return judged.undecided(i, Limit.KINK_SUM)
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
        return judged.undecided(i, Limit.KINK_SUM)
    verdict = judged.verdict.copy()
    limit = judged.limit.copy()
    left = d.left.copy()
    right = d.right.copy()
    # The sides: along all of them
    verdict[i] = MISMATCH
    limit[i] = Limit.KINK_SUM
    left[i] = slope.min()
    right[i] = slope.max()
    return replace(
        judged, verdict=verdict, limit=limit, derivative=replace(d, left=left, right=right)
    )


def _slope_nearby(run: Run, columns: Index, out: int, away: Array) -> tuple[float, float]:
    """The slope of an output along all columns at a point beside x, in a direction, and its bar: 4
    forward calls."""
    point = run.point
    c = run.point.columns
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


# ---- Undecided elements that are right all the same: negligible by the size of their own input
# element, or zero where no step moves that
HUNDREDTH = 0.01  # of a derivative: a bar in which no error that matters could hide


def pass_slight(run: Run, judged: Judged) -> Iterator[Decided]:
    """Undecided elements that are negligible by their own |x|, and known to a HUNDREDTH, are right.

    A floor is divided by the tensor's RMS, or small elements would pass unseen beside large ones;
    in hypot of 1e-12 and 1 that asks for digits of the smaller one's derivative that no difference
    of f has.
    """
    d = judged.derivative
    known = (
        (judged.verdict == UNDECIDED)
        & d.smooth
        & (np.abs(judged.analytic - d.value) <= d.bar)
        & (d.bar <= HUNDREDTH * np.abs(d.value))
    )
    # The nearer steps do not say otherwise
    agreed = ~np.isfinite(d.second) | (d.far & (np.abs(judged.analytic - d.second) <= d.second_bar))
    i = np.flatnonzero(known & agreed & ~judged.tolerances.unproven)
    reach = (
        np.maximum(np.abs(judged.analytic[i]), np.abs(d.value[i]))
        * run.point.columns.scale[judged.column[i]]
    )
    yield Decided(i[reach <= run.floors()[judged.out[i]]], Limit.NONE)


def pass_unmovable(run: Run, judged: Judged) -> Judged:
    """Zeros where x is infinite or NaN: x + h is x for every step h, so f, finite there, is
    constant along all of them."""
    x, f0 = run.point.columns.x, run.point.f0
    if run.point.columns.finite:
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
    return replace(judged.passed(i), derivative=judged.derivative.replaced(i, at_rest))


# ---- Symmetric inputs: a function may read one triangle of a symmetric matrix and spread the
# gradient over both
SYMMETRIC = 2.0**-45  # of the largest entry; in float32 only bitwise symmetry is within it


def excuse_symmetric(run: Run, judged: Judged) -> Iterator[Decided]:
    """Where an input is (conjugate) symmetric: an op may read one triangle and spread the gradient
    over both.

    Undecided where the gradient is itself symmetric, and right along the symmetric direction.
    """
    c, bad = run.point.columns, np.flatnonzero(judged.verdict == MISMATCH)
    for t, x in enumerate(run.point.buffers):
        if (
            x.dim() < 2
            or not x.numel()
            or x.shape[-1] != x.shape[-2]
            or (c.mirror[c.of(t)] >= 0).any()
            or not _symmetric(x)
        ):
            continue
        first, (mirror, sign) = int(c.of(t)[0]), mirror_of(x)
        wrong = bad[c.tensor[judged.column[bad]] == t]
        mirrored = first + mirror[judged.column[wrong] - first]
        signs = sign[judged.column[wrong] - first]
        diagonal = mirrored == judged.column[wrong]
        # The imaginary part of a real number
        yield Decided(wrong[diagonal & (signs < 0)], Limit.SYMMETRY)
        wrong = wrong[~diagonal]
        mirrored = mirrored[~diagonal]
        signs = signs[~diagonal]
        values = signs * run.analytic(mirrored, judged.out[wrong])
        for column in np.unique(judged.column[wrong]).tolist():
            of_column = np.flatnonzero(judged.column[wrong] == column)
            other, its_sign = int(mirrored[of_column[0]]), float(signs[of_column[0]])
            right = _right_along_pair(
                run, judged.take(wrong[of_column]), values[of_column], other, its_sign
            )
            yield Decided(wrong[of_column][right], Limit.SYMMETRY)


def _symmetric(x: Tensor) -> bool:
    """Equal to its (conjugate) transpose, to rounding: b @ b.mT is not bitwise symmetric
    everywhere."""
    return bool(((x - x.mT.conj()).abs() <= SYMMETRIC * x.abs().amax()).all())


def _right_along_pair(run: Run, judged: Judged, mirrored: Array, other: int, sign: float) -> Mask:
    """Elements of one column that are right when it moves together with its mirror image `other`,
    whose analytic values are `mirrored` [E]."""
    column = int(judged.column[0])
    scale = run.point.columns.scale[column]
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


# ---- What may explain a mismatch, in the order in which it is asked. What no excuse explains is
# wrong
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
    """The elements as a check tells of them, whatever they were measured with: slight and unmovable
    ones passed, mismatches excused, kinks summed."""
    judged, above = judge_above_steps(run, pass_unmovable(run, judged))
    for excuse in (pass_slight, *EXCUSES):
        if excuse is pass_slight or (judged.verdict == MISMATCH).any():
            for found in excuse(run, judged):
                judged = judged.decided(found) if len(found.i) else judged
    judged = pass_fitted(run, judge_kink_sums(run, judged), above)
    return judged.undecided(above[judged.verdict[above] == UNDECIDED], Limit.CANCELS)
