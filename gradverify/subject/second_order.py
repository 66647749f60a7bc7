"""Backward, differentiated: one backward under `create_graph`, and one through that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients, Graph
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject, Way

CODE = "GV109"


@dataclass(frozen=True, slots=True)
class Second:
    """The derivative of Σ weights·gradients, with respect to each input and to each cotangent; None where nothing arrives."""

    inputs: Gradients
    cotangents: Gradients


@dataclass(frozen=True, slots=True)
class _Created:
    """A backward under `create_graph`: the forward's graph, the cotangents, which require grad, and the gradients."""

    graph: Graph
    cotangents: Sequence[Tensor]
    gradients: Gradients


class Backward:
    """Backward for fixed cotangents as a function of the inputs (`numerics.function.point.Function`), whose derivative is the double backward."""

    def __init__(self, subject: Subject, function: Differentiable, cotangents: Sequence[Tensor],
                 known: Sequence[Tensor | None] | None = None) -> None:
        """`known`: the gradients at the inputs, where a backward gave them already."""
        self._subject, self._function, self.cotangents, self._known = subject, function, cotangents, known
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext   # what calls at other inputs run in
        self._kept: _Created | None = None

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._function.inputs

    def here(self) -> list[Tensor]:
        """The gradients at the inputs: one backward, where they are not known. Raises UserCodeError."""
        if self._known is not None:
            return self._filled(self._known)
        return self._filled(self._function.vjp([cotangent.clone() for cotangent in self.cotangents]))

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The gradients at other inputs, None filled with zeros: one forward and one backward. Raises UserCodeError."""
        return self._filled(self._function.vjp_at(inputs, [cotangent.clone() for cotangent in self.cotangents]))

    def vjp(self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None) -> list[Tensor]:
        """The double backward for one weight per gradient. Raises UserCodeError (GV109) where it is refused."""
        return self._filled(self.second(self._filled(cotangents), inputs).inputs)

    def second(self, weights: Sequence[Tensor], inputs: Sequence[Tensor] | None = None, keep: bool = False) -> Second:
        """One forward, one backward under `create_graph`, one backward through it, at the inputs or at others. Raises UserCodeError (GV109).

        `keep`: for `once_more`.
        """
        leaves = self._subject.leaves() if inputs is None else [x.detach().clone().requires_grad_() for x in inputs]
        graph = self._function.graph(leaves)
        given = [cotangent.detach().clone().requires_grad_() for cotangent in self.cotangents]
        gradients = self._subject.pull(graph.called, self._function.of(graph), leaves, [cotangent.clone() for cotangent in given],
                                       create=True, code=CODE, what="backward under create_graph")
        created = _Created(graph, given, gradients)
        found = self._through(created, weights, retain=keep and self._function.reusable)
        self._kept = created if keep and self._function.reusable else self._kept
        return found

    def once_more(self, weights: Sequence[Tensor]) -> Second:
        """For other weights at the inputs, on the graph that was kept, which is let go. What it says stands under the suspicion that its first
        backward changed it. Raises UserCodeError (GV109)."""
        kept, self._kept = self._kept, None
        return self.second(weights) if kept is None else self._through(kept, weights)

    def let_go(self) -> None:
        """Of the graph that was kept, if it still is."""
        self._kept = None

    def _through(self, created: _Created, weights: Sequence[Tensor], retain: bool = False) -> Second:
        """The cotangents require grad themselves, and this pass is `.backward()` of everything: `once_differentiable` is silent without the first,
        and `torch.autograd.grad(allow_unused=True)` prunes the node that raises."""
        leaves, given = created.graph.leaves, created.cotangents
        moving = [(g, w) for g, w in zip(created.gradients, weights, strict=True) if g is not None and g.requires_grad]
        if any(g.layout != torch.strided for g, _ in moving):
            raise UserCodeError(CODE, "a gradient is sparse")
        found: Gradients = (None,) * (len(leaves) + len(given))
        if moving:
            found = self._subject.pull(created.graph.called, [g for g, _ in moving], [*leaves, *given], [w for _, w in moving], way=Way.LEAVES,
                                       retain=retain, code=CODE, what="the double backward")
        return Second(found[:len(leaves)], found[len(leaves):])

    def _filled(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, self.inputs, strict=True)]
