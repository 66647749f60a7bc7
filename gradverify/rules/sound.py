"""What has to be right before a rule on another point, second order, forward mode or vmap can say anything."""

from __future__ import annotations

from gradverify.evidence import Evidence
from gradverify.rules.catalogue import book


def wrong_here(found: frozenset[str]) -> str | None:
    """The first code found that speaks against the gradient at this point; None where there is none."""
    return min((code for code in found if not (code.startswith("GV0") or book()[code].apart)), default=None)


def unasked(evidence: Evidence, setting: str, found: frozenset[str]) -> str | None:
    """Why the rule behind `setting` (second_order, forward_ad, vmap) does not run; None where it may."""
    if getattr(evidence.settings, setting) is False:
        return f"the spec says `{setting}: false`"
    wrong = wrong_here(found)
    if wrong is not None:
        return f"{wrong} has to be repaired first"
    if getattr(evidence.settings, setting) == "auto" and evidence.odd is not None:
        return evidence.odd
    nothing = any(sum(tensor.numel() for tensor in tensors) == 0 for tensors in (evidence.outputs, evidence.subject.inputs))
    return "there are no elements" if nothing else None
