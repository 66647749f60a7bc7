"""One element of a Subject's Jacobian: found, measured, and its verdict in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradverify.element.places import Found, input_element, output_element, output_name, pair_of
from gradverify.element.words import conclusion
from gradverify.evidence import Evidence
from gradverify.model.element import Element, Measured
from gradverify.numerics.columns.tally import Outcome, Pair, Worst
from gradverify.numerics.compare import Limit
from gradverify.numerics.element import OUTCOMES, measure, with_fixed_step
from gradverify.oracles.finite_difference import Filled
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.verify import described

ABSENT = "backward gives None for this input: taken as zero"
WORST = "no element was named: this is the worst of the check"


@dataclass(frozen=True, slots=True)
class Asked:
    """The two halves of `--element`, as written: `w[3,1]` and `y0[2]`."""

    input: str
    output: str


def explain(subject: Subject, asked: Asked | None = None) -> Element:
    """The element that was asked for; without any, the worst of the check.

    Raises ProblemsError where no such element is, UserCodeError where the user's code raises or there is nothing to compare.
    """
    evidence = Evidence(subject)
    if asked is not None:
        return _element(evidence, input_element(evidence, asked.input), output_element(evidence, asked.output))
    moved, seen, worst = _worst(evidence)
    element = _element(evidence, moved, seen)
    return replace(element, in_check=_otherwise(element.measured, worst), notes=(WORST, *element.notes))


def _element(evidence: Evidence, moved: Found, seen: Found) -> Element:
    function, settings, subject = Filled(evidence.measured), evidence.settings, evidence.subject
    fixed = settings.eps != "auto"
    arguments = evidence.inputs
    measured = measure(
        function, moved.at, seen.at, atol=0.0 if fixed else settings.atol or 0.0, rtol=None if fixed else settings.rtol,
        domains=[None if fixed else argument.domain for argument in arguments],
        symmetric=[not fixed and argument.symmetric for argument in arguments], generator=np.random.default_rng(settings.seed))
    if settings.eps != "auto":
        atol, rtol = settings.tolerances()
        measured = with_fixed_step(measured, function, moved.at, seen.at, settings.eps, atol=atol, rtol=rtol)
    absent = "" if (moved.tensor, seen.tensor) in function.given else ABSENT
    notes = tuple(note for note in (absent, evidence.numeric_precision) if note)
    result = described(subject.case, subject)
    return Element(result.id, result.name, f"{result.spec.path}:{result.spec.line}", result.function, result.device, result.dtype, moved.place,
                   seen.place, measured, conclusion(measured), pair_of(evidence, moved), None, notes)


def _worst(evidence: Evidence) -> tuple[Found, Found, Worst]:
    """The worst element of all pairs. Raises UserCodeError where there is none."""
    found = [(pair.worst[0], pair) for pair in evidence.jacobian.pairs.values() if pair.worst]
    found = found or [(_first(pair), pair) for pair in evidence.jacobian.pairs.values() if pair.elements]
    if not found:
        raise UserCodeError("GV008", "no element of this check is compared: it has no differentiable input, or no output depends on one")
    worst, pair = max(found, key=lambda item: item[0].rank[:2])
    x, y = evidence.inputs[pair.input], evidence.outputs[pair.output]
    return (Found(x.name, pair.input, worst.input_index, x.value),
            Found(output_name(evidence, evidence.forward.checked[pair.output]), pair.output, worst.output_index, y), worst)


def _first(pair: Pair) -> Worst:
    """Of a pair in which no output moves with the input."""
    return Worst((0, 0.0, 0, 0), 0, 0, 0.0, 0.0, 0.0, 0.0, Outcome.PASS, Limit.NONE)


def _otherwise(measured: Measured, worst: Worst) -> str | None:
    """What the whole check says of the element, where it says something else."""
    outcome = OUTCOMES[worst.outcome]
    if outcome == (measured.fixed.outcome if measured.fixed else measured.outcome):
        return None
    reason = "" if worst.limit.name == "NONE" else f": {worst.limit.value}"
    return f"in the whole check this element is {outcome.replace('_', '-')}{reason}"
