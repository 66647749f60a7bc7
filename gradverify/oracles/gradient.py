"""A hand-written gradient, in NumPy or torch: `fn(*inputs, grad_output) -> gradients`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.subject import Subject
from gradverify.subject.target import callable_target

_LIBRARIES = {"numpy", "torch"}


def hand_written(subject: Subject, cotangent: Tensor) -> tuple[Tensor | None, ...]:
    """What the function named by `gradient:` returns for one cotangent: a tensor per differentiable input, None where it gives none.

    Raises UserCodeError (GV002) that names the oracle where it raises or returns what does not fit.
    """
    name = f"gradient {subject.case.oracles.gradient}"
    function = callable_target(str(subject.case.oracles.gradient), "gradient")
    values = [argument.value for argument in subject.arguments]
    with blamed("GV002", name):
        returned = _called(function, values, cotangent)
    gradients = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    picked = _per_input(gradients, subject, name)
    if all(gradient is None for gradient in picked):
        raise UserCodeError("GV002", f"{name} returned None for every differentiable input: there is nothing to compare with")
    return tuple(None if gradient is None else _as_tensor(gradient, x, name) for gradient, x in zip(picked, subject.inputs, strict=True))


def _called(function: Callable[..., Any], values: Sequence[Any], cotangent: Tensor) -> Any:
    """With arrays where the function is written in NumPy, else with tensors."""
    values = [value.detach().clone() if isinstance(value, Tensor) else value for value in values]
    if _speaks_numpy(function):
        arrays = [value.cpu().numpy() if isinstance(value, Tensor) else value for value in values]
        return function(*arrays, cotangent.detach().clone().cpu().numpy())
    return function(*values, cotangent.detach().clone())


def _speaks_numpy(function: Callable[..., Any]) -> bool:
    """Does its source use NumPy and not torch? (`x.std()` means different things to the two, so the types must be right.)

    What the function itself names decides; where it names neither, what its module imports.
    """
    function = inspect.unwrap(function)
    code, scope = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    names = code.co_names if code else ()
    used = {_library(scope[name]) if name in scope else name for name in names} & _LIBRARIES
    everything = {_library(value) for value in scope.values()} & _LIBRARIES
    return (used or everything) == {"numpy"}


def _library(value: Any) -> str | None:
    """The top-level package that a global comes from: itself for a module, else where it was defined."""
    name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else None


def _per_input(gradients: Sequence[Any], subject: Subject, name: str) -> list[Any]:
    """One gradient per argument, or one per differentiable input: the differentiable inputs' own."""
    arguments, wanted = subject.arguments, subject.differentiable
    if len(gradients) == len(arguments):
        return [gradient for gradient, argument in zip(gradients, arguments, strict=True) if argument.differentiable]
    if len(gradients) == len(wanted):
        return list(gradients)
    raise UserCodeError("GV002", f"{name} returned {len(gradients)} gradients for {len(arguments)} inputs, {len(wanted)} of them differentiable")


def _as_tensor(gradient: Any, x: Tensor, name: str) -> Tensor:
    with blamed("GV002", f"{name} returned a {type(gradient).__name__} for a gradient, which as a tensor"):
        tensor = torch.as_tensor(gradient).detach()
    if tensor.is_complex() and not x.is_complex():
        raise UserCodeError("GV002", f"{name} returned a complex gradient for a real input")
    if tensor.shape != x.shape:
        raise UserCodeError("GV002", f"{name} returned a gradient of shape {list(tensor.shape)} for an input of shape {list(x.shape)}")
    return tensor.to(dtype=x.dtype)
