"""Dtypes exchanged under a function's feet: 16 bits that look like float64 to it, and float64 where it asks for less.

Both modes see every operation of torch that forward and backward run, below autograd; those in an operator that is written in Python too. What does
not go through torch is out of their sight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import SIXTEEN
from gradverify.subject.in_python import in_python
from gradverify.subject.own_code import DispatchMode, FunctionMode, wrapped
from gradverify.torch_private import body_of, inside_backward, pytree, schema, without_modes

LOW = (torch.float32, *SIXTEEN)
SHOWN: Mapping[Any, Any] = {
    torch.float64: torch.float32, torch.complex128: torch.complex64, "torch.DoubleTensor": "torch.FloatTensor",
    "torch.cuda.DoubleTensor": "torch.cuda.FloatTensor"}
ROWS = 4096     # of which a sum is made one by one


@contextmanager
def undisguised() -> Iterator[None]:
    """Inside, operations run as they are."""
    with without_modes():
        yield


class Exchanged(DispatchMode):
    """A mode that sees inside operators that are written in Python, or in what else `inside` finds the implementation of."""

    inside = staticmethod(in_python)

    def _called(self, func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """What an operation gives; where it is not torch's own, with its own operations in this mode."""
        own = self.inside(func, (args, named))
        if own is None:
            return wrapped(func, *args, **named)
        with self:
            return wrapped(own, *args, **named)


class Disguised(Exchanged):
    """Every operation on float64 runs in 16 bits, and what comes of it is float64 again: numbers of the narrow type, by torch's own kernels for it.

    A function computes in its own way, upcasts to float32 included, and cannot see in which dtype: it takes no branch that only 16 bits take.
    An operation that torch does not have in 16 bits is rounded once. The gradient of what up to so many `rows` share is rounded after each of them.
    """

    def __init__(self, dtype: torch.dtype, rows: int = ROWS) -> None:
        super().__init__()
        self._dtype, self._rows = dtype, rows

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        if not _concerns((args, named), (torch.float64,)) or _is_view(func):
            return self._called(func, args, named)
        inside = self._inside(func, args, named)
        if inside is not None:
            return inside[0]
        own, own_named = pytree.tree_map(self._narrow, args), pytree.tree_map(self._narrow, named)
        if not named and _of_a_parameter(func, own, self._rows):
            return self._wide(_one_by_one(*own))
        try:
            found, back = wrapped(func, *own, **own_named), self._wide
        except (RuntimeError, NotImplementedError):
            own, own_named = args, named
            found, back = wrapped(func, *args, **named), self._rounded
        found = pytree.tree_map(back, found)
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
        before = pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, (args, named)) if _writes(func) else (args, named)
        pairs, found = list(_written(func, (args, named), before)), None
        with suppress(RuntimeError, NotImplementedError):
            found = (self._called(func, args, named),)
        given = (*_tensors(found), *(into for into, _ in pairs))
        if found is not None and all(torch.equal(x.nan_to_num(), self._rounded(x).nan_to_num()) for x in given):
            return found
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
        super().__init__()
        self._wider, self._low, self._shows = wider, tuple(wider), shows
        self.count = 0

    def _called(self, func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        body = body_of(func) if self._shows else None
        if body is None:
            return super()._called(func, args, named)
        with self, Shown():
            return wrapped(body, *args, **named)

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        if not _concerns((args, named), self._low) or (_is_view(func) and not _casts(func)) or _writes(func):
            return self._called(func, args, named)
        self.count += 1
        return self._called(func, pytree.tree_map(self._lifted, args), pytree.tree_map(self._lifted, named))

    def _lifted(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(dtype=self._wider[value.dtype]) if value.dtype in self._wider else value
        return self._wider.get(value, value) if isinstance(value, torch.dtype) else value


class Shown(FunctionMode):
    """A tensor of float64 says that it is float32, and one of complex128 complex64: code that takes nothing else takes it."""

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        found = wrapped(func, *args, **named)
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
    return [x for x in pytree.tree_leaves(values) if isinstance(x, Tensor)]


def _of_a_parameter(func: Any, args: Sequence[Any], rows: int) -> bool:
    """Is it a sum over the first dimensions, within a backward: how the gradient of a weight or bias of all rows is made?"""
    if func is not torch.ops.aten.sum.dim_IntList or not inside_backward():
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
    """Does it return memory of its arguments, and write no number? `x.squeeze_()` writes a shape."""
    if torch.Tag.inplace_view in func.tags:
        return True
    returns = [each.alias_info for each in schema(func).returns]
    return any(alias is not None and not alias.is_write for alias in returns)


def _casts(func: Any) -> bool:
    """Is it `.to(dtype)`, which is a view where nothing is to be done? Under inference_mode it comes as it is."""
    return str(schema(func).name) in ("aten::to", "aten::type_as")


def _writes(func: Any) -> bool:
    return bool(schema(func).is_mutable)


def _written(func: Any, before: tuple[Sequence[Any], dict[str, Any]], after: tuple[Sequence[Any], dict[str, Any]]) -> Iterator[tuple[Tensor, Tensor]]:
    """The tensors that an operation writes into, beside those in their place that it did write into; in the order of its arguments."""
    for place, argument in enumerate(schema(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            into, value = (args[place] if place < len(args) else named.get(argument.name) for args, named in (before, after))
            if isinstance(into, Tensor) and isinstance(value, Tensor):
                yield into, value
            elif isinstance(into, (tuple, list)) and isinstance(value, (tuple, list)):
                yield from zip(into, value, strict=True)


def _originals(func: Any, found: Any, written: list[Tensor]) -> Any:
    """What an operation returns, the tensors that it wrote into in the place of copies of them."""
    returns = [each.alias_info is not None and each.alias_info.is_write for each in schema(func).returns]
    if returns == [True]:
        return written if isinstance(found, (tuple, list)) else written[0]
    if not isinstance(found, tuple):
        return found
    own = iter(written)
    return tuple(next(own) if is_own else each for is_own, each in zip(returns, found, strict=True))
