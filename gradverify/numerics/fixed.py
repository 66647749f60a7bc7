"""The rule of torch.autograd.gradcheck: one absolute step, no bar, |a − D| ≤ atol + rtol·|D|."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.pairs.pair import Asked, Entries, Outcome, Pair
from gradverify.numerics.pairs.tally import Tally
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
        m = len(point.f0)
        whole = np.array([point.row(j) for j in range(m)]).reshape(m, len(point.columns)).T
        width = max(2, PIECE // max(m, 1)) // 2 * 2  # the parts of a complex element stay together
        for tensor, (begin, end) in enumerate(pairwise(point.starts.tolist())):
            for first in range(begin, end, width):
                a = whole[first : min(first + width, end)]
                _add(point, eps, atol, rtol, tensor, first, a, tallies)
    return tuple(tally.result(float(point.unit.max(initial=0.0)), False) for tally in tallies)


def _add(
    point: Point,
    eps: float,
    atol: float,
    rtol: float,
    tensor: int,
    first: int,
    a: Array,
    tallies: list[Tally],
) -> None:
    """Judges a run of columns of one tensor, with their analytic values [columns, M]."""
    c, columns = point.columns, np.arange(first, first + len(a))
    value, masked, stuck = np.empty(a.shape), np.empty(a.shape, bool), np.empty(len(a), bool)
    for n in range(len(a)):
        column = columns[n : n + 1]
        x = float(c.x[column[0]])
        high, low = (float(c.cast(np.array([x + h]), column)[0]) for h in (eps, -eps))
        up, down = (point.values_at(column, np.array([end])) for end in (high, low))
        value[n], stuck[n] = (up - down) / (2.0 * eps), x in (high, low)
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
        tally.add_zeros(np.zeros(0), np.zeros(0), masked[:, part])
        at, no_bar = (local, out + part.start), np.zeros(len(out))
        place = columns[local] - int(point.starts[tensor])
        tally.add(
            Entries.without_kinks(
                out, place, a[at], value[at], no_bar, tolerance[at], no_bar, outcome[at], LIMITS
            )
        )


def _modulus(parts: Array) -> Array:
    """[2n, M] of (re, im) neighbours -> their moduli, each standing at both parts."""
    pairs = parts.reshape(-1, 2, parts.shape[1])
    return np.repeat(np.hypot(pairs[:, 0], pairs[:, 1]), 2, axis=0)
