"""A gradient that both witnesses call wrong: forward's own derivative, and a finite difference along one direction of the whole pair.

An element by itself may be open though it is grossly wrong: noise that moves in steps has the derivative zero between two of them. A direction that
moves the whole input shows the derivative of all its elements together, with the noise measured along it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from gradverify.numerics.function.coordinates import columns_of
from gradverify.numerics.pairs.pair import OPEN, ElementRecord, Outcome, Pair
from gradverify.numerics.pairs.values import Entries, ratios
from gradverify.numerics.rungs import U64, Array, Index, Mask
from gradverify.numerics.seed_vectors import cotangent, signed_tensor
from gradverify.numerics.verdict import Limit
from gradverify.oracles.along import Along, change, coordinates, direction
from gradverify.oracles.finite_difference import Filled, Gives, Wishes
from gradverify.oracles.witness import Witness

GROSS = 2.0**-8         # of the largest derivative of its row: an element that is off by less is not called wrong
BEYOND = 16.0           # bars, and differences of two calls of backward: what is off by less is not called wrong
ROUNDINGS = 64.0        # of the sum of the terms
CALLS = 64              # of a direction, about


@dataclass(frozen=True)
class Suspect:
    """A pair, and which of its kept entries are open and grossly off the witness (ascending indices)."""

    pair: Pair
    wrong: Index

    @property
    def places(self) -> frozenset[tuple[int, int]]:
        """Output and input coordinates of these entries."""
        seen = self.pair.entries
        return frozenset(zip(seen.output[self.wrong].tolist(), seen.input[self.wrong].tolist(), strict=True)) if seen else frozenset()

    @property
    def shown(self) -> bool:
        """Is one of them among those that a table can show?"""
        return any((each.output_index, each.input_index) in self.places for each in self.pair.worst)


def gross(seen: Entries, theirs: Array, size: Array, reach: float) -> Mask:
    """Which entries [E] of one row are open, and off the witness `theirs` [E] by more than any noise. `size` [E]: of their input elements; `reach`:
    the largest derivative of the row, times its size."""
    off = np.abs(seen.analytic - theirs)
    return (off * size > GROSS * reach) & (off > BEYOND * seen.bar) & np.isfinite(seen.analytic) & np.isin(seen.outcome, OPEN)


def rejected(one: Suspect, function: Gives, called: Witness, wishes: Wishes, source: torch.Generator) -> bool:
    """Does the finite difference along one direction of this pair reject backward, and confirm the witness? Raises UserCodeError."""
    pair = one.pair
    filled = Filled(function)
    along = Along(filled, columns_of(function.inputs, wishes.domains, wishes.symmetric, wishes.specified))
    point, own = along.point, along.point.parts[pair.output]
    moved = np.where(along.columns.tensor == pair.input, direction(along.columns, source), 0.0)
    if not moved.any() or pair.entries is None:
        return False
    d = along.thorough(moved)
    steps = np.isnan(d.second) | (d.second == 0)        # between two steps nothing moves; any other second slope is one that f may have
    told = d.smooth & ~d.unclear & steps & np.isfinite(d.bar) & np.isfinite(d.value)
    v = np.zeros(len(point.f0))
    v[own] = np.where(told[own], signed_tensor((own.stop - own.start,), source).numpy(), 0.0)
    if not told[own][np.unique(pair.entries.output[one.wrong])].all():
        return False
    given = [cotangent(point, place, v[part]) if place == pair.output else None for place, part in enumerate(point.parts)]
    mine, again = (float(point.by_column(filled.vjp(given)) @ moved) for _ in range(2))
    leaves = called.forward.leaves
    theirs = float(coordinates(called.pull(given), leaves) @ change(along.columns, moved, leaves))
    terms, bars = v[told] * d.value[told], float(np.abs(v[told]) @ d.bar[told])
    rounding = ROUNDINGS * U64 * float(np.abs(terms).sum() + np.linalg.norm(v) * np.linalg.norm(point.f0[told]))
    slope = float(terms.sum())
    return abs(slope - theirs) <= bars + rounding and abs(slope - mine) > BEYOND * (bars + rounding + abs(mine - again))


def with_mismatches(one: Suspect) -> Pair:
    """The pair with these elements as mismatches; the other open ones stay so."""
    pair, seen, counts = one.pair, one.pair.entries, list(one.pair.counts)
    if seen is None:
        return pair
    outcome = seen.outcome.copy()
    for each in OPEN:
        counts[each] -= int((outcome[one.wrong] == each).sum())
    outcome[one.wrong] = Outcome.MISMATCH
    counts[Outcome.MISMATCH] += len(one.wrong)
    told = [_told(each) if (each.output_index, each.input_index) in one.places else each for each in pair.worst]
    low, high = ratios(*(x[one.wrong] for x in (seen.analytic, seen.numeric, seen.bar)))
    entries = replace(seen, outcome=outcome, ratio=(float(low.max()), float(high.min())))
    analytic, numeric = seen.analytic[one.wrong], seen.numeric[one.wrong]
    off, size = np.abs(analytic - numeric), np.maximum(np.abs(analytic), np.abs(numeric))
    asked = pair.asked and (_told(pair.asked) if (pair.asked.output_index, pair.asked.input_index) in one.places else pair.asked)
    return replace(pair, counts=tuple(counts), worst=tuple(sorted(told, key=lambda each: each.rank, reverse=True)), entries=entries, asked=asked,
                   limits=pair.limits if any(counts[each] for each in OPEN) else (), witnessed=len(one.wrong),
                   max_abs_error=max(pair.max_abs_error, float(off.max())), max_rel_error=max(pair.max_rel_error, float((off / size).max())))


def _told(element: ElementRecord) -> ElementRecord:
    """As a mismatch."""
    return element._replace(outcome=Outcome.MISMATCH, limit=Limit.NONE, rank=(int(Outcome.MISMATCH), *element.rank[1:]))
