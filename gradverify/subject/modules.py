"""Modules: cast to the check's precision, with hooks of parameters, tensors replaced during a call,
and buffers at a fixed point."""

from __future__ import annotations

import copy
import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from gradverify.subject.forms import referenced
from gradverify.subject.snapshot import alike, same
from gradverify.torch_private import (
    TENSOR_HOOKS,
    applied,
    buffers_of,
    convert,
    hooks_after_accumulation,
    hooks_on_gradient,
    parameters_of,
)

# ---- A module in the check's precision, with the hooks of its parameters
Hooks = tuple[Callable[..., Any], ...]


def cast(module: torch.nn.Module, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
    """Cast a module's floating and complex parameters and buffers in place to the precision of
    `dtype`, move all to `device`, and return the module.

    Complex tensors stay complex. A complex `dtype` makes real ones complex too, unless the module
    has complex ones already, and so distinguishes the two.
    """
    mixed = any(tensor.is_complex() for tensor in chain(module.parameters(), module.buffers()))
    real = dtype.to_real() if mixed else dtype

    def moved(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.to(device=device, dtype=dtype.to_complex())
        return tensor.to(device=device, dtype=real if tensor.is_floating_point() else tensor.dtype)

    convert(module, moved)
    return module


# ---- hooks on parameters
def copied(module: torch.nn.Module) -> torch.nn.Module:
    """Return a deep copy of a module, including the hooks of its parameters, which `copy.deepcopy`
    does not copy. Raises what copying raises."""
    memo: dict[int, Any] = {}
    other = copy.deepcopy(module, memo)
    for old, new in zip(module.parameters(), other.parameters(), strict=True):
        # The parameters of a jitted module are copied as an operation of autograd
        if not new.is_leaf:
            new.detach_().requires_grad_(old.requires_grad)
        for kind in TENSOR_HOOKS:
            hooks = getattr(old, kind, None)
            if hooks and new.requires_grad:
                # A hook that is a method of the module is bound to the copy; others are shared
                own = OrderedDict(hooks)
                for key, hook in hooks.items():
                    if inspect.ismethod(hook) and id(hook.__self__) in memo:
                        own[key] = copy.deepcopy(hook, memo)
                setattr(new, kind, own)
    return other


def hooks_of(module: torch.nn.Module) -> dict[str, Hooks]:
    """Return the hooks on the gradient of each parameter that has any
    (`Tensor.register_hook`)."""
    return {
        name: hooks
        for name, value in module.named_parameters()
        if (hooks := hooks_on_gradient(value))
    }


def hooked(values: Mapping[str, Any], hooks: Mapping[str, Hooks]) -> dict[str, Any]:
    """Return the values that replace a module's parameters, with the hooks of these: on views, so
    that a value that replaces two parameters has every hook once."""
    lent = dict(values)
    for name in lent.keys() & hooks.keys():
        if values[name].requires_grad:
            lent[name] = values[name].view_as(values[name])
            for hook in hooks[name]:
                lent[name].register_hook(hook)
    return lent


def after_accumulation(module: torch.nn.Module) -> tuple[str, ...]:
    """Return the names of parameters with hooks that run after `.grad` is written
    (`register_post_accumulate_grad_hook`)."""
    return tuple(
        name for name, value in module.named_parameters() if hooks_after_accumulation(value)
    )


# ---- Tensors of modules that are replaced in each call: the parameters and buffers of a checked
# module, the buffers of modules that a callable reaches
DEPTH = 3  # of functions that call functions


def reached(function: Any, *arguments: Any) -> tuple[nn.Module, ...]:
    """Return the modules that a function gets or refers to: as its `self`, in its closure, its
    defaults or a partial, or by a global name in its code; likewise for functions of its own
    package that it refers to, and for the forward of an autograd Function."""
    seen = set[int]()
    return tuple(
        dict.fromkeys(
            module
            for value in (function, *arguments)
            for module in _modules(value, DEPTH, None, seen)
        )
    )


def _modules(value: Any, depth: int, package: str | None, seen: set[int]) -> Iterator[nn.Module]:
    if isinstance(value, nn.Module):
        yield from value.modules()
        return
    value = applied(value) or value
    if (
        not depth
        or id(value) in seen
        or not isinstance(
            value, functools.partial | MethodType | FunctionType | list | tuple | type
        )
    ):
        return
    seen.add(id(value))
    parts: tuple[Any, ...]
    if isinstance(value, FunctionType):
        own = (value.__module__ or "").partition(".")[0]
        if own == torch.__name__ or (package is not None and own != package):
            return
        globals_ = (
            value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__
        )
        parts, package, depth = (*referenced(value), *globals_), own, depth - 1
    elif isinstance(value, type):
        parts = (value.forward,) if issubclass(value, torch.autograd.Function) else ()
    else:
        parts = (
            tuple(part for part in value if isinstance(part, nn.Module))
            if isinstance(value, list | tuple)
            else tuple(referenced(value))
        )
    for part in parts:
        yield from _modules(part, depth, package, seen)


class Held:
    """The tensors of modules, by place. A tensor in several places has one key."""

    def __init__(self, *modules: nn.Module, parameters: bool = False) -> None:
        """Hold the buffers of these modules; with `parameters`, the parameters and buffers of the
        first module and all its submodules, with dotted names as keys."""
        named = modules[0].named_modules() if parameters else enumerate(modules)
        kinds = (parameters_of, buffers_of) if parameters else (buffers_of,)
        keys = dict[int, str]()
        self._places = list[tuple[MutableMapping[str, Any], str, str]]()
        for prefix, module in named:
            for table in (kind(module) for kind in kinds):
                for name, tensor in table.items():
                    if tensor is not None:
                        key = keys.setdefault(id(tensor), f"{prefix}.{name}".removeprefix("."))
                        self._places.append((table, name, key))

    def __bool__(self) -> bool:
        return bool(self._places)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The current tensors by key."""
        return {key: table[name] for table, name, key in self._places}

    @contextmanager
    def lent(self, values: dict[str, Tensor]) -> Iterator[None]:
        """Context in which the modules have these values. Afterwards they have their own again, and
        `values` holds the tensors that were in the modules at the end."""
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
    """Return `table.get(name)`, which the tables of a jitted module do not support."""
    with suppress(KeyError):
        return table[name]
    return None


# ---- Fixed points of the buffers of a module in training that its forward updates and reads, as in
# the power iteration of spectral norm

# Calls: measured, a power iteration takes 70 with singular values 10 % apart, 350 with 2 %, 460
# with 1.5 %
MOST = 512
EARLY = (
    32  # calls by which changes have become smaller if there is a fixed point (not for counters)
)
NEARER = 0.9
# Change of the outputs per call below which they may still converge (with singular values closer
# than 1 %)
SLOWLY = 2.0**-7
# Further calls once the outputs are constant, or as many as that took: the error of the buffers is
# the square root of the outputs' error
LEAST = 8
OFF = 2.0**-7  # of a number: far above rounding, small enough to stay in the domain
STILL = 4  # roundings by which the largest element of a constant output may move

State = dict[str, Tensor]


class Restless(Exception):  # noqa: N818 - no fault of anybody's
    """The buffers converge to a fixed point, but too slowly to be iterated to it."""


def at_rest(
    forward: Callable[[State], tuple[Sequence[Tensor], State]], start: State
) -> State | None:
    """Return the fixed point of the buffers, starting at `start`; None where forward does not
    change them, where they do not affect its outputs, or where there is no fixed point.

    `forward`: returns the outputs for given buffers, and the updated buffers. Raises Restless, and
    errors of forward.
    """
    last, after = forward(start)
    if all(same(buffer, start[name]) for name, buffer in after.items()):
        return None
    # Every second number is perturbed
    off = dict(after)
    for name, x in after.items():
        if x.is_floating_point() or x.is_complex():
            second = torch.arange(x.numel(), device=x.device).reshape(x.shape) % 2
            off[name] = x * (1 + OFF * second)
    if alike(last, forward(off)[0]):  # forward does not read them (batch statistics)
        return None
    first = moved = 0.0
    for call in range(1, MOST):
        now, after = forward(after)
        moved = max(
            (float((a - b).abs().max()) for a, b in zip(last, now, strict=True) if a.numel()),
            default=0.0,
        )
        if all(
            not b.numel()
            or same(a, b)
            or float((b - a).abs().max()) <= STILL * torch.finfo(b.dtype).eps * float(b.abs().max())
            for a, b in zip(last, now, strict=True)
        ):
            for _ in range(max(call, LEAST)):
                _, after = forward(after)
            return after
        first, last = first or moved, now
        if call == EARLY and not moved <= NEARER * first:
            break
    if 0 < moved <= SLOWLY * max((float(y.abs().max()) for y in last if y.numel()), default=0.0):
        raise Restless  # may still converge
    return None
