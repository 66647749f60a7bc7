"""What is measured of a function at its point before anything is compared: noise, the inputs in
which it is linear, and the structure of the Jacobian: sparsity pattern and colouring of each
input tensor's part; tensors without any go column by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from torch import Tensor

from gradverify.numerics.function.coordinates import columns_of, real_shape
from gradverify.numerics.function.memory import keep_freed
from gradverify.numerics.function.point import Clock, Function, Point
from gradverify.numerics.judging.bundle import Grouping
from gradverify.numerics.judging.run import OverBudget, Reach, Run, no_budget
from gradverify.numerics.pairs.pair import Asked
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.detect import STEP, PointProbe, detect
from gradverify.numerics.sparsity.pattern import (
    Pattern,
    RowGroups,
    column_groups,
    dense,
    row_groups,
)
from gradverify.numerics.survey import STRAY, Directions, Survey, linear_inputs, survey

# ---- The structure of the Jacobian: sparsity pattern and colouring of each input tensor's part;
# tensors without any go column by column
# columns: finding structure saves little, and pays only where every element is compared and nothing
# hides a move
SMALL = 10
FEWEST = 5  # columns: finding structure costs more than it saves
SAVES = 0.7  # of the columns or of the rows: more groups than that are not worth their verification

Patterns = tuple[Pattern, ...]
"""The sparsity patterns of one input tensor, one per output tensor."""


@dataclass(frozen=True)
class Plan:
    """The groups of one input tensor: of its columns, and per output tensor of rows. `size`: its
    columns."""

    grouping: Grouping
    rows: tuple[RowGroups, ...]

    @property
    def tensor(self) -> int:
        return self.grouping.tensor

    @property
    def first(self) -> int:
        return self.grouping.first

    @property
    def size(self) -> int:
        return self.rows[0].pattern.size


class Level(IntEnum):
    """How a tensor's structure was looked for."""

    GUESSED = 0
    COMPLETE = 1  # by the complete code
    UNGROUPED = 2


@dataclass(frozen=True)
class Structure:
    """Plans of the tensors whose groups save calls; the `patterns` of all, one per output tensor;
    the `level` of each tensor."""

    plans: tuple[Plan, ...] = ()
    patterns: Mapping[int, Patterns] = field(default_factory=dict)
    level: Mapping[int, Level] = field(default_factory=dict)

    def plan(self, tensor: int) -> Plan | None:
        """The groups of a tensor; None where it goes column by column."""
        return next((plan for plan in self.plans if plan.tensor == tensor), None)


# ---- finding it
def find_structure(point: Point, survey: Survey, *, thrifty: bool = False) -> Structure:
    """The structure of each tensor as guessed; small tensors without groups.

    `thrifty`: small tensors by the complete code, where f is quiet and no output dense; those of
    which every output seems to depend on the element in its place, by one call for all, one each
    where that says no. Such a guess that is wrong for no row, column or block of dependent elements
    does not add up, and the tensor goes column by column.
    """
    tensors, quiet = (
        range(len(point.buffers)),
        point.columns.free and len(point.f0) > 1 and bool(np.isfinite(point.f0).all()),
    )
    small = [tensor for tensor in tensors if thrifty and len(point.columns.of(tensor)) <= SMALL]
    hidden = bool(small) and (
        not quiet or survey.some_unmoved or bool(survey.noisy(point).any())
    )  # what moves
    promising = [tensor for tensor in small if not hidden and _eligible(point, tensor, FEWEST)]
    fitting = [
        t
        for t in promising
        if {part.stop - part.start for part in point.parts} == {len(point.columns.of(t))}
    ]
    pointwise = (
        fitting
        if not fitting or _middle_rests(point, fitting)
        else [t for t in fitting if len(fitting) > 1 and _middle_rests(point, [t])]
    )

    def patterns_of(tensor: int) -> Patterns | None:
        columns, x = point.columns.of(tensor), point.buffers[tensor]
        if tensor in pointwise:
            shape = real_shape(x.shape, x.dtype)
            places = tuple(
                place.astype(np.intp) for place in np.unravel_index(np.arange(len(columns)), shape)
            )
            return (
                Pattern(shape, places, places, np.zeros(len(columns), bool), pointwise=True),
            ) * len(point.parts)
        if tensor in small:  # by the first column alone, one call: does it move most outputs?
            return (
                detected(point, survey, tensor, True)
                if tensor in promising and np.mean(_moved(point, columns[:1])) <= SAVES
                else None
            )
        return (
            detected(point, survey, tensor, False)
            if _eligible(point, tensor, SMALL + 1)
            else None
        )

    level = {tensor: Level.COMPLETE if tensor in small else Level.GUESSED for tensor in tensors}
    return _planned(point, level, {tensor: patterns_of(tensor) for tensor in tensors})


