"""From a flagged line to entries: what a screen could not pass is judged by the lone column and the one-hot row (method.md 3.5).

A line whose entry is wrong is wrong; one whose entries are all right is right, at the tolerance of entries; one where neither can be told
for the size of it stays open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradverify.numerics.columns.arrange import Arrangement
from gradverify.numerics.columns.bundle import GroupLine, lone
from gradverify.numerics.columns.chunk import Chunk
from gradverify.numerics.columns.compressed import Compressed, Plan, pull
from gradverify.numerics.columns.confirm import resolve
from gradverify.numerics.columns.costs import Mode
from gradverify.numerics.columns.hidden import hidden_ties
from gradverify.numerics.columns.leaks import mover
from gradverify.numerics.columns.opinions import second_opinions
from gradverify.numerics.columns.run import AliasSums, Run
from gradverify.numerics.columns.tally import MAP_ROWS, Judged, Outcome, Pair, Tally
from gradverify.numerics.compare import Limit, Verdict
from gradverify.numerics.followed import Lines
from gradverify.numerics.kinks import Smoothness
from gradverify.numerics.localise import Suspects, localise, localise_column
from gradverify.numerics.pattern import NOBODY, Pattern, column_groups, row_groups
from gradverify.numerics.reduction import signed
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.screen import SCREEN_LOW, Screen, Screened, usual

LINES = 12  # of a pair that are followed at most
STOOD = 3  # wrong ones, after which the rest is believed, if none was cleared
ROWS = 1024  # backwards that the entries of flagged columns may take
FEW = 4  # entries of a line that are resolved though its structure is a guess
SMALL = 64  # entries of a line that are resolved one by one
STANDS = 2.0  # of the tolerance: some gradient is far above it, so that the comparison could have failed


class Flagged:
    """Judges what the screens of one comparison flagged; `patterns` and plans as in the arrangement."""

    def __init__(self, run: Run, arrangement: Arrangement, keep: int) -> None:
        self.run, self.arrangement, self.keep = run, arrangement, keep
        self.weights = signed(len(run.point.f0), run.generator)
        self.left, self._followed = 0, 0  # flagged lines that the end of the budget left, and those that were followed
        self._norms: dict[int, Array] = {}
        self._rows: dict[tuple[int, int, int], Judged] = {}
        noise = np.maximum(run.survey.sigma, run.point.unit * run.survey.size)
        for secant in run.survey.secants:  # a line's entries are judged by how far all outputs of the tensor go, not by its own alone
            run.reach.add_secant(secant.columns, secant.moved_by, secant.change, noise)

    def pairs(self, of: Callable[[int], Mode], screen: Screen, check: Screen | None) -> tuple[list[Pair], frozenset[int]]:
        """The pairs of `screen`, verified by the blocks of `check`; and the tensors in which lines stayed open. `of`: how a tensor was screened."""
        result, suspects = [], set()
        for pair in screen.pairs:
            mode = of(pair.input)
            tally = Tally(pair.input, pair.output, (MAP_ROWS + 1, 1), self.keep)
            lines = Lines()
            self._follow(mode, pair, tally, lines)
            other = check.pair(pair.input, pair.output) if check else None
            if other is not None and not lines.wrong:
                self._follow(Mode.BLOCKS, other, tally, lines)
            if lines.open:
                suspects.add(pair.input)
            result.append(self._pair(mode, pair, tally, lines))
        return result, frozenset(suspects)

    def _pair(self, mode: Mode, pair: Screened, tally: Tally, lines: Lines) -> Pair:
        part = self.run.point.parts[pair.output]
        unit = float(self.run.point.unit[part].max(initial=0.0))
        seen = tally.result(unit, bool(self.run.low_precision()[part].any()))
        total = max(pair.lines, lines.wrong, min(lines.open, 1))
        counts = [0] * len(Outcome)
        counts[Outcome.MISMATCH], counts[Outcome.UNDECIDED] = lines.wrong, min(lines.open, total - lines.wrong)  # strays may be more than lines
        counts[Outcome.PASS] = total - sum(counts)
        limits = ((Limit.LINE, counts[Outcome.UNDECIDED]),) if counts[Outcome.UNDECIDED] else ()
        pattern = self.arrangement.patterns[pair.input][pair.output]
        groups, rows = _groups(mode, pattern)
        return replace(
            seen, groups=groups, row_groups=rows, elements=total, masked=0, counts=tuple(counts), resolution=pair.resolution, limits=limits,
            quick=total - len(pair.flagged),
            largest=max(seen.largest, STANDS if pair.relative > 0 else 0.0), lines=mode.lines,
            entries=None)  # a few lines were followed: no cause is told from them

    # ---- lines
    def _follow(self, mode: Mode, pair: Screened, tally: Tally, lines: Lines) -> None:
        self._follow_flagged(mode, pair, tally, lines)
        for n, (group, line) in enumerate(pair.strays.tolist()):
            if n == LINES or lines.wrong >= STOOD or (self._followed > 0 and self.run.enough()):
                lines.open += 0 if lines.wrong else pair.stray_count - n
                break
            self._followed += 1
            self._count(self._stray(mode, pair, group, line), mode, pair, tally, lines)

    def _follow_flagged(self, mode: Mode, pair: Screened, tally: Tally, lines: Lines) -> None:
        """The first LINES; a sum that is not finite tells of no fault: such lines come last."""
        if not len(pair.flagged):
            return
        told = np.concatenate([np.setdiff1d(pair.flagged, pair.lost), pair.lost])
        for n, line in enumerate(told.tolist()):
            stood = lines.wrong >= STOOD and not lines.cleared
            ended = self._followed > 0 and self.run.enough()
            self.left += len(told) - n if ended and not stood else 0
            if n == LINES or stood or ended:
                lost = np.isin(told[n:], pair.lost) & (not np.isin(pair.lost, list(lines.named)).any())
                believed = ~lost if stood else np.zeros(len(lost), bool)
                lines.believed += int(believed.sum())
                rest = told[n:][~believed]
                lines.leave_open(mode, rest, self._blocks(mode, pair, rest))
                break
            self._followed += 1
            if mode is not Mode.BLOCKS or line not in lines.bent:
                self._count(self._line(mode, pair, line), mode, pair, tally, lines, line)

    def _count(self, found: Judged | None, mode: Mode, pair: Screened, tally: Tally, lines: Lines, line: int | None = None) -> None:
        """`found`: the entries that were judged for the flagged `line`, or for a stray (None); None where that was out of reach."""
        if found is None:
            self._leave_open(mode, pair, lines, line)
            return
        found, _ = second_opinions(self.run, found, lambda own: own.derivative.at_border,
                                   lambda column, output: float(self.run.point.row(output)[column]))
        found = self._known_well_enough(mode, pair.output, found)
        wrong = np.flatnonzero(found.verdict == Verdict.MISMATCH)
        undecided = bool((found.verdict == Verdict.UNDECIDED).any()) or (not wrong.size and self._hides_ties(pair, found))
        at_fault = self._line_of(mode, pair, found.take(wrong), line) if wrong.size else None
        if at_fault is not None:
            lines.named.add(at_fault)
        elsewhere = mode is Mode.ROWS and line is not None and at_fault != line and at_fault in pair.flagged    # which is told of on its own
        if elsewhere or (undecided and not wrong.size):
            self._leave_open(mode, pair, lines, line)
        if not (wrong.size or undecided):
            lines.cleared += 1
            lines.bent |= {self._block(mode, pair, line)} if line is not None and _bent(found) and self._single(mode, pair, line) else set()
        fresh = lines.fresh(found.column, found.out)
        if not len(fresh):
            return
        found = found.take(fresh)
        coordinate = self.run.point.columns.coordinate[found.column] - self.run.point.starts[pair.input]
        tally.add(found.compared(self.run.point.parts[pair.output].start, coordinate))

    def _hides_ties(self, pair: Screened, found: Judged) -> bool:
        pattern, top = self.arrangement.patterns[pair.input][pair.output], self.run.point.parts[pair.output].start
        return _bent(found) and hidden_ties(self.run, pair.input, pattern, top, found)

    def _leave_open(self, mode: Mode, pair: Screened, lines: Lines, line: int | None) -> None:
        if line is None:
            lines.open += 1
        else:
            lines.leave_open(mode, np.array([line]), np.array([self._block(mode, pair, line)]))

    def _block(self, mode: Mode, pair: Screened, line: int) -> int:
        """The independent block that a line lies in."""
        return int(self._blocks(mode, pair, np.array([line]))[0])

    def _blocks(self, mode: Mode, pair: Screened, lines: Index) -> Index:
        """The independent blocks that lines lie in."""
        pattern, point = self.arrangement.patterns[pair.input][pair.output], self.run.point
        if mode is Mode.BLOCKS:
            return lines
        if mode is Mode.ROWS:
            return pattern.block_of_outputs()[lines - point.parts[pair.output].start]
        return np.asarray(pattern.block_of_inputs()[point.columns.coordinate[lines] - point.starts[pair.input]])

    def _single(self, mode: Mode, pair: Screened, line: int) -> bool:
        """Is the line's block a single entry?"""
        pattern = self.arrangement.patterns[pair.input][pair.output]
        return pattern.size == pattern.blocks and int(np.sum(pattern.block_of_outputs() == self._block(mode, pair, line))) == 1

    def _known_well_enough(self, mode: Mode, output: int, found: Judged) -> Judged:
        """Undecided entries that are known to what a screen asks of their line are right: a zero's bar may be wider than its floor."""
        open_ = np.flatnonzero((found.verdict == Verdict.UNDECIDED) & found.derivative.smooth & np.isfinite(found.a))
        if not open_.size:
            return found
        d, low = found.derivative.take(open_), bool(self.run.low_values()[self.run.point.parts[output]].any())
        norm = self._row_norms(found.column[open_], found.out[open_])
        if mode is Mode.COLUMNS:  # a column of zeros has no size to compare with
            norm = np.where((found.a[open_] == 0) & (d.value == 0), norm, self._column_norms(output)[found.column[open_]])
        known = open_[np.isfinite(norm) & (np.abs(found.a[open_] - d.value) + d.bar <= (SCREEN_LOW if low else usual(self.run.point)) * norm)]
        verdict, limit = found.verdict.copy(), found.limit.copy()
        verdict[known], limit[known] = Verdict.PASS, Limit.NONE
        return replace(found, verdict=verdict, limit=limit)

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

    def _line_of(self, mode: Mode, pair: Screened, wrong: Judged, line: int | None) -> int:
        """The line at fault: the flagged one, or the entry's own, where it is off the structure; of rows, which share backwards, always its own."""
        own = int(wrong.column[0] if mode is Mode.COLUMNS else wrong.out[0])
        if mode is Mode.BLOCKS:
            own = int(self.arrangement.patterns[pair.input][pair.output].block_of_outputs()[own - self.run.point.parts[pair.output].start])
        return own if line is None or mode is Mode.ROWS else line

    def _line(self, mode: Mode, pair: Screened, line: int) -> Judged | None:
        pattern = self.arrangement.patterns[pair.input][pair.output]
        found = self._resolved(self._suspects(mode, pair, pattern, line))
        if found is not None and (found.verdict == Verdict.MISMATCH).any():
            return found
        if found is not None and (mode is Mode.COLUMNS or _bent(found)) and self._single(mode, pair, line):
            return found
        return self._column(pair, line) if mode is Mode.COLUMNS else self._small(mode, pair, pattern, line)

    def _suspects(self, mode: Mode, pair: Screened, pattern: Pattern, line: int) -> Suspects:
        point, survey, generator = self.run.point, self.run.survey, self.run.generator
        if mode is Mode.COLUMNS:
            return localise_column(point, survey, pattern, pair.input, pair.output, line, generator)
        block = line if mode is Mode.BLOCKS else int(pattern.block_of_outputs()[line - point.parts[pair.output].start])
        row = line if mode is Mode.ROWS else None
        return localise(point, survey, pattern, pair.input, pair.output, block, generator, row=row)

    def _resolved(self, suspects: Suspects) -> Judged | None:
        if not len(suspects.columns) or not len(suspects.outputs):
            return None
        return resolve(self.run, np.repeat(suspects.columns[:1], len(suspects.outputs)), suspects.outputs)

    def _plan(self, pair: Screened) -> Plan | None:
        return next((p for p in self.arrangement.plans if p.tensor == pair.input), None)

    def _column(self, pair: Screened, column: int) -> Judged | None:
        """All entries of a column, where few enough backwards tell them."""
        plan = self._plan(pair)
        part = self.run.point.parts[pair.output]
        backwards = sum(rows.count for rows in plan.rows) if plan else part.stop - part.start
        if backwards > ROWS:
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
        return resolve(self.run, worst.column[:SMALL], worst.out[:SMALL])

    def _small(self, mode: Mode, pair: Screened, pattern: Pattern, line: int) -> Judged | None:
        """All entries of a row or a block, where they are few.

        Of a structure that is a guess: only a FEW, and only if a kink among them explains the flag. Else the structure is looked at first.
        """
        part, first = self.run.point.parts[pair.output], int(self.run.point.columns.of(pair.input)[0])
        if pattern.size != len(self.run.point.columns.of(pair.input)):
            return None
        of_outputs = pattern.block_of_outputs()
        block = self._block(mode, pair, line)
        columns = first + np.flatnonzero(pattern.block_of_inputs() == block) if block != NOBODY else np.zeros(0, np.intp)
        outputs = np.array([line]) if mode is Mode.ROWS else part.start + np.flatnonzero(of_outputs == block)
        guessed = self._plan(pair) is not None and not self.arrangement.level[pair.input]
        if not 0 < len(columns) * len(outputs) <= (FEW if guessed else SMALL):
            return None
        if mode is Mode.ROWS:
            if (pair.input, pair.output, line) not in self._rows:
                self._resolve_rows(pair, columns, pair.flagged[of_outputs[pair.flagged - part.start] == block])
            found = self._rows[pair.input, pair.output, line]
        else:
            found = resolve(self.run, np.repeat(columns, len(outputs)), np.tile(outputs, len(columns)))
        return None if guessed and not _bent(found) else found

    def _resolve_rows(self, pair: Screened, columns: Index, rows: Index) -> None:
        """The flagged rows of one block together: a column's calls tell of all of them."""
        rows = rows[:LINES]
        found = resolve(self.run, np.repeat(columns, len(rows)), np.tile(rows, len(columns)))
        for row in rows.tolist():
            self._rows[pair.input, pair.output, row] = found.take(np.flatnonzero(found.out == row))

    # ---- what belongs to nobody
    def _stray(self, mode: Mode, pair: Screened, group: int, line: int) -> Judged | None:
        """The entry behind an output that moved, or a column that was pulled back, though the structure has no such entry."""
        pattern = self.arrangement.patterns[pair.input][pair.output]
        column = self._moving(pair, group, line) if mode is Mode.COLUMNS else None
        if column is None:
            found = self._resolved(self._behind(mode, pair, pattern, group, line))
        else:
            found = resolve(self.run, np.array([column]), np.array([line]))
        return found if found is None or (found.verdict != Verdict.PASS).any() or _zero(found) else None

    def _moving(self, pair: Screened, group: int, output: int) -> int | None:
        """The column of a group that moves an output which none of them owns; None where none does by itself."""
        plan = self._plan(pair)
        line = plan.grouping.bundle(self.run.point, group, 1).lines[0] if plan else None
        return mover(self.run, line, output) if isinstance(line, GroupLine) else None

    def _behind(self, mode: Mode, pair: Screened, pattern: Pattern, group: int, line: int) -> Suspects:
        point, survey, generator = self.run.point, self.run.survey, self.run.generator
        column = mode is Mode.ROWS or (mode is Mode.BLOCKS and group == 0)
        if column:
            return localise_column(point, survey, pattern, pair.input, pair.output, line, generator)
        block = int(pattern.block_of_outputs()[line - point.parts[pair.output].start])
        return localise(point, survey, pattern, pair.input, pair.output, block, generator)


def _bent(found: Judged) -> bool:
    """Is f rough at some of the entries? That explains why a screen flagged them."""
    return bool((found.derivative.outcome != Smoothness.SMOOTH).any())


def _zero(found: Judged) -> bool:
    """Are all derivatives zero, or too small to be told from it?"""
    d, nothing = found.derivative, np.zeros(len(found.a))
    return bool((d.unchanged | (np.abs(d.value) <= found.bounds.tolerance(nothing, nothing) + d.bar)).all())


def _groups(mode: Mode, pattern: Pattern) -> tuple[int, int]:
    """Column groups and row groups that the comparison walks."""
    if mode is Mode.COLUMNS:
        return column_groups([pattern]).count, 0
    return 0, row_groups(pattern).count if mode is Mode.ROWS else 0
