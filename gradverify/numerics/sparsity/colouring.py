"""Column groups of a sparsity pattern: columns that no output shares have one colour and are perturbed together (Curtis, Powell, Reid 1974)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.rungs import Index
from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern


@dataclass(frozen=True)
class ColumnGroups:
    """The columns of one input tensor in groups of one colour, valid for all its patterns (one per output tensor) at once."""

    patterns: tuple[Pattern, ...]
    widths: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.widths)

    def colour(self) -> Index:
        """The group [N] of each input coordinate."""
        first = self.patterns[0]
        place, colour = np.arange(first.size), np.zeros(first.size, np.intp)
        for n, width, stride in zip(first.shape, self.widths, first.strides, strict=True):
            if width > 1:
                colour = colour * width + place // stride % n % width
        return colour

    def column_of(self, group: int) -> Index:
        """The column of the group, counted within the tensor, that each output [M] of all output tensors depends on; NO_ENTRY where none does."""
        return np.asarray(self.columns_of(range(group, group + 1))[0])

    def columns_of(self, groups: range) -> Index:
        """`column_of`, of groups in a row [groups, M]."""
        residues = np.unravel_index(np.asarray(groups), self.widths) if self.widths else ()
        columns = [self._of_pattern(pattern, residues, len(groups)) for pattern in self.patterns]
        return columns[0] if len(columns) == 1 else np.concatenate(columns, 1)

    def _of_pattern(self, pattern: Pattern, residues: Sequence[Index], count: int) -> Index:
        if pattern.pointwise and self.count == 1:
            return np.arange(len(pattern))[None]
        place, in_pattern = np.zeros(len(pattern), np.intp), ~pattern.nothing
        for k, (residue, width) in enumerate(zip(residues, self.widths, strict=True)):
            at = pattern.low[k]
            if width > 1:
                at = _one_of(at)
                onward = residue[:, None] - at % width
                at = at + np.where(onward < 0, onward + width, onward)
                inside = at <= _one_of(pattern.high[k])
                in_pattern = in_pattern if inside.all() else in_pattern & inside
            place = place + at * pattern.strides[k]
        columns = place if in_pattern.all() else np.where(in_pattern, place, NO_ENTRY)
        return np.broadcast_to(columns, (count, len(pattern)))


def _one_of(places: Index) -> Index:
    """Places [M], or [1] where they are all the same: a window that is a whole axis, say."""
    return places[:1] if (places == places[:1]).all() else places


def column_groups(patterns: Sequence[Pattern]) -> ColumnGroups:
    """Groups of one tensor's columns; `patterns` are those of the tensor with each output tensor."""
    return ColumnGroups(tuple(patterns), tuple(int(max(widths)) for widths in zip(*(p.widths for p in patterns), strict=True)))
