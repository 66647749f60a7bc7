"""What autograd built: the custom Functions in a graph, what their `backward` really returns before the engine casts and sums it, what their
`forward` writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.alias import Named, Shared, attributes, shared
from gradverify.subject.declared import shown_name
from gradverify.subject.guard import is_plain
from gradverify.subject.own_code import own_code, wrapped
from gradverify.subject.snapshot import Change, Snapshot
from gradverify.torch_private import CPP_NODE, added_arguments, expected_gradients, function_class, pytree

Kept = Callable[[Any], Sequence[Named]]


@dataclass(frozen=True, slots=True)
class Edge:
    """What the engine expects for one tensor argument of a Function; None where it needs no gradient. `leaf`: id of the leaf that it is, if any."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    leaf: int | None = None


@dataclass(frozen=True, slots=True)
class RawReturn:
    """One call of a `backward`: what it returned, `needs` (ctx.needs_input_grad), an edge per *tensor* argument of forward, and which gradients lie
    in memory that others use. `cls`: the class, or the name of a Function that is written in C++. Of the Function that torch generates for an
    operator: without the arguments that torch adds."""

    cls: type | str
    returned: tuple[Any, ...]
    needs: tuple[bool, ...]
    edges: tuple[Edge | None, ...]
    shares: tuple[Shared, ...] = ()

    @property
    def name(self) -> str:
        return self.cls if isinstance(self.cls, str) else shown_name(self.cls)


@dataclass(frozen=True, slots=True)
class Wrote:
    """A tensor argument (`place` among all arguments without ctx) that one call of a `forward` changed without returning it."""

    cls: type
    place: int
    differentiable: bool
    change: Change | None


def function_classes(outputs: Sequence[Tensor]) -> tuple[type, ...]:
    """The torch.autograd.Function classes whose nodes are in the graph of the outputs."""
    return tuple(dict.fromkeys(cls for node in function_nodes(outputs) if (cls := function_class(node)) is not None))


def function_nodes(outputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """The nodes of custom Functions in the graph of the outputs, written in Python (they are their own ctx) or in C++."""
    return tuple(node for node in every_node(outputs) if function_class(node) is not None or type(node).__name__ == CPP_NODE)


def every_node(outputs: Sequence[Tensor]) -> tuple[Any, ...]:
    """All nodes of the graph of the outputs, once each."""
    return nodes_below([output.grad_fn for output in outputs if output.grad_fn is not None])


def nodes_below(roots: Sequence[Any]) -> tuple[Any, ...]:
    """These nodes and all that backward reaches from them, once each."""
    seen: dict[Any, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(following for following, _ in node.next_functions if following is not None)
    return tuple(seen)


def gradient_numbers(outputs: Sequence[Tensor]) -> int:
    """How many numbers all the gradients that pass through the graph have together."""
    return sum(math.prod(tensor.shape) for node in every_node(outputs) for tensor in expected_gradients(node))


def _nothing(ctx: Any) -> Sequence[Named]:
    return ()


@contextmanager
def tapped(classes: Sequence[type], sink: list[RawReturn], kept: Kept = _nothing) -> Iterator[None]:
    """Inside, every `backward` (or `vjp`) of these classes leaves what it returns in `sink`. Restored whatever happens.

    `kept` names the tensors beside its own attributes that a ctx must not return the memory of.
    """
    names = [(cls, "vjp" if getattr(cls, "vjp", None) is not torch.autograd.Function.vjp else "backward") for cls in classes]
    with _patched(names, lambda cls, original: _recording(cls, original, sink, kept)):
        yield


@contextmanager
def watched(classes: Sequence[type], sink: list[Wrote]) -> Iterator[None]:
    """Inside, every `forward` of these classes leaves the arguments that it changed in `sink`. Restored whatever happens."""
    with _patched([(cls, "forward") for cls in classes], lambda cls, original: _watching(cls, original, sink)):
        yield


@contextmanager
def _patched(names: Sequence[tuple[type, str]], wrapper: Callable[[type, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    restore: list[Callable[[], None]] = []
    try:
        for cls, name in names:
            restore.append(_patch(cls, name, wrapper(cls, getattr(cls, name))))
        yield
    finally:
        for undo in reversed(restore):
            undo()


def _patch(cls: type, name: str, instead: Callable[..., Any]) -> Callable[[], None]:
    own = cls.__dict__.get(name)
    setattr(cls, name, staticmethod(instead))
    return (lambda: delattr(cls, name)) if own is None else (lambda: setattr(cls, name, own))


def _recording(cls: type, original: Callable[..., Any], sink: list[RawReturn], kept: Kept) -> Callable[..., Any]:
    added = added_arguments(cls)

    @own_code
    def recorded(ctx: Any, *cotangents: Any) -> Any:
        returned = wrapped(original, ctx, *cotangents)
        as_tuple = returned if isinstance(returned, tuple) else (returned,)     # a list is one gradient for autograd, and refused
        if (function_class(ctx) or cls) is cls:        # a subclass that inherits or calls this backward leaves its own
            shares = shared(as_tuple, cotangents, [*kept(ctx), *attributes(ctx)])
            theirs, needs = as_tuple[:len(as_tuple) - added], tuple(ctx.needs_input_grad)
            sink.append(RawReturn(cls, theirs, needs[:len(needs) - added], tuple(edge_of(*edge) for edge in ctx.next_functions), shares))
        return returned

    return recorded


def _watching(cls: type, original: Callable[..., Any], sink: list[Wrote]) -> Callable[..., Any]:
    takes_ctx = cls.setup_context is torch.autograd.Function.setup_context      # type: ignore[attr-defined]

    @own_code
    def recorded(*arguments: Any) -> Any:
        places = [(place, tensor) for place, tensor in enumerate(arguments[takes_ctx:]) if isinstance(tensor, Tensor) and is_plain(tensor)]
        before = Snapshot([tensor for _, tensor in places])
        returned = wrapped(original, *arguments)
        given_back = [id(output) for output in pytree.tree_leaves(returned)]
        for i in before.changed():
            place, tensor = places[i]
            if id(tensor) not in given_back:        # one that is returned was written in place on purpose
                sink.append(Wrote(cls, place, tensor.requires_grad, before.difference(i)))
        return returned

    return recorded


def edge_of(node: Any, number: int) -> Edge | None:
    """What a node expects at one of its inputs."""
    if node is None:
        return None
    metadata = expected_gradients(node)[number]
    leaf = getattr(node, "variable", None)
    return Edge(tuple(metadata.shape), metadata.dtype, metadata.device, None if leaf is None else id(leaf))
