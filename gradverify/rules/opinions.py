"""Values and gradients that differ from what the spec names beside finite differences: a reference,
or given numbers."""

from __future__ import annotations

from dataclasses import replace

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.rules.shown import Findings, NotApplicable, Told, comparison, differs, element_name
from gradverify.subject.target import Target


# ---- Where another opinion and backward differ: whose fault it is, as far as finite differences
# tell
def blamed(
    finding: Finding,
    evidence: Evidence,
    index: int,
    output: int | None,
    name: str,
    target: Target | None = None,
) -> Finding:
    """The finding with the oracle to blame in its place, where backward agrees with finite
    differences on every element of the pair.

    `index`, `output`: among the differentiable inputs and the checked outputs, None for all of
    these; `target`: where the oracle stands.
    """
    pairs = [
        pair
        for (i, o), pair in evidence.jacobian.pairs.items()
        if i == index and output in (None, o)
    ]
    if any(pair.count(Outcome.MISMATCH) for pair in pairs):
        return replace(
            finding, hint=f"{evidence.difference} differs from backward too: look at backward first"
        )
    if any(pair.count(Outcome.PASS, Outcome.KINK) != pair.compared for pair in pairs):
        return finding
    spec = evidence.subject.case.spec
    file, line, source = (
        (spec.path, spec.line, None)
        if target is None
        else (target.file or spec.path, target.line, target.source)
    )
    return replace(
        finding,
        message=f"{name} is wrong, not backward: {finding.message}",
        file=file,
        line=line,
        source=source,
        hint=f"backward agrees with {evidence.difference} on every element: correct {name}",
    )


# ---- GV105 reference-value: the forward differs from the reference's
SHARE = 1e-4  # of the numbers may stay undecided in a check that passes
FEWER_BITS = "look for an approximation, and for fewer bits than float32"


def gv105(evidence: Evidence) -> Findings:
    _named(evidence)
    for index, seen in evidence.reference.value_pairs.items():
        place = evidence.forward.checked[index]
        if isinstance(seen, str):
            yield Finding("GV105", f"{evidence.name_of(place)}: {seen}", output=place)
            continue
        wrong, undecided = seen.count(Outcome.MISMATCH), seen.count(Outcome.UNDECIDED)
        if not wrong and undecided <= max(1.0, SHARE * seen.compared):
            continue
        worst, of = seen.worst[0], f"of {seen.compared} numbers of {evidence.name_of(place)}"
        where = element_name(evidence.name_of(place), evidence.outputs[index], worst.output_index)
        if wrong:
            yield Finding(
                "GV105",
                f"{wrong} {of} differ from {evidence.reference.name}; worst at {where}: "
                f"{worst.analytic:.6g}, reference {worst.numeric:.6g}",
                output=place,
                hint="decide which of the two forwards is right",
            )
        elif (beyond := _beyond(evidence, index, seen)) is not None:
            yield Finding(
                "GV105",
                f"{evidence.name_of(place)} differs from {evidence.reference.name}; {beyond}",
                output=place,
                hint=FEWER_BITS,
            )
        else:
            yield Finding(
                "GV007",
                f"{undecided} {of} could not be compared with {evidence.reference.name}: at "
                f"{where} the two are known to "
                f"±{worst.bar:.2g} only, the tolerance is {worst.tolerance:.2g}",
                output=place,
                hint="both lose more to rounding than the tolerance allows: give `rtol` or `atol`",
            )


def _beyond(evidence: Evidence, index: int, seen: Pair) -> str | None:
    """Of values in float32 that their own noise leaves undecided: how far they are off, where that
    is beyond the tolerance and no rounding of float32, in the reference's way to compute them or in
    the function's own."""
    outside = not evidence.draws and any(
        abs(each.analytic - each.numeric) > each.tolerance for each in seen.worst
    )
    if (found := evidence.reference.beyond_float32[index] if outside else None) is None:
        return None
    theirs, own = found
    where = element_name(
        evidence.name_of(evidence.forward.checked[index]), evidence.outputs[index], theirs.index
    )
    return (
        f"at {where} it is {theirs.kernel:.6g}, and {theirs.exact:.6g} in float64: a row is off by "
        f"{theirs.ratio:.3g} × what float32 costs the "
        f"reference, and by {own.ratio:.3g} × what it costs the function itself"
    )


# ---- GV106 reference-gradient: backward differs from autograd through the reference
def gv106(evidence: Evidence) -> Told:
    _named(evidence)
    if any(isinstance(seen, str) for seen in evidence.reference.value_pairs.values()):
        raise NotApplicable("the reference returns other shapes (GV105)")
    for place, theirs in zip(evidence.forward.checked, evidence.reference.outputs, strict=True):
        if not theirs.requires_grad:
            yield Finding(
                "GV106",
                f"{evidence.name_of(place)} of {evidence.reference.name} has no graph: autograd "
                "gives no gradient",
                output=place,
                hint="write the reference with differentiable torch operations, or give the "
                "gradient itself: `gradient:`",
            )
    for (index, output), pair in evidence.reference.rows.items():
        argument, place, y = (
            evidence.inputs[index],
            evidence.forward.checked[output],
            evidence.outputs[output],
        )
        yield comparison("GV106", argument, place, y, pair)
        if pair.count(Outcome.MISMATCH) and evidence.reference.outputs[output].requires_grad:
            name = evidence.reference.name
            found = differs(
                "GV106",
                argument,
                place,
                y,
                pair,
                f"autograd through {name}",
                None,
                output_name=evidence.name_of(place),
            )
            yield (
                found
                if _other_values(evidence, output)
                else blamed(found, evidence, index, output, name, evidence.reference.target)
            )


def _named(evidence: Evidence) -> None:
    if not evidence.subject.case.oracles.reference:
        raise NotApplicable("the spec names no `reference`")


def _other_values(evidence: Evidence, output: int) -> bool:
    """Do the forwards differ (GV105)? Then the two are other functions, and their gradients say
    nothing of who is at fault."""
    seen = evidence.reference.value_pairs[output]
    return isinstance(seen, str) or seen.count(Outcome.MISMATCH) > 0


# ---- GV107 expected-gradient: backward differs from the gradient that the spec gives
def gv107(evidence: Evidence) -> Told:
    if not evidence.given:
        raise NotApplicable("the spec gives neither `expected` nor `gradient`")
    for oracle in evidence.given:
        for index, pair in oracle.pairs.items():
            argument = evidence.inputs[index]
            yield comparison("GV107", argument, None, None, pair)
            if pair.count(Outcome.MISMATCH):
                finding = differs(
                    "GV107", argument, None, None, pair, oracle.says, "check these numbers"
                )
                yield blamed(finding, evidence, index, None, oracle.name, oracle.target)
