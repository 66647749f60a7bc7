"""The right numbers at the wrong places: transposed, shifted or permuted along an axis; or with the other sign of an imaginary part.

A move of the gradient permutes the inputs of the Jacobian, one of grad_output its outputs, one of a saved tensor both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from gradverify.causes.pattern import Pattern, Side
from gradverify.model.result import Cause
from gradverify.numerics.rungs import Array, Index, Mask

SAMPLE = 64  # wrong elements that a move must explain before all are asked
ARRIVED = 0.4  # of the wrong elements hold numbers from elsewhere: half of them where the right places of a sparse Jacobian are empty now
GRADIENT, COTANGENT, SAVED = "the gradient", "grad_output", "what forward saved"


@dataclass(frozen=True)
class Move:
    """analytic[o, i] = numeric[output[o], input[i]]; −1: zero. `what` was moved and how, in words."""

    name: str
    words: str
    output: Index
    input: Index


def explain(pattern: Pattern) -> Cause | None:
    if np.mean(pattern.entries.analytic[pattern.wrong] != 0) < ARRIVED:
        return None
    for move in _moves(pattern):
        if _fits(pattern, move):
            return Cause(move.name, f"analytic = numeric with {move.words} {pattern.everywhere}")
    return None


def conjugate(pattern: Pattern) -> Cause | None:
    """Signs by the parts of input and output: conj of the gradient, of grad_output, or of what it is multiplied with."""
    e = pattern.entries
    in_, out = (-1.0) ** (e.input % pattern.input.parts), (-1.0) ** (e.output % pattern.output.parts)
    for sign, what in ((in_ * out, "the derivative"), (in_, "the gradient"), (out, "grad_output")):
        if (sign < 0).any() and pattern.agrees(sign * e.numeric, e.bar):
            return Cause("missing conjugate", f"analytic = numeric {pattern.everywhere} once {what} is conjugated")
    return None


def _moves(pattern: Pattern) -> Iterator[Move]:
    rest_in, rest_out = np.arange(pattern.input.size), np.arange(pattern.output.size)
    for name, words, of in _ways(pattern, pattern.input, pattern.entries.input, pattern.entries.output):
        yield Move(name, words.format(GRADIENT), rest_out, pattern.input.lifted(of))
    if pattern.output.name:
        for name, words, of in _ways(pattern, pattern.output, pattern.entries.output, pattern.entries.input):
            yield Move(name, words.format(COTANGENT), pattern.output.lifted(of), rest_in)
    if pattern.output.shape == pattern.input.shape:
        for name, words, of in _ways(pattern, pattern.input, pattern.entries.input, None):
            yield Move(name, words.format(SAVED), pattern.output.lifted(of), pattern.input.lifted(of))


def _ways(pattern: Pattern, side: Side, coordinate: Index, across: Index | None) -> Iterator[tuple[str, str, Index]]:
    """Maps [elements] of a side: transposes, shifts and, by signatures, any permutation along one axis."""
    yield from _transposes(side)
    for axis in side.axes():
        along = f" along axis {axis}" if axis is not None and len(side.shape) > 1 else ""
        for steps in (1, -1, 2, -2):
            if abs(steps) < side.length(axis):
                yield "shifted", f"{{}} shifted by {steps}{along}", _rolled(side, axis, steps, wrap=True)
                yield "shifted", f"{{}} shifted by {steps}{along}, zeros moved in", _rolled(side, axis, steps, wrap=False)
        order = _matched(pattern, side, axis, coordinate, across)
        shift = _steps(order)
        if shift is not None:
            yield "shifted", f"{{}} shifted by {shift}{along}", _taken(side, axis, order)
        else:
            yield "permuted", f"{{}} permuted{along} ({_order_words(order)})", _taken(side, axis, order)


def _transposes(side: Side) -> Iterator[tuple[str, str, Index]]:
    """Two axes exchanged: read so, or, where that has another shape, laid out so and read as it was."""
    places = np.arange(side.elements)
    for a, b in combinations([axis for axis, n in enumerate(side.shape) if n > 1], 2):
        swapped = list(side.shape)
        swapped[a], swapped[b] = swapped[b], swapped[a]
        words = "{} transposed" if len(side.shape) == 2 else f"{{}} with axes {a} and {b} exchanged"
        yield "transposed", words, places.reshape(side.shape).swapaxes(a, b).reshape(-1)
        if side.shape[a] != side.shape[b]:
            yield "transposed", words, places.reshape(swapped).swapaxes(a, b).reshape(-1)


def _rolled(side: Side, axis: int | None, steps: int, wrap: bool) -> Index:
    n = side.length(axis)
    order = np.arange(n) - steps
    return _taken(side, axis, order % n if wrap else np.where((order < 0) | (order >= n), -1, order))


def _taken(side: Side, axis: int | None, order: Index) -> Index:
    """The map that takes position order[k] to k along an axis."""
    places = np.arange(side.elements)
    if axis is None or not side.shape:
        return order
    taken = np.take(places.reshape(side.shape), np.maximum(order, 0), axis)
    shape = [1] * len(side.shape)
    shape[axis] = -1
    return np.where(order.reshape(shape) < 0, -1, taken).reshape(-1)


def _matched(pattern: Pattern, side: Side, axis: int | None, coordinate: Index, across: Index | None) -> Index:
    """For each position of the analytic side the one of the numeric side with the same signature: a random sum over everything else.

    `across`: coordinates of the other side; None where both sides move, so that their positions must not enter the sum.
    """
    e, n = pattern.entries, side.length(axis)
    random = np.random.default_rng(0)
    rest = random.standard_normal(side.size)
    weight = rest[_without(side, axis, coordinate)]
    if across is None:
        weight = weight * rest[_without(side, axis, e.output)]
    else:
        weight = weight * random.standard_normal(max(pattern.input.size, pattern.output.size))[across]
    position = side.along(axis, coordinate)
    analytic, numeric = (np.bincount(position, np.nan_to_num(values * weight), n) for values in (e.analytic, e.numeric))
    order = np.empty(n, np.intp)
    order[np.argsort(analytic, kind="stable")] = np.argsort(numeric, kind="stable")
    return order


def _without(side: Side, axis: int | None, coordinate: Index) -> Index:
    """Coordinates with their position along an axis set to 0."""
    if axis is None:
        return coordinate % side.parts
    stride = int(np.prod(side.shape[axis + 1 :], dtype=int)) * side.parts
    return coordinate - side.along(axis, coordinate) * stride


def _steps(order: Index) -> int | None:
    """By how much a permutation shifts all positions, the short way round; None where it is no shift."""
    n = len(order)
    steps = int((-order[0]) % n)
    if n < 2 or not ((np.arange(n) - steps) % n == order).all():
        return None
    return steps if steps <= n // 2 else steps - n


def _order_words(order: Index) -> str:
    if (order == np.arange(len(order))[::-1]).all():
        return "reversed"
    shown = ", ".join(map(str, order[:6].tolist()))
    return f"{shown}, …" if len(order) > 6 else shown


def _fits(pattern: Pattern, move: Move) -> bool:
    e = pattern.entries
    some = np.flatnonzero(pattern.wrong)
    some = some[:: max(1, len(some) // SAMPLE)]
    chosen = np.zeros(len(e.output), bool)
    chosen[some] = True
    if not _explains(pattern, move, chosen):
        return False
    return _explains(pattern, move, ~pattern.unknown) and _nothing_lost(pattern, move)


def _explains(pattern: Pattern, move: Move, where: Mask) -> bool:
    e = pattern.entries
    value, bar = np.zeros(len(e.output)), np.zeros(len(e.output))
    i = np.flatnonzero(where)
    value[i], bar[i], found = pattern.numeric(move.output[e.output[i]], move.input[e.input[i]])
    known: Mask = (found < 0) | ~pattern.unknown[found]
    usable = where.copy()
    usable[i] = known
    return bool((~usable & where & pattern.wrong).sum() == 0) and pattern.agrees(value, bar, usable)


def _nothing_lost(pattern: Pattern, move: Move) -> bool:
    """Does every number that the move takes somewhere stand there? A zero there would not be among the elements."""
    e = pattern.entries
    large = _large(pattern)
    expected = _times(move.output, pattern.output.size)[e.output[large]] * _times(move.input, pattern.input.size)[e.input[large]]
    _, _, found = pattern.numeric(move.output[e.output], move.input[e.input])
    return bool(large[found[found >= 0]].sum() == expected.sum())


def _large(pattern: Pattern) -> Mask:
    e = pattern.entries
    return np.asarray(np.abs(e.numeric) > 3 * (e.bar + pattern.dust))


def _times(gather: Index, n: int) -> Array:
    """How often each coordinate is taken."""
    return np.bincount(gather[gather >= 0], minlength=n).astype(float)
