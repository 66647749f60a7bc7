"""Flagged rows and blocks of the Jacobian: which entries each has, and which of them to suspect first."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.costs import Mode
from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.flagged.localise import Place, Suspects, localise, localise_column
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.rungs import Index
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, row_groups

MOST = 12  # lines of a pair that are followed


class FlaggedBlocks:
    """The flagged blocks of one screened (input tensor, output tensor) pair, its "lines", by number as in `Screened`; below, its columns and rows.

    `pattern`: which entries there are.
    """

    def __init__(self, run: Run, pattern: Pattern, pair: Screened) -> None:
        self.run, self.pattern, self.pair, self.part = run, pattern, pair, run.point.parts[pair.output]
        self.place = Place.of(SurveyedPoint(run.point, run.survey), pair.input, pair.output, pattern)

    @property
    def row_groups(self) -> int:
        """Row groups that the comparison walked."""
        return 0

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


class FlaggedRows(FlaggedBlocks):
    """The same of rows, by their outputs: rows share backwards, so that what is wrong of one is seen in another."""

    def __init__(self, run: Run, pattern: Pattern, pair: Screened) -> None:
        super().__init__(run, pattern, pair)
        self._judged: dict[int, Judged] = {}

    @property
    def row_groups(self) -> int:
        return row_groups(self.pattern).count

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


BY_MODE: dict[Mode, type[FlaggedBlocks]] = {Mode.ROWS: FlaggedRows, Mode.BLOCKS: FlaggedBlocks}
