"""The gradient of one input returned for another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Other, Pattern
from gradverify.model.result import Cause
from gradverify.numerics.rungs import RESOLVED


def explain(pattern: Pattern) -> Iterator[Claim]:
    for other in pattern.others:
        if (other.shape, other.complex) == (pattern.input.shape, pattern.input.complex) and _is_of(pattern, other):
            cause = Cause("swapped inputs", f"analytic = numeric of {other.name} {pattern.everywhere}: backward returns the gradient of {other.name}")
            yield partial(_confirmed, cause, other.name)


def _confirmed(cause: Cause, name: str, there: Pattern) -> Cause | None:
    return cause if any(other.name == name and _is_of(there, other) for other in there.others) else None


def _is_of(pattern: Pattern, other: Other) -> bool:
    """Are all elements of the analytic side those of the other one's numeric side? One that never moves f has none to be taken for."""
    nothing = np.zeros(len(other.entries.output), bool)
    theirs = replace(pattern, entries=other.entries, wrong=nothing, unknown=nothing)
    e = pattern.entries
    value, bar, _ = theirs.numeric(e.output, e.input)
    large = np.abs(other.entries.numeric) > RESOLVED * (other.entries.bar + pattern.dust)
    _, _, here = pattern.numeric(other.entries.output[large], other.entries.input[large])
    return bool(large.any()) and bool((here >= 0).all()) and pattern.agrees(value, bar)


EXPLANATIONS = (Explanation(30, explain),)
REMEDIES = {
    "swapped inputs": "look at the order of what backward returns, and for one formula that is written for both",
}
