"""The rule of torch.autograd.gradcheck, element by element: one absolute step, no bar, |a − D| ≤ atol + rtol·|D|."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from gradverify.numerics.entries.sweep import TILE_LIMIT
from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.function.point import Function, Point
from gradverify.numerics.pairs.pair import Asked, Entries, Outcome, Pair
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.rungs import Array, Codes, Index, Mask
from gradverify.numerics.verdict import Limit

LIMITS = {Outcome.UNDECIDED: Limit.STUCK, Outcome.NON_FINITE: Limit.INFINITE}
WORKING_ARRAYS = 12  # of a tile's size that are held at once


def check_fixed(function: Function, eps: float, *, atol: float, rtol: float, keep: int = 10, limit: int = TILE_LIMIT,
                asked: Asked | None = None) -> tuple[Pair, ...]:
    """Every element under exactly this step. `limit`: bytes. The two parts of a complex input element are one number, as in gradcheck."""
    n = len(function.inputs)
    if not n:
        return ()
    columns = columns_of(function.inputs, [None] * n, [False] * n)
    with np.errstate(all="ignore"):
        point = Point(function, columns)
        rule = _Rule(point, eps, atol, rtol)
        tallies = [Tally(t, o, (part.stop - part.start, int(size)), keep, asked)
                   for t, size in enumerate(np.diff(point.starts)) for o, part in enumerate(point.parts)]
        for first, a in _tiles(point, limit):
            _compare_tile(rule, first, a, tallies)
    return tuple(tally.result(float(point.unit.max(initial=0.0)), False) for tally in tallies)


def _tiles(point: Point, limit: int) -> Iterator[tuple[int, Array]]:
    """The analytic Jacobian by runs of columns of one input each: (first column, values [columns, M]); one pass where all of it fits."""
    rows = len(point.f0)
    room = max(2, limit // (8 * WORKING_ARRAYS * max(rows, 1))) // 2 * 2  # even: the parts of a complex element stay together
    starts = point.starts.tolist()
    whole = np.stack([point.row(j) for j in range(rows)], 1) if starts[-1] <= room and rows else None
    for begin, end in pairwise(starts):
        for first in range(begin, end, room):
            last = min(first + room, end)
            if whole is not None:
                yield first, whole[first:last]
                continue
            a = np.empty((last - first, rows))
            for j in range(rows):
                a[:, j] = point.row(j)[first:last]
            yield first, a


class _Rule:
    """Judges columns at one point."""

    def __init__(self, point: Point, eps: float, atol: float, rtol: float) -> None:
        self.point, self._eps, self._atol, self._rtol = point, eps, atol, rtol

    def differences(self, columns: Index) -> tuple[Array, Mask, Mask]:
        """Central differences [columns, M], columns that the step does not move [columns], elements that are one infinity throughout."""
        point, c = self.point, self.point.columns
        value, masked = np.full((len(columns), len(point.f0)), np.nan), np.zeros((len(columns), len(point.f0)), bool)
        stuck = np.zeros(len(columns), bool)
        for n, column in enumerate(columns.tolist()):
            x = float(c.x[column])
            high, low = (float(c.cast(np.array([x + sign * self._eps]), columns[n : n + 1])[0]) for sign in (1.0, -1.0))
            stuck[n] = high == x or low == x
            up, down = (point.values_at(columns[n : n + 1], np.array([x])) for x in (high, low))
            value[n] = (up - down) / (2.0 * self._eps)
            masked[n] = np.isinf(point.f0) & (up == point.f0) & (down == point.f0)
        return value, stuck, masked

    def judge(self, a: Array, value: Array, stuck: Mask, complex_: bool) -> tuple[Codes, Array]:
        """Outcomes and tolerances [columns, M]."""
        off, size = np.abs(a - value), np.abs(value)
        if complex_:
            off, size = _modulus(off), _modulus(size)
        tolerance = self._atol + self._rtol * size
        outcome = np.where(off <= tolerance, Outcome.PASS, Outcome.MISMATCH)
        outcome = np.where(np.isfinite(value), outcome, Outcome.NON_FINITE)
        outcome[stuck] = Outcome.UNDECIDED
        return outcome.astype(np.int8), tolerance


def _modulus(parts: Array) -> Array:
    """[2n, M] of (re, im) neighbours -> their moduli, each standing at both parts."""
    pairs = parts.reshape(-1, 2, parts.shape[1])
    return np.repeat(np.hypot(pairs[:, 0], pairs[:, 1]), 2, axis=0)


def _compare_tile(rule: _Rule, first: int, a: Array, tallies: list[Tally]) -> None:
    """One run of columns of one input against all outputs."""
    point = rule.point
    columns = np.arange(first, first + len(a))
    tensor = int(point.columns.tensor[first])
    value, stuck, masked = rule.differences(columns)
    outcome, tolerance = rule.judge(a, value, stuck, bool(point.buffers[tensor].is_complex()))
    for tally in (tally for tally in tallies if tally.input == tensor):
        part = point.parts[tally.output]
        local, out = np.nonzero(~masked[:, part])
        tally.add_zeros(np.zeros(0), np.zeros(0), masked[:, part])
        at, no_bar = (local, out + part.start), np.zeros(len(out))
        tally.add(Entries.without_kinks(out, columns[local] - int(point.starts[tensor]), a[at], value[at], no_bar, tolerance[at], no_bar,
                                             outcome[at], LIMITS))
