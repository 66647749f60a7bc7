"""Rules that compare the gradient at another point of the same kind (GV113), and with repeated
indices (GV223)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Finding, Severity
from gradverify.numerics.pairs.pair import (
    ElementRecord,
    Outcome,
    Pair,
)
from gradverify.oracles.along import Screen, screened
from gradverify.oracles.finite_difference import Constraints, Jacobian, WithBackward, jacobian
from gradverify.rules.at_line import at_culprit
from gradverify.rules.differ import Variant
from gradverify.rules.engine import NotApplicable, refused
from gradverify.rules.shown import RuleResults, comparison, differs, element_name
from gradverify.subject.another import (
    BOLD,
    MILD,
    looks_symmetric,
    names_of_whole,
    other_points,
    with_other_numbers,
)
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.forms import specified
from gradverify.subject.snapshot import alike, same
from gradverify.subject.subject import Argument, Subject

# ---- GV113 second-point: at another point of the same kind the gradient is wrong
COARSE = 1e-5  # `rtol` above which numbers are compared by element too
DECIDED = (Screen.AGREES, Screen.DIFFERS)


class Look(NamedTuple):
    """The result of one random direction at another point. `numbers`: description of each plain
    number that was changed too, by name."""

    twin: Subject
    function: WithBackward
    constraints: Constraints
    seen: Screen
    numbers: Mapping[str, str]
    point: str = "at another point of the same kind"

    @property
    def where(self) -> str:
        words = " and ".join(self.numbers.values())
        return (
            self.point + (", with " if self.point and words else "with " if words else "") + words
        )


def gv113(evidence: Evidence) -> RuleResults:
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
            constant._replace(point=f"{constant.point}, where forward is constant"),
            "warning",
        )


def look_at(
    evidence: Evidence, twin: Subject, numbers: Mapping[str, str] = MappingProxyType({})
) -> Look:
    """Compare the gradient with finite differences along one random direction at another point.
    Raises UserCodeError."""
    given = twin.differentiable
    constraints = Constraints(
        tuple(x.domain for x in given),
        tuple(x.symmetric or looks_symmetric(x.value) for x in given),
        specified(given),
        evidence.constraints.seed,
    )
    source = evidence.subject.generator("second point's direction")
    function = evidence.measured_at(twin)
    invented = any(each.invented for each in given)
    return Look(
        twin,
        function,
        constraints,
        screened(function, constraints, source, evidence.rtol, evidence.infinite, invented),
        numbers,
    )


# ---- other plain numbers
def _varied(
    evidence: Evidence, arguments: Sequence[Argument], size: float = BOLD, only: str | None = None
) -> Look | None:
    """Compare along one direction with other plain numbers; None where there are none, where the
    function refuses them, or where the result is not decided."""
    if evidence.surrogate is not None:
        return None
    varied = with_other_numbers(evidence.subject, arguments, size, _real(evidence, arguments), only)
    if varied is None:
        return None
    look = tried(look_at, evidence, *varied)
    return look if look and look.seen in DECIDED else None


def _real(evidence: Evidence, arguments: Sequence[Argument]) -> frozenset[str]:
    """Return the whole numbers that forward also takes as real numbers, with outputs of the same
    shapes."""
    here = [y.shape for y in evidence.outputs]

    def takes(name: str) -> bool:
        varied = with_other_numbers(evidence.subject, arguments, BOLD, {name}, name)
        if varied is None:
            return False
        outputs = evidence.measured_at(varied[0]).values(varied[0].leaves())
        alike = [y.shape for y in outputs] == here
        return alike and all(bool(y.isfinite().any()) for y in outputs)

    names = names_of_whole(evidence.subject, arguments)
    return frozenset(name for name in names if tried(takes, name))


def _by_numbers(evidence: Evidence, arguments: Sequence[Argument], varied: Look) -> RuleResults:
    """Find which plain number makes the gradient wrong, if the gradient is right with the numbers
    of the check and wrong with others.

    A number in a formula must be wrong nearby, too; a solver, however, does not converge with every
    step size. The gradients are compared along one direction; near the number, where the tolerance
    is that of float32, by element too: a few percent of one element are lost in the sum.
    """
    coarse = evidence.rtol > COARSE

    def differs(look: Look, by_element: bool) -> bool:
        if look.seen is Screen.DIFFERS or not by_element:
            return look.seen is Screen.DIFFERS
        pairs = _jacobian_at(evidence, look).pairs.values()
        return any(pair.count(Outcome.MISMATCH) for pair in pairs)

    for name in varied.numbers:
        look = _varied(evidence, arguments, BOLD, name)
        near = _varied(evidence, arguments, MILD, name)
        if look and near and differs(look, False) and differs(near, coarse):
            yield from _by_element(evidence, look)
            return
    yield (
        f"{varied.where} a direction differed, but no number by itself makes a formula wrong: left "
        "at that"
    )


# ---- by element
def _jacobian_at(evidence: Evidence, look: Look) -> Jacobian:
    found = jacobian(
        look.function, evidence.settings, look.constraints, clock=evidence.subject.clock
    )
    return evidence.converged(found, look.twin, look.constraints)


def _by_element(evidence: Evidence, look: Look, severity: Severity = "error") -> RuleResults:
    found = False
    for argument, place, y, pair in wrong_pairs(evidence, look):
        found, against = True, f"{evidence.difference} {look.where}"
        finding = differs("GV113", evidence, argument, place, y, pair, against)
        if severity == "error":
            yield comparison("GV113", argument, place, y, pair)
        yield replace(
            at_culprit(finding, evidence, look.function, pair),
            severity=severity,
        )
    if not found:
        yield f"{look.where} a direction differed, but no element did"


def wrong_pairs(evidence: Evidence, look: Look) -> Iterator[tuple[Argument, int, Tensor, Pair]]:
    """Yield the pairs that are wrong at the other point and not at the point of the check, with
    the input, and with the output's place and value."""
    outputs = look.function.values(look.twin.leaves())
    for (index, output), pair in _jacobian_at(evidence, look).pairs.items():
        if pair.count(Outcome.MISMATCH) and not evidence.jacobian.pairs[index, output].count(
            Outcome.MISMATCH
        ):
            yield (
                look.twin.differentiable[index],
                evidence.forward.checked[output],
                outputs[output],
                pair,
            )


