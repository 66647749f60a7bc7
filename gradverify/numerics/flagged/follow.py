"""Rows and blocks that a probe could not pass, followed to their elements, which are confirmed one by one (method.md section 6).

A line (a row or block) whose entry is wrong is wrong; one whose entries are all right is right, at the tolerance of entries; one where
neither can be decided for the size of it stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gradverify.numerics.choose import Mode
from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.entries.consistency import moved_near_x
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.excuses.kink_sums import beyond_slopes
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.flagged.localise import Place, Suspects, localise, localise_column
from gradverify.numerics.judging.judged import ENOUGH_CONFIRMED, Judged, enough_confirmed
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import MAP_ROWS, Tally
from gradverify.numerics.prepare import Structure
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.seed_matrices import SCREEN_LOW, SurveyedPoint, screen_of
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, row_groups
from gradverify.numerics.verdict import Limit, Verdict

# ---- Flagged rows and blocks of the Jacobian: which entries each has, and which of them to suspect first
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


# ---- What came of the flagged rows or blocks of one screened pair: how many are wrong, right or open, and the entries that were judged
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


# ---- Ties that the sparsity pattern misses: of equal numbers of which a maximum takes any, one that was moved down by itself moved nothing
AGREES = 0.5  # of a kinked element's own change along the survey's direction: more is not the curvature of anything within the step


def hidden_ties(run: Run, tensor: int, pattern: Pattern, first_output: int, entries: Judged) -> bool:
    """Is the gradient of an output with a kink among these elements wrong along all numbers that are equal there, inside its window or not?

    Two forward calls an output, twelve more and a backward where it moves with those outside; none where nothing outside is equal, or where an
    output of a single element goes as that element says when everything is moved. `first_output`: the first output of the pattern.
    """
    kinked = np.flatnonzero(entries.derivative.outcome == KINK)
    for out in np.unique(entries.out[kinked]).tolist():
        kinks = kinked[entries.out[kinked] == out]
        outside = _equal_outside(run, tensor, pattern, out - first_output, entries.column[kinks])
        hides = len(outside) and not _one_element_explains(run, tensor, pattern, out - first_output, entries, kinks)
        if hides and moved_near_x(run, outside, run.point.columns.scale[outside])[out]:
            together = np.union1d(entries.column[kinks], outside)
            if beyond_slopes(run, together, np.array([out]), run.point.row(out)[None, together])[0]:
                return True
    return False


def _equal_outside(run: Run, tensor: int, pattern: Pattern, local: int, columns: Index) -> Index:
    """The columns that hold the number of any of these, and that the output does not depend on, as far as was seen."""
    c = run.point.columns
    equal = c.of(tensor)
    equal = equal[np.isin(c.x[equal], c.x[columns])]
    return equal[~inside(pattern, local, c.coordinate[equal] - int(run.point.starts[tensor]))]


def inside(pattern: Pattern, local: int, coordinates: Index) -> Mask:
    """Which coordinates of the input lie in the window of an output."""
    places = np.unravel_index(coordinates, pattern.shape) if pattern.shape else ()
    within = np.full(len(coordinates), not pattern.nothing[local])
    for place, low, high in zip(places, pattern.low, pattern.high, strict=True):
        within &= (low[local] <= place) & (place <= high[local])
    return within


def _one_element_explains(run: Run, tensor: int, pattern: Pattern, local: int, entries: Judged, elements: Index) -> bool:
    """Is the output's window a single element, whose slopes explain how it moved along the survey's direction? That takes no calls."""
    sample = run.survey.direction_samples[tensor]
    if sample is None or len(elements) > 1 or any(high[local] > low[local] for low, high in zip(pattern.low, pattern.high, strict=True)):
        return False
    n, d = int(elements[0]), entries.derivative
    move = sample.direction[np.searchsorted(sample.columns, entries.column[n])]
    right, left = (float(d.right[n]), float(d.left[n])) if move > 0 else (float(d.left[n]), float(d.right[n]))
    rung, out = sample.values, entries.out[n]
    sides = ((_at(rung.up, out), right * _at(rung.step_up, out)), (_at(rung.down, out), -left * _at(rung.step_down, out)))
    size = max(abs(right), abs(left)) * abs(move)
    return all(abs(f - run.point.f0[out] - slope * move) <= AGREES * size * _at(rung.step_up, out) for f, slope in sides)


def _at(values: float | Array, out: int) -> float:
    return float(values[out]) if isinstance(values, np.ndarray) else values


# ---- The entries of a flagged row or block as they are judged: those that are suspected first, then all where they are few
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


# ---- Undecided entries of a flagged line that are known as well as the screen asks of the line
def known_to_the_screen(lines: FlaggedBlocks, entries: Judged) -> Judged:
    """Undecided entries that are known to what a screen asks of their row are right: a zero's bar may be wider than its floor."""
    i = np.flatnonzero((entries.verdict == Verdict.UNDECIDED) & entries.derivative.smooth & np.isfinite(entries.analytic))
    if not i.size:
        return entries
    run, d, outputs = lines.run, entries.derivative.take(i), entries.out[i]
    c = run.point.columns
    rows = {j: float(np.linalg.norm(np.nan_to_num(run.point.row(j), posinf=0.0, neginf=0.0) * c.scale)) for j in np.unique(outputs).tolist()}
    norm = np.array([rows[j] for j in outputs.tolist()]) / c.scale[entries.column[i]]
    share = SCREEN_LOW if run.low_values()[lines.part].any() else screen_of(run.point)
    return entries.passed(i[np.isfinite(norm) & (np.abs(entries.analytic[i] - d.value) + d.bar <= share * norm)])


# ---- Rows and blocks that a probe could not pass, followed to their elements, which are confirmed one by one (method.md section 6)
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
