"""A factor of its own for each position along one axis: a scale of rows or columns left out, or taken twice."""

from __future__ import annotations

import numpy as np

from gradverify.causes.pattern import Pattern, Side, settled
from gradverify.causes.words import axis_name, factor
from gradverify.model.result import Cause
from gradverify.numerics.columns.entries import ratios
from gradverify.numerics.rungs import Array, Index

REDUNDANT = 4  # elements more than factors: any numbers whatever have one factor each
DISTINCT = 3  # factors: two may be a block and the rest
SHOWN = 4


def explain(pattern: Pattern) -> Cause | None:
    for side, coordinate in ((pattern.input, pattern.entries.input), (pattern.output, pattern.entries.output)):
        for axis in side.axes():
            if axis is not None:
                factors = _factors(pattern, side.along(axis, coordinate), side.length(axis))
                if factors is not None:
                    return _named(pattern, side, axis, factors)
    return None


def _named(pattern: Pattern, side: Side, axis: int, factors: list[float]) -> Cause:
    word = axis_name(side, axis)
    name = f"scaled per {word if word in ('row', 'column') else 'slice'}"
    shown = ", ".join(factor(c) for c in factors[:SHOWN]) + (", …" if len(factors) > SHOWN else "")
    return Cause(name, f"analytic = c × numeric with one c for each {word} of {side.name} ({shown}) {pattern.everywhere}")


def _factors(pattern: Pattern, position: Index, n: int) -> list[float] | None:
    """One factor per position that has any, if they explain everything; None otherwise."""
    e, use = pattern.entries, ~pattern.unknown
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    least, most = ratios(e.analytic, e.numeric, e.bar, pattern.rounding)
    resolved = use & np.isfinite(least)
    np.maximum.at(low, position[resolved], least[resolved])
    np.minimum.at(high, position[resolved], most[resolved])
    told = np.isfinite(low)
    if (low > high).any() or resolved.sum() - told.sum() < REDUNDANT or _distinct(low[told], high[told]) < DISTINCT:
        return None
    c = np.array([settled(a, b) if known else 0.0 for a, b, known in zip(low.tolist(), high.tolist(), told.tolist(), strict=True)])
    explained = pattern.agrees(c[position] * e.numeric, np.abs(c[position]) * e.bar, use)
    return c[told].tolist() if explained else None


def _distinct(low: Array, high: Array) -> int:
    """Intervals, from the left, none of which touches the one before."""
    count, end = 0, -np.inf
    for n in np.argsort(high):
        if low[n] > end:
            count, end = count + 1, high[n]
    return count
