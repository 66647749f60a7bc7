"""Columns along which f ends at x, or climbs without bound on both sides: asin at 1, sqrt at 0, the root of |x|.

A right backward is infinite there, and NaN all along such a column (0 · inf), so that nothing of it can be called wrong. Where f has a slope on one
side (`clamp(x, -1, 1).acos()` at 1), the derivatives of the other outputs are what they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.climb import Elements, Ladders
from gradverify.numerics.estimate.kinks import NON_FINITE
from gradverify.numerics.judging.bundle import Bundle, lone_columns
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.quick_samples import quick_samples
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Index, Mask
from gradverify.numerics.seed_vectors import as_dtype_holds, pull_back, signed_weights
from gradverify.numerics.sparsity.pattern import NO_ENTRY
from gradverify.numerics.structure import Structure
from gradverify.numerics.verdict import MISMATCH, UNDECIDED

MOST_LINES = 64  # columns of a tensor, or groups of them, that are moved at most


def columns_at_ends(run: Run, bundle: Bundle) -> Index:
    """The columns of a bundle's lines along which an output that they own ends or climbs without bound: six forward calls a line, 48 for a climb."""
    quick, found = quick_samples(run.point, bundle), np.zeros(len(run.point.columns) + 1, bool)  # the last one answers for NO_ENTRY
    border = quick.at_border
    found[: len(border)] = border
    for n, column_of in enumerate(bundle.column_of):
        steep = quick.growing(n)
        steep = steep[(column_of[steep] != NO_ENTRY) & ~found[column_of[steep]] & ~quick.settles(np.full_like(steep, n), steep)]
        if steep.size:
            ladders = Ladders([bundle.lines[n]], run.outputs(), Elements(np.zeros_like(steep), steep))
            found[column_of[steep[ladders.every_rung().outcome == NON_FINITE]]] = True
    return np.flatnonzero(found[:-1])


def excuse_ends(run: Run, judged: Judged) -> Judged:
    """Gradients that are no number are undecided along columns that f ends along: six forward calls a column, 48 more for a climb."""
    not_numbers = np.flatnonzero((judged.verdict == MISMATCH) & ~np.isfinite(judged.analytic))
    if not not_numbers.size:
        return judged
    column = judged.column[not_numbers]
    verdict = judged.verdict.copy()
    verdict[not_numbers[np.isin(column, columns_at_ends(run, lone_columns(run.point, np.unique(column))))]] = UNDECIDED
    return replace(judged, verdict=verdict).with_limits()


def ending_columns(run: Run, structure: Structure, pairs: Iterable[tuple[int, int]]) -> Index:
    """The columns that f ends along, among those asked: of these (input, output) pairs, the ones with a non-finite gradient before others.

    One backward an output, and the calls of `columns_at_ends`.
    """
    not_finite = np.zeros(len(run.point.columns), bool)
    asked = sorted(set(pairs))
    for output in sorted({o for _, o in asked}):
        part = run.point.parts[output]
        weights = as_dtype_holds(run.point, output, signed_weights(part.stop - part.start, run.point.seed.generator("ends", output)))
        gradient = run.point.by_column(pull_back(run.point, output, weights))
        for columns in (run.point.columns.of(t) for t, o in asked if o == output):
            not_finite[columns[~np.isfinite(gradient[columns])]] = True
    found = [columns_at_ends(run, bundle) for t in sorted({t for t, _ in asked}) for bundle in _bundles(run, structure, t, not_finite)]
    return np.unique(np.concatenate([*found, np.zeros(0, np.intp)]))


def _bundles(run: Run, structure: Structure, tensor: int, not_finite: Mask) -> Iterable[Bundle]:
    """Lines that move the columns of a tensor, the `not_finite` ones [C] first; none where there is no such."""
    columns = run.point.columns.of(tensor)
    if not not_finite[columns].any():
        return []
    plan = structure.plan(tensor)
    order = np.argsort(~not_finite[columns], kind="stable")
    if plan:
        groups = list(dict.fromkeys(plan.grouping.colour[order].tolist()))
        return [plan.grouping.bundle(run.point, group, 1) for group in groups[:MOST_LINES]]
    return [lone_columns(run.point, columns[order][:MOST_LINES])]
