"""The pipeline of a comparison, top to bottom: prepare, choose what can be afforded, compare,
revise (method.md sections 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Unpack

from gradverify.model.interrupt import Spent
from gradverify.numerics.choose import (
    Choice,
    Limits,
    Mode,
    Why,
    cheapest,
    choose,
    counts,
    predicted,
    to_power_of_two,
)
from gradverify.numerics.entries import compare_entries, with_requested
from gradverify.numerics.excuses.insensitive import with_insensitive
from gradverify.numerics.flagged import compare_sums
from gradverify.numerics.function.point import Function
from gradverify.numerics.judging import OverBudget, Structure, no_budget
from gradverify.numerics.pairs.pair import Outcome, Pair, Requested
from gradverify.numerics.prepare import Settings, prepare
from gradverify.numerics.screen import SCREEN_LOW, screen_of

Watch = Callable[[Choice], None]
"""Told what was chosen, and what it is predicted to cost, before it begins."""


@dataclass(frozen=True)
class Compared:
    """The result of a comparison: a `Pair` per (input, output); how they were compared; the number
    of forward calls, `noise` of them before structure was detected, and of backward calls."""

    pairs: tuple[Pair, ...]
    choice: Choice | None
    structure: Structure
    forward: int
    noise: int
    backward: int


def compare(
    function: Function,
    *,
    mode: Mode | None = None,
    limits: Limits | None = None,
    keep: int = 10,
    watch: Watch | None = None,
    over_budget: OverBudget = no_budget,
    requested: Requested | None = None,
    **settings: Unpack[Settings],
) -> Compared:
    """Compare backward with finite differences for every pair.

    `mode` None: the strongest comparison that `limits` afford. `requested`: see `Pair`.
    """
    run = prepare(function, thrifty=mode in (None, Mode.ENTRIES), **settings)
    if run is None:
        return Compared((), None, Structure(), 0, 0, 0)
    run, point = replace(run, over_budget=over_budget, requested=requested), run.point
    costs = predicted(counts(run), to_power_of_two(point.fastest))
    choice = choose(
        mode, limits or Limits(), costs, SCREEN_LOW if point.columns.rounded else screen_of(point)
    )
    if watch:
        watch(choice)
    by_entries = choice.mode is Mode.ENTRIES
    afforded = choice.budget.excess(choice.cost) is None
    if not by_entries:
        pairs, structure, left = compare_sums(run, choice, keep)
        choice = replace(choice, left=left)
        # Undecided lines where nothing is wrong: their elements may be decidable
        open_ = any(pair.count(Outcome.UNDECIDED) for pair in pairs) and not _wrong(pairs)
        if choice.spared_entries and open_:
            choice = replace(
                choose(Mode.ENTRIES, choice.budget, costs, choice.relative), why=Why.DECIDES
            )
            by_entries = True
    if by_entries:
        pairs, structure, finished = compare_entries(
            replace(run, stops=mode is None and afforded), keep
        )
        if not finished and mode is None and not _wrong(pairs):
            with suppress(Spent):
                one_probe = cheapest(choice, costs)
                pairs, structure, left = compare_sums(run, one_probe, keep)
                choice = replace(one_probe, left=left)
    pairs = with_insensitive(run, with_requested(run, pairs))
    return Compared(
        tuple(pairs), choice, structure, point.forward, run.survey.forward, point.backward
    )


def _wrong(pairs: Sequence[Pair]) -> bool:
    """Return whether an element, or a line, of any pair is wrong."""
    return any(pair.count(Outcome.MISMATCH) for pair in pairs)
