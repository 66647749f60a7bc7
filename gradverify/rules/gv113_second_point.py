"""GV113 second-point: at another point of the same kind the gradient is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding, Severity
from gradverify.numerics.pairs.pair import Outcome
from gradverify.oracles.along import Screen, screened
from gradverify.oracles.convergence import without_leftovers
from gradverify.oracles.finite_difference import Gives, Jacobian, Wishes, jacobian
from gradverify.rules.at_line import at_culprit
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import comparison, differs, unjudged, wrong_already
from gradverify.rules.sound import wrong_here
from gradverify.subject.another import (
    BOLD,
    MILD,
    SMOOTH,
    Numbers,
    Variation,
    looks_symmetric,
    names_of_tiny,
    names_of_whole,
    other_choices,
    other_points,
    traces,
    with_other_numbers,
)
from gradverify.subject.arguments import specified
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.snapshot import alike
from gradverify.subject.subject import Argument, Subject

COARSE = 1e-5        # rtol


@dataclass(frozen=True)
class Look:
    """The result of one random direction at another point. `numbers`: plain numbers that were changed too."""

    twin: Subject
    function: Gives
    wishes: Wishes
    seen: Screen
    numbers: Numbers | None = None
    point: str = "at another point of the same kind"

    @property
    def told(self) -> bool:
        return self.seen in (Screen.AGREES, Screen.DIFFERS)

    @property
    def where(self) -> str:
        words = " and ".join(self.numbers.words.values()) if self.numbers else ""
        return self.point + (", with " if self.point and words else "with " if words else "") + words


def gv113_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    wrong = wrong_here(found)
    if evidence.subject.restless:
        return "the module's buffers, which forward updates and reads, do not come to rest"
    return unjudged(found) or (f"{wrong} was found already" if wrong else None)


def gv113(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    try:
        yield from _elsewhere(evidence)
    except NotApplicable:
        chosen = list(_by_choice(evidence))
        if not chosen:
            raise
        yield from chosen
    else:
        yield from _by_choice(evidence)


def _elsewhere(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    refusal, constant = "there is no other point: every input is zero", None
    for arguments in other_points(evidence.subject):
        varied = _varied(evidence, arguments)
        if varied is not None and varied.seen is Screen.AGREES:
            break
        try:
            look = _look(evidence, evidence.subject.twin(arguments))
        except UserCodeError as error:
            if error.code == "GV003":
                yield Finding("GV113", f"at another point of the same kind {error.message}", frames=error.frames)
                return
            refusal = f"at another point {error.message}"
            continue
        if not look.told:
            constant = look if look.seen is Screen.CONSTANT else constant
            refusal = f"at another point {look.seen.value}"
            continue
        if look.seen is Screen.DIFFERS:
            yield from _by_element(evidence, look)
        elif varied is not None:
            yield from _by_numbers(evidence, arguments, varied)
        break
    else:
        if constant is None:
            raise NotApplicable(refusal)
    if constant is not None:
        yield from _by_element(evidence, replace(constant, point=f"{constant.point}, where forward is constant"), "warning")


def _look(evidence: Evidence, twin: Subject, numbers: Numbers | None = None) -> Look:
    """Raises UserCodeError."""
    given = twin.differentiable
    wishes = Wishes(tuple(x.domain for x in given), tuple(x.symmetric or looks_symmetric(x.value) for x in given), specified(given),
                    evidence.wishes.seed)
    source = generator(evidence.settings.seed, evidence.subject.case.check, "second point's direction")
    function = evidence.measured_at(twin)
    rtol = evidence.settings.tolerances(low_precision=evidence.low_precision)[1]
    invented = any(each.invented for each in given)
    return Look(twin, function, wishes, screened(function, wishes, source, rtol, evidence.infinite, invented), numbers)


# ---- other plain numbers
def _varied(evidence: Evidence, arguments: Sequence[Argument]) -> Look | None:
    """Look with other plain numbers; None where there are none, or where the function refuses them."""
    if evidence.surrogate is not None:
        return None
    whole = _real(evidence, arguments)
    for tiny in (True, False) if names_of_tiny(evidence.subject, arguments) else (False,):
        look = _with_numbers(evidence, arguments, Variation(BOLD, tiny, whole))
        if look is not None:
            return look
    return None


def _with_numbers(evidence: Evidence, arguments: Sequence[Argument], variation: Variation) -> Look | None:
    """None where there are none, where the function refuses them, or where nothing can be said."""
    numbers = with_other_numbers(evidence.subject, arguments, variation)
    if numbers is None:
        return None
    try:
        look = _look(evidence, numbers.twin(evidence.subject), numbers)
    except UserCodeError:
        return None
    return look if look.told else None


def _real(evidence: Evidence, arguments: Sequence[Argument]) -> frozenset[str]:
    """The whole numbers in whose place forward takes a real one, and gives outputs of the same shapes."""
    here, found = [y.shape for y in evidence.outputs], []
    for name in names_of_whole(evidence.subject, arguments):
        outputs = _outputs(evidence, with_other_numbers(evidence.subject, arguments, Variation(BOLD, whole=frozenset({name}), only=name)))
        if outputs is not None and [y.shape for y in outputs] == here and all(bool(y.isfinite().any()) for y in outputs):
            found.append(name)
    return frozenset(found)


def _outputs(evidence: Evidence, numbers: Numbers | None) -> list[Tensor] | None:
    if numbers is None:
        return None
    try:
        twin = numbers.twin(evidence.subject)
        return [y.detach().clone() for y in evidence.measured_at(twin).values(twin.leaves())]
    except UserCodeError:
        return None


def _by_numbers(evidence: Evidence, arguments: Sequence[Argument], varied: Look) -> Iterator[Finding | Comparison | str]:
    """Right with the numbers of the check, wrong with others: which one is it? A number of a formula must be wrong nearby too, an eps must move
    the output whatever little it changes: a solver does not converge with any step, and not as far with any tolerance."""
    tiny, whole = names_of_tiny(evidence.subject, arguments), _real(evidence, arguments)
    for name in varied.numbers.words if varied.numbers else ():
        look = _with_numbers(evidence, arguments, Variation(BOLD, True, whole, name))
        if look is None or look.seen is not Screen.DIFFERS:
            continue
        if name in tiny:
            if _is_smooth(evidence, arguments, name):
                yield from _by_element(evidence, look, "warning")
                return
        elif _is_wrong(evidence, _with_numbers(evidence, arguments, Variation(MILD, False, whole, name))):
            yield from _by_element(evidence, look)
            return
    yield f"{varied.where} a direction differed, but no number by itself makes a formula wrong: left at that"


def _is_wrong(evidence: Evidence, look: Look | None) -> bool:
    """By one direction; where the tolerance is that of float32, by element too: there a few percent of each hide in the sum of them all."""
    if look is None or look.seen is Screen.DIFFERS:
        return look is not None
    coarse = evidence.settings.tolerances(low_precision=evidence.low_precision)[1] > COARSE
    return coarse and any(pair.count(Outcome.MISMATCH) for pair in _compared(evidence, look).pairs.values())


def _is_smooth(evidence: Evidence, arguments: Sequence[Argument], name: str) -> bool:
    """Return whether the outputs change with every small change of this number."""
    variations = (Variation(BOLD * size, True, only=name) for size in SMOOTH)
    outputs = [_outputs(evidence, with_other_numbers(evidence.subject, arguments, variation)) for variation in variations]
    return all(a is not None and b is not None and not alike(a, b) for a, b in pairwise(outputs))


# ---- other choices
def _by_choice(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    """With another flag, axis, reduction or stride at the point of the check, one at a time. A warning: the spec does not ask for it."""
    if evidence.surrogate is not None or not evidence.forward.nodes:
        return
    for choice in other_choices(evidence.subject):
        try:
            look = replace(_look(evidence, choice.numbers.twin(evidence.subject), choice.numbers), point="")
            if look.seen is Screen.DIFFERS and _is_a_mistake(evidence, look, choice.flag):
                yield from _by_element(evidence, look, "warning")
        except UserCodeError:
            continue


def _is_a_mistake(evidence: Evidence, look: Look, flag: bool) -> bool:
    """Not where outputs are the same (a gradient that is reversed or stopped) or flat (rounding that passes its gradient through): that may be meant,
    as is what backward knows of a flag."""
    there = Evidence(look.twin)
    if len(there.outputs) != len(evidence.outputs) or alike(there.outputs, evidence.outputs) or there.flat:
        return False
    here = traces(evidence.forward.nodes)
    return not flag or (here is not None and here == traces(there.forward.nodes))


# ---- by element
def _compared(evidence: Evidence, look: Look) -> Jacobian:
    compared = jacobian(look.function, evidence.settings, look.wishes, clock=evidence.subject.clock)
    return without_leftovers(compared, look.function.inputs, look.wishes, lambda: evidence.leftover,
                             lambda: evidence.iterated_on(look.twin, look.wishes))


def _by_element(evidence: Evidence, look: Look, severity: Severity = "error") -> Iterator[Finding | Comparison | str]:
    outputs, wrong = look.function.values(look.twin.leaves()), False
    for (index, output), pair in _compared(evidence, look).pairs.items():
        if pair.count(Outcome.MISMATCH) and not wrong_already(evidence, index, output):
            wrong = True
            argument, place = look.twin.differentiable[index], evidence.forward.checked[output]
            if severity == "error":
                yield comparison("GV113", argument, place, outputs[output], pair)
            against = f"{evidence.difference} {look.where}"
            finding = differs("GV113", argument, place, outputs[output], pair, against, None, "numeric", evidence.name_of(place))
            finding = at_culprit(finding, evidence, look.function, index, output, pair.worst[0])
            yield replace(finding, severity=severity)
    if not wrong:
        yield f"{look.where} a direction differed, but no element did"
