"""The pipeline of a comparison, top to bottom: prepare, choose what can be afforded, compare, revise (method.md sections 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from gradverify.model.interrupt import Spent
from gradverify.numerics.choose import Choice, Costs, Limits, Mode, Why, cheapest, choose, counts, predicted, to_power_of_two
from gradverify.numerics.entries.confirm import with_asked
from gradverify.numerics.entries.sweep import compare_entries
from gradverify.numerics.excuses.insensitive import beside_insensitive
from gradverify.numerics.function.point import Clock, Function
from gradverify.numerics.judging.run import OverBudget, no_budget
from gradverify.numerics.pairs.pair import Asked, Outcome, Pair
from gradverify.numerics.prepare import Prepared, Structure, prepare
from gradverify.numerics.probing.seed_matrices import SCREEN_LOW, screen_of
from gradverify.numerics.screens import compare_sums
from gradverify.numerics.seeds import Seed

Watch = Callable[[Choice], None]
"""Told what was chosen, and what it is predicted to cost, before it begins."""


@dataclass(frozen=True)
class Compared:
    """A `Pair` per (input, output); how they were compared; forward calls, `noise` of them before structure, and backward calls."""

    pairs: tuple[Pair, ...]
    choice: Choice | None
    structure: Structure
    forward: int
    noise: int
    backward: int


def compare(
    function: Function, *, mode: Mode | None = None, limits: Limits | None = None, atol: float = 0.0, rtol: float | None = None,
    domains: Sequence[tuple[float, float] | None] | None = None, symmetric: Sequence[bool] | None = None,
    specified: Sequence[Tensor | None] = (), seed: Seed = Seed(), keep: int = 10, watch: Watch | None = None,
    clock: Clock | None = None, over_budget: OverBudget = no_budget, asked: Asked | None = None,
) -> Compared:
    """`mode` None: the strongest comparison that `limits` afford. Tolerances, `domains` and `symmetric` as in `prepare`. `asked`: see `Pair`."""
    prepared = prepare(function, atol=atol, rtol=rtol, domains=domains, symmetric=symmetric, specified=specified, seed=seed,
                       thrifty=mode in (None, Mode.ENTRIES), clock=clock)
    if prepared is None:
        return Compared((), None, Structure(), 0, 0, 0)
    prepared = replace(prepared, over_budget=over_budget, asked=asked)
    point = prepared.point
    costs = predicted(counts(prepared), to_power_of_two(point.fastest))
    choice = choose(mode, limits or Limits(), costs, SCREEN_LOW if point.columns.rounded else screen_of(point))
    if watch:
        watch(choice)
    pairs, structure, choice = _by(choice, mode, prepared, costs, keep)
    pairs = beside_insensitive(prepared, with_asked(prepared, pairs))
    return Compared(tuple(pairs), choice, structure, point.forward, prepared.survey.forward, point.backward)


def _by(choice: Choice, mode: Mode | None, prepared: Prepared, costs: Costs, keep: int) -> tuple[list[Pair], Structure, Choice]:
    """The pairs, the structure that held, and the comparison that was made in the end."""
    entries, afforded = choice.mode is Mode.ENTRIES, choice.budget.excess(choice.cost) is None
    if not entries:
        pairs, structure, unfollowed = compare_sums(prepared, choice, keep)
        choice = replace(choice, left=unfollowed)
        if not (_open(pairs) and choice.spared_entries):
            return pairs, structure, choice
        choice = replace(choose(Mode.ENTRIES, choice.budget, costs, choice.relative), why=Why.DECIDES)
    pairs, structure, finished = compare_entries(replace(prepared, stops=mode is None and afforded), keep)
    if finished or mode is not None or any(pair.count(Outcome.MISMATCH) for pair in pairs):
        return pairs, structure, choice
    try:
        left = cheapest(choice, costs)
        screened, structure, unfollowed = compare_sums(prepared, left, keep)
    except Spent:
        return pairs, structure, choice
    return screened, structure, replace(left, left=unfollowed)


def _open(pairs: Sequence[Pair]) -> bool:
    """Is nothing wrong, and are there lines that could not be decided? Their elements may be, one by one."""
    return any(pair.count(Outcome.UNDECIDED) for pair in pairs) and not any(pair.count(Outcome.MISMATCH) for pair in pairs)
