"""The comparison by entries, whole: what is prepared before it, its sweeps, and a pair of results per input and output.

Memory is a tile of the analytic Jacobian and a chunk of columns within it, both of fixed size; never N × M. Where the Jacobian is larger
than a tile, its rows are computed anew for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from gradverify.numerics.columns.arrange import Arrangement, arrange, detected
from gradverify.numerics.columns.bundle import lone
from gradverify.numerics.columns.coloured import Coloured, structural_zeros
from gradverify.numerics.columns.run import Enough, Reach, Run, never
from gradverify.numerics.columns.tally import Asked, Pair, Tally
from gradverify.numerics.columns.walk import LoneColumns, Walk
from gradverify.numerics.function.clock import Clock
from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.memory import keep_freed
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.reduction import signed_short
from gradverify.numerics.rungs import QUICK, Array, Index, Mask
from gradverify.numerics.survey import Look, Survey, linear_tensors, survey

LIMIT = 64 << 20  # bytes of a tile and a chunk together
CHUNK_BYTES = 16 * len(QUICK) + 24  # an element: both sides of the quick rungs, masks, tolerances


@dataclass(frozen=True)
class Prepared:
    """A function at its point, with what was measured before anything is compared. `linear`: the tensors in which f is linear, and what
    showed it."""

    point: Point
    survey: Survey
    linear: Mapping[int, Look | None]
    arrangement: Arrangement
    atol: float
    rtol: float | None
    generator: np.random.Generator
    enough: Enough = never
    asked: Asked | None = None

    def run(self) -> Run:
        """A fresh start: nothing learnt yet of how far the outputs go."""
        return Run(self.point, self.survey, self.atol, self.rtol, Reach(self.point), self.generator, frozenset(self.linear), enough=self.enough,
                   asked=self.asked)

    def again(self, broken: frozenset[int]) -> Prepared:
        """With other groups for these tensors."""
        detect = detected(self.generator)
        return replace(self, arrangement=arrange(self.point, self.survey, detect, self.generator, self.arrangement, broken))

    def holding(self, columns: Index) -> Prepared:
        """With these columns held where they are, now and in the `point` itself; what was sampled along directions that move them is forgotten."""
        self.point.hold(columns)
        moved = set(self.point.columns.tensor[columns].tolist())
        looks = tuple(None if t in moved else look for t, look in enumerate(self.survey.looks))
        return replace(self, survey=replace(self.survey, looks=looks), linear={t: look for t, look in self.linear.items() if t not in moved})


def prepare(
    function: Function, *, atol: float = 0.0, rtol: float | None = None, domains: Sequence[tuple[float, float] | None] | None = None,
    symmetric: Sequence[bool] | None = None, specified: Sequence[Tensor | None] = (), generator: np.random.Generator | None = None,
    grouped: bool = True, clock: Clock | None = None,
) -> Prepared | None:
    """Noise, structure and linearity; None where there is no input. `rtol` None: 1e-6, and 1e-3 where inputs or outputs are float32 or
    the output bits show float32 inside. `domains`, `symmetric`, `specified`: one entry per input. Raises what the function raises at its own inputs.
    """
    n = len(function.inputs)
    if not n:
        return None
    keep_freed()
    columns = columns_of(function.inputs, domains or [None] * n, symmetric or [False] * n, specified)
    generator = generator or np.random.default_rng(0)
    with np.errstate(all="ignore"):
        point = Point(function, columns, clock)
        surveyed = survey(point, generator)
        arrangement = arrange(point, surveyed, detected(generator), generator) if grouped else Arrangement()
        linear = linear_tensors(point, surveyed, generator)
    return Prepared(point, surveyed, linear, arrangement, atol, rtol, generator)


def compare_entries(prepared: Prepared, keep: int) -> tuple[list[Pair], Arrangement]:
    """A pair per (input, output), every element judged; and the arrangement that held. `keep`: how many of the worst a pair keeps."""
    with np.errstate(all="ignore"):
        while True:
            pairs, broken = _Comparison(prepared.run(), keep, prepared.arrangement).pairs()
            if not broken:
                return pairs, prepared.arrangement
            prepared = prepared.again(broken)


class _Comparison:
    def __init__(self, run: Run, keep: int, arrangement: Arrangement) -> None:
        self.run, self.keep, self.point, self.arrangement = run, keep, run.point, arrangement
        size = max(len(run.point.f0), 1)
        self.tile = max(1, LIMIT // 2 // (8 * size))
        self.chunk = max(1, LIMIT // 2 // (CHUNK_BYTES * size))
        alone = [run.point.columns.of(tensor) for tensor in range(len(run.point.buffers)) if arrangement.plan(tensor) is None]
        self.columns = np.concatenate([*alone, np.zeros(0, np.intp)])

    def pairs(self) -> tuple[list[Pair], frozenset[int]]:
        """One sweep; a second where columns that were streamed apart turn out, in sum, to have met an alias. And tensors with other groups."""
        suspects = np.zeros(len(self.point.f0), bool)
        tallies, missed, broken = self._sweep(suspects)
        if missed.any() and not broken:
            tallies, _, broken = self._sweep(missed)
        low = self.run.low_precision()
        for plan in self.arrangement.plans:
            structural_zeros(self.run, plan, tallies)
        pairs = [tally.result(self._unit(tally.output), bool(low[self.point.parts[tally.output]].any())) for tally in tallies.values()]
        return [self._grouped(pair) for pair in pairs], frozenset(broken)

    def _grouped(self, pair: Pair) -> Pair:
        plan = self.arrangement.plan(pair.input)
        part = self.point.parts[pair.output]
        alone = len(self.point.columns.of(pair.input)), part.stop - part.start
        groups, row_groups = (plan.grouping.groups.count, plan.rows[pair.output].count) if plan else alone
        return replace(pair, groups=groups, row_groups=row_groups)

    def _unit(self, output: int) -> float:
        return float(self.point.unit[self.point.parts[output]].max(initial=0.0))

    def _sweep(self, suspects: Mask) -> tuple[dict[tuple[int, int], Tally], Mask, set[int]]:
        tallies = self._tallies()
        walk = Walk(self.run, tallies, suspects)
        for columns, a in self._tiles():
            for part in (slice(start, start + self.chunk) for start in range(0, len(a), self.chunk)):
                walk.judge(LoneColumns(self.point, columns, a), lone(self.point, columns[part]), a[part], self.chunk >= len(self.columns))
        plans, broken = self.arrangement.plans, set[int]()
        if plans:
            broken = Coloured(self.run, plans, walk, LIMIT, signed_short(len(self.point.f0), self.run.generator)).walk()
        return tallies, walk.missed, broken

    def _tallies(self) -> dict[tuple[int, int], Tally]:
        inputs, parts = range(len(self.point.buffers)), list(enumerate(self.point.parts))
        sizes = np.diff(self.point.starts).tolist()
        return {(t, o): Tally(t, o, (part.stop - part.start, sizes[t]), self.keep, self.run.asked) for t in inputs for o, part in parts}

    def _tiles(self) -> Iterator[tuple[Index, Array]]:
        """The analytic Jacobian, transposed, by ranges of columns: columns [n] and values [n, M]."""
        for first in range(0, len(self.columns), self.tile):
            columns = self.columns[first : first + self.tile]
            a = np.empty((len(columns), len(self.point.f0)))
            for j in range(len(self.point.f0)):
                row = self.point.row(j)
                self.run.reach.add_row(j, row)
                a[:, j] = row[columns]
            yield columns, a
