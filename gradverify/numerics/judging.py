"""The basis for judging elements in every mode: lines that move columns and f on the first three
steps, the state of a comparison (tolerances, floors, noise), and elements with their verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from gradverify.numerics.estimate.ladder import (
    EVERY_RUNG,
    GROWTH,
    JUMP,
    KINK,
    NON_FINITE,
    Derivative,
    Ladders,
    Outputs,
)
from gradverify.numerics.estimate.noise import FOUND, POINTS, ecnoise
from gradverify.numerics.estimate.samples import LOW_UNIT, Line, two_sides, upwards
from gradverify.numerics.function.coordinates import Columns
from gradverify.numerics.function.point import Point, element_line
from gradverify.numerics.pairs.pair import Entries, Outcome, Pair, Requested, Tally
from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import (
    QUICK,
    RESOLVED,
    U64,
    AnyArray,
    Array,
    Codes,
    Index,
    Mask,
    finite_size,
    in_a_row,
    repeated,
    step,
)
from gradverify.numerics.sparsity.pattern import NO_ENTRY, ColumnGroups, Pattern, RowGroups
from gradverify.numerics.survey import STRAY, Directions, Survey, dense_ray
from gradverify.numerics.tolerance import (
    RTOL,
    RTOL_LOW,
    Magnitudes,
    Tolerances,
    floors,
    is_resolved,
    limits,
    verdicts,
)
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED, Limit


# ---- bundles of lines
@dataclass(frozen=True)
class GroupLine:
    """Several columns moved together: a step t moves column c by t·move[c].

    `column_of` [M]: the column whose derivative each output shows, or NO_ENTRY. A column that would
    leave its domain or that the step does not move stays in place, and the outputs that show it
    have no value (NaN) there.
    """

    point: Point
    columns: Index
    move: Array
    column_of: Index
    scale: ClassVar[float] = 1.0

    @cached_property
    def size(self) -> Array:
        return np.where(self.in_pattern, np.abs(self.move[self.column_of]), 1.0)

    @cached_property
    def magnitude(self) -> Array:
        return np.where(self.in_pattern, np.abs(self.point.columns.x[self.column_of]), 0.0)

    @cached_property
    def in_pattern(self) -> Mask:
        """Mask of the outputs [M] that show one of the columns."""
        return np.asarray(self.column_of != NO_ENTRY)

    @cached_property
    def place(self) -> Index | slice:
        """The position in `columns` of each output's column [M]; arbitrary where an output shows
        none."""
        place = np.searchsorted(self.columns, self.column_of)
        return in_a_row(np.minimum(place, len(self.columns) - 1))

    @cached_property
    def _start(self) -> tuple[Array, Array]:
        """x and move of the columns."""
        place = in_a_row(self.columns)
        return self.point.columns.x[place], self.move[place]

    def at(self, t: float) -> tuple[Array, Array]:
        c, columns, (x, move) = self.point.columns, self.columns, self._start
        to = c.cast(x + t * move, columns)
        change = to - x
        free = np.isfinite(change) & (change != 0)
        if not c.free:
            free &= (to >= c.low[columns]) & (to <= c.high[columns])
        if free.all():
            f = self.point.values_inside(columns, to)
        else:
            to, change = np.where(free, to, x), np.where(free, change, t * move)
            f = self.point.values_at(columns, to)
            f = np.where(self.in_pattern & ~free[self.place], np.nan, f)
        by = change[self.place]
        return f, by if self.in_pattern.all() else np.where(self.in_pattern, by, t)


@dataclass(frozen=True)
class Bundle:
    """A set of n lines.

    column_of [n, M]: the column whose derivative each output shows along each line; tensor [n]: the
    input tensor whose columns each line moves.
    """

    lines: Sequence[Line]
    column_of: Index
    tensor: Index

    @cached_property
    def grouped(self) -> bool:
        return any(isinstance(line, GroupLine) for line in self.lines)

    @cached_property
    def in_pattern(self) -> Mask:
        """Mask of the elements [n, M] in the sparsity pattern; the others must not move."""
        return np.asarray(self.column_of != NO_ENTRY)


def single_columns(point: Point, columns: Index, wide: bool = False) -> Bundle:
    """Return a bundle with one line per column; `wide`: each at least of unit scale."""
    column_of = np.broadcast_to(columns[:, None], (len(columns), len(point.f0)))
    return Bundle(
        [element_line(point, int(c), wide) for c in columns],
        column_of,
        point.columns.tensor[columns],
    )


@dataclass(frozen=True)
class Plan:
    """The groups of one input tensor: its columns by colour, and its rows per output tensor.

    `first`: the tensor's first column. `weights` [C]: weights of all columns, continuous and
    signed; ±1 would let pairs of strays cancel, and all ones every set of strays that sums to zero
    (method.md section 5).
    """

    tensor: int
    first: int
    groups: ColumnGroups
    rows: tuple[RowGroups, ...]
    weights: Array

    @property
    def size(self) -> int:
        """The number of columns of the tensor."""
        return self.rows[0].pattern.size

    @cached_property
    def colour(self) -> Index:
        """The group of each column of the tensor [N]."""
        return self.groups.colour()

    def bundle(self, point: Point, first: int, count: int) -> Bundle:
        """Return the lines of groups first … first + count − 1."""
        column_of = self.groups.columns_of(range(first, first + count))
        if self.first:
            column_of = np.where(column_of == NO_ENTRY, NO_ENTRY, column_of + self.first)
        move = self.weights * point.columns.scale
        members = (self.first + np.flatnonzero(self.colour == first + n) for n in range(count))
        lines = [
            GroupLine(point, columns, move, row)
            for columns, row in zip(members, column_of, strict=True)
        ]
        return Bundle(lines, column_of, np.full(count, self.tensor))


class Level(IntEnum):
    """How thoroughly the structure of a tensor was detected."""

    GUESSED = 0
    COMPLETE = 1  # by the complete code
    UNGROUPED = 2


@dataclass(frozen=True)
class Structure:
    """The structure of all input tensors.

    `plans`: for the tensors whose groups save calls, in order; `patterns`: of all tensors, one per
    output tensor; `level`: of each tensor.
    """

    plans: Mapping[int, Plan] = field(default_factory=dict)
    patterns: Mapping[int, tuple[Pattern, ...]] = field(default_factory=dict)
    level: Mapping[int, Level] = field(default_factory=dict)

    def guessed(self, tensor: int) -> bool:
        """Return whether the tensor's columns are moved in groups that rest on a guess."""
        return tensor in self.plans and self.level[tensor] is Level.GUESSED


