"""Undecided elements that are right all the same: negligible by the size of their own input element, or zero where no step moves that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradverify.numerics.estimate.kinks import SMOOTH
from gradverify.numerics.judging.judged import Judged
from gradverify.numerics.judging.run import Run
from gradverify.numerics.verdict import UNDECIDED

HUNDREDTH = 0.01  # of a derivative: a bar in which no error that matters could hide


def pass_slight(run: Run, judged: Judged) -> Judged:
    """Undecided elements that are negligible by their own |x|, and known to a HUNDREDTH, are right.

    A floor is divided by the tensor's RMS, or small elements would pass unseen beside large ones; in hypot of 1e-12 and 1 that asks for digits of the
    smaller one's derivative that no difference of f has.
    """
    d = judged.derivative
    known = (judged.verdict == UNDECIDED) & d.smooth & (np.abs(judged.analytic - d.value) <= d.bar) & (d.bar <= HUNDREDTH * np.abs(d.value))
    if not known.any():
        return judged
    agreed = ~np.isfinite(d.second) | (d.far & (np.abs(judged.analytic - d.second) <= d.second_bar))  # the nearer steps do not say otherwise
    i = np.flatnonzero(known & agreed & ~judged.tolerances.unproven)
    reach = np.maximum(np.abs(judged.analytic[i]), np.abs(d.value[i])) * run.point.columns.scale[judged.column[i]]
    return judged.passed(i[reach <= run.floors()[judged.out[i]]])


def pass_unmovable(run: Run, judged: Judged) -> Judged:
    """Zeros where x is infinite or NaN: x + h is x for every step h, so f, finite there, is constant along all of them."""
    x, f0 = run.point.columns.x, run.point.f0
    if run.point.columns.finite:
        return judged
    i = np.flatnonzero((judged.verdict == UNDECIDED) & ~np.isfinite(x[judged.column]) & np.isfinite(f0[judged.out]) & (judged.analytic == 0))
    d = judged.derivative.take(i)
    zeros = np.zeros(len(i))
    at_rest = replace(d, value=zeros, bar=zeros, noise_bar=zeros, outcome=np.full(len(i), SMOOTH, np.int8), unchanged=np.ones(len(i), bool))
    return replace(judged.passed(i), derivative=judged.derivative.replaced(i, at_rest))
