"""Copies of tensors that detect any later write (in place, through `.data`, through a raw pointer),
and tests for shared memory."""

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
    """Return copies in memory of their own, without history: the code that made the tensors may
    reuse their memory."""
    return tuple(x if x is None else x.detach().clone() for x in tensors)


class Snapshot:
    """The values of some tensors at one moment."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        # None for a tensor without numbers
        self._values = tuple(
            tensor.detach().clone() if tensor.numel() and not freed(tensor) else None
            for tensor in tensors
        )

    def changed(self) -> tuple[int, ...]:
        """Return the indices of tensors whose numbers have changed; NaN equals NaN. Freed memory
        does not count as changed."""
        return tuple(
            i for i, now, then in self._pairs if not freed(now, then) and not same(now, then)
        )

    def freed(self) -> tuple[int, ...]:
        """Return the indices of tensors whose memory was freed since."""
        return tuple(i for i, now, then in self._pairs if freed(now, then))

    @property
    def _pairs(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The index, the tensor, and its earlier values, for tensors that had any numbers."""
        pairs = enumerate(zip(self._tensors, self._values, strict=True))
        return ((i, now, then) for i, (now, then) in pairs if then is not None)

    def restore(self) -> None:
        """Restore the numbers of every tensor, and its memory if that was freed."""
        with torch.no_grad():
            for _, tensor, then in self._pairs:
                now = tensor.detach()
                if freed(now, then):
                    if now.shape != then.shape:
                        tensor.data = then.clone()
                        continue
                    now.untyped_storage().resize_(_bytes(now)[1])
                with suppress(RuntimeError):  # an expanded tensor cannot be written to
                    if not same(now, then):
                        now.copy_(then)

    def difference(self, index: int) -> Change | None:
        """Return the change of the first changed element of a tensor."""
        then = self._values[index]
        return None if then is None else change(then, self._tensors[index])


def change(then: Tensor, now: Tensor) -> Change | None:
    """Return (flat index, value before, value now) of the first changed element of a real tensor;
    None where it is complex, unchanged or of another shape."""
    if now.shape != then.shape or now.is_complex() or same(now, then):
        return None
    now, then = now.detach().reshape(-1), then.detach().reshape(-1)
    first = int(((now != then) & ~((now != now) & (then != then))).nonzero()[0])
    return first, float(then[first]), float(now[first])


def same(a: Tensor, b: Tensor) -> bool:
    """Return whether shapes and numbers are equal, NaN equal to NaN. A tensor whose memory was
    freed equals any of its shape."""
    if a.shape != b.shape:
        return False
    if freed(a) or freed(b):
        return True
    a, b = a.detach(), b.detach()
    if a.layout is torch.strided and a.dtype is b.dtype and torch.equal(a, b):
        return True
    return bool(((a == b) | ((a != a) & (b != b))).all())


def alike(some: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> bool:
    """Return whether two sequences hold the `same` tensors, or None, pairwise."""
    return len(some) == len(others) and all(
        a is b if a is None or b is None else same(a, b) for a, b in zip(some, others, strict=True)
    )


def near(a: Tensor, b: Tensor, share: float) -> bool:
    """Return whether all elements of a and b differ by at most this share of the largest of b."""
    if a.shape != b.shape:
        return False
    off, size = (a - b).abs().nan_to_num(nan=0.0), b.abs().nan_to_num(nan=0.0, posinf=0.0)
    return not a.numel() or bool(off.max() <= share * size.max())


def freed(tensor: Tensor, then: Tensor | None = None) -> bool:
    """Return whether a tensor's storage was resized to zero or replaced by an empty one, as
    reversible layers do; reading such a tensor crashes the process. `then`: its earlier values."""
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
        return False
    with suppress(RuntimeError):  # some kinds of tensors have no storage
        held = tensor.numel() > 0 or (then is not None and then.numel() > 0)
        return held and tensor.untyped_storage().nbytes() == 0
    return False


# ---- Tensors that share memory, so that a write into one changes the other
Named = tuple[str, Tensor]


class Shared(NamedTuple):
    """A returned gradient, at index `place`, that shares memory with the tensor called `name`;
    `twin`: the index of that tensor if it is another gradient."""

    place: int
    name: str
    twin: int | None = None


def overlaps(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors share an element of memory (chunks of one buffer do not). False
    for tensors without strides."""
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
    """Return the gradients in memory that other code may still use. Memory of grad_output belongs
    to the engine, and may be returned."""
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
    """Yield the tensors that are attributes of ctx (saved tensors are not) or of its Function's
    class, directly or in a list, tuple or dict."""
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
    """Return the offsets in the storage of a tensor's first byte and of the one after its last."""
    dimensions = zip(tensor.shape, tensor.stride(), strict=True)
    reach = sum((size - 1) * stride for size, stride in dimensions)
    first, width = int(tensor.storage_offset()), tensor.element_size()
    return first * width, (first + reach + 1) * width
