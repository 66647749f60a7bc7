"""The line of `backward` that makes the gradient of one input, where its source leaves no doubt."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradverify.subject.definition import source_of
from gradverify.subject.subject import Subject

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Line:
    """`number` counts from 1 in the file of the target, `text` is without its indentation."""

    number: int
    text: str


def returned_line(subject: Subject, name: str) -> Line | None:
    """Of a Function's input `name`, as `line_at` finds it; None for a list of tensors, and where another `line` than a backward's is known."""
    place = next((n for n, members in enumerate(subject.positions) if len(members) == 1 and members[0].name == name), None)
    target = subject.target
    if place is None or target.kind != "autograd.Function" or target.line is None or subject.kwargs:
        return None
    return line_at(target.subject.backward, target.line, place, len(subject.positions))


def line_at(backward: Callable[..., Any], first: int, place: int, count: int) -> Line | None:
    """Where `backward`, whose definition stands at line `first`, makes what it returns for input `place` of `count`: in its one `return`, or in the
    one plain assignment above that names it, beside those to None.

    None where that is not certain: several returns, an unpacked tuple, a name bound more than once, no source.
    """
    source = source_of(backward)
    if source is None or not isinstance(source.tree, ast.FunctionDef) or not source.first <= first < source.first + len(source.lines):
        return None
    made = _made(source.tree, place, count)
    return None if made is None else Line(source.line(made), source.lines[made.lineno - 1].strip())


def _made(function: ast.FunctionDef, place: int, count: int) -> ast.expr | ast.stmt | None:
    """The node whose line it is."""
    returns = [node for node in own_nodes(function) if isinstance(node, ast.Return)]
    if len(returns) != 1 or returns[0].value is None:
        return None
    value = returns[0].value
    if isinstance(value, ast.Tuple):
        if len(value.elts) < count or any(isinstance(each, ast.Starred) for each in value.elts):
            return None
        value = value.elts[place]
    elif count != 1:
        return None
    return _assigned(function, value) if isinstance(value, ast.Name) else value


def _assigned(function: ast.FunctionDef, name: ast.Name) -> ast.stmt | None:
    """The one plain assignment, outside of any loop, that binds a returned name to something else than None."""
    empty = [target for node in own_nodes(function)
             if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None for target in node.targets]
    bound = [node for node in own_nodes(function) if isinstance(node, ast.Name) and node.id == name.id and not isinstance(node.ctx, ast.Load)
             and node not in empty]
    plain = [node for node in _statements(function.body) if isinstance(node, ast.Assign) and node.targets == bound]
    written = any(isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load)
                  and isinstance(node.value, ast.Name) and node.value.id == name.id for node in own_nodes(function))
    called = any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)
                 and isinstance(node.value.func.value, ast.Name) and node.value.func.value.id == name.id for node in own_nodes(function))
    return plain[0] if len(plain) == 1 and not written and not called else None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Those that run once at most: also in the branches of an `if`, as of `if ctx.needs_input_grad[0]:`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _statements([*statement.body, *statement.orelse])


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function, without those of functions and classes inside it."""
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        child = waiting.pop(0)
        yield child
        if not isinstance(child, SCOPES):
            waiting += list(ast.iter_child_nodes(child))
