"""Elements of the Jacobian with their analytic values, finite differences, tolerances and
verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.kinks import JUMP, KINK, NON_FINITE
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.pair import Entries, Outcome
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import AnyArray, Array, Codes, Index, Mask, repeated
from gradverify.numerics.tolerance import Tolerances, limits, verdicts
from gradverify.numerics.verdict import MISMATCH, Limit, Verdict


# ---- Elements of the Jacobian with their analytic values, finite differences, tolerances and
# verdicts
class Decided(NamedTuple):
    """Mismatches `i` that are undecided, `why`, and right where that is NONE; how far their
    derivatives may be off at least [i]."""

    i: Index
    why: Limit | AnyArray
    bar: Array | float = 0.0


@dataclass(frozen=True)
class Judged(Record):
    """Elements with their verdicts [E]; `column` counts through all inputs, `out` through all
    outputs.

    `border_column` [E]: columns along which f ends at x (None: none but what the derivatives say).
    """

    column: Index
    out: Index
    analytic: Array
    derivative: Derivative
    tolerances: Tolerances
    verdict: Codes
    limit: AnyArray
    border_column: Mask | None = None

    def verdicts_with(
        self, extra: Array | float = 0.0, derivative: Derivative | None = None
    ) -> Codes:
        """The verdicts [E] that bars wider by so much would give, or other derivatives."""
        return verdicts(
            self.analytic,
            derivative or self.derivative,
            self.tolerances,
            extra=extra,
            border_column=self.border_column,
        )

    def worst_first(self) -> Index:
        """The elements [E] by how many tolerances they are off, those first that are no number."""
        value = self.derivative.value
        miss = np.abs(self.analytic - value) / (
            self.tolerances.tolerance(self.analytic, value) + 1e-300
        )
        return np.argsort(-np.nan_to_num(miss, nan=np.inf), kind="stable")

    def with_limits(self) -> Judged:
        """With what limits the undecided elements."""
        open_ = np.flatnonzero(self.verdict == Verdict.UNDECIDED)
        if not open_.size:
            return self
        limit = self.limit.copy()
        limit[open_] = limits(self.derivative.take(open_))
        return replace(self, limit=limit)

    def passed(self, i: AnyArray) -> Judged:
        """With elements i taken as right."""
        verdict, limit = self.verdict.copy(), self.limit.copy()
        verdict[i], limit[i] = Verdict.PASS, Limit.NONE
        return replace(self, verdict=verdict, limit=limit)

    def undecided(self, i: AnyArray, why: Limit | AnyArray) -> Judged:
        """With elements i left open."""
        verdict, limit = self.verdict.copy(), self.limit.copy()
        verdict[i], limit[i] = Verdict.UNDECIDED, why
        return replace(self, verdict=verdict, limit=limit)

    def decided(self, found: Decided) -> Judged:
        """With what an excuse says of some elements."""
        if found.why is Limit.NONE:
            return self.passed(found.i)
        bar = self.derivative.bar.copy()
        bar[found.i] = np.maximum(bar[found.i], found.bar)
        return replace(
            self.undecided(found.i, found.why), derivative=replace(self.derivative, bar=bar)
        )

    @property
    def is_zero(self) -> Mask:
        """Elements [E] whose derivative is zero, or too small to be told from it."""
        d, nothing = self.derivative, np.zeros(len(self.analytic))
        return np.asarray(
            d.unchanged | (np.abs(d.value) <= self.tolerances.tolerance(nothing, nothing) + d.bar)
        )

    def pair_elements(self, top: int, coordinate: Index) -> Entries:
        """These elements, all of one pair; `top` is the first row of its output, `coordinate` [E]
        their place within the input."""
        d = self.derivative
        left = right = repeated(np.nan, len(self.analytic))
        outcome, bar = self.outcome, d.bar
        if d.rough:
            kink = d.outcome == KINK
            left, right = np.where(kink, d.left, np.nan), np.where(kink, d.right, np.nan)
            # That of the slopes
            bar = np.where(outcome == Outcome.KINK, np.maximum(d.left_bar, d.right_bar), bar)
        tolerance, floor = self.tolerances.tolerance(self.analytic, d.value), self.tolerances.floor
        return Entries(
            self.out - top,
            coordinate,
            self.analytic,
            d.value,
            bar,
            tolerance,
            floor,
            outcome,
            self.limit,
            left,
            right,
        )

    @property
    def outcome(self) -> Codes:
        """`Outcome` codes [E]."""
        d = self.derivative
        if not (self.verdict.any() or d.rough):
            return np.full(len(self.analytic), Outcome.PASS, np.int8)
        kink = d.outcome == KINK
        undecided = np.select(
            [
                np.isfinite(d.second) & ~d.far,
                d.outcome == JUMP,
                (d.outcome == NON_FINITE) | ~np.isfinite(self.analytic),
            ],
            [Outcome.STAIRCASE, Outcome.JUMP, Outcome.NON_FINITE],
            Outcome.UNDECIDED,
        )
        passed = np.where(kink, Outcome.KINK, Outcome.PASS)
        return np.select(
            [self.verdict == Verdict.PASS, self.verdict == Verdict.MISMATCH],
            [passed, Outcome.MISMATCH],
            undecided,
        ).astype(np.int8)


def judged_now(
    run: Run, column: Index, out: Index, a: Array, d: Derivative, border_column: Mask | None = None
) -> Judged:
    """Elements (column, output) [E] by all that is known now, these derivatives included; what
    limits the undecided ones is left out."""
    run.reach.add(column, out, d.value, d.bar)
    tolerances, no_limits = (
        run.tolerances(column, out),
        np.broadcast_to(np.array(Limit.NONE, object), len(out)),
    )
    return Judged(
        column,
        out,
        a,
        d,
        tolerances,
        verdicts(a, d, tolerances, border_column=border_column),
        no_limits,
        border_column,
    )


# ---- Mismatches confirmed, the worst first: a few columns or rows at a time, until so many stand
# that the rest counts as wrong unasked
# Mismatches that stand, after which the rest counts as wrong, if none was cleared
ENOUGH_CONFIRMED = 3
MOST_COLUMNS = 24  # that are confirmed at most
COLUMNS_AT_ONCE = 3  # columns that are measured together


def enough_confirmed(confirmed: int, cleared: int) -> bool:
    """Are so many mismatches confirmed, and none cleared, that the others need no confirmation?"""
    return confirmed >= ENOUGH_CONFIRMED and not cleared


def columns_at_once(run: Run) -> int:
    """How many columns are measured together: one where the budget does not afford more."""
    return 1 if run.over_budget(COLUMNS_AT_ONCE * EVERY_RUNG) else COLUMNS_AT_ONCE


def worst_first(
    place: Index, order: Index, at_once: int = COLUMNS_AT_ONCE, most: int | None = MOST_COLUMNS
) -> Iterator[Index]:
    """Elements [E] by the column or row that they lie in (`place`), some at a time: first the
    places of the elements that `order` has first."""
    places = list(dict.fromkeys(place[order].tolist()))[:most]
    for n in range(0, len(places), at_once):
        yield np.flatnonzero(np.isin(place, places[n : n + at_once]))


def standing(column: Index, order: Index, stands: Callable[[Index], Mask]) -> Mask:
    """Which of the mismatches [E] stand: `stands` of a few columns, the worst first, and of the
    rest if that is `enough_confirmed`."""
    confirmed, measured = np.zeros((2, len(column)), bool)
    for i in worst_first(column, order):
        confirmed[i], measured[i] = stands(i), True
        count = int(confirmed.sum())
        if count >= ENOUGH_CONFIRMED:
            return (
                np.asarray(confirmed | ~measured)
                if enough_confirmed(count, int(measured.sum()) - count)
                else confirmed
            )
    return confirmed


def row_by_row(
    judged: Judged,
    at_once: int,
    excuse_row: Callable[[Index, int], Iterator[Decided]],
    doubtful: Mask | None = None,
) -> Iterator[Decided]:
    """Rows with mismatches that are no kinks, the worst first and so many at once, until a mismatch
    stands that `excuse_row` could not excuse.

    `excuse_row` is given elements of one row. `doubtful` [E]: mismatches that something else may
    still explain, so that they do not keep other rows from being looked at.
    """
    bad = np.flatnonzero((judged.verdict == MISMATCH) & (judged.derivative.outcome != KINK))
    left, asked = (
        np.ones(len(bad), bool) if doubtful is None else ~doubtful[bad],
        np.zeros(len(bad), bool),
    )
    for n, in_row in enumerate(
        worst_first(judged.out[bad], judged.take(bad).worst_first(), 1, None), 1
    ):
        for found in excuse_row(bad[in_row], int(judged.out[bad[in_row[0]]])):
            left &= ~np.isin(bad, found.i)
            yield found
        asked[in_row] = True
        if n % at_once == 0 and (left & asked).any():
            return
