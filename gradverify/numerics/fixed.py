"""The rule of torch.autograd.gradcheck: one absolute step, no bar, |a − D| ≤ atol + rtol·|D|."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.pairs.pair import Entries, Outcome, Pair, Requested, Tally, without_kinks
from gradverify.numerics.rungs import PIECE, Array, Mask, pieces
from gradverify.numerics.verdict import Limit

LIMITS = {Outcome.UNDECIDED: Limit.STUCK, Outcome.NON_FINITE: Limit.INFINITE}


def check_fixed(
    function: Function,
    eps: float,
    *,
    atol: float,
    rtol: float,
    keep: int = 10,
    requested: Requested | None = None,
) -> tuple[Pair, ...]:
    """Compare every element under exactly this step.

    As in gradcheck the two parts of a complex element are one number, and the whole analytic
    Jacobian is held at once.
    """
    n = len(function.inputs)
    if not n:
        return ()
    with np.errstate(all="ignore"):
        point = Point(function, columns_of(function.inputs, [None] * n, [False] * n))
        m, tallies = len(point.f0), list[Tally]()
        whole = np.array([point.row(j) for j in range(m)]).reshape(m, len(point.columns)).T
        width = max(2, PIECE // max(m, 1)) // 2 * 2  # the parts of a complex element stay together
        for tensor, (begin, end) in enumerate(pairwise(point.starts.tolist())):
            of_tensor = [
                Tally(tensor, o, (part.stop - part.start, end - begin), keep, requested)
                for o, part in enumerate(point.parts)
            ]
            tallies += of_tensor
            for some in pieces(end - begin, width):
                columns = range(begin, end)[some]
                a = whole[columns.start : columns.stop]
                found = (_quotient(point, column, eps) for column in columns)
                value, stuck, masked = map(np.array, zip(*found, strict=True))
                off, size = np.abs(a - value), np.abs(value)
                if point.buffers[tensor].is_complex():
                    off, size = _modulus(off), _modulus(size)
                tolerance = atol + rtol * size
                outcome = np.where(off <= tolerance, Outcome.PASS, Outcome.MISMATCH)
                outcome = np.where(np.isfinite(value), outcome, Outcome.NON_FINITE).astype(np.int8)
                outcome[stuck] = Outcome.UNDECIDED
                for tally, part in zip(of_tensor, point.parts, strict=True):
                    local, out = np.nonzero(~masked[:, part])
                    tally.leave_out(int(np.count_nonzero(masked[:, part])))
                    at, no_bar = (local, out + part.start), np.zeros(len(out))
                    elements = Entries(
                        out,
                        local + some.start,
                        a[at],
                        value[at],
                        no_bar,
                        tolerance[at],
                        no_bar,
                        *without_kinks(outcome[at], LIMITS),
                    )
                    tally.add(elements)
    return tuple(tally.result(float(point.unit.max(initial=0.0)), False) for tally in tallies)


def _quotient(point: Point, column: int, eps: float) -> tuple[Array, bool, Mask]:
    """Return the difference quotient of a column [M], whether the step does not move it, and where
    f is the same infinity [M]."""
    columns, x, f0 = np.array([column]), point.columns.x[column], point.f0
    ends = point.columns.cast(x + np.array([eps, -eps]), columns)
    up, down = (point.values_at(columns, end) for end in ends[:, None])
    still = np.isinf(f0) & (up == f0) & (down == f0)
    return (up - down) / (2.0 * eps), bool((ends == x).any()), still


def _modulus(parts: Array) -> Array:
    """Return the moduli of (re, im) neighbours [2n, M], each repeated for both parts."""
    pairs = parts.reshape(-1, 2, parts.shape[1])
    return np.repeat(np.hypot(pairs[:, 0], pairs[:, 1]), 2, axis=0)
