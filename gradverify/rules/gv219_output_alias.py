"""GV219 output-alias: an output shares memory with an input, and autograd does not know."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import NO_FUNCTION
from gradverify.subject.alias import overlaps
from gradverify.subject.custody import arguments
from gradverify.torch_private import is_view


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
