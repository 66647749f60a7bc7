"""Every element of every (input, output) pair, one column at a time: six forward calls a column where nothing is hard.

Memory is a tile of the analytic Jacobian and a chunk of columns within it, both of fixed size; never N × M. Where the Jacobian is larger
than a tile, its rows are computed anew for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gradverify.numerics.columns.bundle import lone
from gradverify.numerics.columns.chunk import Chunk, ChunkResult
from gradverify.numerics.columns.opinions import second_opinions
from gradverify.numerics.columns.run import AliasSums, Reach, Run
from gradverify.numerics.columns.survey import survey
from gradverify.numerics.columns.tally import Pair, Tally
from gradverify.numerics.point import Function, Point, columns_of
from gradverify.numerics.rungs import QUICK, Array, Mask

LIMIT = 64 << 20  # bytes of a tile and a chunk together
CHUNK_BYTES = 16 * len(QUICK) + 24  # an element: both sides of the quick rungs, masks, tolerances


@dataclass(frozen=True)
class Entries:
    """A dense comparison: a `Pair` per (input, output), forward calls (`noise` of them before any column), backward calls, columns."""

    pairs: tuple[Pair, ...]
    forward: int
    noise: int
    backward: int
    columns: int

    @property
    def calls_per_column(self) -> float:
        return (self.forward - self.noise - 1) / max(self.columns, 1)

    @property
    def quick_share(self) -> float:
        """Elements settled by the quick rungs."""
        return sum(p.quick for p in self.pairs) / max(sum(p.elements - p.masked for p in self.pairs), 1)


def check_entries(
    function: Function, *, atol: float = 0.0, rtol: float | None = None, domains: Sequence[tuple[float, float] | None] | None = None,
    symmetric: Sequence[bool] | None = None, generator: torch.Generator | None = None, keep: int = 10, limit: int = LIMIT,
) -> Entries:
    """Compares the VJP's Jacobian with finite differences, element by element (method.md sections 1, 2 and 6).

    `rtol` None: 1e-6, and 1e-3 where inputs or outputs are float32 or the output bits show float32 inside. `domains`, `symmetric`: one
    entry per input. `keep`: how many of the worst elements a pair keeps. `limit`: bytes. Raises what the function raises at its own inputs.
    """
    n = len(function.inputs)
    columns = columns_of(function.inputs, domains or [None] * n, symmetric or [False] * n) if n else None
    if columns is None:
        return Entries((), 0, 0, 0, 0)
    generator = generator or torch.Generator().manual_seed(0)
    with np.errstate(all="ignore"):
        point = Point(function, columns)
        run = Run(point, survey(point, generator), atol, rtol, Reach(point), generator)
        pairs = _Comparison(run, keep, limit).pairs()
    return Entries(tuple(pairs), point.forward, run.survey.forward, point.backward, len(columns))


class _Comparison:
    def __init__(self, run: Run, keep: int, limit: int) -> None:
        self.run, self.keep, self.point = run, keep, run.point
        size = max(len(run.point.f0), 1)
        self.tile = max(1, limit // 2 // (8 * size))
        self.chunk = max(1, limit // 2 // (CHUNK_BYTES * size))

    def pairs(self) -> list[Pair]:
        """One sweep; a second where columns that were streamed apart turn out, in sum, to have met an alias."""
        suspects = np.zeros(len(self.point.f0), bool)
        tallies, missed = self._sweep(suspects)
        if missed.any():
            tallies, _ = self._sweep(missed)
        low = self.run.low_precision()
        return [tally.result(self._unit(tally.output), bool(low[self.point.parts[tally.output]].any())) for tally in tallies]

    def _unit(self, output: int) -> float:
        return float(self.point.unit[self.point.parts[output]].max(initial=0.0))

    def _sweep(self, suspects: Mask) -> tuple[list[Tally], Mask]:
        tallies, sums, missed = self._tallies(), AliasSums(self.point, self.run.survey), np.zeros_like(suspects)
        whole = self.chunk >= len(self.point.columns)
        for first, a in self._tiles():
            for start in range(0, len(a), self.chunk):
                part = a[start : start + self.chunk]
                chunk = Chunk(self.run, lone(self.point, np.arange(first + start, first + start + len(part))), part)
                result = chunk.judge(sums, suspects)
                missed |= result.suspects & ~suspects & (not whole)
                self._add(chunk, result, tallies, first, a)
        return tallies, missed

    def _tallies(self) -> list[Tally]:
        inputs, parts = range(len(self.point.buffers)), list(enumerate(self.point.parts))
        starts = self.point.starts
        return [Tally(t, o, (part.stop - part.start, int(starts[t + 1] - starts[t])), self.keep) for t in inputs for o, part in parts]

    def _tiles(self) -> Iterator[tuple[int, Array]]:
        """The analytic Jacobian, transposed, by ranges of columns: first column and values [columns, M]."""
        for first in range(0, len(self.point.columns), self.tile):
            a = np.empty((min(self.tile, len(self.point.columns) - first), len(self.point.f0)))
            for j in range(len(self.point.f0)):
                row = self.point.row(j)
                self.run.reach.add_row(j, row)
                a[:, j] = row[first : first + len(a)]
            yield first, a

    def _add(self, chunk: Chunk, result: ChunkResult, tallies: list[Tally], first: int, a: Array) -> None:
        def entry(column: int, output: int) -> float:
            inside = first <= column < first + len(a)
            return float(a[column - first, output] if inside else self.point.row(output)[column])

        judged = result.judged
        judged, at_fault = second_opinions(self.run, judged, chunk.border[judged.column], entry)
        c = self.point.columns
        tensor_of_chunk = chunk.bundle.tensor
        for tally in tallies:
            part = self.point.parts[tally.output]
            rows = np.flatnonzero(tensor_of_chunk == tally.input)
            if not rows.size:
                continue
            here = slice(int(rows[0]), int(rows[-1]) + 1), part
            zeros = result.zeros[here]
            tally.add_zeros(chunk.a[here][zeros], result.zero_resolution[here][zeros], result.masked[here])
            own = np.flatnonzero((c.tensor[judged.column] == tally.input) & (judged.out >= part.start) & (judged.out < part.stop))
            coordinate = c.coordinate[judged.column[own]] - self.point.starts[tally.input]
            tally.add(judged.take(own).compared(part.start, coordinate), int(result.quick[own].sum()))
            tally.backward_unit = max([tally.backward_unit, *(x for j, x in at_fault.items() if part.start <= j < part.stop)])
