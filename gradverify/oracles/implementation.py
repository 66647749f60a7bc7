"""Another implementation of the checked function (a reference, a surrogate), called with the same
arguments: how they reach it."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.draw import DTYPES
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.forms import compared, odd_kind
from gradverify.subject.machine import seeded
from gradverify.subject.modules import Held
from gradverify.subject.outputs import leaves as flattened
from gradverify.subject.outputs import names
from gradverify.subject.subject import (
    Cotangents,
    Gradients,
    Graph,
    Subject,
    as_leaves,
    pulled,
)
from gradverify.subject.target import Target, oracle_target

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Implementation:
    """What the spec names under `key`, as a function of the differentiable inputs of the check.
    Blamed under its own name.

    A function gets the inputs in their order, and a module's parameters by name (dots as
    underscores) or after the inputs. A module class is built with the check's `init`; it gets as
    parameters what has their names.
    """

    def __init__(self, subject: Subject, key: str, text: str, checked: Sequence[int]) -> None:
        self.name = f"{key} {text}"
        self._subject, self._checked = subject, tuple(checked)
        settings = subject.case.settings
        with seeded(settings.seed):
            self.target = oracle_target(
                text, key, subject.case.init, DTYPES[settings.dtype], torch.device(settings.device)
            )
        self._held = (
            Held(self.target.subject, parameters=True) if self.target.kind == "module" else Held()
        )

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._subject.inputs

    @cached_property
    def _here(self) -> Graph:
        return self._graph(as_leaves(self.inputs))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """At the point of the check. Raises UserCodeError (GV002) that names it."""
        return self._here.outputs

    def values(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Its outputs at the places of the checked ones (by name, where it names them alike).
        Raises UserCodeError (GV002) that names it."""
        return self._graph(inputs).outputs

    def vjp(self, cotangents: Cotangents, inputs: Sequence[Tensor] | None = None) -> Gradients:
        """By autograd, on a graph that stays, or on one at other inputs; None where there are none.
        Raises UserCodeError (GV003) that names it."""
        graph = self._here if inputs is None else self._graph(as_leaves(inputs))
        wanted = [
            (y, v)
            for y, v in zip(graph.outputs, cotangents, strict=True)
            if v is not None and y.requires_grad
        ]
        if not wanted:
            return (None,) * len(graph.leaves)
        with blamed("GV003", f"the backward of {self.name}"), self._held.lent(graph.lent):
            return pulled([y for y, _ in wanted], graph.leaves, [v for _, v in wanted])

    def _graph(self, leaves: Sequence[Tensor]) -> Graph:
        """Of one call. Raises UserCodeError (GV002)."""
        subject, own, lent = self._subject, dict[str, Any](), dict[str, Tensor]()
        moved = iter(leaves)
        copies = [
            next(moved).clone() if a.differentiable else a.value.clone() if a.is_tensor else a.value
            for a in subject.arguments
        ]
        (given, named), parameters = subject.arranged(copies), subject.parameters(copies)
        named = {**named, **subject.kwargs}
        subject.reseed()
        with blamed("GV002", self.name), torch.enable_grad():
            if self.target.kind == "module":
                given, named, lent = self._of_module(given, named, parameters)
            else:
                given, own = arranged(self.target, self.name, given, parameters)
            with self._held.lent(lent):
                returned = self.target.call(*given, **own, **named)
        outputs = [compared(y) for y in flattened(returned)]
        return Graph(tuple(leaves), (), lent, self._of_checked(outputs, names(returned)))

    def _of_module(
        self, given: list[Any], named: dict[str, Any], parameters: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], dict[str, Tensor]]:
        """What it is called with, and what stands in the place of its parameters and buffers
        meanwhile."""
        module = self.target.subject
        own = {name for name, _ in module.named_parameters()}
        if self._subject.target.kind == "module":
            if theirs := own - parameters.keys():
                raise UserCodeError(
                    "GV002",
                    f"{self.name} has the parameter {min(theirs)!r}, which the checked module "
                    "lacks",
                )
            if ours := parameters.keys() - own:
                raise UserCodeError(
                    "GV002",
                    f"{self.name} lacks the parameter {min(ours)!r} of the checked module",
                )
        else:
            positions = self._subject.positions
            whole = [members[0].whole for members in positions if not members[0].keyword]
            inputs = dict(zip(whole, given, strict=True))
            parameters = {name: value for name, value in {**inputs, **named}.items() if name in own}
            given = [value for name, value in inputs.items() if name not in own]
            named = {name: value for name, value in named.items() if name not in own}
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        return given, named, {**parameters, **buffers}

    def _of_checked(self, outputs: list[Any], named: Sequence[str]) -> tuple[Tensor, ...]:
        ours = self._subject.output_names
        if set(named) == set(ours):
            outputs = [outputs[named.index(name)] for name in ours]
        picked = [outputs[place] for place in self._checked if place < len(outputs)]
        if len(picked) < len(self._checked) or not all(isinstance(y, Tensor) for y in picked):
            count = "1 output" if len(outputs) == 1 else f"{len(outputs)} outputs"
            raise UserCodeError(
                "GV002",
                f"{self.name} returned {count}, but output {max(self._checked)} is to be compared",
            )
        for place, y in zip(self._checked, picked, strict=True):
            if found := odd_kind(y):
                raise UserCodeError(
                    "GV002",
                    f"{self.name} returned {found[0]} as its output {place}, whose elements "
                    "cannot be compared",
                    hint=f"in a function around it, {found[1]}",
                )
        return tuple(picked)


def arranged(
    target: Target,
    name: str,
    given: Sequence[Any],
    parameters: Mapping[str, Any],
    last: Sequence[Any] = (),
) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments: inputs, `last` after them, and a module's parameters where
    the signature has their names.

    Parameters whose names it lacks altogether stand between the two. Raises UserCodeError (GV002)
    where it has some of the names only.
    """
    own = {each.replace(".", "_"): value for each, value in parameters.items()}
    signature = target.parameters or ()
    known = {parameter.name for parameter in signature}
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature)
    if not (set(own) & known or (own and takes_all)):
        return [*given, *parameters.values(), *last], {}
    if not takes_all and set(own) - known:
        raise UserCodeError(
            "GV002", f"{name} takes no {min(set(own) - known)!r}, a parameter of the module"
        )
    queue, arguments = deque([*given, *last]), list[Any]()
    for parameter in signature:
        if parameter.kind not in POSITIONAL or not (parameter.name in own or queue):
            break
        arguments.append(own.pop(parameter.name) if parameter.name in own else queue.popleft())
    return [*arguments, *queue], own
