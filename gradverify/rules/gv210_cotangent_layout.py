"""GV210 cotangent-layout: backward gives another gradient when grad_output is not contiguous

What. The same numbers in `grad_output`, laid out differently in memory, give another gradient, or backward raises.

Why it matters. Autograd hands over whatever the next operation made: behind `y.T` it is transposed, behind `y[:, ::2]` sliced, behind `y.sum()` one
number with strides 0. A kernel that reads `grad_output.data_ptr()` as contiguous then reads other numbers, and `grad_output.view(-1)` raises.

How it is measured. The base cotangent sliced (every second column of wider rows) and permuted (channels last), and a constant with
strides 0, for complex outputs also one with the conjugate bit: each against the same numbers contiguous, relative to the size of the gradient.
Not where backward draws random numbers.

How to repair. `grad_output = grad_output.contiguous()` before any pointer, `.reshape` for `.view`, `.resolve_conj()` where bits matter.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        grad_input = torch.empty_like(ctx.saved_tensors[0])
        lib.scale(grad_input.data_ptr(), grad_output.data_ptr(), grad_output.numel())   # as if contiguous
        return grad_input
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import gradients_apart, random_backward, torchs_own, unsteady
from gradverify.rules.protocol import NotApplicable
from gradverify.subject.differentiable import copied
from gradverify.subject.failure import UserCodeError
from gradverify.subject.variants import conjugated, constant, permuted, sliced

CATCHES = "takes_grad_output_for_contiguous"
ORDER = 240
RANK = 120
PRICE, WORTH = (0, 2), 110
CONSTANT = -1.75        # not 1: a backward that ignores the numbers would look right; the next output has CONSTANT + 0.5, and so on
HINT = "call grad_output.contiguous() before its memory is read, and reshape where view would raise"


@dataclass(frozen=True)
class Variation:
    """The cotangents in another layout; None: the base ones, else the same numbers contiguous."""

    what: str
    cotangents: tuple[Tensor, ...]
    contiguous: tuple[Tensor, ...] | None = None


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.odd is not None:
        return evidence.odd
    if all(y.numel() < 2 for y in evidence.outputs):
        return "no output has two elements"
    return torchs_own(evidence) or unsteady(found) or ("backward writes into grad_output" if evidence.worked.damaged else None)


def check(evidence: Evidence) -> Iterator[Finding]:
    for variation in evidence.spending.some(list(_variations(evidence.cotangents("base"))), 0, 2, "layouts"):
        findings = list(_compared(evidence, variation))
        yield from findings
        if findings:
            return


def _variations(v: tuple[Tensor, ...]) -> Iterator[Variation]:
    yield Variation("sliced (every second column of wider rows)", tuple(map(sliced, v)))
    if not all(permuted(c).is_contiguous() for c in v):
        yield Variation("permuted (its dimensions in another order in memory)", tuple(map(permuted, v)))
    constants = [CONSTANT + 0.5 * place for place in range(len(v))]
    yield Variation("a constant with strides 0 (as behind a sum)", tuple(constant(c, value) for c, value in zip(v, constants, strict=True)),
                    tuple(torch.full_like(c, value) for c, value in zip(v, constants, strict=True)))
    if any(c.is_complex() for c in v):
        yield Variation("stored as its conjugate, with the conjugate bit set", tuple(conjugated(c) if c.is_complex() else c.clone() for c in v))


def _compared(evidence: Evidence, variation: Variation) -> Iterator[Finding]:
    expected = evidence.worked.gradients if variation.contiguous is None else copied(evidence.function.vjp(variation.contiguous))
    try:
        got = evidence.function.vjp(variation.cotangents)
    except UserCodeError as error:
        yield Finding("GV210", f"with a grad_output that is {variation.what}, {error.message}", frames=error.frames, hint=HINT)
        return
    for apart in gradients_apart(evidence, expected, got, variation.contiguous or evidence.cotangents("base")):
        if why := random_backward(evidence):
            raise NotApplicable(why)
        yield Finding("GV210", f"with a grad_output that is {variation.what}, {apart.text} as with the same numbers contiguous", input=apart.input,
                      hint=HINT)
