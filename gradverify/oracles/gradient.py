"""A hand-written gradient, in NumPy or torch: `fn(*inputs, grad_output) -> gradients`, with a
grad_output for each checked output."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.oracles.given import Given
from gradverify.oracles.implementation import arranged
from gradverify.oracles.oracle import Checked
from gradverify.subject.arguments import Members, where_held
from gradverify.subject.differentiable import Gradients
from gradverify.subject.failure import UserCodeError, blamed, type_name
from gradverify.subject.forms import compared, odd_kind
from gradverify.subject.outputs import step
from gradverify.subject.subject import Subject
from gradverify.subject.target import Target, callable_target, live
from gradverify.torch_private import pytree

_LIBRARIES = {"numpy", "torch"}


def oracle(checked: Checked) -> Given | None:
    """The function under `gradient`."""
    named = checked.subject.case.oracles.gradient
    return None if named is None else HandWritten(checked, f"gradient {named}")


class HandWritten(Given):
    """Asked for a dense random cotangent per output."""

    everywhere = True

    @property
    def target(self) -> Target | None:
        return gradient_target(self.checked.subject)

    @property
    def cotangents(self) -> tuple[Tensor, ...]:
        return self.checked.cotangents("hand-written")

    def gradients(
        self, cotangents: Sequence[Tensor], inputs: Sequence[Tensor] | None = None
    ) -> Gradients:
        return hand_written(self.checked.subject, cotangents, inputs)


def hand_written(
    subject: Subject, cotangents: Sequence[Tensor], inputs: Sequence[Tensor] | None = None
) -> tuple[Tensor | None, ...]:
    """What the function named by `gradient:` returns for one cotangent per checked output: a tensor
    per differentiable input, None where it gives none. It is called with the inputs (a module's
    parameters by name, or after them) and then the cotangents.
    `inputs`: in place of the differentiable ones.

    Raises UserCodeError (GV002) that names the oracle where it raises or returns what does not fit.
    """
    target, name = gradient_target(subject), f"gradient {subject.case.oracles.gradient}"
    with blamed("GV002", name):
        returned = _called(target, name, subject, cotangents, inputs)
    gradients = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    picked = _per_input(gradients, subject, name)
    if all(gradient is None for gradient in picked):
        raise UserCodeError(
            "GV002",
            f"{name} returned None for every differentiable input: there is nothing to compare "
            "with",
        )
    pairs = zip(picked, subject.differentiable, strict=True)
    return tuple(
        None
        if gradient is None
        else where_held(argument, _as_tensor(gradient, argument.value, name))
        for gradient, argument in pairs
    )


def gradient_target(subject: Subject) -> Target:
    """The function that the spec names under `gradient`. Raises UserCodeError (GV001)."""
    text = str(subject.case.oracles.gradient)
    return live(text, callable_target(text, "gradient"), None, torch.float64)


def _called(
    target: Target,
    name: str,
    subject: Subject,
    cotangents: Sequence[Tensor],
    inputs: Sequence[Tensor] | None,
) -> Any:
    """With arrays where the function is written in NumPy, else with tensors."""
    as_numpy, moved = _speaks_numpy(target.call), iter(subject.inputs if inputs is None else inputs)
    copies = [
        _copied(next(moved) if argument.differentiable else argument.value, as_numpy)
        for argument in subject.arguments
    ]
    last = [_copied(cotangent, as_numpy) for cotangent in cotangents]
    given, named = subject.arranged(copies)
    arguments, keywords = arranged(target, name, given, subject.parameters(copies), last)
    return target.call(*arguments, **keywords, **_taken(target, named))


def _taken(target: Target, named: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors by keyword that it has parameters for."""
    kinds = {parameter.name: parameter.kind for parameter in target.parameters or ()}
    return (
        dict(named)
        if inspect.Parameter.VAR_KEYWORD in kinds.values()
        else {name: named[name] for name in named if name in kinds}
    )


