"""Derivatives with an error bar from central differences at a sequence of steps, for many elements at once (method.md section 2).

A quick look (`full` false) sees a few rungs and declares nothing: it says where finer rungs are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.kinks import INCONSISTENT, JUMP, KINK, NON_FINITE, SMOOTH, bends, borders, infinite, jumps, sides
from gradverify.numerics.estimate.romberg import Best, pick, readings, with_tail_noise
from gradverify.numerics.estimate.samples import LOW_UNIT, Samples
from gradverify.numerics.estimate.smooth import ARITHMETIC, SmoothEstimate, smooth_estimate
from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import QUICK, U32, U64, AnyArray, Array, Codes, Mask, Z, repeated, smallest

PIECE = 1 << 14  # elements that are solved together: their samples stay in the cache
NEGLIGIBLE = 1e-7  # of a quotient: differences that grow by less than a tenth of float64's tolerance are noise that was underestimated


@dataclass(frozen=True)
class Derivative(Record):
    """Derivatives of m elements, each value ± bar; bar is inf where nothing can be said. All arrays [m].

    outcome: `Smoothness` codes. noise_bar: the part of the bar that is noise. left, right: slopes at a kink. second: another consistent
    reading (NaN: none), `second_is_finer` where it comes from finer steps. far: the value rests on steps beyond the element's own scale,
    where f may be another function; the second reading is then the best from nearer ones. unclear: a quick look cannot tell.
    unchanged: f moved nowhere, or rests on a plateau. at_border: f exists on one side only.
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
        """Some element is not smooth."""
        return bool(_distinct(self.outcome).any())  # SMOOTH is 0

    @cached_property
    def resting(self) -> bool:
        """Some element is unchanged."""
        return bool(_distinct(self.unchanged).any())

    @cached_property
    def ambiguous(self) -> bool:
        """Some element has a second reading."""
        return bool(np.isfinite(_distinct(self.second)).any())


def _distinct(column: AnyArray) -> AnyArray:
    """A column, or the one number that it is for all elements."""
    return column[:1] if column.strides == (0,) else column


def solve(s: Samples, full: bool) -> Derivative:
    """The derivative of every element. `full`: the rungs reach down to the finest, so that kinks, jumps and second readings can be told."""
    m = len(s.f0)
    if m > PIECE:
        return joined(solve(s.take(slice(start, start + PIECE)), full) for start in range(0, m, PIECE))
    if full or len(s.up) != len(QUICK):
        return _solve(s, full)
    easy = smooth_estimate(s.up, s.down, s.width, s.f0, s.sigma, s.unit)
    smooth = easy.smooth & ~(s.unit > LOW_UNIT) if s.rounds_x else easy.smooth
    rest = np.flatnonzero(~smooth)
    found = as_derivative(easy)
    return found.replaced(rest, _solve(s.take(rest), False)) if rest.size else found


def as_derivative(easy: SmoothEstimate) -> Derivative:
    """What is plain as derivatives [m]; what is not told is void."""
    m = easy.value.size
    nan, inf, no, smooth = (repeated(each, m) for each in (np.nan, np.inf, np.False_, SMOOTH))
    unclear = np.zeros(m, bool)
    return Derivative(easy.value.ravel(), easy.bar.ravel(), smooth, easy.noise.ravel(), nan, nan, inf, inf, nan, inf, no, no, unclear, no, no)


def at_rest(bar: Array) -> Derivative:
    """Derivatives [m] that are 0 ± bar."""
    m = len(bar)
    zero, nan, inf, no, smooth = (repeated(each, m) for each in (0.0, np.nan, np.inf, np.False_, SMOOTH))
    return Derivative(zero, bar, smooth, bar, nan, nan, inf, inf, nan, inf, no, no, no, no, no)


def _solve(s: Samples, full: bool) -> Derivative:
    x = _whole_ladder(s) if full else _few_rungs(s)
    outcome, looks_rough = _outcome(s, x.noise, x.jumping, full)
    slopes = sides(s, x.noise, outcome == KINK)
    outcome[(outcome == KINK) & ~slopes.differ] = INCONSISTENT
    outcome[(outcome == SMOOTH) & (x.best.rung < 0)] = INCONSISTENT
    outcome[~s.two_sided | (x.infinite & ~x.jumping)] = NON_FINITE
    second = np.where(outcome == NON_FINITE, np.nan, x.second)
    smooth = (x.best.rung >= 0) & (outcome == SMOOTH)
    bar = np.where(smooth, (x.best.bar + ARITHMETIC * np.abs(x.best.value)) * s.largest, np.inf)
    unclear = np.zeros(len(bar), bool)
    if not full:
        unsteady, growth = _unsteady(s)
        unclear, bar = unsteady | looks_rough, bar + growth * s.largest
    result = Derivative(
        x.best.value * s.largest, bar, outcome, x.best.noise * s.largest, slopes.left, slopes.right, slopes.left_bar, slopes.right_bar,
        second, x.second_bar, x.second_is_finer, x.far, unclear & ~s.unchanged, s.unchanged, np.zeros(len(bar), bool))
    return _on_plateau(s, _unchanged(s, _at_borders(s, result))) if full else _unchanged(s, result)


