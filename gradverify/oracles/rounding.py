"""What backward, or another opinion, rounds away inside: a difference that no formula makes, as those of tanh(x) and 1 − 2 / (1 + exp(2x)) at 1e-10.

Every operation of both is rounded at random in its own dtype (stochastic arithmetic: Vignes, CESTAC, 1978), and the inputs by an ulp, which is what
code that leaves torch shows. What the gradient spreads by then is its bar. Where both can be had in float64, they must agree there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.function.coordinates import numbers
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import OPEN, Outcome, Pair
from gradverify.numerics.pairs.tally import Mismatches, mismatches, with_undecided
from gradverify.numerics.rungs import Array, Index, Z
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Filled, Gives, Jacobian, Wishes, rounded_anew
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.subject.wide import InDouble

# ---- The bar of a gradient that is compared with another one
Route = Callable[[Sequence[Tensor], int], Array]
"""The gradient's real coordinates at other inputs, of one output element of the pair."""
InFloat64 = tuple[Sequence[Tensor], Route, Route]
"""The inputs, and the gradient by either side."""
IN_DOUBLE = 2.0**-20    # of the bar in float32: what two right gradients may be off by in float64 (a rounding there is 2⁻²⁹ of one here)
ROWS = 256  # of a pair with mismatches, as far as they are explained: POINTS backwards each, by every route


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


def beside_rounding(pair: Pair, subject: Subject, routes: Sequence[Route], in_float64: Callable[[], InFloat64 | None] = lambda: None,
                    rtol: float = 0.0) -> Pair:
    """The pair with its mismatches undecided, where what the `routes` round inside explains each of them, the worst first.

    `in_float64`: both sides, which must agree there to `rtol`; asked for where rounding explains a row, None where one of them refuses float64."""
    wrong = mismatches(pair) if pair.count(Outcome.MISMATCH) else None
    if wrong is None:
        return pair
    off = np.abs(wrong.analytic - wrong.numeric)
    rows = list(dict.fromkeys(wrong.output[np.argsort(-off, kind="stable")].tolist()))
    if len(rows) > ROWS:
        return pair
    try:
        both = None
        for row in rows:
            own = np.flatnonzero(wrong.output == row)
            bar = Z * sum(_spread(subject, route, row)[wrong.input[own]] for route in routes)
            if not (off[own] <= bar + wrong.tolerance[own]).all():
                return pair
            both = both or in_float64()
            if both is not None:
                mine, theirs = (route(both[0], row)[wrong.input[own]] for route in both[1:])
                if not (np.abs(mine - theirs) <= rtol * np.abs(theirs) + IN_DOUBLE * bar).all():
                    return pair
    except UserCodeError:
        return pair
    return with_undecided(pair, Outcome.MISMATCH, Limit.ANALYTIC_NOISE)


def _spread(subject: Subject, route: Route, row: int) -> Array:
    """One standard deviation of a row of a gradient, as its operations and the inputs round at random. Raises UserCodeError."""
    sources = (generator(subject.case.settings.seed, subject.case.check, f"rounding {number}") for number in range(POINTS))
    found = [rounded_anew(source, subject.inputs, lambda moved: route(moved, row)) for source in sources]
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.std(found, 0, ddof=1)))


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
        if casts.count and apart <= ROUNDING:
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
