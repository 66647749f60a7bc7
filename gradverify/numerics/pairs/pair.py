"""The result of comparing one (input, output) pair: its elements as arrays, their outcomes, and the
statistics that a report shows, which are accumulated while the elements are streamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np

from gradverify.model.case import Lines
from gradverify.numerics.records import Record, joined
from gradverify.numerics.rungs import (
    RESOLVED,
    U32,
    U64,
    AnyArray,
    Array,
    Codes,
    Index,
    Mask,
    finite_size,
    nonzero,
)
from gradverify.numerics.verdict import Limit, Verdict

# ---- The elements of an (input, output) pair as arrays, from which causes are inferred, and the
# ratios of their analytic to their numeric values
ROUNDINGS = 8.0  # roundings of the analytic value: the error of a backward of a few operations


@dataclass(frozen=True)
class Entries(Record):
    """Elements [E] of one pair.

    `output`, `input`: real coordinates within the tensors (re and im are neighbours). `tolerance`:
    the tolerance of the comparison; `floor`: the part of it below which a number is negligible.
    `outcome`: `Outcome` codes; `limit`: what limits the verdict. `left`, `right`: one-sided slopes
    at a kink, NaN elsewhere. `complete`: all elements that are not zero on both sides are included.
    `ratio`: the interval of factors c for which analytic = c · numeric holds within the bars of
    *every* mismatched element, kept or not (low > high: there is no such factor).
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
    complete: bool = False
    ratio: tuple[float, float] = (-np.inf, np.inf)

    @property
    def off(self) -> Array:
        """The errors |a − D| minus the bars [E]."""
        return np.abs(self.analytic - self.numeric) - self.bar


def without_kinks(
    outcome: Codes, why: Mapping[Outcome, Limit]
) -> tuple[Codes, AnyArray, Array, Array]:
    """Return the last fields of `Entries` for a comparison without one-sided slopes; `why` maps
    outcomes to what limits their elements."""
    limit = np.full(len(outcome), Limit.NONE, object)
    nothing = np.full(len(outcome), NAN)
    for code, reason in why.items():
        limit[outcome == code] = reason
    return outcome, limit, nothing, nothing


def ratios(
    a: Array, value: Array, bar: Array, rounding: Array | float | None = None
) -> tuple[Array, Array]:
    """Return for each element the smallest and the largest c with |a − c·D| within the bar of D and
    the rounding of a; the whole real line where D is not resolved."""
    slack = _rounding(a) if rounding is None else rounding
    resolved: Mask = np.isfinite(bar) & (np.abs(value) > RESOLVED * bar) & np.isfinite(a)
    with np.errstate(all="ignore"):
        size = np.abs(value)
        signed = a * np.sign(value)
        ends = np.stack([(signed + s) / (size + b) for s in (-slack, slack) for b in (-bar, bar)])
    return np.where(resolved, ends.min(0), -np.inf), np.where(resolved, ends.max(0), np.inf)


def _rounding(a: Array) -> Array:
    """Return the rounding of the analytic values: of float32 where float32 represents them all,
    else of float64."""
    single = bool((a == a.astype(np.float32)).all())
    return ROUNDINGS * (U32 if single else U64) * np.abs(a)


# ---- The result of one (input, output) pair: the outcome of each element, counts, extremes and the
# worst elements
NAN = float("nan")  # one object, so that records of smooth elements are equal


class Outcome(IntEnum):
    """The outcome of one element; the report uses the names in lower case."""

    PASS = 0
    KINK = 1
    UNDECIDED = 2
    STAIRCASE = 3
    JUMP = 4
    NON_FINITE = 5
    MISMATCH = 6


OPEN = (Outcome.UNDECIDED, Outcome.STAIRCASE)
"""What may be decided after all: a slope is there, and not known well enough."""


class Requested(NamedTuple):
    """One element whose record is kept whatever its outcome: its input and output tensor, and its
    real coordinates within them."""

    input: int
    output: int
    input_index: int
    output_index: int


