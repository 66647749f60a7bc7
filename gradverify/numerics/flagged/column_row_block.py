"""Flagged columns, rows and blocks of the Jacobian: which entries each has, and which of them to suspect first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from gradverify.numerics.costs import Mode
from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.entries.leaks import moving_column
from gradverify.numerics.flagged.localise import Place, Suspects, localise, localise_column
from gradverify.numerics.judging.bundle import GroupLine
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.rungs import Index
from gradverify.numerics.sparsity.colouring import column_groups
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, row_groups
from gradverify.numerics.structure import Plan

MOST = 12  # lines of a pair that are followed


class FlaggedBlocks:
    """The flagged blocks of one screened (input tensor, output tensor) pair, its "lines", by number as in `Screened`; below, its columns and rows.

    `pattern`: which entries there are. `by_column`: a line is one column, whose entries take as many backwards as there are row groups.
    """

    by_column: ClassVar[bool] = False

    def __init__(self, run: Run, plan: Plan | None, pattern: Pattern, pair: Screened) -> None:
        self.run, self.plan, self.pattern, self.pair, self.part = run, plan, pattern, pair, run.point.parts[pair.output]
        self.place = Place.of(SurveyedPoint(run.point, run.survey), pair.input, pair.output, pattern)

    @property
    def groups(self) -> tuple[int, int]:
        """Column groups and row groups that the comparison walked."""
        return 0, 0

    def blocks(self, lines: Index) -> Index:
        """The independent blocks that lines lie in."""
        return lines

    def block(self, line: int) -> int:
        """The independent block that a line lies in."""
        return int(self.blocks(np.array([line]))[0])

    def block_of(self, out: int) -> int:
        """The independent block of an output."""
        return int(self.pattern.block_of_outputs()[out - self.part.start])

    def single(self, line: int) -> bool:
        """Is the line's block a single entry?"""
        return self.pattern.size == self.pattern.blocks and len(FlaggedBlocks.outputs(self, self.block(line))) == 1

    def wrong_line(self, column: int, out: int, flagged: int | None) -> int:
        """The line that is wrong where this entry is: the flagged one, or, where that is none (a stray), the entry's own."""
        return self.block_of(out) if flagged is None else flagged

    # ---- a line's entries
    def suspects(self, line: int, brief: bool) -> Suspects:
        """An entry of the line to measure first."""
        return localise(self.place, line, brief=brief)

    def behind_stray(self, group: int, line: int) -> Suspects:
        """The entry behind a stray of this group."""
        if group == 0:
            return localise_column(self.place, line, group)
        return localise(self.place, self.block_of(line))

    def columns(self, line: int) -> Index:
        """The columns of the line's block; none of what depends on nothing."""
        first, block = int(self.run.point.columns.of(self.pair.input)[0]), self.block(line)
        return first + np.flatnonzero(self.pattern.block_of_inputs() == block) if block != NO_ENTRY else np.zeros(0, np.intp)

    def outputs(self, line: int) -> Index:
        """The outputs of the line's entries."""
        return self.part.start + np.flatnonzero(self.pattern.block_of_outputs() == line)

    def entries(self, line: int, columns: Index) -> Judged:
        """The line's entries in these columns, each measured alone."""
        outputs = self.outputs(line)
        return measured_alone(self.run, np.repeat(columns, len(outputs)), np.tile(outputs, len(columns)))


class FlaggedColumns(FlaggedBlocks):
    """The same of columns."""

    by_column = True

    @property
    def groups(self) -> tuple[int, int]:
        return column_groups([self.pattern]).count, 0

    def blocks(self, lines: Index) -> Index:
        point = self.run.point
        return np.asarray(self.pattern.block_of_inputs()[point.columns.coordinate[lines] - point.starts[self.pair.input]])

    def wrong_line(self, column: int, out: int, flagged: int | None) -> int:
        return column if flagged is None else flagged

    def suspects(self, line: int, brief: bool) -> Suspects:
        return localise_column(self.place, line, brief=brief)

    def behind_stray(self, group: int, line: int) -> Suspects:
        group_line = self.plan.grouping.bundle(self.run.point, group, 1).lines[0] if self.plan else None
        column = moving_column(self.run, group_line, line) if isinstance(group_line, GroupLine) else None
        return super().behind_stray(NO_ENTRY, line) if column is None else Suspects(np.array([column]), np.array([line]))


class FlaggedRows(FlaggedBlocks):
    """The same of rows, by their outputs: rows share backwards, so that what is wrong of one is seen in another."""

    def __init__(self, run: Run, plan: Plan | None, pattern: Pattern, pair: Screened) -> None:
        super().__init__(run, plan, pattern, pair)
        self._judged: dict[int, Judged] = {}

    @property
    def groups(self) -> tuple[int, int]:
        return 0, row_groups(self.pattern).count

    def blocks(self, lines: Index) -> Index:
        return self.pattern.block_of_outputs()[lines - self.part.start]

    def wrong_line(self, column: int, out: int, flagged: int | None) -> int:
        return out

    def suspects(self, line: int, brief: bool) -> Suspects:
        return localise(self.place, self.block(line), row=line, brief=brief)

    def behind_stray(self, group: int, line: int) -> Suspects:
        return localise_column(self.place, line, group)

    def outputs(self, line: int) -> Index:
        return np.array([line])

    def entries(self, line: int, columns: Index) -> Judged:
        """The flagged rows of one block together: a column's calls tell of all of them."""
        if line not in self._judged:
            rows = self.pair.flagged[self.blocks(self.pair.flagged) == self.block(line)][:MOST]
            rows = rows if line in rows else np.array([line])
            judged = measured_alone(self.run, np.repeat(columns, len(rows)), np.tile(rows, len(columns)))
            self._judged |= {row: judged.take(np.flatnonzero(judged.out == row)) for row in rows.tolist()}
        return self._judged[line]


BY_MODE: dict[Mode, type[FlaggedBlocks]] = {Mode.COLUMNS: FlaggedColumns, Mode.ROWS: FlaggedRows, Mode.BLOCKS: FlaggedBlocks}
