"""Operators that are written in Python: `torch.library.custom_op`, `Library.impl`.

A mode sees each as one operation, and torch runs what is inside with that mode off. Called as this module finds them, past everything else that torch
does for an operator, their Python runs in the mode that is on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.torch_private import device_key, has_kernel, kernel, python_kernel, pytree

OF_TORCH = ("aten", "prim", "prims")
FOR_ALL = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""What runs on a device that has no implementation of its own, the first before the others."""


def in_python(func: Any, values: Any) -> Callable[..., Any] | None:
    """The implementation of an operator for these arguments, to be called with them, where it is Python's; None for all others."""
    key = _implemented_at(func, values)
    return None if key is None else python_kernel(func, key)


def kernel_of(func: Any, values: Any) -> Callable[..., Any] | None:
    """The implementation of an operator for these arguments, be it Python's or C++'s; None for torch's own operators."""
    key = _implemented_at(func, values)
    return None if key is None else kernel(func, key)


def _implemented_at(func: Any, values: Any) -> str | None:
    """The dispatch key of that implementation."""
    if getattr(func, "namespace", OF_TORCH[0]) in OF_TORCH:
        return None
    key = _device_key([x for x in pytree.tree_leaves(values) if isinstance(x, Tensor)])
    return None if key is None else next((each for each in (key, *FOR_ALL) if has_kernel(func.name(), each)), None)


def _device_key(tensors: Sequence[Tensor]) -> str | None:
    """What torch dispatches on; None where there is more to it than where plain tensors lie."""
    if not tensors or any(type(x) not in (Tensor, torch.nn.Parameter) or x.layout is not torch.strided or x.is_conj() or x.is_neg() for x in tensors):
        return None
    kinds = {x.device.type for x in tensors}
    kind = next(iter(kinds - {"cpu"}), "cpu")
    return device_key(kind)