def widened(bundle: Bundle, point: Point) -> Bundle:
    """Return the same lines with at least unit scale, for elements that smaller steps do not
    move."""

    def wide(n: int, line: Line) -> Line:
        if not isinstance(line, GroupLine):
            return element_line(point, int(bundle.column_of[n, 0]), wide=True)
        scale = point.columns.scale
        return replace(line, move=line.move / scale * np.maximum(scale, 1.0))

    return replace(bundle, lines=[wide(n, line) for n, line in enumerate(bundle.lines)])


# ---- The measured reach of each output: the largest |a|·s and |D|·s of its row, from which its
# floor follows
class Reach:
    """The largest |a|·s and resolved |D|·s of each output [M] so far; re and im of one number share
    their values."""

    def __init__(self, survey: Survey) -> None:
        self._survey, self._scale = survey, survey.point.columns.scale
        self._floors: Array | None = None

    @cached_property
    def _analytic(self) -> Array:
        return np.zeros(len(self._survey.size))

    @cached_property
    def _numeric(self) -> Array:
        return np.zeros(len(self._survey.size))

    def add_row(self, output: int, row: Array) -> None:
        sizes = np.nan_to_num(np.abs(row) * self._scale, posinf=0.0)
        self._raise(self._analytic, np.array([output]), sizes.max(initial=0.0, keepdims=True))

    def add_entries(self, output: Index, column: Index, value: Array) -> None:
        """Add analytic values of some elements; `column` may lack leading axes."""
        sizes = np.abs(value) * self._scale[column]
        if not sizes.max(initial=0.0) < np.inf:
            sizes = np.where(sizes < np.inf, sizes, 0.0)
        self._raise(self._analytic, output, sizes)

    def add(self, column: Index, out: Index, value: Array, bar: Array) -> None:
        """Add derivatives of elements [E]: |D|·s of those well above their bars."""
        size = np.abs(value)
        resolved = (size > RESOLVED * bar) & (size < np.inf)
        self._raise(self._numeric, out, np.where(resolved, size * self._scale.take(column), 0.0))

    def add_surveyed(self) -> None:
        """Add the reach known from the survey, so that an element judged apart from its tensor is
        judged by the reach measured for all outputs."""
        self._floors = None
        np.maximum(self._analytic, self._survey.reach, out=self._analytic)

    def _raise(self, reach: Array, output: Index, sizes: Array) -> None:
        larger = sizes > reach.take(output)
        if not larger.any():
            return
        if not larger.all():
            raised = np.flatnonzero(larger)
            output, sizes = output.reshape(-1)[raised], sizes.reshape(-1)[raised]
        # np.maximum.at is ten times as fast on one axis as on two
        np.maximum.at(reach, output.reshape(-1), sizes.reshape(-1))
        self._floors = None

    def floors(self) -> Array:
        """Return the floor times S [M] of each output."""
        if self._floors is None:
            rows = self.rows()
            self._floors = floors(rows, is_resolved(rows, self._numeric > 0, self._analytic))
        return self._floors

    def rows(self) -> Magnitudes:
        survey, shared = self._survey, self._survey.point.shared
        reach = np.maximum(shared(self._analytic), shared(self._numeric))
        return survey.magnitudes(reach, survey.far_change)