def _copied(value: Any, as_numpy: bool) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().cpu().numpy() if as_numpy else value.detach().clone()


def _speaks_numpy(function: Callable[..., Any]) -> bool:
    """Does its source use NumPy and not torch? (`x.std()` means different things to the two, so the
    types must be right.)

    What the function itself names decides; where it names neither, what its module imports.
    """
    function = inspect.unwrap(function)
    code, scope = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    names = code.co_names if code else ()
    used = {_library(scope[name]) if name in scope else name for name in names} & _LIBRARIES
    everything = {_library(value) for value in scope.values()} & _LIBRARIES
    return (used or everything) == {"numpy"}


def _library(value: Any) -> str | None:
    """The top-level package that a global comes from: itself for a module, else where it was
    defined."""
    name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else None


def _per_input(gradients: Sequence[Any], subject: Subject, name: str) -> list[Any]:
    """One gradient per argument (a list of them for a list of tensors), or one per differentiable
    input: the differentiable inputs' own."""
    wanted, by_name = (
        subject.differentiable,
        [members for members in subject.positions if members[0].keyword],
    )
    given = list(gradients)
    # None for what is passed by keyword
    if len(gradients) == len(subject.positions) - len(by_name) and by_name:
        rest = iter(gradients)
        given = [None if members[0].keyword else next(rest) for members in subject.positions]
    if len(given) == len(subject.positions):
        flat = [
            each
            for members, gradient in zip(subject.positions, given, strict=True)
            for each in _of_position(members, gradient, name)
        ]
        return [
            gradient
            for gradient, argument in zip(flat, subject.arguments, strict=True)
            if argument.differentiable
        ]
    if len(gradients) == len(wanted):
        return given
    found = "1 gradient" if len(gradients) == 1 else f"{len(gradients)} gradients"
    inputs = "1 input" if len(subject.positions) == 1 else f"{len(subject.positions)} inputs"
    raise UserCodeError(
        "GV002", f"{name} returned {found} for {inputs}, {len(wanted)} of them differentiable"
    )


def _of_position(members: Members, gradient: Any, name: str) -> Sequence[Any]:
    """The gradients of what stands at one position: of a list or the like in one of the same form,
    None where it gives none."""
    if not members[0].of:
        return [gradient]
    if gradient is None:
        return [None] * len(members)
    if isinstance(gradient, (list, tuple)) and len(gradient) == len(members):
        return gradient
    paths = [member.name.removeprefix(member.whole) for member in members]
    found = _by_path(gradient)
    if not found or set(found) - set(paths):
        raise UserCodeError(
            "GV002",
            f"{name} must return gradients for {members[0].whole} that are held as it is: "
            f"{', '.join(paths)}",
        )
    return [found.get(path) for path in paths]


def _by_path(gradient: Any) -> dict[str, Any]:
    if isinstance(gradient, (list, tuple)):
        return {}
    keyed, _ = pytree.tree_flatten_with_path(gradient, is_leaf=lambda item: item is None)
    return {"".join(map(step, path)): item for path, item in keyed}


def _as_tensor(gradient: Any, x: Tensor, name: str) -> Tensor:
    with blamed(
        "GV002", f"{name} returned a {type_name(gradient)} for a gradient, which as a tensor"
    ):
        tensor: Tensor = compared(torch.as_tensor(gradient).detach())
    found = odd_kind(tensor)
    if found is not None:
        raise UserCodeError(
            "GV002",
            f"{name} returned {found[0]} for a gradient, whose elements cannot be compared",
            hint=found[1],
        )
    if tensor.is_complex() and not x.is_complex():
        raise UserCodeError("GV002", f"{name} returned a complex gradient for a real input")
    if tensor.shape != x.shape:
        raise UserCodeError(
            "GV002",
            f"{name} returned a gradient of shape {list(tensor.shape)} for an input of shape "
            f"{list(x.shape)}",
        )
    return tensor.to(dtype=x.dtype)
