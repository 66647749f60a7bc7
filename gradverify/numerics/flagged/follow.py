"""Rows and blocks that a probe could not pass, followed to their elements, which are confirmed one
by one (method.md section 6).

A line (a row or block) whose entry is wrong is wrong; one whose entries are all right is right, at
the tolerance of entries; one where neither can be decided for the size of it stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradverify.numerics.choose import Mode
from gradverify.numerics.entries.confirm import measured_alone
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.kinks import KINK
from gradverify.numerics.estimate.samples import sample_rung
from gradverify.numerics.excuses.kink_sums import beyond_slopes
from gradverify.numerics.flagged.localise import Search, Suspects
from gradverify.numerics.function.point import DirectionLine
from gradverify.numerics.judging.judged import ENOUGH_CONFIRMED, Judged, enough_confirmed
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.pairs.tally import MAP_ROWS, Tally
from gradverify.numerics.probing.off_pattern import NEARER
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.seed_matrices import SCREEN_LOW, SurveyedPoint, screen_of
from gradverify.numerics.rungs import QUICK, Index
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, row_groups
from gradverify.numerics.survey import STRAY
from gradverify.numerics.verdict import Limit, Verdict

MOST = 12  # lines of a pair that are followed, and strays
STANDS = (
    2.0  # of the tolerance: some gradient is far above it, so that the comparison could have failed
)
SEARCH = 60  # forward calls that it may take to find an entry of a line
FEW = 4  # entries of a line that are measured alone though its structure is a guess
ONE_BY_ONE = 64  # entries of a line that are measured alone


class FollowUp:
    """Judges what the screens of one comparison flagged. `keep`: how many of the worst elements a
    pair keeps.

    `unfollowed`: flagged lines that the end of the budget left.
    """

    def __init__(self, run: Run, keep: int) -> None:
        self.run, self.keep, self.unfollowed, self._followed = run, keep, 0, 0
        run.learn_survey()

    def pairs(
        self, mode: Mode, screened: Sequence[Screened], check: Sequence[Screened] = ()
    ) -> tuple[list[Pair], frozenset[int]]:
        """The pairs screened in this mode, verified by the blocks of `check`; and the tensors in
        which lines stayed open."""
        result, open_tensors, verifying = (
            [],
            set(),
            {(pair.input, pair.output): pair for pair in check},
        )
        for pair in screened:
            followed = _FollowedPair(self, pair)
            followed.follow(pair, mode is Mode.ROWS)
            block_pair = verifying.get((pair.input, pair.output))
            if block_pair is not None and not followed.wrong:
                followed.follow(block_pair, rows=False, verifying=True)
            if followed.open:
                open_tensors.add(pair.input)
            result.append(followed.result(mode))
        return result, frozenset(open_tensors)

    def budget_ended(self) -> bool:
        """Does the budget end here? One line is followed all the same."""
        self._followed += 1
        return self._followed > 1 and self.run.over_budget(EVERY_RUNG)


class _FollowedPair:
    """One screened pair, and what became of its flagged lines, each counted once.

    `wrong_lines`: those found wrong; `assumed_wrong`: how many more count as wrong unasked;
    `cleared`: right after all; `open`: neither right nor wrong, strays among them; `open_blocks`:
    the blocks that those lie in; `kinked_blocks`: blocks of a single entry, which is right at a
    kink; `judged_entries`: (column, output) of all entries that were judged.
    """

    def __init__(self, follow_up: FollowUp, screened: Screened) -> None:
        self.follow_up, self.run, self.screened = follow_up, follow_up.run, screened
        self.pattern: Pattern = follow_up.run.structure.patterns[screened.input][screened.output]
        self.part, self.blocks = (
            self.run.point.parts[screened.output],
            self.pattern.block_of_outputs(),
        )
        self.tally = Tally(
            screened.input, screened.output, (MAP_ROWS + 1, 1), follow_up.keep, self.run.asked
        )
        self.wrong_lines, self.open_blocks, self.kinked_blocks = set[int](), set[int](), set[int]()
        self.judged_entries, self._rows = set[tuple[int, int]](), dict[int, Judged]()
        self.assumed_wrong = self.cleared = self.open = 0

    @property
    def wrong(self) -> int:
        return len(self.wrong_lines) + self.assumed_wrong

    def follow(self, pair: Screened, rows: bool, verifying: bool = False) -> None:
        """The flagged lines of a screen, rows or blocks, then its strays. `verifying`: the blocks
        verify a comparison of rows.

        The first MOST lines, until enough of them are confirmed as wrong. A sum that is not finite
        tells of no fault: such lines come last.
        """
        order = np.concatenate([pair.flagged[~np.isin(pair.flagged, pair.lost)], pair.lost])
        for n, line in enumerate(order.tolist()):
            confirmed, budget_ended = (
                enough_confirmed(self.wrong, self.cleared),
                self.follow_up.budget_ended(),
            )
            if n == MOST or confirmed or budget_ended:
                self.follow_up.unfollowed += len(order) - n if budget_ended and not confirmed else 0
                self._leave_unfollowed(order[n:], confirmed, pair, rows, verifying)
                break
            block = self._block(line, rows)
            if block in self.kinked_blocks:
                continue
            entries = self._entries_of(line, block, pair, rows)
            if entries is None or self._stays_open(entries, pair, rows, line):
                self._leave_open(np.array([block]), verifying)
        for n, (group, line) in enumerate(pair.strays.tolist()):
            if n == MOST or self.wrong >= ENOUGH_CONFIRMED or self.follow_up.budget_ended():
                self.open += 0 if self.wrong else pair.stray_count - n
                break
            entries = self._behind_stray(group, line)
            self.open += entries is None or self._stays_open(entries, pair, rows)

    def result(self, mode: Mode) -> Pair:
        """The pair as it is reported, its lines counted instead of elements."""
        screened, run = self.screened, self.run
        entries = self.tally.result(
            float(run.point.unit[self.part].max(initial=0.0)),
            bool(run.low_precision()[self.part].any()),
        )
        total = max(screened.lines, self.wrong, min(self.open, 1))
        undecided = min(self.open, total - self.wrong)  # strays may be more than lines
        outcomes = [0] * len(Outcome)
        outcomes[Outcome.MISMATCH], outcomes[Outcome.UNDECIDED], outcomes[Outcome.PASS] = (
            self.wrong,
            undecided,
            total - self.wrong - undecided,
        )
        return replace(
            entries,
            elements=total,
            counts=tuple(outcomes),
            limits=((Limit.LINE, undecided),) if undecided else (),
            masked=0,
            row_groups=row_groups(self.pattern).count if mode is Mode.ROWS else 0,
            resolution=screened.resolution,
            quick=total - len(screened.flagged),
            lines=mode.lines,
            largest=max(entries.largest, STANDS if screened.stands else 0.0),
            entries=None,
        )  # a few lines were followed: they show no cause

    # ---- lines
    def _block(self, line: int, rows: bool) -> int:
        """The independent block that a line lies in."""
        return int(self.blocks[line - self.part.start]) if rows else line

    def _outputs(self, line: int, rows: bool) -> Index:
        """The outputs of a line's entries."""
        return np.array([line]) if rows else self.part.start + np.flatnonzero(self.blocks == line)

    def _single(self, block: int) -> bool:
        """Is the block a single entry?"""
        return (
            self.pattern.size == self.pattern.blocks
            and int(np.count_nonzero(self.blocks == block)) == 1
        )

    def _leave_open(self, blocks: Index, verifying: bool) -> None:
        """Counts lines once, which lie in these blocks: the block that verifies a line
        (`verifying`) is not another one."""
        self.open += (
            int((~np.isin(blocks, list(self.open_blocks | self.kinked_blocks))).sum())
            if verifying
            else len(blocks)
        )
        self.open_blocks |= set(blocks.tolist())

    def _leave_unfollowed(
        self, lines: Index, confirmed: bool, pair: Screened, rows: bool, verifying: bool
    ) -> None:
        """Counts lines as wrong where enough others are `confirmed` (of those with sums that are
        not finite, one), else as open."""
        not_finite = np.isin(lines, pair.lost) & (
            not np.isin(pair.lost, list(self.wrong_lines)).any()
        )
        assumed = ~not_finite if confirmed else np.zeros(len(lines), bool)
        self.assumed_wrong += int(assumed.sum())
        left = lines[~assumed]
        self._leave_open(self.blocks[left - self.part.start] if rows else left, verifying)

    def _stays_open(
        self, entries: Judged, pair: Screened, rows: bool, line: int | None = None
    ) -> bool:
        """Counts what became of a flagged `line`, or of a stray (None), by its entries; does it
        stay open?"""
        entries = self._known_to_the_screen(entries)
        self._add(entries)
        wrong, rough = np.flatnonzero(entries.verdict == Verdict.MISMATCH), entries.derivative.rough
        if wrong.size:
            out = int(entries.out[wrong[0]])
            wrong_line = out if rows else self._block(out, rows=True) if line is None else line
            self.wrong_lines.add(wrong_line)
            return (
                line is not None and wrong_line != line and wrong_line in pair.flagged
            )  # which is counted on its own
        if (entries.verdict == Verdict.UNDECIDED).any() or (
            rough and hidden_ties(self.run, pair.input, self.pattern, self.part.start, entries)
        ):
            return True
        self.cleared += 1
        if line is not None and rough and self._single(self._block(line, rows)):
            self.kinked_blocks.add(self._block(line, rows))
        return False

    def _add(self, entries: Judged) -> None:
        """The entries that were not judged before, to the tally."""
        places, point = (
            list(zip(entries.column.tolist(), entries.out.tolist(), strict=True)),
            self.run.point,
        )
        entries = entries.take(
            np.array(
                [n for n, place in enumerate(places) if place not in self.judged_entries], np.intp
            )
        )
        self.judged_entries.update(places)
        if len(entries.out):
            self.tally.add(
                entries.pair_elements(
                    self.part.start,
                    point.columns.coordinate[entries.column] - point.starts[self.screened.input],
                )
            )

    # ---- entries
    def _search(self, block: int, row: int | None = None, brief: bool = False) -> Search:
        return Search(
            SurveyedPoint(self.run.point, self.run.survey),
            self.screened.input,
            self.screened.output,
            self.pattern,
            block,
            row,
            brief,
        )

    def _entries_of(self, line: int, block: int, pair: Screened, rows: bool) -> Judged | None:
        """Entries that tell whether a line is right: one that is suspected, else all where they are
        few; None where it would take too many.

        Of a structure that is a guess: only a FEW, and only if a kink among them explains the flag.
        Else the structure is looked at first.
        """
        suspects = self._measured(
            self._search(block, line if rows else None, self.run.over_budget(SEARCH)).entry()
        )
        if suspects is not None and (
            (suspects.verdict == Verdict.MISMATCH).any()
            or (suspects.derivative.rough and self._single(block))
        ):
            return suspects  # a kink explains the flag
        structure, numbers = self.run.structure, self.run.point.columns.of(pair.input)
        if self.pattern.size != len(numbers) or block == NO_ENTRY:
            return None
        columns, outputs = (
            numbers[self.pattern.block_of_inputs() == block],
            self._outputs(line, rows),
        )
        guessed = pair.input in structure.plans and not structure.level[pair.input]
        if not 0 < len(columns) * len(outputs) <= (FEW if guessed else ONE_BY_ONE) or (
            len(columns) > 1 and self.run.over_budget()
        ):
            return None
        if not rows:
            entries = self._alone(columns, outputs)
        else:
            if (
                line not in self._rows
            ):  # the flagged rows of one block together: a column's calls tell of all of them
                beside = pair.flagged[self.blocks[pair.flagged - self.part.start] == block][:MOST]
                beside = beside if line in beside else outputs
                found = self._alone(columns, beside)
                self._rows |= {
                    row: found.take(np.flatnonzero(found.out == row)) for row in beside.tolist()
                }
            entries = self._rows[line]
        return None if guessed and not entries.derivative.rough else entries

    def _behind_stray(self, group: int, line: int) -> Judged | None:
        """The entry behind an output that moved, or a column that was pulled back, though the
        structure has no such entry; None: not found."""
        if group == NO_ENTRY:
            suspects = self._search(self._block(line, rows=True)).entry()
        else:
            local = int(
                self.run.point.columns.coordinate[line] - self.run.point.starts[self.screened.input]
            )
            suspects = self._search(int(self.pattern.block_of_inputs()[local])).output_of(
                line, group
            )
        entries = self._measured(suspects)
        return (
            entries
            if entries is None or (entries.verdict != Verdict.PASS).any() or entries.is_zero.all()
            else None
        )

    def _measured(self, suspects: Suspects) -> Judged | None:
        columns, outputs = suspects
        return self._alone(columns, outputs) if len(columns) and len(outputs) else None

    def _alone(self, columns: Index, outputs: Index) -> Judged:
        """The entries of these columns and outputs, each measured alone."""
        return measured_alone(
            self.run, np.repeat(columns, len(outputs)), np.tile(outputs, len(columns))
        )

    def _known_to_the_screen(self, entries: Judged) -> Judged:
        """Undecided entries that are known to what a screen asks of their row are right: a zero's
        bar may be wider than its floor."""
        i = np.flatnonzero(
            (entries.verdict == Verdict.UNDECIDED)
            & entries.derivative.smooth
            & np.isfinite(entries.analytic)
        )
        if not i.size:
            return entries
        run, d, outputs, c = (
            self.run,
            entries.derivative.take(i),
            entries.out[i],
            self.run.point.columns,
        )
        rows = {
            j: float(
                np.linalg.norm(np.nan_to_num(run.point.row(j), posinf=0.0, neginf=0.0) * c.scale)
            )
            for j in np.unique(outputs).tolist()
        }
        norm = np.array([rows[j] for j in outputs.tolist()]) / c.scale[entries.column[i]]
        share = SCREEN_LOW if run.low_values()[self.part].any() else screen_of(run.point)
        return entries.passed(
            i[np.isfinite(norm) & (np.abs(entries.analytic[i] - d.value) + d.bar <= share * norm)]
        )