def find_other_structure(
    point: Point, survey: Survey, before: Structure, broken: frozenset[int]
) -> Structure:
    """Other groups for `broken` tensors, which have not those of `before`: by the complete code
    where these were guessed, else none."""
    level = {
        tensor: Level.COMPLETE if before.level[tensor] == Level.GUESSED else Level.UNGROUPED
        for tensor in sorted(broken)
    }
    found = {
        tensor: detected(point, survey, tensor, True) if each is Level.COMPLETE else None
        for tensor, each in level.items()
    }
    new = _planned(point, level, found)
    plans = sorted(
        [*(plan for plan in before.plans if plan.tensor not in level), *new.plans],
        key=lambda plan: plan.tensor,
    )
    return Structure(tuple(plans), {**before.patterns, **new.patterns}, {**before.level, **level})


def detected(point: Point, survey: Survey, tensor: int, exact: bool) -> Patterns:
    """Detection with random slices; once more with a threshold where f is noisy and its noise may
    have looked like moves."""
    outputs = [real_shape(shape, dtype) for shape, dtype, _ in point.shapes]

    def above(threshold: Array | None, purpose: str) -> Patterns:
        seed = point.seed.within(purpose, tensor, "complete" if exact else "guessed")
        probe = PointProbe(point, tensor, seed, threshold)
        return detect(probe, probe.shape, outputs, seed, guess=not exact)

    patterns = above(None, "detection")
    if (
        column_groups(patterns).count <= SAVES * len(point.columns.of(tensor))
        or not survey.noisy(point).any()
    ):
        return patterns
    return above(STRAY * survey.noise(point), "detection above noise")


def _eligible(point: Point, tensor: int, least: int) -> bool:
    """Does a tensor have at least so many columns, a column for each coordinate and none paired,
    all finite, and elements that may be zero?"""
    c, columns = point.columns, point.columns.of(tensor)
    symmetric = (c.paired and bool((c.mirror[columns] >= 0).any())) or len(columns) != point.starts[
        tensor + 1
    ] - point.starts[tensor]
    if (
        len(columns) < least
        or symmetric
        or not len(point.f0)
        or not np.isfinite(c.x[columns]).all()
    ):
        return False
    return (
        len(point.f0) > 1 or not point.row(0)[columns].all()
    )  # one output leaves nothing but dead elements to be found


def _moved(point: Point, columns: Index) -> Mask:
    """Which outputs [M] change when these columns do: one call."""
    to = point.columns.cast(point.columns.x[columns] + STEP * point.columns.scale[columns], columns)
    return np.asarray(point.values_at(columns, to) != point.f0)


def _middle_rests(point: Point, tensors: Sequence[int]) -> bool:
    """Do all elements of these tensors but the middle ones move outputs, and none in the middle?"""
    columns = [point.columns.of(tensor) for tensor in tensors]
    middle = len(columns[0]) // 2
    moved = _moved(
        point, np.concatenate([np.delete(of_tensor, middle) for of_tensor in columns])
    ).reshape(-1, len(columns[0]))
    return bool(moved.any()) and not moved[:, middle].any()


