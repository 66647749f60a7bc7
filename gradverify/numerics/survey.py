"""Measurements before any column is moved, once per input tensor: the noise and size of f, and whether small steps move it at all.

All of it rides on dense directions, so it does not depend on how the columns are streamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.noise import POINTS, Ray, noise_along, pooled, repeat_noise
from gradverify.numerics.estimate.samples import Rung, sample_rung
from gradverify.numerics.function.point import DirectionLine, Point
from gradverify.numerics.rungs import (
    BASE,
    QUICK,
    VISIBLE,
    WIDE_RUNG,
    Array,
    Codes,
    Index,
    Mask,
    Z,
    finite_size,
    in_a_row,
    joined,
    piecewise,
    repeated,
    step,
)
from gradverify.numerics.seed_vectors import WEIGHTS, Drawn, signed_weights, uniform

MOVED_SURELY = 3 * Z * np.sqrt(2)  # standard deviations of noise: a change that is no noise
SUMMED = 10  # columns: where only sums of them are measured, two calls to find f linear would not be earned back
ONE_COLUMN = 1  # column: where each is measured, they are from two on
NOISY = 4  # times its roundings: f moves everywhere with its noise
STRAY = 8.0  # standard deviations of such noise: what moves by more depends on what was moved
STRAIGHT = 30.0  # roundings or standard deviations: how far a straight line may seem bent
VALLEY = 0.1  # of an even change: the odd part that a change beside a point of slope 0 may have
EVERY = slice(None)
KEPT = 1 << 20  # outputs: the values of more are sampled again, in two calls, as they take more memory than that is worth
VANISHES = 1e-3  # of the values at the first step: f at x


@dataclass(frozen=True)
class DirectionSample:
    """f on one rung, the first quick one or a wide one, along a dense direction [k] (weights × scale) of the columns [k] of a tensor."""

    columns: Index
    directions: Sequence[Array]
    kept: Rung | None
    measure: Callable[[], Rung | None]
    rung: int = QUICK[0]

    @property
    def direction(self) -> Array:
        """The only one of `directions`, which may be drawn again."""
        return self.directions[0]

    @property
    def values(self) -> Rung:
        """f, measured again where it is not `kept`."""
        found = self.kept or self.measure()
        assert found is not None    # as the first time
        return found

    @classmethod
    def of(cls, columns: Index, directions: Sequence[Array], rung: int, measure: Callable[[], Rung | None]) -> tuple[DirectionSample, Rung] | None:
        """The sample with f on it, which is kept of KEPT outputs at most; None where f has no values."""
        values = measure()
        return values and (cls(columns, directions, values if len(values.up) <= KEPT else None, measure, rung), values)


@dataclass(frozen=True)
class Survey:
    """Noise and largest |f| of each output [M]; `forward` calls spent; a sample per input tensor (None: near a border).

    reach: how far an output [M] surely goes for a relative change of its inputs: at least a typical entry of its row.
    far_change: by how much an output [M] changes where inputs change by their own size, of those that vanish at x with their slope; else 0.
    unmoved, wide [tensors, M]: the quick rungs do not surely move anything of the output tensor; a step of 0.23·s does, or only one of
    0.23·max(s, 1).
    """

    sigma: Array
    size: Array
    reach: Array
    unmoved: Mask
    wide: Mask
    forward: int
    direction_samples: tuple[DirectionSample | None, ...]
    far_change: Array

    def noise(self, point: Point, part: slice = EVERY) -> Array:
        """Standard deviation of f [M] near x, rounding included; of a part of the outputs."""
        return np.maximum(self.sigma[part], point.unit[part] * self.size[part])

    def noisy(self, point: Point) -> Mask:
        """Outputs [M] that are noisier than rounding."""
        return piecewise(lambda sigma, unit, size: sigma > NOISY * unit * size, self.sigma, point.unit, self.size)

    @cached_property
    def some_unmoved(self) -> bool:
        """Does anything need a coarse step to move?"""
        return bool(self.unmoved.any() or self.wide.any())


def survey(point: Point) -> Survey:
    """About eleven forward calls and two more per input tensor but the first, one repeat (five where it differs)."""
    before, tensors = point.forward, range(len(point.buffers))
    sigma, size = repeat_noise(point.values, point.f0, point.before), finite_size(point.f0)
    columns = [_finite(point, t) for t in tensors]
    directions = [_dense(point, c, "survey", t) for t, c in enumerate(columns)]
    samples, moved, changes, vanishing = list[DirectionSample | None](), list[Mask](), list[Array](), list[Mask]()
    for c, d in zip(columns, directions, strict=True):
        sample, (up, down) = _direction_sample(point, c, d) or (None, _both_sides(point, c, step(1.0, QUICK[0]) * d[0]))    # f on either side of x
        for f in (up, down):
            np.fmax(size, finite_size(f), out=size)
        samples.append(sample)
        moved.append((up != point.f0) | (down != point.f0))
        changes.append(_odd_change((up, down), point.f0))
        vanishing.append(_vanishes(up, down, point.f0))
        del up, down, f
    used = [t for t, c in enumerate(columns) if len(c)]
    if used:
        level = _noise(point, [columns[t] for t in used], [moved[t] for t in used], size)
        sigma = np.maximum(sigma, pooled(level, size, point.parts, point.shared(size)))
        del level
    reach = np.zeros(len(size))
    for t in used:
        np.fmax(reach, _sure_reach(changes[t], len(columns[t]), sigma, point.unit, size), out=reach)
    unmoved, wide = np.zeros((2, len(columns), len(size)), bool)
    for t in used:
        unmoved[t], wide[t] = _unmoved(point, columns[t], directions[t], changes[t], np.maximum(sigma, point.unit * size))
    far = [_far_change(point, columns[t], directions[t], vanishing[t]) for t in range(len(columns)) if vanishing[t].any()]
    far_change = np.max(far, 0, initial=0.0) if far else repeated(0.0, len(size))
    return Survey(sigma, size, reach, unmoved, wide, point.forward - before, tuple(samples), far_change)


def _dense(point: Point, columns: Index, purpose: str, tensor: int) -> Drawn:
    """A dense direction, the only one of its kind."""
    scale = point.columns.scale[in_a_row(columns)]
    return Drawn(1, lambda _: signed_weights(len(columns), point.seed.generator(purpose, tensor)) * scale)


def _noise(point: Point, columns: Sequence[Index], moved: Sequence[Mask], size: Array) -> Array:
    """Noise [M] along one ray through all tensors; along one ray each where f is not defined all the way."""
    def along(c: Index, sign: Codes, moves: Mask) -> tuple[Array, Array]:
        return noise_along(_ray(point, c, sign), size, moves)

    together = joined(columns)
    sign = _signs(point, together, "noise")
    sigma, change = along(together, sign, np.logical_or.reduce(moved))
    if (np.isfinite(change) | ~np.isfinite(point.f0)).all():
        return sigma
    signs = np.split(sign, np.cumsum([len(c) for c in columns[:-1]]))
    return np.asarray(np.max([along(*each)[0] for each in zip(columns, signs, moved, strict=True)], 0))


def _sure_reach(change: Array, columns: int, sigma: Array, unit: Array, size: Array) -> Array:
    """What the odd change [M] of f along a dense direction of so many columns says of its reach [M]; 0 where noise may be all that it is."""
    widest = 2 * step(1.0, QUICK[0]) * WEIGHTS[1] * np.sqrt(columns)

    def reach(change: Array, sigma: Array, unit: Array, size: Array) -> Array:
        sure = np.isfinite(change) & (np.abs(change) > VISIBLE * np.maximum(sigma, unit * size))
        return np.where(sure, np.abs(change) / widest, 0.0)

    return piecewise(reach, change, sigma, unit, size)


def linear_inputs(point: Point, survey: Survey, thrifty: bool = False) -> dict[int, DirectionSample | None]:
    """The input tensors in which f is linear, by two calls along one dense direction; none where a sample shows a bend.

    With what these saw on the wide rung; None where a domain is declared, so that other directions may have no room for it. `thrifty`: of small
    tensors too.
    """
    least = ONE_COLUMN if thrifty else SUMMED
    found = {t: _linear_along(point, survey, t) for t in range(len(point.buffers)) if len(point.columns.of(t)) > least}
    return {t: sample if point.columns.free else None for t, sample in found.items() if sample}


def _linear_along(point: Point, survey: Survey, tensor: int) -> DirectionSample | None:
    c, near = point.columns.of(tensor), survey.direction_samples[tensor]
    if len(_finite(point, tensor)) < len(c) or (near is not None and not _straight(point, survey, near.values)):
        return None
    direction, h = _dense(point, c, "linear", tensor), step(1.0, WIDE_RUNG)

    def measure() -> Rung | None:
        line = DirectionLine(point, c, direction[0])
        up, down = line.at(h), line.at(-2 * h)  # steps that differ: a parabola is no straight line, nor is a cubic
        return None if up is None or down is None else Rung(up[0], down[0], up[1], -down[1])

    found = DirectionSample.of(c, direction, WIDE_RUNG, measure)
    return found[0] if found and _straight(point, survey, found[1]) else None


def _straight(point: Point, survey: Survey, at: Rung) -> bool:
    """Is no output [M] bent by more than what noise and rounding give a straight line?"""
    def straight(up: Array, down: Array, f0: Array, sigma: Array, unit: Array) -> Mask:
        bend = 2 * (at.step_down * up + at.step_up * down) / (at.step_up + at.step_down) - 2 * f0
        largest = np.maximum(np.abs(f0), np.maximum(np.abs(up), np.abs(down)))
        return np.abs(bend) <= STRAIGHT * np.maximum(sigma, unit * largest)

    return bool(piecewise(straight, at.up, at.down, point.f0, survey.sigma, point.unit).all())


def _direction_sample(point: Point, columns: Index, direction: Sequence[Array]) -> tuple[DirectionSample, tuple[Array, Array]] | None:
    """Two calls, and f on either side; None where a domain is declared, so that a step might leave it, or nothing moves."""
    if not len(columns) or not point.columns.free:
        return None
    found = DirectionSample.of(columns, direction, QUICK[0], lambda: sample_rung(DirectionLine(point, columns, direction[0]), QUICK[0]))
    return found and (found[0], (found[1].up, found[1].down))


def _finite(point: Point, tensor: int) -> Index:
    columns = point.columns.of(tensor)
    return columns if point.columns.finite else columns[np.isfinite(point.columns.x[columns])]


def _both_sides(point: Point, columns: Index, move: Array) -> tuple[Array, Array]:
    if not len(columns):
        return point.f0, point.f0
    c = point.columns
    inside = [np.clip(c.x[columns] + sign * move, c.low[columns], c.high[columns]) for sign in (1.0, -1.0)]
    up, down = (point.values_at(columns, x) for x in inside)
    return up, down


def _signs(point: Point, columns: Index, purpose: str, *which: object) -> Codes:
    """±1 at random, and turned inwards where the domain ends nearby."""
    c, sign = point.columns, np.where(np.signbit(uniform(len(columns), point.seed.generator(purpose, *which, "signs"))), np.int8(-1), np.int8(1))
    if c.free:
        return sign
    x, reach = c.x[columns], step(1.0, QUICK[-1]) * c.scale[columns]
    return np.where(x + reach > c.high[columns], np.int8(-1), np.where(x - reach < c.low[columns], np.int8(1), sign))


def _ray(point: Point, columns: Index, sign: Codes) -> Ray:
    c, moved = point.columns, in_a_row(columns)
    return Ray(c.x[moved], c.scale[moved], sign, lambda: c.ulp(columns), lambda at: c.cast(at, columns), lambda at: point.values_at(columns, at))


def _unmoved(point: Point, columns: Index, directions: Sequence[Array], near: Array, noise: Array) -> tuple[Mask, Mask]:
    """Outputs [M] that need a coarse step to move, and those that need one beyond the columns' scale. `near`: their odd change near x."""
    nothing, moved, f0 = np.zeros(len(noise), bool), _moved_surely(near, noise), point.f0
    still = nothing.copy()
    for part in point.parts:
        still[part] = not moved[part].any()
    if not still.any():
        return nothing, nothing
    direction = directions[0]
    unmoved = still & _moved_surely(_odd_change(_both_sides(point, columns, BASE * direction), f0), noise)
    scale = point.columns.scale[columns]
    if (still & ~unmoved).any() and (scale < 1).any():
        far = _both_sides(point, columns, BASE * direction / scale * np.maximum(scale, 1.0))
        return unmoved, still & ~unmoved & _moved_surely(_odd_change(far, f0), noise)
    return unmoved, nothing


