"""Confirmation of single elements: the column moved alone by every step, against the VJP of the output alone (method.md section 5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.estimate.ladder import Derivative
from gradverify.numerics.excuses.order import excused, excused_alone
from gradverify.numerics.judging.judged import Judged, no_limits
from gradverify.numerics.judging.lone_ladders import LoneLadders
from gradverify.numerics.judging.run import Run
from gradverify.numerics.judging.worst_first import MOST_COLUMNS, enough_confirmed
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import MISMATCH, Limit, Verdict


def measured_alone(run: Run, column: Index, out: Index) -> Judged:
    """Elements (column, output) [E], in the order in which they were asked: one backward an output, 48 forward calls a column."""
    a, alone = run.analytic(column, out), LoneLadders(run, column, out)
    return excused_alone(run, judged_now(run, column, out, a, alone.derivative()).with_limits(), alone)


def judged_now(run: Run, column: Index, out: Index, a: Array, d: Derivative) -> Judged:
    """Elements (column, output) [E] by all that is known now, these derivatives included; what limits the undecided ones is left out."""
    run.reach.add(column, out, d.value, d.bar)
    tolerances = run.tolerances(column, out)
    return Judged(column, out, a, d, tolerances, verdicts(a, d, tolerances), no_limits(len(out)))


def confirmed_anew(run: Run, before: Judged, judged: Judged) -> Judged:
    """The elements after excuses, which were `before` them: a mismatch that was believed beside others that are none after all is measured alone.

    The worst first, until one stands; 48 forward calls a column.
    """
    for _ in range(MOST_COLUMNS):
        wrong = judged.verdict == MISMATCH
        if not wrong.any() or not ((before.verdict == MISMATCH) & ~wrong).any() or run.over_budget(EVERY_RUNG):
            return judged
        i = np.flatnonzero(wrong)
        i = i[judged.column[i] == judged.column[i[judged.take(i).worst_first()[0]]]]
        judged = judged.replaced(i, excused(run, measured_alone(run, judged.column[i], judged.out[i])))
        if (judged.verdict[i] == MISMATCH).any():
            return judged
    return judged.undecided(np.flatnonzero(judged.verdict == MISMATCH), Limit.COMPANY)


@dataclass
class Confirmations:
    """Of one sweep: how many elements that were measured alone are mismatches (`confirmed`) or right (`cleared`), by (input, output) tensor; and
    the (column, output) that were counted though no group has them."""

    run: Run
    confirmed: Counter[tuple[int, int]] = field(default_factory=Counter)
    cleared: Counter[tuple[int, int]] = field(default_factory=Counter)
    counted_strays: set[tuple[int, int]] = field(default_factory=set)

    def count(self, pair: tuple[int, int], alone: Judged) -> None:
        self.confirmed[pair] += int(np.sum(alone.verdict == Verdict.MISMATCH))
        self.cleared[pair] += int(np.sum(alone.verdict == Verdict.PASS))

    @property
    def budget_ended(self) -> bool:
        """The budget does not afford another column, and an element that was measured alone is wrong: that is enough."""
        return self.run.over_budget(EVERY_RUNG) and self.confirmed.total() > 0

    def enough_confirmed(self, pair: tuple[int, int]) -> bool:
        """Do the pair's other mismatches count as wrong unasked?"""
        return enough_confirmed(self.confirmed[pair], self.cleared[pair])
