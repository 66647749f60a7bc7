"""GV113 second-point: at another point of the same kind the gradient is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Severity
from gradverify.numerics.pairs.pair import Outcome, Pair
from gradverify.oracles.along import Screen, screened
from gradverify.oracles.convergence import without_leftovers
from gradverify.oracles.finite_difference import Gives, Jacobian, Wishes, jacobian
from gradverify.rules.at_line import at_culprit
from gradverify.rules.shown import NotApplicable, Told, comparison, differs, refused
from gradverify.subject.another import (
    BOLD,
    MILD,
    looks_symmetric,
    names_of_whole,
    other_points,
    with_other_numbers,
)
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.forms import specified
from gradverify.subject.subject import Argument, Subject

COARSE = 1e-5  # rtol
DECIDED = (Screen.AGREES, Screen.DIFFERS)


@dataclass(frozen=True)
class Look:
    """The result of one random direction at another point. `numbers`: plain numbers that were
    changed too, in words."""

    twin: Subject
    function: Gives
    wishes: Wishes
    seen: Screen
    numbers: Mapping[str, str]
    point: str = "at another point of the same kind"

    @property
    def where(self) -> str:
        words = " and ".join(self.numbers.values())
        return (
            self.point + (", with " if self.point and words else "with " if words else "") + words
        )


def gv113(evidence: Evidence) -> Told:
    if evidence.subject.restless:
        raise NotApplicable(
            "the module's buffers, which forward updates and reads, do not come to rest"
        )
    refusal, constant = "there is no other point: every input is zero", None
    for arguments in other_points(evidence.subject):
        varied = _varied(evidence, arguments)
        if varied is not None and varied.seen is Screen.AGREES:
            break
        try:
            with refused("GV113", "at another point of the same kind", only="GV003"):
                look = look_at(evidence, evidence.subject.twin(arguments))
        except NotApplicable as there:
            refusal = str(there)
            continue
        if look.seen not in DECIDED:
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
        yield from _by_element(
            evidence,
            replace(constant, point=f"{constant.point}, where forward is constant"),
            "warning",
        )


def look_at(
    evidence: Evidence, twin: Subject, numbers: Mapping[str, str] = MappingProxyType({})
) -> Look:
    """Raises UserCodeError."""
    given = twin.differentiable
    wishes = Wishes(
        tuple(x.domain for x in given),
        tuple(x.symmetric or looks_symmetric(x.value) for x in given),
        specified(given),
        evidence.wishes.seed,
    )
    source = generator(
        evidence.settings.seed, evidence.subject.case.check, "second point's direction"
    )
    function = evidence.measured_at(twin)
    invented = any(each.invented for each in given)
    return Look(
        twin,
        function,
        wishes,
        screened(function, wishes, source, evidence.rtol, evidence.infinite, invented),
        numbers,
    )


# ---- other plain numbers
def _varied(
    evidence: Evidence, arguments: Sequence[Argument], size: float = BOLD, only: str | None = None
) -> Look | None:
    """Look with other plain numbers; None where there are none, where the function refuses them, or
    where nothing can be said."""
    if evidence.surrogate is not None:
        return None
    varied = with_other_numbers(evidence.subject, arguments, size, _real(evidence, arguments), only)
    if varied is None:
        return None
    try:
        look = look_at(evidence, *varied)
    except UserCodeError:
        return None
    return look if look.seen in DECIDED else None


def _real(evidence: Evidence, arguments: Sequence[Argument]) -> frozenset[str]:
    """The whole numbers in whose place forward takes a real one, and gives outputs of the same
    shapes."""
    here, found = [y.shape for y in evidence.outputs], []
    for name in names_of_whole(evidence.subject, arguments):
        varied = with_other_numbers(evidence.subject, arguments, BOLD, {name}, name)
        with suppress(UserCodeError):
            twin = varied[0] if varied else evidence.subject
            outputs = evidence.measured_at(twin).values(twin.leaves())
            if (
                varied
                and [y.shape for y in outputs] == here
                and all(bool(y.isfinite().any()) for y in outputs)
            ):
                found.append(name)
    return frozenset(found)


def _by_numbers(evidence: Evidence, arguments: Sequence[Argument], varied: Look) -> Told:
    """Right with the numbers of the check, wrong with others: which one is it? A number of a
    formula must be wrong nearby too: a solver does not converge with any step. By one direction;
    where the tolerance is that of float32, by element too: there a few percent hide in the sum of
    all."""
    coarse = evidence.rtol > COARSE
    for name in varied.numbers:
        look, near = (
            _varied(evidence, arguments, BOLD, name),
            _varied(evidence, arguments, MILD, name),
        )
        if (
            look is not None
            and look.seen is Screen.DIFFERS
            and near is not None
            and (
                near.seen is Screen.DIFFERS
                or (
                    coarse
                    and any(
                        pair.count(Outcome.MISMATCH)
                        for pair in _compared(evidence, near).pairs.values()
                    )
                )
            )
        ):
            yield from _by_element(evidence, look)
            return
    yield (
        f"{varied.where} a direction differed, but no number by itself makes a formula wrong: left "
        "at that"
    )


# ---- by element
def _compared(evidence: Evidence, look: Look) -> Jacobian:
    compared = jacobian(look.function, evidence.settings, look.wishes, clock=evidence.subject.clock)
    return without_leftovers(
        compared,
        look.function.inputs,
        look.wishes,
        lambda: evidence.leftover,
        lambda: evidence.iterated_on(look.twin, look.wishes),
    )


def _by_element(evidence: Evidence, look: Look, severity: Severity = "error") -> Told:
    found = False
    for argument, place, y, pair in wrong_pairs(evidence, look):
        found, against = True, f"{evidence.difference} {look.where}"
        finding = differs(
            "GV113", argument, place, y, pair, against, None, "numeric", evidence.name_of(place)
        )
        if severity == "error":
            yield comparison("GV113", argument, place, y, pair)
        yield replace(
            at_culprit(finding, evidence, look.function, pair.input, pair.output, pair.worst[0]),
            severity=severity,
        )
    if not found:
        yield f"{look.where} a direction differed, but no element did"


def wrong_pairs(evidence: Evidence, look: Look) -> Iterator[tuple[Argument, int, Tensor, Pair]]:
    """The pairs that are wrong there and not at the point of the check: with the input, and with
    the output's place and value."""
    outputs = look.function.values(look.twin.leaves())
    for (index, output), pair in _compared(evidence, look).pairs.items():
        if pair.count(Outcome.MISMATCH) and not evidence.jacobian.pairs[index, output].count(
            Outcome.MISMATCH
        ):
            yield (
                look.twin.differentiable[index],
                evidence.forward.checked[output],
                outputs[output],
                pair,
            )
