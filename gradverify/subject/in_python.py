"""Operators that are written in Python: `torch.library.custom_op`, `Library.impl`.

A mode sees each as one operation, and torch runs what is inside with that mode off. Called as this module finds them, past everything else that torch
does for an operator, their Python runs in the mode that is on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

OF_TORCH = ("aten", "prim", "prims")
FOR_ALL = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""What runs on a device that has no implementation of its own, the first before the others."""


def in_python(func: Any, values: Any) -> Callable[..., Any] | None:
    """The implementation of an operator for these arguments, to be called with them, where it is Python's; None for all others."""
    if getattr(func, "namespace", OF_TORCH[0]) in OF_TORCH:
        return None
    key = _device_key([x for x in pytree.tree_leaves(values) if isinstance(x, Tensor)])
    if key is None:
        return None
    name = func.name()
    for each in (key, *FOR_ALL):
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, each):
            registered = f"{name.replace('::', '/')}/{each}" in torch.library._impls
            return partial(func._op_dk, getattr(torch._C.DispatchKey, each)) if registered else None
    return None


def body_of(func: Any) -> Callable[..., Any] | None:
    """The Python function that is a `torch.library.custom_op`; None for all other operators."""
    made = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    return getattr(made.get(getattr(getattr(func, "_schema", None), "name", "")), "_init_fn", None)


def _device_key(tensors: Sequence[Tensor]) -> str | None:
    """What torch dispatches on; None where there is more to it than where plain tensors lie."""
    if not tensors or any(type(x) not in (Tensor, torch.nn.Parameter) or x.layout is not torch.strided or x.is_conj() or x.is_neg() for x in tensors):
        return None
    kinds = {x.device.type for x in tensors}
    kind = next(iter(kinds - {"cpu"}), "cpu")
    return str(torch._C._dispatch_key_for_device(kind))
