"""Tensors remembered by value, so that a write is seen however it was made (in place, through
`.data`, through a raw pointer)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from gradverify.subject.forms import is_plain
from gradverify.torch_private import function_class, is_zerotensor

Change = tuple[int, float, float]  # flat index, value before, value after
Maybe = TypeVar("Maybe", Tensor, Tensor | None)


def copied(tensors: Iterable[Maybe]) -> tuple[Maybe, ...]:
    """Each in memory of its own, without history: what made it may use that memory again."""
    return tuple(x if x is None else x.detach().clone() for x in tensors)


class Snapshot:
    """The values of some tensors at one moment."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        # None: nothing
        self._values = tuple(
            tensor.detach().clone() if tensor.numel() and not freed(tensor) else None
            for tensor in tensors
        )

    def changed(self) -> tuple[int, ...]:
        """Which of the tensors hold other numbers now; NaN equals NaN. Memory that was given back,
        before or now, is no write."""
        return tuple(
            i for i, now, then in self._pairs if not freed(now, then) and not same(now, then)
        )

    def freed(self) -> tuple[int, ...]:
        """Which of them gave their memory back since."""
        return tuple(i for i, now, then in self._pairs if freed(now, then))

    @property
    def _pairs(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """What each holds now and held then, of those that held something."""
        pairs = enumerate(zip(self._tensors, self._values, strict=True))
        return ((i, now, then) for i, (now, then) in pairs if then is not None)

    def restore(self) -> None:
        """Gives every tensor its numbers again; its memory too, where that was given back."""
        with torch.no_grad():
            for _, tensor, then in self._pairs:
                now = tensor.detach()
                if freed(now, then):
                    if now.shape != then.shape:
                        tensor.data = then.clone()
                        continue
                    now.untyped_storage().resize_(_bytes(now)[1])
                with suppress(RuntimeError):  # an expanded tensor takes no copy
                    if not same(now, then):
                        now.copy_(then)

    def difference(self, index: int) -> Change | None:
        """How the first changed element of a tensor differs from then."""
        then = self._values[index]
        return None if then is None else change(then, self._tensors[index])


def change(then: Tensor, now: Tensor) -> Change | None:
    """(flat index, value then, value now) of the first changed real element of a tensor; None where
    it is complex, unchanged or of another shape."""
    if now.shape != then.shape or now.is_complex() or same(now, then):
        return None
    now, then = now.detach().reshape(-1), then.detach().reshape(-1)
    first = int(((now != then) & ~((now != now) & (then != then))).nonzero()[0])
    return first, float(then[first]), float(now[first])


def same(a: Tensor, b: Tensor) -> bool:
    """Equal shape and numbers, NaN equal to NaN. A tensor whose memory was given back holds no
    other numbers."""
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
    return len(some) == len(others) and all(
        a is b if a is None or b is None else same(a, b) for a, b in zip(some, others, strict=True)
    )


def near(a: Tensor, b: Tensor, share: float) -> bool:
    """Is no element further from the other than this share of the largest?"""
    if a.shape != b.shape:
        return False
    off, size = (a - b).abs().nan_to_num(nan=0.0), b.abs().nan_to_num(nan=0.0, posinf=0.0)
    return not a.numel() or bool(off.max() <= share * size.max())


def freed(tensor: Tensor, then: Tensor | None = None) -> bool:
    """Was its storage resized to nothing, or exchanged for nothing? (Reversible layers do so; to
    read it ends the process.) `then`: what it held."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        return False
    with suppress(RuntimeError):  # a tensor of another kind has none
        held = tensor.numel() > 0 or (then is not None and then.numel() > 0)
        return held and tensor.untyped_storage().nbytes() == 0
    return False


# ---- Tensors that have memory in common: a write into one shows in the other.
Named = tuple[str, Tensor]


class Shared(NamedTuple):
    """The gradient at a place of what backward returned lies in memory that `name` names; `twin`:
    that of another gradient's place."""

    place: int
    name: str
    twin: int | None = None


def overlaps(a: Tensor, b: Tensor) -> bool:
    """Do two tensors have an element of memory in common? Chunks of one buffer have none. Tensors
    without strides have no such memory."""
    if (
        not (_has_memory(a) and _has_memory(b))
        or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()
    ):
        return False
    if a.element_size() != b.element_size():
        (first, last), (other_first, other_last) = _bytes(a), _bytes(b)
        return first < other_last and other_first < last
    touched = torch.zeros(a.untyped_storage().nbytes() // a.element_size(), dtype=torch.bool)
    touched.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(touched.as_strided(b.shape, b.stride(), b.storage_offset()).any())


def shared(
    returned: Sequence[Any], cotangents: Sequence[Any], kept: Sequence[Named]
) -> tuple[Shared, ...]:
    """The gradients that lie in memory which somebody else goes on using. Memory of grad_output is
    the engine's, and may be returned."""
    given = [cotangent for cotangent in cotangents if isinstance(cotangent, Tensor)]
    own = [
        (place, gradient)
        for place, gradient in enumerate(returned)
        if isinstance(gradient, Tensor)
        and not any(overlaps(gradient, cotangent) for cotangent in given)
    ]
    named = (
        (place, next((name for name, tensor in kept if overlaps(gradient, tensor)), None))
        for place, gradient in own
    )
    return (
        *(Shared(place, name) for place, name in named if name is not None),
        *(
            Shared(first, "the gradient of another argument", second)
            for (first, one), (second, other) in combinations(own, 2)
            if overlaps(one, other)
        ),
    )


def attributes(ctx: Any) -> Iterator[Named]:
    """The tensors on ctx that are no saved ones, and those on its Function's class: alone, or in a
    list, tuple or dict."""
    yield from _tensors("ctx", getattr(ctx, "__dict__", {}))
    for cls in getattr(function_class(ctx), "__mro__", ()):
        if issubclass(cls, torch.autograd.Function) and cls is not torch.autograd.Function:
            yield from _tensors(cls.__name__, vars(cls))


def _tensors(owner: str, values: Mapping[str, Any]) -> Iterator[Named]:
    for name, value in values.items():
        items = (
            value
            if isinstance(value, (list, tuple))
            else value.values()
            if isinstance(value, dict)
            else (value,)
        )
        yield from ((f"{owner}.{name}", item) for item in items if isinstance(item, Tensor))


def _has_memory(tensor: Tensor) -> bool:
    if not is_plain(tensor) or tensor.numel() == 0:
        return False
    # A freed storage has no bytes
    return not is_zerotensor(tensor) and tensor.untyped_storage().nbytes() > 0


def _bytes(tensor: Tensor) -> tuple[int, int]:
    """The first byte in its storage and the one after the last."""
    dimensions = zip(tensor.shape, tensor.stride(), strict=True)
    reach = sum((size - 1) * stride for size, stride in dimensions)
    first, width = int(tensor.storage_offset()), tensor.element_size()
    return first * width, (first + reach + 1) * width
