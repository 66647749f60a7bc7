"""Another way to round: every operation that a function runs, an ulp off at random in the dtype that it runs in.

That is what another order of its sums may do, in another memory layout or under another kernel: to numbers that cancel, and to a part that is
computed in float32 inside a function of float64. What does not go through torch is out of sight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import UNITS
from gradverify.subject.lowered import FEW, FUSED
from gradverify.subject.own_code import DispatchMode, wrapped
from gradverify.torch_private import pytree, schema

ULP = 2.0               # roundoffs
WHOLE = 2.0**-4         # of the numbers from which on a dtype holds nothing but integers: integers below come of no rounding


class Anew(DispatchMode):
    """Inside, operations take arguments, and give results, that are up to an ulp of their own dtype off at random.

    Exact in any way to round, and left alone: what is only picked or copied (`amax`, `where`, `clone`, `.double()`), small integers (a mask, a count,
    the sum of them), and what is drawn at random, which is drawn once.
    """

    def __init__(self, source: torch.Generator) -> None:
        super().__init__()
        self._source = source

    def answer(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        declared = schema(func)
        if torch.Tag.nondeterministic_seeded in func.tags:
            return wrapped(func, *args, **named)
        if func in FUSED and _rounds(args[0]):
            with self:
                return FUSED[func](*args, **named)
        if declared.is_mutable:
            return self._writing(func, args, named)
        returned = wrapped(func, *args, **named)
        if any(each.alias_info is not None for each in declared.returns):
            return returned
        results = [y for y in pytree.tree_leaves(returned) if isinstance(y, Tensor)]
        if not any(map(_rounds, results)) or _exact(results, pytree.tree_leaves((args, named))):
            return returned
        if all(map(_rounds, results)):
            returned = wrapped(func, *pytree.tree_map(self._off, tuple(args)), **pytree.tree_map(self._off, named))
        return pytree.tree_map(self._off, returned)

    def _writing(self, func: Any, args: Sequence[Any], named: dict[str, Any]) -> Any:
        """An operation in place: what it wrote is off."""
        into = [x for x in _written(func, args, named) if _rounds(x)]
        given = [x.clone() if isinstance(x, Tensor) else x for x in pytree.tree_leaves((args, named))]
        returned = wrapped(func, *args, **named)
        for x in into:
            if not _exact([x], given):
                x.copy_(self._off(x))
        return returned

    def _off(self, x: Any) -> Any:
        if not _rounds(x):
            return x
        drawn = torch.rand(x.shape, generator=self._source, dtype=torch.float64)
        part = torch.empty_like(x.real if x.is_complex() else x, dtype=torch.float64).copy_(drawn) * 2 - 1
        known = x.clone() if x.is_conj() or x.is_neg() else x       # an operation inside here reads the memory of `x.conj()` as if it were x
        return torch.empty_like(x).copy_(known * (1 + ULP * UNITS[x.dtype] * part))


def _rounds(x: Any) -> bool:
    """Is it a tensor whose numbers are rounded?"""
    return type(x) is Tensor and x.dtype in UNITS and x.layout is torch.strided and x.numel() > 0 and not x.is_meta


def _written(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """What an operation writes into."""
    places = [(place, each.name) for place, each in enumerate(schema(func).arguments) if each.alias_info is not None and each.alias_info.is_write]
    return pytree.tree_leaves([args[place] if place < len(args) else named.get(name) for place, name in places])


def _exact(results: Sequence[Tensor], given: Sequence[Any]) -> bool:
    """Are all results numbers that were given, or small integers? A few of them nearly always say no at once."""
    rounded = [y for y in results if _rounds(y)]
    tensors = [x for x in given if isinstance(x, Tensor) and x.layout is torch.strided and x.device == rounded[0].device]
    known = torch.cat([_sizes(x) for x in tensors if x.dim()] or [_sizes(rounded[0])[:0]])
    scalars = [x for x in given if isinstance(x, (int, float))]
    constants = [torch.tensor(abs(x), dtype=y.dtype.to_real()).double() for x in scalars for y in rounded]     # one number may lie on another device
    constants += [part for x in tensors if not x.dim() for part in (torch.view_as_real(x.resolve_conj()).abs() if x.is_complex() else [x.abs()])]
    found = [(_sizes(y), WHOLE / UNITS[y.dtype]) for y in rounded]
    few = [(y[::max(1, len(y) // FEW)][:FEW], whole) for y, whole in found]
    return all(_known(y, known, constants, whole) for y, whole in (*few, *found))


def _sizes(x: Tensor) -> Tensor:
    """The magnitudes of all real numbers."""
    parts = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return parts.detach().resolve_neg().flatten().to(dtype=torch.float64).abs()


def _known(sizes: Tensor, known: Tensor, constants: Sequence[Tensor], whole: float) -> bool:
    found = ((sizes == sizes.round()) & (sizes < whole)) | torch.isin(sizes, known)
    for constant in constants:
        found = found | (sizes == constant)
    return bool(found.all())
