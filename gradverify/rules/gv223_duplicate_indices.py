"""GV223 duplicate-indices: with repeated indices the gradient is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.pairs.pair import ElementRecord, Outcome
from gradverify.oracles.along import Screen
from gradverify.oracles.finite_difference import Gives
from gradverify.rules.gv113_second_point import DECIDED, look_at, wrong_pairs
from gradverify.rules.shown import NotApplicable, Told, comparison, element_name
from gradverify.subject.failure import UserCodeError
from gradverify.subject.snapshot import alike, same
from gradverify.subject.subject import Argument

HINT = (
    "look at what backward does with an index that repeats: an assignment keeps one of them, "
    "index_add and scatter_add add them up"
)
STEP = 1e-3  # of an element's size: does it move the forward?


def gv223(evidence: Evidence) -> Told:
    """All repeated at once, or where forward refuses that, the first alone that it takes.
    Permutations never repeat."""
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
        try:
            found = list(_judged(evidence, arguments, where))
        except UserCodeError as error:
            refusal = f"with repeated indices {error.message}"
            if error.code != "GV003":
                continue
            found = [Finding("GV223", f"{where} {error.message}", frames=error.frames, hint=HINT)]
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


def _judged(evidence: Evidence, arguments: list[Argument], where: str) -> Told:
    """The finding, if there is one. Raises UserCodeError where forward or backward refuses,
    NotApplicable where nothing can be said."""
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
                    hint=HINT,
                )
                break
            lost.append(name)
    if lost:
        yield (
            f"{lost[0]} does not move the forward where an index repeats: it is overwritten, and "
            "has no derivative there"
        )


def _is_permutation(value: Tensor) -> bool:
    """0 … n − 1, each once, along the last dimension."""
    rows = value.reshape(-1, value.shape[-1]).long()  # torch does not sort unsigned ones
    return bool((rows.sort(-1).values == torch.arange(value.shape[-1], device=value.device)).all())


def _is_index(argument: Argument) -> bool:
    value = argument.value
    if not isinstance(value, Tensor) or value.is_floating_point() or value.is_complex():
        return False
    return value.dtype != torch.bool and value.numel() > 1 and value.layout == torch.strided


def _repeated(argument: Argument) -> Argument:
    """Every second entry is the first one; of what is in order, the one before it, and the last
    stays: offsets end there."""
    flat = argument.value.clone().reshape(-1)
    if _in_order(argument.value):
        flat[1:-1:2] = flat[:-2:2].clone()
    else:
        flat[1::2] = flat[0].clone()
    return replace(argument, value=flat.reshape(argument.value.shape))


def _in_order(value: Tensor) -> bool:
    return value.dim() == 1 and len(value) > 2 and bool((value.long().diff() >= 0).all())


def _of_backward_only(evidence: Evidence) -> str | None:
    """An integer input that backward follows and forward does not."""
    here, v = evidence.measured, evidence.cotangents("base")
    for index in filter(_is_index, evidence.subject.arguments):
        twin = evidence.subject.twin(
            [_repeated(a) if a is index else a for a in evidence.subject.arguments]
        )
        try:
            there = evidence.measured_at(twin)
            if alike(
                here.values(evidence.subject.leaves()), there.values(twin.leaves())
            ) and not alike(here.vjp(v), there.vjp(v)):
                return index.name
        except UserCodeError as error:
            if error.code == "GV003":
                return index.name
    return None


def _moves(function: Gives, here: Sequence[Tensor], index: int, element: ElementRecord) -> bool:
    """Does any output move with this one element of an input?"""
    inputs = [x.detach().clone() for x in function.inputs]
    moved = inputs[index].contiguous()  # places count in this order, whatever the layout
    flat = (torch.view_as_real(moved) if moved.is_complex() else moved).view(-1)
    flat[element.input_index] += STEP * max(float(flat[element.input_index].abs()), STEP)
    inputs[index].copy_(moved)
    there = function.values([x.requires_grad_() for x in inputs])
    return not all(same(before, after) for before, after in zip(here, there, strict=True))
