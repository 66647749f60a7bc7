"""Columns, rows and blocks that a probe could not pass, followed to their elements, which are confirmed one by one (method.md section 6).

A line whose entry is wrong is wrong; one whose entries are all right is right, at the tolerance of entries; one where neither can be told
for the size of it stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gradverify.numerics.arrange import Arrangement
from gradverify.numerics.columns.chunk import Chunk
from gradverify.numerics.columns.compressed import Compressed
from gradverify.numerics.columns.confirm import resolve
from gradverify.numerics.columns.sums import AliasSums
from gradverify.numerics.costs import Mode
from gradverify.numerics.elements.alone import STOOD, believed
from gradverify.numerics.elements.bundle import lone
from gradverify.numerics.elements.judged import Judged
from gradverify.numerics.elements.run import Run
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.kinks import Smoothness
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.flagged.hidden_ties import hidden_ties
from gradverify.numerics.flagged.lines import LINES, MOST, BlockLines, LineCounts
from gradverify.numerics.flagged.localise import Suspects
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import MAP_ROWS, Tally
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.surveyed import SCREEN_LOW, screen_of
from gradverify.numerics.reduction import pull, signed
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.verdict import Limit, Verdict

ROWS, ROWS_LEFT = 1024, 16  # backwards that the entries of flagged columns may take; where nothing is left of the budget
SEARCH = 60  # forward calls that it may take to find an entry of a line
FEW = 4  # entries of a line that are resolved though its structure is a guess
ONE_BY_ONE = 64  # entries of a line that are resolved one by one
STANDS = 2.0  # of the tolerance: some gradient is far above it, so that the comparison could have failed


class Flagged:
    """Judges what the screens of one comparison flagged; `patterns` and plans as in the arrangement."""

    def __init__(self, run: Run, arrangement: Arrangement, keep: int) -> None:
        self.run, self.arrangement, self.keep = run, arrangement, keep
        self.weights = signed(len(run.point.f0), run.generator)
        self.left, self._followed = 0, 0  # flagged lines that the end of the budget left, and those that were followed
        self._norms: dict[int, Array] = {}
        run.learn_secants()

    def pairs(self, of: Callable[[int], Mode], screened: Sequence[Screened], check: Sequence[Screened] = ()) -> tuple[list[Pair], frozenset[int]]:
        """The screened pairs, verified by the blocks of `check`; and the tensors in which lines stayed open. `of`: how a tensor was screened."""
        result, suspects, verifying = [], set(), {(pair.input, pair.output): pair for pair in check}
        for pair in screened:
            mode, pattern = of(pair.input), self.arrangement.patterns[pair.input][pair.output]
            plan = self.arrangement.plan(pair.input)
            tally = Tally(pair.input, pair.output, (MAP_ROWS + 1, 1), self.keep, self.run.asked)
            lines, followed = LINES[mode](self.run, plan, pattern, pair), LineCounts()
            self._follow(lines, tally, followed)
            other = verifying.get((pair.input, pair.output))
            if other is not None and not followed.wrong:
                self._follow(BlockLines(self.run, plan, pattern, other), tally, followed, verifying=True)
            if followed.open:
                suspects.add(pair.input)
            result.append(self._pair(mode, lines, tally, followed))
        return result, frozenset(suspects)

    def _pair(self, mode: Mode, lines: BlockLines, tally: Tally, followed: LineCounts) -> Pair:
        pair = lines.pair
        unit = float(self.run.point.unit[lines.part].max(initial=0.0))
        seen = tally.result(unit, bool(self.run.low_precision()[lines.part].any()))
        total = max(pair.lines, followed.wrong, min(followed.open, 1))
        counts = [0] * len(Outcome)
        counts[Outcome.MISMATCH] = followed.wrong
        counts[Outcome.UNDECIDED] = left = min(followed.open, total - followed.wrong)  # strays may be more than lines
        counts[Outcome.PASS] = total - sum(counts)
        limits = ((Limit.LINE, left),) if left else ()
        groups, rows = lines.groups
        return replace(
            seen, groups=groups, row_groups=rows, elements=total, masked=0, counts=tuple(counts), resolution=pair.resolution, limits=limits,
            quick=total - len(pair.flagged),
            largest=max(seen.largest, STANDS if pair.relative > 0 else 0.0), lines=mode.lines,
            entries=None)  # a few lines were followed: no cause is told from them

    # ---- lines
    def _follow(self, lines: BlockLines, tally: Tally, followed: LineCounts, verifying: bool = False) -> None:
        self._follow_flagged(lines, tally, followed, verifying)
        for n, (group, line) in enumerate(lines.pair.strays.tolist()):
            if n == MOST or followed.wrong >= STOOD or (self._followed > 0 and self.run.enough(EVERY_RUNG)):
                followed.open += 0 if followed.wrong else lines.pair.stray_count - n
                break
            self._followed += 1
            followed.open += self._count(self._stray(lines, group, line), lines, tally, followed)

    def _follow_flagged(self, lines: BlockLines, tally: Tally, followed: LineCounts, verifying: bool) -> None:
        """The first MOST; a sum that is not finite tells of no fault: such lines come last. Where the budget ends, the worst come first."""
        pair = lines.pair
        inside = pair.worst if self.run.enough(EVERY_RUNG) and len(pair.worst) else pair.flagged
        told = np.concatenate([inside[~np.isin(inside, pair.lost)], pair.lost])
        for n, line in enumerate(told.tolist()):
            stood = believed(followed.wrong, followed.cleared)
            ended = self._followed > 0 and self.run.enough(EVERY_RUNG)
            self.left += len(told) - n if ended and not stood else 0
            if n == MOST or stood or ended:
                lost = np.isin(told[n:], pair.lost) & (not np.isin(pair.lost, list(followed.named)).any())
                taken = ~lost if stood else np.zeros(len(lost), bool)
                followed.believed += int(taken.sum())
                followed.leave_open(lines.blocks(told[n:][~taken]), verifying)
                break
            self._followed += 1
            if followed.bent and lines.block(line) in followed.bent:
                continue
            if self._count(self._line(lines, line), lines, tally, followed, line):
                followed.leave_open(lines.blocks(np.array([line])), verifying)

    def _count(self, found: Judged | None, lines: BlockLines, tally: Tally, followed: LineCounts, line: int | None = None) -> bool:
        """Does it stay open? `found`: the entries judged for the flagged `line`, or for a stray (None); None where that was out of reach."""
        if found is None:
            return True
        pair = lines.pair
        found = self._known_well_enough(lines, excused(self.run, found))
        wrong = np.flatnonzero(found.verdict == Verdict.MISMATCH)
        undecided = bool((found.verdict == Verdict.UNDECIDED).any()) or (
            not wrong.size and _bent(found) and hidden_ties(self.run, pair.input, lines.pattern, lines.part.start, found))
        at_fault = lines.at_fault(int(found.column[wrong[0]]), int(found.out[wrong[0]]), line) if wrong.size else None
        if at_fault is not None:
            followed.named.add(at_fault)
        elsewhere = at_fault is not None and at_fault != line and line is not None and at_fault in pair.flagged    # which is told of on its own
        if not (wrong.size or undecided):
            followed.cleared += 1
            followed.bent |= {lines.block(line)} if line is not None and _bent(found) and lines.single(line) else set()
        fresh = found.take(followed.fresh(found.column, found.out))
        if len(fresh.out):
            coordinate = self.run.point.columns.coordinate[fresh.column] - self.run.point.starts[pair.input]
            tally.add(fresh.compared(lines.part.start, coordinate))
        return elsewhere or (undecided and not wrong.size)

    def _known_well_enough(self, lines: BlockLines, found: Judged) -> Judged:
        """Undecided entries that are known to what a screen asks of their line are right: a zero's bar may be wider than its floor."""
        open_ = np.flatnonzero((found.verdict == Verdict.UNDECIDED) & found.derivative.smooth & np.isfinite(found.a))
        if not open_.size:
            return found
        d, low = found.derivative.take(open_), bool(self.run.low_values()[lines.part].any())
        norm = self._row_norms(found.column[open_], found.out[open_])
        if lines.by_column:  # a column of zeros has no size to compare with
            norm = np.where((found.a[open_] == 0) & (d.value == 0), norm, self._column_norms(lines.pair.output)[found.column[open_]])
        share = SCREEN_LOW if low else screen_of(self.run.point)
        return found.passed(open_[np.isfinite(norm) & (np.abs(found.a[open_] - d.value) + d.bar <= share * norm)])

    def _column_norms(self, output: int) -> Array:
        """About the norm [C] of each column, by one backward with random weights."""
        if output not in self._norms:
            part = self.run.point.parts[output]
            self._norms[output] = np.abs(pull(self.run.point, output, np.arange(part.start, part.stop), self.weights[part]))
        return self._norms[output]

    def _row_norms(self, columns: Index, outputs: Index) -> Array:
        """The norm of each entry's row [E], in units of its column."""
        c = self.run.point.columns
        norm = {j: float(np.linalg.norm(np.nan_to_num(self.run.point.row(j), posinf=0.0, neginf=0.0) * c.scale)) for j in np.unique(outputs).tolist()}
        return np.array([norm[j] for j in outputs.tolist()]) / c.scale[columns]

    # ---- entries
    def _line(self, lines: BlockLines, line: int) -> Judged | None:
        found = self._resolved(lines.suspects(line, self.run.enough(SEARCH)))
        if found is not None and (found.verdict == Verdict.MISMATCH).any():
            return found
        if found is not None and (lines.by_column or _bent(found)) and lines.single(line):
            return found
        return self._column(lines, line) if lines.by_column else self._small(lines, line)

    def _resolved(self, suspects: Suspects) -> Judged | None:
        if not len(suspects.columns) or not len(suspects.outputs):
            return None
        return resolve(self.run, np.repeat(suspects.columns[:1], len(suspects.outputs)), suspects.outputs)

    def _column(self, lines: BlockLines, column: int) -> Judged | None:
        """All entries of a column, where few enough backwards tell them."""
        plan, part = lines.plan, lines.part
        backwards = sum(rows.count for rows in plan.rows) if plan else part.stop - part.start
        if backwards > (ROWS_LEFT if self.run.enough() else ROWS):
            return None
        own = np.array([column])
        if plan:
            a = Compressed(self.run, [plan], self.weights).of_columns(plan, own)
        else:
            a = np.array([[self.run.point.row(j)[column] if part.start <= j < part.stop else 0.0 for j in range(len(self.run.point.f0))]])
        chunk = Chunk(self.run, lone(self.run.point, own), a)
        nothing = np.zeros(len(self.run.point.f0), bool)
        parts = [r.judged for r in chunk.judge(AliasSums(self.run.point, self.run.survey), nothing)]
        inside = [p.take(np.flatnonzero((p.out >= part.start) & (p.out < part.stop))) for p in parts]
        open_ = [p.take(np.flatnonzero(p.verdict != Verdict.PASS)) for p in inside]
        worst = next((p for p in open_ if len(p.out)), None)
        if worst is None:
            return inside[0]
        return resolve(self.run, worst.column[:ONE_BY_ONE], worst.out[:ONE_BY_ONE])

    def _small(self, lines: BlockLines, line: int) -> Judged | None:
        """All entries of a row or a block, where they are few.

        Of a structure that is a guess: only a FEW, and only if a kink among them explains the flag. Else the structure is looked at first.
        """
        tensor = lines.pair.input
        if lines.pattern.size != len(self.run.point.columns.of(tensor)):
            return None
        columns, outputs = lines.columns(line), lines.outputs(line)
        guessed = lines.plan is not None and not self.arrangement.level[tensor]
        if not 0 < len(columns) * len(outputs) <= (FEW if guessed else ONE_BY_ONE) or (len(columns) > 1 and self.run.enough()):
            return None
        found = lines.entries(line, columns)
        return None if guessed and not _bent(found) else found

    def _stray(self, lines: BlockLines, group: int, line: int) -> Judged | None:
        """The entry behind an output that moved, or a column that was pulled back, though the structure has no such entry."""
        found = self._resolved(lines.behind(group, line))
        return found if found is None or (found.verdict != Verdict.PASS).any() or found.zero.all() else None


def _bent(found: Judged) -> bool:
    """Is f rough at some of the entries? That explains why a screen flagged them."""
    return bool((found.derivative.outcome != Smoothness.SMOOTH).any())