class ElementRecord(NamedTuple):
    """One element, ordered by `rank` (the worst last; among equals the first element).

    `output_index`, `input_index`: real coordinates (re and im are neighbours) within the output and
    the input tensor. `floor`: the part of the tolerance below which a number is negligible.
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
    left: float = NAN
    right: float = NAN
    floor: float = 0.0

    @property
    def error(self) -> float:
        return abs(self.analytic - self.numeric)

    @property
    def place(self) -> tuple[int, int]:
        return self.output_index, self.input_index

    @property
    def at_kink(self) -> bool:
        """Whether f has a kink there. `left` and `right` are its slopes; of a KINK_SUM, the slopes
        along all its kinks together."""
        return self.left == self.left


@dataclass(frozen=True)
class Pair:
    """The comparison of one input with one output, element by element.

    counts: number of elements by outcome. masked: outputs that are the same infinity at every rung;
    they are not in the counts.

    resolution: the maximum of tolerance + bar over the elements that passed, which is the smallest
    error that would have been detected everywhere. deviation: the largest relative error among
    passed elements whose error is far above the bar. largest: the maximum of gradient / tolerance
    (≤ 1: no element could have failed). limits: what keeps elements undecided, with counts. ratios:
    error / tolerance of the elements of a small pair.

    quick: number of elements settled by the quick rungs. unit: the detected unit roundoff of the
    forward. groups, row_groups: how many groups of columns were moved, and of outputs pulled back
    (columns and outputs where nothing was grouped).

    worst: the worst elements that do not simply pass, or else the worst that passes. lines:
    "columns", "rows" or "blocks" where these were compared, and are counted, instead of elements;
    `worst` holds elements in any case. entries: the elements themselves, unless there are too many
    to keep. requested: the record of the requested element; by_itself: that element was judged
    apart from the comparison, which covered it by a sum or as a zero.
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
    worst: tuple[ElementRecord, ...] = ()
    limits: tuple[tuple[Limit, int], ...] = ()
    unit: float = 0.0
    low_precision: bool = False
    groups: int = 0
    row_groups: int = 0
    lines: Literal["", Lines] = ""
    ratios: Array | None = field(default=None, compare=False)
    entries: Entries | None = field(default=None, compare=False, repr=False)
    requested: ElementRecord | None = field(default=None, compare=False, repr=False)
    by_itself: bool = field(default=False, compare=False, repr=False)

    def count(self, *outcomes: Outcome) -> int:
        return sum(self.counts[outcome] for outcome in outcomes)

    def relabelled(self, old: Outcome, new: Outcome, limit: Limit) -> Pair:
        """Return the pair with outcome `new` and this limit in place of `old` in its records;
        counts stay as they are."""

        def relabelled(record: ElementRecord) -> ElementRecord:
            return record._replace(outcome=new, limit=limit) if record.outcome is old else record

        return replace(
            self,
            worst=tuple(map(relabelled, self.worst)),
            requested=self.requested and relabelled(self.requested),
        )

    @property
    def compared(self) -> int:
        """The number of elements that were compared: all but the masked ones."""
        return self.elements - self.masked

    @property
    def verdict(self) -> Verdict:
        """MISMATCH if any element is a mismatch, else UNDECIDED if any element is undecided."""
        if self.counts[Outcome.MISMATCH]:
            return Verdict.MISMATCH
        passed = self.counts[Outcome.PASS] + self.counts[Outcome.KINK]
        return Verdict.PASS if passed == sum(self.counts) else Verdict.UNDECIDED


# ---- Statistics of an (input, output) pair while its elements are streamed: counts of outcomes,
# extremes and the worst elements
KEPT = 2**16  # elements of a pair: 2.7 MB at most, whatever N×M is
MAP_ROWS, MAP_COLUMNS = 40, 80  # a Jacobian up to this size is also kept as a picture
DEVIATES = 10.0  # bars: a larger difference is not random ...
SMALLEST_DEVIATION = 1e-9  # ... and is reported above this relative size
EVERYTHING = slice(None)
OUTCOMES = tuple(Outcome)