def _vanishes(up: Array, down: Array, f0: Array) -> Mask:
    """Outputs [M] that vanish at x with their slope (a loss at its minimum), by f near x."""
    def vanishes(up: Array, down: Array, f0: Array) -> Mask:
        even, odd = np.abs(up + down - 2 * f0), np.abs(up - down)
        return np.asarray((odd < VALLEY * even) & (np.abs(f0) < VANISHES * np.maximum(np.abs(up), np.abs(down))))

    return piecewise(vanishes, up, down, f0)


def _far_change(point: Point, columns: Index, direction: Sequence[Array], vanishing: Mask) -> Array:
    """Of the outputs that vanish, the change [M] along the whole direction, by two calls; else 0.

    Nothing near x tells of their terms how large these are, and so how they round.
    """
    change = np.fmax.reduce([finite_size(f - point.f0) for f in _both_sides(point, columns, direction[0])])
    return np.where(vanishing, change, 0.0)


def _odd_change(sides: tuple[Array, Array], f0: Array) -> Array:
    """The odd part of f [M] between two sides of x (an even function has no derivative to find); one side, where that is all there is."""
    def change(up: Array, down: Array, f0: Array) -> Array:
        odd, finite = up - down, np.isfinite(up) & np.isfinite(down)
        return odd if finite.all() else np.where(finite, odd, np.fmax(np.abs(up - f0), np.abs(down - f0)))

    return piecewise(change, *sides, f0)


