"""Which of several Functions inside a callable or module has the wrong backward: the one whose forward, differentiated by torch in its place, makes
a wrong element of the gradient right."""

from __future__ import annotations

from dataclasses import replace

import torch

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.coordinates import numbers, one_hot
from gradverify.numerics.pairs.pair import ElementRecord, Outcome
from gradverify.oracles.finite_difference import Gives
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.inner_backward import backward_of
from gradverify.subject.standin import Graphs, forwards_only

MOST = 8    # Functions that are tried, a forward and a backward each


def at_culprit(finding: Finding, evidence: Evidence, function: Gives, index: int, output: int, worst: ElementRecord) -> Finding:
    """The finding of a wrong element at the definition of the backward that is at fault; as it is where one Function alone could be, or none of
    several is found to be. `index`, `output`: places of the pair."""
    classes = evidence.forward.classes
    if not 2 <= len(classes) <= MOST or worst.outcome is not Outcome.MISMATCH or not isinstance(function, Differentiable) or evidence.spending.over:
        return finding
    named = evidence.spared("the line of a finding", lambda: [cls for cls in classes if _repairs(cls, function, index, output, worst)])
    found = backward_of(named[0]) if named and len(named) == 1 else None
    return replace(finding, file=found.file, line=found.line, source=found.source) if found else finding


def _repairs(cls: type, function: Differentiable, index: int, output: int, worst: ElementRecord) -> bool:
    """Is the element right where torch differentiates the forward of this Function itself?"""
    graphs = Graphs()
    try:
        with forwards_only(_nothing, graphs, (cls,)):
            graph = function.graph([x.detach().clone().requires_grad_() for x in function.inputs])
            graph = replace(graph, called=replace(graph.called, outputs=tuple(graphs.put_back(graph.called.outputs))))
            cotangents = [one_hot(y.shape, y.dtype, y.device, worst.output_index) if place == output else torch.zeros_like(y)
                          for place, y in enumerate(function.of(graph))]
            gradient = function.gradients(graph, cotangents, under_modes=True)[index]
    except UserCodeError:
        return False
    seen = 0.0 if gradient is None else float(numbers(gradient)[worst.input_index])
    return abs(seen - worst.numeric) <= worst.bar + worst.tolerance


def _nothing(reason: str) -> None:
    """What cannot be replaced is applied as it is."""
