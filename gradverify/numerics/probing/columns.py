"""Columns of the Jacobian: a few random cotangents W, WᵀJ by backwards, exact on every input element (method.md section 6).

(Jᵀw)_i from one backward a cotangent, against Σ_j w_j ∂f_j/∂x_i from colour groups of columns, which share no output: six forward calls a group.
Memory is O(N + M): K numbers a column and rung, and what is known of each output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gradverify.numerics.probing.directional import ProbeDerivative, Stage, derivative_of_sums, reachable
from gradverify.numerics.probing.off_pattern import Strays, present_at_x, with_off_pattern_floor
from gradverify.numerics.probing.screen import ProbedLines, Screened, by_probe, judged, passes
from gradverify.numerics.probing.seed_matrices import Cotangents
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.rungs import Array, Index, Mask, Z, nonzero, step
from gradverify.numerics.seed_vectors import moves_along, signed_weights
from gradverify.numerics.sparsity.colouring import column_groups
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, paired

COTANGENTS = 2  # cotangents: what hides from one by chance does not hide from both
ALIVE = 3 * Z  # standard deviations of noise: an entry that moves its output


def check_columns(
    surveyed: SurveyedPoint, patterns: Sequence[Sequence[Pattern]], generator: np.random.Generator, *, linear: Sequence[bool] | None = None,
    only: Sequence[int] | None = None,
) -> list[Screened]:
    """Screens every column of every (input, output) pair. `patterns`: by input tensor, then output tensor; `only` these inputs.

    6·column groups forward calls (2 where `linear` says that f is linear in the input), COTANGENTS backward calls an output tensor; more
    only for groups with columns that the first rungs left open. Raises what the backward raises.
    """
    cotangents, pairs = Cotangents(surveyed.point, COTANGENTS, generator), list[Screened]()
    for t in range(len(surveyed.point.buffers)) if only is None else only:
        pairs += _TensorColumns(surveyed, t, paired(surveyed.point, t, patterns[t]), cotangents, bool(linear and linear[t]), generator).screened()
    return pairs


@dataclass(frozen=True)
class _Group:
    """Members [m] (columns within the tensor), the outputs [e] that they own, whose each is (place in members, [e]), and all others [M].

    `parts`: the ranges of e that lie in each output tensor. `w`: the cotangents there [K, e]. Where members own all outputs, the usual
    case and the largest, nothing is copied: `outputs` is then a slice.
    """

    number: int
    members: Index
    outputs: Index | slice
    place: Index
    off_pattern: Mask | None
    parts: tuple[slice, ...]
    w: Array
    columns: Index  # of the members, by number

    def sums(self, left: Array, right: Array) -> Array:
        """Σ left·right [output tensors, K, m] over what each member owns, of [K, e] and [e]."""
        total = np.empty((len(self.parts), len(left), len(self.members)))
        for o, part in enumerate(self.parts):
            if len(self.members) == 1:
                total[o, :, 0] = left[:, part] @ right[part]
                continue
            for k, factor in enumerate(left):
                total[o, k] = np.bincount(self.place[part], factor[part] * right[part], len(self.members))
        return total


class _TensorColumns:
    """The columns of one input tensor, moved group by group. Derivatives are along t, in units of each column's own move."""

    def __init__(self, surveyed: SurveyedPoint, tensor: int, patterns: Sequence[Pattern], cotangents: Cotangents, linear: bool,
                 generator: np.random.Generator) -> None:
        self.surveyed, self.point, self.tensor, self.w = surveyed, surveyed.point, tensor, cotangents.w
        self.columns = self.point.columns.of(tensor)
        self.still, self.noise = surveyed.still, surveyed.noise
        n, m, outputs = len(self.columns), len(self.point.f0), len(self.point.parts)
        analytic = cotangents.gradients(tensor)
        self.move = moves_along(self.point, self.columns, signed_weights(n, generator))
        self.analytic = np.where(self.move == 0, 0.0, analytic * self.move)
        self.groups = column_groups(patterns)
        self.place, self.size = self.point.columns_of(tensor).coordinate, patterns[0].size
        self.colour = self.groups.colour()[self.place]
        self.missing = np.isnan(self.point.f0)
        self.some_missing = bool(self.missing.any())
        self.reach, self.alive, self.unknown = np.zeros(m), np.zeros(m, bool), np.zeros((outputs, n), bool)
        self.square, self.variance = np.zeros((outputs, n)), np.zeros((outputs, len(self.w), n))
        self.strays = [Strays() for _ in self.point.parts]
        self.schedule = surveyed.schedule(tensor, linear)

    def screened(self) -> list[Screened]:
        """One pair an output tensor. Floors take a pass over the groups: they are asked for where a column needs one."""
        n, probes, start, outputs = len(self.columns), len(self.w), self.schedule.start, range(len(self.point.parts))
        samples = self._samples(np.arange(n), start, first=True)
        first = [self._read(o, sampled.reshape(2, len(start), -1), start, np.arange(probes * n)) for o, sampled in enumerate(samples)]
        without = [self.surveyed.allowed(self.tensor, self._norm(o), np.zeros(probes * n), o) for o in outputs]
        clear = [passes(self.analytic[:, o].ravel(), first[o], without[o]).reshape(probes, n).all(0) for o in outputs]
        floor = self._floors(np.flatnonzero(~np.all(clear, 0))) if outputs else np.zeros((0, n))
        return [self._pair(o, first[o], floor[o]).screened(self.surveyed) for o in outputs]

    def _norm(self, o: int) -> Array:
        """Of each column, once a probe [probes · n]."""
        return np.tile(np.maximum(np.sqrt(self.square[o]), np.abs(self.analytic[:, o]).max(0)), len(self.w))

    def _pair(self, o: int, first: ProbeDerivative, floor: Array) -> ProbedLines:
        allowed = self.surveyed.allowed(self.tensor, self._norm(o), np.tile(floor, len(self.w)), o)
        result = judged(self.analytic[:, o].ravel(), first, allowed, self.schedule, lambda i, rungs: self._remeasured(o, i, rungs))
        left_out = self.move == 0
        return ProbedLines((self.tensor, o), self.columns, self.analytic[:, o], by_probe([result], len(self.w)), floor, ~left_out, self.unknown[o],
                     self.strays[o], self.columns[left_out], nonzero(np.abs(self.move)))

    # ---- samples
    def _remeasured(self, o: int, i: Index, rungs: Stage) -> ProbeDerivative:
        """Elements i of [probes, n] on other rungs."""
        samples = self._samples(np.unique(i % len(self.columns)), rungs)
        return self._read(o, samples[o].reshape(2, len(rungs), -1)[:, :, i], rungs, i)

    def _samples(self, columns: Index, rungs: Stage, first: bool = False) -> Array:
        """Reduced changes [outputs, up and down, rungs, probes, n] with these columns moved, in groups; NaN elsewhere."""
        samples = np.full((len(self.point.parts), 2, len(rungs), len(self.w), len(self.columns)), np.nan)
        for group in self._groups(columns[(self.move[columns] != 0) & self._reaches(columns, rungs)]):
            self._sample_group(group, rungs, samples, first)
        return samples

    def _reaches(self, columns: Index, rungs: Stage) -> Mask:
        """Columns that may take these rungs: not too far above their scale, and inside the domain."""
        c, numbers = self.point.columns, self.columns[columns]
        reach = np.abs(self.move[columns]) * step(1.0, rungs[0])
        inside = (c.x[numbers] - reach >= c.low[numbers]) & (c.x[numbers] + reach <= c.high[numbers])
        return reachable(c.scale[numbers], c.size[numbers], rungs) & inside

    def _read(self, o: int, samples: Array, rungs: Stage, i: Index) -> ProbeDerivative:
        """Derivatives of elements i of [probes · n] from their samples [up and down, rungs, len(i)]."""
        h, sigma = np.array([step(1.0, k) for k in rungs]), np.sqrt(self.variance[o].ravel()[i])
        return derivative_of_sums(samples[0], samples[1], h, sigma, self.surveyed.part_unit(o), self.surveyed.rounds_x())

    def _groups(self, columns: Index) -> Iterator[_Group]:
        """The groups that these columns lie in, with no other members."""
        ordered = columns[np.argsort(self.colour[columns], kind="stable")]
        colour = self.colour[ordered]
        ends = [*(np.flatnonzero(colour[1:] != colour[:-1]) + 1).tolist(), len(ordered)] if len(ordered) else []
        for first, end in pairwise([0, *ends]):
            yield self._group(int(colour[first]), ordered[first:end])

    def _group(self, number: int, members: Index) -> _Group:
        column_of = self.groups.column_of(number)
        position = np.full(self.size + 1, NO_ENTRY)  # the last one answers for NO_ENTRY
        position[self.place[members]] = np.arange(len(members))
        place = position[column_of]
        if (place >= 0).all():
            return _Group(number, members, slice(None), place, None, tuple(self.point.parts), self.w, self.columns[members])
        outputs = np.flatnonzero(place >= 0)
        ends = np.searchsorted(outputs, [p.start for p in self.point.parts] + [len(self.point.f0)]).tolist()
        parts = tuple(slice(a, b) for a, b in pairwise(ends))
        return _Group(number, members, outputs, place[outputs], column_of < 0, parts, self.w[:, outputs], self.columns[members])

    def _sample_group(self, group: _Group, rungs: Stage, samples: Array, first: bool) -> None:
        """The samples of one group, 2 calls a rung."""
        if first:
            self.variance[..., group.members] = group.sums(group.w**2, self.noise[group.outputs] ** 2)
        stray = np.zeros(len(self.point.f0), bool)
        for r, k in enumerate(rungs):
            for side, sign in enumerate((1.0, -1.0)):
                moved = self._moved(group, sign * step(1.0, k))
                if moved is None:
                    continue
                change, stretch = moved
                samples[:, side, r][..., group.members] = group.sums(group.w, change[group.outputs]) * stretch
                if first and group.off_pattern is not None:
                    stray |= self._moved_off_pattern(group.off_pattern, change)
                if first and (r, side) == (0, 0):
                    self._record_norms_and_reach(group, change, step(1.0, k))
        if stray.any():
            self._add_strays(group, np.flatnonzero(stray), rungs[0])

    def _moved(self, group: _Group, t: float) -> tuple[Array, Array] | None:
        """Changes [M] of all outputs, and the factor [m] that brings each member's change from the realised step to the nominal one."""
        move, c = t * self.move[group.members], self.point.columns
        x = c.x[group.columns]
        to = c.cast(x + move, group.columns)
        realised = to - x
        if not realised.any():
            return None
        return self.surveyed.changes(self.point.values_at(group.columns, to)), np.where(realised != 0, move / realised, np.nan)

    # ---- what a first pass learns
    def _record_norms_and_reach(self, group: _Group, change: Array, h: float) -> None:
        """Norms of columns, reaches of outputs, and columns whose outputs have no value at x."""
        size = np.abs(change[group.outputs]) / h
        self.reach[group.outputs] = np.fmax(self.reach[group.outputs], size)
        self.alive[group.outputs] |= size * h > ALIVE * self.noise[group.outputs]
        self.square[:, group.members] = group.sums(group.w[:1] ** 2, size**2)[:, 0]
        if self.some_missing:
            self.unknown[:, group.members] = group.sums(np.ones_like(group.w[:1]), self.missing[group.outputs])[:, 0] > 0

    def _moved_off_pattern(self, off_pattern: Mask, change: Array) -> Mask:
        """Outputs [M] off the pattern that moved all the same; none where f has no value at all."""
        moved = off_pattern & ~(np.abs(change) <= self.still) & ~self.missing
        return np.asarray(moved & ~np.isnan(change).all())

    def _add_strays(self, group: _Group, found: Index, rung: int) -> None:
        """Of the outputs that moved on this rung, those which do so near x."""
        def change(t: float) -> Array | None:
            moved = self._moved(group, t)
            return moved and moved[0]

        found = found[present_at_x(change, found, rung, self.still, self.noise)]
        for part, strays in zip(self.point.parts, self.strays, strict=True):
            strays.add(group.number, found[(found >= part.start) & (found < part.stop)])

    def _floors(self, columns: Index) -> Array:
        """The floor [outputs, n] of these columns, from Σ (w·c·unit)² of the outputs that each owns; 0 elsewhere."""
        squares = self.surveyed.floors(self.reach, self.alive) ** 2
        total = np.zeros((len(self.point.parts), len(self.columns)))
        for group in self._groups(columns):
            total[:, group.members] = group.sums(group.w**2, squares[group.outputs]).max(1)
        floors = np.array([with_off_pattern_floor(np.sqrt(of_part), np.sqrt(squares[part]))
                           for of_part, part in zip(total, self.point.parts, strict=True)])
        return np.asarray(floors * np.abs(self.move) / self.point.columns.size[self.columns])
