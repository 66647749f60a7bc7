"""What came of the flagged rows or blocks of one screened pair: how many are wrong, right or open, and the entries that were judged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gradverify.numerics.costs import Mode
from gradverify.numerics.flagged.column_row_block import FlaggedBlocks
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import Index
from gradverify.numerics.verdict import Limit

STANDS = 2.0  # of the tolerance: some gradient is far above it, so that the comparison could have failed


@dataclass
class LineCounts:
    """What became of the flagged lines (rows or blocks) of one pair, each counted once.

    `wrong_lines`: those found wrong; `assumed_wrong`: how many more count as wrong unasked; `cleared`: right after all; `open`: neither right nor
    wrong, strays among them; `open_blocks`: the blocks that those lie in; `kinked_blocks`: blocks of a single entry, which is right at a kink;
    `judged_entries`: (column, output) of all entries that were judged.
    """

    wrong_lines: set[int] = field(default_factory=set)
    assumed_wrong: int = 0
    cleared: int = 0
    open: int = 0
    open_blocks: set[int] = field(default_factory=set)
    kinked_blocks: set[int] = field(default_factory=set)
    judged_entries: set[tuple[int, int]] = field(default_factory=set)

    @property
    def wrong(self) -> int:
        return len(self.wrong_lines) + self.assumed_wrong

    def leave_open(self, blocks: Index, verifying: bool) -> None:
        """Counts lines once, which lie in these blocks: the block that verifies a line (`verifying`) is not another one."""
        self.open += int((~np.isin(blocks, list(self.open_blocks | self.kinked_blocks))).sum()) if verifying else len(blocks)
        self.open_blocks |= set(blocks.tolist())

    def not_yet_judged(self, column: Index, out: Index) -> Index:
        """Which of these entries [E] were not judged before; from now on they are."""
        places = list(zip(column.tolist(), out.tolist(), strict=True))
        fresh = np.array([n for n, place in enumerate(places) if place not in self.judged_entries], np.intp)
        self.judged_entries.update(places)
        return fresh


@dataclass(frozen=True)
class FollowedPair:
    """A screened pair whose flagged `lines` are followed: the `tally` of their entries, and the `counts` of the lines.

    `verifying`: the lines are the blocks that verify a comparison of rows.
    """

    lines: FlaggedBlocks
    tally: Tally
    counts: LineCounts
    verifying: bool = False

    def add(self, entries: Judged) -> None:
        """The entries that were not judged before, to the tally."""
        fresh, point = entries.take(self.counts.not_yet_judged(entries.column, entries.out)), self.lines.run.point
        if len(fresh.out):
            self.tally.add(fresh.pair_elements(self.lines.part.start, point.columns.coordinate[fresh.column] - point.starts[self.lines.pair.input]))

    def leave_open(self, lines: Index) -> None:
        self.counts.leave_open(self.lines.blocks(lines), self.verifying)

    def leave_unfollowed(self, lines: Index, confirmed: bool) -> None:
        """Counts lines as wrong where enough others are `confirmed` (of those with sums that are not finite, one), else as open."""
        counts, lost = self.counts, self.lines.pair.lost
        not_finite = np.isin(lines, lost) & (not np.isin(lost, list(counts.wrong_lines)).any())
        assumed = ~not_finite if confirmed else np.zeros(len(lines), bool)
        counts.assumed_wrong += int(assumed.sum())
        self.leave_open(lines[~assumed])

    def result(self, mode: Mode) -> Pair:
        """The pair as it is told of, its lines counted instead of elements."""
        counts, screened, part, run = self.counts, self.lines.pair, self.lines.part, self.lines.run
        entries = self.tally.result(float(run.point.unit[part].max(initial=0.0)), bool(run.low_precision()[part].any()))
        total = max(screened.lines, counts.wrong, min(counts.open, 1))
        undecided = min(counts.open, total - counts.wrong)  # strays may be more than lines
        outcomes = [0] * len(Outcome)
        outcomes[Outcome.MISMATCH], outcomes[Outcome.UNDECIDED], outcomes[Outcome.PASS] = counts.wrong, undecided, total - counts.wrong - undecided
        return replace(
            entries, elements=total, counts=tuple(outcomes), limits=((Limit.LINE, undecided),) if undecided else (), masked=0,
            row_groups=self.lines.row_groups, resolution=screened.resolution, quick=total - len(screened.flagged), lines=mode.lines,
            largest=max(entries.largest, STANDS if screened.relative > 0 else 0.0),
            entries=None)  # a few lines were followed: they show no cause
