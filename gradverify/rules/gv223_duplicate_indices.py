"""GV223 duplicate-indices: with repeated indices the gradient is wrong."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import ElementRecord, Outcome
from gradverify.oracles.along import Screen, screened
from gradverify.oracles.finite_difference import Gives, jacobian
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import element_name, wrong_already
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.snapshot import alike, same
from gradverify.subject.subject import Argument

HINT = "look at what backward does with an index that repeats: an assignment keeps one of them, index_add and scatter_add add them up"
ALWAYS = "; of what is always a permutation say `kind: permutation`, or ignore this rule"
STEP = 1e-3     # of an element's size: does it move the forward?


def gv223(evidence: Evidence) -> Iterator[Finding | str]:
    if not any(map(_is_index, evidence.subject.arguments)):
        raise NotApplicable("no input holds two or more integers")
    seen = list(_everything(evidence))
    if any(isinstance(each, Finding) for each in seen) and (name := _of_backward_only(evidence)):
        raise NotApplicable(f"{name} moves backward and not forward: it goes with the other integers, which cannot be repeated without it")
    yield from seen


def _everything(evidence: Evidence) -> Iterator[Finding | str]:
    indices = [a for a in evidence.subject.arguments if _is_index(a) and a.name not in _drawn(evidence)]
    refusals = list[str]()
    for order in (False, True):
        names = [a.name for a in indices if _is_permutation(a.value) is order]
        if names:
            refusals.append((yield from _asked(evidence, names, order)))
    if all(refusals):
        raise NotApplicable(refusals[0] if refusals else "its indices are permutations")


def _asked(evidence: Evidence, names: list[str], order: bool) -> Generator[Finding | str, None, str]:
    """What these show, all repeated at once, or where forward refuses that, the first alone that it takes. Returns why none could be asked."""
    refusal = ""
    for chosen in ([names] if len(names) == 1 else [names, *([name] for name in names)]):
        arguments = [_repeated(a) if a.name in chosen else a for a in evidence.subject.arguments]
        if all(same(a.value, b.value) for a, b in zip(evidence.subject.arguments, arguments, strict=True) if a.name in chosen):
            refusal = refusal or "every integer repeats already"
            continue
        try:
            found = _judged(evidence, arguments, " and ".join(chosen), _told([a for a in evidence.subject.arguments if a.name in chosen]))
            yield from (map(_as_order, found) if order else found)
        except UserCodeError as error:
            refusal = refusal or f"with repeated indices {error.message}"
        else:
            return ""
    return refusal


def _as_order(found: Finding | str) -> Finding | str:
    """A warning: the function may be one of permutations only."""
    if isinstance(found, str):
        return found
    return replace(found, severity="warning", message=f"{found.message}; a permutation, as it is here, never repeats", hint=HINT + ALWAYS)


def _drawn(evidence: Evidence) -> set[str | None]:
    """The inputs that the spec draws as permutations."""
    case = evidence.subject.case
    return {each.name for each in (*case.inputs, *case.keywords) if each.tensor is not None and each.tensor.arguments == "permutation"}


def _is_permutation(value: Tensor) -> bool:
    """0 … n − 1, each once, along the last dimension."""
    rows = value.reshape(-1, value.shape[-1]).long()     # torch does not sort unsigned ones
    return bool((rows.sort(-1).values == torch.arange(value.shape[-1], device=value.device)).all())


def _is_index(argument: Argument) -> bool:
    value = argument.value
    if not isinstance(value, Tensor) or value.is_floating_point() or value.is_complex():
        return False
    return value.dtype != torch.bool and value.numel() > 1 and value.layout == torch.strided


def _repeated(argument: Argument) -> Argument:
    """Every second entry is the first one; of what is in order, the one before it, and the last stays: offsets end there."""
    flat = argument.value.clone().reshape(-1)
    if _in_order(argument.value):
        flat[1:-1:2] = flat[:-2:2].clone()
    else:
        flat[1::2] = flat[0].clone()
    return replace(argument, value=flat.reshape(argument.value.shape))


def _in_order(value: Tensor) -> bool:
    return value.dim() == 1 and len(value) > 2 and bool((value.long().diff() >= 0).all())


def _told(chosen: list[Argument]) -> str:
    """every second entry of rows and columns was its first, 3 and 0; every second one of offsets was the one before it"""
    first, before = [a for a in chosen if not _in_order(a.value)], [a.name for a in chosen if _in_order(a.value)]
    numbers = " and ".join(f"{int(a.value.reshape(-1)[0])}" for a in first)
    parts = [f"every second entry of {' and '.join(a.name for a in first)} was its first, {numbers}"] if first else []
    return "; ".join([*parts, *([f"every second entry of {' and '.join(before)} was the one before it"] if before else [])])


def _of_backward_only(evidence: Evidence) -> str | None:
    """An integer input that backward follows and forward does not."""
    here, v = evidence.measured, evidence.cotangents("base")
    for index in filter(_is_index, evidence.subject.arguments):
        twin = evidence.subject.twin([_repeated(a) if a is index else a for a in evidence.subject.arguments])
        try:
            there = evidence.measured_at(twin)
            if alike(here.values(evidence.subject.leaves()), there.values(twin.leaves())) and not alike(here.vjp(v), there.vjp(v)):
                return index.name
        except UserCodeError as error:
            if error.code == "GV003":
                return index.name
    return None


def _judged(evidence: Evidence, arguments: list[Argument], where: str, values: str) -> Iterator[Finding | str]:
    """The finding, if there is one. Raises UserCodeError (GV002) where forward refuses, NotApplicable where nothing can be said."""
    source = generator(evidence.settings.seed, evidence.subject.case.check, "direction at repeated indices")
    try:
        function = evidence.measured_at(evidence.subject.twin(arguments))
        seen = screened(function, evidence.wishes, source, evidence.settings.tolerances(low_precision=evidence.low_precision)[1], evidence.infinite)
    except UserCodeError as error:
        if error.code != "GV003":
            raise
        yield Finding("GV223", f"with repeated indices in {where} {error.message}", frames=error.frames, hint=HINT)
        return
    if seen in (Screen.OPEN, Screen.NON_FINITE):
        raise NotApplicable(f"with repeated indices {seen.value}")
    if seen is Screen.DIFFERS:
        yield from _by_element(evidence, function, where, values)


def _by_element(evidence: Evidence, function: Gives, where: str, values: str) -> Iterator[Finding | str]:
    here, lost = function.values(evidence.subject.leaves()), None
    of = f" of {evidence.surrogate.name}" if evidence.surrogate else ""
    for (index, output), pair in jacobian(function, evidence.settings, evidence.wishes).pairs.items():
        if not pair.count(Outcome.MISMATCH) or wrong_already(evidence, index, output):
            continue
        argument, place = evidence.inputs[index], evidence.forward.checked[output]
        for worst in (each for each in pair.worst if each.outcome == Outcome.MISMATCH):
            name = element_name(argument.name, argument.value, worst.input_index)
            if not _moves(function, here, index, worst):
                lost = lost or name
                continue
            y = element_name(evidence.name_of(place), here[output], worst.output_index)
            yield Finding("GV223", f"with repeated indices in {where}, d {y} / d {name} is {worst.analytic:.6g} by backward and "
                          f"{worst.numeric:.6g} by finite differences{of}; {values}", input=argument.name, output=place, hint=HINT)
            break
    if lost:
        yield f"{lost} does not move the forward where an index repeats: it is overwritten, and has no derivative there"


def _moves(function: Gives, here: Sequence[Tensor], index: int, element: ElementRecord) -> bool:
    """Does any output move with this one element of an input?"""
    inputs = [x.detach().clone() for x in function.inputs]
    moved = inputs[index].contiguous()      # places count in this order, whatever the layout
    flat = (torch.view_as_real(moved) if moved.is_complex() else moved).view(-1)
    flat[element.input_index] += STEP * max(float(flat[element.input_index].abs()), STEP)
    inputs[index].copy_(moved)
    there = function.values([x.requires_grad_() for x in inputs])
    return not all(same(before, after) for before, after in zip(here, there, strict=True))
