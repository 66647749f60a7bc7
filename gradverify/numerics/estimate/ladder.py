"""Derivatives with an error bar from central differences at a sequence of steps, for many elements
at once (method.md section 2): kinks, Richardson extrapolation, second readings, and the choice of
steps.

A quick look (`full` false) uses a few rungs and declares no kink or jump: it only reports where
finer rungs are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.samples import LOW_UNIT, SECOND, Line, Samples, sample_rung
from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import (
    CLIMB,
    NEAR,
    QUICK,
    RATIO,
    RUNGS,
    U32,
    U64,
    VISIBLE,
    AnyArray,
    Array,
    Codes,
    Index,
    Mask,
    Z,
    finite_size,
    nanmedian,
    repeated,
    smallest,
    step,
)
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED

# Where f is not smooth at x, by its second differences: kinks with their one-sided slopes, jumps,
# infinite slopes, ends of the domain.
# S = (f(x+h) − 2 f(x) + f(x−h)) / h goes like hᵖ: p = 1 where f is smooth, 0 at a kink, −1 at a
# jump.
# Of the scale: a kink is "at x" only if it shows at smaller steps; at larger ones, curvature and
# 1/x look like kinks
AT_X = 1e-2
SINKS = 20  # times the step below which noise hides a kink: a kink seen only above lies off x
# Multiple of the change between rungs in a bar where the domain ends: the order of convergence is
# not known there
BORDER = 3.0
JUMP_RUNGS = 5  # rungs on which a jump must show
# Growth per rung of one-sided slopes on the three finest visible rungs from which on they are
# infinite ...
GROWTH = 1.2
JUMP_GROWTH = 0.9 * RATIO  # ... unless they grow as at a jump


class Smoothness(IntEnum):
    """The local behaviour of f along one line, as the samples show it."""

    SMOOTH = 0
    KINK = 1
    JUMP = 2
    INCONSISTENT = 3
    NON_FINITE = 4


SMOOTH, KINK, JUMP, INCONSISTENT, NON_FINITE = (np.int8(each) for each in Smoothness)
"""The same as NumPy's numbers: codes [m] are compared with them in a quarter of the time."""


def bends(s: Samples, noise: Array) -> tuple[Mask, Mask, Array]:
    """Return [m], from the second differences, whether a kink or jump is suspected, whether one is
    seen at x, and the exponent p, from the finest significant rung and one or two coarser ones."""
    n, m = s.up.shape
    least = SECOND * noise
    visible = ~s.unusable & (np.abs(s.second) > least) & np.isfinite(s.f0) & (s.h < NEAR * s.scale)
    elements, fine = np.arange(m), n - 1 - np.argmax(visible[::-1], 0)
    two_up, one_up = np.maximum(fine - 2, 0), np.maximum(fine - 1, 0)
    have_two = visible[two_up, elements] & (fine >= 2)
    have_one = visible[one_up, elements] & (fine >= 1)
    coarse = np.where(have_two, two_up, one_up)
    size, h = np.abs(s.second / s.h), s.h[fine, elements]
    exponent = np.log(size[coarse, elements] / size[fine, elements]) / np.log(
        s.h[coarse, elements] / h
    )
    suspected = (visible.sum(0) >= 3) & (have_one | have_two) & (exponent < 0.4)
    sinks = least[fine, elements] / size[fine, elements]
    at_x = (h <= SINKS * np.maximum(sinks, s.h[-1])) & (h < AT_X * s.scale)
    return suspected, suspected & at_x, exponent


def jumps(s: Samples, noise: Array) -> Mask:
    """Return where f(x+h) − f(x−h) is the same non-zero number at every fine rung [m]; noise would
    scatter it."""
    gap = (s.up - s.down)[-JUMP_RUNGS:] / s.largest
    steady = gap.max(0) - gap.min(0) < 0.1 * np.abs(gap.sum(0) / len(gap))
    return np.asarray(
        np.isfinite(s.f0) & (np.abs(gap) > VISIBLE * noise[-JUMP_RUNGS:]).all(0) & steady
    )


def sides(s: Samples, noise: Array, kinked: Mask) -> tuple[Best, Best]:
    """Return the slopes from the left and from the right of the kinked elements [m]; none
    elsewhere."""
    where, none = np.flatnonzero(kinked), Best.none(len(kinked))
    if not where.size:
        return none, none
    t, noise = s.take(where), noise[:, where] * s.largest[where]
    left = one_sided(t.down - t.f0, -t.step_down, noise)
    right = one_sided(t.up - t.f0, t.step_up, noise)
    return none.replaced(where, left), none.replaced(where, right)


def infinite(s: Samples, noise: Array, where: Mask) -> Mask:
    """Return which of the elements `where` [m] have a slope that still grows on the three finest
    visible rungs of a side: neither a kink nor a finite slope."""
    result, columns = np.zeros(len(where), bool), np.flatnonzero(where)
    t, least = s.take(columns), VISIBLE * noise[:, columns] * s.largest[columns]
    for f, width in ((t.up, t.step_up), (t.down, t.step_down)):
        change = np.abs(f - t.f0)
        slope = np.where(change > least, change / width, np.nan)
        # The three finest visible rungs, coarsest first
        last = np.argsort(~np.isnan(slope), axis=0, kind="stable")[-3:]
        ratio = np.take_along_axis(slope, last[1:], 0) / np.take_along_axis(slope, last[:-1], 0)
        apart = np.diff(last, axis=0)
        result[columns] |= ((ratio > GROWTH**apart) & (ratio < JUMP_GROWTH**apart)).all(0)
    return result


