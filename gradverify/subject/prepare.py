"""Case → Subject: the target found, the inputs made, names bound to positions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from gradverify.model.case import Case, InputRecipe, TensorRecipe
from gradverify.subject.draw import DIFFERENTIABLE, DTYPES, draw, generator
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.find import CODE
from gradverify.subject.layout import laid, layout_of, settled
from gradverify.subject.machine import seeded
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.target import Target, callable_target, target

Members = tuple[Argument, ...]
"""The value of an argument that is a list of tensors, until its name is known."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def prepare(case: Case) -> Subject:
    """The live subject of a case. Raises UserCodeError (GV001) where the target or an input cannot be had as the spec says."""
    device = torch.device(case.settings.device)
    with seeded(case.settings.seed):        # a module draws its parameters as it is built
        found = target(case.target, case.init, DTYPES[case.settings.dtype])
    return assemble(case, found, _inputs(case, device))


def _inputs(case: Case, device: torch.device) -> list[Argument]:
    return _from_function(case, device) if case.inputs_from else [_make(recipe, place, case, device) for place, recipe in enumerate(case.inputs)]


def redrawn(subject: Subject, seed: int) -> list[Argument]:
    """The arguments of a subject as its spec draws them with another seed; those of a live subject, which no spec describes, as they are.

    Raises UserCodeError (GV001).
    """
    case = replace(subject.case, settings=replace(subject.case.settings, seed=seed))
    if not case.inputs and not case.inputs_from:
        return list(subject.arguments)
    return list(assemble(case, subject.target, _inputs(case, torch.device(case.settings.device))).arguments)


def assemble(case: Case, found: Target, made: Sequence[Argument]) -> Subject:
    """The subject of a target that was found and inputs that were made; a nameless argument takes its name from the signature. An argument that
    is a list of tensors becomes one argument for each, named `tensors[0]`, `tensors[1]`.

    Raises UserCodeError (GV001) where they do not fit.
    """
    if case.kwargs and found.kind == "autograd.Function":
        raise UserCodeError(CODE, f"kwargs: {case.target} is an autograd Function, whose apply takes positional arguments only",
                            hint="list them under `inputs`, in the order of forward")
    parameters = _module_parameters(found, case, torch.device(case.settings.device))
    own = {argument.name for argument in parameters}
    overridden = {argument.name: argument for argument in made if argument.name in own}
    given = [argument for argument in made if argument.name not in own]
    ordered = _bind([_gathered(argument) for argument in given], found, tuple(own))
    return Subject(case, found, [*_each(ordered), *(_override(argument, overridden) for argument in parameters)], case.kwargs)


def _make(recipe: InputRecipe, place: int, case: Case, device: torch.device) -> Argument:
    name, label = recipe.name or "", recipe.name if recipe.name is not None else str(place)
    if recipe.tensors:
        return Argument(name, tuple(_drawn(each, f"{label}[{index}]", case, device) for index, each in enumerate(recipe.tensors)))
    if recipe.tensor is None:
        return Argument(name, recipe.value)
    return replace(_drawn(recipe.tensor, label, case, device), name=name)


def _drawn(recipe: TensorRecipe, label: str, case: Case, device: torch.device) -> Argument:
    """A tensor by its recipe, under the name that its draw is seeded by."""
    recipe, source = settled(recipe, case.layout), generator(case.settings.seed, case.check, label)
    place = device if recipe.device is None else torch.device(recipe.device)
    tensor = _point(draw(recipe, case.settings.dtype, place, source, label))
    layout = layout_of(tensor, recipe.layout, case.layout, label)
    differentiable = _differentiable(tensor, recipe.requires_grad)
    value = tensor if differentiable else laid(tensor, layout)       # what is perturbed is laid out anew in every call
    return Argument(label, value, differentiable, domain=recipe.domain, symmetric=recipe.symmetric, layout=layout)


def _gathered(argument: Argument) -> Argument:
    """A list or tuple of nothing but tensors, as Python code gives one, becomes a list of arguments."""
    value = argument.value
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(item, Tensor) for item in value):
        return argument
    return replace(argument, value=tuple(_taken(f"{argument.name}[{index}]", item, "a list") for index, item in enumerate(value)))


def _each(arguments: Sequence[Argument]) -> list[Argument]:
    """Lists taken apart: their elements are named after them."""
    apart: list[Argument] = []
    for argument in arguments:
        if _is_list(argument.value):
            apart += [replace(each, name=f"{argument.name}[{place}]", of=argument.name) for place, each in enumerate(argument.value)]
        else:
            apart.append(argument)
    return apart


def _is_list(value: Any) -> TypeGuard[Members]:
    return isinstance(value, tuple) and bool(value) and all(isinstance(each, Argument) for each in value)


def _point(tensor: Tensor) -> Tensor:
    """A contiguous copy without history: where the check takes place."""
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _differentiable(tensor: Tensor, wanted: bool | None) -> bool:
    able = tensor.is_floating_point() or tensor.is_complex()
    return able if wanted is None else wanted and able


def _from_function(case: Case, device: torch.device) -> list[Argument]:
    """The inputs that `inputs_from` makes: a tuple, or a mapping by name."""
    function = callable_target(str(case.inputs_from), "inputs_from")
    what = f"inputs_from: {case.inputs_from}"
    with blamed(CODE, what), seeded(case.settings.seed):
        made = function(seed=case.settings.seed, dtype=DTYPES[case.settings.dtype], device=device)
    if not isinstance(made, (tuple, list, Mapping)):
        raise UserCodeError(CODE, f"{what} returned a {type(made).__name__}, not a tuple or a dict")
    named = made.items() if isinstance(made, Mapping) else (("", value) for value in made)
    with blamed(CODE, what):
        return [_laid_out(_taken(name, value, what), case) for name, value in named]


