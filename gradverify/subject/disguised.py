"""Dtypes exchanged under a function's feet: 16 bits that look like float64 to it, and float64 where it asks for less.

Both modes see every operation of torch that forward and backward run, below autograd; those in an operator that is written in Python too. What does
not go through torch is out of their sight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from gradverify.numerics.function.dtypes import SIXTEEN
from gradverify.subject.in_python import body_of, in_python

LOW = (torch.float32, *SIXTEEN)
SHOWN: Mapping[Any, Any] = {
    torch.float64: torch.float32, torch.complex128: torch.complex64, "torch.DoubleTensor": "torch.FloatTensor",
    "torch.cuda.DoubleTensor": "torch.cuda.FloatTensor"}
ROWS = 4096     # of which a sum is made one by one


@contextmanager
def undisguised() -> Iterator[None]:
    """Inside, operations run as they are."""
    with _disable_current_modes():
        yield


class Exchanged(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of torch that does not import torch's compiler, which takes seconds, to tell it not to compile this."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def _called(self, func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """What an operation gives; where it is written in Python, with its own operations in this mode."""
        own = in_python(func, (args, named))
        if own is None:
            return func(*args, **named)
        with self:
            return own(*args, **named)


class Disguised(Exchanged):
    """Every operation on float64 runs in 16 bits, and what comes of it is float64 again: numbers of the narrow type, by torch's own kernels for it.

    A function computes in its own way, upcasts to float32 included, and cannot see in which dtype: it takes no branch that only 16 bits take.
    An operation that torch does not have in 16 bits is rounded once. The gradient of what up to so many `rows` share is rounded after each of them.
    """

    def __init__(self, dtype: torch.dtype, rows: int = ROWS) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype, self._rows = dtype, rows

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        named = dict(kwargs or {})
        if not _concerns((args, named), (torch.float64,)) or _is_view(func):
            return self._called(func, args, named)
        inside = self._inside(func, args, named)
        if inside is not None:
            return inside[0]
        own, own_named = tree_map(self._narrow, args), tree_map(self._narrow, named)
        if not named and _of_a_parameter(func, own, self._rows):
            return self._wide(_one_by_one(*own))
        try:
            found = tree_map(self._wide, func(*own, **own_named))
        except (RuntimeError, NotImplementedError):
            own, own_named = args, named
            found = tree_map(self._rounded, func(*args, **named))
        if not _writes(func):
            return found
        pairs = list(_written(func, (args, named), (own, own_named)))
        for into, value in pairs:
            if into.dtype == torch.float64:
                into.copy_(self._rounded(value))
        return _originals(func, found, [into for into, _ in pairs])

    def _inside(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> tuple[Any] | None:
        """What an operator written in Python gives, its own operations disguised; None for others, and where torch does not compute it (NumPy,
        Triton): then it is no number of the narrow type, and what was written is put back."""
        if in_python(func, (args, named)) is None:
            return None
        before = tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, (args, named)) if _writes(func) else (args, named)
        pairs = list(_written(func, (args, named), before))
        try:
            found = self._called(func, args, named)
            if all(torch.equal(x.nan_to_num(), self._rounded(x).nan_to_num()) for x in (*_tensors(found), *(into for into, _ in pairs))):
                return (found,)
        except (RuntimeError, NotImplementedError):
            pass
        for into, value in pairs:
            into.copy_(value)
        return None

    def _narrow(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(dtype=self._dtype) if value.dtype == torch.float64 else value
        return self._dtype if value is torch.float64 else value

    def _wide(self, value: Any) -> Any:
        return value.to(dtype=torch.float64) if isinstance(value, Tensor) and value.dtype == self._dtype else value

    def _rounded(self, value: Any) -> Any:
        return self._wide(self._narrow(value))


class Lifted(Exchanged):
    """Where an operation asks for less than float64 (`.float()`, a constant in bfloat16), it gets float64. `count`: how often."""

    def __init__(self, wider: Mapping[torch.dtype, torch.dtype] = MappingProxyType(dict.fromkeys(LOW, torch.float64)),
                 shows: bool = False) -> None:
        """`wider`: what stands in for which dtype. `shows`: custom operators run as under `Shown`."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._wider, self._low, self._shows = wider, tuple(wider), shows
        self.count = 0

    def _called(self, func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        body = body_of(func) if self._shows else None
        if body is None:
            return super()._called(func, args, named)
        with self, Shown():
            return body(*args, **named)

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        named = dict(kwargs or {})
        if not _concerns((args, named), self._low) or (_is_view(func) and not _casts(func)) or _writes(func):
            return self._called(func, args, named)
        self.count += 1
        return self._called(func, tree_map(self._lifted, args), tree_map(self._lifted, named))

    def _lifted(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(dtype=self._wider[value.dtype]) if value.dtype in self._wider else value
        return self._wider.get(value, value) if isinstance(value, torch.dtype) else value


class Shown(TorchFunctionMode):
    """A tensor of float64 says that it is float32, and one of complex128 complex64: code that takes nothing else takes it."""

    def __torch_function__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, np.ndarray) and found.dtype == np.float64:
            return found.view(ShownArray)
        return SHOWN.get(found, found) if isinstance(found, (torch.dtype, str)) else found


class ShownArray(np.ndarray):
    """An array of float64, and what is computed of it, that says it is float32."""

    @property
    def dtype(self) -> Any:
        return np.dtype(np.float32)

    def astype(self, dtype: Any, *args: Any, **named: Any) -> Any:
        """A cast to float32 leaves it as it is."""
        return self.copy() if np.dtype(dtype) == np.float32 else super().astype(dtype, *args, **named)


def _concerns(values: Any, dtypes: Sequence[torch.dtype]) -> bool:
    """Is a tensor of these dtypes among the arguments, or one of the dtypes itself?"""
    if isinstance(values, Tensor):
        return values.dtype in dtypes
    if isinstance(values, (tuple, list)):
        return any(_concerns(each, dtypes) for each in values)
    if isinstance(values, dict):
        return any(_concerns(each, dtypes) for each in values.values())
    return isinstance(values, torch.dtype) and values in dtypes


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _of_a_parameter(func: Any, args: Sequence[Any], rows: int) -> bool:
    """Is it a sum over the first dimensions, within a backward: how the gradient of a weight or bias of all rows is made?"""
    if func is not torch.ops.aten.sum.dim_IntList or torch._C._current_graph_task_id() == -1:
        return False
    dims = sorted(dim % max(args[0].dim(), 1) for dim in args[1] or ())
    return 0 < len(dims) < args[0].dim() and dims == list(range(len(dims))) and 0 < args[0].shape[:len(dims)].numel() <= rows


def _one_by_one(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """That sum, rounded after each row, as torch's own `layer_norm` makes it on the CPU."""
    rows = x.reshape(-1, *x.shape[len(dims):])
    found = rows[0]
    for row in rows[1:]:
        found = found + row
    return found.reshape((*[1] * len(dims), *found.shape)) if keepdim else found


def _is_view(func: Any) -> bool:
    """Does it return memory of its arguments, and write nothing?"""
    returns = [each.alias_info for each in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in returns)


def _casts(func: Any) -> bool:
    """Is it `.to(dtype)`, which is a view where nothing is to be done? Under inference_mode it comes as it is."""
    return str(func._schema.name) in ("aten::to", "aten::type_as")


def _writes(func: Any) -> bool:
    return bool(func._schema.is_mutable)


def _written(func: Any, before: tuple[Sequence[Any], dict[str, Any]], after: tuple[Sequence[Any], dict[str, Any]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The tensors that an operation writes into, beside those in their place that it did write into; in the order of its arguments."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            into, value = (args[place] if place < len(args) else named.get(argument.name) for args, named in (before, after))
            if isinstance(into, Tensor) and isinstance(value, Tensor):
                yield into, value
            elif isinstance(into, (tuple, list)) and isinstance(value, (tuple, list)):
                yield from zip(into, value, strict=True)


def _originals(func: Any, found: Any, written: list[Tensor]) -> Any:
    """What an operation returns, the tensors that it wrote into in the place of copies of them."""
    returns = [each.alias_info is not None and each.alias_info.is_write for each in func._schema.returns]
    if returns == [True]:
        return written if isinstance(found, (tuple, list)) else written[0]
    if not isinstance(found, tuple):
        return found
    own = iter(written)
    return tuple(next(own) if is_own else each for is_own, each in zip(returns, found, strict=True))
