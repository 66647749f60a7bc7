"""How far each output was seen to go: the largest |a|·s and |D|·s of its row, on which its floor rests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from gradverify.numerics.estimate.climb import Outputs
from gradverify.numerics.estimate.noise import CONSTANT, FLAT, POINTS, Ray, ecnoise
from gradverify.numerics.estimate.samples import LOW_UNIT
from gradverify.numerics.function.coordinates import rms
from gradverify.numerics.function.point import Point
from gradverify.numerics.judging.bundle import Cells
from gradverify.numerics.pairs.pair import Asked
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import RATIO, RESOLVED, Array, Index, Mask, nanmedian, repeated
from gradverify.numerics.survey import Survey, dense_ray
from gradverify.numerics.tolerance import RTOL, RTOL_LOW, Magnitudes, Tolerances, floors, stands_out


# ---- How far each output was seen to go: the largest |a|·s and |D|·s of its row, on which its floor rests
class Reach:
    """The largest |a|·s and resolved |D|·s of each output [M] so far; re and im of one number share theirs."""

    def __init__(self, point: Point) -> None:
        self._point = point
        self._analytic, self._numeric = np.zeros(len(point.f0)), np.zeros(len(point.f0))
        self._floors: Array | None = None

    def add_row(self, output: int, row: Array) -> None:
        sizes = np.nan_to_num(np.abs(row) * self._point.columns.scale, posinf=0.0)
        self._raise(self._analytic, np.array([output]), sizes.max(initial=0.0, keepdims=True))

    def add_entries(self, output: Index | slice, column: Index | slice, value: Array) -> None:
        """Analytic values of some elements; `column` may lack leading axes."""
        sizes = np.abs(value) * self._point.columns.scale[column]
        if not sizes.max(initial=0.0) < np.inf:
            sizes = np.where(sizes < np.inf, sizes, 0.0)
        self._raise(self._analytic, output, sizes)

    def add(self, column: Index, out: Index, value: Array, bar: Array) -> None:
        """Derivatives of elements [E]."""
        self._raise(self._numeric, out, _resolved(value, bar, self._point.columns.scale.take(column)))

    def add_cells(self, cells: Cells, value: Array, bar: Array) -> None:
        """Derivatives of the elements of a chunk."""
        sizes = _resolved(value, bar, cells.by_column(self._point.columns.scale))
        if cells.block is None:
            self._raise(self._numeric, cells.out, sizes)
        else:
            self._raise(self._numeric, cells.block, sizes.reshape(cells.lines, -1).max(0) if cells.lines > 1 else sizes)

    def add_surveyed(self, survey: Survey) -> None:
        """How far outputs surely go by the survey."""
        self._raise(self._analytic, slice(0, len(survey.reach)), survey.reach)

    def _raise(self, reach: Array, output: Index | slice, sizes: Array) -> None:
        if isinstance(output, slice):
            of_outputs = reach[output]
            if (sizes > of_outputs).any():
                np.maximum(of_outputs, sizes, out=of_outputs)
                self._floors = None
            return
        larger = sizes > reach.take(output)
        count = np.count_nonzero(larger)
        if not count:
            return
        if count < larger.size:
            raised = np.flatnonzero(larger)
            output, sizes = output.reshape(-1)[raised], sizes.reshape(-1)[raised]
        np.maximum.at(reach, output.reshape(-1), sizes.reshape(-1))  # of one axis: ten times as fast as of two
        self._floors = None

    def floors(self, survey: Survey) -> Array:
        """The floor times S [M] of each output."""
        if self._floors is None:
            rows = self.rows(survey)
            self._floors = floors(rows, stands_out(rows, self._numeric > 0, self._analytic))
        return self._floors

    def rows(self, survey: Survey) -> Magnitudes:
        analytic, numeric = self._point.shared(self._analytic), self._point.shared(self._numeric)
        x_size = float(self._point.columns.size.max(initial=0.0))
        return Magnitudes(np.maximum(analytic, numeric), survey.size, survey.sigma, self._point.parts, x_size, self._point.unit,
                          self._point.backward_unit, survey.far_change)


def _resolved(value: Array, bar: Array, scale: Array) -> Array:
    """|D|·s [E] of derivatives that stand out of their bars; 0 of others."""
    size = np.abs(value)
    return np.where((size > RESOLVED * bar) & (size < np.inf), size * scale, 0.0)


# ---- How noisy outputs are on points far apart: where larger numbers cancel in f, it moves in steps of their rounding, which no near point shows
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


# ---- The state of one comparison: the point, tolerances, and what is learnt on the way of how large each output's derivatives are
class OverBudget(Protocol):
    """Has the check spent what it may, or would it with `ahead` forward calls more?"""

    def __call__(self, ahead: int = 0) -> bool: ...


def no_budget(ahead: int = 0) -> bool:
    """Any number of calls may be made."""
    return False


@dataclass(frozen=True)
class Run:
    """One comparison: the point, its survey, tolerances as given (`rtol` None: by precision) and what is learnt.

    `linear`: the tensors in which f is linear. `tie_sums`: by tensor and number, how often the columns that hold it were moved together, and
    by how much the outputs [M] did not add up then. `certainly_wrong`: outputs with a mismatch that stands whatever f cancels.
    `over_budget`: what is flagged is then looked at no further than it takes to say that something is wrong. `asked`: the element to keep,
    whatever comes of it. `given_far_noise`: what `far_noise` is, where it is known. `stops`: elements that the budget does not afford are not
    compared at all.
    """

    point: Point
    survey: Survey
    atol: float
    rtol: float | None
    reach: Reach
    linear: frozenset[int] = frozenset()
    tie_sums: dict[tuple[int, float], tuple[int, Array]] = field(default_factory=dict)
    certainly_wrong: set[int] = field(default_factory=set)
    over_budget: OverBudget = no_budget
    asked: Asked | None = None
    given_far_noise: FarNoise | None = None
    stops: bool = False

    def outputs(self) -> Outputs:
        return Outputs(self.point.f0, self.survey.sigma, lambda: self.point.unit, rounds_x=not self.point.columns.rounded)

    def low_precision(self) -> Mask:
        """Outputs [M] that come in, or were seen to be computed in, less than float64; all where an input is, or the backward."""
        return np.asarray((self.point.unit > LOW_UNIT) | (self.point.backward_unit > LOW_UNIT))

    def low_values(self) -> Mask:
        """The same of the finite differences alone: a function that is compared with its float32 self has them in float64."""
        return np.asarray((self.point.unit > LOW_UNIT) | self.point.columns.rounded)

    @cached_property
    def quiet(self) -> bool:
        """Is a bar twice as wide as it need be far below the tolerance, and room for a step on either side? All is float64, and rounds as it does."""
        point = self.point
        return point.columns.free and not (self.low_values().any() or self.survey.noisy(point).any())

    def rtols(self) -> Array:
        return np.full(len(self.point.f0), self.rtol) if self.rtol is not None else np.where(self.low_precision(), RTOL_LOW, RTOL)

    def analytic(self, column: Index, out: Index) -> Array:
        """The analytic values of elements [E]: one backward an output."""
        values = np.empty(len(out))
        for j in np.unique(out).tolist():
            row = self.point.row(j)
            self.reach.add_row(j, row)
            values[out == j] = row[column[out == j]]
        return values

    def tolerances(self, column: Index, out: Index) -> Tolerances:
        """Tolerances of elements, by what is known now."""
        floor = self.floors().take(out) / self.point.columns.size.take(column)
        return Tolerances(self.atol, self._rtols(out), floor, self._unproven(column, out))

    def tolerances_of(self, cells: Cells) -> Tolerances:
        """Tolerances of the elements of a chunk, by what is known now."""
        floor = cells.by_output(self.floors()) / cells.by_column(self.point.columns.size)
        return Tolerances(self.atol, self._rtols(cells.out), floor, self._unproven(cells.column, cells.out))

    def _unproven(self, column: Index, out: Index) -> Mask:
        """Elements of rows that move and of which nothing was measured."""
        if not self.survey.some_unmoved:
            return np.zeros(len(out), bool)
        waiting = (self.survey.unmoved | self.survey.wide)[self.point.columns.tensor[column], out]
        return np.asarray(waiting & (self.reach.rows(self.survey).reach[out] <= 0)) if waiting.any() else waiting

    def _rtols(self, out: Index) -> Array:
        """The relative tolerance [E] of elements, one number where it is the same for all outputs."""
        if self.rtol is None and self.low_precision().any():
            return self.rtols()[out]
        return repeated(RTOL if self.rtol is None else self.rtol, len(out))

    def floors(self) -> Array:
        """The floor times S [M] of each output."""
        return self.reach.floors(self.survey)

    def zero_tolerance(self, columns: Index, outs: slice) -> Array:
        """The tolerance [n, outs] for a zero in these columns [n, outs], without its relative part."""
        size = self.point.columns.size
        scale = size[columns[:, :1]] if columns.strides[1] == 0 else size[columns]  # all of a line in one column: no need to spread it
        return np.asarray(self.atol + self.floors()[None, outs] / scale)

    @property
    def noise(self) -> Array:
        """The noise [M] of each output at x, at least its rounding."""
        return np.asarray(np.maximum(self.survey.sigma, self.point.unit * np.abs(self.point.f0)))

    def learn_survey(self) -> None:
        """What is judged apart from its tensor is judged by how far all outputs of that were seen to go."""
        self.reach.add_surveyed(self.survey)

    def by_pair(self, column: Index, out: Index, i: Index) -> Iterator[Index]:
        """Those of elements i that belong to one input and output tensor, pair by pair; `column`, `out` [E] of all elements."""
        tensor = self.point.columns.tensor[column[i]]
        output = np.searchsorted([part.stop for part in self.point.parts], out[i], side="right")
        for t, o in sorted(set(zip(tensor.tolist(), output.tolist(), strict=True))):
            yield i[(tensor == t) & (output == o)]

    @cached_property
    def far_noise(self) -> FarNoise:
        """As given, or measured when it is asked for."""
        return far_noise(self.point, self.survey) if self.given_far_noise is None else self.given_far_noise

    @cached_property
    def rounding(self) -> Array:
        """What rounding every operation of f at random makes of each output [M], 0 where that is not offered; 9 forward calls.

        More than `largest_rounding` is no rounding: a branch that is taken otherwise."""
        noise = self.point.rounding(POINTS)
        return np.where(noise <= largest_rounding(self.point, self.survey), noise, 0.0)

    @cached_property
    def shaken(self) -> Run:
        """This comparison, each output at least as noisy far away as its `rounding`."""
        return replace(self, given_far_noise=self.far_noise.at_least(self.rounding))
