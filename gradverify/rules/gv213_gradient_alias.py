"""GV213 gradient-alias: backward returns memory that somebody else goes on using

What. A returned gradient shares memory with a saved tensor, a tensor on ctx or on the class, or an argument. Two gradients that share memory
with one another are a warning.

Why it matters. Autograd may keep the returned tensor as `.grad` and add to it in place, and an optimizer or a gradient clip writes into it: then
the saved tensor, the buffer or the weight itself is changed. The first step is right.

How it is measured. The memory of what backward really returns is compared, element by element of the storage, with what forward saved and
what hangs on ctx and the class, in the base backward and in one for a cotangent of ones (shortcuts for `loss.backward()` show only then). Memory
of grad_output may be returned, also twice, as `torch.add` does.

How to repair. Return a result of your own: `.clone()` where nothing is computed.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        gradient, = ctx.saved_tensors
        if grad_output == 1:
            return gradient             # must be gradient.clone()
        return grad_output * gradient
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import NO_FUNCTION
from gradverify.subject.alias import Shared
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import RawReturn

CATCHES = "returns_what_it_saved"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV201" in found:
        return "backward is not linear"     # what ignores grad_output returns what it saved
    return None if evidence.forward.classes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    told = set[tuple[type, int]]()
    returns = [(raw, "") for raw in evidence.worked.raw] + [(raw, " for a grad_output of ones") for raw in _for_ones(evidence)]
    for (raw, when), share in ((each, share) for each in returns for share in each[0].shares):
        if (raw.cls, share.place) not in told:
            told.add((raw.cls, share.place))
            yield _finding(evidence, raw, share, when)


def _for_ones(evidence: Evidence) -> tuple[RawReturn, ...]:
    """Nothing where backward raises for ones, which is another rule's."""
    try:
        return evidence.for_ones
    except UserCodeError:
        return ()


def _finding(evidence: Evidence, raw: RawReturn, share: Shared, when: str) -> Finding:
    name = _argument(evidence, raw, share.place)
    twin = None if share.twin is None else _argument(evidence, raw, share.twin)
    other = f"the gradient for {twin}" if twin else share.name
    return Finding("GV213", f"the gradient that backward of {raw.cls.__name__} returns for {name} shares memory with {other}{when}",
                   input=name if _own(evidence, raw) else None, severity="warning" if twin else "error",
                   hint="return a tensor of its own: .clone() where nothing is computed")


def _argument(evidence: Evidence, raw: RawReturn, place: int) -> str:
    return evidence.subject.arguments[place].name if _own(evidence, raw) and place < len(evidence.subject.arguments) else f"argument {place}"


def _own(evidence: Evidence, raw: RawReturn) -> bool:
    return raw.cls is evidence.subject.target.subject and len(evidence.subject.arguments) == len(raw.needs)
