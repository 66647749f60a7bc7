"""Comparison with numbers that have rounding but no truncation errors, shared by literal,
hand-written and reference gradients."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.pairs.pair import Entries, Outcome, Tally, without_kinks
from gradverify.numerics.rungs import Array, Index, nonzero
from gradverify.numerics.tolerance import FLOOR, guarded
from gradverify.numerics.verdict import MISMATCH, PASS, Limit

# Ulps by which two correct computations of one number may differ without a cancellation
ROUNDING = 8.0


def rounding_floor(unit: float, analytic: Array, value: Array, scale: Array, size: Array) -> Array:
    """Return the floor [m, n] of gradient rows: 1e4 roundings of each row's reach, over S
    (method.md section 1). `scale`, `size` [n]: s and S."""
    reach = np.nan_to_num(
        np.maximum(np.abs(analytic), np.abs(value)) * scale, nan=0.0, posinf=0.0
    ).max(1, initial=0.0, keepdims=True)
    return np.asarray(FLOOR * unit * reach / nonzero(size))


def add_exact(
    tally: Tally,
    analytic: Array,
    value: Array,
    floor: Array | float,
    *,
    atol: float,
    rtol: float,
    unit: float,
    broken: Outcome = Outcome.NON_FINITE,
    noise: Array | float = 0.0,
) -> None:
    """Add all analytic values [m, n] of a pair against an oracle's to a tally.

    `broken`: the outcome of an element for which the oracle is not finite and the function does not
    have the same infinity; equal infinities are left out. `noise`: of both values, in addition to
    their rounding.
    """
    same_infinity = (analytic == value) & np.isinf(value)
    tally.leave_out(int(np.count_nonzero(same_infinity)))
    out, local = np.nonzero(~same_infinity)
    a, v = analytic[out, local], value[out, local]
    low, noisy = (np.broadcast_to(each, analytic.shape)[out, local] for each in (floor, noise))
    tally.add(
        exact_elements(
            out,
            local,
            a,
            v,
            low,
            atol=atol,
            rtol=rtol,
            unit=unit,
            broken=broken,
            noise=noisy,
        )
    )


def exact_elements(
    output: Index,
    input_: Index,
    analytic: Array,
    value: Array,
    floor: Array,
    *,
    atol: float,
    rtol: float,
    unit: float,
    broken: Outcome = Outcome.NON_FINITE,
    noise: Array | float = 0.0,
) -> Entries:
    """Return the elements [E] of these outputs and inputs: analytic values against an oracle's;
    `broken` and `noise` as in `add_exact`."""
    largest = np.maximum(np.nan_to_num(np.abs(analytic), nan=0.0, posinf=0.0), np.abs(value))
    tolerance = atol + np.maximum(rtol * largest, floor)
    bar = ROUNDING * unit * np.abs(value) + noise
    verdict = guarded(np.abs(analytic - value), bar, tolerance)
    outcome = np.select(
        [
            ~np.isfinite(value),
            verdict == PASS,
            (verdict == MISMATCH) | ~np.isfinite(analytic),
        ],
        [broken, Outcome.PASS, Outcome.MISMATCH],
        Outcome.UNDECIDED,
    ).astype(np.int8)
    limited = without_kinks(outcome, {Outcome.UNDECIDED: Limit.NOISE})
    return Entries(output, input_, analytic, value, bar, tolerance, floor, *limited)
