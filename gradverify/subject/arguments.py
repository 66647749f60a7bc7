"""What the function of a check is called with: tensors and plain values, those inside lists, dicts
and the like one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import Layout
from gradverify.subject.forms import Form


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """An argument that was taken apart: `built` puts its elements together to what the function
    takes."""

    name: str
    built: Callable[[Sequence[Any]], Any] = list


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument at the point of the check. Tensors are detached; `parameter`: it is a module's
    parameter; `keyword`: it is passed by name.

    `domain`: where the function is defined in it; `symmetric`: it is read as a symmetric
    (Hermitian) matrix. `layout`: how it lies in memory in every call (of an expanded one `value` is
    a contiguous copy, see `expanded`), None: as `value` does. `of`: the argument, a list of tensors
    or another container, that it is an element of. `form`: the function gets another kind of tensor
    with the numbers of `value` (a sparse one, say).
    """

    name: str
    value: Any
    differentiable: bool = False
    parameter: bool = False
    domain: tuple[float, float] | None = None
    symmetric: bool = False
    layout: Layout | None = "contiguous"
    of: Whole | None = None
    keyword: bool = False
    form: Form | None = None
    invented: bool = False

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, Tensor)

    @property
    def whole(self) -> str:
        """The name of what the function takes: itself, or what it is an element of."""
        return self.of.name if self.of else self.name


Members = tuple[Argument, ...]
"""What makes one argument of the function: itself, or its elements."""


def where_held(argument: Argument, gradient: Tensor) -> Tensor:
    """A dense gradient, with zeros where a sparse input holds nothing: what stands there does not
    count."""
    held = None if argument.form is None else argument.form.specified
    return (
        gradient
        if held is None
        else torch.where(held.to(device=gradient.device), gradient, torch.zeros_like(gradient))
    )


def specified(inputs: Sequence[Argument]) -> tuple[Tensor | None, ...]:
    """The elements that each of them has; None: every one."""
    return tuple(None if argument.form is None else argument.form.specified for argument in inputs)
