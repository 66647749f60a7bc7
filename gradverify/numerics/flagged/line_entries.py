"""The entries of a flagged row or block as they are judged: those that are suspected first, then all where they are few."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.flagged.column_row_block import FlaggedBlocks
from gradverify.numerics.flagged.localise import Suspects
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.structure import Structure
from gradverify.numerics.verdict import Verdict

SEARCH = 60  # forward calls that it may take to find an entry of a line
FEW = 4  # entries of a line that are measured alone though its structure is a guess
ONE_BY_ONE = 64  # entries of a line that are measured alone


class LineEntries:
    """Entries of flagged lines."""

    def __init__(self, run: Run, structure: Structure) -> None:
        self.run, self.structure = run, structure

    def judged(self, lines: FlaggedBlocks, line: int) -> Judged | None:
        """Entries that tell whether the line is right; None where it would take too many."""
        suspects = self._measured_suspects(lines.suspects(line, self.run.over_budget(SEARCH)))
        if suspects is not None and (suspects.verdict == Verdict.MISMATCH).any():
            return suspects
        if suspects is not None and suspects.derivative.rough and lines.single(line):  # a kink explains the flag
            return suspects
        return self._of_row_or_block(lines, line)

    def behind_stray(self, lines: FlaggedBlocks, group: int, line: int) -> Judged | None:
        """The entry behind an output that moved, or a column that was pulled back, though the structure has no such entry; None: not found."""
        entries = self._measured_suspects(lines.behind_stray(group, line))
        return entries if entries is None or (entries.verdict != Verdict.PASS).any() or entries.is_zero.all() else None

    def _measured_suspects(self, suspects: Suspects) -> Judged | None:
        if not len(suspects.columns) or not len(suspects.outputs):
            return None
        return measured_alone(self.run, np.repeat(suspects.columns[:1], len(suspects.outputs)), suspects.outputs)

    def _of_row_or_block(self, lines: FlaggedBlocks, line: int) -> Judged | None:
        """All entries of a row or a block, where they are few.

        Of a structure that is a guess: only a FEW, and only if a kink among them explains the flag. Else the structure is looked at first.
        """
        tensor = lines.pair.input
        if lines.pattern.size != len(self.run.point.columns.of(tensor)):
            return None
        columns, outputs = lines.columns(line), lines.outputs(line)
        guessed = self.structure.plan(tensor) is not None and not self.structure.level[tensor]
        if not 0 < len(columns) * len(outputs) <= (FEW if guessed else ONE_BY_ONE) or (len(columns) > 1 and self.run.over_budget()):
            return None
        entries = lines.entries(line, columns)
        return None if guessed and not entries.derivative.rough else entries
