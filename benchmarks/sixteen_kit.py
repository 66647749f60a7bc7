"""The ways to compute an operator, right and wrong: kits of the primitives that operators are
written in.

What is wrong is wrong in every dtype but float64, so that finite differences in float64 see nothing
of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


class Kit:
    """Right: torch's own operations, which accumulate 16 bits in float32."""

    def up(self, x: Tensor) -> Tensor:
        return x

    def down(self, x: Tensor, like: Tensor) -> Tensor:
        return x.to(like.dtype)

    def total(self, x: Tensor) -> Tensor:
        return x.sum(-1, keepdim=True)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    def scale(self, x: Tensor, c: float) -> Tensor:
        return x * c

    def largest(self, x: Tensor) -> Tensor:
        return x.amax(-1, keepdim=True).detach()


class Upcast(Kit):
    """Right: float32 inside."""

    def up(self, x: Tensor) -> Tensor:
        return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class Reordered(Upcast):
    """Right: sums and products in blocks, the last block first."""

    def total(self, x: Tensor) -> Tensor:
        return torch.stack([part.sum(-1, keepdim=True) for part in reversed(x.split(16, -1))]).sum(
            0
        )

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        parts = list(zip(a.split(16, -1), b.split(16, -2), strict=True))
        return torch.stack([p.to(a.dtype) @ q for p, q in reversed(parts)]).sum(0)


def is_low(x: Tensor) -> bool:
    return x.dtype != torch.float64


def coarser(x: Tensor) -> Tensor:
    """float32 in bfloat16; 16 bits as they are."""
    return x + (x.detach().bfloat16().float() - x.detach()) if x.dtype == torch.float32 else x


class Accumulates(Kit):
    """Wrong: sums and products one after the other in 16 bits, of float32 too."""

    def total(self, x: Tensor) -> Tensor:
        if not is_low(x):
            return super().total(x)
        sum_ = torch.zeros_like(x[..., :1])
        for column in x.split(1, -1):
            sum_ = coarser(sum_ + column)
        return sum_

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        if not is_low(a):
            return super().product(a, b)
        sum_ = torch.zeros((), dtype=a.dtype)
        for column, row in zip(a.split(1, -1), b.split(1, -2), strict=True):
            sum_ = coarser(sum_ + column * row)
        return sum_


class Eighth(Kit):
    """Wrong: what is computed with passes through 8 bits (e4m3), float32 through bfloat16, as where
    an upcast is missing."""

    def up(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return coarser(x)
        return (
            x + (x.detach().clamp(-400, 400).to(torch.float8_e4m3fn).to(x.dtype) - x.detach())
            if is_low(x)
            else x
        )


class Kept(Kit):
    """Wrong: constants with three bits."""

    def scale(self, x: Tensor, c: float) -> Tensor:
        return x * (
            round(c * 2 ** (3 - math.frexp(c)[1])) / 2 ** (3 - math.frexp(c)[1]) if is_low(x) else c
        )


class Twice(Kit):
    """Wrong: a scale that is applied twice."""

    def scale(self, x: Tensor, c: float) -> Tensor:
        return x * c * c if is_low(x) else x * c


class NoMaximum(Kit):
    """Wrong: the maximum is not subtracted."""

    def largest(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[..., :1]) if is_low(x) else super().largest(x)


class TensorFloat(Kit):
    """Small, in float32 alone: products of operands that have 10 bits, as tensor cores take
    them."""

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return _of_ten_bits(a) @ _of_ten_bits(b)


def _of_ten_bits(x: Tensor) -> Tensor:
    """To nearest; 16 bits and float64 as they are."""
    if x.dtype != torch.float32:
        return x
    rounded = (
        (x.detach().contiguous().view(torch.int32) + (1 << 12))
        .bitwise_and(-(1 << 13))
        .view(torch.float32)
    )
    return torch.where(x.isfinite(), x + (rounded - x.detach()), x)


RIGHT: Mapping[str, Kit] = {
    "16 bits": Kit(),
    "float32 inside": Upcast(),
    "other order": Reordered(),
}
WRONG: Mapping[str, Kit] = {
    "accumulates in 16 bits": Accumulates(),
    "missing upcast": Eighth(),
    "rounded constant": Kept(),
    "scale twice": Twice(),
    "no maximum": NoMaximum(),
}
SMALL: Mapping[str, Kit] = {"products in TF32": TensorFloat()}


@dataclass(frozen=True, slots=True)
class Operator:
    """`function(kit, *inputs)`, the shapes of its inputs, and torch's own of the same, where there
    is one."""

    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    torchs: Callable[..., Tensor] | None = None
