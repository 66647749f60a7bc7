"""What is kept of a streamed comparison: counts, extremes and the worst elements of each (input, output) pair."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal

import numpy as np

from gradverify.numerics.columns.entries import Collector, Entries
from gradverify.numerics.compare import Bounds, Limit, Verdict
from gradverify.numerics.kinks import Smoothness
from gradverify.numerics.ladder import Derivative
from gradverify.numerics.noise import Bits
from gradverify.numerics.rungs import AnyArray, Array, Codes, Index, Mask, nonzero


class Outcome(IntEnum):
    """What came of one element; the names, in lower case, are those of the report."""

    PASS = 0
    KINK = 1
    UNDECIDED = 2
    STAIRCASE = 3
    JUMP = 4
    NON_FINITE = 5
    MISMATCH = 6


MAP_ROWS, MAP_COLUMNS = 40, 80  # a Jacobian up to this size is also kept as a picture
DEVIATES = 10.0  # bars: a difference larger than this is no chance ...
SMALLEST_DEVIATION = 1e-9  # ... and above this fraction worth a word


@dataclass(frozen=True, order=True)
class Worst:
    """One element, ordered by `rank` (worst last; among equals the first element).

    Flat indices into the real coordinates (re and im are neighbours) of the output and the input tensor.
    """

    rank: tuple[int, float, int, int]
    output_index: int
    input_index: int
    analytic: float
    numeric: float
    bar: float
    tolerance: float
    outcome: Outcome = field(compare=False)
    limit: Limit = field(compare=False)
    left: float = field(default=float("nan"), compare=False)
    right: float = field(default=float("nan"), compare=False)

    @property
    def error(self) -> float:
        return abs(self.analytic - self.numeric)

    @property
    def at_kink(self) -> bool:
        """The function has a kink there: `left` and `right` are its slopes."""
        return self.left == self.left


@dataclass(frozen=True)
class Compared:
    """Elements [E] of one pair: real coordinates within output and input, what was compared and what came of it (`Outcome` codes).

    `floor`: the part of the tolerance below which a number is dust; `left`, `right`: slopes at a kink, NaN elsewhere.
    """

    output: Index
    input: Index
    analytic: Array
    numeric: Array
    bar: Array
    tolerance: Array
    floor: Array
    outcome: Codes
    limit: AnyArray
    left: Array
    right: Array


@dataclass(frozen=True)
class Judged:
    """Elements of a chunk with their verdicts [E]; `column` counts through all inputs, `out` through all outputs."""

    column: Index
    out: Index
    a: Array
    derivative: Derivative
    bounds: Bounds
    verdict: Codes
    limit: AnyArray

    def take(self, i: AnyArray) -> Judged:
        """Elements i (ascending indices)."""
        if len(i) == len(self.out):
            return self
        return Judged(self.column[i], self.out[i], self.a[i], self.derivative.take(i), self.bounds.take(i), self.verdict[i], self.limit[i])

    def undecided(self, i: AnyArray, why: Limit) -> Judged:
        """With elements i left open."""
        verdict, limit = self.verdict.copy(), self.limit.copy()
        verdict[i], limit[i] = Verdict.UNDECIDED, why
        return replace(self, verdict=verdict, limit=limit)

    def compared(self, top: int, coordinate: Index) -> Compared:
        """These elements, all of one pair; `top` is the first row of its output, `coordinate` [E] their place within the input."""
        d, kink = self.derivative, self.derivative.outcome == Smoothness.KINK
        return Compared(
            self.out - top, coordinate, self.a, d.value, d.bar, self.bounds.tolerance(self.a, d.value), self.bounds.floor, self.outcome, self.limit,
            np.where(kink, d.left, np.nan), np.where(kink, d.right, np.nan))

    @property
    def outcome(self) -> Codes:
        """`Outcome` codes [E]."""
        d = self.derivative
        kink = d.outcome == Smoothness.KINK
        if not (self.verdict.any() or kink.any()):
            return np.full(len(kink), Outcome.PASS, np.int8)
        undecided = np.select(
            [np.isfinite(d.second) & ~d.far, d.outcome == Smoothness.JUMP, (d.outcome == Smoothness.NON_FINITE) | ~np.isfinite(self.a)],
            [Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE], Outcome.UNDECIDED)
        passed = np.where(kink, Outcome.KINK, Outcome.PASS)
        return np.select([self.verdict == Verdict.PASS, self.verdict == Verdict.MISMATCH], [passed, Outcome.MISMATCH], undecided).astype(np.int8)


@dataclass(frozen=True)
class Pair:
    """The comparison of one input with one output, element by element.

    counts: elements of each outcome; masked: outputs that are one and the same infinity at every rung, left out of the counts.
    resolution: max of tolerance + bar over what passed, the smallest error that would have been seen everywhere.
    deviation: the largest relative error among what passed that is far above its bar. largest: the largest gradient over its tolerance
    (≤ 1: nothing here could have failed). limits: what keeps elements undecided, and how many. ratios: of a small pair, error ÷ tolerance.
    quick: elements settled by the quick rungs. unit: the unit roundoff the forward was seen to compute in; backward_unit: of a pair with
    mismatches, the relative noise or the unit roundoff of its backward, where that is coarser than the forward's (0: not seen).
    groups, row_groups: how many groups of columns were moved, and of outputs pulled back (columns and outputs, where nothing was grouped).
    lines: "columns", "rows" or "blocks" where those were compared, and are counted, instead of elements; `worst` are elements all the same.
    entries: the elements themselves, unless they are too many to keep.
    """

    input: int
    output: int
    elements: int = 0
    counts: tuple[int, ...] = (0,) * len(Outcome)
    masked: int = 0
    quick: int = 0
    resolution: float = 0.0
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    deviation: float = 0.0
    largest: float = 0.0
    worst: tuple[Worst, ...] = ()
    limits: tuple[tuple[Limit, int], ...] = ()
    unit: float = 0.0
    low_precision: bool = False
    backward_unit: float = 0.0
    groups: int = 0
    row_groups: int = 0
    lines: Literal["", "columns", "rows", "blocks"] = ""
    ratios: Array | None = field(default=None, compare=False)
    entries: Entries | None = field(default=None, compare=False, repr=False)

    def count(self, *outcomes: Outcome) -> int:
        return sum(self.counts[outcome] for outcome in outcomes)

    @property
    def compared(self) -> int:
        """Elements that were compared: all but the masked ones."""
        return self.elements - self.masked

    @property
    def verdict(self) -> Verdict:
        """MISMATCH if any element is one, UNDECIDED if any is neither right nor wrong."""
        if self.counts[Outcome.MISMATCH]:
            return Verdict.MISMATCH
        passed = self.counts[Outcome.PASS] + self.counts[Outcome.KINK]
        return Verdict.PASS if passed == sum(self.counts) else Verdict.UNDECIDED


class Tally:
    """Adds up one pair; `shape` (outputs, inputs) in real coordinates: a small pair also keeps its map of errors."""

    def __init__(self, input_: int, output: int, shape: tuple[int, int], keep: int) -> None:
        self.input, self.output, self._keep = input_, output, keep
        self.elements = self.masked = self.quick = 0
        self.counts = np.zeros(len(Outcome), int)
        self.resolution = self.max_abs = self.max_rel = self.deviation = self.largest = self.backward_unit = 0.0
        self.worst: list[Worst] = []
        self._ratios = np.zeros(shape) if shape[0] <= MAP_ROWS and shape[1] <= MAP_COLUMNS else None
        self._bits = Bits()
        self._limits: Counter[Limit] = Counter()
        self._entries, self._all, self._doubted = Collector(Outcome.PASS, Outcome.MISMATCH), shape[0] * shape[1], False

    def add_zeros(self, a: Array, resolution: Array, masked: Mask) -> None:
        """Elements that f does not depend on, as far as the quick rungs tell, and whose analytic value is zero or dust."""
        self.elements += a.size + int(masked.sum())
        self.masked += int(masked.sum())
        self.quick += a.size
        self.counts[Outcome.PASS] += a.size
        self.max_abs = max(self.max_abs, float(np.abs(a).max(initial=0.0)))
        self.resolution = max(self.resolution, float(resolution.max(initial=0.0)))
        self.largest = max(self.largest, _largest((np.abs(a) / nonzero(resolution))[a != 0]))

    def add_structural(self, count: int, resolution: float) -> None:
        """Elements that f does not depend on and whose analytic value is 0, by the structure of both."""
        self.add_zeros(np.zeros(0), np.array([resolution]), np.zeros(0, bool))
        self.elements, self.quick = self.elements + count, self.quick + count
        self.counts[Outcome.PASS] += count

    def doubt(self, count: int) -> None:
        """Elements that passed, and that the structure they were measured under does not bear out."""
        count = min(count, int(self.counts[Outcome.PASS]))
        self.counts[Outcome.PASS] -= count
        self.counts[Outcome.UNDECIDED] += count
        self._limits[Limit.STRUCTURE] += count
        self._doubted = True

    def add(self, seen: Compared, quick: int = 0) -> None:
        """Elements of this pair, `quick` of them settled by the quick rungs."""
        outcome, a = seen.outcome, seen.analytic
        self.elements += len(outcome)
        self.quick += quick
        self.counts += np.bincount(outcome, minlength=len(Outcome))
        off, passed = np.abs(a - seen.numeric), outcome == Outcome.PASS
        self.resolution = max(self.resolution, _largest((seen.tolerance + seen.bar)[passed]))
        known = passed | (outcome == Outcome.MISMATCH) | (outcome == Outcome.UNDECIDED)
        relative = _relative(a, seen.numeric, seen.floor)
        self.max_abs, self.max_rel = max(self.max_abs, _largest(off[known])), max(self.max_rel, _largest(relative[known]))
        deviates = passed & (off > DEVIATES * seen.bar) & (relative > SMALLEST_DEVIATION)
        self.deviation = max(self.deviation, _largest(relative[deviates]))
        size = np.maximum(np.abs(a), np.where(np.isfinite(seen.numeric), np.abs(seen.numeric), 0.0))
        self.largest = max(self.largest, _largest((size / nonzero(seen.tolerance))[size > 0]))
        self._bits = self._bits.seen(a)
        self._limits.update(limit for limit in seen.limit[outcome != Outcome.PASS].tolist() if limit is not Limit.NONE)
        self._keep_worst(seen, off)
        self._entries.add(Entries(seen.output, seen.input, a, seen.numeric, seen.bar, outcome))

    def _keep_worst(self, seen: Compared, off: Array) -> None:
        ratio = np.nan_to_num(off / np.where(seen.tolerance > 0, seen.tolerance, 1e-300), nan=np.inf, posinf=np.inf)
        ratio[off == 0] = 0.0
        if self._ratios is not None:
            self._ratios[seen.output, seen.input] = ratio
        for n in _first(ratio, seen.outcome, self._keep):
            self.worst.append(Worst(
                (int(seen.outcome[n]), float(ratio[n]), -int(seen.input[n]), -int(seen.output[n])),
                int(seen.output[n]), int(seen.input[n]), float(seen.analytic[n]),
                float(seen.numeric[n]), float(seen.bar[n]), float(seen.tolerance[n]), Outcome(int(seen.outcome[n])), seen.limit[n],
                float(seen.left[n]), float(seen.right[n])))
        self.worst = heapq.nlargest(self._keep, self.worst)

    def result(self, unit: float, low_precision: bool) -> Pair:
        backward_unit = self.backward_unit
        if self.counts[Outcome.MISMATCH] and self._bits.narrowest > unit:
            backward_unit = max(backward_unit, self._bits.narrowest)
        return Pair(
            self.input, self.output, self.elements, tuple(self.counts.tolist()), self.masked, self.quick, self.resolution, self.max_abs,
            self.max_rel, self.deviation, self.largest, tuple(self.worst), tuple(self._limits.most_common()), unit, low_precision, backward_unit,
            ratios=self._ratios, entries=self._entries.entries(self.elements == self._all and not self._doubted))


def _first(ratio: Array, outcome: Codes, keep: int) -> Index:
    """The worst elements, by outcome and then by ratio; among equals the first ones."""
    open_, passed = np.flatnonzero(outcome != Outcome.PASS), np.flatnonzero(outcome == Outcome.PASS)
    if 0 < keep < len(passed):
        least = np.partition(ratio[passed], len(passed) - keep)[len(passed) - keep]
        passed = passed[ratio[passed] >= least]
    some = np.sort(np.concatenate([open_, passed]))
    return np.asarray(some[np.lexsort((-ratio[some], -outcome[some].astype(int)))[:keep]])


def _largest(a: Array) -> float:
    largest = float(np.max(a, initial=0.0))
    return np.inf if np.isnan(largest) else largest


def _relative(a: Array, value: Array, floor: Array) -> Array:
    """|a − D| over the larger of both; 0 where both are below the floor."""
    largest = np.maximum(np.abs(a), np.abs(value))
    return np.where(largest > floor, np.abs(a - value) / np.where(largest > 0, largest, 1.0), 0.0)