class Tally:
    """Accumulates the result of one pair.

    `shape` (outputs, inputs): in real coordinates; a small pair also keeps the map of its errors.
    None: some elements of a pair are added, without a map.
    `requested`: a requested element, of this or any other pair.
    """

    def __init__(
        self,
        input_: int,
        output: int,
        shape: tuple[int, int] | None,
        keep: int,
        requested: Requested | None = None,
    ) -> None:
        self.input = input_
        self.output = output
        self._keep = keep
        self._requested = requested if requested and requested[:2] == (input_, output) else None
        self.requested: ElementRecord | None = None
        self.elements = self.masked = self.quick = 0
        self.counts = np.zeros(len(Outcome), int)
        self.resolution = self.max_abs = self.max_rel = self.deviation = self.largest = 0.0
        self.worst: list[ElementRecord] = []
        rows, columns = shape or (MAP_ROWS + 1, 1)
        small = rows <= MAP_ROWS and columns <= MAP_COLUMNS
        self._ratios = np.zeros((rows, columns)) if small else None
        self._limits: Counter[Limit] = Counter()
        self._all = rows * columns
        # Without correct zeros, up to a total of KEPT; and the ratio of all mismatches
        self._kept, self._dropped, self._ratio = list[Entries](), False, (-np.inf, np.inf)

    def leave_out(self, masked: int) -> None:
        """Count masked elements, which are not compared."""
        self.elements += masked
        self.masked += masked

    def add_zeros(self, count: int, a: Array, resolution: Array) -> None:
        """Count elements whose analytic value is zero or negligible and on which f does not depend,
        as far as the quick rungs or the structure show. `a`: the analytic values that may be
        nonzero."""
        self.elements += count
        self.quick += count
        self.counts[Outcome.PASS] += count
        self.max_abs = max(self.max_abs, float(np.abs(a).max(initial=0.0)))
        self.resolution = max(self.resolution, float(resolution.max(initial=0.0)))
        self.largest = max(self.largest, _largest((np.abs(a) / nonzero(resolution))[a != 0]))

    def leave(self, count: int) -> None:
        """Count elements whose analytic value is unknown because the budget has ended."""
        if count:
            self.elements += count
            self.counts[Outcome.UNDECIDED] += count
            self._limits[Limit.BUDGET] += count
            self.largest = np.inf  # not known

    def leave_rest(self) -> None:
        """Count all elements that were not added yet as left by the budget."""
        self.leave(self._all - self.elements)

    def add(self, elements: Entries, quick: int = 0) -> None:
        """Add elements of this pair, `quick` of which were settled by the quick rungs."""
        outcome = elements.outcome
        passed = outcome == Outcome.PASS if outcome.any() else EVERYTHING
        self.elements += len(outcome)
        self.quick += quick
        self.counts += np.bincount(outcome, minlength=len(Outcome))
        a, value = np.abs(elements.analytic), np.abs(elements.numeric)
        off, size = np.abs(elements.analytic - elements.numeric), np.maximum(a, value)
        known = passed
        if not isinstance(passed, slice):
            known = passed | (outcome == Outcome.MISMATCH) | (outcome == Outcome.UNDECIDED)
            self._limits.update(
                limit for limit in elements.limit[~passed].tolist() if limit is not Limit.NONE
            )
        # extremes
        relative = np.where(size > elements.floor, off / nonzero(size), 0.0)
        self.resolution = max(
            self.resolution, _largest((elements.tolerance + elements.bar)[passed])
        )
        self.max_abs = max(self.max_abs, _largest(off[known]))
        self.max_rel = max(self.max_rel, _largest(relative[known]))
        deviates = (off > DEVIATES * elements.bar)[passed] & (relative > SMALLEST_DEVIATION)[passed]
        self.deviation = max(self.deviation, _largest(relative[passed][deviates]))
        if not np.isfinite(size).all():
            size = np.maximum(a, finite_size(value))
            size = np.where(size > 0, size, 0.0)  # no NaN
        self.largest = max(self.largest, _largest(size / nonzero(elements.tolerance)))
        # The worst elements and the requested one
        ratio = off / np.where(elements.tolerance > 0, elements.tolerance, 1e-300)
        if not np.isfinite(ratio).all():
            ratio = np.nan_to_num(ratio, nan=np.inf, posinf=np.inf)
        if self._ratios is not None:
            # A subgradient at a kink is correct
            shown = np.where(outcome == np.int8(Outcome.KINK), 0.0, ratio)
            self._ratios[elements.output, elements.input] = shown
        self.worst += _records(elements, ratio, _worst(ratio, elements, self._keep))
        worst = sorted(self.worst, key=attrgetter("rank"), reverse=True)[: self._keep]
        self.worst = [record for record in worst if record.outcome] or worst[:1]  # PASS is 0
        if self._requested:
            i = np.flatnonzero(
                (elements.output == self._requested.output_index)
                & (elements.input == self._requested.input_index)
            )
            self.requested = next(_records(elements, off, i), self.requested)
        wrong = outcome == np.int8(Outcome.MISMATCH)
        low, high = ratios(elements.analytic[wrong], elements.numeric[wrong], elements.bar[wrong])
        least, most = self._ratio
        self._ratio = float(low.max(initial=least)), float(high.min(initial=most))
        shown = np.flatnonzero((outcome != 0) | (a != 0) | (value != 0))  # PASS is 0
        kept = sum(len(part.output) for part in self._kept)
        self._dropped = self._dropped or kept + len(shown) > KEPT
        if not self._dropped:
            self._kept.append(elements.take(shown))

    def result(self, unit: float, low_precision: bool) -> Pair:
        everything = self.elements == self._all and not self._dropped
        entries = (
            replace(joined(self._kept), complete=everything, ratio=self._ratio)
            if self._kept
            else None
        )
        return Pair(
            self.input,
            self.output,
            self.elements,
            tuple(self.counts.tolist()),
            self.masked,
            self.quick,
            self.resolution,
            self.max_abs,
            self.max_rel,
            self.deviation,
            self.largest,
            tuple(self.worst),
            tuple(self._limits.most_common()),
            unit,
            low_precision,
            ratios=self._ratios,
            entries=entries,
            requested=self.requested,
        )


