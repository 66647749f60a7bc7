"""Every element of a Jacobian: finite differences along lines against the analytic values of the
columns that each line shows.

A line moves a column by itself, or a colour group of columns that no output shares
(`colour_groups`): analytic values of a group come from compressed VJPs, and a mismatch of it is
confirmed by moving its column alone. Memory is a tile of the analytic Jacobian and a chunk of lines within
it, both of fixed size; never N × M. Where the Jacobian is larger than a tile, it is pulled back
anew for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gradverify.model.interrupt import Spent
from gradverify.numerics.entries.chunk import Chunk, ChunkResult
from gradverify.numerics.entries.colour_groups import (
    ColourGroups,
    analytic_values,
    structural_zeros,
)
from gradverify.numerics.entries.confirm import Confirmations, confirmed_anew
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.judging.bundle import Bundle, lone_columns, summed_by_output
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.pair import ElementRecord, Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.prepare import SMALL, Plan, Prepared, Structure
from gradverify.numerics.probing.screen import VERIFIED_ALONG, screen
from gradverify.numerics.probing.seed_matrices import SurveyedPoint, draw_directions
from gradverify.numerics.rungs import QUICK, Array, Index, Mask, Z, in_range
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.survey import Directions
from gradverify.numerics.verdict import PASS, Verdict

SLACK = 1e-3  # of the sum along the ray: its own curvature
TILE_LIMIT = 64 << 20  # bytes of a tile and a chunk together
CHUNK_BYTES = (
    16 * len(QUICK) + 24
)  # an element of a lone column: both sides of the quick rungs, masks, tolerances
# an element of a group whose derivative is solved: samples of the quick rungs, their steps,
# columns, the derivative and its copies
GROUP_BYTES = 600


def compare_entries(prepared: Prepared, keep: int) -> tuple[list[Pair], Structure, bool]:
    """A pair per (input, output), every element judged; the structure that held; and whether the
    budget ended before all were: the others are undecided then. `keep`: how many of the worst a
    pair keeps.

    Once more with other groups of the tensors that have not those which were seen, and of small
    ones in groups that do not simply pass: they are walked column by column, which counts every
    wrong element. And where elements do not add up.
    """
    with np.errstate(all="ignore"):
        suspect = nothing = np.zeros(len(prepared.point.f0), bool)
        while True:
            sweep = Sweep(prepared.run(), prepared.structure, keep, TILE_LIMIT, suspect)
            try:
                broken = sweep.judge_all()
            except Spent:
                for tally in sweep.tallies.values():
                    tally.leave_rest()
                return sweep.pairs(finished=False), prepared.structure, False
            if sweep.complete and not (suspect.any() or prepared.over_budget()):
                suspect = sweep.not_adding_up()
                if suspect.any():
                    continue
            pairs = sweep.pairs(finished=True)
            if not broken and not prepared.over_budget():
                small = {plan.tensor for plan in prepared.structure.plans if plan.size <= SMALL}
                broken = {
                    pair.input
                    for pair in pairs
                    if pair.input in small and pair.verdict is not Verdict.PASS
                }
            if not broken:
                return pairs, prepared.structure, True
            try:
                prepared, suspect = prepared.again(frozenset(broken)), nothing
            except Spent:
                return pairs, prepared.structure, False


class Sweep:
    """All elements once, added to `tallies` by (input, output).

    `suspect`: outputs [M] that are looked at nearer to x. `limit`: bytes of a tile and a chunk
    together; `room`: columns, or groups, whose analytic values fit into a tile.
    """

    def __init__(
        self, run: Run, structure: Structure, keep: int, limit: int, suspect: Mask
    ) -> None:
        point, sizes = run.point, np.diff(run.point.starts).tolist()
        self.run, self.structure, self.limit, self.size = (
            run,
            structure,
            limit,
            max(len(point.f0), 1),
        )
        self.suspect, self.known = suspect, np.ones(len(point.f0), bool)
        self.complete = True
        self.sum, self.bar = np.zeros((2, len(point.f0)))
        self.room = max(1, self.limit // 2 // (8 * self.size))
        self.tallies = {
            (t, o): Tally(t, o, (part.stop - part.start, size), keep, run.asked)
            for t, size in enumerate(sizes)
            for o, part in enumerate(point.parts)
        }

    def judge_all(self) -> set[int]:
        """Lone columns, then groups; the tensors whose forward has other groups than their plan
        says. Raises Spent."""
        self._judge_lone_columns()
        broken = self._judge_groups() if self.structure.plans else set()
        for plan in self.structure.plans:
            structural_zeros(self.run, plan, self.tallies)
        return broken

    def pairs(self, finished: bool) -> list[Pair]:
        """What came of them."""
        point, low, pairs = self.run.point, self.run.low_precision(), list[Pair]()
        for (tensor, output), tally in self.tallies.items():
            plan, part = self.structure.plan(tensor), point.parts[output]
            groups = (
                (plan.grouping.groups.count, plan.rows[output].count)
                if plan
                else (len(point.columns.of(tensor)), part.stop - part.start)
            )
            pair = tally.result(float(point.unit[part].max(initial=0.0)), bool(low[part].any()))
            if (
                finished
                and plan
                and pair.verdict is not Verdict.PASS
                and plan.rows[output].count < part.stop - part.start
            ):
                pair = _as_returned(self.run, plan, pair)
            pairs.append(replace(pair, groups=groups[0], row_groups=groups[1]))
        return pairs

    # ---- tensors without a plan
    def _judge_lone_columns(self) -> None:
        point, planned = self.run.point, {plan.tensor for plan in self.structure.plans}
        ungrouped = [
            point.columns.of(tensor)
            for tensor in range(len(point.buffers))
            if tensor not in planned
        ]
        columns, at_once = (
            np.concatenate([*ungrouped, np.zeros(0, np.intp)]),
            max(1, self.limit // 2 // (CHUNK_BYTES * self.size)),
        )
        for tile, a in self._tiles(columns):
            for chunk in (slice(start, start + at_once) for start in range(0, len(a), at_once)):
                self._judge(None, lone_columns(point, tile[chunk]), a[chunk])

    def _tiles(self, columns: Index) -> Iterator[tuple[Index, Array]]:
        """The analytic Jacobian, transposed: some columns [n] and their values [n, M] at a time."""
        for tile in (
            columns[first : first + self.room] for first in range(0, len(columns), self.room)
        ):
            a = np.empty((len(tile), len(self.run.point.f0)))
            for j in range(len(self.run.point.f0)):
                row = self.run.point.row(j)
                self.run.reach.add_row(j, row)
                a[:, j] = row[tile]
            yield tile, a

    # ---- tensors with a plan
    def _judge_groups(self) -> set[int]:
        """The planned tensors, what their backwards gave off the pattern, and whether it all adds
        up; the tensors of which something is not so."""
        run, plans, point = self.run, self.structure.plans, self.run.point
        counts = {plan.tensor: plan.grouping.groups.count for plan in plans}
        weights = signed_weights_float32(len(point.f0), point.seed.generator("row groups"))
        confirmations = Confirmations(run)
        tensors = {
            plan.tensor: ColourGroups(
                run, plan, self.tallies, weights, confirmations, np.ones(plan.size, bool)
            )
            for plan in plans
        }
        one_tile = sum(counts.values()) <= self.room
        values, strays = analytic_values(
            run,
            plans,
            weights,
            {tensor: range(count if one_tile else 0) for tensor, count in counts.items()},
        )
        broken = set[int]()
        for tensor, count in counts.items():
            width = count if one_tile else self.room
            for span in (
                range(first, min(first + width, count)) for first in range(0, count, width)
            ):
                a = (
                    values[tensor]
                    if one_tile
                    else analytic_values(run, plans, weights, {tensor: span})[0][tensor]
                )
                if not self._judge_tile(tensors[tensor], span.start, a):
                    broken.add(tensor)
                    break
        broken |= {
            tensor
            for tensor, groups in tensors.items()
            if tensor not in broken
            and not groups.add_off_pattern([stray for stray in strays if stray.tensor == tensor])
        }
        if broken:
            self.complete = False
            return broken
        along, patterns = list[Directions](), dict(self.structure.patterns)
        for tensor, groups in tensors.items():
            sample = run.survey.direction_samples[tensor]
            drawn = draw_directions(point, tensor, VERIFIED_ALONG, sample)
            if not groups.plain.all():  # a tie that hid from the structure may move other outputs
                move = np.where(groups.plain, drawn.moves[0], 0.0)
                drawn = Directions(point, tensor, [move])
                plain, shown = np.append(groups.plain, False), np.zeros(len(point.f0), bool)
                for n in range(counts[tensor]):  # the last one answers for NO_ENTRY
                    shown |= plain[groups.plan.grouping.groups.columns_of(range(n, n + 1))[0]]
                patterns[tensor] = tuple(
                    replace(pattern, nothing=~shown[part])
                    for pattern, part in zip(patterns[tensor], point.parts, strict=True)
                )
            along.append(drawn)
        surveyed = SurveyedPoint(point, run.survey)
        checked = screen(
            surveyed, patterns, along, rows=False, linear=run.linear, only_off=True
        )
        off = {pair.input for pair in checked if len(pair.flagged) or pair.stray_count}
        return off - {  # though no element that was measured alone is wrong
            tensor
            for tensor, output in self.tallies
            if confirmations.confirmed[tensor, output] or confirmations.budget_ended
        }

    def _judge_tile(self, groups: ColourGroups, first: int, a: Array) -> bool:
        """Judge groups from the `first` on by their analytic values; are they as expected?"""
        at_once = max(1, self.limit // (GROUP_BYTES * self.size))
        for start in range(0, len(a), at_once):
            values = a[start : start + at_once]
            bundle = groups.plan.grouping.bundle(self.run.point, first + start, len(values))
            if not self._judge(groups, bundle, values):
                return False
        return True

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
        d, by, m = judged.derivative, self.run.survey.moved_by[judged.column], len(self.known)
        rough = (judged.verdict != PASS) | ~d.smooth | ~np.isfinite(d.bar)
        self.known[judged.out[rough]] = False
        for sums, terms in ((self.sum, d.value * by), (self.bar, d.bar * np.abs(by))):
            sums += summed_by_output(judged.out, np.where(rough, 0.0, terms), m, judged.lines)

    def not_adding_up(self) -> Mask:
        """Outputs [M] whose elements are not what f changes by along the survey's ray: nearer to x
        than any step that was taken f is something else."""
        change = self.run.survey.change
        slack = self.bar + 2 * Z * self.run.noise + SLACK * np.abs(self.sum)
        return np.asarray(self.known & np.isfinite(change) & (np.abs(self.sum - change) > slack))

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
                tally.add(elements.pair_elements(part.start, coordinate), int(np.count_nonzero(quick)))


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
