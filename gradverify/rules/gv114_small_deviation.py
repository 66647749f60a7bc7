"""GV114 small-deviation: everything is within the tolerance, but off by far more than the error bars

What. No element is a mismatch, yet one differs by more than ten times its error bar, and by more than 1e-9 of its size.

Why it matters. A right gradient agrees to the bar. A deviation that is small and certain comes from a rounded constant, a truncated
series or float32 inside backward: harmless today, and a sign that forward and backward are not written from one formula. A warning.

How it is measured. From the comparison of GV101. The largest such deviation is printed.

How to repair. Compute constants instead of typing digits; use the same in forward and backward; keep backward in the input's dtype.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        c = 0.7978846                   # forward has math.sqrt(2 / math.pi)
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.columns.tally import Outcome
from gradverify.rules.shown import unjudged

SEVERITY = "warning"
CATCHES = "rounds_a_constant"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found) or ("a fixed `eps` has no error bars" if evidence.settings.eps != "auto" else None)


def check(evidence: Evidence) -> Iterator[Finding]:
    for (index, output), pair in evidence.jacobian.pairs.items():
        if pair.deviation and not pair.count(Outcome.MISMATCH) and not pair.low_precision:
            name, place = evidence.inputs[index].name, evidence.forward.checked[output]
            y = evidence.name_of(place)
            yield Finding("GV114", f"d {y} / d {name} is within the tolerance, but off by {pair.deviation:.2g} of its size, more than ten times "
                          "the error bar: a rounded constant, a truncated series, or float32 inside backward", input=name, output=place,
                          hint="compute constants instead of typing digits, the same ones in forward and backward")
