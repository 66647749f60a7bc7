"""The modes `rows` and `blocks`: sums of elements screened, verified by blocks, and what is flagged
judged element by element."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.choose import Choice, Mode
from gradverify.numerics.flagged.follow import FollowedPair, FollowUp
from gradverify.numerics.judging.bundle import Structure
from gradverify.numerics.judging.run import Run
from gradverify.numerics.pairs.pair import Pair
from gradverify.numerics.prepare import with_other_groups
from gradverify.numerics.probing.screen import DIRECTIONS, VERIFIED_ALONG, screen
from gradverify.numerics.probing.seed_matrices import SurveyedPoint, draw_directions


def compare_sums(run: Run, choice: Choice, keep: int) -> tuple[list[Pair], Structure, int]:
    """A pair per (input, output), its lines judged; the structure that held; and how many flagged
    lines the end of the budget left.

    Rows are verified by blocks along the first direction of the survey, on the quick rungs, also
    where f is linear: whoever takes one wide step leaps over what f does near x. Once more with
    complete detection where lines stay open. `keep`: how many of the worst elements a pair keeps.
    """
    point, survey, linear, rows = run.point, run.survey, run.linear, choice.mode is Mode.ROWS
    surveyed = SurveyedPoint(point, survey)
    while True:
        pairs, open_, structure = list[Pair](), set[int](), run.structure
        follow_up = FollowUp(run.fresh(), keep)
        with np.errstate(all="ignore"):
            near = [
                draw_directions(
                    point,
                    t,
                    (VERIFIED_ALONG if t in linear else DIRECTIONS) if rows else choice.probes,
                    sample,
                )
                for t, sample in enumerate(survey.direction_samples)
            ]
            along = near
            if rows:
                along = [
                    draw_directions(point, t, DIRECTIONS, linear[t]) if t in linear else near_x
                    for t, near_x in enumerate(near)
                ]
            screened = screen(
                surveyed, structure.patterns, along, rows=rows, linear=linear if rows else ()
            )
            verifying = screened
            if rows:
                verifying = screen(
                    surveyed, structure.patterns, [near_x.first() for near_x in near], rows=False
                )
            for lines, blocks in zip(screened, verifying, strict=True):
                followed = FollowedPair(follow_up, lines)
                followed.follow(lines, rows)
                if rows and not followed.wrong:
                    followed.follow(blocks, rows=False, verifying=True)
                if (
                    followed.open
                    and lines.input in structure.plans
                    and not structure.level[lines.input]
                ):
                    open_.add(lines.input)
                pairs.append(followed.result(choice.mode))
        if run.over_budget() or not open_:
            return pairs, structure, follow_up.unfollowed if run.over_budget() else 0
        run = with_other_groups(run, open_)
