"""Mismatches that cancellation inside f may explain: 1 + erf(x) near −1, or 1 − cos(x) at 1e-9, moves in steps of the rounding of 1.

Such a step can hold the whole ladder: f is constant there, or a slope of its own, as exactly as a smooth function. Points further apart, along
a direction that moves every input, show the steps as noise. A mismatch must stand against that noise too. None of this costs a call before
something is about to be called wrong. One that is beyond the largest rounding error that f can have stands without another call; where a check has
spent what it may, such a one is enough to say that backward is wrong: nothing is measured then that could excuse others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.estimate.noise import FLAT, POINTS
from gradverify.numerics.judging.judged import Judged, standing
from gradverify.numerics.judging.quick_samples import LoneLadders
from gradverify.numerics.judging.run import FAR_BELOW, Run, largest_rounding
from gradverify.numerics.rungs import BASE, NEAR, Array, Index, Mask, Z
from gradverify.numerics.verdict import MISMATCH, UNDECIDED, Limit

STEPLESS = 0.01  # of a derivative: a bar in which no steps hide, as they would differ from rung to rung by more
BEYOND = 10.0  # times what an output was seen to be: how far it may go on points far apart
MEASURED = 45  # forward calls at least that the noise far apart takes


def excuse_cancelled(run: Run, judged: Judged) -> Judged:
    """Mismatches that the rounding of cancelling numbers may explain are undecided.

    At most 117 forward calls for all, and 48 a column of those that its noise at the steps of their differences would hide.
    """
    for of_pair in run.by_pair(judged.column, judged.out, _suspects(run, judged)):
        i = of_pair[_hidden(run, judged.take(of_pair))]
        if i.size:
            judged = _left_open(run, judged, i[~_standing(run, judged, i)])
    return judged


def excuse_shaken(run: Run, judged: Judged) -> Judged:
    """Mismatches that the roundings of every operation in f may explain are undecided: where a smooth function is left of numbers that cancel.

    So of p · log(p) where one p is 1 but for 1e-17: its logarithm is 0 at all points around, far ones too. 9 calls, and as `excuse_cancelled`; none
    of pairs with a mismatch that no rounding explains.
    """
    certain = beyond_cancelling(run, judged)
    for of_pair in run.by_pair(judged.column, judged.out, np.flatnonzero(judged.verdict == MISMATCH)):
        if not certain[of_pair].any():
            judged = judged.replaced(of_pair, excuse_cancelled(run.shaken, judged.take(of_pair)))
    return judged


def name_cancelling(run: Run, judged: Judged) -> Judged:
    """Elements undecided on steps that are the rounding of larger numbers inside f, by that name: 9 forward calls."""
    i = np.flatnonzero((judged.verdict == UNDECIDED) & (judged.limit == Limit.STAIRCASE))
    if not i.size or run.over_budget(POINTS):
        return judged
    return judged.undecided(i[(run.rounding > FLAT * _own_rounding(run))[judged.out[i]]], Limit.CANCELS)


def _own_rounding(run: Run) -> Array:
    """Of each output [M]."""
    return np.asarray(run.point.unit * np.abs(run.point.f0))


def hidden_by_rounding(run: Run, judged: Judged) -> Mask:
    """Of mismatches: which elements [E] the roundings of every operation in f hide at the very steps of their differences; 9 calls, and 45."""
    if beyond_cancelling(run, judged).all():
        return np.zeros(len(judged.analytic), bool)
    noise = _far_noise(run.shaken, judged)
    return np.asarray(judged.verdicts_with(_under(run, judged, noise)) != MISMATCH)


def excuse_cancelled_alone(run: Run, judged: Judged, alone: LoneLadders) -> Judged:
    """As `excuse_cancelled`, of elements that were measured `alone`: at most 117 forward calls."""
    i = _suspects(run, judged)
    if not i.size:
        return judged
    return _left_open(run, judged, i[_explained(run, judged.take(i), alone.derivative_under_far_noise().take(i))])


def _suspects(run: Run, judged: Judged) -> Index:
    """Mismatches of outputs in which numbers cancel, or that have not moved at all."""
    bad = np.flatnonzero((judged.verdict == MISMATCH) & np.isfinite(judged.analytic))
    if bad.size and run.over_budget(MEASURED):
        bad = bad[~beyond_cancelling(run, judged.take(bad))]
    if not bad.size:
        return bad
    return np.asarray(bad[(run.far_noise.noise > FLAT * _own_rounding(run))[judged.out[bad]] | judged.derivative.unchanged[bad]])


def _left_open(run: Run, judged: Judged, i: Index) -> Judged:
    """With elements i undecided, and bars that are no narrower than what the widest steps can tell."""
    d, part = judged.derivative, judged.take(i)
    bar = d.bar.copy()
    bar[i] = np.maximum(bar[i], _unseen_slope(run, part))
    return replace(judged.undecided(i, Limit.CANCELS), derivative=replace(d, bar=bar))


def _hidden(run: Run, judged: Judged) -> Mask:
    """Which elements [E] the wider noise may hide, at the very steps that their differences were taken from; all that have not moved yet."""
    d, noise = judged.derivative, run.noise[judged.out]
    beyond = Z * noise > NEAR * run.point.columns.scale[judged.column] * d.noise_bar  # so little noise is that of wide steps
    far_noise = np.where(beyond, run.far_noise.far[judged.out], _far_noise(run, judged))
    return np.asarray(judged.verdicts_with(np.where(d.unchanged, np.inf, _under(run, judged, far_noise))) != MISMATCH)


def _explained(run: Run, judged: Judged, d: Derivative) -> Mask:
    """Which elements [E] are no mismatch by these derivatives, of which every rung was measured under the wider noise."""
    return np.asarray(judged.verdicts_with(np.where(d.unchanged, _unseen_slope(run, judged), 0.0), d) != MISMATCH)


def _unseen_slope(run: Run, judged: Judged) -> Array:
    """How large a derivative [E] may be of which no rung shows anything."""
    scale = run.point.columns.scale[judged.column]
    beyond = _beyond_scale(run, judged) | run.far_noise.dead[judged.out]
    return np.asarray(Z * _far_noise(run, judged) / (BASE * np.where(beyond, np.maximum(scale, 1.0), scale)))


def _far_noise(run: Run, judged: Judged) -> Array:
    """The wider noise [E] that elements are measured under."""
    return np.where(_beyond_scale(run, judged), run.far_noise.far[judged.out], run.far_noise.noise[judged.out])


def _beyond_scale(run: Run, judged: Judged) -> Mask:
    """Elements [E] whose steps go beyond the scale of their inputs."""
    return np.asarray(run.survey.wide[run.point.columns.tensor[judged.column], judged.out])


def _standing(run: Run, judged: Judged, i: Index) -> Mask:
    """Which of elements i [E] stand when their columns climb every rung under the wider noise: the likeliest first, a few columns."""
    part = judged.take(i)
    noise = _far_noise(run, part)
    change = np.abs(part.analytic - part.derivative.value) * run.point.columns.scale[part.column]
    likeliest = np.argsort(-change / np.maximum(noise, np.median(noise)), kind="stable")  # little noise may be that of points within one step

    def stands(columns: Index) -> Mask:
        few = part.take(columns)
        return ~_explained(run, few, LoneLadders(run, few.column, few.out).derivative_under_far_noise())

    return standing(part.column, likeliest, stands)


def excuse_uncertain(run: Run, judged: Judged) -> Judged:
    """Where the budget is spent: mismatches that rounding might explain are undecided beside one that it cannot; as they are where there is none."""
    if not run.over_budget(MEASURED):
        return judged
    wrong = judged.verdict == MISMATCH
    certain = wrong & beyond_cancelling(run, judged)
    return judged.undecided(np.flatnonzero(wrong & ~certain), Limit.BUDGET) if certain.any() and not certain[wrong].all() else judged


def beyond_cancelling(run: Run, judged: Judged) -> Mask:
    """Mismatches [E] that stand against the largest noise that cancelling numbers can bring into f, as `far_noise` would measure it."""
    d, largest_noise = judged.derivative, largest_rounding(run.point, run.survey)[judged.out]
    noise = run.noise[judged.out]
    scale = run.point.columns.scale[judged.column]
    resolved = d.smooth & (noise > 0) & (d.bar <= STEPLESS * np.abs(d.value))
    still = d.unchanged & _hold_single_numbers(run, judged)
    steps = FAR_BELOW * BEYOND * run.survey.size[judged.out]
    extra = np.where(d.unchanged, Z * np.maximum(largest_noise, steps) / (BASE * scale), _under(run, judged, largest_noise))
    stands = judged.verdicts_with(extra) == MISMATCH
    return np.asarray(stands & (resolved | still | ~np.isfinite(judged.analytic)))


def _under(run: Run, judged: Judged, noise: Array) -> Array:
    """How far the derivatives [E] may be off under another noise [E] at the same steps; no number where nothing is known of theirs.

    The quotient comes first: products of numbers as small as 1e-300 are 0."""
    used, scale = run.noise[judged.out], run.point.columns.scale[judged.column]
    under_used = np.maximum(judged.derivative.noise_bar, Z * used / np.maximum(scale, 1.0))
    return np.asarray(under_used * (noise / used))


def _hold_single_numbers(run: Run, judged: Judged) -> Mask:
    """Elements [E] whose column holds a number that no other column of its tensor does: a tie hides from single columns."""
    c, single = run.point.columns, np.zeros(len(judged.analytic), bool)
    for tensor in np.unique(c.tensor[judged.column]).tolist():
        values, counts = np.unique(c.x[c.of(tensor)], return_counts=True)
        elements = np.flatnonzero(c.tensor[judged.column] == tensor)
        single[elements] = np.isin(c.x[judged.column[elements]], values[counts == 1])
    return single
