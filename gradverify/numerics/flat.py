"""Tensors as their real coordinates: R^n for real tensors, R^2n (re, im, re, im, …) for complex ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Part = Literal["re", "im"]


def real_size(tensor: Tensor) -> int:
    """How many real coordinates a tensor has."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def flat_real(tensor: Tensor) -> Tensor:
    """The real coordinates [n] as float64 on the CPU, detached."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1).to(device="cpu", dtype=torch.float64)


def flat_all(tensors: Sequence[Tensor]) -> Tensor:
    """The real coordinates of several tensors, one after the other: [n1 + n2 + …]."""
    return torch.cat([flat_real(tensor) for tensor in tensors]) if tensors else torch.zeros(0, dtype=torch.float64)


def writable_view(tensor: Tensor) -> Tensor:
    """A flat real view on a contiguous tensor's own memory: writing to it moves the tensor."""
    tensor = tensor.detach()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).view(-1)


def one_hot(like: Tensor, coordinate: int) -> Tensor:
    """A cotangent of the shape and dtype of `like`: 1 (or i) at one real coordinate, zero elsewhere."""
    cotangent = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    writable_view(cotangent)[coordinate] = 1.0
    return cotangent


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


def scales(tensor: Tensor) -> Tensor:
    """The natural step scale s of each real coordinate [n]: |x|, or where that is 0 (or not finite) the tensor's RMS, or 1."""
    magnitude = tensor.detach().abs().reshape(-1).to(device="cpu", dtype=torch.float64)
    own = torch.where((magnitude > 0) & magnitude.isfinite(), magnitude, root_mean_square(magnitude))
    return own.repeat_interleave(2) if tensor.is_complex() else own


def reaches(tensor: Tensor) -> Tensor:
    """S = max(|x|, RMS) of each real coordinate [n]: what the tolerance floor divides by (method.md section 1)."""
    magnitude = tensor.detach().abs().reshape(-1).to(device="cpu", dtype=torch.float64)
    own = magnitude.nan_to_num(posinf=0.0).clamp_min(root_mean_square(magnitude))
    return own.repeat_interleave(2) if tensor.is_complex() else own


def root_mean_square(magnitude: Tensor) -> float:
    """The RMS of the finite magnitudes, or 1 where that is 0 or there are none; squares neither overflow nor vanish."""
    finite = magnitude[magnitude.isfinite()]
    largest = float(finite.max()) if finite.numel() else 0.0
    return largest * math.sqrt(float((finite / largest).square().mean())) if largest else 1.0
