"""The three verdicts on an element, and what may keep it from one."""

from __future__ import annotations

from enum import Enum, IntEnum

import numpy as np


class Verdict(IntEnum):
    """What can be said of an element."""

    PASS = 0
    MISMATCH = 1
    UNDECIDED = 2


PASS, MISMATCH, UNDECIDED = (np.int8(each) for each in Verdict)
"""The same as NumPy's numbers: codes [m] are compared with them in a quarter of the time."""


class Limit(Enum):
    """What keeps an element from a verdict; the text is the sentence a reader needs."""

    NONE = "nothing"
    NOISE = "the forward's own noise is larger than the tolerance: compute in float64 inside, or give `atol` or `rtol`"
    TRUNCATION = "estimates from neighbouring steps differ by more than the tolerance allows"
    INCONSISTENT = "no two steps agree on a derivative"
    KINK = "f has a kink at x, and its slopes from left and right are not sharp enough"
    KINK_SUM = "the gradient lies outside the subgradients along the sum of the kinked elements: `avoid` the kink"
    TIE = "several equal inputs are tied: f does not move with one of them, but does with all, and has no derivative there; give the input `distinct`"
    JUMP = "f jumps at x: there is no derivative"
    STAIRCASE = "f moves in steps: the steps and the trend above them have different derivatives"
    CANCELS = "f moves in steps of the rounding of larger numbers inside it, which hide the deviation: compute without the cancellation"
    BORDER = "f ends at x: only one side has values, and no order of convergence is sure there; give `domain`, or `avoid` the border"
    INFINITE = "the slope of f grows without bound at x, or f has no finite values around it"
    ROUNDED = "float32 rounds f, or the sums inside backward, by as much as that"
    ANALYTIC_NOISE = "the deviation is within the rounding noise of the backward"
    STUCK = "the step does not move the input (x + eps = x): leave out `eps`, so that it is chosen for each element, or give a larger one"
    COMPANY = "elements that were measured together with it turned out right when measured alone: check a smaller input with `mode: entries`"
    ALONE = "other elements that differ in the same way could not be decided either when measured alone"
    STRUCTURE = "the function depends on its inputs in another way than its pattern of zeros said: a smaller input can be checked column by column"
    LINE = "as a whole it is off by more than rounding, but no element of it was found wrong: `mode: entries` compares each"
    BUDGET = "the budget ended before gradverify knew whether rounding explains the deviation: raise `budget`"
    RESTLESS = "the module's buffers follow its parameters from call to call and do not come to rest, and backward takes them for constants"
    SYMMETRY = "right on symmetric matrices: say `symmetric: true`"
