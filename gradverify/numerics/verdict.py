"""The names of the three verdicts on an element, and of what may keep it from one; which of them
holds is decided in `tolerance.py`."""

from __future__ import annotations

from enum import Enum, IntEnum

import numpy as np


class Verdict(IntEnum):
    """What can be said of an element."""

    PASS = 0
    MISMATCH = 1
    UNDECIDED = 2


PASS, MISMATCH, UNDECIDED = (np.int8(verdict) for verdict in Verdict)
"""The same as NumPy's numbers: codes [m] are compared with them in a quarter of the time."""


class Limit(Enum):
    """What keeps an element from a verdict; `rules/unjudged.py` has the words for each."""

    NONE = "none"
    NOISE = "noise"  # of f, beyond the tolerance
    TRUNCATION = "truncation"
    INCONSISTENT = "inconsistent"  # no two steps agree
    KINK = "kink"
    KINK_SUM = "kink_sum"  # no slope of f along the sum of several inputs at a kink
    TIE = "tie"  # equal inputs: f moves with all of them only
    JUMP = "jump"
    STAIRCASE = "staircase"
    CANCELS = "cancels"  # rounding inside f hides the slope
    BORDER = "border"  # f has values on one side only
    INFINITE = "infinite"
    MASKED = "masked"  # f is one and the same infinity: not compared
    ROUNDED = "rounded"  # float32 rounds f or backward
    ANALYTIC_NOISE = "analytic_noise"  # of backward
    STUCK = "stuck"  # x + eps = x
    # Of its group: others of it turned out right when they were measured alone
    COMPANY = "company"
    # Others of its group stayed undecided when they were measured alone
    ALONE = "alone"
    LINE = "line"  # a column, row or block is off, and none of its elements
    BUDGET = "budget"
    RESTLESS = "restless"  # buffers move from call to call
    SYMMETRY = "symmetry"  # right on symmetric matrices only
