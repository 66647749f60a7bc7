"""The right numbers at the wrong places: transposed or shifted along an axis; or with the other sign of an imaginary part.

A move of the gradient permutes the inputs of the Jacobian, one of grad_output its outputs, one of a saved tensor both; a matrix operand that was
transposed exchanges positions of input and output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import prod

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, Side
from gradverify.model.result import Cause
from gradverify.numerics.rungs import Array, Index, Mask

SAMPLE = 64  # wrong elements that a move must explain before all are asked
ARRIVED = 0.4  # of the wrong elements hold numbers from elsewhere: half of them where the right places of a sparse Jacobian are empty now
ENOUGH = 4  # wrong elements that a transpose or a shift must explain, of which there are a dozen or two
GRADIENT, COTANGENT, SAVED = "the gradient", "grad_output", "what forward saved"
BOTH = "grad_output and the gradient"       # what moves with what was saved, where an output depends on more than the input at its place


@dataclass(frozen=True)
class Move:
    """analytic[o, i] = numeric[o', i'] with (o', i') = `places`(o, i); −1: zero. `words`: what was moved and how.

    `taken`: (o, i) → how often numeric[o, i] is taken. `freedom`: wrong elements that it must explain.
    """

    name: str
    words: str
    places: Callable[[Index, Index], tuple[Index, Index]]
    taken: Callable[[Index, Index], Array]
    freedom: int = ENOUGH


def explain(pattern: Pattern) -> Iterator[Claim]:
    yield from _claims(pattern, _shifted)


def transposed(pattern: Pattern) -> Iterator[Claim]:
    yield from _claims(pattern, _transposed)


def _claims(pattern: Pattern, moves: Callable[[Pattern], Iterator[Move]]) -> Iterator[Claim]:
    if np.mean(pattern.entries.analytic[pattern.wrong] != 0) < ARRIVED:
        return
    for move in moves(pattern):
        if _fits(pattern, move):
            yield partial(_confirmed, Cause(move.name, f"analytic = numeric with {move.words} {pattern.everywhere}"), move)


def _confirmed(cause: Cause, move: Move, there: Pattern) -> Cause | None:
    return cause if _fits(there, move) else None


def conjugate(pattern: Pattern) -> Iterator[Claim]:
    """Signs by the parts of input and output: conj of the gradient, of grad_output, or of what it is multiplied with."""
    for what in ("the derivative", "the gradient", "grad_output"):
        if _conjugated(pattern, what):
            cause = Cause("missing conjugate", f"analytic = numeric {pattern.everywhere} once {what} is conjugated")
            yield partial(_conjugated_too, cause, what)


def _conjugated_too(cause: Cause, what: str, there: Pattern) -> Cause | None:
    return cause if _conjugated(there, what) else None


def _conjugated(pattern: Pattern, what: str) -> bool:
    e = pattern.entries
    in_, out = (-1.0) ** (e.input % pattern.input.parts), (-1.0) ** (e.output % pattern.output.parts)
    sign = {"the derivative": in_ * out, "the gradient": in_, "grad_output": out}[what]
    return bool((sign < 0).any()) and pattern.agrees(sign * e.numeric, e.bar)


# ---- moves
def _transposed(pattern: Pattern) -> Iterator[Move]:
    for moved, side, put in _movable(pattern):
        yield from (put(moved, way) for way in transposes(side))
    yield from _exchanged(pattern)


def _shifted(pattern: Pattern) -> Iterator[Move]:
    for moved, side, put in _movable(pattern):
        yield from (put(moved, way) for way in shifts(side))


def _movable(pattern: Pattern) -> Iterator[tuple[str, Side, Callable[[str, Way], Move]]]:
    """What may have moved, the side whose positions move, and how a way of them becomes a move."""
    rest_in, rest_out = np.arange(pattern.input.size), np.arange(pattern.output.size)
    each = bool((pattern.entries.input == pattern.entries.output)[pattern.significant].all())

    def put(moved: str, way: Way) -> Move:
        name, words, of = way
        out = rest_out if moved == GRADIENT else pattern.output.lifted(of)
        in_ = rest_in if moved == COTANGENT else pattern.input.lifted(of)
        return _separate(name, words.format(BOTH if moved == SAVED and not each else moved), out, in_, min(ENOUGH, max(len(rest_in), len(rest_out))))

    yield GRADIENT, pattern.input, put
    if pattern.output.name:
        yield COTANGENT, pattern.output, put
    if pattern.output.shape == pattern.input.shape and pattern.output.parts == pattern.input.parts:
        yield SAVED, pattern.input, put


def _separate(name: str, words: str, out: Index, in_: Index, freedom: int) -> Move:
    times_out, times_in = _times(out, len(out)), _times(in_, len(in_))
    return Move(name, words, lambda o, i: (out[o], in_[i]), lambda o, i: times_out[o] * times_in[i], freedom)


def _exchanged(pattern: Pattern) -> Iterator[Move]:
    """The matrix between one axis of the input and one of the output transposed."""
    x, y = pattern.input, pattern.output
    if x.parts != y.parts:
        return
    for a, b in ((a, b) for a in range(len(y.shape) - 1, -1, -1) for b in range(len(x.shape) - 1, -1, -1)):
        if y.shape[a] == x.shape[b] > 1:
            words = f"the matrix between axis {b} of {x.name} and axis {a} of {y.name} transposed, W where Wᵀ belongs,"
            yield Move("transposed", words, partial(_exchange, y, a, x, b), lambda o, i: np.ones(len(o)))


def _exchange(y: Side, a: int, x: Side, b: int, o: Index, i: Index) -> tuple[Index, Index]:
    steps = x.along(b, i) - y.along(a, o)
    return o + steps * prod(y.shape[a + 1 :]) * y.parts, i - steps * prod(x.shape[b + 1 :]) * x.parts


# ---- ways to move along the axes of a side
Way = tuple[str, str, Index]
"""The name of the cause, what happened in words around `{}`, and the map [elements] of a side (−1: nothing)."""


def shifts(side: Side) -> Iterator[Way]:
    """By one or two positions along one axis, around or with zeros moved in."""
    for axis in side.axes():
        along = f" along axis {axis}" if axis is not None and len(side.shape) > 1 else ""
        for steps in (1, -1, 2, -2):
            if abs(steps) < side.length(axis):
                yield "shifted", f"{{}} shifted by {steps}{along}", _rolled(side, axis, steps, wrap=True)
                yield "shifted", f"{{}} shifted by {steps}{along}, zeros moved in", _rolled(side, axis, steps, wrap=False)


def transposes(side: Side) -> Iterator[Way]:
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


# ---- do they explain it?
def _fits(pattern: Pattern, move: Move) -> bool:
    e = pattern.entries
    some = np.flatnonzero(pattern.wrong)
    if len(some) < move.freedom:
        return False
    chosen = np.zeros(len(e.output), bool)
    chosen[some[:: max(1, len(some) // SAMPLE)]] = True
    return _explains(pattern, move, chosen) and _explains(pattern, move, ~pattern.unknown) and _nothing_lost(pattern, move)


def _explains(pattern: Pattern, move: Move, where: Mask) -> bool:
    e = pattern.entries
    value, bar = np.zeros(len(e.output)), np.zeros(len(e.output))
    i = np.flatnonzero(where)
    value[i], bar[i], found = pattern.numeric(*move.places(e.output[i], e.input[i]))
    known: Mask = (found < 0) | ~pattern.unknown[found]
    usable = where.copy()
    usable[i] = known
    return bool((~usable & where & pattern.wrong).sum() == 0) and pattern.agrees(value, bar, usable)


def _nothing_lost(pattern: Pattern, move: Move) -> bool:
    """Does every number that the move takes somewhere stand there? A zero there would not be among the elements."""
    e = pattern.entries
    large = _large(pattern)
    expected = move.taken(e.output[large], e.input[large])
    _, _, found = pattern.numeric(*move.places(e.output, e.input))
    return bool(large[found[found >= 0]].sum() == expected.sum())


def _large(pattern: Pattern) -> Mask:
    e = pattern.entries
    return np.asarray(np.abs(e.numeric) > 3 * (e.bar + pattern.dust))


def _times(gather: Index, n: int) -> Array:
    """How often each coordinate is taken."""
    return np.bincount(gather[gather >= 0], minlength=n).astype(float)


EXPLANATIONS = (Explanation(20, conjugate), Explanation(80, transposed), Explanation(110, explain))
REMEDIES = {
    "missing conjugate": "multiply grad_output by the conjugate of the derivative: `.conj()`",
    "transposed": "look for a transpose that is missing or one too many: of a matrix that is multiplied by, `.mT`, or of the result",
    "shifted": "each number is that of another element: backward must send it back to where forward took it from",
}
