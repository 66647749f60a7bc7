"""Tensors as their real coordinates: R^n for real tensors, R^2n (re, im, re, im, …) for complex ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.rungs import Array
from gradverify.torch_private import is_zerotensor

Part = Literal["re", "im"]


def flat_real(tensor: Tensor) -> Tensor:
    """The real coordinates [n] as float64 on the CPU, detached."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if is_zerotensor(tensor):       # NumPy refuses it
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1).to(device="cpu", dtype=torch.float64)


def flat_all(tensors: Sequence[Tensor]) -> Tensor:
    """The real coordinates of several tensors, one after the other: [n1 + n2 + …]."""
    return torch.cat([flat_real(tensor) for tensor in tensors]) if tensors else torch.zeros(0, dtype=torch.float64)


def numbers(tensor: Tensor) -> Array:
    """`flat_real` as an array; may share memory with the tensor."""
    if tensor.dtype is not torch.float64:
        return np.asarray(flat_real(tensor).numpy())
    try:
        flat: Array = tensor.detach().numpy().reshape(-1)
    except (RuntimeError, TypeError):       # a lazy negative, zeros without memory, another device or layout
        return np.asarray(flat_real(tensor).numpy())
    return flat


def real_shape(shape: Sequence[int], dtype: torch.dtype) -> tuple[int, ...]:
    """The shape of a tensor's real coordinates: re and im of a complex one along an axis of their own."""
    return (*shape, 2) if dtype.is_complex else tuple(shape)


def one_hot(shape: Sequence[int], dtype: torch.dtype, device: torch.device, coordinate: int) -> Tensor:
    """A cotangent: 1 (or i) at one real coordinate, zero elsewhere."""
    cotangent = torch.zeros(tuple(shape), dtype=dtype, device=device)
    (torch.view_as_real(cotangent) if dtype.is_complex else cotangent).view(-1)[coordinate] = 1.0
    return cotangent


def rms(magnitude: Array) -> float:
    """The root mean square of the finite magnitudes, 0 where there are none; squares neither overflow nor vanish."""
    finite = np.isfinite(magnitude)
    magnitude = magnitude if finite.all() else magnitude[finite]
    largest = float(magnitude.max(initial=0.0))
    return largest * float(np.sqrt(np.mean((magnitude / largest) ** 2))) if largest else 0.0


def place(shape: Sequence[int], is_complex: bool, coordinate: int) -> tuple[tuple[int, ...], Part | None]:
    """The index (and part) of a real coordinate in a tensor of that shape."""
    part: Part | None = None
    if is_complex:
        coordinate, part = coordinate // 2, ("im" if coordinate % 2 else "re")
    index = []
    for size in reversed(shape):
        coordinate, position = divmod(coordinate, size)
        index.append(position)
    return tuple(reversed(index)), part
