"""Backward, differentiated: one graph of it, and one `.backward()` through that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.subject import Subject

CODE = "GV109"


@dataclass(frozen=True, slots=True)
class Second:
    """The derivative of Σ weights·gradients, with respect to each input and to each cotangent; None where nothing arrives."""

    inputs: Gradients
    cotangents: Gradients


class Backward:
    """Backward for fixed cotangents as a function of the inputs (`numerics.point.Function`), whose derivative is the double backward."""

    def __init__(self, subject: Subject, function: Differentiable, checked: Sequence[int], cotangents: Sequence[Tensor]) -> None:
        self._subject, self._function, self._checked, self._cotangents = subject, function, checked, cotangents

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._function.inputs

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The gradients at other inputs, None filled with zeros: one forward and one backward. Raises UserCodeError."""
        return self._filled(self._function.vjp_at(inputs, [cotangent.clone() for cotangent in self._cotangents]))

    def vjp(self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The double backward for one weight per gradient. Raises UserCodeError (GV109) where it is refused."""
        weights = self._filled(cotangents)
        return self._filled(self.second(weights, inputs).inputs)

    def second(self, weights: Sequence[Tensor], inputs: Sequence[Tensor] | None = None) -> Second:
        """One forward, one backward under `create_graph`, one backward through it, all on a graph of their own.

        The cotangents require grad themselves, and the second pass is `.backward()` of everything: `once_differentiable` is silent without
        the first, and `torch.autograd.grad(allow_unused=True)` prunes the node that raises. Raises UserCodeError (GV109).
        """
        leaves = self._subject.leaves() if inputs is None else [x.detach().clone().requires_grad_() for x in inputs]
        outputs = self._subject.probe(leaves)
        given = [cotangent.detach().clone().requires_grad_() for cotangent in self._cotangents]
        self._subject.counted_backward()
        with blamed(CODE, "backward under create_graph"):
            gradients = torch.autograd.grad([outputs[place] for place in self._checked], leaves, [cotangent.clone() for cotangent in given],
                                            create_graph=True, allow_unused=True)
        moving = [(g, w) for g, w in zip(gradients, weights, strict=True) if g is not None and g.requires_grad]
        if any(g.layout != torch.strided for g, _ in moving):
            raise UserCodeError(CODE, "a gradient is sparse")
        if moving:
            self._subject.counted_backward()
            with blamed(CODE, "the double backward"), _kept([g for g, _ in moving], [*leaves, *given]):
                torch.autograd.backward([g for g, _ in moving], [w for _, w in moving])
        return Second(tuple(leaf.grad for leaf in leaves), tuple(cotangent.grad for cotangent in given))

    def _filled(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, self.inputs, strict=True)]


@contextmanager
def _kept(gradients: Sequence[Tensor], own: Sequence[Tensor]) -> Iterator[None]:
    """Afterwards every leaf of the graph that is not our own (a closure's parameters) holds the `.grad` it held before."""
    others = [leaf for leaf in _leaves(gradients) if all(leaf is not mine for mine in own)]
    before = [leaf.grad for leaf in others]
    try:
        for leaf in others:
            leaf.grad = None
        yield
    finally:
        for leaf, gradient in zip(others, before, strict=True):
            leaf.grad = gradient


def _leaves(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The leaves that a backward of these tensors would reach."""
    seen: set[Any] = set()
    stack, leaves = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None], list[Tensor]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None) if type(node).__name__ == "AccumulateGrad" else None
        if leaf is not None:
            leaves.append(leaf)
        stack.extend(following for following, _ in node.next_functions if following is not None)
    return leaves
