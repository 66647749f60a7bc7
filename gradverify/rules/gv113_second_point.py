"""GV113 second-point: at another point of the same kind the gradient is wrong

What. The gradient is right at the inputs of the check, and wrong at others, or with another plain number (a slope, an eps) among the arguments.

Why it matters. A mask, an index or a constant that was computed in the first call and kept (on the class, in a module-level cache) belongs to the
first inputs; a slope that is written into backward as 0.5 belongs to one model. A check at one point sees nothing; training moves on.

How it is measured. The recipes of the spec are drawn with another seed, and `inputs_from` is called with one; numbers that the spec gives change
places (rows first), sizes and signs: zeros stay zeros, symmetric stays symmetric. Every float among the arguments, keyword arguments and `init` is
1.37 times as large, or as small where one would leave 0 to 1 otherwise; where forward refuses that, or is not finite, they stay. (Whole numbers
stay: they are sizes, dimensions and counts. Beside a `surrogate` all stay.) There, one random signed direction d and one cotangent v: ⟨v, J d⟩ by
finite differences (of the `surrogate`, where there is one) against ⟨Jᵀv, d⟩ by backward. What differs is judged by element, as in GV101; what
differs with other numbers only must differ with numbers 3 % off too, as a solver may not converge with any step. Not after a wrong gradient at the
first point.

How to repair. What depends on the inputs belongs in ctx, not on the class; a number that forward is given belongs on ctx too.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding
from gradverify.numerics.columns.tally import Outcome
from gradverify.oracles.convergence import without_leftovers
from gradverify.oracles.directional import Screen, screened
from gradverify.oracles.finite_difference import Gives, Wishes, jacobian
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import comparison, differs, unjudged, wrong_already
from gradverify.rules.sound import wrong_here
from gradverify.subject.another import looks_symmetric, other_points
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.plain import BOLD, MILD, Numbers, with_other_numbers
from gradverify.subject.subject import Argument, Subject

CATCHES = "keeps_the_first_mask"
HINT = "what depends on the inputs belongs in ctx: look for what is kept between calls"
HINT_NUMBERS = "look for a number that is written into backward, or kept from another call: what forward is given belongs on ctx"


@dataclass(frozen=True)
class Look:
    """What one direction said at another point. `words`: the numbers that are others too."""

    twin: Subject
    function: Gives
    wishes: Wishes
    seen: Screen
    words: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
        return self.seen in (Screen.AGREES, Screen.DIFFERS)

    @property
    def where(self) -> str:
        return f"at another point of the same kind{''.join(f', with {words}' for words in self.words[:1])}"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    wrong = wrong_here(found)
    return unjudged(found) or (f"{wrong} already stands" if wrong else None)


def check(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    refusal = "there is no other point: every input is zero"
    for arguments in other_points(evidence.subject):
        numbers = None if evidence.surrogate else with_other_numbers(evidence.subject, arguments, BOLD)
        varied = _varied(evidence, numbers)
        if varied is not None and varied.seen is Screen.AGREES:
            return
        try:
            look = _look(evidence, evidence.subject.twin(arguments))
        except UserCodeError as error:
            if error.code == "GV003":
                yield Finding("GV113", f"at another point of the same kind {error.message}", frames=error.frames, hint=HINT)
                return
            refusal = f"at another point {error.message}"
            continue
        if not look.told:
            refusal = f"at another point {look.seen.value}"
            continue
        if look.seen is Screen.DIFFERS:
            yield from _by_element(evidence, look)
        elif varied is not None and varied.seen is Screen.DIFFERS:
            yield from _by_numbers(evidence, arguments, varied)
        return
    raise NotApplicable(refusal)


def _look(evidence: Evidence, twin: Subject, words: tuple[str, ...] = ()) -> Look:
    """Raises UserCodeError."""
    wishes = Wishes(tuple(x.domain for x in twin.differentiable), tuple(x.symmetric or looks_symmetric(x.value) for x in twin.differentiable))
    source = generator(evidence.settings.seed, evidence.subject.case.check, "second point's direction")
    function = evidence.measured_at(twin)
    rtol = evidence.settings.tolerances(low_precision=evidence.low_precision)[1]
    return Look(twin, function, wishes, screened(function, wishes, source, rtol, evidence.infinite), words)


def _varied(evidence: Evidence, numbers: Numbers | None) -> Look | None:
    """With other plain numbers; None where there are none, or where the function refuses these."""
    if numbers is None:
        return None
    try:
        return _look(evidence, numbers.twin(evidence.subject), numbers.words)
    except UserCodeError:
        return None


def _by_numbers(evidence: Evidence, arguments: Sequence[Argument], varied: Look) -> Iterator[Finding | Comparison | str]:
    """Right with the numbers of the check, wrong with others: with some that are near, too?"""
    near = _varied(evidence, with_other_numbers(evidence.subject, arguments, MILD))
    if near is not None and near.seen is Screen.DIFFERS:
        yield from _by_element(evidence, varied)
    else:
        yield f"{varied.where} a direction differed, with numbers {MILD - 1:.0%} off none did: left at that"


def _by_element(evidence: Evidence, look: Look) -> Iterator[Finding | Comparison | str]:
    outputs, wrong, hint = look.function.values(look.twin.leaves()), False, HINT_NUMBERS if look.words else HINT
    compared = jacobian(look.function, evidence.settings, look.wishes, clock=evidence.subject.clock)
    found = without_leftovers(compared, look.function.inputs, look.wishes, lambda: evidence.leftover)
    for (index, output), pair in found.pairs.items():
        if pair.count(Outcome.MISMATCH) and not wrong_already(evidence, index, output):
            wrong = True
            argument, place = look.twin.differentiable[index], evidence.forward.checked[output]
            yield comparison("GV113", argument, place, outputs[output], pair)
            against = f"{evidence.difference} {look.where}"
            yield differs("GV113", argument, place, outputs[output], pair, against, hint, "numeric", evidence.name_of(place))
    if not wrong:
        yield f"{look.where} a direction differed, but no element did"
