"""Second opinions on verdicts: sums over kinks, ties, symmetric inputs, rounding inside f and the backward's own noise."""

from __future__ import annotations

from collections.abc import Callable

from gradverify.numerics.elements.judged import Judged
from gradverify.numerics.elements.run import Run
from gradverify.numerics.excuses.backward_noise import excuse_analytic_noise
from gradverify.numerics.excuses.cancelling import MEASURED, excuse_cancelled, only_certain
from gradverify.numerics.excuses.kink_sums import along_kinks
from gradverify.numerics.excuses.rounded import excuse_rounded
from gradverify.numerics.excuses.slight import settle_slight
from gradverify.numerics.excuses.symmetric import Entry, excuse_symmetric
from gradverify.numerics.excuses.ties import excuse_ties
from gradverify.numerics.rungs import Mask
from gradverify.numerics.verdict import MISMATCH

Border = Callable[[Judged], Mask]
"""Which elements [E] have no finite f on both sides of their columns, as for `verdicts`."""


def second_opinions(run: Run, judged: Judged, border: Border, entry: Entry) -> tuple[Judged, dict[int, float]]:
    """The verdicts after all second opinions, and per output the relative noise of a backward that is itself at fault."""
    judged = settle_slight(run, judged)
    if judged.derivative.rough:
        judged = along_kinks(run, judged)
    if not (judged.verdict == MISMATCH).any():
        return judged, {}
    judged = excuse_symmetric(run, judged, entry)
    judged = excuse_ties(run, only_certain(run, judged) if run.enough(MEASURED) else judged)
    narrow = run.point.narrow
    excused = excuse_rounded(run, judged, border(judged), narrow) if narrow else excuse_analytic_noise(run, judged, border(judged))
    judged, at_fault = excused
    return excuse_cancelled(run, judged), at_fault
