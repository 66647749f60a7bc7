"""What autograd built: the custom Functions in a graph, and what their `backward` really returns before the engine casts and sums it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CPP_NODE = "CppFunction"        # the Python type of every node whose C++ class is not one of torch's own


@dataclass(frozen=True, slots=True)
class Edge:
    """What the engine expects for one tensor argument of a Function; None where it needs no gradient."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class RawReturn:
    """One call of a `backward`: what it returned, `needs` (ctx.needs_input_grad), and an edge per *tensor* argument of forward."""

    cls: type
    returned: tuple[Any, ...]
    needs: tuple[bool, ...]
    edges: tuple[Edge | None, ...]


def function_classes(outputs: Sequence[Tensor]) -> tuple[type, ...]:
    """The torch.autograd.Function classes whose nodes are in the graph of the outputs."""
    classes = (getattr(node, "_forward_cls", None) for node in _nodes(outputs))
    return tuple(dict.fromkeys(cls for cls in classes if cls is not None))


def is_handwritten(outputs: Sequence[Tensor]) -> bool:
    """Is there a backward in the graph that is not torch's own: a torch.autograd.Function, or one in C++ (torch knows no class for its node)?"""
    return any(hasattr(node, "_forward_cls") or type(node).__name__ == CPP_NODE for node in _nodes(outputs))


def _nodes(outputs: Sequence[Tensor]) -> Iterator[Any]:
    """Every node of the graph, once."""
    seen: set[Any] = set()
    stack = [output.grad_fn for output in outputs if output.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(following for following, _ in node.next_functions if following is not None)


@contextmanager
def tapped(classes: Sequence[type], sink: list[RawReturn]) -> Iterator[None]:
    """Inside, every `backward` (or `vjp`) of these classes leaves what it returns in `sink`. Restored whatever happens."""
    restore: list[Callable[[], None]] = []
    try:
        for cls in classes:
            name = "vjp" if getattr(cls, "vjp", None) is not torch.autograd.Function.vjp else "backward"
            restore.append(_patch(cls, name, sink))
        yield
    finally:
        for undo in reversed(restore):
            undo()


def _patch(cls: type, name: str, sink: list[RawReturn]) -> Callable[[], None]:
    own = cls.__dict__.get(name)
    original = getattr(cls, name)

    def recorded(ctx: Any, *cotangents: Any) -> Any:
        returned = original(ctx, *cotangents)
        as_tuple = returned if isinstance(returned, tuple) else tuple(returned) if isinstance(returned, list) else (returned,)
        if getattr(ctx, "_forward_cls", cls) is cls:        # a subclass that inherits or calls this backward leaves its own
            sink.append(RawReturn(cls, as_tuple, tuple(ctx.needs_input_grad), tuple(_edge(*edge) for edge in ctx.next_functions)))
        return returned

    setattr(cls, name, staticmethod(recorded))
    return (lambda: delattr(cls, name)) if own is None else (lambda: setattr(cls, name, own))


def _edge(node: Any, number: int) -> Edge | None:
    if node is None:
        return None
    metadata = node._input_metadata[number]
    return Edge(tuple(metadata.shape), metadata.dtype, metadata.device)
