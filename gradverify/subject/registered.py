"""Registered operators: `torch.ops.library.operator`, with or without its overload."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import torch

from gradverify.subject.failure import CODE, UserCodeError

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
    return chosen


def _attribute(owner: Any, name: str) -> Any:
    """None where torch has no such operator, for which it raises one thing or another."""
    try:
        return getattr(owner, name)
    except (AttributeError, RuntimeError):
        return None


def _hint(library: str, operator: str) -> str:
    registered = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    names = [name.partition("::")[2] for name in registered if name.startswith(f"{library}::")]
    if not names:
        return f"nothing is registered in {library!r}: name the module that registers it under `import:`"
    near = get_close_matches(operator, names, n=3)
    return f"did you mean {' or '.join(repr(other) for other in near)}?" if near else "name the module that registers it under `import:`"
