"""An exponential that computes in float32, whatever it is given.

The result claims 16 digits and has 7. A float64 test of whatever is built on it fails or passes by
luck, and its author looks for the fault in that. Repair: compute in the input's dtype.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function


class Faulty(Function):
    """`exp(x)` by way of float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.float().exp().to(x.dtype)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        y: Tensor = ctx.saved_tensors[0]
        return grad_output * y


class Right(Faulty):
    """In the input's own dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y
