"""Patterns that a cause has to explain: the right and wrong elements of one (input, output) pair,
as sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from gradverify.numerics.pairs.pair import ROUNDINGS, Entries, ratios
from gradverify.numerics.rungs import RESOLVED, Array, Index, Mask

DUST = 2.0**-40  # of the pair's largest number: smaller differences contradict no explanation
BLUNT = 0.1  # of an element's error: with a wider bar other explanations would fit as well
SHARP = 0.9  # share of the wrong elements that must have narrower bars than that


@dataclass(frozen=True)
class Side:
    """One tensor of the pair, by real coordinates: a complex number has two, one after the
    other."""

    name: str
    shape: tuple[int, ...]
    complex: bool = False

    @property
    def parts(self) -> int:
        """The number of real coordinates of an element."""
        return 2 if self.complex else 1

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def size(self) -> int:
        return self.elements * self.parts

    def along(self, axis: int | None, coordinate: Index) -> Index:
        """Return the positions of real coordinates along an axis; axis None: the element's place in
        memory order."""
        element = coordinate // self.parts
        if axis is None:
            return element
        return np.asarray(element // prod(self.shape[axis + 1 :]) % self.shape[axis])

    def axes(self) -> tuple[int | None, ...]:
        """Return the axes with more than one position, then None (all elements in memory order) if
        these are several."""
        own = tuple(axis for axis, n in enumerate(self.shape) if n > 1)
        return own if len(own) <= 1 else (*own, None)

    def length(self, axis: int | None) -> int:
        return self.elements if axis is None else self.shape[axis]

    def lifted(self, elements: Index) -> Index:
        """Return a map of elements as a map of real coordinates."""
        return (self.parts * elements[:, None] + np.arange(self.parts)).reshape(-1)


@dataclass(frozen=True)
class Value:
    """A real tensor argument (or the output), whose numbers ([N] in memory order) may separate
    right from wrong elements."""

    name: str
    shape: tuple[int, ...]
    numbers: Array

    def over(self, shape: tuple[int, ...]) -> Array | None:
        """Return the numbers broadcast to a shape, [N] in memory order; None where they cannot
        be."""
        if not self.numbers.size or len(self.shape) > len(shape):
            return None
        try:
            return np.broadcast_to(self.numbers.reshape(self.shape), shape).reshape(-1)
        except ValueError:
            return None


@dataclass(frozen=True)
class Pattern:
    """The elements of one pair: `entries`, with masks [E] of the `wrong` ones, and of the `unknown`
    ones, which are neither right nor wrong; `unit`: unit roundoff of the analytic side.

    `values`: real tensor arguments and the output; `integers`: tensor arguments of integers.
    `others`: the other inputs of this output, with their elements.
    `scattered`: there are analytic numbers where f has no element, which the finding does not
    count. `mismatched`: the number of all mismatched elements, where not all were kept.
    """

    input: Side
    output: Side
    entries: Entries
    wrong: Mask
    unknown: Mask
    unit: float
    values: Sequence[Value] = ()
    integers: Sequence[Value] = ()
    others: Sequence[tuple[Side, Entries]] = ()
    scattered: bool = False
    mismatched: int = 0

    @property
    def count(self) -> int:
        """The number of wrong elements."""
        return int(self.wrong.sum())

    @property
    def everywhere(self) -> str:
        """The words that every explanation ends with."""
        if self.count == 1:
            return f"on the one mismatched element of {self.pair}"
        if self.scattered:
            return f"on every mismatched element of {self.pair}"
        if not self.entries.complete:
            return f"on all {self.mismatched} mismatched elements of {self.pair}"
        whole = not (self.right & self.significant).any()
        return (
            f"on all {self.count} {'non-zero' if whole else 'mismatched'} elements of {self.pair}"
        )

    @property
    def pair(self) -> str:
        if self.output.name:
            return f"d {self.output.name} / d {self.input.name}"
        return f"the gradient of {self.input.name}"

    @cached_property
    def right(self) -> Mask:
        return ~self.wrong & ~self.unknown

    @cached_property
    def zero(self) -> bool:
        """Whether the analytic side is 0 on all wrong elements."""
        nothing = np.zeros(len(self.wrong))
        return self.agrees(nothing, nothing, self.wrong)

    @cached_property
    def dust(self) -> float:
        e = self.entries
        sizes = np.concatenate([np.abs(e.analytic), np.abs(e.numeric)])
        return DUST * float(sizes[np.isfinite(sizes)].max(initial=0.0))

    @cached_property
    def rounding(self) -> Array:
        return np.asarray(ROUNDINGS * self.unit * np.abs(self.entries.analytic))

    @cached_property
    def significant(self) -> Mask:
        """The mask of elements that are, beyond their bars, not zero on both sides: only these can
        contradict an explanation."""
        e = self.entries
        low = e.bar + self.dust
        return np.asarray(
            (np.abs(e.numeric) > RESOLVED * low) | (np.abs(e.analytic) > RESOLVED * low)
        )

    @cached_property
    def conclusive(self) -> bool:
        """Whether the bars are so much narrower than the errors that an explanation which fits is
        significant."""
        e = self.entries
        off = np.abs(e.analytic - e.numeric)[self.wrong]
        if not (self.count and off.size):
            return False
        return bool(np.isfinite(off).all() and np.mean(e.bar[self.wrong] <= BLUNT * off) >= SHARP)

    @cached_property
    def _order(self) -> Index:
        return np.argsort(self.keys, kind="stable")

    @cached_property
    def keys(self) -> Index:
        return self.entries.output * self.input.size + self.entries.input

    def numeric(self, output: Index, input_: Index) -> tuple[Array, Array, Index]:
        """Return the numeric value of elements, its bar, and the element's place among the entries
        (−1 where both sides are zero). A coordinate of −1 means a zero, too."""
        keys = np.where((output < 0) | (input_ < 0), -1, output * self.input.size + input_)
        if not len(self.keys):  # f has no element here: all are zeros of both sides
            return np.zeros(len(keys)), np.zeros(len(keys)), np.full(len(keys), -1)
        known = self.keys[self._order]
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        found = np.where(known[place] == keys, self._order[place], -1)
        value, bar = self.entries.numeric[found], self.entries.bar[found]
        return np.where(found < 0, 0.0, value), np.where(found < 0, 0.0, bar), found

    def agrees(self, value: Array, bar: Array, where: Mask | None = None) -> bool:
        """Return whether the analytic side equals `value` within `bar` on all elements (`where`; by
        default all that are known)."""
        e, use = self.entries, ~self.unknown if where is None else where
        allowed = bar + self.rounding + ROUNDINGS * self.unit * np.abs(value) + self.dust
        return bool((np.abs(e.analytic - value) <= allowed)[use].all())

    def interval(self, where: Mask) -> tuple[float, float]:
        """Return the least and largest c with analytic = c · numeric on all these elements; the
        first is larger than the second where there is none."""
        e = self.entries
        low, high = ratios(e.analytic[where], e.numeric[where], e.bar[where], self.rounding[where])
        return float(low.max(initial=-np.inf)), float(high.min(initial=np.inf))

    def factor(self, where: Mask) -> float | None:
        """Return the roundest c with analytic = c · numeric on all these elements; None where there
        is none."""
        c = settled(*self.interval(where))
        return c if c is not None and self.scaled_by(c, where) else None

    def scaled_by(self, c: float, where: Mask) -> bool:
        return self.agrees(c * self.entries.numeric, abs(c) * self.entries.bar, where)


def settled(low: float, high: float) -> float | None:
    """Return the number with the fewest digits in an interval, its middle where twelve digits do
    not suffice; None where the interval is empty or not finite."""
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        return None
    middle = (low + high) / 2
    for digits in range(1, 12):
        rounded = float(f"{middle:.{digits}g}")
        if low <= rounded <= high:
            return rounded
    return middle
