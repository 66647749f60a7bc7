"""The slope at x of a polynomial fitted to f over a wide interval: where noise limits central differences, many points tell more than two.

Of nodes t (Chebyshev's) each has a twin close by. What the twins differ by is noise, at that very place; what the polynomial leaves over must be no
more than that, or f has structure there that is no polynomial: a kink, a jump, a pole, waves finer than the nodes. Then the fit says nothing.
The rounding of a value is known without twins, which share it where f hardly moves.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from gradverify.numerics.rungs import Array, Mask, Z

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
