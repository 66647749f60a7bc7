"""Another implementation of the checked function (a reference, a surrogate), called with the same
arguments: how they reach it."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradverify.subject.draw import DTYPES
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.forms import compared, odd_kind
from gradverify.subject.machine import seeded
from gradverify.subject.modules import Held
from gradverify.subject.outputs import leaves, names
from gradverify.subject.subject import Gradients, Subject, pulled
from gradverify.subject.target import Target, oracle_target

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Graph(NamedTuple):
    """Outputs and the leaves they were computed from; and what stood in the place of a module's
    parameters and buffers."""

    leaves: list[Tensor]
    outputs: list[Tensor]
    lent: dict[str, Tensor]


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
        return self.graph(self.inputs)

    @property
    def outputs(self) -> list[Tensor]:
        """At the point of the check. Raises UserCodeError (GV002) that names it."""
        return self._here.outputs

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Its outputs at the places of the checked ones (by name, where it names them alike).
        Raises UserCodeError (GV002) that names it."""
        return self._outputs(inputs)[0]

    def vjp(self, cotangents: Sequence[Tensor | None]) -> Gradients:
        """By autograd, on a graph that stays; None where there are none. Raises UserCodeError
        (GV003) that names it."""
        return self.gradients(self._here, cotangents)

    def vjp_at(self, inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> Gradients:
        """The same at other inputs."""
        return self.gradients(self.graph(inputs), cotangents)

    def gradients(self, graph: Graph, cotangents: Sequence[Tensor | None]) -> Gradients:
        """Raises UserCodeError (GV003) that names it."""
        wanted = [
            (y, v)
            for y, v in zip(graph.outputs, cotangents, strict=True)
            if v is not None and y.requires_grad
        ]
        if not wanted:
            return (None,) * len(graph.leaves)
        with blamed("GV003", f"the backward of {self.name}"), self._held.lent(graph.lent):
            return pulled([y for y, _ in wanted], graph.leaves, [v for _, v in wanted])

    def graph(self, inputs: Sequence[Tensor]) -> Graph:
        """Of one call at new leaves. Raises UserCodeError (GV002)."""
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        return Graph(leaves, *self._outputs(leaves))

    def _outputs(self, inputs: Sequence[Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        moved = iter(inputs)
        copies = [
            next(moved).clone() if a.differentiable else a.value.clone() if a.is_tensor else a.value
            for a in self._subject.arguments
        ]
        (given, named), parameters = (
            self._subject.arranged(copies),
            self._subject.parameters(copies),
        )
        self._subject.reseed()
        with blamed("GV002", self.name), torch.enable_grad():
            returned, lent = self._called(given, {**named, **self._subject.kwargs}, parameters)
        return self._of_checked([compared(y) for y in leaves(returned)], names(returned)), lent

    def _called(
        self, given: list[Any], named: dict[str, Any], parameters: dict[str, Any]
    ) -> tuple[Any, dict[str, Tensor]]:
        if self.target.kind == "module":
            return self._of_module(given, named, parameters)
        arguments, keywords = arranged(self.target, self.name, given, parameters)
        return self.target.call(*arguments, **keywords, **named), {}

    def _of_module(
        self, given: list[Any], named: dict[str, Any], parameters: dict[str, Any]
    ) -> tuple[Any, dict[str, Tensor]]:
        module = self.target.subject
        own = {name for name, _ in module.named_parameters()}
        if self._subject.target.kind == "module":
            refuse_other_parameters(self.name, own, set(parameters))
        else:
            names = [
                members[0].whole for members in self._subject.positions if not members[0].keyword
            ]
            inputs = dict(zip(names, given, strict=True))
            parameters = {name: value for name, value in {**inputs, **named}.items() if name in own}
            given = [value for name, value in inputs.items() if name not in own]
            named = {name: value for name, value in named.items() if name not in own}
        lent = {**parameters, **{name: buffer.clone() for name, buffer in module.named_buffers()}}
        with self._held.lent(lent):
            return self.target.call(*given, **named), lent

    def _of_checked(self, outputs: list[Any], named: Sequence[str]) -> list[Tensor]:
        ours = self._subject.output_names
        if set(named) == set(ours):
            outputs = [outputs[named.index(name)] for name in ours]
        if len(outputs) <= max(self._checked) or not all(
            isinstance(outputs[place], Tensor) for place in self._checked
        ):
            count = "1 output" if len(outputs) == 1 else f"{len(outputs)} outputs"
            raise UserCodeError(
                "GV002",
                f"{self.name} returned {count}, but output {max(self._checked)} is to be compared",
            )
        for place in self._checked:
            found = odd_kind(outputs[place])
            if found is not None:
                raise UserCodeError(
                    "GV002",
                    f"{self.name} returned {found[0]} as its output {place}, whose elements "
                    "cannot be compared",
                    hint=f"in a function around it, {found[1]}",
                )
        return [outputs[place] for place in self._checked]


def refuse_other_parameters(name: str, theirs: set[str], ours: set[str]) -> None:
    """Raises UserCodeError (GV002) where two modules do not have the same parameters."""
    if theirs - ours:
        raise UserCodeError(
            "GV002",
            f"{name} has the parameter {min(theirs - ours)!r}, which the checked module lacks",
        )
    if ours - theirs:
        raise UserCodeError(
            "GV002", f"{name} lacks the parameter {min(ours - theirs)!r} of the checked module"
        )


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
