"""Sparsity by bisection: the window of input slices that each output depends on, by blocks of half the size at every level.

Each output keeps the interval of blocks that may move it. Blocks as far apart as the widest interval is wide are perturbed together: of those,
each output has one at most in its own interval, so that what moved it is known. 2·w calls a level, w the widest interval in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.rungs import Index, Mask
from gradverify.numerics.sparsity.probes import Axis

FIRST_CUT = 4  # blocks of the first level
WIDE_OF = 8  # blocks from which on windows of more than half of them are cut no finer
CHEAP = 16  # calls of a level that are always worth it; else no more than a block has slices, about what it can save
MOST_CALLS = 64  # calls in all


@dataclass(frozen=True)
class Blocks:
    """An axis of `length` slices cut into blocks of `size`, and the interval of blocks [M] that may move each output."""

    length: int
    size: int
    low: Index
    high: Index

    @property
    def count(self) -> int:
        return -(-self.length // self.size)

    def width(self, outputs: Mask) -> int:
        """The widest interval of these outputs, in blocks."""
        return int(np.max((self.high - self.low + 1)[outputs], initial=1))

    def calls(self, factor: int, outputs: Mask) -> int:
        """That a cut of each block into `factor` takes."""
        return min(factor * self.width(outputs), -(-self.length * factor // self.size))

    def slices(self) -> tuple[Index, Index]:
        """The intervals as the first and last slice."""
        return self.low * self.size, np.minimum((self.high + 1) * self.size, self.length) - 1


def bisected(axis: Axis, pending: Mask) -> tuple[Index, Index]:
    """Windows [M] of the outputs that are left, cut finer while that pays."""
    zero = np.zeros(axis.outputs, np.intp)
    blocks = Blocks(axis.length, 1 << (axis.length - 1).bit_length(), zero, zero)
    factor, spent = FIRST_CUT, 0
    while pending.any() and blocks.size > 1:
        calls = blocks.calls(factor, pending)
        if spent + calls > MOST_CALLS or calls > max(CHEAP, blocks.size):
            break
        blocks = _cut(axis, blocks, factor, pending)
        factor, spent = 2, spent + calls
        pending = pending & ~_too_wide(axis, blocks, pending)
    return blocks.slices()


def _cut(axis: Axis, blocks: Blocks, factor: int, pending: Mask) -> Blocks:
    """Every interval in smaller blocks. Blocks a period apart are perturbed together: each output has one of them at most in its interval."""
    first, last = blocks.low * factor, (blocks.high + 1) * factor - 1
    finer = Blocks(blocks.length, blocks.size // factor, first, last)
    period, block = blocks.calls(factor, pending), np.arange(blocks.length) // finer.size
    low, high, stray = last + 1, first - 1, np.zeros(len(pending), bool)
    for residue in range(period):
        moved, at = pending & axis.moved(block % period == residue), first + (residue - first) % period
        hit = moved & (at <= last)
        low, high, stray = np.where(hit, np.minimum(low, at), low), np.where(hit, np.maximum(high, at), high), stray | (moved & ~hit)
    silent = low > high  # a tie, or noise: what was known is kept; moved from outside, nothing is known
    low, high = np.where(silent, first, low), np.where(silent, last, high)
    return Blocks(blocks.length, finer.size, np.where(stray, 0, low), np.where(stray, finer.count - 1, high))


def _too_wide(axis: Axis, blocks: Blocks, pending: Mask) -> Mask:
    """The outputs [M] of tensors whose widest window is most of the axis."""
    width, wide = np.where(pending, blocks.high - blocks.low + 1, 0), np.zeros(len(pending), bool)
    for part in axis.parts:
        wide[part] = blocks.count >= WIDE_OF and 2 * int(width[part].max(initial=0)) > blocks.count
    return wide
