"""Ties of order statistics: outputs that no one of several equal inputs moves, and all of them do
(a sort, the median, the third largest).

There f has no derivative, and no difference along one column shows it: the value in the middle of a
tie stays where it is whichever of the tied moves. Every order of the tied values has a gradient of
its own, so a mismatch against the zero that was measured proves nothing. Central differences
tell: those of a function with a derivative add up (and so do those of kinks along single columns),
those of a tie do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.estimate.romberg import Best, one_sided
from gradverify.numerics.judging.judged import Decided, Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import BASE, RATIO, Array, Index, Mask, Z, step
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.verdict import MISMATCH, PASS, Limit, Verdict

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
    claimed, found = (
        SHARE * np.abs(judged.analytic[zeros]) * c.scale[column],
        np.zeros(len(zeros), bool),
    )
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
    return np.asarray(largest[out] > claimed)


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
    d, a, columns, out = (
        judged.derivative,
        judged.analytic[i],
        judged.column[i],
        int(judged.out[i[0]]),
    )
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
    off, size, widest = (
        max(slope.min() - a.sum(), a.sum() - slope.max()),
        np.abs(a).sum(),
        bar.max(),
    )
    if off <= SUM_SLACK * size or off <= widest <= BLURRED * size:
        return judged
    if not off - widest > SUM_SLACK * size:
        return judged.undecided(i, Limit.KINK_SUM)
    verdict, limit, left, right = (
        judged.verdict.copy(),
        judged.limit.copy(),
        d.left.copy(),
        d.right.copy(),
    )
    # The sides: along all of them
    verdict[i], limit[i], left[i], right[i] = MISMATCH, Limit.KINK_SUM, slope.min(), slope.max()
    return replace(
        judged, verdict=verdict, limit=limit, derivative=replace(d, left=left, right=right)
    )


def _slope_nearby(run: Run, columns: Index, out: int, away: Array) -> tuple[float, float]:
    """The slope of an output along all columns at a point beside x, in a direction, and its bar: 4
    forward calls."""
    point, c, slopes, h = run.point, run.point.columns, list[float](), 0.0
    for rung in NEARBY_RUNGS:
        distance = BASE * c.scale[columns].min() * RATIO ** float(-rung)
        h = WITHIN * distance
        above, below = (
            point.values_at(columns, c.x[columns] + distance * away + step)[out] for step in (h, -h)
        )
        slopes.append(float(above - below) / (2 * h))
    return slopes[1], abs(slopes[1] - slopes[0]) + Z * float(run.noise[out]) / h
