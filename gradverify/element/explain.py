"""The verdict on one element in a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from gradverify.element.places import Found, input_element, output_element, pair_of
from gradverify.evidence import Evidence
from gradverify.model.element import Element, Measured
from gradverify.numerics.choose import Choice
from gradverify.numerics.explain import fixed_step, measure
from gradverify.numerics.pairs.pair import Asked as PairElement
from gradverify.numerics.pairs.pair import ElementRecord, Outcome, Pair
from gradverify.numerics.verdict import Limit, Verdict
from gradverify.oracles.finite_difference import Filled, Jacobian
from gradverify.rules.chosen import could_miss
from gradverify.rules.values import WORDS
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.verify import described, evidence_of

# ---- The verdict on one element in a sentence
Excuse = Literal["", "leftover", "sum"]


def conclusion(m: Measured, excuse: Excuse = "") -> str:
    """One sentence: what was compared and what came of it. `m.limit` is a name yet.

    `excuse`: why its pair passes where the finite difference alone does not tell; "sum": it is
    wrong together with those at other kinks."""
    if m.fixed:
        return _by_fixed_step(m)
    if m.limit:
        return f"neither right nor wrong: {_undecided(m, Limit(m.limit))}"
    if m.outcome == "mismatch" and excuse == "sum":
        return (
            f"wrong: {m.analytic:.6g} is a slope of f along this input, but the gradients at "
            "several kinks add up to no slope along all of them together"
        )
    if m.sides:
        slopes = (
            f"f has a kink here, with slope {m.sides.left.value:.6g} on the left and "
            f"{m.sides.right.value:.6g} on the right"
        )
        return (
            f"{slopes}: {m.analytic:.6g} "
            f"{'lies between them' if m.outcome == 'kink' else 'does not lie between them'}"
        )
    if m.outcome == "pass" and excuse == "leftover" and m.error > m.tolerance.value:
        return (
            f"right: {m.error:.2g} away from the finite difference, as an iteration may leave it, "
            "small compared with its row"
        )
    if m.outcome == "pass":
        return (
            f"right: within {m.tolerance.value:.2g} of the finite difference, whose bar is "
            f"{m.bar:.2g}"
        )
    if not m.error < float("inf"):
        return "wrong: the analytic value is not finite, and f is on both sides"
    times = m.error / m.tolerance.value if m.tolerance.value else float("inf")
    return (
        f"wrong: {m.error:.3g} away from a finite difference that is known to {m.bar:.2g}; that is "
        f"{times:.3g} times the tolerance"
    )


def in_words(m: Measured) -> Measured:
    """With the words for what limits it in place of a name."""
    return replace(m, limit=WORDS[Limit(m.limit)].whole) if m.limit else m


def _undecided(m: Measured, limit: Limit) -> str:
    """What limits it, with the numbers where there are any, and what would decide it."""
    words = WORDS[limit]
    if limit is Limit.MASKED:
        return words.explained
    if not math.isfinite(m.analytic):
        why = (
            f"the analytic value is {m.analytic:g}, where f has no values on one side, or no "
            "finite slope"
        )
    elif m.outcome == "undecided" and math.isfinite(m.bar):
        why = (
            f"the numeric value is {m.numeric:.6g} ± {m.bar:.2g}, the tolerance "
            f"{m.tolerance.value:.2g}; {words.explained}"
        )
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


# ---- One element of a Subject's Jacobian: found, measured, and its verdict in words
ABSENT = "backward gives None for this input: taken as zero"
WORST = "no element was named: this is the worst of the check"
PASSES = (
    "in the whole check this element passes: as far as its structure shows, f does not depend on "
    "the input there"
)
BY_ITSELF = "the check compares {}, each as a sum; here the element is judged by itself"


@dataclass(frozen=True, slots=True)
class Asked:
    """The two halves of `--element`, as written: `w[3,1]` and `y0[2]`."""

    input: str
    output: str


def explain(subject: Subject, asked: Asked | None = None) -> Element:
    """The element that was asked for; without any, the worst of the check.

    Raises ProblemsError where no such element is, UserCodeError where the user's code raises or
    there is nothing to compare.
    """
    evidence, before = evidence_of(subject), subject.calls
    with evidence.standing.mode():
        element = _explained(evidence, asked)
    spent = subject.calls - before
    return replace(
        element, measured=replace(element.measured, forward=spent.forward, backward=spent.backward)
    )


def _explained(evidence: Evidence, asked: Asked | None) -> Element:
    if asked is not None:
        moved, seen = input_element(evidence, asked.input), output_element(evidence, asked.output)
        found = evidence.compared(_of(moved, seen))
        return _element(evidence, moved, seen, found, found.pairs[moved.tensor, seen.tensor].asked)
    moved, seen, worst = _worst(evidence)
    element = _element(evidence, moved, seen, evidence.jacobian, worst)
    return replace(element, notes=(WORST, *element.notes))


def _of(moved: Found, seen: Found) -> PairElement:
    return PairElement(moved.tensor, seen.tensor, moved.coordinate, seen.coordinate)


def _element(
    evidence: Evidence, moved: Found, seen: Found, found: Jacobian, told: ElementRecord | None
) -> Element:
    """`told`: what came of it in the check; None under a fixed step, where f is one infinity."""
    subject, key = evidence.subject, (moved.tensor, seen.tensor)
    measured, pair = _measured(evidence, moved, seen, told), found.pairs[key]
    by_itself = BY_ITSELF.format(pair.lines) if pair.lines and pair.by_itself else ""
    notes = (ABSENT if key in found.absent else "", by_itself, evidence.numeric_precision)
    result = described(subject.case, subject)
    return Element(
        result.id,
        result.name,
        f"{result.spec.path}:{result.spec.line}",
        result.function,
        result.device,
        result.dtype,
        moved.place,
        seen.place,
        in_words(measured),
        conclusion(measured, _excused(found, key, told)),
        pair_of(evidence, moved),
        _otherwise(measured, pair, found.choice) if pair.by_itself else None,
        tuple(note for note in notes if note),
    )


def _excused(found: Jacobian, key: tuple[int, int], told: ElementRecord | None) -> Excuse:
    """What lets an element pass that the finite difference alone would not."""
    if told is not None and told.outcome is Outcome.MISMATCH and told.limit is Limit.KINK_SUM:
        return "sum"
    return "leftover" if key in found.left else ""


def _measured(
    evidence: Evidence, moved: Found, seen: Found, told: ElementRecord | None
) -> Measured:
    function, settings = Filled(evidence.measured), evidence.settings
    if settings.eps == "auto":
        return measure(
            function,
            _of(moved, seen),
            checked=told,
            atol=settings.atol or 0.0,
            rtol=settings.rtol,
            domains=evidence.wishes.domains,
            symmetric=evidence.wishes.symmetric,
            specified=evidence.wishes.specified,
            seed=evidence.wishes.seed,
        )
    atol, rtol = settings.tolerances()
    return replace(
        measure(function, _of(moved, seen), seed=evidence.wishes.seed),
        fixed=fixed_step(told, settings.eps, atol=atol, rtol=rtol),
    )


def _otherwise(measured: Measured, pair: Pair, choice: Choice | None) -> str | None:
    """What the check says, where it did not judge the element by itself and lets pass what is wrong
    by itself."""
    if choice is None or measured.verdict != "mismatch" or pair.verdict is not Verdict.PASS:
        return None
    return (
        f"in the whole check the {pair.lines[:-1]} that holds it passes. {could_miss(choice)}"
        if pair.lines
        else PASSES
    )


def worst_of(evidence: Evidence, pair: Pair) -> Element | None:
    """The worst element of one pair, on every step; None where the pair has none."""
    if not pair.worst:
        return None
    moved, seen = _found(evidence, pair, pair.worst[0])
    return _element(evidence, moved, seen, evidence.jacobian, pair.worst[0])


def _worst(evidence: Evidence) -> tuple[Found, Found, ElementRecord | None]:
    """The worst element of all pairs, or the first where no output moves with an input. Raises
    UserCodeError where there is none."""
    pairs = evidence.jacobian.pairs.values()
    found = [(pair.worst[0], pair) for pair in pairs if pair.worst]
    if found:
        worst, pair = max(found, key=lambda item: item[0].rank[:2])
        return (*_found(evidence, pair, worst), worst)
    first = next((pair for pair in pairs if pair.elements), None)
    if first is None:
        raise UserCodeError(
            "GV008",
            "no element of this check is compared: it has no differentiable input, or no output "
            "depends on one",
        )
    return (*_found(evidence, first, None), None)


def _found(evidence: Evidence, pair: Pair, element: ElementRecord | None) -> tuple[Found, Found]:
    """An element of a pair, or its first."""
    x, y = evidence.inputs[pair.input], evidence.outputs[pair.output]
    moved, seen = (element.input_index, element.output_index) if element else (0, 0)
    return Found(x.name, pair.input, moved, x.value), Found(
        evidence.name_of(evidence.forward.checked[pair.output]), pair.output, seen, y
    )
