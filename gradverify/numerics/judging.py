"""What elements are judged with in every mode: the lines that move their columns and f on the first
three steps, what a comparison knows (tolerances, floors, noise), and elements with their
verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    secant,
    smooth_estimate,
)
from gradverify.numerics.estimate.noise import FOUND, POINTS, ecnoise
from gradverify.numerics.estimate.samples import LOW_UNIT, Line, one_side, sample_rung
from gradverify.numerics.function.coordinates import Columns
from gradverify.numerics.function.point import Point, element_line
from gradverify.numerics.pairs.pair import Asked, Entries, Outcome
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
    in_a_row,
    step,
)
from gradverify.numerics.rungs import joined as joined_arrays
from gradverify.numerics.sparsity.pattern import NO_ENTRY, ColumnGroups, Pattern, RowGroups
from gradverify.numerics.survey import STRAY, Directions, Survey, dense_ray
from gradverify.numerics.tolerance import (
    RTOL,
    RTOL_LOW,
    Magnitudes,
    Tolerances,
    floors,
    limits,
    stands_out,
    verdicts,
)
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED, Limit


# ---- bundle
@dataclass(frozen=True)
class GroupLine:
    """Several columns moved together: t moves column c by t·move[c]. `column_of` [M]: the column
    whose derivative each output shows, or NO_ENTRY.

    What leaves its domain or does not move stays where it is, and its outputs have no value (NaN)
    there.
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
        """Outputs [M] that show one of the columns."""
        return np.asarray(self.column_of != NO_ENTRY)

    @cached_property
    def place(self) -> Index:
        """Where in `columns` the column of each output is [M]; any place where it shows none."""
        return np.minimum(np.searchsorted(self.columns, self.column_of), len(self.columns) - 1)

    @cached_property
    def _start(self) -> tuple[Array, Array]:
        """x and move of the columns."""
        place = in_a_row(self.columns)
        return self.point.columns.x[place], self.move[place]

    def values(self, to: Array, stuck: Mask) -> Array:
        """f [M] with the columns there [k]; NaN for the outputs of those that are `stuck` [k]."""
        if not stuck.any():
            return self.point.values_inside(self.columns, to)
        f = self.point.values_at(self.columns, to)
        return np.where(self.in_pattern & stuck[self.place], np.nan, f)

    def at(self, t: float) -> tuple[Array, Array]:
        to, change, stuck = steps(self.point, self.columns, *self._start, np.array([t]))
        by = np.where(self.in_pattern, change[0].take(self.place), t)
        return self.values(to[0], stuck[0]), by


def steps(
    point: Point, columns: Index, x: Array, move: Array, t: Array
) -> tuple[Array, Array, Mask]:
    """x of columns [k] after steps t [r], its realised change, nominal for those that are stuck,
    and which are [r, k] each."""
    c, by = point.columns, t[:, None] * move
    to = c.cast(x + by, columns)
    change = to - x
    free = np.isfinite(change) & (change != 0)
    if not c.free:
        free &= (to >= c.low[columns]) & (to <= c.high[columns])
    if not free.all():
        to, change = np.where(free, to, x), np.where(free, change, by)
    return to, change, ~free


@dataclass(frozen=True)
class Bundle:
    """n lines. column_of [n, M]: the column whose derivative each output shows along each line;
    tensor [n]: whose columns they are."""

    lines: Sequence[Line]
    column_of: Index
    tensor: Index

    @cached_property
    def grouped(self) -> bool:
        return any(isinstance(line, GroupLine) for line in self.lines)

    @cached_property
    def in_pattern(self) -> Mask:
        """Elements [n, M] of the sparsity pattern; the others must not move."""
        return np.asarray(self.column_of != NO_ENTRY)


def lone_columns(point: Point, columns: Index, wide: bool = False) -> Bundle:
    """Every column on a line of its own; `wide`: with at least unit scale."""
    column_of = np.broadcast_to(columns[:, None], (len(columns), len(point.f0)))
    return Bundle(
        [element_line(point, int(c), wide) for c in columns],
        column_of,
        point.columns.tensor[columns],
    )


