"""The gradient of one input returned for another; the cotangent of one output taken for that of another."""

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


def of_outputs(pattern: Pattern) -> Iterator[Claim]:
    for other in pattern.siblings:
        if (other.shape, other.complex) == (pattern.output.shape, pattern.output.complex) and _is_of(pattern, other):
            cause = Cause("swapped outputs", f"analytic = numeric of {other.name} {pattern.everywhere}: backward takes the grad_output of "
                          f"{pattern.output.name} for that of {other.name}")
            yield partial(_of_output_too, cause, other.name)


def _of_output_too(cause: Cause, name: str, there: Pattern) -> Cause | None:
    return cause if any(other.name == name and _is_of(there, other) for other in there.siblings) else None


def _is_of(pattern: Pattern, other: Other) -> bool:
    """Are all elements of the analytic side those of the other one's numeric side? One that never moves f has none to be taken for."""
    nothing = np.zeros(len(other.entries.output), bool)
    theirs = replace(pattern, entries=other.entries, wrong=nothing, unknown=nothing)
    e = pattern.entries
    value, bar, _ = theirs.numeric(e.output, e.input)
    large = np.abs(other.entries.numeric) > RESOLVED * (other.entries.bar + pattern.dust)
    _, _, here = pattern.numeric(other.entries.output[large], other.entries.input[large])
    return bool(large.any()) and bool((here >= 0).all()) and pattern.agrees(value, bar)


EXPLANATIONS = (Explanation(30, explain), Explanation(31, of_outputs))
REMEDIES = {
    "swapped inputs": "look at the order of what backward returns, and for one formula that is written for both",
    "swapped outputs": "look at the order of backward's grad_outputs, which is that of forward's outputs",
}
