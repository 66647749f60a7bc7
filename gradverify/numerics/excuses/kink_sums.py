"""Sums of gradients at a kink: a subgradient holds along several inputs moved together, too.

The slopes of f between points near x are averages of the gradients there (Lebourg's mean value theorem), and
the limits of these span the subdifferential (Clarke, Optimization and Nonsmooth Analysis, 1983). So the sum
of an output's gradients over several kinked inputs lies between the least and the largest slope along all of
them together that f has near x: at x itself, and in the pieces on either side of the kinks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.estimate.romberg import Best, one_sided
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import BASE, RATIO, Array, Index, Mask, Z
from gradverify.numerics.verdict import MISMATCH, PASS, Limit

KINK_RUNGS = range(4, 10)
SUM_SLACK = 1e-6  # of Σ|a|
NEARBY_RUNGS = (6, 8)  # the distances from x of the points whose slopes are measured
WITHIN = 1 / 16  # of that distance: the step of such a slope
PIECES = 8  # random sides of the kinks, and at most as many of each kind of chosen ones
BLURRED = 1e-3  # of Σ|a|: a sum that lies beyond the slopes by less than such a bar is one of them
NEARBY_CALLS = 4 * 4 * PIECES  # forward calls at most


def judge_kink_sums(run: Run, judged: Judged) -> Judged:
    """Elements at a kink that passed are wrong where their sum is no slope that f has near x along all of them.

    12 forward calls for outputs that share their kinks; 128 more at most where the sum is no slope at x itself.
    Undecided where slopes nearby are not known well enough.
    """
    if not judged.derivative.rough:
        return judged
    kinked = np.flatnonzero((judged.derivative.outcome == KINK) & (judged.verdict == PASS))
    elements_of: dict[int, list[int]] = defaultdict(list)
    for i in kinked.tolist():
        elements_of[int(judged.out[i])].append(i)
    outputs_of: dict[tuple[int, ...], list[int]] = defaultdict(list)  # that share their columns share the calls
    for out, kinks in elements_of.items():
        if len(kinks) > 1:
            outputs_of[tuple(judged.column[kinks].tolist())].append(out)
    for shared, outs in outputs_of.items():
        columns, elements = np.array(shared), np.array([elements_of[out] for out in outs])
        beyond = beyond_slopes(run, columns, np.array(outs), judged.analytic[elements])
        if beyond.any():
            judged = _against_pieces(run, judged, columns, elements[beyond])
    return judged


def beyond_slopes(run: Run, columns: Index, outs: Index, a: Array) -> Mask:
    """Outputs [k] whose analytic values a [k, columns] add up to more, or less, than the slopes at x along all columns together."""
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


def _against_pieces(run: Run, judged: Judged, columns: Index, i: Index) -> Judged:
    """Elements i [k, columns] of k outputs against the slopes in the pieces of f around x."""
    if run.over_budget(NEARBY_CALLS) or run.point.columns.rounded:
        return judged.undecided(i.ravel(), Limit.KINK_SUM)
    d, a, outs = judged.derivative, judged.analytic[i], judged.out[i[:, 0]]
    up = np.where(d.right[i] >= d.left[i], 1, -1)  # the side of each kink with the larger slope
    nearest = np.where(np.abs(a - d.right[i]) <= np.abs(a - d.left[i]), 1, -1)
    chosen = [np.unique(sides, axis=0)[:PIECES] for sides in (up, -up, nearest)]
    sides = np.concatenate([*chosen, run.point.seed.generator("pieces", int(outs[0]), int(columns[0])).choice([-1, 1], (PIECES, len(columns)))])
    known = np.array([
        all((of_each == own[n]).all(1).any() for own, of_each in zip((up, -up, nearest), chosen, strict=True))
        for n in range(len(i))
    ])
    slope, bar = np.array([_slope_nearby(run, columns, outs, each, n) for n, each in enumerate(sides)]).transpose(1, 0, 2)
    total, size = a.sum(1), np.abs(a).sum(1)
    low, high = slope.argmin(0), slope.argmax(0)
    k = np.arange(len(i))
    off = np.maximum(slope[low, k] - total, total - slope[high, k])
    widest = bar.max(0)
    wrong = known & (off - widest > SUM_SLACK * size)
    right = (off <= SUM_SLACK * size) | ((off <= widest) & (widest <= BLURRED * size))
    judged = judged.undecided(i[~wrong & ~right].ravel(), Limit.KINK_SUM)
    return _with_wrong_sums(judged, i[wrong], slope[low, k][wrong], slope[high, k][wrong])


def _slope_nearby(run: Run, columns: Index, outs: Index, sides: Index, number: int) -> tuple[Array, Array]:
    """The slope of outputs [k] along all columns at a point on these sides of the kinks, and its bar: 4 forward calls."""
    point, c = run.point, run.point.columns
    source = point.seed.generator("near pieces", int(outs[0]), int(columns[0]), number)
    away, slopes, noise = sides * source.uniform(0.5, 1.5, len(columns)), [], np.zeros(len(outs))
    for rung in NEARBY_RUNGS:
        distance = BASE * c.scale[columns].min() * RATIO ** float(-rung)
        h = WITHIN * distance
        above, below = (point.values_at(columns, c.x[columns] + distance * away + step)[outs] for step in (h, -h))
        slopes.append((above - below) / (2 * h))
        noise = Z * run.noise[outs] / h
    coarse, fine = slopes
    return fine, np.abs(fine - coarse) + noise


def _with_wrong_sums(judged: Judged, i: Index, low: Array, high: Array) -> Judged:
    """Elements i [k, columns] as mismatches; their `left` and `right` are the least and the largest slope along all of them."""
    if not len(i):
        return judged
    verdict, limit, d = judged.verdict.copy(), judged.limit.copy(), judged.derivative
    left, right = d.left.copy(), d.right.copy()
    verdict[i], limit[i] = MISMATCH, Limit.KINK_SUM
    left[i], right[i] = low[:, None], high[:, None]
    return replace(judged, verdict=verdict, limit=limit, derivative=replace(d, left=left, right=right))
