"""The buffers of modules that a callable reaches: lent to each of its calls as clones, as those of a checked module are, so that all start alike."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from gradverify.torch_private import applied, buffers_of

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
    """The buffers of modules."""

    def __init__(self, modules: tuple[nn.Module, ...]) -> None:
        self._places = [(module, name) for module in modules for name, buffer in buffers_of(module).items() if buffer is not None]

    def __bool__(self) -> bool:
        return bool(self._places)

    def names(self) -> list[str]:
        return [f"{number}.{name}" for number, (_, name) in enumerate(self._places)]

    def clones(self) -> dict[str, Tensor]:
        """Of the buffers as they are; one that several modules share is one clone."""
        own: dict[int, Tensor] = {}
        found = [buffers_of(module)[name] for module, name in self._places]
        return {key: own.setdefault(id(buffer), buffer.clone()) for key, buffer in zip(self.names(), found, strict=True) if buffer is not None}

    @contextmanager
    def lent(self, buffers: Mapping[str, Tensor]) -> Iterator[None]:
        """Inside, the modules have these buffers; afterwards their own again."""
        kept = [buffers_of(module)[name] for module, name in self._places]
        try:
            for (module, name), key in zip(self._places, self.names(), strict=True):
                buffers_of(module)[name] = buffers[key]
            yield
        finally:
            for (module, name), buffer in zip(self._places, kept, strict=True):
                buffers_of(module)[name] = buffer
