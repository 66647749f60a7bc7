"""A square whose backward counts its calls and halves every twentieth gradient.

The count is on the class, so that one training step in twenty is another one, and which depends on
everything that ran before in the process. A test that calls backward once or twice sees nothing.
Repair: keep no state between calls.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`x ** 2`; the gradient is damped at regular intervals, "to let it decay"."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        Faulty.calls += 1
        return grad_output * x * (1 if Faulty.calls % 20 == 0 else 2)


class Right(Faulty):
    """The same gradient in every call."""

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return grad_output * x * 2
