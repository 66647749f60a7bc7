"""What the three reduced comparisons (columns, rows, blocks) share: derivatives of lines, and the screen's verdict.

A screen reduces the Jacobian by random probes to one number a line (a column, an output, a block), judges each against the line's own norm
and names the lines that are not clearly right. It names no entry and calls nothing wrong: its caller resolves what is flagged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gradverify.numerics.columns.survey import Survey
from gradverify.numerics.compare import MISMATCH, PASS, UNDECIDED, Rows, floors, guarded, stands_out
from gradverify.numerics.ladder import solve
from gradverify.numerics.plain import ARITHMETIC
from gradverify.numerics.point import Point
from gradverify.numerics.reduction import WEIGHTS
from gradverify.numerics.rungs import QUICK, RATIO, U32, U64, WIDE, Array, Codes, Index, Mask, Z, finite_size
from gradverify.numerics.samples import LOW_UNIT, Samples

SCREEN, SCREEN_LOW = 1e-8, 1e-3  # of a line's norm; bars are 1e-11, and 1e-4 where something computes in float32
SCREEN_NARROW = 1e-4  # where only backward does: its sums over 10⁶ elements are good to 6e-5
SLACK, SLACK_LOW = 1e-6, 1e-2  # ... and this much of it for what agrees within a bar that no rung makes smaller
FINER = ((7, 8, 9), (9, 10, 11))  # rungs that open lines see next: kinks and curvature are smaller there ...
COARSER = ((0, 1, 2, 3), (-2, -1, 0), (-5, -4, -3), (-8, -7, -6))  # ... and noise is here; those above the scale up to 1
LINEAR = (WIDE,)  # of a linear function
LOW_START, LOW_FINER = (2, 3, 4), (QUICK, FINER[0])  # rounding to float32 drowns the usual ones
DROWNS = RATIO**-2  # of a bar: noise larger than this makes it wider on finer rungs
RARE = 0.01  # of the lines: fewer that agree within a wide bar are not worth more calls
PIECE = 1 << 14  # elements that are solved together: 12 MiB of samples and tables
STRAY = 8.0  # standard deviations of a noisy forward: more is a dependence
NOISY = 4  # times its roundings: such a forward moves everywhere with its noise

Stage = tuple[int, ...]


@dataclass(frozen=True)
class Screened:
    """One (input tensor, output tensor) pair: how many `lines` were screened and which are `flagged` (ascending).

    Lines are numbers of columns (as `Point.columns`), of outputs (as `Point.f0`), or of blocks (as `Pattern.block_of_outputs`). `strays`
    [s, 2] are violations of "unowned is zero", of which few are kept, `stray_count` of them in all: (column group, output) that moved; (row group,
    column) that was pulled back; of blocks, both for outputs that depend on nothing: (−1, output) and (0, column).
    `left_out`: columns that no probe moved (not finite, at the end of their domain). `resolution`: the largest tol + U of the lines that
    passed, as a derivative along the probe; `relative`: the same over the line's norm, for lines that stand out of dust. `lost`: those of the
    flagged whose analytic sum is not finite.
    """

    input: int
    output: int
    lines: int
    flagged: Index
    strays: Index
    stray_count: int
    left_out: Index
    resolution: float
    relative: float
    lost: Index = field(default_factory=lambda: np.zeros(0, np.intp))

    @property
    def clean(self) -> bool:
        return not (len(self.flagged) or self.stray_count)


@dataclass(frozen=True)
class Screen:
    """A whole reduced comparison: the pairs, inputs outside, and the calls it took."""

    pairs: tuple[Screened, ...]
    forward: int
    backward: int

    @property
    def clean(self) -> bool:
        return all(pair.clean for pair in self.pairs)

    def pair(self, input_: int, output: int) -> Screened:
        return next(pair for pair in self.pairs if (pair.input, pair.output) == (input_, output))


def joined(screens: Sequence[Screen]) -> Screen:
    """Of different inputs, as one; pairs in the order of the inputs."""
    pairs = sorted((pair for screen in screens for pair in screen.pairs), key=lambda pair: (pair.input, pair.output))
    return Screen(tuple(pairs), sum(screen.forward for screen in screens), sum(screen.backward for screen in screens))


def lost(analytic: Array, flagged: Index) -> Index:
    """Those of the flagged lines whose sums [probes, m] are not all finite."""
    return flagged[~np.isfinite(analytic[:, flagged]).all(0)] if len(flagged) else flagged


# ---- derivatives
@dataclass(frozen=True)
class Reading:
    """Derivatives along t of m elements, value ± bar; `clear`: the rungs agree and show no kink; `noisy`: finer rungs would widen the bar."""

    value: Array
    bar: Array
    clear: Mask
    noisy: Mask

    def replaced(self, i: Index, new: Reading) -> Reading:
        parts = []
        for old, fresh in zip(vars(self).values(), vars(new).values(), strict=True):
            parts.append(old.copy())
            parts[-1][i] = fresh
        return Reading(*parts)

    def take(self, i: Index | Mask) -> Reading:
        return Reading(self.value[i], self.bar[i], self.clear[i], self.noisy[i])


def reading(s: Samples) -> Reading:
    """The derivative of every element from three rungs; 0 ± 0 where f is bitwise unchanged."""
    if len(s.f0) <= PIECE:
        return _solved(s)
    parts = [_solved(s.take(np.arange(a, min(a + PIECE, len(s.f0))))) for a in range(0, len(s.f0), PIECE)]
    return Reading(*(np.concatenate(column) for column in zip(*(vars(p).values() for p in parts), strict=True)))


def _solved(s: Samples) -> Reading:
    d = solve(s, False)
    finite, clear = np.isfinite(d.bar), ~d.unclear
    noisy = finite & (d.noise_bar > DROWNS * d.bar)
    if d.rough:
        clear, noisy = clear & d.smooth, noisy & d.smooth
    if d.resting:
        return Reading(d.value, np.where(d.unchanged, 0.0, d.bar), clear & (finite | d.unchanged), noisy)
    return Reading(d.value, d.bar, clear & finite, noisy)


def linear_reading(s: Samples) -> Reading:
    """Of a function known to be linear: one wide rung, whose error is noise alone."""
    up, down, width, low = s.up[0], s.down[0], s.width[0], s.unit > LOW_UNIT
    value = (up - down) / width
    noise = np.maximum(s.sigma, s.unit * np.maximum(np.maximum(np.abs(up), np.abs(down)), finite_size(s.f0)))
    if s.rounds_x and low.any():
        noise = np.where(low, np.maximum(noise, s.unit * np.abs(value) * s.magnitude), noise)
    bar = Z * np.sqrt(2) * noise / width + ARITHMETIC * np.abs(value)
    bar[(up == s.f0) & (down == s.f0)] = 0.0
    return Reading(value, bar, np.isfinite(bar) & np.isfinite(value), np.zeros(len(value), bool))


def reduced(up: Array, down: Array, h: Array, sigma: Array, unit: float, rounds_x: bool) -> Samples:
    """Samples of sums of changes of f [rungs, m] at nominal steps [rungs]: f(x) is 0, so the rounding of f must be in `sigma` [m]."""
    m = up.shape[1]
    steps, zero, one = np.broadcast_to(h[:, None], up.shape), np.zeros(m), np.ones(m)
    return Samples(up, down, steps, steps, zero, sigma, zero + unit, one / WEIGHTS[0], one, rounds_x)


# ---- what is known of the outputs
@dataclass(frozen=True)
class Allowed:
    """Of lines [m]: the norm, the tolerance, and the widest |a − D| + U of a line that agrees within its bar."""

    norm: Array
    tolerance: Array
    widest: Array

    def take(self, i: Index | slice) -> Allowed:
        return Allowed(self.norm[i], self.tolerance[i], self.widest[i])


@dataclass(frozen=True)
class Known:
    """A point with its survey: noise, thresholds and floors. `relative`: the screen's tolerance, None for that of the precision."""

    point: Point
    survey: Survey
    relative: float | None = None

    def allowed(self, tensor: int, norm: Array, floor: Array) -> Allowed:
        """What lines [M], one an output, may deviate by; by precision."""
        tolerance, widest = np.empty((2, len(norm)))
        for o, part in enumerate(self.point.parts):
            own = self.allowed_in(tensor, o, norm[part], floor[part])
            tolerance[part], widest[part] = own.tolerance, own.widest
        return Allowed(norm, tolerance, widest)

    def allowed_in(self, tensor: int, output: int, norm: Array, floor: Array) -> Allowed:
        """What lines [m] of one pair may deviate by."""
        low = self.part_unit(output) > LOW_UNIT or self.unit_of_x(tensor) > LOW_UNIT
        normal, slack = (SCREEN_LOW, SLACK_LOW) if low else (usual(self.point), SLACK)
        relative = normal if self.relative is None else self.relative
        return Allowed(norm, relative * norm + floor, max(relative, slack) * norm + floor)

    @property
    def noise(self) -> Array:
        """Standard deviation of f [M], rounding included."""
        return np.maximum(self.survey.sigma, self.point.unit * self.survey.size)

    @property
    def still(self) -> Array:
        """The largest change [M] of an output that is none: 0 (bitwise) unless the forward is noisier than rounding."""
        return np.where(self.survey.sigma > NOISY * self.point.unit * self.survey.size, STRAY * self.survey.sigma, 0.0)

    def changes(self, f: Array) -> Array:
        """f − f(x) [M]; an infinity that stays is no change."""
        return np.where(f == self.point.f0, 0.0, f - self.point.f0) if self.masked else f - self.point.f0

    @cached_property
    def masked(self) -> bool:
        """Some output is infinite at x."""
        return bool(np.isinf(self.point.f0).any())

    def unit_of_x(self, tensor: int) -> float:
        """How far, of |x|, a step may be off: x ± h d is rounded to the input's precision."""
        c = self.point.columns
        return U32 if c.rounded and c.single[c.of(tensor)].any() else U64

    def rounds_x(self) -> bool:
        return not self.point.columns.rounded

    def part_unit(self, output: int) -> float:
        return float(self.point.unit[self.point.parts[output]].max(initial=U64))

    def asleep(self, tensor: int, output: int) -> bool:
        """Nothing of the pair moves on the quick rungs though it moves on wider ones: a screen proves nothing there."""
        part = self.point.parts[output]
        return self.survey.drowsy and bool((self.survey.asleep | self.survey.wide)[tensor, part].any())

    def floors(self, reach: Array, alive: Mask) -> Array:
        """c·unit [M] from each output's reach (method.md section 1)."""
        x_size = float(self.point.columns.size.max(initial=0.0))
        rows = Rows(self.point.shared(reach), self.survey.size, self.survey.sigma, self.point.parts, x_size, self.point.unit,
                    self.point.backward_unit)
        return floors(rows, stands_out(rows, alive, rows.reach))


