"""Where positions along an axis may have gone: transposes, shifts and, by signatures, any permutation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from gradverify.causes.pattern import Pattern, Side
from gradverify.numerics.rungs import Index
from gradverify.numerics.seeds import Seed

Way = tuple[str, str, Index]
"""The name of the cause, what happened in words around `{}`, and the map [elements] of a side (−1: nothing)."""


def along_axes(pattern: Pattern, side: Side, coordinate: Index, across: Index | None) -> Iterator[Way]:
    """Shifts along one axis and, by signatures, any permutation.

    `coordinate` [E]: of the side that moves; `across` [E]: of the other side, None where both move.
    """
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


def _matched(pattern: Pattern, side: Side, axis: int | None, coordinate: Index, across: Index | None) -> Index:
    """For each position of the analytic side the one of the numeric side with the same signature: a random sum over everything else.

    `across`: coordinates of the other side; None where both sides move, so that their positions must not enter the sum.
    """
    e, n = pattern.entries, side.length(axis)
    source = Seed().generator("signatures")
    rest = source.standard_normal(side.size)
    weight = rest[_without(side, axis, coordinate)]
    if across is None:
        weight = weight * rest[_without(side, axis, e.output)]
    else:
        weight = weight * source.standard_normal(max(pattern.input.size, pattern.output.size))[across]
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
