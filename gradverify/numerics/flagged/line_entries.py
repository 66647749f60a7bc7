"""The entries of a flagged column, row or block as they are judged: those that are suspected first, then all where they are few."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.entries.chunk import Chunk
from gradverify.numerics.entries.compressed import Compressed
from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.entries.consistency import AliasSums
from gradverify.numerics.flagged.column_row_block import FlaggedBlocks
from gradverify.numerics.flagged.localise import Suspects
from gradverify.numerics.judging.bundle import lone_columns
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Array, Index, in_range
from gradverify.numerics.structure import Structure
from gradverify.numerics.verdict import Verdict

ROWS, ROWS_LEFT = 1024, 16  # backwards that the entries of flagged columns may take; where nothing is left of the budget
SEARCH = 60  # forward calls that it may take to find an entry of a line
FEW = 4  # entries of a line that are measured alone though its structure is a guess
ONE_BY_ONE = 64  # entries of a line that are measured alone


class LineEntries:
    """Entries of flagged lines. `weights` [M]: cotangents of compressed VJPs."""

    def __init__(self, run: Run, structure: Structure, weights: Array) -> None:
        self.run, self.structure, self.weights = run, structure, weights

    def judged(self, lines: FlaggedBlocks, line: int) -> Judged | None:
        """Entries that tell whether the line is right; None where it would take too many."""
        suspects = self._measured_suspects(lines.suspects(line, self.run.over_budget(SEARCH)))
        if suspects is not None and (suspects.verdict == Verdict.MISMATCH).any():
            return suspects
        if suspects is not None and (lines.by_column or suspects.derivative.rough) and lines.single(line):  # a kink explains the flag
            return suspects
        return self._of_column(lines, line) if lines.by_column else self._of_row_or_block(lines, line)

    def behind_stray(self, lines: FlaggedBlocks, group: int, line: int) -> Judged | None:
        """The entry behind an output that moved, or a column that was pulled back, though the structure has no such entry; None: not found."""
        entries = self._measured_suspects(lines.behind_stray(group, line))
        return entries if entries is None or (entries.verdict != Verdict.PASS).any() or entries.is_zero.all() else None

    def _measured_suspects(self, suspects: Suspects) -> Judged | None:
        if not len(suspects.columns) or not len(suspects.outputs):
            return None
        return measured_alone(self.run, np.repeat(suspects.columns[:1], len(suspects.outputs)), suspects.outputs)

    def _of_column(self, lines: FlaggedBlocks, column: int) -> Judged | None:
        """All entries of a column, where few enough backwards tell them; those alone that do not pass, if any."""
        plan, part = lines.plan, lines.part
        backwards = sum(rows.count for rows in plan.rows) if plan else part.stop - part.start
        if backwards > (ROWS_LEFT if self.run.over_budget() else ROWS):
            return None
        moved, none_aliases = np.array([column]), np.zeros(len(self.run.point.f0), bool)
        a = Compressed(self.run, [plan], self.weights).of_columns(plan, moved) if plan else self._row_by_row(part, column)
        results = Chunk(self.run, lone_columns(self.run.point, moved), a).judge(AliasSums(self.run.point, self.run.survey), none_aliases)
        of_pair = [r.judged.take(np.flatnonzero(in_range(r.judged.out, part))) for r in results]
        for judged in of_pair:
            open_: Index = np.flatnonzero(judged.verdict != Verdict.PASS)[:ONE_BY_ONE]
            if open_.size:
                return measured_alone(self.run, judged.column[open_], judged.out[open_])
        return of_pair[0]

    def _row_by_row(self, part: slice, column: int) -> Array:
        """The analytic values [1, M] of a column in one output tensor, a backward each; 0 in others."""
        point = self.run.point
        return np.array([[point.row(j)[column] if part.start <= j < part.stop else 0.0 for j in range(len(point.f0))]])

    def _of_row_or_block(self, lines: FlaggedBlocks, line: int) -> Judged | None:
        """All entries of a row or a block, where they are few.

        Of a structure that is a guess: only a FEW, and only if a kink among them explains the flag. Else the structure is looked at first.
        """
        tensor = lines.pair.input
        if lines.pattern.size != len(self.run.point.columns.of(tensor)):
            return None
        columns, outputs = lines.columns(line), lines.outputs(line)
        guessed = lines.plan is not None and not self.structure.level[tensor]
        if not 0 < len(columns) * len(outputs) <= (FEW if guessed else ONE_BY_ONE) or (len(columns) > 1 and self.run.over_budget()):
            return None
        entries = lines.entries(line, columns)
        return None if guessed and not entries.derivative.rough else entries