def _planned(
    point: Point, level: Mapping[int, Level], found_in: Mapping[int, Patterns | None]
) -> Structure:
    """With a plan for each tensor whose groups save calls; not where there are nearly as many as
    columns, and as rows. For others the dense pattern, as more than what was seen is sound."""
    weights = signed_weights_float32(len(point.columns), point.seed.generator("column groups"))
    plans, patterns = list[Plan](), dict[int, Patterns]()
    for tensor, found in found_in.items():
        x, columns = point.buffers[tensor], point.columns.of(tensor)
        groups, rows = (
            (column_groups(found), tuple(row_groups(pattern) for pattern in found))
            if found
            else (None, ())
        )
        if (
            found
            and groups
            and (
                groups.count <= SAVES * len(columns)
                or sum(r.count for r in rows) <= SAVES * len(point.f0)
            )
        ):
            plans.append(Plan(Grouping(tensor, int(columns[0]), groups, weights), rows))
            patterns[tensor] = found
        else:
            patterns[tensor] = tuple(
                dense(real_shape(x.shape, x.dtype), part.stop - part.start) for part in point.parts
            )
    return Structure(tuple(plans), patterns, level)


# ---- What is measured of a function at its point before anything is compared: noise, structure,
# the inputs in which it is linear
@dataclass(frozen=True)
class Prepared:
    """A function at its point, with what was measured before anything is compared. `linear`: the
    tensors in which f is linear, and what showed it."""

    point: Point
    survey: Survey
    linear: Mapping[int, Directions | None]
    structure: Structure
    atol: float
    rtol: float | None
    over_budget: OverBudget = no_budget
    asked: Asked | None = None
    stops: bool = False

    def run(self) -> Run:
        """A fresh start: nothing learnt yet of how far the outputs go."""
        return Run(
            self.point,
            self.survey,
            self.atol,
            self.rtol,
            Reach(self.point),
            frozenset(self.linear),
            over_budget=self.over_budget,
            asked=self.asked,
            stops=self.stops,
        )

    def again(self, broken: frozenset[int]) -> Prepared:
        """With other groups for these tensors."""
        return replace(
            self, structure=find_other_structure(self.point, self.survey, self.structure, broken)
        )

    def holding(self, columns: Index) -> Prepared:
        """With these columns held where they are, now and in the `point` itself; what was sampled
        along directions that move them is forgotten."""
        self.point.hold(columns)
        moved = set(self.point.columns.tensor[columns].tolist())
        samples = tuple(
            None if t in moved else sample for t, sample in enumerate(self.survey.direction_samples)
        )
        linear = {t: sample for t, sample in self.linear.items() if t not in moved}
        return replace(self, survey=replace(self.survey, direction_samples=samples), linear=linear)


def prepare(
    function: Function,
    *,
    atol: float = 0.0,
    rtol: float | None = None,
    domains: Sequence[tuple[float, float] | None] | None = None,
    symmetric: Sequence[bool] | None = None,
    specified: Sequence[Tensor | None] = (),
    seed: Seed = Seed(),
    grouped: bool = True,
    thrifty: bool = False,
    clock: Clock | None = None,
) -> Prepared | None:
    """Noise, structure and linearity; None where there is no input. `rtol` None: 1e-6, and 1e-3
    where inputs or outputs are float32 or the output bits show float32 inside. `domains`,
    `symmetric`, `specified`: one entry per input. `thrifty`: with what saves calls of small
    tensors where every element is compared. Raises what the function raises at its own inputs.
    """
    n = len(function.inputs)
    if not n:
        return None
    keep_freed()
    columns = columns_of(
        function.inputs, domains or [None] * n, symmetric or [False] * n, specified
    )
    with np.errstate(all="ignore"):
        point = Point(function, columns, clock, seed)
        noise_survey = survey(point)
        structure = find_structure(point, noise_survey, thrifty=thrifty) if grouped else Structure()
        linear = linear_inputs(point, noise_survey, thrifty)
    return Prepared(point, noise_survey, linear, structure, atol, rtol)
