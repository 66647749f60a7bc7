"""Where the backward stands that a callable, a module or a registered operator goes through: that of the one custom Function in its graph."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.declared import registered_backward
from gradverify.subject.graph import nodes_below
from gradverify.subject.observe import ForwardSeen
from gradverify.subject.returned_line import line_at
from gradverify.subject.target import definition, place_of
from gradverify.torch_private import added_arguments, function_class


@dataclass(frozen=True, slots=True)
class Inner:
    """The line of a file, and its text."""

    file: str
    line: int
    source: str


def inner_backward(seen: ForwardSeen, input: int | None) -> Inner | None:
    """Of the Function that the gradient of a differentiable `input` comes through (None: of any input). None where no Function or several could
    be at fault, or where none of them leads to the input."""
    owners = {function_class(node) for node in seen.nodes}
    leaf = None if input is None else seen.leaves[input]
    if len(owners) != 1 or None in owners:
        return None
    if leaf is not None and not any(getattr(node, "variable", None) is leaf for node in nodes_below(seen.nodes)):
        return None
    cls = seen.classes[0]
    at = backward_of(cls)
    if at is None or leaf is None:
        return at
    made = _made(seen.nodes, leaf, registered_backward(cls) or cls.backward, at.line, added_arguments(cls))       # type: ignore[attr-defined]
    return Inner(at.file, *made) if made else at


def backward_of(cls: type) -> Inner | None:
    """The definition of the backward of a Function, or of what was registered as that of an operator; None where that is torch's own code."""
    registered = registered_backward(cls)
    file, line, source = (place_of(registered) if registered else definition(cls)) or (None, None, None)
    return None if file is None or line is None or file.startswith(str(torch.__path__[0])) else Inner(file, line, source or "")


def _made(nodes: tuple[Any, ...], leaf: Tensor, backward: Any, first: int, added: int) -> tuple[int, str] | None:
    """The line that makes the gradient of a leaf that is itself one argument of the one call of the Function. `added`: how many arguments
    torch adds to its own."""
    if len(nodes) != 1 or not inspect.isfunction(inspect.unwrap(backward)):
        return None
    needs = nodes[0].needs_input_grad       # of every argument, where the edges are of the tensors
    wanted = [place for place, needed in enumerate(needs) if needed is True]
    edges = [following for following, _ in nodes[0].next_functions if following is not None]
    found = [place for place, edge in zip(wanted, edges, strict=False) if getattr(edge, "variable", None) is leaf]
    if len(found) != 1 or len(wanted) != len(edges):
        return None
    made = line_at(backward, first, found[0], len(needs) - added)
    return (made.number, made.text) if made else None
