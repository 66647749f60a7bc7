"""The state of one comparison: tolerances and floors, the noise of f, and how large the derivatives
of each output were seen to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from gradverify.numerics.estimate.climb import Outputs
from gradverify.numerics.estimate.noise import FOUND, POINTS, ecnoise
from gradverify.numerics.estimate.samples import LOW_UNIT
from gradverify.numerics.function.point import Point
from gradverify.numerics.judging.bundle import Structure
from gradverify.numerics.pairs.pair import Asked
from gradverify.numerics.rungs import RESOLVED, U64, Array, Index, Mask, repeated
from gradverify.numerics.survey import Directions, Survey, dense_ray
from gradverify.numerics.tolerance import RTOL, RTOL_LOW, Magnitudes, Tolerances, floors, stands_out


# ---- How far each output was seen to go: the largest |a|·s and |D|·s of its row, on which its
# floor rests
class Reach:
    """The largest |a|·s and resolved |D|·s of each output [M] so far; re and im of one number share
    theirs."""

    def __init__(self, point: Point) -> None:
        self._point = point
        self._floors: Array | None = None

    @cached_property
    def _analytic(self) -> Array:
        return np.zeros(len(self._point.f0))

    @cached_property
    def _numeric(self) -> Array:
        return np.zeros(len(self._point.f0))

    def add_row(self, output: int, row: Array) -> None:
        sizes = np.nan_to_num(np.abs(row) * self._point.columns.scale, posinf=0.0)
        self._raise(self._analytic, np.array([output]), sizes.max(initial=0.0, keepdims=True))

    def add_entries(self, output: Index, column: Index, value: Array) -> None:
        """Analytic values of some elements; `column` may lack leading axes."""
        sizes = np.abs(value) * self._point.columns.scale[column]
        if not sizes.max(initial=0.0) < np.inf:
            sizes = np.where(sizes < np.inf, sizes, 0.0)
        self._raise(self._analytic, output, sizes)

    def add(self, column: Index, out: Index, value: Array, bar: Array) -> None:
        """Derivatives of elements [E]: |D|·s of those that stand out of their bars."""
        size = np.abs(value)
        stands = (size > RESOLVED * bar) & (size < np.inf)
        self._raise(
            self._numeric, out, np.where(stands, size * self._point.columns.scale.take(column), 0.0)
        )

    def add_surveyed(self, survey: Survey) -> None:
        """How far outputs surely go by the survey."""
        self._floors = None
        np.maximum(self._analytic, survey.reach, out=self._analytic)

    def _raise(self, reach: Array, output: Index, sizes: Array) -> None:
        larger = sizes > reach.take(output)
        count = np.count_nonzero(larger)
        if not count:
            return
        if count < larger.size:
            raised = np.flatnonzero(larger)
            output, sizes = output.reshape(-1)[raised], sizes.reshape(-1)[raised]
        # Of one axis: ten times as fast as of two
        np.maximum.at(reach, output.reshape(-1), sizes.reshape(-1))
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
        return Magnitudes(
            np.maximum(analytic, numeric),
            survey.size,
            survey.sigma,
            self._point.parts,
            x_size,
            self._point.unit,
            self._point.backward_unit,
            survey.far_change,
        )


# ---- The state of one comparison: the point, tolerances, and what is learnt on the way of how
# large each output's derivatives are
class OverBudget(Protocol):
    """Has the check spent what it may, or would it with `ahead` forward calls more?"""

    def __call__(self, ahead: int = 0) -> bool: ...


def no_budget(ahead: int = 0) -> bool:
    """Any number of calls may be made."""
    return False


# ---- How much f rounds inside: where larger numbers cancel, it moves in steps of their rounding,
# which no near point shows
LARGEST = 16.0  # times 1, the typical input and the output: larger numbers are not taken to cancel
WAYS = 6  # to round every operation of f
# Of the scale, and then of 1: between the points that show the noise of f
SPACINGS = (3e-2, 2e-3, 1e-4, 2e-6)


def far_noise(point: Point, survey: Survey, most: Array) -> Array:
    """The noise of each output [M] on points far apart along one dense direction, at least 36
    forward calls; `most` [M] where they show none, or more, which is the shape of f. Points beyond
    the scale of their inputs tell of what the nearer ones do not."""
    (_, ray), shown = dense_ray(point, "far noise"), np.full(len(point.f0), np.nan)
    for unit_scale in (False, True):
        scale, seen = np.maximum(ray.scale, 1.0) if unit_scale else ray.scale, shown.copy()
        for spacing in (
            SPACINGS
            if np.isnan(shown).any() and not (unit_scale and (ray.scale >= 1).all())
            else ()
        ):
            level, ending = ecnoise(
                ray.points(ray.odd(spacing * scale), np.empty((POINTS, len(shown)))), survey.size
            )
            seen = np.fmax(seen, np.where((ending == FOUND) & (level <= most), level, np.nan))
        shown = np.where(np.isnan(shown), seen, shown)
    return np.where(np.isnan(shown), most, shown)


@dataclass(frozen=True)
class Run:
    """One comparison: the point, its survey, tolerances as given (`rtol` None: by precision) and
    what is learnt.

    `linear`: the tensors in which f is linear, and what showed it. `tie_sums`: by tensor and
    number, how often the columns that hold it were moved together, and by how much the outputs [M]
    did not add up then. `certainly_wrong`: outputs with a mismatch that stands whatever f cancels.
    `over_budget`: what is flagged is then looked at no further than it takes to say that something
    is wrong. `asked`: the element to keep, whatever comes of it. `stops`: elements that the budget
    does not afford are not compared at all.
    """

    point: Point
    survey: Survey
    atol: float
    rtol: float | None
    linear: Mapping[int, Directions | None]
    structure: Structure
    reach: Reach
    tie_sums: dict[tuple[int, float], tuple[int, Array]] = field(default_factory=dict)
    certainly_wrong: set[int] = field(default_factory=set)
    over_budget: OverBudget = no_budget
    asked: Asked | None = None
    stops: bool = False

    def fresh(self, structure: Structure | None = None) -> Run:
        """With nothing learnt yet of how far the outputs go."""
        return replace(
            self,
            structure=structure or self.structure,
            reach=Reach(self.point),
            tie_sums={},
            certainly_wrong=set(),
        )

    def outputs(self) -> Outputs:
        return Outputs(
            self.point.f0,
            self.survey.sigma,
            lambda: self.point.unit,
            rounds_x=not self.point.columns.rounded,
        )

    def low_precision(self) -> Mask:
        """Outputs [M] that come in, or were seen to be computed in, less than float64; all where an
        input is, or the backward."""
        return np.asarray((self.point.unit > LOW_UNIT) | (self.point.backward_unit > LOW_UNIT))

    def low_values(self) -> Mask:
        """The same of the finite differences alone: a function that is compared with its float32
        self has them in float64."""
        return np.asarray((self.point.unit > LOW_UNIT) | self.point.columns.rounded)

    @cached_property
    def quiet(self) -> bool:
        """Is a bar twice as wide as it need be far below the tolerance, and room for a step on
        either side? All is float64, and rounds as it does."""
        point = self.point
        return point.columns.free and not (
            self.low_values().any() or self.survey.noisy(point).any()
        )

    def rtols(self) -> Array:
        return (
            np.full(len(self.point.f0), self.rtol)
            if self.rtol is not None
            else np.where(self.low_precision(), RTOL_LOW, RTOL)
        )

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

    def _unproven(self, column: Index, out: Index) -> Mask:
        """Elements of rows that move and of which nothing was measured."""
        if not self.survey.some_unmoved:
            return np.zeros(len(out), bool)
        waiting = (self.survey.unmoved | self.survey.wide)[self.point.columns.tensor[column], out]
        return (
            np.asarray(waiting & (self.reach.rows(self.survey).reach[out] <= 0))
            if waiting.any()
            else waiting
        )

    def _rtols(self, out: Index) -> Array:
        """The relative tolerance [E] of elements, one number where it is the same for all
        outputs."""
        if self.rtol is None and self.low_precision().any():
            return self.rtols()[out]
        return repeated(RTOL if self.rtol is None else self.rtol, len(out))

    def floors(self) -> Array:
        """The floor times S [M] of each output."""
        return self.reach.floors(self.survey)

    def zero_tolerance(self, columns: Index, outs: slice) -> Array:
        """The tolerance [n, outs] for a zero in these columns [n, outs], without its relative
        part."""
        size = self.point.columns.size
        # All of a line in one column: no need to spread it
        scale = size[columns[:, :1]] if columns.strides[1] == 0 else size[columns]
        return np.asarray(self.atol + self.floors()[None, outs] / scale)

    @property
    def noise(self) -> Array:
        """The noise [M] of each output at x, at least its rounding."""
        return np.asarray(np.maximum(self.survey.sigma, self.point.unit * np.abs(self.point.f0)))

    @cached_property
    def _largest_rounding(self) -> Array:
        """Of numbers that are taken to cancel in each output [M]."""
        typical = float(np.nan_to_num(np.median(np.abs(self.point.x)), nan=1.0, posinf=1.0))
        return np.asarray(
            LARGEST * self.point.unit * np.maximum(self.survey.size, max(1.0, typical))
        )

    @cached_property
    def spread(self) -> tuple[Array, float]:
        """What rounding every operation at random makes of the outputs [M], as `Point.spread`: 6
        forward calls, none beyond the budget."""
        return self.point.spread(0 if self.over_budget(WAYS) else WAYS)

    @cached_property
    def least_noise(self) -> Array:
        """The noise [M], and what rounding all operations makes of f: more than cancels in float64
        is a branch that is taken otherwise."""
        spread, unit = self.spread
        return np.maximum(
            self.noise,
            spread if unit > U64 else np.where(spread <= self._largest_rounding, spread, 0.0),
        )

    @cached_property
    def most_noise(self) -> Array:
        """The noise of each output [M] where as large numbers cancel in it as can be: a few forward
        calls."""
        return np.maximum(self.least_noise, self._largest_rounding)

    @cached_property
    def inner_noise(self) -> Array:
        """The noise of each output [M] with that of numbers that cancel in it, as measured: 36 or
        72 forward calls more."""
        return np.maximum(
            self.least_noise, far_noise(self.point, self.survey, self._largest_rounding)
        )

    def learn_survey(self) -> None:
        """What is judged apart from its tensor is judged by how far all outputs of that were seen
        to go."""
        self.reach.add_surveyed(self.survey)

    def by_pair(self, column: Index, out: Index, i: Index) -> Iterator[Index]:
        """Those of elements i that belong to one input and output tensor, pair by pair; `column`,
        `out` [E] of all elements."""
        tensor = self.point.columns.tensor[column[i]]
        output = np.searchsorted([part.stop for part in self.point.parts], out[i], side="right")
        for t, o in sorted(set(zip(tensor.tolist(), output.tolist(), strict=True))):
            yield i[(tensor == t) & (output == o)]
