"""Dtypes exchanged under a function's feet: 16 bits that look like float64 to it, and float64 where
it asks for less.

Both modes see every operation of torch that forward and backward run, below autograd; those in an
operator that is written in Python too. What does not go through torch is out of their sight.
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

# ---- Dtypes exchanged under a function's feet: 16 bits that look like float64 to it, and float64
# where it asks for less
LOW = (torch.float32, *SIXTEEN)
SHOWN: Mapping[Any, Any] = {
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
    "torch.DoubleTensor": "torch.FloatTensor",
    "torch.cuda.DoubleTensor": "torch.cuda.FloatTensor",
}
CASTS = ("aten::to", "aten::type_as")
ROWS = 4096  # of which a sum is made one by one


def is_fresh(func: Any) -> bool:
    """Does an operation write into no argument, and return memory of its own alone?"""
    declared = schema(func)
    return not (
        declared.is_mutable or any(each.alias_info is not None for each in declared.returns)
    )


class Exchanged(DispatchMode):
    """A mode that sees inside operators that are written in Python, or in what else `kernel` finds
    the implementation of."""

    kernel = staticmethod(python_kernel)

    def _called(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        """What an operation gives; where it is not torch's own, with its own operations in this
        mode."""
        own = implementation(func, (args, named), self.kernel)
        if own is None:
            return wrapped(func, *args, **named)
        with self:
            return wrapped(own, *args, **named)


class Disguised(Exchanged):
    """Every operation on float64 runs in 16 bits, and what comes of it is float64 again: numbers of
    the narrow type, by torch's own kernels for it.

    A function computes in its own way, upcasts to float32 included, and cannot see in which dtype:
    it takes no branch that only 16 bits take. An operation that torch does not have in 16 bits is
    rounded once. The gradient of what up to so many `rows` share is rounded after each of them.
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
                # The gradient of a weight or bias of all rows, rounded after each of them, as
                rows = x.reshape(-1, *x.shape[len(dims) :])
                # torch's own `layer_norm` makes it on the CPU
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
        if own_returns == [True]:  # what it wrote into, and no copies
            return originals if isinstance(found, (tuple, list)) else originals[0]
        if not isinstance(found, tuple):
            return found
        each = iter(originals)
        return tuple(
            next(each) if is_own else y for is_own, y in zip(own_returns, found, strict=True)
        )

    def _inside(self, func: Any, args: Sequence[Any], named: Keywords) -> tuple[Any] | None:
        """What an operator written in Python gives, its own operations disguised; None for others,
        and where torch does not compute it (NumPy, Triton): then it is no number of the narrow
        type, and what was written is put back."""
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
    """Where an operation asks for less than float64 (`.float()`, a constant in bfloat16), it gets
    float64. `asked`: for which dtypes."""

    def __init__(
        self,
        wider: Mapping[torch.dtype, torch.dtype] = MappingProxyType(
            dict.fromkeys(LOW, torch.float64)
        ),
        shows: bool = False,
    ) -> None:
        """`wider`: what stands in for which dtype. `shows`: custom operators run as under
        `Shown`."""
        super().__init__()
        self._wider, self._low, self._shows = wider, tuple(wider), shows
        self.asked = set[torch.dtype]()

    def _called(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        body = body_of(func) if self._shows else None
        if body is None:
            return super()._called(func, args, named)
        with self, Shown():
            return wrapped(body, *args, **named)

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        # Casts are views where nothing is to be done; under inference_mode they come as they are
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
        self.asked.add(dtype)
        return value.to(dtype=wide) if isinstance(value, Tensor) else wide


SIZES = (
    Tensor.element_size,
    Tensor.itemsize.__get__,  # type: ignore[attr-defined]
    Tensor.nbytes.__get__,  # type: ignore[attr-defined]
)


class Shown(FunctionMode):
    """A tensor of float64 says that it is float32, and one of complex128 complex64: code that takes
    nothing else takes it."""

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        found = wrapped(func, *args, **named)
        if isinstance(found, np.ndarray) and found.dtype == np.float64:
            return found.view(ShownArray)
        if func in SIZES and args[0].dtype in SHOWN:
            return found // 2
        return SHOWN.get(found, found) if isinstance(found, (torch.dtype, str)) else found


class ShownArray(np.ndarray):
    """An array of float64, and what is computed of it, that says it is float32."""

    @property
    def dtype(self) -> Any:
        return np.dtype(np.float32)

    def astype(self, dtype: Any, *args: Any, **named: Any) -> Any:
        """A cast to float32 leaves it as it is."""
        if np.dtype(dtype) == np.float32:
            return self.copy()
        return super().astype(dtype, *args, **named)


def _concerns(values: Any, dtypes: Sequence[torch.dtype]) -> bool:
    """Is a tensor of these dtypes among the arguments, or one of the dtypes itself?"""
    if isinstance(values, (tuple, list, dict)):
        inside = values.values() if isinstance(values, dict) else values
        return any(_concerns(each, dtypes) for each in inside)
    dtype = values.dtype if isinstance(values, Tensor) else values
    return isinstance(dtype, torch.dtype) and dtype in dtypes


def _is_view(func: Any) -> bool:
    """Does it return memory of its arguments, and write no number? `x.squeeze_()` writes a
    shape."""
    if torch.Tag.inplace_view in func.tags:
        return True
    returns = [each.alias_info for each in schema(func).returns]
    return any(alias is not None and not alias.is_write for alias in returns)


def _writes(func: Any) -> bool:
    return bool(schema(func).is_mutable)


def _is_written(declared: Any) -> bool:
    """Is it an argument that an operation writes into, or such a one that it returns?"""
    return declared.alias_info is not None and bool(declared.alias_info.is_write)


def _written(func: Any, args: Sequence[Any], named: Keywords) -> list[Any]:
    """What an operation writes into, in the order of its arguments."""
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
    """The tensors that an operation writes into, beside those in their place that it did write
    into."""
    return [
        pair
        for pair in zip(_written(func, *before), _written(func, *after), strict=True)
        if all(isinstance(x, Tensor) for x in pair)
    ]


# ---- What fewer bits (16, or those of TF32) cost a function: its outputs and gradients with
# every number that it computes rounded, anew each time
TF32 = torch.float32  # as a dtype to be rounded to: the bits of float16, the range of float32
# Results that are asked first whether an operation only picks: as many comparisons with each number
# given
FEW = 4
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, TF32: 2.0**-11}


