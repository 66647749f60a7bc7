"""Tensors remembered by value, so that a write is seen however it was made (in place, through `.data`, through a raw pointer)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

Change = tuple[int, float, float]       # flat index, value before, value after


class Snapshot:
    """The values of some tensors at one moment."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        self._values = tuple(tensor.detach().clone() if tensor.numel() and not freed(tensor) else None for tensor in tensors)   # None: nothing

    def changed(self) -> tuple[int, ...]:
        """Which of the tensors hold other numbers now; NaN equals NaN. Memory that was given back, before or now, is no write."""
        pairs = enumerate(zip(self._tensors, self._values, strict=True))
        return tuple(i for i, (now, then) in pairs if then is not None and not freed(now, then) and not same(now, then))

    def freed(self) -> tuple[int, ...]:
        """Which of them gave their memory back since."""
        return tuple(i for i, (now, then) in enumerate(zip(self._tensors, self._values, strict=True)) if then is not None and freed(now, then))

    def value(self, index: int) -> Tensor:
        """What a tensor held then; it may have held nothing."""
        then = self._values[index]
        return self._tensors[index].detach().clone() if then is None else then

    def restore(self) -> None:
        """Gives every tensor its numbers again; its memory too, where that was given back."""
        with torch.no_grad():
            for i in self.freed():
                now, then = self._tensors[i].detach(), self.value(i)
                if now.shape != then.shape:
                    self._tensors[i].data = then.clone()
                    continue
                extent = 1 + now.storage_offset() + sum((n - 1) * stride for n, stride in zip(now.shape, now.stride(), strict=True))
                now.untyped_storage().resize_(int(extent) * now.element_size())
                now.copy_(then)
            for i in self.changed():
                with suppress(RuntimeError):       # an expanded tensor takes no copy
                    self._tensors[i].detach().copy_(self.value(i))

    def difference(self, index: int) -> Change | None:
        """How the first changed element of a tensor differs from then."""
        return change(self.value(index), self._tensors[index])


def change(then: Tensor, now: Tensor) -> Change | None:
    """(flat index, value then, value now) of the first changed real element of a tensor; None where it is complex, unchanged or of another shape."""
    if now.shape != then.shape or now.is_complex() or same(now, then):
        return None
    now, then = now.detach().reshape(-1), then.detach().reshape(-1)
    first = int(((now != then) & ~((now != now) & (then != then))).nonzero()[0])
    return first, float(then[first]), float(now[first])


def same(a: Tensor, b: Tensor) -> bool:
    """Equal shape and numbers, NaN equal to NaN. A tensor whose memory was given back holds no other numbers."""
    if a.shape != b.shape:
        return False
    if freed(a) or freed(b):
        return True
    a, b = a.detach(), b.detach()
    if a.layout is torch.strided and a.dtype is b.dtype and torch.equal(a, b):
        return True
    return bool(((a == b) | ((a != a) & (b != b))).all())


def alike(some: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> bool:
    """Are these all the same, one by one? None is None alone."""
    return len(some) == len(others) and all(a is b if a is None or b is None else same(a, b) for a, b in zip(some, others, strict=True))


def freed(tensor: Tensor, then: Tensor | None = None) -> bool:
    """Was its storage resized to nothing, or exchanged for nothing? (Reversible layers do so; to read it ends the process.) `then`: what it held."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        return False
    try:
        return (tensor.numel() > 0 or (then is not None and then.numel() > 0)) and tensor.untyped_storage().nbytes() == 0
    except (RuntimeError, NotImplementedError):     # a tensor of another kind has none to look at
        return False
