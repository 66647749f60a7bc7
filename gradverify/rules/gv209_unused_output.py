"""GV209 unused-output: backward is wrong when not all outputs are used

What. With a gradient for one output only, backward raises, or its gradients do not add up to those of all outputs together.

Why it matters. Whoever uses one output of several gets a backward with zeros, or with None under `ctx.set_materialize_grads(False)`, in the other
places. That branch runs in no test that sums all outputs. After a backward that raises for None, the other rules put zeros in its place.

How it is measured. Each output alone, whose gradients must sum to the joint one; the first also against explicit zeros for the others. At last
every output undefined, as behind a Function that returns None: gradients must be None or zero there, and raising is a warning.

How to repair. Treat each incoming gradient as one that may be zero, and under `set_materialize_grads(False)` as one that may be None.

Example.
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, grad_sin, grad_cos):
        if grad_sin is None or grad_cos is None:
            return torch.zeros_like(ctx.x)      # drops the gradient of the one that is used
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import cast

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import gradients_apart, torchs_own, unsteady
from gradverify.subject.differentiable import Gradients, copied
from gradverify.subject.failure import UserCodeError

CATCHES = "needs_both_outputs"
ORDER = 230
RANK = 120
PRICE, WORTH = (1, 1), 160
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
        error: UserCodeError | None = None
        try:
            alone.append(copied(evidence.function.vjp([c.clone() if i == place else None for i, c in enumerate(v)])))
        except UserCodeError as raised:
            error = raised
        error = error or evidence.function.refuses_none
        if error is not None:
            yield Finding("GV209", f"with a gradient for {evidence.name_of(number)} only, {error.message}", output=number,
                          frames=error.frames, hint=HINT)
            return
    together: Gradients = tuple(_sum(parts) for parts in zip(*alone, strict=True))
    for apart in gradients_apart(evidence, evidence.worked.gradients, together, v):
        yield Finding("GV209", f"with a gradient for one output at a time, summed, {apart.text} as with gradients for all outputs at once",
                      input=apart.input, hint=HINT)
        return
    zeros = [c.clone() if i == 0 else torch.zeros_like(c) for i, c in enumerate(v)]
    for apart in gradients_apart(evidence, evidence.function.vjp(zeros), alone[0], zeros):
        first = evidence.forward.checked[0]
        yield Finding("GV209", f"with a gradient for {evidence.name_of(first)} only, {apart.text} as with zeros for the others",
                      input=apart.input, output=first, hint=HINT)
        return


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
    if evidence.repeats is not None:
        with suppress(UserCodeError):
            return evidence.function.gradients(evidence.base, v, retain=True, through=_undefined)
    return evidence.function.once(v, through=_undefined)[1]


def _undefined(y: Tensor) -> Tensor:
    """y, behind which the gradient is lost: what reaches its node is undefined."""
    return cast(Tensor, torch._C._functions.UndefinedGrad()(y))     # torch's stub says a list; of one tensor it is a tensor


def _sum(parts: Sequence[Tensor | None]) -> Tensor | None:
    given = [part for part in parts if part is not None]
    return torch.stack(given).sum(0) if given else None
