"""Inputs to which f is insensitive at steps of their own size: x₁ of x₀ + ((x₁ + 1e4) − 1e4) at
1e-13, whose effect a rounding inside f hides.

Such an input looks like one that f does not depend on, also where other inputs move the same
output: a zero passes there, and a right gradient is a mismatch. Steps up to 1 move f. So where
inputs are tiny and f rounds inside by more than the effect of their steps, all of them are moved
together by such steps: a mismatch that agrees with f there becomes undecided, and so does a pass
that does not agree. The same is done where f does not round inside, but its outputs are so much
larger than the effect of inputs of 1e-12 that no gradient could have failed.
"""

from __future__ import annotations

import numpy as np

from gradverify.numerics.estimate.ladder import derivative
from gradverify.numerics.estimate.noise import POINTS, ecnoise
from gradverify.numerics.estimate.samples import LOW_UNIT
from gradverify.numerics.function.point import DirectionLine, Point
from gradverify.numerics.judging import Run
from gradverify.numerics.pairs.pair import Outcome, Pair, with_undecided
from gradverify.numerics.rungs import QUICK, RUNGS, Array, Index, Mask, step
from gradverify.numerics.seed_vectors import gradient_of_rows, signed_weights
from gradverify.numerics.verdict import Limit

# Size of tiny inputs: an inner 1e8 rounds away the quick steps of inputs below 1e-5, an inner 1
# those of inputs below 1e-13
TINY = 1e-4
# The same for the scales of inputs among larger ones: one of 1e9 random numbers is so small
TINY_AMONG_LARGER = 1e-9
AWAY = 1e-2  # distance from x at which the rounding of f is measured
# Spacing of the points: above the rounding of 1e8 (1.5e-8); sin(1e5 x) is smooth at this spacing,
# but looks like noise at 3e-5 (measured)
APART = 1e-7
# Two more points, in spacings from the first, because the same rounding at all nine looks like none
BETWEEN = (3.381966, 4.723607)
# Largest deviation of these two, in units of the noise, from the polynomial through the nine
OFF = 4.0
# Room that a domain must leave on both sides: the widest steps are 0.3, times weights up to 1.4
ROOM = 0.5
# Multiple of the rounding of f above which noise is rounding inside (of (x + 1) − 1 at 1e-2: 60
# times)
INNER = 8.0
# Roundings of f, or of 1: larger noise is no rounding of numbers up to 1e8 inside f, but f moves
# faster than the points are apart, as sin(1e9 x) does
INNERMOST = 1e9
SIGNIFICANT = 1e-3  # of the change of f over a quick step: smaller noise does not hide the change
ALIKE = 1e-6  # of the sum of all terms: tolerance between the gradient and f
CALLS = POINTS + len(BETWEEN) + 2 * RUNGS  # forward calls a tensor, at most


def with_insensitive(run: Run, pairs: list[Pair]) -> list[Pair]:
    """Return the pairs, undecided where f rounds away the steps that were taken: mismatches that
    agree with f at steps up to 1, and passes that do not.

    No call is made unless some input is tiny: then 11 calls per tensor, and 48 more where f rounds
    inside or no gradient could have failed.
    """
    with np.errstate(all="ignore"):
        for tensor in sorted({pair.input for pair in pairs}):
            columns = _tiny(run.point, tensor)
            if len(columns) and not run.over_budget(CALLS):
                pairs = _by_wide_steps(run, tensor, columns, pairs)
    return pairs


