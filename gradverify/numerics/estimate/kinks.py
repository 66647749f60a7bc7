"""Where f is not smooth at x, told by its second differences: kinks with their one-sided slopes,
jumps, infinite slopes, ends of the domain.

S = (f(x+h) − 2 f(x) + f(x−h)) / h goes like hᵖ: p = 1 where f is smooth, 0 at a kink, −1 at a jump.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from gradverify.numerics.estimate.romberg import Best, one_sided
from gradverify.numerics.estimate.samples import SECOND, Samples
from gradverify.numerics.rungs import NEAR, RATIO, VISIBLE, Array, Index, Mask

# Of the scale: a kink is "at x" only if it shows below; above, curvature and 1/x look like kinks
AT_X = 1e-2
SINKS = 20  # times the step at which a kink sinks into the noise: seen only above, it lies beside x
# Times the change between rungs: no order of convergence is sure where the domain ends
BORDER = 3.0
JUMP_RUNGS = 5  # rungs that a jump must show on
# A rung: one-sided slopes that still grow so on the three finest visible rungs are infinite ...
GROWTH = 1.2
JUMP_GROWTH = 0.9 * RATIO  # ... unless they grow as those of a jump do


class Smoothness(IntEnum):
    """What the samples show of f along one line."""

    SMOOTH = 0
    KINK = 1
    JUMP = 2
    INCONSISTENT = 3
    NON_FINITE = 4


SMOOTH, KINK, JUMP, INCONSISTENT, NON_FINITE = (np.int8(each) for each in Smoothness)
"""The same as NumPy's numbers: codes [m] are compared with them in a quarter of the time."""


def bends(s: Samples, noise: Array) -> tuple[Mask, Mask, Array]:
    """What the second differences tell [m]: whether a kink or jump is suspected, whether one is
    seen at x, and the exponent p, from the finest significant rung and one or two coarser ones."""
    n, m = s.up.shape
    least = SECOND * noise
    visible = ~s.unusable & (np.abs(s.second) > least) & np.isfinite(s.f0) & (s.h < NEAR * s.scale)
    elements, fine = np.arange(m), n - 1 - np.argmax(visible[::-1], 0)
    two_up, one_up = np.maximum(fine - 2, 0), np.maximum(fine - 1, 0)
    have_two, have_one = (
        visible[two_up, elements] & (fine >= 2),
        visible[one_up, elements] & (fine >= 1),
    )
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
    """f(x+h) − f(x−h) is one and the same non-zero number at every fine rung; noise would scatter
    [m]."""
    gap = (s.up - s.down)[-JUMP_RUNGS:] / s.largest
    steady = gap.max(0) - gap.min(0) < 0.1 * np.abs(gap.sum(0) / len(gap))
    return np.asarray(
        np.isfinite(s.f0) & (np.abs(gap) > VISIBLE * noise[-JUMP_RUNGS:]).all(0) & steady
    )


def sides(s: Samples, noise: Array, kinked: Mask) -> tuple[Array, Array, Array, Array]:
    """Slopes from the left and from the right of the kinked elements, and their bars [m]; NaN and
    inf elsewhere."""
    m, where = len(kinked), np.flatnonzero(kinked)
    left, right, left_bar, right_bar = (
        np.full(m, np.nan),
        np.full(m, np.nan),
        np.full(m, np.inf),
        np.full(m, np.inf),
    )
    if where.size:
        t, noise = s.take(where), noise[:, where] * s.largest[where]
        below, above = (
            one_sided(t.down - t.f0, -t.step_down, noise),
            one_sided(t.up - t.f0, t.step_up, noise),
        )
        left[where], left_bar[where], right[where], right_bar[where] = (
            below.value,
            below.bar,
            above.value,
            above.bar,
        )
    return left, right, left_bar, right_bar


def infinite(s: Samples, noise: Array, where: Mask) -> Mask:
    """Of the elements `where` [m], those whose slope on a side still grows on its three finest
    visible rungs: no kink, no finite slope."""
    result, columns = np.zeros(len(where), bool), np.flatnonzero(where)
    if columns.size:
        t, least = s.take(columns), VISIBLE * noise[:, columns] * s.largest[columns]
        up, down = (
            _grows(np.abs(t.up - t.f0), t.step_up, least),
            _grows(np.abs(t.down - t.f0), t.step_down, least),
        )
        result[columns] = up | down
    return result


def _grows(change: Array, step: Array, least: Array) -> Mask:
    slope = np.where(change > least, change / step, np.nan)
    # The three finest visible rungs, coarsest first
    last = np.argsort(~np.isnan(slope), axis=0, kind="stable")[-3:]
    ratio = np.take_along_axis(slope, last[1:], 0) / np.take_along_axis(slope, last[:-1], 0)
    rungs_apart = np.diff(last, axis=0)
    return np.asarray(((ratio > GROWTH**rungs_apart) & (ratio < JUMP_GROWTH**rungs_apart)).all(0))


def borders(s: Samples) -> list[tuple[Index, Best]]:
    """Elements [k] with values on one side of x only, and their derivative from there, without
    extrapolation; in units of f."""
    found = []
    for f, h, sign in ((s.up, s.step_up, 1.0), (s.down, s.step_down, -1.0)):
        c = np.flatnonzero(~s.two_sided & np.isfinite(s.f0) & (np.isfinite(f).sum(0) >= 4))
        if c.size:
            noise = np.maximum(
                s.sigma[c], s.unit[c] * np.maximum(np.nan_to_num(np.abs(f[:, c])), np.abs(s.f0[c]))
            )
            found.append((c, one_sided(f[:, c] - s.f0[c], sign * h[:, c], noise, safety=BORDER)))
    return found
