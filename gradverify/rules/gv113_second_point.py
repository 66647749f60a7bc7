"""GV113 second-point: at another point of the same kind the gradient is wrong

What. The gradient is right at the inputs of the check, and wrong at others: along a random direction first, then by element.

Why it matters. A mask, an index or a constant that was computed in the first call and kept (on the class, in a module-level cache) belongs to the
first inputs. A check at one point sees nothing; training moves on.

How it is measured. The recipes of the spec are drawn with another seed; numbers that the spec gives are perturbed: zeros stay zeros, symmetric stays
symmetric. There, one random signed direction d and one cotangent v: ⟨v, J d⟩ by finite differences (of the `surrogate`, where there is one) against
⟨Jᵀv, d⟩ by backward. What differs is judged by element, as in GV101. Not after a wrong gradient at the first point.

How to repair. What depends on the inputs belongs in ctx, not on the class.

Example.
    class Relu(Function):
        mask = None

        @staticmethod
        def forward(ctx, x):
            if Relu.mask is None:
                Relu.mask = x > 0       # the first call's, for ever
            return x.clamp_min(0)
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.columns.tally import Outcome
from gradverify.oracles.directional import Screen, screened
from gradverify.oracles.finite_difference import Gives, Wishes, jacobian
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import comparison, differs, unjudged, wrong_already
from gradverify.rules.sound import wrong_here
from gradverify.subject.another import looks_symmetric, other_points
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject

CATCHES = "keeps_the_first_mask"
HINT = "what depends on the inputs belongs in ctx: look for what is kept between calls"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    wrong = wrong_here(found)
    return unjudged(found) or (f"{wrong} already stands" if wrong else None)


def check(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    refusal = "there is no other point: every input is zero"
    for arguments in other_points(evidence.subject):
        twin = evidence.subject.twin(arguments)
        wishes = Wishes(tuple(x.domain for x in twin.differentiable), tuple(x.symmetric or looks_symmetric(x.value) for x in twin.differentiable))
        source = generator(evidence.settings.seed, evidence.subject.case.check, "second point's direction")
        try:
            function = evidence.measured_at(twin)
            seen = screened(function, wishes, source, evidence.settings.tolerances(low_precision=evidence.low_precision)[1], evidence.infinite)
        except UserCodeError as error:
            if error.code == "GV003":
                yield Finding("GV113", f"at another point of the same kind {error.message}", frames=error.frames, hint=HINT)
                return
            refusal = f"at another point {error.message}"
            continue
        if seen in (Screen.OPEN, Screen.NON_FINITE):
            refusal = f"at another point {seen.value}"
            continue
        if seen is Screen.DIFFERS:
            yield from _by_element(evidence, twin, function, wishes)
        return
    raise NotApplicable(refusal)


def _by_element(evidence: Evidence, twin: Subject, function: Gives, wishes: Wishes) -> Iterator[Finding | Comparison | str]:
    outputs, wrong = function.values(twin.leaves()), False
    for (index, output), pair in jacobian(function, evidence.settings, wishes).pairs.items():
        if pair.count(Outcome.MISMATCH) and not wrong_already(evidence, index, output):
            wrong = True
            argument, place = twin.differentiable[index], evidence.forward.checked[output]
            yield comparison("GV113", argument, place, outputs[output], pair)
            against = f"{evidence.difference} at another point of the same kind"
            yield differs("GV113", argument, place, outputs[output], pair, against, HINT, "numeric", evidence.name_of(place))
    if not wrong:
        yield "at another point a direction differed, but no element did"