# ---- Ties that the sparsity pattern misses: of equal numbers of which a maximum takes any, one
# that was moved down by itself moved nothing
def hidden_ties(
    run: Run, tensor: int, pattern: Pattern, first_output: int, entries: Judged
) -> bool:
    """Is the gradient of an output with a kink among these elements wrong along all numbers that
    are equal there, inside its window or not?

    Two forward calls an output, twelve more and a backward where it moves with those outside; none
    where nothing outside is equal. `first_output`: the first output of the pattern.
    """
    c, kinked = run.point.columns, np.flatnonzero(entries.derivative.outcome == KINK)
    for out in np.unique(entries.out[kinked]).tolist():
        columns, own = entries.column[kinked[entries.out[kinked] == out]], c.of(tensor)
        equal = own[np.isin(c.x[own], c.x[columns])]
        local, coordinates = out - first_output, c.coordinate[equal] - int(run.point.starts[tensor])
        places = np.unravel_index(coordinates, pattern.shape) if pattern.shape else ()
        inside = np.full(len(equal), not pattern.nothing[local])
        for place, low, high in zip(places, pattern.low, pattern.high, strict=True):
            inside &= (low[local] <= place) & (place <= high[local])
        outside = equal[~inside]
        line = DirectionLine(run.point, outside, c.scale[outside])
        near = sample_rung(line, QUICK[0] + NEARER) if len(outside) else None
        off = max(abs(f[out] - run.point.f0[out]) for f in near[:2]) if near else 0.0
        if off > STRAY * run.survey.sigma[out]:
            together = np.union1d(columns, outside)
            analytic = run.point.row(out)[None, together]
            if beyond_slopes(run, together, np.array([out]), analytic)[0]:
                return True
    return False
