"""Revisions of a finished comparison: its mismatches with their numbers, a whole outcome turned into undecided, and open elements decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradverify.numerics.pairs.pair import OPEN, ElementRecord, Outcome, Pair
from gradverify.numerics.pairs.values import ElementValues, Entries, ratios
from gradverify.numerics.rungs import Array, Mask
from gradverify.numerics.verdict import Limit


@dataclass(frozen=True)
class Mismatches(ElementValues):
    """Mismatches [E] of a pair, with the tolerance (0 where it was not kept)."""

    tolerance: Array


def mismatches(pair: Pair) -> Mismatches | None:
    """All of them; None where not all are known."""
    records, count = [record for record in pair.worst if record.outcome is Outcome.MISMATCH], pair.count(Outcome.MISMATCH)
    if len(records) == count:
        places = np.array([record.place for record in records], np.intp).reshape(-1, 2)
        numbers = np.array([(record.analytic, record.numeric, record.bar, record.tolerance) for record in records], float).reshape(-1, 4)
        return Mismatches(*places.T, *numbers.T)
    kept = pair.entries and pair.entries.take(np.flatnonzero(pair.entries.outcome == Outcome.MISMATCH))
    if kept is None or len(kept.output) < count:
        return None
    return Mismatches(kept.output, kept.input, kept.analytic, kept.numeric, kept.bar, np.zeros(count))


def with_undecided(pair: Pair, outcome: Outcome, why: Limit) -> Pair:
    """The pair with what came out so undecided."""
    counts, limits = list(pair.counts), dict(pair.limits)
    moved, counts[outcome] = counts[outcome], 0
    counts[Outcome.UNDECIDED] += moved
    limits_first = ((why, moved + limits.pop(why, 0)), *limits.items())
    entries = pair.entries
    if entries is not None:
        outcomes = np.where(entries.outcome == np.int8(outcome), np.int8(Outcome.UNDECIDED), entries.outcome)
        entries = replace(entries, ratio=(-np.inf, np.inf), outcome=outcomes)
    return replace(pair.relabelled(outcome, Outcome.UNDECIDED, why), counts=tuple(counts), limits=limits_first, entries=entries)


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

    def told(each: ElementRecord) -> ElementRecord:
        is_it = each.place in places or (some is None and each.outcome in OPEN)
        return each._replace(outcome=Outcome.PASS, limit=Limit.NONE, rank=(int(Outcome.PASS), *each.rank[1:])) if is_it else each

    worst = tuple(map(told, pair.worst))
    return replace(
        pair, counts=tuple(counts.tolist()), worst=tuple(each for each in worst if each.outcome) or worst[:1], asked=pair.asked and told(pair.asked),
        limits=pair.limits if counts[list(OPEN)].any() else (), entries=replace(seen, outcome=np.where(right, np.int8(Outcome.PASS), seen.outcome)))


@dataclass(frozen=True)
class Decided:
    """An `element` that was undecided, by other numbers: `right` or wrong by a slope that rests on so many `points`."""

    element: ElementRecord
    value: float
    bar: float
    tolerance: float
    right: bool
    points: int

    def record(self) -> ElementRecord:
        """As a table shows it."""
        outcome, ratio = Outcome.PASS if self.right else Outcome.MISMATCH, abs(self.element.analytic - self.value) / (self.tolerance or 1e-300)
        return self.element._replace(rank=(int(outcome), ratio, *self.element.rank[2:]), numeric=self.value, bar=self.bar,
                                     tolerance=self.tolerance, outcome=outcome, limit=Limit.NONE, points=self.points)


def with_decided(pair: Pair, decided: Sequence[Decided]) -> Pair:
    """The pair with these elements, each of which was UNDECIDED, as right or wrong."""
    new = {one.element.place: one.record() for one in decided}
    counts = list(pair.counts)
    for record in new.values():
        counts[Outcome.UNDECIDED] -= 1
        counts[record.outcome] += 1
    worst = sorted((new.get(record.place, record) for record in pair.worst), key=lambda record: record.rank, reverse=True)
    sized = [(record, max(abs(record.analytic), abs(record.numeric))) for record in new.values()]
    relative = [record.error / size if size > record.floor else 0.0 for record, size in sized]
    return replace(
        pair, counts=tuple(counts), worst=tuple(record for record in worst if record.outcome) or tuple(worst[:1]),
        asked=pair.asked and new.get(pair.asked.place, pair.asked), limits=pair.limits if counts[Outcome.UNDECIDED] else (),
        entries=pair.entries and _entered(pair.entries, new),
        resolution=max([pair.resolution, *(one.tolerance + one.bar for one in decided if one.right)]),
        max_abs_error=max(pair.max_abs_error, *(record.error for record in new.values())), max_rel_error=max(pair.max_rel_error, *relative),
        fitted=pair.fitted + len(new), points=max(pair.points, *(one.points for one in decided)))


def _entered(entries: Entries, new: dict[tuple[int, int], ElementRecord]) -> Entries:
    """The kept elements with these numbers."""
    numeric, bar, outcome = entries.numeric.copy(), entries.bar.copy(), entries.outcome.copy()
    for n, place in enumerate(zip(entries.output.tolist(), entries.input.tolist(), strict=True)):
        if place in new:
            numeric[n], bar[n], outcome[n] = new[place].numeric, new[place].bar, new[place].outcome
    wrong = np.flatnonzero(outcome == Outcome.MISMATCH)
    entered = replace(entries, numeric=numeric, bar=bar, outcome=outcome)
    if not wrong.size:
        return entered
    low, high = ratios(entries.analytic[wrong], numeric[wrong], bar[wrong])
    return replace(entered, ratio=(float(low.max()), float(high.min())))
