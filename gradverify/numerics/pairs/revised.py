"""Revisions of a finished comparison: its mismatches with their numbers, a whole outcome turned into undecided, and open elements decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.pairs.entries import Entries, Numbers, ratios
from gradverify.numerics.pairs.pair import OPEN, Outcome, Pair, Worst
from gradverify.numerics.rungs import Array, Codes, Mask
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


def passed(pair: Pair, some: Mask | None = None) -> Pair:
    """The pair with what was open as right: all of that, zeros of both sides too, or `some` of its entries."""
    seen = pair.entries
    if seen is None:
        return pair
    right, counts = np.isin(seen.outcome, OPEN) if some is None else some, np.array(pair.counts)
    np.subtract.at(counts, seen.outcome[right], 1)
    if some is None:
        counts[list(OPEN)] = 0
    counts[Outcome.PASS] += sum(pair.counts) - counts.sum()
    places = set(zip(seen.output[right].tolist(), seen.input[right].tolist(), strict=True))

    def told(each: Worst) -> Worst:
        is_it = (each.output_index, each.input_index) in places or (some is None and each.outcome in OPEN)
        return each._replace(outcome=Outcome.PASS, limit=Limit.NONE, rank=(int(Outcome.PASS), *each.rank[1:])) if is_it else each

    worst = tuple(map(told, pair.worst))
    return replace(
        pair, counts=tuple(counts.tolist()), worst=tuple(each for each in worst if each.outcome) or worst[:1], asked=pair.asked and told(pair.asked),
        limits=pair.limits if counts[list(OPEN)].any() else (), entries=replace(seen, outcome=np.where(right, np.int8(Outcome.PASS), seen.outcome)))


@dataclass(frozen=True)
class Decided:
    """An element that was open, by other numbers: `right` or wrong by a slope that rests on so many `points`."""

    told: Worst
    value: float
    bar: float
    tolerance: float
    right: bool
    points: int

    @property
    def place(self) -> tuple[int, int]:
        return self.told.output_index, self.told.input_index

    def worst(self) -> Worst:
        """As a table shows it."""
        outcome, ratio = Outcome.PASS if self.right else Outcome.MISMATCH, abs(self.told.analytic - self.value) / (self.tolerance or 1e-300)
        return self.told._replace(rank=(int(outcome), ratio, *self.told.rank[2:]), numeric=self.value, bar=self.bar, tolerance=self.tolerance,
                                  outcome=outcome, limit=Limit.NONE, points=self.points)


def with_decided(pair: Pair, decided: Sequence[Decided]) -> Pair:
    """The pair with these elements, each of which was UNDECIDED, as right or wrong."""
    new = {each.place: each.worst() for each in decided}
    counts = list(pair.counts)
    for worst in new.values():
        counts[Outcome.UNDECIDED] -= 1
        counts[worst.outcome] += 1
    told = sorted((new.get((each.output_index, each.input_index), each) for each in pair.worst), key=lambda each: each.rank, reverse=True)
    asked = pair.asked and new.get((pair.asked.output_index, pair.asked.input_index), pair.asked)
    sized = [(worst, max(abs(worst.analytic), abs(worst.numeric))) for worst in new.values()]
    seen = [(worst.error, worst.error / size if size > worst.floor else 0.0) for worst, size in sized]
    return replace(
        pair, counts=tuple(counts), worst=tuple(each for each in told if each.outcome) or tuple(told[:1]),
        asked=asked, limits=pair.limits if counts[Outcome.UNDECIDED] else (), entries=pair.entries and _entered(pair.entries, new),
        resolution=max([pair.resolution, *(each.tolerance + each.bar for each in decided if each.right)]),
        max_abs_error=max(pair.max_abs_error, *(absolute for absolute, _ in seen)), max_rel_error=max(pair.max_rel_error, *(rel for _, rel in seen)),
        fitted=pair.fitted + len(new), points=max(pair.points, *(each.points for each in decided)))


def _entered(entries: Entries, new: dict[tuple[int, int], Worst]) -> Entries:
    """The kept elements with these numbers."""
    numeric, bar, outcome = entries.numeric.copy(), entries.bar.copy(), entries.outcome.copy()
    for n, place in enumerate(zip(entries.output.tolist(), entries.input.tolist(), strict=True)):
        if place in new:
            numeric[n], bar[n], outcome[n] = new[place].numeric, new[place].bar, new[place].outcome
    wrong = np.flatnonzero(outcome == Outcome.MISMATCH)
    told = replace(entries, numeric=numeric, bar=bar, outcome=outcome)
    if not wrong.size:
        return told
    low, high = ratios(entries.analytic[wrong], numeric[wrong], bar[wrong])
    return replace(told, ratio=(float(low.max()), float(high.min())))
