"""A factor of its own for each position along one axis: a scale of rows or columns left out, or taken twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, Side, settled
from gradverify.causes.words import axis_name, factor
from gradverify.model.result import Cause
from gradverify.numerics.pairs.pair import ratios
from gradverify.numerics.rungs import Array

REDUNDANT = 4  # elements more than factors: any numbers whatever have one factor each
DISTINCT = 3  # factors: two may be a block and the rest
SHOWN = 4
_SIDES = ("input", "output")


def explain(pattern: Pattern) -> Iterator[Claim]:
    """The factors may be others at another point, where they come from the inputs."""
    for name in _SIDES:
        side = _side(pattern, name)
        for axis in (axis for axis in side.axes() if axis is not None):
            factors = _factors(pattern, name, axis)
            if factors is not None:
                yield partial(_confirmed, _named(pattern, side, axis, factors), name, axis)


def _confirmed(cause: Cause, side: str, axis: int, there: Pattern) -> Cause | None:
    return cause if _factors(there, side, axis) is not None else None


def _side(pattern: Pattern, name: str) -> Side:
    return pattern.input if name == "input" else pattern.output


def _named(pattern: Pattern, side: Side, axis: int, factors: list[float]) -> Cause:
    word = axis_name(side, axis)
    name = f"scaled per {word if word in ('row', 'column') else 'slice'}"
    shown = ", ".join(factor(c) for c in factors[:SHOWN]) + (", …" if len(factors) > SHOWN else "")
    return Cause(name, f"analytic = c × numeric with one c for each {word} of {side.name} ({shown}) {pattern.everywhere}")


def _factors(pattern: Pattern, name: str, axis: int) -> list[float] | None:
    """One factor per position that has any, if they explain everything; None otherwise."""
    e, use, side = pattern.entries, ~pattern.unknown, _side(pattern, name)
    position, n = side.along(axis, e.input if name == "input" else e.output), side.length(axis)
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


EXPLANATIONS = (Explanation(130, explain),)
REMEDIES = {
    "scaled per": "look for a factor that has one number for each of them, such as a weight, a norm or a count",
}
