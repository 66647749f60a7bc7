"""Group testing by halves: from many places, of which one is at fault, to that one, with one question a halving."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradverify.numerics.rungs import Index


def halved(places: Index, holds: Callable[[Index], bool], cut: int = 0) -> int:
    """The place [k ≥ 1] that is left when the half is followed that holds what is looked for: `holds` of the first half, else the second.

    `cut`: where the first question parts them instead of the middle.
    """
    while len(places) > 1:
        middle = cut if 0 < cut < len(places) else len(places) // 2
        places, cut = places[:middle] if holds(places[:middle]) else places[middle:], 0
    return int(places[0])


def most_off(places: Index, deviation: Callable[[Index], float], total: float) -> int:
    """The place at which a deviation sits, or most of it, where those of two halves add up to `total`: the half that is off by more is followed.

    One that is no number is the largest.
    """
    rest = total

    def holds(half: Index) -> bool:
        nonlocal rest
        first = deviation(half)
        other = rest - first
        here = not np.isfinite(first) or bool(np.isfinite(other) and abs(first) >= abs(other))
        rest = first if here else other
        return here

    return halved(places, holds)
