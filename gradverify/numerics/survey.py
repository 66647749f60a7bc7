"""Measurements before any column is moved, once per input tensor: the noise and size of f, and
whether small steps move it at all.

All of it rides on dense directions, so it does not depend on how the columns are streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.noise import Ray, noise_along, pooled, repeat_noise
from gradverify.numerics.estimate.samples import Rung, sample_rung
from gradverify.numerics.function.coordinates import rms
from gradverify.numerics.function.point import DirectionLine, Point
from gradverify.numerics.rungs import (
    BASE,
    QUICK,
    RATIO,
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
from gradverify.numerics.tolerance import Magnitudes

MOVED_SURELY = 3 * Z * np.sqrt(2)  # standard deviations of noise: a change that is no noise
# Columns: where only sums of them are measured, two calls to find f linear would not be earned back
SUMMED = 10
ONE_COLUMN = 1  # column: where each is measured, they are from two on
NOISY = 4  # times its roundings: f moves everywhere with its noise
STRAY = 8.0  # standard deviations of such noise: what moves by more depends on what was moved
STRAIGHT = 30.0  # roundings or standard deviations: how far a straight line may seem bent
VALLEY = 0.1  # of an even change: the odd part that a change beside a point of slope 0 may have
EVERY = slice(None)
# Outputs: the values of more are sampled again, in two calls, as they take more memory than that is
# worth
KEPT = 1 << 20
VANISHES = 1e-3  # of the values at the first step: f at x


@dataclass(frozen=True)
class Directions:
    """Dense directions (K of [n]: weights × scale) of one input tensor in its columns [n]; 0 where
    one cannot move. `first_rungs`: sampled rungs of the first, kept of KEPT outputs at most."""

    point: Point
    tensor: int
    moves: Sequence[Array]
    first_rungs: dict[int, Rung] = field(default_factory=dict)

    def moving(self, k: int = 0) -> tuple[Index, Array]:
        """The columns that direction k moves, and how."""
        columns = self.point.columns.of(self.tensor)
        move = self.moves[k]
        moving = None if move.all() else np.flatnonzero(move)
        return (columns, move) if moving is None else (columns[moving], move[moving])

    def sampled(self, k: int, rungs: Sequence[int]) -> Iterator[Rung]:
        """f along direction k on each of these rungs in turn, two calls each; NaN where it has no
        value there.

        Above the scale no rung leaves the typical size of the tensor, or 1: beyond, f may be
        another function.
        """
        point = self.point
        nowhere = repeated(np.nan, len(self.point.f0))
        scale = point.columns.scale[in_a_row(point.columns.of(self.tensor))]
        typical = rms(scale) if rungs[0] <= 0 else 0.0
        reachable = typical * RATIO ** -rungs[0] <= max(typical, 1.0)
        line = DirectionLine(point, *self.moving(k))
        for number in rungs:
            h = step(1.0, number)
            known = self.first_rungs.get(number) if not k else None
            if known is None and len(line.columns) and reachable:
                known = sample_rung(line, number)
            yield known or Rung(nowhere, nowhere, h, h)

    def keep(self, rung: int, values: Rung) -> None:
        """Samples of the first direction, for those who take the same again."""
        if len(self.point.f0) <= KEPT:
            self.first_rungs[rung] = values


@dataclass(frozen=True)
class Survey:
    """Noise and largest |f| of each output [M]; `forward` calls spent; a sample per input tensor
    (None: near a border).

    change: of each output [M], where all columns [C] are `moved_by` so little that f has no
    structure in between: what derivatives must add up to. reach: how far an output [M] surely goes
    for a relative change of its inputs: at least a typical entry of its row. far_change: by how
    much an output [M] changes where inputs change by their own size, of those that vanish at x with
    their slope; else 0. unmoved, wide [tensors, M]: the quick rungs do not surely move anything of
    the output tensor; a step of 0.23·s does, or only one of 0.23·max(s, 1).
    """

    point: Point
    sigma: Array
    size: Array
    moved_by: Array
    change: Array
    reach: Array
    unmoved: Mask
    wide: Mask
    forward: int
    direction_samples: tuple[Directions | None, ...]
    far_change: Array

    def noise(self, part: slice = EVERY) -> Array:
        """Standard deviation of f [M] near x, rounding included; of a part of the outputs."""
        return np.maximum(self.sigma[part], self.point.unit[part] * self.size[part])

    def magnitudes(self, reach: Array, far_change: Array | float = 0.0) -> Magnitudes:
        """What sets the floors of outputs that reach so far [M]."""
        point = self.point
        c = point.columns
        x_size = max(float(c.scale.max(initial=0.0)), float(c.typical.max(initial=0.0)))
        return Magnitudes(
            reach,
            self.size,
            self.sigma,
            point.parts,
            x_size,
            point.unit,
            point.backward_unit,
            far_change,
        )

    @property
    def noisy(self) -> Mask:
        """Outputs [M] that are noisier than rounding."""
        return piecewise(
            lambda sigma, unit, size: sigma > NOISY * unit * size,
            self.sigma,
            self.point.unit,
            self.size,
        )

    @cached_property
    def some_unmoved(self) -> bool:
        """Does anything need a coarse step to move?"""
        return bool(self.unmoved.any() or self.wide.any())


def survey(point: Point) -> Survey:
    """About eleven forward calls and two more per input tensor but the first, one repeat (five
    where it differs)."""
    before, tensors = point.forward, range(len(point.buffers))
    sigma = repeat_noise(point.values, point.f0, point.before)
    size = finite_size(point.f0)
    columns = [_finite(point, t) for t in tensors]
    directions = [_dense(point, "survey", t) for t in tensors]
    samples, moved = list[Directions | None](), list[Mask]()
    changes, vanishing = list[Array](), list[Mask]()
    for c, d in zip(columns, directions, strict=True):
        # Where a domain is declared, a step of a direction might leave it
        free = len(c) and point.columns.free
        known = sample_rung(DirectionLine(point, *d.moving()), QUICK[0]) if free else None
        if known:
            d.keep(QUICK[0], known)
        up, down = known[:2] if known else _both_sides(point, d, step(1.0, QUICK[0]))
        for f in (up, down):
            np.fmax(size, finite_size(f), out=size)
        samples.append(d if known else None)
        moved.append((up != point.f0) | (down != point.f0))
        changes.append(piecewise(_odd_change, up, down, point.f0))
        vanishing.append(piecewise(_vanishes, up, down, point.f0))
        del known, up, down, f
    used = [t for t, c in enumerate(columns) if len(c)]
    moved_by = np.zeros(0)
    change = sigma
    if used:
        level, moved_by, change = _noise(
            point, [columns[t] for t in used], [moved[t] for t in used], size
        )
        sigma = np.maximum(sigma, pooled(level, size, point.parts, point.shared(size)))
        del level
    reach = np.zeros(len(size))
    for t in used:
        np.fmax(reach, _sure_reach(changes[t], len(columns[t]), sigma, point.unit, size), out=reach)
    unmoved, wide = np.zeros((2, len(columns), len(size)), bool)
    for t in used:
        unmoved[t], wide[t] = _unmoved(
            point, directions[t], changes[t], np.maximum(sigma, point.unit * size)
        )
    # Along the whole direction: nothing near x tells of the terms of outputs that vanish there how
    # large these are, and so how they round
    far_change = repeated(0.0, len(size))
    for d, vanishes in zip(directions, vanishing, strict=True):
        if vanishes.any():
            sides = [finite_size(f - point.f0) for f in _both_sides(point, d, 1.0)]
            far_change = np.maximum(far_change, np.where(vanishes, np.fmax(*sides), 0.0))
    return Survey(
        point,
        sigma,
        size,
        moved_by,
        change,
        reach,
        unmoved,
        wide,
        point.forward - before,
        tuple(samples),
        far_change,
    )


def _dense(point: Point, purpose: str, tensor: int) -> Directions:
    """One direction of all columns of finite x."""
    columns = point.columns.of(tensor)
    scale = point.columns.scale[in_a_row(columns)]

    def drawn(_: int) -> Array:
        move = signed_weights(len(columns), point.seed.generator(purpose, tensor)) * scale
        if point.columns.finite:
            return move
        return np.where(np.isfinite(point.columns.x[columns]), move, 0.0)

    return Directions(point, tensor, Drawn(1, drawn))


def _noise(
    point: Point, columns: Sequence[Index], moved: Sequence[Mask], size: Array
) -> tuple[Array, Array, Array]:
    """Noise [M] along one ray through all tensors, how that moves each column [C], and by how much
    f changes [M]; along one ray each where f is not defined all the way."""
    together = joined(columns)
    sign = _signs(point, together, "noise")
    ray = _ray(point, together, sign)
    moved_by = np.zeros(len(point.columns))
    moved_by[in_a_row(together)] = ray.moved_by()
    sigma, change = noise_along(ray, size, np.logical_or.reduce(moved))
    if (np.isfinite(change) | ~np.isfinite(point.f0)).all():
        return sigma, moved_by, change
    signs = np.split(sign, np.cumsum([len(c) for c in columns[:-1]]))
    rays = [_ray(point, c, inwards) for c, inwards in zip(columns, signs, strict=True)]
    each = [noise_along(ray, size, moves) for ray, moves in zip(rays, moved, strict=True)]
    return np.max([found for found, _ in each], 0), moved_by, np.sum([by for _, by in each], 0)


def _sure_reach(change: Array, columns: int, sigma: Array, unit: Array, size: Array) -> Array:
    """What the odd change [M] of f along a dense direction of so many columns says of its reach
    [M]; 0 where noise may be all that it is."""
    widest = 2 * step(1.0, QUICK[0]) * WEIGHTS[1] * np.sqrt(columns)

    def reach(change: Array, sigma: Array, unit: Array, size: Array) -> Array:
        sure = np.isfinite(change) & (np.abs(change) > VISIBLE * np.maximum(sigma, unit * size))
        return np.where(sure, np.abs(change) / widest, 0.0)

    return piecewise(reach, change, sigma, unit, size)


def linear_inputs(survey: Survey, thrifty: bool = False) -> dict[int, Directions | None]:
    """The input tensors in which f is linear, by two calls along one dense direction; none where a
    sample shows a bend.

    With what these saw on the wide rung; None where a domain is declared, so that other directions
    may have no room for it. `thrifty`: of small tensors too.
    """
    point, least = survey.point, ONE_COLUMN if thrifty else SUMMED
    found = {
        t: _linear_along(survey, t)
        for t in range(len(point.buffers))
        if len(point.columns.of(t)) > least
    }
    return {t: sample if point.columns.free else None for t, sample in found.items() if sample}


def _linear_along(survey: Survey, tensor: int) -> Directions | None:
    point = survey.point
    c = point.columns.of(tensor)
    near = survey.direction_samples[tensor]
    if len(_finite(point, tensor)) < len(c):
        return None
    if near is not None and not _straight(survey, next(near.sampled(0, QUICK[:1]))):
        return None
    direction = _dense(point, "linear", tensor)
    h = step(1.0, WIDE_RUNG)
    line = DirectionLine(point, *direction.moving())
    # Steps that differ: a parabola is no straight line, nor is a cubic
    up, down = line.at(h), line.at(-2 * h)
    if up is None or down is None:
        return None
    wide = Rung(up[0], down[0], up[1], -down[1])
    direction.keep(WIDE_RUNG, wide)
    return direction if _straight(survey, wide) else None


def _straight(survey: Survey, at: Rung) -> bool:
    """Is no output [M] bent by more than what noise and rounding give a straight line?"""

    def straight(up: Array, down: Array, f0: Array, sigma: Array, unit: Array) -> Mask:
        bend = 2 * (at.step_down * up + at.step_up * down) / (at.step_up + at.step_down) - 2 * f0
        largest = np.maximum(np.abs(f0), np.maximum(np.abs(up), np.abs(down)))
        return np.abs(bend) <= STRAIGHT * np.maximum(sigma, unit * largest)

    point = survey.point
    return bool(piecewise(straight, at.up, at.down, point.f0, survey.sigma, point.unit).all())


def _finite(point: Point, tensor: int) -> Index:
    columns = point.columns.of(tensor)
    return columns[np.isfinite(point.columns.x[columns])]


def _both_sides(
    point: Point, direction: Directions, t: float, unit_scale: bool = False
) -> tuple[Array, Array]:
    """f after a step t along the direction and back, or at the ends of the domain; `unit_scale`:
    as if the columns' scales were 1 at least."""
    (columns, move), c = direction.moving(), point.columns
    if not len(columns):
        return point.f0, point.f0
    if unit_scale:
        move = move / c.scale[columns] * np.maximum(c.scale[columns], 1.0)
    ends = [c.x[columns] + sign * t * move for sign in (1.0, -1.0)]
    up, down = (point.values_at(columns, np.clip(x, c.low[columns], c.high[columns])) for x in ends)
    return up, down


