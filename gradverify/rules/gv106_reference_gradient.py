"""GV106 reference-gradient: backward differs from autograd through the reference

What. With `reference:`, an element of the Jacobian from `backward` differs from the one that autograd computes through the other
implementation.

Why it matters. The two should be interchangeable; training with one is not training with the other.

How it is measured. The same vector-Jacobian products of both, compared within the tolerance, plus rounding: of up to 16 outputs one by one,
else of groups of outputs that share no input; in the mode `blocks`, and where the budget affords no more, of three random
cotangents. What differs is resolved to elements. At a kink both are right where both lie between the slopes from the left and the right.
A difference that comes and goes with the bits of the inputs, and is at most some roundings of 1, is rounding inside one of them: undecided.
So is one of float32 that the reference in float64 shows when every operation of it rounds at random as in float32; and one where forward
loses as much in float32 (a variance as E[x²] − E[x]²), if in float64 the function's own backward is that of the reference, and random
roundings of it explain the difference.

How to repair. As for GV101. If finite differences agree with backward (no GV101), the reference is the one that differs. Where the forwards differ
too (GV105), decide first which of the two is right.

Example.
    checks:
      - function: my_ops:Gelu                       # backward of the exact form
        reference: torch.nn.functional:gelu
        inputs: {x: {shape: [8]}}
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.oracle import blamed
from gradverify.rules.shown import comparison, differs, unjudged

CATCHES = "forgets_the_scale"
ORDER = 290
RANK = 140
LINE = True
CAUSES = "reference"
KILLS = "values"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if not evidence.subject.case.oracles.reference:
        return "the spec names no `reference`"
    if unjudged(found):
        return unjudged(found)
    shaped = any(isinstance(seen, str) for seen in evidence.reference.values.values())
    return "the reference returns other shapes (GV105)" if shaped else None


def check(evidence: Evidence) -> Iterator[Finding | Comparison]:
    for place, theirs in zip(evidence.forward.checked, evidence.reference.outputs, strict=True):
        if not theirs.requires_grad:
            yield Finding("GV106", f"{evidence.name_of(place)} of {evidence.reference.name} has no graph: autograd gives no gradient", output=place,
                          hint="write the reference with differentiable torch operations, or give the gradient itself: `gradient:`")
    for (index, output), pair in evidence.reference.rows.items():
        argument, place, y = evidence.inputs[index], evidence.forward.checked[output], evidence.outputs[output]
        yield comparison("GV106", argument, place, y, pair)
        if pair.count(Outcome.MISMATCH) and evidence.reference.outputs[output].requires_grad:
            name = evidence.reference.name
            found = differs("GV106", argument, place, y, pair, f"autograd through {name}", None, output_name=evidence.name_of(place))
            yield found if _other_values(evidence, output) else blamed(found, evidence, index, output, name, evidence.reference.target)


def _other_values(evidence: Evidence, output: int) -> bool:
    """Do the forwards differ (GV105)? Then the two are other functions, and their gradients say nothing of who is at fault."""
    seen = evidence.reference.values[output]
    return isinstance(seen, str) or seen.count(Outcome.MISMATCH) > 0
