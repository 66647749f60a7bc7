"""How noisy outputs are on points far apart: where larger numbers cancel in f, it moves in steps of their rounding, which no near point shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.estimate.noise import CONSTANT, FLAT, POINTS, Ray, ecnoise
from gradverify.numerics.function.flat import rms
from gradverify.numerics.function.point import Point
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import RATIO, Array, Mask, nanmedian
from gradverify.numerics.survey import Survey, dense_ray

SPACINGS = tuple(3e-2 * RATIO**-k for k in range(5))  # of the scale: between points that show the steps of cancelling numbers
UNIFORM = 12**-0.5  # of a step: the standard deviation of rounding to it
LARGEST = 16.0  # times 1, the inputs and the outputs: larger numbers are taken to cancel only if their rounding is ...
FAR_BELOW = 1e-6  # ... of what f moves by on the widest points: larger steps are the function's own, as those of floor(x) at 1e4
SAME_STEPS = 10.0  # times: so little differ the steps of rounding from one spacing to the next, and not those of a jump
WIDER, WIDER_STEPS = 30.0, 8  # times as far apart are points beyond the scale, in so many steps at most


@dataclass(frozen=True)
class FarNoise:
    """Noise [M] of outputs on points far apart: within the inputs' scales, and up to 1. Which outputs [M] nothing moves up to there."""

    noise: Array
    far: Array
    dead: Mask

    def at_least(self, noise: Array) -> FarNoise:
        """The wider of this noise and another one [M]."""
        return replace(self, noise=np.maximum(self.noise, noise), far=np.maximum(self.far, noise))


def far_noise(point: Point, survey: Survey) -> FarNoise:
    """Noise of outputs in which larger numbers may cancel, at least the rounding of f: 45 forward calls, and 9 a wider spacing up to 1.

    Points far apart along one dense direction show it: where it is at most the rounding of numbers LARGEST times 1, the inputs or the outputs, or
    far below what f moves by on the widest ones. An output that shows none near x has what the first wider points show, if others do too (a kink
    shows at one spacing). One that shows no noise has what is typical of its tensor, and at least the rounding of 1 where nothing moves it.
    """
    (_, ray), size = dense_ray(point, "far noise"), np.abs(point.f0)
    near = [_spread(point, survey, ray, spacing * ray.scale) for spacing in SPACINGS]
    wide = [_spread(point, survey, ray, spacing) for spacing in _wider(ray.scale)]
    moves = np.fmax.reduce([seen.moved for seen in (*near, *wide)])
    still = np.logical_and.reduce([seen.moved == 0 for seen in near])
    result, far, most = np.maximum(survey.sigma, point.unit * size), np.zeros(len(size)), largest_rounding(point, survey)
    for part in point.parts:
        levels = _of_rounding([seen.take(part) for seen in (*near, *wide)], most[part], FAR_BELOW * moves[part])
        shown = np.nan_to_num(nanmedian(np.array(levels[: len(near)])))
        again = np.sum(np.isfinite(levels), 0) > 1
        for level in levels[len(near) :]:
            shown = np.where((shown > 0) | ~again, shown, np.nan_to_num(level))
        far[part] = np.fmax.reduce(levels)
        typical = np.median(shown[shown > 0]) if (shown > 0).any() else 0.0
        silent = np.where(moves[part] > 0, typical, np.maximum(typical, point.unit[part]))
        result[part] = np.maximum(result[part], np.where(shown > 0, shown, silent))
    return FarNoise(result, np.fmax(result, far), still & (moves == 0))


@dataclass(frozen=True)
class _Spread(Record):
    """What nine points far apart show of each output [M]: its noise, NaN where it is no more than rounding; if most agree; how far it moved."""

    level: Array
    steps: Mask
    moved: Array


def _spread(point: Point, survey: Survey, ray: Ray, spacing: Array) -> _Spread:
    points = ray.points(ray.odd(spacing), np.empty((POINTS, len(point.f0))))
    (level, steps), peak = _level(points, survey.size), np.fmax(np.abs(point.f0), np.maximum(points.max(0), -points.min(0)))
    moved = np.fmax(*(np.abs(farthest.reduce(points) - point.f0) for farthest in (np.fmax, np.fmin)))
    return _Spread(np.where(level > FLAT * point.unit * peak, level, np.nan), steps, moved)


def largest_rounding(point: Point, survey: Survey) -> Array:
    """The rounding [M] of the largest numbers that are taken to cancel in each output."""
    noise = np.zeros(len(point.f0))
    for part in point.parts:
        noise[part] = LARGEST * point.unit[part] * max(1.0, rms(point.x), rms(survey.size[part]))
    return noise


def _of_rounding(spreads: Sequence[_Spread], largest: Array, of_steps: Array) -> list[Array]:
    """The noise [m] at each spacing, NaN where it is larger than that of rounding: where it shows as steps, and at two spacings, it may be more."""
    levels = np.array([spread.level for spread in spreads])
    found = []
    for spread in spreads:
        alike = np.sum((levels >= spread.level / SAME_STEPS) & (levels <= spread.level * SAME_STEPS), 0) > 1
        found.append(np.where((spread.level <= largest) | (spread.steps & alike & (spread.level <= of_steps)), spread.level, np.nan))
    return found


def _wider(scale: Array) -> Iterator[Array]:
    """Spacings [n] beyond the scales, up to what those of 1 have."""
    least = max(float(scale.min(initial=1.0)), np.finfo(float).tiny)
    count = min(max(int(np.ceil(-np.log(least) / np.log(WIDER))), 2), WIDER_STEPS) if least < 1 else 0
    for n in range(1, count + 1):
        yield SPACINGS[0] * np.clip(scale * least ** (-n / count), scale, np.maximum(scale, 1.0))


def _level(points: Array, size: Array) -> tuple[Array, Mask]:
    """Noise [m] of points [9, m]; where most of them agree, that of the largest step between the others, and where that is [m]."""
    level, ending = ecnoise(points, size)
    steps = np.asarray(ending == CONSTANT)
    return np.where(steps, UNIFORM * np.nan_to_num(np.abs(np.diff(points, axis=0)).max(0)), level), steps
