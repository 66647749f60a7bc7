"""Arguments that were made, bound to the parameters of the signature: in its order, named by it."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches

from gradverify.subject.arguments import Argument
from gradverify.subject.failure import UserCodeError
from gradverify.subject.target import Target

CALLED = "GV002"     # the function is there; it cannot be called so
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def bind(given: Sequence[Argument], found: Target, own: Collection[str], keywords: Collection[str]) -> list[Argument]:
    """The arguments in the order of the signature, those passed by keyword behind; a nameless one takes its name from there.

    `own`: the names of a module's parameters; `keywords`: of all that the spec passes by keyword. Raises UserCodeError (GV002) where they do
    not fit.
    """
    inner = next((argument for argument in given if "." in argument.name), None)
    if inner is not None:
        raise UserCodeError(CALLED, f"inputs.{inner.name}: {found.name} has no parameter {inner.name!r}", hint=_nearest(inner.name, list(own)))
    if found.parameters is None:
        return [replace(argument, name=argument.name or str(place)) for place, argument in enumerate(given)]
    _refuse_keywords(keywords, found, own)
    placed, named = [a for a in given if not a.keyword], [a for a in given if a.keyword]
    positional = [parameter for parameter in found.parameters if parameter.kind in _POSITIONAL]
    if all(not argument.name for argument in placed):
        return [*_by_position(placed, positional, found, keywords), *named]
    return [*_by_name(placed, positional, found, own, keywords), *named]


def by_keyword(argument: Argument, found: Target) -> bool:
    """Does the function take an argument of this name by keyword only? (For inputs of a dict that says no order.)"""
    kinds = {parameter.name: parameter.kind for parameter in found.parameters or ()}
    takes_all = inspect.Parameter.VAR_KEYWORD in kinds.values() and inspect.Parameter.VAR_POSITIONAL not in kinds.values()
    return kinds.get(argument.name, inspect.Parameter.VAR_KEYWORD if takes_all else None) in (
        inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


def _refuse_keywords(keywords: Collection[str], found: Target, own: Collection[str]) -> None:
    parameters = found.parameters or ()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    by_name = [parameter.name for parameter in parameters if parameter.kind in _BY_NAME]
    for name in keywords:
        if name in by_name:
            continue
        shown = ", ".join(parameter.name for parameter in parameters if parameter.kind in (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY))
        if name in own:
            raise UserCodeError(CALLED, f"kwargs.{name}: {name!r} is a parameter of the module", hint="write it under `inputs`")
        if any(parameter.name == name and parameter.kind is inspect.Parameter.POSITIONAL_ONLY for parameter in parameters):
            raise UserCodeError(CALLED, f"kwargs.{name}: {found.name} takes {name!r} by position only", hint="write it under `inputs`")
        raise UserCodeError(CALLED, f"kwargs.{name}: there is no parameter {name!r}; {found.name} takes ({shown})", hint=_nearest(name, by_name))


def _by_position(given: Sequence[Argument], positional: Sequence[inspect.Parameter], found: Target, keywords: Collection[str]) -> list[Argument]:
    variadic = _is_variadic(found)
    required = sum(parameter.default is inspect.Parameter.empty for parameter in positional if parameter.name not in keywords)
    if len(given) < required or (len(given) > len(positional) and not variadic):
        raise UserCodeError(CALLED, f"inputs: {_signature(found, positional)}, got {len(given)}")
    names = [parameter.name for parameter in positional] + [str(place) for place in range(len(positional), len(given))]
    twice = next((name for name in names[:len(given)] if name in keywords), None)
    if twice is not None:
        raise UserCodeError(CALLED, f"kwargs.{twice}: {twice!r} is an input already: the first {len(given)} of {_signature(found, positional)}")
    return [replace(argument, name=name) for argument, name in zip(given, names, strict=False)]


def _by_name(given: Sequence[Argument], positional: Sequence[inspect.Parameter], found: Target, own: Collection[str],
             keywords: Collection[str]) -> list[Argument]:
    names = [parameter.name for parameter in positional]
    by_name = {argument.name: argument for argument in given}
    extra = [argument for argument in given if argument.name not in names]
    if extra and not _is_variadic(found):
        raise _unknown(extra[0], positional, found, own)
    ordered: list[Argument] = []
    last = max((names.index(name) for name in by_name if name in names), default=-1)
    after = next((place for place, name in enumerate(names) if name in keywords), len(names))     # from here on by keyword
    for place, parameter in enumerate(positional):
        if parameter.name in by_name:
            ordered.append(replace(by_name[parameter.name], keyword=place > after))
        elif parameter.name in keywords:
            continue
        elif parameter.default is inspect.Parameter.empty:
            raise UserCodeError(CALLED, f"inputs: {_signature(found, positional)}; {parameter.name!r} is missing")
        elif place < min(last, after) or (extra and place < after):
            ordered.append(Argument(parameter.name, parameter.default))
    return [*(a for a in ordered if not a.keyword), *extra, *(a for a in ordered if a.keyword)]


def _is_variadic(found: Target) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in found.parameters or ())


def _unknown(given: Argument, positional: Sequence[inspect.Parameter], found: Target, own: Collection[str]) -> UserCodeError:
    """What to say of an argument that there is no place for."""
    keyword_only = [parameter.name for parameter in found.parameters or () if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    if given.name in keyword_only:
        return UserCodeError(CALLED, f"inputs.{given.name}: {found.name} takes {given.name!r} by keyword only", hint="write it under `kwargs`")
    names = [*(parameter.name for parameter in positional), *own]
    return UserCodeError(CALLED, f"inputs.{given.name}: there is no parameter {given.name!r}; {_signature(found, positional)}",
                         hint=_nearest(given.name, names))


def _nearest(name: str, names: Sequence[str]) -> str | None:
    near = get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else None


def _signature(found: Target, positional: Sequence[inspect.Parameter]) -> str:
    return f"{found.name} takes ({', '.join(parameter.name for parameter in positional)})"
