"""Rows and blocks that a probe could not pass, followed to their elements, which are confirmed one
by one (method.md section 6).

A line (a row or block) whose entry is wrong is wrong; one whose entries are all right is right, at
the tolerance of entries; one where neither can be decided for the size of it stays open.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradverify.numerics.choose import Mode
from gradverify.numerics.entries.colour_groups import NEARER
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
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.seed_matrices import SCREEN_LOW, SurveyedPoint, screen_of
from gradverify.numerics.rungs import QUICK
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, row_groups
from gradverify.numerics.survey import STRAY
from gradverify.numerics.verdict import Limit, Verdict

MOST = 12  # lines of a pair that are followed, and strays
STANDS = 2.0  # of the tolerance: some gradient is far above it: the comparison could have failed
SEARCH = 60  # forward calls that it may take to find an entry of a line
ONE_BY_ONE = 64  # entries of a line that are measured alone


class FollowUp:
    """What the screens of one comparison flagged. `keep`: how many of the worst elements a pair
    keeps; `unfollowed`: flagged lines that the end of the budget left."""

    def __init__(self, run: Run, keep: int) -> None:
        self.run, self.keep, self.unfollowed, self._followed = run, keep, 0, 0
        run.learn_survey()

    def budget_ended(self) -> bool:
        """Does the budget end here? One line is followed all the same."""
        self._followed += 1
        return self._followed > 1 and self.run.over_budget(EVERY_RUNG)


class FollowedPair:
    """One screened pair, and what became of its flagged lines, each counted once.

    `wrong_lines`: those found wrong; `assumed_wrong`: how many more count as wrong unasked;
    `cleared`: right after all; `open`: neither right nor wrong, strays among them; `open_blocks`:
    the blocks that those lie in; `kinked_blocks`: blocks of a single entry, which is right at a
    kink; `judged_entries`: (column, output) of all entries that were judged.
    """

    def __init__(self, follow_up: FollowUp, screened: Screened) -> None:
        self.follow_up, self.run, self.screened = follow_up, follow_up.run, screened
        tensor, output, run = screened.input, screened.output, follow_up.run
        self.pattern: Pattern = run.structure.patterns[tensor][output]
        self.part, self.blocks = run.point.parts[output], self.pattern.block_of_outputs()
        self.tally = Tally(tensor, output, (MAP_ROWS + 1, 1), follow_up.keep, run.asked)
        self.wrong_lines, self.open_blocks, self.kinked_blocks = set[int](), set[int](), set[int]()
        self.judged_entries, self._rows = set[tuple[int, int]](), dict[int, Judged]()
        self.assumed_wrong = self.cleared = self.open = 0

    @property
    def wrong(self) -> int:
        return len(self.wrong_lines) + self.assumed_wrong

    def follow(self, pair: Screened, rows: bool, verifying: bool = False) -> None:
        """The flagged lines of a screen, rows or blocks, then its strays. `verifying`: the blocks
        verify a comparison of rows, and one that verifies an open line is not counted again.

        The first MOST lines, until enough of them are confirmed as wrong, so that the others count
        as wrong unasked. A sum that is not finite tells of no fault: such lines come last, and one
        of them is confirmed before the others count.
        """
        order = np.concatenate([pair.flagged[~np.isin(pair.flagged, pair.lost)], pair.lost])
        blocks = self.blocks[order - self.part.start] if rows else order
        left, n, confirmed = np.zeros(len(order), bool), 0, False  # open
        for n, line in enumerate(order.tolist()):
            confirmed = enough_confirmed(self.wrong, self.cleared)
            ended = self.follow_up.budget_ended()
            if n == MOST or confirmed or ended:
                self.follow_up.unfollowed += len(order) - n if ended and not confirmed else 0
                left[n:] = True
                break
            if int(blocks[n]) in self.kinked_blocks:
                continue
            entries = self._entries_of(line, int(blocks[n]), pair, rows)
            left[n] = entries is None or self._stays_open(entries, pair, rows, line)
        if confirmed:
            found = np.isin(pair.lost, list(self.wrong_lines)).any()
            assumed = left & (np.arange(len(order)) >= n) & (found | ~np.isin(order, pair.lost))
            self.assumed_wrong += int(assumed.sum())
            left &= ~assumed
        known = np.isin(blocks[left], list(self.open_blocks)) & verifying
        self.open += int((~known).sum())
        self.open_blocks |= set(blocks[left].tolist())
        for n, (group, line) in enumerate(pair.strays):
            if n == MOST or self.wrong >= ENOUGH_CONFIRMED or self.follow_up.budget_ended():
                self.open += 0 if self.wrong else pair.stray_count - n
                break
            behind = self._behind_stray(group, line)
            self.open += behind is None or self._stays_open(behind, pair, rows)

    def result(self, mode: Mode) -> Pair:
        """The pair as it is reported, its lines counted instead of elements."""
        screened, run = self.screened, self.run
        unit, low = run.point.unit[self.part].max(initial=0.0), run.low_precision()[self.part].any()
        entries = self.tally.result(float(unit), bool(low))
        total = max(screened.lines, self.wrong, min(self.open, 1))
        undecided = min(self.open, total - self.wrong)  # strays may be more than lines
        counts = [0] * len(Outcome)
        counts[Outcome.MISMATCH], counts[Outcome.UNDECIDED] = self.wrong, undecided
        counts[Outcome.PASS] = total - self.wrong - undecided
        # A few lines were followed: they show no cause
        return replace(
            entries,
            elements=total,
            counts=tuple(counts),
            limits=((Limit.LINE, undecided),) if undecided else (),
            masked=0,
            row_groups=row_groups(self.pattern).count if mode is Mode.ROWS else 0,
            resolution=screened.resolution,
            quick=total - len(screened.flagged),
            lines=mode.lines,
            largest=max(entries.largest, STANDS if screened.stands else 0.0),
            entries=None,
        )

    def _stays_open(
        self, entries: Judged, pair: Screened, rows: bool, line: int | None = None
    ) -> bool:
        """Counts what became of a flagged `line`, or of a stray (None), by its entries; does it
        stay open?"""
        entries = self._known_to_the_screen(entries)
        point, places = (
            self.run.point,
            zip(entries.column.tolist(), entries.out.tolist(), strict=True),
        )
        new = [n for n, place in enumerate(places) if place not in self.judged_entries]
        if new:
            added = entries.take(np.array(new))
            self.judged_entries.update(zip(added.column.tolist(), added.out.tolist(), strict=True))
            local = point.columns.coordinate[added.column] - point.starts[self.screened.input]
            self.tally.add(added.pair_elements(self.part.start, local))
        wrong = np.flatnonzero(entries.verdict == Verdict.MISMATCH)
        if wrong.size:
            out = int(entries.out[wrong[0]])
            of_out = out if rows else int(self.blocks[out - self.part.start])
            wrong_line = of_out if rows or line is None else line
            self.wrong_lines.add(wrong_line)
            # which is counted on its own
            return line is not None and wrong_line != line and wrong_line in pair.flagged
        if (entries.verdict == Verdict.UNDECIDED).any():
            return True
        if entries.derivative.rough and hidden_ties(
            self.run, pair.input, self.pattern, self.part.start, entries
        ):
            return True
        self.cleared += 1
        return False

    # ---- entries
    def _search(self, block: int, row: int | None = None, brief: bool = False) -> Search:
        surveyed, pair = SurveyedPoint(self.run.point, self.run.survey), self.screened
        return Search(surveyed, pair.input, pair.output, self.pattern, block, row, brief)

    def _entries_of(self, line: int, block: int, pair: Screened, rows: bool) -> Judged | None:
        """Entries that tell whether a line is right: one that is suspected, else all where they are
        few; None where it would take too many, or the structure is a guess: that is looked at
        first."""
        pattern, structure = self.pattern, self.run.structure
        brief = self.run.over_budget(SEARCH)
        suspects = self._alone(self._search(block, line if rows else None, brief).entry())
        if suspects is not None:
            of_block = np.flatnonzero(self.blocks == block)
            single = pattern.size == pattern.blocks and len(of_block) == 1
            kinked = suspects.derivative.rough and single  # which explains the flag
            if kinked and (suspects.verdict == Verdict.PASS).all():
                self.kinked_blocks.add(block)
            if kinked or (suspects.verdict == Verdict.MISMATCH).any():
                return suspects
        numbers = self.run.point.columns.of(pair.input)
        guessed = pair.input in structure.plans and not structure.level[pair.input]
        if pattern.size != len(numbers) or block == NO_ENTRY or guessed:
            return None
        columns = numbers[pattern.block_of_inputs() == block]
        outputs = np.array([line])
        if not rows:
            outputs = self.part.start + np.flatnonzero(self.blocks == block)
        few = 0 < len(columns) * len(outputs) <= ONE_BY_ONE
        if not few or (len(columns) > 1 and self.run.over_budget()):
            return None
        if not rows:
            return self._alone((columns, outputs))
        if line not in self._rows:
            # the flagged rows of one block together: a column's calls tell of all of them
            beside = pair.flagged[self.blocks[pair.flagged - self.part.start] == block][:MOST]
            beside = beside if line in beside else outputs
            column, out = np.repeat(columns, len(beside)), np.tile(beside, len(columns))
            found = measured_alone(self.run, column, out)
            self._rows |= {row: found.take(np.flatnonzero(out == row)) for row in beside.tolist()}
        return self._rows[line]

    def _behind_stray(self, group: int, line: int) -> Judged | None:
        """The entry behind an output that moved, or a column that was pulled back, though the
        structure has no such entry; None: not found."""
        if group == NO_ENTRY:
            suspects = self._search(int(self.blocks[line - self.part.start])).entry()
        else:
            local = (
                self.run.point.columns.coordinate[line] - self.run.point.starts[self.screened.input]
            )
            block = int(self.pattern.block_of_inputs()[int(local)])
            suspects = self._search(block).output_of(line, group)
        found = self._alone(suspects)
        settled = found is None or (found.verdict != Verdict.PASS).any() or found.is_zero.all()
        return found if settled else None

    def _alone(self, suspects: Suspects) -> Judged | None:
        """The entries of these columns and outputs, each measured alone."""
        columns, outputs = suspects
        if not (len(columns) and len(outputs)):
            return None
        column, out = np.repeat(columns, len(outputs)), np.tile(outputs, len(columns))
        return measured_alone(self.run, column, out)

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
