"""Lines through the inputs of a function of tensors: one real coordinate by itself, or several moved together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import Array, Index, in_a_row, pieces, piecewise


@dataclass(frozen=True)
class ElementLine:
    """The line of one column: t is the change of x, `scale` may be raised above |x|."""

    point: Point
    column: int
    scale: float
    magnitude: float

    @property
    def size(self) -> float:
        return self.scale

    @cached_property
    def _start(self) -> tuple[Index, float, bool]:
        """The column, its x, and whether it holds less than float64."""
        c = self.point.columns
        return np.array([self.column]), float(c.x[self.column]), bool(c.single[self.column])

    def at(self, t: float) -> tuple[Array, float] | None:
        columns, x, single = self._start
        to = float(np.float32(x + t)) if single else x + t
        return None if to == x or not math.isfinite(to) else (self.point.values_at(columns, np.array([to])), to - x)


def element_line(point: Point, column: int, wide: bool = False) -> ElementLine:
    """The line of one column; `wide`: at least unit scale, for what does not move nearer."""
    x, scale = float(point.columns.x[column]), float(point.columns.scale[column])
    return ElementLine(point, column, max(scale, 1.0) if wide else scale, abs(x))


@dataclass(frozen=True)
class DirectionLine:
    """Several columns moved together: x + t·direction. The realised t is the projection of the realised change on the direction.

    `direction` [k] should have the columns' own scales in it, so that t = 1 is their natural size.
    """

    point: Point
    columns: Index
    direction: Array
    scale: float = 1.0
    magnitude: float = 1.0

    @property
    def size(self) -> float:
        return self.scale

    @cached_property
    def _projection(self) -> tuple[Array, Array, float]:
        """x and scale [k] of the columns, and what the direction projects to."""
        moved = in_a_row(self.columns)
        x, scale = self.point.columns.x[moved], self.point.columns.scale[moved]
        with np.errstate(all="ignore"):     # squares of denormal numbers: nothing moves then
            return x, scale, sum(float(self.direction[part] @ (self.direction[part] / scale[part] ** 2)) for part in pieces(len(x)))

    def at(self, t: float) -> tuple[Array, float] | None:
        x, scale, whole = self._projection
        to = self.point.columns.cast(piecewise(lambda x, direction: x + t * direction, x, self.direction), self.columns)
        with np.errstate(all="ignore"):
            projected = sum(float((to[part] - x[part]) @ (self.direction[part] / scale[part] ** 2)) for part in pieces(len(x)))
            by = projected / whole if whole else 0.0
        if by == 0 or not math.isfinite(by):    # nothing moves, or not to a finite number
            return None
        return self.point.values_at(self.columns, to), by
