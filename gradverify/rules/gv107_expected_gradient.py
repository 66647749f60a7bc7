"""GV107 expected-gradient: backward differs from the gradient that the spec gives

What. With `expected:`, the gradient of the sum of the outputs differs from the numbers in the spec; with `gradient:`, it differs from a
hand-written gradient.

Why it matters. Numbers from a paper or a derivation are the strongest test there is: they do not come from the same code.

How it is measured. `expected`: one backward with ones. `gradient`: one backward with a dense random cotangent, and the hand-written
function with the same; arrays where it is written in NumPy, tensors otherwise. Compared within the tolerance, plus rounding.

How to repair. If finite differences agree with backward (no GV101), check the numbers: were they rounded? Say `rtol`.

Example.
    - function: shop
      inputs: {apple: {values: 100.0}, n1: {values: 2.0}, tangerine: null, n2: null, tax: {values: 1.1}}
      expected: {apple: 2.2, n1: 110.0, tax: 200.0}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.columns.tally import Outcome, Pair
from gradverify.oracles.gradient import gradient_target
from gradverify.rules.oracle import blamed
from gradverify.rules.shown import comparison, differs, unjudged
from gradverify.subject.target import Target

CATCHES = "averages_over_features"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    oracles = evidence.subject.case.oracles
    if oracles.expected is None and oracles.gradient is None:
        return "the spec gives neither `expected` nor `gradient`"
    return unjudged(found)


def check(evidence: Evidence) -> Iterator[Finding | Comparison]:
    oracles = evidence.subject.case.oracles
    if oracles.expected is not None:
        yield from _compared(evidence, evidence.expected, "the numbers in the spec (`expected`)")
    if oracles.gradient is not None:
        yield from _compared(evidence, evidence.hand_written, f"gradient {oracles.gradient}", gradient_target(evidence.subject))


def _compared(evidence: Evidence, pairs: Mapping[int, Pair], against: str, target: Target | None = None) -> Iterator[Finding | Comparison]:
    for index, pair in pairs.items():
        argument = evidence.inputs[index]
        yield comparison("GV107", argument, None, None, pair)
        if pair.count(Outcome.MISMATCH):
            name = "`expected` in the spec" if target is None else against
            yield blamed(differs("GV107", argument, None, None, pair, against, "check these numbers"), evidence, index, None, name, target)
