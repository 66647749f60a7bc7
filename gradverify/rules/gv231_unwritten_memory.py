"""GV231 unwritten-memory: a result depends on memory that nobody wrote

What. An output or a gradient is another one where memory that is handed out unwritten (`torch.empty`, `empty_like`,
`new_empty`, `resize_`, `numpy.empty`) held other numbers before.

Why it matters. What such memory holds depends on what the process did before: the numbers are right in one run and
wrong in the next. Everything else that a check would say of them would change from run to run, so nothing else is said.

How it is measured. The first call of the check gets NaN, −1 and True in memory that is handed out unwritten, and NaN
beside its tensors. Where some of that is still there at the end, or the base call gives other numbers, one more forward
and backward get large numbers of both signs, 1 and False. Where the two differ, each is made twice more (five times,
where no NaN shows); what agrees within a filling and differs between the two was left unwritten. Memory that is
never read, and that is written before it is read, makes no difference. Calls of torch from Python and C++ are seen, and
`numpy.empty`; memory that a kernel gets from elsewhere (`malloc`) is not.

How to repair. Write every element, the last tile and the rows without a match too, or use `torch.zeros`.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        grad = torch.empty_like(x)
        grad[x > 0] = grad_output[x > 0]        # the others are what memory held
        return grad
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import element_name
from gradverify.subject.unwritten import Depends

CATCHES = "leaves_half_unwritten"
ORDER = 4
RANK = 6
STOPS = True
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
