"""GV209 unused-output: backward is wrong when not all outputs are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import gradients_apart, torchs_own, unsteady
from gradverify.subject.differentiable import Gradients, copied
from gradverify.subject.failure import UserCodeError
from gradverify.torch_private import undefined

HINT = "treat every incoming gradient as one that may be zero, or None under set_materialize_grads(False)"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.odd is not None:
        return evidence.odd
    if not any(y.numel() for y in evidence.outputs):
        return "there are no elements"
    return torchs_own(evidence) or unsteady(found) or ("backward is not linear" if "GV201" in found else None)


def check(evidence: Evidence) -> Iterator[Finding]:
    findings = list(_each_alone(evidence)) if len(evidence.outputs) > 1 or evidence.function.refuses_none else []
    yield from findings
    if not findings:
        yield from _none_used(evidence)


def _each_alone(evidence: Evidence) -> Iterator[Finding]:
    v, alone = evidence.cotangents("base"), list[Gradients]()
    for place, number in enumerate(evidence.forward.checked):
        asked = _asked(evidence, [c.clone() if i == place else None for i, c in enumerate(v)])
        if isinstance(asked, UserCodeError):
            yield _refused(f"with a gradient for {evidence.name_of(number)} only", number, asked)
            return
        alone.append(asked)
    for apart in gradients_apart(evidence, evidence.worked.gradients, _summed(alone), v):
        yield Finding("GV209", f"with a gradient for one output at a time, summed, {apart.text} as with gradients for all outputs at once",
                      input=apart.input, hint=HINT)
        return
    zeros = [c.clone() if i == 0 else torch.zeros_like(c) for i, c in enumerate(v)]
    for apart in gradients_apart(evidence, evidence.function.vjp(zeros), alone[0], zeros):
        first = evidence.forward.checked[0]
        yield Finding("GV209", f"with a gradient for {evidence.name_of(first)} only, {apart.text} as with zeros for the others",
                      input=apart.input, output=first, hint=HINT)
        return
    if len(alone) > 2:      # of two, all but one is one alone
        yield from _all_but_each(evidence, alone)


def _all_but_each(evidence: Evidence, alone: Sequence[Gradients]) -> Iterator[Finding]:
    """Backward may branch rightly for all outputs and for each alone, and not for some of them."""
    v = evidence.cotangents("base")
    for place, number in enumerate(evidence.forward.checked):
        without = f"without a gradient for {evidence.name_of(number)}"
        asked = _asked(evidence, [None if i == place else c.clone() for i, c in enumerate(v)])
        if isinstance(asked, UserCodeError):
            yield _refused(without, number, asked)
            return
        for apart in gradients_apart(evidence, _summed([*alone[:place], *alone[place + 1:]]), asked, v):
            yield Finding("GV209", f"{without}, {apart.text} as those of the others one at a time, summed", input=apart.input, output=number,
                          hint=HINT)
            return


def _asked(evidence: Evidence, cotangents: Sequence[Tensor | None]) -> Gradients | UserCodeError:
    """Copies of the gradients, or what backward raised for the undefined ones."""
    try:
        gradients = copied(evidence.function.vjp(cotangents))
    except UserCodeError as raised:
        return raised
    return evidence.function.refuses_none or gradients


def _refused(when: str, number: int, error: UserCodeError) -> Finding:
    return Finding("GV209", f"{when}, {error.message}", output=number, frames=error.frames, hint=HINT)


def _none_used(evidence: Evidence) -> Iterator[Finding]:
    """No output's gradient defined: backward may give None or zeros, and should not raise."""
    v = evidence.cotangents("base")
    try:
        gradients = _through_nothing(evidence, v)
    except UserCodeError as error:
        yield Finding("GV209", f"with no gradient for any output, as behind a Function that returns None, {error.message}", severity="warning",
                      frames=error.frames, hint=HINT)
        return
    nothing: Gradients = (None,) * len(gradients)
    for apart in gradients_apart(evidence, nothing, gradients, [torch.zeros_like(c) for c in v]):
        yield Finding("GV209", f"with no gradient for any output {apart.text}", input=apart.input, hint=HINT)


def _through_nothing(evidence: Evidence, v: Sequence[Tensor]) -> Gradients:
    """Of the base graph where that serves once more; of a fresh one, in every way there is, where it refuses. Raises UserCodeError."""
    if evidence.reusable:
        with suppress(UserCodeError):
            return evidence.function.gradients(evidence.base, v, retain=True, through=undefined)
    return evidence.function.once(v, through=undefined)[1]



def _summed(apart: Sequence[Gradients]) -> Gradients:
    """Of each input; None where all are."""
    given = ([part for part in parts if part is not None] for parts in zip(*apart, strict=True))
    return tuple(torch.stack(parts).sum(0) if parts else None for parts in given)
