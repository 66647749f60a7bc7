"""Sparsity pattern: which elements of an input tensor can move which of an output tensor, and thus
which may be perturbed, or pulled back, together.

A pattern is a product of windows: along each input axis every output depends on the slices low …
high. One slice is a window of width 1, a band is a narrow one, a whole axis a wide one. Outputs
that share no input are one row group; column groups follow from the widths of the windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from gradverify.numerics.rungs import Array, Index, Mask, repeated

DENSE_LABELS = 8  # labels are counted rather than sorted up to this multiple of their number
NO_ENTRY = -1  # in place of a row, column, block or slice: the pattern has no entry there


@dataclass(frozen=True)
class Pattern:
    """The pattern of one (input tensor, output tensor) pair. `shape`: the input as real numbers
    (complex: with a last axis of 2).

    low, high: one array [M] per input axis, the first and last slice that each real output
    coordinate depends on; low > high on every axis where an output depends on no input. 0-dim
    inputs have no axes: `nothing` [M] marks the outputs that do not depend on them.
    """

    shape: tuple[int, ...]
    low: tuple[Index, ...]
    high: tuple[Index, ...]
    nothing: Mask

    def __len__(self) -> int:
        """Return the number of real output coordinates."""
        return len(self.nothing)

    @property
    def size(self) -> int:
        """The number of real input coordinates."""
        return math.prod(self.shape)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The widest window of each axis, at least 1."""
        return tuple(self._widest(low, high) for low, high in zip(self.low, self.high, strict=True))

    def _widest(self, low: Index, high: Index) -> int:
        if low is high:
            return 1
        return int(np.max(np.where(self.nothing, 0, high - low), initial=0)) + 1

    @cached_property
    def single(self) -> tuple[int, ...]:
        """The axes along which every output depends on at most one slice; different slices are
        independent."""
        return tuple(k for k, width in enumerate(self.widths) if width == 1)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """The strides of the flat input, in elements."""
        return tuple(math.prod(self.shape[k + 1 :]) for k in range(len(self.shape)))

    @cached_property
    def rows(self) -> RowGroups:
        """The outputs in groups that share no input: those that differ in a slice of a single axis,
        or in windows of a band that do not meet."""
        live = np.flatnonzero(~self.nothing)
        count = len(live)
        kind, colours = np.zeros(count, np.intp), np.zeros(count, np.intp)
        for k, width in enumerate(self.widths):
            low, high = self.low[k][live], self.high[k][live]
            if count and (low == low[0]).all() and (high == high[0]).all():
                continue
            position, apart = (low, 1) if width == 1 else _windows(low, high)
            kind = (
                _numbered(kind * (int(position.max(initial=0)) + 1) + position)
                if kind.any()
                else _numbered(position)
            )
            if apart > 1:
                colours = _numbered(colours * apart + position % apart)
        # Each output in its own group
        group = np.zeros(len(self), np.intp)
        alone = int(kind.max(initial=-1)) + 1 == count
        if not alone:
            colours = (
                colours * (count + 1) + rank_among(kind) if colours.any() else rank_among(kind)
            )
        group[live] = _numbered(colours)
        return RowGroups(self, group, int(group.max(initial=-1)) + 1)

    def block_of_outputs(self, part: slice = slice(None)) -> Index:
        """Return the independent block [M] of each output, or of a part of them; NO_ENTRY where an
        output depends on no input."""
        nothing = self.nothing[part]
        block = np.zeros(len(nothing), np.intp)
        for k in self.single:
            block = block * self.shape[k] + self.low[k][part]
        return np.where(nothing, NO_ENTRY, block)

    def block_of_inputs(self, part: slice | Index = slice(None)) -> Index:
        """Return the independent block [N] of each input coordinate, or of some of them, numbered
        as those of the outputs."""
        place = np.arange(*part.indices(self.size)) if isinstance(part, slice) else part
        block = np.zeros(len(place), np.intp)
        for k in self.single:
            block = block * self.shape[k] + place // self.strides[k] % self.shape[k]
        return block

    @property
    def blocks(self) -> int:
        return math.prod(self.shape[k] for k in self.single)


def dense(shape: Sequence[int], outputs: int) -> Pattern:
    """Return a pattern in which every output may depend on every input, if there is one."""
    zero, empty = repeated(np.intp(0), outputs), not math.prod(shape)
    high = tuple(repeated(np.intp(-1 if empty else n - 1), outputs) for n in shape)
    return Pattern(tuple(shape), tuple(zero for _ in shape), high, np.full(outputs, empty))


