"""Elements that noise leaves open, measured by polynomials fitted over wide intervals (method.md section 11), several of a column.

The fit over one interval is `estimate/polynomial.py`; what it decides in a check, `gradverify/oracles/fitted.py`.

A column and a width take 128 forward calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gradverify.numerics.estimate.noise import FINE, LEAST_ULPS
from gradverify.numerics.estimate.polynomial import NODES, nodes, slope
from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import Array, Index, Mask

BESIDE = (2.0, 0.5, 4.0, 0.25)  # times the first interval that tells something: where others are tried, in this order
NARROWER = 0.25  # times an interval with structure: the next one
FIRST = (1.0, NARROWER, NARROWER**2)  # of the column's scale: half of the first intervals
MOST_WIDTHS = 5  # intervals of a column
CALLS_A_WIDTH = 2 * NODES  # of one width
AGREE = 2  # widths at least that must know the slope, and agree
HOPELESS = 3  # widths, that tell nothing or that tell something, after which a column of which nothing is settled is given up


@dataclass(frozen=True)
class Fitted:
    """Slopes of elements [E] with their bars (inf: not known), and the points that they rest on."""

    value: Array
    bar: Array
    points: Index


Settled = Callable[[Index, Array, Array], Mask]
"""Which of elements i are decided by these slopes and bars."""


def fitted(point: Point, column: Index, out: Index, settled: Settled, over_budget: Callable[[int], bool]) -> Fitted:
    """Elements (column, output) [E]; the columns with most of them first, until `over_budget` so many calls."""
    value, bar, points = np.full(len(out), np.nan), np.full(len(out), np.inf), np.zeros(len(out), np.intp)
    columns, count = np.unique(column, return_counts=True)
    for number in columns[np.argsort(-count, kind="stable")].tolist():
        i = np.flatnonzero(column == number)
        value[i], bar[i], points[i] = _of_column(point, number, out[i], partial(settled, i), over_budget)
    return Fitted(value, bar, points)


def _of_column(point: Point, column: int, out: Index, settled: Callable[[Array, Array], Mask],
               over_budget: Callable[[int], bool]) -> tuple[Array, Array, int]:
    """Slopes, bars [k] of the outputs and the points taken: width by width, until all are settled."""
    values, bars, widths = np.zeros((0, len(out))), np.zeros((0, len(out))), list[float]()
    value, bar = np.full(len(out), np.nan), np.full(len(out), np.inf)
    while (width := _next_width(widths, np.asarray(np.isfinite(bars).any(1)), settled(value, bar))) and not over_budget(
            CALLS_A_WIDTH if widths else AGREE * CALLS_A_WIDTH):
        found = _at_width(point, column, out, width)
        widths.append(width)
        values, bars = np.vstack([values, found[0]]), np.vstack([bars, found[1]])
        value, bar = _agreed(values, bars)
    return value, bar, len(widths) * CALLS_A_WIDTH


def _next_width(widths: Sequence[float], known: Mask, done: Mask) -> float | None:
    """The width after these, of which some know a slope; None: enough."""
    known_widths = int(known.sum())
    if done.all() or len(widths) == MOST_WIDTHS or (not done.any() and HOPELESS in (known_widths, len(widths) - known_widths)):
        return None
    if not known_widths:
        return FIRST[len(widths)]
    first = widths[int(np.argmax(known))]
    around = BESIDE if first == FIRST[0] else BESIDE[1::2] + BESIDE[::2]        # what contains an interval with structure has it too
    return next((width for factor in around if (width := factor * first) not in widths), None)


def _at_width(point: Point, column: int, out: Index, width: float) -> tuple[Array, Array]:
    """Slopes and bars [k] of the outputs from one interval; bars inf where f has no value on it."""
    c, moved = point.columns, np.array([column])
    x, scale = float(c.x[column]), float(c.scale[column])
    twin = max(FINE * scale, LEAST_ULPS * float(c.ulp(moved)[0]))
    at = c.cast(x + nodes(width * scale, twin), moved)
    f = np.array([point.values_at(moved, np.array([place]))[out] for place in at])
    value, bar = np.full(len(out), np.nan), np.full(len(out), np.inf)
    known = np.flatnonzero(np.isfinite(f).all(0))
    if known.size and np.isfinite(x):
        value[known], bar[known] = slope(at - x, f[:, known], width * scale, point.unit[out[known]])
    return value, bar


def _agreed(values: Array, bars: Array) -> tuple[Array, Array]:
    """Of several widths [n, k] the slope with the least bar [k]; none where too few know it, or two that do disagree."""
    known = np.isfinite(bars)
    apart = np.abs(values[:, None] - values[None]) > bars[:, None] + bars[None]
    unsure = (apart & known[:, None] & known[None]).any((0, 1)) | (known.sum(0) < AGREE)
    best, output = np.argmin(bars, 0), np.arange(values.shape[1])
    return np.where(unsure, np.nan, values[best, output]), np.where(unsure, np.inf, bars[best, output])
