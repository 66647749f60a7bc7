"""Modes that change the precision of a function's operations without its noticing: 16 bits that
look like float64, float64 instead of less, and random roundings.

The modes see every operation of torch that forward and backward run, below autograd, including
those in operators written in Python. Code outside of torch is not affected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import DOUBLE, SIXTEEN, UNITS
from gradverify.numerics.rungs import U32, ULP
from gradverify.subject.own_code import (
    DispatchMode,
    FunctionMode,
    Keywords,
    implementation,
    wrapped,
)
from gradverify.torch_private import (
    LOG_SOFTMAX,
    body_of,
    inside_backward,
    python_kernel,
    pytree,
    schema,
)

# ---- Dtypes replaced: 16 bits that look like float64 to the function, and float64 instead of less
LOW = (torch.float32, *SIXTEEN)
SHOWN: Mapping[Any, Any] = {
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
    "torch.DoubleTensor": "torch.FloatTensor",
    "torch.cuda.DoubleTensor": "torch.cuda.FloatTensor",
}
CASTS = ("aten::to", "aten::type_as")
ROWS = 4096  # the most rows that are added one by one


def is_fresh(func: Any) -> bool:
    """Return whether an operation writes into no argument, and returns only memory of its own."""
    declared = schema(func)
    return not (
        declared.is_mutable or any(each.alias_info is not None for each in declared.returns)
    )


class Exchanged(DispatchMode):
    """A mode that also sees the operations inside operators written in Python, or any others whose
    implementation `kernel` finds."""

    kernel = staticmethod(python_kernel)

    def _called(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        """Call an operation; if it is not torch's own, its own operations run in this mode."""
        own = implementation(func, (args, named), self.kernel)
        if own is None:
            return wrapped(func, *args, **named)
        with self:
            return wrapped(own, *args, **named)


