"""Seed matrices: random directions V of the inputs, with f called at x ± tV, and random cotangents W of the outputs, pulled back to WᵀJ.

Directions are Gaussian × scale and cotangents signed: positive ones are blind to what sums to zero (softmax, norms). Each input tensor has its own
directions and each output tensor its own cotangents, so that a pair is judged alone: jointly, the tensor of the largest values would set the
norm that all others are judged by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gradverify.numerics.estimate.lines import Rung, sample_rung
from gradverify.numerics.function.flat import rms
from gradverify.numerics.function.point import Point
from gradverify.numerics.function.point_lines import DirectionLine
from gradverify.numerics.probing.directional import Stage, reachable
from gradverify.numerics.rungs import Array, Index, Mask, in_a_row, joined, step
from gradverify.numerics.seed_vectors import Drawn, as_dtype_holds, gaussian, moves_along, pull_back, signed_weights
from gradverify.numerics.survey import KEPT, DirectionSample


# ---- V
class DirectionRungs(NamedTuple):
    """f above and below x along one direction [rungs, M], NaN where it has no value, and the realised steps [rungs, 2]."""

    up: Array
    down: Array
    steps: Array


@dataclass(frozen=True)
class Directions:
    """Dense directions (K of [n]) of one input tensor in its columns [n]; 0 where a column cannot move. `first_rungs`: sampled rungs of the first,
    which are kept of KEPT outputs at most."""

    point: Point
    columns: Index
    moves: Sequence[Array]
    first_rungs: dict[int, Rung | None] = field(default_factory=dict)

    def first(self) -> Directions:
        """The first direction alone; its samples are shared."""
        return replace(self, moves=[self.moves[0]])

    @cached_property
    def left_out(self) -> Index:
        """Columns that no direction moves."""
        still: Mask = ~np.any([move != 0 for move in self.moves], 0)
        return self.columns[still]

    def sampled(self, k: int, rungs: Stage) -> Iterator[Rung | None]:
        """f along direction k on each of these rungs in turn, two calls each; None where it has no value there."""
        columns, move = self.columns, self.moves[k]
        if rungs[0] <= 0:
            typical = np.full(1, rms(self.point.columns.scale[in_a_row(columns)]))
            if not reachable(typical, typical, rungs).all():
                yield from [None] * len(rungs)
                return
        if not move.all():
            moving = np.flatnonzero(move)
            columns, move = columns[moving], move[moving]
        line = DirectionLine(self.point, columns, move)
        for number in rungs:
            yield self._rung(k, line, number) if len(columns) else None

    def samples(self, k: int, rungs: Stage) -> DirectionRungs:
        """All of them at once."""
        count = len(rungs)
        up, down, steps = np.full((count, len(self.point.f0)), np.nan), np.full((count, len(self.point.f0)), np.nan), np.ones((count, 2))
        for r, (number, rung) in enumerate(zip(rungs, self.sampled(k, rungs), strict=True)):
            steps[r] = step(1.0, number)
            if rung is not None:
                up[r], down[r], steps[r] = rung.up, rung.down, (rung.step_up, rung.step_down)
        return DirectionRungs(up, down, steps)

    def _rung(self, k: int, line: DirectionLine, number: int) -> Rung | None:
        if not k and number in self.first_rungs:
            return self.first_rungs[number]
        found = sample_rung(line, number)
        if not k and len(self.point.f0) <= KEPT:
            self.first_rungs[number] = found
        return found


def draw_directions(point: Point, tensor: int, probes: int, sample: DirectionSample | None = None) -> Directions:
    """Gaussian × scale; inside the domain, zero on inputs that are not finite. The first is that of `sample`, whose samples are known."""
    columns = point.columns.of(tensor)
    first: Sequence[Array] = ()
    known = dict[int, Rung | None]()
    if sample and probes:
        known = {} if sample.kept is None else {sample.rung: sample.kept}
        first = sample.directions
        if len(sample.columns) < len(columns):
            first = [np.zeros(len(columns))]
            first[0][np.searchsorted(columns, sample.columns)] = sample.direction

    def drawn(k: int) -> Array:
        return moves_along(point, columns, gaussian(len(columns), point.seed.generator("direction", tensor, k)))

    return Directions(point, columns, Drawn(probes, drawn, first), known)


# ---- W
class Cotangents:
    """Random signed cotangents `w` (K of [M]), each pulled back once for every output tensor: K backwards an output tensor.

    What these raise, so does whoever asks for their gradients.
    """

    def __init__(self, point: Point, probes: int) -> None:
        self._point, outputs = point, range(len(point.parts))
        self.w = Drawn(probes, lambda k: joined([random_cotangent(point, o, "cotangent", k) for o in outputs]))

    def pulled(self, w: Array, output: int) -> Array:
        """The gradient [C] of one of them, by one backward."""
        return self._point.by_column(pull_back(self._point, output, w[self._point.parts[output]]))


def random_cotangent(point: Point, output: int, purpose: str, *which: object) -> Array:
    """Signed weights [outputs of the tensor] as its dtype holds them; 0 where f is infinite."""
    part = point.parts[output]
    return as_dtype_holds(point, output, signed_weights(part.stop - part.start, point.seed.generator(purpose, *which, "of output", output)))
