"""GV213 gradient-alias: backward returns memory that somebody else goes on using

What. A returned gradient shares memory with a saved tensor, a tensor on ctx or on the class, or an argument. Two gradients that share memory
with one another are a warning.

Why it matters. Autograd may keep the returned tensor as `.grad` and add to it in place, and an optimizer or a gradient clip writes into it: then
the saved tensor, the buffer or the weight itself is changed. The first step is right.

How it is measured. The memory of what backward really returns is compared, element by element of the storage, with what forward saved and
what hangs on ctx and the class, in the base backward and in one for a cotangent of ones (shortcuts for `loss.backward()` show only then). Memory
of grad_output may be returned, also twice, as `torch.add` does. Of a Function written in C++ the saved tensors are known, its ctx is not.

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
from gradverify.rules.raw import input_at
from gradverify.rules.shown import NO_FUNCTION
from gradverify.subject.alias import Shared
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import RawReturn

CATCHES = "returns_what_it_saved"
ORDER = 160
RANK = 70
PRICE, WORTH = (0, 3), 210


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV201" in found:
        return "backward is not linear"     # what ignores grad_output returns what it saved
    if evidence.settings.looks_for("GV207") and evidence.repeats is not None and not evidence.reusable:
        return "backward of one graph gives another gradient each time"     # what adds up in a buffer returns that
    return None if evidence.forward.nodes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    told = set[tuple[type | str, int]]()
    returns = [(raw, "") for raw in evidence.worked.raw] + [(raw, " for a grad_output of ones") for raw in _for_ones(evidence)]
    for (raw, when), share in ((each, share) for each in returns for share in each[0].shares):
        if (raw.cls, share.place) not in told:
            told.add((raw.cls, share.place))
            yield _finding(evidence, raw, share, when)


def _for_ones(evidence: Evidence) -> tuple[RawReturn, ...]:
    """Nothing where backward raises for ones, which is another rule's."""
    try:
        return evidence.for_ones[0]
    except UserCodeError:
        return ()


def _finding(evidence: Evidence, raw: RawReturn, share: Shared, when: str) -> Finding:
    own, twin = input_at(evidence, raw, share.place), share.twin
    name = own or f"argument {share.place}"
    other = share.name if twin is None else f"the gradient for {input_at(evidence, raw, twin) or f'argument {twin}'}"
    return Finding("GV213", f"the gradient that backward of {raw.name} returns for {name} shares memory with {other}{when}", input=own,
                   severity="warning" if twin is not None else "error", hint="return a tensor of its own: .clone() where nothing is computed")
