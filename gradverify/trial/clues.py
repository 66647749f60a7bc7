"""What the body of a forward says about its arguments: how many dimensions one has, whether it is an index, a count, a word."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gradverify.subject.definition import source_of

INDEXING = {"gather": 1, "index_select": 1, "scatter": 1, "scatter_": 1, "scatter_add": 1, "scatter_add_": 1, "index_add": 1, "index_add_": 1,
            "index_copy": 1, "index_copy_": 1, "index_fill": 1, "scatter_reduce": 1, "scatter_reduce_": 1, "take_along_dim": 0, "take": 0}
"""Methods, and where among their arguments the index stands; in `torch.gather(x, dim, index)` one further."""
INDEXED_BY = {"one_hot": 0, "embedding": 0, "bincount": 0, "nll_loss": 1, "cross_entropy": 1}      # functions, and the place of their indices
COUNTING = {"range", "arange", "zeros", "ones", "empty", "eye", "full", "repeat_interleave"}
RANKS = {"conv1d": 3, "conv2d": 4, "conv3d": 5, "conv_transpose2d": 4, "unfold": 4, "pixel_shuffle": 4, "grid_sample": 4, "max_pool2d": 4,
         "avg_pool2d": 4, "bmm": 3, "mm": 2, "addmm": 2}
"""Functions of torch, and the dimensions of what they take first (convolutions: and second)."""


@dataclass(slots=True)
class Clues:
    """Of one argument. `ranks`: numbers of dimensions that the code unpacks or asserts; `least`: what it indexes needs at least."""

    ranks: set[int] = field(default_factory=set)
    least: int = 0
    tensor: bool = False
    index: bool = False
    whole: bool = False
    truth: bool = False
    optional: bool = False
    called: bool = False
    sequence: bool = False
    words: list[str] = field(default_factory=list)


def clues_of(function: Callable[..., Any]) -> Mapping[str, Clues]:
    """By argument; empty where the source cannot be read."""
    source = source_of(function)
    if source is None:
        return {}
    tree = source.tree
    names = [each.arg for each in ast.walk(tree.args) if isinstance(each, ast.arg)]
    found = {name: Clues() for name in names}
    for node in ast.walk(tree):
        for name, apply in _told(node):
            if name in found:
                apply(found[name])
    return found


Told = tuple[str, Callable[[Clues], None]]


def _told(node: ast.AST) -> Iterator[Told]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id, _sets("tensor") if hasattr(Tensor, node.attr) else _nothing
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Assign):
        yield from _of_unpacking(node)
    elif isinstance(node, ast.Subscript):
        yield from _of_subscript(node)
    elif isinstance(node, ast.Compare):
        yield from _of_comparison(node)
    elif isinstance(node, ast.Assert):
        yield from _demanded(node.test, ast.Eq)
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        if isinstance(node, ast.If) and any(isinstance(line, ast.Raise) for line in node.body):
            yield from _demanded(node.test, ast.NotEq)
        yield from ((name, _sets("truth")) for name in _bare(node.test))
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield from ((name, _sets("sequence")) for name in _bare(node.iter))
    elif isinstance(node, ast.Starred):
        yield from ((name, _sets("sequence")) for name in _bare(node.value))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield from ((name, _sets("tensor")) for side in (node.left, node.right) for name in _bare(side))


def _sets(what: str) -> Callable[[Clues], None]:
    return lambda clues: setattr(clues, what, True)


def _nothing(clues: Clues) -> None:
    pass


def _at_least(rank: int) -> Callable[[Clues], None]:
    def apply(clues: Clues) -> None:
        clues.least, clues.tensor = max(clues.least, rank), True

    return apply


def _of_rank(rank: int) -> Callable[[Clues], None]:
    def apply(clues: Clues) -> None:
        clues.ranks.add(rank)
        clues.tensor = True

    return apply


def _bare(node: ast.AST) -> Iterator[str]:
    """The name, also below `not`, `and`, `or`."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _bare(node.operand)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _bare(value)


