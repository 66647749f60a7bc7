"""Derivatives with an error bar from central differences at a sequence of steps, for many elements
at once (method.md section 2).

A quick look (`full` false) sees a few rungs and declares nothing: it says where finer rungs are
needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.kinks import (
    INCONSISTENT,
    JUMP,
    KINK,
    NON_FINITE,
    SMOOTH,
    bends,
    borders,
    infinite,
    jumps,
    sides,
)
from gradverify.numerics.estimate.romberg import Best, pick, readings, with_tail_noise
from gradverify.numerics.estimate.samples import LOW_UNIT, Samples
from gradverify.numerics.estimate.smooth import ARITHMETIC, SmoothEstimate, smooth_estimate
from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import (
    QUICK,
    U32,
    U64,
    AnyArray,
    Array,
    Codes,
    Mask,
    Z,
    repeated,
    smallest,
)

PIECE = 1 << 14  # elements that are solved together: their samples stay in the cache
# Of a quotient: differences that grow by less than a tenth of float64's tolerance are noise that
# was underestimated
NEGLIGIBLE = 1e-7


@dataclass(frozen=True)
class Derivative(Record):
    """Derivatives of m elements, each value ± bar; bar is inf where nothing can be said. All arrays
    [m].

    outcome: `Smoothness` codes. noise_bar: the part of the bar that is noise. left, right: slopes
    at a kink. second: another consistent reading (NaN: none), `second_is_finer` where it comes from
    finer steps. far: the value rests on steps beyond the element's own scale, where f may be
    another function; the second reading is then the best from nearer ones. unclear: a quick look
    cannot tell.
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
    """The derivative of every element. `full`: the rungs reach down to the finest, so that kinks,
    jumps and second readings can be told."""
    m = len(s.f0)
    if m > PIECE:
        return joined(
            solve(s.take(slice(start, start + PIECE)), full) for start in range(0, m, PIECE)
        )
    if full or len(s.up) != len(QUICK):
        return _solve(s, full)
    easy = smooth_estimate(s.up, s.down, s.width, s.f0, s.sigma, s.unit)
    smooth = easy.smooth & ~(s.unit > LOW_UNIT) if s.rounds_x else easy.smooth
    rest = np.flatnonzero(~smooth)
    found = as_derivative(easy)
    return found.replaced(rest, _solve(s.take(rest), False)) if rest.size else found


def as_derivative(easy: SmoothEstimate) -> Derivative:
    """What is plain as derivatives [m]; what is not told is void."""
    return _smooth(
        easy.value.ravel(), easy.bar.ravel(), easy.noise.ravel(), np.zeros(easy.value.size, bool)
    )


def at_rest(bar: Array) -> Derivative:
    """Derivatives [m] that are 0 ± bar."""
    return _smooth(repeated(0.0, len(bar)), bar, bar, repeated(np.False_, len(bar)))


def _smooth(value: Array, bar: Array, noise: Array, unclear: Mask) -> Derivative:
    nan, inf, no, smooth = (
        repeated(each, len(value)) for each in (np.nan, np.inf, np.False_, SMOOTH)
    )
    return Derivative(
        value, bar, smooth, noise, nan, nan, inf, inf, nan, inf, no, no, unclear, no, no
    )


