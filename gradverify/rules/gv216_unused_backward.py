"""GV216 unused-backward: the Function's own backward is not in the graph

What. The spec names an autograd Function, but the graph of its outputs does not hold it: something else computed them.

Why it matters. The check would test autograd, be green, and the backward that production runs would never have been executed.

How it is measured. The nodes of the graph after the base forward are searched for the class.

How to repair. Look at `apply`: a branch for small sizes, for CPU tensors or for a missing extension takes another path. Choose inputs that
take the path you mean to check, or remove the branch.

Example.
    class Fast(Function):
        @classmethod
        def apply(cls, x):
            return super().apply(x) if x.is_cuda else x * x.sigmoid()   # on the CPU, backward is never used
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding

CATCHES = "bypasses_backward"
ORDER = 40
METHOD = "apply"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None if evidence.subject.target.kind == "autograd.Function" else "the target is no autograd Function"


def check(evidence: Evidence) -> Iterator[Finding]:
    cls = evidence.subject.target.subject
    if evidence.forward.checked and cls not in evidence.forward.classes:
        nodes = [output.grad_fn.name() for output in evidence.returned if output.grad_fn is not None]
        instead = f"they were computed by {nodes[0]}" if nodes else "an input is returned as it is"
        yield Finding("GV216", f"{cls.__name__} is not in the graph of its outputs: {instead}, and backward never runs")