def _of_call(node: ast.Call) -> Iterator[Told]:
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    if isinstance(function, ast.Name):
        yield function.id, _sets("called")
    on_torch = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in ("torch", "F", "th")
    if called in INDEXING:
        place = INDEXING[called] + on_torch
        yield from ((name, _sets("index")) for given in node.args[place:place + 1] for name in _bare(given))
        yield from ((name, _sets("whole")) for given in node.args[place - 1:place] for name in _bare(given) if place > on_torch)
    if called in INDEXED_BY:
        raw = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "torch"
        place = INDEXED_BY[called] + (raw and called == "embedding")        # torch.embedding(weight, indices)
        yield from ((name, _sets("index")) for given in node.args[place:place + 1] for name in _bare(given))
    if called in COUNTING:
        yield from ((name, _sets("whole")) for given in node.args for name in _bare(given))
    if called in ("cat", "stack", "len"):
        yield from ((name, _sets("sequence")) for given in node.args[:1] for name in _bare(given) if called != "len")
    if called in RANKS and not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"):
        given = node.args[:2] if called.startswith("conv") or called in ("bmm", "mm") else node.args[:1]
        yield from ((name, _of_rank(RANKS[called])) for each in given for name in _bare(each))
    if called == "size" and isinstance(function, ast.Attribute) and node.args:
        yield from ((name, _at_least(needed)) for name in _bare(function.value) for needed in _needed(node.args[0]))


def _of_unpacking(node: ast.Assign) -> Iterator[Told]:
    """`b, c, h, w = x.shape`."""
    target = node.targets[0]
    name = _shape_of(node.value)
    if name is not None and isinstance(target, (ast.Tuple, ast.List)):
        starred = any(isinstance(each, ast.Starred) for each in target.elts)
        yield name, _at_least(len(target.elts) - 1) if starred else _of_rank(len(target.elts))


def _shape_of(node: ast.AST) -> str | None:
    """The name whose `.shape` or `.size()` it is."""
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "size") and isinstance(node.value, ast.Name):
        return node.value.id
    return None


def _needed(place: ast.AST) -> Iterator[int]:
    """The dimensions that there must be for one of this number."""
    try:
        number = ast.literal_eval(place)
    except (ValueError, TypeError, SyntaxError):
        return
    if isinstance(number, int):
        yield number + 1 if number >= 0 else -number


def _of_subscript(node: ast.Subscript) -> Iterator[Told]:
    name = _shape_of(node.value)
    if name is not None:
        yield from ((name, _at_least(needed)) for needed in _needed(node.slice))
        return
    places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    yield from ((each.id, _sets("index")) for each in places if isinstance(each, ast.Name))
    if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Tuple):
        whole = [each for each in node.slice.elts if not (isinstance(each, ast.Constant) and each.value in (None, Ellipsis))]
        yield node.value.id, _at_least(len(whole))


def _of_comparison(node: ast.Compare) -> Iterator[Told]:
    right = node.comparators[0]
    for name in _bare(node.left):
        if isinstance(right, ast.Constant) and right.value is None:
            yield name, _sets("optional")
        values = [right] if isinstance(right, ast.Constant) else right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else []
        words = [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if words:
            yield name, lambda clues, words=words: clues.words.extend(word for word in words if word not in clues.words)  # type: ignore[misc]


def _demanded(test: ast.expr, operator: type[ast.cmpop]) -> Iterator[Told]:
    """`assert x.dim() == 4`; `if x.dim() != 4: raise`."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], operator):
            name, right = _rank_asked(node.left), node.comparators[0]
            if name is not None and isinstance(right, ast.Constant) and isinstance(right.value, int):
                yield name, _of_rank(right.value)


def _rank_asked(node: ast.AST) -> str | None:
    """The name whose `.dim()` or `.ndim` it is, or the length of its shape."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
        return _shape_of(node.args[0])
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in ("dim", "ndim", "ndimension") and isinstance(node.value, ast.Name):
        return node.value.id
    return None
