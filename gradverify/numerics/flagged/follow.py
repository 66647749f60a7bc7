"""Rows and blocks that a probe could not pass, followed to their elements, which are confirmed one by one (method.md section 6).

A line (a row or block) whose entry is wrong is wrong; one whose entries are all right is right, at the tolerance of entries; one where
neither can be decided for the size of it stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradverify.numerics.costs import Mode
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.flagged.column_row_block import BY_MODE, MOST, FlaggedBlocks
from gradverify.numerics.flagged.followed_pair import FollowedPair, LineCounts
from gradverify.numerics.flagged.hidden_ties import hidden_ties
from gradverify.numerics.flagged.line_entries import LineEntries
from gradverify.numerics.flagged.screen_accuracy import known_to_the_screen
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import ENOUGH_CONFIRMED, enough_confirmed
from gradverify.numerics.pairs.pair import Pair
from gradverify.numerics.pairs.tally import MAP_ROWS, Tally
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.rungs import Index
from gradverify.numerics.structure import Structure
from gradverify.numerics.verdict import Verdict


class FollowUp:
    """Judges what the screens of one comparison flagged. `keep`: how many of the worst elements a pair keeps.

    `unfollowed`: flagged lines that the end of the budget left.
    """

    def __init__(self, run: Run, structure: Structure, keep: int) -> None:
        self.run, self.structure, self.keep, self.unfollowed, self._followed = run, structure, keep, 0, 0
        self._entries = LineEntries(run, structure)
        run.learn_secants()

    def pairs(self, mode: Mode, screened: Sequence[Screened], check: Sequence[Screened] = ()) -> tuple[list[Pair], frozenset[int]]:
        """The pairs screened in this mode, verified by the blocks of `check`; and the tensors in which lines stayed open."""
        result, open_tensors, verifying = [], set(), {(pair.input, pair.output): pair for pair in check}
        for pair in screened:
            pattern = self.structure.patterns[pair.input][pair.output]
            tally = Tally(pair.input, pair.output, (MAP_ROWS + 1, 1), self.keep, self.run.asked)
            followed = FollowedPair(BY_MODE[mode](self.run, pattern, pair), tally, LineCounts())
            self._follow(followed)
            block_pair = verifying.get((pair.input, pair.output))
            if block_pair is not None and not followed.counts.wrong:
                self._follow(replace(followed, lines=FlaggedBlocks(self.run, pattern, block_pair), verifying=True))
            if followed.counts.open:
                open_tensors.add(pair.input)
            result.append(followed.result(mode))
        return result, frozenset(open_tensors)

    def _follow(self, followed: FollowedPair) -> None:
        self._follow_lines(followed, self._in_order(followed))
        self._follow_strays(followed)

    def _in_order(self, followed: FollowedPair) -> Index:
        """The flagged lines, the worst first where the budget ends. A sum that is not finite tells of no fault: such lines come last."""
        pair = followed.lines.pair
        flagged = pair.worst if self.run.over_budget(EVERY_RUNG) and len(pair.worst) else pair.flagged
        return np.concatenate([flagged[~np.isin(flagged, pair.lost)], pair.lost])

    def _follow_lines(self, followed: FollowedPair, order: Index) -> None:
        """The first MOST of these lines, until enough of them are confirmed as wrong."""
        lines, counts = followed.lines, followed.counts
        for n, line in enumerate(order.tolist()):
            confirmed, budget_ended = enough_confirmed(counts.wrong, counts.cleared), self._budget_ended()
            if n == MOST or confirmed or budget_ended:
                self.unfollowed += len(order) - n if budget_ended and not confirmed else 0
                followed.leave_unfollowed(order[n:], confirmed)
                break
            self._followed += 1
            if counts.kinked_blocks and lines.block(line) in counts.kinked_blocks:
                continue
            entries = self._entries.judged(lines, line)
            if entries is None or self._stays_open(entries, followed, line):
                followed.leave_open(np.array([line]))

    def _follow_strays(self, followed: FollowedPair) -> None:
        """The first MOST entries off the pattern."""
        lines, counts = followed.lines, followed.counts
        for n, (group, line) in enumerate(lines.pair.strays.tolist()):
            if n == MOST or counts.wrong >= ENOUGH_CONFIRMED or self._budget_ended():
                counts.open += 0 if counts.wrong else lines.pair.stray_count - n
                break
            self._followed += 1
            entries = self._entries.behind_stray(lines, group, line)
            counts.open += entries is None or self._stays_open(entries, followed)

    def _budget_ended(self) -> bool:
        """Does the budget end here? One line is followed all the same."""
        return self._followed > 0 and self.run.over_budget(EVERY_RUNG)

    def _stays_open(self, entries: Judged, followed: FollowedPair, line: int | None = None) -> bool:
        """Counts what became of a flagged `line`, or of a stray (None), by its entries; does it stay open?"""
        lines, counts, pair = followed.lines, followed.counts, followed.lines.pair
        entries = known_to_the_screen(lines, excused(self.run, entries))
        followed.add(entries)
        wrong, rough = np.flatnonzero(entries.verdict == Verdict.MISMATCH), entries.derivative.rough
        if wrong.size:
            wrong_line = lines.wrong_line(int(entries.column[wrong[0]]), int(entries.out[wrong[0]]), line)
            counts.wrong_lines.add(wrong_line)
            return line is not None and wrong_line != line and wrong_line in pair.flagged    # which is counted on its own
        if (entries.verdict == Verdict.UNDECIDED).any() or (
                rough and hidden_ties(self.run, pair.input, lines.pattern, lines.part.start, entries)):
            return True
        counts.cleared += 1
        if line is not None and rough and lines.single(line):
            counts.kinked_blocks.add(lines.block(line))
        return False
