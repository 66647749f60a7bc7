"""The tanh form of gelu whose backward has √(2/π) with seven digits.

The gradient is off by a few parts in 10⁸: far below any tolerance, far above rounding. It does
little harm here, and shows that two constants that should be one are typed twice; the next edit of
one of them will do more. Repair: one constant, computed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

EXACT, ROUNDED = math.sqrt(2 / math.pi), 0.7978846
CUBIC = 0.044715


class Faulty(Function):
    """`x (1 + tanh(c (x + 0.044715 x³))) / 2`."""

    c = ROUNDED

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return 0.5 * x * (1 + torch.tanh(EXACT * (x + CUBIC * x**3)))

    @classmethod
    def slope(cls, x: Tensor) -> Tensor:
        t = torch.tanh(cls.c * (x + CUBIC * x**3))
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * cls.c * (1 + 3 * CUBIC * x * x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output * Faulty.slope(ctx.saved_tensors[0])


class Right(Faulty):
    """The same constant in both."""

    c = EXACT

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output * Right.slope(ctx.saved_tensors[0])
