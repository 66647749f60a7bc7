"""What keeps an element from a verdict, in words: the reason, and what the reader can do about
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradverify.numerics.verdict import Limit


@dataclass(frozen=True)
class Words:
    """`because`: what explains the reason. `advice`: in hints and sentences."""

    reason: str
    because: str = ""
    advice: str | None = None

    @property
    def explained(self) -> str:
        """Without advice."""
        return f"{self.reason}: {self.because}" if self.because else self.reason

    @property
    def whole(self) -> str:
        """With the advice."""
        return f"{self.explained}: {self.advice}" if self.advice else self.explained


OFF_THE_KINK = "keep the inputs off the kink: `avoid`, with a `margin`"
WORDS: Mapping[Limit, Words] = {
    Limit.NONE: Words("nothing"),
    Limit.NOISE: Words(
        "the forward's own noise is larger than the tolerance",
        advice="compute in float64 inside, choose inputs of moderate size, or give `rtol` if less "
        "accuracy will do",
    ),
    Limit.TRUNCATION: Words(
        "estimates from neighbouring steps differ by more than the tolerance allows",
        advice="choose inputs of moderate size where the function varies less, or give `rtol`",
    ),
    Limit.INCONSISTENT: Words(
        "no two steps agree on a derivative",
        advice="is the forward an iteration or a table? give `rtol`, or check it against a "
        "`reference`",
    ),
    Limit.KINK: Words(
        "f has a kink at x, and its slopes from left and right are not sharp enough",
        advice=OFF_THE_KINK,
    ),
    Limit.KINK_SUM: Words(
        "the gradients at several kinks add up to no slope of f at x, and the slopes nearby are "
        "not sharp enough",
        advice=OFF_THE_KINK,
    ),
    Limit.TIE: Words(
        "several equal inputs are tied",
        "f does not move with one of them, but does with all, and has no derivative there",
        "keep equal numbers apart: give that input `distinct`",
    ),
    Limit.JUMP: Words(
        "f jumps at x",
        "there is no derivative",
        "keep the inputs off the jump: `avoid`, with a `margin`",
    ),
    Limit.STAIRCASE: Words(
        "f moves in steps",
        "the steps and the trend above them have different derivatives",
        "a rounded or tabulated forward has no useful derivative at small steps: give `rtol`, "
        "check against a `reference`, or name the `surrogate` that backward is the gradient of",
    ),
    Limit.CANCELS: Words(
        "f moves in steps of the rounding of larger numbers inside it, which hide the deviation",
        advice="compute without the cancellation (`expm1`, `log1p`, `erfc`), choose larger inputs, "
        "or compute in float64 inside",
    ),
    Limit.BORDER: Words(
        "f ends at x",
        "only one side has values, and no order of convergence is sure there",
        "say where the function is defined with `domain`, or keep the inputs off the border: "
        "`avoid`",
    ),
    Limit.INFINITE: Words(
        "the slope of f grows without bound at x, or f has no finite values around it",
        advice="choose inputs inside the function's domain: `uniform`, `avoid`",
    ),
    Limit.MASKED: Words(
        "f is one and the same infinity at every step", "the element is left out of the comparison"
    ),
    Limit.ROUNDED: Words(
        "float32 rounds f, or the sums inside backward, by as much as that",
        advice="check with `dtype: float64` as well, choose inputs where less cancels, or give "
        "`rtol` or `atol`",
    ),
    Limit.ANALYTIC_NOISE: Words(
        "the deviation is within the rounding noise of the backward",
        advice="compute in float64 inside backward, or give `rtol`",
    ),
    Limit.STUCK: Words(
        "the step does not move the input (x + eps = x)",
        advice="leave out `eps`, so that the step is chosen for each element, or give a larger one",
    ),
    Limit.COMPANY: Words(
        "elements that were measured together with it turned out right when measured alone",
        advice="check a smaller input with `mode: entries`",
    ),
    Limit.ALONE: Words(
        "other elements that differ in the same way could not be decided either when measured alone"
    ),
    Limit.LINE: Words(
        "as a whole it is off by more than its tolerance, or rounding hides whether it is, and no "
        "element of it was found wrong",
        advice="give `mode: entries`, which judges every element by itself",
    ),
    Limit.BUDGET: Words(
        "the budget or the time limit ended before they were compared, or before it was known "
        "whether rounding explains a deviation",
        advice="raise `budget`",
    ),
    Limit.RESTLESS: Words(
        "the module's buffers follow its parameters from call to call and do not come to rest, "
        "and backward takes them for constants",
        advice="check the module in evaluation mode, or where its buffers come to rest (singular "
        "values that lie further apart)",
    ),
    Limit.SYMMETRY: Words(
        "right on symmetric matrices", advice="say `symmetric: true` on that input"
    ),
}
