"""Plain arguments that choose between ways to compute (a flag, an axis, a reduction, a stride), with another choice in their place: for a backward
that is written for one of them only.

One argument at a time, of each one other value that its name or type allows whatever the sizes are: an axis that all tensors have, the other truth
value. Sizes, counts and indices are not varied: native code may read beyond the tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.plain import Numbers
from gradverify.subject.subject import Subject
from gradverify.torch_private import function_class

AXES = ("dim", "axis")
STRIDES = ("stride", "dilation", "diagonal", "shift", "shifts", "step", "padding")      # one more is as good
WORDS = MappingProxyType({"mean": "sum", "sum": "mean", "none": "sum"})
MOST = 4        # arguments that are varied
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True, slots=True)
class Choice:
    """A call with one other choice. `flag`: of a truth value."""

    numbers: Numbers
    flag: bool


def other_choices(subject: Subject) -> Iterator[Choice]:
    """The arguments of the check, one of them with another choice, at most MOST."""
    given = {a.name: a.value for a in subject.arguments if not a.is_tensor} | subject.kwargs
    found = [(name, value, other) for name, value in given.items() if (other := _other(subject, name, value)) is not None]
    for name, value, other in found[:MOST]:
        arguments = tuple(replace(a, value=other) if a.name == name and not a.is_tensor else a for a in subject.arguments)
        kwargs = {each: other if each == name else own for each, own in subject.kwargs.items()}
        words = {name: f"{name} = {other!r} instead of {value!r}"}
        yield Choice(Numbers(arguments, kwargs, subject.target, words), type(value) is bool)


def traces(nodes: Sequence[Any]) -> list[tuple[type, dict[str, Any]]] | None:
    """What each Function keeps on its ctx but tensors, by which backward can tell one call from another; None where that cannot be seen."""
    owners = [cls for node in nodes if (cls := function_class(node)) is not None]
    if len(owners) < len(nodes):
        return None
    kept = [(cls, {name: value for name, value in vars(node).items() if not isinstance(value, Tensor)})
            for cls, node in zip(owners, nodes, strict=True)]
    return kept if all(map(_is_plain, (value for _, values in kept for value in values.values()))) else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return isinstance(value, PLAIN)


def _other(subject: Subject, name: str, value: Any) -> Any:
    """Another value; None where there is none."""
    if type(value) is bool:
        return not value
    if type(value) is str:
        return WORDS.get(value)
    if type(value) is not int:
        return None
    if name in AXES:
        dims = min((a.value.dim() for a in subject.arguments if a.is_tensor and a.value.dim()), default=0)
        here = value % dims if dims else 0
        return None if dims < 2 else 0 if here else dims - 1
    return value + 1 if name in STRIDES else None
