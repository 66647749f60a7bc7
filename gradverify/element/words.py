"""The verdict on one element in a sentence."""

from __future__ import annotations

import math
from dataclasses import replace

from gradverify.model.element import Measured


def conclusion(m: Measured) -> str:
    """One sentence: what was compared and what came of it."""
    if m.fixed:
        return _by_fixed_step(m)
    if m.limit and not math.isfinite(m.analytic):
        return f"neither right nor wrong: the analytic value is {m.analytic:g}, where f has no values on one side, or no finite slope"
    if m.limit:
        return f"neither right nor wrong: {m.limit}"
    if m.sides:
        slopes = f"f has a kink here, with slope {m.sides.left.value:.6g} on the left and {m.sides.right.value:.6g} on the right"
        return f"{slopes}: {m.analytic:.6g} {'lies between them' if m.outcome == 'kink' else 'does not lie between them'}"
    if m.outcome == "pass":
        return f"right: within {m.tolerance.value:.2g} of the finite difference, whose bar is {m.bar:.2g}"
    if not m.error < float("inf"):
        return "wrong: the analytic value is not finite, and f is on both sides"
    times = m.error / m.tolerance.value if m.tolerance.value else float("inf")
    return f"wrong: {m.error:.3g} away from a finite difference that is known to {m.bar:.2g}; that is {times:.3g} times the tolerance"


def _by_fixed_step(m: Measured) -> str:
    """gradcheck's verdict, and what the ladder has to say about it."""
    assert m.fixed is not None
    ladder = replace(m, fixed=None)
    if m.fixed.outcome == "undecided":
        said = f"the step {m.fixed.step:g} does not move the input"
    else:
        verdict = {"pass": "accepts", "mismatch": "rejects"}.get(m.fixed.outcome, "cannot judge")
        said = f"torch.autograd.gradcheck's rule {verdict} this element at eps {m.fixed.step:g}"
    return f"{said}; under `eps: auto`: {conclusion(ladder)}"
