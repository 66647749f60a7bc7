"""Calls of another implementation of the checked function (a reference, a surrogate) with the same
arguments."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn

import torch
from torch import Tensor

from gradverify.oracles.finite_difference import Split
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.draw import DTYPES
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.forms import compared, names, odd_kind
from gradverify.subject.forms import leaves as flattened
from gradverify.subject.graph import function_nodes
from gradverify.subject.machine import seeded
from gradverify.subject.modules import Held
from gradverify.subject.subject import (
    Cotangents,
    Gradients,
    Graph,
    Subject,
    Tensors,
    as_leaves,
    filled,
    pulled,
)
from gradverify.subject.target import Target, oracle_target

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Implementation:
    """The implementation that the spec names under `key`, as a function of the differentiable
    inputs of the check. Its errors are reported under its own name.

    A function gets the inputs in their order, and a module's parameters by name (dots as
    underscores) or after the inputs. A module class is built with the check's `init`; arguments
    with the names of its parameters replace these.
    """

    def __init__(self, subject: Subject, key: str, checked: Sequence[int]) -> None:
        """Raises UserCodeError (GV001)."""
        text = str(getattr(subject.case.oracles, key))
        self.name = f"{key} {text}"
        self._subject, self._checked = subject, tuple(checked)
        self.inputs = subject.inputs
        settings = subject.case.settings
        with seeded(settings.seed):
            self.target = oracle_target(
                text, key, subject.case.init, DTYPES[settings.dtype], torch.device(settings.device)
            )
        self._held = (
            Held(self.target.subject, parameters=True) if self.target.kind == "module" else Held()
        )

    @cached_property
    def _here(self) -> Graph:
        return self._graph(as_leaves(self.inputs))

    @property
    def outputs(self) -> Tensors:
        """The outputs at the point of the check. Raises UserCodeError (GV002) that names the
        implementation."""
        return self._here.outputs

    def values(self, inputs: Tensors) -> Tensors:
        """Return the outputs that correspond to the checked ones: by name if all names match, else
        by index. Raises UserCodeError (GV002) that names the implementation."""
        return self._graph(inputs).outputs

    def vjp(self, cotangents: Cotangents, inputs: Tensors | None = None) -> Gradients:
        """Return the gradients by autograd, at the inputs of the check or at others; None for an
        input without a gradient. Raises UserCodeError (GV003) that names the implementation."""
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

    def _graph(self, leaves: Tensors) -> Graph:
        """Return the graph of one call. Raises UserCodeError (GV002)."""
        subject, target, name = self._subject, self.target, self.name
        moved = iter(leaves)
        copies = [
            next(moved).clone() if a.differentiable else a.value.clone() if a.is_tensor else a.value
            for a in subject.arguments
        ]
        lent = dict[str, Tensor]()

        def refuse(what: str, hint: str | None = None) -> NoReturn:
            raise UserCodeError("GV002", f"{name} {what}", hint=hint)

        subject.reseed()
        with blamed("GV002", name), torch.enable_grad():
            if target.kind != "module":
                given, named = passed(subject, target, name, copies)
            else:
                (given, named), lent = subject.arranged(copies), subject.parameters(copies)
                theirs = {each for each, _ in target.subject.named_parameters()}
                if subject.target.kind != "module":
                    whole = [m[0].whole for m in subject.positions if not m[0].keyword]
                    inputs = dict(zip(whole, given, strict=True))
                    lent = {n: x for n, x in {**inputs, **named}.items() if n in theirs}
                    given = [x for n, x in inputs.items() if n not in theirs]
                    named = {n: x for n, x in named.items() if n not in theirs}
                elif extra := theirs - lent.keys():
                    refuse(f"has the parameter {min(extra)!r}, which the checked module lacks")
                elif missing := lent.keys() - theirs:
                    refuse(f"lacks the parameter {min(missing)!r} of the checked module")
                lent |= {n: x.clone() for n, x in target.subject.named_buffers()}
            with self._held.lent(lent):
                returned = target.call(*given, **named)
        outputs, paths = [compared(y) for y in flattened(returned)], names(returned)
        if set(paths) == set(subject.output_names):
            outputs = [outputs[paths.index(path)] for path in subject.output_names]
        picked = [outputs[place] for place in self._checked if place < len(outputs)]
        if len(picked) < len(self._checked) or not all(isinstance(y, Tensor) for y in picked):
            count = "1 output" if len(outputs) == 1 else f"{len(outputs)} outputs"
            refuse(f"returned {count}, but output {max(self._checked)} is to be compared")
        for place, y in zip(self._checked, picked, strict=True):
            if odd := odd_kind(y):
                refuse(
                    f"returned {odd[0]} as its output {place}, whose elements cannot be compared",
                    f"in a function around it, {odd[1]}",
                )
        return Graph(tuple(leaves), (), lent, tuple(picked))


def passed(
    subject: Subject, target: Target, name: str, values: Sequence[Any], last: Sequence[Any] = ()
) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments of a function, out of `values` of the check's
    arguments: the inputs, then `last`, and a module's parameters by name if the signature has their
    names.

    If it has none of the names, the parameters are passed between the two. Raises UserCodeError
    (GV002) if it has only some of the names.
    """
    (given, named), parameters = subject.arranged(values), subject.parameters(values)
    own = {each.replace(".", "_"): value for each, value in parameters.items()}
    signature = target.parameters or ()
    known = {parameter.name for parameter in signature}
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in signature)
    if not (set(own) & known or (own and takes_all)):
        return [*given, *parameters.values(), *last], named
    if not takes_all and set(own) - known:
        raise UserCodeError(
            "GV002", f"{name} takes no {min(set(own) - known)!r}, a parameter of the module"
        )
    queue, arguments = deque([*given, *last]), list[Any]()
    for parameter in signature:
        if parameter.kind not in POSITIONAL or not (parameter.name in own or queue):
            break
        arguments.append(own.pop(parameter.name) if parameter.name in own else queue.popleft())
    return [*arguments, *queue], {**named, **own}