# ---- GV223 duplicate-indices: with repeated indices the gradient is wrong
ADD_UP = (
    "look at what backward does with an index that repeats: an assignment keeps one of them, "
    "index_add and scatter_add add them up"
)
STEP = 1e-3  # of an element's size, to see whether it moves the forward


def gv223(evidence: Evidence) -> RuleResults:
    """Repeat the indices of all inputs at once, or, where forward refuses that, of the first input
    for which it does not. Permutations are left out."""
    indices = [a for a in evidence.subject.arguments if _is_index(a)]
    chosen = [a for a in indices if not _is_permutation(a.value)]
    if not chosen:
        raise NotApplicable(
            "its indices are permutations" if indices else "no input holds two or more integers"
        )
    refusal = "every integer repeats already"
    for some in (chosen, *([each] for each in chosen if len(chosen) > 1)):
        arguments = [_repeated(a) if a in some else a for a in evidence.subject.arguments]
        if all(
            same(a.value, b.value)
            for a, b in zip(evidence.subject.arguments, arguments, strict=True)
            if a in some
        ):
            continue
        where = f"with repeated indices in {' and '.join(a.name for a in some)}"
        found: list[Finding | Comparison | str] | UserCodeError
        found = attempted(list, _judged(evidence, arguments, where))
        if isinstance(found, UserCodeError):
            refusal = f"with repeated indices {found.message}"
            if found.code != "GV003":
                continue
            found = [Variant("GV223", where, "", ADD_UP).raised(found)]
        if any(isinstance(each, Finding) for each in found) and (
            name := _of_backward_only(evidence)
        ):
            raise NotApplicable(
                f"{name} moves backward and not forward: it goes with the other integers, which "
                "cannot be repeated without it"
            )
        yield from found
        return
    raise NotApplicable(refusal)


