"""Detection of replaced calls into autograd and operators of tensors, on which every measurement
depends."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
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
