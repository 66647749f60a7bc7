"""GV219 output-alias: an output shares memory with an input, and autograd does not know

What. An output lies in the memory of an input, though it is neither that input itself nor a view that autograd made.

Why it matters. An in-place operation on the output (`relu_`, `+=`) changes the input, and autograd, which tracks views by their base, neither
raises nor adapts the graph: whatever else read the input gets a wrong gradient. A warning.

How it is measured. The memory of the outputs of the base forward is compared with that of the arguments, element by element of the storage.

How to repair. Return a view (`x.view_as(x)`), which autograd tracks, or a copy (`x.clone()`); not `x.detach()` or a NumPy array of the same memory.

Example.
    @staticmethod
    def forward(ctx, x):
        return x.detach()               # must be x.view_as(x)
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import NO_FUNCTION
from gradverify.subject.alias import overlaps
from gradverify.subject.custody import arguments
from gradverify.torch_private import is_view

SEVERITY = "warning"
CATCHES = "returns_its_inputs_memory"
ORDER = 120
METHOD = "forward"
APART = True


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.odd is not None:
        return evidence.odd
    return None if evidence.forward.nodes else NO_FUNCTION


def check(evidence: Evidence) -> Iterator[Finding]:
    given = arguments(evidence.subject, evidence.forward.called)
    for place, y in zip(evidence.forward.checked, evidence.returned, strict=True):
        name = None if is_view(y) else _owner(y, given)
        if name is not None:
            yield Finding("GV219", f"{evidence.name_of(place)} shares memory with {name}, and autograd does not know it as a view: "
                          "writing into one changes the other", input=name, output=place,
                          hint="return a view that autograd tracks (x.view_as(x)), or a clone")


def _owner(y: Tensor, given: list[tuple[str, Tensor]]) -> str | None:
    """The argument whose memory an output lies in; None where the output is an argument itself."""
    if any(y is x for _, x in given):
        return None
    return next((name for name, x in given if overlaps(y, x)), None)
