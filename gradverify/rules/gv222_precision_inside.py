"""GV222 precision-inside: the forward computes in fewer bits than it claims."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import unjudged

DOUBLE = ("float64", "complex128")
FORMATS = ((2.0**-8, "bfloat16"), (2.0**-11, "float16"), (2.0**-24, "float32"))     # by unit roundoff


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if any(str(x.dtype).removeprefix("torch.") not in DOUBLE for x in evidence.subject.inputs):
        return "an input is of lower precision itself"
    return unjudged(found) or ("a fixed `eps` does not look at bits" if evidence.settings.eps != "auto" else None)


def check(evidence: Evidence) -> Iterator[Finding]:
    seen = {output: max(pair.unit, evidence.precisions[output]) for (_, output), pair in evidence.jacobian.pairs.items() if pair.low_precision}
    for output, unit in seen.items():
        if unit >= FORMATS[-1][0] and str(evidence.outputs[output].dtype).removeprefix("torch.") in DOUBLE:
            place = evidence.forward.checked[output]
            name = next((name for least, name in FORMATS if unit >= least), "lower precision")
            y = evidence.name_of(place)
            own = str(evidence.outputs[output].dtype).removeprefix("torch.")
            yield Finding("GV222", f"every value of {y}, which is {own}, is a {name} number: forward computes in {name}, or rounds to it",
                          output=place, hint="compute in the inputs' own dtype, unless forward is meant to round")
