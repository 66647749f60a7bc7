"""Lines of the user's source for findings: the definition of a method, or the line that computes
one gradient, or writes into an argument."""

from __future__ import annotations

import ast
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from gradverify.subject.base_call import ForwardSeen
from gradverify.subject.graph import nodes_below, registered_backward
from gradverify.subject.subject import Subject
from gradverify.subject.target import Place, definition, outside_torch, place_of
from gradverify.torch_private import added_arguments, function_class

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


# ---- The source of a live function
class Source(NamedTuple):
    """The source of a function. `tree`: its definition; `lines`: of the file, the first of which
    has the number `first` (from 1)."""

    tree: ast.FunctionDef | ast.AsyncFunctionDef
    file: str
    first: int
    lines: tuple[str, ...]

    def place(self, line: int) -> Place:
        """Return the place of a line of the source, counted from 1."""
        return Place(self.file, self.first + line - 1, self.lines[line - 1].strip())

    @property
    def nodes(self) -> Iterator[ast.AST]:
        """All nodes of the function, without those of functions and classes inside it."""
        waiting = list(ast.iter_child_nodes(self.tree))
        while waiting:
            child = waiting.pop(0)
            yield child
            if not isinstance(child, SCOPES):
                waiting += list(ast.iter_child_nodes(child))

    def changes(self, name: str) -> dict[int, bool]:
        """Return the lines that bind a name to a value other than None (true), or write into the
        object that it refers to (false)."""
        found = dict[int, bool]()
        nodes = list(self.nodes)
        spared = {
            id(target)
            for node in nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is None
            for target in node.targets
        }
        augmented = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
        for node in nodes:
            written: list[ast.expr] = []
            if (
                isinstance(node, ast.Name | ast.Subscript | ast.Attribute)
                and not isinstance(node.ctx, ast.Load)
                and id(node) not in spared
            ):
                written = [node]
            elif isinstance(node, ast.Call):
                written = [keyword.value for keyword in node.keywords if keyword.arg == "out"]
                method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                if isinstance(node.func, ast.Attribute) and (
                    method == "__setitem__" or (method.endswith("_") and not method.endswith("__"))
                ):
                    written += [node.func.value, *node.args[:1]]  # x.relu_(), torch.relu_(x)
            for each in written:
                if _root(each) == name:
                    found[each.lineno] = (
                        isinstance(each, ast.Name)
                        and isinstance(each.ctx, ast.Store)
                        and id(each) not in augmented
                    )
        return found


def source_of(function: Callable[..., Any]) -> Source | None:
    """Return the source of a function; None where it cannot be read."""
    try:
        plain = inspect.unwrap(function)
        lines, first = inspect.getsourcelines(plain)
        file = inspect.getsourcefile(plain) or ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in other people's strings
            tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, ValueError, SyntaxError, RecursionError):
        return None
    node = next(
        (
            node
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ),
        None,
    )
    return None if node is None else Source(node, file, max(first, 1), tuple(lines))


def _root(node: ast.AST) -> str | None:
    """Return the leftmost name of an expression, `x` of `x.data[0].view(-1)`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


# ---- backward
def returned_line(subject: Subject, name: str) -> Place | None:
    """Return the place where a Function's backward makes the gradient of input `name`, as `_made`;
    None for a list of tensors, and where the target's line is not that of a backward."""
    place = next(
        (
            n
            for n, members in enumerate(subject.positions)
            if len(members) == 1 and members[0].name == name
        ),
        None,
    )
    target = subject.target
    if (
        place is None
        or target.kind != "autograd.Function"
        or target.place is None
        or subject.kwargs
    ):
        return None
    return _made(target.subject.backward, target.place.line, place, len(subject.positions))