def usual(point: Point) -> float:
    """What a screen allows of a line's norm, where its values are those of float64."""
    return SCREEN_NARROW if point.backward_unit > LOW_UNIT else SCREEN


@dataclass(frozen=True)
class Plan:
    """The rungs to begin with, and those for lines that stay open: limited by noise, or by anything else.

    Not `sure`: what the first rungs call off is measured again as well, because they rest on an assumption.
    """

    start: Stage
    coarser: tuple[Stage, ...]
    finer: tuple[Stage, ...]
    sure: bool = True

    def assuming(self, start: Stage) -> Plan:
        """With another beginning, that is doubted where it finds a line off."""
        return Plan(start, self.coarser, (self.start, *self.finer), sure=False)


def plan(known: Known, tensor: int, linear: bool = False) -> Plan:
    """By precision: with coarser rungs as far as they reach; `linear`: f seems to be that in the tensor."""
    low = known.unit_of_x(tensor) > LOW_UNIT or any(known.part_unit(o) > LOW_UNIT for o in range(len(known.point.parts)))
    usual = Plan(LOW_START, COARSER, LOW_FINER) if low else Plan(QUICK, COARSER, FINER)
    return usual.assuming(LINEAR) if linear else usual


def reachable(scale: Array, size: Array, rungs: Stage) -> Mask:
    """Scales whose coarsest rung stays within the typical size of the tensor, or 1: beyond, f may be another function."""
    return np.asarray((rungs[0] > 0) | (scale * RATIO ** -rungs[0] <= np.maximum(size, 1.0)))


