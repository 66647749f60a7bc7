"""Most elements of most functions: smooth, finite, told by the quick rungs. In a tenth of the operations of the whole solver, and with its numbers.

What shows any sign of a kink, a jump, a border, stillness or bad convergence is left to `ladder.solve`; every test here errs on that side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.rungs import RATIO, U64, VISIBLE, Array, Mask, Z

RUNGS = 3
ARITHMETIC = 4 * U64  # of the value: the extrapolation's own rounding
TAME = 1e100  # |f| and steps between its inverse and it: their squares neither overflow nor vanish
JUMPS = 0.2  # of the coarsest change: one that shrinks less is a jump, which is one constant to 0.1
BENDS = 3.0  # the least ratio of S = (f⁺ − 2f + f⁻)/h over two rungs of a smooth function, 13; of what looks like a kink it is below 2.8
FINEST = Z * np.sqrt(6)  # standard deviations: the least second difference that is not noise
W1, W2 = RATIO**2, RATIO**4


@dataclass(frozen=True)
class Plain:
    """Derivatives of elements, value ± bar with the part of the bar that is noise, and which of them are `told` [any shape]; the rest is void."""

    value: Array
    bar: Array
    noise: Array
    told: Mask


def plain(up: Array, down: Array, width: Array, f0: Array, sigma: Array, unit: Array) -> Plain:
    """From f above and below x and the widths step_up + step_down at three rungs, [3, …] each; f(x), its noise and unit roundoff […].

    `width` may have ones where it is the same for all elements, and be negative where up is below; f0, sigma and unit may lack leading axes.
    """
    big = np.maximum(np.maximum(np.abs(up), np.abs(down)).max(0), np.abs(f0))
    noise = np.maximum(sigma, unit * big)
    change = up - down
    quotient = change / width
    value, trend, factor = _extrapolated(quotient, 2.0 / width)
    parts = [Z * noise * each for each in factor]
    bars = [t + p for t, p in zip(trend, parts, strict=True)]
    agrees = trend[1] <= bars[0] + bars[1]  # with the finer rung, as every entry must
    best, bar, part = (np.where(agrees & (bars[0] <= bars[1]), a[0], a[1]) for a in (value, bars, parts))
    further = bars[2] < bar
    best, bar, part = (np.where(further, a[2], b) for a, b in ((value, best), (bars, bar), (parts, part)))
    told = _told(up, down, change, f0, noise, width) & ~((trend[1] > 0.5 * trend[0]) & (trend[1] > parts[1] * np.sqrt(2.0)))
    told &= (big < TAME) & (big > 1 / TAME) & (bar < np.inf)
    return Plain(best, bar + ARITHMETIC * np.abs(best), part, told)


def _extrapolated(quotient: Array, inverse: Array) -> tuple[list[Array], list[Array], list[Array]]:
    """Of T(1, 0), T(2, 0) and T(2, 2), the only entries that can have the least bar: values, distances to parents, noise per unit of it."""
    variance = 0.5 * inverse**2
    first = [quotient[k] + (quotient[k] - quotient[k - 1]) / (W1 - 1) for k in (1, 2)]
    once = [(W1 * W1 * variance[k] + variance[k - 1]) / (W1 - 1) ** 2 for k in (1, 2)]
    step = first[1] - first[0]
    last = first[1] + step / (W2 - 1)
    trend = [np.abs(quotient[1] - quotient[0]), np.abs(quotient[2] - quotient[1]), np.abs(step) * (W2 / (W2 - 1))]
    factor = [np.sqrt(variance[1]), np.sqrt(variance[2]), np.sqrt((W2 * W2 * once[1] + once[0]) / (W2 - 1) ** 2)]
    return [quotient[1], quotient[2], last], trend, factor


def _told(up: Array, down: Array, change: Array, f0: Array, noise: Array, width: Array) -> Mask:
    """Elements that move at the coarsest rung and show neither a jump nor a bend."""
    moves = (up[0] != f0) | (down[0] != f0)
    coarse, fine = np.abs(change[0]), np.abs(change[2])
    jumps = (np.abs(change[0] - change[2]) < JUMPS * coarse) & (fine > VISIBLE * noise)
    twice = 2 * f0
    bend, sharp = np.abs(up[0] + down[0] - twice), np.abs(up[2] + down[2] - twice)
    bends = (sharp > FINEST * noise) & (bend * (width[2] / width[0]) < BENDS * sharp)
    return np.asarray(moves & ~jumps & ~bends)
