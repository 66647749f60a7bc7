"""The rule of torch.autograd.gradcheck: one absolute step, no bar, |a − D| ≤ atol + rtol·|D|."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.pairs.pair import Asked, Entries, Outcome, Pair, Tally, without_kinks
from gradverify.numerics.rungs import PIECE, Array
from gradverify.numerics.verdict import Limit

LIMITS = {Outcome.UNDECIDED: Limit.STUCK, Outcome.NON_FINITE: Limit.INFINITE}


def check_fixed(
    function: Function,
    eps: float,
    *,
    atol: float,
    rtol: float,
    keep: int = 10,
    asked: Asked | None = None,
) -> tuple[Pair, ...]:
    """Every element under exactly this step. As in gradcheck the two parts of a complex element are
    one number, and the whole analytic Jacobian is held at once."""
    n = len(function.inputs)
    if not n:
        return ()
    with np.errstate(all="ignore"):
        point = Point(function, columns_of(function.inputs, [None] * n, [False] * n))
        tallies = [
            Tally(t, o, (part.stop - part.start, int(size)), keep, asked)
            for t, size in enumerate(np.diff(point.starts))
            for o, part in enumerate(point.parts)
        ]
        c, m = point.columns, len(point.f0)
        whole = np.array([point.row(j) for j in range(m)]).reshape(m, len(c)).T
        width = max(2, PIECE // max(m, 1)) // 2 * 2  # the parts of a complex element stay together
        for tensor, (begin, end) in enumerate(pairwise(point.starts.tolist())):
            for first in range(begin, end, width):
                columns = np.arange(first, min(first + width, end))
                a = whole[columns[0] : columns[-1] + 1]
                value = np.empty(a.shape)
                masked = np.empty(a.shape, bool)
                stuck = np.empty(len(a), bool)
                for n in range(len(a)):
                    column = columns[n : n + 1]
                    x = float(c.x[first + n])
                    high, low = (float(c.cast(np.array([x + h]), column)[0]) for h in (eps, -eps))
                    up, down = (point.values_at(column, np.array([end])) for end in (high, low))
                    value[n] = (up - down) / (2.0 * eps)
                    stuck[n] = x in (high, low)
                    masked[n] = np.isinf(point.f0) & (up == point.f0) & (down == point.f0)
                off, size = np.abs(a - value), np.abs(value)
                if point.buffers[tensor].is_complex():
                    off, size = _modulus(off), _modulus(size)
                tolerance = atol + rtol * size
                outcome = np.where(off <= tolerance, Outcome.PASS, Outcome.MISMATCH)
                outcome = np.where(np.isfinite(value), outcome, Outcome.NON_FINITE).astype(np.int8)
                outcome[stuck] = Outcome.UNDECIDED
                for tally in (tally for tally in tallies if tally.input == tensor):
                    part = point.parts[tally.output]
                    local, out = np.nonzero(~masked[:, part])
                    tally.leave_out(int(np.count_nonzero(masked[:, part])))
                    at = (local, out + part.start)
                    no_bar = np.zeros(len(out))
                    elements = Entries(
                        out,
                        columns[local] - begin,
                        a[at],
                        value[at],
                        no_bar,
                        tolerance[at],
                        no_bar,
                        *without_kinks(outcome[at], LIMITS),
                    )
                    tally.add(elements)
    return tuple(tally.result(float(point.unit.max(initial=0.0)), False) for tally in tallies)


def _modulus(parts: Array) -> Array:
    """[2n, M] of (re, im) neighbours -> their moduli, each standing at both parts."""
    pairs = parts.reshape(-1, 2, parts.shape[1])
    return np.repeat(np.hypot(pairs[:, 0], pairs[:, 1]), 2, axis=0)
