"""One element of a Subject's Jacobian: found, measured, and its verdict in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradverify.element.forwards_own import forwards_own
from gradverify.element.places import Found, input_element, output_element, pair_of
from gradverify.element.words import Excuse, conclusion, in_words
from gradverify.evidence import Evidence
from gradverify.model.element import Element, Measured
from gradverify.numerics.choose import Choice
from gradverify.numerics.explain import asked_for, fixed_step, measure
from gradverify.numerics.pairs.pair import ElementRecord, Outcome, Pair
from gradverify.numerics.verdict import Limit, Verdict
from gradverify.oracles.finite_difference import Filled, Jacobian
from gradverify.rules.chosen import could_miss
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.verify import described, evidence_of

ABSENT = "backward gives None for this input: taken as zero"
WORST = "no element was named: this is the worst of the check"
PASSES = "in the whole check this element passes: as far as its structure shows, f does not depend on the input there"
BY_ITSELF = "the check compares {}, each as a sum; here the element is judged by itself"


@dataclass(frozen=True, slots=True)
class Asked:
    """The two halves of `--element`, as written: `w[3,1]` and `y0[2]`."""

    input: str
    output: str


def explain(subject: Subject, asked: Asked | None = None) -> Element:
    """The element that was asked for; without any, the worst of the check.

    Raises ProblemsError where no such element is, UserCodeError where the user's code raises or there is nothing to compare.
    """
    evidence, before = evidence_of(subject), subject.calls
    with evidence.standing.mode():
        element = _explained(evidence, asked)
    spent = subject.calls - before
    return replace(element, measured=replace(element.measured, forward=spent.forward, backward=spent.backward))


def _explained(evidence: Evidence, asked: Asked | None) -> Element:
    if asked is not None:
        moved, seen = input_element(evidence, asked.input), output_element(evidence, asked.output)
        found = evidence.compared(asked_for(moved.at, seen.at))
        return _element(evidence, moved, seen, found, found.pairs[moved.tensor, seen.tensor].asked)
    moved, seen, worst = _worst(evidence)
    element = _element(evidence, moved, seen, evidence.jacobian, worst)
    return replace(element, notes=(WORST, *element.notes))


def _element(evidence: Evidence, moved: Found, seen: Found, found: Jacobian, told: ElementRecord | None) -> Element:
    """`told`: what came of it in the check; None under a fixed step, where f is one infinity."""
    subject, key = evidence.subject, (moved.tensor, seen.tensor)
    measured, pair = _measured(evidence, moved, seen, told), found.pairs[key]
    by_itself = BY_ITSELF.format(pair.lines) if pair.lines and pair.by_itself else ""
    own = forwards_own(evidence, moved, seen) if measured.verdict != "pass" or evidence.settings.witness == "always" else ""
    notes = (ABSENT if key in found.absent else "", by_itself, evidence.numeric_precision, own)
    result = described(subject.case, subject)
    return Element(result.id, result.name, f"{result.spec.path}:{result.spec.line}", result.function, result.device, result.dtype, moved.place,
                   seen.place, in_words(measured), conclusion(measured, _excused(found, key, told)), pair_of(evidence, moved),
                   _otherwise(measured, pair, found.choice) if pair.by_itself else None, tuple(note for note in notes if note))


def _excused(found: Jacobian, key: tuple[int, int], told: ElementRecord | None) -> Excuse:
    """What lets an element pass that the finite difference alone would not; the points of the fit that decided it."""
    if told is not None and told.outcome is Outcome.MISMATCH and told.limit is Limit.KINK_SUM:
        return "sum"
    if told is not None and told.points:
        return told.points
    return "leftover" if key in found.left else "witness" if found.pairs[key].witnessed else ""


def _measured(evidence: Evidence, moved: Found, seen: Found, told: ElementRecord | None) -> Measured:
    function, settings = Filled(evidence.measured), evidence.settings
    if settings.eps == "auto":
        return measure(function, moved.at, seen.at, checked=told, atol=settings.atol or 0.0, rtol=settings.rtol, domains=evidence.wishes.domains,
                       symmetric=evidence.wishes.symmetric, specified=evidence.wishes.specified, seed=evidence.wishes.seed)
    atol, rtol = settings.tolerances()
    return replace(measure(function, moved.at, seen.at, seed=evidence.wishes.seed), fixed=fixed_step(told, settings.eps, atol=atol, rtol=rtol))


def _otherwise(measured: Measured, pair: Pair, choice: Choice | None) -> str | None:
    """What the check says, where it did not judge the element by itself and lets pass what is wrong by itself."""
    if choice is None or measured.verdict != "mismatch" or pair.verdict is not Verdict.PASS:
        return None
    return f"in the whole check the {pair.lines[:-1]} that holds it passes. {could_miss(choice)}" if pair.lines else PASSES


def worst_of(evidence: Evidence, pair: Pair) -> Element | None:
    """The worst element of one pair, on every step; None where the pair has none."""
    if not pair.worst:
        return None
    moved, seen = _found(evidence, pair, pair.worst[0])
    return _element(evidence, moved, seen, evidence.jacobian, pair.worst[0])


def _worst(evidence: Evidence) -> tuple[Found, Found, ElementRecord | None]:
    """The worst element of all pairs, or the first where no output moves with an input. Raises UserCodeError where there is none."""
    pairs = evidence.jacobian.pairs.values()
    found = [(pair.worst[0], pair) for pair in pairs if pair.worst]
    if found:
        worst, pair = max(found, key=lambda item: item[0].rank[:2])
        return (*_found(evidence, pair, worst), worst)
    first = next((pair for pair in pairs if pair.elements), None)
    if first is None:
        raise UserCodeError("GV008", "no element of this check is compared: it has no differentiable input, or no output depends on one")
    return (*_found(evidence, first, None), None)


def _found(evidence: Evidence, pair: Pair, element: ElementRecord | None) -> tuple[Found, Found]:
    """An element of a pair, or its first."""
    x, y = evidence.inputs[pair.input], evidence.outputs[pair.output]
    moved, seen = (element.input_index, element.output_index) if element else (0, 0)
    return Found(x.name, pair.input, moved, x.value), Found(evidence.name_of(evidence.forward.checked[pair.output]), pair.output, seen, y)
