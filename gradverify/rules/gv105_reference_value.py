"""GV105 reference-value: the forward differs from the reference's."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import ElementRecord, Outcome, Pair
from gradverify.rules.shown import element_name

SHARE = 1e-4        # of the numbers may stay undecided in a check that passes (command-line.md)
FEWER_BITS = "look for an approximation, and for fewer bits than float32"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None if evidence.subject.case.oracles.reference else "the spec names no `reference`"


def check(evidence: Evidence) -> Iterator[Finding]:
    for index, seen in evidence.reference.values.items():
        place, y = evidence.forward.checked[index], evidence.outputs[index]
        if isinstance(seen, str):
            yield Finding("GV105", f"{evidence.name_of(place)}: {seen}", output=place)
        elif seen.count(Outcome.MISMATCH):
            worst = seen.worst[0]
            yield Finding("GV105", f"{seen.count(Outcome.MISMATCH)} of {seen.compared} numbers of {evidence.name_of(place)} differ from "
                          f"{evidence.reference.name}; worst at {_where(evidence, place, y, worst)}: {worst.analytic:.6g}, reference "
                          f"{worst.numeric:.6g}", output=place, hint="decide which of the two forwards is right")
        elif seen.count(Outcome.UNDECIDED) > max(1.0, SHARE * seen.compared):
            if (beyond := _beyond(evidence, index, seen)) is not None:
                yield Finding("GV105", f"{evidence.name_of(place)} differs from {evidence.reference.name}; {beyond}", output=place, hint=FEWER_BITS)
                continue
            worst, many = seen.worst[0], f"{seen.count(Outcome.UNDECIDED)} of {seen.compared} numbers of {evidence.name_of(place)}"
            yield Finding("GV007", f"{many} could not be compared with {evidence.reference.name}: at {_where(evidence, place, y, worst)} the two "
                          f"are known to ±{worst.bar:.2g} only, the tolerance is {worst.tolerance:.2g}", output=place,
                          hint="both lose more to rounding than the tolerance allows: give `rtol` or `atol`")


def _beyond(evidence: Evidence, index: int, seen: Pair) -> str | None:
    """Of values in float32 that their own noise leaves undecided: how far they are off, where that is beyond the tolerance and no rounding of
    float32, in the reference's way to compute them or in the function's own."""
    outside = not evidence.draws and any(abs(each.analytic - each.numeric) > each.tolerance for each in seen.worst)
    if (found := evidence.reference.beyond_float32[index] if outside else None) is None:
        return None
    theirs, own = found
    y, place = evidence.outputs[index], evidence.forward.checked[index]
    where = element_name(evidence.name_of(place), y, theirs.index)
    return (f"at {where} it is {theirs.kernel:.6g}, and {theirs.exact:.6g} in float64: a row is off by {theirs.ratio:.3g} × what float32 costs the "
            f"reference, and by {own.ratio:.3g} × what it costs the function itself")


def _where(evidence: Evidence, place: int, y: Tensor, worst: ElementRecord) -> str:
    return element_name(evidence.name_of(place), y, worst.output_index)
