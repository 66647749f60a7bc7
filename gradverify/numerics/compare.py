"""The pipeline of a comparison, top to bottom: prepare, choose what can be afforded, compare, revise (method.md sections 5 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from gradverify.numerics.choose import Choice, Limits, Why, choose
from gradverify.numerics.costs import Costs, Counts, Mode, SharingInputs, predicted, speed, to_power_of_two
from gradverify.numerics.entries.asked import with_asked
from gradverify.numerics.entries.consistency import VERIFIED_ALONG
from gradverify.numerics.entries.sweep import compare_entries
from gradverify.numerics.excuses.ends import ending_columns
from gradverify.numerics.excuses.insensitive import beside_insensitive
from gradverify.numerics.flagged.follow import FollowUp
from gradverify.numerics.function.clock import Clock
from gradverify.numerics.function.point import Function
from gradverify.numerics.grouped_vjps import shared_groups
from gradverify.numerics.judging.run import OverBudget, no_budget
from gradverify.numerics.pairs.pair import Asked, Outcome, Pair
from gradverify.numerics.prepare import Prepared, prepare
from gradverify.numerics.probing.blocks import check_blocks
from gradverify.numerics.probing.columns import check_columns
from gradverify.numerics.probing.rows import DIRECTIONS, check_rows
from gradverify.numerics.probing.screen import Screened
from gradverify.numerics.probing.seed_matrices import draw_directions
from gradverify.numerics.probing.thresholds import SCREEN_LOW, SurveyedPoint, screen_of
from gradverify.numerics.structure import Level, Structure
from gradverify.numerics.verdict import Verdict

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
    specified: Sequence[Tensor | None] = (), generator: np.random.Generator | None = None, keep: int = 10, watch: Watch | None = None,
    clock: Clock | None = None, over_budget: OverBudget = no_budget, asked: Asked | None = None,
) -> Compared:
    """`mode` None: the strongest comparison that `limits` afford. Tolerances, `domains` and `symmetric` as in `prepare`. `asked`: see `Pair`."""
    prepared = prepare(function, atol=atol, rtol=rtol, domains=domains, symmetric=symmetric, specified=specified, generator=generator,
                       thrifty=mode in (None, Mode.ENTRIES), clock=clock)
    if prepared is None:
        return Compared((), None, Structure(), 0, 0, 0)
    prepared = replace(prepared, over_budget=over_budget, asked=asked)
    point = prepared.point
    costs = _costs(prepared, to_power_of_two(point.fastest))
    choice = choose(mode, limits or Limits(), costs, SCREEN_LOW if point.columns.rounded else screen_of(point))
    if watch:
        watch(choice)
    if choice.mode is Mode.ENTRIES:
        pairs, structure = compare_entries(prepared, keep)
    else:
        pairs, structure, unfollowed = _screened(prepared, choice, keep)
        choice = replace(choice, left=unfollowed)
        if _open(pairs) and choice.spared_entries:
            choice = replace(choose(Mode.ENTRIES, choice.budget, costs, choice.relative), why=Why.DECIDES)
            pairs, structure = compare_entries(prepared, keep)
    pairs = beside_insensitive(prepared, with_asked(prepared, pairs))
    return Compared(tuple(pairs), choice, structure, point.forward, prepared.survey.forward, point.backward)


def _open(pairs: Sequence[Pair]) -> bool:
    """Is nothing wrong, and are there lines that could not be decided? Their elements may be, one by one."""
    return any(pair.count(Outcome.UNDECIDED) for pair in pairs) and not any(pair.count(Outcome.MISMATCH) for pair in pairs)


def _costs(prepared: Prepared, seconds: float) -> Costs:
    """`seconds`: of a forward call."""
    point, structure = prepared.point, prepared.structure
    planned = {plan.tensor: plan.grouping.groups.count for plan in structure.plans}
    groups = {t: planned.get(t, len(point.columns.of(t))) for t in structure.patterns}
    linear = sum(count for t, count in groups.items() if t in prepared.linear)
    patterns = [pattern for patterns_of_tensor in structure.patterns.values() for pattern in patterns_of_tensor]
    backwards = _backwards(prepared)
    counts = Counts(len(point.x), len(point.f0), len(point.buffers), len(point.parts), sum(groups.values()) - linear, linear,
                    _distinct(backwards.values()), sum(pattern.blocks for pattern in patterns), len(prepared.linear),
                    tuple(_sharing_inputs(prepared, groups, backwards)))
    return predicted(counts, speed(seconds))


def _backwards(prepared: Prepared) -> dict[int, tuple[tuple[int, int], ...]]:
    """Per input tensor, for each output tensor, which row groups it needs (tensors with the same number share them) and how many they are."""
    plans = prepared.structure.plans
    needed: dict[int, list[tuple[int, int]]] = {plan.tensor: [] for plan in plans}
    for number, group in enumerate(shared_groups([plan.rows for plan in plans])):
        for plan_number in group.users:
            needed[plans[plan_number].tensor].append((number, group.groups.count))
    alone = ((-1, len(prepared.point.f0)),)  # one-hot rows, which tell all tensors without structure
    return {t: tuple(needed[t]) if t in needed else alone for t in prepared.structure.patterns}


def _distinct(backwards: Iterable[tuple[tuple[int, int], ...]]) -> int:
    return sum(dict(group for needed in backwards for group in needed).values())


def _sharing_inputs(prepared: Prepared, groups: Mapping[int, int], backwards: Mapping[int, tuple[tuple[int, int], ...]]) -> Iterator[SharingInputs]:
    """Input tensors that share all their backwards."""
    sizes = np.diff(prepared.point.starts)
    for needed in dict.fromkeys(backwards.values()):
        tensors = tuple(t for t in groups if backwards[t] == needed)
        linear = [t for t in tensors if t in prepared.linear]
        linear_groups = sum(groups[t] for t in linear)
        column_groups = sum(groups[t] for t in tensors) - linear_groups
        yield SharingInputs(tensors, int(sizes[list(tensors)].sum()), column_groups, linear_groups, _distinct([needed]), len(linear))


# ---- screens
def _screened(prepared: Prepared, choice: Choice, keep: int) -> tuple[list[Pair], Structure, int]:
    """Screened, verified by blocks, and what is flagged judged by entries; once more with complete detection where lines stay open. And how many
    flagged lines the end of the budget left."""
    while True:
        with np.errstate(all="ignore"):
            screened, check = _screens(prepared, choice)
            follow_up = FollowUp(prepared.run(), prepared.structure, keep)
            pairs, open_ = follow_up.pairs(choice.of, screened, check)
        if prepared.over_budget():
            return pairs, prepared.structure, follow_up.unfollowed
        broken = frozenset(t for t in open_ if prepared.structure.level.get(t) == Level.GUESSED and prepared.structure.plan(t))
        if not broken:
            return _beside_ends(prepared, choice, keep, [*screened, *check], pairs), prepared.structure, 0
        prepared = prepared.again(broken)


def _beside_ends(prepared: Prepared, choice: Choice, keep: int, screened: Sequence[Screened], pairs: list[Pair]) -> list[Pair]:
    """Screened once more without the columns along which f ends, where sums are lost to them: they tell nothing of what else is wrong."""
    undecided = {(pair.input, pair.output) for pair in pairs if pair.verdict is Verdict.UNDECIDED}
    lost = undecided & {(screen.input, screen.output) for screen in screened if len(screen.lost)}
    if not lost:
        return pairs
    with np.errstate(all="ignore"):
        ends = ending_columns(prepared.run(), prepared.structure, lost)
        if not len(ends):
            return pairs
        rest = prepared.holding(ends)
        beside, _ = FollowUp(rest.run(), rest.structure, keep).pairs(choice.of, *_screens(rest, choice))
    return [_wrong_beside(pair, without_ends) if (pair.input, pair.output) in lost else pair
            for pair, without_ends in zip(pairs, beside, strict=True)]


def _wrong_beside(pair: Pair, without_ends: Pair) -> Pair:
    """The pair with the lines that are wrong beside those that stay open, if any; `without_ends`: as it is without the columns that f ends along."""
    wrong = without_ends.count(Outcome.MISMATCH)
    if not wrong:
        return pair
    counts = [0] * len(Outcome)
    counts[Outcome.MISMATCH], counts[Outcome.UNDECIDED] = wrong, min(pair.count(Outcome.UNDECIDED), pair.elements - wrong)
    counts[Outcome.PASS] = pair.elements - sum(counts)
    return replace(without_ends, elements=pair.elements, counts=tuple(counts), quick=pair.quick, limits=pair.limits)


def _screens(prepared: Prepared, choice: Choice) -> tuple[list[Screened], list[Screened]]:
    """The comparison asked for, and the blocks that verify it: along one direction, which rows may have sampled already.

    That is the direction of the survey, on the quick rungs, also where f is linear: whoever takes one wide step leaps over what f does near x.
    """
    point, survey, generator = prepared.point, prepared.survey, prepared.generator
    surveyed, tensors, linear = SurveyedPoint(point, survey), range(len(point.buffers)), prepared.linear
    patterns = [prepared.structure.patterns[t] for t in tensors]
    if choice.mode is Mode.BLOCKS:
        return check_blocks(surveyed, patterns, generator, probes=choice.probes), []
    rows, columns = ([t for t in tensors if choice.of(t) is mode] for mode in (Mode.ROWS, Mode.COLUMNS))
    near = [draw_directions(point, t, DIRECTIONS if t in rows and t not in linear else VERIFIED_ALONG, generator, sample)
            for t, sample in enumerate(survey.direction_samples)]
    screened = []
    if rows:
        drawn = [draw_directions(point, t, DIRECTIONS, generator, linear[t]) if t in linear else near[t] for t in rows]
        screened += check_rows(surveyed, patterns, generator, only=rows, directions=drawn, linear=linear)
    if columns:
        screened += check_columns(surveyed, patterns, generator, only=columns, linear=[t in linear for t in tensors])
    screened.sort(key=lambda pair: (pair.input, pair.output))
    return screened, check_blocks(surveyed, patterns, generator, probes=VERIFIED_ALONG, directions=[near_x.first() for near_x in near])
