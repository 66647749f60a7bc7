"""One factor over all wrong elements while the others are right: one term of several has the wrong sign, or counts twice or half."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradverify.causes.pattern import Claim, Explanation, Pattern
from gradverify.causes.words import factor
from gradverify.model.result import Cause
from gradverify.numerics.rungs import Mask

ENOUGH = 4  # wrong elements that share the factor, and right ones beside them, at each point
PLAIN = {-1.0: ("sign flipped", "one term has the wrong sign"), 2.0: ("scaled", "one term counts twice"), 0.5: ("scaled", "one term counts half"),
         -2.0: ("scaled", "one term has the factor −2"), -0.5: ("scaled", "one term has the factor −1/2")}


def explain(pattern: Pattern) -> Iterator[Claim]:
    c = _factor(pattern)
    if c is not None:
        yield lambda there: _named(pattern, c) if _factor(there) == c else None


def _factor(pattern: Pattern) -> float | None:
    right = pattern.right & pattern.significant
    if pattern.count < ENOUGH or right.sum() < ENOUGH or not _of_a_term(pattern, right):
        return None
    c = pattern.factor(pattern.wrong)
    return c if c in PLAIN and pattern.scaled_by(c, pattern.wrong) else None


def _of_a_term(pattern: Pattern, right: Mask) -> bool:
    """Has every input and every output with a wrong element a right one too? Else it is wrong in places, for all that is summed there."""
    e, wrong = pattern.entries, pattern.wrong
    return bool(np.isin(e.input[wrong], e.input[right]).all() and np.isin(e.output[wrong], e.output[right]).all())


def _named(pattern: Pattern, c: float) -> Cause:
    name, words = PLAIN[c]
    times = "−1" if c == -1 else factor(c)
    return Cause(name, f"analytic = {times} × numeric {pattern.everywhere}, and the others are right: {words}")


EXPLANATIONS = (Explanation(70, explain),)
