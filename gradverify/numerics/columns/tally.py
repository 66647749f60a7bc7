"""What is kept of a streamed comparison: counts, extremes and the worst elements of each (input, output) pair."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import IntEnum
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np

from gradverify.numerics.columns.entries import Collector, Entries
from gradverify.numerics.compare import Bounds, Limit, Verdict
from gradverify.numerics.kinks import JUMP, KINK, NON_FINITE
from gradverify.numerics.ladder import Derivative
from gradverify.numerics.noise import Bits
from gradverify.numerics.rungs import AnyArray, Array, Codes, Index, Mask, nonzero, repeated


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
EVERYTHING = slice(None)
OUTCOMES = tuple(Outcome)


class Worst(NamedTuple):
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
    outcome: Outcome
    limit: Limit
    left: float = float("nan")
    right: float = float("nan")

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
    """Elements of a chunk with their verdicts [E]; `column` counts through all inputs, `out` through all outputs; `lines` as in `Cells`."""

    column: Index
    out: Index
    a: Array
    derivative: Derivative
    bounds: Bounds
    verdict: Codes
    limit: AnyArray
    lines: int = 0

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
        d = self.derivative
        left = right = repeated(np.nan, len(self.a))
        if d.rough:
            kink = d.outcome == KINK
            left, right = np.where(kink, d.left, np.nan), np.where(kink, d.right, np.nan)
        tolerance = self.bounds.tolerance(self.a, d.value)
        return Compared(self.out - top, coordinate, self.a, d.value, d.bar, tolerance, self.bounds.floor, self.outcome, self.limit, left, right)

    @property
    def outcome(self) -> Codes:
        """`Outcome` codes [E]."""
        d = self.derivative
        if not (self.verdict.any() or d.rough):
            return np.full(len(self.a), Outcome.PASS, np.int8)
        kink = d.outcome == KINK
        undecided = np.select(
            [np.isfinite(d.second) & ~d.far, d.outcome == JUMP, (d.outcome == NON_FINITE) | ~np.isfinite(self.a)],
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
    worst: the worst elements that do not simply pass, or else the worst that does.
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
        outcome = seen.outcome
        passed = outcome == Outcome.PASS if outcome.any() else EVERYTHING
        self.elements += len(outcome)
        self.quick += quick
        if isinstance(passed, slice):
            self.counts[Outcome.PASS] += len(outcome)
        else:
            self.counts += np.bincount(outcome, minlength=len(Outcome))
        off = np.abs(seen.analytic - seen.numeric)
        self._measure(seen, off, passed)
        self._bits = self._bits.seen(seen.analytic)
        if not isinstance(passed, slice):
            self._limits.update(limit for limit in seen.limit[~passed].tolist() if limit is not Limit.NONE)
        self._keep_worst(seen, off)
        self._entries.add(Entries(seen.output, seen.input, seen.analytic, seen.numeric, seen.bar, outcome))

    def _measure(self, seen: Compared, off: Array, passed: Mask | slice) -> None:
        """The extremes of elements that are `off` by so much."""
        a, value = np.abs(seen.analytic), np.abs(seen.numeric)
        size, known = np.maximum(a, value), passed
        if not isinstance(passed, slice):
            known = passed | (seen.outcome == Outcome.MISMATCH) | (seen.outcome == Outcome.UNDECIDED)
        relative = np.where(size > seen.floor, off / nonzero(size), 0.0)
        self.resolution = max(self.resolution, _largest((seen.tolerance + seen.bar)[passed]))
        self.max_abs, self.max_rel = max(self.max_abs, _largest(off[known])), max(self.max_rel, _largest(relative[known]))
        deviates = (off > DEVIATES * seen.bar)[passed] & (relative > SMALLEST_DEVIATION)[passed]
        if deviates.any():
            self.deviation = max(self.deviation, _largest(relative[passed][deviates]))
        if not np.isfinite(size).all():
            size = np.maximum(a, np.where(np.isfinite(value), value, 0.0))
            size = np.where(size > 0, size, 0.0)  # no NaN
        self.largest = max(self.largest, _largest(size / nonzero(seen.tolerance)))

    def _keep_worst(self, seen: Compared, off: Array) -> None:
        ratio = off / np.where(seen.tolerance > 0, seen.tolerance, 1e-300)
        if not np.isfinite(ratio).all():
            ratio = np.nan_to_num(ratio, nan=np.inf, posinf=np.inf)
        if self._ratios is not None:
            shown = np.where(seen.outcome == np.int8(Outcome.KINK), 0.0, ratio) if seen.outcome.any() else ratio   # a subgradient is right
            self._ratios[seen.output, seen.input] = shown
        i = _worst(ratio, seen, self._keep)
        numbers = (seen.outcome, ratio, seen.output, seen.input, seen.analytic, seen.numeric, seen.bar, seen.tolerance, seen.limit, seen.left,
                   seen.right)
        for code, off_by, out, in_, a, value, bar, tolerance, limit, left, right in zip(*(x[i].tolist() for x in numbers), strict=True):
            slopes = () if left != left else (left, right)
            self.worst.append(Worst((code, off_by, -in_, -out), out, in_, a, value, bar, tolerance, OUTCOMES[code], limit, *slopes))
        worst = sorted(self.worst, key=attrgetter("rank"), reverse=True)[: self._keep]
        self.worst = [each for each in worst if each.outcome] or worst[:1]  # PASS is 0

    def result(self, unit: float, low_precision: bool) -> Pair:
        backward_unit = self.backward_unit
        if self.counts[Outcome.MISMATCH] and self._bits.narrowest > unit:
            backward_unit = max(backward_unit, self._bits.narrowest)
        return Pair(
            self.input, self.output, self.elements, tuple(self.counts.tolist()), self.masked, self.quick, self.resolution, self.max_abs,
            self.max_rel, self.deviation, self.largest, tuple(self.worst), tuple(self._limits.most_common()), unit, low_precision, backward_unit,
            ratios=self._ratios, entries=self._entries.entries(self.elements == self._all and not self._doubted))


def _worst(ratio: Array, seen: Compared, keep: int) -> Index:
    """The worst elements that do not pass, by outcome and then by ratio, among equals the first ones; or else the worst that passes."""
    open_ = np.flatnonzero(seen.outcome)  # PASS is 0
    if open_.size:
        return np.asarray(open_[np.lexsort((-ratio[open_], -seen.outcome[open_].astype(int)))[:keep]])
    best = np.flatnonzero(ratio == ratio.max(initial=0.0))[:keep]
    return best if len(best) < 2 else best[np.lexsort((seen.output[best], seen.input[best]))[:1]]


def _largest(a: Array) -> float:
    largest = float(a.max(initial=0.0))
    return np.inf if largest != largest else largest
