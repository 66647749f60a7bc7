"""What a screen knows of f before it probes: its noise, what is rounding and what is a change, and how far a line may be off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.samples import LOW_UNIT
from gradverify.numerics.function.point import Point
from gradverify.numerics.probing.directional import COARSER, FINER, LINEAR, LOW_FINER, LOW_START, ProbeDerivative, Schedule, derivative_of_sums
from gradverify.numerics.probing.seed_matrices import DirectionRungs
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import QUICK, U32, U64, Array, Mask, pieces, piecewise, repeated
from gradverify.numerics.survey import EVERY, STRAY, Survey
from gradverify.numerics.tolerance import Magnitudes, floors, stands_out

SCREEN, SCREEN_LOW = 1e-8, 1e-3  # of a line's norm, or of the sum of magnitudes; bars are 1e-11, and 1e-4 where float32 is inside
SCREEN_NARROW = 1e-4  # where only backward does: its sums over 10⁶ elements are good to 6e-5
SLACK, SLACK_LOW = 1e-6, 1e-2  # ... and this much of it for what agrees within a bar that no rung makes smaller
SQRT3 = 3.0**0.5  # a rounding error is uniform: its standard deviation is its largest value over this


@dataclass(frozen=True)
class Allowed(Record):
    """Of lines [m]: the norm, the tolerance, and the widest |a − D| + U of a line that agrees within its bar."""

    norm: Array
    tolerance: Array
    widest: Array


@dataclass(frozen=True)
class SurveyedPoint:
    """A point with its survey: noise, thresholds and floors."""

    point: Point
    survey: Survey

    def allowed(self, tensor: int, norm: Array, floor: Array, output: int | None = None) -> Allowed:
        """What lines [m] of one pair may deviate by, or lines [M], one an output, of all pairs of the tensor."""
        screen, slack = self._relative(tensor, output) if output is not None else self._relative_of_outputs(tensor)
        return Allowed(norm, screen * norm + floor, slack * norm + floor)

    def _relative(self, tensor: int, output: int) -> tuple[float, float]:
        low = self.part_unit(output) > LOW_UNIT or self.unit_of_x(tensor) > LOW_UNIT
        return (SCREEN_LOW, SLACK_LOW) if low else (screen_of(self.point), max(screen_of(self.point), SLACK))

    def _relative_of_outputs(self, tensor: int) -> tuple[Array, Array]:
        screen, slack = np.empty((2, len(self.point.f0)))
        for o, part in enumerate(self.point.parts):
            screen[part], slack[part] = self._relative(tensor, o)
        return screen, slack

    def schedule(self, tensor: int, linear: bool = False) -> Schedule:
        """The rungs for lines of a tensor, by precision; `linear`: f seems to be that in it, which is doubted where it finds a line off."""
        low = self.unit_of_x(tensor) > LOW_UNIT or any(self.part_unit(o) > LOW_UNIT for o in range(len(self.point.parts)))
        start, finer = (LOW_START, LOW_FINER) if low else (QUICK, FINER)
        return Schedule(LINEAR, COARSER, (start, *finer), sure=False) if linear else Schedule(start, COARSER, finer)

    @property
    def noise(self) -> Array:
        """Standard deviation of f [M], rounding included."""
        return piecewise(lambda sigma, unit, size: np.maximum(sigma, unit * size), self.survey.sigma, self.point.unit, self.survey.size)

    def noise_along(self, tensor: int, noise: Array, norm: Array) -> Array:
        """That of lines along a dense direction: the rounding of x ± t·v is carried on by J, about u·‖line‖."""
        return np.hypot(noise, self.unit_of_x(tensor) / SQRT3 * norm)

    @property
    def still(self) -> Array:
        """The largest change [M] of an output that is none: 0 (bitwise) unless the forward is noisier than rounding."""
        noisy = self.survey.noisy(self.point)
        return np.where(noisy, STRAY * self.survey.sigma, 0.0) if noisy.any() else repeated(0.0, len(noisy))

    def changes(self, f: Array, part: slice = EVERY) -> Array:
        """f − f(x) of f [M], or of a part of it; an infinity that stays is no change."""
        f, f0 = f[part], self.point.f0[part]
        return np.where(f == f0, 0.0, f - f0) if self.masked else f - f0

    @cached_property
    def masked(self) -> bool:
        """Some output is infinite at x."""
        return bool(np.isinf(self.point.f0).any())

    def moved(self, values: Sequence[Array]) -> Mask:
        """Outputs [M] that changed beyond the noise of the forward in one of these f [M]."""
        still, moved = self.still, np.zeros(len(self.point.f0), bool)
        for f in values:
            if not np.isnan(f).all():
                for part in pieces(len(f)):
                    moved[part] |= ~(np.abs(self.changes(f, part)) <= still[part])
            if moved.all():
                break
        return moved

    def sums(self, output: int, samples: DirectionRungs, add_up: Callable[[Array], Array], sigma: Array) -> ProbeDerivative:
        """Derivatives of sums [m] of how the outputs of one tensor change along a direction, with their noise [m]."""
        part = self.point.parts[output]
        up, down = (np.array([add_up(self.changes(f)[part]) for f in side]) for side in samples[:2])
        return self.derivative_of_sums(output, up, down, samples.steps, sigma)

    def derivative_of_sums(self, output: int, up: Array, down: Array, steps: Array, sigma: Array) -> ProbeDerivative:
        """Derivatives of such sums, which changed by `up` and `down` [rungs, m] at these steps [rungs, 2]."""
        h = 0.5 * steps.sum(1)
        up, down = (sums * (h / realised)[:, None] for sums, realised in zip((up, down), steps.T, strict=True))
        return derivative_of_sums(up, down, h, sigma, self.part_unit(output), self.rounds_x())

    def unit_of_x(self, tensor: int) -> float:
        """How far, of |x|, a step may be off: x ± h d is rounded to the input's precision."""
        c = self.point.columns
        return U32 if c.rounded and c.single[c.of(tensor)].any() else U64

    def rounds_x(self) -> bool:
        return not self.point.columns.rounded

    def part_unit(self, output: int) -> float:
        return float(self.point.unit[self.point.parts[output]].max(initial=U64))

    def unmoved(self, tensor: int, output: int) -> bool:
        """Nothing of the pair moves on the quick rungs though it moves on wider ones: a screen proves nothing there."""
        part = self.point.parts[output]
        return self.survey.some_unmoved and bool((self.survey.unmoved | self.survey.wide)[tensor, part].any())

    def floors(self, reach: Array, alive: Mask) -> Array:
        """c·unit [M] from each output's reach (method.md section 1)."""
        c = self.point.columns
        x_size = max(float(c.scale.max(initial=0.0)), float(c.typical.max(initial=0.0)))
        rows = Magnitudes(self.point.shared(reach), self.survey.size, self.survey.sigma, self.point.parts, x_size, self.point.unit,
                    self.point.backward_unit)
        return floors(rows, stands_out(rows, alive, rows.reach))


def screen_of(point: Point) -> float:
    """What a screen allows of a line's norm, where its values are those of float64."""
    return SCREEN_NARROW if point.backward_unit > LOW_UNIT else SCREEN
