"""What the custom Functions of a graph say that they can do."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

GENERATED = "GeneratedBackwardFor_"     # the Function that torch makes of torch.library.register_autograd
BATCHED = "FuncTorchBatched"            # the dispatch key of register_vmap


def lacking(classes: Sequence[type], *names: str) -> str | None:
    """The first of these Functions that declares none of `names` (jvp; vmap, generate_vmap_rule) of its own. The one behind a registered operator
    declares a vmap rule where the operator has one."""
    plain = torch.autograd.Function
    return next((shown_name(cls) for cls in classes if all(getattr(cls, name) is getattr(plain, name) for name in names)
                 and not ("vmap" in names and _registers_vmap(cls))), None)


def _registers_vmap(cls: type) -> bool:
    operator = _operator(cls)
    return operator is not None and bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, BATCHED))


def _operator(cls: type) -> str | None:
    """The operator whose autograd a Function is that torch generated: `library::name`. Its forward is a closure over it."""
    if not cls.__name__.startswith(GENERATED):
        return None
    found = _held(cls.forward, "orig_forward").get("op")       # type: ignore[attr-defined]
    return str(found.name()) if isinstance(found, torch._ops.OpOverload) else None      # type: ignore[no-untyped-call]


def registered_backward(cls: type) -> Any:
    """What was handed to `register_autograd`, of a Function that torch generated from it; None of any other."""
    if not cls.__name__.startswith(GENERATED):
        return None
    return getattr(_held(cls.backward, "orig_backward").get("info"), "_backward_fn", None)      # type: ignore[attr-defined]


def added_arguments(cls: type) -> int:
    """How many arguments, the last ones, torch itself adds to those of the operator: one, and another one where there are lists of tensors."""
    if not cls.__name__.startswith(GENERATED):
        return 0
    return 1 + ("orig_backward" in inspect.getclosurevars(cls.backward).nonlocals)      # type: ignore[attr-defined]


def _held(function: Any, wrapped: str) -> Mapping[str, Any]:
    """What a function of torch's is a closure over; of an operator that takes lists of tensors, the one that it is `wrapped` around."""
    held = inspect.getclosurevars(function).nonlocals
    return inspect.getclosurevars(held[wrapped]).nonlocals if wrapped in held else held


def shown_name(cls: type) -> str:
    """The name of the Function, or of the operator that torch generated it for."""
    return _operator(cls) or cls.__name__