def borders(s: Samples) -> list[tuple[Index, Best]]:
    """Return elements [k] with values on one side of x only, and their derivatives from that side
    without extrapolation; in units of f."""
    found = []
    for f, h, sign in ((s.up, s.step_up, 1.0), (s.down, s.step_down, -1.0)):
        c = np.flatnonzero(~s.two_sided & np.isfinite(s.f0) & (np.isfinite(f).sum(0) >= 4))
        if c.size:
            noise = np.maximum(
                s.sigma[c], s.unit[c] * np.maximum(np.nan_to_num(np.abs(f[:, c])), np.abs(s.f0[c]))
            )
            found.append((c, one_sided(f[:, c] - s.f0[c], sign * h[:, c], noise, safety=BORDER)))
    return found


# ---- Richardson extrapolation of central differences in Romberg's table, with the noise
# propagated, and the choice of its best entry.
# C. Ridders, Adv. Eng. Softw. 4 (1982), with three departures: the ratio of rungs is no integer,
# noise is propagated through the table, and a value counts only where every finer rung agrees with
# it.
ORDERS = 4  # extrapolation orders 0 to 3: errors h², h⁴, h⁶, h⁸
# Finest rungs with a value, of a long ladder, that supply no value but must agree with it
CONFIRM = 4
LONG = 8


@dataclass(frozen=True)
class Best(Record):
    """The chosen entry of each element [m]; rung −1 where no entry was consistent."""

    value: Array
    bar: Array
    noise: Array
    rung: Index

    @classmethod
    def none(cls, m: int) -> Best:
        """Return a record without a choice for m elements."""
        return cls(np.full(m, np.nan), np.full(m, np.inf), np.full(m, np.inf), np.full(m, -1))

    def better(self, elements: Index, new: Best) -> Best:
        """Return the record with the entries of `new` at these elements, where `new` has any."""
        better = new.rung >= 0
        return self.replaced(elements[better], new.take(better))