class Disguised(Exchanged):
    """Mode that runs every operation on float64 in 16 bits, by torch's own kernels for these, and
    casts the results back to float64.

    A function runs its own algorithm, including upcasts to float32, and cannot see the dtype, so
    that it takes no branch for 16 bits. The result of an operation that torch does not have in 16
    bits is rounded once. The gradient of a tensor shared by up to so many `rows` is rounded after
    each row.
    """

    def __init__(self, dtype: torch.dtype, rows: int = ROWS) -> None:
        super().__init__()
        self._dtype, self._rows = dtype, rows

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        if not _concerns((args, named), (torch.float64,)) or _is_view(func):
            return self._called(func, args, named)
        inside = self._inside(func, args, named)
        if inside is not None:
            return inside[0]
        own, own_named = pytree.tree_map(self._narrow, (args, named))
        if not named and func is torch.ops.aten.sum.dim_IntList and inside_backward():
            x, dims = own[0], sorted(dim % max(own[0].dim(), 1) for dim in own[1] or ())
            if (
                0 < len(dims) < x.dim()
                and dims == list(range(len(dims)))
                and 0 < x.shape[: len(dims)].numel() <= self._rows
            ):
                # The gradient of a weight or bias shared by all rows, rounded after each row, as
                # in torch's own `layer_norm` on the CPU
                rows = x.reshape(-1, *x.shape[len(dims) :])
                total = rows[0]
                for row in rows[1:]:
                    total = total + row
                return self._wide(
                    total.reshape((*[1] * len(dims), *total.shape)) if own[2:] and own[2] else total
                )
        try:
            found, back = wrapped(func, *own, **own_named), self._wide
        except RuntimeError:
            own, own_named = args, named
            found, back = wrapped(func, *args, **named), self._rounded
        found = pytree.tree_map(back, found)
        if not _writes(func):
            return found
        pairs = _pairs(func, (args, named), (own, own_named))
        for into, value in pairs:
            if into.dtype == torch.float64:
                into.copy_(self._rounded(value))
        own_returns = list(map(_is_written, schema(func).returns))
        originals = [original for original, _ in pairs]
        if own_returns == [True]:  # return the tensors written into, not copies
            return originals if isinstance(found, (tuple, list)) else originals[0]
        if not isinstance(found, tuple):
            return found
        each = iter(originals)
        return tuple(
            next(each) if is_own else y for is_own, y in zip(own_returns, found, strict=True)
        )

    def _inside(self, func: Any, args: Sequence[Any], named: Keywords) -> tuple[Any] | None:
        """Return the result of an operator written in Python with its own operations disguised;
        None for other operators, and for those computed outside of torch (NumPy, Triton), whose
        results are no numbers of the narrow dtype; their writes are undone."""
        if implementation(func, (args, named)) is None:
            return None
        given = args, named
        before = pytree.tree_map_only(Tensor, Tensor.clone, given) if _writes(func) else given
        pairs, found = _pairs(func, given, before), None
        with suppress(RuntimeError):
            found = (self._called(func, args, named),)
        if found is not None and all(
            torch.equal(x.nan_to_num(), self._rounded(x).nan_to_num())
            for x in (*pytree.tree_leaves(found), *(into for into, _ in pairs))
            if isinstance(x, Tensor)
        ):
            return found
        for into, value in pairs:
            into.copy_(value)
        return None

    def _narrow(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(dtype=self._dtype) if value.dtype == torch.float64 else value
        return self._dtype if value is torch.float64 else value

    def _wide(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype == self._dtype:
            return value.to(dtype=torch.float64)
        return value

    def _rounded(self, value: Any) -> Any:
        return self._wide(self._narrow(value))


class Lifted(Exchanged):
    """Mode in which casts to less than float64 (`.float()`, a constant in bfloat16) give float64.
    `replaced`: the dtypes that were replaced."""

    def __init__(
        self,
        wider: Mapping[torch.dtype, torch.dtype] = MappingProxyType(
            dict.fromkeys(LOW, torch.float64)
        ),
        shows: bool = False,
    ) -> None:
        """`wider`: the replacement of each dtype. `shows`: custom operators run as under
        `Shown`."""
        super().__init__()
        self._wider, self._low, self._shows = wider, tuple(wider), shows
        self.replaced = set[torch.dtype]()

    def _called(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        body = body_of(func) if self._shows else None
        if body is None:
            return super()._called(func, args, named)
        with self, Shown():
            return wrapped(body, *args, **named)

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        # Casts are declared views, as they may return their argument; under inference_mode they
        # arrive undecomposed
        if (
            not _concerns((args, named), self._low)
            or (_is_view(func) and str(schema(func).name) not in CASTS)
            or _writes(func)
        ):
            return self._called(func, args, named)
        return self._called(func, *pytree.tree_map(self._lifted, (args, named)))

    def _lifted(self, value: Any) -> Any:
        dtype = value.dtype if isinstance(value, Tensor) else value
        wide = self._wider.get(dtype) if isinstance(dtype, torch.dtype) else None
        if wide is None:
            return value
        self.replaced.add(dtype)
        return value.to(dtype=wide) if isinstance(value, Tensor) else wide


SIZES = (
    Tensor.element_size,
    Tensor.itemsize.__get__,  # type: ignore[attr-defined]
    Tensor.nbytes.__get__,  # type: ignore[attr-defined]
)
"""The functions that return bytes, of which the reported dtype has half as many."""


class Shown(FunctionMode):
    """Mode in which tensors of float64 report float32, and of complex128 complex64, so that code
    that requires these dtypes accepts them."""

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        found = wrapped(func, *args, **named)
        if isinstance(found, np.ndarray) and found.dtype == np.float64:
            return found.view(ShownArray)
        if func in SIZES and args[0].dtype in SHOWN:
            return found // 2
        return SHOWN.get(found, found) if isinstance(found, (torch.dtype, str)) else found


class ShownArray(np.ndarray):
    """An array of float64 that reports float32, as do arrays computed from it."""

    @property
    def dtype(self) -> Any:
        return np.dtype(np.float32)

    def astype(self, dtype: Any, *args: Any, **named: Any) -> Any:
        """Cast the array, but keep float64 for a cast to float32."""
        if np.dtype(dtype) == np.float32:
            return self.copy()
        return super().astype(dtype, *args, **named)


def _concerns(values: Any, dtypes: Sequence[torch.dtype]) -> bool:
    """Return whether the arguments contain a tensor of one of the dtypes, or one of the dtypes
    itself."""
    if isinstance(values, (tuple, list, dict)):
        inside = values.values() if isinstance(values, dict) else values
        return any(_concerns(each, dtypes) for each in inside)
    dtype = values.dtype if isinstance(values, Tensor) else values
    return isinstance(dtype, torch.dtype) and dtype in dtypes


def _is_view(func: Any) -> bool:
    """Return whether an operation returns memory of its arguments, and writes no numbers
    (`x.squeeze_()` writes a shape)."""
    if torch.Tag.inplace_view in func.tags:
        return True
    returns = [each.alias_info for each in schema(func).returns]
    return any(alias is not None and not alias.is_write for alias in returns)


def _writes(func: Any) -> bool:
    return bool(schema(func).is_mutable)


def _is_written(declared: Any) -> bool:
    """Return whether an argument is written into by the operation, or a return is such an
    argument."""
    return declared.alias_info is not None and bool(declared.alias_info.is_write)


def _written(func: Any, args: Sequence[Any], named: Keywords) -> list[Any]:
    """Return the arguments that an operation writes into, in order."""
    return pytree.tree_leaves(
        [
            args[place] if place < len(args) else named.get(each.name)
            for place, each in enumerate(schema(func).arguments)
            if _is_written(each)
        ]
    )


def _pairs(
    func: Any, before: tuple[Sequence[Any], Keywords], after: tuple[Sequence[Any], Keywords]
) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of a tensor that an operation would write into, out of the arguments `before`,
    and the tensor of `after` that it has written into instead."""
    return [
        pair
        for pair in zip(_written(func, *before), _written(func, *after), strict=True)
        if all(isinstance(x, Tensor) for x in pair)
    ]


# ---- The error that fewer bits (16, or those of TF32) cause in a function: outputs and gradients
# with all computed numbers rounded at random
TF32 = torch.float32  # as a dtype to round to: the precision of float16, the range of float32
# Results that are examined first for whether an operation only selects numbers; each is compared
# with all given numbers
FEW = 4
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, TF32: 2.0**-11}


class Rounded(DispatchMode):
    """Mode in which every new result in float32 (or already in 16 bits) is moved by a random part
    of the roundoff, and rounded."""

    def __init__(self, dtype: torch.dtype, source: torch.Generator) -> None:
        super().__init__()
        self._dtype, self._source = dtype, source

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        returned = wrapped(func, *args, **named)
        return pytree.tree_map_only(Tensor, self._shaken, returned) if is_fresh(func) else returned

    def _shaken(self, x: Tensor) -> Tensor:
        rounds = (
            x.dtype in ROUNDOFF and x.layout is torch.strided and type(x) is Tensor and x.numel()
        )
        return shaken(x, self._dtype, self._source) if rounds else x


def shaken(x: Tensor, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Multiply each element by 1 ± up to the roundoff, and round it to `dtype`; return the result
    in the dtype and memory layout of `x`."""
    signs = torch.rand(x.shape, generator=source, dtype=torch.float32).to(x.device) * 2 - 1
    moved = x.detach().float() * (1 + ROUNDOFF[dtype] * signs)
    if dtype is TF32:  # as tensor cores read numbers
        mantissa, exponent = torch.frexp(moved)
        return torch.empty_like(x).copy_(torch.ldexp(mantissa.to(torch.float16).float(), exponent))
    return torch.empty_like(x).copy_(moved.to(dtype))


def _log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """Compute `log_softmax` in steps. The fused operation gives a row with one far larger number 0
    there, or a rounding of log 1, however its arguments are perturbed."""
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


FUSED = {LOG_SOFTMAX: _log_softmax}
"""Operations replaced by their steps, which are rounded one by one: perturbed arguments would not
show the rounding error."""


LAPACKS = torch.int32
"""The dtype of pivots and status codes of factorisations; indices are int64."""
# Share of the size above which a dtype represents integers only: smaller integers are not results
# of rounding
WHOLE = 2.0**-4


class Perturbed(Exchanged):
    """Mode in which operations in float64 get arguments moved by a random part of a roundoff,
    float32's by default (Parker, Monte Carlo Arithmetic, 1997).

    This is the error of a backward stable operation of that precision, also of a fused one. Results
    that are only selected or copied (`amax`, `where`, `clone`) are exact in any precision, and not
    moved, so that a mask `x == x.amax()` is kept. Random draws are made once. `coarsest`: the
    largest roundoff of the dtypes of moved numbers.
    """

    units: Mapping[torch.dtype, float]
    # Whether results, and tensors written into, are moved too, except small integers (a mask, a
    # count)
    results = False

    def __init__(self, source: torch.Generator, unit: float = U32) -> None:
        super().__init__()
        self._source, self.units, self.coarsest = source, dict.fromkeys(DOUBLE, unit), 0.0

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            return wrapped(func, *args, **named)
        if func in FUSED and self._rounds(args[0]):
            with self:
                return FUSED[func](*args, **named)
        given = pytree.tree_leaves((args, named))
        if _writes(func) and self.results:
            into = [x for x in _written(func, args, named) if self._rounds(x)]
            given = [x.clone() if isinstance(x, Tensor) else x for x in given]
            returned = wrapped(func, *args, **named)
            for x in into:
                # The operation may have freed its memory
                if self._rounds(x) and not self._exact([x], given):
                    x.copy_(self._off(x))
            return returned
        returned = wrapped(func, *args, **named)
        if not is_fresh(func):
            return returned
        results = [
            y for y in pytree.tree_leaves(returned) if isinstance(y, Tensor) and y.dtype != LAPACKS
        ]
        rounded = [self._rounds(y) for y in results]
        if (
            not any(rounded)
            or not any(map(self._rounds, given))
            or not (self.results or all(rounded))
            or self._exact(results, given)
        ):
            return returned
        if all(rounded):
            returned = self._called(func, *pytree.tree_map(self._off, (tuple(args), named)))
        return pytree.tree_map(self._off, returned) if self.results else returned

    def _rounds(self, x: Any) -> bool:
        """Return whether a value is a tensor whose numbers are moved."""
        return (
            type(x) is Tensor
            and x.dtype in self.units
            and x.layout is torch.strided
            and x.numel() > 0
            and not x.is_meta
        )

    def _off(self, x: Any) -> Any:
        if not self._rounds(x):
            return x
        self.coarsest = max(self.coarsest, UNITS[x.dtype])
        part = torch.empty_like(x.real if x.is_complex() else x, dtype=torch.float64)
        part = part.copy_(torch.rand(x.shape, generator=self._source, dtype=torch.float64)) * 2 - 1
        # Operations inside a dispatch mode read the memory of `x.conj()` as if it were x; only a
        # copy resolves the conjugate
        known = x.clone() if x.is_conj() or x.is_neg() else x
        return torch.empty_like(x).copy_(known * (1 + self.units[x.dtype] * part))

    def _exact(self, results: Sequence[Tensor], given: Sequence[Any]) -> bool:
        """Return whether all results are numbers that were given, or zeros or small integers. A few
        results are examined first, as they nearly always suffice: examining all sorts up to a
        million numbers."""
        rounded = [y for y in results if self._rounds(y)]
        tensors = [
            x.to(rounded[0].device)
            for x in given
            if isinstance(x, Tensor)
            and x.layout is torch.strided
            and not x.is_meta
            and x.dtype != torch.bool
        ]
        known = torch.cat([_sizes(x) for x in tensors if x.dim()] or [_sizes(rounded[0])[:0]])
        scalars = [x for x in given if isinstance(x, (int, float))]
        # Tensors without dimensions may lie on another device
        constants = [
            torch.tensor(abs(x), dtype=y.dtype.to_real()).double() for x in scalars for y in rounded
        ]
        constants += [part for x in tensors if not x.dim() for part in _sizes(x)]
        found = [(_sizes(y), WHOLE / UNITS[y.dtype] if self.results else 1.0) for y in rounded]
        few = [(y[:: max(1, len(y) // FEW)][:FEW], whole) for y, whole in found]
        return all(_known(y, known, constants, whole) for y, whole in (*few, *found))


class Anew(Perturbed):
    """Mode in which operations get arguments, and give results, moved at random by up to an ulp of
    their own dtype."""

    results = True

    def __init__(self, source: torch.Generator) -> None:
        super().__init__(source)
        self.units = {dtype: ULP * unit for dtype, unit in UNITS.items()}


def _sizes(x: Tensor) -> Tensor:
    """Return the magnitudes of all real numbers of a tensor."""
    parts = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return parts.detach().resolve_neg().flatten().to(dtype=torch.float64).abs()


def _known(sizes: Tensor, known: Tensor, constants: Sequence[Tensor], whole: float) -> bool:
    """Return whether all sizes are known numbers, constants, or integers below `whole`."""
    # `isin` sorts all numbers
    among = (sizes[:, None] == known).any(1) if len(sizes) <= FEW else torch.isin(sizes, known)
    found = ((sizes == sizes.round()) & (sizes < whole)) | among
    for constant in constants:
        found = found | (sizes == constant)
    return bool(found.all())
