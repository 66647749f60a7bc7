"""Functions written in C++: what their backward returns before the engine casts and sums it. Their nodes can be called, their ctx not be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.alias import Named, shared
from gradverify.subject.graph import RawReturn, edge_of
from gradverify.subject.own_code import own_code
from gradverify.torch_private import CPP_FUNCTION

WRONG_NUMBER = re.compile(r"function (.+) returned an incorrect number of gradients \(expected (\d+), got (\d+)\)")     # torch's sentence
Given = tuple[Tensor | None, ...]


@contextmanager
def called_again(nodes: Sequence[Any], sink: list[RawReturn], kept: Callable[[], Sequence[Named]], count: Callable[[], None]) -> Iterator[None]:
    """Every C++ node that a backward inside reaches is called once more, afterwards, for the same cotangents; what it returns is left in `sink`.

    `kept` names, afterwards, the tensors whose memory it must not return; `count` is called before each call. A node that can be called only once
    leaves nothing.
    """
    taken: dict[Any, Given] = {}
    handles = [node.register_prehook(_taking(taken, node)) for node in nodes if is_native(node)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for node, cotangents in taken.items():
        count()
        try:
            with torch.no_grad():
                returned = node(*cotangents)
        except Exception:       # the engine was told before
            continue
        with torch.no_grad():
            sink.append(_raw(node, returned if isinstance(returned, tuple) else (returned,), cotangents, kept()))


def is_native(node: Any) -> bool:
    return CPP_FUNCTION in node.name()


def native_name(node: str) -> str:
    """`Linear` of a node called `torch::autograd::CppNode<(anonymous namespace)::Linear>`."""
    inner = node.partition(CPP_FUNCTION)[2].rstrip().removesuffix(">").rstrip()
    return inner.replace("(anonymous namespace)::", "").replace(" >", ">")


def wrong_number(message: str) -> tuple[str, int, int] | None:
    """(name, gradients expected, gradients returned) where a C++ node itself refused what its Function returned."""
    found = WRONG_NUMBER.search(message)
    return (native_name(found[1]), int(found[2]), int(found[3])) if found and CPP_FUNCTION in found[1] else None


def _taking(taken: dict[Any, Given], node: Any) -> Callable[[Given], None]:
    @own_code
    def take(cotangents: Given) -> None:
        taken.setdefault(node, tuple(None if each is None else each.detach().clone() for each in cotangents))

    return take


def _raw(node: Any, returned: tuple[Any, ...], cotangents: Given, kept: Sequence[Named]) -> RawReturn:
    """The engine asks a C++ Function for gradients of its tensor arguments only."""
    edges = tuple(edge_of(*following) for following in node.next_functions)
    return RawReturn(native_name(node.name()), returned, tuple(edge is not None for edge in edges), edges, shared(returned, cotangents, kept))
