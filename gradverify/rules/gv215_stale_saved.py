"""GV215 stale-saved: an input that is changed after forward spoils the gradient silently

What. When an input is written in place between forward and backward, backward computes with the new numbers and says nothing.

Why it matters. `save_for_backward` remembers the version of a tensor, and backward raises when it has changed. A tensor kept as an attribute of
ctx, or saved as `x.data`, is not compared: an in-place activation after this function, or an optimizer step between forward and backward, gives
a wrong gradient without a word. A warning, as the function alone is right.

How it is measured. One forward on `x * 1`; then each input in turn is overwritten and backward called, which must raise or give the gradient
at the old input. Never under hooks on saved tensors, which switch the check of versions off.

How to repair. `ctx.save_for_backward(x)`; and read `ctx.saved_tensors`, once, in backward.

Example.
    @staticmethod
    def forward(ctx, x):
        ctx.x = x                       # must be ctx.save_for_backward(x)
        return x * x
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import Difference, differing
from gradverify.rules.shown import RANDOM
from gradverify.subject.differentiable import Graph
from gradverify.subject.elsewhere import elsewhere
from gradverify.subject.failure import UserCodeError

SEVERITY = "warning"
CATCHES = "saves_without_a_version"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV205" in found:
        return RANDOM
    if "GV207" in found:
        return "state is kept between calls"
    return "the function writes into its inputs, so it is given clones" if evidence.subject.writes else None


def check(evidence: Evidence) -> Iterator[Finding]:
    try:
        graph = _graph(evidence)
    except UserCodeError:
        return                  # it refuses inputs that are no leaves
    for place, argument in enumerate(evidence.inputs):
        difference = _stale(evidence, graph, place)
        graph = graph if evidence.repeats is not None else _graph(evidence)
        if difference is not None:
            yield Finding("GV215", f"when {argument.name} is written in place between forward and backward, backward does not raise but gives "
                          f"another gradient: {difference.seen:.6g} at {difference.where} instead of {difference.expected:.6g}", input=argument.name,
                          hint="ctx.save_for_backward keeps the version of a tensor, an attribute of ctx and `.data` do not")


def _graph(evidence: Evidence) -> Graph:
    leaves = evidence.subject.leaves()
    return evidence.function.graph(leaves, [leaf * 1 for leaf in leaves])


def _stale(evidence: Evidence, graph: Graph, place: int) -> Difference | None:
    """How a gradient differs when one input holds other numbers; the input and its version are put back."""
    arguments = zip(evidence.subject.arguments, graph.called.arguments, strict=True)
    written: Tensor = [x for argument, x in arguments if argument.differentiable][place]
    before = written.detach().clone()
    with torch.autograd.grad_mode._unsafe_preserve_version_counter(written):
        try:
            written.detach().copy_(elsewhere(evidence.inputs[place]))
            seen = evidence.function.gradients(graph, evidence.worked.cotangents, retain=evidence.repeats is not None)
        except UserCodeError:
            return None
        finally:
            written.detach().copy_(before)
    triples = zip(evidence.inputs, evidence.worked.gradients, seen, strict=True)
    found = (differing(evidence, argument, first, now) for argument, first, now in triples)
    return next((difference for difference in found if difference is not None), None)
