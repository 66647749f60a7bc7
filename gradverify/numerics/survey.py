"""Measurements before any column is moved, once per input tensor: the noise and size of f, and
whether small steps move it at all.

All are made along dense directions, so they do not depend on how the columns are streamed.
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

MOVED_SURELY = 3 * Z * np.sqrt(2)  # standard deviations of noise: a larger change is no noise
# Columns up to which the two calls that find f linear do not pay off, where only sums of columns
# are measured ...
SUMMED = 10
ONE_COLUMN = 1  # ... and where each column is measured
NOISY = 4  # times its roundings: with more noise, f moves everywhere
# Standard deviations of such noise: an output that moves by more depends on the moved columns
STRAY = 8.0
STRAIGHT = 30.0  # roundings or standard deviations: apparent bend of a straight line
# Of an even change: the odd part of a change that may occur next to a point of slope 0
VALLEY = 0.1
EVERY = slice(None)
# Outputs up to which values are kept: the values of more take more memory than sampling them again,
# in two calls, is worth
KEPT = 1 << 20
VANISHES = 1e-3  # of the values at the first step: f at x below this vanishes


@dataclass(frozen=True)
class Directions:
    """Dense directions (K of [n]: weights × scale) of one input tensor in its columns [n]; 0 where
    a column cannot move. `first_rungs`: sampled rungs of the first direction, kept for up to KEPT
    outputs."""

    point: Point
    tensor: int
    moves: Sequence[Array]
    first_rungs: dict[int, Rung] = field(default_factory=dict)

    def moving(self, k: int = 0) -> tuple[Index, Array]:
        """Return the columns that direction k moves, and their moves."""
        columns = self.point.columns.of(self.tensor)
        move = self.moves[k]
        moving = None if move.all() else np.flatnonzero(move)
        return (columns, move) if moving is None else (columns[moving], move[moving])

    def sampled(self, k: int, rungs: Sequence[int]) -> Iterator[Rung]:
        """Yield f along direction k on each of these rungs, two calls each; NaN where it has no
        value.

        Above the scale no rung exceeds the typical size of the tensor, or 1: beyond, f may be
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
        """Keep samples of the first direction for later use."""
        if len(self.point.f0) <= KEPT:
            self.first_rungs[rung] = values


