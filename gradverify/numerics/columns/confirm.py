"""Confirmation of single elements: the column moved alone by every step, against the VJP of the output alone (method.md section 5)."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.elements.alone import Alone
from gradverify.numerics.elements.judged import Judged, no_limits
from gradverify.numerics.elements.run import Run
from gradverify.numerics.excuses.cancelling import MEASURED, excuse_measured, only_certain
from gradverify.numerics.excuses.ends import ending_among
from gradverify.numerics.excuses.opinions import second_opinions
from gradverify.numerics.excuses.ties import excuse_ties
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.tolerance import verdicts
from gradverify.numerics.verdict import Verdict


def with_opinions(run: Run, found: Judged) -> Judged:
    """Elements that `resolve` measured, after all second opinions: what a check says of them, whatever else they were measured with."""
    return second_opinions(run, found, lambda own: own.derivative.at_border, lambda column, output: float(run.point.row(output)[column]))[0]


def resolve(run: Run, column: Index, out: Index) -> Judged:
    """Elements (column, output) [E], in the order in which they were asked: one backward an output, 48 forward calls a column."""
    a, alone = _analytic(run, column, out), Alone(run, column, out)
    d = alone.derivative()
    run.reach.add(column, out, d.value, d.bar)
    bounds = run.bounds(column, out)
    verdict = verdicts(a, d, bounds, d.at_border)
    lost = np.flatnonzero((verdict == Verdict.MISMATCH) & ~np.isfinite(a))
    verdict[lost[ending_among(run, column[lost])]] = Verdict.UNDECIDED
    judged = Judged(column, out, a, d, bounds, verdict, no_limits(len(out))).explained()
    judged = excuse_ties(run, only_certain(run, judged) if run.enough(MEASURED) else judged)
    return excuse_measured(run, judged, alone)


def _analytic(run: Run, column: Index, out: Index) -> Array:
    a = np.empty(len(out))
    for j in np.unique(out).tolist():
        row = run.point.row(j)
        run.reach.add_row(j, row)
        a[out == j] = row[column[out == j]]
    return a
