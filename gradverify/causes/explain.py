"""The known mistakes, the simplest first: the first that explains every mismatched element, here and at another point, is the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gradverify.causes import (
    moved,
    operand,
    overwritten,
    part,
    per_slice,
    precision,
    rank_one,
    reduced,
    region,
    scaled,
    swapped,
    symmetrised,
)
from gradverify.causes.pattern import Claim, Pattern
from gradverify.model.result import Cause

Explanation = Callable[[Pattern], Iterator[Claim]]

SIMPLEST_FIRST: tuple[Explanation, ...] = (
    scaled.explain, moved.conjugate, swapped.explain, overwritten.explain, reduced.explain, region.natural, part.explain, moved.transposed,
    operand.explain, symmetrised.explain, moved.explain, region.explain, per_slice.explain, rank_one.explain, precision.explain, region.anything)


def explain(here: Pattern, elsewhere: Callable[[], Pattern | None]) -> Cause | None:
    """The cause of a pattern that holds at another point as well, which is asked for where something holds here.

    One factor can be told from the stream alone; everything else needs all elements of the pair.
    """
    if not _tells(here):
        return None
    explanations = SIMPLEST_FIRST if here.entries.complete else (scaled.explain,)
    with np.errstate(all="ignore"):
        for claim in (claim for explanation in explanations for claim in explanation(here)):
            there = elsewhere()
            if there is None or not _tells(there) or there.entries.complete < here.entries.complete:
                return None
            cause = claim(there)
            if cause is not None:
                return cause
    return None


def _tells(pattern: Pattern) -> bool:
    return bool(pattern.count) and pattern.sharp
