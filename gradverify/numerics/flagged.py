"""The modes `rows` and `blocks`: sums of elements are screened and verified by blocks, and flagged
lines are followed to their elements, which are confirmed one by one (method.md section 6).

A line (a row or block) with a wrong entry is wrong; one whose entries are all right is right, at
the tolerance of entries; a line too large for either to be decided stays open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradverify.numerics.choose import Choice, Mode
from gradverify.numerics.entries import NEARER, measured_alone
from gradverify.numerics.estimate.ladder import EVERY_RUNG, KINK
from gradverify.numerics.estimate.samples import sample_rung
from gradverify.numerics.excuses.order import beyond_slopes
from gradverify.numerics.function.point import DirectionLine
from gradverify.numerics.halving import half_off
from gradverify.numerics.judging import (
    ENOUGH_CONFIRMED,
    Judged,
    Run,
    Structure,
    enough_confirmed,
)
from gradverify.numerics.pairs.pair import Outcome, Pair, Tally
from gradverify.numerics.prepare import with_other_groups
from gradverify.numerics.rungs import QUICK, Array, Index, Mask
from gradverify.numerics.screen import (
    DIRECTIONS,
    LOW_START,
    VERIFIED_ALONG,
    ProbeDerivative,
    Screened,
    Stage,
    Sums,
    draw_directions,
    noise_along,
    random_cotangent,
    read,
    relative,
    schedule,
    screen,
)
from gradverify.numerics.seed_vectors import moves_along, pull_back, signed_weights
from gradverify.numerics.sparsity.pattern import NO_ENTRY
from gradverify.numerics.survey import STRAY, Directions
from gradverify.numerics.tolerance import guarded
from gradverify.numerics.verdict import PASS, UNDECIDED, Limit

TRIES = 2  # probes: one may miss an error by chance
# The only rung of a brief search, where f has no more noise than SILENT: rounding and curvature are
# 1e-11 of a derivative there
BRIEF, SILENT = 8, 2.0**-40
# Fraction of the error along a random direction, over √n, that each of n columns has where all of
# them are wrong alike
LIKELY = 0.5
# Columns: of more, a brief search examines the largest before it halves them, as often all are
# wrong
GUESSED = 8
ROUGH = 16  # largest number of outputs returned for a column with kinks

Suspects = tuple[Index, Index]
"""A column (one or none) and the outputs to measure it with, by number (as `Point.columns`,
`Point.f0`)."""


@dataclass(frozen=True)
class _Probe:
    """One probe: weights [outputs of the tensor], the gradient of that cotangent, a move of each
    column [n], and the candidate columns, the first `inside` of which belong to the block."""

    weights: Array
    gradient: Array
    move: Array
    candidates: Index
    inside: int


# From a flagged line to one suspicious entry: halve the inputs of its block by forward calls, then
# the outputs of one input by backwards.
# The errors of both halves add up to the total, so one half has at least half of it: that half is
# followed. A rough half (a kink along the direction) is followed too. Nothing is judged here: the
# single column and the one-hot row determine whether the suspect is wrong.
@dataclass
class Search:
    """The search in one block of a pair, by probes: random cotangents of its outputs, and moves of
    columns.

    `row`: the flagged output of the block, where it is known; a sum over all outputs would hide a
    small error of it. `brief`: search by a single rung, which may miss small errors and rough
    outputs.
    """

    run: Run
    tensor: int
    output: int
    block: int
    row: int | None = None
    brief: bool = False

    def __post_init__(self) -> None:
        run, tensor = self.run, self.tensor
        self.point = run.point
        self.pattern = run.structure.patterns[tensor][self.output]
        self.which = (tensor, self.block, self.row)
        self.part = run.point.parts[self.output]
        self.columns = run.columns.of(tensor)
        self.noise = run.survey.noise()
        self.share = relative(run.point, tensor, self.output)[0]
        steps = schedule(run.point, tensor)
        self.stages: tuple[Stage, ...] = (steps.start, *steps.finer)
        if self.brief:
            quiet = bool((self.noise <= SILENT * run.survey.size).all())
            self.stages = ((BRIEF if quiet and steps.start is not LOW_START else steps.start[-1],),)

    @cached_property
    def outputs_inside(self) -> Mask:
        """Mask of the outputs [m] of the block, or of the one that was flagged."""
        if self.row is not None:
            return np.asarray(np.arange(len(self.pattern)) == self.row - self.part.start)
        return np.asarray(self.pattern.block_of_outputs() == self.block)

    def entry(self) -> Suspects:
        """Return one suspicious (output, column), or a few outputs of one column where f is rough
        along it.

        6 forward calls (2 if `brief`) for each halving of the columns (more where kinks are near),
        then one backward for each halving of the outputs. A block has two sides: its outputs may
        depend on columns outside (which are then searched), and outputs outside may have gradients
        in its columns.
        """
        for n in range(2 * TRIES):
            probe = self._probe(n, rows=n % 2 == 0)
            off = self._deviation(probe, probe.candidates) if len(probe.candidates) else None
            if off is not None:
                column = self._worst_column(probe, off)
                return self.columns[[column]], self._worst_outputs(probe, column)
        return np.zeros(0, np.intp), np.zeros(0, np.intp)

    def output_of(self, column: int, group: int) -> Suspects:
        """Return the output, among all of the tensor, whose cotangent has a wrong gradient in a
        flagged column, by one backward for each halving.

        This also finds an output that does not depend on the column at all, which one-hot rows
        would miss. `group`: the group of the stray that led here; each group is searched with its
        own random weights.
        """
        local = int(np.searchsorted(self.columns, column))
        outputs = self._worst_outputs(self._probe(f"of {local} in {group}", rows=False), local)
        return np.full(min(len(outputs), 1), column), outputs

    def _probe(self, number: int | str, rows: bool) -> _Probe:
        """Return a probe of the block's outputs and all columns (the block's first), or of all
        outputs and the block's columns."""
        weights = random_cotangent(self.point, self.output, "search", *self.which, number)
        weights = np.where(self.outputs_inside, weights, 0.0) if rows else weights
        gradient = self._pulled(weights)
        source = self.point.seed.generator("search move", self.output, *self.which, number)
        move = moves_along(self.point, self.columns, signed_weights(len(self.columns), source))
        of_block = (
            self.pattern.block_of_inputs()[self.point.columns_of(self.tensor).coordinate]
            == self.block
        )
        inside, outside = (np.flatnonzero(some & (move != 0)) for some in (of_block, ~of_block))
        return _Probe(
            weights,
            gradient,
            move,
            np.concatenate([inside, outside]) if rows else inside,
            len(inside),
        )

    def _pulled(self, weights: Array) -> Array:
        return self.point.by_column(pull_back(self.point, self.output, weights))[self.columns]

    def _deviation(self, probe: _Probe, columns: Index) -> float | None:
        """Return analytic minus numeric Σ w_j (Jv)_j over these columns; inf where f is rough, None
        where both agree."""
        move = np.zeros(len(self.columns))
        scale = self.point.columns.scale[self.columns[columns]]
        move[columns] = probe.move[columns]
        norm = np.full(1, float(np.sqrt(np.sum((probe.gradient[columns] * scale) ** 2))))
        noise = np.sqrt(np.sum((probe.weights * self.noise[self.part]) ** 2, keepdims=True))
        d = self._derivative(
            move,
            lambda change: probe.weights[None] @ change,
            noise_along(self.point, self.tensor, noise, np.nan_to_num(norm)),
        )
        off = (probe.gradient[columns] * probe.move[columns]).sum() - d.value
        if not np.isfinite(off[0]) or not d.clear[0]:
            return float("inf")
        tolerance = self.share * np.maximum(norm, np.abs(np.nan_to_num(d.value)))
        passed = (guarded(np.abs(off), d.bar, tolerance) == PASS) | (np.abs(off) <= d.bar)
        return None if passed[0] else float(off[0])

    def _derivative(
        self, move: Array, add_up: Callable[[Array], Array], sigma: Array
    ) -> ProbeDerivative:
        """Return the derivatives of sums of the tensor's outputs along a move of the columns, on
        finer rungs where the first are rough."""
        along = Directions(self.point, self.tensor, [move])
        of = Sums(self.output, lambda f: add_up(self.point.changes(f, self.part)), sigma)
        [best] = read(along, 0, self.stages[0], [of])
        for stage in self.stages[1:]:
            i = np.flatnonzero(~best.clear)
            if not i.size:
                break
            finer = read(along, 0, stage, [of])[0].take(i)
            best = best.replaced(i[finer.clear], finer.take(finer.clear))
        return best

    def _worst_column(self, probe: _Probe, off: float) -> int:
        """Return the column that remains when the half with the larger error is followed."""
        columns = probe.candidates
        if self.brief and len(columns) > GUESSED:
            likely = columns[
                [int(np.argmax(np.abs(np.nan_to_num(probe.gradient * probe.move)[columns])))]
            ]
            guess = self._deviation(probe, likely)
            if guess is not None and abs(guess) >= LIKELY * abs(off) / len(columns) ** 0.5:
                return int(likely[0])
        return half_off(
            columns, lambda half: self._deviation(probe, half) or 0.0, off, cut=probe.inside
        )

    def _worst_outputs(self, probe: _Probe, column: int) -> Index:
        """Return the output with the wrong gradient, found by halving; or all outputs that are
        rough along the column, if any."""
        scale = self.point.columns.scale[self.columns[column]]
        move = np.zeros(len(self.columns))
        move[column] = scale
        d = self._derivative(move, lambda change: change, self.noise[self.part])
        used = probe.weights != 0
        rough = np.flatnonzero(used & ~d.clear)
        if rough.size:
            return rough[:ROUGH] + self.part.start
        outputs = np.concatenate(
            [
                np.flatnonzero(used & self.outputs_inside),
                np.flatnonzero(used & ~self.outputs_inside),
            ]
        )
        off = probe.gradient[column] * scale - float(probe.weights @ d.value)
        allowed = self.share * np.linalg.norm(probe.weights * d.value)
        if (
            not len(outputs)
            or abs(off) <= float(np.abs(probe.weights) @ np.where(used, d.bar, 0.0)) + allowed
        ):
            return np.zeros(0, np.intp)

        def deviation(half: Index) -> float:
            weights = np.zeros(len(probe.weights))
            weights[half] = probe.weights[half]
            return float(self._pulled(weights)[column] * scale - weights @ d.value)

        return np.array([half_off(outputs, deviation, off)]) + self.part.start


