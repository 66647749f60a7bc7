"""GV216 unused-backward: the Function's own backward is not in the graph."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None if evidence.subject.target.kind == "autograd.Function" else "the target is no autograd Function"


def check(evidence: Evidence) -> Iterator[Finding]:
    cls = evidence.subject.target.subject
    if evidence.forward.checked and cls not in evidence.forward.classes:
        nodes = [output.grad_fn.name() for output in evidence.returned if output.grad_fn is not None]
        instead = f"they were computed by {nodes[0]}" if nodes else "an input is returned as it is"
        yield Finding("GV216", f"{cls.__name__} is not in the graph of its outputs: {instead}, and backward never runs")
