"""A batch of points, through `torch.vmap` and through a loop: outputs and gradients of both."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.base_call import Custody, Held, Written, arguments
from gradverify.subject.differentiable import Differentiable, Gradients, Graph
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.on_cuda import finished
from gradverify.subject.subject import Subject

# ---- A batch of points, through `torch.vmap` and through a loop: outputs and gradients of both
CODE = "GV110"
Dims = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Per checked output [B, …] and per differentiable input its gradient: [B, …], or the sum over the batch where the input is not batched."""

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]


class Batcher:
    """`points`: per example one tensor for each tensor argument, differentiable or not. Every call is counted by the subject."""

    def __init__(self, subject: Subject, checked: Sequence[int]) -> None:
        arguments = [replace(argument, differentiable=argument.is_tensor) for argument in subject.arguments]
        self._checked = tuple(checked)
        self._moving = subject.twin(arguments)
        self.differentiable = tuple(argument.differentiable for argument in subject.arguments if argument.is_tensor)

    @property
    def base(self) -> tuple[Tensor, ...]:
        """The tensor arguments at the point of the check."""
        return self._moving.inputs

    def loop(self, points: Sequence[Sequence[Tensor]], cotangents: Sequence[Sequence[Tensor]], dims: Dims) -> Batch:
        """One call and one backward per example. Raises UserCodeError (GV002, GV003; GV110 where shapes differ between examples)."""
        singles = [self._single(point, cotangent) for point, cotangent in zip(points, cotangents, strict=True)]
        outputs = tuple(_stacked([single.outputs[k] for single in singles]) for k in range(len(self._checked)))
        gradients = [_stacked([single.gradients[i] for single in singles]) for i in range(len(singles[0].gradients))]
        return Batch(outputs, tuple(g if dim is not None else g.sum(0) for g, dim in zip(gradients, self._own(dims), strict=True)))

    def vmap(self, points: Sequence[Sequence[Tensor]], cotangents: Sequence[Sequence[Tensor]], dims: Dims) -> Batch:
        """One vmapped call and one backward. `dims`: torch's in_dims, one per tensor argument. Raises UserCodeError (GV110)."""
        examples = zip(*points, strict=True)
        wide = [_batched(each, dim, wanted) for each, dim, wanted in zip(examples, dims, self.differentiable, strict=True)]
        leaves = [x for x, wanted in zip(wide, self.differentiable, strict=True) if wanted]
        size = len(points)
        with blamed(CODE, "the vmapped call"):
            self._moving.count(forward=size - 1, batched=size)
            outputs = _plain(self._outputs, dims, wide)
        with blamed(CODE, "backward of the vmapped call"):
            self._moving.counted_backward()
            self._moving.count(backward=size - 1, batched=size)
            given = [torch.stack([cotangent[k] for cotangent in cotangents]) for k in range(len(self._checked))]
            fitting = [v if v.shape == y.shape else torch.zeros_like(y) for v, y in zip(given, outputs, strict=True)]
            graphed = [(y, v) for y, v in zip(outputs, fitting, strict=True) if y.requires_grad]    # beside others, one without is silently zero
            ys, vs = [y for y, _ in graphed], [v for _, v in graphed]
            gradients = _plain(torch.autograd.grad, ys, leaves, vs, allow_unused=True) if graphed else [None] * len(leaves)
            finished(self._moving.on)
        filled = [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)]
        back = [g if dim is None else g.movedim(dim, 0) for g, dim in zip(filled, self._own(dims), strict=True)]
        return Batch(tuple(y.detach() for y in outputs), tuple(back))

    def _single(self, point: Sequence[Tensor], cotangents: Sequence[Tensor]) -> Batch:
        tensors = [x.detach().clone().requires_grad_(wanted) for x, wanted in zip(point, self.differentiable, strict=True)]
        leaves = [x for x, wanted in zip(tensors, self.differentiable, strict=True) if wanted]
        called = self._moving.called(tensors)
        checked = [called.outputs[place] for place in self._checked]
        if [y.shape for y in checked] != [v.shape for v in cotangents]:
            raise UserCodeError(CODE, "the shapes of its outputs depend on values")
        gradients = self._moving.pull(called, checked, leaves, [cotangent.clone() for cotangent in cotangents])
        filled = tuple(torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True))
        return Batch(tuple(y.detach() for y in checked), filled)

    def _outputs(self, dims: Dims, wide: Sequence[Tensor]) -> tuple[Tensor, ...]:
        def one(*tensors: Tensor) -> tuple[Tensor, ...]:
            outputs = self._moving.forward(tensors)
            return tuple(outputs[place] for place in self._checked)

        result: tuple[Tensor, ...] = torch.vmap(one, in_dims=dims)(*wide)
        return result

    def _own(self, dims: Dims) -> Iterator[int | None]:
        """The in_dims of the differentiable arguments."""
        return (dim for dim, wanted in zip(dims, self.differentiable, strict=True) if wanted)


def _batched(examples: Sequence[Tensor], dim: int | None, wanted: bool) -> Tensor:
    tensor = examples[0].detach().clone() if dim is None else torch.stack([example.detach() for example in examples]).movedim(0, dim)
    return tensor.requires_grad_(wanted)


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.to_dense() if tensor.layout != torch.strided else tensor for tensor in tensors])


def _plain(function: Any, *arguments: Any, **options: Any) -> Any:
    """What the user's code raised itself, not the UserCodeError around it; without torch's warnings of slow batching rules."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*arguments, **options)
        except UserCodeError as error:
            if error.__cause__ is not None:
                raise error.__cause__ from None
            raise


# ---- What `.grad` holds after two backwards, as a training step with gradient accumulation makes
# it
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
