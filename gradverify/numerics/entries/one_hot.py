"""One-hot numbers from compressed VJPs: what the backward of a row group has off the sparsity pattern, output by output.

The VJP of a row group is a sum of rows. It shows each row by itself only where the backward has no entry off the pattern, which is so
wherever its numbers are right. Where one is wrong, the outputs of the group are pulled back in halves by the bits of their numbers,
which tells the output that each number comes from, or that it comes from several. The latter are told apart one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.seed_vectors import WEIGHTS, gradient_of_rows
from gradverify.numerics.structure import Plan

PARTS = 4  # of a set of outputs that is searched: a full search takes a third more backwards than there are outputs
MOST_ENTRIES = 1 << 21  # off the pattern of a group that are kept


@dataclass(frozen=True)
class OneHot:
    """What a row group's backward has off the pattern: entries (`out`, `column`, `value`) [E], as one-hot cotangents give them.

    `shared` [k]: columns of the pattern that other outputs reach too, and `own` [k], what their own output alone gives there; NaN where
    the budget ended before that was known.
    """

    out: Index
    column: Index
    value: Array
    shared: Index
    own: Array


def off_pattern(run: Run, plan: Plan, output: int, group: int, weights: Array) -> OneHot:
    """The entries of one row group off the pattern; `weights` [M] of its cotangents. 2 log₂(outputs) backwards; more where an input is
    reached from several outputs: at least as many as lead to one of them, the others as far as the budget goes."""
    search = _Search(run, plan, output, group, weights)
    source, several = search.sources()
    return search.found(source, several)


class _Search:
    """The outputs of one group, numbered from 0, and the inputs [N] of one tensor."""

    def __init__(self, run: Run, plan: Plan, output: int, group: int, weights: Array) -> None:
        point, rows, start = run.point, plan.rows[output], run.point.parts[output].start
        self.run, self.output, self.weights = run, output, weights
        self.columns = slice(plan.first, plan.first + plan.size)
        members = rows.members(group)
        owner = rows.row_of(group)
        self.outs, self.owner = members + start, np.where(owner < 0, -1, np.searchsorted(members, owner))
        least = run.floors()[self.outs].min(initial=np.inf)
        self.rounding = WEIGHTS[0] * (run.atol + least / point.columns.size[self.columns])
        self.value = np.zeros(plan.size)
        self.finished = True

    def pulled(self, which: Index) -> Array:
        """The gradient [N] of some of the outputs."""
        outs = self.outs[which]
        return gradient_of_rows(self.run.point, self.output, outs, self.weights[outs])[self.columns]

    def reached(self, gradient: Array) -> Mask:
        return np.asarray(~(np.abs(gradient) <= self.rounding))

    def sources(self) -> tuple[Index, Mask]:
        """The only output [N] that each input is reached from, or −1; and which are reached from several [N]."""
        n, size = len(self.outs), len(self.value)
        number, bits = np.arange(n), max(n - 1, 0).bit_length()
        source, seen = np.zeros(size, np.intp), np.zeros(size, np.intp)
        several, lost = np.zeros(size, bool), np.ones(size, bool)
        for bit in range(bits):
            off, on = (self.pulled(np.flatnonzero((number >> bit) & 1 == side)) for side in (0, 1))
            from_off, from_on = self.reached(off), self.reached(on)
            several |= from_off & from_on
            seen += from_off | from_on
            source += from_on.astype(np.intp) << bit
            self.value = np.where(from_on, on, np.where(from_off, off, self.value))
            lost &= ~np.isfinite(off) & ~np.isfinite(on)
        if not bits:
            return np.full(size, -1), self.owner != 0
        several |= (seen > 0) & (seen < bits)       # or backward is not linear
        several &= ~(lost & (self.owner >= 0))      # no number whatever the cotangent, as 0 · inf
        return np.where(several | (seen == 0) | lost, -1, source), several

    def found(self, source: Index, several: Mask) -> OneHot:
        alone = np.flatnonzero((source >= 0) & (source != self.owner))
        out, column, value = [source[alone]], [alone], [self.value[alone] / self.weights[self.outs[source[alone]]]]
        shared = np.flatnonzero((several | ((source >= 0) & (source != self.owner))) & (self.owner >= 0))
        own, place = np.zeros(len(self.value)), np.flatnonzero(several)
        rows = self._rows(place) if len(place) else {}
        for n, row in rows.items():
            here = self.owner[place] == n
            own[place[here]] = row[here]
            there = np.flatnonzero(~here & self.reached_at(place, row))
            out, column, value = [*out, np.full(len(there), n)], [*column, place[there]], [*value, row[there]]
        if not self.finished:
            own[place[~np.isin(self.owner[place], list(rows))]] = np.nan
        first = self.columns.start
        return OneHot(self.outs[np.concatenate(out)], np.concatenate(column) + first, np.concatenate(value), shared + first, own[shared])

    def reached_at(self, place: Index, gradient: Array) -> Mask:
        """`reached`, of some inputs."""
        return np.asarray(~(np.abs(gradient) <= self.rounding[place]))

    def _rows(self, place: Index) -> dict[int, Array]:
        """The gradients [k] at these inputs of the outputs that reach one of them, each pulled back alone; by the number of the output."""
        rows, left = dict[int, Array](), [np.arange(len(self.outs))]
        while left:
            which = left.pop()
            if rows and (len(rows) * len(place) > MOST_ENTRIES or self.run.over_budget()):
                self.finished = False
                break
            whole = len(which) == len(self.outs) > 1
            gradient = self.pulled(which)[place] if not whole else None
            if gradient is not None and not self.reached_at(place, gradient).any():
                continue
            if len(which) > 1:
                left += [part for part in np.array_split(which, PARTS) if len(part)]
            elif gradient is not None:
                rows[int(which[0])] = gradient / self.weights[self.outs[which[0]]]
        return rows