def _laid_out(argument: Argument, case: Case) -> Argument:
    """With the layout that the case means for every input, where it can have it."""
    if _is_list(argument.value):
        return replace(argument, value=tuple(_laid_out(each, case) for each in argument.value))
    if not argument.is_tensor:
        return argument
    layout = layout_of(argument.value, None, case.layout, argument.name)
    return replace(argument, layout=layout, value=argument.value if argument.differentiable else laid(argument.value, layout))


def _taken(name: str, value: Any, what: str) -> Argument:
    if not isinstance(value, Tensor):
        return _gathered(Argument(name, value))
    if value.is_meta or value.is_nested:
        raise UserCodeError(CODE, f"{what} made a {'meta' if value.is_meta else 'nested'} tensor, whose elements cannot be moved")
    if _differentiable(value, None) and value.dtype not in DIFFERENTIABLE:
        raise UserCodeError(CODE, f"{what} made a {str(value.dtype).removeprefix('torch.')} tensor",
                            hint=f"supported are {', '.join(str(dtype).removeprefix('torch.') for dtype in DIFFERENTIABLE)}")
    return Argument(name, _point(value), _differentiable(value, None))


def _module_parameters(found: Target, case: Case, device: torch.device) -> list[Argument]:
    """A module's parameters as inputs, cast to the check's dtype and moved."""
    if found.kind != "module":
        return []
    dtype = DTYPES[case.settings.dtype]
    with blamed(CODE, f"moving {case.target} to {case.settings.dtype} on {device}"):
        module = found.subject.to(device=device, dtype=dtype)
    lazy = [name for name, value in module.named_parameters() if is_lazy(value)]
    if lazy:
        raise UserCodeError(CODE, f"{case.target}: the parameter {lazy[0]} has no shape before the first forward (a lazy module)",
                            hint="name a function that builds the module and runs it once, or use the module that is not lazy")
    return [Argument(name, _point(value), value.requires_grad, parameter=True) for name, value in module.named_parameters()]


def _override(parameter: Argument, given: Mapping[str, Argument]) -> Argument:
    """A parameter whose value the spec gives."""
    new = given.get(parameter.name)
    if new is None:
        return parameter
    if not new.is_tensor or new.value.shape != parameter.value.shape:
        shown = list(new.value.shape) if new.is_tensor else repr(new.value)
        raise UserCodeError(CODE, f"inputs.{new.name}: the module's parameter has shape {list(parameter.value.shape)}, the spec gives {shown}")
    return replace(new, parameter=True)


def _bind(given: Sequence[Argument], found: Target, parameters: Sequence[str]) -> list[Argument]:
    """The arguments in the order of the signature, named by it. Raises UserCodeError where they do not fit."""
    if found.parameters is None:
        return [_named(argument, str(place)) for place, argument in enumerate(given)]
    positional = [parameter for parameter in found.parameters if parameter.kind in _POSITIONAL]
    variadic = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in found.parameters)
    if all(not argument.name for argument in given):
        return _by_position(given, positional, variadic, found)
    return _by_name(given, positional, variadic, found, parameters)


def _named(argument: Argument, name: str) -> Argument:
    return replace(argument, name=argument.name or name)


def _by_position(given: Sequence[Argument], positional: Sequence[inspect.Parameter], variadic: bool, found: Target) -> list[Argument]:
    required = sum(parameter.default is inspect.Parameter.empty for parameter in positional)
    if len(given) < required or (len(given) > len(positional) and not variadic):
        raise UserCodeError(CODE, f"inputs: {_signature(found, positional)}; the spec gives {len(given)}")
    names = [parameter.name for parameter in positional] + [str(place) for place in range(len(positional), len(given))]
    return [_named(argument, name) for argument, name in zip(given, names, strict=False)]


def _by_name(given: Sequence[Argument], positional: Sequence[inspect.Parameter], variadic: bool, found: Target,
             parameters: Sequence[str]) -> list[Argument]:
    names = [parameter.name for parameter in positional]
    by_name = {argument.name: argument for argument in given}
    extra = [argument for argument in given if argument.name not in names]
    if extra and not variadic:
        raise _unknown(extra[0], positional, found, parameters)
    ordered: list[Argument] = []
    last = max((names.index(name) for name in by_name if name in names), default=-1)
    for place, parameter in enumerate(positional):
        if parameter.name in by_name:
            ordered.append(by_name[parameter.name])
        elif parameter.default is inspect.Parameter.empty:
            raise UserCodeError(CODE, f"inputs: {_signature(found, positional)}; {parameter.name!r} is missing")
        elif place < last or extra:
            ordered.append(Argument(parameter.name, parameter.default))
    return ordered + extra


def _unknown(given: Argument, positional: Sequence[inspect.Parameter], found: Target, parameters: Sequence[str]) -> UserCodeError:
    """What to say of an argument that there is no place for."""
    by_keyword = [parameter.name for parameter in found.parameters or () if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    if given.name in by_keyword:
        hint = "wrap it in a Python function that takes it by position" if given.is_tensor else "write it under `kwargs`"
        return UserCodeError(CODE, f"inputs.{given.name}: {found.name} takes {given.name!r} by keyword only", hint=hint)
    near = get_close_matches(given.name, [*(parameter.name for parameter in positional), *parameters], n=1)
    return UserCodeError(CODE, f"inputs.{given.name}: there is no parameter {given.name!r}; {_signature(found, positional)}",
                         hint=f"did you mean {near[0]!r}?" if near else None)


def _signature(found: Target, positional: Sequence[inspect.Parameter]) -> str:
    return f"{found.name} takes ({', '.join(parameter.name for parameter in positional)})"
