"""GV210 cotangent-layout: backward gives another gradient when grad_output is not contiguous."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import SINGLE, differing, gradients_apart, random_backward, torchs_own, unsteady
from gradverify.rules.difference import Difference
from gradverify.rules.protocol import NotApplicable
from gradverify.subject.differentiable import Gradients, copied
from gradverify.subject.failure import UserCodeError
from gradverify.subject.variants import conjugated, constant, offset, permuted, sliced

TIMES = -2.0            # times the cotangent of a sum, 1, which shortcuts of backward ask for: exact, of the other sign
LARGE = 2.0**21         # times the base cotangents, exactly: above a million, at which gradients are clipped
SLICED = "sliced (every second column of wider rows)"
CLIPS = "a bound, a threshold or a number that overflows inside backward makes it another gradient than the loss's"
HINT = "call grad_output.contiguous(), or .resolve_conj(), before its memory is read"
SHORTCUT = "backward must treat a grad_output of one number throughout as any other"


@dataclass(frozen=True)
class Variation:
    """The cotangents in another layout; `contiguous`: the same numbers, None: the base ones."""

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
    for variation in evidence.spending.some(list(_variations(evidence.cotangents("base"), evidence.poisoned.behind)), 0, 2, "layouts"):
        large = variation.what == SLICED and evidence.precision < SINGLE
        if large and _agrees_for_large(evidence):
            continue
        findings = list(_compared(evidence, variation)) or (list(_of_large(evidence)) if large else [])
        yield from findings
        if findings:
            return


def _variations(v: tuple[Tensor, ...], behind: bool) -> Iterator[Variation]:
    yield Variation(SLICED, tuple(map(sliced, v)))
    if not all(permuted(c).is_contiguous() for c in v):
        yield Variation("permuted (its dimensions in another order in memory)", tuple(map(permuted, v)))
    yield Variation("a constant with strides 0 (as behind a sum)", tuple(constant(c, TIMES) for c in v),
                    tuple(torch.full_like(c, TIMES) for c in v))
    if any(c.is_complex() for c in v):
        yield Variation("stored as its conjugate, with the conjugate bit set", tuple(conjugated(c) if c.is_complex() else c.clone() for c in v))
    if behind:
        yield Variation("contiguous behind other numbers (as a part of what `torch.cat` gets)", tuple(map(offset, v)))


def _compared(evidence: Evidence, variation: Variation) -> Iterator[Finding]:
    contiguous = variation.contiguous
    v, expected = contiguous or evidence.cotangents("base"), evidence.worked.gradients if contiguous is None else _of_a_sum(evidence, contiguous)
    try:
        got = copied(evidence.function.vjp(variation.cotangents))
    except UserCodeError as error:
        yield Finding("GV210", f"with a grad_output that is {variation.what}, {error.message}", frames=error.frames, hint=HINT)
        return
    differences = list(gradients_apart(evidence, expected, got, v))
    if not differences:
        return
    if why := random_backward(evidence):
        raise NotApplicable(why)
    of_layout = differences if contiguous is None else list(gradients_apart(evidence, copied(evidence.function.vjp(v)), got, v))
    by_input = {each.input: each for each in of_layout}
    for apart in differences:
        if apart.input not in by_input:     # the number makes it, and not the layout
            yield from _of_ones(evidence, apart)
            continue
        yield Finding("GV210", f"with a grad_output that is {variation.what}, {by_input[apart.input].text} as with the same numbers contiguous",
                      input=apart.input, hint=HINT)


def _agrees_for_large(evidence: Evidence) -> bool:
    """Are the gradients for the base cotangents, sliced and LARGE times as large, LARGE times those of the base call?"""
    try:
        got = _for_large(evidence, sliced)
    except UserCodeError:
        return False
    return all(differing(evidence, argument, a, b) is None for argument, a, b in zip(evidence.inputs, evidence.worked.gradients, got, strict=True))


def _for_large(evidence: Evidence, laid: Callable[[Tensor], Tensor]) -> Gradients:
    """What they are, divided by LARGE. Raises UserCodeError."""
    found = evidence.function.vjp([laid(LARGE * c) for c in evidence.cotangents("base")])
    return tuple(None if gradient is None else gradient / LARGE for gradient in found)


def _of_large(evidence: Evidence) -> Iterator[Finding]:
    """GV201, where the layout is right and the size of the numbers makes it: backward clips what it gets."""
    if not evidence.settings.looks_for("GV201"):
        return
    base, (_, rtol) = evidence.cotangents("base"), evidence.settings.tolerances(low_precision=evidence.low_precision)
    got = _for_large(evidence, Tensor.clone)
    for apart in gradients_apart(evidence, evidence.worked.gradients, got, base):
        if abs(apart.seen - apart.expected) > rtol * max(abs(apart.seen), abs(apart.expected)):
            yield Finding("GV201", f"backward is not linear in grad_output: at {apart.where} it gives {apart.expected:.6g} for one grad_output, but "
                          f"{LARGE * apart.seen:.6g} for one {LARGE:.0f} times as large", input=apart.input, hint=CLIPS)


def _of_a_sum(evidence: Evidence, v: Sequence[Tensor]) -> Gradients:
    """The gradients for TIMES throughout, by those for ones; for v itself, which is that, where backward raises for ones."""
    try:
        return tuple(None if gradient is None else TIMES * gradient for gradient in evidence.for_ones[1])
    except UserCodeError:
        return copied(evidence.function.vjp(v))


def _of_ones(evidence: Evidence, apart: Difference) -> Iterator[Finding]:
    """GV201, where backward is linear but for constants: it takes a shortcut for them. By more than `rtol`, unlike a solver that stops early."""
    place = next(n for n, argument in enumerate(evidence.inputs) if argument.name == apart.input)
    base = evidence.cotangents("base")
    given = copied(evidence.function.vjp([-TIMES * c for c in base]))[place]
    linear = differing(evidence, evidence.inputs[place], evidence.worked.gradients[place], None if given is None else given / -TIMES) is None
    _, rtol = evidence.settings.tolerances(low_precision=evidence.low_precision)
    if linear and evidence.settings.looks_for("GV201") and abs(apart.seen - apart.expected) > rtol * max(abs(apart.seen), abs(apart.expected)):
        yield Finding("GV201", f"backward is not linear in grad_output: at {apart.where} it gives {apart.expected / TIMES:.6g} for a grad_output of "
                      f"ones, but {apart.seen:.6g} for one of {TIMES:g} throughout", input=apart.input, hint=SHORTCUT)
