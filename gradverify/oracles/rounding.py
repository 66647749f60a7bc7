"""What backward, or another opinion, rounds away inside: a difference that no formula makes, as those of tanh(x) and 1 − 2 / (1 + exp(2x)) at 1e-10.

Rounding comes anew at every point; a formula, right or wrong, goes smoothly from one to the next. So fourth differences nearby show rounding
alone. Where it is the same at all of them, as that of 1 + tanh(x) near −1, an oracle may say what it can be. It explains no more than some roundings
of 1 and of the gradient: backward is at fault for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.excuses.rounded import AT_MOST, LOST, may_lose
from gradverify.numerics.function.coordinates import numbers, rms
from gradverify.numerics.function.point import Narrow, Point
from gradverify.numerics.pairs.pair import OPEN, Entries, Outcome, Pair
from gradverify.numerics.pairs.tally import Mismatches, mismatches, passed, with_undecided
from gradverify.numerics.rungs import U32, U64, Array, Index, Mask, Z
from gradverify.numerics.tolerance import RTOL_LOW
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Filled, Gives, Jacobian, Wishes
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.subject.wide import InDouble

# ---- rounding
Route = Callable[[Sequence[Tensor], int], Array]
"""The gradient's real coordinates at other inputs, of one output element of the pair."""

Spread = Callable[[int], Array]
"""One standard deviation of the gradient's real coordinates, of one output element of the pair, as its operations round at random."""

CAP = 2.0**6            # roundings of the cotangent's size, and of the gradient: as where forward mode and backward disagree
SHAKE = 2.0**-8         # of each input, from point to point
FOURTH = (1.0, -4.0, 6.0, -4.0, 1.0)    # a formula's are SHAKE⁴ of its size: 2e-10
AMPLIFIED = 70**0.5     # times the rounding of one value, in standard deviations
TIMES = 16.0            # such deviations: between two right ways; few points are measured, and rounding may be 0 at most of them
DIRECTIONS, ROWS = 2, 8     # in which the inputs are shaken; elements of an output whose gradients are looked at, the worst first


def row_of(function: Gives, outputs: Sequence[Tensor], tensor: int, output: int) -> Route:
    """The route of one-hot cotangents at one of the `outputs`, to one input tensor."""
    y = outputs[output]

    def route(inputs: Sequence[Tensor], row: int) -> Array:
        one = torch.zeros(y.shape, dtype=y.dtype, device=y.device)
        (torch.view_as_real(one) if one.is_complex() else one).view(-1)[row] = 1.0
        return _coordinates(function.vjp_at(inputs, [one if place == output else None for place in range(len(outputs))])[tensor], inputs[tensor])

    return route


def whole_of(pull: Callable[[Sequence[Tensor]], Sequence[Tensor | None]], tensor: int) -> Route:
    """The route of a gradient that is taken for one cotangent: to one input tensor."""
    return lambda inputs, _: _coordinates(pull(inputs)[tensor], inputs[tensor])


def _coordinates(gradient: Tensor | None, x: Tensor) -> Array:
    return numbers(torch.zeros_like(x) if gradient is None else gradient).copy()


def beside_rounding(pair: Pair, subject: Subject, routes: Sequence[Route], unit: float, cotangent: float = 1.0, spread: Spread | None = None) -> Pair:
    """The pair with its mismatches undecided, where what the `routes` round inside explains each of them.

    Calls nothing where any is off by more than that ever may be. `cotangent`: its norm, as a whole; of rows it is 1. `spread`: asked of what is left.
    """
    wrong = mismatches(pair) if pair.count(Outcome.MISMATCH) else None
    if wrong is None:
        return pair
    off = np.abs(wrong.analytic - wrong.numeric)
    if not (off <= CAP * unit * (cotangent + np.maximum(np.abs(wrong.analytic), np.abs(wrong.numeric)))).all():
        return pair
    noise = max((_noise(subject, route, wrong) for route in routes), default=0.0)
    left = off > TIMES * noise
    rows = np.unique(wrong.output[left]).tolist()
    if spread is not None and len(rows) <= ROWS:
        for row in rows:
            own = np.flatnonzero(left & (wrong.output == row))
            left[own] = ~(off[own] <= Z * spread(row)[wrong.input[own]])
    return pair if left.any() else with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)


def _noise(subject: Subject, route: Route, wrong: Mismatches) -> float:
    """The rounding that a route shows at the elements that are off; 0 where it refuses other inputs."""
    rows = list(dict.fromkeys(wrong.output[np.argsort(-np.abs(wrong.analytic - wrong.numeric), kind="stable")].tolist()))[:ROWS]
    largest = 0.0
    try:
        for points in _shaken(subject):
            for row in rows:
                at = np.array([route(inputs, row)[wrong.input[wrong.output == row]] for inputs in points])
                shown = np.abs(np.array(FOURTH) @ at)
                largest = max(largest, float(shown[np.isfinite(shown)].max(initial=0.0)))
    except UserCodeError:
        return 0.0
    return largest / AMPLIFIED


