"""The columns of one input tensor moved in colour groups, and what the changes of f add up to for each column under each cotangent.

Σ_j w_j Δf_j over the outputs j that depend on a column: columns of a group share no output, so that one pair of calls tells it for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gradverify.numerics.probing.directional import Stage, reachable
from gradverify.numerics.probing.off_pattern import Strays, present_at_x, with_off_pattern_floor
from gradverify.numerics.probing.thresholds import SurveyedPoint
from gradverify.numerics.rungs import Array, Index, Mask, Z, in_range, step
from gradverify.numerics.sparsity.colouring import column_groups
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern

ALIVE = 3 * Z  # standard deviations of noise: an entry that moves its output


@dataclass(frozen=True)
class Group:
    """Columns of one colour, `members` [m] within the tensor and `columns` [m] by number, and the outputs [e] that depend on one of them.

    `member_of` [e]: on which, by its place in members; `off_pattern` [M]: the outputs that depend on none. `parts`: the ranges of e that lie in
    each output tensor. `w` [K, e]: the cotangents there. Where every output depends on a member, the usual case and the largest, nothing is
    copied: `outputs` is then a slice, and `off_pattern` None.
    """

    number: int
    members: Index
    columns: Index
    outputs: Index | slice
    member_of: Index
    off_pattern: Mask | None
    parts: tuple[slice, ...]
    w: Array

    def sums(self, left: Array, right: Array) -> Array:
        """Σ left·right [output tensors, K, m] over the outputs of each member, of [K, e] and [e]."""
        total = np.empty((len(self.parts), len(left), len(self.members)))
        for o, part in enumerate(self.parts):
            if len(self.members) == 1:
                total[o, :, 0] = left[:, part] @ right[part]
                continue
            for k, factor in enumerate(left):
                total[o, k] = np.bincount(self.member_of[part], factor[part] * right[part], len(self.members))
        return total


class GroupSums:
    """Sums for the n columns of one tensor under cotangents w [K, M]; `move` [n]: how far each column goes at t = 1, 0 where it stays.

    The first pass over all columns also tells: the `variance` of the sums [output tensors, K, n]; about the squared norm of each column, in its
    move, `square` [output tensors, n], and whether an output of it has no value at x, `unknown`; the `reach` of each output [M], and whether it
    is `alive`; and the `strays` of each output tensor, which moved off the pattern.
    """

    def __init__(self, surveyed: SurveyedPoint, tensor: int, patterns: Sequence[Pattern], w: Array, move: Array) -> None:
        self.surveyed, self.point, self.w, self.move = surveyed, surveyed.point, w, move
        self.columns = self.point.columns.of(tensor)
        self.still, self.noise = surveyed.still, surveyed.noise
        self.colouring, self.coordinates = column_groups(patterns), patterns[0].size
        self.coordinate = self.point.columns_of(tensor).coordinate
        self.colour = self.colouring.colour()[self.coordinate]
        self.missing = np.isnan(self.point.f0)
        self.some_missing = bool(self.missing.any())
        n, m, outputs = len(self.columns), len(self.point.f0), len(self.point.parts)
        self.reach, self.alive, self.unknown = np.zeros(m), np.zeros(m, bool), np.zeros((outputs, n), bool)
        self.square, self.variance = np.zeros((outputs, n)), np.zeros((outputs, len(w), n))
        self.strays = [Strays() for _ in self.point.parts]

    def sampled(self, columns: Index, rungs: Stage, first: bool = False) -> Array:
        """Sums [output tensors, up and down, rungs, K, n] with these columns moved, in groups; NaN for other columns. `first`: the first pass."""
        samples = np.full((len(self.point.parts), 2, len(rungs), len(self.w), len(self.columns)), np.nan)
        for group in self._groups(columns[(self.move[columns] != 0) & self._has_room(columns, rungs)]):
            if first:
                self.variance[..., group.members] = group.sums(group.w**2, self.noise[group.outputs] ** 2)
            self._sample_group(group, rungs, samples, first)
        return samples

    def floors(self, columns: Index) -> Array:
        """The floor [output tensors, n] of these columns, from Σ (w·c·unit)² over the outputs of each; 0 elsewhere."""
        squares = self.surveyed.floors(self.reach, self.alive) ** 2
        total = np.zeros((len(self.point.parts), len(self.columns)))
        for group in self._groups(columns):
            total[:, group.members] = group.sums(group.w**2, squares[group.outputs]).max(1)
        floors = np.array([with_off_pattern_floor(np.sqrt(of_part), np.sqrt(squares[part]))
                           for of_part, part in zip(total, self.point.parts, strict=True)])
        return np.asarray(floors * np.abs(self.move) / self.point.columns.size[self.columns])

    # ---- groups
    def _groups(self, columns: Index) -> Iterator[Group]:
        """The groups that these columns lie in, with no other members."""
        ordered = columns[np.argsort(self.colour[columns], kind="stable")]
        colour = self.colour[ordered]
        ends = [*(np.flatnonzero(colour[1:] != colour[:-1]) + 1).tolist(), len(ordered)] if len(ordered) else []
        for first, end in pairwise([0, *ends]):
            yield self._group(int(colour[first]), ordered[first:end])

    def _group(self, number: int, members: Index) -> Group:
        column_of = self.colouring.column_of(number)
        place = np.full(self.coordinates + 1, NO_ENTRY)  # the last one answers for NO_ENTRY
        place[self.coordinate[members]] = np.arange(len(members))
        member_of, columns = place[column_of], self.columns[members]
        if (member_of >= 0).all():
            return Group(number, members, columns, slice(None), member_of, None, tuple(self.point.parts), self.w)
        outputs = np.flatnonzero(member_of >= 0)
        ends = np.searchsorted(outputs, [p.start for p in self.point.parts] + [len(self.point.f0)]).tolist()
        parts = tuple(slice(a, b) for a, b in pairwise(ends))
        return Group(number, members, columns, outputs, member_of[outputs], column_of < 0, parts, self.w[:, outputs])

    # ---- moving them
    def _has_room(self, columns: Index, rungs: Stage) -> Mask:
        """Columns that may take these rungs: not too far above their scale, and inside the domain."""
        c, numbers = self.point.columns, self.columns[columns]
        reach = np.abs(self.move[columns]) * step(1.0, rungs[0])
        inside = (c.x[numbers] - reach >= c.low[numbers]) & (c.x[numbers] + reach <= c.high[numbers])
        return reachable(c.scale[numbers], c.size[numbers], rungs) & inside

    def _sample_group(self, group: Group, rungs: Stage, samples: Array, first: bool) -> None:
        """The sums of one group's columns, into `samples`: 2 calls a rung."""
        moved_off_pattern = np.zeros(len(self.point.f0), bool)
        for r, k in enumerate(rungs):
            for side, sign in enumerate((1.0, -1.0)):
                moved = self._moved(group, sign * step(1.0, k))
                if moved is None:
                    continue
                change, stretch = moved
                samples[:, side, r][..., group.members] = group.sums(group.w, change[group.outputs]) * stretch
                if first and group.off_pattern is not None:
                    moved_off_pattern |= self._moved_off_pattern(group.off_pattern, change)
                if first and (r, side) == (0, 0):
                    self._learn_size(group, change, step(1.0, k))
        if moved_off_pattern.any():
            self._add_strays(group, np.flatnonzero(moved_off_pattern), rungs[0])

    def _moved(self, group: Group, t: float) -> tuple[Array, Array] | None:
        """Changes [M] of all outputs, and the factor [m] that brings each member's change from the realised step to the nominal one."""
        move, c = t * self.move[group.members], self.point.columns
        x = c.x[group.columns]
        to = c.cast(x + move, group.columns)
        realised = to - x
        if not realised.any():
            return None
        return self.surveyed.changes(self.point.values_at(group.columns, to)), np.where(realised != 0, move / realised, np.nan)

    # ---- what the first pass tells
    def _learn_size(self, group: Group, change: Array, h: float) -> None:
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

    def _add_strays(self, group: Group, moved: Index, rung: int) -> None:
        """Of the outputs that moved off the pattern on this rung, those which do so near x."""
        def change(t: float) -> Array | None:
            at_t = self._moved(group, t)
            return at_t and at_t[0]

        found = moved[present_at_x(change, moved, rung, self.still, self.noise)]
        for part, strays in zip(self.point.parts, self.strays, strict=True):
            strays.add(group.number, found[in_range(found, part)])
