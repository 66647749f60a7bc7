"""Columns, rows and blocks that a probe could not pass, followed to their elements, which are confirmed one by one (method.md section 6).

A line whose entry is wrong is wrong; one whose entries are all right is right, at the tolerance of entries; one where neither can be decided
for the size of it stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.costs import Mode
from gradverify.numerics.entries.chunk import Chunk
from gradverify.numerics.entries.compressed import Compressed
from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.entries.consistency import AliasSums
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.kinks import Smoothness
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.flagged.column_row_block import LINES, MOST, BlockLines, LineCounts
from gradverify.numerics.flagged.hidden_ties import hidden_ties
from gradverify.numerics.flagged.localise import Suspects
from gradverify.numerics.judging.bundle import lone_columns
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import ENOUGH_CONFIRMED, enough_confirmed
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import MAP_ROWS, Tally
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.thresholds import SCREEN_LOW, screen_of
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.seed_vectors import gradient_of_rows, signed_weights
from gradverify.numerics.structure import Structure
from gradverify.numerics.verdict import Limit, Verdict

ROWS, ROWS_LEFT = 1024, 16  # backwards that the entries of flagged columns may take; where nothing is left of the budget
SEARCH = 60  # forward calls that it may take to find an entry of a line
FEW = 4  # entries of a line that are measured alone though its structure is a guess
ONE_BY_ONE = 64  # entries of a line that are measured alone
STANDS = 2.0  # of the tolerance: some gradient is far above it, so that the comparison could have failed


@dataclass(frozen=True)
class FollowedPair:
    """A screened pair whose flagged `lines` are followed: the `tally` of their entries, and the `counts` of the lines.

    `verifying`: the lines are the blocks that verify a comparison of columns or rows.
    """

    lines: BlockLines
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


class Flagged:
    """Judges what the screens of one comparison flagged. `keep`: how many of the worst elements a pair keeps."""

    def __init__(self, run: Run, structure: Structure, keep: int) -> None:
        self.run, self.structure, self.keep = run, structure, keep
        self.weights = signed_weights(len(run.point.f0), run.generator)
        self.unfollowed, self._followed = 0, 0  # flagged lines that the end of the budget left, and those that were followed
        self._norms: dict[int, Array] = {}
        run.learn_secants()

    def pairs(self, mode_of: Callable[[int], Mode], screened: Sequence[Screened],
              check: Sequence[Screened] = ()) -> tuple[list[Pair], frozenset[int]]:
        """The screened pairs, verified by the blocks of `check`; and the tensors in which lines stayed open. `mode_of`: how a tensor was screened."""
        result, open_tensors, verifying = [], set(), {(pair.input, pair.output): pair for pair in check}
        for pair in screened:
            mode, pattern = mode_of(pair.input), self.structure.patterns[pair.input][pair.output]
            plan = self.structure.plan(pair.input)
            tally = Tally(pair.input, pair.output, (MAP_ROWS + 1, 1), self.keep, self.run.asked)
            followed = FollowedPair(LINES[mode](self.run, plan, pattern, pair), tally, LineCounts())
            self._follow(followed)
            block_pair = verifying.get((pair.input, pair.output))
            if block_pair is not None and not followed.counts.wrong:
                self._follow(replace(followed, lines=BlockLines(self.run, plan, pattern, block_pair), verifying=True))
            if followed.counts.open:
                open_tensors.add(pair.input)
            result.append(self._pair(mode, followed))
        return result, frozenset(open_tensors)

    def _pair(self, mode: Mode, followed: FollowedPair) -> Pair:
        counts, screened, part = followed.counts, followed.lines.pair, followed.lines.part
        entries = followed.tally.result(float(self.run.point.unit[part].max(initial=0.0)), bool(self.run.low_precision()[part].any()))
        total = max(screened.lines, counts.wrong, min(counts.open, 1))
        undecided = min(counts.open, total - counts.wrong)  # strays may be more than lines
        outcomes = [0] * len(Outcome)
        outcomes[Outcome.MISMATCH], outcomes[Outcome.UNDECIDED], outcomes[Outcome.PASS] = counts.wrong, undecided, total - counts.wrong - undecided
        groups, row_groups = followed.lines.groups
        return replace(
            entries, elements=total, counts=tuple(outcomes), limits=((Limit.LINE, undecided),) if undecided else (), masked=0,
            groups=groups, row_groups=row_groups, resolution=screened.resolution, quick=total - len(screened.flagged), lines=mode.lines,
            largest=max(entries.largest, STANDS if screened.relative > 0 else 0.0),
            entries=None)  # a few lines were followed: they show no cause

    # ---- lines
    def _follow(self, followed: FollowedPair) -> None:
        self._follow_flagged(followed)
        lines, counts = followed.lines, followed.counts
        for n, (group, line) in enumerate(lines.pair.strays.tolist()):
            if n == MOST or counts.wrong >= ENOUGH_CONFIRMED or self._budget_ended():
                counts.open += 0 if counts.wrong else lines.pair.stray_count - n
                break
            self._followed += 1
            entries = self._judge_stray(lines, group, line)
            counts.open += entries is None or self._stays_open(entries, followed)

    def _follow_flagged(self, followed: FollowedPair) -> None:
        """The first MOST; a sum that is not finite tells of no fault: such lines come last. Where the budget ends, the worst come first."""
        lines, counts, pair = followed.lines, followed.counts, followed.lines.pair
        inside = pair.worst if self.run.over_budget(EVERY_RUNG) and len(pair.worst) else pair.flagged
        order = np.concatenate([inside[~np.isin(inside, pair.lost)], pair.lost])
        for n, line in enumerate(order.tolist()):
            confirmed, budget_ended = enough_confirmed(counts.wrong, counts.cleared), self._budget_ended()
            if n == MOST or confirmed or budget_ended:
                self.unfollowed += len(order) - n if budget_ended and not confirmed else 0
                self._leave_rest(followed, order[n:], confirmed)
                break
            self._followed += 1
            if counts.kinked_blocks and lines.block(line) in counts.kinked_blocks:
                continue
            entries = self._judge_line(lines, line)
            if entries is None or self._stays_open(entries, followed, line):
                followed.leave_open(np.array([line]))

    def _budget_ended(self) -> bool:
        """Does the budget end here? One line is followed all the same."""
        return self._followed > 0 and self.run.over_budget(EVERY_RUNG)

    def _leave_rest(self, followed: FollowedPair, rest: Index, confirmed: bool) -> None:
        """Counts lines that are not followed: as wrong where enough others are `confirmed` (of sums that are not finite, one), else as open."""
        counts, lost = followed.counts, followed.lines.pair.lost
        not_finite = np.isin(rest, lost) & (not np.isin(lost, list(counts.wrong_lines)).any())
        assumed = ~not_finite if confirmed else np.zeros(len(rest), bool)
        counts.assumed_wrong += int(assumed.sum())
        followed.leave_open(rest[~assumed])

    def _stays_open(self, entries: Judged, followed: FollowedPair, line: int | None = None) -> bool:
        """Counts what became of a flagged `line`, or of a stray (None), by its entries; does it stay open?"""
        lines, counts, pair = followed.lines, followed.counts, followed.lines.pair
        entries = self._known_well_enough(lines, excused(self.run, entries))
        followed.add(entries)
        wrong, rough = np.flatnonzero(entries.verdict == Verdict.MISMATCH), _any_rough(entries)
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

    def _known_well_enough(self, lines: BlockLines, entries: Judged) -> Judged:
        """Undecided entries that are known to what a screen asks of their line are right: a zero's bar may be wider than its floor."""
        i = np.flatnonzero((entries.verdict == Verdict.UNDECIDED) & entries.derivative.smooth & np.isfinite(entries.analytic))
        if not i.size:
            return entries
        d, low_precision = entries.derivative.take(i), bool(self.run.low_values()[lines.part].any())
        norm = self._row_norms(entries.column[i], entries.out[i])
        if lines.by_column:  # a column of zeros has no size to compare with
            norm = np.where((entries.analytic[i] == 0) & (d.value == 0), norm, self._column_norms(lines.pair.output)[entries.column[i]])
        share = SCREEN_LOW if low_precision else screen_of(self.run.point)
        return entries.passed(i[np.isfinite(norm) & (np.abs(entries.analytic[i] - d.value) + d.bar <= share * norm)])

    def _column_norms(self, output: int) -> Array:
        """About the norm [C] of each column, by one backward with random weights."""
        if output not in self._norms:
            part = self.run.point.parts[output]
            self._norms[output] = np.abs(gradient_of_rows(self.run.point, output, np.arange(part.start, part.stop), self.weights[part]))
        return self._norms[output]

    def _row_norms(self, columns: Index, outputs: Index) -> Array:
        """The norm of each entry's row [E], in units of its column."""
        c = self.run.point.columns
        norm = {j: float(np.linalg.norm(np.nan_to_num(self.run.point.row(j), posinf=0.0, neginf=0.0) * c.scale)) for j in np.unique(outputs).tolist()}
        return np.array([norm[j] for j in outputs.tolist()]) / c.scale[columns]

    # ---- entries
    def _judge_line(self, lines: BlockLines, line: int) -> Judged | None:
        entries = self._measured_suspects(lines.suspects(line, self.run.over_budget(SEARCH)))
        if entries is not None and (entries.verdict == Verdict.MISMATCH).any():
            return entries
        if entries is not None and (lines.by_column or _any_rough(entries)) and lines.single(line):
            return entries
        return self._judge_column(lines, line) if lines.by_column else self._judge_small(lines, line)

    def _measured_suspects(self, suspects: Suspects) -> Judged | None:
        if not len(suspects.columns) or not len(suspects.outputs):
            return None
        return measured_alone(self.run, np.repeat(suspects.columns[:1], len(suspects.outputs)), suspects.outputs)

    def _judge_column(self, lines: BlockLines, column: int) -> Judged | None:
        """All entries of a column, where few enough backwards tell them."""
        plan, part = lines.plan, lines.part
        backwards = sum(rows.count for rows in plan.rows) if plan else part.stop - part.start
        if backwards > (ROWS_LEFT if self.run.over_budget() else ROWS):
            return None
        alone, none_aliases = np.array([column]), np.zeros(len(self.run.point.f0), bool)
        if plan:
            a = Compressed(self.run, [plan], self.weights).of_columns(plan, alone)
        else:
            a = np.array([[self.run.point.row(j)[column] if part.start <= j < part.stop else 0.0 for j in range(len(self.run.point.f0))]])
        results = Chunk(self.run, lone_columns(self.run.point, alone), a).judge(AliasSums(self.run.point, self.run.survey), none_aliases)
        inside = [r.judged.take(np.flatnonzero((r.judged.out >= part.start) & (r.judged.out < part.stop))) for r in results]
        for judged in inside:
            open_ = np.flatnonzero(judged.verdict != Verdict.PASS)[:ONE_BY_ONE]
            if open_.size:
                return measured_alone(self.run, judged.column[open_], judged.out[open_])
        return inside[0]

    def _judge_small(self, lines: BlockLines, line: int) -> Judged | None:
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
        return None if guessed and not _any_rough(entries) else entries

    def _judge_stray(self, lines: BlockLines, group: int, line: int) -> Judged | None:
        """The entry behind an output that moved, or a column that was pulled back, though the structure has no such entry."""
        entries = self._measured_suspects(lines.behind_stray(group, line))
        return entries if entries is None or (entries.verdict != Verdict.PASS).any() or entries.is_zero.all() else None


def _any_rough(entries: Judged) -> bool:
    """Is f rough at some of the entries? That explains why a screen flagged them."""
    return bool((entries.derivative.outcome != Smoothness.SMOOTH).any())
