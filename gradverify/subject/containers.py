"""Values that hold tensors, taken apart: what is inside dicts, lists, tuples, namedtuples and
dataclasses, and what lies deeper than that."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gradverify.torch_private import pytree

Built = Callable[[Sequence[Any]], Any]
DEPTH = 6  # of objects inside objects that are looked through for tensors nobody can take out


@dataclass(frozen=True, slots=True)
class Apart:
    """A value taken apart. `elements`: by their path in it (`.h`, `[0]`), tensors and whatever
    holds none; `built` puts such elements together."""

    elements: tuple[tuple[str, Any], ...]
    built: Built

    def of(self, change: Callable[[str, Any], Any]) -> Apart:
        """The same with what `change` makes of each path and element."""
        return Apart(tuple((path, change(path, each)) for path, each in self.elements), self.built)


def taken_apart(value: Any) -> Apart | None:
    """None where the value is a tensor, or holds none that can be taken out."""
    return None if isinstance(value, Tensor) else _apart(value, ())


def _apart(value: Any, above: tuple[int, ...]) -> Apart | None:
    if isinstance(value, Tensor):
        return Apart((("", value),), _FIRST)
    opened = None if id(value) in above else _opened(value)  # a list may hold itself
    if opened is None:
        return None
    keyed, built = opened
    found = [_apart(item, (*above, id(value))) for _, item in keyed]
    if not any(found):
        return None
    parts = [
        part or Apart((("", item),), _FIRST) for part, (_, item) in zip(found, keyed, strict=True)
    ]

    def put_together(values: Sequence[Any]) -> Any:
        rest = iter(values)
        return built([part.built([next(rest) for _ in part.elements]) for part in parts])

    elements = (
        (f"{path}{deeper}", each)
        for (path, _), part in zip(keyed, parts, strict=True)
        for deeper, each in part.elements
    )
    return Apart(tuple(elements), put_together)


_FIRST = operator.itemgetter(0)


def _opened(value: Any) -> tuple[list[tuple[str, Any]], Built] | None:
    """What a container holds, not looking into that, and how it is put together; None for what is
    no container."""
    if type(value) in pytree.SUPPORTED_NODES:
        node = pytree.SUPPORTED_NODES[type(value)]
        flat, context = node.flatten_fn(value)
        keys = node.flatten_with_keys_fn and [
            step(key) for key, _ in node.flatten_with_keys_fn(value)[0]
        ]
        # registered without saying what its paths are called: by place
        return list(
            zip(keys or map("[{}]".format, range(len(flat))), flat, strict=True)
        ), lambda new: node.unflatten_fn(new, context)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        # frozen ones too, and nothing of `__init__` runs
        return [(f".{name}", getattr(value, name)) for name in names], functools.partial(
            _copied, value, object.__setattr__, names
        )
    # A namedtuple, and classes on top of one: PackedSequence
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", item) for name, item in zip(value._fields, value, strict=True)], type(
            value
        )._make  # type: ignore[attr-defined]
    if isinstance(value, dict | list):  # and classes on top of them
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        built = functools.partial(_copied, value, operator.setitem, [key for key, _ in items])
        return [(step(pytree.MappingKey(key)), item) for key, item in items], built
    return None


def _copied(
    value: Any, write: Callable[[Any, Any, Any], None], keys: Sequence[Any], new: Sequence[Any]
) -> Any:
    """A copy that holds other items."""
    other = copy.copy(value)
    for key, item in zip(keys, new, strict=True):
        write(other, key, item)
    return other


# ---- what cannot be taken out
def out_of_reach(value: Any) -> bool:
    """Does an object that is no container hold floating or complex tensors? (A function: such that
    require a gradient.)"""
    return any(True for _ in _inside(value, 0, set()))


def _inside(value: Any, depth: int, seen: set[int]) -> Iterator[Tensor]:
    if (
        depth > DEPTH
        or id(value) in seen
        or isinstance(value, (type, types.ModuleType, str, bytes, int, float, complex))
    ):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        yield from (
            tensor
            for each in brought(value)
            for tensor in _inside(each, depth + 1, seen)
            if tensor.requires_grad
        )
    else:
        # Items and attributes, as they lie there: nothing of its own code runs
        for each in gc.get_referents(value):
            yield from _inside(each, depth + 1, seen)


def brought(function: Any) -> Iterator[Any]:
    """What a function brings with it: what it is bound to, its closure and its defaults, as they
    lie there."""
    if isinstance(function, functools.partial):
        yield from (function.func, *function.args, *function.keywords.values())
    elif isinstance(function, types.MethodType):
        yield from (function.__self__, function.__func__)
    else:
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # not bound yet
                yield cell.cell_contents
        yield from function.__defaults__ or ()


# ---- What a function returns, flattened: tensors in a row, each named by its path in a dict,
# dataclass, namedtuple, list or tuple
ROOT = "y"


def leaves(returned: Any) -> list[Any]:
    """All leaves, None among them, in order. A dataclass counts as its fields, whether or not it is
    registered with pytree."""
    if isinstance(returned, Tensor):
        return [returned]
    flat: list[Any] = []
    for leaf in pytree.tree_leaves(returned, is_leaf=_is_leaf):
        flat += leaves(_fields(leaf)) if _is_dataclass(leaf) else [leaf]
    return flat


def names(returned: Any) -> tuple[str, ...]:
    """A name for each leaf: `y0`, `y1` of a plain sequence (or one tensor), else its path:
    `y.loss`, `y.states[0]`, `y1[0]`."""
    try:
        return tuple(_named(path) for path in _paths(returned))
    # A type that its owner registered with pytree without saying what the paths are called
    except ValueError:
        return tuple(f"{ROOT}{place}" for place in range(len(leaves(returned))))


def _paths(returned: Any) -> Iterator[tuple[str, ...]]:
    keyed, _ = pytree.tree_flatten_with_path(returned, is_leaf=_is_leaf)
    for path, leaf in keyed:
        own = tuple(step(key, depth == 0) for depth, key in enumerate(path))
        if _is_dataclass(leaf):
            yield from ((*own, *rest) for rest in _paths(_fields(leaf)))
        else:
            yield own


def step(key: Any, bare: bool = False) -> str:
    """`.name` of a field or key, `[0]` of a place in a sequence, `bare` for `y0` where it comes
    first."""
    if isinstance(key, pytree.SequenceKey):
        return str(key.idx) if bare else f"[{key.idx}]"
    if isinstance(key, pytree.GetAttrKey):
        return f".{key.name}"
    word = key.key if isinstance(key, pytree.MappingKey) else key
    return f".{word}" if isinstance(word, str) and word.isidentifier() else f"[{word!r}]"


def _named(path: tuple[str, ...]) -> str:
    return ROOT + ("".join(path) or "0")


def _is_leaf(value: Any) -> bool:
    return value is None or _is_dataclass(value)


def _is_dataclass(value: Any) -> bool:
    """A dataclass that pytree does not know (one that it knows is taken apart as it was
    registered)."""
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and type(value) not in pytree.SUPPORTED_NODES
    )


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