# ---- A surrogate: finite differences of another function, where backward intentionally differs
# from the derivative of forward
#
# In straight-through estimators, gradient reversal and spiking neurons the forward is flat, or the
# sign is reversed, on purpose. The function whose gradient such a backward computes can be written
# down; backward must agree with its finite differences.
# Relative to the largest number of a gradient: more than float32's rounding, less than a wrong
# factor
ALIKE = 1e-4


class Surrogate(Split):
    """The values of the surrogate with the backward of the function. Raises UserCodeError (GV002)
    where their outputs do not match."""

    def __init__(
        self, subject: Subject, function: Differentiable, checked: Sequence[int], outputs: Tensors
    ) -> None:
        self._soft = Implementation(subject, "surrogate", checked)
        super().__init__(self._soft, function, outputs)
        self.name = self._soft.name
        for mine, theirs in zip(self._outputs, self.values(subject.leaves()), strict=True):
            if mine.shape != theirs.shape or mine.is_complex() != theirs.is_complex():
                raise UserCodeError(
                    "GV002",
                    f"{self.name} returned shape {list(theirs.shape)} ({theirs.dtype}), the "
                    f"function {list(mine.shape)} "
                    f"({mine.dtype}): its finite differences cannot be compared",
                )

    def differentiates_to(self, cotangents: Tensors) -> bool:
        """Return whether autograd through the surrogate gives the same gradients as backward. If
        the surrogate's finite differences differ nevertheless, it detaches a tensor. Raises
        UserCodeError."""
        pulled = [y for y in self._soft.outputs if y.requires_grad]
        if not pulled or function_nodes(pulled):
            return False
        theirs = self._soft.vjp(
            [v.to(y.dtype) for y, v in zip(self._soft.outputs, cotangents, strict=True)]
        )
        sides = [filled(found, self.inputs) for found in (self.vjp(cotangents), theirs)]
        return all(
            torch.allclose(a, b, rtol=ALIKE, atol=ALIKE * float(b.abs().max()))
            for a, b in zip(*sides, strict=True)
            if a.numel()
        )
