"""A module in the check's precision, with the hooks of its parameters. Real numbers stay real and complex ones complex: no part is dropped."""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import REAL
from gradverify.torch_private import TENSOR_HOOKS, convert, hooks_after_accumulation, hooks_on_gradient

Hooks = tuple[Callable[..., Any], ...]

COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64, torch.complex128: torch.complex128, torch.complex64: torch.complex64,
           torch.float16: torch.complex32, torch.bfloat16: torch.complex64}
"""The complex type of a check's dtype."""


def cast(module: torch.nn.Module, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
    """The module itself, its floating and complex parameters and buffers in the precision of `dtype`, all of it on `device`.

    Complex ones stay complex. A complex `dtype` makes real ones complex too, unless the module has complex ones itself: then it knows which
    are which.
    """
    mixed = any(tensor.is_complex() for tensor in chain(module.parameters(), module.buffers()))
    real = REAL.get(dtype, dtype) if mixed else dtype

    def moved(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.to(device=device, dtype=COMPLEX[dtype])
        return tensor.to(device=device, dtype=real) if tensor.is_floating_point() else tensor.to(device=device)

    convert(module, moved)
    return module


# ---- hooks on parameters
def copied(module: torch.nn.Module) -> torch.nn.Module:
    """A copy; the hooks of its parameters, which `copy.deepcopy` leaves behind, are those of the copy too. Raises what copying raises."""
    memo: dict[int, Any] = {}
    other = copy.deepcopy(module, memo)
    for old, new in zip(module.parameters(), other.parameters(), strict=True):
        if not new.is_leaf:     # of a jitted module, whose parameters are copied as an operation of autograd
            new.detach_().requires_grad_(old.requires_grad)
        for kind in TENSOR_HOOKS:
            hooks = getattr(old, kind, None)
            if hooks and new.requires_grad:
                setattr(new, kind, OrderedDict((key, _belonging(hook, memo)) for key, hook in hooks.items()))
    return other


def _belonging(hook: Any, memo: dict[int, Any]) -> Any:
    """A hook that is a method of the module becomes the copy's; any other is shared."""
    return copy.deepcopy(hook, memo) if inspect.ismethod(hook) and id(hook.__self__) in memo else hook


def hooks_of(module: torch.nn.Module) -> dict[str, Hooks]:
    """The hooks that run on the gradient of each parameter which has any (`Tensor.register_hook`)."""
    return {name: hooks for name, value in module.named_parameters() if (hooks := hooks_on_gradient(value))}


def hooked(values: Mapping[str, Any], hooks: Mapping[str, Hooks]) -> dict[str, Any]:
    """The values lent to a module as its parameters, the hooks of these on them."""
    return {name: _watched(value, hooks[name]) if name in hooks and value.requires_grad else value for name, value in values.items()}


def _watched(value: Tensor, hooks: Hooks) -> Tensor:
    """A view, so that a value which is lent twice has every hook once."""
    view = value.view_as(value)
    for hook in hooks:
        view.register_hook(hook)  # type: ignore[no-untyped-call]
    return view


def after_accumulation(module: torch.nn.Module) -> tuple[str, ...]:
    """The parameters with hooks that run once `.grad` is written (`register_post_accumulate_grad_hook`)."""
    return tuple(name for name, value in module.named_parameters() if hooks_after_accumulation(value))
