"""What has to be right before a rule on second order, forward mode or vmap can say anything."""

from __future__ import annotations

from gradverify.evidence import Evidence

SINGLE, SIXTEEN = 2.0**-24, 2.0**-12    # roundoffs from which a forward computes in float32, in 16 bits
T64, T32, T16 = 1e-9, 3e-5, 5e-2
APART = ("GV0", "GV105", "GV108", "GV109", "GV110", "GV113")     # found before, these say nothing against the gradient at this point


def unasked(evidence: Evidence, setting: str, found: frozenset[str]) -> str | None:
    """Why the rule behind `setting` (second_order, forward_ad, vmap) does not run; None where it may."""
    if getattr(evidence.settings, setting) is False:
        return f"the spec says `{setting}: false`"
    wrong = sorted(code for code in found if not code.startswith(APART))
    if wrong:
        return f"{wrong[0]} has to be repaired first"
    nothing = any(sum(tensor.numel() for tensor in tensors) == 0 for tensors in (evidence.outputs, evidence.subject.inputs))
    return "there are no elements" if nothing else None


def tolerance(unit: float) -> float:
    """T of the contract rules, by the roundoff that the forward computes in: two exact ways to one number differ by less."""
    return T16 if unit > SIXTEEN else T32 if unit >= SINGLE else T64
