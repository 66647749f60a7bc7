"""GV102 missing-gradient: no gradient where the function has one

What. `backward` returns None for an input on which the output depends, or an output that the spec names under `outputs` has no graph
although it moves with the inputs.

Why it matters. The parameter behind that input never learns, and nothing says so: autograd takes None for zero.

How it is measured. The finite difference of a pair whose gradient is None throughout is compared with zero.

How to repair. Return the gradient, or mark the input as not differentiable in the spec (`requires_grad: false`) if that is meant.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output * weight, None           # and d y / d weight?
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.columns.tally import Outcome
from gradverify.rules.shown import place_name, unjudged

CATCHES = "forgets_second_gradient"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found)


def check(evidence: Evidence) -> Iterator[Finding]:
    for (index, output), pair in evidence.jacobian.pairs.items():
        if (index, output) in evidence.jacobian.absent and pair.count(Outcome.MISMATCH):
            argument, worst = evidence.inputs[index], pair.worst[0]
            place = evidence.forward.checked[output]
            where = place_name(evidence, index, output, worst)
            yield Finding("GV102", f"backward returns None for {argument.name}, but y{place} depends on it: the finite difference at {where} "
                          f"is {worst.numeric:.6g}", input=argument.name, output=place,
                          hint=f"return the gradient of {argument.name}, or say `requires_grad: false` if it is meant to have none")
    for place in evidence.moving:
        yield Finding("GV102", f"y{place} moves with the inputs, but has no graph that leads back to them", output=place,
                      hint="it was detached, or marked with `mark_non_differentiable`: take it out of `outputs` if that is meant")
