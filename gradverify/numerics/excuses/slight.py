"""Undecided elements that are negligible by the size of their own input element."""

from __future__ import annotations

import numpy as np

from gradverify.numerics.elements.judged import Judged
from gradverify.numerics.elements.run import Run
from gradverify.numerics.verdict import UNDECIDED

HUNDREDTH = 0.01  # of a derivative: a bar in which no error that matters could hide


def pass_slight(run: Run, judged: Judged) -> Judged:
    """Undecided elements that are negligible by their own |x|, and known to a HUNDREDTH, are right.

    A floor is divided by the tensor's RMS, or small elements would pass unseen beside large ones; in hypot of 1e-12 and 1 that asks for digits of the
    smaller one's derivative that no difference of f has.
    """
    d = judged.derivative
    known = (judged.verdict == UNDECIDED) & d.smooth & (np.abs(judged.a - d.value) <= d.bar) & (d.bar <= HUNDREDTH * np.abs(d.value))
    if not known.any():
        return judged
    agreed = ~np.isfinite(d.second) | (d.far & (np.abs(judged.a - d.second) <= d.second_bar))  # the nearer steps do not say otherwise
    i = np.flatnonzero(known & agreed & ~judged.bounds.unproven)
    reach = np.maximum(np.abs(judged.a[i]), np.abs(d.value[i])) * run.point.columns.scale[judged.column[i]]
    return judged.passed(i[reach <= run.floors()[judged.out[i]]])