def _made(backward: Callable[..., Any], first: int, place: int, count: int) -> Place | None:
    """Return the place where `backward`, defined at line `first`, makes the gradient of input
    `place` of `count`: its only `return`, or the only line that binds the name that is returned.
    None where that is uncertain: with several returns, a starred tuple, a name that is bound or
    written into more than once, or without source."""
    source = source_of(backward)
    if source is None or not source.first <= first < source.first + len(source.lines):
        return None
    returns = [node.value for node in source.nodes if isinstance(node, ast.Return)]
    value = returns[0] if len(returns) == 1 else None
    if isinstance(value, ast.Tuple):
        value = (
            value.elts[place]
            if len(value.elts) >= count
            and not any(isinstance(each, ast.Starred) for each in value.elts)
            else None
        )
    elif count != 1:
        return None
    if isinstance(value, ast.Name):
        changed = source.changes(value.id)
        return source.place(next(iter(changed))) if list(changed.values()) == [True] else None
    return None if value is None else source.place(value.lineno)


def backward_of(cls: type) -> Place | None:
    """Return the place of the backward of a Function, or of the backward registered for an
    operator; None where that is torch's own code."""
    registered = registered_backward(cls)
    return outside_torch(place_of(registered) if registered else definition(cls))


def inner_backward(seen: ForwardSeen, input: int | None) -> Place | None:
    """Return the place of the backward inside a callable, a module or a registered operator: of the
    only Function in the graph, if the gradient of a differentiable `input` (None: of any) passes
    through it. None where there are several Functions, or none on the way to the input."""
    owners = {function_class(node) for node in seen.nodes}
    leaf = None if input is None else seen.leaves[input]
    if len(owners) != 1 or None in owners:
        return None
    if leaf is not None and not any(
        getattr(node, "variable", None) is leaf for node in nodes_below(seen.nodes)
    ):
        return None
    cls = seen.classes[0]
    at = backward_of(cls)
    backward: Any = registered_backward(cls) or cls.backward  # type: ignore[attr-defined]
    if (
        at is None
        or leaf is None
        or len(seen.nodes) != 1
        or not inspect.isfunction(inspect.unwrap(backward))
    ):
        return at
    # `needs_input_grad` has an entry for every argument, `next_functions` for tensors only
    node = seen.nodes[0]
    wanted = [place for place, needed in enumerate(node.needs_input_grad) if needed is True]
    edges = [following for following, _ in node.next_functions if following is not None]
    found = [
        place
        for place, edge in zip(wanted, edges, strict=False)
        if getattr(edge, "variable", None) is leaf
    ]
    if len(found) != 1 or len(wanted) != len(edges):
        return at
    return (
        _made(backward, at.line, found[0], len(node.needs_input_grad) - added_arguments(cls)) or at
    )


# ---- other methods
def forward_line(cls: type, argument: int | None = None) -> Place | None:
    """Return the place of the only line of `forward` that writes into the argument of this number
    (`ctx` not counted), otherwise of its definition. None where its source cannot be read, or
    `forward` is torch's own."""
    forward = getattr(cls, "forward", None)
    if forward is None or forward is torch.autograd.Function.forward:
        return None
    source = None if argument is None else source_of(forward)
    if source is not None and argument is not None:
        names = [each.arg for each in (*source.tree.args.posonlyargs, *source.tree.args.args)][
            _takes_ctx(cls) :
        ]
        changed = source.changes(names[argument]) if argument < len(names) else {}
        if list(changed.values()) == [False]:
            return source.place(next(iter(changed)))
    return place_of(forward)


def method_line(cls: type, method: str) -> Place | None:
    """Return the place of a Function's `jvp` or `vmap`, or of the method that saves for backward
    ("saving"): `setup_context`, otherwise `forward`. None where the class does not define it."""
    name = ("forward" if _takes_ctx(cls) else "setup_context") if method == "saving" else method
    found = getattr(cls, name, None)
    if found is None or found is getattr(torch.autograd.Function, name, None):
        return None
    return place_of(found)


def _takes_ctx(cls: Any) -> bool:
    return bool(cls.setup_context is torch.autograd.Function.setup_context)
