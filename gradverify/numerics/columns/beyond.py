"""Mismatches beyond the largest rounding error that f can have: they stand without another call.

Where a check has spent what it may, one of them is enough to say that backward is wrong: nothing is measured then that could excuse others.
"""

from __future__ import annotations

import numpy as np

from gradverify.numerics.columns.coarse import FAR_BELOW, LARGEST
from gradverify.numerics.columns.judged import Judged
from gradverify.numerics.columns.run import Run
from gradverify.numerics.compare import verdicts
from gradverify.numerics.function.flat import rms
from gradverify.numerics.rungs import BASE, Array, Mask, Z
from gradverify.numerics.verdict import MISMATCH, Limit

RESOLVED = 0.01  # of a derivative: a bar in which no steps hide, as they would differ from rung to rung by more
BEYOND = 10.0  # times what an output was seen to be: how far it may go on points far apart


def only_certain(run: Run, judged: Judged) -> Judged:
    """Mismatches that rounding might explain are left open beside one that it cannot; as they are where there is none."""
    wrong = judged.verdict == MISMATCH
    certain = wrong & beyond_cancelling(run, judged)
    return judged.undecided(np.flatnonzero(wrong & ~certain), Limit.BUDGET) if certain.any() and not certain[wrong].all() else judged


def beyond_cancelling(run: Run, judged: Judged) -> Mask:
    """Mismatches [E] that stand against the largest noise that cancelling numbers can bring into f, as `coarse_noise` would measure it."""
    d, noise = judged.derivative, _largest(run)[judged.out]
    used = run.noise[judged.out]
    scale = run.point.columns.scale[judged.column]
    own = np.maximum(d.noise_bar, Z * used / np.maximum(scale, 1.0))
    resolved = d.smooth & (used > 0) & (d.bar <= RESOLVED * np.abs(d.value))
    still = d.unchanged & _alone(run, judged)
    steps = FAR_BELOW * BEYOND * run.survey.size[judged.out]
    extra = np.where(d.unchanged, Z * np.maximum(noise, steps) / (BASE * scale), own * noise / np.where(used > 0, used, 1.0))
    stands = verdicts(judged.a, d, judged.bounds, d.at_border, extra) == MISMATCH
    return np.asarray(stands & (resolved | still | ~np.isfinite(judged.a)))


def _largest(run: Run) -> Array:
    """The rounding [M] of the largest numbers that are taken to cancel in each output."""
    point, noise = run.point, np.zeros(len(run.point.f0))
    for part in point.parts:
        noise[part] = LARGEST * point.unit[part] * max(1.0, rms(point.x), rms(run.survey.size[part]))
    return noise


def _alone(run: Run, judged: Judged) -> Mask:
    """Elements [E] whose column holds a number that no other column of its tensor does: a tie hides from single columns."""
    c, alone = run.point.columns, np.zeros(len(judged.a), bool)
    for tensor in np.unique(c.tensor[judged.column]).tolist():
        values, counts = np.unique(c.x[c.of(tensor)], return_counts=True)
        own = np.flatnonzero(c.tensor[judged.column] == tensor)
        alone[own] = np.isin(c.x[judged.column[own]], values[counts == 1])
    return alone
