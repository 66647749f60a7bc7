"""The elements of a Jacobian, some lines at a time: finite differences along each line against the analytic values of the columns that it shows.

A line moves a column by itself, or a group of columns that no output shares; a column by itself is a group of one. What differs between the two is
only how a mismatch is confirmed and what else is learnt of the group: that is the `LineSource`' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gradverify.numerics.columns.bundle import Bundle
from gradverify.numerics.columns.chunk import Chunk, ChunkResult
from gradverify.numerics.columns.judged import Judged
from gradverify.numerics.columns.opinions import second_opinions
from gradverify.numerics.columns.run import Run
from gradverify.numerics.columns.sums import AliasSums
from gradverify.numerics.columns.tally import Tally
from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import Array, Index, Mask


class LineSource(Protocol):
    """Where lines come from, and who has the last word on what they show."""

    def confirmed(self, result: ChunkResult) -> Judged | None:
        """The elements, with mismatches that stand; None where the lines are not what they were taken for."""
        ...

    def hold(self, result: ChunkResult, judged: Judged) -> bool:
        """Are the lines what they were taken for, by all that these elements show?"""
        ...

    def entry(self, column: int, output: int) -> float:
        """The analytic value of one element."""
        ...


@dataclass(frozen=True)
class LoneColumns:
    """Columns by themselves [n], with their analytic values [n, M] from one-hot rows: a chunk has confirmed its mismatches already."""

    point: Point
    columns: Index
    a: Array

    def confirmed(self, result: ChunkResult) -> Judged:
        return result.judged

    def hold(self, result: ChunkResult, judged: Judged) -> bool:
        return True

    def entry(self, column: int, output: int) -> float:
        place = int(np.searchsorted(self.columns, column))
        inside = place < len(self.columns) and self.columns[place] == column
        return float(self.a[place, output] if inside else self.point.row(output)[column])


class Walk:
    """One sweep over all elements, which are added to `tallies` by (input, output).

    `suspects` [M]: outputs whose quick rungs are known to alias; `missed` [M]: those that turn out to, too late to have been treated so.
    """

    def __init__(self, run: Run, tallies: Mapping[tuple[int, int], Tally], suspects: Mask) -> None:
        self.run, self.tallies, self.suspects = run, tallies, suspects
        self.missed, self._sums = np.zeros_like(suspects), AliasSums(run.point, run.survey)

    def judge(self, lines: LineSource, bundle: Bundle, a: Array, whole: bool) -> bool:
        """The lines of a bundle of n against analytic values a [n, M]; False where they are not what they were taken for.

        `whole`: all columns of their tensors are in them, so that an alias is seen before anything is judged.
        """
        chunk = Chunk(self.run, bundle, a)
        for result in chunk.judge(self._sums, self.suspects):
            if not whole or result.outs.start > 0:
                self.missed |= result.suspects & ~self.suspects
            judged = lines.confirmed(result)
            if judged is None:
                return False
            judged, at_fault = second_opinions(self.run, judged, lambda own: chunk.border[own.column], lines.entry)
            self._add(chunk, result, judged, at_fault)
            if not lines.hold(result, judged):
                return False
        return True

    def _add(self, chunk: Chunk, result: ChunkResult, judged: Judged, at_fault: Mapping[int, float]) -> None:
        point, lines = self.run.point, chunk.bundle.tensor
        for tensor in dict.fromkeys(lines.tolist()):
            rows = np.flatnonzero(lines == tensor)
            alone = len(rows) == len(lines)
            for output, part in enumerate(point.parts):
                tally = self.tallies[tensor, output]
                result.add_zeros(tally, chunk.a, slice(int(rows[0]), int(rows[-1]) + 1), part)
                own, quick = judged, result.quick
                if not (alone and part == slice(0, len(point.f0))):
                    inside = (judged.out >= part.start) & (judged.out < part.stop)
                    i = np.flatnonzero(inside if alone else inside & (point.columns.tensor[judged.column] == tensor))
                    own, quick = judged.take(i), quick[i]
                coordinate = point.columns.coordinate.take(own.column) - point.starts[tensor]
                tally.add(own.compared(part.start, coordinate), int(np.count_nonzero(quick)))
                tally.backward_unit = max([tally.backward_unit, *(x for j, x in at_fault.items() if part.start <= j < part.stop)])
