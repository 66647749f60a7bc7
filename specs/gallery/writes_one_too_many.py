"""A doubled input whose kernel counts the elements from 0 to n, n included.

The number behind the last one belongs to somebody else: another tensor, or the memory allocator,
which ends the process some time later. Repair: stop before n.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

NUMBERS: dict[torch.dtype, Any] = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def _double(source: Tensor, into: Tensor, count: int) -> None:
    """A kernel as C has it: two addresses and a count."""
    numbers = NUMBERS[into.dtype] * count
    read, written = numbers.from_address(source.data_ptr()), numbers.from_address(into.data_ptr())
    for i in range(count):
        written[i] = 2 * read[i]


class Faulty(Function):
    """`2x` of an even number of elements."""

    more = 1

    @classmethod
    def forward(cls, ctx: Any, x: Tensor) -> Tensor:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        _double(x.detach().contiguous(), y, y.numel() + cls.more)
        return y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return 2 * grad_output


class Right(Faulty):
    """`2x`."""

    more = 0