# ---- The state of one comparison: the point, tolerances, and what is learnt in its course about
# the size of each output's derivatives
class OverBudget(Protocol):
    """A predicate: whether the check has spent its budget, or would with `ahead` more forward
    calls."""

    def __call__(self, ahead: int = 0) -> bool: ...


def no_budget(ahead: int = 0) -> bool:
    """Return False: the number of calls is not limited."""
    return False


# ---- Rounding inside f: where larger numbers cancel, f moves in steps of their rounding, which
# points near x do not show
# Times the maximum of 1, the typical input and the output: larger numbers are not assumed to cancel
LARGEST = 16.0
WAYS = 6  # random roundings of every operation of f
# Spacings of the points that show the noise of f: as fractions of the scale, then of 1
SPACINGS = (3e-2, 2e-3, 1e-4, 2e-6)


@dataclass(frozen=True)
class Run:
    """One comparison: the point, its survey, tolerances as given (`rtol` None: by precision) and
    what is learnt in its course.

    `linear`: the tensors in which f is linear, with the directions that showed it. `tie_sums`: by
    tensor and number, how often the columns that hold the number were moved together, and the
    deficit of the outputs' [M] sums. `certainly_wrong`: outputs with a mismatch that no
    cancellation inside f can explain. `over_budget`: where it holds, flagged items are followed
    only until one is shown to be wrong. `requested`: the element whose record is kept whatever its
    outcome. `stops`: elements that the budget does not afford are not compared at all.
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
    requested: Requested | None = None
    stops: bool = False

    def fresh(self, structure: Structure | None = None) -> Run:
        """Return a copy with nothing learnt yet about the reach of the outputs."""
        return replace(
            self,
            structure=structure or self.structure,
            reach=Reach(self.survey),
            tie_sums={},
            certainly_wrong=set(),
        )

    @property
    def columns(self) -> Columns:
        """The columns of the point."""
        return self.point.columns

    def outputs(self, noise: Array | None = None) -> Outputs:
        """Return what is known of the outputs, with this `noise` [M] where it is larger."""
        sigma = self.survey.sigma
        return Outputs(
            self.point.f0,
            sigma if noise is None else np.maximum(sigma, noise),
            lambda: self.point.unit,
            rounds_x=not self.columns.rounded,
        )

    def low_precision(self) -> Mask:
        """Return the outputs [M] that are of lower precision than float64 by dtype or by their
        bits; all outputs where an input or the backward is."""
        return (self.point.unit > LOW_UNIT) | (self.point.backward_unit > LOW_UNIT)

    def low_values(self) -> Mask:
        """Return the outputs [M] whose finite differences are of lower precision than float64;
        unlike `low_precision`, none for a function whose float32 version is compared, as its values
        are float64."""
        return (self.point.unit > LOW_UNIT) | self.columns.rounded

    @cached_property
    def quiet(self) -> bool:
        """Whether bars twice as wide as necessary are still far below the tolerance and
        there is room for a step on either side: all values are float64 with no more noise than
        rounding."""
        point = self.point
        return point.columns.free and not (self.low_values().any() or self.survey.noisy.any())

    def rtols(self) -> Array:
        if self.rtol is not None:
            return np.full(len(self.point.f0), self.rtol)
        return np.where(self.low_precision(), RTOL_LOW, RTOL)

    def analytic(self, column: Index, out: Index) -> Array:
        """Return the analytic values of elements [E]: one backward per output."""
        values = np.empty(len(out))
        for j in np.unique(out).tolist():
            row = self.point.row(j)
            self.reach.add_row(j, row)
            values[out == j] = row[column[out == j]]
        return values

    def tolerances(self, column: Index, out: Index) -> Tolerances:
        """Return the tolerances of elements, by what is known now."""
        floor = self.floors().take(out) / self.columns.size.take(column)
        # Rows that move but have no measured derivative
        unproven = np.zeros(len(out), bool)
        if self.survey.some_unmoved:
            tensor = self.columns.tensor[column]
            unproven = (self.survey.unmoved | self.survey.wide)[tensor, out]
            if unproven.any():
                unproven &= self.reach.rows().reach[out] <= 0
        return Tolerances(self.atol, self.rtols()[out], floor, unproven)

    def floors(self) -> Array:
        """Return the floor times S [M] of each output."""
        return self.reach.floors()

    def zero_tolerance(self, columns: Index, outs: slice) -> Array:
        """Return the tolerance [n, outs] for a zero in these columns [n, outs]: `atol` and the
        floor only."""
        size = self.columns.size
        # Every line has a single column: no need to broadcast it
        scale = size[columns[:, :1]] if columns.strides[1] == 0 else size[columns]
        return self.atol + self.floors()[None, outs] / scale

    @property
    def noise(self) -> Array:
        """The noise [M] of each output at x, at least its rounding."""
        return np.maximum(self.survey.sigma, self.point.unit * np.abs(self.point.f0))

    @cached_property
    def _largest_rounding(self) -> Array:
        """The rounding [M] of the largest numbers that are assumed to cancel in each output."""
        typical = float(np.nan_to_num(np.median(np.abs(self.point.x)), nan=1.0, posinf=1.0))
        return LARGEST * self.point.unit * np.maximum(self.survey.size, max(1.0, typical))

    @cached_property
    def spread(self) -> tuple[Array, float]:
        """The standard deviation of the outputs [M] when every operation is rounded at random, as
        `Point.spread`: 6 forward calls, none beyond the budget."""
        return self.point.spread(0 if self.over_budget(WAYS) else WAYS)

    @cached_property
    def least_noise(self) -> Array:
        """The noise [M], including the effect of rounding all operations. A larger effect than
        cancellation in float64 can have is a branch taken differently, and is ignored."""
        spread, unit = self.spread
        return np.maximum(
            self.noise,
            spread if unit > U64 else np.where(spread <= self._largest_rounding, spread, 0.0),
        )

    @cached_property
    def most_noise(self) -> Array:
        """The noise of each output [M] if the largest possible numbers cancel in it: a few forward
        calls."""
        return np.maximum(self.least_noise, self._largest_rounding)

    @cached_property
    def inner_noise(self) -> Array:
        """The noise of each output [M], including that of numbers that cancel inside f, measured on
        points far apart along one dense direction: 36 or 72 more forward calls.

        Where the points show none, or more than the possible maximum (which is the shape of f),
        that maximum. Points beyond the scale of their inputs show noise that nearer ones do not.
        """
        least, most = self.least_noise, self._largest_rounding
        ray = dense_ray(self.point, "far noise")
        shown = np.full(len(most), np.nan)
        for scale in (ray.scale, np.maximum(ray.scale, 1.0)):
            if not np.isnan(shown).any() or (scale is not ray.scale and (ray.scale >= 1).all()):
                break
            seen = shown.copy()
            for spacing in SPACINGS:
                points = ray.points(ray.odd(spacing * scale), np.empty((POINTS, len(most))))
                level, ending = ecnoise(points, self.survey.size)
                seen = np.fmax(seen, np.where((ending == FOUND) & (level <= most), level, np.nan))
            shown = np.where(np.isnan(shown), seen, shown)
        return np.maximum(least, np.where(np.isnan(shown), most, shown))

    def result(self, tally: Tally) -> Pair:
        """Return the result of a pair."""
        part = self.point.parts[tally.output]
        unit, low = self.point.unit[part], self.low_precision()[part]
        return tally.result(float(unit.max(initial=0.0)), bool(low.any()))

    def by_pair(self, column: Index, out: Index, i: Index) -> Iterator[Index]:
        """Yield those of elements i that belong to one input and output tensor, pair by pair;
        `column`, `out` [E] are of all elements."""
        tensor = self.columns.tensor[column[i]]
        output = np.searchsorted([part.stop for part in self.point.parts], out[i], side="right")
        for t, o in sorted(set(zip(tensor.tolist(), output.tolist(), strict=True))):
            yield i[(tensor == t) & (output == o)]


# ---- Elements of the Jacobian with their analytic values, finite differences, tolerances and
# verdicts
class Decided(NamedTuple):
    """Mismatches `i` that an excuse decides: undecided for the reason `why`, or right where that is
    NONE; `bar` [i]: the least error that their derivatives may have."""

    i: Index
    why: Limit | AnyArray
    bar: Array | float = 0.0


@dataclass(frozen=True)
class Judged(Record):
    """Elements with their verdicts [E]; `column` counts through all inputs, `out` through all
    outputs.

    `border_column` [E]: columns along which f ends at x (None: only those that the derivatives
    show). `quick` [E]: elements settled by the quick rungs (None: none).
    """

    column: Index
    out: Index
    analytic: Array
    derivative: Derivative
    tolerances: Tolerances
    verdict: Codes
    limit: AnyArray
    border_column: Mask | None = None
    quick: Mask | None = None

    def verdicts_with(
        self, extra: Array | float = 0.0, derivative: Derivative | None = None
    ) -> Codes:
        """Return the verdicts [E] under bars wider by `extra`, or with other derivatives."""
        return verdicts(
            self.analytic,
            derivative or self.derivative,
            self.tolerances,
            extra=extra,
            border_column=self.border_column,
        )

    @property
    def wrong(self) -> Mask:
        """Mask of the mismatches [E]."""
        return np.asarray(self.verdict == MISMATCH)

    def worst_first(self) -> Index:
        """Return the elements [E] in descending order of error / tolerance; errors that are NaN
        come first."""
        value = self.derivative.value
        miss = np.abs(self.analytic - value) / (
            self.tolerances.tolerance(self.analytic, value) + 1e-300
        )
        return np.argsort(-np.nan_to_num(miss, nan=np.inf), kind="stable")

    def judged_anew(self, **changes: Any) -> Judged:
        """Return the elements with other analytic values or derivatives; limits of the undecided
        ones are not determined."""
        changed = replace(self, limit=no_limits(len(self.out)), **changes)
        return replace(changed, verdict=changed.verdicts_with())

    def with_limits(self) -> Judged:
        """Return the elements with the limits of the undecided ones determined where they are
        missing."""
        open_ = np.flatnonzero(self.verdict == UNDECIDED)
        open_ = open_[self.limit[open_] == Limit.NONE]
        if not open_.size:
            return self
        limit = self.limit.copy()
        limit[open_] = limits(self.derivative.take(open_))
        if self.border_column is not None:
            ends = self.border_column[open_] & ~np.isfinite(self.analytic[open_])
            limit[open_[ends]] = Limit.BORDER
        return replace(self, limit=limit)

    def decided(self, i: AnyArray, why: Limit | AnyArray, bar: Array | float = 0.0) -> Judged:
        """Return the elements with elements i undecided, or right where the reason is NONE; their
        bars become at least `bar`."""
        if not len(i):
            return self
        verdict, limit, bars = self.verdict.copy(), self.limit.copy(), self.derivative.bar.copy()
        verdict[i], limit[i] = PASS if why is Limit.NONE else UNDECIDED, why
        bars[i] = np.maximum(bars[i], bar)
        derivative = replace(self.derivative, bar=bars)
        return replace(self, verdict=verdict, limit=limit, derivative=derivative)

    @property
    def is_zero(self) -> Mask:
        """Mask of the elements [E] whose derivative cannot be distinguished from zero."""
        d, nothing = self.derivative, np.zeros(len(self.analytic))
        return d.unchanged | (
            np.abs(d.value) <= self.tolerances.tolerance(nothing, nothing) + d.bar
        )

    def entries(self, point: Point, tally: Tally) -> Entries:
        """Return these elements, all of the pair of this tally."""
        d = self.derivative
        outcome, bar = self.outcome, d.bar
        left = right = repeated(np.nan, len(self.analytic))
        if d.rough:
            left, right = (np.where(d.outcome == KINK, side, np.nan) for side in (d.left, d.right))
            of_slopes = np.maximum(d.left_bar, d.right_bar)
            bar = np.where(outcome == Outcome.KINK, of_slopes, bar)
        tolerance = self.tolerances.tolerance(self.analytic, d.value)
        floor = self.tolerances.floor
        return Entries(
            self.out - point.parts[tally.output].start,
            point.columns.coordinate.take(self.column) - point.starts[tally.input],
            self.analytic,
            d.value,
            bar,
            tolerance,
            floor,
            outcome,
            self.limit,
            left,
            right,
        )

    @property
    def outcome(self) -> Codes:
        """`Outcome` codes [E]."""
        d = self.derivative
        if not (self.verdict.any() or d.rough):
            return np.full(len(self.analytic), Outcome.PASS, np.int8)
        kink = d.outcome == KINK
        undecided = np.select(
            [
                np.isfinite(d.second) & ~d.far,
                d.outcome == JUMP,
                (d.outcome == NON_FINITE) | ~np.isfinite(self.analytic),
            ],
            [Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE],
            Outcome.UNDECIDED,
        )
        passed = np.where(kink, Outcome.KINK, Outcome.PASS)
        return np.select(
            [self.verdict == PASS, self.wrong],
            [passed, Outcome.MISMATCH],
            undecided,
        ).astype(np.int8)


def judged_now(
    run: Run, column: Index, out: Index, a: Array, d: Derivative, border_column: Mask | None = None
) -> Judged:
    """Return elements (column, output) [E] judged by all that is known now, including these
    derivatives; limits of the undecided ones are not determined."""
    run.reach.add(column, out, d.value, d.bar)
    tolerances = run.tolerances(column, out)
    if (other_part := run.point.other_part) is not None:
        i = np.flatnonzero((other_part[out[:-1]] == out[1:]) & (column[:-1] == column[1:]))
        tolerances = tolerances.of_moduli(i, np.minimum(np.abs(a), finite_size(d.value)))
    verdict = verdicts(a, d, tolerances, border_column=border_column)
    return Judged(column, out, a, d, tolerances, verdict, no_limits(len(out)), border_column)


def no_limits(m: int) -> AnyArray:
    """Return an array of m times `Limit.NONE`."""
    return np.broadcast_to(np.array(Limit.NONE, object), m)


# ---- Confirming mismatches, the worst first: a few columns or rows at a time, until enough are
# confirmed that the rest counts as wrong without being measured
# Confirmed mismatches after which the rest counts as wrong, if none was cleared
ENOUGH_CONFIRMED = 3
MOST_COLUMNS = 24  # largest number of columns that are confirmed
COLUMNS_AT_ONCE = 3  # columns that are measured together


def enough_confirmed(confirmed: int, cleared: int) -> bool:
    """Return whether enough mismatches are confirmed, and none cleared, so that the others need no
    confirmation."""
    return confirmed >= ENOUGH_CONFIRMED and not cleared


def columns_at_once(run: Run) -> int:
    """Return how many columns to measure together: one where the budget does not afford more."""
    return 1 if run.over_budget(COLUMNS_AT_ONCE * EVERY_RUNG) else COLUMNS_AT_ONCE


def worst_first(
    place: Index, order: Index, at_once: int = COLUMNS_AT_ONCE, most: int | None = MOST_COLUMNS
) -> Iterator[Index]:
    """Yield elements [E] grouped by their column or row (`place`), `at_once` places at a time, in
    the order in which places first occur in `order`."""
    places = list(dict.fromkeys(place[order].tolist()))[:most]
    for n in range(0, len(places), at_once):
        yield np.flatnonzero(np.isin(place, places[n : n + at_once]))


# ---- f on the quick rungs, the first three steps, and derivatives from them alone, which suffice
# for most elements of a smooth function
# Relative change of a one-sided slope from rung to rung that is settled; a slope that grows without
# bound changes by a tenth at least
SETTLED = 2.0**-10


@dataclass(frozen=True)
class QuickSamples:
    """f on the quick rungs of a bundle's n lines, up and down along each line [rungs, n, M], and
    the realised steps, negative where a line moves its column downwards: [rungs, n, M], or [rungs,
    n, 1] where each line moves one column."""

    bundle: Bundle
    up: Array
    down: Array
    step_up: Array
    step_down: Array
    f0: Array

    def of(self, what: Array, line: Index, out: Index) -> Array:
        """Return samples or steps [rungs, E] of elements."""
        m = what.shape[2]  # with one index an array takes half of the time that it takes with two
        return what.reshape(len(what), -1).take(line if m == 1 else line * m + out, 1)

    def at(self, n: int, line: Index, out: Index) -> Array:
        """Return samples [4, E] of the n-th rung for elements."""
        rung = slice(n, n + 1)
        samples = (self.up, self.down, self.step_up, self.step_down)
        return np.stack(upwards(*(self.of(each[rung], line, out)[0] for each in samples)))

    def widest(self, outs: slice) -> Array:
        """Return the larger step of the first rung [n, outs or 1]."""
        widest = np.maximum(np.abs(self.step_up[0]), np.abs(self.step_down[0]))
        return np.asarray(widest[:, outs if self.bundle.grouped else slice(None)])

    @cached_property
    def bad(self) -> Mask | None:
        """Mask of the rungs without a value on both sides [rungs, n, M]; None where there are
        none."""
        if np.isfinite(self.up).all() and np.isfinite(self.down).all():
            return None
        return ~(np.isfinite(self.up) & np.isfinite(self.down))

    @cached_property
    def _still(self) -> Mask:
        """Mask of the rungs at which f is bitwise f(x) on both sides [rungs, n, M]."""
        return np.asarray((self.up == self.f0) & (self.down == self.f0))

    @property
    def unchanged(self) -> Mask:
        """Mask of the elements [n, M] whose output is bitwise f(x) at every rung that has a value,
        two or more."""
        if self.bad is None:
            return np.asarray(self._still.all(0))
        enough = np.sum(~self.bad, 0) >= min(2, len(self.up))
        return np.asarray((self._still | self.bad).all(0) & enough)

    @property
    def masked(self) -> Mask:
        """Mask of the elements [n, M] whose output is the same infinity everywhere."""
        return np.asarray(np.isinf(self.f0) & self._still.all(0))

    @property
    def at_border(self) -> Mask:
        """Mask of the columns [C] along which some output is not finite on both sides; an output
        that is the same infinity everywhere counts as finite."""
        border = np.zeros(int(self.bundle.column_of.max(initial=-1)) + 1, bool)
        if self.bad is not None:
            lost = self.bad.any(0) & ~self.masked
            border[self.bundle.column_of[lost & self.bundle.in_pattern]] = True
        return border

    def growing(self, n: int) -> Index:
        """Return the outputs whose slopes along line n, on one side, grow from rung to rung; finer
        rungs show whether the growth ends."""
        out = np.arange(len(self.f0))
        slopes = np.abs(self._slopes(np.full_like(out, n), out))
        grow = (slopes[:, 1:] > GROWTH * slopes[:, :-1]).all(1)
        return np.flatnonzero(grow.any(0) & np.isfinite(self.f0))

    def settles(self, line: Index, out: Index) -> Mask:
        """Return which elements [k] have a slope on at least one side that does not grow: f neither
        ends there nor grows without bound on both sides."""
        if len(self.up) < 2:  # f is linear in these columns
            return np.zeros(len(line), bool)
        slopes = self._slopes(line, out)
        settles = np.abs(slopes[:, -1] - slopes[:, -2]) <= SETTLED * np.abs(slopes[:, -1])
        return np.asarray(settles.any(0))

    def _slopes(self, line: Index, out: Index) -> Array:
        """Return the slopes of elements [k] above and below x [2, rungs, k]."""
        sides = ((self.up, self.step_up), (self.down, self.step_down))
        return np.array(
            [(self.of(f, line, out) - self.f0[out]) / self.of(by, line, out) for f, by in sides]
        )

    def strays(self, outs: slice, sigma: Array) -> Mask:
        """Return which elements [n, outs] off the pattern move beyond the noise of f: then the
        structure is wrong."""
        in_pattern = self.bundle.in_pattern[:, outs]
        if in_pattern.all():
            return np.zeros_like(in_pattern)
        f0 = self.f0[outs]
        off = np.fmax(np.abs(self.up[:, :, outs] - f0), np.abs(self.down[:, :, outs] - f0)).max(0)
        return np.asarray(~in_pattern & (off > STRAY * sigma[outs]))


def quick_samples(
    point: Point, bundle: Bundle, rungs: Sequence[int] = QUICK, above: bool = False
) -> QuickSamples:
    """Sample f along the lines of a bundle: two forward calls per line and rung, or one where only
    the samples `above` x are taken, with f(x) below."""
    n, m = len(bundle.lines), len(point.f0)
    up, down = np.empty((2, len(rungs), n, m))
    step_up, step_down = np.empty((2, len(rungs), n, m if bundle.grouped else 1))
    for i, line in enumerate(bundle.lines):
        for r, k in enumerate(rungs):
            samples = two_sides(line, k, point.f0 if above else None)
            if samples is None:
                up[r, i] = down[r, i] = np.nan
                step_up[r, i] = step_down[r, i] = step(1.0, k) * line.size
            else:
                up[r, i], down[r, i], step_up[r, i], step_down[r, i] = samples
    return QuickSamples(bundle, up, down, step_up, step_down, point.f0)


# ---- Elements measured at every step, each by moving its column individually
def single_derivatives(
    run: Run, column: Index, out: Index, noise: Array | None = None
) -> Derivative:
    """Return derivatives of elements (column, output) [E] in any order, each column on its own
    line, at every step: 48 forward calls per column.

    `noise` [M]: noise of the outputs, where it is larger than measured. Outputs that only move
    beyond the column's own scale (`Survey.wide`) are measured by steps of at least unit scale.
    """
    wide = run.survey.wide[run.columns.tensor[column], out]
    order = np.lexsort((out, column, wide))
    parts = list[Derivative]()
    for is_wide in (False, True):
        i = order[wide[order] == is_wide]
        if i.size:
            columns, line = np.unique(column[i], return_inverse=True)
            lines = single_columns(run.point, columns, is_wide).lines
            ladders = Ladders(lines, run.outputs(noise), line, out[i])
            parts.append(ladders.every_rung())
    return joined(parts).take(np.argsort(order))
