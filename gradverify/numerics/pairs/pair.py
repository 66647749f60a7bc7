"""What came of one (input, output) pair: its elements as arrays, their outcomes, and the statistics
that a report shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np

from gradverify.model.case import Lines
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import RESOLVED, U32, U64, AnyArray, Array, Codes, Index, Mask
from gradverify.numerics.verdict import Limit, Verdict

# ---- The elements of an (input, output) pair as arrays, each of which a cause has to explain; and
# the factors by which they are off
ROUNDINGS = 8.0  # of the analytic value, which a backward of a few operations makes


@dataclass(frozen=True)
class Entries(Record):
    """Elements [E] of one pair: real coordinates within output and input (re and im are
    neighbours), both derivatives and the bar, the tolerance they were compared under, what came of
    it (`Outcome` codes) and what limits it.

    `floor`: the part of the tolerance below which a number is negligible; `left`, `right`: slopes
    at a kink, NaN elsewhere. `complete`: all are here that are not zero on both sides. `ratio`: the
    factors c for which analytic = c · numeric holds within the bars of *every* mismatched element,
    kept or not (low > high: there is none).
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

    @classmethod
    def without_kinks(
        cls,
        output: Index,
        input_: Index,
        analytic: Array,
        numeric: Array,
        bar: Array,
        tolerance: Array,
        floor: Array,
        outcome: Codes,
        why: Mapping[Outcome, Limit],
    ) -> Entries:
        """Of a comparison that knows no one-sided slopes; `why`: what limits the elements of an
        outcome."""
        limit, nothing = np.full(len(outcome), Limit.NONE, object), np.full(len(outcome), NAN)
        for code, reason in why.items():
            limit[outcome == code] = reason
        return cls(
            output,
            input_,
            analytic,
            numeric,
            bar,
            tolerance,
            floor,
            outcome,
            limit,
            nothing,
            nothing,
        )

    @property
    def off(self) -> Array:
        """By how much they are off, less the bar."""
        return np.asarray(np.abs(self.analytic - self.numeric) - self.bar)


def ratios(
    a: Array, value: Array, bar: Array, rounding: Array | float | None = None
) -> tuple[Array, Array]:
    """For each element the least and the largest c with |a − c·D| within the bar of D and the
    rounding of a; all c where D is not resolved."""
    slack = _rounding(a) if rounding is None else rounding
    resolved: Mask = np.isfinite(bar) & (np.abs(value) > RESOLVED * bar) & np.isfinite(a)
    with np.errstate(all="ignore"):
        size = np.abs(value)
        signed = a * np.sign(value)
        ends = np.stack([(signed + s) / (size + b) for s in (-slack, slack) for b in (-bar, bar)])
    return np.where(resolved, ends.min(0), -np.inf), np.where(resolved, ends.max(0), np.inf)


def _rounding(a: Array) -> Array:
    """Of float32 where all values are representable in it, else of float64."""
    single = bool((a == a.astype(np.float32)).all())
    return np.asarray(ROUNDINGS * (U32 if single else U64) * np.abs(a))


# ---- What came of one (input, output) pair: the outcome of each element, counts, extremes and the
# worst elements
NAN = float("nan")  # one object, so that records of smooth elements are equal


class Outcome(IntEnum):
    """What came of one element; the names, in lower case, are those of the report."""

    PASS = 0
    KINK = 1
    UNDECIDED = 2
    STAIRCASE = 3
    JUMP = 4
    NON_FINITE = 5
    MISMATCH = 6


OPEN = (Outcome.UNDECIDED, Outcome.STAIRCASE)
"""What may be decided after all: a slope is there, and not known well enough."""


class Asked(NamedTuple):
    """One element that is kept whatever comes of it: its input and output tensor, and its real
    coordinates within them."""

    input: int
    output: int
    input_index: int
    output_index: int


class ElementRecord(NamedTuple):
    """One element, ordered by `rank` (worst last; among equals the first element).

    Flat indices into the real coordinates (re and im are neighbours) of the output and the input
    tensor. `floor`: the part of the tolerance below which a number is negligible.
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
        """The function has a kink there: `left` and `right` are its slopes, of a KINK_SUM those
        along all of its kinks together."""
        return self.left == self.left


@dataclass(frozen=True)
class Pair:
    """The comparison of one input with one output, element by element.

    counts: elements of each outcome; masked: outputs that are one and the same infinity at every
    rung, left out of the counts.
    resolution: max of tolerance + bar over what passed, the smallest error that would have been
    seen everywhere.
    deviation: the largest relative error among what passed that is far above its bar. largest: the
    largest gradient over its tolerance (≤ 1: nothing here could have failed). limits: what keeps
    elements undecided, and how many. ratios: of a small pair, error ÷ tolerance.
    quick: elements settled by the quick rungs. unit: the unit roundoff the forward was seen to
    compute in. groups, row_groups: how many groups of columns were moved, and of outputs pulled
    back (columns and outputs, where nothing was grouped).
    worst: the worst elements that do not simply pass, or else the worst that does.
    lines: "columns", "rows" or "blocks" where those were compared, and are counted, instead of
    elements; `worst` are elements all the same.
    entries: the elements themselves, unless they are too many to keep. asked: the one that was
    asked for; `by_itself`: it was confirmed apart from the comparison, which met it in a sum, or as
    a zero.
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
    asked: ElementRecord | None = field(default=None, compare=False, repr=False)
    by_itself: bool = field(default=False, compare=False, repr=False)

    def count(self, *outcomes: Outcome) -> int:
        return sum(self.counts[outcome] for outcome in outcomes)

    def relabelled(self, old: Outcome, new: Outcome, limit: Limit) -> Pair:
        """With `new` for the outcome `old` of its records, and why; counts are left as they are."""

        def relabelled(record: ElementRecord) -> ElementRecord:
            return record._replace(outcome=new, limit=limit) if record.outcome is old else record

        return replace(
            self,
            worst=tuple(map(relabelled, self.worst)),
            asked=self.asked and relabelled(self.asked),
        )

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
