"""GV224 saved-unused: forward saves tensors that backward never reads."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.subject.target.kind != "autograd.Function":
        return "the target is no autograd Function"
    floating = [a for a in evidence.subject.arguments if a.is_tensor and (a.value.is_floating_point() or a.value.is_complex())]
    if any(not a.differentiable for a in floating):
        return "a floating input needs no gradient here"
    if evidence.forward.packed is None:
        return "what forward saves cannot be counted: it calls torch.func, which refuses the hooks that would"
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    packed = evidence.forward.packed
    if packed and not evidence.worked.unpacked:
        yield Finding("GV224", f"forward saves {packed} tensor{'s' if packed > 1 else ''} for backward, which never reads ctx.saved_tensors",
                      hint="what save_for_backward holds stays in memory until backward; what backward does not need can be left out")
