"""Every element of a Jacobian: finite differences along lines against the analytic values of the
columns that each line shows.

A line moves a column by itself, or a colour group of columns that no output shares
(`colour_groups`): analytic values of a group come from compressed VJPs, and a mismatch of it is
confirmed by moving its column alone. Memory is a tile of the analytic Jacobian and a chunk of lines
within it, both of fixed size; never N × M. Where the Jacobian is larger than a tile, it is pulled
back anew for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gradverify.model.interrupt import Spent
from gradverify.numerics.entries.chunk import Chunk, ChunkResult
from gradverify.numerics.entries.colour_groups import (
    ColourGroups,
    analytic_values,
    lasts,
    structural_zeros,
)
from gradverify.numerics.entries.confirm import Confirmations, confirmed_anew
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.function.point import DirectionLine
from gradverify.numerics.judging import Bundle, Judged, Plan, Run, Structure, lone_columns
from gradverify.numerics.pairs.pair import ElementRecord, Pair, Tally
from gradverify.numerics.prepare import SMALL, with_other_groups
from gradverify.numerics.rungs import QUICK, Array, Mask, Z, in_range
from gradverify.numerics.screen import VERIFIED_ALONG, draw_directions, screen
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.survey import Directions
from gradverify.numerics.verdict import PASS, Verdict

SLACK = 1e-3  # of the sum along the ray: its own curvature
TILE_LIMIT = 64 << 20  # bytes of a tile and a chunk together
# An element of a lone column: both sides of the quick rungs, masks, tolerances
CHUNK_BYTES = 16 * len(QUICK) + 24
# an element of a group whose derivative is solved: samples of the quick rungs, their steps,
# columns, the derivative and its copies
GROUP_BYTES = 600


def compare_entries(run: Run, keep: int) -> tuple[list[Pair], Structure, bool]:
    """A pair per (input, output), every element judged; the structure that held; and whether the
    budget ended before all were: the others are undecided then. `keep`: how many of the worst a
    pair keeps.

    Once more with other groups of the tensors that have not those which were seen, and of small
    ones in groups that do not simply pass: they are walked column by column, which counts every
    wrong element. And where elements do not add up.
    """
    with np.errstate(all="ignore"):
        suspect = nothing = np.zeros(len(run.point.f0), bool)
        while True:
            sweep = Sweep(run.fresh(), keep, TILE_LIMIT, suspect)
            try:
                broken = sweep.judge_all()
            except Spent:
                for tally in sweep.tallies.values():
                    tally.leave_rest()
                return sweep.pairs(finished=False), run.structure, False
            if sweep.complete and not (suspect.any() or run.over_budget()):
                suspect = sweep.not_adding_up()
                if suspect.any():
                    continue
            pairs, plans = sweep.pairs(finished=True), run.structure.plans
            if not broken and not run.over_budget():
                broken = {
                    pair.input
                    for pair in pairs
                    if pair.verdict is not Verdict.PASS
                    and pair.input in plans
                    and plans[pair.input].size <= SMALL
                }
            if not broken:
                return pairs, run.structure, True
            try:
                run, suspect = with_other_groups(run, broken), nothing
            except Spent:
                return pairs, run.structure, False


class Sweep:
    """All elements once, added to `tallies` by (input, output).

    `suspect`: outputs [M] that are looked at nearer to x. `limit`: bytes of a tile and a chunk
    together; `room`: columns, or groups, whose analytic values fit into a tile.
    """

    def __init__(self, run: Run, keep: int, limit: int, suspect: Mask) -> None:
        point, m = run.point, len(run.point.f0)
        self.run = run
        self.plans = run.structure.plans
        self.suspect = suspect
        self.known, self.complete = np.ones(m, bool), True
        self.sum, self.bar = np.zeros((2, m))
        self.room = max(1, limit // 2 // (8 * max(m, 1)))
        self.lone_at_once = max(1, limit // 2 // (CHUNK_BYTES * max(m, 1)))
        self.groups_at_once = max(1, limit // (GROUP_BYTES * max(m, 1)))
        self.tallies = {
            (t, o): Tally(t, o, (part.stop - part.start, size), keep, run.asked)
            for t, size in enumerate(np.diff(point.starts).tolist())
            for o, part in enumerate(point.parts)
        }

    def judge_all(self) -> set[int]:
        """Lone columns, then groups; the tensors whose forward has other groups than their plan
        says. Raises Spent."""
        point, at_once = self.run.point, self.lone_at_once
        tensors = (t for t in range(len(point.buffers)) if t not in self.plans)
        lone = np.concatenate([*map(point.columns.of, tensors), np.zeros(0, np.intp)])
        for first in range(0, len(lone), self.room):
            tile = lone[first : first + self.room]
            a = np.empty((len(tile), len(point.f0)))  # of the analytic Jacobian, transposed
            for j in range(len(point.f0)):
                row = point.row(j)
                self.run.reach.add_row(j, row)
                a[:, j] = row[tile]
            for start in range(0, len(a), at_once):
                chunk = slice(start, start + at_once)
                self._judge(None, lone_columns(point, tile[chunk]), a[chunk])
        broken = self._judge_groups() if self.plans else set()
        for plan in self.plans.values():
            structural_zeros(self.run, plan, self.tallies)
        return broken

    def pairs(self, finished: bool) -> list[Pair]:
        """What came of them."""
        point = self.run.point
        low = self.run.low_precision()
        pairs = list[Pair]()
        for (tensor, output), tally in self.tallies.items():
            plan, part = self.plans.get(tensor), point.parts[output]
            pair = tally.result(float(point.unit[part].max(initial=0.0)), bool(low[part].any()))
            columns, rows = len(point.columns.of(tensor)), part.stop - part.start
            if plan:
                few = plan.rows[output].count < rows
                if finished and few and pair.verdict is not Verdict.PASS:
                    pair = _as_returned(self.run, plan, pair)
                columns, rows = plan.groups.count, plan.rows[output].count
            pairs.append(replace(pair, groups=columns, row_groups=rows))
        return pairs

    # ---- tensors with a plan
    def _judge_groups(self) -> set[int]:
        """The planned tensors, what their backwards gave off the pattern, and whether it all adds
        up; the tensors of which something is not so."""
        run = self.run
        point = self.run.point
        broken = set[int]()
        weights = signed_weights_float32(len(point.f0), point.seed.generator("row groups"))
        confirmations = Confirmations(run)
        tensors = {
            t: ColourGroups(
                run, plan, self.tallies, weights, confirmations, np.ones(plan.size, bool)
            )
            for t, plan in self.plans.items()
        }
        counts = {t: plan.groups.count for t, plan in self.plans.items()}
        one_tile, at_once = sum(counts.values()) <= self.room, self.groups_at_once
        spans = {t: range(count if one_tile else 0) for t, count in counts.items()}
        values, strays = analytic_values(run, self.plans, weights, spans)
        for t, groups in tensors.items():
            width = counts[t] if one_tile else self.room
            for first in range(0, counts[t], width):
                span = range(first, min(first + width, counts[t]))
                if not one_tile:
                    values = analytic_values(run, self.plans, weights, {t: span})[0]
                chunks = (values[t][n : n + at_once] for n in range(0, len(span), at_once))
                if not all(
                    self._judge(groups, groups.plan.bundle(point, first + n * at_once, len(a)), a)
                    for n, a in enumerate(chunks)
                ):
                    broken.add(t)
                    break
        for t, groups in tensors.items():
            if t not in broken and not groups.add_off_pattern(strays):
                broken.add(t)
        if broken:
            self.complete = False
            return broken
        return self._off_together(tensors) - {  # though no element that was measured alone is wrong
            tensor
            for tensor, output in self.tallies
            if confirmations.confirmed[tensor, output] or confirmations.budget_ended
        }

    def _off_together(self, tensors: Mapping[int, ColourGroups]) -> set[int]:
        """The tensors of which one direction and one cotangent of the function as a whole do not
        agree, though the elements do: it has another structure."""
        run = self.run
        point = self.run.point
        patterns = dict(self.run.structure.patterns)
        along = list[Directions]()
        for t, groups in tensors.items():
            drawn = draw_directions(point, t, VERIFIED_ALONG, run.survey.direction_samples[t])
            if not groups.plain.all():  # a tie that hid from the structure may move other outputs
                move = np.where(groups.plain, drawn.moves[0], 0.0)
                drawn = Directions(point, t, [move])
                plain, shown = np.append(groups.plain, False), np.zeros(len(point.f0), bool)
                for n in range(groups.plan.groups.count):  # the last one answers for NO_ENTRY
                    shown |= plain[groups.plan.groups.columns_of(range(n, n + 1))[0]]
                patterns[t] = tuple(
                    replace(pattern, nothing=~shown[part])
                    for pattern, part in zip(patterns[t], point.parts, strict=True)
                )
            along.append(drawn)
        seen = {pair: tally.deviation for pair, tally in self.tallies.items()}
        found = screen(run, patterns, along, rows=False, linear=run.linear, seen=seen)
        off = {pair.input for pair in found if len(pair.flagged)}
        moves = {each.tensor: DirectionLine(point, *each.moving()) for each in along}
        for pair in found:
            if pair.strays and pair.input not in off:
                moved = np.array([out for _, out in pair.strays])
                off |= {pair.input} if lasts(run, moves[pair.input], moved) else set()
        return off

    # ---- a chunk of either
    def _judge(self, groups: ColourGroups | None, bundle: Bundle, a: Array) -> bool:
        """The lines of a bundle of n against analytic values a [n, M]; False where its `groups` are
        not what they were taken for.

        `groups`: None where each line moves one column.
        """
        if self.run.stops and self.run.over_budget():
            raise Spent("the budget was spent")
        chunk = Chunk(self.run, bundle, a, self.suspect)
        for result in chunk.judge():
            confirmed = groups.confirmed(result) if groups else result
            if confirmed is None:
                return False
            judged = confirmed_anew(self.run, confirmed.judged, excused(self.run, confirmed.judged))
            self._add(chunk, confirmed, judged)
            self._add_up(judged)
            if groups and not groups.consistent(
                bundle,
                chunk.samples.strays(result.outs, self.run.survey.sigma),
                result.outs.start,
                judged,
            ):
                return False
        return True

    def _add_up(self, judged: Judged) -> None:
        """The elements times how far the survey's ray moves their columns, per output."""
        d = judged.derivative
        by = self.run.survey.moved_by[judged.column]
        m = len(self.known)
        rough = (judged.verdict != PASS) | ~d.smooth | ~np.isfinite(d.bar)
        self.known[judged.out[rough]] = False
        for sums, terms in ((self.sum, d.value * by), (self.bar, d.bar * np.abs(by))):
            sums += np.bincount(judged.out, np.where(rough, 0.0, terms), m)

    def not_adding_up(self) -> Mask:
        """Outputs [M] whose elements are not what f changes by along the survey's ray: nearer to x
        than any step that was taken f is something else."""
        change = self.run.survey.change
        slack = self.bar + 2 * Z * self.run.noise + SLACK * np.abs(self.sum)
        return self.known & np.isfinite(change) & (np.abs(self.sum - change) > slack)

    def _add(self, chunk: Chunk, result: ChunkResult, judged: Judged) -> None:
        """To the tally of each pair its elements."""
        point, tensor_of_line = self.run.point, chunk.bundle.tensor
        for tensor in dict.fromkeys(tensor_of_line.tolist()):
            lines = np.flatnonzero(tensor_of_line == tensor)
            one_tensor = len(lines) == len(tensor_of_line)
            for output, part in enumerate(point.parts):
                tally = self.tallies[tensor, output]
                chunk.add_zeros(tally, result, slice(int(lines[0]), int(lines[-1]) + 1), part)
                elements, quick = judged, result.quick
                if not (one_tensor and part == slice(0, len(point.f0))):
                    of_output = in_range(judged.out, part)
                    of_pair = np.flatnonzero(
                        of_output
                        if one_tensor
                        else of_output & (point.columns.tensor[judged.column] == tensor)
                    )
                    elements, quick = judged.take(of_pair), quick[of_pair]
                coordinate = point.columns.coordinate.take(elements.column) - point.starts[tensor]
                tally.add(
                    elements.pair_elements(part.start, coordinate), int(np.count_nonzero(quick))
                )


def _as_returned(run: Run, plan: Plan, pair: Pair) -> Pair:
    """With the numbers that one-hot cotangents give for the elements that are shown: those of
    groups are the same but for rounding."""
    part, of_tensor = run.point.parts[pair.output], slice(plan.first, plan.first + plan.size)
    rows = {
        j: run.point.row(part.start + j)[of_tensor]
        for j in {record.output_index for record in pair.worst}
    }

    def returned(record: ElementRecord) -> ElementRecord:
        return record._replace(analytic=float(rows[record.output_index][record.input_index]))

    asked = pair.asked and (returned(pair.asked) if pair.asked.output_index in rows else pair.asked)
    return replace(pair, worst=tuple(map(returned, pair.worst)), asked=asked)
