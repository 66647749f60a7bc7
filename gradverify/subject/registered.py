"""Registered operators: `torch.ops.library.operator`, with or without its overload."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import torch

from gradverify.subject.failure import CODE, UserCodeError
from gradverify.torch_private import operator_names, schema

REGISTERED = "torch.ops."


def find_operator(name: str, key: str) -> Any:
    """The operator, or its overload. Raises UserCodeError (GV001) with the nearest names of its library."""
    library, operator, *overload = name.removeprefix(REGISTERED).split(".")
    found = _attribute(getattr(torch.ops, library), operator)
    if found is None:
        raise UserCodeError(CODE, f"{key}: {name}: no operator {operator!r} is registered in the library {library!r}", hint=_hint(library, operator))
    if not overload:
        return found
    chosen = _attribute(found, overload[0])
    if chosen is None:
        raise UserCodeError(CODE, f"{key}: {name}: the operator {library}::{operator} has no overload {overload[0]!r}",
                            hint=f"its overloads are {', '.join(found.overloads())}")
    if _writes(chosen):
        raise UserCodeError(CODE, f"{key}: {name} writes its result into an argument, and torch has no gradient for that",
                            hint=f"name an overload that returns it: {', '.join(returning(found)) or 'there is none'}")
    return chosen


def returning(operator: Any) -> list[str]:
    """The overloads of an operator that return their result, and do not write it into an argument such as `out`."""
    return [name for name in operator.overloads() if not _writes(getattr(operator, name))]


def _writes(overload: Any) -> bool:
    return any(argument.is_out for argument in schema(overload).arguments)


def _attribute(owner: Any, name: str) -> Any:
    """None where torch has no such operator, for which it raises one thing or another."""
    try:
        return getattr(owner, name)
    except (AttributeError, RuntimeError):
        return None


def _hint(library: str, operator: str) -> str:
    registered = {name.partition(".")[0] for name in operator_names()}
    names = [name.partition("::")[2] for name in registered if name.startswith(f"{library}::")]
    if not names:
        libraries = get_close_matches(library, {name.partition("::")[0] for name in registered}, n=3)
        nearest = f"did you mean {' or '.join(repr(other) for other in libraries)}? Else " if libraries else ""
        return f"nothing is registered in {library!r}: {nearest}name the module that registers it under `import:`"
    near = get_close_matches(operator, names, n=3)
    return f"did you mean {' or '.join(repr(other) for other in near)}?" if near else "name the module that registers it under `import:`"
