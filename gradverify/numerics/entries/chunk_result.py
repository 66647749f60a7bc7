"""What is known of the elements of a chunk of lines: those that took a solver, and the verdicts of some outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.judging.cells import Cells
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.records import joined
from gradverify.numerics.rungs import Array, Mask


@dataclass(frozen=True)
class ChunkResult:
    """`judged` elements, which of them the quick rungs settled, and mismatches of groups, which no lone column has confirmed [E].

    `outs`: the outputs of this part. `zeros`, `masked` [n, outs]: passed or left out without a solver. `strays` [n, outs]: `QuickSamples.strays`.
    `off_secant` [M]: outputs that miss a secant of the survey, so that their quick rungs met an alias.
    """

    outs: slice
    judged: Judged
    quick: Mask
    unconfirmed: Mask
    zeros: Mask
    masked: Mask
    zero_resolution: Array
    off_secant: Mask
    strays: Mask

    def add_zeros(self, tally: Tally, a: Array, rows: slice, part: slice) -> None:
        """What needed no solver, of lines `rows` and the outputs of `part`; a [n, M]."""
        if not (self.zeros.any() or self.masked.any()):
            return
        first, last = max(part.start, self.outs.start), min(part.stop, self.outs.stop)
        if first < last:
            here = rows, slice(first - self.outs.start, last - self.outs.start)
            zeros = self.zeros[here]
            tally.add_zeros(a[rows, first:last][zeros], self.zero_resolution[here][zeros], self.masked[here])


@dataclass(frozen=True)
class Solved:
    """Elements that took a solver: their derivatives, which of them the quick rungs settled (`easy`), and which the budget left [E].

    `judged`: their verdicts, where nothing was learnt since that could change them.
    """

    cells: Cells
    derivative: Derivative
    easy: Mask
    unaffordable: Mask
    judged: Judged | None

    def and_quick(self, cells: Cells, derivative: Derivative) -> Solved:
        """With more elements of the same bundle, which saw the quick rungs alone."""
        every = Cells(cells.bundle, np.concatenate([self.cells.line, cells.line]), np.concatenate([self.cells.out, cells.out]))
        nothing = np.zeros(len(cells), bool)
        return Solved(every, joined([self.derivative, derivative]), np.concatenate([self.easy, nothing]),
                       np.concatenate([self.unaffordable, nothing]), None)
