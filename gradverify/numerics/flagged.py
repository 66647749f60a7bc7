"""From a flagged line to entries: what a screen could not pass is judged by the lone column and the one-hot row (method.md 3.5).

A line whose entry is wrong is wrong; one whose entries are all right is right, at the tolerance of entries; one where neither can be told
for the size of it stays open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.columns.arrange import Arrangement
from gradverify.numerics.columns.bundle import lone
from gradverify.numerics.columns.choose import Mode
from gradverify.numerics.columns.chunk import Chunk
from gradverify.numerics.columns.compressed import Compressed
from gradverify.numerics.columns.confirm import resolve
from gradverify.numerics.columns.opinions import second_opinions
from gradverify.numerics.columns.run import AliasSums, Run
from gradverify.numerics.columns.tally import MAP_ROWS, Judged, Outcome, Pair, Tally
from gradverify.numerics.compare import Limit, Verdict
from gradverify.numerics.localise import Suspects, localise, localise_column
from gradverify.numerics.pattern import NOBODY, Pattern, column_groups, row_groups
from gradverify.numerics.reduction import signed
from gradverify.numerics.screen import Screen, Screened

LINES = 12  # of a pair that are followed at most
STOOD = 3  # wrong ones, after which the rest is believed, if none was cleared
ROWS = 1024  # backwards that the entries of flagged columns may take
SMALL = 64  # entries of a line that are resolved one by one
STANDS = 2.0  # of the tolerance: some gradient is far above it, so that the comparison could have failed


@dataclass
class _Lines:
    """What became of the flagged lines of one pair."""

    wrong: int = 0
    cleared: int = 0
    open: int = 0


class Flagged:
    """Judges what the screens of one comparison flagged; `patterns` and plans as in the arrangement."""

    def __init__(self, run: Run, arrangement: Arrangement, keep: int) -> None:
        self.run, self.arrangement, self.keep = run, arrangement, keep
        self.weights = signed(len(run.point.f0), run.generator)

    def pairs(self, mode: Mode, screen: Screen, check: Screen | None) -> tuple[list[Pair], frozenset[int]]:
        """The pairs of `screen`, verified by the blocks of `check`; and the tensors in which lines stayed open."""
        result, suspects = [], set()
        for pair in screen.pairs:
            tally = Tally(pair.input, pair.output, (MAP_ROWS + 1, 1), self.keep)
            lines = _Lines()
            self._follow(mode, pair, tally, lines)
            other = check.pair(pair.input, pair.output) if check else None
            if other is not None and not lines.wrong:
                self._follow(Mode.BLOCKS, other, tally, lines)
            if lines.open:
                suspects.add(pair.input)
            result.append(self._pair(mode, pair, tally, lines))
        return result, frozenset(suspects)

    def _pair(self, mode: Mode, pair: Screened, tally: Tally, lines: _Lines) -> Pair:
        part = self.run.point.parts[pair.output]
        unit = float(self.run.point.unit[part].max(initial=0.0))
        seen = tally.result(unit, bool(self.run.low_precision()[part].any()))
        total = max(pair.lines, lines.wrong + lines.open)
        counts = [0] * len(Outcome)
        counts[Outcome.MISMATCH], counts[Outcome.UNDECIDED] = lines.wrong, lines.open
        counts[Outcome.PASS] = total - lines.wrong - lines.open
        limits = ((Limit.LINE, lines.open),) if lines.open else ()
        pattern = self.arrangement.patterns[pair.input][pair.output]
        groups, rows = _groups(mode, pattern)
        return replace(
            seen, groups=groups, row_groups=rows, elements=total, masked=0, counts=tuple(counts), resolution=pair.resolution, limits=limits,
            quick=total - len(pair.flagged),
            largest=max(seen.largest, STANDS if pair.relative > 0 else 0.0), lines=mode.lines,
            entries=None)  # a few lines were followed: no cause is told from them

    # ---- lines
    def _follow(self, mode: Mode, pair: Screened, tally: Tally, lines: _Lines) -> None:
        for n, line in enumerate(pair.flagged.tolist()):
            if n == LINES or (lines.wrong >= STOOD and not lines.cleared):
                left = len(pair.flagged) - n
                believed = lines.wrong >= STOOD and not lines.cleared
                lines.wrong, lines.open = lines.wrong + left * believed, lines.open + left * (not believed)
                break
            self._count(self._line(mode, pair, line), pair, tally, lines)
        for n, (group, line) in enumerate(pair.strays.tolist()):
            if n == LINES or lines.wrong >= STOOD:
                lines.open += 0 if lines.wrong else pair.stray_count - n
                break
            self._count(self._stray(mode, pair, group, line), pair, tally, lines)

    def _count(self, found: Judged | None, pair: Screened, tally: Tally, lines: _Lines) -> None:
        """`found`: the entries of a line that were judged; None where that was out of reach."""
        if found is None:
            lines.open += 1
            return
        found, _ = second_opinions(self.run, found, found.derivative.at_border, lambda column, output: float(self.run.point.row(output)[column]))
        wrong = bool((found.verdict == Verdict.MISMATCH).any())
        undecided = bool((found.verdict == Verdict.UNDECIDED).any())
        lines.wrong, lines.open = lines.wrong + wrong, lines.open + (undecided and not wrong)
        lines.cleared += not (wrong or undecided)
        coordinate = self.run.point.columns.coordinate[found.column] - self.run.point.starts[pair.input]
        tally.add(found.compared(self.run.point.parts[pair.output].start, coordinate))

    def _line(self, mode: Mode, pair: Screened, line: int) -> Judged | None:
        pattern = self.arrangement.patterns[pair.input][pair.output]
        found = self._resolved(self._suspects(mode, pair, pattern, line))
        if found is not None and (found.verdict == Verdict.MISMATCH).any():
            return found
        return self._column(pair, line) if mode is Mode.COLUMNS else self._small(mode, pair, pattern, line)

    def _suspects(self, mode: Mode, pair: Screened, pattern: Pattern, line: int) -> Suspects:
        point, survey, generator = self.run.point, self.run.survey, self.run.generator
        if mode is Mode.COLUMNS:
            return localise_column(point, survey, pattern, pair.input, pair.output, line, generator)
        block = line if mode is Mode.BLOCKS else int(pattern.block_of_outputs()[line - point.parts[pair.output].start])
        return localise(point, survey, pattern, pair.input, pair.output, block, generator)

    def _resolved(self, suspects: Suspects) -> Judged | None:
        if not len(suspects.columns) or not len(suspects.outputs):
            return None
        return resolve(self.run, np.repeat(suspects.columns[:1], len(suspects.outputs)), suspects.outputs)

    def _column(self, pair: Screened, column: int) -> Judged | None:
        """All entries of a column, where few enough backwards tell them."""
        plan = next((p for p in self.arrangement.plans if p.tensor == pair.input), None)
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
        """All entries of a row or a block, where they are few."""
        part, first = self.run.point.parts[pair.output], int(self.run.point.columns.of(pair.input)[0])
        if pattern.size != len(self.run.point.columns.of(pair.input)):
            return None
        if mode is Mode.ROWS:
            blocks, outputs = pattern.block_of_outputs()[[line - part.start]], np.array([line])
        else:
            blocks, outputs = np.array([line]), part.start + np.flatnonzero(pattern.block_of_outputs() == line)
        columns = first + np.flatnonzero(pattern.block_of_inputs() == blocks[0]) if blocks[0] != NOBODY else np.zeros(0, np.intp)
        if not 0 < len(columns) * len(outputs) <= SMALL:
            return None
        return resolve(self.run, np.repeat(columns, len(outputs)), np.tile(outputs, len(columns)))

    # ---- what belongs to nobody
    def _stray(self, mode: Mode, pair: Screened, group: int, line: int) -> Judged | None:
        """The entry behind an output that moved, or a column that was pulled back, though the structure has no such entry."""
        pattern = self.arrangement.patterns[pair.input][pair.output]
        suspects = self._behind(mode, pair, pattern, group, line)
        found = self._resolved(suspects)
        return found if found is None or (found.verdict != Verdict.PASS).any() or _zero(found) else None

    def _behind(self, mode: Mode, pair: Screened, pattern: Pattern, group: int, line: int) -> Suspects:
        point, survey, generator = self.run.point, self.run.survey, self.run.generator
        column = mode is Mode.ROWS or (mode is Mode.BLOCKS and group == 0)
        if column:
            return localise_column(point, survey, pattern, pair.input, pair.output, line, generator)
        block = int(pattern.block_of_outputs()[line - point.parts[pair.output].start])
        return localise(point, survey, pattern, pair.input, pair.output, block, generator)


def _zero(found: Judged) -> bool:
    """Are all derivatives zero, or too small to be told from it?"""
    d, nothing = found.derivative, np.zeros(len(found.a))
    return bool((d.unchanged | (np.abs(d.value) <= found.bounds.tolerance(nothing, nothing) + d.bar)).all())


def _groups(mode: Mode, pattern: Pattern) -> tuple[int, int]:
    """Column groups and row groups that the comparison walks."""
    if mode is Mode.COLUMNS:
        return column_groups([pattern]).count, 0
    return 0, row_groups(pattern).count if mode is Mode.ROWS else 0
