"""Detection of replaced calls into autograd and operators of tensors, on which every measurement
depends, and of replaced parts of gradverify itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any

import torch

CALLS = (
    (torch.autograd, "torch.autograd", ("grad", "backward")),
    (torch.autograd.Function, "torch.autograd.Function", ("apply",)),
)
_CODE = compile("", "", "exec")
TORCH = str(Path(torch.__file__).parent)


def replaced() -> tuple[str, ...]:
    """Return those that have changed since gradverify was imported, as texts such as `replaced
    torch.Tensor.__mul__`."""
    now = dict(_instruments())
    return tuple(
        f"{'replaced' if name in now else 'removed'} {name}"
        for name, before in AT_FIRST.items()
        # Torch itself wraps some when its compiler is imported, which is not reported
        if (found := now.get(name)) is not before
        and not (
            getattr(found, "__wrapped__", None) is before
            and getattr(found, "__code__", _CODE).co_filename.startswith(TORCH)
        )
    )


def _instruments() -> Iterator[tuple[str, Any]]:
    for owner, words, names in (*CALLS, (torch.Tensor, "torch.Tensor", OPERATORS)):
        for name in names:
            found = inspect.getattr_static(owner, name, None)
            if found is not None:
                yield f"{words}.{name}", found


OPERATORS = tuple(
    name
    for name in dir(torch.Tensor)
    if name == "backward" or (name[:2] == "__" and callable(getattr(torch.Tensor, name)))
)
AT_FIRST: Mapping[str, Any] = MappingProxyType(dict(_instruments()))
"""The originals, recorded before any user code is imported (in a process of ours)."""


# ---- Parts of gradverify itself
Parts = Mapping[str, tuple[Any, ...]]


def own_parts() -> Parts:
    """Return what the names in gradverify's modules and classes stand for, and the code and the
    defaults of functions."""
    found = dict[str, tuple[Any, ...]]()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "gradverify":
            continue
        found[name] = (module,)
        for key, value in list(vars(module).items()):
            if key.startswith("__"):
                continue
            found[f"{name}.{key}"] = _part(value)
            if isinstance(value, type) and value.__module__ == name:
                for part, each in list(vars(value).items()):
                    own = getattr(each, "__func__", each)
                    if isinstance(own, FunctionType | property):
                        found[f"{name}.{key}.{part}"] = _part(own)
    return found


def _part(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, FunctionType):
        return (value,)
    named = value.__kwdefaults__ or {}
    return value, value.__code__, *(value.__defaults__ or ()), *named, *named.values()


def parts_of(objects: Mapping[str, Any]) -> Parts:
    """Return the same of those of these objects that are functions, by name."""
    found = {name: getattr(value, "__func__", value) for name, value in objects.items()}
    return {name: _part(own) for name, own in found.items() if isinstance(own, FunctionType)}


def changed_parts(before: Parts, now: Parts) -> tuple[str, ...]:
    """Return those of `before` that have changed since, as texts such as `replaced
    gradverify.verify.verify`."""
    return tuple(
        f"{'replaced' if name in now else 'removed'} {name}"
        for name, parts in before.items()
        if len(found := now.get(name, ())) != len(parts)
        or any(a is not b for a, b in zip(found, parts, strict=True))
    )
