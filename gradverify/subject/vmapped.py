"""Batches of points through `torch.vmap` and through a loop, and gradients accumulated over several
backwards."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradverify.subject.another import inside, stretched
from gradverify.subject.base_call import Custody, Held, Written, arguments
from gradverify.subject.differentiable import Differentiable, Gradients, Graph
from gradverify.subject.failure import UserCodeError, attempted, blamed
from gradverify.subject.layout import reversed_along
from gradverify.subject.snapshot import copied
from gradverify.subject.subject import Subject, Tensors, Way, filled

# ---- A batch of points: outputs and gradients through `torch.vmap` and through a loop
CODE = "GV110"
# Relative distance of the second point from the first; zeros, signs and symmetry stay
SPREAD = 0.3
NEARBY = (
    0.02  # of the third point, and of the second where the function is not defined further away
)
SIZE = 3
Dims = tuple[int | None, ...]
Points = Sequence[Tensors]


class Batch(NamedTuple):
    """The checked outputs [B, …], and the gradients of the differentiable inputs: [B, …], or the
    sum over the batch where the input is not batched."""

    outputs: Tensors
    gradients: Tensors


class Batches:
    """The function on batches of SIZE points. `cotangents`: one per checked output for each
    example; `random`: whether the function draws random numbers. The loop is run once for each
    choice of in_dims. Calls are counted by the subject."""

    def __init__(
        self,
        subject: Subject,
        checked: Sequence[int],
        cotangents: Points,
        source: torch.Generator,
        random: bool = False,
    ) -> None:
        self._subject, self._checked, self._cotangents = subject, tuple(checked), cotangents
        self._source, self._random = source, random
        self._arguments = subject.tensors
        self._moving = subject.twin(
            [replace(argument, differentiable=argument.is_tensor) for argument in subject.arguments]
        )
        self.differentiable = tuple(argument.differentiable for argument in self._arguments)
        self._loops: dict[Dims, Batch] = {}

    @cached_property
    def variants(self) -> tuple[Dims, ...]:
        """The choices of in_dims: all along 0, all along −1, each one alone along −1."""
        n = len(self._arguments)
        alone = [tuple(-1 if i == k else None for i in range(n)) for k in range(n)] if n > 1 else []
        return ((0,) * n, (-1,) * n, *alone)

    @cached_property
    def impossible(self) -> str | None:
        """The reason why there is nothing to compare; None where the loop runs."""
        if self._subject.writes:
            return "the function writes into its inputs"
        if self._random:
            return "the function draws random numbers"
        if any(argument.value.layout != torch.strided for argument in self._arguments):
            return "an argument is sparse"
        return self._chosen if isinstance(self._chosen, str) else None

    @cached_property
    def _chosen(self) -> Points | str:
        """The point of the check and two others, the second one far away if the function is defined
        there, else near; or the reason why there are none."""
        error = "the function is not defined at other points"
        for spread in (SPREAD, NEARBY):
            points = [
                [argument.value for argument in self._arguments],
                self._drawn(spread),
                self._drawn(NEARBY),
            ]
            looped = attempted(self._loop, points, self.variants[0])
            if isinstance(looped, UserCodeError):
                error = looped.message
            elif all(
                bool(torch.isfinite(y[1:]).all()) or not bool(torch.isfinite(y[0]).all())
                for y in looped.outputs
            ):
                self._loops[self.variants[0]] = looped
                return points
        return f"a loop over other points is refused: {error}"

    def _drawn(self, spread: float) -> list[Tensor]:
        """Return another point; arguments that are not differentiated (indices, classes) are
        reversed if it is far away."""
        return [
            inside(argument, stretched(argument.value, spread, self._source))
            if argument.differentiable
            else reversed_along(argument.value, (0,))
            if argument.value.dim() and spread == SPREAD
            else argument.value
            for argument in self._arguments
        ]

    def _points(self, dims: Dims) -> Points:
        """Return the tensor arguments of each example; arguments that are not batched are those of
        the check."""
        chosen = self._chosen
        assert not isinstance(chosen, str)
        first = chosen[0]
        return [
            [base if dim is None else x for base, x, dim in zip(first, point, dims, strict=True)]
            for point in chosen
        ]

    def looped(self, dims: Dims) -> Batch:
        """Return the results of one call per example. Raises UserCodeError (GV002, GV003; GV110
        where shapes differ between examples)."""
        if dims not in self._loops:
            self._loops[dims] = self._loop(self._points(dims), dims)
        return self._loops[dims]

    def _loop(self, points: Points, dims: Dims) -> Batch:
        singles = []
        for point, cotangents in zip(points, self._cotangents, strict=True):
            graph = self._moving.called(
                [
                    x.detach().clone().requires_grad_(wanted)
                    for x, wanted in zip(point, self.differentiable, strict=True)
                ]
            )
            checked = [graph.outputs[place] for place in self._checked]
            if [y.shape for y in checked] != [v.shape for v in cotangents]:
                raise UserCodeError(CODE, "the shapes of its outputs depend on values")
            gradients = self._pulled(graph, checked, cotangents)
            singles.append(([y.detach() for y in checked], gradients))
        outputs, pulled = (
            tuple(
                torch.stack([x.to_dense() if x.layout != torch.strided else x for x in each])
                for each in zip(*parts, strict=True)
            )
            for parts in zip(*singles, strict=True)
        )
        pairs = zip(pulled, compress(dims, self.differentiable), strict=True)
        return Batch(outputs, tuple(g if dim is not None else g.sum(0) for g, dim in pairs))

    def _pulled(
        self, graph: Graph, outputs: Tensors, cotangents: Tensors, **options: Any
    ) -> list[Tensor]:
        """Return the gradient per differentiable argument."""
        found = (
            self._moving.pull(graph, outputs, copied(cotangents), **options)
            if outputs
            else [None] * len(graph.leaves)
        )
        return list(compress(filled(found, graph.leaves), self.differentiable))

    def vmapped(self, dims: Dims) -> Batch:
        """Return the results of one vmapped call and one backward, with torch's in_dims, one per
        tensor argument. Raises UserCodeError."""
        wide = [
            (
                each[0].detach().clone()
                if dim is None
                else torch.stack([x.detach() for x in each]).movedim(0, dim)
            ).requires_grad_(wanted)
            for each, dim, wanted in zip(
                zip(*self._points(dims), strict=True), dims, self.differentiable, strict=True
            )
        ]

        def one(*tensors: Tensor) -> tuple[Tensor, ...]:
            outputs = self._moving.called(tensors).outputs
            return tuple(outputs[place] for place in self._checked)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of slow batching rules
            with blamed(CODE, "the vmapped call"):
                outputs = attempted(torch.vmap(one, in_dims=dims), *wide)
                # Report the exception of the user's code, not the UserCodeError around it
                if isinstance(outputs, UserCodeError):
                    raise outputs.__cause__ or outputs
            self._moving.count(forward=SIZE - 1, backward=SIZE - 1, batched=2 * SIZE)
            given = [torch.stack(each) for each in zip(*self._cotangents, strict=True)]
            # An output without a graph among others has a gradient of zero, without an error
            pairs = [(y, v) for y, v in zip(outputs, given, strict=True) if y.requires_grad]
            found = self._pulled(
                Graph(tuple(wide), (), {}, ()),
                [y for y, _ in pairs],
                [v if v.shape == y.shape else torch.zeros_like(y) for y, v in pairs],
                way=Way.REUSED,
                code=CODE,
                what="backward of the vmapped call",
            )
        moved = zip(found, compress(dims, self.differentiable), strict=True)
        back = tuple(g if dim is None else g.movedim(dim, 0) for g, dim in moved)
        return Batch(tuple(y.detach() for y in outputs), back)


# ---- `.grad` after two backwards, as in a training step with gradient accumulation
class Accumulated(NamedTuple):
    """`.grad` per leaf after the first and after both backwards; and the arguments that these
    changed."""

    first: Gradients
    both: Gradients
    written: tuple[Written, ...]


def accumulated(
    subject: Subject, function: Differentiable, graph: Graph, reusable: bool
) -> Accumulated:
    """Run `.backward(ones)` twice: on one graph, which is not used afterwards, or on two graphs of
    the same leaves. Raises UserCodeError."""
    own = [(name, x) for name, x in arguments(subject, graph) if x.layout == torch.strided]
    custody = Custody([Held("argument", name, x) for name, x in own])

    def backward(graph: Graph, retain: bool) -> Gradients:
        outputs = [y for y in function.of(graph) if y.requires_grad]
        others = function.with_zeros(graph)
        return subject.pull(
            graph,
            [*outputs, *others],
            [*map(torch.ones_like, outputs), *map(torch.zeros_like, others)],
            retain=retain,
            way=Way.LEAVES,
            accumulate=True,
        )

    first = copied(backward(graph, reusable))
    both = backward(graph if reusable else function.graph(graph.leaves), False)
    return Accumulated(first, both, custody.broken())


def straight(nodes: Sequence[Any], leaves: Tensors) -> list[bool]:
    """Return for each leaf whether it is a direct input of one of the nodes, whose gradient then
    goes into `.grad` unchanged."""
    edges = (following for node in nodes for following, _ in node.next_functions)
    variables = [getattr(following, "variable", None) for following in edges]
    return [any(leaf is variable for variable in variables) for leaf in leaves]
