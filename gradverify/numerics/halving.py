"""Group testing by halves: from many places, of which one is at fault, to that one, with one
question a halving."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradverify.numerics.rungs import Index


def halved(places: Index, holds: Callable[[Index], bool], cut: int = 0) -> int:
    """The place [k ≥ 1] that is left when the half is followed that holds what is looked for:
    `holds` of the first half, else the second.

    `cut`: where the first question parts them instead of the middle.
    """
    while len(places) > 1:
        middle = cut if 0 < cut < len(places) else len(places) // 2
        places, cut = places[:middle] if holds(places[:middle]) else places[middle:], 0
    return int(places[0])


def most_off(places: Index, deviation: Callable[[Index], float], total: float) -> int:
    """The place at which a deviation sits, or most of it, where those of two halves add up to
    `total`: the half that is off by more is followed.

    One that is no number is the largest.
    """

    def is_larger(first: float, total: float) -> bool:
        second = total - first
        return not np.isfinite(first) or bool(np.isfinite(second) and abs(first) >= abs(second))

    return _followed(places, deviation, total, is_larger)


def half_off(places: Index, deviation: Callable[[Index], float], total: float, cut: int = 0) -> int:
    """The same, where the first half is followed if it is off by half of the total: the places that
    are suspected most come first."""

    def is_half(first: float, total: float) -> bool:
        return not abs(first) < abs(total) / 2 if np.isfinite(total) else first != 0

    return _followed(places, deviation, total, is_half, cut)


def _followed(
    places: Index,
    deviation: Callable[[Index], float],
    total: float,
    is_here: Callable[[float, float], bool],
    cut: int = 0,
) -> int:
    """The place that is left when a first half is followed where `is_here` says so, by its
    deviation and that of both halves together."""
    left = total

    def holds(half: Index) -> bool:
        nonlocal left
        first = deviation(half)
        here = is_here(first, left)
        left = first if here else left - first
        return here

    return halved(places, holds, cut)
