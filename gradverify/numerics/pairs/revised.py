"""Revisions of a finished comparison: its mismatches with their numbers, and a whole outcome turned into undecided."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.pairs.entries import Numbers
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.rungs import Array, Codes
from gradverify.numerics.verdict import Limit


@dataclass(frozen=True)
class Wrong(Numbers):
    """Mismatches [E] of a pair, with the tolerance (0 where it was not kept)."""

    tolerance: Array


def mismatches(pair: Pair) -> Wrong | None:
    """All of them; None where not all are known."""
    bad, count = [each for each in pair.worst if each.outcome is Outcome.MISMATCH], pair.count(Outcome.MISMATCH)
    if len(bad) == count:
        places = np.array([(each.output_index, each.input_index) for each in bad], np.intp).reshape(-1, 2)
        numbers = np.array([(each.analytic, each.numeric, each.bar, each.tolerance) for each in bad], float).reshape(-1, 4)
        return Wrong(*places.T, *numbers.T)
    seen = pair.entries
    own = np.flatnonzero(seen.outcome == Outcome.MISMATCH) if seen is not None else np.zeros(0, np.intp)
    if seen is None or len(own) < count:
        return None
    return Wrong(seen.output[own], seen.input[own], seen.analytic[own], seen.numeric[own], seen.bar[own], np.zeros(len(own)))


def undecided(pair: Pair, outcome: Outcome, why: Limit) -> Pair:
    """The pair with what came out so undecided."""
    counts, limits = list(pair.counts), dict(pair.limits)
    moved, counts[outcome] = counts[outcome], 0
    counts[Outcome.UNDECIDED] += moved
    told = ((why, moved + limits.pop(why, 0)), *limits.items())
    seen = pair.entries and replace(pair.entries, ratio=(-np.inf, np.inf), outcome=_told(pair.entries.outcome, outcome))
    return replace(pair.relabelled(outcome, Outcome.UNDECIDED, why), counts=tuple(counts), limits=told, entries=seen)


def _told(outcomes: Codes, old: Outcome) -> Codes:
    return np.where(outcomes == np.int8(old), np.int8(Outcome.UNDECIDED), outcomes)
