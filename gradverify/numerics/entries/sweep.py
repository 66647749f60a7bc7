"""Every element of a Jacobian, in sweeps: finite differences along lines against the analytic values of the columns that each line shows.

A line moves a column by itself, or a colour group of columns that no output shares (`colour_groups`): analytic values of a group come from
compressed VJPs, and a mismatch of it is confirmed by the lone column. Memory is a tile of the analytic Jacobian and a chunk of lines within it,
both of fixed size; never N × M. Where the Jacobian is larger than a tile, it is pulled back anew for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gradverify.model.interrupt import Spent
from gradverify.numerics.entries.chunk import Chunk, ChunkResult
from gradverify.numerics.entries.colour_groups import ColourGroups, Compressed, OffPattern, structural_zeros
from gradverify.numerics.entries.confirm import Confirmations, confirmed_anew
from gradverify.numerics.entries.consistency import AliasSums, JacobianSums
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.judging.bundle import Bundle, lone_columns
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.pair import ElementRecord, Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.prepare import SMALL, Plan, Prepared, Structure
from gradverify.numerics.rungs import QUICK, Array, Index, Mask, in_range
from gradverify.numerics.seed_vectors import pull_back_all, signed_weights_float32
from gradverify.numerics.verdict import Verdict

TILE_LIMIT = 64 << 20  # bytes of a tile and a chunk together
CHUNK_BYTES = 16 * len(QUICK) + 24  # an element of a lone column: both sides of the quick rungs, masks, tolerances
GROUP_BYTES = 600  # an element of a group whose derivative is solved: samples of the quick rungs, their steps, columns, the derivative and its copies


def compare_entries(prepared: Prepared, keep: int) -> tuple[list[Pair], Structure, bool]:
    """A pair per (input, output), every element judged; the structure that held; and whether the budget ended before all were: the others are
    undecided then. `keep`: how many of the worst a pair keeps."""
    with np.errstate(all="ignore"):
        while True:
            pairs, broken, finished = _compared(prepared.run(), prepared.structure, keep)
            if not finished:
                return pairs, prepared.structure, False
            broken = broken or (frozenset() if prepared.over_budget() else _not_right(prepared.structure, pairs))
            if not broken:
                return pairs, prepared.structure, True
            try:
                prepared = prepared.again(broken)
            except Spent:
                return pairs, prepared.structure, False


def _not_right(structure: Structure, pairs: Sequence[Pair]) -> frozenset[int]:
    """Small tensors in groups that do not simply pass: they are walked column by column, which counts every wrong element."""
    small = {plan.tensor for plan in structure.plans if plan.size <= SMALL}
    return frozenset(pair.input for pair in pairs if pair.input in small and pair.verdict is not Verdict.PASS)


def _compared(run: Run, structure: Structure, keep: int) -> tuple[list[Pair], frozenset[int], bool]:
    """One sweep; a second where columns that were streamed apart turn out, in sum, to have met an alias. And tensors with other groups; and whether
    it came to its end."""
    sweep, broken, finished = Sweep(run, structure.plans, keep, np.zeros(len(run.point.f0), bool), TILE_LIMIT), set[int](), False
    try:
        broken = sweep.judge_all()
        if sweep.found_aliasing.any() and not broken:
            sweep = Sweep(run, structure.plans, keep, sweep.found_aliasing, TILE_LIMIT)
            broken = sweep.judge_all()
        for plan in structure.plans:
            structural_zeros(run, plan, sweep.tallies)
        finished = True
    except Spent:
        for tally in sweep.tallies.values():
            tally.leave_rest()
    return _pairs(run, structure, sweep.tallies, finished), frozenset(broken), finished


def _pairs(run: Run, structure: Structure, tallies: Mapping[tuple[int, int], Tally], finished: bool) -> list[Pair]:
    point, low, pairs = run.point, run.low_precision(), list[Pair]()
    for (tensor, output), tally in tallies.items():
        plan, part = structure.plan(tensor), point.parts[output]
        groups = (plan.grouping.groups.count, plan.rows[output].count) if plan else (len(point.columns.of(tensor)), part.stop - part.start)
        pair = tally.result(float(point.unit[part].max(initial=0.0)), bool(low[part].any()))
        if finished and plan and pair.verdict is not Verdict.PASS and plan.rows[output].count < part.stop - part.start:
            pair = _as_returned(run, plan, pair)
        pairs.append(replace(pair, groups=groups[0], row_groups=groups[1]))
    return pairs


def _as_returned(run: Run, plan: Plan, pair: Pair) -> Pair:
    """With the numbers that one-hot cotangents give for the elements that are shown: those of groups are the same but for rounding."""
    part, of_tensor = run.point.parts[pair.output], slice(plan.first, plan.first + plan.size)
    rows = {j: run.point.row(part.start + j)[of_tensor] for j in {record.output_index for record in pair.worst}}

    def returned(record: ElementRecord) -> ElementRecord:
        return record._replace(analytic=float(rows[record.output_index][record.input_index]))

    asked = pair.asked and (returned(pair.asked) if pair.asked.output_index in rows else pair.asked)
    return replace(pair, worst=tuple(map(returned, pair.worst)), asked=asked)


class Sweep:
    """All elements once, added to `tallies` by (input, output).

    `known_aliasing` [M]: outputs whose quick rungs are known to alias; `found_aliasing` [M]: those that turn out to, too late to be treated so.
    `limit`: bytes of a tile and a chunk together; `room`: columns, or groups, whose analytic values fit into a tile.
    """

    def __init__(self, run: Run, plans: Sequence[Plan], keep: int, aliasing: Mask, limit: int) -> None:
        point, sizes = run.point, np.diff(run.point.starts).tolist()
        self.run, self.plans, self.known_aliasing, self.limit, self.size = run, plans, aliasing, limit, max(len(point.f0), 1)
        self.room = self.limit // 2 // (8 * self.size)
        self.tallies = {(t, o): Tally(t, o, (part.stop - part.start, size), keep, run.asked)
                        for t, size in enumerate(sizes) for o, part in enumerate(point.parts)}
        self.found_aliasing, self._sums = np.zeros_like(aliasing), AliasSums(point, run.survey)

    def judge_all(self) -> set[int]:
        """Lone columns, then groups; the tensors whose forward has other groups than their plan says."""
        self._judge_lone_columns()
        return self._judge_groups() if self.plans else set()

    # ---- tensors without a plan
    def _judge_lone_columns(self) -> None:
        point, planned = self.run.point, {plan.tensor for plan in self.plans}
        ungrouped = [point.columns.of(tensor) for tensor in range(len(point.buffers)) if tensor not in planned]
        columns, at_once = np.concatenate([*ungrouped, np.zeros(0, np.intp)]), max(1, self.limit // 2 // (CHUNK_BYTES * self.size))
        for tile, a in self._tiles(columns):
            for chunk in (slice(start, start + at_once) for start in range(0, len(a), at_once)):
                self._judge(None, lone_columns(point, tile[chunk]), a[chunk], at_once >= len(columns))

    def _tiles(self, columns: Index) -> Iterator[tuple[Index, Array]]:
        """The analytic Jacobian, transposed, by ranges of columns: columns [n] and values [n, M]."""
        width = max(1, self.room)
        for tile in (columns[first : first + width] for first in range(0, len(columns), width)):
            a = np.empty((len(tile), len(self.run.point.f0)))
            for j in range(len(self.run.point.f0)):
                row = self.run.point.row(j)
                self.run.reach.add_row(j, row)
                a[:, j] = row[tile]
            yield tile, a

    # ---- tensors with a plan
    def _judge_groups(self) -> set[int]:
        """The planned tensors, what their backwards gave off the pattern, and whether it all adds up; the tensors of which something is not so."""
        run, counts = self.run, {plan.tensor: plan.grouping.groups.count for plan in self.plans}
        compressed = Compressed(run, self.plans, signed_weights_float32(len(run.point.f0), run.point.seed.generator("row groups")))
        cotangent, confirmations = signed_weights_float32(len(run.point.f0), run.point.seed.generator("sums pulled back")), Confirmations(run)
        tensors = {plan.tensor: ColourGroups(run, plan, self.tallies, compressed.weights, confirmations, JacobianSums(run, plan, cotangent))
                   for plan in self.plans}
        one_tile = sum(counts.values()) <= self.room
        values, strays = compressed.fill({tensor: range(count if one_tile else 0) for tensor, count in counts.items()})
        broken = set[int]()
        for tensor, count in counts.items():
            width = count if one_tile else max(1, self.room)
            for span in (range(first, min(first + width, count)) for first in range(0, count, width)):
                a = values[tensor] if one_tile else compressed.fill({tensor: span})[0][tensor]
                if not self._judge_tile(tensors[tensor], span.start, a):
                    broken.add(tensor)
                    break
        for tensor, groups in tensors.items():
            if tensor not in broken and not self._judge_off_pattern(groups, [stray for stray in strays if stray.tensor == tensor]):
                broken.add(tensor)
        return broken or self._not_adding_up(tensors, pull_back_all(run.point, cotangent), confirmations)

    def _not_adding_up(self, tensors: Mapping[int, ColourGroups], gradient: Array, confirmations: Confirmations) -> set[int]:
        """The tensors of which a sum is off, though no element that was measured alone is wrong."""
        off = {tensor for tensor, groups in tensors.items() if groups.sums.check(gradient).any}
        return off - {tensor for tensor, output in self.tallies if confirmations.confirmed[tensor, output] or confirmations.budget_ended}

    def _judge_off_pattern(self, groups: ColourGroups, strays: Sequence[OffPattern]) -> bool:
        """What the backward has off the pattern; False where the forward has it, too."""
        for judged in groups.off_pattern(strays):
            if judged is None:
                return False
            judged = confirmed_anew(self.run, judged, excused(self.run, judged))
            for output, part in enumerate(self.run.point.parts):
                elements = judged.take(np.flatnonzero(in_range(judged.out, part)))
                if len(elements.out):
                    self.tallies[groups.plan.tensor, output].add(elements.pair_elements(part.start, elements.column - groups.plan.first))
        return True

    def _judge_tile(self, groups: ColourGroups, first: int, a: Array) -> bool:
        """Groups from the `first` on, with their analytic values; are they what they were taken for?"""
        at_once = max(1, self.limit // (GROUP_BYTES * self.size))
        for start in range(0, len(a), at_once):
            values = a[start : start + at_once]
            bundle = groups.plan.grouping.bundle(self.run.point, first + start, len(values))
            if not self._judge(groups, bundle, values, len(values) == groups.plan.grouping.groups.count):
                return False
            groups.sums.add_analytic(bundle, values)
        return True

    # ---- a chunk of either
    def _judge(self, groups: ColourGroups | None, bundle: Bundle, a: Array, whole: bool) -> bool:
        """The lines of a bundle of n against analytic values a [n, M]; False where its `groups` are not what they were taken for.

        `groups`: None where each line moves one column. `whole`: all columns of their tensors are in them, so that an alias is seen before anything
        is judged.
        """
        if self.run.stops and self.run.over_budget():
            raise Spent("the budget was spent")
        chunk = Chunk(self.run, bundle, a)
        for result in chunk.judge(self._sums, self.known_aliasing):
            if not whole or result.outs.start > 0:
                self.found_aliasing |= result.off_secant & ~self.known_aliasing
            confirmed = groups.confirmed(result) if groups else result
            if confirmed is None:
                return False
            judged = confirmed_anew(self.run, confirmed.judged, excused(self.run, confirmed.judged))
            self._add(chunk, confirmed, judged)
            if groups and not groups.consistent(bundle, result, judged):
                return False
        return True

    def _add(self, chunk: Chunk, result: ChunkResult, judged: Judged) -> None:
        """To the tally of each pair its elements."""
        point, tensor_of_line = self.run.point, chunk.bundle.tensor
        for tensor in dict.fromkeys(tensor_of_line.tolist()):
            lines = np.flatnonzero(tensor_of_line == tensor)
            one_tensor = len(lines) == len(tensor_of_line)
            for output, part in enumerate(point.parts):
                tally = self.tallies[tensor, output]
                result.add_zeros(tally, chunk.a, slice(int(lines[0]), int(lines[-1]) + 1), part)
                elements, quick = judged, result.quick
                if not (one_tensor and part == slice(0, len(point.f0))):
                    of_output = in_range(judged.out, part)
                    of_pair = np.flatnonzero(of_output if one_tensor else of_output & (point.columns.tensor[judged.column] == tensor))
                    elements, quick = judged.take(of_pair), quick[of_pair]
                coordinate = point.columns.coordinate.take(elements.column) - point.starts[tensor]
                tally.add(elements.pair_elements(part.start, coordinate), int(np.count_nonzero(quick)))
