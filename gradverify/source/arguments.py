"""The arguments of a forward, and for which of them the source of its backward gives no gradient."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gradverify.source.modules import Definition

PLAIN = {"int", "float", "bool", "str", "complex", "None"}
MOST = 64       # of `(None,) * n` that is written out


@dataclass(frozen=True, slots=True)
class Argument:
    """`annotation` and `default` as they are written; `no_gradient`: the line on which backward returns None for it, always."""

    name: str
    annotation: str | None = None
    default: str | None = None
    kind: Literal["positional", "variadic", "keyword"] = "positional"
    no_gradient: int | None = None

    @property
    def may_have_gradient(self) -> bool:
        """Not where backward says None, the annotation a plain type, or the default is a number, word or truth value."""
        if self.no_gradient is not None:
            return False
        plain = {part.strip() for part in (self.annotation or "").replace("Optional[", "").replace("]", "").split("|")}
        return not (self.annotation and plain <= PLAIN) and self.default in (None, "None")


def arguments_of(function: Definition, skipped: int) -> tuple[Argument, ...]:
    """Of a function definition, without the first `skipped` (`ctx`)."""
    if isinstance(function, ast.ClassDef):
        return ()
    taken = function.args
    positional = [*taken.posonlyargs, *taken.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(taken.defaults)) + list(taken.defaults)
    found = [_argument(each, default) for each, default in zip(positional, defaults, strict=True)][skipped:]
    if taken.vararg is not None:
        found.append(Argument(taken.vararg.arg, _text(taken.vararg.annotation), kind="variadic"))
    keywords = [replace(_argument(each, default), kind="keyword") for each, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)]
    return (*found, *keywords)


def _argument(each: ast.arg, default: ast.expr | None) -> Argument:
    return Argument(each.arg, _text(each.annotation), None if default is None else ast.unparse(default))


def _text(node: ast.expr | None) -> str | None:
    if node is None:
        return None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def without_gradient(arguments: Sequence[Argument], backward: Definition) -> tuple[Argument, ...]:
    """With the line on which backward returns None for each, where every one of its `return`s does."""
    returned = [(statement.lineno, _elements(statement.value, _always_none(backward))) for statement in _returns(backward)]
    if not returned or any(elements is None for _, elements in returned):
        return tuple(arguments)
    marked = []
    for place, argument in enumerate(arguments):
        variadic = argument.kind == "variadic" or any(before.kind == "variadic" for before in arguments[:place])
        nothing = not variadic and all(elements is not None and place < len(elements) and elements[place] for _, elements in returned)
        marked.append(replace(argument, no_gradient=returned[-1][0]) if nothing else argument)
    return tuple(marked)


def _returns(function: Definition) -> Iterator[ast.Return]:
    """Its own, not those of functions inside it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Return):
            yield node
        elif not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending += list(ast.iter_child_nodes(node))


def _elements(value: ast.expr | None, names: frozenset[str]) -> list[bool] | None:
    """For each element of what is returned: is it the word None? None where their number cannot be told."""
    if isinstance(value, (ast.Tuple, ast.List)):
        parts = [_elements(each.value, names) if isinstance(each, ast.Starred) else [_is_none(each, names)] for each in value.elts]
        return None if any(part is None for part in parts) else [each for part in parts for each in part or ()]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _elements(value.left, names), _elements(value.right, names)
        return left + right if left is not None and right is not None and _is_sequence(value.left) and _is_sequence(value.right) else [False]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and _is_sequence(value.left):
        times, inner = value.right, _elements(value.left, names)
        count = times.value if isinstance(times, ast.Constant) and isinstance(times.value, int) else None
        return inner * count if inner is not None and count is not None and 0 <= count <= MOST else None
    return [value is None or _is_none(value, names)]


def _is_sequence(value: ast.expr) -> bool:
    return isinstance(value, (ast.Tuple, ast.List)) or (isinstance(value, ast.BinOp) and _is_sequence(value.left))


def _is_none(value: ast.expr, names: frozenset[str]) -> bool:
    return (isinstance(value, ast.Constant) and value.value is None) or (isinstance(value, ast.Name) and value.id in names)


def _always_none(function: Definition) -> frozenset[str]:
    """The names that are assigned nothing but None."""
    stored = [node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    nothing = [target.id for node in ast.walk(function) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
               and node.value.value is None for target in node.targets if isinstance(target, ast.Name)]
    return frozenset(name for name in nothing if stored.count(name) == nothing.count(name))
