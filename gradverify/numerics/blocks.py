"""Blocks: one number per independent block and probe (method.md section 5), the cheapest comparison, and the way from there to an entry.

Σ_{j in block} w_j (Jv)_j by finite differences against Σ_{i in block} (Jᵀw)_i v_i by the backward: 6 forward calls and one backward a probe,
whatever the size. Directions are Gaussian × scale and cotangents signed: positive probes are blind to what sums to zero (softmax, norms).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gradverify.numerics.columns.survey import Survey
from gradverify.numerics.compare import RESOLVED
from gradverify.numerics.directions import SQRT3, Directions, directions, moved_at
from gradverify.numerics.pattern import NOBODY, Pattern
from gradverify.numerics.point import Point
from gradverify.numerics.reduction import gather, held, kept, paired, pull_back, signed
from gradverify.numerics.rungs import Array, Index, Mask, finite_size
from gradverify.numerics.screen import Judged, Known, Plan, Reading, Screen, Screened, Stage, judged, lost, plan, reading, reduced, sharpness
from gradverify.numerics.strays import Strays, nobodys

PROBES = 3  # see an error of 100·tol of a block's norm with probability 1 − 5e-5


def check_blocks(
    point: Point, survey: Survey, patterns: Sequence[Sequence[Pattern]], generator: np.random.Generator, *, relative: float | None = None,
    probes: int = PROBES, only: Sequence[int] | None = None, along: Sequence[Directions] | None = None,
) -> Screen:
    """Screens every independent block of every (input, output) pair. `patterns`: by input tensor, then output tensor; `only` these inputs.

    6·`probes` forward calls an input tensor, `probes` backward calls an output tensor, one more where outputs depend on nothing; more only
    along directions that the first rungs left open. `along`: directions of all tensors, `probes` each, that are there already. Raises what the
    backward raises.
    """
    before, known = (point.forward, point.backward), Known(point, survey, relative)
    with np.errstate(all="ignore"):
        shapes = [paired(point, t, patterns[t]) for t in range(len(point.buffers))]
        weights = [[held(point, o, signed(p.stop - p.start, generator)) for o, p in enumerate(point.parts)] for _ in range(probes)]
        gradients = [[kept(pull_back(point, o, w)) for o, w in enumerate(probe)] for probe in weights]
        dead = [_dead(point, o, weights[0][o], [own[o] for own in shapes]) for o in range(len(point.parts))]
        pairs: list[Screened] = []
        for t in range(len(shapes)) if only is None else only:
            per_column = gather(point, t)
            analytic = [np.array([per_column(g[o][t]) for g in gradients]) for o in range(len(point.parts))]
            own = along[t] if along else directions(point, t, probes, generator, survey.looks[t])
            lines = _Tensor(known, own, t, [np.array([w[o] for w in weights]) for o in range(len(point.parts))], shapes[t])
            pairs += lines.screened(analytic, [strays[t] for strays in dead])
    return Screen(tuple(pairs), point.forward - before[0], point.backward - before[1])


def _dead(point: Point, output: int, w: Array, patterns: Sequence[Pattern]) -> list[Strays]:
    """By input tensor, the columns that outputs which depend on nothing pull back to: their gradient must be exactly 0.

    The group of a stray is 0: all outputs that do not depend on that tensor.
    """
    found, done = [Strays() for _ in patterns], list[tuple[Mask, Sequence[Tensor]]]()
    for t, pattern in enumerate(patterns):
        if not pattern.nothing.any():
            continue
        gradients = next((g for nothing, g in done if np.array_equal(nothing, pattern.nothing)), None)
        if gradients is None:
            gradients = pull_back(point, output, np.where(pattern.nothing, w, 0.0))
            done.append((pattern.nothing, gradients))
        found[t].add(0, point.columns.of(t)[gather(point, t)(gradients[t]) != 0])
    return found


@dataclass(frozen=True)
class _Sums:
    """Of the blocks [B] of one pair and probe: the analytic sum, its norm, the standard deviation of the numeric sum."""

    analytic: Array
    norm: Array
    sigma: Array


class _Tensor:
    """The blocks of one input tensor with every output tensor; its directions move all output tensors at once."""

    def __init__(self, known: Known, along: Directions, tensor: int, w: Sequence[Array], patterns: Sequence[Pattern]) -> None:
        self.known, self.point, self.tensor, self.along, self.w, self.patterns = known, known.point, tensor, along, w, patterns
        self.plan: Plan = plan(known, tensor)
        own = gather(self.point, tensor)
        self.of_outputs = [pattern.block_of_outputs() for pattern in patterns]
        self.of_columns = [block if own.plain else block[own.place] for block in (pattern.block_of_inputs() for pattern in patterns)]
        self.owned = [slice(None) if (block != NOBODY).all() else block != NOBODY for block in self.of_outputs]

    def screened(self, analytic: Sequence[Array], dead: Sequence[Strays]) -> list[Screened]:
        """One pair an output tensor; `analytic`: (Jᵀw) [K, n] for each."""
        probes, outputs, m = range(len(self.along.moves)), range(len(self.point.parts)), len(self.point.f0)
        sums = [[self._sums(o, k, analytic[o][k]) for k in probes] for o in outputs]
        first: list[list[Reading]] = [[] for _ in outputs]
        reach, alive, moved = np.zeros(m), np.zeros(m, bool), np.zeros(m, bool)
        for k in probes:
            up, down, steps = self.along.samples(k, self.plan.start)
            change = finite_size(up[0] - down[0])
            reach, alive = np.maximum(reach, change / steps[0].sum()), alive | (change > RESOLVED * self.known.noise)
            moved |= moved_at(self.known, [*up, *down])
            for o in outputs:
                first[o].append(self._read(o, k, (up, down, steps), sums[o][k].sigma))
        squares = self.known.floors(reach, alive) ** 2
        floors = [nobodys(np.sqrt(self._outputs(o, squares[part])), np.sqrt(squares[part])) for o, part in enumerate(self.point.parts)]
        results = [[self._judged(o, k, first[o][k], sums[o][k], floors[o]) for k in probes] for o in outputs]
        return [self._pair(o, results[o], floors[o], moved, dead[o], np.array([own.analytic for own in sums[o]])) for o in outputs]

    def _sums(self, o: int, k: int, gradient: Array) -> _Sums:
        pattern, move, w, part = self.patterns[o], self.along.moves[k], self.w[o][k], self.point.parts[o]
        if not move.all():
            gradient = np.where(move == 0, 0.0, gradient)
        analytic = np.asarray(np.bincount(self.of_columns[o], gradient * move, pattern.blocks), float)
        terms = gradient * self.point.columns.scale[self.along.columns]
        norm = np.sqrt(np.bincount(self.of_columns[o], terms**2, pattern.blocks))
        variance = self._outputs(o, (w * self.known.noise[part]) ** 2)
        rounding = self.known.unit_of_x(self.tensor) / SQRT3 * finite_size(norm)  # of every x ± t·v
        return _Sums(analytic, norm, np.hypot(np.sqrt(variance), rounding))

    def _outputs(self, o: int, values: Array) -> Array:
        """Sums over the outputs of each block [B]."""
        owned = self.owned[o]
        return np.asarray(np.bincount(self.of_outputs[o][owned], values[owned], self.patterns[o].blocks), float)

    def _read(self, o: int, k: int, taken: tuple[Array, Array, Array], sigma: Array, i: Index | None = None) -> Reading:
        """Derivatives of the sums of blocks i (None: all) along direction k."""
        part, w, steps = self.point.parts[o], self.w[o][k], taken[2]
        blocks = slice(None) if i is None else i
        up, down = (np.array([self._outputs(o, w * self.known.changes(f)[part])[blocks] for f in side]) for side in taken[:2])
        h = 0.5 * steps.sum(1)
        return reading(reduced(up * (h / steps[:, 0])[:, None], down * (h / steps[:, 1])[:, None], h, sigma[blocks], self.known.part_unit(o),
                               self.known.rounds_x()))

    def _judged(self, o: int, k: int, first: Reading, sums: _Sums, floor: Array) -> Judged:
        def again(i: Index, rungs: Stage) -> Reading:
            return self._read(o, k, self.along.samples(k, rungs), sums.sigma, i)

        norm = np.maximum(sums.norm, np.where(first.clear, np.abs(first.value), 0.0))
        return judged(sums.analytic, first, self.known.allowed_in(self.tensor, o, norm, floor), self.plan, again)

    def _pair(self, o: int, results: Sequence[Judged], floor: Array, moved: Mask, dead: Strays, analytic: Array) -> Screened:
        bad = ~np.all([r.passed for r in results], 0) | self.known.asleep(self.tensor, o)
        part = self.point.parts[o]
        leaks = np.flatnonzero(self.patterns[o].nothing & moved[part]) + part.start
        strays = Strays()
        strays.add(NOBODY, leaks)
        found = [sharpness(r, floor) for r in results]
        unknown = np.isnan(self.point.f0[part]) & (self.of_outputs[o] != NOBODY)
        bad[self.of_outputs[o][unknown]] = True
        flagged = np.flatnonzero(bad)
        return Screened(self.tensor, o, self.patterns[o].blocks, flagged, np.concatenate([dead.pairs(), strays.pairs()]),
                        dead.count + strays.count, self.along.left_out, max(f[0] for f in found), max(f[1] for f in found), lost(analytic, flagged))
