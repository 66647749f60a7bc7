"""The modes `rows` and `blocks`: sums of elements screened, verified by blocks, and what is flagged
judged element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradverify.numerics.choose import Choice, Mode
from gradverify.numerics.excuses.treads import ending_columns
from gradverify.numerics.flagged.follow import FollowUp
from gradverify.numerics.judging.bundle import Level, Structure
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.numerics.prepare import holding, with_other_groups
from gradverify.numerics.probing.screen import DIRECTIONS, VERIFIED_ALONG, Screened, screen
from gradverify.numerics.probing.seed_matrices import SurveyedPoint, draw_directions
from gradverify.numerics.verdict import Verdict


def compare_sums(
    run: Run, choice: Choice, keep: int
) -> tuple[list[Pair], Structure, int]:
    """A pair per (input, output), its lines judged; the structure that held; and how many flagged
    lines the end of the budget left.

    Once more with complete detection where lines stay open. `keep`: how many of the worst elements
    a pair keeps.
    """
    while True:
        with np.errstate(all="ignore"):
            screened, verifying = _screened(run, choice)
            follow_up = FollowUp(run.fresh(), keep)
            pairs, open_ = follow_up.pairs(choice.mode, screened, verifying)
        if run.over_budget():
            return pairs, run.structure, follow_up.unfollowed
        broken = frozenset(
            t
            for t in open_
            if run.structure.level.get(t) == Level.GUESSED and t in run.structure.plans
        )
        if not broken:
            return (
                _beside_ends(run, choice, keep, [*screened, *verifying], pairs),
                run.structure,
                0,
            )
        run = with_other_groups(run, broken)


def _screened(run: Run, choice: Choice) -> tuple[list[Screened], list[Screened]]:
    """The lines, and the blocks that verify rows: along one direction, which rows may have sampled
    already.

    That is the direction of the survey, on the quick rungs, also where f is linear: whoever takes
    one wide step leaps over what f does near x.
    """
    point, survey = run.point, run.survey
    surveyed, tensors, linear = (
        SurveyedPoint(point, survey),
        range(len(point.buffers)),
        run.linear,
    )
    patterns = run.structure.patterns
    if choice.mode is Mode.BLOCKS:
        return screen(
            surveyed,
            patterns,
            [
                draw_directions(point, t, choice.probes, survey.direction_samples[t])
                for t in tensors
            ],
            rows=False,
        ), []
    near = [
        draw_directions(point, t, VERIFIED_ALONG if t in linear else DIRECTIONS, sample)
        for t, sample in enumerate(survey.direction_samples)
    ]
    drawn = [
        draw_directions(point, t, DIRECTIONS, linear[t]) if t in linear else near[t]
        for t in tensors
    ]
    return screen(surveyed, patterns, drawn, rows=True, linear=linear), screen(
        surveyed, patterns, [near_x.first() for near_x in near], rows=False
    )


def _beside_ends(
    run: Run, choice: Choice, keep: int, screened: Sequence[Screened], pairs: list[Pair]
) -> list[Pair]:
    """Screened once more without the columns along which f ends, where sums are lost to them: they
    tell nothing of what else is wrong."""
    undecided = {(pair.input, pair.output) for pair in pairs if pair.verdict is Verdict.UNDECIDED}
    lost = undecided & {(pair.input, pair.output) for pair in screened if len(pair.lost)}
    if not lost:
        return pairs
    with np.errstate(all="ignore"):
        ends = ending_columns(run.fresh(), lost)
        if not len(ends):
            return pairs
        held = holding(run, ends)
        follow_up = FollowUp(held, keep)
        beside, _ = follow_up.pairs(choice.mode, *_screened(held, choice))
    return [
        _wrong_beside(pair, without_ends) if (pair.input, pair.output) in lost else pair
        for pair, without_ends in zip(pairs, beside, strict=True)
    ]


def _wrong_beside(pair: Pair, without_ends: Pair) -> Pair:
    """The pair with the lines that are wrong beside those that stay open, if any; `without_ends`:
    as it is without the columns that f ends along."""
    wrong = without_ends.count(Outcome.MISMATCH)
    if not wrong:
        return pair
    counts = [0] * len(Outcome)
    counts[Outcome.MISMATCH], counts[Outcome.UNDECIDED] = (
        wrong,
        min(pair.count(Outcome.UNDECIDED), pair.elements - wrong),
    )
    counts[Outcome.PASS] = pair.elements - sum(counts)
    return replace(
        without_ends,
        elements=pair.elements,
        counts=tuple(counts),
        quick=pair.quick,
        limits=pair.limits,
    )
