"""Numbers and places of a tensor in words."""

from __future__ import annotations

from fractions import Fraction

from gradverify.causes.pattern import Side

LARGEST_DENOMINATOR = 12
ROUND = 1e-9  # relative: a factor this near to a fraction is that fraction

NEAR = 1e-6  # of 1: seven digits show no such deviation


def exact(c: float) -> bool:
    """Is it a fraction of small numbers?"""
    fraction = Fraction(c).limit_denominator(LARGEST_DENOMINATOR)
    return fraction != 0 and abs(c - fraction) <= ROUND * abs(c)


def factor(c: float) -> str:
    """`2.0000` and `0.3333 (1/3)` where it is one exactly, `2.0002`, `-1.000002`, `(1 + 1.7e-08)` where its digits do not show it."""
    if exact(c):
        fraction = Fraction(c).limit_denominator(LARGEST_DENOMINATOR)
        return f"{c:.4f} ({fraction})" if fraction.denominator > 2 else f"{c:.4f}"
    return f"{c:.7g}" if abs(c - 1) >= NEAR else f"(1 {'+' if c > 1 else '−'} {abs(c - 1):.3g})"


def axis_name(side: Side, axis: int | None) -> str:
    """What one position along an axis is called: `row`, `column`, `element`, or `index of axis 2`."""
    if axis is None or len(side.shape) == 1:
        return "element"
    if len(side.shape) == 2:
        return "row" if axis == 0 else "column"
    return f"index of axis {axis}"


def slices(side: Side, axis: int | None, first: int, last: int) -> str:
    """`row 3 of x`, `columns 64 to 79 of x`, `indices 0 to 2 of axis 1 of x`: the positions first … last along an axis."""
    word = axis_name(side, axis)
    head, *rest = word.split(" ")
    if first == last:
        return " ".join([head, f"{first}", *rest, "of", side.name])
    plural = "indices" if head == "index" else f"{head}s"
    return " ".join([plural, f"{first} to {last}", *rest, "of", side.name])
