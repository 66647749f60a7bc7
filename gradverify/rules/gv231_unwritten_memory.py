"""GV231 unwritten-memory: a result depends on memory that nobody wrote."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import element_name
from gradverify.subject.unwritten import Depends

HINT = "write every element of what `torch.empty`, `empty_like`, `new_empty` or `resize_` returns before it is read, or use `torch.zeros`"
BESIDE = "read within the tensors only"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    for each in evidence.memory.depends:
        yield _finding(evidence, each, "unwritten memory" if evidence.memory.allocated else "memory beside its tensors")


def _finding(evidence: Evidence, found: Depends, what: str) -> Finding:
    hint = HINT if evidence.memory.allocated else BESIDE
    if found.raised is not None:
        return Finding("GV231", f"what {what} holds decides whether {found.raised.message}", hint=hint, frames=found.raised.frames)
    loud, quiet = found.numbers
    if found.input is not None:
        argument = evidence.inputs[found.input]
        name, first = f"the gradient of {argument.name}", element_name(argument.name, argument.value, found.first)
    else:
        name = evidence.name_of(found.output or 0)
        first = element_name(name, found.tensor, found.first)
    message = (f"{name} depends on {what}: {found.count} of {found.size} numbers do; {first} is {loud:.6g} where it holds NaN, {quiet:.6g} where it "
               "holds large numbers")
    return Finding("GV231", message, input=None if found.input is None else evidence.inputs[found.input].name, output=found.output, hint=hint)
