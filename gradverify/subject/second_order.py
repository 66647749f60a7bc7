"""Backward, differentiated: one backward under `create_graph`, and one through that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject, Way

CODE = "GV109"


@dataclass(frozen=True, slots=True)
class Second:
    """The derivative of Σ weights·gradients, with respect to each input and to each cotangent; None where nothing arrives."""

    inputs: Gradients
    cotangents: Gradients


class Backward:
    """Backward for fixed cotangents as a function of the inputs (`numerics.function.point.Function`), whose derivative is the double backward."""

    def __init__(self, subject: Subject, function: Differentiable, cotangents: Sequence[Tensor],
                 known: Sequence[Tensor | None] | None = None) -> None:
        """`known`: the gradients at the inputs, where a backward gave them already."""
        self._subject, self._function, self.cotangents, self._known = subject, function, cotangents, known
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext   # what calls at other inputs run in

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

    def second(self, weights: Sequence[Tensor], inputs: Sequence[Tensor] | None = None) -> Second:
        """One forward, one backward under `create_graph`, one backward through it, at the inputs or at others.

        The cotangents require grad themselves, and the second pass is `.backward()` of everything: `once_differentiable` is silent without
        the first, and `torch.autograd.grad(allow_unused=True)` prunes the node that raises. Raises UserCodeError (GV109).
        """
        leaves = self._subject.leaves() if inputs is None else [x.detach().clone().requires_grad_() for x in inputs]
        graph = self._function.graph(leaves)
        given = [cotangent.detach().clone().requires_grad_() for cotangent in self.cotangents]
        gradients = self._subject.pull(graph.called, self._function.of(graph), leaves, [cotangent.clone() for cotangent in given],
                                       create=True, code=CODE, what="backward under create_graph")
        moving = [(g, w) for g, w in zip(gradients, weights, strict=True) if g is not None and g.requires_grad]
        if any(g.layout != torch.strided for g, _ in moving):
            raise UserCodeError(CODE, "a gradient is sparse")
        found: Gradients = (None,) * (len(leaves) + len(given))
        if moving:
            found = self._subject.pull(graph.called, [g for g, _ in moving], [*leaves, *given], [w for _, w in moving], way=Way.LEAVES,
                                       code=CODE, what="the double backward")
        return Second(found[:len(leaves)], found[len(leaves):])

    def _filled(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, self.inputs, strict=True)]
