"""The state of one comparison: the point, tolerances, and what is learnt on the way of how large each output's derivatives are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from gradverify.numerics.estimate.climb import Outputs
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.estimate.samples import LOW_UNIT
from gradverify.numerics.function.point import Point
from gradverify.numerics.judging.cells import Cells
from gradverify.numerics.judging.far_noise import FarNoise, far_noise, largest_rounding
from gradverify.numerics.judging.reach import Reach
from gradverify.numerics.pairs.pair import Asked
from gradverify.numerics.rungs import Array, Index, Mask, repeated
from gradverify.numerics.survey import Survey
from gradverify.numerics.tolerance import RTOL, RTOL_LOW, Tolerances


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

    def learn_secants(self) -> None:
        """What is judged apart from its tensor is judged by how far all outputs of that were seen to go."""
        noise = self.survey.noise(self.point)
        for secant in self.survey.secants:
            self.reach.add_secant(secant.columns, secant.moved_by, secant.change, noise)

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
