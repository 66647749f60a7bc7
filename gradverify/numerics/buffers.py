"""The inputs' own memory: perturbed in place and restored, so that every call sees the same addresses.

Untouched rows of a batch then stay bitwise the same in torch's CPU operators (method.md section 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.flat import numbers
from gradverify.numerics.rungs import AnyArray, Array, Index


class Buffers:
    """A copy of each input. Their real coordinates are numbered through in logical order: those of tensor t are starts[t] … starts[t + 1] − 1."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.tensors = [t.detach().clone(memory_format=torch.preserve_format) for t in inputs]
        self.x = np.concatenate([numbers(t) for t in inputs] or [np.zeros(0)])
        self._real = [torch.view_as_real(b) if b.is_complex() else b for b in self.tensors]
        self._memory = [_memory(b) for b in self._real]
        self._ends = np.cumsum([0] + [b.numel() for b in self._real])
        self.starts = self._ends

    def set(self, coordinates: Index, x: Array | float) -> None:
        """Writes these coordinates; the rest stays as it is."""
        if not len(coordinates):
            return
        first, last = (int(np.searchsorted(self._ends, int(c), side="right")) - 1 for c in (coordinates.min(), coordinates.max()))
        if first == last:
            self._set(first, coordinates, x)
            return
        every = np.broadcast_to(x, coordinates.shape)
        for t in range(first, last + 1):
            own = (coordinates >= self._ends[t]) & (coordinates < self._ends[t + 1])
            self._set(t, coordinates[own], every[own])

    def restore(self, coordinates: Index) -> None:
        """Writes what stood there at the point of the check."""
        self.set(coordinates, self.x[coordinates])

    def _set(self, t: int, coordinates: Index, x: Array | float) -> None:
        memory, start = self._memory[t], int(self._ends[t])
        if memory is not None:
            memory[coordinates - start if start else coordinates] = x
            return
        whole = numbers(self.tensors[t]).copy()
        whole[coordinates - start] = x
        self._real[t].copy_(torch.from_numpy(whole).reshape(self._real[t].shape))


def _memory(t: Tensor) -> AnyArray | None:
    """The numbers of a real tensor in logical order, as a view; None where there is none (not contiguous, on a GPU, bfloat16)."""
    if t.device.type != "cpu" or not t.is_contiguous() or t.dtype not in (torch.float64, torch.float32, torch.float16):
        return None
    memory: AnyArray = t.reshape(-1).numpy()
    return memory
