"""What a polynomial fitted to forward over many points decides of elements that its noise leaves open (method.md section 11).

Small steps drown in noise; a smooth function is told from it over a wide interval, where many points share the noise. It is asked last, only where
something is open and nothing is wrong, and within the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gradverify.model.case import Settings
from gradverify.numerics.costs import Mode
from gradverify.numerics.entries.asked import column_at
from gradverify.numerics.entries.interval_fits import AGREE, CALLS_A_WIDTH, Fitted, fitted
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import ElementRecord, Outcome, Pair
from gradverify.numerics.pairs.revised import Decided, with_decided
from gradverify.numerics.rungs import Array, Codes, Index, Z
from gradverify.numerics.survey import analytic_noise
from gradverify.numerics.tolerance import Tolerances, guarded
from gradverify.numerics.verdict import MISMATCH, PASS, UNDECIDED, Limit
from gradverify.oracles.finite_difference import Filled, Gives, Jacobian, Wishes

NOISY = frozenset({Limit.NOISE, Limit.TRUNCATION, Limit.INCONSISTENT, Limit.ALONE})
"""What more points may decide; at kinks, jumps, steps and ends there is no slope for a polynomial to tell."""

BEYOND = 4.0    # tolerances and bars: what is off by less is not called wrong by a fit
BACKWARDS = 18  # calls that the noise of one row of backward takes
"""Before an element is called wrong by a fit."""


def beside_fits(found: Jacobian, function: Gives, settings: Settings, wishes: Wishes, short_of: Callable[[int], bool]) -> Jacobian:
    """The comparison with what fits decide of its open elements. `short_of`: would so many calls be more than the budget allows?"""
    asked = {key: pair for key, pair in found.pairs.items() if _may_be_asked(pair, wishes)}
    if not asked or found.choice is None or found.choice.mode is not Mode.ENTRIES or short_of(AGREE * CALLS_A_WIDTH):
        return found
    if any(pair.count(Outcome.MISMATCH) for pair in found.pairs.values()):
        return found
    point = wishes.point(Filled(function))
    with np.errstate(all="ignore"):
        decided = _Open(point, asked, settings, short_of).decided()
    return replace(found, pairs={**found.pairs, **{key: with_decided(asked[key], told) for key, told in decided.items()}})


def _may_be_asked(pair: Pair, wishes: Wishes) -> bool:
    own = {limit for limit, _ in pair.limits}
    return bool(own) and own <= NOISY and bool(pair.count(Outcome.UNDECIDED)) and not pair.lines and not wishes.symmetric[pair.input]


@dataclass(frozen=True)
class _Elements:
    """Open elements [E] of all pairs: their numbers as arrays."""

    key: list[tuple[int, int]]
    records: list[ElementRecord]
    column: Index
    out: Index
    a: Array
    tolerances: Tolerances


class _Open:
    """The open elements of the pairs that may be asked about."""

    def __init__(self, point: Point, pairs: Mapping[tuple[int, int], Pair], settings: Settings, short_of: Callable[[int], bool]) -> None:
        self._point, self._short_of = point, short_of
        rows = [(key, each, column, pair.low_precision) for key, pair in pairs.items() for each in pair.worst
                if each.outcome is Outcome.UNDECIDED and (column := column_at(point, key[0], each.input_index)) is not None]
        rtol = np.array([settings.tolerances(low)[1] for *_, low in rows])
        tolerances = Tolerances(settings.tolerances()[0], rtol, np.array([each.floor for _, each, *_ in rows]), np.zeros(len(rows), bool))
        self._all = _Elements([key for key, *_ in rows], [each for _, each, *_ in rows], np.array([column for _, _, column, _ in rows], np.intp),
                              np.array([point.parts[key[1]].start + each.output_index for key, each, *_ in rows], np.intp),
                              np.array([each.analytic for _, each, *_ in rows]), tolerances)
        self._before = np.array([each.numeric for _, each, *_ in rows]), np.array([each.bar for _, each, *_ in rows])

    def decided(self) -> dict[tuple[int, int], list[Decided]]:
        """What came of them, by pair."""
        e = self._all
        slopes = fitted(self._point, e.column, e.out, lambda i, value, bar: self._verdicts(i, value, bar) != UNDECIDED, self._short_of)
        codes = self._less_own_noise(slopes)
        found: dict[tuple[int, int], list[Decided]] = {}
        for n in np.flatnonzero(codes != UNDECIDED).tolist():
            value, bar = float(slopes.value[n]), float(slopes.bar[n])
            tolerance = float(self._tolerance(np.array([n]), slopes.value[[n]])[0])
            found.setdefault(e.key[n], []).append(Decided(e.records[n], value, bar, tolerance, bool(codes[n] == PASS), int(slopes.points[n])))
        return found

    def _tolerance(self, i: Index, value: Array) -> Array:
        return self._all.tolerances.take(i).tolerance(self._all.a[i], value)

    def _verdicts(self, i: Index, value: Array, bar: Array, extra: Array | float = 0.0) -> Codes:
        """Of elements i; undecided, too, where the fit and the small steps do not agree, and what is off by little. `extra`: noise of backward."""
        tolerance, off, before = self._tolerance(i, value), np.abs(self._all.a[i] - value), [each[i] for each in self._before]
        codes = guarded(off, bar, tolerance)
        agree = ~np.isfinite(before[1]) | (np.abs(value - before[0]) <= before[1] + bar)
        wrong = (codes == MISMATCH) & (off - extra > BEYOND * (tolerance + bar))
        return np.where(np.isfinite(bar) & agree & (wrong | (codes == PASS)), codes, UNDECIDED).astype(np.int8)

    def _less_own_noise(self, slopes: Fitted) -> Codes:
        """Verdicts [E], mismatches less what the noise of backward explains; those of rows that the budget does not allow to look at are open."""
        e = self._all
        everything = np.arange(len(e.a))
        codes = self._verdicts(everything, slopes.value, slopes.bar)
        for row in np.unique(e.out[codes == MISMATCH]).tolist():
            own = np.flatnonzero((codes == MISMATCH) & (e.out == row))
            codes[own] = UNDECIDED if self._short_of(BACKWARDS) else self._verdicts(own, slopes.value[own], slopes.bar[own], self._noise(row)[own])
        return codes

    def _noise(self, row: int) -> Array:
        """That of one row of backward, of all elements [E]."""
        sigma, _ = analytic_noise(self._point, row, self._point.row(row))
        return np.asarray(Z * sigma[self._all.column])
