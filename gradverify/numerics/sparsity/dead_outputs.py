"""Outputs that nothing moved (the dead half of a relu), with the place in the pattern that they would have if they were alive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradverify.numerics.rungs import Index, Mask
from gradverify.numerics.sparsity.pattern import Pattern


def with_dead_outputs(pattern: Pattern, output: Sequence[int]) -> Pattern:
    """The pattern with windows for dead outputs, where those of all others follow one rule; `output`: the shape of the output tensor.

    More than what was seen is sound, and a gradient that passes the dead half is then told element by element.
    """
    live = ~pattern.nothing
    if live.all() or not live.any():
        return pattern
    windows = [_windows_by_rule(pattern, axis, output, live) for axis in range(len(pattern.shape))]
    known = [window for window in windows if window is not None]
    if len(known) < len(windows):
        return pattern
    return replace(pattern, low=tuple(low for low, _ in known), high=tuple(high for _, high in known), nothing=np.zeros(len(live), bool))


def _windows_by_rule(pattern: Pattern, axis: int, output: Sequence[int], live: Mask) -> tuple[Index, Index] | None:
    """Windows [M] of all outputs along one axis, if those of the live ones are all the same, or run along the output in order."""
    low, high, n = pattern.low[axis], pattern.high[axis], pattern.shape[axis]
    first = int(np.argmax(live))
    if (low[live] == low[first]).all() and (high[live] == high[first]).all():
        return np.full_like(low, low[first]), np.full_like(high, high[first])
    for stride in {math.prod(output[k:]) for k in range(1, len(output) + 1)} | {pattern.strides[axis]}:
        if stride * n and len(low) % (stride * n) == 0:
            place = np.arange(len(low)) // stride % n
            if (low[live] == place[live]).all() and (high[live] == place[live]).all():
                return place, place
    return None
