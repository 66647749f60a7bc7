"""Wrong only somewhere: a block of positions, the border, or where the value of a tensor lies on one side of a threshold.

A region is believed when it separates more elements than its family has members: one of 2ᵏ families of n regions separates n + k elements by
chance once in 2⁵.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import log2

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, Side
from gradverify.causes.words import factor, slices
from gradverify.model.result import Cause
from gradverify.numerics.rungs import Array, Index, Mask

SURPRISE = 5.0  # bits: 1 in 32 by chance
TILES = (128, 64, 32, 16)
SEVERAL = 2  # wrong elements: of one alone the finding itself says where it is
WIDTHS = (1, 2)  # of a border
OF_VALUES = ("mask", "threshold")  # of several tensors whose values separate the elements the first is named: the output depends on the inputs


@dataclass(frozen=True)
class Region:
    """Where all wrong elements are and no right one. `natural`: a place that code has a reason for (a tile, a row, a border, zero).

    `written`: of the gradient, which backward writes, and not of an output, of which it reads grad_output. `low`, `high`: between them lies the
    threshold of a family of that name; `beyond`: of what, and on which side, it is wrong.
    """

    words: str
    family: str
    natural: bool
    detail: str = ""
    low: float = 0.0
    high: float = 0.0
    beyond: tuple[str, str] = ("", "")
    written: bool = True


def explain(pattern: Pattern) -> Iterator[Claim]:
    """What happens there must be one thing: zeros, or one factor."""
    content = _content(pattern)
    if content is not None:
        yield from _claims(pattern, content, natural=False)


def natural(pattern: Pattern) -> Iterator[Claim]:
    """The same, at a place that code has a reason for."""
    content = _content(pattern)
    if content is not None:
        yield from _claims(pattern, content, natural=True)


def anything(pattern: Pattern) -> Iterator[Claim]:
    """Only the place, whatever stands there: one that code has a reason for."""
    yield from _claims(pattern, "is wrong", natural=True)


def _claims(pattern: Pattern, content: str, natural: bool) -> Iterator[Claim]:
    found = _chosen(pattern, natural)
    if found:
        yield partial(_confirmed, pattern, content, natural, found)


def _confirmed(pattern: Pattern, content: str, natural: bool, found: list[Region], there: Pattern) -> Cause | None:
    """Of the regions at both points; no cause where two of them explain it alike."""
    if content not in ("is wrong", _content(there)):
        return None
    again = _chosen(there, natural)
    both = [met for region in found for other in again if (met := _met(region, other)) is not None and (met.natural or not natural)]
    both = [region for region in both if region.natural] or both
    if not both or len({region.family in OF_VALUES or region.family for region in both}) > 1:
        return None
    region = both[0]
    unwritten = "zero block" if region.written else "unread block"
    block = unwritten if content == "is 0" else "wrong block"
    name = {"block": block, "border": "wrong at the border"}.get(region.family, f"wrong only {region.words}")
    return Cause(name, f"analytic {content} {region.words}{region.detail}, {pattern.everywhere}; the rest of {pattern.pair} is right")


def _chosen(pattern: Pattern, natural: bool) -> list[Region]:
    if pattern.count < SEVERAL or not (pattern.right & pattern.significant).any():
        return []
    return [region for region in _regions(pattern) if region.natural or not natural]


def _met(one: Region, other: Region) -> Region | None:
    """The region of both points: the same words, or thresholds that may be the same number."""
    if one.family != "threshold" or other.family != "threshold":
        return one if (one.words, one.family) == (other.words, other.family) else None
    low, high = max(one.low, other.low), min(one.high, other.high)
    return _beyond(*one.beyond, low, high) if one.beyond == other.beyond and low < high else None


def _content(pattern: Pattern) -> str | None:
    nothing = np.zeros(len(pattern.wrong))
    if pattern.agrees(nothing, nothing, pattern.wrong):
        return "is 0"
    c = pattern.factor(pattern.wrong)
    return f"is {factor(c)} × numeric" if c is not None and pattern.scaled_by(c, pattern.wrong) else None


def _regions(pattern: Pattern) -> Iterator[Region]:
    right = pattern.right & pattern.significant
    for side, coordinate in ((pattern.input, pattern.entries.input), (pattern.output, pattern.entries.output)):
        if not side.name:
            continue
        bad, good = coordinate[pattern.wrong], coordinate[right]
        cells = len(np.unique(np.concatenate([bad, good]) // side.parts))
        block = next((b for axis in side.axes() if (b := _block(side, axis, bad, good, cells)) is not None), None)
        border = None if block else _border(side, bad, good, cells)
        border = border or (None if block else _both(pattern, right))
        yield from (replace(region, written=side is pattern.input) for region in (block, border) if region)
        for value in pattern.values if not side.complex else ():
            spread = value.over(side.shape)
            where = None if spread is None else _threshold(value.name, spread[bad], spread[good], min(cells, value.numbers.size))
            if where is not None:
                yield where


# ---- blocks
def _block(side: Side, axis: int | None, bad: Index, good: Index, cells: int) -> Region | None:
    """Positions first … last of an axis are all wrong, the others all right; the family: rows, heads, tails, then runs."""
    n = side.length(axis)
    wrong, right = np.unique(side.along(axis, bad)), np.unique(side.along(axis, good))
    first, last = int(wrong[0]), int(wrong[-1])
    if ((right >= first) & (right <= last)).any():
        return None
    first = 0 if not (right < first).any() else first
    ends_late = not (right > last).any()
    last = n - 1 if ends_late else last
    single, tail = first == last, ends_late and first != 0
    members = 3 * n if single or tail or first == 0 else n * n / 2
    if not _convincing(cells, members):
        return None
    at_end = (tail or first == 0) and 2 * (last - first + 1) <= n      # more than half: it is the rest that is another case
    tile = next((tile for tile in TILES if tail and first % tile == 0), None)
    detail = f" ({first} is a multiple of {tile}: the tail of a tile)" if tile else ""
    return Region(f"in {slices(side, axis, first, last)}", "block", bool(tile) or (axis is not None and (single or at_end)), detail)


def _border(side: Side, bad: Index, good: Index, cells: int) -> Region | None:
    axes = [axis for axis in range(len(side.shape)) if side.shape[axis] > 1]
    sets = [axes, axes[-2:], *([axis] for axis in axes)]
    for width in WIDTHS:
        for chosen in sets:
            inner = 2 * width if len(chosen) == 1 else 1    # of three positions two are no border: a weight of ½ makes the middle one another
            wide = [axis for axis in chosen if side.shape[axis] >= 2 * width + inner]
            if wide == chosen and chosen and _near(side, chosen, width, bad).all() and not _near(side, chosen, width, good).any():
                if not _convincing(cells, len(WIDTHS) * len(sets)):
                    return None
                over = f"axis {chosen[0]}" if len(chosen) == 1 else f"axes {', '.join(map(str, chosen))}"
                return Region(f"in the outermost {width} of {over} of {side.name}" if len(side.shape) > 1
                              else f"in the first and last {width} of {side.name}", "border", True)
    return None


def _both(pattern: Pattern, right: Mask) -> Region | None:
    """Elements whose input and output lie at the border along the same axis: what a padded window reads twice."""
    x, y, e = pattern.input, pattern.output, pattern.entries
    long = [axis for axis in range(min(len(x.shape), len(y.shape))) if min(x.shape[axis], y.shape[axis]) > 2]
    for axes in [*([axis] for axis in long), long[-2:]]:
        near = np.zeros(len(e.input), bool)
        for axis in axes:
            near |= _near(x, [axis], 1, e.input) & _near(y, [axis], 1, e.output)
        if near[pattern.wrong].all() and not near[right].any() and _convincing(int((pattern.wrong | right).sum()), len(x.shape)):
            over = f"axis {axes[0]}" if len(axes) == 1 else f"axis {axes[0]} or {axes[1]}"
            return Region(f"where {x.name} and {y.name} are in the outermost 1 of {over}", "border", True)
    return None


def _near(side: Side, axes: list[int], width: int, coordinate: Index) -> Mask:
    near = np.zeros(len(coordinate), bool)
    for axis in axes:
        position = side.along(axis, coordinate)
        near |= (position < width) | (position >= side.shape[axis] - width)
    return near


# ---- thresholds
def _threshold(name: str, wrong: Array, right: Array, cells: int) -> Region | None:
    """On one side of a number all are wrong, on the other all right; or all wrong ones have one value that no right one has."""
    for numbers_bad, numbers_good, shown in ((wrong, right, name), (np.abs(wrong), np.abs(right), f"|{name}|")):
        if not np.isfinite(numbers_bad).all() or not np.isfinite(numbers_good).all():
            return None
        region = _side(shown, numbers_bad, numbers_good, cells)
        if region is not None:
            return region
    return None


def _side(name: str, bad: Array, good: Array, cells: int) -> Region | None:
    if (bad == bad[0]).all() and (good != bad[0]).all() and (bad[0] == 0 or (good == good[0]).all()):
        return Region(f"where {name} is {bad[0]:g}", "mask", True) if _convincing(cells, 4) else None
    if bad.max() < good.min():
        low, high, sign = float(bad.max()), float(good.min()), "<"
    elif bad.min() > good.max():
        low, high, sign = float(good.max()), float(bad.min()), ">"
    else:
        return None
    region = _beyond(name, sign, low, high)
    return region if _convincing(cells, 4 if region.natural else 4 * cells) else None


def _beyond(name: str, sign: str, low: float, high: float) -> Region:
    zero = low <= 0 <= high and not name.startswith("|")
    between = "" if zero else f" (a threshold between {low:.4g} and {high:.4g})"
    return Region(f"where {name} {sign} {_roundest(low, high)}", "threshold", zero, between, low, high, (name, sign))


def _roundest(low: float, high: float) -> str:
    """The number with the fewest digits between two."""
    if low <= 0 <= high:
        return "0"
    middle = (low + high) / 2
    return next((text for digits in range(1, 16) if low <= float(text := f"{middle:.{digits}g}") <= high), repr(middle))


def _convincing(cells: int, members: float) -> bool:
    return cells >= log2(members) + SURPRISE


EXPLANATIONS = (Explanation(60, natural), Explanation(120, explain), Explanation(160, anything))
REMEDIES = {
    "zero block": "backward gives nothing for these elements: look at the bounds of its loops and slices, and at its masks",
    "unread block": "backward takes no grad_output from there: look at the bounds of its loops and slices, and for an index where a sum belongs",
    "wrong block": "look at what treats these positions unlike the others",
    "wrong at the border": "look at what treats the border unlike the rest",
    "wrong only": "backward is right for the others: look at what it does where this holds",
}
