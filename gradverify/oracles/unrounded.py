"""What a function does without its own roundings to 16 or 32 bits: where those make it move in steps, a mismatch beside open elements may be theirs.

A forward that casts to bfloat16 inside is flat over every small step, and its larger differences are off by whole treads. Some elements are then seen
to move in steps, and are open; others meet no step, and look wrong. They are open too where backward is right for the same forward with those casts
left out (`subject.disguised.Lifted`), if that has the same values but for the rounding; a gradient that is wrong there stays wrong. A gradient of
zeros, which a flat f seems to confirm, is open where the forward without its casts moves.

So are they beside open ones where numbers cancel in a float32 function (a variance as E[x²] − E[x]², (1 − cos x) / x): it moves in steps too, and its
backward reads what is left of them, and may be as far off as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from torch import Tensor

from gradverify.numerics.function.flat import numbers
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import OPEN, Outcome, Pair
from gradverify.numerics.pairs.revised import Mismatches, mismatches, with_undecided
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Filled, Gives, Jacobian, Wishes
from gradverify.subject.failure import UserCodeError
from gradverify.subject.wide import InDouble

STEP = 2.0**-13     # of |x|, or of its tensor's root mean square if that is larger: without the casts f is smooth to about 1e-8 of that
ROUNDING = 2.0**-6  # of the largest output: by how much the values may differ without the casts; four roundings of bfloat16
SHARE = 2.0**-5     # of the largest derivative of the column: what backward may be off; eight roundings of bfloat16
LOST = 0.5          # of the largest output: float32 may take so much of f; of more it has lost f
TIMES = 16.0        # the share of f that float32 takes, backward may lose (measured: up to 10, of a variance as E[x²] − E[x]²)
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
        elif narrow and apart <= LOST:
            share = max(apart, min(SHARE, TIMES * apart))
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
