"""The arguments that a target wants, with all that its signature, its operator schema or its docstring says of them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gradverify.source.functions import arguments_of
from gradverify.subject.registered import returning
from gradverify.subject.target import Target
from gradverify.torch_private import OverloadPacket, python_behind, schema
from gradverify.trial.clues import Clues, clues_of

UNSAID = inspect.Parameter.empty
COUNTS = (2, 1, 3)      # how many tensors `*tensors` is tried with


@dataclass(frozen=True, slots=True)
class Wanted:
    """One argument. `annotation`: the type as text, without module names; `default` UNSAID where it must be given; `init`: of a module's
    constructor; `variadic`: one of `*arguments`."""

    name: str
    annotation: str = ""
    default: Any = UNSAID
    keyword: bool = False
    init: bool = False
    variadic: bool = False
    clues: Clues = field(default_factory=Clues)

    @property
    def required(self) -> bool:
        return self.default is UNSAID


def wanted(found: Target, variadic: int) -> list[Wanted] | None:
    """In the order of the signature, `*arguments` as so many; None where nothing says what the target takes."""
    parameters: Sequence[inspect.Parameter] | None = found.parameters
    types: dict[str, str] = {}
    if found.kind == "operator":
        parameters, types = _of_schema(found.subject)
    elif parameters is None:
        return _of_docstring(found.subject)
    clues = clues_of(_body(found))
    given: list[Wanted] = []
    for parameter in parameters or ():
        given += _wanted(parameter, types.get(parameter.name, _text(parameter.annotation)), clues.get(parameter.name, Clues()), variadic)
    return given


def takes_any_number(found: Target) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in found.parameters or ())


def wanted_to_build(module: type[torch.nn.Module]) -> list[Wanted]:
    """What a module class has to be built with; what has a default is left at it."""
    try:
        parameters = list(inspect.signature(module).parameters.values())
    except (TypeError, ValueError):
        return []
    clues = clues_of(module.__init__)
    needed = [each for each in parameters if each.default is UNSAID and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return [Wanted(each.name, _text(each.annotation), init=True, clues=clues.get(each.name, Clues())) for each in needed]


def _wanted(parameter: inspect.Parameter, annotation: str, clues: Clues, variadic: int) -> list[Wanted]:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return []
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return [Wanted(f"{parameter.name}{place}", annotation, variadic=True) for place in range(variadic)]
    return [Wanted(parameter.name, annotation, parameter.default, parameter.kind is inspect.Parameter.KEYWORD_ONLY, clues=clues)]


def _body(found: Target) -> Any:
    """The function whose code uses the arguments."""
    if found.kind == "autograd.Function":
        return found.subject.forward
    if found.kind == "module":
        module: Any = found.subject if inspect.isclass(found.subject) else type(found.subject)
        return module.forward
    return python_behind(found.subject)


def _text(annotation: Any) -> str:
    """`Optional[Tensor]`, `list[int]`, `float | None`."""
    if annotation is UNSAID:
        return ""
    plain = isinstance(annotation, type) and not hasattr(annotation, "__args__")
    text = annotation if isinstance(annotation, str) else annotation.__name__ if plain else str(annotation)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text.replace("jaxtyping.", "")).replace("NoneType", "None")


def _of_schema(operator: Any) -> tuple[Sequence[inspect.Parameter], dict[str, str]]:
    """Of a registered operator: the first of its overloads that returns its result."""
    overload = getattr(operator, returning(operator)[0]) if isinstance(operator, OverloadPacket) else operator
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    arguments = schema(overload).arguments
    parameters = [inspect.Parameter(each.name, kinds[each.kwarg_only], default=each.default_value if each.has_default_value() else UNSAID)
                  for each in arguments]
    return parameters, {each.name: str(each.type).replace("number", "float") for each in arguments}


def _of_docstring(function: Any) -> list[Wanted] | None:
    """What compiled functions say of themselves, `linear(arg0: torch.Tensor, arg1: float = 1.0) -> torch.Tensor`; without what has a default, of
    which such texts do not tell whether it goes by position."""
    text = inspect.getdoc(function) or ""
    match = re.search(r"\w+\((?P<arguments>[^)]*(?:\([^)]*\)[^)]*)*)\) *->", text)
    if match is None:
        return None
    try:
        tree = ast.parse(f"def f({match['arguments'].replace('::', '.')}): pass").body[0]
    except SyntaxError:
        return None
    taken = arguments_of(tree, 0) if isinstance(tree, ast.FunctionDef) else ()
    return [Wanted(each.name, _pybind_type(each.annotation or "")) for each in taken
            if each.kind == "positional" and each.default is None and each.name != "self"]


def _pybind_type(text: str) -> str:
    bare = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
    return re.sub(r"\bSupports(Int|Float)\b", lambda found: found[1].lower(), bare)
