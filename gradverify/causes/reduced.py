"""A sum over a broadcast dimension that backward leaves out: one slice of the sum is all there is."""

from __future__ import annotations

import numpy as np

from gradverify.causes.pattern import Pattern
from gradverify.model.result import Cause

ENOUGH = 3  # elements that stand and that are missing, at least


def explain(pattern: Pattern) -> Cause | None:
    e, right = pattern.entries, pattern.right & pattern.significant
    if right.sum() < ENOUGH or pattern.count < ENOUGH or not pattern.agrees(np.zeros(len(right)), np.zeros(len(right)), pattern.wrong):
        return None
    if not np.isin(e.input[pattern.wrong], e.input[right]).all():
        return None     # an input whose whole gradient is missing: no sum
    kept = {axis: int(at[0]) for axis in _axes(pattern) if len(at := np.unique(pattern.output.along(axis, e.output[right]))) == 1}
    inside = np.ones(len(right), bool)
    for axis, place in kept.items():
        inside &= pattern.output.along(axis, e.output) == place
    if not kept or inside[pattern.wrong].any():
        return None
    index = ", ".join(str(kept[axis]) if axis in kept else ":" for axis in range(len(pattern.output.shape)))
    over = f"axis {next(iter(kept))}" if len(kept) == 1 else f"axes {', '.join(map(str, kept))}"
    return Cause("missing reduction", f"only {pattern.output.name}[{index}] reaches the gradient of {pattern.input.name}, analytic = 0 "
                 f"{pattern.everywhere}: the sum over {over} of {pattern.output.name} is missing")


def _axes(pattern: Pattern) -> tuple[int, ...]:
    return tuple(axis for axis, n in enumerate(pattern.output.shape) if n > 1)
