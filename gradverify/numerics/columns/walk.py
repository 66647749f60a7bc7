"""Every element of a Jacobian, in sweeps: finite differences along lines against the analytic values of the columns that each line shows.

A line moves a column by itself, or a colour group of columns that no output shares; a column by itself is a group of one. What differs is where
analytic values come from and how a mismatch is confirmed: `LoneColumns`, `coloured.Groups`. Memory is a tile of the analytic Jacobian and a chunk
of lines within it, both of fixed size; never N × M. Where the Jacobian is larger than a tile, it is pulled back anew for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.arrange import SMALL, Arrangement, Plan
from gradverify.numerics.columns.chunk import Chunk, ChunkResult
from gradverify.numerics.columns.coloured import Confirmations, Groups, structural_zeros
from gradverify.numerics.columns.compressed import Compressed
from gradverify.numerics.columns.confirm import confirmed_anew
from gradverify.numerics.columns.sums import AliasSums, Sums, pulled_back
from gradverify.numerics.elements.bundle import Bundle, lone
from gradverify.numerics.elements.judged import Judged
from gradverify.numerics.elements.run import Run
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.prepare import Prepared
from gradverify.numerics.reduction import signed_short
from gradverify.numerics.rungs import QUICK, Array, Index, Mask
from gradverify.numerics.verdict import Verdict

TILE_LIMIT = 64 << 20  # bytes of a tile and a chunk together
CHUNK_BYTES = 16 * len(QUICK) + 24  # an element of a lone column: both sides of the quick rungs, masks, tolerances
GROUP_BYTES = 600  # an element of a group whose derivative is solved: samples of the quick rungs, their steps, owners, the derivative and its copies


def compare_entries(prepared: Prepared, keep: int) -> tuple[list[Pair], Arrangement]:
    """A pair per (input, output), every element judged; and the arrangement that held. `keep`: how many of the worst a pair keeps."""
    with np.errstate(all="ignore"):
        while True:
            pairs, broken = _compared(prepared.run(), prepared.arrangement, keep)
            broken = broken or (frozenset() if prepared.enough() else _not_right(prepared.arrangement, pairs))
            if not broken:
                return pairs, prepared.arrangement
            prepared = prepared.again(broken)


def _not_right(arrangement: Arrangement, pairs: Sequence[Pair]) -> frozenset[int]:
    """Small tensors in groups that do not simply pass: they are walked column by column, which counts every wrong element."""
    small = {plan.tensor for plan in arrangement.plans if plan.size <= SMALL}
    return frozenset(pair.input for pair in pairs if pair.input in small and pair.verdict is not Verdict.PASS)


def _compared(run: Run, arrangement: Arrangement, keep: int) -> tuple[list[Pair], frozenset[int]]:
    """One sweep; a second where columns that were streamed apart turn out, in sum, to have met an alias. And tensors with other groups."""
    point, plans = run.point, arrangement.plans
    sweep = Sweep(run, plans, keep, np.zeros(len(point.f0), bool), TILE_LIMIT)
    broken = sweep.judge_all()
    if sweep.missed.any() and not broken:
        sweep = Sweep(run, plans, keep, sweep.missed, TILE_LIMIT)
        broken = sweep.judge_all()
    for plan in plans:
        structural_zeros(run, plan, sweep.tallies)
    low, pairs = run.low_precision(), list[Pair]()
    for (tensor, output), tally in sweep.tallies.items():
        own, part = arrangement.plan(tensor), point.parts[output]
        groups = (own.grouping.groups.count, own.rows[output].count) if own else (len(point.columns.of(tensor)), part.stop - part.start)
        pair = tally.result(float(point.unit[part].max(initial=0.0)), bool(low[part].any()))
        pairs.append(replace(pair, groups=groups[0], row_groups=groups[1]))
    return pairs, frozenset(broken)


@dataclass(frozen=True)
class LoneColumns:
    """Columns by themselves [n], with their analytic values [n, M] from one-hot rows: a chunk has confirmed its mismatches already."""

    point: Point
    columns: Index
    a: Array

    def confirmed(self, result: ChunkResult) -> Judged:
        return replace(result.judged, entry=self._entry)

    def consistent(self, bundle: Bundle, result: ChunkResult, judged: Judged) -> bool:
        return True

    def _entry(self, column: int, output: int) -> float:
        place = int(np.searchsorted(self.columns, column))
        inside = place < len(self.columns) and self.columns[place] == column
        return float(self.a[place, output] if inside else self.point.row(output)[column])


class Sweep:
    """All elements once, added to `tallies` by (input, output).

    `suspects` [M]: outputs whose quick rungs are known to alias; `missed` [M]: those that turn out to, too late to have been treated so.
    `limit`: bytes of a tile and a chunk together.
    """

    def __init__(self, run: Run, plans: Sequence[Plan], keep: int, suspects: Mask, limit: int) -> None:
        point, sizes = run.point, np.diff(run.point.starts).tolist()
        self.run, self.plans, self.suspects, self.limit, self.size = run, plans, suspects, limit, max(len(point.f0), 1)
        self.tallies = {(t, o): Tally(t, o, (part.stop - part.start, size), keep, run.asked)
                        for t, size in enumerate(sizes) for o, part in enumerate(point.parts)}
        self.missed, self._sums = np.zeros_like(suspects), AliasSums(point, run.survey)

    def judge_all(self) -> set[int]:
        """Lone columns, then groups; the tensors whose forward has other groups than their plan says."""
        point, planned, count = self.run.point, {plan.tensor for plan in self.plans}, max(1, self.limit // 2 // (CHUNK_BYTES * self.size))
        alone = [point.columns.of(tensor) for tensor in range(len(point.buffers)) if tensor not in planned]
        columns = np.concatenate([*alone, np.zeros(0, np.intp)])
        for own, a in self._tiles(columns):
            for part in (slice(start, start + count) for start in range(0, len(a), count)):
                self._judge(LoneColumns(point, own, a), lone(point, own[part]), a[part], count >= len(columns))
        return self._groups() if self.plans else set()

    def _tiles(self, columns: Index) -> Iterator[tuple[Index, Array]]:
        """The analytic Jacobian, transposed, by ranges of columns: columns [n] and values [n, M]."""
        tile = max(1, self.limit // 2 // (8 * self.size))
        for own in (columns[first : first + tile] for first in range(0, len(columns), tile)):
            a = np.empty((len(own), len(self.run.point.f0)))
            for j in range(len(self.run.point.f0)):
                row = self.run.point.row(j)
                self.run.reach.add_row(j, row)
                a[:, j] = row[own]
            yield own, a

    def _groups(self) -> set[int]:
        """The planned tensors, what their backwards gave to nobody, and whether it all adds up."""
        run, counts, room = self.run, {plan.tensor: plan.grouping.groups.count for plan in self.plans}, self.limit // 2 // (8 * self.size)
        compressed = Compressed(run, self.plans, signed_short(len(run.point.f0), run.generator))
        cotangent, seen = signed_short(len(run.point.f0), run.generator), Confirmations(run)
        tensors = {plan.tensor: Groups(run, plan, self.tallies, compressed.weights, seen, Sums(run, plan, cotangent)) for plan in self.plans}
        whole = sum(counts.values()) <= room
        values, strays = compressed.fill({tensor: range(count if whole else 0) for tensor, count in counts.items()})
        broken = set[int]()
        for tensor, count in counts.items():
            for first in range(0, count, count if whole else max(1, room)):
                span = range(first, count if whole else min(first + max(1, room), count))
                a = values[tensor] if whole else compressed.fill({tensor: span})[0][tensor]
                if not self._tile(tensors[tensor], first, a):
                    broken.add(tensor)
                    break
        for stray in strays:
            if stray.tensor not in broken and not seen.ended and not tensors[stray.tensor].follow(stray):
                broken.add(stray.tensor)
        return broken or self._not_adding_up(tensors, pulled_back(run, cotangent), seen)

    def _not_adding_up(self, tensors: Mapping[int, Groups], gradient: Array, seen: Confirmations) -> set[int]:
        """The tensors of which a sum is off, though no element that was measured alone is wrong."""
        off = {tensor for tensor, own in tensors.items() if own.sums.check(gradient).any}
        return off - {tensor for tensor, output in self.tallies if seen.stood[tensor, output] or seen.ended}

    def _tile(self, groups: Groups, first: int, a: Array) -> bool:
        """Groups from the `first` on, with their analytic values; are they what they were taken for?"""
        count = max(1, self.limit // (GROUP_BYTES * self.size))
        for start in range(0, len(a), count):
            part = a[start : start + count]
            bundle = groups.plan.grouping.bundle(self.run.point, first + start, len(part))
            if not self._judge(groups, bundle, part, len(part) == groups.plan.grouping.groups.count):
                return False
            groups.sums.add_back(bundle, part)
        return True

    def _judge(self, lines: LoneColumns | Groups, bundle: Bundle, a: Array, whole: bool) -> bool:
        """The lines of a bundle of n against analytic values a [n, M]; False where they are not what they were taken for.

        `whole`: all columns of their tensors are in them, so that an alias is seen before anything is judged.
        """
        chunk = Chunk(self.run, bundle, a)
        for result in chunk.judge(self._sums, self.suspects):
            if not whole or result.outs.start > 0:
                self.missed |= result.suspects & ~self.suspects
            judged = lines.confirmed(result)
            if judged is None:
                return False
            judged = confirmed_anew(self.run, judged, excused(self.run, judged))
            self._add(chunk, result, judged)
            if not lines.consistent(bundle, result, judged):
                return False
        return True

    def _add(self, chunk: Chunk, result: ChunkResult, judged: Judged) -> None:
        point, lines = self.run.point, chunk.bundle.tensor
        for tensor in dict.fromkeys(lines.tolist()):
            rows = np.flatnonzero(lines == tensor)
            alone = len(rows) == len(lines)
            for output, part in enumerate(point.parts):
                tally = self.tallies[tensor, output]
                result.add_zeros(tally, chunk.a, slice(int(rows[0]), int(rows[-1]) + 1), part)
                own, quick = judged, result.quick
                if not (alone and part == slice(0, len(point.f0))):
                    inside = (judged.out >= part.start) & (judged.out < part.stop)
                    i = np.flatnonzero(inside if alone else inside & (point.columns.tensor[judged.column] == tensor))
                    own, quick = judged.take(i), quick[i]
                coordinate = point.columns.coordinate.take(own.column) - point.starts[tensor]
                tally.add(own.compared(part.start, coordinate), int(np.count_nonzero(quick)))
                tally.backward_unit = max([tally.backward_unit, *(x for j, x in judged.at_fault.items() if part.start <= j < part.stop)])
