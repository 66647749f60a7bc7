"""Sparsity pattern and colouring of each input tensor's part of the Jacobian; without a pattern, column by column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from gradverify.numerics.function.flat import real_shape
from gradverify.numerics.function.point import Point
from gradverify.numerics.judging.bundle import Grouping
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.sparsity.colouring import column_groups
from gradverify.numerics.sparsity.detect import detect
from gradverify.numerics.sparsity.pattern import Pattern, RowGroups, dense, row_groups
from gradverify.numerics.sparsity.probes import STEP, PointProbe
from gradverify.numerics.survey import STRAY, Survey

SMALL = 10  # columns: finding structure saves little, and pays only where every element is compared and nothing hides a move
FEWEST = 5  # columns: finding structure costs more than it saves
SAVES = 0.7  # of the columns or of the rows: more groups than that are not worth their verification

Detect = Callable[[Point, Survey, int, bool], tuple[Pattern, ...]]
"""The patterns of one tensor, one per output tensor; the flag asks for the complete code instead of a guess."""


@dataclass(frozen=True)
class Plan:
    """How one input tensor is walked: its column groups, and per output tensor its row groups. `size`: its columns."""

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

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """One per output tensor."""
        return tuple(rows.pattern for rows in self.rows)

    def pointwise(self, output: int) -> bool:
        """Is it one group of columns, of which each output depends on that in its own place?"""
        return self.grouping.groups.count == 1 and self.rows[output].pattern.pointwise


class Level(IntEnum):
    """How a tensor's structure was looked for."""

    GUESSED = 0
    COMPLETE = 1  # by the complete code
    UNGROUPED = 2


@dataclass(frozen=True)
class Arrangement:
    """Plans of the tensors that have structure; the `patterns` of all, one per output tensor; the `level` of each tensor."""

    plans: tuple[Plan, ...] = ()
    patterns: Mapping[int, tuple[Pattern, ...]] = field(default_factory=dict)
    level: Mapping[int, Level] = field(default_factory=dict)

    def plan(self, tensor: int) -> Plan | None:
        """How a tensor is walked in groups; None where it is column by column."""
        return next((plan for plan in self.plans if plan.tensor == tensor), None)


def arrange(point: Point, survey: Survey, detect: Detect, generator: np.random.Generator, *, thrifty: bool = False) -> Arrangement:
    """The first arrangement, with the structure of larger tensors as guessed.

    `thrifty`: small tensors too, by the complete code, where f is quiet and no output dense.
    """
    weights = signed_weights_float32(len(point.columns), generator)
    tensors = range(len(point.buffers))
    small = [tensor for tensor in tensors if thrifty and len(point.columns.of(tensor)) <= SMALL]
    promising = [tensor for tensor in small if _eligible(point, tensor, FEWEST)] if small and not _hidden(point, survey) else []
    pointwise = _pointwise(point, promising)

    def structure(tensor: int) -> tuple[Pattern, ...] | None:
        if tensor in pointwise:
            return _in_place(point, tensor)
        if tensor in small:
            return detect(point, survey, tensor, True) if tensor in promising and not _moves_most(point, tensor) else None
        return detect(point, survey, tensor, False) if _eligible(point, tensor, SMALL + 1) else None

    level = {tensor: Level.COMPLETE if tensor in small else Level.GUESSED for tensor in tensors}
    return _arranged(point, level, {tensor: structure(tensor) for tensor in tensors}, weights)


def rearrange(point: Point, survey: Survey, detect: Detect, generator: np.random.Generator, before: Arrangement,
              broken: frozenset[int]) -> Arrangement:
    """Other groups for `broken` tensors, which have not those of `before`: by the complete code where these were guessed, else none."""
    weights = signed_weights_float32(len(point.columns), generator)
    level = {tensor: Level.COMPLETE if before.level[tensor] == Level.GUESSED else Level.UNGROUPED for tensor in sorted(broken)}
    structure = {tensor: detect(point, survey, tensor, True) if level[tensor] == Level.COMPLETE else None for tensor in level}
    anew = _arranged(point, level, structure, weights)
    plans = [*(plan for plan in before.plans if plan.tensor not in broken), *anew.plans]
    return Arrangement(tuple(sorted(plans, key=lambda plan: plan.tensor)), {**before.patterns, **anew.patterns}, {**before.level, **anew.level})


def _arranged(point: Point, level: Mapping[int, Level], structure: Mapping[int, tuple[Pattern, ...] | None], weights: Array) -> Arrangement:
    """With a plan for each tensor whose structure is known and saves calls; for others the dense pattern, as more than what was seen is sound."""
    plans = {tensor: _plan(point, tensor, patterns, weights) for tensor, patterns in structure.items() if patterns}
    planned = {tensor: plan for tensor, plan in plans.items() if plan}
    patterns = {tensor: planned[tensor].patterns if tensor in planned else _dense(point, tensor) for tensor in structure}
    return Arrangement(tuple(planned.values()), patterns, level)


def _eligible(point: Point, tensor: int, least: int) -> bool:
    c, columns = point.columns, point.columns.of(tensor)
    symmetric = (c.paired and bool((c.mirror[columns] >= 0).any())) or len(columns) != point.starts[tensor + 1] - point.starts[tensor]
    if len(columns) < least or symmetric or not len(point.f0) or not np.isfinite(c.x[columns]).all():
        return False
    return len(point.f0) > 1 or not point.row(0)[columns].all()      # one output leaves nothing but dead elements to be found


