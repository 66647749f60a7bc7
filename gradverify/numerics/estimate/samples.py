"""f at a sequence of steps around x, for many elements at once, and derived quantities without any
judgement: quotients, rounding, noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from gradverify.numerics.records import Record
from gradverify.numerics.rungs import NEAR, U64, Array, Mask, Z, nanmedian, step

# A rung whose values exceed the others by this factor has no bearing on the slope at x, and scaled
# by it the others would vanish
DWARFS = 1e50
# Standard deviations of f: the smallest second difference that is not noise
SECOND = Z * np.sqrt(6)
PLATEAU = 1e-2  # of the scale: the least extent of a plateau on one side
PLATEAU_STEPS = 4  # steps at which f is unchanged
LOW_UNIT = 8 * U64  # unit roundoff above which the forward computes in lower precision than float64


@dataclass(frozen=True)
class Samples(Record):
    """f at x + step_up and x − step_down (realised steps): all [n, m], f NaN where it has no value;
    the rest [m].

    `magnitude` and `scale` are |x| and the scale along each element's line; `rounds_x`: a
    low-precision forward rounds x too. Derived quantities are relative to `largest`, the largest
    |f| of the element, so that 1e300 and 1e-300 are alike.
    """

    up: Array
    down: Array
    step_up: Array
    step_down: Array
    f0: Array
    sigma: Array
    unit: Array
    magnitude: Array
    scale: Array
    rounds_x: bool

    @cached_property
    def unusable(self) -> Mask:
        """Rungs without a value on both sides, or beyond the element's own scale with values that
        dwarf those of all smaller steps."""
        size = np.maximum(np.abs(self.up), np.abs(self.down))
        near = np.where(self.far | ~np.isfinite(size), 0.0, size).max(0)
        return np.asarray(~np.isfinite(size) | (self.far & (near > 0) & (size / DWARFS > near)))

    @cached_property
    def two_sided(self) -> Mask:
        """Elements [m] with two rungs on both sides."""
        return np.asarray(np.sum(~self.unusable, 0) >= 2)

    @cached_property
    def h(self) -> Array:
        return 0.5 * (self.step_up + self.step_down)

    @property
    def width(self) -> Array:
        """The distance from x − step_down to x + step_up [n, m]; or [n, 1] where all elements have
        the same steps."""
        one = slice(1) if self.step_up.strides[1] == self.step_down.strides[1] == 0 else slice(None)
        return self.step_up[:, one] + self.step_down[:, one]

    @cached_property
    def far(self) -> Mask:
        """Rungs beyond the element's own scale: f may be another function there."""
        return self.h > NEAR * self.scale

    @cached_property
    def still(self) -> Mask:
        """Rungs at which f is bitwise f(x) on both sides."""
        return np.asarray((self.up == self.f0) & (self.down == self.f0))

    @cached_property
    def unchanged(self) -> Mask:
        """Elements [m] that no rung moves."""
        return (self.still | self.unusable).all(0) & self.two_sided

    @cached_property
    def rests_within(self) -> Array:
        """The widest step [m], of those that are not far, at which and at all finer ones f is
        bitwise f(x); -inf where there is none."""
        resting = np.cumprod((self.still | self.unusable)[::-1], 0)[::-1].astype(bool)
        return np.asarray(np.where(resting & ~self.unusable & ~self.far, self.h, -np.inf).max(0))

    @cached_property
    def on_plateau(self) -> Mask:
        """Elements [m] that are unchanged at four or more of the finest steps, and on one side of x
        as far as PLATEAU: a clamp near its limit, the smaller of two nearly equal numbers under a
        maximum.

        The slope from that side is 0, so that 0 is right whether f bends at x or not. Steps of a
        staircase are on both sides. In lower precision than float64, values that round to one
        number look the same (1 + tanh x at -8).
        """
        near = ~self.unusable & (self.h <= PLATEAU * self.scale)
        one_side = ((self.up == self.f0) | ~near).all(0) | ((self.down == self.f0) | ~near).all(0)
        rests = (self.still & near & (self.h <= self.rests_within)).sum(0) >= PLATEAU_STEPS
        return np.asarray(one_side & rests & (self.unit <= LOW_UNIT))

    @cached_property
    def peak(self) -> Array:
        """The largest |f| at each rung and at x [n, m]."""
        at_rungs = np.where(self.unusable, 0.0, np.maximum(np.abs(self.up), np.abs(self.down)))
        return np.maximum(at_rungs, np.where(np.isfinite(self.f0), np.abs(self.f0), 0.0))

    @cached_property
    def largest(self) -> Array:
        """The largest |f| of each element [m]; 1 where f is 0 on all rungs."""
        peak = self.peak.max(0)
        return np.where(peak > 0, peak, 1.0)

    @cached_property
    def quotient(self) -> Array:
        """Central difference quotients."""
        return np.where(
            self.unusable,
            np.nan,
            (self.up / self.largest - self.down / self.largest) / (2 * self.h),
        )

    @cached_property
    def second(self) -> Array:
        """The second differences f(x + h) − 2 f(x) + f(x − h)."""
        return (self.up - self.f0) / self.largest + (self.down - self.f0) / self.largest

    @cached_property
    def rounding(self) -> Array:
        return np.where(self.unusable, np.nan, self.unit * self.peak / self.largest)

    @cached_property
    def noise(self) -> Array:
        """The standard deviation of f at each rung: measured, at least rounding, and |f'| u |x|
        where the forward rounds x."""
        noise = np.maximum(self.sigma / self.largest, self.rounding)
        low = self.unit > LOW_UNIT
        if not (self.rounds_x and low.any()):
            return noise
        through_x = nanmedian(np.abs(self.quotient)) * self.unit * self.magnitude
        return np.where(low, np.maximum(noise, through_x), noise)


