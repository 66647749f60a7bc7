"""The target of a check, the object that a spec's `function` names: how it is called, its
parameters, and the location of its backward."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case
from gradverify.model.interrupt import is_interrupt
from gradverify.subject.failure import CODE, blamed, refuse, type_name
from gradverify.subject.failure import named as name_of
from gradverify.subject.find import find, returning
from gradverify.subject.machine import by_default
from gradverify.subject.modules import cast, copied
from gradverify.torch_private import Overload, OverloadPacket, applied, schema

Kind = Literal["autograd.Function", "callable", "module", "operator"]
# How the line of a definition starts, below its decorators
DEFINES = ("def ", "async def ", "class ")


class Place(NamedTuple):
    """A line of a file, and its text."""

    file: str
    line: int
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a check. `call`: takes the positional arguments; `parameters`: of its
    signature, None where that cannot be read.

    `subject`: the class, callable or module instance itself; `place`: of the `backward` of a
    Function, otherwise of the definition; None where the source cannot be read.
    """

    name: str
    kind: Kind
    subject: Any
    call: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...] | None
    place: Place | None = None


def target(name: str, init: Mapping[str, Any] | None, dtype: torch.dtype) -> Target:
    """Find the target that `function: name` specifies; a module class is instantiated. Raises
    UserCodeError (GV001)."""
    return live(name, named(name, "function"), init, dtype)


def live(
    name: str, found: Any, init: Mapping[str, Any] | None, dtype: torch.dtype, key: str = "function"
) -> Target:
    """Make the target of an object, with the name to be shown. Raises UserCodeError (GV001)."""
    found = applied(found) or found  # most Functions are exported as `swish = Swish.apply`
    if _is_function(found):
        if (
            next(each for each in found.__mro__ if "apply" in vars(each))
            not in torch.autograd.Function.__mro__
        ):
            parameters = _parameters(found.apply)
        else:  # the parameters of `forward`, without `ctx` if it takes that
            parameters = _parameters(found.forward)
            takes_ctx = found.setup_context is torch.autograd.Function.setup_context
            # forward(*args) holds it in args
            if (
                takes_ctx
                and parameters
                and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL
            ):
                parameters = parameters[1:]
        return Target(name, "autograd.Function", found, found.apply, parameters, definition(found))
    if inspect.isclass(found) and issubclass(found, torch.nn.Module):
        # In float64, so that no parameter's value is a rounded float32 number
        init = init or {}
        with (
            by_default(),
            blamed(
                CODE,
                f"init: {name}({', '.join(f'{key}={value!r}' for key, value in init.items())})",
            ),
        ):
            found = found(**init)
    elif init is not None:
        refuse(f"init: {name} is no torch.nn.Module class, so there is nothing to build with it")
    else:
        # A copy of a module instance is cast and moved; an instance that cannot be copied (as it
        # holds a handle) is used itself
        try:
            found = copied(found) if isinstance(found, torch.nn.Module) else found
        except BaseException as error:
            if is_interrupt(error):
                raise
    if isinstance(found, torch.nn.Module):
        return Target(
            name,
            "module",
            found,
            found,
            _parameters(found.forward),
            definition(type(found)),
        )
    if inspect.isclass(found) or not callable(found):
        names = (
            [each for each, value in vars(found).items() if _is_function(value)]
            if inspect.ismodule(found)
            else []
        )
        hint = "name what to check in it, after a colon" + f": {', '.join(names)}" * bool(names)
        refuse(
            f"{key}: {name} is {_kind_of(found)}, not an autograd Function, a callable or a module",
            hint if inspect.ismodule(found) else None,
        )
    if isinstance(found, (OverloadPacket, Overload)):
        return Target(name, "operator", found, found, operator_parameters(found))
    return Target(name, "callable", found, found, _parameters(found), definition(found))


