"""Blocks of the Jacobian: one number WᵀJV per independent block and probe (method.md section 6), the cheapest comparison.

Σ_{j in block} w_j (Jv)_j by finite differences against Σ_{i in block} (Jᵀw)_i v_i by the backward: 6 forward calls and one backward a probe,
whatever the size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from gradverify.numerics.estimate.lines import Rung
from gradverify.numerics.function.point import Point
from gradverify.numerics.probing.directional import ProbeDerivative, Stage
from gradverify.numerics.probing.off_pattern import Strays, with_off_pattern_floor
from gradverify.numerics.probing.screen import Again, DirectionScreen, ProbedLines, Screened, by_probe
from gradverify.numerics.probing.seed_matrices import Cotangents, Directions, draw_directions
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.rungs import PIECE, RESOLVED, Array, Index, Mask, finite_size, in_a_row, pieces, repeated, step
from gradverify.numerics.seed_vectors import pull_back
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, paired

SPARSE = 4  # times as many blocks as a piece has values: these are added one by one
PROBES = 3  # see an error of 100·tol of a block's norm with probability 1 − 5e-5


def check_blocks(
    surveyed: SurveyedPoint, patterns: Sequence[Sequence[Pattern]], *, probes: int = PROBES,
    directions: Sequence[Directions] | None = None,
) -> list[Screened]:
    """Screens every independent block of every (input, output) pair. `patterns`: by input tensor, then output tensor.

    6·`probes` forward calls an input tensor, `probes` backward calls an output tensor, one more where outputs depend on nothing; more only
    along directions that the first rungs left open. `directions` of all tensors, `probes` each, that are drawn already. Raises what the
    backward raises.
    """
    point, tensors = surveyed.point, range(len(surveyed.point.buffers))
    shapes = [paired(point, t, patterns[t]) for t in tensors]
    cotangents = Cotangents(point, probes)
    directions = directions or [draw_directions(point, t, probes, surveyed.survey.direction_samples[t]) for t in tensors]
    blocks = [_TensorBlocks(DirectionScreen(surveyed, t, directions[t]), cotangents, shapes[t]) for t in tensors]
    for k in range(probes):
        w = cotangents.w[k]
        for o in range(len(point.parts)):
            gradient = cotangents.pulled(w, o)
            for of_tensor in blocks:
                of_tensor.add(o, k, gradient, w)
            del gradient    # not held while the next one is pulled back
        del w
    dead = [_dead(point, o, cotangents.w, [shape[o] for shape in shapes]) for o in range(len(point.parts))]
    return [pair for t in tensors for pair in blocks[t].screened([strays[t] for strays in dead])]


def _dead(point: Point, output: int, w: Sequence[Array], patterns: Sequence[Pattern]) -> list[Strays]:
    """By input tensor, the columns that outputs which depend on nothing pull back to: their gradient must be exactly 0.

    The group of a stray is 0: all outputs that do not depend on that tensor.
    """
    found, done = [Strays() for _ in patterns], list[tuple[Mask, Array]]()
    for t, pattern in enumerate(patterns):
        if not pattern.nothing.any():
            continue
        gradients = next((g for nothing, g in done if np.array_equal(nothing, pattern.nothing)), None)
        if gradients is None:
            gradients = point.by_column(pull_back(point, output, np.where(pattern.nothing, w[0][point.parts[output]], 0.0)))
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
    """The blocks of one input tensor with every output tensor. What is as large as a tensor is added up piece by piece."""

    def __init__(self, screen: DirectionScreen, cotangents: Cotangents, patterns: Sequence[Pattern]) -> None:
        self.screen, self.surveyed, self.point, self.patterns, self.w = screen, screen.surveyed, screen.surveyed.point, patterns, cotangents.w
        self.directions, self.columns = screen.directions, in_a_row(screen.directions.columns)
        self.coordinates = None if self.point.columns.whole else self.point.columns_of(screen.tensor).coordinate
        self.sums: list[list[_Sums]] = [[] for _ in patterns]

    def add(self, o: int, k: int, gradient: Array, w: Array) -> None:
        """The gradient [C] of cotangent k, which is w [M], of one output tensor."""
        pattern, move, scale = self.patterns[o], self.directions.moves[k], self.point.columns.scale[self.columns]
        gradient, n = gradient[self.columns], len(move)

        def moved(part: slice) -> Array:
            return gradient[part] if move[part].all() else np.where(move[part] == 0, 0.0, gradient[part])

        def block(part: slice) -> Index:
            return pattern.block_of_inputs(part if self.coordinates is None else self.coordinates[part])

        analytic = _summed(n, pattern.blocks, block, lambda part: moved(part) * move[part])
        norm = np.sqrt(_summed(n, pattern.blocks, block, lambda part: (moved(part) * scale[part]) ** 2))
        first, noise = self.point.parts[o].start, partial(self.surveyed.survey.noise, self.point)

        def variance_of(part: slice) -> Array:
            of_all = slice(first + part.start, first + part.stop)
            return np.asarray((w[of_all] * noise(of_all)) ** 2)

        variance = self._of_outputs(o, variance_of)
        self.sums[o].append(_Sums(analytic, norm, self.surveyed.noise_along(self.screen.tensor, np.sqrt(variance), finite_size(norm))))

    def screened(self, dead: Sequence[Strays]) -> list[Screened]:
        """One pair an output tensor; what those that are `dead` pull back to."""
        m = len(self.point.f0)
        reach, alive, survey = np.zeros(m), np.zeros(m, bool), self.surveyed.survey

        def learn(first: bool, rung: Rung) -> None:
            self.screen.see(rung.up, rung.down)
            for part in pieces(m if first else 0):
                change = finite_size(rung.up[part] - rung.down[part])
                reach[part] = np.maximum(reach[part], change / (rung.step_up + rung.step_down))
                alive[part] |= change > RESOLVED * survey.noise(self.point, part)

        first = [self._read(k, self.screen.schedule.start, learn) for k in range(len(self.directions.moves))]
        floors = self.surveyed.floors(reach, alive)
        return [self._pair(o, [read[o] for read in first], floors[part], dead[o]).screened(self.surveyed) for o, part in enumerate(self.point.parts)]

    def _of_outputs(self, o: int, values: Callable[[slice], Array]) -> Array:
        """Sums over the outputs of each block [B]."""
        pattern = self.patterns[o]
        return _summed(len(pattern), pattern.blocks, pattern.block_of_outputs, values)

    def _read(self, k: int, rungs: Stage, learn: Callable[[bool, Rung], None] | None = None) -> list[ProbeDerivative]:
        """For each output tensor the derivatives of the sums of its blocks along direction k. `learn` gets f on each rung, and if it is the first."""
        outputs, w = range(len(self.patterns)), self.w[k]
        sums, steps = [np.empty((2, len(rungs), pattern.blocks)) for pattern in self.patterns], np.ones((len(rungs), 2))
        for r, rung in enumerate(self.directions.sampled(k, rungs)):
            nowhere, h = repeated(np.nan, len(w)), step(1.0, rungs[r])
            at = rung or Rung(nowhere, nowhere, h, h)
            steps[r] = at.step_up, at.step_down
            for o, (side, f) in product(outputs, enumerate(at[:2])):
                sums[o][side, r] = self._of_outputs(o, partial(self._weighted, w, f, self.point.parts[o].start))
            if learn:
                learn(r == 0, at)
            del rung, at    # not held while the next one is taken
        return [self.surveyed.derivative_of_sums(o, sums[o][0], sums[o][1], steps, self.sums[o][k].sigma) for o in outputs]

    def _weighted(self, w: Array, f: Array, start: int, part: slice) -> Array:
        """How a part of the outputs of one tensor changed, weighted."""
        of_all = slice(start + part.start, start + part.stop)
        return np.asarray(w[of_all] * self.surveyed.changes(f, of_all))

    def _pair(self, o: int, first: Sequence[ProbeDerivative], floors: Array, dead: Strays) -> ProbedLines:
        part, pattern = self.point.parts[o], self.patterns[o]
        floor = with_off_pattern_floor(np.sqrt(self._of_outputs(o, lambda piece: floors[piece] ** 2)), floors)

        def again(k: int) -> Again:
            return lambda i, rungs: self._read(k, rungs)[o].take(i)

        results = [self.screen.judged(sums.analytic, first[k], sums.norm, floor, again(k), o) for k, sums in enumerate(self.sums[o])]
        dead.add(NO_ENTRY, np.flatnonzero(pattern.nothing & self.screen.moved[part]) + part.start)
        doubt, missing = np.zeros(pattern.blocks, bool), np.isnan(self.point.f0[part])
        if missing.any():
            blocks = pattern.block_of_outputs()
            doubt[blocks[missing & (blocks != NO_ENTRY)]] = True
        return ProbedLines((self.screen.tensor, o), np.arange(pattern.blocks), np.array([sums.analytic for sums in self.sums[o]]),
                     by_probe(results, len(results)), floor, np.ones(pattern.blocks, bool), doubt, dead, self.directions.left_out)


def _summed(n: int, blocks: int, block: Callable[[slice], Index], values: Callable[[slice], Array]) -> Array:
    """Sums of n values over each block [B], which are given piece by piece, as their blocks are; NO_ENTRY is none."""
    total = np.zeros(blocks)
    for part in pieces(n):
        at, added = block(part), values(part)
        lowest = int(at.min())
        if lowest == NO_ENTRY:
            inside = at != NO_ENTRY
            at, added = at[inside], added[inside]
            lowest = int(at.min(initial=blocks))
        span = int(at.max(initial=lowest - 1)) + 1 - lowest
        if span > SPARSE * PIECE:
            np.add.at(total, at, added)
        elif span:
            total[lowest : lowest + span] += np.bincount(at - lowest, added, span)
    return total
