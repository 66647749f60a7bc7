"""GV225 autocast: under autocast forward or backward gives other numbers, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import gradients_apart, is_double, outputs_apart, torchs_own, unsteady
from gradverify.rules.at_forward import at_forward
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.failure import UserCodeError
from gradverify.subject.wide import casts_inside

HINT = "look for a cast or a branch on the dtype; torch.amp.custom_fwd and custom_bwd run backward under the autocast of forward"
Context = Callable[[], AbstractContextManager[Any]]


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.odd is not None:
        return evidence.odd
    if not is_double(evidence):
        return "an input is of lower precision, which autocast may lower further"
    if evidence.low_precision:
        return "the forward computes in lower precision inside, which autocast may lower further"
    return torchs_own(evidence) or unsteady(found)


def check(evidence: Evidence) -> Iterator[Finding]:
    device = evidence.inputs[0].value.device.type

    def autocast() -> AbstractContextManager[Any]:
        return torch.autocast(device)

    def plain() -> AbstractContextManager[Any]:
        return torch.autocast(device, enabled=False)

    of_forward = _compared(evidence, "forward inside autocast and backward outside", autocast, plain)
    for finding in chain((each if each.frames else at_forward(each, evidence) for each in of_forward),
                         _compared(evidence, "forward outside autocast and backward inside", plain, autocast, not torch.is_autocast_enabled(device))):
        if not casts_inside(evidence.subject):      # what is computed in 16 bits is autocast's to lower
            yield finding
        return


def _compared(evidence: Evidence, what: str, forward: Context, backward: Context, outside: bool = False) -> Iterator[Finding]:
    """What differs from the base call with forward in one context and backward in another."""
    v = evidence.cotangents("base")
    try:
        outputs, gradients = _once(evidence, v, forward, backward, outside)
    except UserCodeError as error:
        yield Finding("GV225", f"with {what}, {error.message}", frames=error.frames, hint=HINT)
        return
    for number, y, usual in zip(evidence.forward.checked, outputs, evidence.outputs, strict=True):
        if y.dtype != usual.dtype:
            names = [str(dtype).removeprefix("torch.") for dtype in (y.dtype, usual.dtype)]
            yield Finding("GV225", f"with {what}, {evidence.name_of(number)} is {names[0]}, and not {names[1]} as without", output=number, hint=HINT)
            return
    for apart in chain(outputs_apart(evidence, outputs), gradients_apart(evidence, evidence.worked.gradients, gradients, v)):
        yield Finding("GV225", f"with {what}, {apart.text} as without", input=apart.input, output=apart.output, hint=HINT)


def _once(evidence: Evidence, v: Sequence[Tensor], forward: Context, backward: Context, outside: bool) -> tuple[Sequence[Tensor], Gradients]:
    """Outputs and gradients. `outside`: forward outside autocast, where the base call was, whose graph serves if it may be asked again."""
    if outside and evidence.reusable:
        with backward():
            return evidence.outputs, evidence.function.gradients(evidence.base, v, retain=True)
    twin = evidence.subject.twin(evidence.subject.arguments)
    twin.around = forward
    with backward():
        return Differentiable(twin, evidence.forward.checked).once(v)
