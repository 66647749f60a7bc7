"""GV101 jacobian: backward differs from the finite difference

What. An element of the analytic Jacobian (one row per output element, from `backward`) differs from the finite difference of the forward
by more than the tolerance beyond the error bar.

Why it matters. Training with a wrong gradient does not crash. It converges more slowly, to something worse, or only for some inputs.

How it is measured. Every element of every (input, output) pair: the inputs moved one element at a time, backward called with one-hot
cotangents. `eps: auto` chooses the step of each element and gives its error bar; `eps: 1e-6` is torch.autograd.gradcheck's own rule.
With `surrogate` the finite differences are the surrogate's. Inputs of `layout: expanded` are measured on separate elements (see GV211).

How to repair. Read the table: which input, which elements, what ratio. All elements by one factor: a constant. One row or column: an
index or a missing sum. One input only: the formula of its gradient.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return grad_output * x          # y = x * x: the factor 2 is missing
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.pairs.pair import Outcome
from gradverify.rules.meant import meant
from gradverify.rules.shown import against, comparison, differs, fixed_step, pairs, unfinished, unjudged

CATCHES = "drops_factor"
ORDER = 310
RANK = 150
LINE = True
CAUSES = "finite differences"
KILLS = "values"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if unjudged(found):
        return unjudged(found)
    if all(argument.parameter for argument in evidence.inputs):
        return "all differentiable inputs are parameters (GV111)"
    return None


def check(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    yield from unfinished(evidence, [pair for *_, pair in pairs(evidence, parameters=False)])
    for argument, output, y, pair in pairs(evidence, parameters=False):
        yield comparison("GV101", argument, output, y, pair)
        if pair.count(Outcome.MISMATCH):
            hint = meant(evidence, output, pair) or fixed_step(evidence)
            yield differs("GV101", argument, output, y, pair, against(evidence, pair), hint, "numeric", evidence.name_of(output))
