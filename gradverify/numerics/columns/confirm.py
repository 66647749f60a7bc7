"""The last word on an element: its column alone, on every rung, against its output's own backward (method.md 3.5)."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.climb import Climb, Elements, Ladders
from gradverify.numerics.columns.bundle import lone
from gradverify.numerics.columns.cancelling import excuse_measured
from gradverify.numerics.columns.ends import ending_among
from gradverify.numerics.columns.run import Run
from gradverify.numerics.columns.tally import Judged
from gradverify.numerics.columns.ties import excuse_ties
from gradverify.numerics.compare import Limit, Verdict, limits, verdicts
from gradverify.numerics.ladder import Derivative, concatenated
from gradverify.numerics.rungs import QUICK, Array, Codes, Index


def resolve(run: Run, column: Index, out: Index) -> Judged:
    """Elements (column, output) [E], in the order in which they come out: one backward an output, 48 forward calls a column."""
    wide = run.survey.wide[run.point.columns.tensor[column], out]
    order = np.lexsort((out, column, wide))
    column, out = column[order], out[order]
    a = _analytic(run, column, out)
    near = int(np.sum(~wide))
    parts = [_measure(run, column[i], out[i], a[i], beyond) for i, beyond in ((slice(near), False), (slice(near, None), True)) if len(column[i])]
    d = concatenated(derivative for derivative, _ in parts)
    bounds = run.bounds(column, out)
    verdict = verdicts(a, d, bounds, d.at_border)
    lost = np.flatnonzero((verdict == Verdict.MISMATCH) & ~np.isfinite(a))
    verdict[lost[ending_among(run, column[lost])]] = Verdict.UNDECIDED
    limit = np.full(len(out), Limit.NONE, object)
    open_ = np.flatnonzero(verdict == Verdict.UNDECIDED)
    limit[open_] = limits(a[open_], d.take(open_))
    judged = excuse_ties(run, Judged(column, out, a, d, bounds, verdict, limit))
    return excuse_measured(run, judged, (ladders for _, ladders in parts))


def _analytic(run: Run, column: Index, out: Index) -> Array:
    a = np.empty(len(out))
    for j in np.unique(out).tolist():
        row = run.point.row(j)
        run.reach.add_row(j, row)
        a[out == j] = row[column[out == j]]
    return a


def _measure(run: Run, column: Index, out: Index, a: Array, wide: bool) -> tuple[Derivative, Ladders]:
    columns, home = np.unique(column, return_inverse=True)
    ladders = Ladders(lone(run.point, columns, wide).lines, run.outputs(), Elements(home, out))
    everything, nothing = np.arange(len(out)), np.zeros(len(out), bool)

    def judge(i: Index, d: Derivative) -> Codes:
        run.reach.add(column[i], out[i], d.value, d.bar)
        return verdicts(a[i], d, run.bounds(column[i], out[i]), d.at_border)

    climb = Climb(ladders, ladders.solve(everything, QUICK, False), judge, nothing, nothing)
    climb.every_rung(everything)
    judge(everything, climb.derivative)
    return climb.derivative, ladders