def _signs(point: Point, columns: Index, purpose: str, *which: object) -> Codes:
    """±1 at random, and turned inwards where the domain ends nearby."""
    c = point.columns
    sign = np.where(
        np.signbit(uniform(len(columns), point.seed.generator(purpose, *which, "signs"))),
        np.int8(-1),
        np.int8(1),
    )
    if c.free:
        return sign
    x, reach = c.x[columns], step(1.0, QUICK[-1]) * c.scale[columns]
    return np.where(
        x + reach > c.high[columns],
        np.int8(-1),
        np.where(x - reach < c.low[columns], np.int8(1), sign),
    )


def _ray(point: Point, columns: Index, sign: Codes) -> Ray:
    c, moved = point.columns, in_a_row(columns)
    return Ray(
        c.x[moved],
        c.scale[moved],
        sign,
        lambda: c.ulp(columns),
        lambda at: c.cast(at, columns),
        lambda at: point.values_at(columns, at),
    )


def _unmoved(point: Point, direction: Directions, near: Array, noise: Array) -> tuple[Mask, Mask]:
    """Outputs [M] that need a coarse step to move, and those that need one beyond the columns'
    scale. `near`: their odd change near x."""
    nothing = np.zeros(len(noise), bool)
    moved = piecewise(_surely, near, noise)
    f0 = point.f0
    still = nothing.copy()
    for part in point.parts:
        still[part] = not moved[part].any()
    if not still.any():
        return nothing, nothing
    coarse = _both_sides(point, direction, BASE)
    unmoved = still & piecewise(_surely, piecewise(_odd_change, *coarse, f0), noise)
    if (still & ~unmoved).any() and (point.columns.scale[direction.moving()[0]] < 1).any():
        far = _both_sides(point, direction, BASE, unit_scale=True)
        return unmoved, still & ~unmoved & piecewise(
            _surely, piecewise(_odd_change, *far, f0), noise
        )
    return unmoved, nothing


def _vanishes(up: Array, down: Array, f0: Array) -> Mask:
    """Outputs that vanish at x with their slope (a loss at its minimum), by f near x."""
    even, odd = np.abs(up + down - 2 * f0), np.abs(up - down)
    return (odd < VALLEY * even) & (np.abs(f0) < VANISHES * np.maximum(np.abs(up), np.abs(down)))


def _odd_change(up: Array, down: Array, f0: Array) -> Array:
    """The odd part of f between two sides of x (an even function has no derivative to find); one
    side, where that is all there is."""
    finite = np.isfinite(up) & np.isfinite(down)
    return np.where(finite, up - down, np.fmax(np.abs(up - f0), np.abs(down - f0)))


def _surely(change: Array, noise: Array) -> Mask:
    """Where f moved beyond its noise."""
    return np.asarray(np.isfinite(change) & (np.abs(change) > MOVED_SURELY * noise))


def dense_ray(point: Point, purpose: str) -> Ray:
    """A ray along which all columns of finite x move."""
    columns = np.concatenate([_finite(point, t) for t in range(len(point.buffers))])
    return _ray(point, columns, _signs(point, columns, purpose))
