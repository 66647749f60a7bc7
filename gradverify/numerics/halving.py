"""Group testing by halves: from many places, of which one is at fault, to that one, with one
question a halving."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradverify.numerics.rungs import Index


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
    deviation and that of both halves together.

    `cut`: where the first question parts them instead of the middle."""
    while len(places) > 1:
        middle = cut if 0 < cut < len(places) else len(places) // 2
        first = deviation(places[:middle])
        here = is_here(first, total)
        places = places[:middle] if here else places[middle:]
        total = first if here else total - first
        cut = 0
    return int(places[0])
