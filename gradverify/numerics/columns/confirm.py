"""Confirmation of single elements: the column moved alone by every step, against the VJP of the output alone (method.md section 5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradverify.numerics.elements.alone import MOST_COLUMNS, Alone
from gradverify.numerics.elements.judged import Judged, no_limits
from gradverify.numerics.elements.run import Run
from gradverify.numerics.estimate.climb import EVERY_RUNG
from gradverify.numerics.excuses.order import excused, excused_alone
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import MISMATCH, Limit


def resolve(run: Run, column: Index, out: Index) -> Judged:
    """Elements (column, output) [E], in the order in which they were asked: one backward an output, 48 forward calls a column."""
    a, alone = _analytic(run, column, out), Alone(run, column, out)
    d = alone.derivative()
    run.reach.add(column, out, d.value, d.bar)
    bounds = run.bounds(column, out)
    judged = Judged(column, out, a, d, bounds, verdicts(a, d, bounds), no_limits(len(out))).explained()
    return excused_alone(run, judged, alone)


def replaced(judged: Judged, i: Index, alone: Judged) -> Judged:
    """With elements i as they came out when they were measured alone."""
    a, rtol, floor = (x.copy() for x in (judged.a, judged.bounds.rtol, judged.bounds.floor))
    verdict, limit = judged.verdict.copy(), judged.limit.copy()
    a[i], verdict[i], limit[i], rtol[i], floor[i] = alone.a, alone.verdict, alone.limit, alone.bounds.rtol, alone.bounds.floor
    bounds = replace(judged.bounds, rtol=rtol, floor=floor)
    return replace(judged, a=a, verdict=verdict, limit=limit, bounds=bounds, derivative=judged.derivative.replaced(i, alone.derivative))


def confirmed_anew(run: Run, before: Judged, judged: Judged) -> Judged:
    """The elements after excuses, which were `before` them: a mismatch that was believed beside others that are none after all is measured alone.

    The worst first, until one stands; 48 forward calls a column.
    """
    for _ in range(MOST_COLUMNS):
        wrong = judged.verdict == MISMATCH
        if not wrong.any() or not ((before.verdict == MISMATCH) & ~wrong).any() or run.enough(EVERY_RUNG):
            return judged
        i = np.flatnonzero(wrong)
        i = i[judged.column[i] == judged.column[i[judged.take(i).worst_first()[0]]]]
        judged = replaced(judged, i, excused(run, resolve(run, judged.column[i], judged.out[i])))
        if (judged.verdict[i] == MISMATCH).any():
            return judged
    return judged.undecided(np.flatnonzero(judged.verdict == MISMATCH), Limit.COMPANY)


def _analytic(run: Run, column: Index, out: Index) -> Array:
    a = np.empty(len(out))
    for j in np.unique(out).tolist():
        row = run.point.row(j)
        run.reach.add_row(j, row)
        a[out == j] = row[column[out == j]]
    return a
