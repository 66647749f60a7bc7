"""A hand-written gradient, in NumPy or torch: `fn(*inputs, grad_output) -> gradients`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.subject import Subject
from gradverify.subject.target import callable_target


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
    return tuple(None if gradient is None else _as_tensor(gradient, x, name) for gradient, x in zip(picked, subject.inputs, strict=True))


def _called(function: Callable[..., Any], values: Sequence[Any], cotangent: Tensor) -> Any:
    """With arrays where the function is written in NumPy, else with tensors."""
    values = [value.detach().clone() if isinstance(value, Tensor) else value for value in values]
    if _speaks_numpy(function):
        arrays = [value.cpu().numpy() if isinstance(value, Tensor) else value for value in values]
        return function(*arrays, cotangent.detach().cpu().numpy())
    return function(*values, cotangent.detach().clone())


def _speaks_numpy(function: Callable[..., Any]) -> bool:
    """Does its source use NumPy and not torch? (`x.std()` means different things to the two, so the types must be right.)"""
    code = getattr(function, "__code__", None)
    scope = getattr(function, "__globals__", {})
    names = code.co_names if code else ()
    used = {scope.get(name) for name in names if getattr(scope.get(name), "__name__", None) in ("numpy", "torch")}
    everything = {value for value in scope.values() if getattr(value, "__name__", None) in ("numpy", "torch")}
    return np in (used or everything) and torch not in (used or everything)


def _per_input(gradients: Sequence[Any], subject: Subject, name: str) -> list[Any]:
    """One gradient per argument, or one per differentiable input: the differentiable inputs' own."""
    arguments, wanted = subject.arguments, subject.differentiable
    if len(gradients) == len(arguments):
        return [gradient for gradient, argument in zip(gradients, arguments, strict=True) if argument.differentiable]
    if len(gradients) == len(wanted):
        return list(gradients)
    raise UserCodeError("GV002", f"{name} returned {len(gradients)} gradients for {len(arguments)} inputs, {len(wanted)} of them differentiable")


def _as_tensor(gradient: Any, x: Tensor, name: str) -> Tensor:
    tensor = torch.as_tensor(gradient).detach()
    if tensor.shape != x.shape:
        raise UserCodeError("GV002", f"{name} returned a gradient of shape {list(tensor.shape)} for an input of shape {list(x.shape)}")
    return tensor.to(dtype=x.dtype)
