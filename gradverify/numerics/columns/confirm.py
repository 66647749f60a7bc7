"""Confirmation of single elements: the column moved alone by every step, against the VJP of the output alone (method.md section 5)."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.elements.alone import Alone
from gradverify.numerics.elements.judged import Judged, no_limits
from gradverify.numerics.elements.run import Run
from gradverify.numerics.excuses.order import excused_alone
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.tolerance import verdicts


def resolve(run: Run, column: Index, out: Index) -> Judged:
    """Elements (column, output) [E], in the order in which they were asked: one backward an output, 48 forward calls a column."""
    a, alone = _analytic(run, column, out), Alone(run, column, out)
    d = alone.derivative()
    run.reach.add(column, out, d.value, d.bar)
    bounds = run.bounds(column, out)
    judged = Judged(column, out, a, d, bounds, verdicts(a, d, bounds), no_limits(len(out))).explained()
    return excused_alone(run, judged, alone)


def _analytic(run: Run, column: Index, out: Index) -> Array:
    a = np.empty(len(out))
    for j in np.unique(out).tolist():
        row = run.point.row(j)
        run.reach.add_row(j, row)
        a[out == j] = row[column[out == j]]
    return a