@dataclass(frozen=True)
class _Extrapolated:
    """What the rungs say of an element [m] before kinks are looked for: the best entry of its table, under noise [n, m]; whether f jumps or its slope
    is infinite; the second reading and its bar (NaN, inf: none); `second_is_finer` and `far` as in `Derivative`."""

    best: Best
    noise: Array
    jumping: Mask
    infinite: Mask
    second: Array
    second_bar: Array
    second_is_finer: Mask
    far: Mask


def _few_rungs(s: Samples) -> _Extrapolated:
    m = len(s.f0)
    no = np.zeros(m, bool)
    return _Extrapolated(pick(s.quotient, s.h, s.noise, False), s.noise, jumps(s, s.noise), no, np.full(m, np.nan), np.full(m, np.inf), no, no)


def _whole_ladder(s: Samples) -> _Extrapolated:
    read = readings(s)
    first = pick(read.quotient, s.h, read.noise, True)
    best, noise = with_tail_noise(s, read.quotient, read.noise, first)
    grows = infinite(s, noise, bends(s, noise).at_x) | infinite(s, read.noise, first.rung < 0)
    far, near = _nearer(s, noise, best)
    second, second_bar = np.where(far, near.value * s.largest, read.value), np.where(far, near.bar * s.largest, read.bar)
    return _Extrapolated(best, noise, jumps(s, read.noise), grows, second, second_bar, read.finer & ~far, far)


def _nearer(s: Samples, noise: Array, best: Best) -> tuple[Mask, Best]:
    """Elements [m] whose choice lies beyond their own scale, and their best choice from nearer rungs (NaN elsewhere)."""
    m = len(s.f0)
    far = (best.rung >= 0) & s.far[np.maximum(best.rung, 0), np.arange(m)]
    near = Best.none(m)
    where = np.flatnonzero(far)
    if where.size:
        quotient = np.where(s.far, np.nan, s.quotient)
        near = near.better(where, pick(quotient[:, where], s.h[:, where], noise[:, where], True))
    return far & (near.rung >= 0), near


def _outcome(s: Samples, noise: Array, jumping: Mask, full: bool) -> tuple[Codes, Mask]:
    """Smooth, kink or jump [m], and what a quick look cannot tell from one [m]."""
    outcome = np.where(jumping, JUMP, SMOOTH).astype(np.int8)
    bend = bends(s, noise)
    hit = bend.at_x & (outcome == SMOOTH) & (full | (bend.exponent < -0.4))
    outcome[hit] = np.where(bend.exponent < -0.5, JUMP, KINK)[hit]
    return outcome, bend.suspected | (outcome != SMOOTH)


def _unsteady(s: Samples) -> tuple[Mask, Array]:
    """Quick rungs whose differences do not shrink beyond the noise, or that are not all there [m]; and by how much those grow that are
    negligible [m], which count as an error of the value."""
    d = np.abs(s.quotient[1:] - s.quotient[:-1])
    growing = (d[1:] > 0.5 * d[:-1]) & (d[1:] > Z * s.noise[2:] / s.h[2:])
    small = growing & (d[1:] <= NEGLIGIBLE * np.abs(s.quotient[2:]))
    return np.asarray((growing & ~small).any(0) | (np.sum(~s.unusable, 0) < 3)), np.where(small, d[1:], 0.0).max(0, initial=0.0)


def _at_borders(s: Samples, result: Derivative) -> Derivative:
    """One-sided derivatives where f exists on one side of x only."""
    value, bar, noise_bar = result.value.copy(), result.bar.copy(), result.noise_bar.copy()
    outcome, at_border = result.outcome.copy(), result.at_border.copy()
    for border in borders(s):
        c = border.elements
        value[c], bar[c], noise_bar[c] = border.choice.value, border.choice.bar, border.choice.noise
        outcome[c], at_border[c] = SMOOTH, True
    return replace(result, value=value, bar=bar, outcome=outcome, noise_bar=noise_bar, at_border=at_border)


def _unchanged(s: Samples, result: Derivative) -> Derivative:
    """Where f is bitwise f(x) at every rung: 0 ± u|f| / h, for h ≤ 0.3 of the scale; a wider h would claim a linearity nobody checked. What
    underflows rests too: for steps below the roundoff of 1, |f| counts as no less than the smallest number."""
    same = s.unchanged
    if not same.any():
        return result
    underflow = np.where(s.rests_within > 2 * s.unit, 0.0, np.where(s.unit > U64, smallest(U32), smallest(U64)))
    with np.errstate(all="ignore"):
        rounding = np.where(s.rests_within > 0, np.maximum(s.unit * np.abs(s.f0), underflow) / s.rests_within, np.inf)
    bar = np.where(same, rounding, result.bar)
    noise_bar = np.where(same, rounding, result.noise_bar)  # as noise: coarser rungs narrow it
    outcome = np.where(same, SMOOTH, result.outcome).astype(np.int8)
    return replace(result, value=np.where(same, 0.0, result.value), bar=bar, outcome=outcome, noise_bar=noise_bar)


def _on_plateau(s: Samples, result: Derivative) -> Derivative:
    """A plateau beside x counts as unchanged, so that a zero passes there; it proves nothing against another gradient, as it may be a wide tread."""
    return replace(result, unchanged=result.unchanged | s.on_plateau) if s.on_plateau.any() else result
