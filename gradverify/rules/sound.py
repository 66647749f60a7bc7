"""What has to be right before a rule on another point, second order, forward mode or vmap can say anything."""

from __future__ import annotations

from gradverify.evidence import Evidence

# Found before, these say nothing against the gradient at this point: other values, other calls, memory that is kept.
APART = ("GV0", "GV105", "GV108", "GV109", "GV110", "GV113", "GV214", "GV215", "GV219", "GV223", "GV224", "GV225", "GV226", "GV227", "GV228", "GV229")


def wrong_here(found: frozenset[str]) -> str | None:
    """The first code found that does; None where there is none."""
    return min((code for code in found if not code.startswith(APART)), default=None)


def unasked(evidence: Evidence, setting: str, found: frozenset[str]) -> str | None:
    """Why the rule behind `setting` (second_order, forward_ad, vmap) does not run; None where it may."""
    if getattr(evidence.settings, setting) is False:
        return f"the spec says `{setting}: false`"
    wrong = wrong_here(found)
    if wrong is not None:
        return f"{wrong} has to be repaired first"
    nothing = any(sum(tensor.numel() for tensor in tensors) == 0 for tensors in (evidence.outputs, evidence.subject.inputs))
    return "there are no elements" if nothing else None
