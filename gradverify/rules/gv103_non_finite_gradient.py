"""GV103 non-finite-gradient: backward gives NaN or inf where the function has a derivative."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.shown import element_name, unjudged


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found)


def check(evidence: Evidence) -> Iterator[Finding]:
    for (index, output), pair in evidence.jacobian.pairs.items():
        bad = [element for element in pair.worst if element.outcome is Outcome.MISMATCH and not math.isfinite(element.analytic)]
        if bad:
            argument, y, place = evidence.inputs[index], evidence.outputs[output], evidence.forward.checked[output]
            x = element_name(argument.name, argument.value, bad[0].input_index)
            where = element_name(evidence.name_of(place), y, bad[0].output_index)
            yield Finding("GV103", f"backward gives {bad[0].analytic} for {x} at {where}, where the "
                          f"finite difference is {bad[0].numeric:.6g}", input=argument.name, output=place,
                          hint="look for the first number inside backward that is not finite: 0/0, 0 · ∞, ∞ − ∞, an overflow, "
                               "memory that was never written")
