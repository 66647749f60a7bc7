"""GV227 single-backward: a second backward of one graph is refused."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import torchs_own

DAMAGED = ("GV202", "GV203", "GV204")


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    damaged = min(found.intersection(DAMAGED), default=None)
    if damaged is not None:
        return f"{damaged} was found already"
    if not evidence.worked.direct:
        return "torch.autograd.grad is refused, as a re-entrant checkpoint does"
    return torchs_own(evidence)


def check(evidence: Evidence) -> Iterator[Finding]:
    refused = evidence.refused
    if refused is not None:
        yield Finding("GV227", f"a second backward of one graph is refused, though it was retained: {refused.message}", frames=refused.frames,
                      hint="a second backward must find on ctx what the first one found; what save_for_backward holds is freed by autograd itself")
