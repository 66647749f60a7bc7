"""Is a gradient that differs from the forward's own slope likely to be meant? Then the hint names the key that says so."""

from __future__ import annotations

import numpy as np

from gradverify.evidence import Evidence
from gradverify.numerics.pairs.pair import Outcome, Pair

SEVERAL = 2  # elements: one has a factor anyhow
ALIKE = 1e-6  # of a ratio: all elements turned by the same factor
FLAT = ("the forward does not move here, so its slope is zero: if this gradient is meant (a straight-through estimator, a spike), "
        "name the function that it is the gradient of: `surrogate`")
TURNED = ("analytic = {ratio:.6g} × numeric on all of them: look for a minus sign that is missing or one too many; if the sign is turned on purpose "
          "(gradient reversal), name the function that backward is the gradient of: `surrogate`")

EITHER = "either backward or {name} is not what it is meant to be"
DETACHED = ("backward is what torch differentiates {name} to, which detaches on the way: finite differences see all that moves its values; write it "
            "without `detach`, as the function that has this gradient (`x.clamp(-1, 1)`, and not `x + (x.sign() - x).detach()`)")


def meant(evidence: Evidence, output: int, pair: Pair) -> str | None:
    """A hint, or None. `output`: its place among all outputs."""
    return evidence.spared("the search for a hint", lambda: _meant(evidence, output, pair))


def _meant(evidence: Evidence, output: int, pair: Pair) -> str | None:
    if evidence.surrogate is not None:
        detaches = evidence.surrogate.differentiates_to(evidence.cotangents("base"))
        return (DETACHED if detaches else EITHER).format(name=evidence.surrogate.name)
    bad = [element for element in pair.worst if element.outcome is Outcome.MISMATCH]
    if all(element.numeric == 0 for element in bad) and evidence.forward.checked.index(output) in evidence.flat:
        return FLAT
    ratio = _turned(pair)
    return None if ratio is None else TURNED.format(ratio=ratio)


def _turned(pair: Pair) -> float | None:
    """The negative factor of the whole pair: of every mismatched element, the others being zero; None where there is none."""
    e = pair.entries
    if e is None or pair.count(Outcome.MISMATCH) < SEVERAL:
        return None
    wrong = e.outcome == Outcome.MISMATCH
    low, high = e.ratio
    alike = low <= high or abs(high - low) <= ALIKE * abs(low)
    if not alike or not high < 0 or np.abs(e.analytic[~wrong]).max(initial=0.0) > ALIKE * np.abs(e.analytic).max():
        return None
    worst = pair.worst[0]
    return worst.analytic / worst.numeric if worst.numeric else None