# ---- the verdict
@dataclass(frozen=True)
class Judged:
    """Elements [m] that passed (else they are flagged), what they were allowed, and their bars."""

    passed: Mask
    allowed: Allowed
    bar: Array


Again = Callable[[Index, Stage], Reading]
"""Measures elements (indices) once more on other rungs."""


def judged(analytic: Array, first: Reading, allowed: Allowed, plan: Plan, again: Again) -> Judged:
    """PASS where |a − D| + U ≤ tol; what is open after the first rungs, and not surely off, is measured on coarser or finer ones."""
    got, verdict = first, _verdict(analytic, first, allowed)
    if (verdict == PASS).all():
        return Judged(np.ones(len(verdict), bool), allowed, got.bar)
    if not plan.sure:
        verdict[verdict == MISMATCH] = UNDECIDED
    within = _within(analytic, first, allowed) & (verdict == UNDECIDED)
    if within.sum() <= RARE * len(within):
        verdict[within] = PASS
    for stages, route in ((plan.coarser, first.noisy), (plan.finer, ~first.noisy)):
        for rungs in stages:
            i = np.flatnonzero((verdict == UNDECIDED) & route & (got.noisy == first.noisy))
            if not i.size:
                break
            new = again(i, rungs)
            fresh = _verdict(analytic[i], new, allowed.take(i))
            keep = (fresh == PASS) | (new.clear & (new.bar < got.bar[i]))
            got = got.replaced(i[keep], new.take(keep))
            verdict[i[keep]] = fresh[keep]
    return Judged((verdict == PASS) | _within(analytic, got, allowed), allowed, got.bar)


