"""Tensors remembered by value, so that a write is seen however it was made (in place, through `.data`, through a raw pointer)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


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

    def difference(self, index: int) -> tuple[int, float, float] | None:
        """(flat index, value then, value now) of the first changed real element of a tensor; None where it is complex or unchanged."""
        now, then = self._tensors[index].detach().reshape(-1), self._values[index].reshape(-1)
        if now.is_complex() or same(now, then):
            return None
        first = int(((now != then) & ~((now != now) & (then != then))).nonzero()[0])
        return first, float(then[first]), float(now[first])


def same(a: Tensor, b: Tensor) -> bool:
    """Equal shape and numbers, NaN equal to NaN."""
    if a.shape != b.shape:
        return False
    a, b = a.detach(), b.detach()
    return bool(((a == b) | ((a != a) & (b != b))).all())
