"""GV009 could-not-fail: at these inputs a wrong gradient would pass too

What. All gradients are zero here (a dead region: relu of negative numbers), or `atol` is above every one of them, or an index input
never repeats, so that a backward which overwrites where it must add up looks right. Not said beside an error: that check did fail.

Why it matters. The check passes whatever backward does with the numbers that training will see. A warning; an error under `strict`.
Of indices it is said only where GV223, which repeats them itself, is not looked for.

How it is measured. From the comparison itself: the largest gradient against its tolerance. For index inputs: with every second index
set to the first, two halves of a random cotangent reach a common element of the gradient, which they do not with the spec's indices.

How to repair. Draw inputs where the function lives (`uniform`, `values`), lower `atol`, repeat an index.

Example.
    - function: relu
      inputs: {input: {uniform: [-2, -1], shape: [8]}}       # every gradient is 0: `return None` would pass
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.coordinates import flat_real
from gradverify.numerics.verdict import Verdict
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Argument

SEVERITY = "warning"
ORDER = 450
VERDICT = "error"
LAST = True
ELSEWHERE = "draw inputs at which the function changes, or check an output that does, if there are any"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.empty:
        return "the spec asks for an empty tensor"
    wrong = sorted(code for code in found if code.startswith(("GV1", "GV2")))
    return f"{wrong[0]} was found already" if wrong else None


def check(evidence: Evidence) -> Iterator[Finding]:
    pairs = evidence.jacobian.pairs.values()
    largest = max((pair.largest for pair in pairs), default=0.0)
    atol, _ = evidence.settings.tolerances()
    if all(pair.largest == 0.0 for pair in pairs):
        yield Finding("GV009", "every gradient is zero at these inputs: a backward that returns nothing would pass too",
                      hint=ELSEWHERE)
    elif largest <= 1.0 and atol == 0 and all(pair.verdict == Verdict.PASS for pair in pairs):
        yield Finding("GV009", "every gradient is zero up to rounding at these inputs: a backward that returns nothing would pass too",
                      hint=ELSEWHERE)
    elif largest <= 1.0 and atol > 0:
        yield Finding("GV009", f"the tolerance (atol {atol:g}) is above every gradient: a backward that returns zeros would pass too",
                      hint="lower `atol`, or leave it out")
    if evidence.settings.looks_for("GV223"):
        return
    for argument in evidence.subject.arguments:
        if _could_be_index(argument) and _adds_up_when_repeated(evidence, argument):
            yield Finding("GV009", f"the indices in {argument.name} never repeat: a backward that overwrites where it must add up would pass too",
                          input=argument.name, hint=f"repeat an index in {argument.name}, if one may be there twice")


def _could_be_index(argument: Argument) -> bool:
    value = argument.value
    if not isinstance(value, Tensor) or value.dtype not in (torch.int64, torch.int32) or value.numel() < 2:
        return False
    return len(set(value.reshape(-1).tolist())) == value.numel()


def _adds_up_when_repeated(evidence: Evidence, argument: Argument) -> bool:
    """Does a repeated index make two outputs reach one element of a gradient, which no two do now?"""
    repeated = argument.value.clone().reshape(-1)
    repeated[1::2] = repeated[0]
    subject = evidence.subject
    twin = subject.twin([replace(a, value=repeated.reshape(a.value.shape)) if a is argument else a for a in subject.arguments])
    try:
        shared = _shared(Differentiable(twin, evidence.forward.checked), evidence)
    except UserCodeError:
        return False
    return shared and not _shared(evidence.function, evidence)


def _shared(function: Differentiable, evidence: Evidence) -> bool:
    """Is there an element of a gradient to which both halves of the outputs (even and odd places) contribute?"""
    halves = []
    for parity in (0, 1):
        cotangents = []
        for y in evidence.outputs:
            rows = torch.arange(y.shape[0] if y.dim() else 1, device=y.device) % 2 == parity
            cotangents.append(torch.ones_like(y) * rows.reshape(-1, *[1] * (y.dim() - 1)) if y.dim() else torch.zeros_like(y))
        halves.append(function.vjp(cotangents))
    return any(bool(((flat_real(a) != 0) & (flat_real(b) != 0)).any()) for a, b in zip(*halves, strict=True) if a is not None and b is not None)
