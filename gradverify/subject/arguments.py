"""What the function of a check is called with: tensors and plain values, those inside lists, dicts and the like one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import Layout
from gradverify.subject.forms import Form
from gradverify.subject.layout import LAID


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """An argument that was taken apart: `built` puts its elements together to what the function takes."""

    name: str
    built: Callable[[Sequence[Any]], Any] = list


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument at the point of the check. Tensors are detached; `parameter`: it is a module's parameter; `keyword`: it is passed by name.

    `domain`: where the function is defined in it; `symmetric`: it is read as a symmetric (Hermitian) matrix. `layout`: how it lies in memory in
    every call (of an expanded one `value` is a contiguous copy, see `expanded`), None: as `value` does. `of`: the argument, a list of tensors
    or another container, that it is an element of. `form`: the function gets another kind of tensor with the numbers of `value` (a sparse one, say).
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


def together(arguments: Sequence[Argument]) -> tuple[Members, ...]:
    """The arguments as the function takes them, elements of one beside each other."""
    grouped = groupby(enumerate(arguments), key=lambda each: each[1].of.name if each[1].of else each[0])
    return tuple(tuple(argument for _, argument in members) for _, members in grouped)


def value_of(members: Members, values: Sequence[Any]) -> Any:
    """One argument of the function, from the values of its members."""
    values = [member.form.built(value) if member.form is not None and isinstance(value, Tensor) else value      # an array stays dense
              for member, value in zip(members, values, strict=True)]
    whole = members[0].of
    return whole.built(values) if whole else values[0]


def where_held(argument: Argument, gradient: Tensor) -> Tensor:
    """A dense gradient, with zeros where a sparse input holds nothing: what stands there does not count."""
    held = None if argument.form is None else argument.form.specified
    return gradient if held is None else torch.where(held.to(device=gradient.device), gradient, torch.zeros_like(gradient))


def specified(inputs: Sequence[Argument]) -> tuple[Tensor | None, ...]:
    """The elements that each of them has; None: every one."""
    return tuple(None if argument.form is None else argument.form.specified for argument in inputs)


def sharing(arguments: Sequence[Argument]) -> list[Argument]:
    """With one form for all jagged inputs that have the same lengths: torch adds only tensors that share their offsets, as those of one model do."""
    shared: dict[tuple[int, ...], Form] = {}
    return [replace(each, form=shared.setdefault(each.form.lengths, each.form)) if each.form and each.form.lengths else each for each in arguments]


def as_it_is(members: Members) -> bool:
    """Is it one differentiable input that is handed over by position as it lies?"""
    first = members[0]
    return first.differentiable and not first.parameter and not first.keyword and not first.of and not first.form and first.layout in LAID