def _judged(evidence: Evidence, arguments: list[Argument], where: str) -> RuleResults:
    """Yield the findings at these arguments. Raises UserCodeError where forward or backward raises,
    NotApplicable where the comparison is not decided."""
    look = look_at(evidence, evidence.subject.twin(arguments))
    if look.seen not in DECIDED:
        raise NotApplicable(f"with repeated indices {look.seen.value}")
    lost, of = list[str](), f" of {evidence.surrogate.name}" if evidence.surrogate else ""
    here = look.function.values(evidence.subject.leaves()) if look.seen is Screen.DIFFERS else ()
    for argument, place, y, pair in wrong_pairs(evidence, look) if here else ():
        for worst in (each for each in pair.worst if each.outcome == Outcome.MISMATCH):
            name = element_name(argument.name, argument.value, worst.input_index)
            if _moves(look.function, here, pair.input, worst):
                yield comparison("GV223", argument, place, y, pair)
                yield Finding(
                    "GV223",
                    f"{where}, d {element_name(evidence.name_of(place), y, worst.output_index)} / "
                    f"d {name} is {worst.analytic:.6g} by backward and {worst.numeric:.6g} by "
                    f"finite differences{of}",
                    input=argument.name,
                    output=place,
                    hint=ADD_UP,
                )
                break
            lost.append(name)
    if lost:
        yield (
            f"{lost[0]} does not move the forward where an index repeats: it is overwritten, and "
            "has no derivative there"
        )


def _is_permutation(value: Tensor) -> bool:
    """Return whether each row along the last dimension holds 0 … n − 1 once each."""
    rows = value.reshape(-1, value.shape[-1]).long()  # torch does not sort unsigned integers
    return bool((rows.sort(-1).values == torch.arange(value.shape[-1], device=value.device)).all())


def _is_index(argument: Argument) -> bool:
    value = argument.value
    if not isinstance(value, Tensor) or value.is_floating_point() or value.is_complex():
        return False
    return value.dtype != torch.bool and value.numel() > 1 and value.layout == torch.strided


def _repeated(argument: Argument) -> Argument:
    """Return an index with every second entry replaced by the first. In an ordered one it is
    replaced by the entry before it, and the last entry, at which offsets end, is kept."""
    flat = argument.value.clone().reshape(-1)
    if _in_order(argument.value):
        flat[1:-1:2] = flat[:-2:2].clone()
    else:
        flat[1::2] = flat[0].clone()
    return replace(argument, value=flat.reshape(argument.value.shape))


def _in_order(value: Tensor) -> bool:
    return value.dim() == 1 and len(value) > 2 and bool((value.long().diff() >= 0).all())


def _of_backward_only(evidence: Evidence) -> str | None:
    """Return the name of an integer input whose repetition changes backward but not forward; None
    where there is none."""
    here, v = evidence.measured, evidence.cotangents("base")
    for index in filter(_is_index, evidence.subject.arguments):
        twin = evidence.subject.twin(
            [_repeated(a) if a is index else a for a in evidence.subject.arguments]
        )

        def moves_backward_only(twin: Subject) -> bool:
            there = evidence.measured_at(twin)
            values = here.values(evidence.subject.leaves()), there.values(twin.leaves())
            return alike(*values) and not alike(here.vjp(v), there.vjp(v))

        found = attempted(moves_backward_only, twin)
        if found.code == "GV003" if isinstance(found, UserCodeError) else found:
            return index.name
    return None


def _moves(
    function: WithBackward, here: Sequence[Tensor], index: int, element: ElementRecord
) -> bool:
    """Return whether any output changes when this one element of an input does."""
    inputs = [x.detach().clone() for x in function.inputs]
    moved = inputs[index].contiguous()  # places count in this order, whatever the layout
    flat = (torch.view_as_real(moved) if moved.is_complex() else moved).view(-1)
    flat[element.input_index] += STEP * max(float(flat[element.input_index].abs()), STEP)
    inputs[index].copy_(moved)
    there = function.values([x.requires_grad_() for x in inputs])
    return not all(same(before, after) for before, after in zip(here, there, strict=True))