MOST = 12  # lines of a pair, and strays, that are followed
# Gradient over its tolerance that is reported for a resolved pair: the comparison could have failed
ABOVE_TOLERANCE = 2.0
SEARCH = 60  # largest number of forward calls to find an entry of a line
ONE_BY_ONE = 64  # entries of a line that are measured individually


@dataclass
class FollowedPair:
    """One screened pair, and the results of following its flagged lines, each counted once.

    `keep`: how many of the worst elements are kept. `counts`, over all pairs: the lines `followed`,
    and the flagged ones left `unfollowed` when the budget ended. `wrong_lines`: lines found wrong;
    `assumed_wrong`: how many more count as wrong without being measured; `cleared`: lines found
    right; `open`: undecided lines, and strays; `open_blocks`: their blocks; `kinked_blocks`: blocks
    of a single entry, which is right at a kink; `judged_entries`: (column, output) of all judged
    entries.
    """

    run: Run
    keep: int
    screened: Screened
    counts: Counter[str]
    assumed_wrong: int = 0
    cleared: int = 0
    open: int = 0

    def __post_init__(self) -> None:
        run = self.run
        tensor = self.screened.input
        output = self.screened.output
        self.pattern = run.structure.patterns[tensor][output]
        self.part = run.point.parts[output]
        self.blocks = self.pattern.block_of_outputs()
        self.tally = Tally(tensor, output, None, self.keep, run.requested)
        self.wrong_lines = set[int]()
        self.open_blocks = set[int]()
        self.kinked_blocks = set[int]()
        self.judged_entries = set[tuple[int, int]]()
        self._rows = dict[int, Judged]()

    def budget_ended(self) -> bool:
        """Count a line as followed and return whether the budget ends here. The first line of all
        pairs is followed in any case."""
        self.counts["followed"] += 1
        return self.counts["followed"] > 1 and self.run.over_budget(EVERY_RUNG)

    @property
    def wrong(self) -> int:
        return len(self.wrong_lines) + self.assumed_wrong

    def follow(self, pair: Screened) -> None:
        """Follow the flagged lines of a screen, then its strays.

        `pair`: the screen itself, or the screen of the blocks that verifies it; a block that
        verifies an open row is not counted again.

        At most MOST lines are followed, until enough of them are confirmed as wrong that the others
        count as wrong without being measured. A sum that is not finite does not imply an error:
        such lines come last, and one of them is confirmed before the others count.
        """
        order = np.concatenate([pair.flagged[~np.isin(pair.flagged, pair.lost)], pair.lost])
        blocks = self.blocks[order - self.part.start] if pair.rows else order
        left = np.zeros(len(order), bool)
        n = 0
        confirmed = False  # open
        for n, line in enumerate(order.tolist()):
            confirmed = enough_confirmed(self.wrong, self.cleared)
            ended = self.budget_ended()
            if n == MOST or confirmed or ended:
                self.counts["unfollowed"] += len(order) - n if ended and not confirmed else 0
                left[n:] = True
                break
            if int(blocks[n]) in self.kinked_blocks:
                continue
            entries = self._entries_of(line, int(blocks[n]), pair)
            left[n] = entries is None or self._stays_open(entries, pair, line)
        if confirmed:
            found = np.isin(pair.lost, list(self.wrong_lines)).any()
            assumed = left & (np.arange(len(order)) >= n) & (found | ~np.isin(order, pair.lost))
            self.assumed_wrong += int(assumed.sum())
            left &= ~assumed
        known = np.isin(blocks[left], list(self.open_blocks)) & (pair is not self.screened)
        self.open += int((~known).sum())
        self.open_blocks |= set(blocks[left].tolist())
        for n, (group, line) in enumerate(pair.strays):
            if n == MOST or self.wrong >= ENOUGH_CONFIRMED or self.budget_ended():
                self.open += 0 if self.wrong else pair.stray_count - n
                break
            behind = self._behind_stray(group, line)
            self.open += behind is None or self._stays_open(behind, pair)

    def result(self, mode: Mode) -> Pair:
        """Return the pair as it is reported, its lines counted instead of elements."""
        screened, entries = self.screened, self.run.result(self.tally)
        total = max(screened.lines, self.wrong, min(self.open, 1))
        undecided = min(self.open, total - self.wrong)  # there may be more strays than lines
        counts = [0] * len(Outcome)
        counts[Outcome.MISMATCH] = self.wrong
        counts[Outcome.UNDECIDED] = undecided
        counts[Outcome.PASS] = total - self.wrong - undecided
        # Only a few lines were followed, too few to infer a cause
        return replace(
            entries,
            elements=total,
            counts=tuple(counts),
            limits=((Limit.LINE, undecided),) if undecided else (),
            masked=0,
            row_groups=self.pattern.rows.count if mode is Mode.ROWS else 0,
            resolution=screened.resolution,
            quick=total - len(screened.flagged),
            lines=mode.lines,
            largest=max(entries.largest, ABOVE_TOLERANCE if screened.resolved else 0.0),
            entries=None,
        )

    def _stays_open(self, entries: Judged, pair: Screened, line: int | None = None) -> bool:
        """Count the result for a flagged `line`, or a stray (None), by its entries, and return
        whether it stays open."""
        places = zip(entries.column.tolist(), entries.out.tolist(), strict=True)
        new = [n for n, place in enumerate(places) if place not in self.judged_entries]
        if new:
            added = entries.take(np.array(new))
            self.judged_entries.update(zip(added.column.tolist(), added.out.tolist(), strict=True))
            self.tally.add(added.entries(self.run.point, self.tally))
        wrong = np.flatnonzero(entries.wrong)
        if wrong.size:
            out = int(entries.out[wrong[0]])
            of_out = out if pair.rows else int(self.blocks[out - self.part.start])
            wrong_line = of_out if pair.rows or line is None else line
            self.wrong_lines.add(wrong_line)
            # The line is counted on its own
            return line is not None and wrong_line != line and wrong_line in pair.flagged
        if (entries.verdict == UNDECIDED).any():
            return True
        if entries.derivative.rough and self._hidden_ties(entries):
            return True
        self.cleared += 1
        return False

    # ---- entries
    def _search(self, block: int, row: int | None = None, brief: bool = False) -> Search:
        return Search(self.run, self.screened.input, self.screened.output, block, row, brief)

    def _entries_of(self, line: int, block: int, pair: Screened) -> Judged | None:
        """Return entries that decide whether a line is right: a suspected one, else all where they
        are few. Return None where that would take too many calls, or the structure is a guess,
        which is then checked first."""
        pattern = self.pattern
        brief = self.run.over_budget(SEARCH)
        row = line if pair.rows else None
        suspects = self._alone(self._search(block, row, brief).entry())
        if suspects is not None:
            of_block = np.flatnonzero(self.blocks == block)
            single = pattern.size == pattern.blocks and len(of_block) == 1
            kinked = suspects.derivative.rough and single  # explains the flag
            if kinked and (suspects.verdict == PASS).all():
                self.kinked_blocks.add(block)
            if kinked or suspects.wrong.any():
                return suspects
        numbers = self.run.columns.of(pair.input)
        guessed = self.run.structure.guessed(pair.input)
        if pattern.size != len(numbers) or block == NO_ENTRY or guessed:
            return None
        columns = numbers[pattern.block_of_inputs() == block]
        outputs = np.array([line])
        if not pair.rows:
            outputs = self.part.start + np.flatnonzero(self.blocks == block)
        few = 0 < len(columns) * len(outputs) <= ONE_BY_ONE
        if not few or (len(columns) > 1 and self.run.over_budget()):
            return None
        if not pair.rows:
            return self._alone((columns, outputs))
        if line not in self._rows:
            # The flagged rows of one block together: the calls of a column measure all of them
            neighbours = pair.flagged[self.blocks[pair.flagged - self.part.start] == block][:MOST]
            neighbours = neighbours if line in neighbours else outputs
            column = np.repeat(columns, len(neighbours))
            out = np.tile(neighbours, len(columns))
            found = measured_alone(self.run, column, out)
            self._rows |= {
                row: found.take(np.flatnonzero(out == row)) for row in neighbours.tolist()
            }
        return self._rows[line]

    def _behind_stray(self, group: int, line: int) -> Judged | None:
        """Return the entry behind an output that moved, or a column that a backward reached, off
        the structure; None if it is not found."""
        if group == NO_ENTRY:
            suspects = self._search(int(self.blocks[line - self.part.start])).entry()
        else:
            local = self.run.columns.coordinate[line] - self.run.point.starts[self.screened.input]
            block = int(self.pattern.block_of_inputs()[int(local)])
            suspects = self._search(block).output_of(line, group)
        found = self._alone(suspects)
        settled = found is None or (found.verdict != PASS).any() or found.is_zero.all()
        return found if settled else None

    def _alone(self, suspects: Suspects) -> Judged | None:
        """Measure the entries of these columns and outputs individually."""
        columns, outputs = suspects
        if not (len(columns) and len(outputs)):
            return None
        column = np.repeat(columns, len(outputs))
        out = np.tile(outputs, len(columns))
        return measured_alone(self.run, column, out)

    # ---- ties that the sparsity pattern misses: of equal numbers of which a maximum takes any, a
    # single one that was moved down moved nothing
    def _hidden_ties(self, entries: Judged) -> bool:
        """Return whether the gradient of an output with a kink among these elements is wrong along
        all numbers that are equal there, inside its window or not.

        Two forward calls per output, twelve more and a backward where it moves with those outside;
        none where no number outside is equal.
        """
        run = self.run
        pattern = self.pattern
        c = self.run.columns
        kinked = np.flatnonzero(entries.derivative.outcome == KINK)
        for out in np.unique(entries.out[kinked]).tolist():
            columns = entries.column[kinked[entries.out[kinked] == out]]
            own = c.of(self.screened.input)
            equal = own[np.isin(c.x[own], c.x[columns])]
            local = out - self.part.start
            coordinates = c.coordinate[equal] - int(run.point.starts[self.screened.input])
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


