"""Sums of elements at a kink: a subgradient holds along several inputs moved together, too."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.estimate.romberg import Best, one_sided
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import BASE, RATIO, Array, Index, Mask
from gradverify.numerics.verdict import PASS, Limit

KINK_RUNGS = range(4, 10)
SUM_SLACK = 1e-6  # of Σ|a|


def doubt_kinks(run: Run, judged: Judged) -> Judged:
    """Elements at a kink that passed are undecided where their sum is no slope of f when all of one output are moved together by equal steps.

    Undecided, not wrong: torch's own `clamp(x).sum()` with both bounds hit looks like that.
    """
    if not judged.derivative.rough:
        return judged
    kinked = np.flatnonzero((judged.derivative.outcome == KINK) & (judged.verdict == PASS))
    elements_of: dict[int, list[int]] = defaultdict(list)
    for i in kinked.tolist():
        elements_of[int(judged.out[i])].append(i)
    outputs_of: dict[tuple[int, ...], list[int]] = defaultdict(list)  # outputs that share their columns share the calls
    for out, kinks in elements_of.items():
        if len(kinks) > 1:
            outputs_of[tuple(judged.column[kinks].tolist())].append(out)
    for columns, outs in outputs_of.items():
        beyond = beyond_slopes(run, np.array(columns), np.array(outs), np.array([judged.analytic[elements_of[out]] for out in outs]))
        for out in np.array(outs)[beyond].tolist():
            judged = judged.undecided(np.array(elements_of[out]), Limit.KINK_SUM)
    return judged


def beyond_slopes(run: Run, columns: Index, outs: Index, a: Array) -> Mask:
    """Of which outputs [k] the sum of their analytic values a [k, columns] lies outside the slopes along all columns together: 12 forward calls."""
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