class Rounded(DispatchMode):
    """Inside, what each operation newly returns in float32 (or in 16 bits already) is moved by a
    random part of the roundoff, and rounded."""

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
    """Each element times 1 ± up to the roundoff, rounded to `dtype`; in the dtype that it had, and
    in its own memory layout."""
    signs = torch.rand(x.shape, generator=source, dtype=torch.float32).to(x.device) * 2 - 1
    moved = x.detach().float() * (1 + ROUNDOFF[dtype] * signs)
    if dtype is TF32:  # as tensor cores read them
        mantissa, exponent = torch.frexp(moved)
        return torch.empty_like(x).copy_(torch.ldexp(mantissa.to(torch.float16).float(), exponent))
    return torch.empty_like(x).copy_(moved.to(dtype))


def _log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """Of one number that is far larger than the others: 0, or a rounding of the sum 1, whatever is
    done to the arguments."""
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


FUSED = {LOG_SOFTMAX: _log_softmax}
"""Operations that are no more exact than their steps, which are rounded one by one: those of
changed arguments would not show it."""


LAPACKS = torch.int32
"""What a factorisation says beside its numbers: pivots, and whether it went well; indices are
int64."""
# Of the numbers from which on a dtype holds nothing but integers: integers below come of no
# rounding
WHOLE = 2.0**-4


class Perturbed(Exchanged):
    """Inside, operations in float64 take arguments a random part of a roundoff off, float32's by
    default (Parker, Monte Carlo Arithmetic, 1997).

    That is what a backward stable operation of that precision may do, fused ones too. What one only
    picks or copies (`amax`, `where`, `clone`) is exact in any precision, and stays: a mask by `x ==
    x.amax()` is what it was. What is drawn at random is drawn once. `coarsest`: the roundoff of the
    least precise numbers that were off.
    """

    units: Mapping[torch.dtype, float]
    # What operations give, and what they write into, is off too; small integers (a mask, a count)
    # are not
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
                # It may have given its memory back
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
        """Is it a tensor whose numbers are rounded?"""
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
        # An operation inside here reads the memory of `x.conj()` as if it were x; a copy alone
        # minds the conjugate
        known = x.clone() if x.is_conj() or x.is_neg() else x
        return torch.empty_like(x).copy_(known * (1 + self.units[x.dtype] * part))

    def _exact(self, results: Sequence[Tensor], given: Sequence[Any]) -> bool:
        """Are all results numbers that were given, or zeros or small integers? A few of them nearly
        always say no at once: to ask of all sorts what may be a million."""
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
        # One may lie on another device
        constants = [
            torch.tensor(abs(x), dtype=y.dtype.to_real()).double() for x in scalars for y in rounded
        ]
        constants += [part for x in tensors if not x.dim() for part in _sizes(x)]
        found = [(_sizes(y), WHOLE / UNITS[y.dtype] if self.results else 1.0) for y in rounded]
        few = [(y[:: max(1, len(y) // FEW)][:FEW], whole) for y, whole in found]
        return all(_known(y, known, constants, whole) for y, whole in (*few, *found))


class Anew(Perturbed):
    """Another way to round: inside, operations take arguments, and give results, that are up to an
    ulp of their own dtype off at random."""

    results = True

    def __init__(self, source: torch.Generator) -> None:
        super().__init__(source)
        self.units = {dtype: ULP * unit for dtype, unit in UNITS.items()}


def _sizes(x: Tensor) -> Tensor:
    """The magnitudes of all real numbers."""
    parts = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return parts.detach().resolve_neg().flatten().to(dtype=torch.float64).abs()


def _known(sizes: Tensor, known: Tensor, constants: Sequence[Tensor], whole: float) -> bool:
    # Which sorts them all
    among = (sizes[:, None] == known).any(1) if len(sizes) <= FEW else torch.isin(sizes, known)
    found = ((sizes == sizes.round()) & (sizes < whole)) | among
    for constant in constants:
        found = found | (sizes == constant)
    return bool(found.all())
