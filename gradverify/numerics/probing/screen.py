"""Probes of rows and blocks: two sums a line and probe, by forward and by backward, compared relative to the norm of the line.

Rows and blocks differ in the seed matrices that they take and in which entries they add up. What they hand over is the same: for
each line the sum by the backward and its derivative by the forward. The shell names the lines that are not clearly right. It names no entry
and calls nothing wrong: what is flagged is resolved by entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gradverify.numerics.probing.directional import ProbeDerivative, Schedule, Stage
from gradverify.numerics.probing.off_pattern import Strays
from gradverify.numerics.probing.seed_matrices import DirectionRungs, Directions
from gradverify.numerics.probing.thresholds import Allowed, SurveyedPoint
from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import Array, Codes, Index, Mask
from gradverify.numerics.tolerance import guarded
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED

RARE = 0.01  # of the lines: fewer that agree within a wide bar are not worth more calls


@dataclass(frozen=True)
class Screened:
    """One (input tensor, output tensor) pair: how many `lines` were screened and which are `flagged` (ascending).

    Lines are numbers of outputs (as `Point.f0`), or of blocks (as `Pattern.block_of_outputs`). `strays` [s, 2] lie off the pattern; few are
    kept, `stray_count` of them in all: (row group, column) that was pulled back; of blocks,
    both for outputs that depend on nothing: (−1, output) and (0, column).
    `left_out`: columns that no probe moved (not finite, at the end of their domain). `resolution`: the largest tol + U of the lines that
    passed, as a derivative along the probe; `relative`: the same over the line's norm, for lines that stand out of rounding. `lost`: those of the
    flagged whose analytic sum is not finite. `worst`: the flagged, those that are off by most tolerances first; empty where that is not known.
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
    worst: Index = field(default_factory=lambda: np.zeros(0, np.intp))

    @property
    def clean(self) -> bool:
        return not (len(self.flagged) or self.stray_count)


# ---- the verdict on one number a line
@dataclass(frozen=True)
class LineVerdicts(Record):
    """Lines [m], or [K, m] of K probes, that passed (else they are flagged), their norms, tolerances and bars, and by how many tolerances they
    are surely off."""

    passed: Mask
    norm: Array
    tolerance: Array
    bar: Array
    off: Array


def by_probe(results: Sequence[LineVerdicts], probes: int) -> LineVerdicts:
    """Of each probe in turn, or of all of them one after the other [K · m], as [K, m]."""
    return LineVerdicts(*(values.reshape(probes, -1) for values in vars(joined(results)).values()))


Again = Callable[[Index, Stage], ProbeDerivative]
"""Measures elements (indices) once more on other rungs."""


def judged(analytic: Array, first: ProbeDerivative, allowed: Allowed, steps: Schedule, again: Again) -> LineVerdicts:
    """PASS where |a − D| + U ≤ tol; what is open after the first rungs, and not surely off, is measured on coarser or finer ones."""
    latest, verdict = first, _verdict(analytic, first, allowed)
    if (verdict == PASS).all():
        return LineVerdicts(np.ones(len(verdict), bool), allowed.norm, allowed.tolerance, first.bar, np.zeros(len(verdict)))
    if not steps.sure:
        verdict[verdict == MISMATCH] = UNDECIDED
    within = _within(analytic, first, allowed) & (verdict == UNDECIDED)
    if within.sum() <= RARE * len(within):
        verdict[within] = PASS

    for stages, route in ((steps.coarser, first.noisy), (steps.finer, ~first.noisy)):
        for stage in stages:
            i = np.flatnonzero((verdict == UNDECIDED) & route & (latest.noisy == first.noisy))
            if not i.size:
                break
            new = again(i, stage)
            new_verdict = _verdict(analytic[i], new, allowed.take(i))
            better = (new_verdict == PASS) | (new.clear & (new.bar < latest.bar[i]))
            latest = latest.replaced(i[better], new.take(better))
            verdict[i[better]] = new_verdict[better]
    off = np.nan_to_num((np.abs(analytic - latest.value) - latest.bar) / allowed.tolerance)
    return LineVerdicts((verdict == PASS) | _within(analytic, latest, allowed), allowed.norm, allowed.tolerance, latest.bar, off)