def _shaken(subject: Subject) -> Iterator[list[list[Tensor]]]:
    """Five points on a line through the inputs, in some directions."""
    source = generator(subject.case.settings.seed, subject.case.check, "rounding")
    for _ in range(DIRECTIONS):
        moves = [SHAKE * x.abs() * signed(x, source) for x in subject.inputs]
        yield [[x + side * move for x, move in zip(subject.inputs, moves, strict=True)] for side in (-2, -1, 0, 1, 2)]


# ---- unrounded
STEP = 2.0**-13     # of |x|, or of its tensor's root mean square if that is larger: without the casts f is smooth to about 1e-8 of that
ROUNDING = 2.0**-6  # of the largest output: by how much the values may differ without the casts; four roundings of bfloat16
SHARE = 2.0**-5     # of the largest derivative of the column: what backward may be off; eight roundings of bfloat16
LOST_SHARE = 0.5          # of the largest output: float32 may take so much of f; of more it has lost f
MORE_TIMES = 16.0        # the share of f that float32 takes, backward may lose (measured: up to 10, of a variance as E[x²] − E[x]²)
COLUMNS = 32        # of a pair that are looked at: those of the worst mismatches


def steps_left_open(found: Jacobian, checked: Gives, outputs: Sequence[Tensor], wishes: Wishes,
                    unrounded: Callable[[], tuple[Gives, InDouble]], narrow: bool = False) -> Jacobian:
    """The comparison, in which mismatches are undecided that the function's own rounding accounts for, and zeros that it hides a slope behind.

    Asked only where a pair has open elements beside mismatches, or a gradient that is zero throughout: a call, and for each such pair a backward
    per mismatched row and two calls per column, COLUMNS at most. `checked`: the function whose backward was compared, with its `outputs`;
    `unrounded`: the same in float64, with what lifts, and counts, its casts to less; `narrow`: it is a function of float32."""
    wrong = [key for key, pair in found.pairs.items() if pair.count(Outcome.MISMATCH) and any(map(pair.count, OPEN)) and not wishes.symmetric[key[0]]]
    still = [key for key, pair in found.pairs.items() if _is_zero(pair)]
    if not (wrong or still) or found.choice is None:
        return found
    try:
        function, casts = unrounded()
        sides = _Sides(checked, function, wishes)
        apart = _apart(outputs, sides.smooth)
        if casts.asked and apart <= ROUNDING:
            share = SHARE
        elif narrow and apart <= LOST_SHARE:
            share = max(apart, min(SHARE, MORE_TIMES * apart))
        else:
            return found
        steps = {key: Outcome.MISMATCH for key in wrong if sides.agree(found.pairs[key], share)}
    except UserCodeError:
        return found
    steps |= {key: Outcome.PASS for key in still if sides.moves(*key)}
    return replace(found, pairs={**found.pairs, **{key: with_undecided(found.pairs[key], what, Limit.STAIRCASE) for key, what in steps.items()}})


def _is_zero(pair: Pair) -> bool:
    """Did something pass, and is the gradient zero throughout?"""
    seen = pair.entries
    if pair.count(Outcome.MISMATCH) or not pair.count(Outcome.PASS):
        return False
    return pair.largest == 0 if seen is None or not seen.complete else not seen.analytic.any()


def _apart(outputs: Sequence[Tensor], other: Point) -> float:
    """How far the values differ, as a share of the largest of their output; infinite where the shapes do, or what is finite."""
    if [y.shape for y in outputs] != [shape for shape, *_ in other.shapes]:
        return math.inf
    most = 0.0
    for mine, theirs in zip(map(numbers, outputs), (other.f0[part] for part in other.parts), strict=True):
        finite, off = np.isfinite(mine), np.abs(mine - theirs)
        if (finite != np.isfinite(theirs)).any():
            return math.inf
        largest, off = np.abs(mine[finite]).max(initial=0.0), off[finite].max(initial=0.0)
        most = max(most, float(off / largest) if largest else math.inf if off else 0.0)
    return most