def _records(elements: Entries, ratio: Array, i: Index) -> Iterator[ElementRecord]:
    """Yield the records of elements i; `ratio` [E] ranks them."""
    e = elements
    numbers = (e.output, e.input, e.analytic, e.numeric, e.bar, e.tolerance)
    reasons = (e.outcome, e.limit, e.left, e.right, e.floor)
    for off_by, out, in_, a, value, bar, tolerance, code, limit, *slopes, floor in zip(
        *(x[i].tolist() for x in (ratio, *numbers, *reasons)), strict=True
    ):
        left, right = (NAN if slope != slope else slope for slope in slopes)
        rank, outcome = (code, off_by, -in_, -out), OUTCOMES[code]
        yield ElementRecord(
            rank, out, in_, a, value, bar, tolerance, outcome, limit, left, right, floor
        )


def _worst(ratio: Array, elements: Entries, keep: int) -> Index:
    """Return the worst elements that do not pass, by outcome and then by ratio (among equals the
    first ones), or else the worst that passes."""
    open_ = np.flatnonzero(elements.outcome)  # PASS is 0
    if open_.size:
        return open_[np.lexsort((-ratio[open_], -elements.outcome[open_].astype(int)))[:keep]]
    best = np.flatnonzero(ratio == ratio.max(initial=0.0))[:keep]
    if len(best) < 2:
        return best
    return best[np.lexsort((elements.output[best], elements.input[best]))[:1]]


def _largest(a: Array) -> float:
    largest = float(a.max(initial=0.0))
    return np.inf if largest != largest else largest


# ---- Revisions of a finished comparison: its mismatches with their values, and a whole outcome
# replaced by undecided
def mismatches(pair: Pair) -> Entries | None:
    """Return all mismatches of a pair; None where not all of them are known."""
    kept, count = pair.entries, pair.count(Outcome.MISMATCH)
    if (
        kept is not None
        and np.count_nonzero(wrong := kept.outcome == np.int8(Outcome.MISMATCH)) == count
    ):
        return kept.take(np.flatnonzero(wrong))
    records = [record for record in pair.worst if record.outcome is Outcome.MISMATCH]
    if len(records) < count:
        return None

    def column(name: str, kind: type = float) -> AnyArray:
        return np.array([getattr(record, name) for record in records], kind)

    return Entries(
        column("output_index", int),
        column("input_index", int),
        column("analytic"),
        column("numeric"),
        column("bar"),
        column("tolerance"),
        column("floor"),
        *without_kinks(np.full(count, Outcome.MISMATCH, np.int8), {}),
    )


def with_undecided(pair: Pair, outcome: Outcome, why: Limit) -> Pair:
    """Return the pair with the elements of one outcome undecided."""
    counts, limits = list(pair.counts), dict(pair.limits)
    moved, counts[outcome] = counts[outcome], 0
    counts[Outcome.UNDECIDED] += moved
    limits_first = ((why, moved + limits.pop(why, 0)), *limits.items())
    entries = pair.entries
    if entries is not None:
        outcomes = np.where(
            entries.outcome == np.int8(outcome), np.int8(Outcome.UNDECIDED), entries.outcome
        )
        entries = replace(entries, ratio=(-np.inf, np.inf), outcome=outcomes)
    return replace(
        pair.relabelled(outcome, Outcome.UNDECIDED, why),
        counts=tuple(counts),
        limits=limits_first,
        entries=entries,
    )
