"""GV229 inert-input: an input moves no output, and gets zeros as its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import torchs_own
from gradverify.rules.shown import RANDOM
from gradverify.subject.another import other_points
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.snapshot import alike
from gradverify.subject.subject import Argument

WIDE = (-1.0, 1e3, -1e3)    # times the input: across every sign, threshold and bound of its own size


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV205" in found:
        return RANDOM
    if evidence.empty:
        return "the spec asks for an empty tensor"
    return torchs_own(evidence)


def check(evidence: Evidence) -> Iterator[Finding]:
    silent = [_is_zero(gradient) for gradient in evidence.worked.gradients]
    if not any(silent) or all(zero or gradient is None for zero, gradient in zip(silent, evidence.worked.gradients, strict=True)):
        return
    points = [list(evidence.subject.arguments), *islice(other_points(evidence.subject), 1), _dense(evidence)]
    for argument in (argument for argument, zero in zip(evidence.inputs, silent, strict=True) if zero):
        place = next(i for i, each in enumerate(evidence.subject.arguments) if each is argument)
        if not any(_moves(evidence, point, place, points) for point in points) and not _moves(evidence, _widened(points), place, []):
            yield Finding("GV229", f"{argument.name} moves no output at any point looked at, and backward returns zeros for it",
                          input=argument.name, hint="if it is not meant to be differentiated, return None for it")


def _is_zero(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(gradient.numel()) and not bool(gradient.any())


def _dense(evidence: Evidence) -> list[Argument]:
    """A point without zeros."""
    source = generator(evidence.settings.seed, evidence.subject.case.check, "dense")
    own = evidence.subject.arguments
    return [replace(a, value=torch.where(a.value == 0, signed(a.value, source), a.value)) if a.differentiable else a for a in own]


def _widened(points: Sequence[Sequence[Argument]]) -> list[Argument]:
    """The first point with two elements along every axis that has one: a softmax over one element is 1, whatever that is."""
    return [replace(here, value=_doubled(here.value, there.value)) if here.differentiable and here.form is None else here
            for here, there in zip(points[0], points[1], strict=True)]


def _doubled(x: Tensor, other: Tensor) -> Tensor:
    for axis in (axis for axis, size in enumerate(x.shape) if size == 1):
        x, other = torch.cat([x, other], axis), torch.cat([other, x], axis)
    return x


def _moves(evidence: Evidence, point: Sequence[Argument], place: int, points: Sequence[Sequence[Argument]]) -> bool:
    """Does an output differ when this argument alone is another one? A forward that refuses it says that it reads it."""
    x: Tensor = point[place].value
    source = generator(evidence.settings.seed, evidence.subject.case.check, "inert")
    others = [other[place].value for other in points if other is not point] + [x * factor for factor in WIDE] + [x + signed(x, source)]
    here = _outputs(evidence, point)
    if here is None:
        return False
    for other in others:
        there = _outputs(evidence, [replace(a, value=other) if i == place else a for i, a in enumerate(point)])
        if there is None or not alike(here, there):
            return True
    return False


def _outputs(evidence: Evidence, arguments: Sequence[Argument]) -> list[Tensor] | None:
    """All tensors that forward returns there; None where it refuses."""
    twin = evidence.subject.twin(arguments)
    try:
        return [y.detach() for y in twin.forward(twin.leaves()) if isinstance(y, torch.Tensor)]
    except UserCodeError:
        return None