def callable_target(name: str, key: str) -> Callable[..., Any]:
    """Return the callable that a spec names under `key`: a built-in, `apply` of an autograd
    Function or any callable. Raises UserCodeError (GV001)."""
    found = named(name, key)
    if _is_function(found):
        found = found.apply
    if inspect.isclass(found) or not callable(found):
        refuse(f"{key}: {name} is {_kind_of(found)}, not a function")
    call: Callable[..., Any] = found
    return call


def oracle_target(
    name: str, key: str, init: Mapping[str, Any] | None, dtype: torch.dtype, device: torch.device
) -> Target:
    """Find another implementation of the checked function: a module (a class is instantiated with
    `init`) in the check's dtype and on its device, a built-in, an autograd Function or any
    callable. Raises UserCodeError (GV001)."""
    found = named(name, key)
    built = inspect.isclass(found) and issubclass(found, torch.nn.Module)
    made = live(name, found, init or {} if built else None, dtype, key)
    if made.kind != "module":
        return made
    module = cast(made.subject, dtype, device)
    return replace(made, subject=module, call=module)


def named(name: str, key: str) -> Any:
    """Return the object that a spec names under `key`, a built-in or the user's. Raises
    UserCodeError (GV001)."""
    builtin = BUILTINS.get(name)
    return find(f"{builtin.module}:{builtin.attribute}" if builtin else name, key)


def load(case: Case) -> dict[str, Any]:
    """Import the objects that a case names, inside `importable`, and return what its oracles are,
    by name; errors are ignored here, and reported when the case is prepared."""
    oracles = case.oracles
    others = (case.inputs_from, oracles.reference, oracles.gradient, oracles.surrogate)
    found = dict[str, Any]()
    for name in (case.target, *others):
        with suppress(BaseException):
            if name is not None:
                found[name] = named(name, "function")
    return {name: value for name, value in found.items() if name in others}


def operator_parameters(operator: Any) -> tuple[inspect.Parameter, ...] | None:
    """Return the parameters in the schema of a registered operator; None where several overloads
    return a result, as their schemas differ."""
    if isinstance(operator, OverloadPacket):
        overloads = returning(operator)
        if len(overloads) != 1:
            return None
        operator = getattr(operator, overloads[0])
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return tuple(
        inspect.Parameter(
            each.name,
            kinds[each.kwarg_only],
            default=each.default_value if each.has_default_value() else inspect.Parameter.empty,
        )
        for each in schema(operator).arguments
    )


def _is_function(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, torch.autograd.Function)


def _kind_of(found: object) -> str:
    if inspect.ismodule(found):
        return "a Python module"
    if inspect.isclass(found):
        return f"the class {name_of(found)}"
    return f"of type {type_name(found)}"


def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...] | None:
    try:
        return tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def definition(found: Any) -> Place | None:
    """Return the place of the `backward` (or `vjp`) of a Function, otherwise of the definition."""
    if _is_function(found):
        for part in (found.backward, found.vjp):
            if place := outside_torch(place_of(part)):
                return place
    return place_of(found)


def outside_torch(place: Place | None) -> Place | None:
    """Return the place if it is not in torch's own code, else None."""
    return place if place and not place.file.startswith(str(torch.__path__[0])) else None


def place_of(part: Any) -> Place | None:
    """Return the place of a definition, below its decorators; None where the source cannot be
    read."""
    try:
        # The function that a decorator such as once_differentiable wraps
        part = inspect.unwrap(part)
        # `getsourcelines` also finds the last line, which takes far longer
        lines, first = inspect.findsource(part)
        file = inspect.getsourcefile(part)
    except (OSError, TypeError, ValueError):  # no source, or wrappers in a circle
        return None
    if lines[first].lstrip().startswith("@"):
        first = next(
            (i for i in range(first, len(lines)) if lines[i].lstrip().startswith(DEFINES)), first
        )
    return Place(file, first + 1, lines[first].strip()) if file else None