def compare_sums(run: Run, choice: Choice, keep: int) -> tuple[list[Pair], Structure, int]:
    """Return a pair per (input, output) with its lines judged; the structure that held; and how
    many flagged lines the end of the budget left.

    Rows are verified by blocks along the first direction of the survey, on the quick rungs, also
    where f is linear, because a single wide step misses the behaviour of f near x. Where lines stay
    open, this is repeated with complete detection. `keep`: how many of the worst elements a pair
    keeps.
    """
    point = run.point
    survey = run.survey
    linear = run.linear
    rows = choice.mode is Mode.ROWS
    while True:
        pairs = list[Pair]()
        open_ = set[int]()
        structure = run.structure
        fresh, counts = run.fresh(), Counter[str]()
        fresh.reach.add_surveyed()
        with np.errstate(all="ignore"):
            near = [
                draw_directions(
                    point,
                    t,
                    (VERIFIED_ALONG if t in linear else DIRECTIONS) if rows else choice.probes,
                    sample,
                )
                for t, sample in enumerate(survey.direction_samples)
            ]
            along = near
            if rows:
                along = [
                    draw_directions(point, t, DIRECTIONS, linear[t]) if t in linear else near_x
                    for t, near_x in enumerate(near)
                ]
            screened = screen(
                run, structure.patterns, along, rows=rows, linear=linear if rows else ()
            )
            verifying = screened
            if rows:
                verifying = screen(
                    run,
                    structure.patterns,
                    [replace(near_x, moves=[near_x.moves[0]]) for near_x in near],
                    rows=False,
                )
            for lines, blocks in zip(screened, verifying, strict=True):
                followed = FollowedPair(fresh, keep, lines, counts)
                followed.follow(lines)
                if rows and not followed.wrong:
                    followed.follow(blocks)
                if followed.open and structure.guessed(lines.input):
                    open_.add(lines.input)
                pairs.append(followed.result(choice.mode))
        if run.over_budget() or not open_:
            return pairs, structure, counts["unfollowed"] if run.over_budget() else 0
        run = with_other_groups(run, open_)
