"""Inputs to which f is insensitive at steps of their own size: x₁ of x₀ + ((x₁ + 1e4) − 1e4) at
1e-13, which a rounding inside f hides.

Such an input looks like one that f does not depend on, also beside others that move the same
output: a zero passes there, and a right gradient is accused. Steps up to 1 move f. So where inputs
are tiny and f rounds inside by more than their steps can tell from nothing, all of them are moved
together by such steps: a gradient that agrees with f there is not accused, and one that does not is
not passed. So it is where f does not round inside, but its outputs are so much larger than what
inputs of 1e-12 move that no gradient could have failed.
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

# Size of inputs: an inner 1e8 rounds away the quick steps of those below 1e-5, an inner 1 of those
# below 1e-13
TINY = 1e-4
TINY_AMONG_LARGER = (
    1e-9  # of those among larger ones: one of a thousand million random numbers is so small
)
AWAY = 1e-2  # where the rounding of f is measured
# Between its points: above the rounding of 1e8 (1.5e-8); sin(1e5 x) is smooth there, which looks
# like noise at 3e-5 (measured)
APART = 1e-7
# Distances from the first of them: two more points, as the same rounding at all nine looks like
# none
BETWEEN = (3.381966, 4.723607)
OFF = 4.0  # of noise that one of these is from what the nine say of it, at most
# That a domain must leave on both sides: the widest steps are 0.3, times weights up to 1.4
ROOM = 0.5
# Times the rounding of f: noise beyond that is rounding inside (of (x + 1) − 1 at 1e-2: 60 times)
INNER = 8.0
# Roundings of f, or of 1: more is no rounding of numbers up to 1e8 inside it. It is f that moves
# faster than the points are apart, as sin(1e9 x) does
INNERMOST = 1e9
SIGNIFICANT = 1e-3  # of what a quick step moves f by: less noise leaves the steps what they tell
ALIKE = 1e-6  # of the sum of all terms: how well the gradient and f agree
CALLS = POINTS + len(BETWEEN) + 2 * RUNGS  # forward calls a tensor, at most


def with_insensitive(run: Run, pairs: list[Pair]) -> list[Pair]:
    """The pairs; undecided where f rounds away the steps that were taken: mismatches that agree
    with f at steps up to 1, passes that do not.

    Nothing is called unless some input is tiny: 11 calls a tensor then, and 48 more where f rounds
    inside or no gradient could have failed.
    """
    with np.errstate(all="ignore"):
        for tensor in sorted({pair.input for pair in pairs}):
            columns = _tiny(run.point, tensor)
            if len(columns) and not run.over_budget(CALLS):
                pairs = _by_wide_steps(run, tensor, columns, pairs)
    return pairs


def _by_wide_steps(run: Run, tensor: int, columns: Index, pairs: list[Pair]) -> list[Pair]:
    """The pairs, those of a tensor of which these columns are tiny by steps up to 1; as they are
    where nothing rounds inside by more than the quick steps can tell from nothing, and of every
    output some gradient was above its tolerance."""
    point, never_above = run.point, np.zeros(len(run.point.f0), bool)
    for pair in pairs:
        if pair.input == tensor and 0 < pair.largest <= 1:
            never_above[point.parts[pair.output]] = True
    weights = signed_weights(len(columns), point.seed.generator("wide steps", int(columns[0])))
    noise, suspect = _inner(point, columns, weights)
    if not (suspect | never_above).any():
        return pairs
    for part in point.parts:  # nine points do not show every output's
        noise[part] = np.maximum(noise[part], (noise * suspect)[part].max(initial=0.0))
    line = DirectionLine(point, columns, weights)
    d = derivative(line, run.outputs(noise), every_rung=True)
    usable = d.smooth & np.isfinite(d.value) & np.isfinite(d.bar)

    def agrees(output: int) -> bool | None:
        """Does the gradient add up to what f does at steps up to 1? None: that is not to be
        known."""
        part = point.parts[output]
        rows = part.start + np.flatnonzero(usable[part])
        v = signed_weights(
            len(rows), point.seed.generator("wide steps pulled back", output, int(columns[0]))
        )
        gradient = gradient_of_rows(point, output, rows, v)[columns]
        off = abs(float(gradient @ weights - v @ d.value[rows]))
        size = float(np.abs(gradient * weights).sum() + np.abs(v * d.value[rows]).sum())
        if not off <= float(np.abs(v) @ d.bar[rows]) + ALIKE * size:
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
    """The noise of f [M] AWAY from x, and where it is rounding inside that hides quick steps."""
    points, between = (
        np.array([point.shifted(columns, (AWAY + n * APART) * weights) for n in at])
        for at in (range(POINTS), BETWEEN)
    )
    there = np.abs(points).max(0)
    noise = np.maximum(ecnoise(points, there)[0], np.abs(between - _through(points)).max(0) / OFF)
    size = np.maximum(there, np.abs(point.f0))
    slope = np.abs(points - point.f0).max(0) / AWAY
    # What a quick step moves f by
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
    """The polynomial of degree 8 through f [9, M], at the points BETWEEN: [2, M]. Lagrange's
    form."""
    n, t = np.arange(POINTS), np.array(BETWEEN)[:, None, None]
    factors = np.where(n[:, None] == n, 1.0, (t - n) / np.where(n[:, None] == n, 1, n[:, None] - n))
    return np.asarray(factors.prod(2) @ points)
