"""Tensors of modules that each call gets others in the place of: the parameters and buffers of a checked module, the buffers of those that a callable
reaches. They stand in the module while forward runs, and again while a backward of its graph runs, which may call the module once more."""

from __future__ import annotations

import functools
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from gradverify.torch_private import applied, buffers_of, parameters_of

DEPTH = 3       # functions that call functions


def reached(function: Any, *arguments: Any) -> tuple[nn.Module, ...]:
    """The modules that a function is given or holds: bound to it, in its closure, its defaults or a partial, or under a global name that its code
    uses; the same for functions of its own package that it calls so, and for the forward of an autograd Function."""
    seen = set[int]()
    return tuple(dict.fromkeys(module for value in (function, *arguments) for module in _modules(value, DEPTH, None, seen)))


def _modules(value: Any, depth: int, package: str | None, seen: set[int]) -> Iterator[nn.Module]:
    if isinstance(value, nn.Module):
        yield from value.modules()
        return
    value = applied(value) or value
    if not depth or id(value) in seen or not isinstance(value, functools.partial | MethodType | FunctionType | list | tuple | type):
        return
    seen.add(id(value))
    if isinstance(value, FunctionType):
        own = (value.__module__ or "").partition(".")[0]
        if own == torch.__name__ or (package is not None and own != package):
            return
        parts, package, depth = tuple(_held(value)), own, depth - 1
    else:
        parts = _parts(value)
    for part in parts:
        yield from _modules(part, depth, package, seen)


def _parts(value: Any) -> tuple[Any, ...]:
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, type):
        return (value.forward,) if issubclass(value, torch.autograd.Function) else ()
    return tuple(part for part in value if isinstance(part, nn.Module))


def _held(function: FunctionType) -> Iterator[Any]:
    """What a function's code can see by itself."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:      # not bound yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__)


class Held:
    """The places of tensors in modules. A tensor that lies in several of them has one key."""

    def __init__(self, *modules: nn.Module, parameters: bool = False) -> None:
        """Of these modules themselves and, of a checked module with its `parameters`, of all that are in it: the keys are its dotted names then."""
        named = [*modules[0].named_modules()] if parameters else [(str(number), module) for number, module in enumerate(modules)]
        keys = dict[int, str]()
        self._places = list[tuple[MutableMapping[str, Any], str, str]]()
        for prefix, module in named:
            for table in (parameters_of(module), buffers_of(module)) if parameters else (buffers_of(module),):
                for name, tensor in table.items():
                    if tensor is not None:
                        key = keys.setdefault(id(tensor), f"{prefix}.{name}" if prefix else name)
                        self._places.append((table, name, key))

    def __bool__(self) -> bool:
        return bool(self._places)

    def clones(self) -> dict[str, Tensor]:
        """Of what is there."""
        found = dict[str, Tensor]()
        for table, name, key in self._places:
            if key not in found:
                found[key] = table[name].clone()
        return found

    @contextmanager
    def lent(self, values: dict[str, Tensor]) -> Iterator[None]:
        """Inside, the modules have these values; afterwards their own again, and `values` holds what stood there in the end."""
        places = [place for place in self._places if place[2] in values]
        kept = [_entry(table, name) for table, name, _ in places]
        for table, name, key in places:
            table[name] = values[key]
        try:
            yield
        finally:
            for (table, name, key), own in zip(places, kept, strict=True):
                if (last := _entry(table, name)) is not None:
                    values[key] = last
                table[name] = own


def _entry(table: MutableMapping[str, Any], name: str) -> Any:
    """`table.get(name)`, which the tables of a jitted module do not have."""
    with suppress(KeyError):
        return table[name]
    return None
