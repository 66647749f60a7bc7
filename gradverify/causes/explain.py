"""The known mistakes, the simplest first: the first that explains every mismatched element, here and at another point, is the cause."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradverify.causes.catalogue import explanations
from gradverify.causes.pattern import Pattern
from gradverify.model.result import Cause


def explain(here: Pattern, elsewhere: Callable[[], Pattern | None]) -> Cause | None:
    """The cause of a pattern that holds at another point as well, which is asked for where something holds here.

    One factor can be told from the stream alone; everything else needs all elements of the pair.
    """
    if not _tells(here):
        return None
    tried = [each for each in explanations() if each.of_stream or here.entries.complete]
    with np.errstate(all="ignore"):
        for claim in (claim for each in tried for claim in each.claims(here)):
            there = elsewhere()
            if there is None or not _tells(there) or there.entries.complete < here.entries.complete:
                return None
            cause = claim(there)
            if cause is not None:
                return cause
    return None


def _tells(pattern: Pattern) -> bool:
    return bool(pattern.count) and pattern.sharp