def _within(a: Array, d: ProbeDerivative, allowed: Allowed) -> Mask:
    off = np.abs(a - d.value)
    return np.asarray(d.clear & (off <= d.bar) & (off + d.bar <= allowed.widest))


def _verdict(a: Array, d: ProbeDerivative, allowed: Allowed) -> Codes:
    verdict, finite = guarded(np.abs(a - d.value), d.bar, allowed.tolerance), np.isfinite(a)
    if not d.clear.all():
        verdict[~d.clear] = UNDECIDED
    if not finite.all():
        verdict[~finite] = MISMATCH
    return verdict


# ---- the probes of one pair
@dataclass(frozen=True)
class ProbedLines:
    """The lines [m] of one pair: their `numbers`, what the backward says of each [K, m] and what came of it, the floor of each, those that `count`
    and those that are in `doubt` whatever the probes say. `left_out`: columns that no probe moves."""

    pair: tuple[int, int]
    numbers: Index
    analytic: Array
    judged: LineVerdicts
    floor: Array
    count: Mask
    doubt: Mask
    strays: Strays
    left_out: Index

    def screened(self, surveyed: SurveyedPoint) -> Screened:
        """Flags the lines that a probe did not pass, and those in doubt."""
        j, (tensor, output) = self.judged, self.pair
        has_columns = len(surveyed.point.columns.of(tensor)) > 0
        flagged = np.flatnonzero(self.count & (~j.passed.all(0) | self.doubt | surveyed.unmoved(tensor, output)) & has_columns)
        lost = flagged[~np.isfinite(self.analytic[:, flagged]).all(0)]
        worst = flagged[np.argsort(-j.off[:, flagged].max(0), kind="stable")]
        return Screened(tensor, output, int(np.count_nonzero(self.count)), self.numbers[flagged], self.strays.pairs(), self.strays.count,
                        self.left_out, *self._sharpness(), self.numbers[lost], self.numbers[worst])

    def _sharpness(self) -> tuple[float, float]:
        """The largest tol + U of what passed, and of it over the norm where that stands out of rounding."""
        j, passed = self.judged, self.judged.passed & self.count
        seen, stands = j.tolerance + j.bar, passed & (j.tolerance > 2 * self.floor)  # what is relative of it is more than rounding
        relative = np.divide(seen, j.norm, out=np.zeros(seen.shape), where=stands)
        return float(seen.max(initial=0.0, where=passed)), float(relative.max(initial=0.0))


class DirectionScreen:
    """The dense directions of one tensor, which move all output tensors at once; `moved` [M]: what the first rungs of any have moved."""

    def __init__(self, surveyed: SurveyedPoint, tensor: int, directions: Directions, linear: bool = False) -> None:
        self.surveyed, self.tensor, self.directions, self.schedule = surveyed, tensor, directions, surveyed.schedule(tensor, linear)
        self.moved = np.zeros(len(surveyed.point.f0), bool)

    def first(self) -> Iterator[DirectionRungs]:
        """f on the first rungs of each direction in turn."""
        for k in range(len(self.directions.moves)):
            samples = self.directions.samples(k, self.schedule.start)
            self.see(*samples.up, *samples.down)
            yield samples

    def see(self, *values: Array) -> None:
        """Learn from these f [M] what moves."""
        if not self.moved.all():
            self.moved |= self.surveyed.moved(values)

    def judged(self, analytic: Array, first: ProbeDerivative, norm: Array, floor: Array, again: Again, output: int | None = None) -> LineVerdicts:
        """The lines [m] along one direction, of one `output` tensor or of all; `norm` as the backward has it."""
        norm = np.maximum(norm, np.where(first.clear, np.abs(first.value), 0.0))
        allowed = self.surveyed.allowed(self.tensor, norm, floor, output)
        return judged(analytic, first, allowed, self.schedule, again)
