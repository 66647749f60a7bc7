"""Tensors remembered by value, so that a write is seen however it was made (in place, through `.data`, through a raw pointer)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Change = tuple[int, float, float]       # flat index, value before, value after


class Snapshot:
    """The values of some tensors at one moment."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        self._values = tuple(tensor.detach().clone() for tensor in tensors)

    def changed(self) -> tuple[int, ...]:
        """Which of the tensors hold other numbers now; NaN equals NaN."""
        return tuple(i for i, (now, then) in enumerate(zip(self._tensors, self._values, strict=True)) if not same(now, then))

    def value(self, index: int) -> Tensor:
        """What a tensor held then."""
        return self._values[index]

    def difference(self, index: int) -> Change | None:
        """How the first changed element of a tensor differs from then."""
        return change(self._values[index], self._tensors[index])


def change(then: Tensor, now: Tensor) -> Change | None:
    """(flat index, value then, value now) of the first changed real element of a tensor; None where it is complex or unchanged."""
    now, then = now.detach().reshape(-1), then.detach().reshape(-1)
    if now.is_complex() or same(now, then):
        return None
    first = int(((now != then) & ~((now != now) & (then != then))).nonzero()[0])
    return first, float(then[first]), float(now[first])


def same(a: Tensor, b: Tensor) -> bool:
    """Equal shape and numbers, NaN equal to NaN. A tensor whose memory was given back holds no other numbers."""
    if a.shape != b.shape:
        return False
    if _freed(a) or _freed(b):
        return True
    a, b = a.detach(), b.detach()
    if a.layout is torch.strided and a.dtype is b.dtype and torch.equal(a, b):
        return True
    return bool(((a == b) | ((a != a) & (b != b))).all())


def alike(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Are these all the same, one by one?"""
    return len(some) == len(others) and all(same(a, b) for a, b in zip(some, others, strict=True))


def _freed(tensor: Tensor) -> bool:
    """Was its storage resized to nothing? (Reversible layers do so; reading it would leave the memory.)"""
    return tensor.layout == torch.strided and tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0