@dataclass(frozen=True)
class Survey:
    """The measurements: noise (`sigma`) and largest |f| (`size`) of each output [M]; `forward`:
    calls made; `direction_samples`: a sample per input tensor (None: near a border).

    moved_by, change: moves of all columns [C] so small that f has no structure in between, and the
    change of each output [M], to which derivatives must add up. reach: a reliable change of an
    output [M] for a relative change of its inputs: at least a typical entry of its row. far_change:
    the change of an output [M] where inputs change by their own size, for outputs that vanish at x
    with their slope; else 0. unmoved, wide [tensors, M]: the quick rungs do not reliably move any
    output of the output tensor; a step of 0.23·s does, or only one of 0.23·max(s, 1).
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
        """Return the standard deviation of f [M] near x, rounding included; or of a part of the
        outputs."""
        return np.maximum(self.sigma[part], self.point.unit[part] * self.size[part])

    def magnitudes(self, reach: Array, far_change: Array | float = 0.0) -> Magnitudes:
        """Return the quantities that determine the floors of outputs with this reach [M]."""
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
        """Mask of the outputs [M] that are noisier than rounding."""
        return piecewise(
            lambda sigma, unit, size: sigma > NOISY * unit * size,
            self.sigma,
            self.point.unit,
            self.size,
        )

    @cached_property
    def some_unmoved(self) -> bool:
        """Whether some output needs a coarse step to move."""
        return bool(self.unmoved.any() or self.wide.any())


def survey(point: Point) -> Survey:
    """Measure the survey: about eleven forward calls and two more per input tensor but the first,
    and one repeat (five where it differs)."""
    before, tensors = point.forward, range(len(point.buffers))
    sigma = repeat_noise(point.values, point.f0, point.before)
    size = finite_size(point.f0)
    columns = [_finite(point, t) for t in tensors]
    directions = [_dense(point, "survey", t) for t in tensors]
    samples, moved = list[Directions | None](), list[Mask]()
    changes, vanishing = list[Array](), list[Mask]()
    for c, d in zip(columns, directions, strict=True):
        # A step of a direction might leave a declared domain
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
    # Along the whole direction: points near x do not show the size of the terms of outputs that
    # vanish there, and thus their rounding
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
    """Return one direction of all columns of finite x."""
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
    """Return the noise [M] along one ray through all tensors, the move of each column [C], and the
    change of f [M]; along one ray per tensor where f is not defined along the whole ray."""
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
    """Return the reach [M] that follows from the odd change [M] of f along a dense direction of
    `columns` columns; 0 where the change may be noise."""
    widest = 2 * step(1.0, QUICK[0]) * WEIGHTS[1] * np.sqrt(columns)

    def reach(change: Array, sigma: Array, unit: Array, size: Array) -> Array:
        sure = np.isfinite(change) & (np.abs(change) > VISIBLE * np.maximum(sigma, unit * size))
        return np.where(sure, np.abs(change) / widest, 0.0)

    return piecewise(reach, change, sigma, unit, size)


def linear_inputs(survey: Survey, thrifty: bool = False) -> dict[int, Directions | None]:
    """Return the input tensors in which f is linear, by two calls along one dense direction; none
    where a sample shows a bend.

    The values are the directions with their samples on the wide rung; None where a domain is
    declared, so that other directions may have no room for it. `thrifty`: include small tensors.
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
    # Unequal steps, so that neither a parabola nor a cubic looks straight
    up, down = line.at(h), line.at(-2 * h)
    if up is None or down is None:
        return None
    wide = Rung(up[0], down[0], up[1], -down[1])
    direction.keep(WIDE_RUNG, wide)
    return direction if _straight(survey, wide) else None


def _straight(survey: Survey, at: Rung) -> bool:
    """Return whether no output [M] is bent by more than noise and rounding allow for a straight
    line."""

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
    """Return f after a step t along the direction and back, or at the ends of the domain;
    `unit_scale`: with the columns' scales at least 1."""
    (columns, move), c = direction.moving(), point.columns
    if not len(columns):
        return point.f0, point.f0
    if unit_scale:
        move = move / c.scale[columns] * np.maximum(c.scale[columns], 1.0)
    ends = [c.x[columns] + sign * t * move for sign in (1.0, -1.0)]
    up, down = (point.values_at(columns, np.clip(x, c.low[columns], c.high[columns])) for x in ends)
    return up, down


def _signs(point: Point, columns: Index, purpose: str, *which: object) -> Codes:
    """Return random signs ±1, turned inwards where the domain ends nearby."""
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
    """Return the outputs [M] that need a coarse step to move, and those that need one beyond the
    columns' scale. `near`: their odd change near x."""
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
    """Return the outputs that vanish at x with their slope (a loss at its minimum), by f near x."""
    even, odd = np.abs(up + down - 2 * f0), np.abs(up - down)
    return (odd < VALLEY * even) & (np.abs(f0) < VANISHES * np.maximum(np.abs(up), np.abs(down)))


def _odd_change(up: Array, down: Array, f0: Array) -> Array:
    """Return the odd part of f between two sides of x (an even function has no derivative to find),
    or the change on the only side with values."""
    odd, finite = up - down, np.isfinite(up) & np.isfinite(down)
    if finite.all():
        return odd
    return np.where(finite, odd, np.fmax(np.abs(up - f0), np.abs(down - f0)))


def _surely(change: Array, noise: Array) -> Mask:
    """Return where f moved beyond its noise."""
    return np.asarray(np.isfinite(change) & (np.abs(change) > MOVED_SURELY * noise))


def dense_ray(point: Point, purpose: str) -> Ray:
    """Return a ray along which all columns of finite x move."""
    columns = np.concatenate([_finite(point, t) for t in range(len(point.buffers))])
    return _ray(point, columns, _signs(point, columns, purpose))