def _by_wide_steps(run: Run, tensor: int, columns: Index, pairs: list[Pair]) -> list[Pair]:
    """Return the pairs, with those of a tensor whose tiny inputs are these columns judged by steps
    up to 1. They are unchanged where no rounding inside exceeds the effect of the quick steps and
    every output has some gradient above its tolerance."""
    point, never_above = run.point, np.zeros(len(run.point.f0), bool)
    for pair in pairs:
        if pair.input == tensor and 0 < pair.largest <= 1:
            never_above[point.parts[pair.output]] = True
    weights = signed_weights(len(columns), point.seed.generator("wide steps", int(columns[0])))
    noise, suspect = _inner(point, columns, weights)
    if not (suspect | never_above).any():
        return pairs
    for part in point.parts:  # nine points do not show the noise of every output
        noise[part] = np.maximum(noise[part], (noise * suspect)[part].max(initial=0.0))
    line = DirectionLine(point, columns, weights)
    d = derivative(line, run.outputs(noise), every_rung=True)
    usable = d.smooth & np.isfinite(d.value) & np.isfinite(d.bar)

    def agrees(output: int) -> bool | None:
        """Return whether the gradient adds up to the change of f at steps up to 1; None where that
        cannot be determined."""
        part = point.parts[output]
        rows = np.flatnonzero(usable[part])
        v = signed_weights(
            len(rows), point.seed.generator("wide steps pulled back", output, int(columns[0]))
        )
        gradient = point.columns.combined(gradient_of_rows(point, output, rows, v))[columns]
        value, bar = d.value[part][rows], d.bar[part][rows]
        off = abs(float(gradient @ weights - v @ value))
        size = float(np.abs(gradient * weights).sum() + np.abs(v * value).sum())
        if not off <= float(np.abs(v) @ bar) + ALIKE * size:
            return False
        return True if usable[part][suspect[part]].all() else None

    def judged(pair: Pair) -> Pair:
        part = point.parts[pair.output]
        rounds = bool(suspect[part].any())
        if pair.input != tensor or not (pair.compared and (rounds or never_above[part].any())):
            return pair
        agreed = agrees(pair.output)
        if rounds and pair.count(Outcome.MISMATCH):
            doubtful, outcome = agreed is not False, Outcome.MISMATCH
        else:
            doubtful, outcome = agreed is False or (rounds and agreed is None), Outcome.PASS
        return with_undecided(pair, outcome, Limit.CANCELS) if doubtful else pair

    return [judged(pair) for pair in pairs]


def _tiny(point: Point, tensor: int) -> Index:
    c = point.columns
    columns = c.of(tensor)
    tiny = (c.size[columns] < TINY) | (c.scale[columns] < TINY_AMONG_LARGER)
    tiny &= (c.x[columns] - ROOM >= c.low[columns]) & (c.x[columns] + ROOM <= c.high[columns])
    return columns[tiny & np.isfinite(c.x[columns])]


def _inner(point: Point, columns: Index, weights: Array) -> tuple[Array, Mask]:
    """Return the noise of f [M] at distance AWAY from x, and where it is rounding inside that hides
    quick steps."""
    points, between = (
        np.array([point.shifted(columns, (AWAY + n * APART) * weights) for n in at])
        for at in (range(POINTS), BETWEEN)
    )
    there = np.abs(points).max(0)
    noise = np.maximum(ecnoise(points, there)[0], np.abs(between - _through(points)).max(0) / OFF)
    size = np.maximum(there, np.abs(point.f0))
    slope = np.abs(points - point.f0).max(0) / AWAY
    # The change of f over a quick step
    near = step(1.0, QUICK[0]) * float(point.columns.scale[columns].max()) * slope
    hides = (
        (noise > INNER * point.unit * size)
        & (noise <= INNERMOST * point.unit * np.maximum(size, 1.0))
        & (noise > SIGNIFICANT * near)
        & (point.unit <= LOW_UNIT)
        & np.isfinite(noise)
    )
    return noise, hides


def _through(points: Array) -> Array:
    """Return the values at the points BETWEEN [2, M] of the polynomial of degree 8 through f [9,
    M], in Lagrange's form."""
    n, t = np.arange(POINTS), np.array(BETWEEN)[:, None, None]
    factors = np.where(n[:, None] == n, 1.0, (t - n) / np.where(n[:, None] == n, 1, n[:, None] - n))
    return np.asarray(factors.prod(2) @ points)
