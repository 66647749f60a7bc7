"""Lines through x that move one input coordinate, or a colour group of coordinates that no output
shares; and whose derivative each output shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gradverify.numerics.estimate.samples import Line
from gradverify.numerics.function.point import Point, element_line
from gradverify.numerics.rungs import Array, Index, Mask, in_a_row
from gradverify.numerics.sparsity.pattern import NO_ENTRY, ColumnGroups, Pattern, RowGroups


# ---- bundle
@dataclass(frozen=True)
class GroupLine:
    """Several columns moved together: t moves column c by t·move[c]. `column_of` [M]: the column
    whose derivative each output shows, or NO_ENTRY.

    What leaves its domain or does not move stays where it is, and its outputs have no value (NaN)
    there. `out`: the outputs that the line shows, those of `column_of`; None: all.
    """

    point: Point
    columns: Index
    move: Array
    column_of: Index
    scale: float = 1.0
    out: Index | None = None

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
    def whole(self) -> bool:
        """Every output shows one of the columns."""
        return bool(self.in_pattern.all())

    @cached_property
    def place(self) -> Index:
        """Where in `columns` the column of each output is [M]; any place where it shows none."""
        return np.minimum(np.searchsorted(self.columns, self.column_of), len(self.columns) - 1)

    @cached_property
    def _start(self) -> tuple[Array, Array]:
        """x and move of the columns."""
        place = in_a_row(self.columns)
        return self.point.columns.x[place], self.move[place]

    def values(self, to: Array, stuck: Mask | None, lent: bool = False) -> Array:
        """f [M] with the columns there [k]; NaN for the outputs of those that are `stuck` [k].
        `lent`: as `Point.within` has it."""
        f = (
            self.point.values_inside(self.columns, to, lent)
            if stuck is None
            else self.point.values_at(self.columns, to)
        )
        f = f if self.out is None else f.take(self.out)
        return f if stuck is None else np.where(self.in_pattern & stuck[self.place], np.nan, f)

    def at(self, t: float) -> tuple[Array, Array]:
        to, change, stuck = steps(self.point, self.columns, *self._start, np.array([t]))
        by = change[0].take(self.place)
        return self.values(
            to[0], stuck if stuck is None else stuck[0]
        ), by if self.whole else np.where(self.in_pattern, by, t)

    def of(self, out: Index) -> GroupLine:
        return replace(
            self, column_of=self.column_of[out], out=out if self.out is None else self.out[out]
        )


def steps(
    point: Point, columns: Index, x: Array, move: Array, t: Array
) -> tuple[Array, Array, Mask | None]:
    """x of columns [k] after steps t [r], its realised change, nominal for those that are stuck,
    and which are (None: none) [r, k] each."""
    c, by = point.columns, t[:, None] * move
    to = c.cast(x + by, columns)
    change = to - x
    free = np.isfinite(change) & (change != 0)
    if not c.free:
        free &= (to >= c.low[columns]) & (to <= c.high[columns])
    if free.all():
        return to, change, None
    return np.where(free, to, x), np.where(free, change, by), ~free


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

    @cached_property
    def columns(self) -> Index:
        """All columns of all lines."""
        columns = [
            line.columns if isinstance(line, GroupLine) else self.column_of[n, :1]
            for n, line in enumerate(self.lines)
        ]
        return columns[0] if len(columns) == 1 else np.concatenate([*columns, np.zeros(0, np.intp)])


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


def widened(bundle: Bundle, point: Point) -> Bundle:
    """The same lines with at least unit scale, for what does not move nearer."""

    def wide(n: int, line: Line) -> Line:
        if not isinstance(line, GroupLine):
            return element_line(point, int(bundle.column_of[n, 0]), wide=True)
        scale = point.columns.scale
        return replace(line, move=line.move / scale * np.maximum(scale, 1.0))

    return replace(bundle, lines=[wide(n, line) for n, line in enumerate(bundle.lines)])


# ---- Elements of the Jacobian as flat index arrays: the line, output and column of each; and
# gathers of what is known by line, output or column
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class Cells:
    """Elements [E] of a bundle by `line` and `out`put, ascending; `column`: whose derivative each
    shows."""

    bundle: Bundle
    line: Index
    out: Index

    def __len__(self) -> int:
        return len(self.out)

    @cached_property
    def column(self) -> Index:
        return self.by_line_and_output(self.bundle.column_of)

    def by_line_and_output(self, values: NDArray[T]) -> NDArray[T]:
        """What is known by line and output [n, M], by element [E]."""
        return values[self.line, self.out]

    def take(self, i: Index) -> Cells:
        """Elements i (ascending)."""
        return self if len(i) == len(self.out) else Cells(self.bundle, self.line[i], self.out[i])


def cells_where(bundle: Bundle, mask: Mask, first: int) -> Cells:
    """The elements of a bundle where the mask [n, outs], of outputs from the `first` on, is
    true."""
    # To find nothing takes NumPy as long as to find much
    line, out = np.nonzero(mask) if mask.any() else np.zeros((2, 0), np.intp)
    return Cells(bundle, line, out + first)
