"""The known mistakes, the simplest first: the first that explains every mismatched element is the cause."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradverify.causes import moved, per_slice, rank_one, reduced, region, scaled, swapped
from gradverify.causes.pattern import Pattern
from gradverify.model.result import Cause

Explanation = Callable[[Pattern], Cause | None]

SIMPLEST_FIRST: tuple[Explanation, ...] = (
    moved.conjugate, swapped.explain, reduced.explain, moved.explain, region.explain, per_slice.explain, rank_one.explain, region.anything)


def explain(pattern: Pattern) -> Cause | None:
    """One factor can be told from the stream alone; everything else needs all elements of the pair."""
    if not pattern.count or not pattern.sharp:
        return None
    with np.errstate(all="ignore"):
        cause = scaled.explain(pattern)
        if cause is not None or not pattern.entries.complete:
            return cause
        return next((cause for explanation in SIMPLEST_FIRST if (cause := explanation(pattern)) is not None), None)