class _Sides:
    """Backward of the checked function, each row pulled back by itself (where a flat f hid a dependence, rows shared one); and `smooth`, the function
    without its casts, whose finite differences are taken."""

    def __init__(self, checked: Gives, function: Gives, wishes: Wishes) -> None:
        """Raises UserCodeError where the function refuses float64."""
        self._checked, self._wishes, self._rows = checked, wishes, dict[int, Array]()
        self.smooth = self._at(function)

    def _at(self, function: Gives) -> Point:
        return self._wishes.point(Filled(function))

    @cached_property
    def _rounded(self) -> Point:
        return self._at(self._checked)

    def agree(self, pair: Pair, share: float) -> bool:
        """Is every mismatch that is looked at the derivative without the rounding, to a share of its column? Raises UserCodeError (GV003)."""
        wrong, part, first = mismatches(pair), self.smooth.parts[pair.output], int(self.smooth.starts[pair.input])
        if wrong is None:
            return False
        for coordinate in _worst_columns(wrong):
            column = int(np.searchsorted(self.smooth.columns.coordinate, first + coordinate))
            step = self._steps(np.array([column]))
            derivative = self._change(np.array([column]), step)[part] / (2 * step)
            own = wrong.output[wrong.input == coordinate]
            analytic = np.array([self._row(part.start + row)[column] for row in own.tolist()])
            reach = np.nan_to_num(np.abs(derivative), posinf=0.0).max(initial=0.0)
            if not (np.abs(analytic - derivative[own]) <= share * reach).all():
                return False
        return True

    def moves(self, tensor: int, output: int) -> bool:
        """Does an output move, beyond rounding, where a whole input does, each element to another side than the next?"""
        own, part = self.smooth.columns.of(tensor), self.smooth.parts[output]
        with np.errstate(invalid="ignore"):
            change = np.abs(self._change(own, self._steps(own) * (-1.0) ** np.arange(len(own)))[part])
            return bool((change > STEP**2 * np.nan_to_num(np.abs(self.smooth.f0[part]), posinf=0.0).max(initial=0.0)).any())

    def _row(self, output: int) -> Array:
        if output not in self._rows:
            self._rows[output] = self._rounded.row(output)
        return self._rows[output]

    def _steps(self, columns: Index) -> Array:
        size = self.smooth.columns.size[columns]
        return STEP * np.where(size > 0, size, 1.0)

    def _change(self, columns: Index, by: Array) -> Array:
        """f [M] with these columns so much larger, less f with them so much smaller; NaN where a domain ends before."""
        x = self.smooth.columns.x[columns]
        return np.asarray(self.smooth.values_at(columns, x + by) - self.smooth.values_at(columns, x - by))


def _worst_columns(wrong: Mismatches) -> list[int]:
    order = np.argsort(-np.abs(wrong.analytic - wrong.numeric), kind="stable")
    return list(dict.fromkeys(wrong.input[order].tolist()))[:COLUMNS]


# ---- Open elements of a float32 gradient where float32 loses f itself, as 1 + tanh(x) near −1: right, where all that they are off by is rounding
ASKED = frozenset({Limit.ROUNDED, Limit.CANCELS, Limit.STAIRCASE, Limit.NOISE, Limit.TRUNCATION, Limit.ALONE})
LOST_ROWS, LOST_COLUMNS = 256, 1024   # that are looked at: POINTS + 1 backwards a row, and 2 forwards a step of a column
IN_DOUBLE = 2.0**10         # roundings of float64 that a slope over such steps may be off by (of 470 right ones of tanh GELUs, 8 are off by more)
STEPS = 2.0 ** -np.arange(3, 12)    # of an input's scale


def beside_lost(found: Jacobian, function: Gives, wishes: Wishes, rtol: float | None, short_of: Callable[[int], bool]) -> Jacobian:
    """The comparison with what passes of its open elements; asked where nothing is wrong. `short_of`: would so many calls be more than the budget?"""
    filled = Filled(function)
    asked = {key: pair for key, pair in found.pairs.items() if _may_be_lost(pair, wishes)}
    if filled.narrow is None or not asked or any(pair.count(Outcome.MISMATCH) for pair in found.pairs.values()):
        return found
    rows = {(pair.output, row) for pair in asked.values() for row in _open(pair).output.tolist()}
    columns = {(pair.input, column) for pair in asked.values() for column in _open(pair).input.tolist()}
    if len(rows) > LOST_ROWS or len(columns) > LOST_COLUMNS or short_of((POINTS + 1) * len(rows) + 2 * len(STEPS) * len(columns)):
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
    if len(rows) > LOST_ROWS:
        return pair
    with np.errstate(all="ignore"):
        for row in rows:
            own = np.flatnonzero(wrong.output == row)
            if not look.rounds_away(pair, row, wrong.input[own], wrong.analytic[own], reference((), row)[wrong.input[own]]):
                return pair
    return with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)


def _may_be_lost(pair: Pair, wishes: Wishes) -> bool:
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
