"""Inputs to which f is insensitive at steps of their own size: x₁ of x₀ + ((x₁ + 1e4) − 1e4) at 1e-13, which a rounding inside f hides.

Such an input looks like one that f does not depend on, also beside others that move the same output: a zero would pass there, and a right gradient
be accused. So where inputs are tiny and f rounds inside by more than their steps can tell from nothing, nothing is decided. So it is where f does not
round inside, but its outputs are so much larger than what inputs of 1e-12 move that no gradient could have failed.
"""

from __future__ import annotations

import numpy as np

from gradverify.numerics.estimate.noise import POINTS, ecnoise
from gradverify.numerics.estimate.samples import LOW_UNIT
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import with_undecided
from gradverify.numerics.prepare import Prepared
from gradverify.numerics.rungs import QUICK, Array, Index, Mask, step
from gradverify.numerics.seed_vectors import signed_weights
from gradverify.numerics.verdict import Limit

TINY = 1e-4  # size of inputs: an inner 1e8 rounds away the quick steps of those below 1e-5, an inner 1 of those below 1e-13
LONE = 1e-9  # of those among larger ones: one of a thousand million random numbers is so small
AWAY = 1e-2  # where the rounding of f is measured
APART = 1e-7  # between its points: above the rounding of 1e8 (1.5e-8); sin(1e5 x) is smooth there, which looks like noise at 3e-5 (measured)
BETWEEN = (3.381966, 4.723607)  # distances from the first of them: two more points, as the same rounding at all nine looks like none
OFF = 4.0  # of noise that one of these is from what the nine say of it, at most
ROOM = 0.5  # that a domain must leave on both sides: the widest steps are 0.3, times weights up to 1.4
INNER = 8.0  # times the rounding of f: noise beyond that is rounding inside (of (x + 1) − 1 at 1e-2: 60 times)
TELLS = 1e-3  # of what a quick step moves f by: less noise leaves the steps what they tell
CALLS = POINTS + len(BETWEEN)  # forward calls a tensor, at most


def beside_insensitive(prepared: Prepared, pairs: list[Pair]) -> list[Pair]:
    """The pairs; undecided where f rounds away the steps that were taken, or no gradient was above its tolerance: mismatches, or else passes.

    Nothing is called unless some input is tiny: 11 calls a tensor then.
    """
    hides = dict[int, Mask]()
    with np.errstate(all="ignore"):
        for tensor in sorted({pair.input for pair in pairs}):
            columns = _tiny(prepared.point, tensor)
            if len(columns) and not prepared.over_budget(CALLS):
                hides[tensor] = _hidden(prepared.point, columns)
    return [_judged(pair, hides[pair.input][prepared.point.parts[pair.output]]) if pair.input in hides and pair.compared else pair for pair in pairs]


def _judged(pair: Pair, hides: Mask) -> Pair:
    wrong = pair.count(Outcome.MISMATCH)
    if hides.any() or (0 < pair.largest <= 1 and not wrong):
        return with_undecided(pair, Outcome.MISMATCH if wrong else Outcome.PASS, Limit.CANCELS)
    return pair


def _tiny(point: Point, tensor: int) -> Index:
    c = point.columns
    columns = c.of(tensor)
    tiny = (c.size[columns] < TINY) | (c.scale[columns] < LONE)
    if not c.free:
        tiny &= (c.x[columns] - ROOM >= c.low[columns]) & (c.x[columns] + ROOM <= c.high[columns])
    return columns[tiny & np.isfinite(c.x[columns])]


def _hidden(point: Point, columns: Index) -> Mask:
    """Where f [M] rounds inside by so much that quick steps of these columns are hidden, as it does AWAY from x."""
    x, weights = point.columns.x[columns], signed_weights(len(columns), point.seed.generator("wide steps", int(columns[0])))
    points, between = (np.array([point.values_at(columns, x + (AWAY + n * APART) * weights) for n in at]) for at in (range(POINTS), BETWEEN))
    there = np.abs(points).max(0)
    noise = np.maximum(ecnoise(points, there)[0], np.abs(between - _through(points)).max(0) / OFF)
    size, slope = np.maximum(there, np.abs(point.f0)), np.abs(points - point.f0).max(0) / AWAY
    near = step(1.0, QUICK[0]) * float(point.columns.scale[columns].max()) * slope      # what a quick step moves f by
    return np.asarray((noise > INNER * point.unit * size) & (noise > TELLS * near) & (point.unit <= LOW_UNIT) & np.isfinite(noise))


def _through(points: Array) -> Array:
    """The polynomial of degree 8 through f [9, M], at the points BETWEEN: [2, M]. Lagrange's form."""
    n, t = np.arange(POINTS), np.array(BETWEEN)[:, None, None]
    factors = np.where(n[:, None] == n, 1.0, (t - n) / np.where(n[:, None] == n, 1, n[:, None] - n))
    return np.asarray(factors.prod(2) @ points)
