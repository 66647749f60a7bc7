"""GV207 reentrant: a call changes what an earlier call returned or will return

What. Backward of one graph gives another gradient when it is called again, or after a forward with other inputs; or an output or a gradient of an
earlier call changes afterwards.

Why it matters. State that is kept on the class, in a module or in a buffer that all calls share is right in a test of one forward and one
backward. A layer that is used twice in a network, two branches, gradient accumulation or activation checkpointing mix the calls up.

How it is measured. Forward a, backward three times; forward and backward at another point b of the same kind; backward of a again; forward a again.
All gradients and outputs must be those of the first time, and the tensors that were returned before must still hold what they held. Where a second
backward of a graph is refused, each graph gets one.

How to repair. Keep what belongs to one call on ctx, return fresh tensors, change nothing that outlives the call.

Example.
    @staticmethod
    def forward(ctx, x):
        Clip.mask = x.abs() < 1         # must be ctx.mask
        return x.clamp(-1, 1)
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import differing, differing_output
from gradverify.rules.shown import RANDOM, changed
from gradverify.subject.differentiable import Gradients, Graph, Returned
from gradverify.subject.elsewhere import elsewhere
from gradverify.subject.failure import UserCodeError
from gradverify.subject.snapshot import change, same

CATCHES = "keeps_its_mask_on_the_class"
ORDER = 170
RANK = 80
PRICE, WORTH = (2, 2), 180
KILLS = "memory"
HINT = "keep what belongs to one call on ctx, and return fresh tensors"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return RANDOM if "GV205" in found else None


def check(evidence: Evidence) -> Iterator[Finding]:
    message = next(_seen(evidence), None)
    if message is not None:
        yield Finding("GV207", message, hint=HINT)


def _seen(evidence: Evidence) -> Iterator[str]:
    """What each step of the sequence shows."""
    for again in evidence.repeats or ():
        yield from _gradients(evidence, again.values, "backward of one graph gives another gradient when it is called again")
    first = evidence.usable()
    earlier = _Earlier(evidence, first)
    _call_elsewhere(evidence, earlier)
    yield from _gradients(evidence, _backward(evidence, first), "a forward and backward with other inputs changes the gradient of an earlier call")
    yield from _outputs(evidence)
    yield from earlier.changed()


class _Earlier:
    """Outputs and gradients that were handed out, remembered by name and value."""

    def __init__(self, evidence: Evidence, first: Graph) -> None:
        self._evidence, self._watched = evidence, list[tuple[str, Tensor, Tensor]]()
        self.outputs(first)
        for returned in evidence.repeats or ():
            self.gradients(returned)

    def outputs(self, graph: Graph) -> None:
        named = zip(map(self._evidence.name_of, self._evidence.forward.checked), self._evidence.function.of(graph), strict=True)
        self._watch((name, y, y.detach().clone()) for name, y in named)

    def gradients(self, returned: Returned) -> None:
        triples = zip(self._evidence.inputs, returned.handed_out, returned.values, strict=True)
        self._watch((f"the gradient of {argument.name}", tensor, value) for argument, tensor, value in triples
                    if tensor is not None and value is not None)

    def _watch(self, tensors: Iterator[tuple[str, Tensor, Tensor]]) -> None:
        self._watched += [(name, tensor, value) for name, tensor, value in tensors if tensor.layout == torch.strided]

    def changed(self) -> Iterator[str]:
        for name, now, then in self._watched:
            if not same(then, now):
                yield f"{name}, returned by an earlier call, is overwritten by a later one{changed('', now, change(then, now))}"


def _call_elsewhere(evidence: Evidence, earlier: _Earlier) -> None:
    """A forward and a backward at another point; a function that is not defined there says so, and is left alone."""
    leaves = [elsewhere(argument).requires_grad_() for argument in evidence.inputs]
    try:
        graph = evidence.function.graph(leaves)
        earlier.outputs(graph)
        earlier.gradients(Returned.now(evidence.function.gradients(graph, evidence.worked.cotangents)))
    except UserCodeError:
        return


def _backward(evidence: Evidence, graph: Graph) -> Gradients:
    return evidence.function.gradients(graph, evidence.worked.cotangents, retain=graph is evidence.base)


def _gradients(evidence: Evidence, again: Gradients, what: str) -> Iterator[str]:
    for argument, first, now in zip(evidence.inputs, evidence.worked.gradients, again, strict=True):
        difference = differing(evidence, argument, first, now)
        if difference is not None:
            yield f"{what}: {difference.expected:.6g} at {difference.where} was first, {difference.seen:.6g} then"


def _outputs(evidence: Evidence) -> Iterator[str]:
    again = evidence.function.of(evidence.later)
    for place, first, now in zip(evidence.forward.checked, evidence.outputs, again, strict=True):
        difference = differing_output(evidence, place, first, now) if first.shape == now.shape else None
        if difference is not None:
            yield f"forward gives other values after a call with other inputs: {difference.expected:.6g} at {difference.where} was first, " \
                  f"{difference.seen:.6g} then"
