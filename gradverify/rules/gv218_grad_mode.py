"""GV218 grad-mode: the result depends on the grad mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import DUST, NUDGE, clearly_differing, clearly_differing_output, flat, largest, nudged, tolerance
from gradverify.rules.shown import RANDOM
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Argument

NO_GRAD = ("under torch.no_grad", torch.no_grad, True)        # in words, the mode, whether inputs require a gradient
BOTH = ("under torch.inference_mode", torch.inference_mode, False)
FROZEN = ("where no input requires a gradient", torch.enable_grad, False)       # found by BOTH: asked for by itself only to say which it is


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return RANDOM if "GV205" in found else None


def check(evidence: Evidence) -> Iterator[Finding]:
    found = _under(evidence, *NO_GRAD)
    if found is None:           # else all take the same path
        found = _under(evidence, *BOTH)
        found = found and (_under(evidence, *FROZEN) or found)
    if found is not None:
        yield found
    yield from _gradients(evidence)


def _under(evidence: Evidence, when: str, mode: Callable[[], AbstractContextManager[Any]], required: bool) -> Finding | None:
    """Nothing where forward refuses the mode."""
    leaves = [leaf.requires_grad_(required) for leaf in evidence.subject.leaves()]
    try:
        return _values(evidence, when, evidence.subject.called(leaves, mode).outputs)
    except UserCodeError:
        return None


def _values(evidence: Evidence, when: str, seen: tuple[object, ...]) -> Finding | None:
    for place, expected in zip(evidence.forward.checked, evidence.outputs, strict=True):
        y = seen[place] if place < len(seen) else None
        if not isinstance(y, Tensor) or y.shape != expected.shape:
            return _finding(f"{when} forward returns no {evidence.name_of(place)} of shape {list(expected.shape)}", None, place)
        difference = clearly_differing_output(evidence, place, expected, y)
        if difference is not None:
            given, usual = difference.numbers
            return _finding(f"{when} forward gives {given} at {difference.where}, with gradients {usual}", None, place)
    return None


def _gradients(evidence: Evidence) -> Iterator[Finding]:
    v = evidence.worked.cotangents
    if evidence.function.leaf_only:     # leaf .backward() with create_graph leaves circles behind
        return
    try:
        seen = evidence.function.gradients(evidence.usable(), v, create=True)
    except UserCodeError:
        return
    for argument, expected, gradient in zip(evidence.inputs, evidence.worked.gradients, seen, strict=True):
        difference = clearly_differing(evidence, argument, expected, gradient, v)
        if difference is not None and abs(difference.seen - difference.expected) > DUST * _noise(evidence, argument):
            given, without = difference.numbers
            yield _finding(f"under create_graph=True the gradient is {given} at {difference.where}, without it {without}", argument.name, None)


def _noise(evidence: Evidence, argument: Argument) -> float:
    """How far the gradient under create_graph goes when the inputs are nudged: torch's `det` takes another way there, that loses digits."""
    def measured(inputs: Sequence[Tensor]) -> Tensor:
        graph = evidence.function.graph([x.detach().clone().requires_grad_() for x in inputs])
        gradients = evidence.function.gradients(graph, evidence.worked.cotangents, create=True)
        return flat(argument, gradients[evidence.inputs.index(argument)]).detach()

    return largest(nudged(evidence, measured, NUDGE * tolerance(evidence.precision)))


def _finding(message: str, name: str | None, output: int | None) -> Finding:
    return Finding("GV218", message, input=name, output=output, hint="compute the same in every grad mode")
