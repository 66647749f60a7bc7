"""Elements of the Jacobian as flat index arrays: the line, output and column of each; and gathers of what is known by line, output or column."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gradverify.numerics.judging.bundle import Bundle
from gradverify.numerics.rungs import Array, Index, Mask

T = TypeVar("T", bound=np.generic)


class Cells:
    """Elements [E] of a bundle by `line` and `out`put, ascending; `column`: whose derivative each shows.

    `block`: the outputs of which these are the elements along all lines, the most frequent case: slices do for
    look-ups then, in three quarters of the time of a softmax.
    """

    def __init__(self, bundle: Bundle, line: Index, out: Index, block: slice | None = None) -> None:
        self.bundle, self.line, self.out, self.block = bundle, line, out, block
        self.column = self.by_line_and_output(bundle.column_of)

    def __len__(self) -> int:
        return len(self.out)

    @property
    def lines(self) -> int:
        """Of a block, of how many lines; 0 of other elements."""
        return 0 if self.block is None else len(self.bundle.column_of)

    def by_line_and_output(self, values: NDArray[T]) -> NDArray[T]:
        """What is known by line and output [n, M], by element [E]."""
        return values[self.line, self.out] if self.block is None else values[:, self.block].reshape(-1)

    def by_output(self, values: NDArray[T]) -> NDArray[T]:
        """What is known by output [M], by element [E]; a view of it where that will do."""
        if self.block is None or self.lines != 1:
            return values.take(self.out)
        return values[self.block]

    def by_column(self, values: NDArray[T]) -> NDArray[T]:
        """What is known by column [C], by element [E]; a view of it where that will do."""
        shift = None if self.block is None else self.bundle.shift
        if self.block is None or shift is None:
            return values.take(self.column)
        return values[self.block.start + shift : self.block.stop + shift]

    def take(self, i: Index) -> Cells:
        """Elements i (ascending)."""
        return self if len(i) == len(self.out) else Cells(self.bundle, self.line[i], self.out[i])


def cells_where(bundle: Bundle, mask: Mask, outs: slice) -> Cells:
    """The elements of a bundle where the mask [n, outs] is true."""
    if mask.size and mask.all():
        n, width = mask.shape
        return Cells(bundle, np.repeat(np.arange(n), width), np.tile(np.arange(outs.start, outs.stop), n), outs)
    line, out = np.nonzero(mask) if mask.any() else np.zeros((2, 0), np.intp)  # to find nothing takes NumPy as long as to find much
    return Cells(bundle, line, out + outs.start)


def summed_by_output(out: Index, values: Array, m: int, lines: int) -> Array:
    """Sums [m] of values [E] by output; of a block of so many `lines` (0: of no block) line after line."""
    width = len(out) // lines if lines else 0
    if width < 2:  # NumPy adds up a single column in another order
        return np.asarray(np.bincount(out, values, m), float)
    sums = np.zeros(m)
    sums[out[0] : out[0] + width] = values.reshape(lines, width).sum(0)
    return sums
