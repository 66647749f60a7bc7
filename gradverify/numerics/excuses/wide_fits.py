"""Elements that the noise of f leaves open, by polynomials fitted to f over wide intervals
(method.md section 9).

Where noise limits central differences, many points far apart show more than two that are near. Of
Chebyshev's nodes each has a twin nearby, beyond the treads where f moves in steps: what the twins
differ by is noise, at that very place, and what the polynomial leaves over must be no more than
that, or f has structure there that is no polynomial: a kink, a jump, a pole, waves finer than the
nodes. Then the fit says nothing. Two intervals must agree. A fit passes elements, and calls none
wrong.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from gradverify.numerics.estimate.noise import FINE, LEAST_ULPS
from gradverify.numerics.judging import Judged, Run
from gradverify.numerics.rungs import Array, Index, Mask, Z, nonzero
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED, Limit

# Half of the first intervals, of the column's scale: until one shows a slope
FIRST = 1.0, 0.25, 0.0625
FURTHER = 2.0, 0.5, 0.25, 0.125  # times that one: until two show the slopes of all outputs
NODES = 64  # each with its twin: 128 calls an interval
# Nodes where two intervals agree and both leave the element open: 1,024 calls, and a third of the
# noise
DENSE = 512
# Of a tread, on which f moves by its noise: how far twins are apart at least ...
TREADS = 16.0
FARTHEST = 2.0**-10  # ... and of an interval at most, as far as the outer nodes are
DEGREE = 31  # at most: the noise of a slope grows as the degree to the power 1.5
# Times the noise of the twins: what is left of f beyond is structure (64 nodes show the noise to 10
# %)
STRUCTURE = 1.4
OUTLIER = 6.0  # standard deviations: of 128 points of noise none is further off
LATE = 3  # higher degrees at least that must agree with the one that is taken


def pass_fitted(run: Run, judged: Judged, stepping: Index) -> Judged:
    """With the open elements that a fit shows to be right; as they are where some are wrong, or the
    budget does not afford two intervals a column.

    `stepping`: elements of which f moves in steps of its rounding."""
    open_ = np.flatnonzero(
        (judged.verdict == UNDECIDED)
        & judged.derivative.smooth
        & ((judged.limit == Limit.NOISE) | (judged.limit == Limit.TRUNCATION))
    )
    columns = np.unique(judged.column[open_]).tolist()
    if (
        not columns
        or (judged.verdict == MISMATCH).any()
        or run.over_budget(len(columns) * 4 * NODES)
    ):
        return judged
    for column in columns:
        i = open_[judged.column[open_] == column]
        treads = (
            np.isin(i, stepping)
            * run.noise[judged.out[i]]
            / nonzero(np.abs(judged.derivative.value[i]))
        )
        found = _of_column(run, judged.take(i), column, TREADS * float(treads.max()))
        if not (found.verdict == PASS).any():
            break  # the others are as noisy
        judged = judged.replaced(i, found)
    return judged


def _of_column(run: Run, judged: Judged, column: int, apart: float) -> Judged:
    """Open elements of one column: interval by interval until all are right or two know the slopes,
    then the best of these with more nodes."""
    widths = list[float]()
    values = list[Array]()
    bars = list[Array]()
    d = judged.derivative

    def within(width: float, count: int = NODES) -> Judged:
        value, bar = _slope_within(run, column, judged.out, width, apart, count)
        widths.append(width)
        values.append(value)
        bars.append(bar)
        value, bar = _agreed(np.array(values), np.array(bars))
        fitted = replace(d, value=value, bar=bar, noise_bar=bar)
        i = np.flatnonzero(judged.verdicts_with(derivative=fitted) == PASS)
        return replace(judged, derivative=d.replaced(i, fitted.take(i))).passed(i)

    for width in FIRST:
        best = within(width)
        if np.isfinite(bars).any():
            break
    else:
        return best
    for factor in FURTHER:
        best = within(factor * width)
        if (best.verdict == PASS).all():
            return best
        # More nodes of one interval alone are no second one
        if (np.isfinite(bars).sum(0) >= 2).all():
            return (
                best
                if run.over_budget(2 * DENSE)
                else within(widths[np.argmin(np.max(bars, 1))], DENSE)
            )
    return best


def _agreed(values: Array, bars: Array) -> tuple[Array, Array]:
    """Of several intervals [n, k] the slope with the least bar [k]; inf where fewer than two know
    it, or two disagree."""
    known = np.isfinite(bars)
    apart = np.abs(values[:, None] - values[None]) > bars[:, None] + bars[None]
    unsure = (apart & known[:, None] & known[None]).any((0, 1)) | (known.sum(0) < 2)
    best, output = np.argmin(bars, 0), np.arange(values.shape[1])
    return values[best, output], np.where(unsure, np.inf, bars[best, output])


def _slope_within(
    run: Run, column: int, out: Index, width: float, apart: float, count: int
) -> tuple[Array, Array]:
    """Slopes of the outputs [k] with their bars from one interval, by so many nodes with twins so
    far `apart`; inf where f has no value on it."""
    c, moved = run.point.columns, np.array([column])
    x, scale = float(c.x[column]), float(c.scale[column])
    apart = max(
        FINE * scale, LEAST_ULPS * float(c.ulp(moved)[0]), min(apart, FARTHEST * width * scale)
    )
    at = c.cast(x + nodes(width * scale, apart, count), moved)
    f = np.array([run.point.values_at(moved, np.array([place]))[out] for place in at])
    value, bar = np.full(len(out), np.nan), np.full(len(out), np.inf)
    known = np.flatnonzero(np.isfinite(f).all(0))
    if known.size:
        value[known], bar[known] = slope(
            at - x, f[:, known], width * scale, run.point.unit[out[known]]
        )
    return value, bar


def nodes(width: float, twin: float, count: int = NODES) -> Array:
    """Chebyshev's nodes in ± width, then their twins, so far away: [2 count]."""
    t = width * np.cos((np.arange(count) + 0.5) * np.pi / count)
    return np.concatenate([t, t + np.where(t > 0, -twin, twin)])


