"""GV118 devices: on one device the function gives other numbers than on another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.sixteen_bit import TensorResult
from gradverify.oracles.legs import Kernel
from gradverify.rules.agreement import clearly_differing_output, gradients_apart, unsteady
from gradverify.rules.gv112_low_precision import KINDS
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import element_name
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.failure import UserCodeError
from gradverify.subject.fewer_bits import in_all_bits
from gradverify.subject.on_device import back, on_device
from gradverify.subject.subject import Subject

HINT = "the other rules, on each device, say which of the two is wrong; where they find nothing, forward is another function there"


@dataclass(frozen=True, slots=True)
class Side:
    """What one device gives: the checked outputs, and the gradient of each input."""

    outputs: Sequence[Tensor]
    gradients: Gradients


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    beside = evidence.subject.own.case.beside
    if beside is None:
        return "the spec's `matrix` names no device before this one"
    if torch.device(beside) == torch.device(evidence.settings.device):
        return f"both devices are {beside}"
    if evidence.draws:
        return "random numbers are others on another device"
    return unsteady(found)


def check(evidence: Evidence) -> Iterator[Finding | str]:
    own = evidence.subject.own
    beside = str(own.case.beside)
    with in_all_bits():
        try:
            other = on_device(own, beside)
            if evidence.kernel is not None:
                judged = evidence.kernel.apart(Kernel(on_device(evidence.subject, beside), other, evidence.forward.checked))
            else:
                v = evidence.cotangents("base")
                here, there = side(own, evidence, v), side(other, evidence, v)
        except UserCodeError as error:
            raise NotApplicable(f"on {beside} {error.message}") from None
        if evidence.kernel is not None:
            yield from beyond_native(evidence, "GV118", judged, f"on {beside}", f"on {evidence.settings.device}", HINT)
        else:
            yield from compared(evidence, here, there, beside)
    yield f"compared with {beside}"


def compared(evidence: Evidence, here: Side, there: Side, beside: str) -> Iterator[Finding]:
    """What the device `beside` gives against what is computed here, both for the base cotangents."""
    on = evidence.settings.device
    for place, y, x in zip(evidence.forward.checked, here.outputs, there.outputs, strict=True):
        if (y.dtype, y.shape) != (x.dtype, x.shape):
            said = [f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}" for each in (x, y)]
            yield Finding("GV118", f"on {beside} {evidence.name_of(place)} is {said[0]}, and not {said[1]} as on {on}", output=place, hint=HINT)
            return
    outputs = zip(evidence.forward.checked, here.outputs, there.outputs, strict=True)
    apart = [clearly_differing_output(evidence, place, y, back(x, y)) for place, y, x in outputs]
    moved = tuple(None if g is None else back(g, x) for g, x in zip(there.gradients, evidence.subject.inputs, strict=True))
    for each in (*filter(None, apart), *gradients_apart(evidence, here.gradients, moved, evidence.cotangents("base"))):
        yield Finding("GV118", f"on {beside} {each.text} as on {on}", input=each.input, output=each.output, hint=HINT)


def side(subject: Subject, evidence: Evidence, v: Sequence[Tensor]) -> Side:
    """Of one fresh forward and its backward for the cotangents v. Raises UserCodeError."""
    outputs, gradients = Differentiable(subject, evidence.forward.checked).once([cotangent.clone() for cotangent in v])
    return Side(outputs, gradients)


def where(evidence: Evidence, n: int, index: int) -> tuple[int | None, str | None, str]:
    """Of tensor n of outputs, then gradients: the output's place, or the input's name; and the element in words."""
    places = evidence.forward.checked
    if n < len(places):
        return places[n], None, element_name(evidence.name_of(places[n]), evidence.outputs[n], index)
    argument = evidence.inputs[n - len(places)]
    return None, argument.name, f"the gradient at {element_name(argument.name, argument.value, index)}"


def beyond_native(evidence: Evidence, code: str, judged: Sequence[TensorResult], inside: str, here: str, hint: str) -> Iterator[Finding]:
    """Of every output, then of every gradient in 16 bits: what it is `inside`, where that is off what it is `here` beyond the native error."""
    for n, each in enumerate(judged):
        if each.miss:
            place, name, what = where(evidence, n, each.index)
            told = (f"{inside} {what} is {each.kernel:.5g}, and not {each.exact:.5g} as {here}: {each.ratio:.3g} × the native error"
                    f"{KINDS.get(each.miss, '')}")
            yield Finding(code, told, input=name, output=place, hint=hint)
