"""Colours of heat maps: signed values from blue over white to red, errors from pale to dark on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from gradverify.report.html.png import Colour

SIGNED: Sequence[Colour] = ((33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43))      # ColorBrewer RdBu, reversed
ERRORS: Sequence[Colour] = ((255, 245, 200), (253, 174, 97), (215, 48, 39), (103, 0, 31))       # pale to dark: readable without colour too
RIGHT: Colour = (238, 240, 242)
NOT_A_NUMBER: Colour = (200, 0, 200)
STRIP = 64          # cells of a colour bar
DECADES = 6         # of errors that are told apart below the largest one


def signed(value: float, limit: float) -> Colour:
    """`limit` > 0: the size of value from which on the colour is the strongest."""
    return NOT_A_NUMBER if math.isnan(value) else _between(SIGNED, (max(-1.0, min(1.0, value / limit)) + 1) / 2)


def error(value: float, largest: float) -> Colour:
    """0 is what is not wrong; `largest` the largest finite error."""
    if value == 0:
        return RIGHT
    if math.isnan(value):
        return NOT_A_NUMBER
    return _between(ERRORS, 1.0 if value >= largest else max(0.0, 1 + (math.log10(value) - math.log10(largest)) / DECADES))


def strip(colours: Sequence[Colour]) -> list[list[Colour]]:
    """A colour bar, the strongest colour on top."""
    return [[_between(colours, 1 - place / (STRIP - 1))] for place in range(STRIP)]


def _between(colours: Sequence[Colour], place: float) -> Colour:
    """`place` 0 is the first colour, 1 the last."""
    first = min(int(place * (len(colours) - 1)), len(colours) - 2)
    low, high = list(pairwise(colours))[first]
    share = place * (len(colours) - 1) - first
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return red, green, blue
