"""Tensors that have memory in common: a write into one shows in the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from gradverify.subject.forms import is_plain
from gradverify.torch_private import function_class, is_zerotensor

Named = tuple[str, Tensor]


@dataclass(frozen=True, slots=True)
class Shared:
    """The gradient at a place of what backward returned lies in memory that `name` names; `twin`: that of another gradient's place."""

    place: int
    name: str
    twin: int | None = None


def overlaps(a: Tensor, b: Tensor) -> bool:
    """Do two tensors have an element of memory in common? Chunks of one buffer have none. Tensors without strides have no such memory."""
    if not (_has_memory(a) and _has_memory(b)) or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    if a.element_size() != b.element_size():
        (first, last), (other_first, other_last) = _bytes(a), _bytes(b)
        return first < other_last and other_first < last
    touched = torch.zeros(a.untyped_storage().nbytes() // a.element_size(), dtype=torch.bool)
    touched.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(touched.as_strided(b.shape, b.stride(), b.storage_offset()).any())


def shared(returned: Sequence[Any], cotangents: Sequence[Any], kept: Sequence[Named]) -> tuple[Shared, ...]:
    """The gradients that lie in memory which somebody else goes on using. Memory of grad_output is the engine's, and may be returned."""
    given = [cotangent for cotangent in cotangents if isinstance(cotangent, Tensor)]
    own = [(place, gradient) for place, gradient in enumerate(returned)
           if isinstance(gradient, Tensor) and not any(overlaps(gradient, cotangent) for cotangent in given)]
    named = ((place, next((name for name, tensor in kept if overlaps(gradient, tensor)), None)) for place, gradient in own)
    return (*(Shared(place, name) for place, name in named if name is not None),
            *(Shared(first, "the gradient of another argument", second)
              for (first, one), (second, other) in combinations(own, 2) if overlaps(one, other)))


def attributes(ctx: Any) -> Iterator[Named]:
    """The tensors on ctx that are no saved ones, and those on its Function's class: alone, or in a list, tuple or dict."""
    yield from _tensors("ctx", getattr(ctx, "__dict__", {}))
    for cls in getattr(function_class(ctx), "__mro__", ()):
        if issubclass(cls, torch.autograd.Function) and cls is not torch.autograd.Function:
            yield from _tensors(cls.__name__, vars(cls))


def _tensors(owner: str, values: Mapping[str, Any]) -> Iterator[Named]:
    for name, value in values.items():
        items = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else (value,)
        yield from ((f"{owner}.{name}", item) for item in items if isinstance(item, Tensor))


def _has_memory(tensor: Tensor) -> bool:
    if not is_plain(tensor) or tensor.numel() == 0:
        return False
    return not is_zerotensor(tensor) and tensor.untyped_storage().nbytes() > 0       # a freed storage has no bytes


def _bytes(tensor: Tensor) -> tuple[int, int]:
    """The first byte in its storage and the one after the last."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = int(tensor.storage_offset())
    return first * tensor.element_size(), (first + reach + 1) * tensor.element_size()
