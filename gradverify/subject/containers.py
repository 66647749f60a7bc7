"""Values that hold tensors, taken apart: what is inside dicts, lists, tuples, namedtuples and dataclasses, and what lies deeper than that."""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.outputs import step
from gradverify.torch_private import pytree

Built = Callable[[Sequence[Any]], Any]
DEPTH = 6       # of objects inside objects that are looked through for tensors nobody can take out


@dataclass(frozen=True, slots=True)
class Apart:
    """A value taken apart. `elements`: by their path in it (`.h`, `[0]`), tensors and whatever holds none; `built` puts such elements together."""

    elements: tuple[tuple[str, Any], ...]
    built: Built


def taken_apart(value: Any) -> Apart | None:
    """None where the value is a tensor, or holds none that can be taken out."""
    return None if isinstance(value, Tensor) else _apart(value, ())


def _apart(value: Any, above: tuple[int, ...]) -> Apart | None:
    opened = None if id(value) in above else _opened(value)     # a list may hold itself
    if opened is None:
        return None
    parts = [_part(item, (*above, id(value))) for item in opened.values]
    if all(part is None for part in parts):
        return None
    elements: list[tuple[str, Any]] = []
    for path, item, part in zip(opened.paths, opened.values, parts, strict=True):
        inside = part.elements if part is not None else (("", item),)
        elements += [(f"{path}{deeper}", each) for deeper, each in inside]
    return Apart(tuple(elements), _together(opened.built, [part or _AS_IT_IS for part in parts]))


def _part(item: Any, above: tuple[int, ...]) -> Apart | None:
    return Apart((("", item),), _only) if isinstance(item, Tensor) else _apart(item, above)


def _only(values: Sequence[Any]) -> Any:
    return values[0]


_AS_IT_IS = Apart((("", None),), _only)


def _together(built: Built, parts: Sequence[Apart]) -> Built:
    def put_together(values: Sequence[Any]) -> Any:
        rest = iter(values)
        return built([part.built([next(rest) for _ in part.elements]) for part in parts])
    return put_together


# ---- one level
@dataclass(frozen=True, slots=True)
class _Opened:
    paths: tuple[str, ...]
    values: tuple[Any, ...]
    built: Built


def _opened(value: Any) -> _Opened | None:
    """What a container holds, not looking into that; None for what is no container."""
    if type(value) in pytree.SUPPORTED_NODES:
        return _of_pytree(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        return _Opened(tuple(f".{name}" for name in names), tuple(getattr(value, name) for name in names), _assigned(value, names))
    if isinstance(value, tuple) and hasattr(value, "_fields"):      # a namedtuple, and classes on top of one: PackedSequence
        return _Opened(tuple(f".{name}" for name in value._fields), tuple(value), type(value)._make)  # type: ignore[attr-defined]
    if isinstance(value, dict):     # and classes on top of it
        return _Opened(tuple(step(pytree.MappingKey(key)) for key in value), tuple(value.values()), _set(value, list(value)))
    if isinstance(value, list):
        return _Opened(tuple(f"[{place}]" for place in range(len(value))), tuple(value), _set(value, range(len(value))))
    return None


def _of_pytree(value: Any) -> _Opened:
    node = pytree.SUPPORTED_NODES[type(value)]
    if node.flatten_with_keys_fn is not None:
        keyed, context = node.flatten_with_keys_fn(value)
        paths, values = tuple(step(key) for key, _ in keyed), tuple(item for _, item in keyed)
    else:       # registered without saying what its paths are called
        flat, context = node.flatten_fn(value)
        paths, values = tuple(f"[{place}]" for place in range(len(flat))), tuple(flat)
    return _Opened(paths, values, lambda new: node.unflatten_fn(new, context))


def _assigned(value: Any, names: Sequence[str]) -> Built:
    """A copy with these attributes; frozen ones too, and nothing of `__init__` runs."""
    def built(new: Sequence[Any]) -> Any:
        other = copy.copy(value)
        for name, item in zip(names, new, strict=True):
            object.__setattr__(other, name, item)
        return other
    return built


def _set(value: Any, keys: Sequence[Any]) -> Built:
    def built(new: Sequence[Any]) -> Any:
        other = copy.copy(value)
        for key, item in zip(keys, new, strict=True):
            other[key] = item
        return other
    return built


# ---- what cannot be taken out
def out_of_reach(value: Any) -> bool:
    """Does an object that is no container hold floating or complex tensors? (A function: such that require a gradient.)"""
    return any(True for _ in _inside(value, 0, set()))


def _inside(value: Any, depth: int, seen: set[int]) -> Iterator[Tensor]:
    if depth > DEPTH or id(value) in seen or isinstance(value, (type, types.ModuleType, str, bytes, int, float, complex)):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif isinstance(value, torch.nn.Module):
        yield from (tensor for tensor in (*value.parameters(), *value.buffers()) if tensor.is_floating_point() or tensor.is_complex())
    elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        yield from (tensor for each in brought(value) for tensor in _inside(each, depth + 1, seen) if tensor.requires_grad)
    else:
        for each in _held(value):
            yield from _inside(each, depth + 1, seen)


def brought(function: Any) -> Iterator[Any]:
    """What a function brings with it: what it is bound to, its closure and its defaults, as they lie there."""
    if isinstance(function, functools.partial):
        yield from (function.func, *function.args, *function.keywords.values())
    elif isinstance(function, types.MethodType):
        yield from (function.__self__, function.__func__)
    else:
        for cell in function.__closure__ or ():
            with suppress(ValueError):      # not bound yet
                yield cell.cell_contents
        yield from function.__defaults__ or ()


def _held(value: Any) -> Iterator[Any]:
    """The items and attributes of an object, as they lie there: nothing of its own code runs."""
    if isinstance(value, dict):
        yield from dict.values(value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    yield from getattr(value, "__dict__", {}).values()
    for cls in type(value).__mro__:
        for member in vars(cls).values():
            if isinstance(member, types.MemberDescriptorType):      # a slot
                with suppress(AttributeError):
                    yield member.__get__(value)
