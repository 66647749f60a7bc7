"""Is a gradient that differs from the forward's own slope likely to be meant? Then the hint names the key that says so."""

from __future__ import annotations

from gradverify.evidence import Evidence
from gradverify.numerics.columns.tally import Outcome, Pair

ALIKE = 1e-6  # of a ratio: all elements turned by the same factor
FLAT = ("the forward does not move here, so its slope is zero: if this gradient is meant (a straight-through estimator, a spike), "
        "name the function that it is the gradient of: `surrogate`")
TURNED = ("analytic = {ratio:.6g} × numeric on all of them: if the sign is turned on purpose (gradient reversal), name the function that "
          "backward is the gradient of: `surrogate`")


def meant(evidence: Evidence, output: int, pair: Pair) -> str | None:
    """A hint, or None. `output`: its place among all outputs."""
    return evidence.spared("the search for a hint", lambda: _meant(evidence, output, pair))


def _meant(evidence: Evidence, output: int, pair: Pair) -> str | None:
    if evidence.surrogate is not None:
        return f"either backward or {evidence.surrogate.name} is not what it is meant to be"
    bad = [element for element in pair.worst if element.outcome is Outcome.MISMATCH]
    if all(element.numeric == 0 for element in bad) and evidence.forward.checked.index(output) in evidence.flat:
        return FLAT
    ratios = [element.analytic / element.numeric for element in bad if element.numeric]
    turned = len(ratios) == len(bad) and ratios[0] < 0 and all(abs(ratio - ratios[0]) <= ALIKE * abs(ratios[0]) for ratio in ratios)
    return TURNED.format(ratio=ratios[0]) if turned and pair.count(Outcome.MISMATCH) > 1 else None