def table(D: Array, h: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Return the Romberg table T(k, j) of quotients D at steps h with noise standard deviations,
    all [n, m]; its bars; and the part of the bars that is noise: each [orders, n, m].

    Var(k, 0) = σ²/(2h²); Var(k, j) = (R⁴ʲ Var(k, j−1) + Var(k−1, j−1)) / (R²ʲ − 1)².
    """
    shape = (ORDERS, *D.shape)
    value = np.full(shape, np.nan)
    variance = np.full(shape, np.inf)
    trend = np.full(shape, np.inf)
    value[0], variance[0] = D, (noise / (np.sqrt(2) * h)) ** 2
    trend[0, 1:] = np.abs(D[1:] - D[:-1])
    for j in range(1, ORDERS):
        w = RATIO ** (2 * j)
        fine = value[j - 1, j:]
        coarse = value[j - 1, j - 1 : -1]
        value[j, j:] = (w * fine - coarse) / (w - 1)
        variance[j, j:] = (w * w * variance[j - 1, j:] + variance[j - 1, j - 1 : -1]) / (w - 1) ** 2
        # Distance to both parents: the fine one alone presupposes convergence at order 2j
        trend[j, j:] = np.maximum(np.abs(value[j, j:] - fine), np.abs(value[j, j:] - coarse))
    noise_bar = np.sqrt(variance, out=variance)
    noise_bar *= Z
    trend += noise_bar
    return value, np.where(np.isfinite(trend), trend, np.inf), noise_bar


def pick(D: Array, h: Array, noise: Array, full: bool) -> Best:
    """Return the entry with the smallest bar that every finer rung agrees with, which rejects the
    plateaus of kinks, jumps and aliases."""
    n, m = D.shape
    if not m:
        return Best.none(m)
    values, bars, noises = table(D, h, noise)
    confirmed = _confirmed(D) if full else np.ones(D.shape, bool)
    best = Best.none(m)
    for j in range(ORDERS):
        for k in range(max(j, 1), n):
            better = (bars[j, k] < best.bar) & confirmed[k]
            if not better.any():
                continue
            finer = D[k + 1 :]
            agree = np.abs(values[j, k] - finer) <= bars[j, k] + bars[0, k + 1 :]
            better &= (agree | ~np.isfinite(finer)).all(0)
            best.rung[better] = k
            for chosen, of in ((best.value, values), (best.bar, bars), (best.noise, noises)):
                chosen[better] = of[j, k][better]
    return best


def _confirmed(D: Array) -> Mask:
    """Return the rungs from which a value may be taken: those with enough finer rungs with a value,
    or all of a short ladder."""
    from_here = np.cumsum(np.isfinite(D)[::-1], 0)[::-1]  # number of rungs with a value from k on
    return np.asarray((from_here > CONFIRM) | (from_here[0] <= LONG))


def one_sided(change: Array, step: Array, noise: Array, safety: float = 1.0) -> Best:
    """Return forward differences without extrapolation, from the change of f, the signed step and
    the noise [n, m]; the bar is safety·|ΔD| + noise.

    Orders are fractional where f ends or bends (x^1.5), so none is assumed. Every finer rung must
    agree, as in `pick`.
    """
    d = change / step
    noise_bars = Z * np.sqrt(2) * noise / np.abs(step)
    trend = np.vstack([np.full(d.shape[1], np.inf), safety * np.abs(np.diff(d, axis=0))])
    bars = np.where(np.isfinite(trend + noise_bars), trend + noise_bars, np.inf)
    agree = [
        ((np.abs(d[k] - d[k + 1 :]) <= bars[k] + bars[k + 1 :]) | ~np.isfinite(d[k + 1 :])).all(0)
        for k in range(len(d))
    ]
    bars = np.where(agree, bars, np.inf)
    rung, elements = np.argmin(bars, 0), np.arange(d.shape[1])
    return Best(d[rung, elements], bars[rung, elements], noise_bars[rung, elements], rung)


# ---- Ambiguous derivatives: an f in steps or ripples has one slope at the finest steps and another
# above them. A mismatch must contradict both
STEPS_BELOW = 4  # finest rungs that do not move a staircase
# Of the scale: a staircase moves within this step; an f that moves only beyond may be a flat
# function
STAIR_STEP = 4e-3 * RATIO
# Roundings of f within which all finer rungs keep the slope of a tread that is not level, as of
# x·round(x)
TREAD = 4.0
# Roundings of f by which a step off such a tread rises at least: curvature appears gradually
SLANT_RISE = 1e3
# Of the distance to the tread's slope: largest difference of the quotients above the steps, if
# there is a trend
SETTLED = 0.5
# Roundings of x: a step this small may be that of an intermediate result as large as x, as in x·(1
# + tanh x)
OF_X = 8
# Factor below the measured noise from which on differences show that it was overestimated
QUIET = 30
HUMP = 1e-3  # of |f|: larger structure belongs to the function and is not an artefact
# Multiple of the noise of a central quotient: the noise of (f(x + h) - f(x)) / h, of the same h
ONE_SIDE = 2.0
ABSENT = 1e-2  # of the noise: smaller values do not have that noise
TIE = 1e-7  # of the scale: a kink or jump nearer to x than this is a tie
TAIL = 5  # finest rungs from which a second noise estimate is made


def readings(s: Samples) -> tuple[Array, Array, Array, Array, Mask]:
    """Return quotients and noise [n, m] for the main reading of a full ladder, with a staircase's
    rise as its noise; value and bar [m] of the second reading (NaN, inf: none); and whether that is
    the finer [m]."""
    level, wide, rise = _stairs(s)
    slanted, slant_rise = _slanted(s)
    stair = level | slanted
    noise = np.where(stair, np.maximum(s.noise, np.where(level, rise, slant_rise)), s.noise)
    quiet = _quiet(s, noise)
    # Neither reading may come from beyond the element's own scale
    near = np.where(s.far, np.nan, s.quotient)
    quotient = np.where(stair, near, s.quotient)
    height = _hump(s, quotient, noise)
    hump = (height > 0) & ~stair & ~quiet
    wide = wide & ~stair & ~quiet & ~hump
    second_noise = np.where(
        hump, np.maximum(noise, height), np.where(wide, np.maximum(noise, rise), s.rounding)
    )
    i = np.flatnonzero(stair | quiet | hump | wide)
    second = Best.none(len(quiet)).better(i, pick(near[:, i], s.h[:, i], second_noise[:, i], True))
    return quotient, noise, second.value * s.largest, second.bar * s.largest, quiet & ~stair


def _stairs(s: Samples) -> tuple[Mask, Mask, Array]:
    """Detect an f that is still at the finest rungs, then moves by far more than rounding, and
    above that a little on both sides (the flat side of a kink would not).

    Return the elements [m] of such an f; those whose steps are so wide that f may be flat as well
    (for which the trend is the second reading); and by how much they move.
    """
    n, m = s.up.shape
    elements = np.arange(m)
    still = np.cumprod((s.still | s.unusable)[::-1], 0).sum(0)
    lost = np.cumprod(s.unusable[::-1], 0).sum(0)  # in float32 the finest rungs do not move x
    k = np.clip(n - 1 - still, 0, n - 1)
    rise = np.fmax(np.abs(s.up[k, elements] - s.f0), np.abs(s.down[k, elements] - s.f0)) / s.largest
    steps = (
        (still - lost >= STEPS_BELOW)
        & (still < n)
        & (rise > VISIBLE * s.unit * np.abs(s.f0) / s.largest)
    )
    steps &= _both_sides(s, k) & (s.h[k, elements] < NEAR * s.scale)
    narrow = (still < n - 2) & (s.h[k, elements] < STAIR_STEP * s.scale)
    return steps & narrow, steps & ~narrow, rise


def _slanted(s: Samples) -> tuple[Mask, Array]:
    """Detect one slope on four fine rungs or more, ended by a step on the next rung, and another
    slope above the steps: a narrow type inside, or f in float32.

    (x·(1 + tanh x) for x < 0: the sum moves in steps of its rounding, and the product with x has a
    slope between them.)
    """
    n, elements = len(s.up), np.arange(len(s.f0))
    q, slack = s.quotient, TREAD * s.rounding / s.h
    # Rungs k and k + 1
    apart = ~(np.abs(q[1:] - q[:-1]) <= slack[:-1] + slack[1:]) & ~s.unusable[1:] & ~s.unusable[:-1]
    # The finest rung that took a step; the slope is that of rung k + 1
    k = n - 2 - np.argmax(apart[::-1], 0)
    long = apart.any(0) & (
        np.where(np.arange(n)[:, None] > k, ~s.unusable, False).sum(0) >= STEPS_BELOW
    )
    slope = q[k + 1, elements]
    up = np.abs((s.up - s.f0) / s.largest - slope * s.step_up)
    down = np.abs((s.down - s.f0) / s.largest + slope * s.step_down)
    rise = np.fmax(up[k, elements], down[k, elements])
    sudden = rise > SLANT_RISE * s.rounding[k, elements]
    both = np.fmin(up, down) > SLANT_RISE * s.rounding  # a kink leaves the line on one side only
    of_x = (rise * s.largest <= OF_X * s.unit * s.magnitude) & (s.h[k, elements] < NEAR * s.scale)
    return long & sudden & (of_x | _settled(s, both, slope)), rise


def _settled(s: Samples, both: Mask, slope: Array) -> Mask:
    """Return whether the three quotients above the finest rung that takes steps on both sides
    differ less from each other than from the tread's slope."""
    n, elements = len(s.up), np.arange(len(s.f0))
    k = n - 1 - np.argmax(both[::-1], 0)
    above = [s.quotient[np.maximum(k - i, 0), elements] for i in (1, 2, 3)]
    trend = SETTLED * np.abs(above[0] - slope)
    steady = (np.abs(above[0] - above[1]) < trend) & (np.abs(above[1] - above[2]) < trend)
    return np.asarray(both.any(0) & (k >= 3) & steady & (s.h[k, elements] < STAIR_STEP * s.scale))


def _both_sides(s: Samples, k: Index) -> Mask:
    """Return whether f moves on both sides two rungs above k [m], or, near the edge of a step, on
    the next rung above k where it takes another step."""
    n, m = s.up.shape
    elements = np.arange(m)
    both = (s.up != s.f0) & (s.down != s.f0)
    above = np.arange(n)[:, None] <= k
    held = (s.up == s.up[k, elements]) & (s.down == s.down[k, elements]) & (s.h < NEAR * s.scale)
    # The finest rung above k where f differs from its value at k
    onward = n - 1 - np.argmax((above & ~held)[::-1], 0)
    other = (above & ~held).any(0) & (s.h[onward, elements] < NEAR * s.scale)
    return np.asarray(both[np.maximum(k - 2, 0), elements] | (other & both[onward, elements]))


def _quiet(s: Samples, noise: Array) -> Mask:
    """Return where the finest differences are far below the measured noise, and that noise is far
    above rounding [m]."""
    finest = np.abs(s.up - s.down)[-TAIL:] / s.largest
    typical = nanmedian(noise[-TAIL:])
    return (finest < typical / QUIET).all(0) & (typical > VISIBLE * nanmedian(s.rounding[-TAIL:]))


def _hump(s: Samples, quotient: Array, noise: Array) -> Array:
    """Return the amplitude [m] of structure on which the differences grow beyond the noise as h
    shrinks, on three rungs or more; else 0.

    Steps and ripples are on both sides of x. A kink or jump off x, as the limit of a clamp, leaves
    one side as smooth as it is at x.
    """
    grow, d = _growing(s, quotient, noise)
    height = np.max(np.where(grow, d[1:] * s.h[2:], 0.0), 0)
    found = (grow.sum(0) >= 3) & (height < HUMP)
    off_centre = np.min(np.where(grow, s.h[2:], np.inf), 0) > TIE * s.scale
    for f, sign, width in ((s.up, 1.0, s.step_up), (s.down, -1.0, s.step_down)):
        grow, _ = _growing(s, sign * (f - s.f0) / s.largest / width, ONE_SIDE * noise)
        found &= ~off_centre | grow.any(0)
    return np.where(found, height, 0.0)


def _growing(s: Samples, quotient: Array, noise: Array) -> tuple[Mask, Array]:
    """Return where quotients [n, m] differ by more than at the rung before, beyond the noise [n -
    2, m]; and by how much they differ [n - 1, m]."""
    h, d = s.h, np.abs(quotient[1:] - quotient[:-1])
    beyond = d[1:] > Z * (noise[1:-1] / h[1:-1] + noise[2:] / h[2:])
    return (h[:-2] < NEAR * s.scale) & (d[1:] > d[:-1]) & beyond, d


def with_tail_noise(s: Samples, quotient: Array, noise: Array, best: Best) -> tuple[Best, Array]:
    """Estimate the noise again from the finest rungs, where quotient − value ~ noise / h, and pick
    again where it is higher or no entry was found.

    A pole close to x looks like noise from further away: entries found where f is far smaller than
    such noise are discarded.
    """
    n, none = len(quotient), best.rung < 0
    used = (np.arange(n)[:, None] >= np.maximum(best.rung + 1, n - TAIL - 1)) & ~s.unusable & ~none
    count = used.sum(0)
    squares = np.where(used, ((quotient - best.value) * s.h) ** 2, 0.0).sum(0)
    level = np.sqrt(2 * squares / np.maximum(count, 1))
    higher = ~none & (count > 0) & (level > 1.5 * nanmedian(np.where(used, noise, np.nan)))
    spread = nanmedian(np.abs(np.diff(quotient[-TAIL - 1 :], axis=0)) * s.h[-TAIL:])
    level = np.where(none, np.nan_to_num(spread, posinf=0.0), level)
    again = np.flatnonzero((higher | none) & s.two_sided)
    if not again.size:
        return best, noise
    noise = np.where(higher | none, np.maximum(noise, level), noise)
    best = best.better(again, pick(quotient[:, again], s.h[:, again], noise[:, again], True))
    at = best.rung[again], again
    poles = again[
        np.fmax(np.abs(s.up[at]), np.abs(s.down[at])) / s.largest[again] < ABSENT * noise[at]
    ]
    return best.replaced(poles, Best.none(len(poles))), noise


PIECE = 1 << 14  # elements that are solved together: their samples stay in the cache
# Of a quotient: differences that grow by less than a tenth of float64's tolerance are
# underestimated noise
NEGLIGIBLE = 1e-7


@dataclass(frozen=True)
class Derivative(Record):
    """Derivatives of m elements, each value ± bar; bar is inf where the derivative is unknown. All
    arrays [m].

    outcome: `Smoothness` codes. noise_bar: the part of the bar that is noise. left, right: slopes
    at a kink. second: another consistent reading (NaN: none); second_is_finer: whether it comes
    from finer steps. far: the value rests on steps beyond the element's own scale, where f may be
    another function; the second reading is then the best from smaller ones. unclear: a quick look
    does not suffice. unchanged: f moved nowhere, or rests on a plateau. at_border: f exists on one
    side only.
    """

    value: Array
    bar: Array
    outcome: Codes
    noise_bar: Array
    left: Array
    right: Array
    left_bar: Array
    right_bar: Array
    second: Array
    second_bar: Array
    second_is_finer: Mask
    far: Mask
    unclear: Mask
    unchanged: Mask
    at_border: Mask

    @property
    def smooth(self) -> Mask:
        return np.asarray(self.outcome == SMOOTH)

    @cached_property
    def rough(self) -> bool:
        """Whether some element is not smooth."""
        return bool(_distinct(self.outcome).any())  # SMOOTH is 0

    @cached_property
    def resting(self) -> bool:
        """Whether some element is unchanged."""
        return bool(_distinct(self.unchanged).any())

    @cached_property
    def ambiguous(self) -> bool:
        """Whether some element has a second reading."""
        return bool(np.isfinite(_distinct(self.second)).any())


def _distinct(column: AnyArray) -> AnyArray:
    """Return a column, or its first number where it repeats one number for all elements."""
    return column[:1] if column.strides == (0,) else column


def simple(value: Array, bar: Array, noise_bar: Array, unclear: Mask) -> Derivative:
    """Return smooth derivatives [m] without a second reading; void where they are `unclear`."""
    nan, inf, no, smooth = (
        repeated(each, len(value)) for each in (np.nan, np.inf, np.False_, SMOOTH)
    )
    return Derivative(
        value, bar, smooth, noise_bar, nan, nan, inf, inf, nan, inf, no, no, unclear, no, no
    )


def at_rest(bar: Array) -> Derivative:
    """Return derivatives [m] that are 0 ± bar."""
    return simple(repeated(0.0, len(bar)), bar, bar, repeated(np.False_, len(bar)))


# ---- The fast path: derivatives of elements that three steps show to be smooth, in a tenth of the
# operations of the whole solver, with the same numbers.
# Elements with any sign of a kink, a jump, a border, stillness or bad convergence are left to
# `solve`; every test here errs on that side. A linear function has no truncation error: one wide
# pair of points gives its slope (`secant`).
ARITHMETIC = 4 * U64  # of the value: the extrapolation's own rounding
# |f| and steps lie between its inverse and it, so that squares neither overflow nor vanish
TAME = 1e100
# Of the coarsest change: a change that shrinks less is a jump, which is constant up to 0.1
JUMPS = 0.2
# Least ratio of S = (f⁺ − 2f + f⁻)/h over two rungs of a smooth function: the ratio is 13 where f
# is smooth, and below 2.8 where it looks like a kink
BENDS = 3.0
W1, W2 = RATIO**2, RATIO**4
ONCE = (W1**3 + 1) / (W1 - 1) ** 2  # the variance of T(1, 1) over that of T(0, 0)
# Noise of T(1, 0), T(2, 0), T(2, 2), in units of f's noise over the last width
NOISES = np.sqrt([2 / W1, 2, 2 * (W2**2 * W1 + 1) * ONCE / (W2 - 1) ** 2 / W1**2])
NARROWED = RATIO**-2  # width of the last rung over that of the first


def smooth_estimate(
    up: Array, down: Array, width: Array, f0: Array, sigma: Array, unit: Array
) -> Derivative:
    """Return derivatives of smooth elements, the others `unclear`.

    `up`, `down`: f above and below x at three rungs [3, m]; `width`: step_up + step_down, negative
    where up is below, and [3, 1] where it is the same for all elements; f0, sigma, unit: f(x), its
    noise and unit roundoff [m].
    """
    # From the widest rung: the values of the finer ones hardly differ
    largest = np.maximum(np.abs(up[0]), np.abs(down[0]))
    largest = np.maximum(largest, np.abs(f0), out=largest)
    noise = np.maximum(sigma, unit * largest)
    change = up - down
    values, distances = _extrapolated(change / width)
    noise_bars = np.multiply.outer(Z * NOISES, noise / np.abs(width[2]))
    bars = distances + noise_bars
    # T(1, 0) must agree with the finer rung, as every entry
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
    smooth &= (largest < TAME) & (largest > 1 / TAME) & (bar < np.inf)
    return simple(value, bar + ARITHMETIC * np.abs(value), noise_bar, ~smooth)


def _once(s: Samples) -> Derivative:
    """Return T(1, 1) of two rungs as if these had converged: the bar is noise alone."""
    value = W1 / (W1 - 1) / s.width[1] * (s.up[1] - s.down[1])
    value -= 1 / (W1 - 1) / s.width[0] * (s.up[0] - s.down[0])
    noise = np.maximum(s.sigma, s.unit * np.maximum(np.abs(s.up[0]), np.abs(s.down[0])))
    bar = Z * np.sqrt(2 * ONCE) / np.abs(s.width[0]) * noise
    return simple(value, bar, bar, ~(np.isfinite(value) & np.isfinite(bar)))


def _linear(s: Samples) -> Derivative:
    """Return the slopes between the ends of one rung, as of a linear f."""
    up, down = s.up[0], s.down[0]
    rounding_of_x = s.magnitude if s.rounds_x else None
    d = secant(up, down, s.width[0], s.f0, s.sigma, s.unit, rounding_of_x)
    bad = ~(np.isfinite(up) & np.isfinite(down))
    value, bar = np.where(bad, 0.0, d.value), np.where(bad, np.inf, d.bar)
    return replace(d, value=value, bar=bar, unclear=bad, unchanged=s.still[0])


def _extrapolated(quotient: Array) -> tuple[list[Array], Array]:
    """Return T(1, 0), T(2, 0) and T(2, 2) of three quotients, the only entries that can have the
    smallest bar, and their distances to their parents [3, …]."""
    apart = quotient[1:] - quotient[:-1]
    distances = np.empty_like(quotient)
    np.abs(apart, out=distances[:2])
    once = np.add(quotient[1:], np.divide(apart, W1 - 1, out=apart), out=apart)
    step = once[1] - once[0]
    np.multiply(np.abs(step, out=distances[2]), W2 / (W2 - 1), out=distances[2])
    return [quotient[1], quotient[2], once[1] + np.divide(step, W2 - 1, out=step)], distances


def _rough(up: Array, down: Array, change: Array, f0: Array, noise: Array) -> Mask:
    """Return elements that do not move at the coarsest rung, or that show a jump or a bend."""
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
) -> Derivative:
    """Return derivatives from f [m] at the two ends of a step of this width, where both have
    values; f(x), its noise and its unit roundoff [m].

    The error of each end is its noise, at least the rounding of the largest of f's values (f is
    computed from numbers as large as f(x) even where it passes 0 at an end), and |f'|·u·|x| where a
    low-precision forward rounds x. `rounding_of_x`: |x| along the step in that case, None
    elsewhere.
    """
    value = (up - down) / width
    noise = np.maximum(
        sigma, unit * np.maximum(np.maximum(np.abs(up), np.abs(down)), finite_size(f0))
    )
    if rounding_of_x is not None:
        noise = np.where(
            unit > LOW_UNIT, np.maximum(noise, unit * np.abs(value) * rounding_of_x), noise
        )
    noise = Z * np.sqrt(2.0) * noise / width
    bar = noise + ARITHMETIC * np.abs(value)
    return simple(value, bar, noise, ~np.isfinite(bar))