def _hidden(point: Point, survey: Survey) -> bool:
    """Is there no structure to be found in small tensors, or something that hides what moves?"""
    quiet = point.columns.free and len(point.f0) > 1 and bool(np.isfinite(point.f0).all())
    return survey.some_unmoved or not quiet or bool(survey.noisy(point).any())


def _moves_most(point: Point, tensor: int) -> bool:
    """Does the first column of a tensor move most outputs by itself? One call."""
    return bool(np.mean(_moved(point, point.columns.of(tensor)[:1])) > SAVES)


def _moved(point: Point, columns: Index) -> Mask:
    """Which outputs [M] change when these columns do."""
    to = point.columns.cast(point.columns.x[columns] + STEP * point.columns.scale[columns], columns)
    return np.asarray(point.values_at(columns, to) != point.f0)


def _pointwise(point: Point, small: Sequence[int]) -> list[int]:
    """The small tensors of which every output depends on the element in its place, by one call for all of them, one each where that says no.

    A guess that is wrong for no row, column or block of dependent elements; what it misses does not add up, and goes column by column.
    """
    sizes = {part.stop - part.start for part in point.parts}
    fitting = [tensor for tensor in small if sizes == {len(point.columns.of(tensor))}]
    if not fitting or _stays(point, fitting):
        return fitting
    return [tensor for tensor in fitting if len(fitting) > 1 and _stays(point, [tensor])]


def _stays(point: Point, tensors: Sequence[int]) -> bool:
    """Do all elements of these tensors but the middle ones move outputs, and none in the middle? One call."""
    columns = [point.columns.of(tensor) for tensor in tensors]
    middle = len(columns[0]) // 2
    moved = _moved(point, np.concatenate([np.delete(of_tensor, middle) for of_tensor in columns])).reshape(-1, len(columns[0]))
    return bool(moved.any()) and not moved[:, middle].any()


def _in_place(point: Point, tensor: int) -> tuple[Pattern, ...]:
    """The patterns of a tensor of which every output depends on the element in its place."""
    x, n = point.buffers[tensor], len(point.columns.of(tensor))
    places = tuple(place.astype(np.intp) for place in np.unravel_index(np.arange(n), real_shape(x.shape, x.dtype)))
    return (Pattern(real_shape(x.shape, x.dtype), places, places, np.zeros(n, bool), pointwise=True),) * len(point.parts)


def _dense(point: Point, tensor: int) -> tuple[Pattern, ...]:
    x = point.buffers[tensor]
    return tuple(dense(real_shape(x.shape, x.dtype), part.stop - part.start) for part in point.parts)


def _plan(point: Point, tensor: int, patterns: tuple[Pattern, ...], weights: Array) -> Plan | None:
    groups, rows = column_groups(patterns), tuple(row_groups(pattern) for pattern in patterns)
    columns = point.columns.of(tensor)
    if groups.count > SAVES * len(columns) and sum(r.count for r in rows) > SAVES * len(point.f0):
        return None
    return Plan(Grouping(tensor, int(columns[0]), groups, weights), rows)


def detector(generator: np.random.Generator) -> Detect:
    """Detection with random slices from this generator."""

    def find(point: Point, survey: Survey, tensor: int, exact: bool) -> tuple[Pattern, ...]:
        outputs = [real_shape(shape, dtype) for shape, dtype, _ in point.shapes]

        def ask(threshold: Array | None) -> tuple[Pattern, ...]:
            probe = PointProbe(point, tensor, generator, threshold)
            patterns = detect(probe, probe.shape, outputs, generator, guess=not exact)
            return tuple(with_dead_outputs(pattern, shape) for pattern, shape in zip(patterns, outputs, strict=True))

        patterns = ask(None)
        if column_groups(patterns).count <= SAVES * len(point.columns.of(tensor)):
            return patterns
        return ask(STRAY * survey.noise(point)) if survey.noisy(point).any() else patterns

    return find


def with_dead_outputs(pattern: Pattern, output: Sequence[int]) -> Pattern:
    """The pattern with a place for outputs that nothing moved (the dead half of a relu), where all others follow one rule.

    More than what was seen is sound, and a gradient that passes the dead half is then told element by element.
    """
    live = ~pattern.nothing
    if live.all() or not live.any():
        return pattern
    windows = [_rule(pattern, k, output, live) for k in range(len(pattern.shape))]
    known = [w for w in windows if w is not None]
    if len(known) < len(windows):
        return pattern
    return replace(pattern, low=tuple(low for low, _ in known), high=tuple(high for _, high in known), nothing=np.zeros(len(live), bool))


def _rule(pattern: Pattern, axis: int, output: Sequence[int], live: Mask) -> tuple[Index, Index] | None:
    """Windows [M] of all outputs along one axis, if those of the live ones are all the same, or run along the output in order."""
    low, high, n = pattern.low[axis], pattern.high[axis], pattern.shape[axis]
    first = int(np.argmax(live))
    if (low[live] == low[first]).all() and (high[live] == high[first]).all():
        return np.full_like(low, low[first]), np.full_like(high, high[first])
    for stride in {math.prod(output[k:]) for k in range(1, len(output) + 1)} | {pattern.strides[axis]}:
        if stride * n and len(low) % (stride * n) == 0:
            place = np.arange(len(low)) // stride % n
            if (low[live] == place[live]).all() and (high[live] == place[live]).all():
                return place, place
    return None
