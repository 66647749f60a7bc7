"""The precision of a function's computation: the unit roundoff of a dtype, and the one that the
bits of its values show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.rungs import U32, U64, U_BF16, Array, Index

HEAD = 64  # values that mostly suffice to show float64
ENOUGH, KEPT = 3, 32  # distinct values; one or two round numbers prove nothing
# Halvings from which on values count as multiples of one step: by chance, numbers of few bits look
# so once in 16,000
COARSER = 14
CANCELLED = 4  # the same threshold, where torch sees no operation coarser than float64
# Significant bits that numbers of a format actually use
SINGLE_BITS, BF16_BITS = 20, (6, 8)


@dataclass(frozen=True)
class Bits:
    """A summary of the bits of all values seen so far: float64 numbers that are all float32 (or
    bfloat16) numbers were computed in that precision."""

    distinct: frozenset[float] = frozenset()
    single: bool = True
    integers: bool = True
    used: int = 0
    lowest: int = 2**15

    def seen(self, values: Array) -> Bits:
        """Return the summary with more values; non-finite values and zeros are ignored."""
        if not self.single:
            return self
        if len(values) > HEAD and not self.seen(values[:HEAD]).single:  # the usual case
            return replace(self, single=False)
        values = values[np.isfinite(values) & (values != 0)]
        if not values.size:
            return self
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float32)
        if not np.array_equal(values, rounded):
            return replace(self, single=False)
        distinct = (
            self.distinct
            if len(self.distinct) >= KEPT
            else self.distinct | set(np.unique(values[np.argsort(np.abs(values))][:KEPT]).tolist())
        )
        integers = self.integers and np.array_equal(rounded, np.rint(rounded))
        used = _bits_used(rounded)
        lowest = int((np.frexp(rounded)[1] - used).min())
        return Bits(
            distinct, True, integers, max(self.used, int(used.max())), min(self.lowest, lowest)
        )

    @property
    def unit(self) -> float:
        """The unit roundoff of the precision that the bits show, else that of float64; small
        integers, for example, are exact and not coarse."""
        if not self.single or len(self.distinct) < ENOUGH:
            return U64
        if self.used >= SINGLE_BITS:
            return U32
        on_a_grid = self.integers or self.halvings >= COARSER
        return U_BF16 if BF16_BITS[0] <= self.used <= BF16_BITS[1] and not on_a_grid else U64

    def unit_where(self, coarsest: Callable[[], float]) -> float:
        """Return the unit roundoff, given `coarsest()`, the coarsest roundoff of the operations
        that torch sees. Differences of larger float64 numbers that cancel have few bits and one
        common step, and are not taken for float32."""
        unit = self.unit
        cancelled = unit == U32 and self.halvings >= CANCELLED
        return U64 if cancelled and coarsest() == U64 else unit

    @property
    def halvings(self) -> int:
        """By how many halvings, summed over all values, their common step is coarser than the steps
        of numbers with that many significant bits.

        Integers, and multiples of a power of two (`lowest`) that result from a quantiser or a
        cancellation, have one step. By chance a value one binade below the top has none finer with
        probability 1/2, and one two binades below with probability 1/4.
        """
        # Values with an exponent (of frexp) below this would have finer steps
        top = self.lowest + self.used
        return sum(max(top - int(exponent), 0) for exponent in np.frexp(list(self.distinct))[1])


def _bits_used(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Index:
    """Return the number of significant bits that each of the float32 values needs."""
    mantissa = values.view(np.uint32) & np.uint32(0x7FFFFF)
    lowest = mantissa & (~mantissa + np.uint32(1))
    return 24 - np.where(lowest > 0, np.log2(np.maximum(lowest, 1)), 23).astype(np.int64)
