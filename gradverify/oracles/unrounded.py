"""What a function does without its own roundings to 16 or 32 bits: where those make it move in steps, a mismatch beside open elements may be theirs.

A forward that casts to bfloat16 inside is flat over every small step, and its larger differences are off by whole treads. Some elements are then seen
to move in steps, and are open; others meet no step, and look wrong. They are open too where backward is right for the same forward with those casts
left out (`subject.disguised.Lifted`), if that has the same values but for the rounding; a gradient that is wrong there stays wrong. A gradient of
zeros, which a flat f seems to confirm, is open where the forward without its casts moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.columns.tally import Outcome, Pair
from gradverify.numerics.function.flat import numbers, one_hot, rms
from gradverify.numerics.revised import Wrong, mismatches, undecided
from gradverify.numerics.rungs import Array
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Gives, Jacobian, Wishes
from gradverify.subject.failure import UserCodeError
from gradverify.subject.wide import InDouble

STEP = 2.0**-13     # of |x|, or of its tensor's root mean square if that is larger: without the casts f is smooth to about 1e-8 of that
ROUNDING = 2.0**-6  # of the largest output: by how much the values may differ without the casts; four roundings of bfloat16
SHARE = 2.0**-5     # of the largest derivative of the column: what backward may be off; eight roundings of bfloat16
COLUMNS = 32        # of a pair that are looked at: those of the worst mismatches
OPEN = (Outcome.UNDECIDED, Outcome.STAIRCASE)


def steps_left_open(found: Jacobian, checked: Gives, outputs: Sequence[Tensor], wishes: Wishes, casts: InDouble,
                    unrounded: Callable[[], Gives]) -> Jacobian:
    """The comparison, in which mismatches are undecided that the function's own rounding accounts for, and zeros that it hides a slope behind.

    Asked only where a pair has open elements beside mismatches, or a gradient that is zero throughout: a call, and for each such pair a backward
    per mismatched row and two calls per column, COLUMNS at most. `checked`: the function whose backward was compared, with its `outputs`;
    `unrounded`: the same in float64, whose casts to less are lifted, and counted, by `casts`."""
    wrong = [key for key, pair in found.pairs.items() if pair.count(Outcome.MISMATCH) and any(map(pair.count, OPEN)) and not wishes.symmetric[key[0]]]
    still = [key for key, pair in found.pairs.items() if _is_zero(pair)]
    if not (wrong or still) or found.choice is None:
        return found
    try:
        function = unrounded()
        if not _alike(outputs, function.values(function.inputs)) or not casts.count:
            return found
        steps = {key: Outcome.MISMATCH for key in wrong if _is_right(found.pairs[key], _Rows(checked, outputs, key), function)}
        steps |= {key: Outcome.PASS for key in still if _moves(function, *key)}
    except UserCodeError:
        return found
    return replace(found, pairs={**found.pairs, **{key: undecided(found.pairs[key], what, Limit.STAIRCASE) for key, what in steps.items()}})


def _is_zero(pair: Pair) -> bool:
    """Did something pass, and is the gradient zero throughout?"""
    seen = pair.entries
    if pair.count(Outcome.MISMATCH) or not pair.count(Outcome.PASS):
        return False
    return pair.largest == 0 if seen is None or not seen.complete else not seen.analytic.any()


def _alike(outputs: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """The same values, but for the rounding of 16 bits?"""
    if [y.shape for y in outputs] != [y.shape for y in theirs]:
        return False
    for mine, other in zip(map(numbers, outputs), map(numbers, theirs), strict=True):
        finite = np.isfinite(mine)
        if (finite != np.isfinite(other)).any() or (np.abs(mine - other)[finite] > ROUNDING * np.abs(mine[finite]).max(initial=0.0)).any():
            return False
    return True


class _Rows:
    """Rows of the Jacobian of one input and output, each pulled back by itself: where a flat f hid a dependence, rows shared a backward."""

    def __init__(self, checked: Gives, outputs: Sequence[Tensor], key: tuple[int, int]) -> None:
        self._checked, self._outputs, (self._input, self._output) = checked, outputs, key
        self._known = dict[int, Array]()

    def __call__(self, row: int) -> Array:
        if row not in self._known:
            y, cotangents = self._outputs[self._output], list[Tensor | None]([None] * len(self._outputs))
            cotangents[self._output] = one_hot(y.shape, y.dtype, y.device, row)
            gradient = self._checked.vjp(cotangents)[self._input]
            self._known[row] = numbers(torch.zeros_like(self._checked.inputs[self._input]) if gradient is None else gradient)
        return self._known[row]


def _is_right(pair: Pair, rows: _Rows, function: Gives) -> bool:
    """Is every mismatch that is looked at the derivative without the casts, to SHARE?"""
    wrong = mismatches(pair)
    if wrong is None:
        return False
    for column in _worst_columns(wrong):
        derivative = _column(function, pair.input, int(column), pair.output)
        own = wrong.output[wrong.input == column]
        reach = np.nan_to_num(np.abs(derivative), posinf=0.0).max(initial=0.0)
        analytic = np.array([rows(row)[column] for row in own.tolist()])
        if not (np.abs(analytic - derivative[own]) <= SHARE * reach).all():
            return False
    return True


def _worst_columns(wrong: Wrong) -> list[int]:
    order = np.argsort(-np.abs(wrong.analytic - wrong.numeric), kind="stable")
    return list(dict.fromkeys(wrong.input[order].tolist()))[:COLUMNS]


def _moves(function: Gives, tensor: int, output: int) -> bool:
    """Does an output move, beyond rounding, where a whole input does, each element to another side than the next?"""
    x = numbers(function.inputs[tensor])
    by = STEP * np.maximum(np.abs(x), rms(np.abs(x)) or 1.0) * (-1.0) ** np.arange(len(x))
    ends = [numbers(function.values(_moved(function.inputs, tensor, slice(None), side * by))[output]) for side in (1, -1)]
    with np.errstate(invalid="ignore"):
        return bool((np.abs(ends[0] - ends[1]) > STEP**2 * np.nan_to_num(np.abs(ends[0]), posinf=0.0).max(initial=0.0)).any())


def _column(function: Gives, tensor: int, column: int, output: int) -> Array:
    """The central difference of one output [m] along one real coordinate of an input."""
    x = numbers(function.inputs[tensor])
    h = STEP * (max(abs(float(x[column])), rms(np.abs(x))) or 1.0)
    ends = [numbers(function.values(_moved(function.inputs, tensor, column, side))[output]) for side in (h, -h)]
    return np.asarray((ends[0] - ends[1]) / (2 * h))


def _moved(inputs: Sequence[Tensor], tensor: int, where: int | slice, by: float | Array) -> list[Tensor]:
    moved = [x.detach().clone(memory_format=torch.contiguous_format) for x in inputs]
    flat = torch.view_as_real(moved[tensor]) if moved[tensor].is_complex() else moved[tensor]
    flat.view(-1)[where] += torch.as_tensor(by, dtype=flat.dtype, device=flat.device)
    return [x.requires_grad_() for x in moved]
