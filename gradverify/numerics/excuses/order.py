"""What else may explain a mismatch, in the order in which it is asked. What no excuse explains is wrong.

Nothing here calls f or backward unless an element is about to be called wrong, or is at a kink.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gradverify.numerics.excuses.backward_noise import excuse_backward_noise
from gradverify.numerics.excuses.cancelling import excuse_cancelled, excuse_cancelled_alone, excuse_shaken, excuse_uncertain, name_cancelling
from gradverify.numerics.excuses.ends import excuse_ends
from gradverify.numerics.excuses.kink_sums import judge_kink_sums
from gradverify.numerics.excuses.rounded import excuse_rounded
from gradverify.numerics.excuses.slight import pass_slight, pass_unmovable
from gradverify.numerics.excuses.symmetric import excuse_symmetric
from gradverify.numerics.excuses.ties import excuse_ties
from gradverify.numerics.excuses.treads import excuse_treads
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.lone_ladders import LoneLadders
from gradverify.numerics.judging.run import Run
from gradverify.numerics.verdict import MISMATCH

Excuse = Callable[[Run, Judged], Judged]
"""The elements with those mismatches undecided, or right, that it explains; it calls nothing where none is left."""

EXCUSES: tuple[Excuse, ...] = (
    excuse_symmetric, excuse_uncertain, excuse_ties, excuse_rounded, excuse_backward_noise, excuse_cancelled, excuse_treads, excuse_shaken)


def excused(run: Run, judged: Judged) -> Judged:
    """The elements as a check tells of them, whatever they were measured with: slight and unmovable ones passed, kinks summed, mismatches excused."""
    judged = judge_kink_sums(run, pass_unmovable(run, pass_slight(run, judged)))
    return name_cancelling(run, _excused_by(run, judged, EXCUSES))


def excused_alone(run: Run, judged: Judged, alone: LoneLadders) -> Judged:
    """Elements that were measured `alone`, with what their own samples excuse; they are still to be given to `excused`."""
    return _excused_by(run, judged, (excuse_ends, excuse_uncertain, excuse_ties, partial(excuse_cancelled_alone, alone=alone), excuse_treads))


def _excused_by(run: Run, judged: Judged, excuses: tuple[Excuse, ...]) -> Judged:
    for excuse in excuses:
        if not (judged.verdict == MISMATCH).any():
            break
        judged = excuse(run, judged)
    return judged