# ---- f along a line x + t·d, which moves one input element, a group of them or all, and its values
# at x ± h·d
class Line(Protocol):
    """f along x + t·d.

    `scale`: the natural size of t. `size`, `magnitude`: that size and |x| in units of the realised
    change. Where a line moves several columns, each output has its own: `size`, `magnitude` and the
    realised change are then arrays [M].
    """

    @property
    def scale(self) -> float: ...

    @property
    def size(self) -> float | Array: ...

    @property
    def magnitude(self) -> float | Array: ...

    def at(self, t: float) -> tuple[Array, float | Array] | None:
        """Return f [M] (NaN where it has no value: exceptions, outside the domain) and the realised
        change after rounding; None where x does not move."""
        ...


class Rung(NamedTuple):
    """f [M] above and below x, and the realised steps: one number, or one per output."""

    up: Array
    down: Array
    step_up: float | Array
    step_down: float | Array


def sample_rung(line: Line, k: int) -> Rung | None:
    """Sample one rung, two calls; return None where x does not move on both sides."""
    sides = two_sides(line, k)
    return sides and upwards(*sides)


def two_sides(line: Line, k: int, below: Array | None = None) -> Rung | None:
    """Sample one rung up and down along a line; steps are negative where the line moves a column
    downwards. `below`: f(x) [M], which is taken for the lower side without a call."""
    h = step(line.scale, k)
    up = line.at(h) if math.isfinite(h) else None
    if up is None:
        return None
    down = line.at(-h) if below is None else (below, -0.0)
    return None if down is None else Rung(up[0], down[0], up[1], -down[1])


def upwards(up: Array, down: Array, step_up: float | Array, step_down: float | Array) -> Rung:
    """Return a rung with its two sides exchanged where the line moves a column downwards."""
    if isinstance(step_up, float) or not (back := step_up < 0).any():
        return Rung(up, down, step_up, step_down)
    return Rung(
        np.where(back, down, up),
        np.where(back, up, down),
        np.where(back, -step_down, step_up),
        np.where(back, -step_up, step_down),
    )
