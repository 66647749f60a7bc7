"""What a function returns, flattened: tensors in a row, each named by its path in a dict,
dataclass, namedtuple, list or tuple."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from gradverify.torch_private import pytree

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
