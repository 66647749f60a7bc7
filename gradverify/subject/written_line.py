"""The line of a Function's `forward`, and the one in it that writes into an argument, where its source leaves no doubt."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gradverify.subject.definition import Source, source_of
from gradverify.subject.returned_line import Line, own_nodes
from gradverify.subject.target import place_of

IN_PLACE = ("_", "__setitem__")     # how the name of a method that writes into its tensor ends


def forward_line(cls: type, argument: int | None = None) -> tuple[str, int, str] | None:
    """(file, line, source) of the one line of `forward` that writes into the argument of this number (`ctx` not counted), else of its definition.

    None where its source cannot be read, or `forward` is torch's own.
    """
    forward = getattr(cls, "forward", None)
    place = None if forward is None or forward is torch.autograd.Function.forward else place_of(forward)
    if place is None or forward is None:
        return None
    written = None if argument is None else _written(forward, argument + _takes_ctx(cls))
    return place if written is None else (place[0], written.number, written.text)


def method_line(cls: type, method: str) -> tuple[str, int, str] | None:
    """(file, line, source) of the definition of a Function's `jvp` or `vmap`, or of the method that saves for backward ("saving"): `setup_context`,
    else `forward`. None where the class has none of its own."""
    name = ("forward" if _takes_ctx(cls) else "setup_context") if method == "saving" else method
    found = getattr(cls, name, None)
    return None if found is None or found is getattr(torch.autograd.Function, name, None) else place_of(found)


def _takes_ctx(cls: Any) -> bool:
    return bool(cls.setup_context is torch.autograd.Function.setup_context)


def _written(forward: Callable[..., Any], parameter: int) -> Line | None:
    source = source_of(forward)
    names = [] if source is None else [each.arg for each in (*source.tree.args.posonlyargs, *source.tree.args.args)]
    if source is None or parameter >= len(names):
        return None
    name = names[parameter]
    nodes = list(own_nodes(source.tree))
    if any(isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load) for node in _rebound(nodes)):
        return None
    found = sorted({each.lineno for node in nodes for each in _targets(node) if _root(each) == name})
    return _line(source, found[0]) if len(found) == 1 else None


def _line(source: Source, number: int) -> Line:
    return Line(source.first + number - 1, source.lines[number - 1].strip())


def _rebound(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Names that are bound anew; `x += 1` writes into a tensor."""
    augmented = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
    return (node for node in nodes if id(node) not in augmented)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a node writes into."""
    if isinstance(node, ast.AugAssign):
        yield node.target
    elif isinstance(node, ast.Assign):
        yield from (target for target in node.targets if isinstance(target, ast.Subscript | ast.Attribute))
    elif isinstance(node, ast.Call):
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(node.func, ast.Attribute) and method.endswith(IN_PLACE) and (method == IN_PLACE[1] or not method.startswith("__")):
            yield node.func.value
            yield from node.args[:1]        # torch.relu_(x)
        yield from (keyword.value for keyword in node.keywords if keyword.arg == "out")


def _root(node: ast.AST) -> str | None:
    """The name at the beginning of `x.data[0].view(-1)`."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func
        else:
            return node.id if isinstance(node, ast.Name) else None
