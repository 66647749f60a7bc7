"""The slope at x of a polynomial fitted to f over a wide interval: where noise limits central differences, many points tell more than two.

Of nodes t (Chebyshev's) each has a twin close by. What the twins differ by is noise, at that very place; what the polynomial leaves over must be no
more than that, or f has structure there that is no polynomial: a kink, a jump, a pole, waves finer than the nodes. Then the fit says nothing.
The rounding of a value is known without twins, which share it where f hardly moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from gradverify.numerics.estimate.noise import FINE, LEAST_ULPS
from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import Array, Index, Mask, Z

# ---- The slope at x of a polynomial fitted to f over a wide interval: where noise limits central differences, many points tell more than two
NODES = 64  # each with its twin: 128 calls
DEGREE = 31  # at most: the noise of a slope grows as the degree to the power 1.5
STRUCTURE = 1.4  # times the noise of the twins: what is left of f beyond is structure (64 nodes tell the noise to 10 %)
OUTLIER = 6.0  # standard deviations: of 128 points of noise none is further off
LATE = 3  # higher degrees at least that must agree with the one that is taken


def nodes(width: float, twin: float) -> Array:
    """Chebyshev's nodes in ± width, then their twins: [2 NODES]."""
    t = width * np.cos((np.arange(NODES) + 0.5) * np.pi / NODES)
    return np.concatenate([t, t + np.where(t > 0, -twin, twin)])


def slope(t: Array, f: Array, width: float, unit: Array) -> tuple[Array, Array]:
    """Slopes at 0 of f [2 NODES, m] at t with their bars (inf: nothing is known); `unit` [m]: the unit roundoff of f.

    Of all degrees the one with the least bar that all higher ones agree with.
    """
    basis, triangle = np.linalg.qr(chebvander(t / width, DEGREE))
    orders = np.arange(DEGREE + 1)
    at_middle = np.where(orders % 2, orders * np.where(orders // 2 % 2, -1.0, 1.0), 0.0) / width     # T_j'(0)
    rounding, f = unit * np.abs(f).max(0), f - f[0]     # the arithmetic rounds changes of f, not f
    size = np.maximum(np.abs(f).max(0), np.maximum(rounding, np.finfo(float).tiny))
    part = basis.T @ (f / size)
    found = [_of_degree(basis[:, : d + 1], triangle[: d + 1, : d + 1], at_middle[: d + 1], part[: d + 1], f / size, rounding / size)
             for d in range(1, DEGREE + 1, 2)]
    value, noise, fits = (np.array(each) for each in zip(*found, strict=True))
    return _least_bar(value * size, noise * size, fits)


def _of_degree(basis: Array, triangle: Array, at_middle: Array, part: Array, f: Array, rounding: Array) -> tuple[Array, Array, Mask]:
    """By the polynomial of one degree: the slope [m], its noise in Z standard deviations, and whether what is left of f is noise."""
    weights = basis @ np.linalg.solve(triangle.T, at_middle)
    residual = f - basis @ part
    free = len(f) / (len(f) - basis.shape[1])
    twins = np.sqrt(np.mean((residual[NODES:] - residual[:NODES]) ** 2, 0) / 2)
    spread = np.sqrt(np.maximum(free * np.mean(residual**2, 0), rounding**2))
    by_place = np.sqrt(free * (weights**2) @ residual**2)       # noise that is not the same everywhere
    noise = np.maximum(by_place, spread * np.sqrt(np.sum(weights**2)))
    is_noise = (spread <= STRUCTURE * np.maximum(twins, rounding)) & (np.abs(residual).max(0) <= OUTLIER * spread)
    return weights @ f, np.maximum(Z * noise, rounding * np.sum(np.abs(weights))), is_noise     # roundings of neighbours may be alike


def _least_bar(value: Array, noise: Array, fits: Mask) -> tuple[Array, Array]:
    """Of slopes, noise and whether they fit, each [degrees, m]."""
    n = len(value)
    apart = np.full_like(value, np.inf)
    change = np.abs(np.diff(value, axis=0))
    apart[1:-1] = np.maximum(change[:-1], change[1:])
    bar = np.where(fits, noise + apart, np.inf)
    for k in range(n - LATE):
        agree = np.abs(value[k] - value[k + 1 :]) <= bar[k] + noise[k + 1 :]
        bar[k] = np.where(agree.all(0), bar[k], np.inf)
    bar[n - LATE :] = np.inf
    best, elements = np.argmin(bar, 0), np.arange(value.shape[1])
    return value[best, elements], bar[best, elements]


# ---- Elements that noise leaves open, measured by polynomials fitted over wide intervals (method.md section 11), several of a column
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