def _solve(s: Samples, full: bool) -> Derivative:
    """Kinks, jumps, second readings and ends of the domain are found from the whole ladder
    alone."""
    m, big = len(s.f0), s.largest
    far = finer = steep = np.zeros(m, bool)
    second, second_bar = np.full(m, np.nan), np.full(m, np.inf)
    if full:
        quotient, first_noise, second, second_bar, finer = readings(s)
        first = pick(quotient, s.h, first_noise, True)
        best, noise = with_tail_noise(s, quotient, first_noise, first)
        steep = infinite(s, noise, bends(s, noise)[1]) | infinite(s, first_noise, first.rung < 0)
        jumping = jumps(s, first_noise)
        far, near = _nearer(s, noise, best)
        second, second_bar, finer = (
            np.where(far, near.value * big, second),
            np.where(far, near.bar * big, second_bar),
            finer & ~far,
        )
    else:
        noise = s.noise
        best, jumping = pick(s.quotient, s.h, noise, False), jumps(s, noise)
    suspected, at_x, exponent = bends(s, noise)
    outcome = np.where(jumping, JUMP, SMOOTH).astype(np.int8)
    bent = at_x & ~jumping & (full | (exponent < -0.4))
    outcome[bent] = np.where(exponent < -0.5, JUMP, KINK)[bent]
    suspected |= outcome != SMOOTH
    left, right, left_bar, right_bar = sides(s, noise, outcome == KINK)
    # Structure that no rung resolves
    outcome[(outcome == KINK) & ~(np.abs(left - right) > left_bar + right_bar)] = INCONSISTENT
    outcome[(outcome == SMOOTH) & (best.rung < 0)] = INCONSISTENT
    outcome[~s.two_sided | (steep & ~jumping)] = NON_FINITE
    smooth = (best.rung >= 0) & (outcome == SMOOTH)
    value, noise_bar = best.value * big, best.noise * big
    bar = np.where(smooth, (best.bar + ARITHMETIC * np.abs(best.value)) * big, np.inf)
    second = np.where(outcome == NON_FINITE, np.nan, second)
    unclear, at_border, unchanged = np.zeros(m, bool), np.zeros(m, bool), s.unchanged
    if full:
        for elements, one_sided in borders(s):
            value[elements], bar[elements], noise_bar[elements] = (
                one_sided.value,
                one_sided.bar,
                one_sided.noise,
            )
            outcome[elements], at_border[elements] = SMOOTH, True
    else:
        unsteady, growth = _unsteady(s)
        unclear, bar = (unsteady | suspected) & ~unchanged, bar + growth * big
    if unchanged.any():  # as noise: coarser rungs narrow it
        rounding = _resting(s)[unchanged]
        value[unchanged], bar[unchanged], noise_bar[unchanged], outcome[unchanged] = (
            0.0,
            rounding,
            rounding,
            SMOOTH,
        )
    # a plateau beside x passes a zero, but proves nothing against another gradient, as it may be a
    # wide tread
    resting = unchanged | s.on_plateau if full else unchanged
    return Derivative(
        value,
        bar,
        outcome,
        noise_bar,
        left,
        right,
        left_bar,
        right_bar,
        second,
        second_bar,
        finer,
        far,
        unclear,
        resting,
        at_border,
    )


def _nearer(s: Samples, noise: Array, best: Best) -> tuple[Mask, Best]:
    """Elements [m] whose choice lies beyond their own scale, and their best choice from nearer
    rungs (NaN elsewhere)."""
    m = len(s.f0)
    far = (best.rung >= 0) & s.far[np.maximum(best.rung, 0), np.arange(m)]
    near, where = Best.none(m), np.flatnonzero(far)
    if where.size:
        quotient = np.where(s.far, np.nan, s.quotient)
        near = near.better(where, pick(quotient[:, where], s.h[:, where], noise[:, where], True))
    return far & (near.rung >= 0), near


def _unsteady(s: Samples) -> tuple[Mask, Array]:
    """Quick rungs whose differences do not shrink beyond the noise, or that are not all there [m];
    and by how much those grow that are negligible [m], which count as an error of the value."""
    d = np.abs(s.quotient[1:] - s.quotient[:-1])
    growing = (d[1:] > 0.5 * d[:-1]) & (d[1:] > Z * s.noise[2:] / s.h[2:])
    small = growing & (d[1:] <= NEGLIGIBLE * np.abs(s.quotient[2:]))
    return np.asarray((growing & ~small).any(0) | (np.sum(~s.unusable, 0) < 3)), np.where(
        small, d[1:], 0.0
    ).max(0, initial=0.0)


def _resting(s: Samples) -> Array:
    """What f that is bitwise f(x) at every rung may have of a slope [m]: u|f| / h, for h ≤ 0.3 of
    the scale; a wider h would claim a linearity nobody checked. What underflows rests too: for
    steps below the roundoff of 1, |f| counts as no less than the smallest number."""
    underflow = np.where(
        s.rests_within > 2 * s.unit, 0.0, np.where(s.unit > U64, smallest(U32), smallest(U64))
    )
    with np.errstate(all="ignore"):
        return np.where(
            s.rests_within > 0,
            np.maximum(s.unit * np.abs(s.f0), underflow) / s.rests_within,
            np.inf,
        )
