"""Measurements at the point before anything is compared: noise, the inputs in which f is linear,
and the structure of the Jacobian, that is, sparsity pattern and colouring for each input tensor;
tensors without structure are compared column by column."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict, Unpack

import numpy as np
from torch import Tensor

from gradverify.numerics.function.coordinates import columns_of, real_shape
from gradverify.numerics.function.point import Clock, Function, Point, keep_freed
from gradverify.numerics.judging import Level, Plan, Reach, Run, Structure
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.detect import STEP, PointProbe, detect, with_dead_outputs
from gradverify.numerics.sparsity.pattern import Pattern, column_groups, dense
from gradverify.numerics.survey import STRAY, Survey, linear_inputs, survey

# ---- The structure of the Jacobian: sparsity pattern and colouring for each input tensor; tensors
# without structure are compared column by column

# Columns up to which structure saves little, and pays only where every element is compared and
# nothing hides a move
SMALL = 10
FEWEST = 5  # columns below which finding structure costs more than it saves
SAVES = 0.7  # of the columns or of the rows: more groups than that are not worth their verification


# ---- detection
def find_structure(survey: Survey, *, thrifty: bool = False) -> Structure:
    """Return the structure of each tensor as guessed; small tensors without groups.

    `thrifty`: also detect small tensors by the complete code, where f is quiet and no output dense;
    those of which every output seems to depend only on the element in its place, by one call for
    all, or one each where that fails. Where such a guess is wrong, no row, column or block of
    dependent elements adds up, and the tensor is compared column by column.
    """
    point, c = survey.point, survey.point.columns
    m = len(point.f0)
    tensors = range(len(point.buffers))
    small = {t for t in tensors if thrifty and len(c.of(t)) <= SMALL}
    quiet = bool(small) and c.free and m > 1 and bool(np.isfinite(point.f0).all())
    quiet = quiet and not (survey.some_unmoved or survey.noisy.any())  # either hides a move
    promising = [t for t in small if quiet and _eligible(point, t, FEWEST)]
    outputs = {part.stop - part.start for part in point.parts}
    pointwise = [t for t in promising if outputs == {len(c.of(t))}]
    if pointwise and not _middle_rests(point, pointwise):
        several = len(pointwise) > 1
        pointwise = [t for t in pointwise if several and _middle_rests(point, [t])]
    found = dict[int, tuple[Pattern, ...] | None]()
    for t in tensors:
        columns = c.of(t)
        x = point.buffers[t]
        found[t] = None
        if t in pointwise:
            shape = real_shape(x.shape, x.dtype)
            nothing = np.zeros(len(columns), bool)
            places = tuple(np.unravel_index(np.arange(len(columns)), shape))
            found[t] = (Pattern(shape, places, places, nothing),) * len(point.parts)
        elif t in small:  # by the first column only, one call: does it move most outputs?
            if t in promising and np.mean(_moved(point, columns[:1])) <= SAVES:
                found[t] = detected(survey, t, True)
        elif _eligible(point, t, SMALL + 1):
            found[t] = detected(survey, t, False)
    return _planned(point, {t: Level(t in small) for t in tensors}, found)


def with_other_groups(run: Run, broken: Collection[int]) -> Run:
    """Return a fresh run with other groups for `broken` tensors, whose groups proved wrong: by the
    complete code where they were guessed, else none."""
    point, before = run.point, run.structure
    level = {
        tensor: Level.COMPLETE if before.level[tensor] == Level.GUESSED else Level.UNGROUPED
        for tensor in sorted(broken)
    }
    found = {
        tensor: detected(run.survey, tensor, True) if each is Level.COMPLETE else None
        for tensor, each in level.items()
    }
    new = _planned(point, level, found)
    kept = {t: plan for t, plan in before.plans.items() if t not in level}
    plans = dict(sorted({**kept, **new.plans}.items()))
    patterns = {**before.patterns, **new.patterns}
    levels = {**before.level, **level}
    return run.fresh(Structure(plans, patterns, levels))


def detected(survey: Survey, tensor: int, exact: bool) -> tuple[Pattern, ...]:
    """Detect the patterns of a tensor with random slices; again with a threshold where f is noisy
    and its noise may have looked like moves."""
    point = survey.point
    outputs = [real_shape(shape, dtype) for shape, dtype, _ in point.shapes]

    def above(threshold: Array | None, purpose: str) -> tuple[Pattern, ...]:
        seed = point.seed.within(purpose, tensor, "complete" if exact else "guessed")
        probe = PointProbe(point, tensor, seed, threshold)
        patterns = detect(probe, probe.shape, outputs, seed, guess=not exact)
        return tuple(map(with_dead_outputs, patterns, outputs))

    patterns = above(None, "detection")
    if (
        column_groups(patterns).count <= SAVES * len(point.columns.of(tensor))
        or not survey.noisy.any()
    ):
        return patterns
    return above(STRAY * survey.noise(), "detection above noise")


def _eligible(point: Point, tensor: int, least: int) -> bool:
    """Return whether a tensor has at least `least` columns, one for each coordinate and none
    paired, all finite, and elements that may be zero."""
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
    # With one output, only dead elements can be found
    return len(point.f0) > 1 or not point.row(0)[columns].all()


def _moved(point: Point, columns: Index) -> Mask:
    """Return which outputs [M] change when these columns do: one call."""
    return np.asarray(point.shifted(columns, STEP * point.columns.scale[columns]) != point.f0)


def _middle_rests(point: Point, tensors: Sequence[int]) -> bool:
    """Return whether all elements of these tensors but the middle ones move outputs, and none in
    the middle."""
    columns = [point.columns.of(tensor) for tensor in tensors]
    middle = len(columns[0]) // 2
    moved = _moved(
        point, np.concatenate([np.delete(of_tensor, middle) for of_tensor in columns])
    ).reshape(-1, len(columns[0]))
    return bool(moved.any()) and not moved[:, middle].any()


def _planned(
    point: Point, level: Mapping[int, Level], found_in: Mapping[int, tuple[Pattern, ...] | None]
) -> Structure:
    """Return the structure with a plan for each tensor whose groups save calls; none where there
    are nearly as many groups as columns, and as rows. The others have the dense pattern, because a
    pattern larger than the observed one is sound."""
    weights = signed_weights_float32(len(point.columns), point.seed.generator("column groups"))
    plans = dict[int, Plan]()
    patterns = dict[int, tuple[Pattern, ...]]()
    for tensor, found in found_in.items():
        x, columns = point.buffers[tensor], point.columns.of(tensor)
        patterns[tensor] = tuple(
            dense(real_shape(x.shape, x.dtype), part.stop - part.start) for part in point.parts
        )
        if not found:
            continue
        groups, rows = column_groups(found), tuple(pattern.rows for pattern in found)
        if groups.count <= SAVES * len(columns) or sum(r.count for r in rows) <= SAVES * len(
            point.f0
        ):
            plans[tensor] = Plan(tensor, int(columns[0]), groups, rows, weights)
            patterns[tensor] = found
    return Structure(plans, patterns, level)


class Settings(TypedDict, total=False):
    """The settings of a comparison. `rtol` None: 1e-6, and 1e-3 where inputs or outputs are float32
    or the output bits show float32 inside. `domains`, `symmetric`, `specified`: one entry per
    input."""

    atol: float
    rtol: float | None
    domains: Sequence[tuple[float, float] | None]
    symmetric: Sequence[bool]
    specified: Sequence[Tensor | None]
    seed: Seed
    clock: Clock | None


def prepare(
    function: Function, *, grouped: bool = True, thrifty: bool = False, **settings: Unpack[Settings]
) -> Run | None:
    """Measure noise, structure and linearity; return None where there is no input.

    `thrifty`: including measurements that save calls for small tensors where every element is
    compared. Raises what the function raises at its own inputs.
    """
    n = len(function.inputs)
    if not n:
        return None
    keep_freed()
    columns = columns_of(
        function.inputs,
        settings.get("domains") or [None] * n,
        settings.get("symmetric") or [False] * n,
        settings.get("specified", ()),
    )
    with np.errstate(all="ignore"):
        point = Point(function, columns, settings.get("clock"), settings.get("seed", Seed()))
        noise_survey = survey(point)
        structure = find_structure(noise_survey, thrifty=thrifty) if grouped else Structure()
        linear = linear_inputs(noise_survey, thrifty)
    tolerances = settings.get("atol", 0.0), settings.get("rtol")
    return Run(point, noise_survey, *tolerances, linear, structure, Reach(noise_survey))
