"""GV104 not-a-subgradient: at a kink, backward gives no slope between the left and the right one

What. The function has a kink at an element of the inputs (relu at 0, a clamp at its bound), and the analytic gradient there lies outside
the slopes from left and right.

Why it matters. Any value between the two is right, and torch itself uses several. A value outside comes from both branches, or from
none, and exact zeros are common: behind a relu, in padding, at initialisation.

How it is measured. The ladder finds that f(x + h) − 2 f(x) + f(x − h) shrinks like h, not h², and measures both slopes with their bars.

How to repair. Let exactly one branch hold at the boundary: one strict and one weak comparison, or `torch.where`.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return grad_output * (x >= 0) + 0.1 * grad_output * (x <= 0)        # 1.1 at 0
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.shown import place_name, unjudged

CATCHES = "counts_both_branches"
ORDER = 350
RANK = 130
LINE = True
KILLS = "values"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return unjudged(found) or ("a fixed `eps` has no kink test" if evidence.settings.eps != "auto" else None)


def check(evidence: Evidence) -> Iterator[Finding]:
    for (index, output), pair in evidence.jacobian.pairs.items():
        bad = [element for element in pair.worst if element.outcome is Outcome.MISMATCH and element.at_kink]
        if bad:
            low, high = sorted((bad[0].left + 0.0, bad[0].right + 0.0))        # no −0
            where = place_name(evidence, index, output, bad[0])
            yield Finding("GV104", f"at the kink {where} backward gives {bad[0].analytic:.6g}, which is no slope "
                          f"between {low:.6g} and {high:.6g}, the ones from left and right", input=evidence.inputs[index].name,
                          output=evidence.forward.checked[output],
                          hint="at a kink backward may return the slope of either side, or a number between them")
