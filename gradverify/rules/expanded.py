"""`layout: expanded`: the Jacobian was measured on separate elements; one forward and backward on the tensor with stride 0 must agree."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.columns.tally import Outcome
from gradverify.rules.shown import element_name
from gradverify.subject.failure import UserCodeError

HINT = "its elements share memory: read it through its strides, or call .contiguous(), in forward and in backward"


def expanded(evidence: Evidence) -> Iterator[Finding]:
    """What comes out differently when the inputs that the spec calls expanded really are. Raises UserCodeError where it raises."""
    names = " and ".join(argument.name for argument in evidence.subject.arguments if argument.layout == "expanded")
    if not names:
        return
    try:
        seen = evidence.expanded
    except UserCodeError as error:
        if error.code != "GV003":
            raise
        yield Finding("GV101", error.message, hint=HINT, frames=error.frames)
        return
    for place, pair in seen.outputs.items():
        if pair.count(Outcome.MISMATCH):
            worst, y = pair.worst[0], evidence.outputs[place]
            where = element_name(evidence.name_of(evidence.forward.checked[place]), y, worst.input_index)
            yield Finding("GV101", f"with {names} expanded (stride 0) the forward gives {worst.analytic:.6g} at {where}, with a contiguous copy "
                          f"{worst.numeric:.6g}", output=evidence.forward.checked[place], hint=HINT)
    for index, pair in seen.gradients.items():
        if pair.count(Outcome.MISMATCH):
            worst, argument = pair.worst[0], evidence.inputs[index]
            where = element_name(argument.name, argument.value, worst.input_index)
            yield Finding("GV101", f"with {names} expanded (stride 0) backward gives {worst.analytic:.6g} for {where}, with a contiguous copy "
                          f"{worst.numeric:.6g}", input=argument.name, hint=HINT)
