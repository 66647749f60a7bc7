"""The verdict on one element in a sentence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from gradverify.model.element import Measured
from gradverify.numerics.verdict import Limit
from gradverify.rules.limits import WORDS

Excuse = Literal["", "leftover", "witness", "sum"] | int


def conclusion(m: Measured, excuse: Excuse = "") -> str:
    """One sentence: what was compared and what came of it. `m.limit` is a name yet.

    `excuse`: why its pair passes where the finite difference alone does not tell; a number: of the points that a fit rests on which decided it;
    "sum": it is wrong together with those at other kinks."""
    if m.fixed:
        return _by_fixed_step(m)
    if m.limit:
        return f"neither right nor wrong: {_undecided(m, Limit(m.limit))}"
    if m.outcome == "mismatch" and excuse == "sum":
        return (f"wrong: {m.analytic:.6g} is a slope of f along this input, but the gradients at several kinks add up to no slope along all of them "
                "together")
    if m.sides:
        slopes = f"f has a kink here, with slope {m.sides.left.value:.6g} on the left and {m.sides.right.value:.6g} on the right"
        return f"{slopes}: {m.analytic:.6g} {'lies between them' if m.outcome == 'kink' else 'does not lie between them'}"
    if m.outcome == "pass" and excuse == "leftover" and m.error > m.tolerance.value:
        return f"right: {m.error:.2g} away from the finite difference, as an iteration may leave it, small compared with its row"
    if m.outcome == "pass" and excuse == "witness" and m.error + m.bar > m.tolerance.value:
        return f"right: the finite difference is known to {m.bar:.2g} only, and torch's derivative of forward agrees with backward to rounding"
    if isinstance(excuse, int):
        return _by_a_fit(m, excuse)
    if m.outcome == "pass":
        return f"right: within {m.tolerance.value:.2g} of the finite difference, whose bar is {m.bar:.2g}"
    if not m.error < float("inf"):
        return "wrong: the analytic value is not finite, and f is on both sides"
    times = m.error / m.tolerance.value if m.tolerance.value else float("inf")
    return f"wrong: {m.error:.3g} away from a finite difference that is known to {m.bar:.2g}; that is {times:.3g} times the tolerance"


def _by_a_fit(m: Measured, points: int) -> str:
    """Of an element that a fit decided, as noise limits every step."""
    fit = f"the slope of a polynomial fitted to forward over {points} points, whose bar is {m.bar:.2g}"
    if m.outcome == "pass":
        return f"right: within {m.tolerance.value:.2g} of {fit}"
    return f"wrong: {m.error:.3g} away from {fit}; that is {m.error / m.tolerance.value:.3g} times the tolerance"


def in_words(m: Measured) -> Measured:
    """With the words for what limits it in place of a name."""
    return replace(m, limit=WORDS[Limit(m.limit)].whole) if m.limit else m


def _undecided(m: Measured, limit: Limit) -> str:
    """What limits it, with the numbers where there are any, and what would decide it."""
    words = WORDS[limit]
    if limit is Limit.MASKED:
        return words.explained
    if not math.isfinite(m.analytic):
        why = f"the analytic value is {m.analytic:g}, where f has no values on one side, or no finite slope"
    elif m.outcome == "undecided" and math.isfinite(m.bar):
        why = f"the numeric value is {m.numeric:.6g} ± {m.bar:.2g}, the tolerance {m.tolerance.value:.2g}; {words.explained}"
    else:
        why = words.explained
    return f"{why}; {words.advice}" if words.advice else why


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