def _moved_surely(change: Array, noise: Array) -> Mask:
    """Where f moved beyond its noise."""
    return piecewise(lambda change, noise: np.isfinite(change) & (np.abs(change) > MOVED_SURELY * noise), change, noise)


def dense_ray(point: Point, purpose: str, *which: object) -> tuple[Index, Ray]:
    """All columns of finite x, and a ray along which they all move."""
    columns = np.concatenate([_finite(point, t) for t in range(len(point.buffers))])
    return columns, _ray(point, columns, _signs(point, columns, purpose, *which))


def narrow_points(point: Point, output: int) -> tuple[Index, Array]:
    """Columns [k] and nine points [9, k] near x that float32 holds, within some of its spacings; each column goes its own way, as a shift in common
    may leave all roundings as they are."""
    columns = np.concatenate([_finite(point, t) for t in range(len(point.buffers))])
    c, sign = replace(point.columns, single=np.ones(len(point.columns), bool)), _signs(point, columns, "narrow points", output)
    ray = replace(_ray(point, columns, sign), ulp=lambda: c.ulp(columns), cast=lambda at: c.cast(at, columns))
    apart = ray.finest() * ray.sign
    source = point.seed.generator("narrow points", output)
    return columns, np.array([ray.cast(ray.x + uniform(len(columns), source) * POINTS * apart) for _ in range(POINTS)])