@dataclass(frozen=True)
class RowGroups:
    """The outputs of one pattern in groups that share no input. `group` [M]; outputs that depend on
    no input are in the first one."""

    pattern: Pattern
    group: Index
    count: int

    @cached_property
    def _sorted(self) -> tuple[Index, Index]:
        """The outputs by group, and where each group begins."""
        return np.argsort(self.group, kind="stable"), np.cumsum(
            np.bincount(self.group + 1, minlength=self.count + 1)
        )

    def members(self, group: int) -> Index:
        """Return the outputs of a group, ascending."""
        order, starts = self._sorted
        return order[starts[group] : starts[group + 1]]

    def weighted(self, groups: range, weights: Array) -> list[tuple[Index, Array]]:
        """Return the outputs of each of these consecutive groups, and their `weights` [M]."""
        order, begins = self._sorted
        ends = begins[groups.start : groups.stop + 1].tolist()
        rows = order[ends[0] : ends[-1]]
        of_rows = weights.take(rows)
        return [
            (rows[a - ends[0] : b - ends[0]], of_rows[a - ends[0] : b - ends[0]])
            for a, b in pairwise(ends)
        ]

    def rows_of(self, groups: range) -> Index:
        """Return the output of each of these groups that depends on each input coordinate [groups,
        N]; NO_ENTRY where there is none."""
        if not self.pattern.size:
            return np.full((len(groups), self.pattern.size), NO_ENTRY)
        order, begins = self._sorted
        pattern = self.pattern
        rows = order[begins[groups.start] : begins[groups.stop]]
        rows = rows[~pattern.nothing[rows]]
        place = ((self.group[rows] - groups.start) * pattern.size)[:, None]
        inside = np.ones((len(rows), 1), bool)
        for k, width in enumerate(pattern.widths):
            at = pattern.low[k][rows][:, None]
            every = (len(rows), place.shape[1] * width)
            if width == 1:
                place = place + at * pattern.strides[k]
                continue
            at = at + np.arange(width)
            held = at <= pattern.high[k][rows][:, None]
            place = (place[:, :, None] + (at * pattern.strides[k])[:, None, :]).reshape(every)
            inside = (inside[:, :, None] & held[:, None, :]).reshape(every)
        row = np.full(len(groups) * pattern.size, NO_ENTRY)
        inside = np.broadcast_to(inside, place.shape)
        row[place[inside]] = np.broadcast_to(rows[:, None], place.shape)[inside]
        return row.reshape(len(groups), pattern.size)

    def spans(self, limit: int) -> Iterator[range]:
        """Yield all groups in runs whose `rows_of` has at most `limit` numbers, or in single
        groups."""
        count = max(1, limit // max(self.pattern.size, 1))
        for first in range(0, self.count, count):
            yield range(first, min(first + count, self.count))


def _windows(low: Index, high: Index) -> tuple[Index, int]:
    """Return the position of each window [m] among the distinct ones by their low, then high end,
    and how many positions apart no two windows meet."""
    span = int(high.max(initial=0)) + 1
    windows, position = np.unique(low * span + high, return_inverse=True)
    starts = windows // span
    ends = np.maximum.accumulate(windows % span)
    apart = int(
        np.max(np.searchsorted(starts, ends, side="right") - np.arange(len(starts)), initial=1)
    )
    return position, apart


def rank_among(kind: Index) -> Index:
    """Return the rank [m] of each element among those of its kind."""
    in_order = bool((kind[1:] >= kind[:-1]).all())
    order = None if in_order else np.argsort(kind, kind="stable")
    ordered = kind if order is None else kind[order]
    place, begins = np.arange(len(kind)), np.ones(len(kind), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    start = place * begins
    place -= np.maximum.accumulate(start, out=start)
    if order is None:
        return place
    rank = np.empty(len(kind), np.intp)
    rank[order] = place
    return rank


def _numbered(label: Index) -> Index:
    """Return labels renumbered 0, 1, 2, … in their order."""
    if int(label.max(initial=0)) <= DENSE_LABELS * len(label):
        present = np.bincount(label) > 0
        if present.all():
            return label
        return (np.cumsum(present) - 1)[label]
    return np.unique(label, return_inverse=True)[1]


# ---- Column groups of a sparsity pattern: columns that no output shares have one colour and are
# perturbed together (Curtis, Powell, Reid 1974)
@dataclass(frozen=True)
class ColumnGroups:
    """The columns of one input tensor in groups of one colour, valid for all its patterns (one per
    output tensor) at once."""

    patterns: tuple[Pattern, ...]
    widths: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.widths)

    def colour(self) -> Index:
        """Return the group [N] of each input coordinate."""
        first = self.patterns[0]
        place = np.arange(first.size)
        colour = np.zeros(first.size, np.intp)
        for n, width, stride in zip(first.shape, self.widths, first.strides, strict=True):
            if width > 1:
                colour = colour * width + place // stride % n % width
        return colour

    def columns_of(self, groups: range) -> Index:
        """Return the column of each of these groups, counted within the tensor, that each output of
        all output tensors depends on [groups, M]; NO_ENTRY where there is none."""
        residues = np.unravel_index((groups), self.widths) if self.widths else ()
        columns = [self._of_pattern(pattern, residues, len(groups)) for pattern in self.patterns]
        return columns[0] if len(columns) == 1 else np.concatenate(columns, 1)

    def _of_pattern(self, pattern: Pattern, residues: Sequence[Index], count: int) -> Index:
        place = np.zeros(len(pattern), np.intp)
        in_pattern = ~pattern.nothing
        for k, (residue, width) in enumerate(zip(residues, self.widths, strict=True)):
            at = pattern.low[k]
            if width > 1:
                at = _one_of(at)
                onward = residue[:, None] - at % width
                at = at + np.where(onward < 0, onward + width, onward)
                in_pattern = in_pattern & (at <= _one_of(pattern.high[k]))
            place = place + at * pattern.strides[k]
        columns = np.where(in_pattern, place, NO_ENTRY)
        return np.broadcast_to(columns, (count, len(pattern)))


def _one_of(places: Index) -> Index:
    """Return places [M], or [1] where they are all the same, as for a window that is a whole
    axis."""
    return places[:1] if (places == places[:1]).all() else places


def column_groups(patterns: Sequence[Pattern]) -> ColumnGroups:
    """Return groups of one tensor's columns; `patterns` are those of the tensor with each output
    tensor."""
    return ColumnGroups(
        tuple(patterns),
        tuple(int(max(widths)) for widths in zip(*(p.widths for p in patterns), strict=True)),
    )
