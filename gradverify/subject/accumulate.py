"""What `.grad` holds after two backwards, as a training step with gradient accumulation makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.custody import Custody, Held, Written, arguments
from gradverify.subject.differentiable import Differentiable, Gradients, Graph
from gradverify.subject.failure import blamed
from gradverify.subject.on_cuda import finished
from gradverify.subject.subject import Subject


@dataclass(frozen=True, slots=True)
class Accumulated:
    """`.grad` per leaf after the first and after both backwards; the arguments that these changed."""

    first: Gradients
    both: Gradients
    written: tuple[Written, ...]


def accumulated(subject: Subject, function: Differentiable, graph: Graph, reusable: bool) -> Accumulated:
    """`.backward(ones)` twice: on one graph, whose last use it is, or on two graphs of the same leaves. Raises UserCodeError."""
    leaves = graph.leaves
    custody = Custody([Held("argument", name, x) for name, x in arguments(subject, graph.called) if x.layout == torch.strided])
    _backward(subject, function, graph, retain=reusable)
    first = tuple(None if leaf.grad is None else leaf.grad.detach().clone() for leaf in leaves)
    _backward(subject, function, graph if reusable else function.graph(leaves), retain=False)
    return Accumulated(first, tuple(leaf.grad for leaf in leaves), custody.broken())


def straight(nodes: Sequence[Any], leaves: Sequence[Tensor]) -> list[bool]:
    """Which leaves go straight into one of the nodes, so that nothing stands between its gradient and `.grad`."""
    variables = [getattr(following, "variable", None) for node in nodes for following, _ in node.next_functions]
    return [any(leaf is variable for variable in variables) for leaf in leaves]


def _backward(subject: Subject, function: Differentiable, graph: Graph, retain: bool) -> None:
    """The cotangents are made here, so that nothing but the engine holds them or what backward returns."""
    outputs = [y for y in function.of(graph) if y.requires_grad]
    others = function.with_zeros(graph)
    subject.counted_backward()
    with blamed("GV003", "backward"), subject.standing(graph.called):
        torch.autograd.backward([*outputs, *others], [*map(torch.ones_like, outputs), *map(torch.zeros_like, others)], retain_graph=retain)
        finished(subject.on)
