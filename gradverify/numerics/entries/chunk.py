"""Every element of a chunk of lines with its verdict: zeros at once, the others by the quick rungs, and by more where those leave them open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradverify.numerics.entries.consistency import AliasSums
from gradverify.numerics.entries.quick_look import QuickLook
from gradverify.numerics.entries.refine import refined
from gradverify.numerics.judging.bundle import Bundle
from gradverify.numerics.judging.cells import Cells, cells_where
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.verdict import MISMATCH

SPAN = 1 << 17  # elements of a chunk that are judged at a time: what is known of each takes some 500 bytes
NO_COLUMNS = np.zeros(0, np.intp)


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


class Chunk:
    """The lines of a bundle of n, and the analytic values a [n, M] of the columns that their outputs show."""

    def __init__(self, run: Run, bundle: Bundle, a: Array) -> None:
        self.run, self.bundle, self.a = run, bundle, a
        self.look = QuickLook(run, bundle, a)
        self.unchanged, self.masked = self.look.samples.unchanged, self.look.samples.masked
        if self.masked.any():
            self.masked = self.masked & np.isfinite(a) & bundle.in_pattern

    def judge(self, sums: AliasSums, aliasing: Mask) -> Iterator[ChunkResult]:
        """Everything about the chunk, some outputs at a time; `aliasing` [M]: outputs whose quick rungs are known to alias."""
        m = self.a.shape[1]
        width = max(1, SPAN // max(len(self.a), 1))
        for start in range(0, m, width) or [0]:
            outs = slice(start, min(start + width, m))
            yield self._judge_outputs(outs, sums, aliasing, self.bundle.columns if outs.stop == m else NO_COLUMNS)

    def _judge_outputs(self, outs: slice, sums: AliasSums, aliasing: Mask, completed: Index) -> ChunkResult:
        """Some outputs of all lines. `completed`: the columns of which these are the last."""
        zeros, masked = self._negligible_zeros(outs), self.masked[:, outs]
        cells = cells_where(self.bundle, ~(zeros | masked) & self.bundle.in_pattern[:, outs], outs)
        quick = self.look.derivatives(cells)
        off_secant = sums.add(completed, cells, quick.value, quick.bar)
        found = refined(self.look, cells, quick, (aliasing | off_secant)[cells.out])
        revived = self._revived(zeros, outs)
        if len(revived):
            found = found.and_quick(revived, self.look.derivatives(revived))
        judged = found.verdicts(self.look)
        resolution = self._zero_resolution(outs) if zeros.any() else np.zeros(zeros.shape)
        unconfirmed = (judged.verdict == MISMATCH) & self.bundle.grouped
        return ChunkResult(outs, judged, found.quick, unconfirmed, zeros, masked, resolution, off_secant,
                           self.look.samples.strays(outs, self.run.survey.sigma))

    # ---- zeros
    def _negligible_zeros(self, outs: slice) -> Mask:
        """Elements [n, outs] of which f is bitwise still and the analytic value negligible: most of a Jacobian, settled without a solver."""
        still = self.unchanged[:, outs] & self.bundle.in_pattern[:, outs]
        if not still.any():
            return still
        zeros = still & (np.abs(self.a[:, outs]) <= self.run.zero_tolerance(self.bundle.column_of[:, outs], outs))
        return zeros & ~(self.look.unmoved | self.look.wide)[:, outs] if self.run.survey.some_unmoved else zeros

    def _revived(self, zeros: Mask, outs: slice) -> Cells:
        """What is no zero any more because floors moved meanwhile; taken off `zeros`."""
        revived = cells_where(self.bundle, zeros & ~self._negligible_zeros(outs) if zeros.any() else zeros, outs)
        zeros[revived.line, revived.out - outs.start] = False
        return revived

    def _zero_resolution(self, outs: slice) -> Array:
        """How large a derivative [n, outs] may be that passes as a zero."""
        f0 = np.nan_to_num(self.look.samples.f0[outs], posinf=0.0, neginf=0.0)
        rounding = self.run.point.unit[outs] * np.abs(f0) / self.look.samples.widest(outs)
        return np.asarray(self.run.zero_tolerance(self.bundle.column_of[:, outs], outs) + rounding)
