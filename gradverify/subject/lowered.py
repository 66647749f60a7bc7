"""What fewer bits (16, or those of TF32) cost a function: its outputs and gradients with every number that it computes rounded, anew each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import DOUBLE
from gradverify.numerics.rungs import U32
from gradverify.subject.disguised import Exchanged
from gradverify.subject.draw import generator
from gradverify.subject.own_code import DispatchMode, wrapped
from gradverify.torch_private import LOG_SOFTMAX, pytree, schema

Value = TypeVar("Value")

TF32 = torch.float32     # as a dtype to be rounded to: the bits of float16, the range of float32
FEW = 4     # results that are asked first whether an operation only picks: as many comparisons with each number given
ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, TF32: 2.0**-11}


class Rounded(DispatchMode):
    """Inside, what each operation newly returns in float32 (or in 16 bits already) is moved by a random part of the roundoff, and rounded."""

    def __init__(self, dtype: torch.dtype, source: torch.Generator) -> None:
        super().__init__()
        self._dtype, self._source = dtype, source

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        returned = wrapped(func, *args, **named)
        declared = schema(func)
        if declared.is_mutable or any(each.alias_info is not None for each in declared.returns):
            return returned
        return pytree.tree_map_only(Tensor, self._shaken, returned)

    def _shaken(self, x: Tensor) -> Tensor:
        if x.dtype not in ROUNDOFF or x.layout is not torch.strided or type(x) is not Tensor or not x.numel():
            return x
        return shaken(x, self._dtype, self._source)


def shaken(x: Tensor, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Each element times 1 ± up to the roundoff, rounded to `dtype`; in the dtype that it had, and in its own memory layout."""
    signs = torch.rand(x.shape, generator=source, dtype=torch.float32).to(x.device) * 2 - 1
    moved = x.detach().float() * (1 + ROUNDOFF[dtype] * signs)
    return torch.empty_like(x).copy_(in_tf32(moved) if dtype is TF32 else moved.to(dtype))


def in_tf32(x: Tensor) -> Tensor:
    """Numbers of float32, rounded as tensor cores read them."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(mantissa.to(torch.float16).float(), exponent)


@contextmanager
def rounded(dtype: torch.dtype, source: torch.Generator) -> Iterator[None]:
    """Of forward and backward."""
    with Rounded(dtype, source):
        yield


def _log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    """Of one number that is far larger than the others: 0, or a rounding of the sum 1, whatever is done to the arguments."""
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


FUSED = {LOG_SOFTMAX: _log_softmax}
"""Operations that are no more exact than their steps, which are rounded one by one: those of changed arguments would not show it."""


LAPACKS = torch.int32
"""What a factorisation says beside its numbers: pivots, and whether it went well; indices are int64."""


class Perturbed(Exchanged):
    """Inside, operations in float64 take arguments a random part of a roundoff off, float32's by default (Parker, Monte Carlo Arithmetic, 1997).

    That is what a backward stable operation of that precision may do, fused ones too. What one only picks or copies (`amax`, `where`, `clone`) is
    exact in any precision, and stays: a mask by `x == x.amax()` is what it was.
    """

    def __init__(self, source: torch.Generator, unit: float = U32) -> None:
        super().__init__()
        self._source, self._unit = source, unit

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        if func in FUSED and all(map(_in_double, pytree.tree_leaves(args[:1]))):
            with self:
                return FUSED[func](*args, **named)
        returned = wrapped(func, *args, **named)
        declared = schema(func)
        if declared.is_mutable or any(each.alias_info is not None for each in declared.returns):
            return returned
        given = [x for x in pytree.tree_leaves((args, named)) if _in_double(x)]
        results = [y for y in pytree.tree_leaves(returned) if isinstance(y, Tensor) and y.dtype != LAPACKS]
        if not given or not results or not all(_in_double(y) for y in results) or _picked(results, given):
            return returned
        return self._called(func, pytree.tree_map(self._off, tuple(args)), pytree.tree_map(self._off, named))

    def _off(self, x: Any) -> Any:
        if not _in_double(x):
            return x
        part = x.new_empty(x.shape, dtype=torch.float64).copy_(torch.rand(x.shape, generator=self._source, dtype=torch.float64)) * 2 - 1
        # an operation inside here reads the memory of `x.conj()` as if it were x; a copy alone minds the conjugate
        known = x.clone() if x.is_conj() or x.is_neg() else x
        return torch.empty_like(x).copy_(known * (1 + self._unit * part))


def rounded_at_random(compute: Callable[[], Value], ways: int, *purpose: str) -> list[Value]:
    """What `compute` gives in so many ways to round every operation in float64 as float32 does; the same ones for a purpose."""
    found = list[Value]()
    for number in range(ways):
        with Perturbed(generator(number, *purpose)):
            found.append(compute())
    return found


def _in_double(x: Any) -> bool:
    return type(x) is Tensor and x.dtype in DOUBLE and x.layout is torch.strided


def _picked(results: Sequence[Tensor], given: Sequence[Tensor]) -> bool:
    """Are all results numbers that were given, or zeros? A few of them nearly always say no at once: to ask of all sorts what may be a million."""
    numbers = torch.cat([x.flatten().abs() for x in given])
    flat = [y.flatten().abs() for y in results]
    few = torch.cat([y[::max(1, len(y) // FEW)][:FEW] for y in flat])
    if not bool(((few[:, None] == numbers).any(1) | (few == 0)).all()):
        return False
    return all(bool((torch.isin(y, numbers) | (y == 0)).all()) for y in flat)
