"""A sum over a broadcast dimension that backward leaves out: one slice of the sum is all there is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern
from gradverify.model.result import Cause

ENOUGH = 3  # elements that stand and that are missing, at least


def explain(pattern: Pattern) -> Iterator[Claim]:
    kept = _kept(pattern)
    if kept:
        yield lambda there: _named(pattern, kept) if _kept(there) == kept else None


def _kept(pattern: Pattern) -> dict[int, int]:
    """Axes of the output of which one position alone reaches the gradient, and that position; none where that does not explain everything."""
    e, right = pattern.entries, pattern.right & pattern.significant
    if right.sum() < ENOUGH or pattern.count < ENOUGH or not pattern.agrees(np.zeros(len(right)), np.zeros(len(right)), pattern.wrong):
        return {}
    if not np.isin(e.input[pattern.wrong], e.input[right]).all():
        return {}     # an input whose whole gradient is missing: no sum
    kept = {axis: int(at[0]) for axis in _axes(pattern) if len(at := np.unique(pattern.output.along(axis, e.output[right]))) == 1}
    inside = np.ones(len(right), bool)
    for axis, place in kept.items():
        inside &= pattern.output.along(axis, e.output) == place
    return {} if inside[pattern.wrong].any() else kept


def _named(pattern: Pattern, kept: dict[int, int]) -> Cause:
    index = ", ".join(str(kept[axis]) if axis in kept else ":" for axis in range(len(pattern.output.shape)))
    over = f"axis {next(iter(kept))}" if len(kept) == 1 else f"axes {', '.join(map(str, kept))}"
    return Cause("missing reduction", f"only {pattern.output.name}[{index}] reaches the gradient of {pattern.input.name}, analytic = 0 "
                 f"{pattern.everywhere}: the sum over {over} of {pattern.output.name} is missing")


def _axes(pattern: Pattern) -> tuple[int, ...]:
    return tuple(axis for axis, n in enumerate(pattern.output.shape) if n > 1)


EXPLANATIONS = (Explanation(50, explain),)
REMEDIES = {
    "missing reduction": "add up what every position of that axis brings: where forward broadcast, `grad.sum(dim)` or `grad.sum_to_size(x.shape)`; "
                         "in a loop, what each step adds",
}
