"""Blocks of the Jacobian: one number WᵀJV per independent block and probe (method.md section 6), the cheapest comparison.

Σ_{j in block} w_j (Jv)_j by finite differences against Σ_{i in block} (Jᵀw)_i v_i by the backward: 6 forward calls and one backward a probe,
whatever the size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gradverify.numerics.function.point import Point
from gradverify.numerics.probing.directional import ProbeDerivative
from gradverify.numerics.probing.off_pattern import Strays, with_off_pattern_floor
from gradverify.numerics.probing.screen import DirectionScreen, ProbedLines, Screened, by_probe
from gradverify.numerics.probing.seed_matrices import Cotangents, DirectionRungs, Directions, draw_directions
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.rungs import RESOLVED, Array, Index, Mask, finite_size
from gradverify.numerics.seed_vectors import pull_back
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, paired

PROBES = 3  # see an error of 100·tol of a block's norm with probability 1 − 5e-5


def check_blocks(
    surveyed: SurveyedPoint, patterns: Sequence[Sequence[Pattern]], generator: np.random.Generator, *, probes: int = PROBES,
    directions: Sequence[Directions] | None = None,
) -> list[Screened]:
    """Screens every independent block of every (input, output) pair. `patterns`: by input tensor, then output tensor.

    6·`probes` forward calls an input tensor, `probes` backward calls an output tensor, one more where outputs depend on nothing; more only
    along directions that the first rungs left open. `directions` of all tensors, `probes` each, that are drawn already. Raises what the
    backward raises.
    """
    point = surveyed.point
    shapes = [paired(point, t, patterns[t]) for t in range(len(point.buffers))]
    cotangents = Cotangents(point, probes, generator)
    dead = [_dead(point, o, cotangents.w[0][part], [shape[o] for shape in shapes]) for o, part in enumerate(point.parts)]
    pairs: list[Screened] = []
    for t in range(len(shapes)):
        drawn = directions[t] if directions else draw_directions(point, t, probes, generator, surveyed.survey.direction_samples[t])
        pairs += _TensorBlocks(DirectionScreen(surveyed, t, drawn), cotangents, shapes[t]).screened([strays[t] for strays in dead])
    return pairs


def _dead(point: Point, output: int, w: Array, patterns: Sequence[Pattern]) -> list[Strays]:
    """By input tensor, the columns that outputs which depend on nothing pull back to: their gradient must be exactly 0.

    The group of a stray is 0: all outputs that do not depend on that tensor.
    """
    found, done = [Strays() for _ in patterns], list[tuple[Mask, Array]]()
    for t, pattern in enumerate(patterns):
        if not pattern.nothing.any():
            continue
        gradients = next((g for nothing, g in done if np.array_equal(nothing, pattern.nothing)), None)
        if gradients is None:
            gradients = point.by_column(pull_back(point, output, np.where(pattern.nothing, w, 0.0)))
            done.append((pattern.nothing, gradients))
        columns = point.columns.of(t)
        found[t].add(0, columns[gradients[columns] != 0])
    return found


@dataclass(frozen=True)
class _Sums:
    """Of the blocks [B] of one pair and probe: the analytic sum, its norm, the standard deviation of the numeric sum."""

    analytic: Array
    norm: Array
    sigma: Array


class _TensorBlocks:
    """The blocks of one input tensor with every output tensor."""

    def __init__(self, screen: DirectionScreen, cotangents: Cotangents, patterns: Sequence[Pattern]) -> None:
        self.screen, self.surveyed, self.point, self.patterns, self.w = screen, screen.surveyed, screen.surveyed.point, patterns, cotangents.w
        coordinates = self.point.columns_of(screen.tensor).coordinate
        self.of_outputs = [pattern.block_of_outputs() for pattern in patterns]
        of_columns = [block[coordinates] for block in (pattern.block_of_inputs() for pattern in patterns)]
        self.in_pattern = [slice(None) if (block != NO_ENTRY).all() else block != NO_ENTRY for block in self.of_outputs]
        gradients = cotangents.gradients(screen.tensor)
        self.sums = [[self._sums(o, k, of_columns[o], gradients[k, o]) for k in range(len(gradients))] for o in range(len(patterns))]

    def screened(self, dead: Sequence[Strays]) -> list[Screened]:
        """One pair an output tensor; what those that are `dead` pull back to."""
        outputs, m = range(len(self.point.parts)), len(self.point.f0)
        first: list[list[ProbeDerivative]] = [[] for _ in outputs]
        reach, alive = np.zeros(m), np.zeros(m, bool)
        for k, samples in enumerate(self.screen.first()):
            change = finite_size(samples.up[0] - samples.down[0])
            reach, alive = np.maximum(reach, change / samples.steps[0].sum()), alive | (change > RESOLVED * self.surveyed.noise)
            for o in outputs:
                first[o].append(self._read(o, k, samples))
            del samples, change
        squares = self.surveyed.floors(reach, alive) ** 2
        return [self._pair(o, first[o], squares[part], dead[o]).screened(self.surveyed) for o, part in enumerate(self.point.parts)]

    def _sums(self, o: int, k: int, of_columns: Index, gradient: Array) -> _Sums:
        count, directions = self.patterns[o].blocks, self.screen.directions
        if not directions.moves[k].all():
            gradient = np.where(directions.moves[k] == 0, 0.0, gradient)
        analytic = np.asarray(np.bincount(of_columns, gradient * directions.moves[k], count), float)
        norm = np.sqrt(np.bincount(of_columns, (gradient * self.point.columns.scale[directions.columns]) ** 2, count))
        variance = self._of_outputs(o, (self.w[k] * self.surveyed.noise)[self.point.parts[o]] ** 2)
        return _Sums(analytic, norm, self.surveyed.noise_along(self.screen.tensor, np.sqrt(variance), finite_size(norm)))

    def _of_outputs(self, o: int, values: Array) -> Array:
        """Sums over the outputs of each block [B]."""
        in_pattern = self.in_pattern[o]
        return np.asarray(np.bincount(self.of_outputs[o][in_pattern], values[in_pattern], self.patterns[o].blocks), float)

    def _read(self, o: int, k: int, samples: DirectionRungs, i: Index | None = None) -> ProbeDerivative:
        """Derivatives of the sums of blocks i (None: all) along direction k."""
        part, i = self.point.parts[o], np.arange(self.patterns[o].blocks) if i is None else i
        return self.surveyed.sums(o, samples, lambda change: self._of_outputs(o, self.w[k, part] * change)[i], self.sums[o][k].sigma[i])

    def _pair(self, o: int, first: Sequence[ProbeDerivative], squares: Array, dead: Strays) -> ProbedLines:
        part, pattern, blocks = self.point.parts[o], self.patterns[o], self.of_outputs[o]
        floor = with_off_pattern_floor(np.sqrt(self._of_outputs(o, squares)), np.sqrt(squares))
        results = [self.screen.judged(k, sums.analytic, first[k], sums.norm, floor, partial(self._read, o, k), o)
                   for k, sums in enumerate(self.sums[o])]
        dead.add(NO_ENTRY, np.flatnonzero(pattern.nothing & self.screen.moved[part]) + part.start)
        doubt = np.zeros(pattern.blocks, bool)
        doubt[blocks[np.isnan(self.point.f0[part]) & (blocks != NO_ENTRY)]] = True
        return ProbedLines((self.screen.tensor, o), np.arange(pattern.blocks), np.array([sums.analytic for sums in self.sums[o]]),
                     by_probe(results, len(results)), floor, np.ones(pattern.blocks, bool), doubt, dead, self.screen.directions.left_out)