@dataclass(frozen=True)
class Plan:
    """The groups of one input tensor, whose first column is `first`: of columns by colour, and per
    output tensor of rows; `weights` [C] of all columns, continuous and signed.

    ±1 would let pairs of strays cancel, and ones all that sum to zero (method.md section 5).
    """

    tensor: int
    first: int
    groups: ColumnGroups
    rows: tuple[RowGroups, ...]
    weights: Array

    @property
    def size(self) -> int:
        """Its columns."""
        return self.rows[0].pattern.size

    @cached_property
    def colour(self) -> Index:
        """The group of each column of the tensor [N]."""
        return self.groups.colour()

    def bundle(self, point: Point, first: int, count: int) -> Bundle:
        """The lines of groups first … first + count − 1."""
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
    """How a tensor's structure was looked for."""

    GUESSED = 0
    COMPLETE = 1  # by the complete code
    UNGROUPED = 2


@dataclass(frozen=True)
class Structure:
    """Plans of the tensors whose groups save calls, in order; the `patterns` of all, one per output
    tensor; the `level` of each tensor."""

    plans: Mapping[int, Plan] = field(default_factory=dict)
    patterns: Mapping[int, tuple[Pattern, ...]] = field(default_factory=dict)
    level: Mapping[int, Level] = field(default_factory=dict)

    def guessed(self, tensor: int) -> bool:
        """Are its columns moved in groups that may not be what they were taken for?"""
        return tensor in self.plans and self.level[tensor] is Level.GUESSED


def widened(bundle: Bundle, point: Point) -> Bundle:
    """The same lines with at least unit scale, for what does not move nearer."""

    def wide(n: int, line: Line) -> Line:
        if not isinstance(line, GroupLine):
            return element_line(point, int(bundle.column_of[n, 0]), wide=True)
        scale = point.columns.scale
        return replace(line, move=line.move / scale * np.maximum(scale, 1.0))

    return replace(bundle, lines=[wide(n, line) for n, line in enumerate(bundle.lines)])


@dataclass(frozen=True)
class Cells(Record):
    """Elements [E] of a bundle by `line` and `out`put, ascending; `column`: whose derivative each
    shows."""

    line: Index
    out: Index
    column: Index