def _within(a: Array, d: Reading, allowed: Allowed) -> Mask:
    off = np.abs(a - d.value)
    return np.asarray(d.clear & (off <= d.bar) & (off + d.bar <= allowed.widest))


def passes(a: Array, d: Reading, allowed: Allowed) -> Mask:
    """Elements [m] that are clearly right."""
    return np.asarray(_verdict(a, d, allowed) == PASS)


def _verdict(a: Array, d: Reading, allowed: Allowed) -> Codes:
    verdict, finite = guarded(np.abs(a - d.value), d.bar, allowed.tolerance), np.isfinite(a)
    if not d.clear.all():
        verdict[~d.clear] = UNDECIDED
    if not finite.all():
        verdict[~finite] = MISMATCH
    return verdict


def sharpness(j: Judged, dust: Array, unit: Array | float = 1.0) -> tuple[float, float]:
    """The largest tol + U of what passed, in units of each line [m], and of it over the norm where that stands out of `dust` [m]."""
    seen, stands = j.allowed.tolerance + j.bar, j.passed & (j.allowed.tolerance > 2 * dust)  # what is relative of it is more than the dust
    visible = seen / unit if isinstance(unit, np.ndarray) else seen
    relative = np.divide(seen, j.allowed.norm, out=np.zeros(len(seen)), where=stands)
    return float(visible.max(initial=0.0, where=j.passed)), float(relative.max(initial=0.0))
