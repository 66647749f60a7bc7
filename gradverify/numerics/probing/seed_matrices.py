"""Seed matrices: random directions V of the inputs, with f called at x ± tV, and random cotangents
W of the outputs, pulled back to WᵀJ; derivatives along them, each with its error bar, and how
far a line may be off.

Directions are Gaussian × scale and cotangents signed: positive ones are blind to what sums to zero
(softmax, norms). Each input tensor has its own directions and each output tensor its own
cotangents, so that a pair is judged alone: jointly, the tensor of the largest values would set the
norm that all others are judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.estimate.ladder import solve
from gradverify.numerics.estimate.samples import LOW_UNIT, Rung, Samples
from gradverify.numerics.estimate.smooth import extrapolate_once, secant
from gradverify.numerics.function.point import Point
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import (
    QUICK,
    RATIO,
    U32,
    U64,
    WIDE_RUNG,
    Array,
    Mask,
    repeated,
)
from gradverify.numerics.seed_vectors import (
    WEIGHTS,
    Drawn,
    as_dtype_holds,
    gaussian,
    moves_along,
    signed_weights,
)
from gradverify.numerics.survey import EVERY, STRAY, Directions, Survey
from gradverify.numerics.tolerance import Magnitudes, floors, stands_out

# ---- Derivatives along a probe of weighted sums of how far the outputs moved, each with its error
# bar
# Rungs that open lines see next: kinks and curvature are smaller there ...
FINER = (
    (7, 8, 9),
    (9, 10, 11),
)
# ... and noise is here; those above the scale up to 1
COARSER = (
    (0, 1, 2, 3),
    (-2, -1, 0),
    (-5, -4, -3),
    (-8, -7, -6),
)
LOW_START, LOW_FINER = (2, 3, 4), (QUICK, FINER[0])  # rounding to float32 drowns the usual ones
DROWNS = RATIO**-2  # of a bar: noise larger than this makes it wider on finer rungs

Stage = tuple[int, ...]


@dataclass(frozen=True)
class ProbeDerivative(Record):
    """Derivatives along t of m elements, value ± bar; `clear`: the rungs agree and show no kink;
    `noisy`: finer rungs would widen the bar."""

    value: Array
    bar: Array
    clear: Mask
    noisy: Mask


def probe_derivative(s: Samples) -> ProbeDerivative:
    """The derivative of every element from three rungs, 0 ± 0 where f is bitwise unchanged; from a
    single one, which shows no curvature, as if f were linear; from two as if these converged."""
    if len(s.up) == 1:
        found = secant(
            s.up[0],
            s.down[0],
            s.width[0],
            s.f0,
            s.sigma,
            s.unit,
            s.magnitude if s.rounds_x else None,
        )
        bar = np.where((s.up[0] == s.f0) & (s.down[0] == s.f0), 0.0, found.bar)
        return ProbeDerivative(
            found.value, bar, np.isfinite(bar) & np.isfinite(found.value), np.zeros(len(bar), bool)
        )
    if len(s.up) == 2:
        coarse, fine = (Rung(s.up[r], s.down[r], s.step_up[r], s.step_down[r]) for r in range(2))
        value, bar = extrapolate_once(coarse, fine, s.sigma, s.unit)
        known = np.isfinite(value) & np.isfinite(bar)
        return ProbeDerivative(value, bar, known, np.zeros(len(bar), bool))
    d = solve(s, False)
    finite, clear = np.isfinite(d.bar), ~d.unclear
    noisy = finite & (d.noise_bar > DROWNS * d.bar)
    if d.rough:
        clear, noisy = clear & d.smooth, noisy & d.smooth
    if d.resting:
        return ProbeDerivative(
            d.value, np.where(d.unchanged, 0.0, d.bar), clear & (finite | d.unchanged), noisy
        )
    return ProbeDerivative(d.value, d.bar, clear & finite, noisy)


@dataclass(frozen=True)
class Schedule:
    """The rungs to begin with, and those for lines that stay open: limited by noise, or by anything
    else.

    Not `sure`: what the first rungs call off is measured again as well, because they rest on an
    assumption. `only_off`: only that is; what is not surely off passes.
    """

    start: Stage
    coarser: tuple[Stage, ...]
    finer: tuple[Stage, ...]
    sure: bool = True
    only_off: bool = False


def draw_directions(
    point: Point, tensor: int, probes: int, sample: Directions | None = None
) -> Directions:
    """Gaussian × scale; inside the domain, zero on inputs that are not finite. The first is that of
    `sample`, whose samples are known."""
    columns = point.columns.of(tensor)

    def drawn(k: int) -> Array:
        generator = point.seed.generator("direction", tensor, k)
        return moves_along(point, columns, gaussian(len(columns), generator))

    if sample is None:
        return Directions(point, tensor, Drawn(probes, drawn))
    return replace(sample, moves=Drawn(probes, drawn, sample.moves))


def random_cotangent(point: Point, output: int, purpose: str, *which: object) -> Array:
    """Signed weights [outputs of the tensor] as its dtype holds them; 0 where f is infinite."""
    part = point.parts[output]
    return as_dtype_holds(
        point,
        output,
        signed_weights(
            part.stop - part.start, point.seed.generator(purpose, *which, "of output", output)
        ),
    )


# ---- What a screen knows of f before it probes: its noise, what is rounding and what is a change,
# and how far a line may be off
# Of a line's norm, or of the sum of magnitudes; bars are 1e-11, and 1e-4 where float32 is inside
SCREEN, SCREEN_LOW = (
    1e-8,
    1e-3,
)
SCREEN_NARROW = 1e-4  # where only backward does: its sums over 10⁶ elements are good to 6e-5
# ... and this much of it for what agrees within a bar that no rung makes smaller
SLACK, SLACK_LOW = (
    1e-6,
    1e-2,
)
# A rounding error is uniform: its standard deviation is its largest value over this
SQRT3 = 3.0**0.5


@dataclass(frozen=True)
class Sums:
    """Weighted sums [m] of how outputs of one tensor change: `add_up` makes them of f [M]; their
    noise [m]."""

    output: int
    add_up: Callable[[Array], Array]
    sigma: Array


@dataclass(frozen=True)
class SurveyedPoint:
    """A point with its survey: noise, thresholds and floors."""

    point: Point
    survey: Survey

    def relative(self, tensor: int, output: int) -> tuple[float, float]:
        """What a line of a pair may deviate by, of its norm, and by how much at most where it
        agrees within its bar."""
        low = self.part_unit(output) > LOW_UNIT or self.unit_of_x(tensor) > LOW_UNIT
        return (
            (SCREEN_LOW, SLACK_LOW)
            if low
            else (screen_of(self.point), max(screen_of(self.point), SLACK))
        )

    def schedule(self, tensor: int, linear: bool = False, only_off: bool = False) -> Schedule:
        """The rungs for lines of a tensor, by precision; `linear`: f seems to be that in it, which
        is doubted where it finds a line off. `only_off`: by two rungs near x, one of a linear f."""
        low = self.unit_of_x(tensor) > LOW_UNIT or any(
            self.part_unit(o) > LOW_UNIT for o in range(len(self.point.parts))
        )
        start, finer = (LOW_START, LOW_FINER) if low else (QUICK, FINER)
        if only_off:
            return Schedule(QUICK[: 2 - linear], (), (QUICK,), False, True)
        return (
            Schedule((WIDE_RUNG,), COARSER, (start, *finer), sure=False)
            if linear
            else Schedule(start, COARSER, finer)
        )

    def noise_along(self, tensor: int, noise: Array, norm: Array) -> Array:
        """That of lines along a dense direction: the rounding of x ± t·v is carried on by J, about
        u·‖line‖."""
        return np.hypot(noise, self.unit_of_x(tensor) / SQRT3 * norm)

    @cached_property
    def still(self) -> Array:
        """The largest change [M] of an output that is none: 0 (bitwise) unless the forward is
        noisier than rounding."""
        noisy = self.survey.noisy(self.point)
        return (
            np.where(noisy, STRAY * self.survey.sigma, 0.0)
            if noisy.any()
            else repeated(0.0, len(noisy))
        )

    def changes(self, f: Array, part: slice = EVERY) -> Array:
        """f − f(x) of f [M], or of a part of it; an infinity that stays is no change."""
        f, f0 = f[part], self.point.f0[part]
        return np.where(f == f0, 0.0, f - f0) if self.masked else f - f0

    @cached_property
    def masked(self) -> bool:
        """Some output is infinite at x."""
        return bool(np.isinf(self.point.f0).any())

    def read(
        self,
        directions: Directions,
        k: int,
        rungs: Stage,
        of: Sequence[Sums],
        see: Callable[[bool, Rung], None] | None = None,
    ) -> list[ProbeDerivative]:
        """Derivatives of sums along direction k, whose f(x) is 0: the rounding of f is in their
        noise. `see` gets f on each rung, and if it is the first."""
        sums, steps = (
            [np.empty((2, len(rungs), len(each.sigma))) for each in of],
            np.ones((len(rungs), 2)),
        )
        for r, rung in enumerate(directions.sampled(k, rungs)):
            steps[r] = rung.step_up, rung.step_down
            for each, found in zip(of, sums, strict=True):
                found[0, r], found[1, r] = each.add_up(rung.up), each.add_up(rung.down)
            if not k:
                directions.keep(rungs[r], rung)
            if see:
                see(r == 0, rung)
            del rung  # not held while the next one is taken
        h = 0.5 * steps.sum(1)[:, None]
        result = list[ProbeDerivative]()
        for each, (up, down) in zip(of, sums, strict=True):
            zero, one, wide = (
                np.zeros(len(each.sigma)),
                np.ones(len(each.sigma)),
                np.broadcast_to(h, up.shape),
            )
            result.append(
                probe_derivative(
                    Samples(
                        up * (h / steps[:, :1]),
                        down * (h / steps[:, 1:]),
                        wide,
                        wide,
                        zero,
                        each.sigma,
                        zero + self.part_unit(each.output),
                        one / WEIGHTS[0],
                        one,
                        not self.point.columns.rounded,
                    )
                )
            )
        return result

    def unit_of_x(self, tensor: int) -> float:
        """How far, of |x|, a step may be off: x ± h d is rounded to the input's precision."""
        c = self.point.columns
        return U32 if c.rounded and c.single[c.of(tensor)].any() else U64

    def part_unit(self, output: int) -> float:
        """The unit roundoff of an output tensor."""
        return float(self.point.unit[self.point.parts[output]].max(initial=U64))

    def unmoved(self, tensor: int, output: int) -> bool:
        """Nothing of the pair moves on the quick rungs though it moves on wider ones: a screen
        proves nothing there."""
        part = self.point.parts[output]
        return self.survey.some_unmoved and bool(
            (self.survey.unmoved | self.survey.wide)[tensor, part].any()
        )

    def floors(self, reach: Array, alive: Mask) -> Array:
        """c·unit [M] from each output's reach (method.md section 1)."""
        c = self.point.columns
        x_size = max(float(c.scale.max(initial=0.0)), float(c.typical.max(initial=0.0)))
        rows = Magnitudes(
            self.point.shared(reach),
            self.survey.size,
            self.survey.sigma,
            self.point.parts,
            x_size,
            self.point.unit,
            self.point.backward_unit,
        )
        return floors(rows, stands_out(rows, alive, rows.reach))


def screen_of(point: Point) -> float:
    """What a screen allows of a line's norm, where its values are those of float64."""
    return SCREEN_NARROW if point.backward_unit > LOW_UNIT else SCREEN
