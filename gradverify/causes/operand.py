"""A factor that backward forgot, or took once too often: another input, the output, or the whole derivative."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern, Side, Value
from gradverify.model.result import Cause
from gradverify.numerics.pairs.pair import ROUNDINGS
from gradverify.numerics.rungs import Array

DISTINCT = 3  # numbers of the factor at the elements: with fewer any region is one
ENOUGH = 4  # elements
KINDS = ("missing", "extra", "alone")


def explain(pattern: Pattern) -> Iterator[Claim]:
    """analytic × t = numeric, analytic = numeric × t, analytic = t: one number of t for each element of input or output."""
    if pattern.input.parts + pattern.output.parts > 2 or pattern.count < ENOUGH:
        return
    if _bare(pattern):
        yield lambda there: _left_out(pattern) if _bare(there) else None
    for kind in KINDS:
        for value in pattern.values:
            for name in ("output", "input"):
                if _fits(pattern, value, name, kind):
                    yield partial(_confirmed, pattern, value.name, name, kind)


def _confirmed(here: Pattern, value: str, side: str, kind: str, there: Pattern) -> Cause | None:
    fits = any(_fits(there, each, side, kind) for each in there.values if each.name == value)
    return _named(here, value, kind) if fits else None


def _bare(pattern: Pattern) -> bool:
    """Is every analytic number 1, where the numeric ones are not one number?"""
    if pattern.factor(pattern.significant & ~pattern.unknown) is not None:
        return False
    used = pattern.significant & ~pattern.unknown
    return bool((pattern.entries.analytic[used] == 1).all()) and len(np.unique(pattern.entries.numeric[used])) >= DISTINCT


def _fits(pattern: Pattern, value: Value, name: str, kind: str) -> bool:
    e, use = pattern.entries, ~pattern.unknown
    factors = _at(pattern, value, name)
    if factors is None or len(np.unique(factors[pattern.significant & use])) < DISTINCT:
        return False
    if kind == "missing":
        wanted, bar = e.numeric, e.bar + ROUNDINGS * pattern.unit * np.abs(e.numeric) + pattern.dust
        return bool((np.abs(e.analytic * factors - wanted) <= bar)[use].all()) and bool((np.abs(e.analytic) > pattern.dust)[pattern.wrong].any())
    if kind == "extra":
        return pattern.agrees(e.numeric * factors, e.bar * np.abs(factors))
    used = pattern.significant & use
    masked = (np.abs(e.numeric) <= e.bar + pattern.dust)[pattern.wrong].all()      # right but where it is 0: a mask is missing, no factor
    return not masked and pattern.agrees(factors, e.bar * 0, used)


def _at(pattern: Pattern, value: Value, name: str) -> Array | None:
    """The number of t at each element [E]; None where its shape does not fit."""
    side: Side = pattern.output if name == "output" else pattern.input
    spread = value.over(side.shape) if side.name else None
    return None if spread is None else spread[pattern.entries.output if name == "output" else pattern.entries.input].astype(float)


def _left_out(pattern: Pattern) -> Cause:
    return Cause("missing factor", f"analytic = 1 {pattern.everywhere}: grad_output is passed on as it came, without the derivative")


def _named(pattern: Pattern, value: str, kind: str) -> Cause:
    if kind == "missing":
        return Cause("missing factor", f"analytic × {value} = numeric {pattern.everywhere}: the factor {value} is missing")
    if kind == "extra":
        return Cause("extra factor", f"analytic = numeric × {value} {pattern.everywhere}: the factor {value} is one too many, or a division by it "
                     "is missing")
    return Cause("missing factor", f"analytic = {value} {pattern.everywhere}: backward returns grad_output × {value}")


EXPLANATIONS = (Explanation(90, explain),)
REMEDIES = {
    "missing factor": "the gradient is grad_output times the derivative with respect to this input",
}
