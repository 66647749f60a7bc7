"""The inputs of a spec from an example call in Python: shapes, dtypes and ranges of its tensors, its plain values."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.model.proposal import Proposal
from gradverify.source.functions import call_in
from gradverify.subject.draw import DTYPES
from gradverify.subject.failure import CODE, UserCodeError, blamed, shown, type_name
from gradverify.trial.attempt import Attempts, Level
from gradverify.trial.choices import Assignment, default_value
from gradverify.trial.refine import without_gradients
from gradverify.trial.wanted import Wanted

FEW = 12        # numbers that are written out


def exemplified(example: str, attempts: Attempts, found: Any) -> Proposal:
    """The check that an example call stands for. Raises UserCodeError where a spec cannot write it."""
    given, named, build = _evaluated(example, found, attempts.build is not None)
    parameters = [parameter for parameter in attempts.found.parameters or () if parameter.kind is not inspect.Parameter.VAR_POSITIONAL]
    names = [parameter.name for parameter in parameters] + [f"argument{place}" for place in range(len(parameters), len(given))]
    inputs = [_recipe(name, value) for name, value in zip(names, given, strict=False)]
    keywords = [_recipe(name, value) for name, value in named.items()]
    if attempts.found.kind == "autograd.Function" and keywords:
        raise UserCodeError(CODE, "an autograd Function takes its arguments by position: write the example so")
    attempts.wanted = [*(Wanted(name, init=True) for name in build), *(Wanted(str(each.name)) for each in inputs),
                       *(Wanted(str(each.name), keyword=True) for each in keywords)]
    assignment: Assignment = {str(each.name): each for each in (*inputs, *keywords, *(_recipe(name, value) for name, value in build.items()))}
    outcome = attempts.run(assignment)
    missing = f"the example does not run in float64: {outcome.error}" if outcome.level < Level.NO_BACKWARD else None
    assignment, remarks = without_gradients(assignment, outcome.nothing, attempts.found)
    case = attempts.case(assignment)
    plain = tuple(InputRecipe(name, value=value) for name, value in case.kwargs.items())
    return Proposal(attempts.name, case.inputs, (*case.keywords, *plain), case.init, remarks, attempts=attempts.made, missing=missing)


def _evaluated(example: str, found: Any, is_module: bool) -> tuple[Sequence[Any], Mapping[str, Any], Mapping[str, Any]]:
    """Positional arguments, those by keyword, and those that build a module (`Norm(8)(torch.ones(2, 8))`)."""
    try:
        call = call_in(example)
    except ValueError as error:
        raise UserCodeError(CODE, f"--example {error}") from None
    module = inspect.getmodule(found)
    scope = {**vars(torch.nn.functional), "torch": torch, "nn": torch.nn, "F": torch.nn.functional, **(vars(module) if module else {})}
    given, named = _arguments(call, scope)
    if not is_module or not isinstance(call.func, ast.Call):
        return given, named, {}
    built, by_name = _arguments(call.func, scope)
    with blamed(CODE, "--example"):
        bound = inspect.signature(found).bind(*built, **by_name)
    return given, named, bound.arguments


def _arguments(call: ast.Call, scope: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    with blamed(CODE, "--example"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        given, named = eval(compile(ast.Expression(_call_of("_both", call)), "--example", "eval"), {**scope, "_both": _both})
    return given, named


def _call_of(name: str, call: ast.Call) -> ast.Call:
    return ast.copy_location(ast.Call(ast.copy_location(ast.Name(name, ast.Load()), call), call.args, call.keywords), call)


def _both(*given: Any, **named: Any) -> tuple[list[Any], dict[str, Any]]:
    return list(given), named


def _recipe(name: str, value: Any) -> InputRecipe:
    """Raises UserCodeError for what a spec cannot write."""
    if isinstance(value, Tensor):
        return InputRecipe(name, _tensor(value.detach().cpu()))
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, Tensor) for item in value):
        return InputRecipe(name, tensors=tuple(_tensor(item.detach().cpu()) for item in value))
    writable, plain = default_value(Wanted(name, default=value))
    if not writable:
        raise UserCodeError(CODE, f"the argument {name!r} of the example is {shown(value)}, a {type_name(value)}, which a spec cannot write",
                            hint="name a function of tensors around it, or one that makes the inputs (`inputs_from`)")
    return InputRecipe(name, value=plain)


def _tensor(value: Tensor) -> TensorRecipe:
    """Another draw of the same kind: whole numbers in the same range, fractions between 0 and 1 or above 0 where these lie so."""
    shape = tuple(value.shape)
    if value.dtype == torch.bool:
        return TensorRecipe(shape, draw="kind", arguments="mask")
    name = next((name for name, dtype in DTYPES.items() if dtype is value.dtype), None)
    if not (value.is_floating_point() or value.is_complex()):
        dtype = None if name == "int64" else name
        if value.numel() <= FEW:
            return TensorRecipe(draw="values", arguments=value.tolist(), dtype=name)
        return TensorRecipe(shape, draw="integers", arguments=[int(value.min()), int(value.max()) + 1], dtype=dtype)
    if value.is_complex():
        return TensorRecipe(shape, dtype="complex128")
    if value.numel() and bool((value == value.flatten()[0]).all()) and value.dim():
        return replace(TensorRecipe(shape), draw="fill", arguments=float(value.flatten()[0])) if value.numel() > FEW else TensorRecipe(
            draw="values", arguments=value.tolist())
    if value.numel() and bool((value >= 0).all()):
        low, high = float(value.min()), float(value.max())
        return TensorRecipe(shape, draw="uniform", arguments=[_rounded(low), max(_rounded(high), _rounded(low) + 0.1)])
    return TensorRecipe(shape)


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")
