"""GV102 missing-gradient: no gradient where the function has one."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.shown import place_name, unjudged
from gradverify.subject.subject import Argument

UNREGISTERED = "WarnNotImplemented"     # torch's node behind an operator that has kernels only


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found)


def check(evidence: Evidence) -> Iterator[Finding]:
    missing: dict[int, list[int]] = {}
    for (index, output), pair in evidence.jacobian.pairs.items():
        if (index, output) in evidence.jacobian.absent and pair.count(Outcome.MISMATCH):
            missing.setdefault(index, []).append(output)
    yield from (_missing(evidence, index, outputs) for index, outputs in missing.items())
    for place in evidence.moving:
        yield Finding("GV102", f"{evidence.name_of(place)} moves with the inputs, but has no graph that leads back to them", output=place,
                      hint="take it out of `outputs` if it is meant to have no gradient")


def _missing(evidence: Evidence, index: int, outputs: list[int]) -> Finding:
    """Build one finding per input, however many outputs depend on it; it names the output if there is only one."""
    argument, worst = evidence.inputs[index], evidence.jacobian.pairs[index, outputs[0]].worst[0]
    names = [evidence.name_of(evidence.forward.checked[output]) for output in outputs]
    shown = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    message = (f"the gradient of {argument.name} is None, but {shown} {'depends' if len(names) == 1 else 'depend'} on it: the finite difference at "
               f"{place_name(evidence, index, outputs[0], worst)} is {worst.numeric:.6g}")
    return Finding("GV102", message, input=argument.name, output=evidence.forward.checked[outputs[0]] if len(outputs) == 1 else None,
                   hint=_hint(evidence, argument))


def _hint(evidence: Evidence, argument: Argument) -> str:
    if any(y.grad_fn is not None and UNREGISTERED in y.grad_fn.name() for y in evidence.returned):
        return "the operator has no autograd: register one for the dispatch key Autograd, or with torch.library.register_autograd"
    if argument.of and evidence.subject.target.kind == "autograd.Function":
        return f"autograd does not look into lists: let `apply` take the tensors of {argument.whole} as arguments of their own"
    return f"say `requires_grad: false` if {argument.name} is meant to have no gradient"