def solve(s: Samples, full: bool) -> Derivative:
    """Return the derivative of every element. `full`: the rungs reach down to the finest, so that
    kinks, jumps and second readings can be identified. A single rung shows no curvature, and is
    taken as if f were linear."""
    m = len(s.f0)
    if m > PIECE:
        return joined(
            solve(s.take(slice(start, start + PIECE)), full) for start in range(0, m, PIECE)
        )
    if len(s.up) <= 2:
        return _linear(s) if len(s.up) == 1 else _once(s)
    if full or len(s.up) != len(QUICK):
        return _solve(s, full)
    easy = smooth_estimate(s.up, s.down, s.width, s.f0, s.sigma, s.unit)
    rest = np.flatnonzero(easy.unclear | (s.unit > LOW_UNIT) if s.rounds_x else easy.unclear)
    return easy.replaced(rest, _solve(s.take(rest), False)) if rest.size else easy


def _solve(s: Samples, full: bool) -> Derivative:
    """Solve elements together. Kinks, jumps, second readings and ends of the domain are found from
    a whole ladder only."""
    m, big = len(s.f0), s.largest
    far = finer = steep = np.zeros(m, bool)
    second, second_bar = np.full(m, np.nan), np.full(m, np.inf)
    if full:
        quotient, first_noise, second, second_bar, finer = readings(s)
        first = pick(quotient, s.h, first_noise, True)
        best, noise = with_tail_noise(s, quotient, first_noise, first)
        steep = infinite(s, noise, bends(s, noise)[1]) | infinite(s, first_noise, first.rung < 0)
        jumping = jumps(s, first_noise)
        # Entries chosen beyond the element's own scale, and the best ones from smaller steps
        beyond = (best.rung >= 0) & s.far[np.maximum(best.rung, 0), np.arange(m)]
        where = np.flatnonzero(beyond)
        nearer = np.where(s.far, np.nan, s.quotient)[:, where]
        near = Best.none(m).better(where, pick(nearer, s.h[:, where], noise[:, where], True))
        far = beyond & (near.rung >= 0)
        second = np.where(far, near.value * big, second)
        second_bar = np.where(far, near.bar * big, second_bar)
        finer = finer & ~far
    else:
        noise = s.noise
        best = pick(s.quotient, s.h, noise, False)
        jumping = jumps(s, noise)
    suspected, at_x, exponent = bends(s, noise)
    outcome = np.where(jumping, JUMP, SMOOTH).astype(np.int8)
    bent = at_x & ~jumping & (full | (exponent < -0.4))
    outcome[bent] = np.where(exponent < -0.5, JUMP, KINK)[bent]
    suspected |= outcome != SMOOTH
    left, right = sides(s, noise, outcome == KINK)
    # Slopes apart because of structure that no rung resolves
    apart = np.abs(left.value - right.value) > left.bar + right.bar
    outcome[(outcome == KINK) & ~apart] = INCONSISTENT
    outcome[(outcome == SMOOTH) & (best.rung < 0)] = INCONSISTENT
    outcome[~s.two_sided | (steep & ~jumping)] = NON_FINITE
    smooth = (best.rung >= 0) & (outcome == SMOOTH)
    value, noise_bar = best.value * big, best.noise * big
    bar = np.where(smooth, (best.bar + ARITHMETIC * np.abs(best.value)) * big, np.inf)
    second = np.where(outcome == NON_FINITE, np.nan, second)
    unclear = np.zeros(m, bool)
    at_border = np.zeros(m, bool)
    unchanged = s.unchanged
    if full:
        for elements, one_sided in borders(s):
            value[elements] = one_sided.value
            bar[elements] = one_sided.bar
            noise_bar[elements] = one_sided.noise
            outcome[elements], at_border[elements] = SMOOTH, True
    else:
        # Quick rungs whose differences do not shrink beyond the noise, or that are incomplete; a
        # negligible growth counts as an error of the value
        change = np.abs(s.quotient[1:] - s.quotient[:-1])
        growing = (change[1:] > 0.5 * change[:-1]) & (change[1:] > Z * s.noise[2:] / s.h[2:])
        small = growing & (change[1:] <= NEGLIGIBLE * np.abs(s.quotient[2:]))
        unsteady = (growing & ~small).any(0) | (np.sum(~s.unusable, 0) < 3)
        unclear = (unsteady | suspected) & ~unchanged
        bar = bar + np.where(small, change[1:], 0.0).max(0, initial=0.0) * big
    if unchanged.any():
        # u|f| / h, for h ≤ 0.3 of the scale (a wider h would claim an unverified linearity), as
        # noise that coarser rungs reduce. Underflow also leaves f unchanged: for steps below the
        # roundoff of 1, |f| counts as no smaller than the smallest number
        width = s.rests_within
        underflow = np.where(
            width > 2 * s.unit, 0.0, np.where(s.unit > U64, smallest(U32), smallest(U64))
        )
        with np.errstate(all="ignore"):
            rounding = np.maximum(s.unit * np.abs(s.f0), underflow) / width
        rounding = np.where(width > 0, rounding, np.inf)[unchanged]
        value[unchanged] = 0.0
        bar[unchanged] = rounding
        noise_bar[unchanged] = rounding
        outcome[unchanged] = SMOOTH
    # A plateau next to x passes a zero, but proves nothing against another gradient, as it may be a
    # wide tread
    resting = unchanged | s.on_plateau if full else unchanged
    return Derivative(
        value,
        bar,
        outcome,
        noise_bar,
        left.value,
        right.value,
        left.bar,
        right.bar,
        second,
        second_bar,
        finer,
        far,
        unclear,
        resting,
        at_border,
    )


