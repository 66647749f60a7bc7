"""Confirmation of single elements: the column moved alone by every step, against the VJP of the
output alone (method.md section 5).

So is the one element that was asked for, where no comparison of elements met it: part of a row that
was compared as a sum, or a zero of both sides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from gradverify.numerics.estimate.climb import EVERY_RUNG, Climb, Judge, Ladders
from gradverify.numerics.estimate.samples import Line
from gradverify.numerics.excuses.order import excused
from gradverify.numerics.function.point import Point
from gradverify.numerics.judging import (
    MOST_COLUMNS,
    Judged,
    Run,
    enough_confirmed,
    judged_now,
    lone_columns,
    lone_derivatives,
)
from gradverify.numerics.pairs.pair import MAP_ROWS, Asked, Pair, Tally
from gradverify.numerics.rungs import QUICK, Index
from gradverify.numerics.verdict import MISMATCH, Limit, Verdict


# ---- Confirmation of single elements: the column moved alone by every step, against the VJP of the
# output alone (method.md section 5)
def measured_alone(run: Run, column: Index, out: Index) -> Judged:
    """Elements (column, output) [E], in the order in which they were asked, and excused: one
    backward an output, 48 forward calls a column."""
    a, d = run.analytic(column, out), lone_derivatives(run, column, out)
    return excused(run, judged_now(run, column, out, a, d).with_limits())


def confirmed_anew(run: Run, before: Judged, judged: Judged) -> Judged:
    """The elements after excuses, which were `before` them: a mismatch that was believed beside
    others that are none after all is measured alone.

    The worst first, until one stands; 48 forward calls a column.
    """
    for _ in range(MOST_COLUMNS):
        wrong = judged.verdict == MISMATCH
        if (
            not wrong.any()
            or not ((before.verdict == MISMATCH) & ~wrong).any()
            or run.over_budget(EVERY_RUNG)
        ):
            return judged
        i = np.flatnonzero(wrong)
        i = i[judged.column[i] == judged.column[i[judged.take(i).worst_first()[0]]]]
        judged = judged.replaced(i, measured_alone(run, judged.column[i], judged.out[i]))
        if (judged.verdict[i] == MISMATCH).any():
            return judged
    return judged.undecided(np.flatnonzero(judged.verdict == MISMATCH), Limit.COMPANY)


@dataclass
class Confirmations:
    """Of one sweep: how many elements that were measured alone are mismatches (`confirmed`) or
    right (`cleared`), by (input, output) tensor."""

    run: Run
    confirmed: Counter[tuple[int, int]] = field(default_factory=Counter)
    cleared: Counter[tuple[int, int]] = field(default_factory=Counter)

    def count(self, pair: tuple[int, int], alone: Judged) -> None:
        self.confirmed[pair] += int(np.sum(alone.verdict == Verdict.MISMATCH))
        self.cleared[pair] += int(np.sum(alone.verdict == Verdict.PASS))

    @property
    def budget_ended(self) -> bool:
        """The budget does not afford another column, and an element that was measured alone is
        wrong: that is enough."""
        return self.run.over_budget(EVERY_RUNG) and self.confirmed.total() > 0

    def enough_confirmed(self, pair: tuple[int, int]) -> bool:
        """Do the pair's other mismatches count as wrong unasked?"""
        return enough_confirmed(self.confirmed[pair], self.cleared[pair])


# ---- asked
def with_asked(run: Run, pairs: list[Pair]) -> list[Pair]:
    """The pairs; that of the element which is asked for with what came of it."""
    asked = run.asked
    if asked is None or column_at(run.point, asked.input, asked.input_index) is None:
        return pairs
    wanted = [(pair.input, pair.output) == asked[:2] and pair.asked is None for pair in pairs]
    return [
        replace(pair, asked=pair_of_one(run, asked).asked, by_itself=True) if is_wanted else pair
        for is_wanted, pair in zip(wanted, pairs, strict=True)
    ]


def column_at(point: Point, tensor: int, coordinate: int) -> int | None:
    """The column that moves this coordinate of an input first; None where it only follows its
    mirror image."""
    found = np.flatnonzero(point.columns.coordinate == int(point.starts[tensor]) + coordinate)
    return int(found[0]) if found.size else None


def pair_of_one(run: Run, asked: Asked) -> Pair:
    """A pair of this one element."""
    run, point, part = run.fresh(), run.point, run.point.parts[asked.output]
    column = np.array([column_at(point, asked.input, asked.input_index)])
    out = np.array([part.start + asked.output_index])
    with np.errstate(all="ignore"):
        run.learn_survey()
        judged = _judged(run, column, out)
    tally = Tally(asked.input, asked.output, (MAP_ROWS + 1, 1), 1, asked)
    tally.add(judged.pair_elements(part.start, np.array([asked.input_index])))
    return tally.result(float(point.unit[part].max()), bool(run.low_precision()[out[0]]))


def _judged(run: Run, column: Index, out: Index) -> Judged:
    """One element as it comes of its column; no mismatch without every rung."""
    a = run.analytic(column, out)

    _, climb = climber(run, column, out, lambda _, d: judged_now(run, column, out, a, d).verdict)
    judged = judged_now(run, column, out, a, climb.run())
    return (
        measured_alone(run, column, out)
        if judged.verdict[0] == Verdict.MISMATCH
        else excused(run, judged.with_limits())
    )


def climber(run: Run, column: Index, out: Index, judge: Judge) -> tuple[Line, Climb]:
    """The line of a lone column [1], and one output [1] that is about to climb along it."""
    tensor = run.point.columns.tensor[column]
    wide, unmoved = run.survey.wide[tensor, out], run.survey.unmoved[tensor, out]
    line = lone_columns(run.point, column, bool(wide[0])).lines[0]
    ladders = Ladders([line], run.outputs(), np.zeros_like(out), out)
    first = ladders.solve(np.arange(1), QUICK, False)
    first.unclear[:] |= unmoved | wide
    return line, Climb(ladders, first, judge, unmoved)