def slope(t: Array, f: Array, width: float, unit: Array) -> tuple[Array, Array]:
    """Slopes at 0 of f [2 count, k] at t, nodes and then their twins, with their bars (inf: nothing
    is known); `unit` [k]: the unit roundoff of f.

    Of all degrees the one with the least bar that all higher ones agree with.
    """
    basis, triangle = np.linalg.qr(chebvander(t / width, DEGREE))
    orders = np.arange(DEGREE + 1)
    # T_j'(0)
    at_middle = np.where(orders % 2, orders * np.where(orders // 2 % 2, -1.0, 1.0), 0.0) / width
    rounding, f = unit * np.abs(f).max(0), f - f[0]  # the arithmetic rounds changes of f, not f
    size = np.maximum(np.abs(f).max(0), np.maximum(rounding, np.finfo(float).tiny))
    part = basis.T @ (f / size)
    found = [
        _of_degree(
            basis[:, : d + 1],
            triangle[: d + 1, : d + 1],
            at_middle[: d + 1],
            part[: d + 1],
            f / size,
            rounding / size,
        )
        for d in range(1, DEGREE + 1, 2)
    ]
    value, noise, fits = (np.array(each) for each in zip(*found, strict=True))
    return _least_bar(value * size, noise * size, fits)


def _of_degree(
    basis: Array, triangle: Array, at_middle: Array, part: Array, f: Array, rounding: Array
) -> tuple[Array, Array, Mask]:
    """By the polynomial of one degree: the slope [k], its noise in Z standard deviations, and
    whether what is left of f is noise."""
    weights = basis @ np.linalg.solve(triangle.T, at_middle)
    residual = f - basis @ part
    free = len(f) / (len(f) - basis.shape[1])
    twins = np.sqrt(np.mean(np.subtract(*np.split(residual, 2)) ** 2, 0) / 2)
    spread = np.sqrt(np.maximum(free * np.mean(residual**2, 0), rounding**2))
    # Noise that is not the same everywhere
    by_place = np.sqrt(free * (weights**2) @ residual**2)
    noise = np.maximum(by_place, spread * np.sqrt(np.sum(weights**2)))
    is_noise = (spread <= STRUCTURE * np.maximum(twins, rounding)) & (
        np.abs(residual).max(0) <= OUTLIER * spread
    )
    # Roundings of neighbours may be alike
    return weights @ f, np.maximum(Z * noise, rounding * np.sum(np.abs(weights))), is_noise


def _least_bar(value: Array, noise: Array, fits: Mask) -> tuple[Array, Array]:
    """Of slopes, noise and whether they fit, each [degrees, k]."""
    n = len(value)
    apart, change = np.full_like(value, np.inf), np.abs(np.diff(value, axis=0))
    apart[1:-1] = np.maximum(change[:-1], change[1:])
    bar = np.where(fits, noise + apart, np.inf)
    for k in range(n - LATE):
        agree = np.abs(value[k] - value[k + 1 :]) <= bar[k] + noise[k + 1 :]
        bar[k] = np.where(agree.all(0), bar[k], np.inf)
    bar[n - LATE :] = np.inf
    best, elements = np.argmin(bar, 0), np.arange(value.shape[1])
    return value[best, elements], bar[best, elements]