# Adaptive step selection: every derivative gets coarser steps where noise limits it and finer ones
# elsewhere, until its error suffices.
# Noise-limited elements get coarser rungs, also above the scale; the others finer ones; elements
# that three such steps leave open climb every rung. (All rungs at once: 41 calls per column instead
# of 7, and more undecided elements.)
# After that every rung; where noise limits, coarser rungs continue: half as many undecided
CLIMB_STEPS, NOISY_STEPS = 3, 7
# Share of noise in the bar from which on it limits: a finer rung has 3.6 times as much noise, at
# least the whole bar however well it converges
NOISE_SHARE = 0.25
FINEST = RUNGS - 1
EVERY_RUNG = 2 * RUNGS  # forward calls for every rung of one line

Judge = Callable[[Index, Derivative], Codes]
"""Verdicts of elements (indices, their derivatives): what is settled, and what is surely a
mismatch."""


@dataclass(frozen=True)
class Outputs:
    """What is known of the outputs: f(x), noise [M]; `unit()` returns their unit roundoff [M],
    updated as values come in."""

    f0: Array
    sigma: Array
    unit: Callable[[], Array]
    rounds_x: bool

    def samples(self, rungs: Array, out: Index, magnitude: Array, scale: Array) -> Samples:
        """Return the samples [4, n, m] (up, down, step up, step down) of these outputs [m]."""
        f0, sigma, unit = (each.take(out) for each in (self.f0, self.sigma, self.unit()))
        up, down, step_up, step_down = rungs
        return Samples(
            up, down, step_up, step_down, f0, sigma, unit, magnitude, scale, self.rounds_x
        )