# ---- How far each output was seen to go: the largest |a|·s and |D|·s of its row, on which its
# floor rests
class Reach:
    """The largest |a|·s and resolved |D|·s of each output [M] so far; re and im of one number share
    theirs."""

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
        """Analytic values of some elements; `column` may lack leading axes."""
        sizes = np.abs(value) * self._scale[column]
        self._raise(self._analytic, output, np.where(sizes < np.inf, sizes, 0.0))

    def add(self, column: Index, out: Index, value: Array, bar: Array) -> None:
        """Derivatives of elements [E]: |D|·s of those that stand out of their bars."""
        size = np.abs(value)
        stands = (size > RESOLVED * bar) & (size < np.inf)
        self._raise(self._numeric, out, np.where(stands, size * self._scale.take(column), 0.0))

    def add_surveyed(self) -> None:
        """How far outputs surely go by the survey: what is judged apart from its tensor is judged
        by how far all outputs of that were seen to go."""
        self._floors = None
        np.maximum(self._analytic, self._survey.reach, out=self._analytic)

    def _raise(self, reach: Array, output: Index, sizes: Array) -> None:
        larger = np.flatnonzero(sizes > reach.take(output))
        if larger.size:
            # Of one axis: ten times as fast as of two
            np.maximum.at(reach, output.reshape(-1)[larger], sizes.reshape(-1)[larger])
            self._floors = None

    def floors(self) -> Array:
        """The floor times S [M] of each output."""
        if self._floors is None:
            rows = self.rows()
            self._floors = floors(rows, stands_out(rows, self._numeric > 0, self._analytic))
        return self._floors

    def rows(self) -> Magnitudes:
        survey, shared = self._survey, self._survey.point.shared
        reach = np.maximum(shared(self._analytic), shared(self._numeric))
        return survey.magnitudes(reach, survey.far_change)


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
            reach=Reach(self.survey),
            tie_sums={},
            certainly_wrong=set(),
        )

    @property
    def columns(self) -> Columns:
        """Those of the point."""
        return self.point.columns

    def outputs(self, noise: Array | None = None) -> Outputs:
        """What is known of the outputs, under this `noise` [M] where it is more."""
        sigma = self.survey.sigma
        return Outputs(
            self.point.f0,
            sigma if noise is None else np.maximum(sigma, noise),
            lambda: self.point.unit,
            rounds_x=not self.columns.rounded,
        )

    def low_precision(self) -> Mask:
        """Outputs [M] that come in, or were seen to be computed in, less than float64; all where an
        input is, or the backward."""
        return (self.point.unit > LOW_UNIT) | (self.point.backward_unit > LOW_UNIT)

    def low_values(self) -> Mask:
        """The same of the finite differences alone: a function that is compared with its float32
        self has them in float64."""
        return (self.point.unit > LOW_UNIT) | self.columns.rounded

    @cached_property
    def quiet(self) -> bool:
        """Is a bar twice as wide as it need be far below the tolerance, and room for a step on
        either side? All is float64, and rounds as it does."""
        point = self.point
        return point.columns.free and not (self.low_values().any() or self.survey.noisy.any())

    def rtols(self) -> Array:
        if self.rtol is not None:
            return np.full(len(self.point.f0), self.rtol)
        return np.where(self.low_precision(), RTOL_LOW, RTOL)

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
        floor = self.floors().take(out) / self.columns.size.take(column)
        # Rows that move and of which nothing was measured
        unproven = np.zeros(len(out), bool)
        if self.survey.some_unmoved:
            tensor = self.columns.tensor[column]
            unproven = (self.survey.unmoved | self.survey.wide)[tensor, out]
            unproven &= self.reach.rows().reach[out] <= 0
        return Tolerances(self.atol, self.rtols()[out], floor, unproven)

    def floors(self) -> Array:
        """The floor times S [M] of each output."""
        return self.reach.floors()

    def zero_tolerance(self, columns: Index, outs: slice) -> Array:
        """The tolerance [n, outs] for a zero in these columns [n, outs], without its relative
        part."""
        size = self.columns.size
        # All of a line in one column: no need to spread it
        scale = size[columns[:, :1]] if columns.strides[1] == 0 else size[columns]
        return self.atol + self.floors()[None, outs] / scale

    @property
    def noise(self) -> Array:
        """The noise [M] of each output at x, at least its rounding."""
        return np.maximum(self.survey.sigma, self.point.unit * np.abs(self.point.f0))

    @cached_property
    def _largest_rounding(self) -> Array:
        """Of numbers that are taken to cancel in each output [M]."""
        typical = float(np.nan_to_num(np.median(np.abs(self.point.x)), nan=1.0, posinf=1.0))
        return LARGEST * self.point.unit * np.maximum(self.survey.size, max(1.0, typical))

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
        """The noise of each output [M] with that of numbers that cancel in it, as measured on
        points far apart along one dense direction: 36 or 72 forward calls more. The most that it
        can be where they show none, or more, which is the shape of f. Points beyond the scale of
        their inputs tell of what the nearer ones do not."""
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

    def by_pair(self, column: Index, out: Index, i: Index) -> Iterator[Index]:
        """Those of elements i that belong to one input and output tensor, pair by pair; `column`,
        `out` [E] of all elements."""
        tensor = self.columns.tensor[column[i]]
        output = np.searchsorted([part.stop for part in self.point.parts], out[i], side="right")
        for t, o in sorted(set(zip(tensor.tolist(), output.tolist(), strict=True))):
            yield i[(tensor == t) & (output == o)]


# ---- Elements of the Jacobian with their analytic values, finite differences, tolerances and
# verdicts
class Decided(NamedTuple):
    """Mismatches `i` that are undecided, `why`, and right where that is NONE; how far their
    derivatives may be off at least [i]."""

    i: Index
    why: Limit | AnyArray
    bar: Array | float = 0.0


