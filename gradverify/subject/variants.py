"""The same numbers laid out differently in memory, for rules that vary the layout of a call (what a spec asks for is `layout`).

What lies between and around the elements belongs to the storage and holds numbers of the tensor itself, in other places: code that takes the memory
for contiguous reads values that are wrong, yet in range for an index and inside the domain of a logarithm, and never leaves the storage.
"""

from __future__ import annotations

import torch
from torch import Tensor

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def sliced(x: Tensor) -> Tensor:
    """x as every second column of wider rows, from the second one on: no two dimensions can be seen as one."""
    x = x.detach()
    if not x.numel():
        return x.clone()
    rows = x.reshape(*x.shape[:-1], -1)
    others = reversed_along(rows, tuple(range(rows.dim())))
    wide = torch.stack([others, rows], -1).flatten(-2)
    wide = torch.cat([wide, others[..., :1]], -1)
    return wide[..., 1::2] if x.dim() else wide[1]


def reversed_along(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """`x.flip`, for unsigned integers too, which torch reverses only as signed ones of their size."""
    signed = SIGNED.get(x.dtype)
    return x.flip(dims) if signed is None else x.view(signed).flip(dims).view(x.dtype)


def permuted(x: Tensor) -> Tensor:
    """x with its dimensions in another order in memory: channels last where there are four or five, else reversed."""
    x = x.detach()
    if x.dim() in CHANNELS_LAST:
        return x.contiguous(memory_format=CHANNELS_LAST[x.dim()])
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def constant(x: Tensor, value: float) -> Tensor:
    """A tensor like x that is `value` throughout, with all strides 0, in a storage as large as x whose other numbers differ."""
    storage = torch.linspace(-1.0, -0.5, max(x.numel(), 1), dtype=torch.float64, device="cpu").to(dtype=x.dtype, device=x.device)
    storage[0] = value
    return storage.as_strided(x.shape, (0,) * x.dim())


def offset(x: Tensor) -> Tensor:
    """x, contiguous, behind as many numbers as it has."""
    x = x.detach()
    if not x.dim():
        return sliced(x)
    return torch.cat([reversed_along(x, tuple(range(x.dim()))), x])[len(x):]


def conjugated(x: Tensor) -> Tensor:
    """x, complex, stored as its conjugate with the conjugate bit set."""
    return x.detach().conj().resolve_conj().conj()


def copied(x: Tensor) -> Tensor:
    """A copy with the same strides and offset, in a storage of its own that has the same surroundings; without history."""
    x = x.detach()
    if x.layout != torch.strided or x.is_conj() or x.is_neg() or x.is_contiguous():
        return x.clone()
    storage = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage().clone())  # type: ignore[no-untyped-call]
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


def relaid(x: Tensor) -> Tensor:
    """A differentiable copy, no view, with the same strides."""
    if x.layout != torch.strided or x.is_contiguous():
        return x.clone()
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
