"""The source of a live function: its syntax tree, and where it stands."""

from __future__ import annotations

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.base_call import ForwardSeen
from gradverify.subject.graph import nodes_below, registered_backward
from gradverify.subject.subject import Subject
from gradverify.subject.target import definition, place_of
from gradverify.torch_private import added_arguments, function_class


# ---- The source of a live function: its syntax tree, and where it stands
@dataclass(frozen=True, slots=True)
class Source:
    """`tree`: its definition; `lines`: as they stand in the file, of which they begin at line `first` (from 1); `file`: its name without folders."""

    tree: ast.FunctionDef | ast.AsyncFunctionDef
    file: str
    first: int
    lines: tuple[str, ...]

    def line(self, node: ast.expr | ast.stmt) -> int:
        """The number of a node's line in the file."""
        return self.first + node.lineno - 1


def source_of(function: Callable[..., Any]) -> Source | None:
    """None where the source cannot be read."""
    try:
        plain = inspect.unwrap(function)
        lines, first = inspect.getsourcelines(plain)
        file = inspect.getsourcefile(plain) or ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # of odd escapes in other people's strings
            tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, ValueError, SyntaxError, RecursionError):
        return None
    node = next((node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    return None if node is None else Source(node, Path(file).name, max(first, 1), tuple(lines))


# ---- The line of `backward` that makes the gradient of one input, where its source leaves no
# doubt
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


# ---- The line of a Function's `forward`, and the one in it that writes into an argument, where
# its source leaves no doubt
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


# ---- Where the backward stands that a callable, a module or a registered operator goes through:
# that of the one custom Function in its graph
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
    made = _nodes_made(seen.nodes, leaf, registered_backward(cls) or cls.backward, at.line, added_arguments(cls))       # type: ignore[attr-defined]
    return Inner(at.file, *made) if made else at


def backward_of(cls: type) -> Inner | None:
    """The definition of the backward of a Function, or of what was registered as that of an operator; None where that is torch's own code."""
    registered = registered_backward(cls)
    file, line, source = (place_of(registered) if registered else definition(cls)) or (None, None, None)
    return None if file is None or line is None or file.startswith(str(torch.__path__[0])) else Inner(file, line, source or "")


def _nodes_made(nodes: tuple[Any, ...], leaf: Tensor, backward: Any, first: int, added: int) -> tuple[int, str] | None:
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
