"""Mismatches where f is a staircase with a tread as wide as all small steps: rounded to a grid
(`round(y * 1e3) / 1e3`), it is as flat there as a constant.

The ladder of steps sees a staircase where it takes several steps on both sides. Beside an input
that is small, or in a row whose slope is small, a tread is as wide as the ladder, or the first step
on one side looks like a kink beside x. So f is called at places further away, each twice, a little
apart: what moves from place to place, and never between the two, moves in steps. There zero is no
derivative. Nothing is called but where something flat is about to be called wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradverify.numerics.estimate.climb import Elements, Ladders
from gradverify.numerics.estimate.kinks import NON_FINITE
from gradverify.numerics.function.coordinates import rms
from gradverify.numerics.judging.bundle import Bundle, lone_columns
from gradverify.numerics.judging.judged import Decided, Judged, standing
from gradverify.numerics.judging.quick_samples import quick_samples
from gradverify.numerics.judging.run import Run
from gradverify.numerics.rungs import Array, Index, Mask
from gradverify.numerics.sparsity.pattern import NO_ENTRY
from gradverify.numerics.tolerance import limits
from gradverify.numerics.verdict import MISMATCH, Limit

# ---- treads
# Of the size of an input, or of its tensor if that is larger: where f is called
PLACES = (2.0, -1.3, 0.85, -0.55, 0.35, -0.23, 0.15, -0.1)
# Of that distance: how far the second call is from the first; a tread is wider, and a float32 input
# still moves
TWIN = 2.0**-16
# Of the places to which an output moves: at so many the two calls agree, bit for bit
STILL = 0.75
# Of the size of the outputs: steps that are all higher are the function's own, as those of round(x)
# at 1
HIGHEST = 2.0**-5
# Values at least that an output of the tensor takes: a step function, or a clamp between its ends,
# has two
LEVELS = 4


def excuse_treads(run: Run, judged: Judged) -> Iterator[Decided]:
    """Mismatches with a flat f that moves in steps are undecided: 16 calls a pair."""
    d = judged.derivative
    flat = np.flatnonzero(
        (judged.verdict == MISMATCH) & np.isfinite(judged.analytic) & d.smooth & (d.value == 0)
    )
    for of_pair in run.by_pair(judged.column, judged.out, flat):
        yield Decided(
            of_pair[_in_steps(run, np.unique(judged.column[of_pair]), judged.out[of_pair])],
            Limit.STAIRCASE,
        )


def _in_steps(run: Run, columns: Index, out: Index) -> Mask:
    """Which outputs [E] of one tensor move where these columns of a tensor are moved together;
    none, unless some of their tensor move in steps."""
    point, c = run.point, run.point.columns
    size = np.maximum(c.scale[columns], rms(c.x[c.of(int(c.tensor[columns[0]]))]))
    move = (
        size
        * (1 + 0.4 * ((np.arange(len(columns)) * 0.618034) % 1))
        * (-1.0) ** np.arange(len(columns))
    )
    values = np.array(
        [
            [
                point.values_at(columns, _within(run, columns, far * t * move))
                for far in (1.0, 1.0 + TWIN)
            ]
            for t in PLACES
        ]
    )
    finite = np.isfinite(values).all(1)
    moved = finite & (values[:, 0] != point.f0)
    at_rest = (moved & (values[:, 0] == values[:, 1])).sum(0)
    part = point.parts[point.output_tensor(out[0])]
    ordered = np.sort(
        np.vstack([np.where(finite, values[:, 0], point.f0), point.f0])[:, part], axis=0
    )
    rises = np.diff(ordered, axis=0)
    fine = np.where(rises > 0, rises, np.inf).min(0) <= HIGHEST * rms(run.survey.size[part])
    steps = (at_rest > 0) & (at_rest >= STILL * moved.sum(0))
    return np.asarray(
        moved.any(0)[out] & (steps[part] & fine & ((rises != 0).sum(0) >= LEVELS - 1)).any()
    )


def _within(run: Run, columns: Index, move: Array) -> Array:
    """The columns moved so far; to the other side where they would leave their domain, not at all
    where both do."""
    c = run.point.columns
    x, low, high = c.x[columns], c.low[columns], c.high[columns]
    outside = (x + move < low) | (x + move > high)
    move = np.where(outside, -move, move)
    return np.asarray(np.where((x + move < low) | (x + move > high), x, x + move))


# ---- Columns along which f ends at x, or climbs without bound on both sides: asin at 1, sqrt at 0,
# the root of |x|
def columns_at_ends(run: Run, bundle: Bundle) -> Index:
    """The columns of a bundle's lines along which an output that they own ends or climbs without
    bound: six forward calls a line, 48 for a climb."""
    # The last one answers for NO_ENTRY
    quick, found = quick_samples(run.point, bundle), np.zeros(len(run.point.columns) + 1, bool)
    border = quick.at_border
    found[: len(border)] = border
    for n, column_of in enumerate(bundle.column_of):
        steep = quick.growing(n)
        steep = steep[
            (column_of[steep] != NO_ENTRY)
            & ~found[column_of[steep]]
            & ~quick.settles(np.full_like(steep, n), steep)
        ]
        if steep.size:
            ladders = Ladders(
                [bundle.lines[n]], run.outputs(), Elements(np.zeros_like(steep), steep)
            )
            found[column_of[steep[ladders.every_rung().outcome == NON_FINITE]]] = True
    return np.flatnonzero(found[:-1])


def excuse_ends(run: Run, judged: Judged) -> Iterator[Decided]:
    """Gradients that are no number are undecided along columns that f ends along: six forward calls
    a column, 48 more for a climb."""
    not_numbers = np.flatnonzero((judged.verdict == MISMATCH) & ~np.isfinite(judged.analytic))
    if not_numbers.size:
        column = judged.column[not_numbers]

        def stands(few: Index) -> Mask:
            return ~np.isin(
                column[few], columns_at_ends(run, lone_columns(run.point, np.unique(column[few])))
            )

        i = not_numbers[~standing(column, np.arange(len(column)), stands)]
        yield Decided(i, np.array(limits(judged.derivative.take(i)), object))
