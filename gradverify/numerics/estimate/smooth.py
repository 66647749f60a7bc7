"""The fast path: derivatives of elements that three steps show to be smooth, in a tenth of the
operations of the whole solver, and with its numbers.

What shows any sign of a kink, a jump, a border, stillness or bad convergence is left to
`ladder.solve`; every test here errs on that side. A linear function has no truncation error: one
wide pair of points tells its slope (`secant`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.estimate.samples import LOW_UNIT, SECOND, Rung
from gradverify.numerics.rungs import RATIO, U64, VISIBLE, Array, Mask, Z, finite_size

ARITHMETIC = 4 * U64  # of the value: the extrapolation's own rounding
TAME = 1e100  # |f| and steps between its inverse and it: their squares neither overflow nor vanish
JUMPS = 0.2  # of the coarsest change: one that shrinks less is a jump, which is one constant to 0.1
# The least ratio of S = (f⁺ − 2f + f⁻)/h over two rungs of a smooth function, 13; of what looks
# like a kink it is below 2.8
BENDS = 3.0
W1, W2 = RATIO**2, RATIO**4
ONCE = (W1**3 + 1) / (W1 - 1) ** 2  # the variance of T(1, 1) over that of T(0, 0)
# Of T(1, 0), T(2, 0), T(2, 2), per f's noise over the last width
NOISES = np.sqrt([2 / W1, 2, 2 * (W2**2 * W1 + 1) * ONCE / (W2 - 1) ** 2 / W1**2])
NARROWED = RATIO**-2  # the last rung against the first


@dataclass(frozen=True)
class SmoothEstimate:
    """Derivatives of elements, value ± bar with the part of the bar that is noise, and which of
    them are `smooth` [any shape]; the rest is void."""

    value: Array
    bar: Array
    noise: Array
    smooth: Mask


def smooth_estimate(
    up: Array, down: Array, width: Array, f0: Array, sigma: Array, unit: Array
) -> SmoothEstimate:
    """From f above and below x at three rungs, [3, …] each, and their widths step_up + step_down;
    f(x), its noise and unit roundoff […].

    Widths are negative where up is below, and may have ones where they are the same for all
    elements; f0, sigma and unit may lack leading axes.
    """
    # Of the widest rung: those of the finer ones hardly differ
    largest = np.maximum(np.abs(up[0]), np.abs(down[0]))
    largest = np.maximum(largest, np.abs(f0), out=largest)
    noise = np.maximum(sigma, unit * largest)
    change = up - down
    values, distances = _extrapolated(change / width)
    noise_bars = np.multiply.outer(Z * NOISES, noise / np.abs(width[2]))
    bars = distances + noise_bars
    # T(1, 0) agrees with the finer rung, as every entry must
    middle = distances[1] <= bars[0] + bars[1]
    middle &= bars[0] <= bars[1]
    bar = bars[1].copy()
    np.putmask(bar, middle, bars[0])
    plain = ~(bars[2] < bar)
    middle &= plain
    value, noise_bar = values[2], noise_bars[2]  # nearly always T(2, 2)
    for chosen, entries in ((value, values), (noise_bar, noise_bars)):
        np.putmask(chosen, plain, entries[1])
        np.putmask(chosen, middle, entries[0])
    bar = np.minimum(bar, bars[2], out=bar)
    smooth = ~_rough(up, down, change, f0, noise)
    slow = distances[1] > 0.5 * distances[0]
    if slow.any():
        smooth &= ~(slow & (distances[1] > noise_bars[1] * np.sqrt(2.0)))
    if not (largest.min(initial=1.0) > 1 / TAME and largest.max(initial=1.0) < TAME):
        smooth &= (largest < TAME) & (largest > 1 / TAME)
    smooth &= bar < np.inf
    return SmoothEstimate(value, bar + ARITHMETIC * np.abs(value), noise_bar, smooth)


def extrapolate_once(coarse: Rung, fine: Rung, sigma: Array, unit: Array) -> tuple[Array, Array]:
    """T(1, 1) of two rungs, and the part of its bar that is noise [m]; f's noise and unit roundoff
    [m]. Nothing tells how well it converges."""
    widths = [rung.step_up + rung.step_down for rung in (coarse, fine)]
    value = W1 / (W1 - 1) / widths[1] * (fine.up - fine.down)
    value -= 1 / (W1 - 1) / widths[0] * (coarse.up - coarse.down)
    noise = np.maximum(sigma, unit * np.maximum(np.abs(coarse.up), np.abs(coarse.down)))
    return value, Z * np.sqrt(2 * ONCE) / np.abs(widths[0]) * noise


def _extrapolated(quotient: Array) -> tuple[list[Array], Array]:
    """T(1, 0), T(2, 0) and T(2, 2) of three quotients, the only entries that can have the least
    bar, and their distances to parents [3, …]."""
    apart = quotient[1:] - quotient[:-1]
    distances = np.empty_like(quotient)
    np.abs(apart, out=distances[:2])
    once = np.add(quotient[1:], np.divide(apart, W1 - 1, out=apart), out=apart)
    step = once[1] - once[0]
    np.multiply(np.abs(step, out=distances[2]), W2 / (W2 - 1), out=distances[2])
    return [quotient[1], quotient[2], once[1] + np.divide(step, W2 - 1, out=step)], distances


def _rough(up: Array, down: Array, change: Array, f0: Array, noise: Array) -> Mask:
    """Elements that do not move at the coarsest rung, or that show a jump or a bend."""
    coarse = np.abs(change[0])
    rough = np.abs(change[0] - change[2]) < JUMPS * coarse
    if rough.any():
        rough &= np.abs(change[2]) > VISIBLE * noise
    second = up[::2] + down[::2]
    second -= 2 * f0
    widest, narrowest = np.abs(second, out=second)
    bends = widest < BENDS / NARROWED * narrowest
    if bends.any():
        rough |= bends & (narrowest > SECOND * noise)
    if not coarse.all():
        rough |= (up[0] == f0) & (down[0] == f0)
    return np.asarray(rough)


def secant(
    up: Array,
    down: Array,
    width: Array | float,
    f0: Array,
    sigma: Array,
    unit: Array,
    rounding_of_x: Array | float | None,
) -> SmoothEstimate:
    """From f [m] at the two ends of a step of this width, where both have values; f(x), its noise
    and its unit roundoff [m].

    Each end is off by its noise, at least by the rounding of the largest of f's values (f is
    computed from numbers as large as f(x) even where it passes 0 at an end), and by |f'|·u·|x|
    where a low-precision forward rounds x: `rounding_of_x` is |x| along the step then, and None
    elsewhere.
    """
    value = (up - down) / width
    noise = np.maximum(
        sigma, unit * np.maximum(np.maximum(np.abs(up), np.abs(down)), finite_size(f0))
    )
    low = unit > LOW_UNIT
    if rounding_of_x is not None and low.any():
        noise = np.where(low, np.maximum(noise, unit * np.abs(value) * rounding_of_x), noise)
    noise = Z * np.sqrt(2.0) * noise / width
    bar = noise + ARITHMETIC * np.abs(value)
    return SmoothEstimate(value, bar, noise, np.isfinite(bar))
