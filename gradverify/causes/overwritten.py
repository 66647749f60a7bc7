"""What forward reads twice through an index, and backward writes once: only one of the places with the same index reaches the gradient."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, Value
from gradverify.model.result import Cause
from gradverify.numerics.rungs import Index

NAME = "repeated index overwritten"
SHOWN = 8  # numbers of an index


def explain(pattern: Pattern) -> Iterator[Claim]:
    zeros = np.zeros(len(pattern.wrong))
    if not pattern.output.name or not pattern.agrees(zeros, zeros, pattern.wrong):
        return
    for value in pattern.integers:
        lost = next((axis for axis in _axes(pattern, value) if _lost(pattern, value, axis)), None)
        if lost is not None:
            yield partial(_confirmed, pattern, value, lost)


def _confirmed(here: Pattern, value: Value, axis: int, there: Pattern) -> Cause | None:
    fits = any(each.name == value.name and axis in _axes(there, each) and _lost(there, each, axis) for each in there.integers)
    return _named(here, value) if fits else None


def _axes(pattern: Pattern, value: Value) -> Iterator[int]:
    """First axes of the output from which on its shape is that of the index."""
    shape, of = pattern.output.shape, value.shape
    if value.numbers.size > 1:
        yield from (axis for axis in range(len(shape) - len(of) + 1) if shape[axis : axis + len(of)] == of)


def _lost(pattern: Pattern, value: Value, axis: int) -> bool:
    """Is each wrong element at a repeated number, where for the same element of the input another place with that number is right? The place whose
    write came last is right for every element that is read there: one that is right for some and wrong for others lacks a term."""
    e, side = pattern.entries, pattern.output
    after = int(np.prod(side.shape[axis + len(value.shape) :], dtype=int))
    place: Index = e.output // side.parts // after % value.numbers.size
    _, code, counts = np.unique(value.numbers, return_inverse=True, return_counts=True)
    number, wrong, right = code.reshape(-1)[place], pattern.wrong, pattern.right & pattern.significant
    keys = e.input * len(counts) + number       # an element of the input, read through one number
    if np.isin(place[wrong], place[right & (counts[number] > 1)]).any():
        return False
    kept, times = np.unique(keys[right], return_counts=True)
    repeated = counts[kept % len(counts)] > 1
    return bool((counts[number[wrong]] > 1).all() and (times[repeated] == 1).all() and np.isin(keys[wrong], kept).all())


def _named(pattern: Pattern, value: Value) -> Cause:
    numbers, counts = np.unique(value.numbers, return_counts=True)
    twice = numbers[counts > 1]
    shown = ", ".join(f"{int(n)} at {_places(value, n)}" for n in twice[:2])
    more = f" and {len(twice) - 2} more" if len(twice) > 2 else ""
    return Cause(NAME, f"{value.name} holds {shown}{more}, and only one place of each reaches the gradient of {pattern.input.name}: analytic = 0 "
                 f"{pattern.everywhere}")


def _places(value: Value, number: int) -> str:
    places = [f"[{','.join(map(str, np.unravel_index(place, value.shape)))}]" for place in np.flatnonzero(value.numbers == number)]
    return f"{', '.join(places[:-1][: SHOWN])} and {places[-1]}"


EXPLANATIONS = (Explanation(40, explain),)
REMEDIES = {
    "repeated index overwritten": "add up what repeats: index_add, scatter_add, index_put(accumulate=True)",
}
