"""Richardson extrapolation of central differences in Romberg's table, with the noise carried along,
and the choice of its best entry.

C. Ridders, Adv. Eng. Softw. 4 (1982), with three departures: the rungs' ratio is no integer, noise
is propagated through the table, and a value counts only where every finer rung agrees with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.estimate.samples import Samples
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import NEAR, RATIO, VISIBLE, Array, Index, Mask, Z, nanmedian

# ---- Richardson extrapolation of central differences in Romberg's table, with the noise carried
# along, and the choice of its best entry
ORDERS = 4  # extrapolation orders 0 to 3: errors h², h⁴, h⁶, h⁸
# Finest rungs with a value, of a long ladder, that no value is taken from: they must agree with it
CONFIRM = 4
LONG = 8


@dataclass(frozen=True)
class Table:
    """T(k, j), its bar and the part of the bar that is noise: each [orders, n, m]."""

    value: Array
    bar: Array
    noise: Array


@dataclass(frozen=True)
class Best(Record):
    """The chosen entry of each element [m]; rung −1 where none was consistent."""

    value: Array
    bar: Array
    noise: Array
    rung: Index

    @classmethod
    def none(cls, m: int) -> Best:
        """No choice for any of m elements."""
        return cls(np.full(m, np.nan), np.full(m, np.inf), np.full(m, np.inf), np.full(m, -1))

    def better(self, elements: Index, new: Best) -> Best:
        """With the entries of `new` at these elements, where it found any."""
        better = new.rung >= 0
        return self.replaced(elements[better], new.take(better))


def table(D: Array, h: Array, noise: Array) -> Table:
    """The Romberg table of quotients D at steps h with noise standard deviations, all [n, m].

    Var(k, 0) = σ²/(2h²); Var(k, j) = (R⁴ʲ Var(k, j−1) + Var(k−1, j−1)) / (R²ʲ − 1)².
    """
    shape = (ORDERS, *D.shape)
    value, variance, trend = np.full(shape, np.nan), np.full(shape, np.inf), np.full(shape, np.inf)
    value[0], variance[0] = D, (noise / (np.sqrt(2) * h)) ** 2
    trend[0, 1:] = np.abs(D[1:] - D[:-1])
    for j in range(1, ORDERS):
        w, fine, coarse = RATIO ** (2 * j), value[j - 1, j:], value[j - 1, j - 1 : -1]
        value[j, j:] = (w * fine - coarse) / (w - 1)
        variance[j, j:] = (w * w * variance[j - 1, j:] + variance[j - 1, j - 1 : -1]) / (w - 1) ** 2
        # from both parents: the fine one alone takes convergence at order 2j for granted
        trend[j, j:] = np.maximum(np.abs(value[j, j:] - fine), np.abs(value[j, j:] - coarse))
    noise_bar = np.sqrt(variance, out=variance)
    noise_bar *= Z
    trend += noise_bar
    return Table(value, np.where(np.isfinite(trend), trend, np.inf), noise_bar)


def pick(D: Array, h: Array, noise: Array, full: bool) -> Best:
    """The entry with the least bar that every finer rung agrees with: kills the plateaus of kinks,
    jumps and aliases."""
    n, m = D.shape
    t = table(D, h, noise)
    confirmed = _confirmed(D) if full else np.ones(D.shape, bool)
    value, bar, noise_bar, rung = (
        np.full(m, np.nan),
        np.full(m, np.inf),
        np.full(m, np.inf),
        np.full(m, -1),
    )
    for j in range(ORDERS):
        for k in range(max(j, 1), n):
            better = (t.bar[j, k] < bar) & confirmed[k]
            if not better.any():
                continue
            finer = D[k + 1 :]
            agree = np.abs(t.value[j, k] - finer) <= t.bar[j, k] + t.bar[0, k + 1 :]
            better &= (agree | ~np.isfinite(finer)).all(0)
            value[better], bar[better] = t.value[j, k][better], t.bar[j, k][better]
            noise_bar[better], rung[better] = t.noise[j, k][better], k
    return Best(value, bar, noise_bar, rung)


def _confirmed(D: Array) -> Mask:
    """Rungs that a value may be taken from: enough finer ones have a value, or the ladder is
    short."""
    from_here = np.cumsum(np.isfinite(D)[::-1], 0)[::-1]  # rungs with a value, k and finer
    return np.asarray((from_here > CONFIRM) | (from_here[0] <= LONG))


def one_sided(change: Array, step: Array, noise: Array, safety: float = 1.0) -> Best:
    """Forward differences without extrapolation: change of f, signed step and noise [n, m]; the bar
    is safety·|ΔD| + noise.

    Orders are fractional where f ends or bends (x^1.5), so none is assumed. Every finer rung must
    agree, as in `pick`.
    """
    d, noise_bars = change / step, Z * np.sqrt(2) * noise / np.abs(step)
    trend = np.vstack([np.full(d.shape[1], np.inf), safety * np.abs(np.diff(d, axis=0))])
    bars = np.where(np.isfinite(trend + noise_bars), trend + noise_bars, np.inf)
    agree = [
        ((np.abs(d[k] - d[k + 1 :]) <= bars[k] + bars[k + 1 :]) | ~np.isfinite(d[k + 1 :])).all(0)
        for k in range(len(d))
    ]
    bars = np.where(agree, bars, np.inf)
    rung, elements = np.argmin(bars, 0), np.arange(d.shape[1])
    return Best(d[rung, elements], bars[rung, elements], noise_bars[rung, elements], rung)


# ---- Ambiguous derivatives: f in steps or ripples has one slope at the finest steps and another
# above them. A mismatch must miss both
STEPS_BELOW = 4  # finest rungs that do not move a staircase
# Of the scale: a staircase moves within it; beyond, it may be a flat function as well
STAIR_STEP = 4e-3 * RATIO
# Roundings of f within which all finer rungs keep the slope of a tread that is not level, as
# x·round(x)
TREAD = 4.0
# Roundings of f that a step off such a tread rises at least: curvature appears little by little
SLANT_RISE = 1e3
# Of the distance to the tread's slope: by so little the quotients above the steps differ, or there
# is no trend
SETTLED = 0.5
# Roundings of x: a step as small may be that of an intermediate result as large as x, as in x·(1 +
# tanh x)
OF_X = 8
QUIET = 30  # differences this far below the measured noise: the noise was overestimated for them
HUMP = 1e-3  # of |f|: larger structure is the function, not an artefact
# Times the noise of a central quotient: that of (f(x + h) - f(x)) / h, of the same h
ONE_SIDE = 2.0
ABSENT = 1e-2  # of the noise: values that are smaller than this do not have it
TIE = 1e-7  # of the scale: a kink or jump that is nearer to x is a tie
TAIL = 5  # finest rungs asked for their own noise


def readings(s: Samples) -> tuple[Array, Array, Array, Array, Mask]:
    """Quotients and noise [n, m] for the main reading of a full ladder, with a staircase's rise as
    its noise; value and bar [m] of the second (NaN, inf: none), and whether that is the finer
    [m]."""
    level, wide, rise = _stairs(s)
    slanted, slant_rise = _slanted(s)
    stair = level | slanted
    noise = np.where(stair, np.maximum(s.noise, np.where(level, rise, slant_rise)), s.noise)
    quiet = _quiet(s, noise)
    # No reading of the two may come from beyond the element's own scale
    near = np.where(s.far, np.nan, s.quotient)
    quotient = np.where(stair, near, s.quotient)
    height = _hump(s, quotient, noise)
    hump = (height > 0) & ~stair & ~quiet
    wide = wide & ~stair & ~quiet & ~hump
    second_noise = np.where(
        hump, np.maximum(noise, height), np.where(wide, np.maximum(noise, rise), s.rounding)
    )
    value, bar = np.full(len(quiet), np.nan), np.full(len(quiet), np.inf)
    ambiguous = np.flatnonzero(stair | quiet | hump | wide)
    if ambiguous.size:
        second = pick(near[:, ambiguous], s.h[:, ambiguous], second_noise[:, ambiguous], True)
        value[ambiguous] = second.value * s.largest[ambiguous]
        bar[ambiguous] = np.where(second.rung >= 0, second.bar * s.largest[ambiguous], np.inf)
    return quotient, noise, value, bar, quiet & ~stair


def _stairs(s: Samples) -> tuple[Mask, Mask, Array]:
    """f still at the finest rungs, then moved by far more than rounding, and a little above on both
    sides (a kink's flat side would not be).

    Elements [m] that do; those whose steps are so wide that they may be flat as well (there the
    trend is the second reading); by how much they move.
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
    """One slope on four fine rungs or more, left by a step on the next, and above the steps another
    one: a narrow type inside, or f in float32.

    (x·(1 + tanh x) for x < 0: the sum moves in steps of its rounding, the product with x is a slope
    between them.)
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
    up, down = (
        np.abs((s.up - s.f0) / s.largest - slope * s.step_up),
        np.abs((s.down - s.f0) / s.largest + slope * s.step_down),
    )
    rise = np.fmax(up[k, elements], down[k, elements])
    sudden = rise > SLANT_RISE * s.rounding[k, elements]
    both = np.fmin(up, down) > SLANT_RISE * s.rounding  # a kink leaves the line on one side only
    of_x = (rise * s.largest <= OF_X * s.unit * s.magnitude) & (s.h[k, elements] < NEAR * s.scale)
    return long & sudden & (of_x | _settled(s, both, slope)), rise


def _settled(s: Samples, both: Mask, slope: Array) -> Mask:
    """Do the three quotients above the finest rung that takes steps on both sides differ less from
    each other than from the tread's slope?"""
    n, elements = len(s.up), np.arange(len(s.f0))
    k = n - 1 - np.argmax(both[::-1], 0)
    above = [s.quotient[np.maximum(k - i, 0), elements] for i in (1, 2, 3)]
    trend = SETTLED * np.abs(above[0] - slope)
    steady = (np.abs(above[0] - above[1]) < trend) & (np.abs(above[1] - above[2]) < trend)
    return np.asarray(both.any(0) & (k >= 3) & steady & (s.h[k, elements] < STAIR_STEP * s.scale))


def _both_sides(s: Samples, k: Index) -> Mask:
    """Does f move on both sides two rungs above k [m], or, near the edge of a step, on the next
    rung above k where it takes another step?"""
    n, m = s.up.shape
    elements = np.arange(m)
    both = (s.up != s.f0) & (s.down != s.f0)
    above = np.arange(n)[:, None] <= k
    held = (s.up == s.up[k, elements]) & (s.down == s.down[k, elements]) & (s.h < NEAR * s.scale)
    # The finest rung above k where f is not what it is at k
    onward = n - 1 - np.argmax((above & ~held)[::-1], 0)
    other = (above & ~held).any(0) & (s.h[onward, elements] < NEAR * s.scale)
    return np.asarray(both[np.maximum(k - 2, 0), elements] | (other & both[onward, elements]))


def _quiet(s: Samples, noise: Array) -> Mask:
    """Finest differences far below the noise that was measured, which is far above rounding [m]."""
    finest = np.abs(s.up - s.down)[-TAIL:] / s.largest
    typical = nanmedian(noise[-TAIL:])
    return np.asarray(
        (finest < typical / QUIET).all(0) & (typical > VISIBLE * nanmedian(s.rounding[-TAIL:]))
    )


def _hump(s: Samples, quotient: Array, noise: Array) -> Array:
    """Amplitude [m] of structure on which the differences grow, beyond the noise, as h shrinks, on
    three rungs or more; else 0.

    Steps and ripples are on both sides of x. A kink or jump that lies beside x, as the limit of a
    clamp, leaves one side as smooth as it is at x.
    """
    grow, d = _growing(s, quotient, noise)
    height = np.max(np.where(grow, d[1:] * s.h[2:], 0.0), 0)
    found = (grow.sum(0) >= 3) & (height < HUMP)
    beside = np.min(np.where(grow, s.h[2:], np.inf), 0) > TIE * s.scale
    if (found & beside).any():
        for f, sign, width in ((s.up, 1.0, s.step_up), (s.down, -1.0, s.step_down)):
            found &= ~beside | _growing(s, sign * (f - s.f0) / s.largest / width, ONE_SIDE * noise)[
                0
            ].any(0)
    return np.where(found, height, 0.0)


def _growing(s: Samples, quotient: Array, noise: Array) -> tuple[Mask, Array]:
    """Where quotients [n, m] differ by more than at the rung before, beyond the noise [n - 2, m];
    and by how much they differ [n - 1, m]."""
    h, d = s.h, np.abs(quotient[1:] - quotient[:-1])
    beyond = d[1:] > Z * (noise[1:-1] / h[1:-1] + noise[2:] / h[2:])
    return (h[:-2] < NEAR * s.scale) & (d[1:] > d[:-1]) & beyond, d


def with_tail_noise(s: Samples, quotient: Array, noise: Array, best: Best) -> tuple[Best, Array]:
    """A second noise estimate from the finest rungs, where quotient − value ~ noise / h: picked
    again where it is higher, or nothing was found.

    A pole close to x looks like noise from further away: nothing counts that was found where f is
    far smaller than such noise.
    """
    n, none = len(quotient), best.rung < 0
    used = (np.arange(n)[:, None] >= np.maximum(best.rung + 1, n - TAIL - 1)) & ~s.unusable & ~none
    count = used.sum(0)
    squares = np.where(used, ((quotient - best.value) * s.h) ** 2, 0.0).sum(0)
    level = np.sqrt(2 * squares / np.maximum(count, 1))
    higher = ~none & (count > 0) & (level > 1.5 * nanmedian(np.where(used, noise, np.nan)))
    if none.any():
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
