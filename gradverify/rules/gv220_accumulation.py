"""GV220 accumulation: gradients that accumulate in .grad come out wrong."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import differing, on_another_graph
from gradverify.rules.shown import NO_FUNCTION, RANDOM, changed
from gradverify.subject.accumulate import Accumulated, accumulated, straight
from gradverify.subject.failure import UserCodeError
from gradverify.torch_private import is_zerotensor

HINT = "return grad_output itself or a tensor that nothing else holds: autograd may keep what it gets as .grad, and add to it"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV205" in found:
        return RANDOM
    if not evidence.forward.nodes:
        return NO_FUNCTION
    if any(isinstance(each, Tensor) and is_zerotensor(each) for raw in evidence.worked.raw for each in raw.returned):
        return "a gradient is torch's zeros without memory, to which autograd itself cannot add"
    return None if any(_straight(evidence)) else "no input goes straight into a custom Function"


def check(evidence: Evidence) -> Iterator[Finding]:
    try:
        seen: Accumulated = accumulated(evidence.subject, evidence.function, evidence.later, evidence.reusable)
    except UserCodeError as error:
        yield Finding("GV220", f"`.backward(ones)` twice: {error.message}", frames=error.frames)
        return
    if "for_ones" in vars(evidence):        # asked for by GV213, of the base graph
        ones = [torch.ones_like(y) for y in evidence.outputs]
        yield from on_another_graph(evidence, evidence.for_ones[1], seen.first, ones, "made after a call elsewhere")
    for argument, direct, first, both in zip(evidence.inputs, _straight(evidence), seen.first, seen.both, strict=True):
        difference = differing(evidence, argument, _twice(first), both) if direct else None
        if difference is not None:
            given, wanted = difference.numbers
            yield Finding("GV220", f".grad of {argument.name} after two backwards is {given} at {difference.where}, not twice the first: {wanted}",
                          input=argument.name, hint=HINT)
    for each in seen.written:
        if each.held.name not in {written.held.name for written in evidence.worked.written}:
            yield Finding("GV220", f"adding to .grad writes into {each.held.name}{changed(each.held.name, each.held.tensor, each.change)}",
                          input=each.held.name, hint=HINT)


def _straight(evidence: Evidence) -> list[bool]:
    return straight(evidence.forward.nodes, evidence.forward.leaves)


def _twice(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else torch.mul(gradient, 2)
