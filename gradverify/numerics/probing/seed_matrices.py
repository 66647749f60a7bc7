"""Seed matrices: random directions V of the inputs, with f called at x ± tV, and random cotangents W of the outputs, pulled back to WᵀJ;
derivatives along them, each with its error bar, and how far a line may be off.

Directions are Gaussian × scale and cotangents signed: positive ones are blind to what sums to zero (softmax, norms). Each input tensor has its own
directions and each output tensor its own cotangents, so that a pair is judged alone: jointly, the tensor of the largest values would set the
norm that all others are judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gradverify.numerics.estimate.ladder import solve
from gradverify.numerics.estimate.samples import LOW_UNIT, Rung, Samples, sample_rung
from gradverify.numerics.estimate.smooth import secant
from gradverify.numerics.function.coordinates import rms
from gradverify.numerics.function.point import DirectionLine, Point
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import QUICK, RATIO, U32, U64, WIDE_RUNG, Array, Index, Mask, in_a_row, joined, pieces, piecewise, repeated, step
from gradverify.numerics.seed_vectors import WEIGHTS, Drawn, as_dtype_holds, gaussian, moves_along, pull_back, signed_weights
from gradverify.numerics.survey import EVERY, KEPT, STRAY, DirectionSample, Survey
from gradverify.numerics.tolerance import Magnitudes, floors, stands_out

# ---- Derivatives along a probe: of single outputs, or of weighted sums of how far the outputs moved, each with its error bar
FINER = ((7, 8, 9), (9, 10, 11))  # rungs that open lines see next: kinks and curvature are smaller there ...
COARSER = ((0, 1, 2, 3), (-2, -1, 0), (-5, -4, -3), (-8, -7, -6))  # ... and noise is here; those above the scale up to 1
LINEAR = (WIDE_RUNG,)  # of a linear function
LOW_START, LOW_FINER = (2, 3, 4), (QUICK, FINER[0])  # rounding to float32 drowns the usual ones
DROWNS = RATIO**-2  # of a bar: noise larger than this makes it wider on finer rungs

Stage = tuple[int, ...]


@dataclass(frozen=True)
class ProbeDerivative(Record):
    """Derivatives along t of m elements, value ± bar; `clear`: the rungs agree and show no kink; `noisy`: finer rungs would widen the bar."""

    value: Array
    bar: Array
    clear: Mask
    noisy: Mask


def probe_derivative(s: Samples) -> ProbeDerivative:
    """The derivative of every element from three rungs, 0 ± 0 where f is bitwise unchanged; from a single one as if f were linear."""
    if len(s.up) == 1:
        return _linear(s)
    d = solve(s, False)
    finite, clear = np.isfinite(d.bar), ~d.unclear
    noisy = finite & (d.noise_bar > DROWNS * d.bar)
    if d.rough:
        clear, noisy = clear & d.smooth, noisy & d.smooth
    if d.resting:
        return ProbeDerivative(d.value, np.where(d.unchanged, 0.0, d.bar), clear & (finite | d.unchanged), noisy)
    return ProbeDerivative(d.value, d.bar, clear & finite, noisy)


def _linear(s: Samples) -> ProbeDerivative:
    """A single rung shows no curvature: the error is noise alone."""
    up, down = s.up[0], s.down[0]
    found = secant(up, down, s.width[0], s.f0, s.sigma, s.unit, s.magnitude if s.rounds_x else None)
    bar = np.where((up == s.f0) & (down == s.f0), 0.0, found.bar)
    return ProbeDerivative(found.value, bar, np.isfinite(bar) & np.isfinite(found.value), np.zeros(len(bar), bool))


def derivative_of_sums(up: Array, down: Array, h: Array, sigma: Array, unit: float, rounds_x: bool) -> ProbeDerivative:
    """Of sums of changes of f [rungs, m] at nominal steps [rungs]: f(x) is 0, so the rounding of f must be in `sigma` [m]."""
    m = up.shape[1]
    steps, zero, one = np.broadcast_to(h[:, None], up.shape), np.zeros(m), np.ones(m)
    return probe_derivative(Samples(up, down, steps, steps, zero, sigma, zero + unit, one / WEIGHTS[0], one, rounds_x))


# ---- steps
@dataclass(frozen=True)
class Schedule:
    """The rungs to begin with, and those for lines that stay open: limited by noise, or by anything else.

    Not `sure`: what the first rungs call off is measured again as well, because they rest on an assumption.
    """

    start: Stage
    coarser: tuple[Stage, ...]
    finer: tuple[Stage, ...]
    sure: bool = True


def reachable(scale: Array, size: Array, rungs: Stage) -> Mask:
    """Scales whose coarsest rung stays within the typical size of the tensor, or 1: beyond, f may be another function."""
    return np.asarray((rungs[0] > 0) | (scale * RATIO ** -rungs[0] <= np.maximum(size, 1.0)))


# ---- Seed matrices: random directions V of the inputs, with f called at x ± tV, and random cotangents W of the outputs, pulled back to WᵀJ
# ---- V
class DirectionRungs(NamedTuple):
    """f above and below x along one direction [rungs, M], NaN where it has no value, and the realised steps [rungs, 2]."""

    up: Array
    down: Array
    steps: Array


@dataclass(frozen=True)
class Directions:
    """Dense directions (K of [n]) of one input tensor in its columns [n]; 0 where a column cannot move. `first_rungs`: sampled rungs of the first,
    which are kept of KEPT outputs at most."""

    point: Point
    columns: Index
    moves: Sequence[Array]
    first_rungs: dict[int, Rung | None] = field(default_factory=dict)

    def first(self) -> Directions:
        """The first direction alone; its samples are shared."""
        return replace(self, moves=[self.moves[0]])

    @cached_property
    def left_out(self) -> Index:
        """Columns that no direction moves."""
        still: Mask = ~np.any([move != 0 for move in self.moves], 0)
        return self.columns[still]

    def sampled(self, k: int, rungs: Stage) -> Iterator[Rung | None]:
        """f along direction k on each of these rungs in turn, two calls each; None where it has no value there."""
        columns, move = self.columns, self.moves[k]
        if rungs[0] <= 0:
            typical = np.full(1, rms(self.point.columns.scale[in_a_row(columns)]))
            if not reachable(typical, typical, rungs).all():
                yield from [None] * len(rungs)
                return
        if not move.all():
            moving = np.flatnonzero(move)
            columns, move = columns[moving], move[moving]
        line = DirectionLine(self.point, columns, move)
        for number in rungs:
            yield self._rung(k, line, number) if len(columns) else None

    def samples(self, k: int, rungs: Stage) -> DirectionRungs:
        """All of them at once."""
        count = len(rungs)
        up, down, steps = np.full((count, len(self.point.f0)), np.nan), np.full((count, len(self.point.f0)), np.nan), np.ones((count, 2))
        for r, (number, rung) in enumerate(zip(rungs, self.sampled(k, rungs), strict=True)):
            steps[r] = step(1.0, number)
            if rung is not None:
                up[r], down[r], steps[r] = rung.up, rung.down, (rung.step_up, rung.step_down)
        return DirectionRungs(up, down, steps)

    def _rung(self, k: int, line: DirectionLine, number: int) -> Rung | None:
        if not k and number in self.first_rungs:
            return self.first_rungs[number]
        found = sample_rung(line, number)
        if not k and len(self.point.f0) <= KEPT:
            self.first_rungs[number] = found
        return found


def draw_directions(point: Point, tensor: int, probes: int, sample: DirectionSample | None = None) -> Directions:
    """Gaussian × scale; inside the domain, zero on inputs that are not finite. The first is that of `sample`, whose samples are known."""
    columns = point.columns.of(tensor)
    first: Sequence[Array] = ()
    known = dict[int, Rung | None]()
    if sample and probes:
        known = {} if sample.kept is None else {sample.rung: sample.kept}
        first = sample.directions
        if len(sample.columns) < len(columns):
            first = [np.zeros(len(columns))]
            first[0][np.searchsorted(columns, sample.columns)] = sample.direction

    def drawn(k: int) -> Array:
        return moves_along(point, columns, gaussian(len(columns), point.seed.generator("direction", tensor, k)))

    return Directions(point, columns, Drawn(probes, drawn, first), known)


# ---- W
class Cotangents:
    """Random signed cotangents `w` (K of [M]), each pulled back once for every output tensor: K backwards an output tensor.

    What these raise, so does whoever asks for their gradients.
    """

    def __init__(self, point: Point, probes: int) -> None:
        self._point, outputs = point, range(len(point.parts))
        self.w = Drawn(probes, lambda k: joined([random_cotangent(point, o, "cotangent", k) for o in outputs]))

    def pulled(self, w: Array, output: int) -> Array:
        """The gradient [C] of one of them, by one backward."""
        return self._point.by_column(pull_back(self._point, output, w[self._point.parts[output]]))


def random_cotangent(point: Point, output: int, purpose: str, *which: object) -> Array:
    """Signed weights [outputs of the tensor] as its dtype holds them; 0 where f is infinite."""
    part = point.parts[output]
    return as_dtype_holds(point, output, signed_weights(part.stop - part.start, point.seed.generator(purpose, *which, "of output", output)))


# ---- What a screen knows of f before it probes: its noise, what is rounding and what is a change, and how far a line may be off
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
