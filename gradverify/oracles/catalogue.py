"""The oracles that know the gradient for one cotangent per output: numbers in the spec, and a
hand-written gradient in NumPy or torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from gradverify.model.case import Json
from gradverify.oracles.given import Given
from gradverify.oracles.implementation import passed
from gradverify.oracles.oracle import Checked
from gradverify.subject.differentiable import Gradients
from gradverify.subject.draw import numbers
from gradverify.subject.failure import CODE, UserCodeError, blamed, nearest, refuse, type_name
from gradverify.subject.forms import Argument, Members, compared, odd_kind, step, where_held
from gradverify.subject.subject import Subject, Tensors
from gradverify.subject.target import Target, callable_target, live
from gradverify.torch_private import pytree

_LIBRARIES = {"numpy", "torch"}


def expected(checked: Checked) -> Given | None:
    """Return the oracle for the numbers under `expected`; None where the spec has none."""
    if checked.subject.case.oracles.expected is None:
        return None
    return Expected(checked, "`expected` in the spec", "the numbers in the spec (`expected`)")


def hand_written(checked: Checked) -> Given | None:
    """Return the oracle for the function under `gradient`; None where the spec names none."""
    named = checked.subject.case.oracles.gradient
    return None if named is None else HandWritten(checked, f"gradient {named}")


GIVEN: tuple[Callable[[Checked], Given | None], ...] = (
    expected,
    hand_written,
)
"""Functions that make an oracle for a checked function, or return None where the spec has none of
that kind."""


class Expected(Given):
    """Gradients from the spec, known at the check's point only, for the cotangents under
    `grad_output`. Raises UserCodeError (GV001) where these or the numbers do not fit."""

    @property
    def cotangents(self) -> tuple[Tensor, ...]:
        """A cotangent per checked output: ones by default; for several outputs the spec has a list
        with one entry each. A single number is the weight of every element."""
        given, outputs = self.checked.subject.case.oracles.grad_output, self.checked.outputs
        if given is None:
            return tuple(torch.ones_like(output) for output in outputs)
        entries = [given] if len(outputs) == 1 else given
        if not isinstance(entries, (list, tuple)) or len(entries) != len(outputs):
            refuse(
                f"grad_output: the check compares {len(outputs)} outputs, so it is a list of "
                f"{len(outputs)} entries"
            )
        return tuple(_weight(entry, output) for entry, output in zip(entries, outputs, strict=True))

    def gradients(self, cotangents: Tensors, inputs: Tensors | None = None) -> Gradients:
        subject = self.checked.subject
        expected = subject.case.oracles.expected or {}
        own = {argument.name: argument for argument in subject.differentiable}
        for name in expected:
            if name not in own:
                refuse(
                    f"expected.{name}: there is no differentiable input {name!r}",
                    nearest(name, own) or f"the differentiable inputs are {', '.join(own)}",
                )
        return tuple(
            where_held(x, _gradient(name, expected[name], x.value)) if name in expected else None
            for name, x in own.items()
        )


def _read(place: str, data: Json, like: Tensor) -> Tensor:
    with blamed(CODE, f"{place}: reading the numbers"):
        return torch.tensor(
            numbers(data), dtype=torch.complex128 if like.is_complex() else torch.float64
        )


def _gradient(name: str, data: Json, x: Tensor) -> Tensor:
    tensor = _read(f"expected.{name}", data, x)
    if tensor.shape != x.shape:
        refuse(
            f"expected.{name}: the numbers have shape {list(tensor.shape)}, the input "
            f"{list(x.shape)}"
        )
    if bool(tensor.isnan().any()):
        refuse(f"expected.{name}: NaN is no number to compare with")
    return tensor


def _weight(entry: Json, output: Tensor) -> Tensor:
    with blamed(CODE, "grad_output: reading the numbers"):
        tensor = torch.tensor(numbers(entry))
    if tensor.dim() and tensor.shape != output.shape:
        refuse(
            f"grad_output: the numbers have shape {list(tensor.shape)}, the output "
            f"{list(output.shape)}"
        )
    if tensor.is_complex() and not output.is_complex():
        refuse("grad_output: the numbers are complex, the output is real")
    wide = _read("grad_output", entry, output)
    return wide.expand(output.shape).clone().to(dtype=output.dtype, device=output.device)


class HandWritten(Given):
    """A hand-written gradient, `fn(*inputs, grad_output) -> gradients`.

    It is called with the inputs (a module's parameters by name, or after them) and then a dense
    random cotangent per checked output: as arrays if it is written in NumPy, otherwise as tensors.
    """

    everywhere = True

    @property
    def target(self) -> Target:
        """The function that the spec names under `gradient`. Raises UserCodeError (GV001)."""
        text = str(self.checked.subject.case.oracles.gradient)
        return live(text, callable_target(text, "gradient"), None, torch.float64)

    @property
    def cotangents(self) -> tuple[Tensor, ...]:
        return self.checked.cotangents("hand-written")

    def gradients(self, cotangents: Tensors, inputs: Tensors | None = None) -> Gradients:
        """Call the function and return its gradients. Raises UserCodeError (GV002) that names the
        oracle where it raises or its result does not fit."""
        subject, target = self.checked.subject, self.target

        def copied(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return value.detach().clone().cpu().numpy() if as_numpy else value.detach().clone()

        with blamed("GV002", self.name):
            as_numpy = _uses_numpy(target.call)
            moved = iter(subject.inputs if inputs is None else inputs)
            copies = [
                copied(next(moved) if argument.differentiable else argument.value)
                for argument in subject.arguments
            ]
            last = list(map(copied, cotangents))
            arguments, named = passed(subject, target, self.name, copies, last)
            # What the function has no parameters for is left out
            kinds = {parameter.name: parameter.kind for parameter in target.parameters or ()}
            takes_all = inspect.Parameter.VAR_KEYWORD in kinds.values()
            named = {name: x for name, x in named.items() if takes_all or name in kinds}
            returned = target.call(*arguments, **named)
        gradients = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        picked = _per_input(gradients, subject, self.name)

        def refused(what: str, hint: str | None = None) -> NoReturn:
            raise UserCodeError("GV002", f"{self.name} returned {what}", hint=hint)

        def read(gradient: Any, a: Argument) -> Tensor:
            kind, x = type_name(gradient), a.value
            with blamed(
                "GV002", f"{self.name} returned a {kind} for a gradient, which as a tensor"
            ):
                tensor: Tensor = compared(torch.as_tensor(gradient).detach())
            if odd := odd_kind(tensor):
                refused(f"{odd[0]} for a gradient, whose elements cannot be compared", odd[1])
            if tensor.is_complex() and not x.is_complex():
                refused("a complex gradient for a real input")
            if tensor.shape != x.shape:
                shapes = list(tensor.shape), list(x.shape)
                refused(f"a gradient of shape {shapes[0]} for an input of shape {shapes[1]}")
            return where_held(a, tensor.to(dtype=x.dtype))

        if all(gradient is None for gradient in picked):
            refused("None for every differentiable input: there is nothing to compare with")
        pairs = zip(picked, subject.differentiable, strict=True)
        return tuple(None if gradient is None else read(gradient, a) for gradient, a in pairs)


def _uses_numpy(function: Callable[..., Any]) -> bool:
    """Return whether a function uses NumPy and not torch. (The two differ in the meaning of
    `x.std()`, so the types must be right.)

    The names in the function itself decide, or where it uses neither library, the imports of its
    module.
    """
    function = inspect.unwrap(function)
    code, scope = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    names = code.co_names if code else ()
    used = {_library(scope[name]) if name in scope else name for name in names} & _LIBRARIES
    everything = {_library(value) for value in scope.values()} & _LIBRARIES
    return (used or everything) == {"numpy"}


def _library(value: Any) -> str | None:
    """Return the top-level package that a global belongs to, or None."""
    name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else None


def _per_input(gradients: Sequence[Any], subject: Subject, name: str) -> list[Any]:
    """Return the gradients of the differentiable inputs, out of one gradient per argument (a list
    of them for a list of tensors), or one per differentiable input."""
    wanted, positions, given = subject.differentiable, subject.positions, list(gradients)
    by_name = sum(members[0].keyword for members in positions)
    # None for what is passed by keyword
    if by_name and len(gradients) == len(positions) - by_name:
        rest = iter(gradients)
        given = [None if members[0].keyword else next(rest) for members in positions]
    if len(given) == len(positions):
        flat = (
            each
            for members, gradient in zip(positions, given, strict=True)
            for each in _of_position(members, gradient, name)
        )
        differentiable = (argument.differentiable for argument in subject.arguments)
        return [each for each, own in zip(flat, differentiable, strict=True) if own]
    if len(gradients) == len(wanted):
        return given
    found = "1 gradient" if len(gradients) == 1 else f"{len(gradients)} gradients"
    inputs = "1 input" if len(positions) == 1 else f"{len(positions)} inputs"
    raise UserCodeError(
        "GV002", f"{name} returned {found} for {inputs}, {len(wanted)} of them differentiable"
    )


def _of_position(members: Members, gradient: Any, name: str) -> Sequence[Any]:
    """Return the gradients of the elements of one argument: a container's gradient has the same
    structure; None for elements without a gradient."""
    if not members[0].of:
        return [gradient]
    if gradient is None:
        return [None] * len(members)
    found = dict[str, Any]()
    if not isinstance(gradient, (list, tuple)):
        keyed, _ = pytree.tree_flatten_with_path(gradient, is_leaf=lambda item: item is None)
        found = {"".join(map(step, path)): item for path, item in keyed}
    elif len(gradient) == len(members):
        return gradient
    paths = [member.name.removeprefix(member.whole) for member in members]
    if not found or set(found) - set(paths):
        raise UserCodeError(
            "GV002",
            f"{name} must return gradients for {members[0].whole} that are held as it is: "
            f"{', '.join(paths)}",
        )
    return [found.get(path) for path in paths]
