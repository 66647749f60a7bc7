"""Group testing by halves: from many places, of which one is at fault, to that place, with one
evaluation per halving."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradverify.numerics.rungs import Index


def most_off(places: Index, deviation: Callable[[Index], float], total: float) -> int:
    """Return the place with the deviation, or most of it, where the deviations of two halves add up
    to `total`: the half with the larger one is followed. A deviation that is NaN or infinite is the
    largest."""

    def is_larger(first: float, total: float) -> bool:
        second = total - first
        return not np.isfinite(first) or bool(np.isfinite(second) and abs(first) >= abs(second))

    return _followed(places, deviation, total, is_larger)


def half_off(places: Index, deviation: Callable[[Index], float], total: float, cut: int = 0) -> int:
    """Return the place with the deviation, following the first half if it has half of the total:
    the likeliest places come first."""

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
    """Return the place that remains when the first half is followed where `is_here(its deviation,
    total)`.

    `cut`: where the first evaluation splits the places, instead of in the middle.
    """
    while len(places) > 1:
        middle = cut if 0 < cut < len(places) else len(places) // 2
        first = deviation(places[:middle])
        here = is_here(first, total)
        places = places[:middle] if here else places[middle:]
        total = first if here else total - first
        cut = 0
    return int(places[0])