@dataclass(frozen=True)
class Judged(Record):
    """Elements with their verdicts [E]; `column` counts through all inputs, `out` through all
    outputs.

    `border_column` [E]: columns along which f ends at x (None: none but what the derivatives say).
    `quick` [E]: settled by the quick rungs (None: none).
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
        """The verdicts [E] that bars wider by so much would give, or other derivatives."""
        return verdicts(
            self.analytic,
            derivative or self.derivative,
            self.tolerances,
            extra=extra,
            border_column=self.border_column,
        )

    @property
    def wrong(self) -> Mask:
        """The mismatches [E]."""
        return np.asarray(self.verdict == MISMATCH)

    def worst_first(self) -> Index:
        """The elements [E] by how many tolerances they are off, those first that are no number."""
        value = self.derivative.value
        miss = np.abs(self.analytic - value) / (
            self.tolerances.tolerance(self.analytic, value) + 1e-300
        )
        return np.argsort(-np.nan_to_num(miss, nan=np.inf), kind="stable")

    def judged_anew(self, **changes: Any) -> Judged:
        """With other analytic values or derivatives; what limits the undecided ones is left out."""
        changed = replace(self, limit=no_limits(len(self.out)), **changes)
        return replace(changed, verdict=changed.verdicts_with())

    def with_limits(self) -> Judged:
        """With what limits the undecided elements, where that is not known yet."""
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
        """With elements i undecided, or right where the reason is NONE; their derivatives are off
        by so much at least."""
        if not len(i):
            return self
        verdict, limit, bars = self.verdict.copy(), self.limit.copy(), self.derivative.bar.copy()
        verdict[i], limit[i] = PASS if why is Limit.NONE else UNDECIDED, why
        bars[i] = np.maximum(bars[i], bar)
        derivative = replace(self.derivative, bar=bars)
        return replace(self, verdict=verdict, limit=limit, derivative=derivative)

    @property
    def is_zero(self) -> Mask:
        """Elements [E] whose derivative is zero, or too small to be told from it."""
        d, nothing = self.derivative, np.zeros(len(self.analytic))
        return d.unchanged | (
            np.abs(d.value) <= self.tolerances.tolerance(nothing, nothing) + d.bar
        )

    def pair_elements(self, top: int, coordinate: Index) -> Entries:
        """These elements, all of one pair; `top` is the first row of its output, `coordinate` [E]
        their place within the input."""
        d = self.derivative
        outcome = self.outcome
        left, right = (np.where(d.outcome == KINK, side, np.nan) for side in (d.left, d.right))
        of_slopes = np.maximum(d.left_bar, d.right_bar)
        bar = np.where(outcome == Outcome.KINK, of_slopes, d.bar)
        tolerance = self.tolerances.tolerance(self.analytic, d.value)
        floor = self.tolerances.floor
        return Entries(
            self.out - top,
            coordinate,
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
    """Elements (column, output) [E] by all that is known now, these derivatives included; what
    limits the undecided ones is left out."""
    run.reach.add(column, out, d.value, d.bar)
    tolerances = run.tolerances(column, out)
    verdict = verdicts(a, d, tolerances, border_column=border_column)
    return Judged(column, out, a, d, tolerances, verdict, no_limits(len(out)), border_column)


def no_limits(m: int) -> AnyArray:
    """That nothing keeps any of m elements from a verdict."""
    return np.broadcast_to(np.array(Limit.NONE, object), m)


# ---- Mismatches confirmed, the worst first: a few columns or rows at a time, until so many stand
# that the rest counts as wrong unasked
# Mismatches that stand, after which the rest counts as wrong, if none was cleared
ENOUGH_CONFIRMED = 3
MOST_COLUMNS = 24  # that are confirmed at most
COLUMNS_AT_ONCE = 3  # columns that are measured together


def enough_confirmed(confirmed: int, cleared: int) -> bool:
    """Are so many mismatches confirmed, and none cleared, that the others need no confirmation?"""
    return confirmed >= ENOUGH_CONFIRMED and not cleared


def columns_at_once(run: Run) -> int:
    """How many columns are measured together: one where the budget does not afford more."""
    return 1 if run.over_budget(COLUMNS_AT_ONCE * EVERY_RUNG) else COLUMNS_AT_ONCE


def worst_first(
    place: Index, order: Index, at_once: int = COLUMNS_AT_ONCE, most: int | None = MOST_COLUMNS
) -> Iterator[Index]:
    """Elements [E] by the column or row that they lie in (`place`), some at a time: first the
    places of the elements that `order` has first."""
    places = list(dict.fromkeys(place[order].tolist()))[:most]
    for n in range(0, len(places), at_once):
        yield np.flatnonzero(np.isin(place, places[n : n + at_once]))


def standing(column: Index, order: Index, stands: Callable[[Index], Mask]) -> Mask:
    """Which of the mismatches [E] stand: `stands` of a few columns, the worst first, and of the
    rest if that is `enough_confirmed`."""
    confirmed, measured = np.zeros((2, len(column)), bool)
    for i in worst_first(column, order):
        confirmed[i], measured[i] = stands(i), True
        count = int(confirmed.sum())
        if count >= ENOUGH_CONFIRMED:
            if enough_confirmed(count, int(measured.sum()) - count):
                return confirmed | ~measured
            return confirmed
    return confirmed


def row_by_row(
    judged: Judged,
    at_once: int,
    excuse_row: Callable[[Index, int], Iterator[Decided]],
    doubtful: Mask | None = None,
) -> Iterator[Decided]:
    """Rows with mismatches that are no kinks, the worst first and so many at once, until a mismatch
    stands that `excuse_row` could not excuse.

    `excuse_row` is given elements of one row. `doubtful` [E]: mismatches that something else may
    still explain, so that they do not keep other rows from being looked at.
    """
    bad = np.flatnonzero(judged.wrong & (judged.derivative.outcome != KINK))
    left = np.ones(len(bad), bool) if doubtful is None else ~doubtful[bad]
    asked = np.zeros(len(bad), bool)
    for n, in_row in enumerate(
        worst_first(judged.out[bad], judged.take(bad).worst_first(), 1, None), 1
    ):
        for found in excuse_row(bad[in_row], int(judged.out[bad[in_row[0]]])):
            left &= ~np.isin(bad, found.i)
            yield found
        asked[in_row] = True
        if n % at_once == 0 and (left & asked).any():
            return


# ---- f on the quick rungs, the first three steps, and derivatives from them alone, which suffice
# for most elements of a smooth function
# Elements of a piece where all is plain: arrays of 64 KiB take a fifth less time an element than
# those of 128 KiB
PLAIN_PIECE = 1 << 13

# Of a slope: what that on one side may still change from rung to rung; one that climbs without
# bound does by a tenth at least
SETTLED = 2.0**-10


@dataclass(frozen=True)
class QuickSamples:
    """f on the quick rungs of a bundle's n lines, up and down along each line [rungs, n, M].

    step_up, step_down [rungs, k]: realised steps, nominal where x is stuck, negative where the line
    moves a column the other way; `place` [n, M or 1]: which of the k an element has.
    """

    bundle: Bundle
    up: Array
    down: Array
    step_up: Array
    step_down: Array
    place: Index
    f0: Array

    @cached_property
    def width(self) -> Array:
        """Of the k pairs of steps [rungs, k]."""
        return self.step_up + self.step_down

    def place_of(self, line: Index, out: Index) -> Index:
        """Which of the k steps elements [E] have."""
        place: Index = self.place[line, out if self.bundle.grouped else 0]
        return place

    def at(self, n: int, line: Index, out: Index) -> Array:
        """Samples [4, E] of the n-th rung for elements, each with its column's own way up."""
        place = self.place_of(line, out)
        up = self.up[n, line, out]
        down = self.down[n, line, out]
        forth = self.step_up[n, place]
        back = self.step_down[n, place]
        turned = forth < 0
        return np.stack(
            [
                np.where(turned, down, up),
                np.where(turned, up, down),
                np.where(turned, -back, forth),
                np.where(turned, -forth, back),
            ]
        )

    def widest(self, outs: slice) -> Array:
        """The larger step of the first rung [n, outs or 1]."""
        widest = np.maximum(np.abs(self.step_up[0]), np.abs(self.step_down[0]))
        return np.asarray(widest[self.place[:, outs if self.bundle.grouped else slice(None)]])

    @cached_property
    def bad(self) -> Mask | None:
        """Rungs without a value on both sides [rungs, n, M]; None where there are none."""
        if np.isfinite(self.up).all() and np.isfinite(self.down).all():
            return None
        return ~(np.isfinite(self.up) & np.isfinite(self.down))

    @cached_property
    def _still(self) -> Mask:
        """Rungs at which f is bitwise f(x) on both sides [rungs, n, M]."""
        return np.asarray((self.up == self.f0) & (self.down == self.f0))

    @property
    def unchanged(self) -> Mask:
        """Elements [n, M] whose output is bitwise f(x) at every rung that has a value, two or
        more."""
        if self.bad is None:
            return np.asarray(self._still.all(0))
        enough = np.sum(~self.bad, 0) >= min(2, len(self.up))
        return np.asarray((self._still | self.bad).all(0) & enough)

    @property
    def masked(self) -> Mask:
        """Elements [n, M] whose output is one and the same infinity everywhere."""
        return np.asarray(np.isinf(self.f0) & self._still.all(0))

    @property
    def at_border(self) -> Mask:
        """Columns [C] along which some output is not finite on both sides; one and the same
        infinity everywhere is taken as finite."""
        border = np.zeros(int(self.bundle.column_of.max(initial=-1)) + 1, bool)
        if self.bad is not None:
            lost = self.bad.any(0) & ~self.masked
            border[self.bundle.column_of[lost & self.bundle.in_pattern]] = True
        return border

    def growing(self, n: int) -> Index:
        """The outputs whose slopes along line n, on a side, grow from rung to rung: finer ones tell
        whether they end."""
        out = np.arange(len(self.f0))
        slopes = np.abs(self._slopes(np.full_like(out, n), out))
        grow = (slopes[:, 1:] > GROWTH * slopes[:, :-1]).all(1)
        return np.flatnonzero(grow.any(0) & np.isfinite(self.f0))

    def settles(self, line: Index, out: Index) -> Mask:
        """Elements [k] with a slope on one side at least that does not grow: f does not end there,
        nor climb without bound on both sides."""
        if len(self.up) < 2:  # f is linear in these columns
            return np.zeros(len(line), bool)
        slopes = self._slopes(line, out)
        settles = np.abs(slopes[:, -1] - slopes[:, -2]) <= SETTLED * np.abs(slopes[:, -1])
        return np.asarray(settles.any(0))

    def _slopes(self, line: Index, out: Index) -> Array:
        """Of elements [k], above and below x [2, rungs, k]."""
        place = self.place_of(line, out)
        change = np.array([self.up[:, line, out], self.down[:, line, out]]) - self.f0[out]
        return np.asarray(change / np.array([self.step_up[:, place], self.step_down[:, place]]))

    def strays(self, outs: slice, sigma: Array) -> Mask:
        """Elements [n, outs] off the pattern that move all the same, beyond the noise of f: the
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
    """Two forward calls a line and rung; one where only the samples `above` x are taken, with f(x)
    below."""
    if bundle.grouped:
        return _of_groups(point, bundle, rungs, above)
    n, m = len(bundle.lines), len(point.f0)
    up, down = np.full((2, len(rungs), n, m), np.nan)
    step_up, step_down = np.empty((2, len(rungs), n))
    for i, line in enumerate(bundle.lines):
        for r, k in enumerate(rungs):
            samples = one_side(line, k, point.f0) if above else sample_rung(line, k)
            if samples is None:
                step_up[r, i] = step_down[r, i] = step(1.0, k) * line.size
            else:
                up[r, i], down[r, i], step_up[r, i], step_down[r, i] = samples
    return QuickSamples(bundle, up, down, step_up, step_down, np.arange(n)[:, None], point.f0)


def _of_groups(point: Point, bundle: Bundle, rungs: Sequence[int], above: bool) -> QuickSamples:
    """Of lines that share no column and move theirs alike: steps are kept by column, and a last one
    for outputs off the pattern."""
    n = len(bundle.lines)
    m = len(point.f0)
    c = len(point.columns)
    r = len(rungs)
    t = np.array(
        [sign * step(1.0, k) for sign in ((1.0,) if above else (1.0, -1.0)) for k in rungs]
    )
    f = np.empty((len(t), n, m))
    change = np.empty((len(t), c + 1))
    first = 0
    change[:, c] = t
    lines = [line for line in bundle.lines if isinstance(line, GroupLine)]
    columns = joined_arrays([line.columns for line in lines])
    moved = in_a_row(columns)
    to, change[:, moved], stuck = steps(
        point, columns, point.columns.x[moved], lines[0].move[moved], t
    )
    for i, line in enumerate(lines):
        span = slice(first, first + len(line.columns))
        for k in range(len(t)):
            f[k, i] = line.values(to[k, span], stuck[k, span])
        first = span.stop
    place = np.where(bundle.in_pattern, bundle.column_of, c)
    down, back = (
        (np.broadcast_to(point.f0, f.shape), np.zeros_like(change))
        if above
        else (f[r:], -change[r:])
    )
    return QuickSamples(bundle, f[:r], down, change[:r], back, place, point.f0)


def linear_derivatives(s: QuickSamples, run: Run, cells: Cells) -> Derivative:
    """Derivatives [E] where f is linear: the wider the step, the better."""
    up, down, step_up, step_down = s.at(0, cells.line, cells.out)
    f0, sigma, unit = (
        values.take(cells.out) for values in (s.f0, run.survey.sigma, run.point.unit)
    )
    rounding_of_x = None if run.columns.rounded else np.abs(run.columns.x.take(cells.column))
    found = secant(up, down, step_up + step_down, f0, sigma, unit, rounding_of_x)
    bad = ~(np.isfinite(up) & np.isfinite(down))
    return replace(
        found,
        value=np.where(bad, 0.0, found.value),
        bar=np.where(bad, np.inf, found.bar),
        unclear=bad,
        unchanged=(up == f0) & (down == f0),
    )


def plain_derivatives(s: QuickSamples, run: Run, cells: Cells) -> tuple[Derivative, Index]:
    """Derivatives [E] where nothing is hard, and which of the elements are: theirs are void."""
    sigma, unit = run.survey.sigma, run.point.unit
    parts = []
    for first in range(0, len(cells.out), PLAIN_PIECE) or [0]:
        of_piece = cells.take(slice(first, first + PLAIN_PIECE))
        i, j = of_piece.line, of_piece.out
        width = s.width.take(s.place_of(i, j), 1)
        parts.append(
            smooth_estimate(s.up[:, i, j], s.down[:, i, j], width, s.f0[j], sigma[j], unit[j])
        )
    found, low = joined(parts), unit > LOW_UNIT
    hard = found.unclear
    if not run.columns.rounded:
        hard = hard | low[cells.out]
    return found, np.flatnonzero(hard)


# ---- Elements measured at every step, each by moving its column alone
def lone_derivatives(run: Run, column: Index, out: Index, noise: Array | None = None) -> Derivative:
    """Derivatives of elements (column, output) [E] in any order, the column of each on a line of
    its own, at every step: 48 forward calls a column. Under this `noise` [M] of the outputs where
    it is more than what was measured.

    Outputs that only move beyond the column's own scale (`Survey.wide`) are measured by steps of at
    least unit scale.
    """
    wide = run.survey.wide[run.columns.tensor[column], out]
    order = np.lexsort((out, column, wide))
    parts = list[Derivative]()
    for is_wide in (False, True):
        i = order[wide[order] == is_wide]
        if i.size:
            columns, line = np.unique(column[i], return_inverse=True)
            lines = lone_columns(run.point, columns, is_wide).lines
            ladders = Ladders(lines, run.outputs(noise), line, out[i])
            parts.append(ladders.every_rung())
    return joined(parts).take(np.argsort(order))
