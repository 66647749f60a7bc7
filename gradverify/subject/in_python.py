"""Operators that are written in Python: `torch.library.custom_op`, `Library.impl`.

A mode sees each as one operation, and torch runs what is inside with that mode off. Called as this module finds them, past everything else that torch
does for an operator, their Python runs in the mode that is on.
"""

from __future__ import annotations

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
    found = kernel_of(func, values)
    return found if found is not None and f"{func.name().replace('::', '/')}/{found.args[0].name}" in torch.library._impls else None


def kernel_of(func: Any, values: Any) -> partial[Any] | None:
    """The implementation of an operator for these arguments, be it Python's or C++'s; None for torch's own operators."""
    if getattr(func, "namespace", OF_TORCH[0]) in OF_TORCH:
        return None
    key = _device_key([x for x in pytree.tree_leaves(values) if isinstance(x, Tensor)])
    keys = () if key is None else (key, *FOR_ALL)
    found = (each for each in keys if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), each))
    each = next(found, None)
    return None if each is None else partial(func._op_dk, getattr(torch._C.DispatchKey, each))


def _device_key(tensors: Sequence[Tensor]) -> str | None:
    """What torch dispatches on; None where there is more to it than where plain tensors lie."""
    if not tensors or any(type(x) not in (Tensor, torch.nn.Parameter) or x.layout is not torch.strided or x.is_conj() or x.is_neg() for x in tensors):
        return None
    kinds = {x.device.type for x in tensors}
    kind = next(iter(kinds - {"cpu"}), "cpu")
    return str(torch._C._dispatch_key_for_device(kind))
