"""GV106 reference-gradient: backward differs from autograd through the reference."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.oracle import blamed
from gradverify.rules.shown import comparison, differs, unjudged


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
