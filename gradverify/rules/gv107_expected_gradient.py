"""GV107 expected-gradient: backward differs from the gradient that the spec gives

What. With `expected:`, the gradient of the sum of the outputs differs from the numbers in the spec; with `gradient:`, it differs from a
hand-written gradient.

Why it matters. Numbers from a paper or a derivation are the strongest test there is: they do not come from the same code.

How it is measured. `expected`: one backward with ones. `gradient`: one backward with a dense random cotangent, and the hand-written
function with the same; arrays where it is written in NumPy, tensors otherwise. Compared within the tolerance, plus rounding. A
difference that comes and goes with the bits of the inputs, and is at most some roundings of the cotangent's norm, is rounding: undecided.

How to repair. If finite differences agree with backward (no GV101), check the numbers: were they rounded? Say `rtol`.

Example.
    - function: shop
      inputs: {apple: {values: 100.0}, n1: {values: 2.0}, tangerine: null, n2: null, tax: {values: 1.1}}
      expected: {apple: 2.2, n1: 110.0, tax: 200.0}
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.oracles.given import Given
from gradverify.rules.oracle import blamed
from gradverify.rules.shown import comparison, differs, unjudged

CATCHES = "averages_over_features"
ORDER = 280
RANK = 140
LINE = True
CAUSES = "given numbers"
KILLS = "values"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found) if _given(evidence) else "the spec gives neither `expected` nor `gradient`"


def check(evidence: Evidence) -> Iterator[Finding | Comparison]:
    for oracle in _given(evidence):
        for (index, _), pair in oracle.pairs.items():
            argument = evidence.inputs[index]
            yield comparison("GV107", argument, None, None, pair)
            if pair.count(Outcome.MISMATCH):
                finding = differs("GV107", argument, None, None, pair, oracle.says, "check these numbers")
                yield blamed(finding, evidence, index, None, oracle.name, oracle.target)


def _given(evidence: Evidence) -> list[Given]:
    return [oracle for oracle in evidence.oracles.values() if isinstance(oracle, Given)]