class Ladders:
    """The samples of a set of elements, given by a `line` and an output by index [E] in the order
    of the lines, each taken once: at most RUNGS + 21 rungs of up, down and two steps."""

    def __init__(self, lines: Sequence[Line], outputs: Outputs, line: Index, out: Index) -> None:
        self.lines = lines
        self.outputs = outputs
        self.line = line
        self.out = out
        used, starts = np.unique(line, return_index=True)
        groups = np.split(np.arange(len(line)), starts[1:])
        self._members = {int(n): group for n, group in zip(used, groups, strict=False)}
        self._sampled: set[tuple[int, int]] = set()
        self._samples: dict[int, Array] = {}
        self._size, self._magnitude = np.empty((2, len(line)))
        for n, members in self._members.items():
            self._size[members] = self._shown(lines[n].size, members)
            self._magnitude[members] = self._shown(lines[n].magnitude, members)

    def put(self, k: int, samples: Array) -> None:
        """Store samples [4, E] (up, down, step up, step down) of rung k that are known already."""
        self._samples[k] = samples
        self._sampled.update((n, k) for n in self._members)

    def under(self, noise: Array) -> Ladders:
        """Return the same samples with at least this noise [M] of f."""
        other = copy(self)
        other.outputs = replace(self.outputs, sigma=np.maximum(self.outputs.sigma, noise))
        return other

    @property
    def known(self) -> list[int]:
        """The rungs that were sampled, the coarsest first."""
        return sorted(self._samples)

    def samples(self, i: Index, rungs: Iterable[int]) -> Samples:
        """Return elements i at these rungs, sampled where they were not yet."""
        lines, rungs = np.unique(self.line[i]).tolist(), list(rungs)
        for n in lines:  # line by line: the positions of its columns are looked up once
            for k in rungs:
                self._sample(n, k)
        samples = np.stack([self._samples[k][:, i] for k in rungs], 1)
        return self.outputs.samples(samples, self.out[i], self._magnitude[i], self._size[i])

    def solve(self, i: Index, rungs: Iterable[int], full: bool) -> Derivative:
        """Solve elements i from these rungs."""
        return solve(self.samples(i, rungs), full)

    def every_rung(self) -> Derivative:
        """Return the derivatives of all elements from the whole sequence of steps."""
        return self.solve(np.arange(len(self.out)), range(RUNGS), True)

    def _sample(self, n: int, k: int) -> None:
        if (n, k) in self._sampled:
            return
        self._sampled.add((n, k))
        members = self._members[n]
        if k not in self._samples:
            self._samples[k] = np.full((4, len(self.line)), np.nan)
        row = self._samples[k]
        samples = sample_rung(self.lines[n], k)
        if samples is None:
            row[2:, members] = step(1.0, k) * self._size[members]
        else:
            for known, of_outputs in zip(row, samples, strict=True):
                known[members] = self._shown(of_outputs, members)

    def _shown(self, of_outputs: float | Array, members: Index) -> float | Array:
        """Return the one number for all outputs of a line, or the numbers of these elements."""
        return of_outputs[self.out[members]] if isinstance(of_outputs, np.ndarray) else of_outputs


