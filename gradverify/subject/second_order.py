"""Backward, differentiated: one graph of it, and one `.backward()` through that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients, Graph
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.on_cuda import finished
from gradverify.subject.snapshot import alike
from gradverify.subject.subject import Subject

CODE = "GV109"


@dataclass(frozen=True, slots=True)
class Second:
    """The derivative of Σ weights·gradients, with respect to each input and to each cotangent; None where nothing arrives."""

    inputs: Gradients
    cotangents: Gradients


@dataclass(frozen=True, slots=True)
class _Graph:
    """Gradients with a graph of their own, back to the leaves and to the cotangents that they were given."""

    forward: Graph
    given: tuple[Tensor, ...]
    gradients: Gradients


class Backward:
    """Backward for fixed cotangents as a function of the inputs (`numerics.function.point.Function`), whose derivative is the double backward."""

    def __init__(self, subject: Subject, function: Differentiable, checked: Sequence[int], cotangents: Sequence[Tensor],
                 known: Sequence[Tensor | None] | None = None) -> None:
        """`known`: the gradients at the inputs, where a backward gave them already."""
        self._subject, self._function, self._checked, self._cotangents, self._known = subject, function, checked, cotangents, known
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext   # what calls at other inputs run in
        self._graph: _Graph | None = None       # at the inputs, for further weights
        self._again = function.reusable     # may a graph of backward be asked again, as far as is known?
        self._shares = True     # the forward's graph with the function's own VJPs

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._function.inputs

    @property
    def cotangents(self) -> Sequence[Tensor]:
        """The fixed ones."""
        return self._cotangents

    def here(self) -> list[Tensor]:
        """The gradients at the inputs: one backward, where they are not known. Raises UserCodeError."""
        if self._known is not None:
            return self._filled(self._known)
        return self._filled(self._function.vjp([cotangent.clone() for cotangent in self._cotangents]))

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The gradients at other inputs, None filled with zeros: one forward and one backward. Raises UserCodeError."""
        return self._filled(self._function.vjp_at(inputs, [cotangent.clone() for cotangent in self._cotangents]))

    def vjp(self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The double backward for one weight per gradient. Raises UserCodeError (GV109) where it is refused."""
        weights = self._filled(cotangents)
        return self._filled(self.second(weights, inputs).inputs)

    def second(self, weights: Sequence[Tensor], inputs: Sequence[Tensor] | None = None) -> Second:
        """One forward, one backward under `create_graph`, one backward through it. At the inputs themselves the function's own graph serves for
        the forward, and further weights take the last one only.

        The cotangents require grad themselves, and the second pass is `.backward()` of everything: `once_differentiable` is silent without
        the first, and `torch.autograd.grad(allow_unused=True)` prunes the node that raises. Raises UserCodeError (GV109).
        """
        if inputs is not None:
            return self._through(self._created(self._fresh([x.detach().clone().requires_grad_() for x in inputs])), weights)
        if self._graph is not None:
            with suppress(UserCodeError):
                return self._through(self._graph, weights)
            self._graph, self._again = None, False
        shares = self._again and self._shares
        graph = self._created(self._function.kept_graph() if shares else self._fresh(self._subject.leaves()))
        found = self._through(graph, weights)
        self._graph = graph if self._again else None
        return found

    def spoilt(self, weights: Sequence[Tensor], first: Second) -> bool:
        """Does the graph that is kept give other numbers now than at `first`? Then none is kept from now on."""
        if self._graph is None:
            return False
        again = [self.second(weights)]
        if self._shares:
            self._graph, self._shares = None, False
            again.append(self.second(weights))      # of a forward that nobody else has asked
        if all(alike((*first.inputs, *first.cotangents), (*each.inputs, *each.cotangents)) for each in again):
            return False
        self._graph, self._again = None, False
        return True

    def release(self) -> None:
        """Lets the graph go that is kept."""
        self._graph = None

    def _fresh(self, leaves: Sequence[Tensor]) -> Graph:
        return Graph(tuple(leaves), self._subject.probed(leaves))

    def _created(self, forward: Graph) -> _Graph:
        """Backward under `create_graph`."""
        given = [cotangent.detach().clone().requires_grad_() for cotangent in self._cotangents]
        gradients = self._subject.pull(forward.called, self._function.of(forward), forward.leaves, [cotangent.clone() for cotangent in given],
                                       create=True, code=CODE, what="backward under create_graph")
        return _Graph(forward, tuple(given), gradients)

    def _through(self, graph: _Graph, weights: Sequence[Tensor]) -> Second:
        own = [*graph.forward.leaves, *graph.given]
        for tensor in own:
            tensor.grad = None
        moving = [(g, w) for g, w in zip(graph.gradients, weights, strict=True) if g is not None and g.requires_grad]
        if any(g.layout != torch.strided for g, _ in moving):
            raise UserCodeError(CODE, "a gradient is sparse")
        if moving:
            self._subject.counted_backward()
            with blamed(CODE, "the double backward"), _kept([g for g, _ in moving], own), self._subject.standing(graph.forward.called):
                torch.autograd.backward([g for g, _ in moving], [w for _, w in moving], retain_graph=self._again)
                finished(self._subject.on)
        found = Second(tuple(leaf.grad for leaf in graph.forward.leaves), tuple(cotangent.grad for cotangent in graph.given))
        for tensor in own:
            tensor.grad = None      # the leaves may be the function's own
        return found

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
