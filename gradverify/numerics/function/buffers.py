"""The inputs' own memory: perturbed in place and restored, so that every call sees the same
addresses.

What is written stays until something else is, or until it is restored: the calls along a line write
the same coordinates, each time all of them.

Untouched rows of a batch then stay bitwise the same in torch's CPU operators (method.md section 5).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import numbers
from gradverify.numerics.rungs import AnyArray, Array, Index, in_a_row, joined


@dataclass(frozen=True)
class TensorPart:
    """The coordinates of one tensor among those of a selection: their places in the tensor, and
    which of the selection they are."""

    tensor: int
    places: Index | slice
    which: Index | slice


@dataclass(frozen=True)
class Selection:
    """Coordinates that are written together, and the numbers that stand there at the point of the
    check."""

    parts: tuple[TensorPart, ...]
    original: Array


class Buffers:
    """A copy of each input. Their real coordinates are numbered through in logical order: those of
    tensor t are starts[t] … starts[t + 1] − 1.

    `x`: the coordinates, where the caller holds them already.
    """

    def __init__(self, inputs: Sequence[Tensor], x: Array | None = None) -> None:
        self.tensors = [t.detach().clone(memory_format=torch.preserve_format) for t in inputs]
        self.x = joined([numbers(t) for t in inputs]) if x is None else x
        self._real = [torch.view_as_real(b) if b.is_complex() else b for b in self.tensors]
        self._memory = [_memory(b) for b in self._real]
        self.starts = np.cumsum([0] + [b.numel() for b in self._real])
        self._starts = self.starts.tolist()
        self._written: Selection | None = None

    def selected(self, coordinates: Index) -> Selection:
        """A selection of coordinates, in their order."""
        if not len(coordinates):
            return Selection((), np.zeros(0))
        run = in_a_row(coordinates)
        low, high = (
            (run.start, run.stop - 1)
            if isinstance(run, slice)
            else (int(coordinates.min()), int(coordinates.max()))
        )
        first = bisect_right(self._starts, low) - 1
        if high < self._starts[first + 1]:
            return Selection(
                (TensorPart(first, _counted_from(run, self._starts[first]), slice(None)),),
                self.x[run],
            )
        parts = []
        for t, (start, stop) in enumerate(pairwise(self._starts)):
            which = np.flatnonzero((coordinates >= start) & (coordinates < stop))
            if which.size:
                parts.append(TensorPart(t, in_a_row(coordinates[which] - start), in_a_row(which)))
        return Selection(tuple(parts), self.x[run])

    def write(self, selection: Selection, x: Array) -> None:
        """Writes x [k] there; everything else is as at the point."""
        if self._written is not selection:
            self.restore()
            self._written = selection
        self._put(selection, x)

    def restore(self) -> None:
        """Everything is as at the point again."""
        if self._written is not None:
            self._put(self._written, self._written.original)
            self._written = None

    def _put(self, selection: Selection, x: Array) -> None:
        for part in selection.parts:
            memory = self._memory[part.tensor]
            if memory is not None:
                memory[part.places] = x[part.which]
                continue
            whole = numbers(self.tensors[part.tensor]).copy()
            whole[part.places] = x[part.which]
            self._real[part.tensor].copy_(
                torch.from_numpy(whole).reshape(self._real[part.tensor].shape)
            )


def _counted_from(places: Index | slice, start: int) -> Index | slice:
    """Counted from `start` on."""
    if not start:
        return places
    return (
        slice(places.start - start, places.stop - start)
        if isinstance(places, slice)
        else places - start
    )


def _memory(t: Tensor) -> AnyArray | None:
    """The numbers of a real tensor in logical order, as a view; None where there is none (not
    contiguous, on a GPU, bfloat16)."""
    if (
        t.device.type != "cpu"
        or not t.is_contiguous()
        or t.dtype not in (torch.float64, torch.float32, torch.float16)
    ):
        return None
    memory: AnyArray = t.reshape(-1).numpy()
    return memory
