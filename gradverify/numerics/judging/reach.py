"""How far each output was seen to go: the largest |a|·s and |D|·s of its row, on which its floor rests."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.function.point import Point
from gradverify.numerics.judging.cells import Cells
from gradverify.numerics.rungs import RESOLVED, VISIBLE, Array, Index, finite_size
from gradverify.numerics.survey import Survey
from gradverify.numerics.tolerance import Magnitudes, floors, stands_out


class Reach:
    """The largest |a|·s and resolved |D|·s of each output [M] so far; re and im of one number share theirs."""

    def __init__(self, point: Point) -> None:
        self._point = point
        self._analytic, self._numeric = np.zeros(len(point.f0)), np.zeros(len(point.f0))
        self._floors: Array | None = None

    def add_row(self, output: int, row: Array) -> None:
        sizes = np.nan_to_num(np.abs(row) * self._point.columns.scale, posinf=0.0)
        self._raise(self._analytic, np.array([output]), sizes.max(initial=0.0, keepdims=True))

    def add_entries(self, output: Index | slice, column: Index | slice, value: Array) -> None:
        """Analytic values of some elements; `column` may lack leading axes."""
        sizes = np.abs(value) * self._point.columns.scale[column]
        if not sizes.max(initial=0.0) < np.inf:
            sizes = np.where(sizes < np.inf, sizes, 0.0)
        self._raise(self._analytic, output, sizes)

    def add_runs(self, rows: Index, columns: slice, value: Array) -> None:
        """Analytic values of different rows [k, width], whose runs follow each other in the columns, again and again."""
        sizes = finite_size(value).reshape(-1, columns.stop - columns.start) * self._point.columns.scale[columns]
        self._raise(self._analytic, rows, sizes.reshape(value.shape).max(1))

    def add(self, column: Index, out: Index, value: Array, bar: Array) -> None:
        """Derivatives of elements [E]."""
        self._raise(self._numeric, out, _resolved(value, bar, self._point.columns.scale.take(column)))

    def add_cells(self, cells: Cells, value: Array, bar: Array) -> None:
        """Derivatives of the elements of a chunk."""
        sizes = _resolved(value, bar, cells.by_column(self._point.columns.scale))
        if cells.block is None:
            self._raise(self._numeric, cells.out, sizes)
        else:
            self._raise(self._numeric, cells.block, sizes.reshape(cells.lines, -1).max(0) if cells.lines > 1 else sizes)

    def add_secant(self, columns: Index, moved_by: Array, change: Array, noise: Array) -> None:
        """What outputs are surely changed by [M] when all these columns move: at least a typical entry of their rows."""
        steps = np.abs(moved_by) / self._point.columns.scale[columns]
        sizes = np.abs(change) / (steps.max(initial=0.0) * np.sqrt(max(len(columns), 1)) + 1e-300)
        sure = np.flatnonzero(np.isfinite(change) & (np.abs(change) > VISIBLE * noise))
        self._raise(self._analytic, sure, sizes[sure])

    def _raise(self, reach: Array, output: Index | slice, sizes: Array) -> None:
        if isinstance(output, slice):
            of_outputs = reach[output]
            if (sizes > of_outputs).any():
                np.maximum(of_outputs, sizes, out=of_outputs)
                self._floors = None
            return
        larger = sizes > reach.take(output)
        count = np.count_nonzero(larger)
        if not count:
            return
        if count < larger.size:
            raised = np.flatnonzero(larger)
            output, sizes = output.reshape(-1)[raised], sizes.reshape(-1)[raised]
        np.maximum.at(reach, output.reshape(-1), sizes.reshape(-1))  # of one axis: ten times as fast as of two
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
        return Magnitudes(np.maximum(analytic, numeric), survey.size, survey.sigma, self._point.parts, x_size, self._point.unit,
                          self._point.backward_unit, survey.far_change)


def _resolved(value: Array, bar: Array, scale: Array) -> Array:
    """|D|·s [E] of derivatives that stand out of their bars; 0 of others."""
    size = np.abs(value)
    return np.where((size > RESOLVED * bar) & (size < np.inf), size * scale, 0.0)
