"""f along a line x + t·d, which moves one input element, a group of them or all, and its values at x ± h·d.

The lines themselves are in `function/point_lines.py`, and those of colour groups in `judging/bundle.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from gradverify.numerics.rungs import Array, Index, step


class Line(Protocol):
    """f along x + t·d. `scale`: the natural size of t. `size`, `magnitude`: that size and |x| as the realised change measures them.

    Where a line moves several columns, each output has its own: `size`, `magnitude` and the realised change are then arrays [M].
    """

    @property
    def scale(self) -> float: ...

    @property
    def size(self) -> float | Array: ...

    @property
    def magnitude(self) -> float | Array: ...

    def at(self, t: float) -> tuple[Array, float | Array] | None:
        """f [M] (NaN where it has no value: exceptions, outside the domain) and the change that rounding left; None where x does not move."""
        ...


@dataclass(frozen=True)
class Selected:
    """Some outputs of any other line."""

    line: Line
    out: Index

    @property
    def scale(self) -> float:
        return self.line.scale

    @property
    def size(self) -> float | Array:
        return self._of_out(self.line.size)

    @property
    def magnitude(self) -> float | Array:
        return self._of_out(self.line.magnitude)

    def at(self, t: float) -> tuple[Array, float | Array] | None:
        side = self.line.at(t)
        return side if side is None else (side[0].take(self.out), self._of_out(side[1]))

    def _of_out(self, values: float | Array) -> float | Array:
        return values if isinstance(values, float) else values.take(self.out)


def selected(line: Line, out: Index) -> Line:
    """The line with these outputs alone: its own, `of(out)`, where it has one that has less to do for some outputs."""
    part: Line = line.of(out) if hasattr(line, "of") else Selected(line, out)
    return part


class Rung(NamedTuple):
    """f [M] above and below x, and the realised steps: one number, or one per output."""

    up: Array
    down: Array
    step_up: float | Array
    step_down: float | Array


def one_side(line: Line, k: int, f0: Array) -> Rung | None:
    """The upper sample of one rung, one call, with f(x) [M] for the lower one; None where x does not move."""
    h = step(line.scale, k)
    up = line.at(h) if math.isfinite(h) else None
    return None if up is None else Rung(up[0], f0, up[1], 0.0)


def sample_rung(line: Line, k: int) -> Rung | None:
    """The samples of one rung, two calls; None where x does not move on both sides."""
    h = step(line.scale, k)
    up = line.at(h) if math.isfinite(h) else None
    down = line.at(-h) if up is not None else None
    if up is None or down is None:
        return None
    if isinstance(up[1], float) or not (up[1] < 0).any():
        return Rung(up[0], down[0], up[1], -down[1])
    back = up[1] < 0  # columns that this line moves the other way
    return Rung(*(np.where(back, other, one) for one, other in
                  ((up[0], down[0]), (down[0], up[0]), (up[1], down[1]), (-down[1], -up[1]))))