class Climb:
    """The climb of one set of elements through the rungs. `unmoved` [E]: elements that the quick
    rungs do not move, though a coarse step does.

    After `run`, `unconfirmed`: mismatches that were judged on a part of the ladder only;
    `exhausted`: elements that have seen all of it [E].
    """

    def __init__(self, ladders: Ladders, quick: Derivative, judge: Judge, unmoved: Mask) -> None:
        self.ladders = ladders
        self.derivative = quick
        self._judge = judge
        self._unmoved = unmoved
        self._line, lines = ladders.line, len(ladders.lines)
        self._low = np.full(lines, QUICK[0])
        self._high = np.full(lines, QUICK[-1])
        self.unconfirmed, self.exhausted = np.zeros((2, len(self._line)), bool)

    def run(self) -> Derivative:
        """Return the derivatives of all elements, each climbed until it is settled or has seen all
        available rungs."""
        left = self._left(np.arange(len(self._line)))
        for n in range(NOISY_STEPS):
            helped = left[~self.unconfirmed[left]]
            helped = helped if n < CLIMB_STEPS else helped[self._noisy(helped)]
            if not helped.size:
                break
            self._widen(helped, first=n == 0)
            left = self._left(left)
        self.every_rung(left[~self.unconfirmed[left]])
        return self.derivative

    def every_rung(self, i: Index) -> None:
        """Solve elements i from the whole ladder."""
        lines = np.unique(self._line[i])
        self._low[lines] = np.minimum(self._low[lines], 0)
        self._high[lines] = FINEST
        self._solve(i)
        self.exhausted[i] = True

    def _left(self, i: Index) -> Index:
        """Return those of elements i that are not settled, and record which of them are surely
        wrong."""
        d = self.derivative.take(i)
        codes = self._judge(i, d)
        self.unconfirmed[i] = (codes == MISMATCH) & d.smooth & ~d.unclear & ~d.at_border
        open_ = ~settled(d, codes) | (self._unmoved[i] & (self._low[self._line[i]] >= QUICK[0]))
        self.unconfirmed[i[~open_]] = False
        return i[open_]

    def _widen(self, helped: Index, first: bool) -> None:
        """Solve elements from three more rungs: coarser where noise limits, finer elsewhere, all
        where f is rough."""
        noisy = self._noisy(helped)
        unmoved = self._unmoved[helped] & first
        coarser, finer = (
            np.unique(self._line[helped[some & ~unmoved]]) for some in (noisy, ~noisy)
        )
        self._low[coarser] -= CLIMB
        self._low[np.unique(self._line[helped[unmoved]])] = 0
        self._high[finer] = np.minimum(self._high[finer] + CLIMB, FINEST)
        outcome = self.derivative.outcome[helped]
        self._high[np.unique(self._line[helped[(outcome == KINK) | (outcome == JUMP)]])] = FINEST
        self._solve(helped)

    def _solve(self, i: Index) -> None:
        """Solve elements i again, those with the same range of rungs together."""
        low, high = self._low[self._line[i]], self._high[self._line[i]]
        for a, b in sorted(set(zip(low.tolist(), high.tolist(), strict=True))):
            same = i[(low == a) & (high == b)]
            self.derivative = self.derivative.replaced(
                same, self.ladders.solve(same, range(a, b + 1), b >= FINEST)
            )

    def _noisy(self, i: Index) -> Mask:
        d = self.derivative
        bar, smooth = d.bar[i], d.outcome[i] == SMOOTH
        return np.asarray(
            np.isfinite(bar) & (d.noise_bar[i] > NOISE_SHARE * bar) & smooth & ~d.unclear[i]
        )


