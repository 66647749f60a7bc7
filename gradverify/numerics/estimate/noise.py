"""The noise of a function, by the algorithm ECnoise on nine points.

J. Moré, S. Wild, Estimating Computational Noise, SIAM J. Sci. Comput. 33 (2011). Two departures:
"values differ in the first digit" is relative to the size of f along the ladder (otherwise it
applies wherever f crosses zero), and differences that vanish exactly from the second order on mean
"no noise" (a linear piece).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from operator import mul

import numpy as np

from gradverify.numerics.rungs import (
    AnyArray,
    Array,
    Codes,
    Mask,
    nonzero,
    pieces,
    piecewise,
    repeated,
)

POINTS = 9
PIECE_OF_NOISE = 1 << 15  # values at a time: their differences are 36 times as many
GAMMA = tuple(accumulate((0.5 * k / (2 * k - 1) for k in range(1, POINTS)), mul, initial=1.0))
FLAT = 4.0  # three successive levels within this factor are the noise (Moré & Wild, section 5)
FIRST_DIGIT = 0.1  # points that differ by more than this fraction of f are too far apart
# Of the scale, between points; a power of two repeats the same rounding error
FINE = 1.1715 * 2.0**-30
LEAST_ULPS, FEWEST_ULPS = 75, 4  # smallest spacing: at first, and in a finer second look
FARTHER, CLOSER = 100.0, 0.01
ATTEMPTS = 4
REPEATS = 5  # identical calls, where the first two differ
WIDEST = 1e-3  # of the scale: at wider spacings the function's own shape is not noise
# Fraction of the outputs: for fewer, nine more calls are not worthwhile, and they take their
# tensor's typical noise
FEW_OUTPUTS = 0.01
# Largest value of the tensor's typical relative noise that is applied to its other outputs
POOL_CAP = 1e-3


class Ending(IntEnum):
    """How ECnoise ended; WIDE_FLAT: the spacing is too large, yet there is a flat level."""

    FOUND = 1
    CONSTANT = 2
    TOO_WIDE = 3
    WIDE_FLAT = 4


FOUND, CONSTANT, TOO_WIDE, WIDE_FLAT = (np.int8(each) for each in Ending)


def ecnoise(points: Array, size: Array) -> tuple[Array, Codes]:
    """Return the standard deviation of the noise [m] of f at equally spaced points [9, m], and how
    each estimate ended [m].

    `size` [m] is the magnitude of f along the ladder.
    """
    sigma, ending = np.empty(len(size)), np.empty(len(size), np.int8)
    for part in pieces(len(size), PIECE_OF_NOISE):
        sigma[part], ending[part] = _ecnoise(points[:, part], size[part])
    return sigma, ending


def _ecnoise(points: Array, size: Array) -> tuple[Array, Codes]:
    highest, lowest = points.max(0), points.min(0)
    largest = np.maximum(np.abs(highest), np.abs(lowest))
    finite = np.isfinite(largest)
    differences = [points / nonzero(largest)]
    for _ in range(POINTS - 1):  # orders 1, 2, …: [9 − order, m] each
        differences.append(differences[-1][1:] - differences[-1][:-1])
    # f is constant where at least half of the steps between points change nothing; an order that
    # vanishes makes all higher ones vanish
    constant = finite & (np.add.reduce(differences[1] == 0, 0, dtype=np.int8) >= POINTS / 2)
    linear = finite & (differences[-1][0] == 0)
    level, hit = _flat_level(differences[1:])
    hit &= finite & ~constant & ~linear
    wide = highest - lowest > FIRST_DIGIT * np.maximum(largest, size)
    ending = np.full(len(hit), FOUND)
    np.putmask(ending, hit & wide, WIDE_FLAT)
    np.putmask(ending, ~(hit | linear), TOO_WIDE)
    np.putmask(ending, constant, CONSTANT)
    return np.where(hit, level * largest, 0.0), ending


def _flat_level(differences: Sequence[Array]) -> tuple[Array, Mask]:
    """Return the first level [m] that opens a flat run, and whether there is one [m]. Levels: σ_k²
    = γ_k mean(Δᵏf²), γ_k = (k!)²/(2k)!."""
    square = np.empty((len(differences), differences[0].shape[1]))
    for level, d in zip(square, differences, strict=True):
        np.einsum("ij,ij->j", d, d, out=level)
        level *= GAMMA[POINTS - len(d)] / len(d)
    highest = np.maximum(np.maximum(square[:-2], square[1:-1]), square[2:])
    lowest = np.minimum(np.minimum(square[:-2], square[1:-1]), square[2:])
    flat = highest <= np.multiply(FLAT**2, lowest, out=lowest)
    first = np.zeros(square.shape[1])
    found = np.zeros(square.shape[1], bool)
    for k in range(len(flat) - 1, -1, -1):
        opens = flat[k]
        if np.count_nonzero(opens):
            # The differences at a level of noise change sign
            opens &= np.minimum.reduce(differences[k], 0) * np.maximum.reduce(differences[k], 0) < 0
            np.putmask(first, opens, square[k])
            found |= opens
    return np.sqrt(first, out=first), found


@dataclass(frozen=True)
class Ray:
    """One side of x along a signed direction: coordinates x, scale, sign [n]; `ulp`: their ulp [n],
    computed on demand; `evaluate` maps coordinates [n] to values [m]."""

    x: Array
    scale: Array
    sign: AnyArray
    ulp: Callable[[], Array]
    cast: Callable[[Array], Array]
    evaluate: Callable[[Array], Array]

    def points(self, spacing: Array, into: Array) -> Array:
        """Evaluate f at nine points, written `into` an array [9, m]; the first is one spacing away
        from x, because a kink or jump at x is not noise."""
        for number, f in enumerate(into):
            f[:] = self.evaluate(self.point(spacing, number))
        return into

    def point(self, spacing: Array, number: int) -> Array:
        """Return the coordinates [n] of one of the nine points, counted from 0."""
        return self.cast(
            piecewise(
                lambda x, spacing, sign: x + (number + 1) * (spacing * sign),
                self.x,
                spacing,
                self.sign,
            )
        )

    def odd(self, spacing: Array) -> Array:
        """Return the spacing as an odd number of ulps: it is realised exactly, and the low bits
        vary."""
        return piecewise(
            lambda spacing, ulp: (2 * np.floor(spacing / (2 * ulp)) + 1) * ulp, spacing, self.ulp()
        )

    def finest(self) -> Array:
        """Return the initial spacing [n]."""
        return self.odd(
            piecewise(
                lambda ulp, scale: np.maximum(LEAST_ULPS * ulp, FINE * scale),
                self.ulp(),
                self.scale,
            )
        )

    def moved_by(self) -> Array:
        """Return the change of the coordinates [n] between the first and the last of the nine
        initial points."""
        spacing = self.finest()
        return self.point(spacing, POINTS - 1) - self.point(spacing, 0)


def noise_along(ray: Ray, size: Array, moved: Mask) -> tuple[Array, Array]:
    """Apply ECnoise [m] along the ray: again with finer spacing where that was too wide, and with
    coarser spacing where f is constant on the points though the rungs moved it (`moved` [m]). Also
    return the change of f over the finest points [m]."""
    spacing = ray.finest()
    points = ray.points(spacing, np.empty((POINTS, len(size))))
    change = points[-1] - points[0]
    sigma, wanted = np.zeros(len(size)), np.ones(len(size), bool)
    for attempt in range(ATTEMPTS):
        level, ending = ecnoise(points, size)
        found, again = ending == FOUND, (ending == CONSTANT) & moved
        if attempt:
            found |= ending == WIDE_FLAT
        else:
            wide = np.flatnonzero(ending >= TOO_WIDE)
            again[wide] = np.isfinite(points.take(wide, 1)).all(0)
        sigma = np.where(wanted & found, level, sigma)
        wanted = wanted & again
        if np.count_nonzero(wanted) <= FEW_OUTPUTS * len(wanted) or attempt == ATTEMPTS - 1:
            break
        mostly_wide = float(np.mean(ending[wanted] >= TOO_WIDE)) > 0.5
        spacing = np.maximum(
            spacing * (CLOSER if mostly_wide else FARTHER), FEWEST_ULPS * ray.ulp()
        )
        if (spacing > WIDEST * ray.scale).all():
            break
        ray.points(ray.odd(spacing), points)
    return sigma, change


def repeat_noise(evaluate: Callable[[], Array], f0: Array, before: Array | None = None) -> Array:
    """Return the standard deviation [m] over identical calls: one call where it agrees bitwise with
    f0, else REPEATS calls. `before`: the result of an earlier call, which replaces the first where
    it agrees."""
    if before is not None and np.array_equal(f0, before, equal_nan=True):
        return repeated(0.0, len(f0))
    again = evaluate()
    if np.array_equal(f0, again) or np.array_equal(f0, again, equal_nan=True):
        return repeated(0.0, len(f0))
    calls = [f0, again] + [evaluate() for _ in range(REPEATS - 1)]
    return np.asarray(np.nan_to_num(np.std(calls, axis=0, ddof=1)))


def pooled(
    sigma: Array, size: Array, outputs: Sequence[slice], modulus: Array | None = None
) -> Array:
    """Return each output's own noise [m], at least its tensor's typical relative noise, because
    nine points can underestimate by chance.

    `modulus` [m]: the size of complex outputs to which their noise is relative (an imaginary part
    that is only rounding is no measure for the others).
    """
    result, whole = sigma.copy(), size if modulus is None else modulus
    for part in outputs:
        sized = whole[part] > 0
        relative = np.divide(sigma[part], whole[part], out=np.zeros(len(sized)), where=sized)
        seen = relative[relative > 0]
        if seen.size:
            result[part] = np.maximum(
                sigma[part], min(float(np.median(seen)), POOL_CAP) * size[part]
            )
    return result
