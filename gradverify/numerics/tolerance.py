"""The tolerance of an element with its floor, and the three-way verdict under it: guarded
acceptance (JCGM 106:2012; method.md section 1).

    PASS |a − D| + U ≤ tol        MISMATCH |a − D| − U > tol        UNDECIDED otherwise
    tol = atol + max(rtol · max(|a|, |D|), floor)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.ladder import KINK, NON_FINITE, SMOOTH, Derivative, Smoothness
from gradverify.numerics.estimate.samples import LOW_UNIT
from gradverify.numerics.function.coordinates import rms
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import (
    U64,
    Array,
    Codes,
    Index,
    Mask,
    finite_size,
    joined,
    nonzero,
    piecewise,
    repeated,
)
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED, Limit

RTOL, RTOL_LOW = 1e-6, 1e-3  # defaults; the second where the forward computes in float32 or less
FLOOR = 1e4  # times the unit roundoff of an output's natural unit: smaller entries are not checked
NOISE_CAP = 16 * U64  # limit up to which the floor grows with the noise of f
# Roundings of its tensor's values: a dead row of low precision may result from saturation, as of 1
# + tanh(−9) in float32
SATURATED = 16
# Roundings of its row that a backward in float32 may lose; right operators stay below 4, and 64
# would hide 1 % of 1e-4 of the row
ROUNDED = 8.0
LIFT = 1e3  # times its own row: limit to which the tensor's largest row may raise a floor
NOISE_ONLY = 30  # f within this many sigma of 0 ...
NOISE_OF_X = 2.0**-40  # ... and sigma below this fraction of x: the output is only rounding


@dataclass(frozen=True)
class Tolerances(Record):
    """Tolerances of elements: arrays [m]. `unproven`: nothing of the output's row was measured
    though it moves, so that a zero proves nothing."""

    atol: float
    rtol: Array
    floor: Array
    unproven: Mask

    def tolerance(self, a: Array, value: Array) -> Array:
        largest = np.maximum(np.abs(a), np.abs(value))
        if not np.isfinite(largest).all():
            largest = np.nan_to_num(np.maximum(np.abs(a), finite_size(value)), posinf=0.0)
        return self.atol + np.maximum(self.rtol * largest, self.floor)

    def of_moduli(self, first: Index, size: Array) -> Tolerances:
        """Return the tolerances where elements `first` and the ones behind them are the parts of
        complex numbers, of this `size` [m] each: the error of a part is relative to the modulus."""
        floor = self.floor.copy()
        for one, other in ((first, first + 1), (first + 1, first)):
            floor[one] = np.maximum(floor[one], self.rtol[one] * size[other])
        return replace(self, floor=floor)


def verdicts(
    a: Array,
    d: Derivative,
    tolerances: Tolerances,
    *,
    extra: Array | float = 0.0,
    border_column: Mask | None = None,
) -> Codes:
    """Return verdict codes [m] of analytic values a against derivatives. `border_column` [m]:
    columns along which f ends at x, as other outputs show.

    A mismatch must contradict the second reading too; agreement with that one counts only where it
    is the finer. `extra` [m] widens the bars.
    """

    def of_reading(d: Derivative) -> Codes:
        """Return the verdicts by one reading."""
        tol = tolerances.tolerance(a, d.value)
        off = np.abs(a - d.value)
        bar = d.bar + extra
        verdict = guarded(off, bar, tol)
        verdict[~np.isfinite(bar)] = UNDECIDED
        if d.rough:
            verdict[~d.smooth] = UNDECIDED
            # Every value between the one-sided slopes of a kink is right (Clarke, Optimization and
            # Nonsmooth Analysis, 1983)
            pad = np.maximum(d.left_bar, d.right_bar) + (tol + extra)
            low, high = np.minimum(d.left, d.right) - pad, np.maximum(d.left, d.right) + pad
            of_kink = np.where((a >= low) & (a <= high), PASS, MISMATCH)
            of_kink = np.where(np.isfinite(pad), of_kink, UNDECIDED)
            verdict = np.where(d.outcome == KINK, of_kink, verdict)
        two_sided = (d.outcome != NON_FINITE) & ~d.at_border
        if border_column is not None:
            two_sided &= ~border_column
        not_finite = np.where(two_sided, MISMATCH, UNDECIDED)
        return np.where(np.isfinite(a), verdict, not_finite)

    first = of_reading(d)
    if d.resting:
        first[
            d.unchanged
            & ~tolerances.unproven
            & (np.abs(a) <= tolerances.tolerance(a, np.zeros_like(a)))
        ] = PASS
    if not d.ambiguous:
        return first
    two = np.isfinite(d.second)
    other = replace(
        d,
        value=d.second,
        bar=d.second_bar,
        outcome=np.where(two, SMOOTH, d.outcome).astype(np.int8),
    )
    second = of_reading(other)
    saved = np.where((second == PASS) & d.second_is_finer, PASS, UNDECIDED)
    return np.where(two & (first != PASS) & (first != second), saved, first).astype(np.int8)


def guarded(off: Array, bar: Array, tol: Array) -> Codes:
    """Return PASS and MISMATCH only where the whole bar supports it; written so that NaN never
    passes."""
    passed = off + bar <= tol
    verdict = np.full(passed.shape, PASS, np.int8)
    if not passed.all():
        rest = np.nonzero(~passed)
        verdict[rest] = np.where(off[rest] - bar[rest] <= tol[rest], UNDECIDED, MISMATCH)
    return verdict


@dataclass(frozen=True)
class Magnitudes:
    """The quantities that determine the floor of each output [M]: reach (its change for a relative
    change of its inputs), largest |f|, noise of f, `Survey.far_change`.

    `parts`: output tensors. `unit`: the unit roundoff of each. `backward_unit`: the unit roundoff
    of gradients.
    """

    reach: Array
    size: Array
    sigma: Array
    parts: Sequence[slice]
    x_size: float
    unit: Array | float = U64
    backward_unit: float = U64
    far_change: Array | float = 0.0

    @cached_property
    def saturated(self) -> Array:
        """The change [M] that rounding alone may cause in an output as large as its tensor's
        values, or in a saturated one."""
        size = self.size.copy()
        for part in self.parts:
            size[part] = np.maximum(size[part], rms(size[part]))
        unit = np.maximum(self.unit, self.backward_unit)
        low = unit > LOW_UNIT
        return (
            np.maximum(FLOOR * U64, np.where(low, SATURATED * unit, 0.0))
            if low.any()
            else FLOOR * U64
        ) * size


def floors(rows: Magnitudes, alive: Mask) -> Array:
    """Return c·unit of each output [M]; divided by S_i it is the floor of an entry. `alive` [M]:
    something in the row is well above bars and rounding.

    The unit is the reach, not |f|: with |f|, x + 1e10 would hide any error. A dead row is measured
    against its tensor's values. Where f vanishes with its slope both are rounding, and the change
    far away gives the size of its terms.
    """

    def of_outputs(
        reach: Array,
        size: Array,
        sigma: Array,
        far_change: Array,
        lift: Array,
        alive: Mask,
        saturated: Array,
    ) -> Array:
        unit = np.maximum(reach, np.minimum(size, np.maximum(LIFT * reach, lift)))
        divisor = nonzero(size)
        noise = sigma / divisor if divisor is size else np.where(size > 0, sigma / divisor, U64)
        living = FLOOR * np.minimum(np.maximum(noise, U64), NOISE_CAP) * unit
        if rows.backward_unit > LOW_UNIT:
            living = np.maximum(living, ROUNDED * rows.backward_unit * reach)
        living = np.maximum(living, FLOOR * U64 * far_change)
        noise_only = (size <= NOISE_ONLY * sigma) & (sigma <= NOISE_OF_X * rows.x_size)
        dead = np.maximum(
            np.maximum(saturated, FLOOR * U64 * far_change),
            np.where(noise_only, FLOOR * sigma, 0.0),
        )
        return np.where(alive, living, dead)

    lift = joined(
        [repeated(rows.reach[part].max(initial=0.0), part.stop - part.start) for part in rows.parts]
    )
    far_change = np.broadcast_to(rows.far_change, rows.reach.shape)
    return piecewise(
        of_outputs,
        rows.reach,
        rows.size,
        rows.sigma,
        far_change,
        lift,
        alive,
        rows.saturated,
    )


def is_resolved(rows: Magnitudes, resolved: Mask, reach: Array) -> Mask:
    """Return the outputs [M] of which a derivative is resolved, or whose `reach` is more than
    rounding."""
    return resolved | (reach > rounding_reach(rows))


def rounding_reach(rows: Magnitudes) -> Array:
    """Return the largest |a|·s [M] that may still be rounding: a row below it, without a resolved
    derivative, is dead."""
    return np.maximum(rows.saturated, FLOOR * rows.sigma)


def limits(d: Derivative) -> list[Limit]:
    """Return what limits each undecided element."""
    return [_limit(d, n) for n in range(len(d.value))]


def _limit(d: Derivative, n: int) -> Limit:
    if np.isfinite(d.second[n]) and not d.far[n]:
        return Limit.STAIRCASE
    if d.at_border[n]:
        return Limit.BORDER
    rough = {
        Smoothness.KINK: Limit.KINK,
        Smoothness.JUMP: Limit.JUMP,
        Smoothness.INCONSISTENT: Limit.INCONSISTENT,
        Smoothness.NON_FINITE: Limit.INFINITE,
    }
    found = rough.get(Smoothness(int(d.outcome[n])))
    return found or (Limit.NOISE if d.noise_bar[n] > 0.5 * d.bar[n] else Limit.TRUNCATION)
