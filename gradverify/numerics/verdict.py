"""The three verdicts on an element, and the limits that may keep it from one; `tolerance.py`
decides which applies."""

from __future__ import annotations

from enum import Enum, IntEnum

import numpy as np


class Verdict(IntEnum):
    """The verdict on an element."""

    PASS = 0
    MISMATCH = 1
    UNDECIDED = 2


PASS, MISMATCH, UNDECIDED = (np.int8(verdict) for verdict in Verdict)
"""The same as NumPy's numbers: codes [m] are compared with them in a quarter of the time."""


OFF_THE_KINK = "keep the inputs off the kink: `avoid`, with a `margin`"


class Limit(Enum):
    """The reason why an element is undecided.

    `reason`, `because` (its explanation), `advice`: texts for reports. `cast`: whether arithmetic
    of lower precision inside f may be the cause.
    """

    reason: str
    advice: str | None
    because: str
    cast: bool

    def __new__(
        cls,
        value: str,
        reason: str = "",
        advice: str | None = None,
        because: str = "",
        cast: bool = True,
    ) -> Limit:
        limit = object.__new__(cls)
        limit._value_ = value
        limit.reason, limit.advice, limit.because, limit.cast = reason, advice, because, cast
        return limit

    @property
    def explained(self) -> str:
        """The reason with its explanation."""
        return f"{self.reason}: {self.because}" if self.because else self.reason

    @property
    def whole(self) -> str:
        """The reason with its explanation and the advice."""
        return f"{self.explained}: {self.advice}" if self.advice else self.explained

    NONE = (
        "none",
        "nothing",
    )
    NOISE = (
        "noise",
        "the forward's own noise is larger than the tolerance",
        (
            "compute in float64 inside, choose inputs of moderate size, or give `rtol` if less "
            "accuracy will do"
        ),
    )
    TRUNCATION = (
        "truncation",
        "estimates from neighbouring steps differ by more than the tolerance allows",
        "choose inputs of moderate size where the function varies less, or give `rtol`",
    )
    INCONSISTENT = (
        "inconsistent",
        "no two steps agree on a derivative",
        "is the forward an iteration or a table? give `rtol`, or check it against a `reference`",
    )
    KINK = (
        "kink",
        "f has a kink at x, and its slopes from left and right are not sharp enough",
        OFF_THE_KINK,
    )
    KINK_SUM = (
        "kink_sum",
        (
            "the gradients at several kinks add up to no slope of f at x, and the slopes nearby"
            " are not sharp enough"
        ),
        OFF_THE_KINK,
    )
    TIE = (
        "tie",
        "several equal inputs are tied",
        "keep equal numbers apart: give that input `distinct`",
        "f does not move with one of them, but does with all, and has no derivative there",
        False,
    )
    JUMP = (
        "jump",
        "f jumps at x",
        "keep the inputs off the jump: `avoid`, with a `margin`",
        "there is no derivative",
    )
    STAIRCASE = (
        "staircase",
        "f moves in steps",
        (
            "a rounded or tabulated forward has no useful derivative at small steps: give "
            "`rtol`, check against a `reference`, or name the `surrogate` that backward is the "
            "gradient of"
        ),
        "the steps and the trend above them have different derivatives",
    )
    CANCELS = (
        "cancels",
        "f moves in steps of the rounding of larger numbers inside it, which hide the deviation",
        (
            "compute without the cancellation (`expm1`, `log1p`, `erfc`), choose larger inputs,"
            " or compute in float64 inside"
        ),
    )
    BORDER = (
        "border",
        "f ends at x",
        (
            "say where the function is defined with `domain`, or keep the inputs off the "
            "border: `avoid`"
        ),
        "only one side has values, and no order of convergence is sure there",
        False,
    )
    INFINITE = (
        "infinite",
        "the slope of f grows without bound at x, or f has no finite values around it",
        "choose inputs inside the function's domain: `uniform`, `avoid`",
    )
    MASKED = (
        "masked",
        "f is one and the same infinity at every step",
        None,
        "the element is left out of the comparison",
        False,
    )
    ROUNDED = (
        "rounded",
        "float32 rounds f, or the sums inside backward, by as much as that",
        (
            "check with `dtype: float64` as well, choose inputs where less cancels, or give "
            "`rtol` or `atol`"
        ),
    )
    ANALYTIC_NOISE = (
        "analytic_noise",
        "the deviation is within the rounding noise of the backward",
        "compute in float64 inside backward, or give `rtol`",
    )
    STUCK = (
        "stuck",
        "the step does not move the input (x + eps = x)",
        "leave out `eps`, so that the step is chosen for each element, or give a larger one",
        "",
        False,
    )
    COMPANY = (
        "company",
        "elements that were measured together with it turned out right when measured alone",
        "check a smaller input with `mode: entries`",
    )
    ALONE = (
        "alone",
        (
            "other elements that differ in the same way could not be decided either when "
            "measured alone"
        ),
    )
    LINE = (
        "line",
        (
            "as a whole it is off by more than its tolerance, or rounding hides whether it is, "
            "and no element of it was found wrong"
        ),
        "give `mode: entries`, which judges every element by itself",
    )
    BUDGET = (
        "budget",
        (
            "the budget or the time limit ended before they were compared, or before it was "
            "known whether rounding explains a deviation"
        ),
        "raise `budget`",
        "",
        False,
    )
    RESTLESS = (
        "restless",
        (
            "the module's buffers follow its parameters from call to call and do not come to "
            "rest, and backward takes them for constants"
        ),
        (
            "check the module in evaluation mode, or where its buffers come to rest (singular "
            "values that lie further apart)"
        ),
        "",
        False,
    )
    SYMMETRY = (
        "symmetry",
        "right on symmetric matrices",
        "say `symmetric: true` on that input",
        "",
        False,
    )