def settled(d: Derivative, verdicts: Codes) -> Mask:
    """Return which elements are settled, by the verdict and not by the size of the bar: that saves
    a quarter of the calls at the same verdicts."""
    right = ~d.unclear & (verdicts == PASS)
    return np.asarray(right & d.smooth if d.rough else right)


def derivative(
    line: Line,
    outputs: Outputs,
    *,
    rtol: float = 1e-6,
    atol: float | Array = 0.0,
    every_rung: bool = False,
) -> Derivative:
    """Return derivatives [M] of all outputs along one line, refined until each bar is within atol +
    rtol·|value| or further rungs do not help.

    `atol` may be [M]; inf: the output is not needed. `every_rung` climbs the whole ladder, as no
    final result rests on quick rungs alone.
    """
    ladders = along_line(line, outputs)
    everything = np.arange(len(outputs.f0))
    wanted = np.broadcast_to(atol, everything.shape)

    def narrow(i: Index, d: Derivative) -> Codes:
        return np.where(~(d.bar > wanted[i] + rtol * np.abs(d.value)), PASS, UNDECIDED).astype(
            np.int8
        )

    with np.errstate(all="ignore"):
        if every_rung:
            return ladders.every_rung()
        return Climb(
            ladders,
            ladders.solve(everything, QUICK, False),
            narrow,
            np.zeros(len(everything), bool),
        ).run()


def along_line(line: Line, outputs: Outputs) -> Ladders:
    """Return the ladders of all outputs [M] along one line."""
    everything = np.arange(len(outputs.f0))
    return Ladders([line], outputs, np.zeros_like(everything), everything)
