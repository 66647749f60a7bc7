"""Open elements of a float32 gradient where float32 loses f itself, as 1 + tanh(x) near −1: right, where all that they are off by is rounding.

Four things have to be so of an element. The backward in float64 is right there, by steps so wide that 1 + tanh(x) does not rest within them. What the
one in float32 is off by is what the former loses when every operation rounds as in float32 (measured: `subject.lowered.Perturbed`). Forward loses as
much: a backward that cancels where forward does not is not excused by its own noise. And it is nothing beside the largest derivative of its output.
A gradient that differs from a reference's is undecided where the same is so of it, the reference in float64 in the place of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.excuses.rounded import AT_MOST, LOST, may_lose
from gradverify.numerics.function.flat import rms
from gradverify.numerics.function.point import Narrow, Point
from gradverify.numerics.pairs.pair import OPEN, Outcome, Pair
from gradverify.numerics.pairs.revised import mismatches, passed, with_undecided
from gradverify.numerics.pairs.values import Entries
from gradverify.numerics.rungs import U32, U64, Array, Index, Mask, Z
from gradverify.numerics.tolerance import RTOL_LOW
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Filled, Gives, Jacobian, Wishes
from gradverify.oracles.rounding import Route

ASKED = frozenset({Limit.ROUNDED, Limit.CANCELS, Limit.STAIRCASE, Limit.NOISE, Limit.TRUNCATION, Limit.ALONE})
ROWS, COLUMNS = 256, 1024   # that are looked at: POINTS + 1 backwards a row, and 2 forwards a step of a column
IN_DOUBLE = 2.0**10         # roundings of float64 that a slope over such steps may be off by (of 470 right ones of tanh GELUs, 8 are off by more)
STEPS = 2.0 ** -np.arange(3, 12)    # of an input's scale


def beside_lost(found: Jacobian, function: Gives, wishes: Wishes, rtol: float | None, short_of: Callable[[int], bool]) -> Jacobian:
    """The comparison with what passes of its open elements; asked where nothing is wrong. `short_of`: would so many calls be more than the budget?"""
    filled = Filled(function)
    asked = {key: pair for key, pair in found.pairs.items() if _may_be_asked(pair, wishes)}
    if filled.narrow is None or not asked or any(pair.count(Outcome.MISMATCH) for pair in found.pairs.values()):
        return found
    rows = {(pair.output, row) for pair in asked.values() for row in _open(pair).output.tolist()}
    columns = {(pair.input, column) for pair in asked.values() for column in _open(pair).input.tolist()}
    if len(rows) > ROWS or len(columns) > COLUMNS or short_of((POINTS + 1) * len(rows) + 2 * len(STEPS) * len(columns)):
        return found
    point = wishes.point(filled)
    with np.errstate(all="ignore"):
        look = _Look(point, filled.narrow, RTOL_LOW if rtol is None else rtol)
        return replace(found, pairs={**found.pairs, **{key: look.passed(pair) for key, pair in asked.items()}})


def beside_lost_by_both(pair: Pair, function: Gives, wishes: Wishes, rtol: float | None, reference: Route) -> Pair:
    """The comparison of a float32 gradient with a reference's, its mismatches undecided where float32 loses as much of f. `reference`: its gradient
    in float64, which the backward in float64 must give. Raises UserCodeError where it refuses that."""
    filled, wrong = Filled(function), mismatches(pair)
    if filled.narrow is None or wrong is None or wishes.symmetric[pair.input]:
        return pair
    point = wishes.point(filled)
    look, off = _Look(point, filled.narrow, RTOL_LOW if rtol is None else rtol), -np.abs(wrong.analytic - wrong.numeric)
    rows = list(dict.fromkeys(wrong.output[np.argsort(off, kind="stable")].tolist()))
    if len(rows) > ROWS:
        return pair
    with np.errstate(all="ignore"):
        for row in rows:
            own = np.flatnonzero(wrong.output == row)
            if not look.rounds_away(pair, row, wrong.input[own], wrong.analytic[own], reference((), row)[wrong.input[own]]):
                return pair
    return with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)


def _may_be_asked(pair: Pair, wishes: Wishes) -> bool:
    own = {limit for limit, _ in pair.limits}
    whole = pair.entries is not None and pair.entries.complete and not pair.lines
    return whole and bool(pair.count(*OPEN)) and own <= ASKED and not wishes.symmetric[pair.input]


def _open(pair: Pair) -> Entries:
    assert pair.entries is not None
    return pair.entries.take(np.flatnonzero(np.isin(pair.entries.outcome, OPEN)))


class _Look:
    """At open elements: what the backward in float64 says of them, what rounding makes of that, and what forward does by wide steps."""

    def __init__(self, point: Point, narrow: Narrow, rtol: float) -> None:
        self._point, self._rtol, self._rounding = point, rtol, np.nan_to_num(narrow.rounding())
        self._rows, self._columns = dict[int, tuple[Array, Array] | None](), dict[int, Array]()

    def passed(self, pair: Pair) -> Pair:
        """The pair with those that are right but for rounding."""
        seen, columns = pair.entries, self._point.columns
        assert seen is not None
        column = np.searchsorted(columns.coordinate, int(self._point.starts[pair.input]) + seen.input)
        size, right = columns.size[column], np.isin(seen.outcome, OPEN)
        largest = float(np.nan_to_num(np.abs(seen.numeric) * size, posinf=0.0).max(initial=0.0))
        allowed = np.zeros(len(right))
        for row in np.unique(seen.output[right]).tolist():
            own = np.flatnonzero(right & (seen.output == row))
            of = self._point.parts[pair.output].start + row
            right[own], allowed[own] = self._right(of, column[own], seen.take(own), AT_MOST * largest / size[own])
        return replace(passed(pair, right), resolution=max(pair.resolution, float(allowed[right].max(initial=0.0))))

    def rounds_away(self, pair: Pair, row: int, places: Index, analytic: Array, wanted: Array) -> bool:
        """Does the backward in float64 give what is wanted [E] at elements of a row, and is the one in float32 off by what it, and f, lose?"""
        columns, of = self._point.columns, self._point.parts[pair.output].start + row
        column, known = np.searchsorted(columns.coordinate, int(self._point.starts[pair.input]) + places), self._of(of)
        if known is None:
            return False
        exact, sigma = (each[column] for each in known)
        lost = self._share(of, self._point.parts[pair.output]) * np.abs(known[0][columns.of(pair.input)]).max(initial=0.0)
        right = np.abs(analytic - exact) <= self._rtol * np.maximum(np.abs(analytic), np.abs(exact)) + np.minimum(Z * sigma, lost)
        agrees = np.abs(exact - wanted) <= self._rtol * np.abs(exact) + IN_DOUBLE * sigma * U64 / U32
        return bool((right & agrees).all())

    def _share(self, row: int, part: slice) -> float:
        """LOST times the share of an output that float32 loses, by all outputs of its tensor: a single one may be close by chance."""
        value, values = abs(float(self._point.f0[row])), np.abs(self._point.f0[part])
        lost, size = max(float(self._rounding[row]), rms(self._rounding[part])), max(value, rms(values))
        return LOST * min(lost / size, 1.0) if size else LOST

    def _right(self, row: int, column: Index, seen: Entries, most: Array) -> tuple[Mask, Array]:
        """Which elements [E] of a row are, and what each may be off by; `most`: at most, beyond the tolerance."""
        known = self._of(row)
        if known is None:
            return np.zeros(len(column), bool), np.zeros(len(column))
        exact, sigma = (each[column] for each in known)
        lost = may_lose(float(self._rounding[row]), abs(float(self._point.f0[row])), self._point.columns.scale[column], exact)
        allowed = self._rtol * np.maximum(np.abs(seen.analytic), np.abs(exact)) + np.minimum.reduce([Z * sigma, lost, most])
        right: Mask = np.abs(seen.analytic - exact) <= allowed
        within = self._rtol * np.abs(exact) + IN_DOUBLE * sigma * U64 / U32
        for n in np.flatnonzero(right & ~(np.abs(exact - seen.numeric) + seen.bar <= within)).tolist():
            right[n] = self._confirmed(row, int(column[n]), float(exact[n]), float(within[n]))
        return right, allowed

    def _of(self, row: int) -> tuple[Array, Array] | None:
        """The row [C] of the backward in float64, and one standard deviation of what float32 makes of it; None where it refuses that."""
        if row not in self._rows:
            exact = self._point.row_in_float64(row)
            sigma = None if exact is None else self._point.row_rounding(row, POINTS)
            self._rows[row] = None if exact is None or sigma is None else (exact, sigma)
        return self._rows[row]

    def _confirmed(self, row: int, column: int, exact: float, within: float) -> bool:
        """Does a step, and what it and the one before extrapolate to, show this derivative?"""
        slopes = self._slopes(column)[:, row]
        limit = (4 * slopes[1:] - slopes[:-1]) / 3
        return bool(((np.abs(limit - exact) <= within) & (np.abs(slopes[1:] - exact) <= within)).any())

    def _slopes(self, column: int) -> Array:
        """Central differences [step, M] of all outputs."""
        if column not in self._columns:
            c, place = self._point.columns, np.array([column])
            steps = STEPS * c.scale[column]
            ends = [[self._point.values_at(place, c.x[place] + side * step) for side in (1, -1)] for step in steps]
            self._columns[column] = np.array([(up - down) / (2 * step) for (up, down), step in zip(ends, steps, strict=True)])
        return self._columns[column]
